#include "workload/cpu_linear.h"

#include <algorithm>
#include <string_view>

namespace llmprof::workload {
namespace {

using device::cpu::dnnl_ok;
using device::cpu::dnnl_type;
using device::cpu::DnnlHandle;

}  // namespace

Result<std::unique_ptr<CpuLinears>> CpuLinears::open() {
  if (!device::cpu::one_dnn().missing.empty()) return fail(device::cpu::one_dnn().missing);
  auto linears = std::make_unique<CpuLinears>();
  LLMPROF_CHECK(dnnl_ok(linears->lib_.dnnl_engine_create(linears->engine_.out(), dnnl_cpu, 0), "open the CPU"));
  LLMPROF_CHECK(dnnl_ok(
      linears->lib_.dnnl_stream_create(linears->stream_.out(), linears->engine_.get(), dnnl_stream_default_flags),
      "make a stream"));
  return linears;
}

Result<int> CpuLinears::add(const Tensor& plain, const Tensor& bias, DType out_dtype, std::span<const int64_t> rows,
                            const Allocate& allocate) {
  Item item{{}, {}, DnnlHandle<dnnl_memory_t>(lib_.dnnl_memory_destroy), {}};
  const dnnl_dims_t w_dims = {plain.columns, plain.rows}, bias_dims = {1, plain.rows};
  const dnnl_data_type_t type = dnnl_type(plain.dtype);
  if (bias.data != nullptr) {
    LLMPROF_CHECK(
        dnnl_ok(lib_.dnnl_memory_desc_init_by_tag(&item.bias_layout, 2, bias_dims, type, dnnl_ab), "describe a bias"));
    LLMPROF_CHECK(memory(item.bias, item.bias_layout, bias.data));
  }
  std::vector<int64_t> descending(rows.begin(), rows.end());
  std::sort(descending.rbegin(), descending.rend());
  for (const int64_t count : descending) {
    std::optional<Product> product;
    for (size_t known = 0; known < item.weights.size() && !product; ++known) {
      LLMPROF_ASSIGN(product, compile(item, count, plain, out_dtype, item.weights[known].layout));
      if (product) product->weights = known;
    }
    if (!product) {
      Weights weights{{}, DnnlHandle<dnnl_memory_t>(lib_.dnnl_memory_destroy)};
      LLMPROF_CHECK(dnnl_ok(lib_.dnnl_memory_desc_init_by_tag(&weights.layout, 2, w_dims, type, dnnl_format_tag_any),
                            "describe the weights"));
      LLMPROF_ASSIGN(product, compile(item, count, plain, out_dtype, weights.layout));
      LLMPROF_ASSIGN(void* const address, allocate(lib_.dnnl_memory_desc_get_size(&weights.layout)));
      LLMPROF_CHECK(memory(weights.memory, weights.layout, address));
      LLMPROF_CHECK(pack(plain, weights));
      product->weights = item.weights.size();
      item.weights.push_back(std::move(weights));
    }
    item.products.emplace(count, std::move(*product));
  }
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

Result<std::optional<CpuLinears::Product>> CpuLinears::compile(const Item& item, int64_t rows, const Tensor& plain,
                                                               DType out_dtype, dnnl_memory_desc_t& layout) const {
  Product product{DnnlHandle<dnnl_primitive_t>(lib_.dnnl_primitive_destroy), {}, {}, 0};
  const dnnl_dims_t in_dims = {rows, plain.columns}, out_dims = {rows, plain.rows};
  LLMPROF_CHECK(
      dnnl_ok(std::max(lib_.dnnl_memory_desc_init_by_tag(&product.source, 2, in_dims, dnnl_type(plain.dtype), dnnl_ab),
                       lib_.dnnl_memory_desc_init_by_tag(&product.out, 2, out_dims, dnnl_type(out_dtype), dnnl_ab)),
              "describe the matrices"));
  dnnl_matmul_desc_t operation{};
  LLMPROF_CHECK(
      dnnl_ok(lib_.dnnl_matmul_desc_init(&operation, &product.source, &layout,
                                         item.bias.get() != nullptr ? &item.bias_layout : nullptr, &product.out),
              "describe this product"));
  const bool free_choice = layout.format_kind == dnnl_format_kind_any;
  DnnlHandle<dnnl_primitive_desc_t> description(lib_.dnnl_primitive_desc_destroy);
  const dnnl_status_t found =
      lib_.dnnl_primitive_desc_create(description.out(), &operation, nullptr, engine_.get(), nullptr);
  if (found == dnnl_unimplemented && !free_choice) return std::optional<Product>();
  LLMPROF_CHECK(dnnl_ok(found, "multiply"));
  const char* name = nullptr;
  lib_.dnnl_primitive_desc_query(description.get(), dnnl_query_impl_info_str, 0, &name);
  // The reference is a hundred times slower; another layout has something better.
  if (!free_choice && name != nullptr && std::string_view(name).substr(0, 3) == "ref") return std::optional<Product>();
  const dnnl_memory_desc_t* chosen = lib_.dnnl_primitive_desc_query_md(description.get(), dnnl_query_weights_md, 0);
  if (chosen == nullptr) return fail("oneDNN does not say how it wants the weights");
  layout = *chosen;
  LLMPROF_CHECK(
      dnnl_ok(lib_.dnnl_primitive_create(product.primitive.out(), description.get()), "compile this product"));
  return std::optional<Product>(std::move(product));
}

Status CpuLinears::memory(DnnlHandle<dnnl_memory_t>& made, const dnnl_memory_desc_t& layout, void* address) const {
  return dnnl_ok(lib_.dnnl_memory_create(made.out(), &layout, engine_.get(), address), "take a buffer");
}

Status CpuLinears::pack(const Tensor& plain, const Weights& to) const {
  const dnnl_dims_t dims = {plain.columns, plain.rows}, strides = {1, plain.columns};
  dnnl_memory_desc_t from_layout{};
  LLMPROF_CHECK(dnnl_ok(lib_.dnnl_memory_desc_init_by_strides(&from_layout, 2, dims, dnnl_type(plain.dtype), strides),
                        "pack the weights"));
  DnnlHandle<dnnl_memory_t> from(lib_.dnnl_memory_destroy);
  LLMPROF_CHECK(memory(from, from_layout, plain.data));
  DnnlHandle<dnnl_primitive_desc_t> description(lib_.dnnl_primitive_desc_destroy);
  DnnlHandle<dnnl_primitive_t> reorder(lib_.dnnl_primitive_destroy);
  LLMPROF_CHECK(dnnl_ok(lib_.dnnl_reorder_primitive_desc_create(description.out(), &from_layout, engine_.get(),
                                                                &to.layout, engine_.get(), nullptr),
                        "pack the weights"));
  LLMPROF_CHECK(dnnl_ok(lib_.dnnl_primitive_create(reorder.out(), description.get()), "pack the weights"));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.memory.get()}};
  LLMPROF_CHECK(dnnl_ok(lib_.dnnl_primitive_execute(reorder.get(), stream_.get(), 2, arguments), "pack the weights"));
  return dnnl_ok(lib_.dnnl_stream_wait(stream_.get()), "wait for its stream");
}

Status CpuLinears::run(int id, const Tensor& x, const Tensor& out) {
  const Item& item = items_[static_cast<size_t>(id)];
  const std::map<int64_t, Product>::const_iterator found = item.products.find(x.rows);
  if (found == item.products.end()) return fail("a product with a number of rows that was not prepared");
  const Product& product = found->second;
  DnnlHandle<dnnl_memory_t> from(lib_.dnnl_memory_destroy), to(lib_.dnnl_memory_destroy);
  LLMPROF_CHECK(memory(from, product.source, x.data));
  LLMPROF_CHECK(memory(to, product.out, out.data));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, from.get()},
                                       {DNNL_ARG_WEIGHTS, item.weights[product.weights].memory.get()},
                                       {DNNL_ARG_DST, to.get()},
                                       {DNNL_ARG_BIAS, item.bias.get()}};
  const int count = item.bias.get() != nullptr ? 4 : 3;
  LLMPROF_CHECK(
      dnnl_ok(lib_.dnnl_primitive_execute(product.primitive.get(), stream_.get(), count, arguments), "multiply"));
  return dnnl_ok(lib_.dnnl_stream_wait(stream_.get()), "wait for its stream");
}

}  // namespace llmprof::workload
