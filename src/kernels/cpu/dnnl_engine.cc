#include "kernels/cpu/dnnl_engine.h"

#include <string_view>

namespace llmprof::kernels::cpu {

Result<const dnnl_memory_desc_t*> DnnlPrimitive::weights(int index) const {
  const dnnl_memory_desc_t* const chosen =
      device::cpu::one_dnn().dnnl_primitive_desc_query_md(description.get(), dnnl_query_weights_md, index);
  if (chosen == nullptr) return fail("oneDNN does not say how it wants the weights");
  return chosen;
}

Result<std::unique_ptr<DnnlEngine>> DnnlEngine::open() {
  if (!device::cpu::one_dnn().missing.empty()) return fail(device::cpu::one_dnn().missing);
  auto made = std::make_unique<DnnlEngine>();
  LLMPROF_CHECK(device::cpu::dnnl_ok(made->lib_.dnnl_engine_create(made->engine_.out(), dnnl_cpu, 0), "open the CPU"));
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      made->lib_.dnnl_stream_create(made->stream_.out(), made->engine_.get(), dnnl_stream_default_flags),
      "make a stream"));
  return made;
}

Result<std::vector<DnnlPrimitive>> DnnlEngine::ways(const_dnnl_op_desc_t operation, size_t most, const char* what,
                                                    const_dnnl_primitive_attr_t attributes) const {
  device::cpu::DnnlHandle<dnnl_primitive_desc_iterator_t> iterator(lib_.dnnl_primitive_desc_iterator_destroy);
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      lib_.dnnl_primitive_desc_iterator_create(iterator.out(), operation, attributes, engine_.get(), nullptr), what));
  std::vector<DnnlPrimitive> all;
  do {
    DnnlPrimitive way;
    *way.description.out() = lib_.dnnl_primitive_desc_iterator_fetch(iterator.get());
    const char* name = nullptr;
    lib_.dnnl_primitive_desc_query(way.description.get(), dnnl_query_impl_info_str, 0, &name);
    way.name = name != nullptr ? name : "";
    const bool reference = std::string_view(way.name).substr(0, 3) == "ref";
    if (reference && !all.empty()) continue;
    LLMPROF_CHECK(device::cpu::dnnl_ok(lib_.dnnl_primitive_create(way.primitive.out(), way.description.get()), what));
    all.push_back(std::move(way));
  } while (all.size() < most && lib_.dnnl_primitive_desc_iterator_next(iterator.get()) == dnnl_success);
  return all;
}

Result<DnnlMemory> DnnlEngine::memory(const dnnl_memory_desc_t& layout, void* address) const {
  DnnlMemory made(lib_.dnnl_memory_destroy);
  LLMPROF_CHECK(
      device::cpu::dnnl_ok(lib_.dnnl_memory_create(made.out(), &layout, engine_.get(), address), "take a buffer"));
  return made;
}

Status DnnlEngine::reorder(const dnnl_memory_desc_t& from, void* from_address, const dnnl_memory_desc_t& to,
                           void* to_address) const {
  LLMPROF_ASSIGN(const DnnlMemory source, memory(from, from_address));
  LLMPROF_ASSIGN(const DnnlMemory target, memory(to, to_address));
  device::cpu::DnnlHandle<dnnl_primitive_desc_t> description(lib_.dnnl_primitive_desc_destroy);
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      lib_.dnnl_reorder_primitive_desc_create(description.out(), &from, engine_.get(), &to, engine_.get(), nullptr),
      "pack the weights"));
  device::cpu::DnnlHandle<dnnl_primitive_t> primitive(lib_.dnnl_primitive_destroy);
  LLMPROF_CHECK(
      device::cpu::dnnl_ok(lib_.dnnl_primitive_create(primitive.out(), description.get()), "pack the weights"));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source.get()}, {DNNL_ARG_TO, target.get()}};
  return run(primitive.get(), arguments, "pack the weights");
}

Status DnnlEngine::run(dnnl_primitive_t primitive, std::span<const dnnl_exec_arg_t> arguments, const char* what) const {
  LLMPROF_CHECK(device::cpu::dnnl_ok(
      lib_.dnnl_primitive_execute(primitive, stream_.get(), static_cast<int>(arguments.size()), arguments.data()),
      what));
  return device::cpu::dnnl_ok(lib_.dnnl_stream_wait(stream_.get()), "wait for its stream");
}

}  // namespace llmprof::kernels::cpu
