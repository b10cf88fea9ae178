#include "kernels/cuda/cudnn_attention.h"

#include <limits>

namespace llmprof::kernels::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

// Query i sees the keys up to keys - queries + i.
Tensor mask(CudnnGraph& graph, const AttentionShape& shape, Tensor scores, const CudnnGraph::Sizes& dims) {
  const auto index = [&] { return graph.between(cudnn::kInt32, dims); };
  Tensor row = index();
  const Tensor column = index(), sees = graph.between(cudnn::kBoolean, dims);
  graph.pointwise({.mode = cudnn::kGenIndex, .axis = 2}, scores, row);
  graph.pointwise({.mode = cudnn::kGenIndex, .axis = 3}, scores, column);
  if (shape.keys != shape.queries) {
    const Tensor plus = index(), minus = index();
    graph.pointwise(
        {.mode = cudnn::kAdd, .precision = cudnn::kInt32, .b = graph.number(static_cast<int32_t>(shape.keys))}, row,
        plus);
    graph.pointwise(
        {.mode = cudnn::kSubtract, .precision = cudnn::kInt32, .b = graph.number(static_cast<int32_t>(shape.queries))},
        plus, minus);
    row = minus;
  }
  graph.pointwise({.mode = cudnn::kCompareGe, .precision = cudnn::kBoolean, .b = column}, row, sees);
  const Tensor masked = graph.between(cudnn::kFloat, dims);
  graph.pointwise({.mode = cudnn::kBinarySelect, .b = graph.number(std::numeric_limits<float>::lowest()), .test = sees},
                  scores, masked);
  return masked;
}

// Products of queries and transposed keys, scaled.
Tensor scaled_scores(CudnnGraph& graph, const AttentionShape& shape, Tensor q, Tensor k,
                     const CudnnGraph::Extents& extents) {
  const CudnnGraph::Sizes scores = {shape.batch, shape.heads, shape.queries, shape.keys};
  const Tensor dots = graph.between(cudnn::kFloat, scores), scaled = graph.between(cudnn::kFloat, scores);
  graph.matmul(q, k, dots, extents);
  graph.pointwise({.mode = cudnn::kMultiply, .b = graph.number(static_cast<float>(shape.scale()))}, dots, scaled);
  return scaled;
}

// The softmax of what is `seen`, times the values.
void weigh(CudnnGraph& graph, const AttentionShape& shape, Tensor seen, Tensor v, Tensor out,
           const CudnnGraph::Extents& extents) {
  const CudnnGraph::Sizes scores = {shape.batch, shape.heads, shape.queries, shape.keys},
                          sums = {shape.batch, shape.heads, shape.queries, 1};
  const int type = cudnn_type(shape.dtype).value_or(cudnn::kBfloat16);
  const auto inner = [&](const CudnnGraph::Sizes& dims) { return graph.between(cudnn::kFloat, dims); };
  const Tensor most = inner(sums), shifted = inner(scores), weights = inner(scores), sum = inner(sums);
  graph.reduce(cudnn::kReduceMax, seen, most);
  graph.pointwise({.mode = cudnn::kSubtract, .b = most}, seen, shifted);
  graph.pointwise({.mode = cudnn::kExp}, shifted, weights);
  graph.reduce(cudnn::kReduceAdd, weights, sum);
  const Tensor log = inner(sums), unused = inner(sums);
  graph.pointwise({.mode = cudnn::kLog}, sum, log);
  graph.pointwise({.mode = cudnn::kAdd, .b = log}, most, unused);
  const Tensor shares = graph.between(type, scores);
  graph.pointwise({.mode = cudnn::kDivide, .b = sum}, weights, shares);
  graph.matmul(shares, v, out, extents);
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
  const CudnnGraph::Sizes query_dims = {batch, heads, queries, head}, &of_keys = strides.keys;
  const CudnnGraph::Sizes scores = {batch, heads, queries, keys};
  const Tensor q = graph.in_memory(shape.dtype, query_dims, strides.queries);
  const Tensor k =
      graph.in_memory(shape.dtype, {batch, kv, head, keys}, {of_keys[0], of_keys[1], of_keys[3], of_keys[2]});
  const Tensor v = graph.in_memory(shape.dtype, {batch, kv, keys, head}, strides.values);
  const Tensor out = graph.in_memory(shape.dtype, query_dims, strides.out);
  const Tensor scaled = scaled_scores(graph, shape, q, k, {});
  weigh(graph, shape, shape.causal ? mask(graph, shape, scaled, scores) : scaled, v, out, {});
  return {{out, 0}, {q, 1}, {k, 2}, {v, 3}};
}

std::vector<std::pair<CudnnGraph::Tensor, size_t>> describe_paged_attention(CudnnGraph& graph,
                                                                            const AttentionShape& shape,
                                                                            int64_t page_tokens) {
  const int64_t batch = shape.batch, kv = shape.kv_heads, head = shape.head_dim, keys = shape.keys;
  const int64_t pages = (keys + page_tokens - 1) / page_tokens;
  const int type = cudnn_type(shape.dtype).value_or(cudnn::kBfloat16);
  const CudnnGraph::Sizes query_dims = {batch, shape.heads, shape.queries, head},
                          query_strides = dense_strides(shape).queries,
                          container = {batch * pages, kv, page_tokens, head},
                          in_page = {page_tokens * kv * head, head, kv * head, 1},
                          scores = {batch, shape.heads, shape.queries, keys};
  const Tensor q = graph.in_memory(shape.dtype, query_dims, query_strides);
  const Tensor key_pages = graph.in_memory(shape.dtype, container, in_page);
  const Tensor value_pages = graph.in_memory(shape.dtype, container, in_page);
  const Tensor out = graph.in_memory(shape.dtype, query_dims, query_strides);
  const auto table = [&] { return graph.in_memory(DType::kInt32, {batch, 1, pages, 1}, {pages, pages, 1, 1}); };
  const auto lengths = [&] { return graph.in_memory(DType::kInt32, {batch, 1, 1, 1}, {1, 1, 1, 1}); };
  const Tensor key_table = table(), value_table = table(), query_lengths = lengths(), key_lengths = lengths();

  const Tensor k = graph.between(type, {batch, kv, head, keys}, {kv * keys * head, keys * head, 1, head});
  graph.load_pages(key_pages, key_table, key_lengths, k);
  const Tensor scaled = scaled_scores(graph, shape, q, k, {.m = query_lengths, .n = key_lengths});
  // cuDNN takes pages only with a mask of the lengths.
  const auto less = [&](int64_t axis, Tensor than) {
    const Tensor index = graph.between(cudnn::kInt32, scores), is = graph.between(cudnn::kBoolean, scores);
    graph.pointwise({.mode = cudnn::kGenIndex, .precision = cudnn::kInt32, .axis = axis}, scaled, index);
    graph.pointwise({.mode = cudnn::kCompareLess, .precision = cudnn::kBoolean, .b = than}, index, is);
    return is;
  };
  const Tensor is_query = less(2, query_lengths), is_key = less(3, key_lengths);
  const Tensor both = graph.between(cudnn::kBoolean, scores), seen = graph.between(cudnn::kFloat, scores);
  graph.pointwise({.mode = cudnn::kAnd, .precision = cudnn::kBoolean, .b = is_key}, is_query, both);
  graph.pointwise({.mode = cudnn::kBinarySelect, .b = graph.number(std::numeric_limits<float>::lowest()), .test = both},
                  scaled, seen);
  const Tensor v = graph.between(type, {batch, kv, keys, head});
  graph.load_pages(value_pages, value_table, key_lengths, v);
  weigh(graph, shape, seen, v, out, {.m = query_lengths, .k = key_lengths});
  return {{out, 0},       {q, 1},           {key_pages, 2},     {value_pages, 3},
          {key_table, 4}, {value_table, 4}, {query_lengths, 5}, {key_lengths, 6}};
}

}  // namespace llmprof::kernels::cuda
