// Attention of a prompt over its keys by cuDNN: the graph that PyTorch's frontend composes too. Scores, scale, mask,
// softmax and the second product are operations of one graph, which cuDNN runs as one kernel.
//
// What cuDNN (9.19) looks for: keys as [batch][heads][head][keys] by their strides; all tensors between operations in
// fp32 but the weights, which have the type of the values; the logarithm of the sums is part of the pattern although
// nothing reads it.
#include "device/reference/attention.h"

#include <fmt/format.h>

#include <limits>

#include "device/attention_costs.h"
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
    return add_plans(*graph_, describe(*graph_), kPlans, kOffered);
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
  using Tensor = CudnnGraph::Tensor;

  // The graph, and which array is which of its tensors.
  std::vector<std::pair<Tensor, size_t>> describe(CudnnGraph& graph) const {
    const int64_t batch = shape_.batch, heads = shape_.heads, kv = shape_.kv_heads, head = shape_.head_dim;
    const int64_t queries = shape_.queries, keys = shape_.keys;
    const int type = cudnn_type(params_.dtype).value_or(cudnn::kBfloat16);
    const CudnnGraph::Sizes query_dims = {batch, heads, queries, head},
                            query_strides = {heads * queries * head, queries * head, head, 1};
    const CudnnGraph::Sizes scores = {batch, heads, queries, keys}, sums = {batch, heads, queries, 1};
    const Tensor q = graph.in_memory(params_.dtype, query_dims, query_strides);
    const Tensor k = graph.in_memory(params_.dtype, {batch, kv, head, keys}, {kv * keys * head, keys * head, 1, head});
    const Tensor v = graph.in_memory(params_.dtype, {batch, kv, keys, head}, {kv * keys * head, keys * head, head, 1});
    const Tensor out = graph.in_memory(params_.dtype, query_dims, query_strides);
    const auto inner = [&](const CudnnGraph::Sizes& dims) { return graph.between(cudnn::kFloat, dims); };

    const Tensor dots = inner(scores), scaled = inner(scores);
    graph.matmul(q, k, dots);
    graph.pointwise({.mode = cudnn::kMultiply, .b = graph.number(static_cast<float>(shape_.scale()))}, dots, scaled);
    const Tensor seen = shape_.causal ? mask(graph, scaled, scores) : scaled;
    const Tensor most = inner(sums), shifted = inner(scores), weights = inner(scores), sum = inner(sums);
    graph.reduce(cudnn_abi::kReduceMax, seen, most);
    graph.pointwise({.mode = cudnn_abi::kSubtract, .b = most}, seen, shifted);
    graph.pointwise({.mode = cudnn::kExp}, shifted, weights);
    graph.reduce(cudnn_abi::kReduceAdd, weights, sum);
    const Tensor log = inner(sums), unused = inner(sums);
    graph.pointwise({.mode = cudnn_abi::kLog}, sum, log);
    graph.pointwise({.mode = cudnn::kAdd, .b = log}, most, unused);
    const Tensor shares = graph.between(type, scores);
    graph.pointwise({.mode = cudnn_abi::kDivide, .b = sum}, weights, shares);
    graph.matmul(shares, v, out);
    return {{out, 0}, {q, 1}, {k, 2}, {v, 3}};
  }

  // Query i sees the keys up to keys - queries + i.
  Tensor mask(CudnnGraph& graph, Tensor scores, const CudnnGraph::Sizes& dims) const {
    const auto index = [&] { return graph.between(cudnn::kInt32, dims); };
    Tensor row = index();
    const Tensor column = index(), sees = graph.between(cudnn_abi::kBoolean, dims);
    graph.pointwise({.mode = cudnn::kGenIndex, .axis = 2}, scores, row);
    graph.pointwise({.mode = cudnn::kGenIndex, .axis = 3}, scores, column);
    if (shape_.keys != shape_.queries) {
      const Tensor plus = index(), minus = index();
      graph.pointwise(
          {.mode = cudnn::kAdd, .precision = cudnn::kInt32, .b = graph.number(static_cast<int32_t>(shape_.keys))}, row,
          plus);
      graph.pointwise({.mode = cudnn_abi::kSubtract,
                       .precision = cudnn::kInt32,
                       .b = graph.number(static_cast<int32_t>(shape_.queries))},
                      plus, minus);
      row = minus;
    }
    graph.pointwise({.mode = cudnn::kCompareGe, .precision = cudnn_abi::kBoolean, .b = column}, row, sees);
    const Tensor masked = graph.between(cudnn::kFloat, dims);
    graph.pointwise(
        {.mode = cudnn::kBinarySelect, .b = graph.number(std::numeric_limits<float>::lowest()), .test = sees}, scores,
        masked);
    return masked;
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
