// The part of NVML's ABI that llmprof uses, declared by ourselves so that nothing needs NVML's header. The library is
// opened at run time (nvml_library.h). NVML never changes a published function: a new layout gets a new name
// (_v2, _v3), so each layout below is tied to the function named beside it. tests/unit/nvidia_profiler_abi_test.cc
// compares with the official header where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::nvml {

enum Return : int {
  kSuccess = 0,
  kErrorUninitialized = 1,
  kErrorInvalidArgument = 2,
  kErrorNotSupported = 3,
  kErrorNoPermission = 4,
  kErrorNotFound = 6,
  kErrorInsufficientSize = 7,
  kErrorDriverNotLoaded = 9,
  kErrorTimeout = 10,
  kErrorLibraryNotFound = 12,
  kErrorFunctionNotFound = 13,
  kErrorGpuIsLost = 15,
  kErrorLibRmVersionMismatch = 18,
};

struct OpaqueDevice;
using Device = OpaqueDevice*;
struct OpaqueGpmSample;
using GpmSample = OpaqueGpmSample*;

// nvmlClockType_t, nvmlTemperatureSensors_t: the values in use.
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
constexpr unsigned kDeviceUuidBytes = 96, kDeviceNameBytes = 96, kDriverVersionBytes = 80;

// nvmlUtilization_t of nvmlDeviceGetUtilizationRates: percent.
struct Utilization {
  unsigned gpu, memory;
};

// nvmlMemory_t of nvmlDeviceGetMemoryInfo: bytes; `used` holds what the driver reserves too.
struct Memory {
  unsigned long long total, free, used;
};

// nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
  char bus_id[32];  // "00000000:0F:00.0"
};

// nvmlFieldValue_t of nvmlDeviceGetFieldValues.
union Value {
  double double_value;
  int int_value;
  unsigned unsigned_value;
  unsigned long ulong_value;
  unsigned long long ull_value;
  long long ll_value;
  unsigned short ushort_value;
};
enum ValueType : int {
  kValueDouble = 0,
  kValueUnsignedInt = 1,
  kValueUnsignedLong = 2,
  kValueUnsignedLongLong = 3,
  kValueSignedLongLong = 4,
  kValueSignedInt = 5,
  kValueUnsignedShort = 6,
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  ValueType type;
  Return result;
  Value value;
};

// Field ids. The counters of time spent throttled are in ns. Two of them have moved: headers of the 570 drivers have
// them at 269 to 271, headers from 575 on at 251 to 253 (where 570 has power smoothing).
constexpr unsigned kFieldThrottlePower = 74, kFieldThrottleThermal = 75, kFieldThrottleSyncBoost = 76;
constexpr unsigned kFieldMemoryTemperature = 82;
constexpr unsigned kFieldPowerInstant = 186;  // mW
constexpr unsigned kFieldThrottleSwThermal570 = 269, kFieldThrottleHwThermal570 = 270, kFieldThrottleBrake570 = 271;
constexpr unsigned kFieldThrottleSwThermal = 251, kFieldThrottleHwThermal = 252, kFieldThrottleBrake = 253;
constexpr int kDriverMovedThrottleFields = 575, kDriverFirstThrottleFields = 570;

// nvmlGpmSupport_t of nvmlGpmQueryDeviceSupport.
struct GpmSupport {
  unsigned version, is_supported;
};
constexpr unsigned kGpmSupportVersion = 1, kGpmMetricsVersion = 1;

// nvmlGpmMetric_t and nvmlGpmMetricsGet_t of nvmlGpmMetricsGet. The official array grows with the number of known
// metrics (98, later 333); it stands last and num_metrics says how much of it is used, so ours only has to be as long
// as what we ask for. It has the longest official length because a driver may clear the whole.
struct GpmMetric {
  unsigned metric;
  Return result;
  double value;
  const char *short_name, *long_name, *unit;
};
constexpr unsigned kGpmMetricMax = 333;
struct GpmMetricsGet {
  unsigned version, num_metrics;
  GpmSample sample1, sample2;
  GpmMetric metrics[kGpmMetricMax];
};

// Metric ids; percent 0 to 100, or MiB/s. Transmit and receive as the GPU sees them.
constexpr unsigned kGpmGraphics = 1, kGpmSmActive = 2, kGpmSmOccupancy = 3, kGpmTensor = 5, kGpmTensorHmma = 7,
                   kGpmTensorImma = 9, kGpmDramBandwidth = 10, kGpmPcieTx = 20, kGpmPcieRx = 21, kGpmNvlinkRx = 60,
                   kGpmNvlinkTx = 61;

// nvmlConfComputeSystemState_t of nvmlSystemGetConfComputeState.
struct ConfidentialState {
  unsigned environment, feature, developer_tools;
};

// nvmlGpuVirtualizationMode_t of nvmlDeviceGetVirtualizationMode.
constexpr int kVirtualizationNone = 0, kVirtualizationPassthrough = 1, kVirtualizationVgpu = 2;

// nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3 (and _v2). `pid` as the driver's own namespace counts.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;  // all bits: unknown
  unsigned gpu_instance, compute_instance;
};

using InitFn = Return (*)();
using ShutdownFn = Return (*)();
using ErrorStringFn = const char* (*)(Return);
using SystemGetTextFn = Return (*)(char*, unsigned);
using SystemGetConfidentialFn = Return (*)(ConfidentialState*);
using DeviceGetCountFn = Return (*)(unsigned*);
using DeviceGetHandleFn = Return (*)(unsigned, Device*);
using DeviceGetTextFn = Return (*)(Device, char*, unsigned);
using DeviceGetPciFn = Return (*)(Device, PciInfo*);
using DeviceGetMemoryFn = Return (*)(Device, Memory*);
using DeviceGetUnsignedFn = Return (*)(Device, unsigned*);
using DeviceGetProcessesFn = Return (*)(Device, unsigned*, ProcessInfo*);
using DeviceGetUtilizationFn = Return (*)(Device, Utilization*);
using DeviceGetTypedFn = Return (*)(Device, int, unsigned*);
using DeviceGetULongLongFn = Return (*)(Device, unsigned long long*);
using DeviceGetFieldsFn = Return (*)(Device, int, FieldValue*);
using DeviceGetMigModeFn = Return (*)(Device, unsigned*, unsigned*);
using DeviceGetVirtualizationFn = Return (*)(Device, int*);
using DeviceGetCapabilityFn = Return (*)(Device, int*, int*);
using GpmQuerySupportFn = Return (*)(Device, GpmSupport*);
using GpmSampleAllocFn = Return (*)(GpmSample*);
using GpmSampleFreeFn = Return (*)(GpmSample);
using GpmSampleGetFn = Return (*)(Device, GpmSample);
using GpmMetricsGetFn = Return (*)(GpmMetricsGet*);

static_assert(sizeof(Utilization) == 8 && sizeof(Memory) == 24 && sizeof(PciInfo) == 68 && sizeof(FieldValue) == 40);
static_assert(sizeof(ProcessInfo) == 24);
static_assert(sizeof(GpmSupport) == 8 && sizeof(GpmMetric) == 40 && offsetof(GpmMetricsGet, metrics) == 24);

// F(member, type, names): the first name that the library has.
#define LLMPROF_NVML_FUNCTIONS(F)                                                                             \
  F(init, InitFn, "nvmlInit_v2", "nvmlInit")                                                                  \
  F(shutdown, ShutdownFn, "nvmlShutdown")                                                                     \
  F(error_string, ErrorStringFn, "nvmlErrorString")                                                           \
  F(driver_version, SystemGetTextFn, "nvmlSystemGetDriverVersion")                                            \
  F(confidential_state, SystemGetConfidentialFn, "nvmlSystemGetConfComputeState")                             \
  F(device_count, DeviceGetCountFn, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")                            \
  F(device_by_index, DeviceGetHandleFn, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")        \
  F(device_name, DeviceGetTextFn, "nvmlDeviceGetName")                                                        \
  F(device_uuid, DeviceGetTextFn, "nvmlDeviceGetUUID")                                                        \
  F(device_pci, DeviceGetPciFn, "nvmlDeviceGetPciInfo_v3")                                                    \
  F(memory, DeviceGetMemoryFn, "nvmlDeviceGetMemoryInfo")                                                     \
  F(power_usage, DeviceGetUnsignedFn, "nvmlDeviceGetPowerUsage")                                              \
  F(power_limit, DeviceGetUnsignedFn, "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit") \
  F(utilization, DeviceGetUtilizationFn, "nvmlDeviceGetUtilizationRates")                                     \
  F(processes, DeviceGetProcessesFn, "nvmlDeviceGetComputeRunningProcesses_v3",                               \
    "nvmlDeviceGetComputeRunningProcesses_v2")                                                                \
  F(clock, DeviceGetTypedFn, "nvmlDeviceGetClockInfo")                                                        \
  F(clock_max, DeviceGetTypedFn, "nvmlDeviceGetMaxClockInfo")                                                 \
  F(temperature, DeviceGetTypedFn, "nvmlDeviceGetTemperature")                                                \
  F(energy, DeviceGetULongLongFn, "nvmlDeviceGetTotalEnergyConsumption")                                      \
  F(throttle_reasons, DeviceGetULongLongFn, "nvmlDeviceGetCurrentClocksEventReasons",                         \
    "nvmlDeviceGetCurrentClocksThrottleReasons")                                                              \
  F(fields, DeviceGetFieldsFn, "nvmlDeviceGetFieldValues")                                                    \
  F(mig_mode, DeviceGetMigModeFn, "nvmlDeviceGetMigMode")                                                     \
  F(virtualization, DeviceGetVirtualizationFn, "nvmlDeviceGetVirtualizationMode")                             \
  F(capability, DeviceGetCapabilityFn, "nvmlDeviceGetCudaComputeCapability")                                  \
  F(gpm_support, GpmQuerySupportFn, "nvmlGpmQueryDeviceSupport")                                              \
  F(gpm_alloc, GpmSampleAllocFn, "nvmlGpmSampleAlloc")                                                        \
  F(gpm_free, GpmSampleFreeFn, "nvmlGpmSampleFree")                                                           \
  F(gpm_sample, GpmSampleGetFn, "nvmlGpmSampleGet")                                                           \
  F(gpm_metrics, GpmMetricsGetFn, "nvmlGpmMetricsGet")

}  // namespace llmprof::nvml
