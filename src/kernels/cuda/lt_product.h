// One matrix product as cuBLASLt runs it. Row-major out[m,n] = a[m,k] w[n,k]^T is, in its column-major terms, an n x m
// product of the transposed weights with the activations: the form ("TN") that 8-bit types need and PyTorch's linear
// layers use.
#pragma once

#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "device/cuda/context.h"

namespace llmprof::kernels::cuda {

// kBlocks: an e4m3 factor for 16 elements along k, in the tiles that the matrix units want (block_scale_bytes).
enum class LtScales : uint8_t { kNone, kOne, kVectors, kBlocks };

struct LtShape {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kBf16, out_dtype = DType::kBf16;
  int64_t batch = 1;           // so many products, operands one behind another
  const void* bias = nullptr;  // [n] of out_dtype
  bool gelu = false;           // by tanh; with a bias only
  bool residual = false;       // out is added to what run() is given
  // Of the device. fp32: one number each, or a vector each ([n] of the weights, [m] of the activations); or blocks.
  LtScales scales = LtScales::kNone;
  const void *w_scale = nullptr, *a_scale = nullptr;
  bool w_across = false;           // weights lie as [k, n]: a row of them is what one input goes to
  bool fast_accumulation = false;  // of fp8: sums in fewer bits between promotions
};

// Factors of a [rows, k] operand with kBlocks: tiles of 128 rows by 4 factors, the last ones padded.
size_t block_scale_bytes(int64_t rows, int64_t k);

class LtProduct {
 public:
  // Error: a type that cuBLASLt does not multiply. `context` and `lt` outlive it.
  static Result<std::shared_ptr<LtProduct>> make(device::cuda::Context& context, const device::cuda::CublasLt& lt,
                                                 const LtShape& shape);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // In the heuristic's order, of the algorithms that its workspace suffices for. Error: there is none.
  Result<std::vector<cublaslt::Algo>> algorithms(int requested) const;
  // On the context's stream. `residual` is read if the shape has one.
  Status run(const cublaslt::Algo& algo, const void* a, const void* w, const void* residual, void* out) const;

 private:
  LtProduct(device::cuda::Context& context, const device::cuda::CublasLt& lt, const LtShape& shape)
      : context_(context), lt_(lt), shape_(shape) {}
  Status describe();
  Status layout(cublaslt::Layout& made, int type, int64_t rows, int64_t columns, std::string_view what);
  template <class T>
  Status set(int attribute, T value);

  device::cuda::Context& context_;
  const device::cuda::CublasLt& lt_;
  LtShape shape_;
  int scale_type_ = 0;
  cublaslt::MatmulDesc desc_ = nullptr;
  cublaslt::Layout w_ = nullptr, a_ = nullptr, out_ = nullptr;
};

}  // namespace llmprof::kernels::cuda
