#include "kernels/cuda/cudnn_graph.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

namespace llmprof::kernels::cuda {
namespace {

// All buffers here are aligned to 256 bytes; cuDNN knows no more than this.
constexpr int64_t kAlignment = 16;

CudnnGraph::Sizes dense(const CudnnGraph::Sizes& dims) {
  CudnnGraph::Sizes strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

}  // namespace

std::string cudnn_status_text(const cudnn::Api& api, int status) {
  std::array<char, 512> words{};
  if (api.last_error != nullptr) api.last_error(words.data(), words.size() - 1);
  const char* name = api.status_name != nullptr ? api.status_name(status) : nullptr;
  std::string text = name != nullptr ? fmt::format("{} ({})", name, status) : fmt::format("status {}", status);
  std::string reason(words.data());
  if (const size_t line = reason.find('\n'); line != std::string::npos) reason.resize(line);
  return reason.empty() ? text : text + ": " + reason;
}

Status cudnn_check(const cudnn::Api& api, int status, std::string_view doing) {
  if (status == cudnn::kSuccess) return {};
  return fail(fmt::format("{}: cuDNN says {}", doing, cudnn_status_text(api, status)));
}

std::optional<int> cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kFp32:
    case DType::kTf32:
      return cudnn::kFloat;
    case DType::kFp16:
      return cudnn::kHalf;
    case DType::kBf16:
      return cudnn::kBfloat16;
    case DType::kInt32:
      return cudnn::kInt32;
    default:
      return std::nullopt;
  }
}

void CudnnGraph::note(int status) {
  if (status == cudnn::kSuccess || refused_) return;
  refused_ = cudnn_check(cudnn_.library.api, status, doing_).error();
}

CudnnDescriptor CudnnGraph::create(int type, std::string_view what) {
  if (refused_) return nullptr;
  doing_ = what;
  cudnn::Descriptor descriptor = nullptr;
  note(cudnn_.library.api.desc_create(type, &descriptor));
  return CudnnDescriptor(descriptor, [destroy = cudnn_.library.api.desc_destroy](void* made) {
    if (made != nullptr) destroy(made);
  });
}

void CudnnGraph::set(const CudnnDescriptor& descriptor, int attribute, int type, int64_t count, const void* elements) {
  if (!refused_) note(cudnn_.library.api.desc_set(descriptor.get(), attribute, type, count, elements));
}
void CudnnGraph::set_int(const CudnnDescriptor& descriptor, int attribute, int type, int value) {
  set(descriptor, attribute, type, 1, &value);
}
void CudnnGraph::set_sizes(const CudnnDescriptor& descriptor, int attribute, const Sizes& values) {
  set(descriptor, attribute, cudnn::kTypeInt64, static_cast<int64_t>(values.size()), values.data());
}
void CudnnGraph::set_descriptor(const CudnnDescriptor& descriptor, int attribute, const CudnnDescriptor& value) {
  void* const raw = value.get();
  set(descriptor, attribute, cudnn::kTypeDescriptor, 1, &raw);
}
void CudnnGraph::set_tensor(const CudnnDescriptor& descriptor, int attribute, Tensor tensor) {
  if (!refused_ && tensor > 0) set_descriptor(descriptor, attribute, tensors_[static_cast<size_t>(tensor - 1)]);
}
void CudnnGraph::finalize(const CudnnDescriptor& descriptor) {
  if (!refused_) note(cudnn_.library.api.desc_finalize(descriptor.get()));
}
void CudnnGraph::keep_operation(const CudnnDescriptor& operation) {
  finalize(operation);
  operations_.push_back(operation);
}

CudnnGraph::Tensor CudnnGraph::add_tensor(int type, const Sizes& dims, const Sizes& strides, bool is_virtual,
                                          bool by_value) {
  const CudnnDescriptor tensor = create(cudnn::kTensor, "describing a tensor");
  tensors_.push_back(tensor);
  const int64_t id = static_cast<int64_t>(tensors_.size()), alignment = by_value ? 4 : kAlignment;
  set_int(tensor, cudnn::kTensorDataType, cudnn::kTypeDataType, type);
  set_sizes(tensor, cudnn::kTensorDimensions, dims);
  set_sizes(tensor, cudnn::kTensorStrides, strides);
  set_sizes(tensor, cudnn::kTensorUniqueId, {id});
  set_sizes(tensor, cudnn::kTensorAlignment, {alignment});
  const bool yes = true;
  if (is_virtual) set(tensor, cudnn::kTensorIsVirtual, cudnn::kTypeBoolean, 1, &yes);
  if (by_value) set(tensor, cudnn::kTensorIsByValue, cudnn::kTypeBoolean, 1, &yes);
  finalize(tensor);
  return id;
}
CudnnGraph::Tensor CudnnGraph::in_memory(DType dtype, const Sizes& dims, const Sizes& strides) {
  return add_tensor(cudnn_type(dtype).value_or(cudnn::kFloat), dims, strides, false, false);
}
CudnnGraph::Tensor CudnnGraph::between(int type, const Sizes& dims) { return between(type, dims, dense(dims)); }
CudnnGraph::Tensor CudnnGraph::between(int type, const Sizes& dims, const Sizes& strides) {
  return add_tensor(type, dims, strides, true, false);
}
CudnnGraph::Tensor CudnnGraph::add_number(int type, const void* value) {
  const Tensor tensor = add_tensor(type, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  numbers_.push_back({tensor, std::make_unique<char[]>(4)});
  std::memcpy(numbers_.back().bytes.get(), value, 4);
  return tensor;
}
CudnnGraph::Tensor CudnnGraph::number(float value) { return add_number(cudnn::kFloat, &value); }
CudnnGraph::Tensor CudnnGraph::number(int32_t value) { return add_number(cudnn::kInt32, &value); }

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor out, const Extents& extents) {
  const CudnnDescriptor kind = create(cudnn::kMatmul, "describing a product");
  set_int(kind, cudnn::kMatmulType, cudnn::kTypeDataType, cudnn::kFloat);
  finalize(kind);
  parts_.push_back(kind);
  const CudnnDescriptor operation = create(cudnn::kOpMatmul, "describing a product");
  set_descriptor(operation, cudnn::kOpMatmulDescriptor, kind);
  set_tensor(operation, cudnn::kOpMatmulA, a);
  set_tensor(operation, cudnn::kOpMatmulB, b);
  set_tensor(operation, cudnn::kOpMatmulC, out);
  set_tensor(operation, cudnn::kOpMatmulM, extents.m);
  set_tensor(operation, cudnn::kOpMatmulN, extents.n);
  set_tensor(operation, cudnn::kOpMatmulK, extents.k);
  keep_operation(operation);
}

void CudnnGraph::pointwise(const Pointwise& what, Tensor x, Tensor out) {
  const CudnnDescriptor kind = create(cudnn::kPointwise, "describing a pointwise operation");
  set_int(kind, cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, what.mode);
  set_int(kind, cudnn::kPointwisePrecision, cudnn::kTypeDataType, what.precision);
  if (what.axis >= 0) set_sizes(kind, cudnn::kPointwiseAxis, {what.axis});
  finalize(kind);
  parts_.push_back(kind);
  const CudnnDescriptor operation = create(cudnn::kOpPointwise, "describing a pointwise operation");
  set_descriptor(operation, cudnn::kOpPointwiseDescriptor, kind);
  set_tensor(operation, cudnn::kOpPointwiseX, x);
  set_tensor(operation, cudnn::kOpPointwiseB, what.b);
  set_tensor(operation, cudnn::kOpPointwiseT, what.test);
  set_tensor(operation, cudnn::kOpPointwiseY, out);
  keep_operation(operation);
}

void CudnnGraph::reduce(int mode, Tensor x, Tensor out) {
  const CudnnDescriptor kind = create(cudnn::kReduction, "describing a reduction");
  set_int(kind, cudnn::kReductionOperator, cudnn::kTypeReductionOperator, mode);
  set_int(kind, cudnn::kReductionType, cudnn::kTypeDataType, cudnn::kFloat);
  finalize(kind);
  parts_.push_back(kind);
  const CudnnDescriptor operation = create(cudnn::kOpReduction, "describing a reduction");
  set_descriptor(operation, cudnn::kOpReductionDescriptor, kind);
  set_tensor(operation, cudnn::kOpReductionX, x);
  set_tensor(operation, cudnn::kOpReductionY, out);
  keep_operation(operation);
}

void CudnnGraph::load_pages(Tensor pages, Tensor table, Tensor lengths, Tensor out) {
  const CudnnDescriptor operation = create(cudnn::kOpPagedCacheLoad, "describing a cache of pages");
  set_tensor(operation, cudnn::kOpPagedCacheLoadContainer, pages);
  set_tensor(operation, cudnn::kOpPagedCacheLoadTable, table);
  set_tensor(operation, cudnn::kOpPagedCacheLoadLengths, lengths);
  set_tensor(operation, cudnn::kOpPagedCacheLoadY, out);
  keep_operation(operation);
}

void CudnnGraph::convolve(Tensor x, Tensor filters, Tensor out, const Sizes& padding, const Sizes& stride) {
  const CudnnDescriptor kind = create(cudnn::kConvolution, "describing a convolution");
  set_int(kind, cudnn::kConvolutionType, cudnn::kTypeDataType, cudnn::kFloat);
  set_int(kind, cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, cudnn::kCrossCorrelation);
  set_sizes(kind, cudnn::kConvolutionSpatialDims, {static_cast<int64_t>(padding.size())});
  set_sizes(kind, cudnn::kConvolutionPrePaddings, padding);
  set_sizes(kind, cudnn::kConvolutionPostPaddings, padding);
  set_sizes(kind, cudnn::kConvolutionStrides, stride);
  set_sizes(kind, cudnn::kConvolutionDilations, Sizes(padding.size(), 1));
  finalize(kind);
  parts_.push_back(kind);
  const CudnnDescriptor operation = create(cudnn::kOpConvolutionForward, "describing a convolution");
  const float one = 1, zero = 0;
  set_descriptor(operation, cudnn::kOpConvolutionForwardConvolution, kind);
  set_tensor(operation, cudnn::kOpConvolutionForwardX, x);
  set_tensor(operation, cudnn::kOpConvolutionForwardW, filters);
  set_tensor(operation, cudnn::kOpConvolutionForwardY, out);
  set(operation, cudnn::kOpConvolutionForwardAlpha, cudnn::kTypeFloat, 1, &one);
  set(operation, cudnn::kOpConvolutionForwardBeta, cudnn::kTypeFloat, 1, &zero);
  keep_operation(operation);
}

CudnnDescriptor CudnnGraph::close() {
  const CudnnDescriptor graph = create(cudnn::kOperationGraph, "describing the graph");
  std::vector<void*> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  set(graph, cudnn::kGraphHandle, cudnn::kTypeHandle, 1, &cudnn_.handle);
  set(graph, cudnn::kGraphOperations, cudnn::kTypeDescriptor, static_cast<int64_t>(operations.size()),
      operations.data());
  finalize(graph);
  return graph;
}

// What a heuristic or a plan refuses is no error: another one may do.
void CudnnGraph::add_plans(const CudnnDescriptor& graph, int mode, std::string_view name, size_t most,
                           std::vector<CudnnPlan>& plans) {
  const cudnn::Api& api = cudnn_.library.api;
  const CudnnDescriptor heuristics = create(cudnn::kHeuristics, "asking for plans");
  set_descriptor(heuristics, cudnn::kHeuristicsGraph, graph);
  set_int(heuristics, cudnn::kHeuristicsMode, cudnn::kTypeHeuristicsMode, mode);
  finalize(heuristics);
  std::vector<CudnnDescriptor> configs;
  std::vector<void*> raw;
  for (size_t i = 0; i < most && !refused_; ++i) {
    configs.push_back(create(cudnn::kEngineConfig, "asking for plans"));
    raw.push_back(configs.back().get());
  }
  int64_t found = 0;
  if (!refused_)
    note(api.desc_get(heuristics.get(), cudnn::kHeuristicsResults, cudnn::kTypeDescriptor,
                      static_cast<int64_t>(raw.size()), &found, raw.data()));
  for (size_t i = 0; i < configs.size() && static_cast<int64_t>(i) < found && plans.size() < most; ++i) {
    refused_.reset();
    const CudnnDescriptor plan = create(cudnn::kPlan, "making a plan");
    set(plan, cudnn::kPlanHandle, cudnn::kTypeHandle, 1, &cudnn_.handle);
    set_descriptor(plan, cudnn::kPlanConfig, configs[i]);
    finalize(plan);
    CudnnPlan made{fmt::format("{} #{}", name, i), plan, 0};
    int64_t count = 0;
    if (!refused_)
      note(api.desc_get(plan.get(), cudnn::kPlanWorkspaceBytes, cudnn::kTypeInt64, 1, &count, &made.workspace_bytes));
    parts_.push_back(configs[i]);
    if (!refused_) plans.push_back(std::move(made));
  }
}

Result<std::vector<CudnnPlan>> CudnnGraph::plans(size_t most) {
  const CudnnDescriptor graph = close();
  parts_.push_back(graph);
  std::vector<CudnnPlan> plans;
  if (refused_) return tl::unexpected<Error>(*refused_);
  add_plans(graph, cudnn::kHeuristicsA, "A", most, plans);
  std::optional<Error> first = std::exchange(refused_, std::nullopt);
  if (plans.empty()) add_plans(graph, cudnn::kHeuristicsFallback, "fallback", most, plans);
  if (first) refused_ = std::move(first);
  const std::optional<Error> why = std::move(refused_);
  refused_.reset();
  if (!plans.empty()) return plans;
  return why ? tl::unexpected<Error>(*why) : fail("cuDNN has no plan for this graph");
}

Result<CudnnDescriptor> CudnnGraph::pack(const std::vector<Binding>& memory, void* workspace) {
  Sizes ids;
  std::vector<void*> addresses;
  for (const Binding& binding : memory) {
    ids.push_back(binding.tensor);
    addresses.push_back(binding.address);
  }
  for (const Number& number : numbers_) {
    ids.push_back(number.tensor);
    addresses.push_back(number.bytes.get());
  }
  const CudnnDescriptor pack = create(cudnn::kVariantPack, "binding memory to a graph");
  set_sizes(pack, cudnn::kPackUniqueIds, ids);
  set(pack, cudnn::kPackPointers, cudnn::kTypeVoidPointer, static_cast<int64_t>(addresses.size()), addresses.data());
  set(pack, cudnn::kPackWorkspace, cudnn::kTypeVoidPointer, 1, &workspace);
  finalize(pack);
  if (!refused_) return pack;
  return tl::unexpected<Error>(*std::exchange(refused_, std::nullopt));
}

}  // namespace llmprof::kernels::cuda
