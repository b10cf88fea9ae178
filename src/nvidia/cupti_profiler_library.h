// CUPTI's profiler half and the CUDA driver, opened at run time. The host functions (metric sets, passes, evaluation)
// need neither a driver nor a GPU; the PM sampling functions need both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/shared_library.h"
#include "nvidia/cupti_profiler_abi.h"

namespace llmprof::nvidia {

struct CuptiProfilerApi {
  cupti_profiler::GetVersionFn get_version = nullptr;
  cupti_profiler::CodeTextFn result_string = nullptr;
  cupti_profiler::CallFn<cupti_profiler::InitializeParams> initialize = nullptr, deinitialize = nullptr;
  cupti_profiler::CallFn<cupti_profiler::ChipNameParams> chip_name = nullptr;
  cupti_profiler::CallFn<cupti_profiler::DeviceSupportedParams> device_supported = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostInitializeParams> host_initialize = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostDeinitializeParams> host_deinitialize = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostSupportedChipsParams> host_supported_chips = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostAddMetricsParams> host_add_metrics = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostConfigSizeParams> host_config_size = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostConfigParams> host_config = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostPassesParams> host_passes = nullptr;
  cupti_profiler::CallFn<cupti_profiler::HostEvaluateParams> host_evaluate = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmAvailabilityParams> pm_availability = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmEnableParams> pm_enable = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmObjectParams> pm_disable = nullptr, pm_start = nullptr, pm_stop = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmSetConfigParams> pm_set_config = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmImageSizeParams> pm_image_size = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmImageInitializeParams> pm_image_initialize = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmDecodeParams> pm_decode = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmImageInfoParams> pm_image_info = nullptr;
  cupti_profiler::CallFn<cupti_profiler::PmSampleInfoParams> pm_sample_info = nullptr;
};

class CuptiProfilerLibrary {
 public:
  // Opens one copy of CUPTI; an error if it cannot be loaded. It stays mapped: CUPTI leaves threads behind.
  static Result<CuptiProfilerLibrary> open(const std::string& path);

  const CuptiProfilerApi& api() const { return api_; }
  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }  // CUPTI's own number; 0 if unknown
  bool has_host() const;                         // metric sets can be computed
  bool has_pm_sampling() const;                  // CUDA 12.6 and later
  // "CUPTI_ERROR_HARDWARE_BUSY (26)".
  std::string describe(cupti_profiler::Code result) const;

 private:
  CuptiProfilerApi api_;
  std::string path_;
  uint32_t version_ = 0;
};

// The CUDA toolkit that CUPTI's number belongs to: 24 -> "12.6", 130001 -> "13.0.1"; "unknown" for 0.
std::string cupti_version_text(uint32_t version);

// The driver's side of one GPU, found among all of the machine (CUDA_VISIBLE_DEVICES does not apply here).
struct CudaDevice {
  int ordinal = -1;
  std::string uuid;     // "GPU-xxxxxxxx-..."
  std::string pci_bus;  // "0000:0f:00.0"
};

constexpr const char* kEnvCudaDriver = "LLMPROF_LIBCUDA";  // path instead of libcuda.so.1, for tests

struct CudaDevices {
  int driver_version = 0;  // 13000 for CUDA 13.0
  std::vector<CudaDevice> devices;
};
// Starts the CUDA driver in this process (no context) and lists its GPUs. The error says what is missing.
Result<CudaDevices> list_cuda_devices();

}  // namespace llmprof::nvidia
