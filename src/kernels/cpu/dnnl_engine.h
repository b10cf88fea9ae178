// What every operation by oneDNN needs beside its own descriptor: the CPU as an engine, buffers as memory, reorders,
// and primitives that have run when the call returns.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/math_libraries.h"

namespace llmprof::kernels::cpu {

using DnnlMemory = device::cpu::DnnlHandle<dnnl_memory_t>;

// One way of oneDNN to do an operation, compiled.
struct DnnlPrimitive {
  std::string name;  // as the library calls it: "brgconv:avx512_core_bf16"
  device::cpu::DnnlHandle<dnnl_primitive_desc_t> description{device::cpu::one_dnn().dnnl_primitive_desc_destroy};
  device::cpu::DnnlHandle<dnnl_primitive_t> primitive{device::cpu::one_dnn().dnnl_primitive_destroy};

  // Of weights number `index`, as the library chose it; lives as long as this does. Error: it does not say.
  Result<const dnnl_memory_desc_t*> weights(int index = 0) const;
};

class DnnlEngine {
 public:
  // Error: oneDNN cannot be opened.
  static Result<std::unique_ptr<DnnlEngine>> open();

  // Up to `most` ways to do what `operation` (a descriptor of the library) says, its own choice first. Those that the
  // library calls its reference, which are slower by orders of magnitude, only where there is no other. `attributes`:
  // what is done behind it; null: nothing. Error: none.
  Result<std::vector<DnnlPrimitive>> ways(const_dnnl_op_desc_t operation, size_t most, const char* what,
                                          const_dnnl_primitive_attr_t attributes = nullptr) const;
  Result<DnnlMemory> memory(const dnnl_memory_desc_t& layout, void* address) const;
  // From one layout to another, at these addresses.
  Status reorder(const dnnl_memory_desc_t& from, void* from_address, const dnnl_memory_desc_t& to,
                 void* to_address) const;
  Status run(const DnnlPrimitive& primitive, std::span<const dnnl_exec_arg_t> arguments, const char* what) const {
    return run(primitive.primitive.get(), arguments, what);
  }

 private:
  Status run(dnnl_primitive_t primitive, std::span<const dnnl_exec_arg_t> arguments, const char* what) const;

  const device::cpu::OneDnn& lib_ = device::cpu::one_dnn();
  device::cpu::DnnlHandle<dnnl_engine_t> engine_{lib_.dnnl_engine_destroy};
  device::cpu::DnnlHandle<dnnl_stream_t> stream_{lib_.dnnl_stream_destroy};
};

}  // namespace llmprof::kernels::cpu
