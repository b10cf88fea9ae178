// The functions of cuBLAS that multiply matrices, one or groups whose sizes differ (12.5 and later), and what starts
// it; types and transposes are in capture/abi/cublas_abi.h. tests/unit/device_cuda_abi_test.cc holds it against the
// official header where that is installed.
#pragma once

#include <cstddef>

namespace llmprof::cublas_abi {

using Handle = struct HandleStruct*;
using Stream = struct StreamStruct*;

constexpr int kGemmDefaultTensorOp = 99;  // cublasGemmAlgo_t: the library chooses

// F(member, name, parameters)
#define LLMPROF_CUBLAS_FUNCTIONS(F)                                 \
  F(create, cublasCreate_v2, (Handle * handle))                     \
  F(destroy, cublasDestroy_v2, (Handle handle))                     \
  F(version, cublasGetVersion_v2, (Handle handle, int* version))    \
  F(set_stream, cublasSetStream_v2, (Handle handle, Stream stream)) \
  F(set_workspace, cublasSetWorkspace_v2, (Handle handle, void* workspace, size_t bytes))
// Factors are the host's. The official header has a second function of this name, for C++ alone.
#define LLMPROF_CUBLAS_GEMM(F)                                                                                \
  F(gemm, cublasGemmEx,                                                                                       \
    (Handle handle, int a_transpose, int b_transpose, int m, int n, int k, const void* alpha, const void* a,  \
     int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, \
     int compute_type, int algorithm))
// Arrays of sizes and factors are the host's, one entry a group; arrays of pointers are the device's, one a matrix.
#define LLMPROF_CUBLAS_GROUPED(F)                                                                                     \
  F(grouped, cublasGemmGroupedBatchedEx,                                                                              \
    (Handle handle, const int* a_transposes, const int* b_transposes, const int* m, const int* n, const int* k,       \
     const void* alpha, const void* const* a, int a_type, const int* lda, const void* const* b, int b_type,           \
     const int* ldb, const void* beta, void* const* c, int c_type, const int* ldc, int groups, const int* group_size, \
     int compute_type))

struct Api {
#define LLMPROF_CUBLAS_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  LLMPROF_CUBLAS_FUNCTIONS(LLMPROF_CUBLAS_MEMBER)
  LLMPROF_CUBLAS_GEMM(LLMPROF_CUBLAS_MEMBER)
  LLMPROF_CUBLAS_GROUPED(LLMPROF_CUBLAS_MEMBER)  // null where this cuBLAS has none
#undef LLMPROF_CUBLAS_MEMBER
};

}  // namespace llmprof::cublas_abi
