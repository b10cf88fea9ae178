#include "kernels/cpu/dnnl_matmul.h"

#include <algorithm>

namespace llmprof::kernels::cpu {

Result<std::unique_ptr<DnnlMatmul>> DnnlMatmul::make(const MatmulShape& shape, bool packed) {
  std::unique_ptr<DnnlMatmul> matmul(new DnnlMatmul(packed));
  LLMPROF_CHECK(matmul->prepare(shape));
  return matmul;
}

Status DnnlMatmul::prepare(const MatmulShape& shape) {
  const device::cpu::OneDnn& lib = lib_;
  if (!lib.missing.empty()) return fail(lib.missing);
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_engine_create(engine_.out(), dnnl_cpu, 0), "open the CPU"));
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_stream_create(stream_.out(), engine_.get(), dnnl_stream_default_flags),
                                     "make a stream"));
  // Two dimensions of one product: with a batch of one in front, some kernels are not taken.
  const bool batched = shape.batch > 1;
  const int dimensions = batched ? 3 : 2;
  const size_t first = batched ? 0 : 1;
  const dnnl_dim_t a_dims[] = {shape.batch, shape.m, shape.k}, w_dims[] = {shape.batch, shape.k, shape.n},
                   out_dims[] = {shape.batch, shape.m, shape.n}, bias_dims[] = {1, 1, shape.n},
                   w_strides[] = {shape.k * shape.n, 1, shape.k};
  const dnnl_format_tag_t dense = batched ? dnnl_abc : dnnl_ab;
  const dnnl_data_type_t type = device::cpu::dnnl_type(shape.dtype), out_type = device::cpu::dnnl_type(shape.out_dtype);
  dnnl_memory_desc_t any{};
  const Status described = device::cpu::dnnl_ok(
      std::max({lib.dnnl_memory_desc_init_by_tag(&source_, dimensions, a_dims + first, type, dense),
                lib.dnnl_memory_desc_init_by_tag(&out_, dimensions, out_dims + first, out_type, dense),
                lib.dnnl_memory_desc_init_by_tag(&bias_, dimensions, bias_dims + first, out_type, dense),
                lib.dnnl_memory_desc_init_by_strides(&plain_, dimensions, w_dims + first, type, w_strides + first),
                lib.dnnl_memory_desc_init_by_tag(&any, dimensions, w_dims + first, type, dnnl_format_tag_any)}),
      "describe the matrices");
  LLMPROF_CHECK(described);
  dnnl_matmul_desc_t operation{};
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      lib.dnnl_matmul_desc_init(&operation, &source_, packed_ ? &any : &plain_, shape.bias ? &bias_ : nullptr, &out_),
      "describe this product"));
  device::cpu::DnnlHandle<dnnl_primitive_attr_t> attributes(lib.dnnl_primitive_attr_destroy);
  device::cpu::DnnlHandle<dnnl_post_ops_t> behind(lib.dnnl_post_ops_destroy);
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_primitive_attr_create(attributes.out()), "describe this product"));
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_post_ops_create(behind.out()), "describe this product"));
  if (shape.gelu)
    LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_post_ops_append_eltwise(behind.get(), 1, dnnl_eltwise_gelu_tanh, 0, 0),
                                       "add GELU to the product"));
  if (shape.residual) {
    LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_post_ops_append_binary(behind.get(), dnnl_binary_add, &out_),
                                       "add a residual to the product"));
    residual_argument_ = DNNL_ARG_ATTR_MULTIPLE_POST_OP(shape.gelu ? 1 : 0) | DNNL_ARG_SRC_1;
  }
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_primitive_attr_set_post_ops(attributes.get(), behind.get()),
                                     "describe this product"));
  device::cpu::DnnlHandle<dnnl_primitive_desc_t> description(lib.dnnl_primitive_desc_destroy);
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      lib.dnnl_primitive_desc_create(description.out(), &operation, attributes.get(), engine_.get(), nullptr),
      "multiply"));
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib.dnnl_primitive_create(matmul_.out(), description.get()), "multiply"));
  const dnnl_memory_desc_t* const chosen =
      lib.dnnl_primitive_desc_query_md(description.get(), dnnl_query_weights_md, 0);
  if (chosen == nullptr) return fail("oneDNN does not say how it wants the weights");
  weights_ = *chosen;
  return {};
}

Status DnnlMatmul::give(Set& set, int argument, const dnnl_memory_desc_t& layout, void* address) const {
  device::cpu::DnnlHandle<dnnl_memory_t> memory(lib_.dnnl_memory_destroy);
  LLMPROF_CHECK(
      device::cpu::dnnl_ok(lib_.dnnl_memory_create(memory.out(), &layout, engine_.get(), address), "take a buffer"));
  set.arguments.push_back({argument, memory.get()});
  set.memories.push_back(std::move(memory));
  return {};
}

Status DnnlMatmul::execute(dnnl_primitive_t primitive, const std::vector<dnnl_exec_arg_t>& arguments,
                           const char* what) const {
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      lib_.dnnl_primitive_execute(primitive, stream_.get(), static_cast<int>(arguments.size()), arguments.data()),
      what));
  return device::cpu::dnnl_ok(lib_.dnnl_stream_wait(stream_.get()), "wait for its stream");
}

Status DnnlMatmul::pack(Set& set, void* from) const {
  constexpr const char* kWhat = "pack the weights";
  device::cpu::DnnlHandle<dnnl_primitive_desc_t> description(lib_.dnnl_primitive_desc_destroy);
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib_.dnnl_reorder_primitive_desc_create(description.out(), &plain_, engine_.get(),
                                                                             &weights_, engine_.get(), nullptr),
                                     kWhat));
  device::cpu::DnnlHandle<dnnl_primitive_t> primitive(lib_.dnnl_primitive_destroy);
  LLMPROF_CHECK(device::cpu::dnnl_ok(lib_.dnnl_primitive_create(primitive.out(), description.get()), kWhat));
  Set once;
  LLMPROF_CHECK(give(once, DNNL_ARG_FROM, plain_, from));
  LLMPROF_CHECK(give(once, DNNL_ARG_TO, weights_, set.packed->address()));
  return execute(primitive.get(), once.arguments, kWhat);
}

Status DnnlMatmul::add_set(device::Device& device, const MatmulOperands& operands) {
  Set set;
  LLMPROF_CHECK(give(set, DNNL_ARG_SRC, source_, operands.a));
  LLMPROF_CHECK(give(set, DNNL_ARG_DST, out_, operands.out));
  if (operands.bias != nullptr) LLMPROF_CHECK(give(set, DNNL_ARG_BIAS, bias_, operands.bias));
  if (operands.residual != nullptr) LLMPROF_CHECK(give(set, residual_argument_, out_, operands.residual));
  if (packed_) {
    LLMPROF_ASSIGN(set.packed, device.allocate(lib_.dnnl_memory_desc_get_size(&weights_)));
    LLMPROF_CHECK(pack(set, operands.w));
  }
  LLMPROF_CHECK(give(set, DNNL_ARG_WEIGHTS, weights_, packed_ ? set.packed->address() : operands.w));
  sets_.push_back(std::move(set));
  return {};
}

Status DnnlMatmul::run(int set) {
  return execute(matmul_.get(), sets_[static_cast<size_t>(set)].arguments, "multiply");
}

}  // namespace llmprof::kernels::cpu
