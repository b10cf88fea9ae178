// The CUDA driver, NVRTC, cuBLASLt, cuBLAS and cuDNN, opened at run time. Nothing is opened twice in a process; a
// library stays mapped, as all of them keep threads and exit handlers.
//
// Functions are those of the copy that was opened, except where the recorder of `llmprof run` has a hook: the hook is
// called then, so that a recorded benchmark shows its library calls as every program does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/shared_library.h"
#include "nvidia/cublas_abi.h"
#include "nvidia/cublaslt_abi.h"
#include "nvidia/cuda_abi.h"
#include "nvidia/cudnn_abi.h"
#include "nvidia/nvrtc_abi.h"

namespace llmprof::nvidia {

// Variables of the environment that name a file to be used instead of the one that would be found.
constexpr const char* kEnvCuda = "LLMPROF_CUDA";
constexpr const char* kEnvNvrtc = "LLMPROF_NVRTC";
constexpr const char* kEnvCublasLt = "LLMPROF_CUBLASLT";
constexpr const char* kEnvCublas = "LLMPROF_CUBLAS";
constexpr const char* kEnvCudnn = "LLMPROF_CUDNN";

struct DriverLibrary {
  cuda_abi::Api api;
  int version = 0;  // of CUDA that the driver implements: 12080
  LibraryVersion about;
};
// Opened and initialised. The error says whether the library is missing, too old, or does not start, and what to do.
Result<DriverLibrary> open_driver();

// The driver's side of one GPU, found among all of the machine (CUDA_VISIBLE_DEVICES does not apply here).
struct CudaDevice {
  int ordinal = -1;
  std::string uuid;     // "GPU-xxxxxxxx-..."; of a part of a divided GPU "MIG-xxxxxxxx-..."
  std::string pci_bus;  // "0000:0f:00.0"
};
struct CudaDevices {
  int driver_version = 0;  // 13000 for CUDA 13.0
  std::vector<CudaDevice> devices;
};
// Starts the CUDA driver in this process (no context) and lists its GPUs. Recording works with older drivers than
// measuring: no more of the library is needed than this. The error says what is missing.
Result<CudaDevices> list_cuda_devices();

struct NvrtcLibrary {
  nvrtc_abi::Api api;
  int major = 0, minor = 0;
  std::vector<int> archs;  // 90 for sm_90, ascending; empty where it does not tell
  LibraryVersion about;
};
// `driver_version` 0: any. Copies of a major version that the driver does not run are passed over.
Result<NvrtcLibrary> open_nvrtc(int driver_version);

struct CublasLtLibrary {
  cublaslt::Api api;
  size_t version = 0;  // 130100
  LibraryVersion about;
};
Result<CublasLtLibrary> open_cublaslt(int driver_version);

struct CublasLibrary {
  cublas::Api api;
  LibraryVersion about;  // the version is told with a handle only
};
// cuBLASLt should be open already: cuBLAS then finds the same copy by its name.
Result<CublasLibrary> open_cublas();

struct CudnnLibrary {
  cudnn::Api api;
  size_t version = 0;  // 91400
  LibraryVersion about;
};
// Of major version 9. NVRTC and cuBLASLt should be open already: cuDNN then finds the same copies by their names.
Result<CudnnLibrary> open_cudnn(int driver_version);

// "CUDA 12.8" of 12080.
std::string cuda_version_text(int version);
// What a result of the driver means, in words, with its name: "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
std::string result_text(const cuda_abi::Api& api, cuda_abi::Result result);
// After these nothing can run in this process any more.
bool loses_context(cuda_abi::Result result);
std::string cublaslt_status_text(cublaslt::Status status);

}  // namespace llmprof::nvidia
