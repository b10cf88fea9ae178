#include "nvidia/cupti_profiler_library.h"

#include <cstdlib>

#include "nvidia/cuda_abi.h"
#include "nvidia/libraries.h"

namespace llmprof::nvidia {
namespace {

using namespace cupti_profiler;

void load_api(const SharedLibrary& library, CuptiProfilerApi& api) {
  library.load(api.get_version, "cuptiGetVersion");
  library.load(api.result_string, "cuptiGetResultString");
  library.load(api.initialize, "cuptiProfilerInitialize");
  library.load(api.deinitialize, "cuptiProfilerDeInitialize");
  library.load(api.chip_name, "cuptiDeviceGetChipName");
  library.load(api.device_supported, "cuptiProfilerDeviceSupported");
  library.load(api.host_initialize, "cuptiProfilerHostInitialize");
  library.load(api.host_deinitialize, "cuptiProfilerHostDeinitialize");
  library.load(api.host_supported_chips, "cuptiProfilerHostGetSupportedChips");
  library.load(api.host_add_metrics, "cuptiProfilerHostConfigAddMetrics");
  library.load(api.host_config_size, "cuptiProfilerHostGetConfigImageSize");
  library.load(api.host_config, "cuptiProfilerHostGetConfigImage");
  library.load(api.host_passes, "cuptiProfilerHostGetNumOfPasses");
  library.load(api.host_evaluate, "cuptiProfilerHostEvaluateToGpuValues");
  library.load(api.pm_availability, "cuptiPmSamplingGetCounterAvailability");
  library.load(api.pm_enable, "cuptiPmSamplingEnable");
  library.load(api.pm_disable, "cuptiPmSamplingDisable");
  library.load(api.pm_start, "cuptiPmSamplingStart");
  library.load(api.pm_stop, "cuptiPmSamplingStop");
  library.load(api.pm_set_config, "cuptiPmSamplingSetConfig");
  library.load(api.pm_image_size, "cuptiPmSamplingGetCounterDataSize");
  library.load(api.pm_image_initialize, "cuptiPmSamplingCounterDataImageInitialize");
  library.load(api.pm_decode, "cuptiPmSamplingDecodeData");
  library.load(api.pm_image_info, "cuptiPmSamplingGetCounterDataInfo");
  library.load(api.pm_sample_info, "cuptiPmSamplingCounterDataGetSampleInfo");
}

}  // namespace

Result<CuptiProfilerLibrary> CuptiProfilerLibrary::open(const std::string& path) {
  SharedLibrary library(path);
  if (!library) return fail("CUPTI cannot be loaded: " + library.error(), path);
  CuptiProfilerLibrary cupti;
  load_api(library, cupti.api_);
  if (cupti.api_.get_version == nullptr) return fail("expected CUPTI, found a library without cuptiGetVersion", path);
  if (cupti.api_.get_version(&cupti.version_) != kSuccess) cupti.version_ = 0;
  const std::string file = SharedLibrary::file_of(cupti.api_.get_version);
  cupti.path_ = file.empty() ? path : file;
  library.keep_open();
  return cupti;
}

bool CuptiProfilerLibrary::has_host() const {
  return api_.host_initialize != nullptr && api_.host_deinitialize != nullptr && api_.host_add_metrics != nullptr &&
         api_.host_config_size != nullptr && api_.host_config != nullptr && api_.host_passes != nullptr &&
         api_.host_evaluate != nullptr;
}

bool CuptiProfilerLibrary::has_pm_sampling() const {
  return has_host() && api_.initialize != nullptr && api_.deinitialize != nullptr && api_.chip_name != nullptr &&
         api_.device_supported != nullptr && api_.pm_availability != nullptr && api_.pm_enable != nullptr &&
         api_.pm_disable != nullptr && api_.pm_start != nullptr && api_.pm_stop != nullptr &&
         api_.pm_set_config != nullptr && api_.pm_image_size != nullptr && api_.pm_image_initialize != nullptr &&
         api_.pm_decode != nullptr && api_.pm_image_info != nullptr && api_.pm_sample_info != nullptr;
}

std::string CuptiProfilerLibrary::describe(cupti_profiler::Code result) const {
  const char* text = nullptr;
  if (api_.result_string == nullptr || api_.result_string(result, &text) != kSuccess || text == nullptr)
    return "CUPTI error " + std::to_string(static_cast<int>(result));
  return std::string(text) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

std::string cupti_version_text(uint32_t version) {
  if (version == 0) return "unknown";
  if (version >= 130000) {
    const std::string patch = version % 100 != 0 ? "." + std::to_string(version % 100) : std::string();
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + patch;
  }
  struct Known {
    uint32_t version;
    const char* toolkit;
  };
  static constexpr Known kKnown[] = {{28, "12.9.1"}, {27, "12.9"}, {26, "12.8"}, {24, "12.6"}, {23, "12.5"},
                                     {22, "12.4"},   {21, "12.3"}, {20, "12.2"}, {19, "12.0"}, {18, "11.8"}};
  for (const Known& known : kKnown)
    if (known.version == version) return known.toolkit;
  return "interface " + std::to_string(version);
}

Result<CudaDevices> list_cuda_devices() {
  const char* chosen = std::getenv(kEnvCudaDriver);
  const std::string path = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  SharedLibrary library(path);
  if (!library) {
    return fail("expected the CUDA driver library, found none: " + library.error(), path,
                "install the NVIDIA driver; in a container, start it with --gpus all (NVIDIA_DRIVER_CAPABILITIES must "
                "hold compute)");
  }
  decltype(cuda_abi::Api::init) init = nullptr;
  decltype(cuda_abi::Api::device_count) count_devices = nullptr;
  decltype(cuda_abi::Api::device_get) get_device = nullptr;
  decltype(cuda_abi::Api::device_uuid) get_uuid = nullptr;
  decltype(cuda_abi::Api::driver_version) get_version = nullptr;
  cuda_abi::Result (*get_bus)(char* text, int bytes, cuda_abi::Device device) = nullptr;
  const bool complete = library.load(init, "cuInit") && library.load(count_devices, "cuDeviceGetCount") &&
                        library.load(get_device, "cuDeviceGet") &&
                        library.load(get_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid") &&
                        library.load(get_version, "cuDriverGetVersion");
  library.load(get_bus, "cuDeviceGetPCIBusId");
  if (!complete) return fail("expected the CUDA driver, found a library without its functions", path);
  // Every GPU, in a fixed order: what the target may see is its own matter. CUDA reads these when it starts.
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  const cuda_abi::Result started = init(0);
  if (started != cuda_abi::kSuccess) {
    return fail(started == cuda_abi::kNoDevice ? std::string("the CUDA driver sees no GPU")
                                               : "the CUDA driver did not start: error " + std::to_string(started),
                path, "nvidia-smi must list the GPU; in a container, start it with --gpus all");
  }
  library.keep_open();
  CudaDevices found;
  if (get_version(&found.driver_version) != cuda_abi::kSuccess) found.driver_version = 0;
  int count = 0;
  if (count_devices(&count) != cuda_abi::kSuccess) count = 0;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDevice entry;
    entry.ordinal = ordinal;
    int device = 0;
    cuda_abi::Uuid uuid{};
    char bus[32] = {};
    if (get_device(&device, ordinal) != cuda_abi::kSuccess || get_uuid(&uuid, device) != cuda_abi::kSuccess) continue;
    entry.uuid = uuid_text(uuid);
    if (get_bus != nullptr && get_bus(bus, sizeof bus, device) == cuda_abi::kSuccess) entry.pci_bus = bus;
    found.devices.push_back(entry);
  }
  return found;
}

}  // namespace llmprof::nvidia
