// The binary interface of NVRTC (11.2 and later), as far as it is used. tests/unit/nvidia_cuda_abi_test.cc holds it
// against the official header where that is installed.
#pragma once

#include <cstddef>

namespace llmprof::nvrtc_abi {

using Program = struct ProgramHandle*;

// nvrtcResult
enum Result : int {
  kSuccess = 0,
  kOutOfMemory = 1,
  kInvalidOption = 5,
  kCompilation = 6,
  kBuiltinFailure = 7,
};

// F(member, name, parameters)
#define LLMPROF_NVRTC_FUNCTIONS(F)                                                                  \
  F(version, nvrtcVersion, (int* major, int* minor))                                                \
  F(arch_count, nvrtcGetNumSupportedArchs, (int* count))                                            \
  F(archs, nvrtcGetSupportedArchs, (int* archs))                                                    \
  F(create, nvrtcCreateProgram,                                                                     \
    (Program * program, const char* source, const char* name, int headers, const char* const* text, \
     const char* const* include_names))                                                             \
  F(destroy, nvrtcDestroyProgram, (Program * program))                                              \
  F(compile, nvrtcCompileProgram, (Program program, int count, const char* const* options))         \
  F(cubin_size, nvrtcGetCUBINSize, (Program program, size_t * bytes))                               \
  F(cubin, nvrtcGetCUBIN, (Program program, char* bytes))                                           \
  F(ptx_size, nvrtcGetPTXSize, (Program program, size_t * bytes))                                   \
  F(ptx, nvrtcGetPTX, (Program program, char* bytes))                                               \
  F(log_size, nvrtcGetProgramLogSize, (Program program, size_t * bytes))                            \
  F(log, nvrtcGetProgramLog, (Program program, char* bytes))

struct Api {
#define LLMPROF_NVRTC_MEMBER(member, name, parameters) Result(*member) parameters = nullptr;
  LLMPROF_NVRTC_FUNCTIONS(LLMPROF_NVRTC_MEMBER)
#undef LLMPROF_NVRTC_MEMBER
};

}  // namespace llmprof::nvrtc_abi
