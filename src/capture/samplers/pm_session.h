// PM sampling on one GPU: what is asked once (chip, support, metric set), and a running session whose hardware buffer
// is emptied by drain().
//
// Order and lifetimes that CUPTI demands, kept here: one session per device at a time; the config image lives until the
// session is disabled; the counter image is reset from a pristine copy before each decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/samplers/pm_evaluator.h"
#include "capture/samplers/pm_load.h"
#include "capture/samplers/pm_metrics.h"
#include "capture/samplers/pm_result.h"

namespace llmprof::samplers {

struct PmDevice {
  size_t device_index = 0;   // CUDA ordinal
  std::string chip;          // "GH100"
  bool cycles_only = false;  // the interval counts cycles of the system clock: Turing and GA100 have no timer
  std::vector<uint8_t> availability;
  PmMetricSet set;
  // Answers of cuptiProfilerDeviceSupported (cupti_profiler::SupportLevel).
  int support_vgpu = 0, support_confidential = 0, support_wsl = 0, support_architecture = 0;
};

// Turing and GA100 take the sampling interval in clock cycles only.
bool samples_by_cycles(const std::string& chip);

// Starts CUPTI's profiler in this process (cuptiProfilerInitialize; the CUDA driver must have started) and finds out
// about the device. `seen_support` is filled as far as the calls got, also on failure. metrics_max 0: no limit.
PmResult<PmDevice> open_pm_device(const nvidia::CuptiProfilerLibrary& cupti, size_t device_index,
                                  PmDevice* seen_support = nullptr, size_t metrics_max = 0,
                                  PmFocus focus = PmFocus::kBroad);

struct PmSessionConfig {
  int64_t interval_ns = 100000;
  // An image of so many, 56 KB a sample with 17 metrics, four images: five times what 20 ms hold at 100 us, because a
  // decoding that finds its image full does not go on where it stopped. With 20000 the decoder was seen to run out of
  // memory.
  uint32_t max_samples = 1000;
  size_t hardware_buffer_bytes = size_t{128} << 20U;  // half a second at 100 us; larger ones take long to set up
};

// Where a sampler's time goes, ns.
struct PmCost {
  int64_t clean_ns = 0, decode_ns = 0, evaluate_ns = 0;
};

struct PmDrain {
  bool overflow = false;  // the hardware buffer was full: samples are lost and the session must be restarted
  bool full = false;      // an image was full: what did not fit is lost
  bool behind = false;    // decoding cannot keep up: images will be full soon
  double busy_frac = 0;   // of the time since the drain before, spent decoding or waiting for an image
  size_t samples = 0;     // passed on
};

class PmSession {
 public:
  static PmResult<std::unique_ptr<PmSession>> start(const nvidia::CuptiProfilerLibrary& cupti, const PmDevice& device,
                                                    const PmSessionConfig& config);
  ~PmSession();  // stops and disables
  PmSession(const PmSession&) = delete;
  PmSession& operator=(const PmSession&) = delete;

  // Decodes what the hardware has collected, at most kRounds images full, and passes on what has been evaluated by now.
  PmResult<PmDrain> drain(const PmSink& sink);
  // Stops collecting, and decodes, evaluates and passes on all that is left. `overflow` and `full` say whether it was.
  PmResult<PmDrain> finish(const PmSink& sink);

  PmCost cost();

  static constexpr int kRounds = 4, kLastDrains = 20;

 private:
  PmSession(const nvidia::CuptiProfilerLibrary& cupti, const PmDevice& device);
  PmResult<bool> begin(const PmSessionConfig& config);
  PmResult<PmDrain> decode();
  void stop();
  tl::unexpected<PmFailure> failure(cupti_profiler::Code code, const char* call) const;

  const nvidia::CuptiProfilerLibrary& cupti_;
  const nvidia::CuptiProfilerApi& api_;
  const PmDevice& device_;
  PmHost host_;
  cupti_profiler::PmSamplingObject* object_ = nullptr;
  bool running_ = false;
  int64_t decode_ns_ = 0;
  int64_t drained_ns_ = 0;  // end of the last drain, CLOCK_MONOTONIC
  PmLoad load_{0, 0};
  std::vector<uint8_t> config_;
  std::vector<const char*> names_;
  std::unique_ptr<PmEvaluator> evaluator_;  // before host_ and object_ go
};

}  // namespace llmprof::samplers
