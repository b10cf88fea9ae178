// Attention of one new query per sequence over the cache: own kernels, keys split over blocks in several ways, and
// plans of cuDNN, of a cache of pages from 9.5 on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cudnn_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/attention.h"
#include "ops/attention.h"

namespace llmprof::kernels::cuda {
namespace {

// Warps of a block, and how many tiles each keeps in shared memory; 1: none, its registers hold them.
struct BlockShape {
  unsigned warps;
  int stages;
};
constexpr BlockShape kBlockShapes[] = {{8, 1}, {4, 1}, {8, 3}, {4, 3}, {4, 2}};
// Blocks per place for one: more of them even out the end, fewer need less summing.
constexpr int64_t kWaves[] = {1, 2, 4};
constexpr int64_t kSplitsMax = 256;
constexpr size_t kDecodePlans = 3, kDecodesChecked = 6;
constexpr size_t kSharedMax = size_t{216} << 10;
constexpr size_t kSharedStatic = 11 << 10;  // queries of a long head, and sums of rows

// out, q, keys, values [, table, queries and keys of each sequence]
class AttentionDecodeOp : public CudnnOp {
 public:
  using CudnnOp::CudnnOp;

  Status prepare() {
    shape_.batch = params_.axis("batch");
    shape_.heads = params_.axis("heads");
    shape_.kv_heads = params_.axis("kv_heads");
    shape_.head_dim = params_.axis("head_dim");
    shape_.keys = params_.axis("context");
    shape_.dtype = params_.dtype;
    if (const std::optional<std::string> why = attention_decode_unsupported(device_.identity(), params_))
      return fail(*why, {}, {}, ExitCode::kUsage);
    paged_ = params_.variant == "paged";
    group_ = shape_.heads / shape_.kv_heads;
    rows_ = group_ > 8 ? 16 : 8;
    row_blocks_ = shape_.batch * shape_.kv_heads * ((group_ + rows_ - 1) / rows_);
    pages_ = (shape_.keys + ops::kPageTokens - 1) / ops::kPageTokens;
    const Fill numbers{Fill::Kind::kUniform, params_.dtype, 1, 0};
    const int64_t tokens = paged_ ? pages_ * ops::kPageTokens : shape_.keys;
    const size_t queries = bytes_of(shape_.batch * shape_.heads * shape_.head_dim);
    const size_t cache = bytes_of(shape_.batch * shape_.kv_heads * tokens * shape_.head_dim);
    std::vector<Array> arrays = {{"out", queries, Role::kOutput, {}},
                                 {"q", queries, Role::kInput, numbers},
                                 {"keys", cache, Role::kInput, numbers},
                                 {"values", cache, Role::kInput, numbers}};
    if (paged_) {
      const auto integers = [&](const char* name, int64_t count) {  // what they are is uploaded
        const Fill fill{Fill::Kind::kIndex, DType::kInt32, 1, 1};
        arrays.push_back({name, static_cast<size_t>(count) * sizeof(int32_t), Role::kInput, fill});
      };
      integers("table", shape_.batch * pages_);
      integers("query_lengths", shape_.batch);
      integers("key_lengths", shape_.batch);
    }
    LLMPROF_CHECK(begin(std::move(arrays)));
    const Status own = add_own();
    if (context_.lost()) return own;
    const Status library = add_cudnn();
    if (context_.lost()) return library;
    return candidates().empty() ? own : Status{};
  }
  size_t worth_checking() const override { return kDecodesChecked; }

 protected:
  // Every page once, in an order that is not the cache's.
  Status set_made(int set) override {
    if (!paged_) return {};
    const int64_t all = shape_.batch * pages_;
    int64_t stride = all * 5 / 8 + 1;
    while (std::gcd(stride, all) != 1) ++stride;
    std::vector<int32_t> table(static_cast<size_t>(all));
    for (int64_t i = 0; i < all; ++i) table[static_cast<size_t>(i)] = static_cast<int32_t>((i * stride + set) % all);
    if (set == 0) table_of_set0_ = table;
    const auto upload = [&](size_t index, const std::vector<int32_t>& values) {
      return device_.upload(array(set, index), 0, values.data(), values.size() * sizeof(int32_t));
    };
    const size_t sequences = static_cast<size_t>(shape_.batch);
    LLMPROF_CHECK(upload(4, table));
    LLMPROF_CHECK(upload(5, std::vector<int32_t>(sequences, 1)));
    return upload(6, std::vector<int32_t>(sequences, static_cast<int32_t>(shape_.keys)));
  }

  Result<Check> compare(size_t) override {
    if (expected_.rows.empty()) {
      LLMPROF_ASSIGN(expected_, expect_attention(device_, shape_, array(0, 1), heads_of(array(0, 2)),
                                                 heads_of(array(0, 3)), params_.seed));
    }
    return check_attention(device_, shape_, array(0, 0), expected_);
  }

 private:
  size_t bytes_of(int64_t elements) const {
    return static_cast<size_t>(elements) * static_cast<size_t>(dtype_bytes(params_.dtype));
  }

  HeadReader heads_of(const Buffer& buffer) {
    if (!paged_) return dense_heads(device_, buffer, shape_);
    // A page is a run of its own of heads that are dense in it: [page][token][head][element].
    return [this, &buffer](int64_t sequence, int64_t kv_head) -> Result<std::vector<float>> {
      AttentionShape page = shape_;
      page.kv_heads = 1;
      page.keys = ops::kPageTokens * shape_.kv_heads;
      const HeadReader pages = dense_heads(device_, buffer, page);
      std::vector<float> rows;
      for (int64_t i = 0; i < pages_; ++i) {
        LLMPROF_ASSIGN(const std::vector<float> whole,
                       pages(table_of_set0_[static_cast<size_t>(sequence * pages_ + i)], 0));
        for (int64_t token = 0; token < std::min(ops::kPageTokens, shape_.keys - i * ops::kPageTokens); ++token) {
          const auto from = whole.begin() + (token * shape_.kv_heads + kv_head) * shape_.head_dim;
          rows.insert(rows.end(), from, from + shape_.head_dim);
        }
      }
      return rows;
    };
  }

  Status add_own() {
    std::vector<device::cuda::KernelSource> sources;
    for (const BlockShape& block : kBlockShapes)
      if (shared_bytes(block)) sources.push_back(source_of(block));
    context_.compile_ahead(sources);
    for (const BlockShape& block : kBlockShapes) LLMPROF_CHECK(add_splits(block));
    if (candidates().empty())
      return fail(
          fmt::format("{} has too little shared memory for heads of {}", device_.identity().name, shape_.head_dim));
    return make_parts();
  }

  Status add_cudnn() {
    LLMPROF_ASSIGN(const device::cuda::Cudnn* const cudnn, open_cudnn_of_device());
    graph_.emplace(*cudnn);
    if (!paged_) return add_plans(*graph_, describe_attention(*graph_, shape_), kDecodePlans);
    if (cudnn->library.version < kPagedSince)
      return fail(fmt::format("cuDNN takes caches of pages from 9.5 on, this is {}", cudnn->library.about.version));
    return add_plans(*graph_, describe_paged_attention(*graph_, shape_, ops::kPageTokens), kDecodePlans);
  }

  int64_t tile() const { return shape_.head_dim >= 128 ? 16 : 32; }  // keys
  device::cuda::KernelSource source_of(const BlockShape& block) const {
    return {"attention_decode.cu",
            {params_.dtype == DType::kFp16 ? "T=Fp16" : "T=Bf16", fmt::format("HEAD={}", shape_.head_dim),
             fmt::format("ROWS={}", rows_), fmt::format("STAGES={}", block.stages),
             fmt::format("PAGED={}", paged_ ? 1 : 0)}};
  }
  // Of a block; absent if it does not fit.
  std::optional<size_t> shared_bytes(const BlockShape& block) const {
    const size_t head = static_cast<size_t>(shape_.head_dim), rows = static_cast<size_t>(rows_);
    // Registers do not hold a tile of a long head beside its sums.
    if (block.stages == 1 && shape_.head_dim > 128) return std::nullopt;
    // The tiles; the sums of each warp; or what the last block needs: weights of each split, and sums of its threads.
    const size_t tiles = block.stages == 1 ? 0 : block.warps * static_cast<size_t>(block.stages * tile()) * head * 4;
    const size_t shared = std::max({tiles, block.warps * rows * head * 4,
                                    rows * static_cast<size_t>(kSplitsMax) * 4 + 16 + block.warps * 32 * 16});
    const size_t most = static_cast<size_t>(std::max(context_.attribute(cuda_abi::kSharedBytesPerBlockOptin), 0));
    if (shared > (most > 0 ? most - kSharedStatic : kSharedMax)) return std::nullopt;
    return shared;
  }

  Status add_splits(const BlockShape& block) {
    const std::optional<size_t> fitting = shared_bytes(block);
    if (!fitting) return {};
    const size_t shared = *fitting;
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel(source_of(block), "attention_decode"));
    LLMPROF_CHECK(context_.check(context_.api().function_set(kernel.function, cuda_abi::kFunctionMaxDynamicSharedBytes,
                                                             static_cast<int>(shared)),
                                 "asking for shared memory"));
    const int64_t resident =
        static_cast<int64_t>(context_.sms()) * context_.blocks_per_sm(kernel, block.warps * 32, shared);
    std::set<int64_t> tried;
    for (const int64_t waves : kWaves) {
      const int64_t wanted = std::clamp<int64_t>(waves * resident / row_blocks_, 1, kSplitsMax);
      // Whole tiles, and no block without any.
      const int64_t keys = ((shape_.keys + wanted - 1) / wanted + tile() - 1) / tile() * tile();
      const int64_t splits = (shape_.keys + keys - 1) / keys;
      if (row_blocks_ * splits > 0x7fffffff || !tried.insert(splits).second) continue;
      splits_most_ = std::max(splits_most_, splits);
      add(fmt::format("own {} warps, {}, {} split{}", block.warps,
                      block.stages == 1 ? std::string("registers") : fmt::format("{} stages", block.stages), splits,
                      splits > 1 ? "s" : ""),
          [this, kernel, block, splits, keys, shared](int set) {
            return run(kernel, block, static_cast<uint32_t>(splits), static_cast<uint32_t>(keys), shared, set);
          });
    }
    return {};
  }

  Status run(const device::cuda::Kernel& kernel, const BlockShape& block, uint32_t splits, uint32_t split_keys,
             size_t shared, int set) {
    const uint64_t head = static_cast<uint64_t>(shape_.head_dim), keys = static_cast<uint64_t>(shape_.keys);
    const uint64_t kv = static_cast<uint64_t>(shape_.kv_heads);
    cuda_abi::DevicePtr q = at(set, 1), k = at(set, 2), v = at(set, 3), table = paged_ ? at(set, 4) : 0;
    cuda_abi::DevicePtr out = at(set, 0);
    uint64_t outer = paged_ ? ops::kPageTokens * kv * head : kv * keys * head;
    uint64_t head_stride = paged_ ? head : keys * head, token_stride = paged_ ? kv * head : head;
    uint32_t context = static_cast<uint32_t>(keys), kv_heads = static_cast<uint32_t>(kv);
    uint32_t group = static_cast<uint32_t>(group_);
    // The kernel's exponentials are of two.
    float scale = static_cast<float>(shape_.scale() * std::numbers::log2e);
    cuda_abi::DevicePtr parts = 0, mosts = 0, sums = 0, counters = 0;
    if (parts_) {
      parts = device::cuda::pointer_of(*parts_);
      mosts = device::cuda::pointer_of(*mosts_);
      sums = device::cuda::pointer_of(*sums_);
      counters = device::cuda::pointer_of(*counters_);
    }
    void* list[] = {&q,       &k,        &v,     &table,  &out,        &outer, &head_stride, &token_stride,
                    &context, &kv_heads, &group, &splits, &split_keys, &scale, &parts,       &mosts,
                    &sums,    &counters, nullptr};
    return context_.launch_list(kernel, static_cast<unsigned>(row_blocks_) * splits, 1, block.warps * 32,
                                static_cast<unsigned>(shared), list);
  }

  // What split blocks leave for the last of them. Executions follow one another, so one set serves all.
  Status make_parts() {
    if (splits_most_ <= 1) return {};
    const size_t rows = static_cast<size_t>(row_blocks_ * splits_most_ * rows_);
    LLMPROF_ASSIGN(parts_, device_.allocate(rows * static_cast<size_t>(shape_.head_dim) * sizeof(float)));
    LLMPROF_ASSIGN(mosts_, device_.allocate(rows * sizeof(float)));
    LLMPROF_ASSIGN(sums_, device_.allocate(rows * sizeof(float)));
    LLMPROF_ASSIGN(counters_, device_.allocate(static_cast<size_t>(row_blocks_) * sizeof(uint32_t)));
    return context_.check(
        context_.api().set_d8(device::cuda::pointer_of(*counters_), 0, counters_->bytes(), context_.stream()),
        "clearing counters");
  }

  AttentionShape shape_;
  bool paged_ = false;
  int64_t group_ = 1, rows_ = 8, row_blocks_ = 1, pages_ = 0, splits_most_ = 1;
  std::vector<int32_t> table_of_set0_;
  std::unique_ptr<Buffer> parts_, mosts_, sums_, counters_;
  AttentionExpected expected_;
  std::optional<CudnnGraph> graph_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_attention_decode(Device& device, const OpParams& params) {
  return prepare_as<AttentionDecodeOp>(device, params);
}

std::optional<std::string> attention_decode_unsupported(const DeviceIdentity& device, const OpParams& params) {
  if (std::optional<std::string> why = own_kernel_unsupported(device, params)) return why;
  const int64_t head = params.axis("head_dim"), heads = params.axis("heads"), kv_heads = params.axis("kv_heads");
  if (head != 64 && head != 128 && head != 256)
    return fmt::format("own attention kernels are for heads of 64, 128 and 256 elements, head_dim is {}", head);
  if (heads % kv_heads != 0)
    return fmt::format("heads must be a multiple of kv_heads, {} is none of {}", heads, kv_heads);
  if (params.axis("context") > (int64_t{1} << 30)) return "a context of more than 2^30 keys is not measured";
  return std::nullopt;
}

}  // namespace llmprof::kernels::cuda
