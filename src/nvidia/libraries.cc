#include "nvidia/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "nvidia/device_uuid.h"
#include "nvidia/find_library.h"

namespace llmprof::nvidia {
namespace {

// The first driver whose interface is all that is used here, and the first packages of it.
constexpr int kDriverVersionMin = 12000;
constexpr const char* kDriverAdvice =
    "install an NVIDIA driver of 525 or later; in a container, start it with --gpus all; without a GPU, use --device "
    "cpu";

// The hook of the recorder, if it is preloaded and has one.
void* hook_of(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  Dl_info info{};
  if (found == nullptr || dladdr(found, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  const char* file = std::strrchr(info.dli_fname, '/');
  file = file != nullptr ? file + 1 : info.dli_fname;
  return std::strncmp(file, "libllmprof_inject", 17) == 0 ? found : nullptr;
}

template <class Function>
void look_up(const SharedLibrary& library, const char* name, Function& function, std::string& missing) {
  if (library.load(function, name)) {
    if (void* const hook = hook_of(name)) function = reinterpret_cast<Function>(hook);
  } else if (missing.empty()) {
    missing = name;
  }
}

struct Wanted {
  std::string title, comes_with;
  LibrarySearch search;
  std::vector<const char*> versions = {".13", ".12", ""};  // behind the file's name, where only the loader knows it
};

// A library that comes with PyTorch, in `package` under one of `folders`, and lies in a toolkit's folders otherwise.
Wanted wanted(std::string title, const char* package, const char* file, const char* variable,
              std::vector<std::string> folders) {
  Wanted out;
  out.title = std::move(title);
  out.comes_with = fmt::format("it comes with PyTorch for CUDA (package {})", package);
  out.search.file = file;
  out.search.variable = variable;
  out.search.package_folders = std::move(folders);
  out.search.package_folders.push_back("torch/lib");
  out.search.toolkit_folders = {"lib64", "targets/x86_64-linux/lib"};
  return out;
}
Wanted of_toolkit(Wanted library) {
  library.comes_with += " and with the CUDA toolkit";
  return library;
}

Wanted wanted_nvrtc() {
  return of_toolkit(wanted("NVRTC, NVIDIA's run-time compiler", "nvidia-cuda-nvrtc", "libnvrtc.so", kEnvNvrtc,
                           {"nvidia/cu[0-9]*/lib", "nvidia/cuda_nvrtc/lib"}));
}
Wanted wanted_cublaslt() {
  return of_toolkit(wanted("cuBLASLt, NVIDIA's library of matrix products", "nvidia-cublas", "libcublasLt.so",
                           kEnvCublasLt, {"nvidia/cu[0-9]*/lib", "nvidia/cublas/lib"}));
}
Wanted wanted_cublas() {
  return of_toolkit(wanted("cuBLAS, NVIDIA's library of linear algebra", "nvidia-cublas", "libcublas.so", kEnvCublas,
                           {"nvidia/cu[0-9]*/lib", "nvidia/cublas/lib"}));
}
Wanted wanted_cudnn() {
  Wanted out = wanted("cuDNN 9", "nvidia-cudnn", "libcudnn.so", kEnvCudnn, {"nvidia/cudnn/lib"});
  out.versions = {".9"};
  return out;
}

// Files to try: where it usually lies, then the names that only the loader knows.
std::vector<std::string> files_to_try(const Wanted& wanted) {
  const char* chosen = std::getenv(wanted.search.variable.c_str());
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> files = find_library(wanted.search);
  for (const char* version : wanted.versions) files.push_back(wanted.search.file + version);
  return files;
}

// Opens the first copy for which `load` has no objection (empty).
template <class Load>
Status open_first(const Wanted& wanted, Load load) {
  std::string objection, where;
  for (const std::string& path : files_to_try(wanted)) {
    SharedLibrary library(path);
    const bool there = static_cast<bool>(library);
    std::string found = there ? load(library) : library.error();
    library.keep_open();
    if (there && found.empty()) return {};
    // What is wrong with a file that is there says more than that others are not.
    if (objection.empty() || (where.find('/') == std::string::npos && path.find('/') != std::string::npos)) {
      objection = std::move(found);
      where = path;
    }
  }
  return fail(fmt::format("expected {}, found none that works: {}", wanted.title, objection), where,
              fmt::format("{}; {} may name the file", wanted.comes_with, wanted.search.variable));
}

std::string too_new(int major, int driver_version) {
  if (driver_version == 0 || major <= driver_version / 1000) return {};
  return fmt::format("it is of CUDA {}, and the driver runs up to {}", major, cuda_version_text(driver_version));
}

std::string driver_advice_for(cuda_abi::Result result) {
  switch (result) {
    case cuda_abi::kNoDevice:
      return "nvidia-smi must list a GPU, and CUDA_VISIBLE_DEVICES must not hide it; without one, use --device cpu";
    case cuda_abi::kSystemDriverMismatch:
      return "the driver was updated without a restart: restart the machine, or the container after the host";
    case cuda_abi::kSystemNotReady:
      return "the fabric of the GPUs is not up: start nvidia-fabricmanager, or wait for it";
    case cuda_abi::kStubLibrary:
      return "this is the toolkit's stub, not the driver's library: take lib64/stubs out of LD_LIBRARY_PATH";
    default:
      return kDriverAdvice;
  }
}

// Opened, not started. `missing`: the first of its functions that an older driver does not have.
Result<DriverLibrary> load_driver(std::string& missing) {
  const char* chosen = std::getenv(kEnvCuda);
  const std::string file = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  SharedLibrary library(file);
  if (!library) return fail("expected the CUDA driver's library, found none: " + library.error(), file, kDriverAdvice);
  DriverLibrary driver;
#define LLMPROF_LOOK_UP(member, name, suffix, parameters) look_up(library, #name suffix, driver.api.member, missing);
  LLMPROF_CUDA_FUNCTIONS(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  std::string lacking;
#define LLMPROF_LOOK_UP(member, name, suffix, parameters) look_up(library, #name suffix, driver.api.member, lacking);
  LLMPROF_CUDA_OPTIONAL_FUNCTIONS(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  library.keep_open();
  const cuda_abi::Api& api = driver.api;
  // The version first: a missing function usually means no more than an old driver.
  if (api.init == nullptr || api.driver_version == nullptr || api.driver_version(&driver.version) != cuda_abi::kSuccess)
    return fail("expected the CUDA driver's library, found one without its functions", file,
                fmt::format("unset {}", kEnvCuda));
  driver.about = {"CUDA driver", cuda_version_text(driver.version).substr(5),
                  SharedLibrary::file_of(api.driver_version)};
  return driver;
}

Status start_driver(const DriverLibrary& driver) {
  const cuda_abi::Result result = driver.api.init(0);
  if (result == cuda_abi::kSuccess) return {};
  return fail("the CUDA driver did not start: " + result_text(driver.api, result), driver.about.path,
              driver_advice_for(result));
}

// What is wrong with this copy; empty: nothing.
std::string load_nvrtc(const SharedLibrary& library, int driver_version, NvrtcLibrary& nvrtc) {
  std::string missing;
#define LLMPROF_LOOK_UP(member, name, parameters) look_up(library, #name, nvrtc.api.member, missing);
  LLMPROF_NVRTC_FUNCTIONS(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  if (!missing.empty()) return "it has no " + missing;
  if (nvrtc.api.version(&nvrtc.major, &nvrtc.minor) != nvrtc_abi::kSuccess) return "its version cannot be read";
  nvrtc.about = {"NVRTC", fmt::format("{}.{}", nvrtc.major, nvrtc.minor), SharedLibrary::file_of(nvrtc.api.version)};
  return too_new(nvrtc.major, driver_version);
}

std::string load_cublaslt(const SharedLibrary& library, int driver_version, CublasLtLibrary& lt) {
  std::string missing;
#define LLMPROF_LOOK_UP(member, name, parameters) look_up(library, #name, lt.api.member, missing);
  LLMPROF_CUBLASLT_FUNCTIONS(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  look_up(library, "cublasLtGetVersion", lt.api.version, missing);
  if (!missing.empty()) return "it has no " + missing;
  lt.version = lt.api.version();
  // Of a function that is never hooked.
  lt.about = {"cuBLASLt", fmt::format("{}.{}.{}", lt.version / 10000, lt.version / 100 % 100, lt.version % 100),
              SharedLibrary::file_of(lt.api.heuristic)};
  return too_new(static_cast<int>(lt.version / 10000), driver_version);
}

std::string load_cublas(const SharedLibrary& library, CublasLibrary& cublas) {
  std::string missing, optional;
#define LLMPROF_LOOK_UP(member, name, parameters) look_up(library, #name, cublas.api.member, missing);
  LLMPROF_CUBLAS_FUNCTIONS(LLMPROF_LOOK_UP)
  LLMPROF_CUBLAS_GEMM(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
#define LLMPROF_LOOK_UP(member, name, parameters) look_up(library, #name, cublas.api.member, optional);
  LLMPROF_CUBLAS_GROUPED(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  if (!missing.empty()) return "it has no " + missing;
  // Of a function that is never hooked.
  cublas.about = {"cuBLAS", "", SharedLibrary::file_of(cublas.api.set_workspace)};
  return {};
}

std::string load_cudnn(const SharedLibrary& library, int driver_version, CudnnLibrary& cudnn) {
  std::string missing;
#define LLMPROF_LOOK_UP(member, name, parameters) look_up(library, #name, cudnn.api.member, missing);
  LLMPROF_CUDNN_FUNCTIONS(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  look_up(library, "cudnnGetVersion", cudnn.api.version, missing);
  look_up(library, "cudnnGetCudartVersion", cudnn.api.cudart_version, missing);
  look_up(library, "cudnnGetErrorString", cudnn.api.status_name, missing);
  look_up(library, "cudnnGetLastErrorString", cudnn.api.last_error, missing);
  if (cudnn.api.version != nullptr && (cudnn.version = cudnn.api.version()) < 90000)
    return fmt::format("it is cuDNN {}.{}", cudnn.version / 1000, cudnn.version / 100 % 10);
  if (!missing.empty()) return "it has no " + missing;
  // Of a function that is never hooked.
  cudnn.about = {"cuDNN",
                 fmt::format("{}.{}.{}", cudnn.version / 10000, cudnn.version / 100 % 100, cudnn.version % 100),
                 SharedLibrary::file_of(cudnn.api.version)};
  return too_new(static_cast<int>(cudnn.api.cudart_version() / 1000), driver_version);
}

}  // namespace

std::string cuda_version_text(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

bool loses_context(cuda_abi::Result result) {
  switch (result) {
    case cuda_abi::kEccUncorrectable:
    case cuda_abi::kIllegalAddress:
    case cuda_abi::kLaunchTimeout:
    case cuda_abi::kContextIsDestroyed:
    case cuda_abi::kHardwareStackError:
    case cuda_abi::kIllegalInstruction:
    case cuda_abi::kMisalignedAddress:
    case cuda_abi::kInvalidAddressSpace:
    case cuda_abi::kInvalidPc:
    case cuda_abi::kLaunchFailed:
      return true;
    default:
      return false;
  }
}

std::string result_text(const cuda_abi::Api& api, cuda_abi::Result result) {
  const char* name = nullptr;
  if (api.error_name == nullptr || api.error_name(result, &name) != cuda_abi::kSuccess) name = nullptr;
  const std::string code = name != nullptr ? name : fmt::format("error {}", static_cast<int>(result));
  const char* words = nullptr;
  switch (result) {
    case cuda_abi::kOutOfMemory:
      words = "out of memory";
      break;
    case cuda_abi::kNoDevice:
      words = "no GPU";
      break;
    case cuda_abi::kDeviceUnavailable:
      words = "the GPU is taken by another process in exclusive mode";
      break;
    case cuda_abi::kInvalidDevice:
      words = "no such GPU";
      break;
    case cuda_abi::kNoBinaryForGpu:
    case cuda_abi::kInvalidImage:
      words = "the compiled kernel is not for this GPU";
      break;
    case cuda_abi::kInvalidPtx:
    case cuda_abi::kUnsupportedPtxVersion:
      words = "the driver is older than the compiler of the kernel";
      break;
    case cuda_abi::kEccUncorrectable:
      words = "the GPU's memory had an error that could not be corrected";
      break;
    case cuda_abi::kIllegalAddress:
      words = "a kernel used memory that is not its own";
      break;
    case cuda_abi::kMisalignedAddress:
      words = "a kernel used an address that is not aligned";
      break;
    case cuda_abi::kIllegalInstruction:
      words = "a kernel met an instruction that the GPU does not have";
      break;
    case cuda_abi::kLaunchOutOfResources:
      words = "the kernel needs more registers or shared memory than the GPU has";
      break;
    case cuda_abi::kLaunchTimeout:
      words = "the kernel ran longer than the display's watchdog allows";
      break;
    case cuda_abi::kLaunchFailed:
      words = "a kernel failed";
      break;
    case cuda_abi::kSystemDriverMismatch:
      words = "the driver's library and its kernel module are of different versions";
      break;
    case cuda_abi::kStubLibrary:
      words = "a stub library";
      break;
    default:
      return code;
  }
  return fmt::format("{} ({})", words, code);
}

std::string cublaslt_status_text(cublaslt::Status status) {
  switch (status) {
    case cublas::kNotInitialized:
      return "not initialised (1): it found no GPU, or a driver too old for it";
    case cublas::kAllocFailed:
      return "out of memory (3)";
    case cublas::kInvalidValue:
      return "invalid value (7)";
    case cublas::kArchMismatch:
      return "this GPU does not have it (8)";
    case cublas::kExecutionFailed:
      return "its kernel failed (13)";
    case cublas::kNotSupported:
      return "not supported (15)";
    default:
      return fmt::format("status {}", static_cast<int>(status));
  }
}

Result<DriverLibrary> open_driver() {
  std::string missing;
  LLMPROF_ASSIGN(DriverLibrary driver, load_driver(missing));
  if (driver.version < kDriverVersionMin || !missing.empty()) {
    const std::string lacks = missing.empty() ? std::string() : fmt::format(" (it has no {})", missing);
    return fail(fmt::format("expected a driver for {} or later, found one for {}{}",
                            cuda_version_text(kDriverVersionMin), cuda_version_text(driver.version), lacks),
                driver.about.path, kDriverAdvice);
  }
  LLMPROF_CHECK(start_driver(driver));
  return driver;
}

Result<CudaDevices> list_cuda_devices() {
  std::string missing;
  LLMPROF_ASSIGN(const DriverLibrary driver, load_driver(missing));
  const cuda_abi::Api& api = driver.api;
  if (api.device_count == nullptr || api.device_get == nullptr || api.device_uuid == nullptr)
    return fail("expected the CUDA driver's library, found one that has no " + missing, driver.about.path,
                kDriverAdvice);
  // Every GPU, in a fixed order: what the target may see is its own matter. CUDA reads these when it starts.
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  LLMPROF_CHECK(start_driver(driver));
  CudaDevices found;
  found.driver_version = driver.version;
  int count = 0;
  if (api.device_count(&count) != cuda_abi::kSuccess) count = 0;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDevice entry;
    entry.ordinal = ordinal;
    int device = 0;
    DeviceUuids uuids;
    char bus[32] = {};
    if (api.device_get(&device, ordinal) != cuda_abi::kSuccess ||
        read_uuids(api.device_uuid, api.gpu_uuid, device, uuids) != cuda_abi::kSuccess)
      continue;
    entry.uuid = uuids.device;
    if (api.device_bus != nullptr && api.device_bus(bus, sizeof bus, device) == cuda_abi::kSuccess) entry.pci_bus = bus;
    found.devices.push_back(entry);
  }
  return found;
}

Result<NvrtcLibrary> open_nvrtc(int driver_version) {
  NvrtcLibrary nvrtc;
  const auto load = [&](const SharedLibrary& library) { return load_nvrtc(library, driver_version, nvrtc); };
  LLMPROF_CHECK(open_first(wanted_nvrtc(), load));
  int count = 0;
  if (nvrtc.api.arch_count(&count) == nvrtc_abi::kSuccess && count > 0) {
    nvrtc.archs.resize(static_cast<size_t>(count));
    if (nvrtc.api.archs(nvrtc.archs.data()) != nvrtc_abi::kSuccess) nvrtc.archs.clear();
    std::sort(nvrtc.archs.begin(), nvrtc.archs.end());
  }
  return nvrtc;
}

Result<CublasLtLibrary> open_cublaslt(int driver_version) {
  CublasLtLibrary lt;
  const auto load = [&](const SharedLibrary& library) { return load_cublaslt(library, driver_version, lt); };
  LLMPROF_CHECK(open_first(wanted_cublaslt(), load));
  return lt;
}

Result<CublasLibrary> open_cublas() {
  CublasLibrary cublas;
  const auto load = [&](const SharedLibrary& library) { return load_cublas(library, cublas); };
  LLMPROF_CHECK(open_first(wanted_cublas(), load));
  return cublas;
}

Result<CudnnLibrary> open_cudnn(int driver_version) {
  CudnnLibrary cudnn;
  const auto load = [&](const SharedLibrary& library) { return load_cudnn(library, driver_version, cudnn); };
  LLMPROF_CHECK(open_first(wanted_cudnn(), load));
  return cudnn;
}

}  // namespace llmprof::nvidia
