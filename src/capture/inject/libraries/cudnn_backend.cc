#include "capture/inject/libraries/cudnn_backend.h"

#include <pthread.h>

#include <atomic>

#include "capture/inject/libraries/cudnn_backend_table.h"
#include "capture/inject/locked.h"
#include "capture/inject/threads/reentry_guard.h"
#include "nvidia/cudnn_abi.h"

namespace llmprof::inject {

namespace {

struct Descriptor {
  int32_t type = -1;  // cudnnBackendDescriptorType_t
  BackendTensor tensor{};
  BackendOperation operation{};  // its parameters are also those of a pointwise or convolution descriptor
  GraphShape graph;              // of graphs and what is made from them
  bool overrides = false;        // of a variant pack
};

constexpr uint16_t kDescriptorsMax = 2048;
constexpr uint16_t kPlansMax = 512;  // in each of
constexpr uint32_t kPlanTables = 16;

using Descriptors = AddressTable<Descriptor, kDescriptorsMax>;
using Plans = AddressTable<CallShape, kPlansMax>;

pthread_mutex_t descriptors_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit Descriptors descriptors{};

struct PlanTable {
  pthread_mutex_t mutex;  // zero is PTHREAD_MUTEX_INITIALIZER
  Plans plans;
};
constinit PlanTable plan_tables[kPlanTables]{};

std::atomic<bool> any_used{false};
std::atomic<bool> any_override{false};
std::atomic<bool> displaced_told{false};

PlanTable& plan_table(const void* plan) {
  const uint64_t mixed = (reinterpret_cast<uintptr_t>(plan) >> 4) * 0xD6E8FEB86659FD93ULL;
  return plan_tables[(mixed >> 40) % kPlanTables];
}

void forget_plan(const void* plan) {
  PlanTable& table = plan_table(plan);
  const Locked lock(table.mutex);
  table.plans.erase(plan);
}

void add_plan(const void* plan, const CallShape& shape) {
  bool displaced = false;
  {
    PlanTable& table = plan_table(plan);
    const Locked lock(table.mutex);
    table.plans.add(plan, displaced) = shape;
  }
  if (!displaced || displaced_told.exchange(true, std::memory_order_relaxed)) return;
  ReentryGuard guard;
  if (!guard.nested()) {
    note("recorder-note", "More cuDNN plans were made than are kept track of (8192): the shapes of some are lost");
  }
}

bool find_plan(const void* plan, CallShape& shape) {
  PlanTable& table = plan_table(plan);
  const Locked lock(table.mutex);
  const CallShape* found = table.plans.find(plan);
  if (found == nullptr) return false;
  shape = *found;
  return true;
}

// Descriptors of other types are of no use for a shape. An operation that is not among them leaves its graph unknown.
bool is_followed(int type) {
  switch (type) {
    case cudnn::kPointwise:
    case cudnn::kConvolution:
    case cudnn::kEngine:
    case cudnn::kEngineConfig:
    case cudnn::kHeuristics:
    case cudnn::kPlan:
    case cudnn::kOperationGraph:
    case cudnn::kTensor:
      return true;
    default:
      return operation_kind(type) != OperationKind::kUnknown;
  }
}

// ---- values of attributes ----------------------------------------------------------------------------------------

struct Attribute {
  int name;
  int type;
  int64_t count;
  const void* elements;
};

bool read_one(const Attribute& attribute, int type, int32_t& value) {
  if (attribute.type != type || attribute.count != 1 || attribute.elements == nullptr) return false;
  value = *static_cast<const int32_t*>(attribute.elements);
  return true;
}

bool read_one(const Attribute& attribute, int64_t& value) {
  if (attribute.type != cudnn::kTypeInt64 || attribute.count != 1 || attribute.elements == nullptr) return false;
  value = *static_cast<const int64_t*>(attribute.elements);
  return true;
}

// A boolean of this interface is one byte.
bool read_flag(const Attribute& attribute, bool& value) {
  if (attribute.type != cudnn::kTypeBoolean || attribute.count != 1 || attribute.elements == nullptr) return false;
  value = *static_cast<const uint8_t*>(attribute.elements) != 0;
  return true;
}

bool read_small(const Attribute& attribute, int32_t (&values)[3]) {
  if (attribute.type != cudnn::kTypeInt64 || attribute.count < 1 || attribute.count > 3 ||
      attribute.elements == nullptr)
    return false;
  const int64_t* given = static_cast<const int64_t*>(attribute.elements);
  for (int64_t i = 0; i < attribute.count; ++i) {
    if (given[i] < INT32_MIN || given[i] > INT32_MAX) return false;
    values[i] = static_cast<int32_t>(given[i]);
  }
  return true;
}

const void* read_descriptor(const Attribute& attribute) {
  if (attribute.type != cudnn::kTypeDescriptor || attribute.count != 1 || attribute.elements == nullptr) return nullptr;
  return *static_cast<const void* const*>(attribute.elements);
}

Descriptor* followed(const Attribute& attribute, int type) {
  const void* named = read_descriptor(attribute);
  Descriptor* found = named == nullptr ? nullptr : descriptors.find(named);
  return found != nullptr && found->type == type ? found : nullptr;
}

// ---- attributes of each type -------------------------------------------------------------------------------------

void set_tensor(BackendTensor& tensor, const Attribute& attribute) {
  switch (attribute.name) {
    case cudnn::kTensorDataType:
      tensor.has_type = read_one(attribute, cudnn::kTypeDataType, tensor.type);
      return;
    case cudnn::kTensorDimensions: {
      tensor.count = 0;
      if (attribute.type != cudnn::kTypeInt64 || attribute.count < 1 || attribute.count > kBackendDimensionsMax ||
          attribute.elements == nullptr) {
        tensor.odd = true;
        return;
      }
      tensor.count = static_cast<uint8_t>(attribute.count);
      for (int i = 0; i < tensor.count; ++i) tensor.dims[i] = static_cast<const int64_t*>(attribute.elements)[i];
      return;
    }
    case cudnn::kTensorUniqueId:
      tensor.has_uid = read_one(attribute, tensor.uid);
      return;
    case cudnn::kTensorVectorCount: {
      int64_t packed = 0;  // of numbers that count as one along a dimension
      if (!read_one(attribute, packed) || packed != 1) tensor.odd = true;
      return;
    }
    case cudnn::kTensorIsVirtual:
      if (!read_flag(attribute, tensor.is_virtual)) tensor.odd = true;
      return;
    case cudnn::kTensorIsByValue:
      if (!read_flag(attribute, tensor.by_value)) tensor.odd = true;
      return;
    case cudnn::kTensorRaggedOffset:
      tensor.ragged = true;
      return;
    default:  // strides, alignment, order in memory: the sizes do not depend on them
      return;
  }
}

void set_parameters(BackendParameters& parameters, const Attribute& attribute) {
  const auto take = [&](int32_t(&values)[3], int bit) {
    if (!read_small(attribute, values)) parameters.odd = true;
    parameters.told = static_cast<uint8_t>(parameters.told | 1 << bit);
  };
  int64_t number = 0;
  switch (attribute.name) {
    case cudnn::kPointwiseMode:
      parameters.has_mode = read_one(attribute, cudnn::kTypePointwiseMode, parameters.mode);
      return;
    case cudnn::kPointwiseAxis:
      if (!read_one(attribute, number) || number < 0 || number >= kBackendDimensionsMax) parameters.odd = true;
      parameters.axis = static_cast<int32_t>(number);
      return;
    case cudnn::kConvolutionDilations:
      return take(parameters.dilation, 0);
    case cudnn::kConvolutionStrides:
      return take(parameters.stride, 1);
    case cudnn::kConvolutionPostPaddings:
      return take(parameters.padding_behind, 2);
    case cudnn::kConvolutionPrePaddings:
      return take(parameters.padding, 3);
    case cudnn::kConvolutionSpatialDims:
      if (!read_one(attribute, number) || number < 1 || number > 3) parameters.odd = true;
      parameters.spatial = static_cast<uint8_t>(number & 3);
      parameters.told |= 1 << 4;
      return;
    default:
      return;
  }
}

void set_role(BackendOperation& operation, Role role, const Attribute& attribute) {
  const Descriptor* tensor = followed(attribute, cudnn::kTensor);
  if (tensor == nullptr) {
    operation.odd = true;
    return;
  }
  operation.tensors[role] = tensor->tensor;
  operation.given = static_cast<uint8_t>(operation.given | 1 << role);
}

void set_operation_parameters(BackendOperation& operation, int type, const Attribute& attribute) {
  const Descriptor* named = followed(attribute, type);
  if (named == nullptr) {
    operation.odd = true;
    return;
  }
  operation.parameters = named->operation.parameters;
  operation.has_parameters = true;
}

void set_pointwise(BackendOperation& operation, const Attribute& attribute) {
  switch (attribute.name) {
    case cudnn::kOpPointwiseDescriptor:
      set_operation_parameters(operation, cudnn::kPointwise, attribute);
      if (!operation.parameters.has_mode || operation.parameters.odd) operation.odd = true;
      return;
    case cudnn::kOpPointwiseX:
      return set_role(operation, kPointwiseX, attribute);
    case cudnn::kOpPointwiseB:
      return set_role(operation, kPointwiseB, attribute);
    case cudnn::kOpPointwiseT:
      return set_role(operation, kPointwiseT, attribute);
    case cudnn::kOpPointwiseY:
      return set_role(operation, kPointwiseY, attribute);
    default:
      return;
  }
}

void set_convolution(BackendOperation& operation, const Attribute& attribute) {
  switch (attribute.name) {
    case cudnn::kOpConvolutionForwardConvolution:
      return set_operation_parameters(operation, cudnn::kConvolution, attribute);
    case cudnn::kOpConvolutionForwardW:
      return set_role(operation, kConvolutionW, attribute);
    case cudnn::kOpConvolutionForwardX:
      return set_role(operation, kConvolutionX, attribute);
    case cudnn::kOpConvolutionForwardY:
      return set_role(operation, kConvolutionY, attribute);
    default:
      return;
  }
}

void set_matmul(BackendOperation& operation, const Attribute& attribute) {
  switch (attribute.name) {
    case cudnn::kOpMatmulA:
      return set_role(operation, kMatmulA, attribute);
    case cudnn::kOpMatmulB:
      return set_role(operation, kMatmulB, attribute);
    case cudnn::kOpMatmulC:
      return set_role(operation, kMatmulC, attribute);
    case cudnn::kOpMatmulM:
    case cudnn::kOpMatmulN:
    case cudnn::kOpMatmulK:
      operation.lengths_at_run = true;
      return;
    case cudnn::kOpMatmulDescriptor:
      return;
    default:
      operation.odd = true;
      return;
  }
}

void set_attention(BackendOperation& operation, const Attribute& attribute) {
  const auto hides = [&](uint8_t mask) { operation.mask = mask > operation.mask ? mask : operation.mask; };
  switch (attribute.name) {
    case cudnn::kOpAttentionQ:
      return set_role(operation, kAttentionQ, attribute);
    case cudnn::kOpAttentionK:
      return set_role(operation, kAttentionK, attribute);
    case cudnn::kOpAttentionV:
      return set_role(operation, kAttentionV, attribute);
    case cudnn::kOpAttentionO:
      return set_role(operation, kAttentionO, attribute);
    case cudnn::kOpAttentionStats:
    case cudnn::kOpAttentionScale:
      return;
    case cudnn::kOpAttentionBlockMask:
      return hides(kMaskUnknown);
    case cudnn::kOpAttentionPageTableK:
    case cudnn::kOpAttentionPageTableV:
      operation.paged = true;
      return;
    case cudnn::kOpAttentionLengthsQ:
    case cudnn::kOpAttentionLengthsKv:
      operation.lengths_at_run = true;
      return;
    case cudnn::kOpAttentionSubgraph: {
      const Descriptor* graph = followed(attribute, cudnn::kOperationGraph);
      if (graph == nullptr || graph->graph.known) {
        operation.odd = true;
      } else {
        hides(graph->graph.mask);
        operation.lengths_at_run = operation.lengths_at_run || graph->graph.lengths_at_run;
      }
      return;
    }
    default:
      // Of a later version: it may change what the sizes mean.
      if (attribute.name < cudnn::kOpAttentionSubgraph || attribute.name > cudnn::kOpAttentionUnfuseFma)
        operation.odd = true;
      return;
  }
}

void set_band_mask(BackendOperation& operation, const Attribute& attribute) {
  switch (attribute.name) {
    case cudnn::kOpBandMaskX:
    case cudnn::kOpBandMaskB:
    case cudnn::kOpBandMaskY:
      return;
    case cudnn::kOpBandMaskLengthsKv:
    case cudnn::kOpBandMaskLengthsQ:
      operation.lengths_at_run = true;
      return;
    case cudnn::kOpBandMaskComparison: {
      int32_t mode = -1;
      operation.has_parameters = true;
      if (!read_one(attribute, cudnn::kTypePointwiseMode, mode) || mode != cudnn::kCompareGe)
        operation.mask = kMaskUnknown;
      return;
    }
    default:  // bounds, whose values come with the call
      operation.mask = kMaskUnknown;
      return;
  }
}

void set_graph(Descriptor& graph, const Attribute& attribute) {
  if (attribute.name != cudnn::kGraphOperations) return;
  graph.graph = {};
  graph.graph.mask = kMaskUnknown;
  if (attribute.type != cudnn::kTypeDescriptor || attribute.count < 1 || attribute.count > kBackendOperationsMax ||
      attribute.elements == nullptr)
    return;
  const BackendOperation* operations[kBackendOperationsMax];
  for (int64_t i = 0; i < attribute.count; ++i) {
    Descriptor* found = descriptors.find(static_cast<const void* const*>(attribute.elements)[i]);
    if (found == nullptr) return;
    BackendOperation& operation = found->operation;
    operation.kind = operation_kind(found->type);
    // What compares is told by its mode; without one it is not the plain mask.
    if (operation.kind == OperationKind::kBandMask && operation.mask == kMaskNone)
      operation.mask = operation.has_parameters ? kMaskCausal : kMaskUnknown;
    if (operation.kind == OperationKind::kPointwise && !operation.has_parameters) operation.odd = true;
    operations[i] = &operation;
  }
  graph.graph = graph_shape(operations, static_cast<int>(attribute.count));
}

// Heuristics and engines are of a graph, configurations of an engine, plans of a configuration.
void hand_on(Descriptor& descriptor, const Attribute& attribute, int name, int type) {
  if (attribute.name != name) return;
  const Descriptor* source = followed(attribute, type);
  descriptor.graph = source != nullptr ? source->graph : GraphShape{};
}

void set_attribute(Descriptor& descriptor, const Attribute& attribute) {
  switch (descriptor.type) {
    case cudnn::kTensor:
      return set_tensor(descriptor.tensor, attribute);
    case cudnn::kPointwise:
    case cudnn::kConvolution:
      return set_parameters(descriptor.operation.parameters, attribute);
    case cudnn::kOpPointwise:
      return set_pointwise(descriptor.operation, attribute);
    case cudnn::kOpConvolutionForward:
      return set_convolution(descriptor.operation, attribute);
    case cudnn::kOpMatmul:
      return set_matmul(descriptor.operation, attribute);
    case cudnn::kOpAttentionForward:
      return set_attention(descriptor.operation, attribute);
    case cudnn::kOpBandMask:
      return set_band_mask(descriptor.operation, attribute);
    case cudnn::kOperationGraph:
      return set_graph(descriptor, attribute);
    case cudnn::kHeuristics:
      return hand_on(descriptor, attribute, cudnn::kHeuristicsGraph, cudnn::kOperationGraph);
    case cudnn::kEngine:
      return hand_on(descriptor, attribute, cudnn::kEngineGraph, cudnn::kOperationGraph);
    case cudnn::kEngineConfig:
      return hand_on(descriptor, attribute, cudnn::kConfigEngine, cudnn::kEngine);
    case cudnn::kPlan:
      if (attribute.name == cudnn::kPlanJson) descriptor.graph = {};
      return hand_on(descriptor, attribute, cudnn::kPlanConfig, cudnn::kEngineConfig);
    default:
      return;
  }
}

bool is_pack_attribute(int name) { return name >= cudnn::kPackUniqueIds && name <= cudnn::kPackOverrideStrides; }

}  // namespace

void backend_created(int type, const void* descriptor) {
  // A pack is made and destroyed around each call.
  if (type == cudnn::kVariantPack || descriptor == nullptr) return;
  any_used.store(true, std::memory_order_relaxed);
  forget_plan(descriptor);
  const Locked lock(descriptors_mutex);
  if (!is_followed(type)) {
    descriptors.erase(descriptor);
    return;
  }
  bool displaced = false;
  descriptors.add(descriptor, displaced).type = type;
}

void backend_set(const void* descriptor, int attribute, int type, int64_t count, const void* elements) {
  if (is_pack_attribute(attribute)) {
    if (attribute < cudnn::kPackOverrideUniqueIds) return;
    const Locked lock(descriptors_mutex);
    bool displaced = false;
    Descriptor& pack = descriptors.add(descriptor, displaced);
    pack.type = cudnn::kVariantPack;
    pack.overrides = true;
    any_used.store(true, std::memory_order_relaxed);
    any_override.store(true, std::memory_order_release);
    return;
  }
  const Locked lock(descriptors_mutex);
  if (Descriptor* found = descriptors.find(descriptor)) set_attribute(*found, {attribute, type, count, elements});
}

void backend_got(const void* descriptor, int attribute, int type, int64_t count, const void* elements) {
  if (type != cudnn::kTypeDescriptor || elements == nullptr || count <= 0) return;
  if (attribute != cudnn::kHeuristicsResults && attribute != cudnn::kConfigEngine && attribute != cudnn::kPlanConfig)
    return;
  GraphShape shape;
  // A finalized plan is kept elsewhere.
  if (attribute == cudnn::kPlanConfig) shape.known = find_plan(descriptor, shape.shape);
  const Locked lock(descriptors_mutex);
  if (!shape.known) {
    const Descriptor* source = descriptors.find(descriptor);
    if (source == nullptr) return;
    shape = source->graph;
  }
  for (int64_t i = 0; i < count; ++i) {
    Descriptor* filled = descriptors.find(static_cast<const void* const*>(elements)[i]);
    if (filled != nullptr && (filled->type == cudnn::kEngineConfig || filled->type == cudnn::kEngine))
      filled->graph = shape;
  }
}

void backend_finalized(const void* descriptor) {
  GraphShape shape;
  {
    const Locked lock(descriptors_mutex);
    const Descriptor* found = descriptors.find(descriptor);
    if (found == nullptr || found->type != cudnn::kPlan) return;
    shape = found->graph;
    descriptors.erase(descriptor);
  }
  if (shape.known) add_plan(descriptor, shape.shape);
}

void backend_destroyed(const void* descriptor) {
  if (!any_used.load(std::memory_order_relaxed)) return;
  forget_plan(descriptor);
  const Locked lock(descriptors_mutex);
  descriptors.erase(descriptor);
}

bool plan_shape(const void* plan, const void* pack, CallShape& shape) {
  if (any_override.load(std::memory_order_acquire)) {
    const Locked lock(descriptors_mutex);
    const Descriptor* found = descriptors.find(pack);
    if (found != nullptr && found->overrides) return false;
  }
  return find_plan(plan, shape);
}

void abandon_cudnn_backend() {
  if (!any_used.load(std::memory_order_relaxed)) return;
  pthread_mutex_init(&descriptors_mutex, nullptr);
  descriptors.clear();
  for (PlanTable& table : plan_tables) {
    pthread_mutex_init(&table.mutex, nullptr);
    table.plans.clear();
  }
  any_used.store(false, std::memory_order_relaxed);
  any_override.store(false, std::memory_order_relaxed);
}

}  // namespace llmprof::inject
