#include "workload/cuda_linear.h"

#include <fmt/format.h>

namespace llmprof::workload {

Result<std::unique_ptr<CudaLinears>> CudaLinears::open(device::cuda::Context& context) {
  LLMPROF_ASSIGN(const device::cuda::CublasLt* const lt, context.cublaslt());
  return std::unique_ptr<CudaLinears>(new CudaLinears(context, *lt));
}

Result<int> CudaLinears::add(const Tensor& weights, const Tensor& bias, DType out_dtype, std::span<const int64_t> rows,
                             const Scratch& scratch) {
  if (bias.data != nullptr && bias.dtype != out_dtype)
    return fail("cuBLASLt adds a bias of the type of the output only");
  Item item{weights, {}};
  for (const int64_t count : rows) {
    kernels::cuda::LtShape shape{count, weights.rows, weights.columns, weights.dtype, out_dtype};
    shape.bias = bias.data;
    Way way;
    LLMPROF_ASSIGN(way.product, kernels::cuda::LtProduct::make(context_, lt_, shape));
    const std::string key = fmt::format("{} {} {} {} {}", weights.rows, weights.columns, count, bias.data != nullptr,
                                        dtype_name(out_dtype));
    const auto known = algorithms_.find(key);
    if (known != algorithms_.end()) {
      way.algo = known->second;
    } else {
      LLMPROF_ASSIGN(const std::vector<cublaslt::Algo> algorithms, way.product->algorithms(1));
      way.algo = algorithms.front();
      algorithms_.emplace(key, way.algo);
      const auto bytes = [&](int64_t columns, DType dtype) {
        return static_cast<size_t>(count * columns) * static_cast<size_t>(dtype_bytes(dtype));
      };
      LLMPROF_ASSIGN(void* const x, scratch(bytes(weights.columns, weights.dtype)));
      LLMPROF_ASSIGN(void* const out, scratch(bytes(weights.rows, out_dtype)));
      LLMPROF_CHECK(way.product->run(way.algo, x, weights.data, nullptr, out));
    }
    item.ways[count] = std::move(way);
  }
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

Status CudaLinears::run(int id, const Tensor& x, const Tensor& out) {
  const Item& item = items_[static_cast<size_t>(id)];
  const std::map<int64_t, Way>::const_iterator found = item.ways.find(x.rows);
  if (found == item.ways.end()) return fail("a product with a number of rows that was not prepared");
  return found->second.product->run(found->second.algo, x.data, item.weights.data, nullptr, out.data);
}

}  // namespace llmprof::workload
