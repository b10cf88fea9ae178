// Operation graphs of cuDNN: tensors and operations are described one after another, then plans are asked for. The
// first refusal is kept, everything after it does nothing, and plans() returns it: a description reads without checks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "device/cuda/context.h"

namespace llmprof::kernels::cuda {

// What cuDNN says of a status, with its last error's words: "not supported (3000): ...".
std::string cudnn_status_text(const cudnn::Api& api, int status);
// "what was done: cuDNN says ...", if it refused.
Status cudnn_check(const cudnn::Api& api, int status, std::string_view doing);
// The number of cuDNN's enumeration, or nothing.
std::optional<int> cudnn_type(DType dtype);

// A descriptor of the backend API; destroyed with its last owner.
using CudnnDescriptor = std::shared_ptr<void>;

struct CudnnPlan {
  std::string name;  // "A #0": by which heuristic, and the how manieth of it
  CudnnDescriptor plan;
  int64_t workspace_bytes = 0;
};

class CudnnGraph {
 public:
  // A tensor by its place in the description; also its unique id, from 1 on.
  using Tensor = int64_t;
  using Sizes = std::vector<int64_t>;

  explicit CudnnGraph(const device::cuda::Cudnn& cudnn) : cudnn_(cudnn) {}

  Tensor in_memory(DType dtype, const Sizes& dims, const Sizes& strides);
  // Exists only between operations. `type` of cuDNN's enumeration: also booleans.
  Tensor between(int type, const Sizes& dims);
  Tensor between(int type, const Sizes& dims, const Sizes& strides);
  // One number, handed over with each execution.
  Tensor number(float value);
  Tensor number(int32_t value);

  // Operations; sums in fp32.
  // How much of a product there is for each entry of the batch: int32 in memory; 0: all of it.
  struct Extents {
    Tensor m = 0, n = 0, k = 0;
  };
  void matmul(Tensor a, Tensor b, Tensor out) { matmul(a, b, out, {}); }
  void matmul(Tensor a, Tensor b, Tensor out, const Extents& extents);
  struct Pointwise {
    int mode, precision = cudnn::kFloat;
    int64_t axis = -1;       // of an index
    Tensor b = 0, test = 0;  // 0: none
  };
  void pointwise(const Pointwise& what, Tensor x, Tensor out);
  void reduce(int mode, Tensor x, Tensor out);
  // `pages` [pages, heads, tokens of a page, head] become `out`, [batch, heads, keys, head] or [batch, heads, head,
  // keys] by its strides; `table` [batch, 1, pages of a sequence, 1] and `lengths` [batch, 1, 1, 1]: int32 in memory.
  // Since cuDNN 9.5.
  void load_pages(Tensor pages, Tensor table, Tensor lengths, Tensor out);
  // Filters [out channels, channels, height, width]; the same padding on both sides of each axis.
  void convolve(Tensor x, Tensor filters, Tensor out, const Sizes& padding, const Sizes& stride);

  // Plans that cuDNN accepts, at most `most`: of its heuristic's choice, or if there are none of those that it falls
  // back to. Each may be compiled first, for half a second.
  Result<std::vector<CudnnPlan>> plans(size_t most);

  // What an execution is given: memory by tensor, and scratch memory as large as the plans ask for.
  struct Binding {
    Tensor tensor;
    void* address;
  };
  Result<CudnnDescriptor> pack(const std::vector<Binding>& memory, void* workspace);

 private:
  struct Number {
    Tensor tensor;
    std::unique_ptr<char[]> bytes;
  };
  CudnnDescriptor create(int type, std::string_view what);
  void set(const CudnnDescriptor& descriptor, int attribute, int type, int64_t count, const void* elements);
  void set_int(const CudnnDescriptor& descriptor, int attribute, int type, int value);
  void set_sizes(const CudnnDescriptor& descriptor, int attribute, const Sizes& values);
  void set_descriptor(const CudnnDescriptor& descriptor, int attribute, const CudnnDescriptor& value);
  void set_tensor(const CudnnDescriptor& descriptor, int attribute, Tensor tensor);
  void finalize(const CudnnDescriptor& descriptor);
  void keep_operation(const CudnnDescriptor& operation);
  void note(int status);
  Tensor add_tensor(int type, const Sizes& dims, const Sizes& strides, bool is_virtual, bool by_value);
  Tensor add_number(int type, const void* value);
  CudnnDescriptor close();
  void add_plans(const CudnnDescriptor& graph, int mode, std::string_view name, size_t most,
                 std::vector<CudnnPlan>& plans);

  const device::cuda::Cudnn& cudnn_;
  std::string doing_;  // the step at hand, for the words of a refusal
  std::optional<Error> refused_;
  std::vector<CudnnDescriptor> tensors_, operations_, parts_;
  std::vector<Number> numbers_;
};

}  // namespace llmprof::kernels::cuda
