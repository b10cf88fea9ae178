#include "capture/samplers/nvml.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>

#include "base/clock.h"
#include "base/json_writer.h"
#include "nvidia/nvml_reader.h"

namespace llmprof::samplers {
namespace {

constexpr int64_t kFlushNs = 1000000000;
constexpr int kPeriodMinMs = 20;

spool::NvmlSample sample_of(const nvidia::NvmlReading& r, spool::Id uuid) {
  return {uuid,
          r.time_ns,
          r.gpu_util_frac,
          r.memory_util_frac,
          r.sm_clock_mhz,
          r.memory_clock_mhz,
          r.power_w,
          r.energy_j,
          r.temperature_c,
          r.memory_temperature_c,
          r.memory_used_bytes,
          r.throttle_reasons,
          r.throttle_power_ns,
          r.throttle_thermal_sw_ns,
          r.throttle_thermal_hw_ns,
          r.throttle_brake_ns,
          r.throttle_sync_boost_ns,
          r.pcie_rx_bytes_per_s,
          r.pcie_tx_bytes_per_s};
}

std::string gpu_fact(const nvidia::NvmlGpu& gpu) {
  JsonWriter json(0);
  json.begin_object().field("index", gpu.index).field("uuid", gpu.uuid).field("name", gpu.name);
  json.field("pci_bus", gpu.pci_bus);
  if (gpu.memory_bytes >= 0) json.field("memory_bytes", gpu.memory_bytes);
  if (gpu.power_limit_w >= 0) json.field("power_limit_w", gpu.power_limit_w);
  if (gpu.sm_clock_max_mhz >= 0) json.field("sm_clock_max_mhz", gpu.sm_clock_max_mhz);
  if (gpu.mig >= 0) json.field("mig", gpu.mig == 1);
  if (gpu.gpm >= 0) json.field("gpm", gpu.gpm == 1);
  json.end_object();
  return json.take();
}

// What writes one GPU's records: its reader, and the ids of its texts in the spool.
struct Source {
  nvidia::NvmlReader reader;
  spool::Id uuid = 0;
  spool::Id metric_set = 0;
};

spool::Id define_gpm_set(spool::Writer& writer, spool::Id uuid) {
  spool::MetricSetDef def;
  def.count = static_cast<int32_t>(nvidia::gpm_columns().size());
  for (size_t i = 0; i < nvidia::gpm_columns().size(); ++i)
    def.metrics[i] = writer.text(nvidia::gpm_columns()[i].column);
  def.source = writer.text("gpm");
  def.gpu_uuid = uuid;
  return writer.define(def);
}

}  // namespace

Status NvmlSampler::start(const NvmlSamplerOptions& options) {
  options_ = options;
  options_.period_ms = std::max(options_.period_ms, kPeriodMinMs);
  const std::string folder = options.folder + "/samples";
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    return fail("cannot create the folder of samples: " + std::string(std::strerror(errno)), folder);
  const std::string path = folder + "/nvml.spool";
  if (!writer_.open(path.c_str(), "nvml"))
    return fail("cannot write the NVML samples: " + std::string(std::strerror(writer_.status().error)), path);
  stopping_ = listed_ = false;
  // Signals are the launcher's: none may be delivered on this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

void NvmlSampler::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const std::vector<nvidia::NvmlGpu>& NvmlSampler::gpus() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return listed_ || !thread_.joinable(); });
  return gpus_;
}

std::string NvmlSampler::why_empty() {
  gpus();
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_empty_;
}

uint64_t NvmlSampler::samples() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return samples_;
}

bool NvmlSampler::wait_until(int64_t until_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const int64_t left_ns = until_ns - monotonic_ns();
    if (left_ns <= 0) return true;
    changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
  }
  return false;
}

void NvmlSampler::run() {
  writer_.add(spool::ClockReading{realtime_ns(), read_clock_ns(CLOCK_MONOTONIC_RAW), 0});
  Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(options_.nvml_path);
  std::vector<nvidia::NvmlGpu> found;
  std::string reason;
  if (nvml) {
    found = nvml->gpus();
    if (found.empty()) reason = "NVML lists no GPU";
  } else {
    reason = nvml.error().what;
    writer_.add(spool::Note{writer_.text("no-nvml"), writer_.text(reason), 1});
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    gpus_ = found;
    why_empty_ = reason;
    listed_ = true;
  }
  changed_.notify_all();

  std::vector<Source> sources;
  const std::function<void(Source&, bool)> read_source = [this](Source& source, bool everything) {
    nvidia::GpmReading counters;
    if (source.reader.read_gpm(counters)) {
      if (source.metric_set == 0) source.metric_set = define_gpm_set(writer_, source.uuid);
      spool::GpuSample sample{source.metric_set, counters.start_ns, counters.end_ns, {}};
      std::copy(counters.values.begin(), counters.values.end(), sample.values);
      writer_.add(sample);
    }
    writer_.add(sample_of(source.reader.read(everything), source.uuid));
    const std::lock_guard<std::mutex> lock(mutex_);
    ++samples_;
  };
  if (nvml) {
    writer_.add(spool::Fact{writer_.text("nvidia_driver"), writer_.text(nvml->driver_version())});
    for (const nvidia::NvmlGpu& gpu : found) {
      writer_.add(spool::Fact{writer_.text("gpu." + std::to_string(gpu.index)), writer_.text(gpu_fact(gpu))});
      nvidia::NvmlGpu wanted = gpu;
      if (!options_.gpm) wanted.gpm = 0;
      sources.push_back({nvidia::NvmlReader(nvml->api(), wanted, nvml->driver_major(), static_cast<int>(found.size())),
                         writer_.text(gpu.uuid), 0});
    }
  }
  const int64_t period_ns = int64_t{options_.period_ms} * 1000000;
  int64_t tick_ns = monotonic_ns(), flush_ns = tick_ns + kFlushNs;
  while (true) {
    for (Source& source : sources) read_source(source, false);
    if (monotonic_ns() >= flush_ns) {
      writer_.flush();
      flush_ns = monotonic_ns() + kFlushNs;
    }
    // From the last tick that was kept, so that a slow reading does not shift the rest; never two ticks at once.
    tick_ns = std::max(tick_ns + period_ns, monotonic_ns());
    if (!wait_until(tick_ns)) break;
  }
  for (Source& source : sources) read_source(source, true);  // closes the window of energy and throttle counters
  writer_.close();
}

}  // namespace llmprof::samplers
