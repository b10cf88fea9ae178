// Attention of a prompt over its keys: plans of cuDNN, and own kernels, which are all there is where cuDNN is missing.
#include "ops/attention.h"

#include <fmt/format.h>

#include <limits>
#include <numbers>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cudnn_op.h"
#include "kernels/cuda/ops.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr size_t kPromptPlans = 8, kPromptsChecked = 4;

// Blocks of own kernels: queries of a warp, keys of a tile, warps.
struct PromptShape {
  int64_t head;
  int rows, keys, warps;
  int64_t shared_bytes() const { return 2 * head * (rows * warps + 2 * 2 * keys); }
};
constexpr PromptShape kPromptShapes[] = {{64, 32, 64, 4},  {64, 16, 64, 8},  {128, 32, 64, 4}, {128, 32, 32, 4},
                                         {128, 16, 64, 8}, {256, 16, 32, 4}, {256, 16, 64, 8}};
// Where the driver does not tell what a block may have: the least of the chips that own kernels are for.
constexpr int64_t kSharedLeast = 99 << 10;

// out, q, keys, values
class AttentionOp : public CudnnOp {
 public:
  using CudnnOp::CudnnOp;
  size_t worth_checking() const override { return kPromptsChecked; }

  Status prepare() {
    if (const std::optional<std::string> why = attention_unsupported(device_.identity(), params_))
      return fail(*why, {}, {}, ExitCode::kUsage);
    shape_.batch = params_.axis("batch");
    shape_.heads = params_.axis("heads");
    shape_.kv_heads = params_.axis("kv_heads");
    shape_.head_dim = params_.axis("head_dim");
    shape_.queries = params_.axis("prompt");
    shape_.keys = ops::attention_keys(params_);
    shape_.dtype = params_.dtype;
    shape_.causal = params_.variant == "causal";
    const Fill numbers{Fill::Kind::kUniform, params_.dtype, 1, 0};
    const size_t element = static_cast<size_t>(dtype_bytes(params_.dtype));
    const size_t queries =
        static_cast<size_t>(shape_.batch * shape_.heads * shape_.queries * shape_.head_dim) * element;
    const size_t keys = static_cast<size_t>(shape_.batch * shape_.kv_heads * shape_.keys * shape_.head_dim) * element;
    LLMPROF_CHECK(begin({{"out", queries, Role::kOutput, {}},
                         {"q", queries, Role::kInput, numbers},
                         {"keys", keys, Role::kInput, numbers},
                         {"values", keys, Role::kInput, numbers}}));
    const Status library = add_cudnn();
    if (context_.lost()) return library;
    const Status own = add_own();
    if (context_.lost()) return own;
    if (!candidates().empty()) return {};
    return library ? own : library;
  }

 protected:
  Result<Check> compare(size_t) override {
    if (expected_.rows.empty()) {
      LLMPROF_ASSIGN(expected_,
                     expect_attention(device_, shape_, array(0, 1), dense_heads(device_, array(0, 2), shape_),
                                      dense_heads(device_, array(0, 3), shape_), params_.seed));
    }
    return check_attention(device_, shape_, array(0, 0), expected_);
  }

 private:
  Status add_cudnn() {
    LLMPROF_ASSIGN(const device::cuda::Cudnn* const cudnn, open_cudnn_of_device());
    graph_.emplace(*cudnn);
    return add_plans(*graph_, describe_attention(*graph_, shape_), kPromptPlans);
  }

  device::cuda::KernelSource source_of(const PromptShape& shape) const {
    return {"attention.cu",
            {type(), fmt::format("HEAD={}", shape.head), fmt::format("ROWS={}", shape.rows),
             fmt::format("KEYS={}", shape.keys), fmt::format("WARPS={}", shape.warps)}};
  }
  Status add_own() {
    const int told = context_.attribute(cuda_abi::kSharedBytesPerBlockOptin);
    std::vector<PromptShape> prompts;
    std::vector<device::cuda::KernelSource> sources;
    for (const PromptShape& shape : kPromptShapes)
      if (shape.head == shape_.head_dim && shape.shared_bytes() <= (told > 0 ? told : kSharedLeast))
        prompts.push_back(shape);
    for (const PromptShape& shape : prompts) sources.push_back(source_of(shape));
    context_.compile_ahead(sources);
    for (const PromptShape& shape : prompts)
      LLMPROF_CHECK(add_kernel(
          fmt::format("own {} warps of {} rows, {} keys", shape.warps, shape.rows, shape.keys), source_of(shape),
          {shape.rows * shape.warps, static_cast<unsigned>(shape.warps) * 32, shape.shared_bytes()}));
    return {};
  }

  const char* type() const { return params_.dtype == DType::kFp16 ? "T=Fp16" : "T=Bf16"; }

  struct Block {
    int64_t rows;
    unsigned threads;
    int64_t shared_bytes;
  };
  Status add_kernel(std::string name, const device::cuda::KernelSource& source, const Block& block) {
    const int64_t heads = shape_.batch * shape_.heads;
    const int64_t blocks = (shape_.queries + block.rows - 1) / block.rows * heads;
    if (blocks > std::numeric_limits<int32_t>::max()) return {};
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel(source, "attention"));
    LLMPROF_CHECK(context_.check(context_.api().function_set(kernel.function, cuda_abi::kFunctionMaxDynamicSharedBytes,
                                                             static_cast<int>(block.shared_bytes)),
                                 "asking for shared memory"));
    add(std::move(name),
        [this, kernel, block, blocks](int set) { return run(kernel, block, static_cast<unsigned>(blocks), set); });
    return {};
  }

  Status run(const device::cuda::Kernel& kernel, const Block& block, unsigned blocks, int set) {
    cuda_abi::DevicePtr out = at(set, 0), q = at(set, 1), k = at(set, 2), v = at(set, 3);
    uint32_t heads = static_cast<uint32_t>(shape_.batch * shape_.heads);
    uint32_t group = static_cast<uint32_t>(shape_.heads / shape_.kv_heads);
    uint32_t queries = static_cast<uint32_t>(shape_.queries), keys = static_cast<uint32_t>(shape_.keys);
    uint32_t causal = shape_.causal ? 1 : 0;
    // The kernel's exponentials are of two.
    float scale = static_cast<float>(shape_.scale() * std::numbers::log2e);
    void* list[] = {&q, &k, &v, &out, &heads, &group, &queries, &keys, &causal, &scale, nullptr};
    return context_.launch_list(kernel, blocks, 1, block.threads, static_cast<unsigned>(block.shared_bytes), list);
  }

  AttentionShape shape_;
  std::optional<CudnnGraph> graph_;
  AttentionExpected expected_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_attention(Device& device, const OpParams& params) {
  return prepare_as<AttentionOp>(device, params);
}

std::optional<std::string> attention_unsupported(const DeviceIdentity& device, const OpParams& params) {
  if (device.cc_major < 8)
    return fmt::format("{} ({}.{}) has no fused attention, neither cuDNN's nor own; it comes with 8.0", device.name,
                       device.cc_major, device.cc_minor);
  const int64_t heads = params.axis("heads"), kv_heads = params.axis("kv_heads");
  if (params.axis("head_dim") % 8 != 0)
    return fmt::format("cuDNN takes heads of a multiple of 8 elements, head_dim is {}", params.axis("head_dim"));
  if (heads % kv_heads != 0)
    return fmt::format("heads must be a multiple of kv_heads, {} is none of {}", heads, kv_heads);
  if (ops::attention_keys(params) > std::numeric_limits<int32_t>::max()) return "more than 2^31 keys are not measured";
  return std::nullopt;
}

}  // namespace llmprof::kernels::cuda
