// Attention as a graph of cuDNN, the one that PyTorch's frontend composes too: scores, scale, mask, softmax and the
// second product are its operations, and cuDNN runs it as one kernel.
//
// What cuDNN (9.14, 9.19) looks for: keys as [batch][heads][head][keys] by their strides; all tensors between
// operations in fp32 but the weights, which have the type of the values; the logarithm of the sums is part of the
// pattern although nothing reads it.
#pragma once

#include <utility>
#include <vector>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/reference/attention.h"

namespace llmprof::kernels::cuda {

// Strides in elements: of a sequence, a head, a token, an element.
struct AttentionStrides {
  CudnnGraph::Sizes queries, keys, values, out;
};
// Queries and output [batch][heads][queries][head_dim], keys and values [batch][kv_heads][keys][head_dim].
AttentionStrides dense_strides(const AttentionShape& shape);

// Returns the tensors in memory with their places among the arrays: 0 output, 1 queries, 2 keys, 3 values.
std::vector<std::pair<CudnnGraph::Tensor, size_t>> describe_attention(CudnnGraph& graph, const AttentionShape& shape,
                                                                      const AttentionStrides& strides);
inline std::vector<std::pair<CudnnGraph::Tensor, size_t>> describe_attention(CudnnGraph& graph,
                                                                             const AttentionShape& shape) {
  return describe_attention(graph, shape, dense_strides(shape));
}

// The same over a cache of pages, [page][token][kv_head][element], not causal. Arrays 0 to 3 as above, 4 the tables
// [sequence][page], 5 and 6 the numbers of queries and of keys of each sequence; all int32.
constexpr size_t kPagedSince = 90500;  // cuDNN 9.5
std::vector<std::pair<CudnnGraph::Tensor, size_t>> describe_paged_attention(CudnnGraph& graph,
                                                                            const AttentionShape& shape,
                                                                            int64_t page_tokens);

}  // namespace llmprof::kernels::cuda
