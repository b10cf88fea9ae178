// One matrix product as oneDNN runs it, on any number of sets of buffers.
#pragma once

#include <memory>
#include <vector>

#include "device/cpu/math_libraries.h"
#include "device/device.h"

namespace llmprof::kernels::cpu {

// `batch` times out[m,n] = activation(a[m,k] w[n,k]^T + bias) + residual, operands one behind another.
struct MatmulShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  DType dtype = DType::kFp32, out_dtype = DType::kFp32;
  bool bias = false;      // [n] of out_dtype
  bool gelu = false;      // by tanh
  bool residual = false;  // of out_dtype
};
// Addresses of one set; null: the shape has none.
struct MatmulOperands {
  void *a = nullptr, *w = nullptr, *out = nullptr, *bias = nullptr, *residual = nullptr;
};

class DnnlMatmul {
 public:
  // `packed`: weights in the layout that oneDNN chooses, made from those of the set when it is added; else as they lie,
  // [n, k]. Error: this oneDNN has no such product on this CPU.
  static Result<std::unique_ptr<DnnlMatmul>> make(const MatmulShape& shape, bool packed);

  // The layout that was chosen is the one that the weights have anyway.
  bool as_they_lie() const { return device::cpu::one_dnn().dnnl_memory_desc_equal(&weights_, &plain_) != 0; }
  // Packed weights are `device`'s memory.
  Status add_set(device::Device& device, const MatmulOperands& operands);
  Status run(int set);

 private:
  struct Set {
    std::vector<device::cpu::DnnlHandle<dnnl_memory_t>> memories;
    std::vector<dnnl_exec_arg_t> arguments;
    std::unique_ptr<device::Buffer> packed;
  };

  explicit DnnlMatmul(bool packed) : packed_(packed) {}
  Status prepare(const MatmulShape& shape);
  Status give(Set& set, int argument, const dnnl_memory_desc_t& layout, void* address) const;
  // Of weights as they lie in `from`; `set` gets the packed ones.
  Status pack(Set& set, void* from) const;
  Status execute(dnnl_primitive_t primitive, const std::vector<dnnl_exec_arg_t>& arguments, const char* what) const;

  const device::cpu::OneDnn& lib_ = device::cpu::one_dnn();
  bool packed_;
  device::cpu::DnnlHandle<dnnl_engine_t> engine_{lib_.dnnl_engine_destroy};
  device::cpu::DnnlHandle<dnnl_stream_t> stream_{lib_.dnnl_stream_destroy};
  device::cpu::DnnlHandle<dnnl_primitive_t> matmul_{lib_.dnnl_primitive_destroy};
  dnnl_memory_desc_t source_{}, out_{}, plain_{}, weights_{}, bias_{};
  int residual_argument_ = 0;
  std::vector<Set> sets_;
};

}  // namespace llmprof::kernels::cpu
