// The binary interface of cuBLAS and cuBLASLt (11 to 13), as far as the hooks need it: values of enumerations and
// attribute numbers. Every handle, descriptor, matrix and scalar is a pointer here; enumerations are int.
// tests/unit/capture_abi_hooks_test.cc holds it against the official headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::cublas {

enum Status : int { kSuccess = 0, kNotInitialized = 1 };

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
  kCompute32FFastTf32 = 77,
};

// cublasMath_t
constexpr int kMathTf32 = 3;

// cublasLtMatrixLayoutAttribute_t
enum LayoutAttribute : int {
  kLayoutType = 0,        // uint32
  kLayoutOrder = 1,       // int32
  kLayoutRows = 2,        // uint64
  kLayoutCols = 3,        // uint64
  kLayoutBatchCount = 5,  // int32
};

enum Order : int { kOrderCol = 0, kOrderRow = 1 };

// cublasLtMatmulDescAttributes_t
enum MatmulAttribute : int {
  kMatmulComputeType = 0,  // int32
  kMatmulTransA = 3,       // int32
  kMatmulTransB = 4,       // int32
  kMatmulEpilogue = 7,     // uint32
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

}  // namespace llmprof::cublas
