#include "capture/samplers/pm_session.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace llmprof::samplers {
namespace {

using namespace cupti_profiler;

// The image of counters that this device and situation (MIG, virtual GPU) offer. Some drivers refuse it while anything
// else samples; 35 here is the usual place where a missing permission shows.
PmResult<std::vector<uint8_t>> read_availability(const nvidia::CuptiProfilerLibrary& cupti, size_t device_index) {
  PmAvailabilityParams params{kPmAvailabilitySize, nullptr, device_index, 0, nullptr};
  Code code = cupti.api().pm_availability(&params);
  if (code != kSuccess) return pm_failure(cupti, code, "cuptiPmSamplingGetCounterAvailability");
  std::vector<uint8_t> image(params.image_bytes);
  params.image = image.data();
  code = cupti.api().pm_availability(&params);
  if (code != kSuccess) return pm_failure(cupti, code, "cuptiPmSamplingGetCounterAvailability");
  image.resize(params.image_bytes);
  return image;
}

}  // namespace

bool samples_by_cycles(const std::string& chip) { return chip == "GA100" || chip.rfind("TU", 0) == 0; }

PmResult<PmDevice> open_pm_device(const nvidia::CuptiProfilerLibrary& cupti, size_t device_index,
                                  PmDevice* seen_support, size_t metrics_max, PmFocus focus) {
  const nvidia::CuptiProfilerApi& api = cupti.api();
  PmDevice device;
  device.device_index = device_index;
  InitializeParams initialize{kInitializeSize, nullptr};
  Code code = api.initialize(&initialize);
  if (code != kSuccess) return pm_failure(cupti, code, "cuptiProfilerInitialize");
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
    if (supported.is_supported == kUnsupported) return pm_failure(cupti, kNotSupported, "cuptiProfilerDeviceSupported");
  }
  ChipNameParams chip{kChipNameSize, nullptr, device_index, nullptr};
  code = api.chip_name(&chip);
  if (code != kSuccess || chip.chip_name == nullptr) return pm_failure(cupti, code, "cuptiDeviceGetChipName");
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

PmSession::PmSession(const nvidia::CuptiProfilerLibrary& cupti, const PmDevice& device)
    : cupti_(cupti), api_(cupti.api()), device_(device), host_(cupti, device.chip, device.availability.data()) {
  for (const PmMetric& metric : device.set.metrics) names_.push_back(metric.metric);
}

PmSession::~PmSession() {
  stop();
  evaluator_.reset();
  if (object_ == nullptr) return;
  PmObjectParams params{kPmObjectSize, nullptr, object_};
  api_.pm_disable(&params);
}

tl::unexpected<PmFailure> PmSession::failure(Code code, const char* call) const {
  return pm_failure(cupti_, code, call);
}

PmResult<std::unique_ptr<PmSession>> PmSession::start(const nvidia::CuptiProfilerLibrary& cupti, const PmDevice& device,
                                                      const PmSessionConfig& config) {
  std::unique_ptr<PmSession> session(new PmSession(cupti, device));
  const PmResult<bool> begun = session->begin(config);
  if (!begun) return tl::unexpected<PmFailure>(begun.error());
  return session;
}

PmResult<bool> PmSession::begin(const PmSessionConfig& config) {
  if (host_.get() == nullptr) return failure(host_.status(), "cuptiProfilerHostInitialize");
  Code code = kSuccess;
  if (host_.passes(device_.set.metrics, config_, code) != 1) {
    return tl::unexpected<PmFailure>(
        failure(code == kSuccess ? kNotSupported : code, "cuptiProfilerHostConfigAddMetrics"));
  }
  PmEnableParams enable{kPmEnableSize, nullptr, device_.device_index, nullptr};
  code = api_.pm_enable(&enable);
  if (code != kSuccess) return failure(code, "cuptiPmSamplingEnable");
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
  if (code != kSuccess) return failure(code, "cuptiPmSamplingSetConfig");

  PmImageSizeParams size{kPmImageSizeSize, nullptr, object_, names_.data(), names_.size(), config.max_samples, 0};
  code = api_.pm_image_size(&size);
  if (code != kSuccess) return failure(code, "cuptiPmSamplingGetCounterDataSize");
  std::vector<uint8_t> pristine(size.image_bytes, 0);
  PmImageInitializeParams initialize{kPmImageInitializeSize, nullptr, object_, pristine.size(), pristine.data()};
  code = api_.pm_image_initialize(&initialize);
  if (code != kSuccess) return failure(code, "cuptiPmSamplingCounterDataImageInitialize");
  evaluator_ = std::make_unique<PmEvaluator>(cupti_, host_, object_, names_, std::move(pristine), config.max_samples);

  PmObjectParams params{kPmObjectSize, nullptr, object_};
  code = api_.pm_start(&params);
  if (code != kSuccess) return failure(code, "cuptiPmSamplingStart");
  running_ = true;
  drained_ns_ = monotonic_ns();
  load_ = PmLoad(drained_ns_, config.interval_ns * config.max_samples);
  return true;
}

void PmSession::stop() {
  if (!running_) return;
  running_ = false;
  PmObjectParams params{kPmObjectSize, nullptr, object_};
  api_.pm_stop(&params);
}

PmCost PmSession::cost() {
  const PmEvaluator::Cost evaluated = evaluator_->cost();
  return {evaluated.clean_ns, decode_ns_, evaluated.evaluate_ns};
}

// One image; `samples` is not known before it has been evaluated.
PmResult<PmDrain> PmSession::decode() {
  PmDrain result;
  PmEvaluator::Image& image = evaluator_->take();
  PmDecodeParams decode{};
  decode.struct_size = kPmDecodeSize;
  decode.object = object_;
  decode.image = image.bytes.data();
  decode.image_bytes = image.bytes.size();
  const int64_t begin_ns = monotonic_ns();
  const Code code = api_.pm_decode(&decode);
  decode_ns_ += monotonic_ns() - begin_ns;
  // What was decoded before an overflow is as good as any other.
  evaluator_->hand_over(image);
  result.overflow = code == kOutOfMemory || (code == kSuccess && decode.overflow != 0);
  if (code != kSuccess && code != kOutOfMemory) return failure(code, "cuptiPmSamplingDecodeData");
  result.full = !result.overflow && decode.stop_reason == kStopImageFull;
  return result;
}

PmResult<PmDrain> PmSession::drain(const PmSink& sink) {
  PmDrain result;
  // To wait for an image that is being made would look like decoding that is slow.
  if (running_ && evaluator_->making()) return result;
  const int64_t begin_ns = monotonic_ns();
  for (int round = 0; round < kRounds; ++round) {
    const PmResult<PmDrain> decoded = decode();
    if (!decoded) return decoded;
    result.overflow |= decoded->overflow;
    result.full |= decoded->full;
    if (!decoded->full) break;
  }
  const int64_t end_ns = monotonic_ns();
  const int64_t since_ns = end_ns - std::exchange(drained_ns_, end_ns);
  load_.drained(begin_ns, end_ns);
  result.behind = load_.behind();
  result.busy_frac = static_cast<double>(end_ns - begin_ns) / static_cast<double>(std::max<int64_t>(since_ns, 1));
  const PmResult<size_t> delivered = evaluator_->deliver(sink);
  if (delivered) {
    result.samples = *delivered;
  } else if (!result.overflow) {
    return tl::unexpected<PmFailure>(delivered.error());
  }
  return result;
}

PmResult<PmDrain> PmSession::finish(const PmSink& sink) {
  stop();
  PmResult<PmDrain> result = PmDrain{};
  size_t samples = 0;
  bool overflow = false, full = false;
  // All that is left, however much; a driver that never comes to an end must not hold the report.
  for (int i = 0; i < kLastDrains && result && (i == 0 || result->full); ++i) {
    result = drain(sink);
    if (!result) break;
    samples += result->samples;
    overflow |= result->overflow;
    full |= result->full;
  }
  evaluator_->wait();
  const PmResult<size_t> rest = evaluator_->deliver(sink);
  if (!result) return result;
  if (!rest) return tl::unexpected<PmFailure>(rest.error());
  result->samples = samples + *rest;
  result->overflow = overflow;
  result->full = full;
  return result;
}

}  // namespace llmprof::samplers
