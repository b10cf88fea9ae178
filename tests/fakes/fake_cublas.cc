// libcublas.so.13 as far as the hook tests call it. cublasGemmEx works through a private entry of cuBLASLt, as the real
// one does, and that entry through the public one, which the real one does not: a nested call must not count.
#include <stdint.h>

#include "fake_log.h"

extern "C" int cublasLtTSTMatmul(int m);

namespace {

// A product of 13 rows is refused, so that tests see a status pass through.
int status_of(int64_t m) { return m == 13 ? 7 : 0; }

unsigned pointer(const void* p) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(p)); }

// The logger as the real one is: every line of a record is one callback, the last three are one; setting a callback
// switches it on; and only cublasLoggerConfigure switches it off, while a record that another thread is writing still
// comes: here always the next product's.
using LogCallback = void (*)(const char* message);
LogCallback log_callback = nullptr;
bool log_on = false, log_ends = false;

__attribute__((format(printf, 1, 2))) void write_log(const char* format, ...) {
  if (!log_on || log_callback == nullptr) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  log_callback(text);
}

void log_call(const char* declaration) {
  write_log("I! cuBLAS (v13.1.0) function cublasStatus_t %s called:\n", declaration);
  write_log("i!  handle: type=cublasHandle_t; val=POINTER (IN HEX:0x0x46edc8d0)\n");
}
void log_operation(const char* name, int value) {
  write_log("i!  %s: type=cublasOperation_t; val=CUBLAS_OP_%c(%d)\n", name, "NTC"[value], value);
}
void log_number(const char* name, long long value) { write_log("i!  %s: type=int; val=%lld\n", name, value); }
void log_type(const char* name, int value) {
  write_log("i!  %s: type=cudaDataType_t; val=CUDA_R_16BF(%d)\n", name, value);
}
void log_end(const void* handle) {
  write_log(
      "i! Time: 2026-11-20T23:33:00 elapsed from start 0.166667 minutes or 10.000000 seconds\n"
      "i!Process=1; Thread=140003274924160; GPU=0; Handle=POINTER (IN HEX:0x0x%x); StreamId=POINTER (IN HEX:0x(nil)) "
      "(defaultStream); MathMode=%s\ni! COMPILED WITH: GNU GCC/G++\n",
      pointer(handle), pointer(handle) == 0x3F ? "CUBLAS_TF32_TENSOR_OP_MATH" : "CUBLAS_DEFAULT_MATH");
  if (log_ends) log_on = log_ends = false;
}

}  // namespace

FAKE_EXPORT int cublasSetLoggerCallback(LogCallback callback) {
  log_callback = callback;
  log_on = true;
  log_ends = false;
  return 0;
}
FAKE_EXPORT int cublasGetLoggerCallback(LogCallback* callback) {
  *callback = log_callback;
  return 0;
}
FAKE_EXPORT int cublasLoggerConfigure(int on, int, int, const char*) {
  log_on = log_on || on != 0;
  log_ends = on == 0;
  return 0;
}

FAKE_EXPORT int cublasGetMathMode(const void* handle, int* mode) {
  log_call("cublasGetMathMode(cublasHandle_t, cublasMath_t*)");
  write_log("i!  mode: type=cublasMath_t; val=POINTER (IN HEX:0x0x7ffd723e7040)\n");
  log_end(handle);
  *mode = pointer(handle) == 0x3F ? 3 : 0;  // the handle of a program that allows TF32
  return 0;
}

FAKE_EXPORT int cublasSgemm_v2(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                               int lda, const void* b, int ldb, const void* beta, void* c, int ldc) {
  log_call("cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int)");
  log_operation("transa", op_a);
  log_operation("transb", op_b);
  log_number("m", m);
  log_number("n", n);
  log_number("k", k);
  log_end(handle);
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
  log_call("cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*)");
  log_operation("transa", op_a);
  log_operation("transb", op_b);
  log_number("m", m);
  log_number("n", n);
  log_number("k", k);
  write_log("i!  alpha: type=void; val=POINTER (IN HEX:0x0x7ffd723e7020)\n");
  log_type("Atype", type_a);
  log_number("lda", lda);
  log_type("Btype", type_b);
  log_type("Ctype", type_c);
  write_log("i!  computeType: type=cublasComputeType_t; val=CUBLAS_COMPUTE_32F(%d)\n", compute);
  log_end(handle);
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
