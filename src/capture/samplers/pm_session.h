// PM sampling on one GPU: what is asked once (chip, support, metric set), and a running session whose hardware buffer
// is emptied by drain(). Failures carry CUPTI's code and the call, so that permissions.h can say what they mean.
//
// Order and lifetimes that CUPTI demands, kept here: one session per device at a time; the config image lives until the
// session is disabled; the counter image is reset from a pristine copy before each decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "capture/samplers/pm_metrics.h"

namespace llmprof::samplers {

struct PmFailure {
  cupti_profiler::Code code = cupti_profiler::kUnknown;
  std::string call;  // "cuptiPmSamplingEnable"
  std::string text;  // for a person
};
template <class T>
using PmResult = tl::expected<T, PmFailure>;

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
PmResult<PmDevice> open_pm_device(const CuptiProfilerLibrary& cupti, size_t device_index,
                                  PmDevice* seen_support = nullptr, size_t metrics_max = 0,
                                  PmFocus focus = PmFocus::kBroad);

struct PmSessionConfig {
  int64_t interval_ns = 100000;
  // An image of so many, 65 KiB a sample with 14 metrics: five times what 20 ms hold at 100 us, because a decoding that
  // finds its image full may not go on where it stopped. With 20000 the decoder was seen to run out of memory.
  uint32_t max_samples = 1000;
  size_t hardware_buffer_bytes = size_t{256} << 20U;
};

// How far into an image so many samples reach, learnt from decodings: a head and one record a sample. An image must be
// clean before each decoding, and it is large (65 KiB a sample with 14 metrics): cleaning all of it every 20 ms takes
// most of a core.
class PmImageLayout {
 public:
  // After a decoding of so many samples into a clean image: everything from byte `end` on is as it was.
  void observe(size_t samples, size_t end);
  bool known() const { return agreed_ >= kSure; }
  bool settled() const { return known() || refuted_; }
  // With room for one more, that may have been begun.
  size_t bytes_of(size_t samples) const { return head_bytes_ + (samples + 2) * sample_bytes_; }

 private:
  static constexpr int kSure = 8;
  void refute() { refuted_ = true; }

  size_t first_samples_ = 0, first_end_ = 0;
  size_t head_bytes_ = 0, sample_bytes_ = 0;
  int agreed_ = 0;
  bool refuted_ = false;
};

// Where a sampler's time goes, ns.
struct PmCost {
  int64_t clean_ns = 0, decode_ns = 0, evaluate_ns = 0;
};

// One sample as CUPTI has it: values in the order of the set, times in CLOCK_REALTIME ns, nothing scaled or dropped.
using PmSink = std::function<void(int64_t start_ns, int64_t end_ns, const double* values)>;

struct PmDrain {
  bool overflow = false;  // the hardware buffer was full: samples are lost and the session must be restarted
  bool behind = false;    // there was more than could be decoded in this call
  size_t samples = 0;
};

class PmSession {
 public:
  static PmResult<std::unique_ptr<PmSession>> start(const CuptiProfilerLibrary& cupti, const PmDevice& device,
                                                    const PmSessionConfig& config);
  ~PmSession();  // stops and disables
  PmSession(const PmSession&) = delete;
  PmSession& operator=(const PmSession&) = delete;

  // Decodes what the hardware has collected, at most kRounds images full.
  PmResult<PmDrain> drain(const PmSink& sink);
  // Stops collecting; drain() still gives what is left.
  void stop();

  const PmCost& cost() const { return cost_; }

  static constexpr int kRounds = 4;

 private:
  PmSession(const CuptiProfilerLibrary& cupti, const PmDevice& device);
  PmResult<bool> begin(const PmSessionConfig& config);
  PmResult<bool> evaluate(const PmSink& sink, size_t& samples);
  PmFailure failure(cupti_profiler::Code code, const char* call) const;
  void clean_image();
  void learn_layout(size_t completed);

  const CuptiProfilerLibrary& cupti_;
  const CuptiProfilerApi& api_;
  const PmDevice& device_;
  PmHost host_;
  cupti_profiler::PmSamplingObject* object_ = nullptr;
  bool running_ = false;
  PmCost cost_;
  std::vector<uint8_t> config_, image_, pristine_;
  PmImageLayout layout_;
  size_t used_samples_ = 0;  // of image_, since it was clean
  std::vector<const char*> names_;
  std::vector<double> values_;
};

}  // namespace llmprof::samplers
