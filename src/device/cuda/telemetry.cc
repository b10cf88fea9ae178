#include "device/cuda/telemetry.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/clock.h"

namespace llmprof::device::cuda {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(50);
constexpr size_t kReadingsKept = 1200;
constexpr unsigned kProcessesMax = 256;

// Mean of what is known; nothing if nothing is.
class Mean {
 public:
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum_ += value;
    ++count_;
  }
  std::optional<double> value() const {
    if (count_ == 0) return std::nullopt;
    return sum_ / count_;
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

}  // namespace

std::vector<std::string> throttle_reason_names(uint64_t bits) {
  // Bits of nvmlClocksEventReasons.
  static constexpr struct {
    uint64_t bit;
    const char* name;
  } kReasons[] = {{0x04, "power cap"},        {0x08, "hardware slowdown"}, {0x10, "sync boost"},
                  {0x20, "software thermal"}, {0x40, "hardware thermal"},  {0x80, "power brake"}};
  std::vector<std::string> names;
  for (const auto& reason : kReasons)
    if ((bits & reason.bit) != 0) names.emplace_back(reason.name);
  return names;
}

TelemetryThread::TelemetryThread(const nvidia::DeviceUuids& uuids) : is_part_(uuids.whole[0] != '\0') {
  Result<nvidia::NvmlLibrary> opened = nvidia::NvmlLibrary::open();
  if (!opened) return;
  nvml_.emplace(std::move(*opened));
  driver_version_ = nvml_->driver_version();
  const std::vector<nvidia::NvmlGpu> gpus = nvml_->gpus();
  const nvidia::NvmlGpu* found = gpus.size() == 1 ? gpus.data() : nullptr;
  for (const nvidia::NvmlGpu& gpu : gpus)
    if (gpu.uuid == (is_part_ ? uuids.whole : uuids.device)) found = &gpu;
  if (found == nullptr) return;
  clock_max_mhz_ = found->sm_clock_max_mhz > 0 ? found->sm_clock_max_mhz : 0;
  if (found->power_limit_w > 0 && !is_part_) power_limit_w_ = found->power_limit_w;
  gpu_ = found->device;
  reader_.emplace(nvml_->api(), *found, nvml_->driver_major());
  thread_ = std::thread([this] { run(); });
}

TelemetryThread::~TelemetryThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TelemetryThread::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const Reading reading{monotonic_ns(), reader_->read()};
    lock.lock();
    readings_.push_back(reading);
    if (readings_.size() > kReadingsKept) readings_.pop_front();
    changed_.wait_for(lock, kPeriod, [this] { return stopping_; });
  }
}

std::vector<int64_t> TelemetryThread::other_processes() const {
  std::vector<int64_t> others;
  if (gpu_ == nullptr || is_part_ || nvml_->api().processes == nullptr) return others;
  std::vector<nvml::ProcessInfo> all(kProcessesMax);
  unsigned count = kProcessesMax;
  if (nvml_->api().processes(gpu_, &count, all.data()) != nvml::kSuccess) return others;
  for (unsigned i = 0; i < std::min(count, kProcessesMax); ++i)
    if (all[i].pid != static_cast<unsigned>(getpid())) others.push_back(all[i].pid);
  return others;
}

Telemetry TelemetryThread::since(int64_t monotonic_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Mean power, temperature, clock, busy, used;
  std::map<std::string, int> reasons;
  int count = 0;
  for (size_t i = readings_.size(); i-- > 0;) {
    const Reading& reading = readings_[i];
    if (reading.monotonic_ns < monotonic_ns && count > 0) break;
    ++count;
    power.add(static_cast<double>(reading.sample.power_w));
    temperature.add(static_cast<double>(reading.sample.temperature_c));
    clock.add(static_cast<double>(reading.sample.sm_clock_mhz));
    busy.add(static_cast<double>(reading.sample.gpu_util_frac));
    if (reading.sample.memory_used_bytes >= 0) used.add(static_cast<double>(reading.sample.memory_used_bytes));
    for (const std::string& name : throttle_reason_names(reading.sample.throttle_reasons)) ++reasons[name];
    if (reading.monotonic_ns < monotonic_ns) break;
  }
  Telemetry telemetry;
  telemetry.power_limit_w = power_limit_w_;
  telemetry.temperature_c = temperature.value();
  telemetry.clock_mhz = clock.value();
  if (!is_part_) {
    telemetry.power_w = power.value();
    telemetry.busy_frac = busy.value();
    if (const std::optional<double> bytes = used.value()) telemetry.used_bytes = static_cast<int64_t>(*bytes);
  }
  for (const auto& [name, times] : reasons)
    telemetry.throttle_fracs.emplace_back(name, static_cast<double>(times) / count);
  return telemetry;
}

}  // namespace llmprof::device::cuda
