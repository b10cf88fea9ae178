// oneDNN and OpenBLAS, opened at run time: a binary works without them and says what is missing. Both stay open until
// the process ends, because their threads do. LLMPROF_ONEDNN and LLMPROF_OPENBLAS name other files.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/result.h"

namespace llmprof::device::cpu {

// The functions of libdnnl.so.2 that are used, by the types of its header.
struct OneDnn {
  decltype(&::dnnl_version) dnnl_version = nullptr;
  decltype(&::dnnl_engine_create) dnnl_engine_create = nullptr;
  decltype(&::dnnl_engine_destroy) dnnl_engine_destroy = nullptr;
  decltype(&::dnnl_stream_create) dnnl_stream_create = nullptr;
  decltype(&::dnnl_stream_destroy) dnnl_stream_destroy = nullptr;
  decltype(&::dnnl_stream_wait) dnnl_stream_wait = nullptr;
  decltype(&::dnnl_memory_desc_init_by_tag) dnnl_memory_desc_init_by_tag = nullptr;
  decltype(&::dnnl_memory_desc_init_by_strides) dnnl_memory_desc_init_by_strides = nullptr;
  decltype(&::dnnl_memory_desc_get_size) dnnl_memory_desc_get_size = nullptr;
  decltype(&::dnnl_memory_desc_equal) dnnl_memory_desc_equal = nullptr;
  decltype(&::dnnl_memory_create) dnnl_memory_create = nullptr;
  decltype(&::dnnl_memory_destroy) dnnl_memory_destroy = nullptr;
  decltype(&::dnnl_matmul_desc_init) dnnl_matmul_desc_init = nullptr;
  decltype(&::dnnl_primitive_desc_create) dnnl_primitive_desc_create = nullptr;
  decltype(&::dnnl_primitive_desc_destroy) dnnl_primitive_desc_destroy = nullptr;
  decltype(&::dnnl_primitive_desc_query_md) dnnl_primitive_desc_query_md = nullptr;
  decltype(&::dnnl_primitive_desc_query) dnnl_primitive_desc_query = nullptr;
  decltype(&::dnnl_primitive_create) dnnl_primitive_create = nullptr;
  decltype(&::dnnl_primitive_execute) dnnl_primitive_execute = nullptr;
  decltype(&::dnnl_primitive_destroy) dnnl_primitive_destroy = nullptr;
  decltype(&::dnnl_reorder_primitive_desc_create) dnnl_reorder_primitive_desc_create = nullptr;
  decltype(&::dnnl_primitive_attr_create) dnnl_primitive_attr_create = nullptr;
  decltype(&::dnnl_primitive_attr_destroy) dnnl_primitive_attr_destroy = nullptr;
  decltype(&::dnnl_primitive_attr_set_post_ops) dnnl_primitive_attr_set_post_ops = nullptr;
  decltype(&::dnnl_post_ops_create) dnnl_post_ops_create = nullptr;
  decltype(&::dnnl_post_ops_destroy) dnnl_post_ops_destroy = nullptr;
  decltype(&::dnnl_post_ops_append_eltwise) dnnl_post_ops_append_eltwise = nullptr;
  decltype(&::dnnl_post_ops_append_binary) dnnl_post_ops_append_binary = nullptr;
  std::string version, path;
  std::string missing;  // why it cannot be used; empty if it can
};
// Opened once.
const OneDnn& one_dnn();
// "oneDNN could not do X: unimplemented"; nothing if `status` is success.
Status dnnl_ok(dnnl_status_t status, const char* what);
// bf16, int8 and int32 as they are; fp32 for every other type.
dnnl_data_type_t dnnl_type(DType dtype);

// A handle of oneDNN, which are plain pointers, with the function that frees it.
template <class Handle>
class DnnlHandle {
 public:
  using Free = dnnl_status_t (*)(Handle);
  explicit DnnlHandle(Free free) : free_(free) {}
  DnnlHandle(DnnlHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), free_(other.free_) {}
  DnnlHandle& operator=(DnnlHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(free_, other.free_);
    return *this;
  }
  DnnlHandle(const DnnlHandle&) = delete;
  DnnlHandle& operator=(const DnnlHandle&) = delete;
  ~DnnlHandle() {
    if (handle_ != nullptr) free_(handle_);
  }
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
  Free free_;
};

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
