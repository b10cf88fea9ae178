// A stand-in for libnvidia-ml.so.1 with GPUs whose answers come from the environment, read at every call:
//   FAKE_NVML_GPUS      how many (1)
//   FAKE_NVML_DRIVER    driver version ("580.159.04")
//   FAKE_NVML_INIT      return code of nvmlInit (0)
//   FAKE_NVML_MISSING   names of functions, separated by commas, that answer NOT_SUPPORTED
//   FAKE_NVML_GPM       0: no GPM (1)
//   FAKE_NVML_MIG       1: MIG is on (0)
//   FAKE_NVML_CC        1: confidential computing (0)
//   FAKE_NVML_SLOW_MS   the energy and the throttle counters take so long to read (0)
// Values are fixed, so that a test can tell units from each other. fake_nvml_gpm_shortest_ns() says how close together
// two GPM samples of one GPU were taken.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "nvidia/nvml_abi.h"

using namespace llmprof::nvml;

namespace {

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}

bool missing(const char* function) {
  const char* list = std::getenv("FAKE_NVML_MISSING");
  if (list == nullptr) return false;
  const std::string all = "," + std::string(list) + ",";
  return all.find("," + std::string(function) + ",") != std::string::npos;
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

void take_time() {
  const timespec time{0, number("FAKE_NVML_SLOW_MS", 0) * 1000000L};
  if (time.tv_nsec > 0) nanosleep(&time, nullptr);
}

// Handles are the index plus one.
unsigned index_of(Device device) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device) - 1); }

Return copy_text(const std::string& text, char* out, unsigned bytes) {
  if (text.size() + 1 > bytes) return kErrorInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

std::atomic<int64_t> gpm_shortest_ns{INT64_MAX};
std::atomic<int64_t> gpm_last_ns[16];

}  // namespace

#define NEEDS(function) \
  if (missing(function)) return kErrorNotSupported

extern "C" {

int64_t fake_nvml_gpm_shortest_ns() { return gpm_shortest_ns.load(); }
void fake_nvml_forget() {
  gpm_shortest_ns = INT64_MAX;
  for (std::atomic<int64_t>& last : gpm_last_ns) last = 0;
}

Return nvmlInit_v2() { return static_cast<Return>(number("FAKE_NVML_INIT", 0)); }
Return nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(Return result) { return result == kErrorDriverNotLoaded ? "Driver Not Loaded" : "Other"; }
Return nvmlSystemGetDriverVersion(char* out, unsigned bytes) {
  const char* version = std::getenv("FAKE_NVML_DRIVER");
  return copy_text(version != nullptr ? version : "580.159.04", out, bytes);
}
Return nvmlSystemGetConfComputeState(ConfidentialState* state) {
  *state = {0, static_cast<unsigned>(number("FAKE_NVML_CC", 0)), 0};
  return kSuccess;
}
Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number("FAKE_NVML_GPUS", 1));
  return kSuccess;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = reinterpret_cast<Device>(static_cast<uintptr_t>(index) + 1);
  return kSuccess;
}
Return nvmlDeviceGetName(Device, char* out, unsigned bytes) { return copy_text("NVIDIA Fake H200", out, bytes); }
Return nvmlDeviceGetUUID(Device device, char* out, unsigned bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012x", index_of(device));
  return copy_text(text, out, bytes);
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  *pci = {};
  pci->bus = 15 + index_of(device);
  return kSuccess;
}
Return nvmlDeviceGetMemoryInfo(Device, Memory* memory) {
  NEEDS("nvmlDeviceGetMemoryInfo");
  *memory = {150000000000ULL, 100000000000ULL, 50000000000ULL};
  return kSuccess;
}
Return nvmlDeviceGetPowerUsage(Device, unsigned* milliwatts) {
  NEEDS("nvmlDeviceGetPowerUsage");
  *milliwatts = 300000;
  return kSuccess;
}
Return nvmlDeviceGetEnforcedPowerLimit(Device, unsigned* milliwatts) {
  *milliwatts = 700000;
  return kSuccess;
}
Return nvmlDeviceGetUtilizationRates(Device, Utilization* utilization) {
  NEEDS("nvmlDeviceGetUtilizationRates");
  *utilization = {90, 40};
  return kSuccess;
}
// Two others beside the caller: a process that is there, and one of another container.
Return nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned* count, ProcessInfo* processes) {
  NEEDS("nvmlDeviceGetComputeRunningProcesses_v3");
  *count = 3;
  processes[0] = {static_cast<unsigned>(getpid()), 1 << 30, ~0U, ~0U};
  processes[1] = {static_cast<unsigned>(getppid()), 1 << 30, ~0U, ~0U};
  processes[2] = {4194303, 1 << 30, ~0U, ~0U};
  return kSuccess;
}
Return nvmlDeviceGetClockInfo(Device, int type, unsigned* mhz) {
  NEEDS("nvmlDeviceGetClockInfo");
  *mhz = type == kClockSm ? 1485 : 3201;
  return kSuccess;
}
Return nvmlDeviceGetMaxClockInfo(Device, int, unsigned* mhz) {
  *mhz = 1980;
  return kSuccess;
}
Return nvmlDeviceGetTemperature(Device, int, unsigned* celsius) {
  NEEDS("nvmlDeviceGetTemperature");
  *celsius = 55;
  return kSuccess;
}
Return nvmlDeviceGetTotalEnergyConsumption(Device, unsigned long long* millijoules) {
  NEEDS("nvmlDeviceGetTotalEnergyConsumption");
  take_time();
  *millijoules = static_cast<unsigned long long>(now_ns() / 1000000) * 500;  // 500 W
  return kSuccess;
}
Return nvmlDeviceGetCurrentClocksEventReasons(Device, unsigned long long* reasons) {
  NEEDS("nvmlDeviceGetCurrentClocksEventReasons");
  *reasons = 4;
  return kSuccess;
}
Return nvmlDeviceGetMigMode(Device, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<unsigned>(number("FAKE_NVML_MIG", 0));
  return kSuccess;
}
Return nvmlDeviceGetVirtualizationMode(Device, int* mode) {
  *mode = kVirtualizationPassthrough;
  return kSuccess;
}
Return nvmlDeviceGetCudaComputeCapability(Device, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}

// Throttle counters at the ids of this driver only: asked for elsewhere, another field answers, as on real drivers.
Return nvmlDeviceGetFieldValues(Device, int count, FieldValue* values) {
  NEEDS("nvmlDeviceGetFieldValues");
  const char* version = std::getenv("FAKE_NVML_DRIVER");
  const bool moved = version == nullptr || std::atoi(version) >= kDriverMovedThrottleFields;
  for (int i = 0; i < count; ++i)
    if (values[i].field == kFieldThrottlePower) take_time();
  for (int i = 0; i < count; ++i) {
    FieldValue& field = values[i];
    field.result = kSuccess;
    field.type = kValueUnsignedLongLong;
    if (field.field == kFieldPowerInstant) {
      field.type = kValueUnsignedInt;
      field.value.unsigned_value = 512345;
      if (missing("power-instant")) field.result = kErrorNotSupported;
    } else if (field.field == kFieldMemoryTemperature) {
      field.type = kValueUnsignedInt;
      field.value.unsigned_value = 66;
    } else if (field.field == kFieldThrottlePower) {
      field.value.ull_value = 1000;
    } else if (field.field == kFieldThrottleThermal) {
      field.value.ull_value = 2000;
    } else if (field.field == kFieldThrottleSyncBoost) {
      field.value.ull_value = 3000;
    } else if (field.field == (moved ? kFieldThrottleSwThermal : kFieldThrottleSwThermal570)) {
      field.value.ull_value = 4000;
    } else if (field.field == (moved ? kFieldThrottleHwThermal : kFieldThrottleHwThermal570)) {
      field.value.ull_value = 5000;
    } else if (field.field == (moved ? kFieldThrottleBrake : kFieldThrottleBrake570)) {
      field.value.ull_value = 6000;
    } else {
      field.value.ull_value = 999999;
    }
  }
  return kSuccess;
}

Return nvmlGpmQueryDeviceSupport(Device, GpmSupport* support) {
  if (support->version != kGpmSupportVersion) return kErrorInvalidArgument;
  support->is_supported = static_cast<unsigned>(number("FAKE_NVML_GPM", 1));
  return kSuccess;
}
Return nvmlGpmSampleAlloc(GpmSample* sample) {
  *sample = reinterpret_cast<GpmSample>(new int64_t(0));
  return kSuccess;
}
Return nvmlGpmSampleFree(GpmSample sample) {
  delete reinterpret_cast<int64_t*>(sample);
  return kSuccess;
}
Return nvmlGpmSampleGet(Device device, GpmSample sample) {
  NEEDS("nvmlGpmSampleGet");
  const int64_t now = now_ns();
  const int64_t last = gpm_last_ns[index_of(device) % 16].exchange(now);
  if (last != 0) gpm_shortest_ns = std::min(gpm_shortest_ns.load(), now - last);
  *reinterpret_cast<int64_t*>(sample) = now;
  return kSuccess;
}
Return nvmlGpmMetricsGet(GpmMetricsGet* request) {
  if (request->version != kGpmMetricsVersion) return kErrorInvalidArgument;
  const int64_t older = *reinterpret_cast<int64_t*>(request->sample1);
  const int64_t newer = *reinterpret_cast<int64_t*>(request->sample2);
  if (older == 0 || newer <= older) return kErrorInvalidArgument;
  for (unsigned i = 0; i < request->num_metrics; ++i) {
    GpmMetric& metric = request->metrics[i];
    // Percents are the metric's own id, rates the id in MiB/s. Integer tensor work is one that this GPU lacks.
    metric.value = metric.metric;
    metric.result = metric.metric == kGpmTensorImma ? kErrorNotSupported : kSuccess;
  }
  return kSuccess;
}

}  // extern "C"
