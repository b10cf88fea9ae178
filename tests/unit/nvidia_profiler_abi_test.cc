// Our declarations of CUPTI's profiler interface, the CUDA driver and NVML against the official headers, where there
// are any. The comparison happens when this file is compiled.
#include <gtest/gtest.h>

#include "nvidia/cupti_profiler_abi.h"
#include "nvidia/nvml_abi.h"

#if __has_include(<cupti_pmsampling.h>) && __has_include(<cupti_profiler_host.h>) && __has_include(<cuda.h>)
#define LLMPROF_HAVE_CUPTI_HEADERS 1
#include <cuda.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#endif
#if __has_include(<nvml.h>)
#define LLMPROF_HAVE_NVML_HEADER 1
#include <nvml.h>
#endif

namespace own = llmprof::cupti_profiler;

#ifdef LLMPROF_HAVE_CUPTI_HEADERS

#define SAME_SIZE(Ours, our_size, Official)               \
  static_assert(own::our_size == Official##_STRUCT_SIZE); \
  static_assert(sizeof(own::Ours) == sizeof(Official));   \
  static_assert(alignof(own::Ours) == alignof(Official))
#define SAME_PLACE(Ours, our_field, Official, field) \
  static_assert(offsetof(own::Ours, our_field) == offsetof(Official, field))

SAME_SIZE(InitializeParams, kInitializeSize, CUpti_Profiler_Initialize_Params);
SAME_SIZE(ChipNameParams, kChipNameSize, CUpti_Device_GetChipName_Params);
SAME_PLACE(ChipNameParams, chip_name, CUpti_Device_GetChipName_Params, pChipName);
SAME_SIZE(DeviceSupportedParams, kDeviceSupportedSize, CUpti_Profiler_DeviceSupported_Params);
SAME_PLACE(DeviceSupportedParams, device, CUpti_Profiler_DeviceSupported_Params, cuDevice);
SAME_PLACE(DeviceSupportedParams, is_supported, CUpti_Profiler_DeviceSupported_Params, isSupported);
SAME_PLACE(DeviceSupportedParams, architecture, CUpti_Profiler_DeviceSupported_Params, architecture);
SAME_PLACE(DeviceSupportedParams, vgpu, CUpti_Profiler_DeviceSupported_Params, vGpu);
SAME_PLACE(DeviceSupportedParams, confidential_compute, CUpti_Profiler_DeviceSupported_Params, confidentialCompute);
SAME_PLACE(DeviceSupportedParams, wsl, CUpti_Profiler_DeviceSupported_Params, wsl);
SAME_PLACE(DeviceSupportedParams, api, CUpti_Profiler_DeviceSupported_Params, api);

SAME_SIZE(HostInitializeParams, kHostInitializeSize, CUpti_Profiler_Host_Initialize_Params);
SAME_PLACE(HostInitializeParams, profiler_type, CUpti_Profiler_Host_Initialize_Params, profilerType);
SAME_PLACE(HostInitializeParams, chip_name, CUpti_Profiler_Host_Initialize_Params, pChipName);
SAME_PLACE(HostInitializeParams, counter_availability, CUpti_Profiler_Host_Initialize_Params,
           pCounterAvailabilityImage);
SAME_PLACE(HostInitializeParams, host, CUpti_Profiler_Host_Initialize_Params, pHostObject);
SAME_SIZE(HostDeinitializeParams, kHostDeinitializeSize, CUpti_Profiler_Host_Deinitialize_Params);
SAME_SIZE(HostAddMetricsParams, kHostAddMetricsSize, CUpti_Profiler_Host_ConfigAddMetrics_Params);
SAME_PLACE(HostAddMetricsParams, names, CUpti_Profiler_Host_ConfigAddMetrics_Params, ppMetricNames);
SAME_SIZE(HostConfigSizeParams, kHostConfigSizeSize, CUpti_Profiler_Host_GetConfigImageSize_Params);
SAME_SIZE(HostConfigParams, kHostConfigSize, CUpti_Profiler_Host_GetConfigImage_Params);
SAME_PLACE(HostConfigParams, config, CUpti_Profiler_Host_GetConfigImage_Params, pConfigImage);
SAME_SIZE(HostPassesParams, kHostPassesSize, CUpti_Profiler_Host_GetNumOfPasses_Params);
SAME_PLACE(HostPassesParams, config, CUpti_Profiler_Host_GetNumOfPasses_Params, pConfigImage);
SAME_PLACE(HostPassesParams, passes, CUpti_Profiler_Host_GetNumOfPasses_Params, numOfPasses);
SAME_SIZE(HostEvaluateParams, kHostEvaluateSize, CUpti_Profiler_Host_EvaluateToGpuValues_Params);
SAME_PLACE(HostEvaluateParams, image, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pCounterDataImage);
SAME_PLACE(HostEvaluateParams, range_index, CUpti_Profiler_Host_EvaluateToGpuValues_Params, rangeIndex);
SAME_PLACE(HostEvaluateParams, names, CUpti_Profiler_Host_EvaluateToGpuValues_Params, ppMetricNames);
SAME_PLACE(HostEvaluateParams, values, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pMetricValues);

SAME_SIZE(PmAvailabilityParams, kPmAvailabilitySize, CUpti_PmSampling_GetCounterAvailability_Params);
SAME_PLACE(PmAvailabilityParams, image_bytes, CUpti_PmSampling_GetCounterAvailability_Params,
           counterAvailabilityImageSize);
SAME_SIZE(PmEnableParams, kPmEnableSize, CUpti_PmSampling_Enable_Params);
SAME_PLACE(PmEnableParams, object, CUpti_PmSampling_Enable_Params, pPmSamplingObject);
SAME_SIZE(PmObjectParams, kPmObjectSize, CUpti_PmSampling_Disable_Params);
SAME_SIZE(PmObjectParams, kPmObjectSize, CUpti_PmSampling_Start_Params);
SAME_SIZE(PmObjectParams, kPmObjectSize, CUpti_PmSampling_Stop_Params);
SAME_SIZE(PmSetConfigParams, kPmSetConfigSize, CUpti_PmSampling_SetConfig_Params);
SAME_PLACE(PmSetConfigParams, config_bytes, CUpti_PmSampling_SetConfig_Params, configSize);
SAME_PLACE(PmSetConfigParams, hardware_buffer_bytes, CUpti_PmSampling_SetConfig_Params, hardwareBufferSize);
SAME_PLACE(PmSetConfigParams, interval, CUpti_PmSampling_SetConfig_Params, samplingInterval);
SAME_PLACE(PmSetConfigParams, trigger_mode, CUpti_PmSampling_SetConfig_Params, triggerMode);
SAME_SIZE(PmImageSizeParams, kPmImageSizeSize, CUpti_PmSampling_GetCounterDataSize_Params);
SAME_PLACE(PmImageSizeParams, max_samples, CUpti_PmSampling_GetCounterDataSize_Params, maxSamples);
SAME_SIZE(PmImageInitializeParams, kPmImageInitializeSize, CUpti_PmSampling_CounterDataImage_Initialize_Params);
SAME_SIZE(PmDecodeParams, kPmDecodeSize, CUpti_PmSampling_DecodeData_Params);
SAME_PLACE(PmDecodeParams, stop_reason, CUpti_PmSampling_DecodeData_Params, decodeStopReason);
SAME_PLACE(PmDecodeParams, overflow, CUpti_PmSampling_DecodeData_Params, overflow);
SAME_SIZE(PmImageInfoParams, kPmImageInfoSize, CUpti_PmSampling_GetCounterDataInfo_Params);
SAME_PLACE(PmImageInfoParams, completed, CUpti_PmSampling_GetCounterDataInfo_Params, numCompletedSamples);
SAME_SIZE(PmSampleInfoParams, kPmSampleInfoSize, CUpti_PmSampling_CounterData_GetSampleInfo_Params);
SAME_PLACE(PmSampleInfoParams, sample_index, CUpti_PmSampling_CounterData_GetSampleInfo_Params, sampleIndex);
SAME_PLACE(PmSampleInfoParams, start_ns, CUpti_PmSampling_CounterData_GetSampleInfo_Params, startTimestamp);

static_assert(static_cast<int>(own::kOutOfMemory) == CUPTI_ERROR_OUT_OF_MEMORY);
static_assert(static_cast<int>(own::kNotInitialized) == CUPTI_ERROR_NOT_INITIALIZED);
static_assert(static_cast<int>(own::kHardwareBusy) == CUPTI_ERROR_HARDWARE_BUSY);
static_assert(static_cast<int>(own::kNotSupported) == CUPTI_ERROR_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kVirtualizedNotSupported) == CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kInsufficientPrivileges) == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
static_assert(static_cast<int>(own::kVirtualizedInsufficientPrivileges) ==
              CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
static_assert(static_cast<int>(own::kConfidentialComputing) == CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kCmpDevice) == CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kMigDevice) == CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kSliDevice) == CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kWslDevice) == CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
static_assert(static_cast<int>(own::kInvalidChipName) == CUPTI_ERROR_INVALID_CHIP_NAME);
static_assert(static_cast<int>(own::kUnknown) == CUPTI_ERROR_UNKNOWN);
static_assert(own::kProfilerTypePmSampling == CUPTI_PROFILER_TYPE_PM_SAMPLING);
static_assert(own::kApiPmSampling == CUPTI_PROFILER_PM_SAMPLING);
static_assert(static_cast<int>(own::kSupportDisabled) == CUPTI_PROFILER_CONFIGURATION_DISABLED);
static_assert(static_cast<int>(own::kSupported) == CUPTI_PROFILER_CONFIGURATION_SUPPORTED);
static_assert(own::kTriggerSysclk == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
static_assert(own::kTriggerTime == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
static_assert(own::kAppendKeepOldest == CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST);
static_assert(own::kStopImageFull == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL);
static_assert(own::kStopEndOfRecords == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS);

TEST(ProfilerAbi, MatchesTheCuptiHeaders) { SUCCEED() << "compared when this file was compiled"; }
#else
TEST(ProfilerAbi, MatchesTheCuptiHeaders) { GTEST_SKIP() << "CUPTI's headers are not installed here"; }
#endif

#ifdef LLMPROF_HAVE_NVML_HEADER
namespace ours = llmprof::nvml;
static_assert(sizeof(ours::Utilization) == sizeof(nvmlUtilization_t));
static_assert(sizeof(ours::Memory) == sizeof(nvmlMemory_t));
static_assert(sizeof(ours::ProcessInfo) == sizeof(nvmlProcessInfo_t));
static_assert(sizeof(ours::PciInfo) == sizeof(nvmlPciInfo_t));
static_assert(offsetof(ours::PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId));
static_assert(sizeof(ours::FieldValue) == sizeof(nvmlFieldValue_t));
static_assert(offsetof(ours::FieldValue, value) == offsetof(nvmlFieldValue_t, value));
static_assert(sizeof(ours::GpmMetric) == sizeof(nvmlGpmMetric_t));
static_assert(offsetof(ours::GpmMetricsGet, metrics) == offsetof(nvmlGpmMetricsGet_t, metrics));
static_assert(sizeof(ours::GpmMetricsGet) >= sizeof(nvmlGpmMetricsGet_t));
TEST(ProfilerAbi, MatchesTheNvmlHeader) { SUCCEED() << "compared when this file was compiled"; }
#else
TEST(ProfilerAbi, MatchesTheNvmlHeader) { GTEST_SKIP() << "NVML's header is not installed here"; }
#endif
