#include "device/cuda/ops/few_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "device/cuda/ops/cuda_op.h"

namespace llmprof::device::cuda {
namespace {

constexpr int64_t kGroup = 8;  // rows of activations of one tile
constexpr int64_t kRowsMax = 2 * kGroup;
constexpr int64_t kStep = 32;  // elements of k
constexpr int64_t kTile = 16;  // rows of weights
// Blocks for each place that there is for one: more of them even out the end, fewer need less summing.
constexpr int64_t kWaves[] = {1, 2};
constexpr int64_t kSplitsMax = 16;

const char* type_macro(DType dtype) { return dtype == DType::kFp16 ? "T=Fp16" : "T=Bf16"; }

}  // namespace

// Of a block: warps beside each other, each of so many tiles of weights, and warps that share the steps along k.
struct FewRowsKernels::Shape {
  int64_t tiles, row_warps, k_warps;
  int ahead;  // steps that a lane asks for before it needs the first
  unsigned threads() const { return static_cast<unsigned>(32 * row_warps * k_warps); }
  int64_t rows() const { return kTile * tiles * row_warps; }
};

bool FewRowsKernels::takes(const Product& product) {
  return product.rows() <= kRowsMax && product.groups() == 1 && product.k % kStep == 0 &&
         (product.dtype == DType::kBf16 || product.dtype == DType::kFp16) && product.out_dtype == product.dtype &&
         !product.bias && !product.gelu && !product.residual && !product.scales && product.n <= INT32_MAX &&
         product.k <= INT32_MAX;
}

// Each within 128 registers a thread, so that two blocks of eight warps find room on an SM: of twice as many
// activations, or of two tiles of weights, less is asked for ahead.
std::vector<FewRowsKernels::Shape> FewRowsKernels::shapes_of(int64_t groups) {
  if (groups == 1) return {{1, 1, 8, 8}, {1, 2, 4, 8}, {1, 1, 4, 8}, {1, 1, 8, 4}, {2, 1, 8, 4}, {2, 2, 4, 4}};
  return {{1, 1, 8, 6}, {1, 2, 4, 6}, {1, 1, 8, 4}, {2, 1, 8, 3}, {2, 2, 4, 3}, {2, 4, 2, 3}, {2, 1, 4, 3}};
}

std::vector<FewRowsKernels::Split> FewRowsKernels::splits_of(const Product& product, const Shape& shape,
                                                             int64_t row_blocks, int64_t resident) {
  const int64_t steps = product.k / kStep;
  // No part of k without a round of steps for all warps of a block.
  const int64_t most = std::clamp<int64_t>(steps / (shape.k_warps * shape.ahead), 1, kSplitsMax);
  std::set<int64_t> counts = {1};
  for (const int64_t waves : kWaves) counts.insert(std::clamp<int64_t>(waves * resident / row_blocks, 1, most));
  std::vector<Split> out;
  std::set<int64_t> made;
  for (const int64_t wanted : counts) {
    const int64_t each = (steps + wanted - 1) / wanted, splits = (steps + each - 1) / each;
    if (row_blocks * splits <= INT32_MAX && made.insert(splits).second)
      out.push_back({static_cast<uint32_t>(splits), static_cast<uint32_t>(each)});
  }
  return out;
}

Result<std::vector<FewRowsKernels::Form>> FewRowsKernels::prepare(CudaDevice& device, const Product& product) {
  Context& context = device.context();
  const int64_t groups = (product.rows() + kGroup - 1) / kGroup;
  const std::vector<Shape> shapes = shapes_of(groups);
  std::vector<KernelSource> sources;
  for (const Shape& shape : shapes)
    sources.push_back({"few_rows.cu",
                       {type_macro(product.dtype), fmt::format("GROUPS={}", groups),
                        fmt::format("TILES={}", shape.tiles), fmt::format("AHEAD={}", shape.ahead)}});
  context.compile_ahead(sources);
  std::vector<Form> forms;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shape& shape = shapes[i];
    LLMPROF_ASSIGN(const Kernel kernel, context.kernel(sources[i], "few_rows"));
    if (!context.fits(kernel, shape.threads())) continue;
    const int64_t row_blocks = (product.n + shape.rows() - 1) / shape.rows();
    const int64_t resident = static_cast<int64_t>(context.sms()) * context.blocks_per_sm(kernel, shape.threads());
    for (const Split& split : splits_of(product, shape, row_blocks, resident)) {
      if (split.splits > 1) {
        parts_most_ = std::max(parts_most_, row_blocks * split.splits * shape.rows() * groups * kGroup);
        counters_most_ = std::max(counters_most_, row_blocks);
      }
      const auto run = [this, &context, kernel, split, threads = shape.threads(),
                        m = static_cast<uint32_t>(product.rows()), n = static_cast<uint32_t>(product.n),
                        k = static_cast<uint32_t>(product.k), k_warps = static_cast<uint32_t>(shape.k_warps),
                        grid = static_cast<unsigned>(row_blocks * split.splits)](const Pointers& at) {
        const cuda_abi::DevicePtr parts = parts_ ? pointer_of(*parts_) : 0,
                                  counters = counters_ ? pointer_of(*counters_) : 0;
        return context.launch(kernel, grid, threads, at.a, at.w, at.out, m, n, k, k_warps, split.splits, split.steps,
                              parts, counters);
      };
      forms.push_back({fmt::format("own {} rows a block, {} warps along k, {} ahead, {} split{}", shape.rows(),
                                   shape.k_warps, shape.ahead, split.splits, split.splits > 1 ? "s" : ""),
                       run});
    }
  }
  LLMPROF_CHECK(make_parts(device));
  return forms;
}

Status FewRowsKernels::make_parts(CudaDevice& device) {
  if (parts_most_ == 0) return {};
  LLMPROF_ASSIGN(parts_, device.allocate(static_cast<size_t>(parts_most_) * sizeof(float)));
  LLMPROF_ASSIGN(counters_, device.allocate(static_cast<size_t>(counters_most_) * sizeof(uint32_t)));
  Context& context = device.context();
  return context.check(context.api().set_d8(pointer_of(*counters_), 0, counters_->bytes(), context.stream()),
                       "clearing counters");
}

}  // namespace llmprof::device::cuda
