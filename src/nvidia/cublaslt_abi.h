// The functions of cuBLASLt (11.8 and later) that multiply matrices; types, transposes, layouts and attributes are in
// nvidia/cublas_abi.h. tests/unit/nvidia_cuda_abi_test.cc holds it against the official header where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvidia/cublas_abi.h"

namespace llmprof::cublaslt {

using Handle = struct HandleStruct*;
using MatmulDesc = struct MatmulDescStruct*;
using Layout = struct LayoutStruct*;
using Preference = struct PreferenceStruct*;
using Stream = struct StreamStruct*;
using Status = cublas::Status;

constexpr int kPreferenceWorkspaceBytes = 1;  // cublasLtMatmulPreferenceAttributes_t, uint64

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

}  // namespace llmprof::cublaslt
