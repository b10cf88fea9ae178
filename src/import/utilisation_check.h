// Readings of GPU utilisation against the GPU work of a recording: whether a log was placed where it belongs.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// Readings over whose span the recording says busy or idle all the time, and of them those that say the same.
struct UtilisationAgreement {
  int64_t compared = 0, agreeing = 0;
  bool busy_seen = false, idle_seen = false;

  // With a constant load, readings of any time agree.
  bool tells_time() const { return busy_seen && idle_seen; }
  bool agrees() const { return tells_time() && compared >= kFewest && 10 * agreeing >= 9 * compared; }
  bool contradicts() const { return compared >= kFewest && 4 * agreeing < 3 * compared; }

 private:
  static constexpr int64_t kFewest = 6;
};

class RecordedBusy {
 public:
  explicit RecordedBusy(const Trace& trace);
  // `device`: of the log -> of the recording. Readings are taken up to half_ns before or behind their time + shift_ns.
  UtilisationAgreement compare(const NvmlSamples& samples, const std::map<int32_t, int32_t>& device, int64_t shift_ns,
                               int64_t half_ns) const;

 private:
  struct Device {
    std::vector<std::pair<int64_t, int64_t>> busy;  // start and end: sorted, disjoint
    std::vector<int64_t> before;                    // busy time before each of them
  };
  static int64_t busy_before(const Device& device, int64_t time_ns);
  bool recorded(int64_t from_ns, int64_t to_ns) const;

  std::map<int32_t, Device> devices_;
  int64_t from_ns_ = INT64_MAX, to_ns_ = INT64_MIN;
  std::vector<std::pair<int64_t, int64_t>> unrecorded_;  // kernels were not
};

}  // namespace llmprof
