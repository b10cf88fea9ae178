// Calls what the injection library hooks, as programs do; the capture tests run it watched and unwatched and compare.
// It prints what a program can see of the calls: results and errno.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include <string>

#include "cudnn_calls.h"
#include "fake_cudnn.h"
#include "nvtx_calls.h"

extern "C" {
int cublasSgemm_v2(void*, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*,
                   int);
int cublasSgemm_v2_64(void*, int, int, int64_t, int64_t, int64_t, const void*, const void*, int64_t, const void*,
                      int64_t, const void*, void*, int64_t);
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                 void*, int, int, int, int);
int cublasGemmStridedBatchedEx(void*, int, int, int, int, int, const void*, const void*, int, int, long long,
                               const void*, int, int, long long, const void*, void*, int, int, long long, int, int,
                               int);
int cublasGemmGroupedBatchedEx(void*, const int*, const int*, const int*, const int*, const int*, const void*,
                               const void* const*, int, const int*, const void* const*, int, const int*, const void*,
                               void* const*, int, const int*, int, const int*, int);
int cublasSgemv_v2(void*, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);
int cublasTSTgemvStridedBatched(void*, int, int, int, const void*, const void*, int, long long, const void*, int,
                                long long, const void*, void*, int, long long, int);
int cublasLtMatrixLayoutCreate(void**, int, uint64_t, uint64_t, int64_t);
int cublasLtMatmulDescCreate(void**, int, int);
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t);
int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t);
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const void*, void*, size_t, void*);
int cudnnConvolutionForward(void*, const void*, const void*, const void*, const void*, const void*, const void*, int,
                            void*, size_t, const void*, const void*, void*);
int cudaGraphLaunch(void*, void*);
}

namespace {

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

void print_call(const char* what, int status) {
  int seen = errno;
  printf("%s %d errno %d\n", what, status, seen);
  errno = 0;
}

void set_layout(void* layout, int attribute, int32_t value) {
  cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value));
}
void set_compute(void* compute, int attribute, int32_t value) {
  cublasLtMatmulDescSetAttribute(compute, attribute, &value, sizeof(value));
}

void call_lt() {
  // fp8: D[4096 x 16] = A^T[4096 x 1024] B[1024 x 16], bias and GELU behind it, scales by 128.
  void *a = nullptr, *b = nullptr, *d = nullptr, *compute = nullptr;
  cublasLtMatrixLayoutCreate(&a, 28, 1024, 4096, 1024);
  cublasLtMatrixLayoutCreate(&b, 28, 1024, 16, 1024);
  cublasLtMatrixLayoutCreate(&d, 14, 4096, 16, 4096);
  cublasLtMatmulDescCreate(&compute, 68, 0);
  set_compute(compute, 3, 1);
  set_compute(compute, 7, 36);
  set_compute(compute, 31, 4);
  set_compute(compute, 32, 4);
  print_call("lt", cublasLtMatmul(at(1), compute, at(2), at(3), a, at(4), b, at(5), at(6), d, at(7), d, nullptr, at(8),
                                  4096, at(9)));
  // The same by rows, in three batches, bf16.
  for (void* layout : {a, b, d}) {
    set_layout(layout, 0, 14);
    set_layout(layout, 1, 1);
    set_layout(layout, 5, 3);
  }
  set_compute(compute, 7, 1);
  print_call("lt rows", cublasLtMatmul(at(1), compute, at(2), at(3), a, at(4), b, at(5), at(6), d, at(7), d, nullptr,
                                       at(8), 4096, at(9)));
}

int run_gemm() {
  errno = 0;
  print_call("sgemm", cublasSgemm_v2(at(0x10), 1, 0, 100, 20, 30, at(1), at(2), 30, at(3), 31, at(4), at(5), 101));
  print_call("sgemm tf32", cublasSgemm_v2(at(0x3F), 0, 0, 100, 20, 30, at(1), at(2), 30, at(3), 31, at(4), at(5), 101));
  print_call("sgemm 64", cublasSgemm_v2_64(at(0x10), 0, 1, 5000000000, 2, 3, at(1), at(2), 30, at(3), 31, at(4), at(5),
                                           6000000000));
  print_call("refused", cublasSgemm_v2(at(0x10), 0, 0, 13, 20, 30, at(1), at(2), 30, at(3), 31, at(4), at(5), 101));
  for (int i = 0; i < 3; ++i) {
    print_call("gemm ex", cublasGemmEx(at(0x10), 1, 0, 4096, 7, 2048, at(1), at(2), 14, 2048, at(3), 14, 2048, at(4),
                                       at(5), 14, 4096, 68, -1));
  }
  print_call("strided", cublasGemmStridedBatchedEx(at(0x10), 0, 2, 64, 65, 66, at(1), at(2), 2, 64, 4096, at(3), 2, 66,
                                                   4097, at(4), at(5), 0, 64, 4098, 12, 68, 99));
  int op[] = {1, 1, 1}, none[] = {0, 0, 0}, m[] = {512, 512, 512}, n[] = {3, 5, 8}, k[] = {256, 256, 256};
  int size[] = {1, 2, 1};
  print_call("grouped", cublasGemmGroupedBatchedEx(at(0x10), op, none, m, n, k, nullptr, nullptr, 14, k, nullptr, 14, k,
                                                   nullptr, nullptr, 14, m, 3, size, 68));
  print_call("gemv", cublasSgemv_v2(at(0x10), 1, 300, 200, at(1), at(2), 300, at(3), 1, at(4), at(5), 2));
  print_call("gemv batch", cublasTSTgemvStridedBatched(at(0x10), 0, 300, 200, at(1), at(2), 300, 60000, at(3), 1, 200,
                                                       at(4), at(5), 1, 300, 9));
  call_lt();
  FakeTensor x{2, 4, {8, 64, 56, 56}}, w{2, 4, {128, 32, 3, 3}}, y{2, 4, {8, 128, 28, 28}};
  FakeConvolution convolution{1, 2, 2};
  print_call("convolution",
             cudnnConvolutionForward(at(1), at(2), &x, at(3), &w, at(4), &convolution, 1, at(5), 77, at(6), &y, at(7)));
  for (int i = 0; i < 4; ++i) print_call("graph", cudaGraphLaunch(at(i < 3 ? 0xABC : 0xDEF), at(1)));
  print_call("no graph", cudaGraphLaunch(nullptr, nullptr));
  return 0;
}

void call_cublas() {
  cublasGemmEx(at(0x10), 0, 0, 1, 2, 3, at(1), at(2), 14, 4, at(3), 14, 5, at(4), at(5), 14, 6, 68, -1);
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "gemm") return run_gemm();
  if (mode == "nvtx") return client::run_nvtx();
  if (mode == "threads") return client::run_threads();
  if (mode == "fork") return client::run_fork(call_cublas);
  if (mode == "cudnn") return client::run_cudnn();
  if (mode == "cudnn-threads") return client::run_cudnn_threads();
  fprintf(stderr, "usage: hook_client gemm|nvtx|threads|fork|cudnn|cudnn-threads\n");
  return 2;
}
