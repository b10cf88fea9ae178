#include "capture/samplers/pm_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "capture/samplers/clock.h"

namespace llmprof::samplers {
namespace {

using namespace cupti_profiler;

tl::unexpected<PmFailure> failed(const CuptiProfilerLibrary& cupti, Code code, const char* call) {
  return tl::unexpected<PmFailure>(PmFailure{code, call, std::string(call) + ": " + cupti.describe(code)});
}

// The image of counters that this device and situation (MIG, virtual GPU) offer. Some drivers refuse it while anything
// else samples; 35 here is the usual place where a missing permission shows.
PmResult<std::vector<uint8_t>> read_availability(const CuptiProfilerLibrary& cupti, size_t device_index) {
  PmAvailabilityParams params{kPmAvailabilitySize, nullptr, device_index, 0, nullptr};
  Code code = cupti.api().pm_availability(&params);
  if (code != kSuccess) return failed(cupti, code, "cuptiPmSamplingGetCounterAvailability");
  std::vector<uint8_t> image(params.image_bytes);
  params.image = image.data();
  code = cupti.api().pm_availability(&params);
  if (code != kSuccess) return failed(cupti, code, "cuptiPmSamplingGetCounterAvailability");
  image.resize(params.image_bytes);
  return image;
}

}  // namespace

bool samples_by_cycles(const std::string& chip) { return chip == "GA100" || chip.rfind("TU", 0) == 0; }

PmResult<PmDevice> open_pm_device(const CuptiProfilerLibrary& cupti, size_t device_index, PmDevice* seen_support,
                                  size_t metrics_max, PmFocus focus) {
  const CuptiProfilerApi& api = cupti.api();
  PmDevice device;
  device.device_index = device_index;
  InitializeParams initialize{kInitializeSize, nullptr};
  Code code = api.initialize(&initialize);
  if (code != kSuccess) return failed(cupti, code, "cuptiProfilerInitialize");
  DeviceSupportedParams supported{};
  supported.struct_size = kDeviceSupportedSize;
  supported.device = static_cast<int>(device_index);
  supported.api = kApiPmSampling;
  if (api.device_supported(&supported) == kSuccess) {
    device.support_vgpu = supported.vgpu;
    device.support_confidential = supported.confidential_compute;
    device.support_wsl = supported.wsl;
    device.support_architecture = supported.architecture;
    if (seen_support != nullptr) *seen_support = device;
    if (supported.is_supported == kUnsupported) return failed(cupti, kNotSupported, "cuptiProfilerDeviceSupported");
  }
  ChipNameParams chip{kChipNameSize, nullptr, device_index, nullptr};
  code = api.chip_name(&chip);
  if (code != kSuccess || chip.chip_name == nullptr) return failed(cupti, code, "cuptiDeviceGetChipName");
  device.chip = chip.chip_name;
  device.cycles_only = samples_by_cycles(device.chip);
  if (seen_support != nullptr) *seen_support = device;
  PmResult<std::vector<uint8_t>> availability = read_availability(cupti, device_index);
  if (!availability) return tl::unexpected<PmFailure>(availability.error());
  device.availability = std::move(*availability);
  Result<PmMetricSet> set = build_pm_metric_set(cupti, device.chip, device.availability.data(), metrics_max, focus);
  if (!set) {
    const PmHost host(cupti, device.chip, device.availability.data());
    const bool known = host.status() == kSuccess;  // the chip is, and the device offers none of its counters
    return tl::unexpected<PmFailure>(
        PmFailure{known ? kUnknown : host.status(), "cuptiProfilerHostInitialize", set.error().what});
  }
  device.set = std::move(*set);
  return device;
}

PmSession::PmSession(const CuptiProfilerLibrary& cupti, const PmDevice& device)
    : cupti_(cupti), api_(cupti.api()), device_(device), host_(cupti, device.chip, device.availability.data()) {
  for (const PmMetric& metric : device.set.metrics) names_.push_back(metric.metric);
  values_.resize(names_.size());
}

PmSession::~PmSession() {
  stop();
  if (object_ == nullptr) return;
  PmObjectParams params{kPmObjectSize, nullptr, object_};
  api_.pm_disable(&params);
}

PmFailure PmSession::failure(Code code, const char* call) const { return failed(cupti_, code, call).value(); }

PmResult<std::unique_ptr<PmSession>> PmSession::start(const CuptiProfilerLibrary& cupti, const PmDevice& device,
                                                      const PmSessionConfig& config) {
  std::unique_ptr<PmSession> session(new PmSession(cupti, device));
  const PmResult<bool> begun = session->begin(config);
  if (!begun) return tl::unexpected<PmFailure>(begun.error());
  return session;
}

PmResult<bool> PmSession::begin(const PmSessionConfig& config) {
  if (host_.get() == nullptr) return tl::unexpected<PmFailure>(failure(host_.status(), "cuptiProfilerHostInitialize"));
  Code code = kSuccess;
  if (host_.passes(device_.set.metrics, config_, code) != 1) {
    return tl::unexpected<PmFailure>(
        failure(code == kSuccess ? kNotSupported : code, "cuptiProfilerHostConfigAddMetrics"));
  }
  PmEnableParams enable{kPmEnableSize, nullptr, device_.device_index, nullptr};
  code = api_.pm_enable(&enable);
  if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingEnable"));
  object_ = enable.object;

  PmSetConfigParams set{};
  set.struct_size = kPmSetConfigSize;
  set.object = object_;
  set.config_bytes = config_.size();
  set.config = config_.data();
  set.hardware_buffer_bytes = config.hardware_buffer_bytes;
  // Cycles of a clock whose rate is not known: about 1 GHz, so about as many as nanoseconds. The samples say how long
  // they really are.
  set.interval = static_cast<uint64_t>(config.interval_ns);
  set.trigger_mode = device_.cycles_only ? kTriggerSysclk : kTriggerTime;
  set.append_mode = kAppendKeepOldest;
  code = api_.pm_set_config(&set);
  if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingSetConfig"));

  PmImageSizeParams size{kPmImageSizeSize, nullptr, object_, names_.data(), names_.size(), config.max_samples, 0};
  code = api_.pm_image_size(&size);
  if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingGetCounterDataSize"));
  pristine_.assign(size.image_bytes, 0);
  PmImageInitializeParams initialize{kPmImageInitializeSize, nullptr, object_, pristine_.size(), pristine_.data()};
  code = api_.pm_image_initialize(&initialize);
  if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingCounterDataImageInitialize"));
  image_ = pristine_;

  PmObjectParams params{kPmObjectSize, nullptr, object_};
  code = api_.pm_start(&params);
  if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingStart"));
  running_ = true;
  return true;
}

void PmSession::stop() {
  if (!running_) return;
  running_ = false;
  PmObjectParams params{kPmObjectSize, nullptr, object_};
  api_.pm_stop(&params);
}

void PmSession::clean_image() {
  size_t bytes = pristine_.size();
  if (layout_.known()) bytes = std::min(bytes, layout_.bytes_of(used_samples_));
  std::memcpy(image_.data(), pristine_.data(), bytes);
  used_samples_ = pristine_.size();  // all of it, until a decoding tells
}

void PmSession::learn_layout(size_t completed) {
  used_samples_ = completed;
  if (layout_.settled() || completed == 0) return;
  size_t end = image_.size();
  while (end > 0 && image_[end - 1] == pristine_[end - 1]) --end;
  layout_.observe(completed, end);
}

void PmImageLayout::observe(size_t samples, size_t end) {
  if (settled()) return;
  if (first_samples_ == 0) {
    first_samples_ = samples;
    first_end_ = end;
    return;
  }
  if (sample_bytes_ == 0) {
    if (samples == first_samples_) return;
    const bool more = samples > first_samples_;
    if (more != (end > first_end_)) return refute();
    const size_t bytes = more ? end - first_end_ : first_end_ - end;
    const size_t count = more ? samples - first_samples_ : first_samples_ - samples;
    sample_bytes_ = (bytes + count - 1) / count;
    head_bytes_ = first_end_ > sample_bytes_ * first_samples_ ? first_end_ - sample_bytes_ * first_samples_ : 0;
    return;
  }
  if (end > bytes_of(samples)) return refute();
  ++agreed_;
}

PmResult<PmDrain> PmSession::drain(const PmSink& sink) {
  PmDrain result;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = monotonic_ns();
    clean_image();
    const int64_t cleaned_ns = monotonic_ns();
    PmDecodeParams decode{};
    decode.struct_size = kPmDecodeSize;
    decode.object = object_;
    decode.image = image_.data();
    decode.image_bytes = image_.size();
    const Code code = api_.pm_decode(&decode);
    const int64_t decoded_ns = monotonic_ns();
    cost_.clean_ns += cleaned_ns - begin_ns;
    cost_.decode_ns += decoded_ns - cleaned_ns;
    if (code == kOutOfMemory || (code == kSuccess && decode.overflow != 0)) result.overflow = true;
    if (code != kSuccess && code != kOutOfMemory)
      return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingDecodeData"));
    // What was decoded before the overflow is as good as any other.
    const PmResult<bool> evaluated = evaluate(sink, result.samples);
    cost_.evaluate_ns += monotonic_ns() - decoded_ns;
    if (!evaluated && !result.overflow) return tl::unexpected<PmFailure>(evaluated.error());
    if (result.overflow || decode.stop_reason != kStopImageFull) return result;
  }
  result.behind = true;
  return result;
}

PmResult<bool> PmSession::evaluate(const PmSink& sink, size_t& samples) {
  PmImageInfoParams info{kPmImageInfoSize, nullptr, image_.data(), image_.size(), 0, 0, 0};
  Code code = api_.pm_image_info(&info);
  if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingGetCounterDataInfo"));
  learn_layout(info.completed);
  for (size_t i = 0; i < info.completed; ++i) {
    PmSampleInfoParams sample{kPmSampleInfoSize, nullptr, object_, image_.data(), image_.size(), i, 0, 0};
    code = api_.pm_sample_info(&sample);
    if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiPmSamplingCounterDataGetSampleInfo"));
    HostEvaluateParams evaluate{};
    evaluate.struct_size = kHostEvaluateSize;
    evaluate.host = host_.get();
    evaluate.image = image_.data();
    evaluate.image_bytes = image_.size();
    evaluate.range_index = i;
    evaluate.names = names_.data();
    evaluate.count = names_.size();
    evaluate.values = values_.data();
    code = api_.host_evaluate(&evaluate);
    if (code != kSuccess) return tl::unexpected<PmFailure>(failure(code, "cuptiProfilerHostEvaluateToGpuValues"));
    sink(static_cast<int64_t>(sample.start_ns), static_cast<int64_t>(sample.end_ns), values_.data());
    ++samples;
  }
  return true;
}

}  // namespace llmprof::samplers
