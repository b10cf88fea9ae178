// Our declarations of the CUDA driver, NVRTC and cuBLASLt against the official headers, where they are installed: this
// file then does not compile if they differ. Functions are compared by the number of their parameters and the kind and
// size of each.
#include <gtest/gtest.h>

#include <tuple>
#include <type_traits>

#include "nvidia/cublas_abi.h"
#include "nvidia/cublaslt_abi.h"
#include "nvidia/cuda_abi.h"
#include "nvidia/nvrtc_abi.h"

#if __has_include(<cuda.h>)
#define LLMPROF_HAS_CUDA 1
#include <cuda.h>
#endif
#if __has_include(<nvrtc.h>)
#define LLMPROF_HAS_NVRTC 1
#include <nvrtc.h>
#endif
#if __has_include(<cublas_v2.h>)
#define LLMPROF_HAS_CUBLAS 1
#include <cublas_v2.h>
#endif
#if __has_include(<cublasLt.h>)
#define LLMPROF_HAS_CUBLASLT 1
#include <cublasLt.h>
#endif

namespace llmprof {
namespace {

#define LLMPROF_SAME(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))

template <class Ours, class Theirs>
constexpr bool same_kind() {
  return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
         std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
}
template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R (*)(A...), S (*)(B...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return same_kind<R, S>() && (same_kind<A, B>() && ...);
    }
  }
  static constexpr bool value = compare();
};
static_assert(!SameFunction<int (*)(int), int (*)(long)>::value && !SameFunction<int (*)(), int (*)(int)>::value);

#ifdef LLMPROF_HAS_CUDA
#define LLMPROF_COMPARE(member, name, suffix, parameters) \
  static_assert(SameFunction<decltype(cuda_abi::Api::member), decltype(&name)>::value, #name);
LLMPROF_CUDA_FUNCTIONS(LLMPROF_COMPARE)
#if CUDA_VERSION >= 12000
LLMPROF_CUDA_OPTIONAL_FUNCTIONS(LLMPROF_COMPARE)
#endif
#undef LLMPROF_COMPARE
LLMPROF_SAME(sizeof(cuda_abi::Uuid), sizeof(CUuuid));
LLMPROF_SAME(cuda_abi::kSuccess, CUDA_SUCCESS);
LLMPROF_SAME(cuda_abi::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
LLMPROF_SAME(cuda_abi::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
LLMPROF_SAME(cuda_abi::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
LLMPROF_SAME(cuda_abi::kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
LLMPROF_SAME(cuda_abi::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
LLMPROF_SAME(cuda_abi::kNoDevice, CUDA_ERROR_NO_DEVICE);
LLMPROF_SAME(cuda_abi::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
LLMPROF_SAME(cuda_abi::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
LLMPROF_SAME(cuda_abi::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
LLMPROF_SAME(cuda_abi::kInvalidPtx, CUDA_ERROR_INVALID_PTX);
LLMPROF_SAME(cuda_abi::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
LLMPROF_SAME(cuda_abi::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
LLMPROF_SAME(cuda_abi::kNotReady, CUDA_ERROR_NOT_READY);
LLMPROF_SAME(cuda_abi::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
LLMPROF_SAME(cuda_abi::kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
LLMPROF_SAME(cuda_abi::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
LLMPROF_SAME(cuda_abi::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
LLMPROF_SAME(cuda_abi::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
LLMPROF_SAME(cuda_abi::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
LLMPROF_SAME(cuda_abi::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
LLMPROF_SAME(cuda_abi::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
LLMPROF_SAME(cuda_abi::kInvalidPc, CUDA_ERROR_INVALID_PC);
LLMPROF_SAME(cuda_abi::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
LLMPROF_SAME(cuda_abi::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
LLMPROF_SAME(cuda_abi::kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
LLMPROF_SAME(cuda_abi::kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
LLMPROF_SAME(cuda_abi::kSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY);
LLMPROF_SAME(cuda_abi::kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
LLMPROF_SAME(cuda_abi::kUnknown, CUDA_ERROR_UNKNOWN);
LLMPROF_SAME(cuda_abi::kClockRateKhz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
LLMPROF_SAME(cuda_abi::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
LLMPROF_SAME(cuda_abi::kComputeMode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
LLMPROF_SAME(cuda_abi::kL2CacheBytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
LLMPROF_SAME(cuda_abi::kThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
LLMPROF_SAME(cuda_abi::kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
LLMPROF_SAME(cuda_abi::kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
LLMPROF_SAME(cuda_abi::kSharedBytesPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
LLMPROF_SAME(cuda_abi::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
LLMPROF_SAME(cuda_abi::kWaitValueGeq, CU_STREAM_WAIT_VALUE_GEQ);
LLMPROF_SAME(cuda_abi::kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
LLMPROF_SAME(cuda_abi::kHostAllocDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
LLMPROF_SAME(cuda_abi::kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
LLMPROF_SAME(cuda_abi::kFunctionMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
// The suffix that the header gives a function is the one we look up.
#define LLMPROF_EXPANDED_(name) #name
#define LLMPROF_EXPANDED(name) LLMPROF_EXPANDED_(name)
TEST(CudaAbi, FunctionsHaveTheSuffixesOfTheHeader){
#define LLMPROF_COMPARE(member, name, suffix, parameters)                                        \
  {                                                                                              \
    const std::string theirs = LLMPROF_EXPANDED(name), ours = std::string(#name) + (suffix);     \
    if (std::string(#name) != "cuEventElapsedTime" && std::string(#name) != "cuDeviceGetUuid") { \
      EXPECT_EQ(ours, theirs);                                                                   \
    }                                                                                            \
  }
    LLMPROF_CUDA_FUNCTIONS(LLMPROF_COMPARE) LLMPROF_CUDA_OPTIONAL_FUNCTIONS(LLMPROF_COMPARE)
#undef LLMPROF_COMPARE
}
#endif

#ifdef LLMPROF_HAS_NVRTC
#define LLMPROF_COMPARE(member, name, parameters) \
  static_assert(SameFunction<decltype(nvrtc_abi::Api::member), decltype(&name)>::value, #name);
LLMPROF_NVRTC_FUNCTIONS(LLMPROF_COMPARE)
#undef LLMPROF_COMPARE
    LLMPROF_SAME(nvrtc_abi::kSuccess, NVRTC_SUCCESS);
LLMPROF_SAME(nvrtc_abi::kOutOfMemory, NVRTC_ERROR_OUT_OF_MEMORY);
LLMPROF_SAME(nvrtc_abi::kInvalidOption, NVRTC_ERROR_INVALID_OPTION);
LLMPROF_SAME(nvrtc_abi::kCompilation, NVRTC_ERROR_COMPILATION);
LLMPROF_SAME(nvrtc_abi::kBuiltinFailure, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);
#endif

#ifdef LLMPROF_HAS_CUBLAS
#define LLMPROF_COMPARE(member, name, parameters) \
  static_assert(SameFunction<decltype(cublas::Api::member), decltype(&name)>::value, #name);
LLMPROF_CUBLAS_FUNCTIONS(LLMPROF_COMPARE)
#if CUBLAS_VERSION >= 120500
LLMPROF_CUBLAS_GROUPED(LLMPROF_COMPARE)
#endif
#undef LLMPROF_COMPARE
#endif

#ifdef LLMPROF_HAS_CUBLASLT
#define LLMPROF_COMPARE(member, name, parameters) \
  static_assert(SameFunction<decltype(cublaslt::Api::member), decltype(&name)>::value, #name);
LLMPROF_CUBLASLT_FUNCTIONS(LLMPROF_COMPARE)
#undef LLMPROF_COMPARE
static_assert(SameFunction<decltype(cublaslt::Api::version), decltype(&cublasLtGetVersion)>::value);
LLMPROF_SAME(sizeof(cublaslt::HeuristicResult), sizeof(cublasLtMatmulHeuristicResult_t));
LLMPROF_SAME(sizeof(cublaslt::Algo), sizeof(cublasLtMatmulAlgo_t));
LLMPROF_SAME(offsetof(cublaslt::HeuristicResult, workspace_bytes),
             offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
LLMPROF_SAME(offsetof(cublaslt::HeuristicResult, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
LLMPROF_SAME(offsetof(cublaslt::HeuristicResult, waves), offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
LLMPROF_SAME(cublas::kSuccess, CUBLAS_STATUS_SUCCESS);
LLMPROF_SAME(cublas::kNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
LLMPROF_SAME(cublas::kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
LLMPROF_SAME(cublas::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
LLMPROF_SAME(cublas::kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
LLMPROF_SAME(cublas::kExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
LLMPROF_SAME(cublas::kInternalError, CUBLAS_STATUS_INTERNAL_ERROR);
LLMPROF_SAME(cublas::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
LLMPROF_SAME(cublas::kCompute32I, CUBLAS_COMPUTE_32I);
LLMPROF_SAME(cublas::kLayoutLd, CUBLASLT_MATRIX_LAYOUT_LD);
LLMPROF_SAME(cublas::kLayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
LLMPROF_SAME(cublas::kMatmulBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
LLMPROF_SAME(cublas::kMatmulAScale, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
LLMPROF_SAME(cublas::kMatmulBScale, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
LLMPROF_SAME(cublas::kMatmulFastAccum, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
LLMPROF_SAME(cublas::kMatmulBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
LLMPROF_SAME(cublaslt::kPreferenceWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
LLMPROF_SAME(cublas::kEpilogue_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT);
LLMPROF_SAME(cublas::kEpilogue_BIAS, CUBLASLT_EPILOGUE_BIAS);
LLMPROF_SAME(cublas::kEpilogue_GELU, CUBLASLT_EPILOGUE_GELU);
LLMPROF_SAME(cublas::kEpilogue_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS);
#endif

TEST(CudaAbi, MatchesTheHeadersOrTheyAreAbsent) {
#ifndef LLMPROF_HAS_CUDA
  GTEST_SKIP() << "no cuda.h here: nothing to compare with";
#endif
}

}  // namespace
}  // namespace llmprof
