// Which hardware counters are sampled: the largest set that a chip can collect in one pass, found at run time by asking
// CUPTI's host half how many passes a set takes. That needs no GPU, so the sets of every chip are unit-tested anywhere
// a libcupti lies about (tests/unit/capture_samplers_metrics_test.cc).
//
// Two rules of CUPTI shape the search: a rejected name leaves a host object that silently drops later names, so every
// question is asked on a fresh object; and the advertised maximum of metrics per pass is wrong for PM sampling, so only
// the number of passes counts. One question costs about 5 ms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "nvidia/cupti_profiler_library.h"

namespace llmprof::samplers {

// What a set is for. kOperations (deep mode) gives up warps_active_frac where it must, for the instructions of the FMA
// pipes: beside the tensor pipe's active cycles they bound the arithmetic that was executed. No chip can sample
// operation counts themselves (sm__ops_path_tensor_*, sm__sass_thread_inst_executed_op_*).
enum class PmFocus : uint8_t { kBroad, kOperations };

// One column of gpu_samples (trace/tables.h) and the metrics that can fill it, the preferred name first: names differ
// between generations. The column's value is the metric's times scale.
struct PmCandidate {
  const char* column;
  std::vector<const char*> metrics;
  double scale;
  bool total = false;            // a count over the interval (adds up) rather than a mean or a rate
  const char* unless = nullptr;  // left out where this column is in the set already
};
// In the order in which they are tried; the first ones matter most, because a full pass refuses what comes after.
const std::vector<PmCandidate>& pm_candidates(PmFocus focus = PmFocus::kBroad);

struct PmMetric {
  const char* column;
  const char* metric;
  double scale;
  bool total = false;
};

struct PmMetricSet {
  std::vector<PmMetric> metrics;  // at least one
  std::vector<uint8_t> config;    // CUPTI's config image for exactly these metrics
};

// The largest one-pass set for the chip ("GH100"). `availability`: the device's counter availability image, null to
// assume every counter of the chip; `metrics_max` 0: as many as fit. An error if the chip is unknown to this CUPTI or
// not one metric can be sampled.
Result<PmMetricSet> build_pm_metric_set(const nvidia::CuptiProfilerLibrary& cupti, const std::string& chip,
                                        const uint8_t* availability = nullptr, size_t metrics_max = 0,
                                        PmFocus focus = PmFocus::kBroad);

// How many metrics at the head of a set are its core: memory traffic, SMs, tensor pipe, clock and, where they were
// asked for, the FMA pipes. What comes after them is given up first where decoding cannot keep up.
size_t core_size(const PmMetricSet& set);

// A host object of CUPTI, released at the end of its scope.
class PmHost {
 public:
  PmHost(const nvidia::CuptiProfilerLibrary& cupti, const std::string& chip, const uint8_t* availability);
  ~PmHost();
  PmHost(const PmHost&) = delete;
  PmHost& operator=(const PmHost&) = delete;
  cupti_profiler::Code status() const { return status_; }  // of its creation
  cupti_profiler::HostObject* get() const { return host_; }

  // Schedules the metrics and returns the number of passes; 0 and `error` if CUPTI refuses a name. Once per object.
  size_t passes(const std::vector<PmMetric>& metrics, std::vector<uint8_t>& config, cupti_profiler::Code& error);

 private:
  const nvidia::CuptiProfilerApi* api_;
  cupti_profiler::HostObject* host_ = nullptr;
  cupti_profiler::Code status_;
};

}  // namespace llmprof::samplers
