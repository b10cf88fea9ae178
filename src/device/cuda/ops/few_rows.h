// Products with few rows of activations by an own kernel (kernels/few_rows.cu): they cost the reading of their weights,
// which libraries do at 0.6 to 0.9 of the memory's speed where that takes ten microseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/cuda_device.h"
#include "device/product.h"

namespace llmprof::device::cuda {

class FewRowsKernels {
 public:
  // Whether it multiplies them: bf16 and fp16, plain, up to 16 rows, k in whole steps of 32.
  static bool takes(const Product& product);

  struct Pointers {
    cuda_abi::DevicePtr a = 0, w = 0, out = 0;
  };
  struct Form {
    std::string name;  // "own 16 rows x 8 warps along k, 8 ahead, 2 splits"
    std::function<Status(const Pointers&)> run;
  };
  // Forms that fit the device and the product. They refer to this object, and follow one another on one stream.
  Result<std::vector<Form>> prepare(CudaDevice& device, const Product& product);

 private:
  struct Shape;
  struct Split {
    uint32_t splits = 1, steps = 0;  // steps of 32 along k in each
  };
  static std::vector<Shape> shapes_of(int64_t groups);
  static std::vector<Split> splits_of(const Product& product, const Shape& shape, int64_t row_blocks, int64_t resident);
  Status make_parts(CudaDevice& device);

  int64_t parts_most_ = 0, counters_most_ = 0;
  std::unique_ptr<Buffer> parts_, counters_;
};

}  // namespace llmprof::device::cuda
