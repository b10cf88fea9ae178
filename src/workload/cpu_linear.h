// Products with weights by oneDNN: weights lie packed as oneDNN wants them for the largest number of rows, and again as
// it wants them for others where it cannot use the same. Everything is compiled when a product is made.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/cpu/math_libraries.h"
#include "workload/backend.h"

namespace llmprof::workload {

class CpuLinears {
  template <class Handle>
  using DnnlHandle = device::cpu::DnnlHandle<Handle>;

 public:
  // Error: why oneDNN cannot be used.
  static Result<std::unique_ptr<CpuLinears>> open();
  CpuLinears() = default;

  // Gives memory that outlives this object.
  using Allocate = std::function<Result<void*>(size_t bytes)>;
  // `plain` [out, in] is needed only during the call; `bias` [1, out] (data null: none) stays.
  Result<int> add(const Tensor& plain, const Tensor& bias, DType out_dtype, std::span<const int64_t> rows,
                  const Allocate& allocate);
  Status run(int id, const Tensor& x, const Tensor& out);

 private:
  struct Product {  // for one number of rows
    DnnlHandle<dnnl_primitive_t> primitive;
    dnnl_memory_desc_t source{}, out{};
    size_t weights = 0;  // index in the item's
  };
  struct Weights {
    dnnl_memory_desc_t layout{};
    DnnlHandle<dnnl_memory_t> memory;
  };
  struct Item {
    std::map<int64_t, Product> products;
    std::vector<Weights> weights;
    DnnlHandle<dnnl_memory_t> bias;
    dnnl_memory_desc_t bias_layout{};
  };
  // For weights that lie as `layout` says; its format may be "any", and then becomes what oneDNN chose. Empty if it has
  // none but its reference implementation for that layout.
  Result<std::optional<Product>> compile(const Item& item, int64_t rows, const Tensor& plain, DType out_dtype,
                                         dnnl_memory_desc_t& layout) const;
  Status pack(const Tensor& plain, const Weights& to) const;
  Status memory(DnnlHandle<dnnl_memory_t>& made, const dnnl_memory_desc_t& layout, void* address) const;

  const device::cpu::OneDnn& lib_ = device::cpu::one_dnn();
  DnnlHandle<dnnl_engine_t> engine_{lib_.dnnl_engine_destroy};
  DnnlHandle<dnnl_stream_t> stream_{lib_.dnnl_stream_destroy};
  std::vector<Item> items_;
};

}  // namespace llmprof::workload
