#include "device/cuda/ops/cudnn_attention.h"

#include <limits>

namespace llmprof::device::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

// Query i sees the keys up to keys - queries + i.
Tensor mask(CudnnGraph& graph, const AttentionShape& shape, Tensor scores, const CudnnGraph::Sizes& dims) {
  const auto index = [&] { return graph.between(cudnn::kInt32, dims); };
  Tensor row = index();
  const Tensor column = index(), sees = graph.between(cudnn_abi::kBoolean, dims);
  graph.pointwise({.mode = cudnn::kGenIndex, .axis = 2}, scores, row);
  graph.pointwise({.mode = cudnn::kGenIndex, .axis = 3}, scores, column);
  if (shape.keys != shape.queries) {
    const Tensor plus = index(), minus = index();
    graph.pointwise(
        {.mode = cudnn::kAdd, .precision = cudnn::kInt32, .b = graph.number(static_cast<int32_t>(shape.keys))}, row,
        plus);
    graph.pointwise({.mode = cudnn_abi::kSubtract,
                     .precision = cudnn::kInt32,
                     .b = graph.number(static_cast<int32_t>(shape.queries))},
                    plus, minus);
    row = minus;
  }
  graph.pointwise({.mode = cudnn::kCompareGe, .precision = cudnn_abi::kBoolean, .b = column}, row, sees);
  const Tensor masked = graph.between(cudnn::kFloat, dims);
  graph.pointwise({.mode = cudnn::kBinarySelect, .b = graph.number(std::numeric_limits<float>::lowest()), .test = sees},
                  scores, masked);
  return masked;
}

}  // namespace

AttentionStrides dense_strides(const AttentionShape& shape) {
  const int64_t head = shape.head_dim;
  const CudnnGraph::Sizes queries = {shape.heads * shape.queries * head, shape.queries * head, head, 1},
                          keys = {shape.kv_heads * shape.keys * head, shape.keys * head, head, 1};
  return {queries, keys, keys, queries};
}

std::vector<std::pair<CudnnGraph::Tensor, size_t>> describe_attention(CudnnGraph& graph, const AttentionShape& shape,
                                                                      const AttentionStrides& strides) {
  const int64_t batch = shape.batch, heads = shape.heads, kv = shape.kv_heads, head = shape.head_dim;
  const int64_t queries = shape.queries, keys = shape.keys;
  const int type = cudnn_type(shape.dtype).value_or(cudnn::kBfloat16);
  const CudnnGraph::Sizes query_dims = {batch, heads, queries, head}, &of_keys = strides.keys;
  const CudnnGraph::Sizes scores = {batch, heads, queries, keys}, sums = {batch, heads, queries, 1};
  const Tensor q = graph.in_memory(shape.dtype, query_dims, strides.queries);
  const Tensor k =
      graph.in_memory(shape.dtype, {batch, kv, head, keys}, {of_keys[0], of_keys[1], of_keys[3], of_keys[2]});
  const Tensor v = graph.in_memory(shape.dtype, {batch, kv, keys, head}, strides.values);
  const Tensor out = graph.in_memory(shape.dtype, query_dims, strides.out);
  const auto inner = [&](const CudnnGraph::Sizes& dims) { return graph.between(cudnn::kFloat, dims); };

  const Tensor dots = inner(scores), scaled = inner(scores);
  graph.matmul(q, k, dots);
  graph.pointwise({.mode = cudnn::kMultiply, .b = graph.number(static_cast<float>(shape.scale()))}, dots, scaled);
  const Tensor seen = shape.causal ? mask(graph, shape, scaled, scores) : scaled;
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

}  // namespace llmprof::device::cuda
