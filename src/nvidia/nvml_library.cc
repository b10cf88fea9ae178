#include "nvidia/nvml_library.h"

#include <cstdlib>
#include <cstring>

namespace llmprof::nvidia {
namespace {

std::string nvml_advice_for(nvml::Return result) {
  switch (result) {
    case nvml::kErrorDriverNotLoaded:
      return "load the NVIDIA kernel driver (nvidia-smi must work); in a container, start it with --gpus all";
    case nvml::kErrorLibRmVersionMismatch:
      return "the driver was updated without a restart: restart the machine, or the container after the host";
    case nvml::kErrorNoPermission:
      return "give this user access to /dev/nvidiactl and /dev/nvidia*";
    default:
      return "run nvidia-smi: it uses the same library and must work first";
  }
}

// NVML writes the domain with eight digits, CUDA with four; ours is "0000:0f:00.0".
std::string short_bus_id(const nvml::PciInfo& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
  return text;
}

NvmlGpu describe(const NvmlApi& api, int index, nvml::Device device) {
  NvmlGpu gpu;
  gpu.index = index;
  gpu.device = device;
  char text[nvml::kDeviceUuidBytes] = {};
  if (api.device_uuid != nullptr && api.device_uuid(device, text, sizeof text) == nvml::kSuccess) gpu.uuid = text;
  std::memset(text, 0, sizeof text);
  if (api.device_name != nullptr && api.device_name(device, text, sizeof text) == nvml::kSuccess) gpu.name = text;
  nvml::PciInfo pci{};
  if (api.device_pci != nullptr && api.device_pci(device, &pci) == nvml::kSuccess) gpu.pci_bus = short_bus_id(pci);
  nvml::Memory memory{};
  if (api.memory != nullptr && api.memory(device, &memory) == nvml::kSuccess)
    gpu.memory_bytes = static_cast<int64_t>(memory.total);
  unsigned value = 0;
  if (api.power_limit != nullptr && api.power_limit(device, &value) == nvml::kSuccess)
    gpu.power_limit_w = static_cast<double>(value) / 1000.0;
  if (api.clock_max != nullptr && api.clock_max(device, nvml::kClockSm, &value) == nvml::kSuccess)
    gpu.sm_clock_max_mhz = static_cast<double>(value);
  int major = -1, minor = -1;
  if (api.capability != nullptr && api.capability(device, &major, &minor) == nvml::kSuccess) {
    gpu.compute_major = major;
    gpu.compute_minor = minor;
  }
  unsigned current = 0, pending = 0;
  if (api.mig_mode != nullptr) {
    const nvml::Return result = api.mig_mode(device, &current, &pending);
    if (result == nvml::kSuccess) gpu.mig = current != 0 ? 1 : 0;
    if (result == nvml::kErrorNotSupported) gpu.mig = 0;  // a GPU that cannot be split is not split
  }
  int mode = -1;
  if (api.virtualization != nullptr && api.virtualization(device, &mode) == nvml::kSuccess) gpu.virtualization = mode;
  if (api.gpm_support != nullptr) {
    nvml::GpmSupport support{nvml::kGpmSupportVersion, 0};
    const nvml::Return result = api.gpm_support(device, &support);
    gpu.gpm = result == nvml::kSuccess && support.is_supported != 0 ? 1 : 0;
  }
  return gpu;
}

}  // namespace

Result<NvmlLibrary> NvmlLibrary::open(const std::string& path) {
  std::string file = path;
  if (file.empty()) {
    const char* chosen = std::getenv(kEnvNvml);
    file = chosen != nullptr && *chosen != '\0' ? chosen : "libnvidia-ml.so.1";
  }
  NvmlLibrary nvml;
  nvml.library_ = SharedLibrary(file);
  if (!nvml.library_) {
    return fail("expected NVML, the management library of the NVIDIA driver, found none: " + nvml.library_.error(),
                file,
                "install the NVIDIA driver; in a container, start it with --gpus all (NVIDIA_DRIVER_CAPABILITIES must "
                "hold utility)");
  }
#define LLMPROF_LOAD(member, type, ...) nvml.library_.load(nvml.api_.member, __VA_ARGS__);
  LLMPROF_NVML_FUNCTIONS(LLMPROF_LOAD)
#undef LLMPROF_LOAD
  if (nvml.api_.init == nullptr || nvml.api_.device_count == nullptr || nvml.api_.device_by_index == nullptr) {
    return fail("expected NVML, found a library without its functions", file, "unset " + std::string(kEnvNvml));
  }
  const nvml::Return result = nvml.api_.init();
  if (result != nvml::kSuccess) {
    const char* words = nvml.api_.error_string != nullptr ? nvml.api_.error_string(result) : nullptr;
    return fail("NVML did not start: " + (words != nullptr ? std::string(words) : "error " + std::to_string(result)),
                file, nvml_advice_for(result));
  }
  nvml.initialised_ = true;
  return nvml;
}

NvmlLibrary::NvmlLibrary(NvmlLibrary&& other) noexcept
    : api_(other.api_), library_(std::move(other.library_)), initialised_(std::exchange(other.initialised_, false)) {}

NvmlLibrary& NvmlLibrary::operator=(NvmlLibrary&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(library_, other.library_);
  std::swap(initialised_, other.initialised_);
  return *this;
}

NvmlLibrary::~NvmlLibrary() {
  if (initialised_ && api_.shutdown != nullptr) api_.shutdown();
  library_.keep_open();
}

std::string NvmlLibrary::driver_version() const {
  char text[nvml::kDriverVersionBytes] = {};
  if (api_.driver_version == nullptr || api_.driver_version(text, sizeof text) != nvml::kSuccess) return {};
  return text;
}

int NvmlLibrary::driver_major() const {
  const int major = std::atoi(driver_version().c_str());
  return major > 0 ? major : -1;
}

int NvmlLibrary::confidential() const {
  nvml::ConfidentialState state{};
  if (api_.confidential_state == nullptr || api_.confidential_state(&state) != nvml::kSuccess) return -1;
  return state.feature != 0 ? 1 : 0;
}

std::vector<NvmlGpu> NvmlLibrary::gpus() const {
  std::vector<NvmlGpu> gpus;
  unsigned count = 0;
  if (api_.device_count(&count) != nvml::kSuccess) return gpus;
  for (unsigned index = 0; index < count; ++index) {
    nvml::Device device = nullptr;
    if (api_.device_by_index(index, &device) != nvml::kSuccess) continue;
    gpus.push_back(describe(api_, static_cast<int>(index), device));
  }
  return gpus;
}

}  // namespace llmprof::nvidia
