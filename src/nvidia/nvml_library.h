// NVML opened at run time: its functions, and the GPUs it lists. Nothing here fails because of one GPU or one function;
// what a driver does not offer is null, empty or -1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/shared_library.h"
#include "nvidia/nvml_abi.h"

namespace llmprof::nvidia {

// Path of NVML instead of libnvidia-ml.so.1, for tests and unusual installations.
constexpr const char* kEnvNvml = "LLMPROF_NVML";

struct NvmlApi {
#define LLMPROF_MEMBER(member, type, ...) nvml::type member = nullptr;
  LLMPROF_NVML_FUNCTIONS(LLMPROF_MEMBER)
#undef LLMPROF_MEMBER
};

struct NvmlGpu {
  int index = -1;  // NVML's own; join with CUDA's ordinals by uuid
  nvml::Device device = nullptr;
  std::string uuid;     // "GPU-xxxxxxxx-xxxx-..."
  std::string name;     // as the driver has it
  std::string pci_bus;  // "0000:0f:00.0"
  int64_t memory_bytes = -1;
  double power_limit_w = -1;
  double sm_clock_max_mhz = -1;
  int compute_major = -1, compute_minor = -1;
  int mig = -1;             // 1 on, 0 off, -1 unknown
  int virtualization = -1;  // nvml::kVirtualization...
  int gpm = -1;             // 1 GPM works, 0 it does not, -1 the driver has no such function
};

class NvmlLibrary {
 public:
  // Opens and initialises NVML (10 to 100 ms). `path` empty: LLMPROF_NVML, else libnvidia-ml.so.1. The error says
  // whether the library is missing, the driver is not loaded, or the two do not match.
  static Result<NvmlLibrary> open(const std::string& path = {});
  NvmlLibrary(NvmlLibrary&& other) noexcept;
  NvmlLibrary& operator=(NvmlLibrary&& other) noexcept;
  ~NvmlLibrary();  // shuts down; the library stays mapped, as drivers expect

  const NvmlApi& api() const { return api_; }
  std::string driver_version() const;  // "580.159.04", empty if unknown
  int driver_major() const;            // 580, -1 if unknown
  int confidential() const;            // 1 confidential computing is on, 0 off, -1 unknown
  std::vector<NvmlGpu> gpus() const;   // a GPU that cannot be opened (lost) is left out

 private:
  NvmlLibrary() = default;
  NvmlApi api_;
  SharedLibrary library_;
  bool initialised_ = false;
};

}  // namespace llmprof::nvidia
