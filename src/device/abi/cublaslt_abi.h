// The functions of cuBLASLt (11.8 and later) that multiply matrices, and the attributes that only a caller sets; types,
// transposes and layouts that the recorder knows too are in capture/abi/cublas_abi.h.
// tests/unit/device_cuda_abi_test.cc holds it against the official header where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/abi/cublas_abi.h"

namespace llmprof::cublaslt_abi {

using Handle = struct HandleStruct*;
using MatmulDesc = struct MatmulDescStruct*;
using Layout = struct LayoutStruct*;
using Preference = struct PreferenceStruct*;
using Stream = struct StreamStruct*;

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

constexpr int kCompute32I = 72;  // cublasComputeType_t

// cublasLtMatrixLayoutAttribute_t
constexpr int kLayoutLd = 4;           // int64
constexpr int kLayoutBatchStride = 6;  // int64, in elements
// cublasLtMatmulDescAttributes_t
constexpr int kMatmulBiasPointer = 8;  // const void*
constexpr int kMatmulAScale = 17;      // const float* of the device
constexpr int kMatmulBScale = 18;
constexpr int kMatmulFastAccum = 25;  // int8
constexpr int kMatmulBiasType = 26;   // int32
// cublasLtMatmulPreferenceAttributes_t
constexpr int kPreferenceWorkspaceBytes = 1;  // uint64
// cublasLtEpilogue_t
constexpr uint32_t kEpilogueDefault = 1;
constexpr uint32_t kEpilogueBias = 4;
constexpr uint32_t kEpilogueGelu = 32;
constexpr uint32_t kEpilogueGeluBias = 36;

struct Algo {
  uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// F(member, name, parameters)
#define LLMPROF_CUBLASLT_FUNCTIONS(F)                                                                                 \
  F(create, cublasLtCreate, (Handle * handle))                                                                        \
  F(destroy, cublasLtDestroy, (Handle handle))                                                                        \
  F(desc_create, cublasLtMatmulDescCreate, (MatmulDesc * desc, int compute_type, int scale_type))                     \
  F(desc_destroy, cublasLtMatmulDescDestroy, (MatmulDesc desc))                                                       \
  F(desc_set, cublasLtMatmulDescSetAttribute, (MatmulDesc desc, int attribute, const void* value, size_t bytes))      \
  F(layout_create, cublasLtMatrixLayoutCreate, (Layout * layout, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
  F(layout_destroy, cublasLtMatrixLayoutDestroy, (Layout layout))                                                     \
  F(layout_set, cublasLtMatrixLayoutSetAttribute, (Layout layout, int attribute, const void* value, size_t bytes))    \
  F(preference_create, cublasLtMatmulPreferenceCreate, (Preference * preference))                                     \
  F(preference_destroy, cublasLtMatmulPreferenceDestroy, (Preference preference))                                     \
  F(preference_set, cublasLtMatmulPreferenceSetAttribute,                                                             \
    (Preference preference, int attribute, const void* value, size_t bytes))                                          \
  F(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                                        \
    (Handle handle, MatmulDesc desc, Layout a, Layout b, Layout c, Layout d, Preference preference, int requested,    \
     HeuristicResult* results, int* found))                                                                           \
  F(matmul, cublasLtMatmul,                                                                                           \
    (Handle handle, MatmulDesc desc, const void* alpha, const void* a, Layout a_layout, const void* b,                \
     Layout b_layout, const void* beta, const void* c, Layout c_layout, void* d, Layout d_layout, const Algo* algo,   \
     void* workspace, size_t workspace_bytes, Stream stream))

struct Api {
#define LLMPROF_CUBLASLT_MEMBER(member, name, parameters) Status(*member) parameters = nullptr;
  LLMPROF_CUBLASLT_FUNCTIONS(LLMPROF_CUBLASLT_MEMBER)
#undef LLMPROF_CUBLASLT_MEMBER
  size_t (*version)() = nullptr;  // 130100 for 13.1.0
};

}  // namespace llmprof::cublaslt_abi
