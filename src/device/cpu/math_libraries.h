// oneDNN and OpenBLAS, opened at run time: a binary works without them and says what is missing. Both stay open until
// the process ends, because their threads do. LLMPROF_ONEDNN and LLMPROF_OPENBLAS name other files.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace llmprof::device::cpu {

// The functions of libdnnl.so.2 that are used, by the types of its header.
struct OneDnn {
#define LLMPROF_DNNL_FUNCTIONS(X)                                                                               \
  X(dnnl_version)                                                                                               \
  X(dnnl_engine_create) X(dnnl_engine_destroy) X(dnnl_stream_create) X(dnnl_stream_destroy) X(dnnl_stream_wait) \
      X(dnnl_memory_desc_init_by_tag) X(dnnl_memory_desc_init_by_strides) X(dnnl_memory_desc_get_size)          \
          X(dnnl_memory_desc_equal) X(dnnl_memory_create) X(dnnl_memory_destroy) X(dnnl_matmul_desc_init)       \
              X(dnnl_primitive_desc_create) X(dnnl_primitive_desc_destroy) X(dnnl_primitive_desc_query_md)      \
                  X(dnnl_primitive_desc_query) X(dnnl_primitive_create) X(dnnl_primitive_execute)               \
                      X(dnnl_primitive_destroy) X(dnnl_reorder_primitive_desc_create)
#define X(name) decltype(&::name) name = nullptr;
  LLMPROF_DNNL_FUNCTIONS(X)
#undef X
  std::string version, path;
  std::string missing;  // why it cannot be used; empty if it can
};
// Opened once.
const OneDnn& one_dnn();
// "oneDNN could not do X: unimplemented"; nothing if `status` is success.
Status dnnl_ok(dnnl_status_t status, const char* what);

// Declared by us: enough of the CBLAS interface. Row-major, 32-bit sizes.
struct OpenBlas {
  using Gemm32 = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                          int lda, const float* b, int ldb, float beta, float* c, int ldc);
  using Gemm64 = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                          const double* a, int lda, const double* b, int ldb, double beta, double* c, int ldc);
  static constexpr int kRowMajor = 101, kAsIs = 111, kTransposed = 112;
  Gemm32 cblas_sgemm = nullptr;
  Gemm64 cblas_dgemm = nullptr;
  void (*openblas_set_num_threads)(int) = nullptr;
  const char* (*openblas_get_config)() = nullptr;
  int (*openblas_get_parallel)() = nullptr;  // 0 none, 1 its own threads, 2 OpenMP
  std::string version, threads, path;        // "0.3.21", "OpenMP"
  std::string missing;
};
const OpenBlas& open_blas();

}  // namespace llmprof::device::cpu
