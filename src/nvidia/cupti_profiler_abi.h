// The part of CUPTI's profiler ABI that the counter sampler uses (PM sampling, the host half that schedules and
// evaluates metrics). Declared by ourselves so that nothing needs the
// toolkit; the libraries are opened at run time (cupti_profiler_library.h).
// tests/unit/nvidia_profiler_abi_test.cc compares every layout with the official headers where they are installed
// (CUDA 13.0; 12.6 has the same fields).
//
// Every parameter struct begins with its size, which CUPTI reads as "which fields does the caller know": the offset of
// the last field plus that field's size, not sizeof. kSize of each struct is that number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::cupti_profiler {

enum Code : int {
  kSuccess = 0,
  kInvalidParameter = 1,
  kInvalidDevice = 2,
  kInvalidOperation = 7,
  kOutOfMemory = 8,
  kNotCompatible = 14,
  kNotInitialized = 15,
  kInvalidMetricName = 17,
  kDisabled = 23,
  kHardwareBusy = 26,
  kNotSupported = 27,
  kVirtualizedNotSupported = 33,
  kInsufficientPrivileges = 35,
  kVirtualizedInsufficientPrivileges = 40,
  kConfidentialComputing = 41,
  kCmpDevice = 42,
  kMigDevice = 43,
  kSliDevice = 44,
  kWslDevice = 45,
  kInvalidChipName = 46,
  kUnknown = 999,
};

struct HostObject;
struct PmSamplingObject;

// CUpti_ProfilerType, CUpti_Profiler_API, CUpti_Profiler_Support_Level.
constexpr int kProfilerTypePmSampling = 1;
constexpr int kApiPmSampling = 3;
enum SupportLevel : int { kSupportUnknown = 0, kUnsupported = 1, kSupportDisabled = 2, kSupported = 3 };

// CUpti_PmSampling_TriggerMode: cycles of the system clock (the only one on Turing and GA100), or nanoseconds.
constexpr int kTriggerSysclk = 0, kTriggerTime = 1;
// CUpti_PmSampling_HardwareBuffer_AppendMode.
constexpr int kAppendKeepOldest = 0;
// CUpti_PmSampling_DecodeStopReason.
constexpr int kStopOther = 0, kStopImageFull = 1, kStopEndOfRecords = 2;

#define LLMPROF_CUPTI_SIZE(Type, last) offsetof(Type, last) + sizeof(Type::last)

struct InitializeParams {  // cuptiProfilerInitialize, cuptiProfilerDeInitialize
  size_t struct_size;
  void* priv;
};
constexpr size_t kInitializeSize = LLMPROF_CUPTI_SIZE(InitializeParams, priv);

struct ChipNameParams {  // cuptiDeviceGetChipName
  size_t struct_size;
  void* priv;
  size_t device_index;
  const char* chip_name;  // out
};
constexpr size_t kChipNameSize = LLMPROF_CUPTI_SIZE(ChipNameParams, chip_name);

struct DeviceSupportedParams {  // cuptiProfilerDeviceSupported
  size_t struct_size;
  void* priv;
  int device;                 // CUdevice
  SupportLevel is_supported;  // out, as all up to wsl
  SupportLevel architecture, sli, vgpu, confidential_compute, cmp, wsl;
  int api;
};
constexpr size_t kDeviceSupportedSize = LLMPROF_CUPTI_SIZE(DeviceSupportedParams, api);

// ---- host: needs neither driver nor GPU
// ------------------------------------------------------------------------------

struct HostInitializeParams {  // cuptiProfilerHostInitialize
  size_t struct_size;
  void* priv;
  int profiler_type;
  const char* chip_name;
  const uint8_t* counter_availability;  // null: every counter of the chip
  HostObject* host;                     // out
};
constexpr size_t kHostInitializeSize = LLMPROF_CUPTI_SIZE(HostInitializeParams, host);

struct HostDeinitializeParams {  // cuptiProfilerHostDeinitialize
  size_t struct_size;
  void* priv;
  HostObject* host;
};
constexpr size_t kHostDeinitializeSize = LLMPROF_CUPTI_SIZE(HostDeinitializeParams, host);

struct HostAddMetricsParams {  // cuptiProfilerHostConfigAddMetrics
  size_t struct_size;
  void* priv;
  HostObject* host;
  const char** names;
  size_t count;
};
constexpr size_t kHostAddMetricsSize = LLMPROF_CUPTI_SIZE(HostAddMetricsParams, count);

struct HostConfigSizeParams {  // cuptiProfilerHostGetConfigImageSize
  size_t struct_size;
  void* priv;
  HostObject* host;
  size_t config_bytes;  // out
};
constexpr size_t kHostConfigSizeSize = LLMPROF_CUPTI_SIZE(HostConfigSizeParams, config_bytes);

struct HostConfigParams {  // cuptiProfilerHostGetConfigImage
  size_t struct_size;
  void* priv;
  HostObject* host;
  size_t config_bytes;
  uint8_t* config;
};
constexpr size_t kHostConfigSize = LLMPROF_CUPTI_SIZE(HostConfigParams, config);

struct HostPassesParams {  // cuptiProfilerHostGetNumOfPasses
  size_t struct_size;
  void* priv;
  size_t config_bytes;
  uint8_t* config;
  size_t passes;  // out
};
constexpr size_t kHostPassesSize = LLMPROF_CUPTI_SIZE(HostPassesParams, passes);

struct HostEvaluateParams {  // cuptiProfilerHostEvaluateToGpuValues
  size_t struct_size;
  void* priv;
  HostObject* host;
  const uint8_t* image;
  size_t image_bytes;
  size_t range_index;
  const char** names;
  size_t count;
  double* values;
};
constexpr size_t kHostEvaluateSize = LLMPROF_CUPTI_SIZE(HostEvaluateParams, values);

// ---- PM sampling
// -----------------------------------------------------------------------------------------------------

struct PmAvailabilityParams {  // cuptiPmSamplingGetCounterAvailability, called twice: size, then image
  size_t struct_size;
  void* priv;
  size_t device_index;
  size_t image_bytes;  // in and out
  uint8_t* image;
};
constexpr size_t kPmAvailabilitySize = LLMPROF_CUPTI_SIZE(PmAvailabilityParams, image);

struct PmEnableParams {  // cuptiPmSamplingEnable
  size_t struct_size;
  void* priv;
  size_t device_index;
  PmSamplingObject* object;  // out
};
constexpr size_t kPmEnableSize = LLMPROF_CUPTI_SIZE(PmEnableParams, object);

struct PmObjectParams {  // cuptiPmSamplingDisable, Start, Stop
  size_t struct_size;
  void* priv;
  PmSamplingObject* object;
};
constexpr size_t kPmObjectSize = LLMPROF_CUPTI_SIZE(PmObjectParams, object);

struct PmSetConfigParams {  // cuptiPmSamplingSetConfig; CUPTI keeps `config`: it must live until Disable
  size_t struct_size;
  void* priv;
  PmSamplingObject* object;
  size_t config_bytes;
  const uint8_t* config;
  size_t hardware_buffer_bytes;
  uint64_t interval;  // ns or cycles, by trigger_mode
  int trigger_mode;
  int append_mode;
};
constexpr size_t kPmSetConfigSize = LLMPROF_CUPTI_SIZE(PmSetConfigParams, append_mode);

struct PmImageSizeParams {  // cuptiPmSamplingGetCounterDataSize
  size_t struct_size;
  void* priv;
  PmSamplingObject* object;
  const char** names;
  size_t count;
  uint32_t max_samples;
  size_t image_bytes;  // out
};
constexpr size_t kPmImageSizeSize = LLMPROF_CUPTI_SIZE(PmImageSizeParams, image_bytes);

struct PmImageInitializeParams {  // cuptiPmSamplingCounterDataImageInitialize
  size_t struct_size;
  void* priv;
  PmSamplingObject* object;
  size_t image_bytes;
  uint8_t* image;
};
constexpr size_t kPmImageInitializeSize = LLMPROF_CUPTI_SIZE(PmImageInitializeParams, image);

struct PmDecodeParams {  // cuptiPmSamplingDecodeData; kOutOfMemory when the hardware buffer has overflowed
  size_t struct_size;
  void* priv;
  PmSamplingObject* object;
  uint8_t* image;
  size_t image_bytes;
  int stop_reason;   // out
  uint8_t overflow;  // out
};
constexpr size_t kPmDecodeSize = LLMPROF_CUPTI_SIZE(PmDecodeParams, overflow);

struct PmImageInfoParams {  // cuptiPmSamplingGetCounterDataInfo
  size_t struct_size;
  void* priv;
  const uint8_t* image;
  size_t image_bytes;
  size_t total, populated, completed;  // out
};
constexpr size_t kPmImageInfoSize = LLMPROF_CUPTI_SIZE(PmImageInfoParams, completed);

struct PmSampleInfoParams {  // cuptiPmSamplingCounterDataGetSampleInfo
  size_t struct_size;
  void* priv;
  PmSamplingObject* object;
  const uint8_t* image;
  size_t image_bytes;
  size_t sample_index;
  uint64_t start_ns, end_ns;  // out, CLOCK_REALTIME
};
constexpr size_t kPmSampleInfoSize = LLMPROF_CUPTI_SIZE(PmSampleInfoParams, end_ns);

#undef LLMPROF_CUPTI_SIZE

using GetVersionFn = Code (*)(uint32_t*);
using CodeTextFn = Code (*)(Code, const char**);
template <class Params>
using CallFn = Code (*)(Params*);

// F(member, name, type). Of every CUPTI.
#define LLMPROF_CUPTI_PROFILER_FUNCTIONS(F)     \
  F(get_version, cuptiGetVersion, GetVersionFn) \
  F(result_string, cuptiGetResultString, CodeTextFn)
// With these, metric sets can be computed.
#define LLMPROF_CUPTI_HOST_FUNCTIONS(F)                                                  \
  F(host_initialize, cuptiProfilerHostInitialize, CallFn<HostInitializeParams>)          \
  F(host_deinitialize, cuptiProfilerHostDeinitialize, CallFn<HostDeinitializeParams>)    \
  F(host_add_metrics, cuptiProfilerHostConfigAddMetrics, CallFn<HostAddMetricsParams>)   \
  F(host_config_size, cuptiProfilerHostGetConfigImageSize, CallFn<HostConfigSizeParams>) \
  F(host_config, cuptiProfilerHostGetConfigImage, CallFn<HostConfigParams>)              \
  F(host_passes, cuptiProfilerHostGetNumOfPasses, CallFn<HostPassesParams>)              \
  F(host_evaluate, cuptiProfilerHostEvaluateToGpuValues, CallFn<HostEvaluateParams>)
// With these, too, sampled: CUDA 12.6 and later.
#define LLMPROF_CUPTI_PM_FUNCTIONS(F)                                                                \
  F(initialize, cuptiProfilerInitialize, CallFn<InitializeParams>)                                   \
  F(deinitialize, cuptiProfilerDeInitialize, CallFn<InitializeParams>)                               \
  F(chip_name, cuptiDeviceGetChipName, CallFn<ChipNameParams>)                                       \
  F(device_supported, cuptiProfilerDeviceSupported, CallFn<DeviceSupportedParams>)                   \
  F(pm_availability, cuptiPmSamplingGetCounterAvailability, CallFn<PmAvailabilityParams>)            \
  F(pm_enable, cuptiPmSamplingEnable, CallFn<PmEnableParams>)                                        \
  F(pm_disable, cuptiPmSamplingDisable, CallFn<PmObjectParams>)                                      \
  F(pm_start, cuptiPmSamplingStart, CallFn<PmObjectParams>)                                          \
  F(pm_stop, cuptiPmSamplingStop, CallFn<PmObjectParams>)                                            \
  F(pm_set_config, cuptiPmSamplingSetConfig, CallFn<PmSetConfigParams>)                              \
  F(pm_image_size, cuptiPmSamplingGetCounterDataSize, CallFn<PmImageSizeParams>)                     \
  F(pm_image_initialize, cuptiPmSamplingCounterDataImageInitialize, CallFn<PmImageInitializeParams>) \
  F(pm_decode, cuptiPmSamplingDecodeData, CallFn<PmDecodeParams>)                                    \
  F(pm_image_info, cuptiPmSamplingGetCounterDataInfo, CallFn<PmImageInfoParams>)                     \
  F(pm_sample_info, cuptiPmSamplingCounterDataGetSampleInfo, CallFn<PmSampleInfoParams>)

// Null where the library has no such function.
struct Api {
#define LLMPROF_MEMBER(member, name, type) type member = nullptr;
  LLMPROF_CUPTI_PROFILER_FUNCTIONS(LLMPROF_MEMBER)
  LLMPROF_CUPTI_HOST_FUNCTIONS(LLMPROF_MEMBER)
  LLMPROF_CUPTI_PM_FUNCTIONS(LLMPROF_MEMBER)
#undef LLMPROF_MEMBER
};

}  // namespace llmprof::cupti_profiler
