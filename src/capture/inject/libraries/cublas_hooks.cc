// Hooks of cuBLAS: every matrix product and matrix-vector product, their 64-bit twins included. One line a function;
// the signatures follow from its family.
#include "capture/inject/libraries/library_calls.h"
#include "nvidia/cublas_abi.h"

namespace llmprof::inject {

namespace {

constexpr const char* kCublas = "libcublas.so";

RealSymbol get_math_mode{"cublasGetMathMode", kCublas};

// What the handle makes of 32-bit products: TF32 where the program allowed it.
int32_t compute_type_of(const void* handle, int32_t type, int32_t compute_type) {
  if (type != cublas::kR32F || compute_type != cublas::kCompute32F) return compute_type;
  auto* get = get_math_mode.get<int(const void*, int*)>();
  int mode = 0;
  if (get == nullptr || get(handle, &mode) != cublas::kSuccess) return compute_type;
  return (mode & 0xF) == cublas::kMathTf32 ? cublas::kCompute32FFastTf32 : compute_type;
}

struct Types {
  int32_t a, b, d, compute;
};

CallShape gemm_shape(const char* function, const void* handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k,
                     int64_t batch, Types types) {
  CallShape shape;
  shape.function = function;
  shape.kind = kWorkGemm;
  shape.transpose_a = static_cast<uint8_t>(op_a);
  shape.transpose_b = static_cast<uint8_t>(op_b);
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.batch = batch;
  shape.type_a = types.a;
  shape.type_b = types.b;
  shape.type_d = types.d;
  shape.compute_type = compute_type_of(handle, types.a, types.compute);
  return shape;
}

// y = op(A) x with A of m x n: a product of which the second operand has one column.
CallShape gemv_shape(const char* function, const void* handle, int op, int64_t m, int64_t n, int64_t batch,
                     Types types) {
  bool transposed = op != cublas::kOpN;
  CallShape shape =
      gemm_shape(function, handle, op, cublas::kOpN, transposed ? n : m, 1, transposed ? m : n, batch, types);
  shape.gemv = 1;
  return shape;
}

// A grouped product as one product of the same FLOPs where the groups differ in one dimension only (experts of a layer
// that get different numbers of tokens); without dimensions otherwise.
template <typename Int>
CallShape grouped_shape(const char* function, const void* handle, const int* op_a, const int* op_b, const Int* m,
                        const Int* n, const Int* k, Int groups, const Int* group_size, Types types) {
  CallShape shape = gemm_shape(function, handle, 0, 0, -1, -1, -1, 1, types);
  shape.groups = static_cast<int32_t>(groups);
  if (groups <= 0) return shape;
  shape.transpose_a = static_cast<uint8_t>(op_a[0]);
  shape.transpose_b = static_cast<uint8_t>(op_b[0]);
  bool same_m = true, same_n = true, same_k = true;
  int64_t sum_m = 0, sum_n = 0, count = 0;
  for (Int i = 0; i < groups; ++i) {
    same_m = same_m && m[i] == m[0];
    same_n = same_n && n[i] == n[0];
    same_k = same_k && k[i] == k[0];
    sum_m += int64_t{m[i]} * group_size[i];
    sum_n += int64_t{n[i]} * group_size[i];
    count += group_size[i];
  }
  if (!same_k || (!same_m && !same_n)) return shape;
  shape.k = k[0];
  shape.m = same_m ? m[0] : sum_m;
  shape.n = !same_m ? n[0] : same_n ? n[0] : sum_n;
  shape.batch = same_m && same_n ? count : 1;
  return shape;
}

constexpr Types kS{cublas::kR32F, cublas::kR32F, cublas::kR32F, cublas::kCompute32F};
constexpr Types kD{cublas::kR64F, cublas::kR64F, cublas::kR64F, cublas::kCompute64F};
constexpr Types kC{cublas::kC32F, cublas::kC32F, cublas::kC32F, cublas::kCompute32F};
constexpr Types kZ{cublas::kC64F, cublas::kC64F, cublas::kC64F, cublas::kCompute64F};
constexpr Types kH{cublas::kR16F, cublas::kR16F, cublas::kR16F, cublas::kCompute16F};
constexpr Types kHSH{cublas::kR16F, cublas::kR16F, cublas::kR16F, cublas::kCompute32F};
constexpr Types kHSS{cublas::kR16F, cublas::kR16F, cublas::kR32F, cublas::kCompute32F};
constexpr Types kTST{cublas::kR16BF, cublas::kR16BF, cublas::kR16BF, cublas::kCompute32F};
constexpr Types kTSS{cublas::kR16BF, cublas::kR16BF, cublas::kR32F, cublas::kCompute32F};

}  // namespace

// In the macros, Int is int, or int64_t in the 64-bit twins; `text` is the name in the report, without version suffix.
#define LLMPROF_CUBLAS(name, parameters, arguments, ...) \
  LLMPROF_CALL_HOOK(name, kCublas, cublas::kNotInitialized, parameters, arguments, __VA_ARGS__)

#define LLMPROF_GEMM(name, Int, text, types)                                                                        \
  LLMPROF_CUBLAS(name,                                                                                              \
                 (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* a, Int lda, \
                  const void* b, Int ldb, const void* beta, void* c, Int ldc),                                      \
                 (handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),                                \
                 gemm_shape(text, handle, op_a, op_b, m, n, k, 1, types), Matrices{a, b, c})

#define LLMPROF_GEMM_BATCHED(name, Int, text, types)                                                              \
  LLMPROF_CUBLAS(name,                                                                                            \
                 (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* const* a, \
                  Int lda, const void* const* b, Int ldb, const void* beta, void* const* c, Int ldc, Int batch),  \
                 (handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch),                       \
                 gemm_shape(text, handle, op_a, op_b, m, n, k, batch, types))

#define LLMPROF_GEMM_STRIDED(name, Int, text, types)                                                           \
  LLMPROF_CUBLAS(                                                                                              \
      name,                                                                                                    \
      (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* a, Int lda,       \
       long long stride_a, const void* b, Int ldb, long long stride_b, const void* beta, void* c, Int ldc,     \
       long long stride_c, Int batch),                                                                         \
      (handle, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, batch), \
      gemm_shape(text, handle, op_a, op_b, m, n, k, batch, types), Matrices{a, b, c})

#define LLMPROF_GEMM_FAMILY(letter, suffix, types)                                                            \
  LLMPROF_GEMM(cublas##letter##gemm##suffix, int, "cublas" #letter "gemm", types)                             \
  LLMPROF_GEMM(cublas##letter##gemm##suffix##_64, int64_t, "cublas" #letter "gemm", types)                    \
  LLMPROF_GEMM_BATCHED(cublas##letter##gemmBatched, int, "cublas" #letter "gemmBatched", types)               \
  LLMPROF_GEMM_BATCHED(cublas##letter##gemmBatched_64, int64_t, "cublas" #letter "gemmBatched", types)        \
  LLMPROF_GEMM_STRIDED(cublas##letter##gemmStridedBatched, int, "cublas" #letter "gemmStridedBatched", types) \
  LLMPROF_GEMM_STRIDED(cublas##letter##gemmStridedBatched_64, int64_t, "cublas" #letter "gemmStridedBatched", types)

LLMPROF_GEMM_FAMILY(S, _v2, kS)
LLMPROF_GEMM_FAMILY(D, _v2, kD)
LLMPROF_GEMM_FAMILY(C, _v2, kC)
LLMPROF_GEMM_FAMILY(Z, _v2, kZ)
LLMPROF_GEMM_FAMILY(H, , kH)

// Products with element types as arguments.
#define LLMPROF_GEMM_TYPED(name, Int, text)                                                                            \
  LLMPROF_CUBLAS(name,                                                                                                 \
                 (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* a, int type_a, \
                  Int lda, const void* b, int type_b, Int ldb, const void* beta, void* c, int type_c, Int ldc),        \
                 (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc),           \
                 gemm_shape(text, handle, op_a, op_b, m, n, k, 1, {type_a, type_b, type_c, cublas::kCompute32F}),      \
                 Matrices{a, b, c})
LLMPROF_GEMM_TYPED(cublasSgemmEx, int, "cublasSgemmEx")
LLMPROF_GEMM_TYPED(cublasSgemmEx_64, int64_t, "cublasSgemmEx")
LLMPROF_GEMM_TYPED(cublasCgemmEx, int, "cublasCgemmEx")
LLMPROF_GEMM_TYPED(cublasCgemmEx_64, int64_t, "cublasCgemmEx")

#define LLMPROF_GEMM_EX(name, Int)                                                                                    \
  LLMPROF_CUBLAS(                                                                                                     \
      name,                                                                                                           \
      (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* a, int type_a, Int lda,  \
       const void* b, int type_b, Int ldb, const void* beta, void* c, int type_c, Int ldc, int compute,               \
       int algorithm),                                                                                                \
      (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algorithm), \
      gemm_shape("cublasGemmEx", handle, op_a, op_b, m, n, k, 1, {type_a, type_b, type_c, compute}),                  \
      Matrices{a, b, c})
LLMPROF_GEMM_EX(cublasGemmEx, int)
LLMPROF_GEMM_EX(cublasGemmEx_64, int64_t)

#define LLMPROF_GEMM_BATCHED_EX(name, Int)                                                                         \
  LLMPROF_CUBLAS(                                                                                                  \
      name,                                                                                                        \
      (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* const* a, int type_a, \
       Int lda, const void* const* b, int type_b, Int ldb, const void* beta, void* const* c, int type_c, Int ldc,  \
       Int batch, int compute, int algorithm),                                                                     \
      (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, batch, compute,   \
       algorithm),                                                                                                 \
      gemm_shape("cublasGemmBatchedEx", handle, op_a, op_b, m, n, k, batch, {type_a, type_b, type_c, compute}))
LLMPROF_GEMM_BATCHED_EX(cublasGemmBatchedEx, int)
LLMPROF_GEMM_BATCHED_EX(cublasGemmBatchedEx_64, int64_t)

#define LLMPROF_GEMM_STRIDED_EX(name, Int)                                                                             \
  LLMPROF_CUBLAS(                                                                                                      \
      name,                                                                                                            \
      (void* handle, int op_a, int op_b, Int m, Int n, Int k, const void* alpha, const void* a, int type_a, Int lda,   \
       long long stride_a, const void* b, int type_b, Int ldb, long long stride_b, const void* beta, void* c,          \
       int type_c, Int ldc, long long stride_c, Int batch, int compute, int algorithm),                                \
      (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, stride_a, b, type_b, ldb, stride_b, beta, c, type_c, ldc,   \
       stride_c, batch, compute, algorithm),                                                                           \
      gemm_shape("cublasGemmStridedBatchedEx", handle, op_a, op_b, m, n, k, batch, {type_a, type_b, type_c, compute}), \
      Matrices{a, b, c})
LLMPROF_GEMM_STRIDED_EX(cublasGemmStridedBatchedEx, int)
LLMPROF_GEMM_STRIDED_EX(cublasGemmStridedBatchedEx_64, int64_t)

#define LLMPROF_GEMM_GROUPED(name, Int, text, types)                                                             \
  LLMPROF_CUBLAS(name,                                                                                           \
                 (void* handle, const int* op_a, const int* op_b, const Int* m, const Int* n, const Int* k,      \
                  const void* alpha, const void* const* a, const Int* lda, const void* const* b, const Int* ldb, \
                  const void* beta, void* const* c, const Int* ldc, Int groups, const Int* group_size),          \
                 (handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, groups, group_size),         \
                 grouped_shape(text, handle, op_a, op_b, m, n, k, groups, group_size, types))
LLMPROF_GEMM_GROUPED(cublasSgemmGroupedBatched, int, "cublasSgemmGroupedBatched", kS)
LLMPROF_GEMM_GROUPED(cublasSgemmGroupedBatched_64, int64_t, "cublasSgemmGroupedBatched", kS)
LLMPROF_GEMM_GROUPED(cublasDgemmGroupedBatched, int, "cublasDgemmGroupedBatched", kD)
LLMPROF_GEMM_GROUPED(cublasDgemmGroupedBatched_64, int64_t, "cublasDgemmGroupedBatched", kD)

#define LLMPROF_GEMM_GROUPED_EX(name, Int)                                                                            \
  LLMPROF_CUBLAS(                                                                                                     \
      name,                                                                                                           \
      (void* handle, const int* op_a, const int* op_b, const Int* m, const Int* n, const Int* k, const void* alpha,   \
       const void* const* a, int type_a, const Int* lda, const void* const* b, int type_b, const Int* ldb,            \
       const void* beta, void* const* c, int type_c, const Int* ldc, Int groups, const Int* group_size, int compute), \
      (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, groups, group_size,  \
       compute),                                                                                                      \
      grouped_shape("cublasGemmGroupedBatchedEx", handle, op_a, op_b, m, n, k, groups, group_size,                    \
                    {type_a, type_b, type_c, compute}))
LLMPROF_GEMM_GROUPED_EX(cublasGemmGroupedBatchedEx, int)
LLMPROF_GEMM_GROUPED_EX(cublasGemmGroupedBatchedEx_64, int64_t)

// Matrix times vector.
#define LLMPROF_GEMV(name, Int, text, types)                                                                    \
  LLMPROF_CUBLAS(name,                                                                                          \
                 (void* handle, int op, Int m, Int n, const void* alpha, const void* a, Int lda, const void* x, \
                  Int inc_x, const void* beta, void* y, Int inc_y),                                             \
                 (handle, op, m, n, alpha, a, lda, x, inc_x, beta, y, inc_y),                                   \
                 gemv_shape(text, handle, op, m, n, 1, types), Matrices{a, x, y})

#define LLMPROF_GEMV_BATCHED(name, Int, text, types)                                                        \
  LLMPROF_CUBLAS(name,                                                                                      \
                 (void* handle, int op, Int m, Int n, const void* alpha, const void* const* a, Int lda,     \
                  const void* const* x, Int inc_x, const void* beta, void* const* y, Int inc_y, Int batch), \
                 (handle, op, m, n, alpha, a, lda, x, inc_x, beta, y, inc_y, batch),                        \
                 gemv_shape(text, handle, op, m, n, batch, types))

#define LLMPROF_GEMV_STRIDED(name, Int, text, types)                                                                 \
  LLMPROF_CUBLAS(name,                                                                                               \
                 (void* handle, int op, Int m, Int n, const void* alpha, const void* a, Int lda, long long stride_a, \
                  const void* x, Int inc_x, long long stride_x, const void* beta, void* y, Int inc_y,                \
                  long long stride_y, Int batch),                                                                    \
                 (handle, op, m, n, alpha, a, lda, stride_a, x, inc_x, stride_x, beta, y, inc_y, stride_y, batch),   \
                 gemv_shape(text, handle, op, m, n, batch, types), Matrices{a, x, y})

#define LLMPROF_GEMV_BATCHES(letters, types)                                                                    \
  LLMPROF_GEMV_BATCHED(cublas##letters##gemvBatched, int, "cublas" #letters "gemvBatched", types)               \
  LLMPROF_GEMV_BATCHED(cublas##letters##gemvBatched_64, int64_t, "cublas" #letters "gemvBatched", types)        \
  LLMPROF_GEMV_STRIDED(cublas##letters##gemvStridedBatched, int, "cublas" #letters "gemvStridedBatched", types) \
  LLMPROF_GEMV_STRIDED(cublas##letters##gemvStridedBatched_64, int64_t, "cublas" #letters "gemvStridedBatched", types)

#define LLMPROF_GEMV_FAMILY(letter, types)                                          \
  LLMPROF_GEMV(cublas##letter##gemv_v2, int, "cublas" #letter "gemv", types)        \
  LLMPROF_GEMV(cublas##letter##gemv_v2_64, int64_t, "cublas" #letter "gemv", types) \
  LLMPROF_GEMV_BATCHES(letter, types)

LLMPROF_GEMV_FAMILY(S, kS)
LLMPROF_GEMV_FAMILY(D, kD)
LLMPROF_GEMV_FAMILY(C, kC)
LLMPROF_GEMV_FAMILY(Z, kZ)
LLMPROF_GEMV_BATCHES(HSH, kHSH)
LLMPROF_GEMV_BATCHES(HSS, kHSS)
LLMPROF_GEMV_BATCHES(TST, kTST)
LLMPROF_GEMV_BATCHES(TSS, kTSS)

}  // namespace llmprof::inject
