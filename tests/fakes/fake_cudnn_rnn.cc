// The part of fake_cuda that is cuDNN's recurrent layers: LSTM on the CPU, fp16, bf16 and fp32. Matrices lie as the
// algorithm wants: the persistent one has the biases in front.
#include <cmath>
#include <cstring>
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

struct FakeTensor {
  int type = 0;
  std::vector<int> dims, strides;
};
struct FakeData {
  int type = 0, steps = 0, batch = 0, size = 0;
};
struct FakeRnn {
  int algorithm = 0, type = 0;
  size_t input = 0, hidden = 0, layers = 0;

  size_t columns(size_t layer, int gate) const { return gate < 4 && layer == 0 ? input : hidden; }
  size_t layer_size(size_t layer) const { return 4 * hidden * (columns(layer, 0) + hidden + 2); }
  size_t size() const {
    size_t all = 0;
    for (size_t layer = 0; layer < layers; ++layer) all += layer_size(layer);
    return all;
  }
  // In elements.
  size_t place(size_t layer, int gate, bool bias) const {
    size_t at = 0;
    for (size_t i = 0; i < layer; ++i) at += layer_size(i);
    const size_t biases = 8 * hidden, matrices = layer_size(layer) - biases;
    const bool biases_first = algorithm == kRnnPersistStatic;
    if (bias) return at + (biases_first ? 0 : matrices) + static_cast<size_t>(gate) * hidden;
    at += biases_first ? biases : 0;
    for (int i = 0; i < gate; ++i) at += hidden * columns(layer, i);
    return at;
  }
};

DType dtype_of(int type) {
  return type == cudnn::kHalf ? DType::kFp16 : type == cudnn::kBfloat16 ? DType::kBf16 : DType::kFp32;
}
size_t element_bytes(int type) { return type == cudnn::kFloat ? 4 : 2; }
void put(int type, void* to, size_t at, float value) {
  if (type == cudnn::kHalf)
    static_cast<uint16_t*>(to)[at] = device::to_fp16(value);
  else if (type == cudnn::kBfloat16)
    static_cast<uint16_t*>(to)[at] = device::to_bf16(value);
  else
    static_cast<float*>(to)[at] = value;
}

struct Forward {
  FakeRnn rnn;
  FakeData x, y;
  const void *in, *weights;
  void* out;

  float weight(size_t layer, int gate, size_t row, size_t column) const {
    return static_cast<float>(device::element_at(
        dtype_of(rnn.type), weights, rnn.place(layer, gate, false) + row * rnn.columns(layer, gate) + column));
  }
  float bias(size_t layer, int gate, size_t row) const {
    return static_cast<float>(device::element_at(dtype_of(rnn.type), weights, rnn.place(layer, gate, true) + row));
  }
  void run() const {
    const size_t steps = static_cast<size_t>(x.steps), batch = static_cast<size_t>(x.batch);
    for (size_t sequence = 0; sequence < batch; ++sequence) {
      std::vector<std::vector<float>> rows(steps, std::vector<float>(rnn.input));
      for (size_t step = 0; step < steps; ++step)
        for (size_t i = 0; i < rnn.input; ++i)
          rows[step][i] =
              static_cast<float>(device::element_at(dtype_of(x.type), in, (step * batch + sequence) * rnn.input + i));
      for (size_t layer = 0; layer < rnn.layers; ++layer) run_layer(layer, rows);
      for (size_t step = 0; step < steps; ++step)
        for (size_t i = 0; i < rnn.hidden; ++i)
          put(y.type, out, (step * batch + sequence) * rnn.hidden + i, rows[step][i]);
    }
  }
  void run_layer(size_t layer, std::vector<std::vector<float>>& rows) const {
    std::vector<float> h(rnn.hidden, 0), c(rnn.hidden, 0);
    for (std::vector<float>& row : rows) {
      std::vector<float> next(rnn.hidden);
      for (size_t i = 0; i < rnn.hidden; ++i) {
        float gates[4];
        for (int gate = 0; gate < 4; ++gate) {
          gates[gate] = bias(layer, gate, i) + bias(layer, gate + 4, i);
          for (size_t k = 0; k < row.size(); ++k) gates[gate] += weight(layer, gate, i, k) * row[k];
          for (size_t k = 0; k < rnn.hidden; ++k) gates[gate] += weight(layer, gate + 4, i, k) * h[k];
        }
        const auto sigmoid = [](float v) { return 1 / (1 + std::exp(-v)); };
        c[i] = sigmoid(gates[1]) * c[i] + sigmoid(gates[0]) * std::tanh(gates[2]);
        next[i] = sigmoid(gates[3]) * std::tanh(c[i]);
      }
      for (float& value : next) {
        float stored = value;
        put(rnn.type, &stored, 0, value);
        value = static_cast<float>(device::element_at(dtype_of(rnn.type), &stored, 0));
      }
      h = next;
      row = std::move(next);
    }
  }
};

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int cudnnCreateTensorDescriptor(TensorDescriptor* tensor) {
  *tensor = reinterpret_cast<TensorDescriptor>(new FakeTensor);
  return kSuccess;
}
int cudnnDestroyTensorDescriptor(TensorDescriptor tensor) {
  delete reinterpret_cast<FakeTensor*>(tensor);
  return kSuccess;
}
int cudnnSetTensorNdDescriptor(TensorDescriptor tensor, int type, int count, const int* dims, const int* strides) {
  *reinterpret_cast<FakeTensor*>(tensor) = {type, {dims, dims + count}, {strides, strides + count}};
  return kSuccess;
}
int cudnnGetTensorNdDescriptor(TensorDescriptor tensor, int, int* type, int* count, int* dims, int*) {
  const FakeTensor& from = *reinterpret_cast<FakeTensor*>(tensor);
  *type = from.type;
  *count = static_cast<int>(from.dims.size());
  std::copy(from.dims.begin(), from.dims.end(), dims);
  return kSuccess;
}
int cudnnCreateRNNDescriptor(RnnDescriptor* rnn) {
  *rnn = reinterpret_cast<RnnDescriptor>(new FakeRnn);
  return kSuccess;
}
int cudnnDestroyRNNDescriptor(RnnDescriptor rnn) {
  delete reinterpret_cast<FakeRnn*>(rnn);
  return kSuccess;
}
int cudnnSetRNNDescriptor_v8(RnnDescriptor rnn, int algorithm, int cell, int bias, int, int, int type, int precision,
                             int, int32_t input, int32_t hidden, int32_t, int32_t layers, DropoutDescriptor,
                             uint32_t flags) {
  if (cell != kRnnLstm || bias != kRnnDoubleBias || precision != cudnn::kFloat || flags != kRnnPaddedIo)
    return kBadParameter;
  if (algorithm == kRnnPersistStaticSmall) return kNotSupported;
  *reinterpret_cast<FakeRnn*>(rnn) = {algorithm, type, static_cast<size_t>(input), static_cast<size_t>(hidden),
                                      static_cast<size_t>(layers)};
  return kSuccess;
}
int cudnnCreateRNNDataDescriptor(RnnDataDescriptor* data) {
  *data = reinterpret_cast<RnnDataDescriptor>(new FakeData);
  return kSuccess;
}
int cudnnDestroyRNNDataDescriptor(RnnDataDescriptor data) {
  delete reinterpret_cast<FakeData*>(data);
  return kSuccess;
}
int cudnnSetRNNDataDescriptor(RnnDataDescriptor data, int type, int layout, int steps, int batch, int size,
                              const int* lengths, void*) {
  for (int i = 0; i < batch; ++i)
    if (layout != kRnnSequenceMajor || lengths[i] != steps) return kBadParameter;
  *reinterpret_cast<FakeData*>(data) = {type, steps, batch, size};
  return kSuccess;
}
int cudnnGetRNNWeightSpaceSize(Handle, RnnDescriptor rnn, size_t* bytes) {
  const FakeRnn& of = *reinterpret_cast<FakeRnn*>(rnn);
  *bytes = of.size() * element_bytes(of.type);
  return kSuccess;
}
int cudnnGetRNNWeightParams(Handle, RnnDescriptor rnn, int32_t layer, size_t, const void* space, int32_t gate,
                            TensorDescriptor, void** matrix, TensorDescriptor, void** bias) {
  const FakeRnn& of = *reinterpret_cast<FakeRnn*>(rnn);
  char* const base = const_cast<char*>(static_cast<const char*>(space));
  *matrix = base + of.place(static_cast<size_t>(layer), gate, false) * element_bytes(of.type);
  *bias = base + of.place(static_cast<size_t>(layer), gate, true) * element_bytes(of.type);
  return kSuccess;
}
int cudnnGetRNNTempSpaceSizes(Handle, RnnDescriptor, int, RnnDataDescriptor, size_t* workspace, size_t* reserve) {
  *workspace = 1000;
  *reserve = 0;
  return kSuccess;
}
int cudnnRNNForward(Handle, RnnDescriptor rnn, int, const int32_t* lengths, RnnDataDescriptor x_layout, const void* x,
                    RnnDataDescriptor y_layout, void* y, TensorDescriptor, const void*, void*, TensorDescriptor,
                    const void*, void*, size_t weight_bytes, const void* weights, size_t workspace_bytes, void*, size_t,
                    void*) {
  const FakeRnn& of = *reinterpret_cast<FakeRnn*>(rnn);
  if (lengths == nullptr || workspace_bytes < 1000 || weight_bytes != of.size() * element_bytes(of.type))
    return kBadParameter;
  // A graph may run it any number of times, so it stays to the end.
  static std::vector<std::unique_ptr<Forward>> kept;
  kept.push_back(std::make_unique<Forward>(
      Forward{of, *reinterpret_cast<FakeData*>(x_layout), *reinterpret_cast<FakeData*>(y_layout), x, weights, y}));
  return cuLaunchHostWork([](void* data) { static_cast<Forward*>(data)->run(); }, kept.back().get());
}

#pragma GCC visibility pop

}  // extern "C"
