// LSTM layers by cuDNN, with each of its algorithms: one product per step, or a kernel that stays for all steps.
#include "kernels/reference/lstm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/elements.h"
#include "device/fill.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/ops.h"
#include "ops/layers.h"

namespace llmprof::kernels::cuda {
namespace {

namespace dnn = cudnn;

struct Algorithm {
  int number;
  const char* name;
};
constexpr Algorithm kAlgorithms[] = {{dnn::kRnnStandard, "standard"},
                                     {dnn::kRnnPersistStatic, "persistent"},
                                     {dnn::kRnnPersistStaticSmall, "persistent, small"}};

// out, x, weights, lengths
class LstmOp : public CudaOp {
 public:
  LstmOp(Device& device, const OpParams& params) : CudaOp(device, params), of_(params) {}
  ~LstmOp() override {
    if (cudnn_ == nullptr) return;
    for (const std::unique_ptr<Way>& way : ways_)
      if (way->rnn != nullptr) api().rnn_destroy(way->rnn);
    for (const dnn::RnnDataDescriptor data : {x_layout_, y_layout_})
      if (data != nullptr) api().rnn_data_destroy(data);
    for (const dnn::TensorDescriptor tensor : {state_layout_, matrix_, bias_})
      if (tensor != nullptr) api().tensor_destroy(tensor);
  }

  Status prepare() {
    if (const std::optional<std::string> why = lstm_unsupported(device_.identity(), params_))
      return fail(*why, {}, {}, ExitCode::kUsage);
    LLMPROF_ASSIGN(cudnn_, context_.cudnn());
    device_.note_library(cudnn_->library.about);
    LLMPROF_CHECK(describe());
    std::string refusal;
    for (const Algorithm& algorithm : kAlgorithms) {
      const Status made = add_way(algorithm);
      if (!made && refusal.empty()) refusal = made.error().what;
    }
    if (ways_.empty()) return fail(refusal);
    const Fill numbers{Fill::Kind::kUniform, params_.dtype, 1, 0};
    const size_t element = static_cast<size_t>(dtype_bytes(params_.dtype));
    const size_t rows = static_cast<size_t>(of_.steps * of_.batch);
    LLMPROF_CHECK(begin(
        {{"out", rows * static_cast<size_t>(of_.hidden) * element, Role::kOutput, {}},
         {"x", rows * static_cast<size_t>(of_.input) * element, Role::kInput, numbers},
         {"weights", weight_bytes_, Role::kInput, numbers},
         {"lengths", static_cast<size_t>(of_.batch) * 4, Role::kInput, {Fill::Kind::kIndex, DType::kInt32, 1, 1}}}));
    return add_working();
  }

 protected:
  // Weights as they are initialised for training: as large as the root of the state's size allows. Others would let
  // every gate be fully open or shut.
  Status set_made(int set) override {
    const std::vector<int32_t> lengths(static_cast<size_t>(of_.batch), static_cast<int32_t>(of_.steps));
    LLMPROF_CHECK(device_.upload(array(set, 3), 0, lengths.data(), lengths.size() * sizeof(int32_t)));
    if (weights_.empty()) {
      const float scale = 1 / std::sqrt(static_cast<float>(of_.hidden));
      const size_t element = static_cast<size_t>(dtype_bytes(params_.dtype));
      weights_.resize(weight_bytes_);
      for (size_t i = 0; i < weight_bytes_ / element; ++i) {
        const float value = scale * device::fill_uniform(device::fill_hash(params_.seed, i));
        const uint16_t half = params_.dtype == DType::kFp16 ? device::to_fp16(value) : device::to_bf16(value);
        if (element == 4)
          std::memcpy(weights_.data() + 4 * i, &value, 4);
        else
          std::memcpy(weights_.data() + 2 * i, &half, 2);
      }
    }
    return device_.upload(array(set, 2), 0, weights_.data(), weights_.size());
  }

  Result<Check> compare(size_t candidate) override {
    LLMPROF_ASSIGN(const std::vector<LstmLayer> layers, layers_of(*ways_[candidate]));
    const LstmOperands operands{array(0, 1), array(0, 0), of_.steps, of_.batch, of_.input, of_.hidden, params_.dtype};
    return check_lstm(device_, operands, layers, params_.seed);
  }

 private:
  struct Way {
    std::string name;
    dnn::RnnDescriptor rnn = nullptr;
    std::unique_ptr<Buffer> workspace;
  };
  const dnn::Api& api() const { return cudnn_->library.api; }
  Status check_call(int status, std::string_view doing) const { return cudnn_check(api(), status, doing); }

  Status describe() {
    const int type = cudnn_type(params_.dtype).value_or(cudnn::kHalf);
    const int steps = static_cast<int>(of_.steps), batch = static_cast<int>(of_.batch);
    const std::vector<int> lengths(static_cast<size_t>(batch), steps);
    const auto data = [&](dnn::RnnDataDescriptor& layout, int64_t size) -> Status {
      LLMPROF_CHECK(check_call(api().rnn_data_create(&layout), "describing the sequences"));
      float fill = 0;
      return check_call(api().rnn_data_set(layout, type, dnn::kRnnSequenceMajor, steps, batch, static_cast<int>(size),
                                           lengths.data(), &fill),
                        "describing the sequences");
    };
    LLMPROF_CHECK(data(x_layout_, of_.input));
    LLMPROF_CHECK(data(y_layout_, of_.hidden));
    for (dnn::TensorDescriptor* tensor : {&state_layout_, &matrix_, &bias_})
      LLMPROF_CHECK(check_call(api().tensor_create(tensor), "describing the state"));
    const int hidden = static_cast<int>(of_.hidden);
    const int dims[] = {static_cast<int>(of_.layers), batch, hidden}, strides[] = {batch * hidden, hidden, 1};
    return check_call(api().tensor_set(state_layout_, type, 3, dims, strides), "describing the state");
  }

  Status add_way(const Algorithm& algorithm) {
    std::unique_ptr<Way> way = std::make_unique<Way>();
    way->name = fmt::format("cuDNN {}", algorithm.name);
    LLMPROF_CHECK(check_call(api().rnn_create(&way->rnn), "describing the layers"));
    ways_.push_back(std::move(way));
    const Status described = describe_way(*ways_.back(), algorithm.number);
    if (described) return {};
    api().rnn_destroy(ways_.back()->rnn);
    ways_.pop_back();
    return described;
  }

  Status describe_way(Way& way, int algorithm) {
    const int type = cudnn_type(params_.dtype).value_or(cudnn::kHalf);
    const int math = params_.dtype == DType::kTf32 ? dnn::kMathDefault : dnn::kMathTensorCores;
    LLMPROF_CHECK(
        check_call(api().rnn_set(way.rnn, algorithm, dnn::kRnnLstm, dnn::kRnnDoubleBias, dnn::kRnnUnidirectional,
                                 dnn::kRnnLinearInput, type, cudnn::kFloat, math, static_cast<int32_t>(of_.input),
                                 static_cast<int32_t>(of_.hidden), static_cast<int32_t>(of_.hidden),
                                 static_cast<int32_t>(of_.layers), nullptr, dnn::kRnnPaddedIo),
                   "describing the layers"));
    size_t bytes = 0, workspace = 0, reserve = 0;
    LLMPROF_CHECK(check_call(api().rnn_weight_bytes(cudnn_->handle, way.rnn, &bytes), "asking for the weights' size"));
    if (weight_bytes_ != 0 && weight_bytes_ != bytes) return fail("its weights have another size");
    LLMPROF_CHECK(check_call(
        api().rnn_temporary_bytes(cudnn_->handle, way.rnn, dnn::kRnnInference, x_layout_, &workspace, &reserve),
        "asking for the scratch memory's size"));
    LLMPROF_ASSIGN(way.workspace, device_.allocate(std::max<size_t>(workspace, 256)));
    weight_bytes_ = bytes;
    return {};
  }

  Status run(const Way& way, int set) {
    const int status = api().rnn_forward(
        cudnn_->handle, way.rnn, dnn::kRnnInference, static_cast<const int32_t*>(array(set, 3).address()), x_layout_,
        array(set, 1).address(), y_layout_, array(set, 0).address(), state_layout_, nullptr, nullptr, state_layout_,
        nullptr, nullptr, weight_bytes_, array(set, 2).address(), way.workspace->bytes(), way.workspace->address(), 0,
        nullptr);
    return status == dnn::kSuccess ? Status{} : check_call(status, "running the layers");
  }

  // Whether an algorithm takes these sizes is only said when it is run.
  Status add_working() {
    std::optional<Error> refusal;
    std::vector<std::unique_ptr<Way>> working;
    for (std::unique_ptr<Way>& way : ways_) {
      Status ran = run(*way, 0);
      if (ran) ran = device_.synchronize();
      if (context_.lost()) return ran;
      if (ran) {
        working.push_back(std::move(way));
      } else {
        api().rnn_destroy(way->rnn);
        if (!refusal) refusal = ran.error();
      }
    }
    ways_ = std::move(working);
    for (const std::unique_ptr<Way>& way : ways_)
      add(way->name, [this, made = way.get()](int set) { return run(*made, set); });
    return ways_.empty() ? Status(tl::unexpected<Error>(*refusal)) : Status{};
  }

  // Where the matrices lie is up to the algorithm.
  Result<std::vector<LstmLayer>> layers_of(const Way& way) {
    const char* const base = static_cast<const char*>(array(0, 2).address());
    const size_t element = static_cast<size_t>(dtype_bytes(params_.dtype));
    const auto part = [&](const void* at, int64_t count) {
      const size_t first = static_cast<size_t>(static_cast<const char*>(at) - base);
      std::vector<float> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(device::element_at(params_.dtype, weights_.data() + first, i));
      return values;
    };
    std::vector<LstmLayer> layers(static_cast<size_t>(of_.layers));
    for (int32_t layer = 0; layer < of_.layers; ++layer) {
      for (int32_t gate = 0; gate < 8; ++gate) {
        void *matrix = nullptr, *bias = nullptr;
        LLMPROF_CHECK(check_call(api().rnn_weights(cudnn_->handle, way.rnn, layer, weight_bytes_, base, gate, matrix_,
                                                   &matrix, bias_, &bias),
                                 "looking for the weights"));
        const int64_t columns = gate < 4 && layer == 0 ? of_.input : of_.hidden;
        const size_t end = static_cast<size_t>(static_cast<const char*>(matrix) - base) +
                           static_cast<size_t>(of_.hidden * columns) * element;
        if (matrix == nullptr || bias == nullptr || end > weight_bytes_)
          return fail("cuDNN does not tell where a matrix of the layers lies");
        layers[static_cast<size_t>(layer)].matrices[static_cast<size_t>(gate)] = part(matrix, of_.hidden * columns);
        layers[static_cast<size_t>(layer)].biases[static_cast<size_t>(gate)] = part(bias, of_.hidden);
      }
    }
    return layers;
  }

  ops::LstmSizes of_;
  const device::cuda::Cudnn* cudnn_ = nullptr;
  dnn::RnnDataDescriptor x_layout_ = nullptr, y_layout_ = nullptr;
  dnn::TensorDescriptor state_layout_ = nullptr, matrix_ = nullptr, bias_ = nullptr;
  std::vector<std::unique_ptr<Way>> ways_;  // as the candidates
  size_t weight_bytes_ = 0;
  std::vector<char> weights_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_lstm(Device& device, const OpParams& params) {
  return prepare_as<LstmOp>(device, params);
}

std::optional<std::string> lstm_unsupported(const DeviceIdentity& device, const OpParams& params) {
  if (std::optional<std::string> why = fp32_of_cudnn_unsupported(params)) return why;
  if (params.dtype != DType::kFp16 && device.cc_major < 8)
    return fmt::format("{} ({}.{}) has no {} matrix units; they come with 8.0", device.name, device.cc_major,
                       device.cc_minor, dtype_name(params.dtype));
  for (const auto& [axis, value] : params.axes)
    if (value > (int64_t{1} << 24)) return fmt::format("cuDNN takes sizes below 2^24, {} is {}", axis, value);
  return std::nullopt;
}

}  // namespace llmprof::kernels::cuda
