// Products with weights by cuBLASLt: weights lie as they are, [out, in]. Algorithms are its heuristic's first choice,
// one for each shape: what is fastest on a busy GPU would differ from run to run, and with it the last bit of results.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/context.h"
#include "kernels/cuda/lt_product.h"
#include "workload/backend.h"

namespace llmprof::workload {

class CudaLinears {
 public:
  // Error: why cuBLASLt cannot be used.
  static Result<std::unique_ptr<CudaLinears>> open(device::cuda::Context& context);

  const LibraryVersion& about() const { return lt_.library.about; }
  // `weights` [out, in] and `bias` [1, out] (data null: none) stay where they are. A new shape is multiplied once, by
  // `scratch`, which gives memory for the time of this call: libraries load a kernel when it first runs.
  using Scratch = std::function<Result<void*>(size_t bytes)>;
  Result<int> add(const Tensor& weights, const Tensor& bias, DType out_dtype, std::span<const int64_t> rows,
                  const Scratch& scratch);
  Status run(int id, const Tensor& x, const Tensor& out);

 private:
  struct Way {
    std::shared_ptr<kernels::cuda::LtProduct> product;
    cublaslt::Algo algo{};
  };
  struct Item {
    Tensor weights;
    std::map<int64_t, Way> ways;  // by rows
  };
  CudaLinears(device::cuda::Context& context, const device::cuda::CublasLt& lt) : context_(context), lt_(lt) {}

  device::cuda::Context& context_;
  const device::cuda::CublasLt& lt_;
  std::map<std::string, cublaslt::Algo> algorithms_;  // by shape: all layers that have it take the same
  std::vector<Item> items_;
};

}  // namespace llmprof::workload
