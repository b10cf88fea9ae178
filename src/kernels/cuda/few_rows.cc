#include "kernels/cuda/few_rows.h"

#include <fmt/format.h>

#include <cstdint>

namespace llmprof::kernels::cuda {
namespace {

constexpr int64_t kGroup = 8;  // rows of activations of one tile
constexpr int64_t kRowsMax = 2 * kGroup;
constexpr int64_t kStep = 32;  // elements of k
constexpr int64_t kTile = 16;  // rows of weights
constexpr unsigned kFewRowsThreads = 256;

// Each within 128 registers a thread, so that two blocks find room on an SM: of twice as many activations, or of two
// tiles of weights, less is asked for ahead.
struct Shape {
  int64_t tiles;
  int ahead;  // steps that a lane asks for before it needs the first
};
std::vector<Shape> shapes_of(int64_t groups) {
  if (groups == 1) return {{1, 4}, {1, 8}, {2, 4}};
  return {{1, 4}, {1, 6}, {2, 3}};
}

}  // namespace

bool few_rows_takes(const ops::Product& product) {
  const bool plain = !product.bias && !product.gelu && !product.residual && !product.scales;
  const bool halves = product.dtype == DType::kBf16 || product.dtype == DType::kFp16;
  return plain && halves && product.out_dtype == product.dtype && product.groups() == 1 && product.rows() <= kRowsMax &&
         product.k % kStep == 0 && product.n <= INT32_MAX && product.k <= INT32_MAX;
}

Result<std::vector<FewRowsForm>> few_rows_forms(device::cuda::CudaDevice& device, const ops::Product& product) {
  device::cuda::Context& context = device.context();
  const int64_t groups = (product.rows() + kGroup - 1) / kGroup;
  const std::vector<Shape> shapes = shapes_of(groups);
  std::vector<device::cuda::KernelSource> sources;
  for (const Shape& shape : shapes)
    sources.push_back({"few_rows.cu",
                       {product.dtype == DType::kFp16 ? "T=Fp16" : "T=Bf16", fmt::format("GROUPS={}", groups),
                        fmt::format("TILES={}", shape.tiles), fmt::format("AHEAD={}", shape.ahead)}});
  context.compile_ahead(sources);
  std::vector<FewRowsForm> forms;
  for (size_t i = 0; i < shapes.size(); ++i) {
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context.kernel(sources[i], "few_rows"));
    if (!context.fits(kernel, kFewRowsThreads)) continue;
    const int64_t rows = kTile * shapes[i].tiles;
    const unsigned grid = static_cast<unsigned>((product.n + rows - 1) / rows);
    const uint32_t m = static_cast<uint32_t>(product.rows()), n = static_cast<uint32_t>(product.n),
                   k = static_cast<uint32_t>(product.k);
    forms.push_back(
        {fmt::format("own {} rows a block, {} ahead", rows, shapes[i].ahead),
         [&context, kernel, grid, m, n, k](cuda_abi::DevicePtr a, cuda_abi::DevicePtr w, cuda_abi::DevicePtr out) {
           return context.launch(kernel, grid, kFewRowsThreads, a, w, out, m, n, k);
         }});
  }
  return forms;
}

}  // namespace llmprof::kernels::cuda
