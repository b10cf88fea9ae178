// How fast the CPU of the program's thread was during a step, by the probes of the recorder (Trace::host_paces): a core
// whose other half runs another program takes half as long again for a program's code, and steps that wait for the host
// do with it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

class HostPace {
 public:
  // `known_best_ns`: what a probe is known to take at best on the machine; 0: the quickest of the recording are taken
  // for that. Nothing is known of a process whose probes are of several threads, or of a GPU that several processes
  // use: which CPU a step waited for is not known.
  explicit HostPace(const Trace& trace, double known_best_ns = 0);

  // 1: as fast as ever, and no wait for a CPU. Nothing where no probe is near.
  std::optional<double> during(int32_t device, int64_t start_ns, int64_t end_ns) const;
  // Known to be at full pace all along: no probe in the time or next to it is slower (base/pace_work.h), and the
  // thread did not wait for a CPU.
  bool full(int32_t device, int64_t start_ns, int64_t end_ns) const;
  bool full(const Steps& steps, Row step) const {
    return full(steps.device[step], steps.host_start_ns[step], steps.end_ns[step]);
  }

  // Of the thread that has nearly all probes of a process.
  struct Probed {
    int64_t process_id = 0;
    int64_t probes = 0;
    double best_ns = 0;    // of all
    double slow_frac = 0;  // share of probes that were not at full pace
    // Share of time in which the thread was ready to run and had no CPU.
    std::optional<double> waited_frac;
  };
  const std::vector<Probed>& probed() const { return probed_; }  // by process

 private:
  struct Probe {
    int64_t start_ns, end_ns;
    double pace;
    double waited;  // share of the time since the probe before it
  };
  // Those in the time and the ones next to it; none where the next ones are far.
  struct Near {
    double mean = 0, least = 0;
    double waited = 0;  // the largest share between two probes
  };
  std::optional<Near> near(int32_t device, int64_t start_ns, int64_t end_ns) const;
  const std::vector<Probe>* probes_of(int32_t device) const;

  std::vector<std::vector<Probe>> probes_;  // by row of probed_, each by time
  std::vector<Probed> probed_;
  std::map<int32_t, size_t> of_device_;  // row of probed_; devices that nobody is known to use are missing
};

}  // namespace llmprof
