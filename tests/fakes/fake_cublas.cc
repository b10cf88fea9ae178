// libcublas.so.13 as far as the hook tests call it. cublasGemmEx works through a private entry of cuBLASLt, as the real
// one does, and that entry through the public one, which the real one does not: a nested call must not count.
#include <stdint.h>

#include "fake_log.h"

extern "C" int cublasLtTSTMatmul(int m);

namespace {

// A product of 13 rows is refused, so that tests see a status pass through.
int status_of(int64_t m) { return m == 13 ? 7 : 0; }

unsigned pointer(const void* p) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(p)); }

}  // namespace

FAKE_EXPORT int cublasGetMathMode(const void* handle, int* mode) {
  *mode = pointer(handle) == 0x3F ? 3 : 0;  // the handle of a program that allows TF32
  return 0;
}

FAKE_EXPORT int cublasSgemm_v2(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                               int lda, const void* b, int ldb, const void* beta, void* c, int ldc) {
  fake_log("cublasSgemm_v2 %x %d %d %d %d %d %x %x %d %x %d %x %x %d", pointer(handle), op_a, op_b, m, n, k,
           pointer(alpha), pointer(a), lda, pointer(b), ldb, pointer(beta), pointer(c), ldc);
  return status_of(m);
}

FAKE_EXPORT int cublasSgemm_v2_64(void* handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void* alpha,
                                  const void* a, int64_t lda, const void* b, int64_t ldb, const void* beta, void* c,
                                  int64_t ldc) {
  fake_log("cublasSgemm_v2_64 %x %d %d %lld %lld %lld %x %x %lld %x %lld %x %x %lld", pointer(handle), op_a, op_b,
           static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k), pointer(alpha), pointer(a),
           static_cast<long long>(lda), pointer(b), static_cast<long long>(ldb), pointer(beta), pointer(c),
           static_cast<long long>(ldc));
  return status_of(m);
}

FAKE_EXPORT int cublasGemmEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                             int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c,
                             int type_c, int ldc, int compute, int algorithm) {
  int status = cublasLtTSTMatmul(m);
  fake_log("cublasGemmEx %x %d %d %d %d %d %x %x %d %d %x %d %d %x %x %d %d %d %d", pointer(handle), op_a, op_b, m, n,
           k, pointer(alpha), pointer(a), type_a, lda, pointer(b), type_b, ldb, pointer(beta), pointer(c), type_c, ldc,
           compute, algorithm);
  return status == 0 ? status_of(m) : status;
}

FAKE_EXPORT int cublasGemmStridedBatchedEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                                           const void* a, int type_a, int lda, long long stride_a, const void* b,
                                           int type_b, int ldb, long long stride_b, const void* beta, void* c,
                                           int type_c, int ldc, long long stride_c, int batch, int compute,
                                           int algorithm) {
  fake_log("cublasGemmStridedBatchedEx %x %d %d %d %d %d %x %x %d %d %lld %x %d %d %lld %x %x %d %d %lld %d %d %d",
           pointer(handle), op_a, op_b, m, n, k, pointer(alpha), pointer(a), type_a, lda, stride_a, pointer(b), type_b,
           ldb, stride_b, pointer(beta), pointer(c), type_c, ldc, stride_c, batch, compute, algorithm);
  return status_of(m);
}

FAKE_EXPORT int cublasGemmGroupedBatchedEx(void* handle, const int* op_a, const int*, const int* m, const int*,
                                           const int*, const void*, const void* const*, int, const int*,
                                           const void* const*, int, const int*, const void*, void* const*, int,
                                           const int*, int groups, const int* group_size, int compute) {
  fake_log("cublasGemmGroupedBatchedEx %x %d %d %d %d %d", pointer(handle), op_a[0], m[0], groups, group_size[0],
           compute);
  return 0;
}

FAKE_EXPORT int cublasSgemv_v2(void* handle, int op, int m, int n, const void* alpha, const void* a, int lda,
                               const void* x, int inc_x, const void* beta, void* y, int inc_y) {
  fake_log("cublasSgemv_v2 %x %d %d %d %x %x %d %x %d %x %x %d", pointer(handle), op, m, n, pointer(alpha), pointer(a),
           lda, pointer(x), inc_x, pointer(beta), pointer(y), inc_y);
  return 0;
}

FAKE_EXPORT int cublasTSTgemvStridedBatched(void* handle, int op, int m, int n, const void* alpha, const void* a,
                                            int lda, long long stride_a, const void* x, int inc_x, long long stride_x,
                                            const void* beta, void* y, int inc_y, long long stride_y, int batch) {
  fake_log("cublasTSTgemvStridedBatched %x %d %d %d %x %x %d %lld %x %d %lld %x %x %d %lld %d", pointer(handle), op, m,
           n, pointer(alpha), pointer(a), lda, stride_a, pointer(x), inc_x, stride_x, pointer(beta), pointer(y), inc_y,
           stride_y, batch);
  return 0;
}
