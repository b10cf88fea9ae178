#include "capture/inject/libraries/cudnn_backend_shape.h"

#include "nvidia/cublas_abi.h"
#include "nvidia/cudnn_abi.h"

namespace llmprof::inject {

namespace {

constexpr int64_t kSizeMax = INT32_MAX;  // of one dimension; larger ones are not believed

// The operations of one graph and who makes which tensor.
class Graph {
 public:
  Graph(const BackendOperation* const* operations, int count) : operations_(operations), count_(count) {}

  int count_of(OperationKind kind) const {
    int found = 0;
    for (int i = 0; i < count_; ++i) found += operations_[i]->kind == kind;
    return found;
  }
  const BackendOperation* first(OperationKind kind) const {
    for (int i = 0; i < count_; ++i) {
      if (operations_[i]->kind == kind) return operations_[i];
    }
    return nullptr;
  }
  const BackendOperation* other_matmul(const BackendOperation* one) const {
    for (int i = 0; i < count_; ++i) {
      if (operations_[i]->kind == OperationKind::kMatmul && operations_[i] != one) return operations_[i];
    }
    return nullptr;
  }
  // The pointwise operation that makes a tensor inside the graph.
  const BackendOperation* pointwise_making(const BackendTensor& tensor) const {
    if (!tensor.has_uid || !tensor.is_virtual) return nullptr;
    for (int i = 0; i < count_; ++i) {
      const BackendOperation& operation = *operations_[i];
      const BackendTensor& made = operation.tensors[kPointwiseY];
      if (operation.kind == OperationKind::kPointwise && made.has_uid && made.uid == tensor.uid) return &operation;
    }
    return nullptr;
  }
  template <class F>
  void for_pointwise(F&& take) const {
    for (int i = 0; i < count_; ++i) {
      if (operations_[i]->kind == OperationKind::kPointwise) take(*operations_[i]);
    }
  }
  bool all_understood() const {
    for (int i = 0; i < count_; ++i) {
      if (operations_[i] == nullptr || operations_[i]->odd || operations_[i]->kind == OperationKind::kUnknown)
        return false;
    }
    return true;
  }
  template <class F>
  void for_all(F&& take) const {
    for (int i = 0; i < count_; ++i) take(*operations_[i]);
  }

 private:
  const BackendOperation* const* operations_;
  int count_;
};

bool has(const BackendOperation& operation, Role role) { return (operation.given >> role & 1) != 0; }

bool has_sizes(const BackendTensor& tensor) {
  if (tensor.odd || tensor.count == 0) return false;
  for (int i = 0; i < tensor.count; ++i) {
    if (tensor.dims[i] <= 0 || tensor.dims[i] > kSizeMax) return false;
  }
  return true;
}

bool has_sizes(const BackendOperation& operation, int roles) {
  for (int i = 0; i < roles; ++i) {
    if ((operation.given >> i & 1) == 0 || !has_sizes(operation.tensors[i])) return false;
  }
  return true;
}

// Of a tensor in memory; one that exists only inside the kernel may stand for another type.
int32_t stored_type(const BackendTensor& tensor) {
  return tensor.has_type && !tensor.is_virtual ? cuda_type(tensor.type) : -1;
}

bool same_dims(const BackendTensor& a, const BackendTensor& b) {
  if (a.count != b.count) return false;
  for (int i = 0; i < a.count; ++i) {
    if (a.dims[i] != b.dims[i]) return false;
  }
  return true;
}

int64_t elements(const BackendTensor& tensor) {
  int64_t product = 1;
  for (int i = 0; i < tensor.count; ++i) {
    if (__builtin_mul_overflow(product, tensor.dims[i], &product)) return INT64_MAX;
  }
  return product;
}

// The type of the result, which fused operations may make instead of the main one; -1 where several could be it.
int32_t result_type(const Graph& graph, const BackendTensor& result) {
  if (!result.is_virtual) return stored_type(result);
  int32_t type = -1;
  int found = 0;
  graph.for_pointwise([&](const BackendOperation& operation) {
    const BackendTensor& made = operation.tensors[kPointwiseY];
    if (!has(operation, kPointwiseY) || made.is_virtual || !same_dims(made, result)) return;
    type = stored_type(made);
    ++found;
  });
  return found == 1 ? type : -1;
}

// What is fused behind a product, as cublasLtEpilogue_t; 0 for nothing and for what has no name there.
int32_t epilogue(const Graph& graph, const BackendTensor& result) {
  constexpr int32_t kNone = 0, kRelu = 2, kBias = 4, kGelu = 32;
  int32_t fused = kNone;
  bool other = false;
  graph.for_pointwise([&](const BackendOperation& operation) {
    const BackendTensor& b = operation.tensors[kPointwiseB];
    const int32_t mode = operation.parameters.mode;
    // One number per output channel: everything else of it is 1.
    const bool per_channel = has(operation, kPointwiseB) && !b.is_virtual && !b.by_value && elements(b) > 1 &&
                             (elements(b) == result.dims[1] || elements(b) == result.dims[result.count - 1]);
    const int32_t bit = mode == cudnn::kAdd && per_channel ? kBias
                        : mode == cudnn::kReluForward      ? kRelu
                        : mode == cudnn::kGeluForward      ? kGelu
                                                           : kNone;
    other = other || bit == kNone || (fused & bit) != 0;
    fused |= bit;
  });
  return other || (fused & (kRelu | kGelu)) == (kRelu | kGelu) ? kNone : fused;
}

// ---- convolution -------------------------------------------------------------------------------------------------

bool convolution_shape(const Graph& graph, CallShape& shape) {
  const BackendOperation& operation = *graph.first(OperationKind::kConvolution);
  if (!has_sizes(operation, 3) || !operation.has_parameters) return false;
  const BackendTensor& x = operation.tensors[kConvolutionX];
  const BackendTensor& w = operation.tensors[kConvolutionW];
  const BackendTensor& y = operation.tensors[kConvolutionY];
  const BackendParameters& parameters = operation.parameters;
  if (x.count < 3 || x.count > 5 || w.count != x.count || y.count != x.count) return false;
  if (parameters.odd || parameters.spatial != x.count - 2) return false;
  if (y.dims[0] != x.dims[0] || y.dims[1] != w.dims[0] || x.dims[1] % w.dims[1] != 0) return false;
  shape.kind = kWorkConvolution;
  shape.type_a = stored_type(w);
  shape.type_b = stored_type(x);
  shape.type_d = result_type(graph, y);
  shape.epilogue = epilogue(graph, y);
  shape.m = w.dims[0];
  shape.n = y.dims[0];
  shape.k = w.dims[1];
  // Different paddings before and behind have no place in the text.
  bool tell = parameters.told == 0x1F;
  for (int i = 2; i < x.count; ++i) {
    if (__builtin_mul_overflow(shape.n, y.dims[i], &shape.n)) return false;
    if (__builtin_mul_overflow(shape.k, w.dims[i], &shape.k)) return false;
    tell = tell && parameters.padding[i - 2] == parameters.padding_behind[i - 2];
  }
  if (!tell) return true;
  shape.dimensions = static_cast<uint8_t>(x.count);
  shape.conv_groups = static_cast<int32_t>(x.dims[1] / w.dims[1]);
  for (int i = 0; i < x.count; ++i) {
    shape.input[i] = static_cast<int32_t>(x.dims[i]);
    shape.filter[i] = static_cast<int32_t>(w.dims[i]);
    if (i < 2) continue;
    shape.stride[i - 2] = parameters.stride[i - 2];
    shape.padding[i - 2] = parameters.padding[i - 2];
    shape.dilation[i - 2] = parameters.dilation[i - 2];
  }
  return true;
}

// ---- one matrix product ------------------------------------------------------------------------------------------

bool matmul_shape(const Graph& graph, CallShape& shape) {
  const BackendOperation& operation = *graph.first(OperationKind::kMatmul);
  if (!has_sizes(operation, 3) || operation.lengths_at_run) return false;
  const BackendTensor& a = operation.tensors[kMatmulA];
  const BackendTensor& b = operation.tensors[kMatmulB];
  const BackendTensor& c = operation.tensors[kMatmulC];
  const int count = c.count;
  if (count < 2 || a.count != count || b.count != count || a.ragged || b.ragged || c.ragged) return false;
  const int64_t m = a.dims[count - 2], k = a.dims[count - 1], n = b.dims[count - 1];
  if (b.dims[count - 2] != k || c.dims[count - 2] != m || c.dims[count - 1] != n) return false;
  int64_t batch = 1;
  bool shares_b = true;
  for (int i = 0; i < count - 2; ++i) {
    const int64_t size = c.dims[i];
    if ((a.dims[i] != size && a.dims[i] != 1) || (b.dims[i] != size && b.dims[i] != 1)) return false;
    if (a.dims[i] != size) shares_b = false;
    if (b.dims[i] != 1) shares_b = false;
    if (__builtin_mul_overflow(batch, size, &batch)) return false;
  }
  shape.kind = kWorkGemm;
  shape.row_major = 1;
  shape.type_a = stored_type(a);
  shape.type_b = stored_type(b);
  shape.type_d = result_type(graph, c);
  shape.epilogue = epilogue(graph, c);
  shape.n = n;
  shape.k = k;
  // The same second operand for all: one product with more rows.
  shape.batch = shares_b ? 1 : batch;
  return !__builtin_mul_overflow(m, shares_b ? batch : 1, &shape.m);
}

// ---- attention ---------------------------------------------------------------------------------------------------

uint8_t worse(uint8_t a, uint8_t b) { return a > b ? a : b; }

// Whether a pointwise operation counts up along one dimension of the scores.
bool counts_along(const BackendOperation* operation, int axis) {
  return operation != nullptr && operation->parameters.mode == cudnn::kGenIndex && operation->parameters.axis == axis;
}

// What a selection between the scores and a constant hides: the usual mask compares the query's number with the key's.
uint8_t mask_of_selection(const Graph& graph, const BackendOperation& selection) {
  if (!has(selection, kPointwiseX) || !has(selection, kPointwiseB) || !has(selection, kPointwiseT)) return kMaskUnknown;
  const BackendTensor& constant = selection.tensors[kPointwiseB];
  if (!selection.tensors[kPointwiseX].is_virtual || constant.is_virtual || elements(constant) != 1) return kMaskUnknown;
  const BackendOperation* compare = graph.pointwise_making(selection.tensors[kPointwiseT]);
  if (compare == nullptr || compare->parameters.mode != cudnn::kCompareGe) return kMaskUnknown;
  if (!has(*compare, kPointwiseX) || !has(*compare, kPointwiseB)) return kMaskUnknown;
  const int count = selection.tensors[kPointwiseX].count;
  const bool causal = counts_along(graph.pointwise_making(compare->tensors[kPointwiseX]), count - 2) &&
                      counts_along(graph.pointwise_making(compare->tensors[kPointwiseB]), count - 1);
  return causal ? kMaskCausal : kMaskUnknown;
}

bool is_integer(const BackendTensor& tensor) {
  return tensor.has_type && (tensor.type == cudnn::kInt32 || tensor.type == cudnn::kInt64);
}

// One number for each batch and head at most.
bool is_per_head(const BackendTensor& tensor) {
  return tensor.count >= 2 && tensor.dims[tensor.count - 2] == 1 && tensor.dims[tensor.count - 1] == 1;
}

struct Modifiers {
  uint8_t mask = kMaskNone;
  bool lengths_at_run = false;
  bool softmax = false;
};

// What the operations around two products, or of the graph inside a single attention operation, do to the scores.
Modifiers modifiers_of(const Graph& graph) {
  Modifiers found;
  graph.for_all([&](const BackendOperation& operation) {
    found.lengths_at_run = found.lengths_at_run || operation.lengths_at_run;
    found.softmax = found.softmax || operation.kind == OperationKind::kSoftmax;
    if (operation.kind == OperationKind::kBandMask) found.mask = worse(found.mask, operation.mask);
    if (operation.kind != OperationKind::kPointwise) return;
    const int32_t mode = operation.parameters.mode;
    if (mode == cudnn::kExp) found.softmax = true;
    if (mode == cudnn::kBinarySelect) found.mask = worse(found.mask, mask_of_selection(graph, operation));
    for (int i = 0; i < kPointwiseY; ++i) {
      if ((operation.given >> i & 1) == 0) continue;
      const BackendTensor& tensor = operation.tensors[i];
      if (tensor.is_virtual || tensor.by_value) continue;
      // Whole numbers in memory that scores or their places are compared with: lengths.
      if (is_integer(tensor)) found.lengths_at_run = true;
      // A tensor as wide as the scores may hold minus infinity anywhere; as a factor (dropout) it hides nothing.
      if (mode != cudnn::kMultiply && !is_per_head(tensor)) found.mask = kMaskUnknown;
    }
  });
  return found;
}

struct AttentionTensors {
  const BackendTensor *q, *k, *v, *o;
  bool k_transposed;  // k is [B, H, D, S]
};

bool attention_shape(const AttentionTensors& t, const Modifiers& modifiers, bool paged, CallShape& shape) {
  if (t.q->count != 4 || t.k->count != 4 || t.v->count != 4 || t.o->count != 4) return false;
  const int64_t* q = t.q->dims;
  const int64_t* v = t.v->dims;
  const int64_t batch = q[0], heads = q[1], queries = q[2], size = q[3];
  const int64_t kv_heads = t.k->dims[1], k_size = t.k->dims[t.k_transposed ? 2 : 3];
  const int64_t keys = t.k->dims[t.k_transposed ? 3 : 2], value_size = v[3];
  if (k_size != size || v[1] != kv_heads || heads % kv_heads != 0) return false;
  if (t.o->dims[0] != batch || t.o->dims[1] != heads || t.o->dims[2] != queries || t.o->dims[3] != value_size)
    return false;
  // Pages are shared by all sequences: their number and size are no lengths.
  if (!paged && (t.k->dims[0] != batch || v[0] != batch || v[2] != keys)) return false;
  const bool ragged = t.q->ragged || t.k->ragged || t.v->ragged || t.o->ragged;
  const bool known = !modifiers.lengths_at_run && !ragged && !paged;
  shape.kind = kWorkAttention;
  shape.type_a = stored_type(*t.q);
  shape.type_b = stored_type(*t.k);
  shape.type_d = stored_type(*t.o);
  shape.batch = batch;
  shape.m = known ? queries : -1;
  shape.n = known ? keys : -1;
  shape.k = size;
  shape.heads = static_cast<int32_t>(heads);
  shape.kv_heads = static_cast<int32_t>(kv_heads);
  shape.value_size = static_cast<int32_t>(value_size);
  shape.queries_max = known ? 0 : static_cast<int32_t>(queries);
  shape.keys_max = known || paged ? 0 : static_cast<int32_t>(keys);
  shape.paged = paged ? 1 : 0;
  shape.mask = modifiers.mask;
  return true;
}

bool single_attention(const BackendOperation& operation, CallShape& shape) {
  if (!has_sizes(operation, 4)) return false;
  Modifiers modifiers;
  modifiers.mask = operation.mask;
  modifiers.lengths_at_run = operation.lengths_at_run;
  const BackendTensor* t = operation.tensors;
  return attention_shape({&t[kAttentionQ], &t[kAttentionK], &t[kAttentionV], &t[kAttentionO], false}, modifiers,
                         operation.paged, shape);
}

bool composed_attention(const Graph& graph, CallShape& shape) {
  const BackendOperation* scores = graph.first(OperationKind::kMatmul);
  const BackendOperation* values = graph.other_matmul(scores);
  if (!has_sizes(*scores, 3) || !has_sizes(*values, 3)) return false;
  // In the order of the graph, or the other way round: the weights of the second are as large as the scores.
  if (!same_dims(scores->tensors[kMatmulC], values->tensors[kMatmulA])) {
    const BackendOperation* other = scores;
    scores = values;
    values = other;
  }
  const BackendTensor& s = scores->tensors[kMatmulC];
  const BackendTensor& p = values->tensors[kMatmulA];
  if (!same_dims(s, p) || !s.is_virtual || !p.is_virtual) return false;
  const Modifiers modifiers = modifiers_of(graph);
  if (!modifiers.softmax) return false;
  const BackendTensor& q = scores->tensors[kMatmulA];
  const BackendTensor& k = scores->tensors[kMatmulB];
  if (q.count != 4 || k.count != 4 || s.count != 4) return false;
  if (s.dims[0] != q.dims[0] || s.dims[1] != q.dims[1] || s.dims[2] != q.dims[2] || s.dims[3] != k.dims[3])
    return false;
  return attention_shape({&q, &k, &values->tensors[kMatmulB], &values->tensors[kMatmulC], true}, modifiers, false,
                         shape);
}

}  // namespace

int32_t cuda_type(int cudnn_type) {
  switch (cudnn_type) {
    case cudnn::kFloat:
      return cublas::kR32F;
    case cudnn::kDouble:
      return cublas::kR64F;
    case cudnn::kHalf:
      return cublas::kR16F;
    case cudnn::kInt8:
      return cublas::kR8I;
    case cudnn::kInt32:
      return cublas::kR32I;
    case cudnn::kBfloat16:
      return cublas::kR16BF;
    case cudnn::kFp8E4m3:
      return cublas::kR8FE4M3;
    case cudnn::kFp8E5m2:
      return cublas::kR8FE5M2;
    default:
      return -1;
  }
}

OperationKind operation_kind(int descriptor_type) {
  switch (descriptor_type) {
    case cudnn::kOpMatmul:
      return OperationKind::kMatmul;
    case cudnn::kOpConvolutionForward:
      return OperationKind::kConvolution;
    case cudnn::kOpPointwise:
      return OperationKind::kPointwise;
    case cudnn::kOpAttentionForward:
      return OperationKind::kAttention;
    case cudnn::kOpBandMask:
      return OperationKind::kBandMask;
    case cudnn::kOpSoftmax:
      return OperationKind::kSoftmax;
    case cudnn::kOpReduction:
    case cudnn::kOpReshape:
    case cudnn::kOpRandom:
    case cudnn::kOpPagedCacheLoad:
    case cudnn::kOpBlockScaleQuantize:
    case cudnn::kOpBlockScaleDequantize:
      return OperationKind::kLight;
    default:
      return OperationKind::kUnknown;
  }
}

GraphShape graph_shape(const BackendOperation* const* operations, int count) {
  GraphShape found;
  found.mask = kMaskUnknown;
  const Graph graph(operations, count);
  if (count <= 0 || count > kBackendOperationsMax || !graph.all_understood()) return found;
  found.shape.function = "cudnnBackendExecute";
  const int matmuls = graph.count_of(OperationKind::kMatmul);
  const int convolutions = graph.count_of(OperationKind::kConvolution);
  const int attentions = graph.count_of(OperationKind::kAttention);
  if (matmuls + convolutions + attentions == 0) {
    const Modifiers modifiers = modifiers_of(graph);
    found.mask = modifiers.mask;
    found.lengths_at_run = modifiers.lengths_at_run;
  } else if (convolutions == 1 && matmuls + attentions == 0) {
    found.known = convolution_shape(graph, found.shape);
  } else if (attentions == 1 && count == 1) {
    found.known = single_attention(*operations[0], found.shape);
  } else if (matmuls == 1 && convolutions + attentions == 0) {
    found.known = matmul_shape(graph, found.shape);
  } else if (matmuls == 2 && convolutions + attentions == 0) {
    found.known = composed_attention(graph, found.shape);
  }
  return found;
}

}  // namespace llmprof::inject
