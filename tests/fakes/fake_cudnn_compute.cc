// The part of fake_cuda that is cuDNN's backend API: descriptors keep what they are given, a plan interprets its graph
// on the CPU. It refuses what the real one was seen to refuse: use before finalising, a product of weights whose type
// is not that of the values, attention without the logarithm of its sums.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/elements.h"
#include "fake_cuda.h"
#include "nvidia/cudnn_abi.h"

using namespace llmprof;
using namespace llmprof::cudnn;

extern "C" int cuLaunchHostWork(void (*work)(void*), void* data);

namespace {

std::string last_error;
int refuse(int status, std::string why) {
  last_error = std::move(why);
  return status;
}

struct FakeDescriptor {
  int type = 0;
  bool finalized = false;
  std::map<int, std::vector<char>> values;
  int index = 0;  // of a configuration: its place among the heuristic's
  bool has(int attribute) const { return values.count(attribute) != 0; }
  template <class T>
  std::vector<T> all(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> out(found->second.size() / sizeof(T));
    std::memcpy(out.data(), found->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(int attribute, T otherwise = {}) const {
    const std::vector<T> values_of = all<T>(attribute);
    return values_of.empty() ? otherwise : values_of[0];
  }
  const FakeDescriptor* descriptor(int attribute) const {
    return static_cast<const FakeDescriptor*>(one<void*>(attribute, nullptr));
  }
  std::vector<const FakeDescriptor*> descriptors(int attribute) const {
    std::vector<const FakeDescriptor*> out;
    for (void* value : all<void*>(attribute)) out.push_back(static_cast<const FakeDescriptor*>(value));
    return out;
  }
};

size_t bytes_of(int type) {
  switch (type) {
    case cudnn::kTypeBoolean:
    case cudnn::kTypeChar:
      return 1;
    case cudnn::kTypeInt64:
    case cudnn::kTypeVoidPointer:
    case cudnn::kTypeDescriptor:
    case kTypeHandle:
      return 8;
    default:
      return 4;
  }
}

// A tensor as dense numbers in the order of its dimensions.
struct Values {
  std::vector<int64_t> dims;
  std::vector<float> data;
  explicit Values(std::vector<int64_t> sizes) : dims(std::move(sizes)) {
    int64_t count = 1;
    for (const int64_t size : dims) count *= size;
    data.resize(static_cast<size_t>(count));
  }
  // Of an element of a tensor of `whole` dimensions; dimensions of one are repeated.
  float at(size_t index, const std::vector<int64_t>& whole) const {
    size_t place = 0, step = 1;
    for (size_t i = whole.size(); i-- > 0;) {
      const size_t coordinate = index % static_cast<size_t>(whole[i]);
      index /= static_cast<size_t>(whole[i]);
      if (dims[i] > 1) place += coordinate * step;
      step *= static_cast<size_t>(dims[i]);
    }
    return data[place];
  }
};

DType dtype_of(int type) {
  return type == cudnn::kHalf       ? DType::kFp16
         : type == cudnn::kBfloat16 ? DType::kBf16
         : type == cudnn::kInt32    ? DType::kInt32
                                    : DType::kFp32;
}
float rounded(int type, float value) {
  if (type == cudnn::kHalf) return device::from_fp16(device::to_fp16(value));
  if (type == cudnn::kBfloat16) return device::from_bf16(device::to_bf16(value));
  return value;
}

class Interpreter {
 public:
  Interpreter(const FakeDescriptor& graph, std::map<int64_t, void*> addresses, std::map<int64_t, float> numbers)
      : graph_(graph), addresses_(std::move(addresses)), numbers_(std::move(numbers)) {}
  // `wrong`: the last row of the result is left as it was.
  void run(bool wrong) {
    wrong_ = wrong;
    for (const FakeDescriptor* operation : graph_.descriptors(cudnn::kGraphOperations)) {
      if (operation->type == cudnn::kOpMatmul) matmul(*operation);
      if (operation->type == cudnn::kOpPointwise) pointwise(*operation);
      if (operation->type == cudnn::kOpReduction) reduce(*operation);
      if (operation->type == cudnn::kOpPagedCacheLoad) load_pages(*operation);
      if (operation->type == cudnn::kOpConvolutionForward) convolve(*operation);
    }
  }

 private:
  static int64_t id(const FakeDescriptor& tensor) { return tensor.one<int64_t>(cudnn::kTensorUniqueId); }
  static std::vector<int64_t> dims(const FakeDescriptor& tensor) {
    return tensor.all<int64_t>(cudnn::kTensorDimensions);
  }
  size_t place(const FakeDescriptor& tensor, size_t index) const {
    const std::vector<int64_t> sizes = dims(tensor), strides = tensor.all<int64_t>(kTensorStrides);
    size_t at = 0;
    for (size_t i = sizes.size(); i-- > 0;) {
      at += index % static_cast<size_t>(sizes[i]) * static_cast<size_t>(strides[i]);
      index /= static_cast<size_t>(sizes[i]);
    }
    return at;
  }
  Values read(const FakeDescriptor& tensor) const {
    if (tensor.one<char>(cudnn::kTensorIsVirtual)) return inner_.at(id(tensor));
    Values values(dims(tensor));
    if (tensor.one<char>(cudnn::kTensorIsByValue)) {
      values.data[0] = numbers_.at(id(tensor));
      return values;
    }
    const DType type = dtype_of(tensor.one<int>(cudnn::kTensorDataType));
    for (size_t i = 0; i < values.data.size(); ++i)
      values.data[i] = static_cast<float>(device::element_at(type, addresses_.at(id(tensor)), place(tensor, i)));
    return values;
  }
  void write(const FakeDescriptor& tensor, Values values) {
    const int type = tensor.one<int>(cudnn::kTensorDataType);
    for (float& value : values.data) value = rounded(type, value);
    if (tensor.one<char>(cudnn::kTensorIsVirtual)) {
      inner_.erase(id(tensor));
      inner_.emplace(id(tensor), std::move(values));
      return;
    }
    void* const to = addresses_.at(id(tensor));
    const size_t left_out = wrong_ ? static_cast<size_t>(values.dims.back()) : 0;
    for (size_t i = 0; i + left_out < values.data.size(); ++i) {
      const size_t at = place(tensor, i);
      if (type == cudnn::kHalf)
        static_cast<uint16_t*>(to)[at] = device::to_fp16(values.data[i]);
      else if (type == cudnn::kBfloat16)
        static_cast<uint16_t*>(to)[at] = device::to_bf16(values.data[i]);
      else
        static_cast<float*>(to)[at] = values.data[i];
    }
  }
  void matmul(const FakeDescriptor& operation) {
    const Values a = read(*operation.descriptor(cudnn::kOpMatmulA)), b = read(*operation.descriptor(cudnn::kOpMatmulB));
    Values c(dims(*operation.descriptor(cudnn::kOpMatmulC)));
    const size_t heads = static_cast<size_t>(a.dims[1]), group = heads / static_cast<size_t>(b.dims[1]);
    const size_t rows = static_cast<size_t>(a.dims[2]), inner = static_cast<size_t>(a.dims[3]);
    const size_t columns = static_cast<size_t>(b.dims[3]);
    for (size_t matrix = 0; matrix < static_cast<size_t>(a.dims[0]) * heads; ++matrix) {
      const float* const left = a.data.data() + matrix * rows * inner;
      const size_t other = matrix / heads * static_cast<size_t>(b.dims[1]) + matrix % heads / group;
      const float* const right = b.data.data() + other * inner * columns;
      for (size_t row = 0; row < rows; ++row) {
        for (size_t column = 0; column < columns; ++column) {
          float sum = 0;
          for (size_t k = 0; k < inner; ++k) sum += left[row * inner + k] * right[k * columns + column];
          c.data[(matrix * rows + row) * columns + column] = sum;
        }
      }
    }
    write(*operation.descriptor(cudnn::kOpMatmulC), std::move(c));
  }
  void pointwise(const FakeDescriptor& operation) {
    const FakeDescriptor& kind = *operation.descriptor(cudnn::kOpPointwiseDescriptor);
    const Values x = read(*operation.descriptor(cudnn::kOpPointwiseX));
    const FakeDescriptor* const second = operation.descriptor(cudnn::kOpPointwiseB);
    const FakeDescriptor* const test = operation.descriptor(cudnn::kOpPointwiseT);
    const Values b = second != nullptr ? read(*second) : Values({1, 1, 1, 1});
    const Values t = test != nullptr ? read(*test) : Values({1, 1, 1, 1});
    Values y(dims(*operation.descriptor(cudnn::kOpPointwiseY)));
    const int mode = kind.one<int>(cudnn::kPointwiseMode);
    const size_t axis = static_cast<size_t>(kind.one<int64_t>(cudnn::kPointwiseAxis));
    for (size_t i = 0; i < y.data.size(); ++i) {
      const float left = x.at(i, y.dims), right = b.at(i, y.dims);
      size_t index = i;
      for (size_t d = y.dims.size() - 1; d > axis; --d) index /= static_cast<size_t>(y.dims[d]);
      y.data[i] = mode == cudnn::kAdd            ? left + right
                  : mode == cudnn::kMultiply     ? left * right
                  : mode == kDivide              ? left / right
                  : mode == kSubtract            ? left - right
                  : mode == cudnn::kExp          ? std::exp(left)
                  : mode == kLog                 ? std::log(left)
                  : mode == cudnn::kCompareGe    ? static_cast<float>(left >= right)
                  : mode == kCompareLess         ? static_cast<float>(left < right)
                  : mode == kAnd                 ? static_cast<float>(left != 0 && right != 0)
                  : mode == cudnn::kGenIndex     ? static_cast<float>(index % static_cast<size_t>(y.dims[axis]))
                  : mode == cudnn::kBinarySelect ? (t.at(i, y.dims) != 0 ? left : right)
                                                 : NAN;
    }
    write(*operation.descriptor(cudnn::kOpPointwiseY), std::move(y));
  }
  // Keys turned or values as they are, by the strides of the result.
  void load_pages(const FakeDescriptor& operation) {
    const Values pages = read(*operation.descriptor(kOpPagedCacheLoadContainer));
    const Values table = read(*operation.descriptor(kOpPagedCacheLoadTable));
    const Values lengths = read(*operation.descriptor(kOpPagedCacheLoadLengths));
    const FakeDescriptor& out = *operation.descriptor(kOpPagedCacheLoadY);
    Values y(dims(out));
    const bool turned = out.all<int64_t>(kTensorStrides)[2] == 1;
    const int64_t heads = y.dims[1], head = y.dims[turned ? 2 : 3], keys = y.dims[turned ? 3 : 2];
    const int64_t tokens = pages.dims[2];
    for (int64_t i = 0; i < static_cast<int64_t>(y.data.size()); ++i) {
      const int64_t element = turned ? i / keys % head : i % head, key = turned ? i % keys : i / head % keys;
      const int64_t row = i / (head * keys), sequence = row / heads;
      // What lies behind the end of a sequence nobody may look at.
      float value = NAN;
      if (static_cast<float>(key) < lengths.data[static_cast<size_t>(sequence)]) {
        const size_t entry = static_cast<size_t>(sequence * table.dims[2] + key / tokens);
        const int64_t page = static_cast<int64_t>(table.data[entry]);
        value =
            pages.data[static_cast<size_t>(((page * heads + row % heads) * tokens + key % tokens) * head + element)];
      }
      y.data[static_cast<size_t>(i)] = value;
    }
    write(out, std::move(y));
  }
  // Over the last dimension.
  void reduce(const FakeDescriptor& operation) {
    const Values x = read(*operation.descriptor(kOpReductionX));
    Values y(dims(*operation.descriptor(kOpReductionY)));
    const bool most = operation.descriptor(kOpReductionDescriptor)->one<int>(kReductionOperator) == kReduceMax;
    const size_t length = x.data.size() / y.data.size();
    for (size_t i = 0; i < y.data.size(); ++i) {
      y.data[i] = most ? -INFINITY : 0;
      for (size_t e = 0; e < length; ++e)
        y.data[i] = most ? std::max(y.data[i], x.data[i * length + e]) : y.data[i] + x.data[i * length + e];
    }
    write(*operation.descriptor(kOpReductionY), std::move(y));
  }
  void convolve(const FakeDescriptor& operation) {
    const FakeDescriptor& kind = *operation.descriptor(cudnn::kOpConvolutionForwardConvolution);
    const Values x = read(*operation.descriptor(cudnn::kOpConvolutionForwardX));
    const Values w = read(*operation.descriptor(cudnn::kOpConvolutionForwardW));
    Values y(dims(*operation.descriptor(cudnn::kOpConvolutionForwardY)));
    const std::vector<int64_t> padding = kind.all<int64_t>(cudnn::kConvolutionPrePaddings);
    const std::vector<int64_t> stride = kind.all<int64_t>(cudnn::kConvolutionStrides);
    size_t place_y = 0;
    for (int64_t n = 0; n < y.dims[0]; ++n)
      for (int64_t k = 0; k < y.dims[1]; ++k)
        for (int64_t row = 0; row < y.dims[2]; ++row)
          for (int64_t column = 0; column < y.dims[3]; ++column) {
            float sum = 0;
            for (int64_t c = 0; c < w.dims[1]; ++c)
              for (int64_t r = 0; r < w.dims[2]; ++r)
                for (int64_t s = 0; s < w.dims[3]; ++s) {
                  const int64_t h = row * stride[0] + r - padding[0], v = column * stride[1] + s - padding[1];
                  if (h < 0 || v < 0 || h >= x.dims[2] || v >= x.dims[3]) continue;
                  sum += x.data[static_cast<size_t>(((n * x.dims[1] + c) * x.dims[2] + h) * x.dims[3] + v)] *
                         w.data[static_cast<size_t>(((k * w.dims[1] + c) * w.dims[2] + r) * w.dims[3] + s)];
                }
            y.data[place_y++] = sum;
          }
    write(*operation.descriptor(cudnn::kOpConvolutionForwardY), std::move(y));
  }

  const FakeDescriptor& graph_;
  std::map<int64_t, void*> addresses_;
  std::map<int64_t, float> numbers_;
  std::map<int64_t, Values> inner_;
  bool wrong_ = false;
};

// What makes cuDNN find no kernel for a graph.
std::string objection(const FakeDescriptor& graph) {
  int products = 0, logs = 0, loads = 0, bounds = 0;
  for (const FakeDescriptor* operation : graph.descriptors(cudnn::kGraphOperations)) {
    if (operation->type == cudnn::kOpPointwise &&
        operation->descriptor(cudnn::kOpPointwiseDescriptor)->one<int>(cudnn::kPointwiseMode) == kLog)
      ++logs;
    if (operation->type == cudnn::kOpPointwise &&
        operation->descriptor(cudnn::kOpPointwiseDescriptor)->one<int>(cudnn::kPointwiseMode) == kCompareLess)
      ++bounds;
    if (operation->type == cudnn::kOpPagedCacheLoad) ++loads;
    if (operation->type != cudnn::kOpMatmul) continue;
    ++products;
    if (loads > 0 && !operation->has(cudnn::kOpMatmulM))
      return "a product of pages is not told how many rows there are";
    if (operation->descriptor(cudnn::kOpMatmulA)->one<int>(cudnn::kTensorDataType) !=
        operation->descriptor(cudnn::kOpMatmulB)->one<int>(cudnn::kTensorDataType))
      return "the operands of a product have different types";
  }
  if (products == 2 && logs != 1) return "the pattern of attention is not complete";
  if (loads > 0 && fake_cuda_script()->cudnn_version < 90500) return "caches of pages come with 9.5";
  if (loads > 0 && bounds != 2) return "caches of pages need a mask of the lengths";
  return {};
}

struct Execution {
  const FakeDescriptor* graph;
  std::map<int64_t, void*> addresses;
  std::map<int64_t, float> numbers;
  bool wrong;
};

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

size_t cudnnGetVersion() { return fake_cuda_script()->cudnn_version; }
size_t cudnnGetCudartVersion() { return 12080; }
const char* cudnnGetErrorString(int status) {
  return status == kNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
}
void cudnnGetLastErrorString(char* message, size_t bytes) { std::strncpy(message, last_error.c_str(), bytes); }
int cudnnCreate(Handle* handle) {
  if (fake_cuda_script()->cudnn_status != 0) return fake_cuda_script()->cudnn_status;
  *handle = reinterpret_cast<Handle>(&last_error);
  return kSuccess;
}
int cudnnDestroy(Handle) { return kSuccess; }
int cudnnSetStream(Handle, Stream) { return kSuccess; }

int cudnnBackendCreateDescriptor(int type, Descriptor* descriptor) {
  FakeDescriptor* const made = new FakeDescriptor;
  made->type = type;
  *descriptor = made;
  ++fake_cuda_script()->cudnn_descriptors;
  return kSuccess;
}
int cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  delete static_cast<FakeDescriptor*>(descriptor);
  --fake_cuda_script()->cudnn_descriptors;
  return kSuccess;
}
int cudnnBackendSetAttribute(Descriptor descriptor, int attribute, int type, int64_t count, const void* elements) {
  FakeDescriptor& to = *static_cast<FakeDescriptor*>(descriptor);
  if (to.finalized) return refuse(kBadParameter, "the descriptor is finalized");
  if (type == cudnn::kTypeDescriptor) {
    for (int64_t i = 0; i < count; ++i)
      if (!static_cast<const FakeDescriptor*>(static_cast<void* const*>(elements)[i])->finalized)
        return refuse(kBadParameter, "a descriptor is not finalized");
  }
  const char* const from = static_cast<const char*>(elements);
  to.values[attribute].assign(from, from + bytes_of(type) * static_cast<size_t>(count));
  return kSuccess;
}
int cudnnBackendFinalize(Descriptor descriptor) {
  FakeDescriptor& to = *static_cast<FakeDescriptor*>(descriptor);
  if (to.type == cudnn::kTensor)
    for (const int needed : {cudnn::kTensorDataType, cudnn::kTensorDimensions, kTensorStrides, kTensorAlignment})
      if (!to.has(needed)) return refuse(kBadParameter, "a tensor lacks an attribute");
  if (to.type == cudnn::kOperationGraph && (!to.has(kGraphHandle) || !to.has(cudnn::kGraphOperations)))
    return refuse(kBadParameter, "a graph lacks an attribute");
  if (to.type == cudnn::kPlan) {
    const FakeDescriptor* const config = to.descriptor(cudnn::kPlanConfig);
    if (config == nullptr || !to.has(kPlanHandle)) return refuse(kBadParameter, "a plan lacks an attribute");
    if (config->index == fake_cuda_script()->cudnn_refused_plan) return refuse(kNotSupported, "this plan is refused");
  }
  to.finalized = true;
  return kSuccess;
}
int cudnnBackendGetAttribute(Descriptor descriptor, int attribute, int, int64_t requested, int64_t* count,
                             void* elements) {
  const FakeDescriptor& from = *static_cast<const FakeDescriptor*>(descriptor);
  if (attribute == kPlanWorkspaceBytes) {
    *count = 1;
    *static_cast<int64_t*>(elements) = 1000 * (from.descriptor(cudnn::kPlanConfig)->index + 1);
    return kSuccess;
  }
  if (attribute != cudnn::kHeuristicsResults) return refuse(kBadParameter, "no such attribute");
  const FakeDescriptor* const graph = from.descriptor(cudnn::kHeuristicsGraph);
  if (const std::string why = objection(*graph); !why.empty()) {
    *count = 0;
    last_error = why;
    return kSuccess;
  }
  const bool fallback = from.one<int>(kHeuristicsMode) == kHeuristicsFallback;
  *count = std::min<int64_t>(requested, fake_cuda_script()->algorithms);
  for (int64_t i = 0; i < *count; ++i) {
    FakeDescriptor& config = *static_cast<FakeDescriptor*>(static_cast<void**>(elements)[i]);
    const void* const raw = graph;
    config.values[cudnn::kEngineGraph].assign(reinterpret_cast<const char*>(&raw),
                                              reinterpret_cast<const char*>(&raw) + sizeof raw);
    config.index = static_cast<int>(i) + (fallback ? 100 : 0);
    config.finalized = true;
  }
  return kSuccess;
}
int cudnnBackendExecute(Handle, Descriptor plan, Descriptor pack) {
  const FakeDescriptor& made = *static_cast<const FakeDescriptor*>(plan);
  const FakeDescriptor& memory = *static_cast<const FakeDescriptor*>(pack);
  if (!made.finalized || !memory.finalized) return refuse(kBadParameter, "not finalized");
  const FakeDescriptor& config = *made.descriptor(cudnn::kPlanConfig);
  const FakeDescriptor* const graph = config.descriptor(cudnn::kEngineGraph);
  std::map<int64_t, void*> addresses;
  std::map<int64_t, float> numbers;
  const std::vector<int64_t> ids = memory.all<int64_t>(cudnn::kPackUniqueIds);
  const std::vector<void*> pointers = memory.all<void*>(kPackPointers);
  for (size_t i = 0; i < ids.size(); ++i) addresses[ids[i]] = pointers[i];
  // Numbers are read at the call, memory when it runs.
  for (const FakeDescriptor* operation : graph->descriptors(cudnn::kGraphOperations)) {
    const FakeDescriptor* const b =
        operation->type == cudnn::kOpPointwise ? operation->descriptor(cudnn::kOpPointwiseB) : nullptr;
    if (b == nullptr || !b->one<char>(cudnn::kTensorIsByValue)) continue;
    const int64_t id = b->one<int64_t>(cudnn::kTensorUniqueId);
    if (addresses.count(id) == 0) return refuse(kBadParameter, "a number is not bound");
    const bool integer = b->one<int>(cudnn::kTensorDataType) == cudnn::kInt32;
    numbers[id] = integer ? static_cast<float>(*static_cast<const int32_t*>(addresses[id]))
                          : *static_cast<const float*>(addresses[id]);
  }
  // A captured graph may run it any number of times, so it stays to the end.
  static std::vector<std::unique_ptr<Execution>> kept;
  kept.push_back(std::make_unique<Execution>(
      Execution{graph, addresses, numbers, config.index == fake_cuda_script()->wrong_algorithm}));
  return cuLaunchHostWork(
      [](void* data) {
        const Execution& of = *static_cast<Execution*>(data);
        Interpreter(*of.graph, of.addresses, of.numbers).run(of.wrong);
      },
      kept.back().get());
}

#pragma GCC visibility pop

}  // extern "C"
