// The binary interface of cuBLAS (11 to 13): values of enumerations and attribute numbers, cuBLASLt's too, and the
// functions that multiply matrices, one or groups whose sizes differ (12.5 and later). To the hooks every handle,
// descriptor, matrix and scalar is a pointer; enumerations are int. tests/unit/nvidia_hooks_abi_test.cc and
// nvidia_cuda_abi_test.cc hold it against the official headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::cublas {

// cublasStatus_t
enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
};

enum Operation : int { kOpN = 0, kOpT = 1, kOpC = 2 };

// cudaDataType_t
enum DataType : int {
  kR32F = 0,
  kR64F = 1,
  kR16F = 2,
  kR8I = 3,
  kC32F = 4,
  kC64F = 5,
  kC16F = 6,
  kR32I = 10,
  kR16BF = 14,
  kR8FE4M3 = 28,
  kR8FE5M2 = 29,
  kR4FE2M1 = 33,
};

// cublasComputeType_t
enum ComputeType : int {
  kCompute16F = 64,
  kCompute32F = 68,
  kCompute64F = 70,
  kCompute32I = 72,
  kCompute32FFastTf32 = 77,
};

// cublasMath_t
constexpr int kMathTf32 = 3;

// cublasLtMatrixLayoutAttribute_t
enum LayoutAttribute : int {
  kLayoutType = 0,         // uint32
  kLayoutOrder = 1,        // int32
  kLayoutRows = 2,         // uint64
  kLayoutCols = 3,         // uint64
  kLayoutLd = 4,           // int64
  kLayoutBatchCount = 5,   // int32
  kLayoutBatchStride = 6,  // int64, in elements
};

enum Order : int { kOrderCol = 0, kOrderRow = 1 };

// cublasLtMatmulDescAttributes_t
enum MatmulAttribute : int {
  kMatmulComputeType = 0,  // int32
  kMatmulTransA = 3,       // int32
  kMatmulTransB = 4,       // int32
  kMatmulEpilogue = 7,     // uint32
  kMatmulBiasPointer = 8,  // const void*
  kMatmulAScale = 17,      // const float* of the device
  kMatmulBScale = 18,
  kMatmulFastAccum = 25,   // int8
  kMatmulBiasType = 26,    // int32
  kMatmulAScaleMode = 31,  // int32, from 12.8 on
  kMatmulBScaleMode = 32,
};

// cublasLtMatmulMatrixScale_t
enum ScaleMode : int {
  kScaleScalar = 0,
  kScaleVec16Ue4m3 = 1,
  kScaleVec32Ue8m0 = 2,
  kScaleOuterVec = 3,
  kScaleVec128 = 4,
  kScaleBlock128x128 = 5,
};

// cublasLtEpilogue_t: all values that the library knows.
#define LLMPROF_CUBLASLT_EPILOGUES(E) \
  E(1, DEFAULT)                       \
  E(2, RELU)                          \
  E(130, RELU_AUX)                    \
  E(4, BIAS)                          \
  E(6, RELU_BIAS)                     \
  E(134, RELU_AUX_BIAS)               \
  E(136, DRELU)                       \
  E(152, DRELU_BGRAD)                 \
  E(32, GELU)                         \
  E(160, GELU_AUX)                    \
  E(36, GELU_BIAS)                    \
  E(164, GELU_AUX_BIAS)               \
  E(192, DGELU)                       \
  E(208, DGELU_BGRAD)                 \
  E(256, BGRADA)                      \
  E(512, BGRADB)

#define LLMPROF_CUBLASLT_EPILOGUE(value, name) kEpilogue_##name = value,
enum Epilogue : uint32_t { LLMPROF_CUBLASLT_EPILOGUES(LLMPROF_CUBLASLT_EPILOGUE) };
#undef LLMPROF_CUBLASLT_EPILOGUE

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

}  // namespace llmprof::cublas
