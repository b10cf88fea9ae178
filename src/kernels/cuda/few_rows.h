// Products with few rows of activations by an own kernel (source/few_rows.cu). They cost the reading of their weights,
// which libraries do at two thirds of the memory's speed where all of it takes ten microseconds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/cuda_device.h"
#include "ops/product.h"

namespace llmprof::kernels::cuda {

// Whether it multiplies them: bf16 and fp16, plain, up to 16 rows, k in whole steps of 32.
bool few_rows_takes(const ops::Product& product);

struct FewRowsForm {
  std::string name;  // "own 16 rows a block, 8 ahead"
  std::function<Status(cuda_abi::DevicePtr a, cuda_abi::DevicePtr w, cuda_abi::DevicePtr out)> run;
};
// Forms that fit the device. They refer to it.
Result<std::vector<FewRowsForm>> few_rows_forms(device::cuda::CudaDevice& device, const ops::Product& product);

}  // namespace llmprof::kernels::cuda
