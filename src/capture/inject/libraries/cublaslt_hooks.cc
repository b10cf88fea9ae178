// Hook of cuBLASLt: the one public product, whose shape stands in descriptors. cuBLAS calls private entries of this
// library (cublasLtTSTMatmul and its like); those are not hooked, because its own entries are.
#include "capture/inject/libraries/library_calls.h"
#include "nvidia/cublas_abi.h"

namespace llmprof::inject {

namespace {

constexpr const char* kCublasLt = "libcublasLt.so";

using GetAttribute = int(const void* descriptor, int attribute, void* value, size_t size, size_t* written);
RealSymbol get_layout{"cublasLtMatrixLayoutGetAttribute", kCublasLt};
RealSymbol get_matmul{"cublasLtMatmulDescGetAttribute", kCublasLt};

template <typename T>
T attribute(GetAttribute* get, const void* descriptor, int number, T unknown) {
  T value = unknown;
  size_t written = 0;
  if (get(descriptor, number, &value, sizeof(value), &written) != cublas::kSuccess) return unknown;
  return written == sizeof(value) ? value : unknown;
}

// The scale modes came with 12.8; an older library refuses the question and the mode is the default one.
int32_t scale_mode(GetAttribute* get, const void* descriptor, int number, int32_t type) {
  if (type != cublas::kR8FE4M3 && type != cublas::kR8FE5M2 && type != cublas::kR4FE2M1) return cublas::kScaleScalar;
  return attribute<int32_t>(get, descriptor, number, cublas::kScaleScalar);
}

CallShape matmul_shape(const void* compute, const void* a, const void* b, const void* d) {
  CallShape shape;
  shape.function = "cublasLtMatmul";
  shape.kind = kWorkGemm;
  auto* layout = get_layout.get<GetAttribute>();
  auto* matmul = get_matmul.get<GetAttribute>();
  if (layout == nullptr || matmul == nullptr) return shape;
  if (compute == nullptr || a == nullptr || b == nullptr || d == nullptr) return shape;
  shape.transpose_a = static_cast<uint8_t>(attribute<int32_t>(matmul, compute, cublas::kMatmulTransA, cublas::kOpN));
  shape.transpose_b = static_cast<uint8_t>(attribute<int32_t>(matmul, compute, cublas::kMatmulTransB, cublas::kOpN));
  shape.compute_type = attribute<int32_t>(matmul, compute, cublas::kMatmulComputeType, -1);
  shape.epilogue = attribute<int32_t>(matmul, compute, cublas::kMatmulEpilogue, 0);
  shape.type_a = attribute<int32_t>(layout, a, cublas::kLayoutType, -1);
  shape.type_b = attribute<int32_t>(layout, b, cublas::kLayoutType, -1);
  shape.type_d = attribute<int32_t>(layout, d, cublas::kLayoutType, -1);
  shape.scale_a = scale_mode(matmul, compute, cublas::kMatmulAScaleMode, shape.type_a);
  shape.scale_b = scale_mode(matmul, compute, cublas::kMatmulBScaleMode, shape.type_b);
  // Rows and columns are those of the matrix whatever its order in memory.
  int k_attribute = shape.transpose_a == cublas::kOpN ? cublas::kLayoutCols : cublas::kLayoutRows;
  shape.m = attribute<int64_t>(layout, d, cublas::kLayoutRows, -1);
  shape.n = attribute<int64_t>(layout, d, cublas::kLayoutCols, -1);
  shape.k = attribute<int64_t>(layout, a, k_attribute, -1);
  shape.batch = attribute<int32_t>(layout, d, cublas::kLayoutBatchCount, 1);
  int32_t order = attribute<int32_t>(layout, d, cublas::kLayoutOrder, cublas::kOrderCol);
  shape.row_major = order == cublas::kOrderRow ? 1 : 0;
  return shape;
}

}  // namespace

LLMPROF_CALL_HOOK(cublasLtMatmul, kCublasLt, cublas::kNotInitialized,
                  (void* handle, void* compute, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const void* algorithm, void* workspace, size_t workspace_bytes, void* stream),
                  (handle, compute, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                   workspace, workspace_bytes, stream),
                  matmul_shape(compute, a_layout, b_layout, d_layout), Matrices{a, b, d})

}  // namespace llmprof::inject
