#include "nvidia/nvml_reader.h"

#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "base/clock.h"

namespace llmprof::nvidia {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kMib = 1048576.0;
constexpr int64_t kGpmWaitMaxNs = 5000000;

// The value of a field as a double, whatever type this driver gives it.
double field_number(const nvml::FieldValue& field) {
  switch (field.type) {
    case nvml::kValueDouble:
      return field.value.double_value;
    case nvml::kValueUnsignedInt:
      return field.value.unsigned_value;
    case nvml::kValueUnsignedLong:
      return static_cast<double>(field.value.ulong_value);
    case nvml::kValueUnsignedLongLong:
      return static_cast<double>(field.value.ull_value);
    case nvml::kValueSignedLongLong:
      return static_cast<double>(field.value.ll_value);
    case nvml::kValueSignedInt:
      return field.value.int_value;
    case nvml::kValueUnsignedShort:
      return field.value.ushort_value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

int64_t field_integer(const nvml::FieldValue& field) {
  if (field.type == nvml::kValueUnsignedLongLong) return static_cast<int64_t>(field.value.ull_value);
  if (field.type == nvml::kValueSignedLongLong) return field.value.ll_value;
  return static_cast<int64_t>(field_number(field));
}

float read_typed(nvml::DeviceGetTypedFn function, nvml::Device device, int type) {
  unsigned value = 0;
  if (function == nullptr || function(device, type, &value) != nvml::kSuccess) return kNan;
  return static_cast<float>(value);
}

}  // namespace

const std::vector<GpmColumn>& gpm_columns() {
  static const std::vector<GpmColumn> columns = {
      {"gr_active_frac", nvml::kGpmGraphics, 0.01},        {"sm_active_frac", nvml::kGpmSmActive, 0.01},
      {"warps_active_frac", nvml::kGpmSmOccupancy, 0.01},  {"tensor_active_frac", nvml::kGpmTensor, 0.01},
      {"tensor_fp_frac", nvml::kGpmTensorHmma, 0.01},      {"tensor_int_frac", nvml::kGpmTensorImma, 0.01},
      {"dram_active_frac", nvml::kGpmDramBandwidth, 0.01}, {"pcie_read_bytes_per_s", nvml::kGpmPcieRx, kMib},
      {"pcie_write_bytes_per_s", nvml::kGpmPcieTx, kMib},  {"nvlink_rx_bytes_per_s", nvml::kGpmNvlinkRx, kMib},
      {"nvlink_tx_bytes_per_s", nvml::kGpmNvlinkTx, kMib},
  };
  return columns;
}

NvmlReader::NvmlReader(const NvmlApi& api, const NvmlGpu& gpu, int driver_major, int gpus)
    : api_(&api), gpu_(gpu), gpus_(gpus), pcie_rx_bytes_per_s_(kNan), pcie_tx_bytes_per_s_(kNan) {
  if (driver_major >= nvml::kDriverMovedThrottleFields) {
    field_sw_thermal_ = nvml::kFieldThrottleSwThermal;
    field_hw_thermal_ = nvml::kFieldThrottleHwThermal;
    field_brake_ = nvml::kFieldThrottleBrake;
  } else if (driver_major >= nvml::kDriverFirstThrottleFields) {
    field_sw_thermal_ = nvml::kFieldThrottleSwThermal570;
    field_hw_thermal_ = nvml::kFieldThrottleHwThermal570;
    field_brake_ = nvml::kFieldThrottleBrake570;
  }
  const bool complete =
      api.gpm_alloc != nullptr && api.gpm_sample != nullptr && api.gpm_metrics != nullptr && api.gpm_free != nullptr;
  if (gpu_.gpm != 1 || !complete) return;
  if (api.gpm_alloc(&gpm_older_) != nvml::kSuccess || api.gpm_alloc(&gpm_newer_) != nvml::kSuccess) free_gpm();
}

NvmlReader::NvmlReader(NvmlReader&& other) noexcept
    : api_(other.api_),
      gpu_(std::move(other.gpu_)),
      gpus_(other.gpus_),
      energy_(other.energy_),
      throttle_(other.throttle_),
      field_sw_thermal_(other.field_sw_thermal_),
      field_hw_thermal_(other.field_hw_thermal_),
      field_brake_(other.field_brake_),
      gpm_older_(std::exchange(other.gpm_older_, nullptr)),
      gpm_newer_(std::exchange(other.gpm_newer_, nullptr)),
      gpm_older_ns_(other.gpm_older_ns_),
      gpm_older_monotonic_ns_(other.gpm_older_monotonic_ns_),
      pcie_rx_bytes_per_s_(other.pcie_rx_bytes_per_s_),
      pcie_tx_bytes_per_s_(other.pcie_tx_bytes_per_s_) {}

NvmlReader::~NvmlReader() { free_gpm(); }

void NvmlReader::free_gpm() {
  if (gpm_older_ != nullptr) api_->gpm_free(gpm_older_);
  if (gpm_newer_ != nullptr) api_->gpm_free(gpm_newer_);
  gpm_older_ = gpm_newer_ = nullptr;
}

NvmlReading NvmlReader::read(bool everything) {
  NvmlReading sample;
  sample.gpu_util_frac = sample.memory_util_frac = kNan;
  sample.power_w = kNan;
  sample.energy_j = std::numeric_limits<double>::quiet_NaN();
  sample.memory_temperature_c = kNan;
  sample.pcie_rx_bytes_per_s = pcie_rx_bytes_per_s_;
  sample.pcie_tx_bytes_per_s = pcie_tx_bytes_per_s_;
  const int64_t before_ns = realtime_ns();
  nvml::Utilization utilization{};
  if (api_->utilization != nullptr && api_->utilization(gpu_.device, &utilization) == nvml::kSuccess) {
    sample.gpu_util_frac = static_cast<float>(utilization.gpu) / 100.0F;
    sample.memory_util_frac = static_cast<float>(utilization.memory) / 100.0F;
  }
  sample.sm_clock_mhz = read_typed(api_->clock, gpu_.device, nvml::kClockSm);
  sample.memory_clock_mhz = read_typed(api_->clock, gpu_.device, nvml::kClockMemory);
  sample.temperature_c = read_typed(api_->temperature, gpu_.device, nvml::kTemperatureGpu);
  nvml::Memory memory{};
  if (api_->memory != nullptr && api_->memory(gpu_.device, &memory) == nvml::kSuccess)
    sample.memory_used_bytes = static_cast<int64_t>(memory.used);
  unsigned long long number = 0;
  if (api_->throttle_reasons != nullptr && api_->throttle_reasons(gpu_.device, &number) == nvml::kSuccess)
    sample.throttle_reasons = number;
  read_fields(sample, everything);
  unsigned milliwatts = 0;
  if (sample.power_w != sample.power_w && api_->power_usage != nullptr &&
      api_->power_usage(gpu_.device, &milliwatts) == nvml::kSuccess)
    sample.power_w = static_cast<float>(milliwatts) / 1000.0F;
  sample.time_ns = before_ns + (realtime_ns() - before_ns) / 2;
  // Last: it is slow-moving enough for its stamp not to matter.
  read_energy(sample, everything);
  return sample;
}

void NvmlReader::read_energy(NvmlReading& sample, bool everything) {
  const int64_t begin_ns = monotonic_ns();
  if (api_->energy == nullptr || !(everything || energy_.due(begin_ns))) return;
  unsigned long long millijoules = 0;
  if (api_->energy(gpu_.device, &millijoules) == nvml::kSuccess)
    sample.energy_j = static_cast<double>(millijoules) / 1000.0;
  energy_.took(begin_ns, monotonic_ns(), gpus_);
}

void NvmlReader::read_fields(NvmlReading& sample, bool everything) {
  if (api_->fields == nullptr) return;
  // The counters hold the lock, the others do not.
  constexpr int kCount = 8, kCounters = 6;
  const std::array<unsigned, kCount> ids = {nvml::kFieldPowerInstant,    nvml::kFieldMemoryTemperature,
                                            nvml::kFieldThrottlePower,   nvml::kFieldThrottleSyncBoost,
                                            nvml::kFieldThrottleThermal, field_sw_thermal_,
                                            field_hw_thermal_,           field_brake_};
  const int64_t begin_ns = monotonic_ns();
  const bool counters = everything || throttle_.due(begin_ns);
  std::array<nvml::FieldValue, kCount> fields{};
  int asked = 0;
  for (size_t i = 0; i < (counters ? kCount : kCount - kCounters); ++i)
    if (ids[i] != 0) fields[static_cast<size_t>(asked++)].field = ids[i];
  const bool read = api_->fields(gpu_.device, asked, fields.data()) == nvml::kSuccess;
  if (counters) throttle_.took(begin_ns, monotonic_ns(), gpus_);
  if (!read) return;
  int64_t thermal_ns = -1;
  for (int i = 0; i < asked; ++i) {
    const nvml::FieldValue& field = fields[static_cast<size_t>(i)];
    if (field.result != nvml::kSuccess) continue;
    if (field.field == nvml::kFieldPowerInstant) sample.power_w = static_cast<float>(field_number(field) / 1000.0);
    if (field.field == nvml::kFieldMemoryTemperature)
      sample.memory_temperature_c = static_cast<float>(field_number(field));
    if (field.field == nvml::kFieldThrottlePower) sample.throttle_power_ns = field_integer(field);
    if (field.field == nvml::kFieldThrottleSyncBoost) sample.throttle_sync_boost_ns = field_integer(field);
    if (field.field == nvml::kFieldThrottleThermal) thermal_ns = field_integer(field);
    if (field.field == field_sw_thermal_) sample.throttle_thermal_sw_ns = field_integer(field);
    if (field.field == field_hw_thermal_) sample.throttle_thermal_hw_ns = field_integer(field);
    if (field.field == field_brake_) sample.throttle_brake_ns = field_integer(field);
  }
  // The thermal policy of older drivers is what newer ones call software thermal slowdown.
  if (sample.throttle_thermal_sw_ns < 0) sample.throttle_thermal_sw_ns = thermal_ns;
}

bool NvmlReader::read_gpm(GpmReading& reading) {
  if (gpm_older_ == nullptr) return false;
  if (gpm_older_monotonic_ns_ != 0) {
    const int64_t due_ns = gpm_older_monotonic_ns_ + kGpmPeriodMinNs;
    if (due_ns - monotonic_ns() > kGpmWaitMaxNs) return false;
    while (monotonic_ns() < due_ns) sleep_until_monotonic(due_ns);
  }
  const int64_t taken_ns = realtime_ns();
  const nvml::Return result = api_->gpm_sample(gpu_.device, gpm_newer_);
  if (result != nvml::kSuccess) {
    // A reading may fail once; a GPU that does not know GPM (fractional vGPU, MIG parent) never will.
    if (result == nvml::kErrorNotSupported || result == nvml::kErrorNoPermission) free_gpm();
    return false;
  }
  const bool first = gpm_older_monotonic_ns_ == 0;
  reading.start_ns = gpm_older_ns_;
  reading.end_ns = taken_ns;
  gpm_older_ns_ = taken_ns;
  gpm_older_monotonic_ns_ = monotonic_ns();  // after the call: the distance is never less than it seems
  std::swap(gpm_older_, gpm_newer_);         // from here on older_ is the sample just taken, newer_ the one before it
  if (first) return false;
  const std::unique_ptr<nvml::GpmMetricsGet> request = std::make_unique<nvml::GpmMetricsGet>();
  request->version = nvml::kGpmMetricsVersion;
  request->num_metrics = static_cast<unsigned>(gpm_columns().size());
  request->sample1 = gpm_newer_;
  request->sample2 = gpm_older_;
  for (size_t i = 0; i < gpm_columns().size(); ++i) request->metrics[i].metric = gpm_columns()[i].metric;
  if (api_->gpm_metrics(request.get()) != nvml::kSuccess) return false;
  pcie_rx_bytes_per_s_ = pcie_tx_bytes_per_s_ = kNan;
  reading.values.clear();
  for (size_t i = 0; i < gpm_columns().size(); ++i) {
    const nvml::GpmMetric& metric = request->metrics[i];
    const bool known = metric.result == nvml::kSuccess && metric.value == metric.value;
    const float value = known ? static_cast<float>(metric.value * gpm_columns()[i].scale) : kNan;
    reading.values.push_back(value);
    if (gpm_columns()[i].metric == nvml::kGpmPcieRx) pcie_rx_bytes_per_s_ = value;
    if (gpm_columns()[i].metric == nvml::kGpmPcieTx) pcie_tx_bytes_per_s_ = value;
  }
  return true;
}

}  // namespace llmprof::nvidia
