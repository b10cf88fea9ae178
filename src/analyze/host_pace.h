// How fast the CPU of the program's thread was during a step, by the probes of the recorder (Trace::host_paces): a core
// whose other half runs another program takes half as long again for a program's code, and steps that wait for the host
// do with it.
#pragma once

#include <optional>
#include <vector>

#include "results/call_costs.h"
#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

class HostPace {
 public:
  // `costs`: of the machine of the recording; they say what a probe takes there at best. Nothing is known where several
  // threads of the program, or several processes, wait for GPUs: which CPU a step waited for is not known.
  HostPace(const Trace& trace, const RecorderCosts& costs);

  // 1: as fast as ever. Nothing where no probe is near.
  std::optional<double> during(int64_t start_ns, int64_t end_ns) const;
  // Known to be at full pace all along: no probe in the time or next to it is slower (base/pace_work.h).
  bool full(int64_t start_ns, int64_t end_ns) const;
  bool full(const Steps& steps, Row step) const { return full(steps.host_start_ns[step], steps.end_ns[step]); }

  // Of all probes; nothing without any.
  const std::optional<HostPaceRecord>& record() const { return record_; }

 private:
  struct Probe {
    int64_t start_ns, end_ns;
    double pace;
  };
  // Those in the time and the ones next to it; none where the next ones are far.
  struct Near {
    double mean = 0, least = 0;
  };
  std::optional<Near> near(int64_t start_ns, int64_t end_ns) const;

  std::vector<Probe> probes_;  // by time, of one thread
  std::optional<HostPaceRecord> record_;
};

}  // namespace llmprof
