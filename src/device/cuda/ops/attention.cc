// Attention of a prompt over its keys by cuDNN.
#include <fmt/format.h>

#include <limits>

#include "device/attention_costs.h"
#include "device/cuda/ops/cudnn_attention.h"
#include "device/cuda/ops/cudnn_op.h"
#include "device/cuda/ops/ops.h"

namespace llmprof::device::cuda {
namespace {

constexpr size_t kPlans = 8, kOffered = 4;

// out, q, keys, values
class AttentionOp : public CudnnOp {
 public:
  using CudnnOp::CudnnOp;

  Status prepare() {
    if (const std::optional<std::string> why = attention_unsupported(device_.identity(), params_))
      return fail(*why, {}, {}, ExitCode::kUsage);
    shape_.batch = params_.axis("batch");
    shape_.heads = params_.axis("heads");
    shape_.kv_heads = params_.axis("kv_heads");
    shape_.head_dim = params_.axis("head_dim");
    shape_.queries = params_.axis("prompt");
    shape_.keys = attention_keys(params_);
    shape_.dtype = params_.dtype;
    shape_.causal = params_.variant == "causal";
    LLMPROF_ASSIGN(const Cudnn* const cudnn, open_cudnn_of_device());
    const Fill numbers{Fill::Kind::kUniform, params_.dtype, 1, 0};
    const size_t element = static_cast<size_t>(dtype_bytes(params_.dtype));
    const size_t queries =
        static_cast<size_t>(shape_.batch * shape_.heads * shape_.queries * shape_.head_dim) * element;
    const size_t keys = static_cast<size_t>(shape_.batch * shape_.kv_heads * shape_.keys * shape_.head_dim) * element;
    LLMPROF_CHECK(begin({{"out", queries, Role::kOutput, {}},
                         {"q", queries, Role::kInput, numbers},
                         {"keys", keys, Role::kInput, numbers},
                         {"values", keys, Role::kInput, numbers}}));
    graph_.emplace(*cudnn);
    return add_plans(*graph_, describe_attention(*graph_, shape_), kPlans, kOffered);
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
    return fmt::format("{} ({}.{}) has no fused attention in cuDNN; it comes with 8.0", device.name, device.cc_major,
                       device.cc_minor);
  const int64_t heads = params.axis("heads"), kv_heads = params.axis("kv_heads");
  if (params.axis("head_dim") % 8 != 0)
    return fmt::format("cuDNN takes heads of a multiple of 8 elements, head_dim is {}", params.axis("head_dim"));
  if (heads % kv_heads != 0)
    return fmt::format("heads must be a multiple of kv_heads, {} is none of {}", heads, kv_heads);
  if (attention_keys(params) > std::numeric_limits<int32_t>::max()) return "more than 2^31 keys are not measured";
  return std::nullopt;
}

}  // namespace llmprof::device::cuda
