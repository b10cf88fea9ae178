// LSTM layers over sequences by oneDNN, from a state of zeros. Weights are packed as it wants them when a set is
// prepared, as a model does once; both biases of a gate are added up, since oneDNN takes one.
#include "kernels/reference/lstm.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/elements.h"
#include "kernels/cpu/buffer_sets.h"
#include "kernels/cpu/dnnl_engine.h"
#include "kernels/cpu/ops.h"
#include "ops/layers.h"

namespace llmprof::kernels::cpu {
namespace {

enum : size_t { kOut, kX };  // buffers of a set

std::vector<BufferPlan> buffers_of(const ops::LstmSizes& of, const OpParams& params) {
  const size_t rows = static_cast<size_t>(of.steps * of.batch),
               element = static_cast<size_t>(dtype_bytes(params.dtype));
  return {{rows * static_cast<size_t>(of.hidden) * element, params.dtype, true, params.seed},
          {rows * static_cast<size_t>(of.input) * element, params.dtype, false, params.seed + 1}};
}

// oneDNN's primitive has as many layers as their inputs have one size: the first layer is one of its own where its
// input differs from the state.
struct Stack {
  int64_t layers = 1, input = 1;
  std::vector<char> w_inputs, w_states;  // [layers][gates i, f, g, o][hidden][input or hidden]
  std::vector<float> biases;             // [layers][gates][hidden]
  DnnlPrimitive primitive;
  dnnl_memory_desc_t from{}, to{}, inputs_layout{}, states_layout{}, bias_layout{};
};

class LstmOp : public PreparedOp {
 public:
  LstmOp(device::cpu::CpuDevice& device, const OpParams& params)
      : device_(device),
        of_(params),
        dtype_(params.dtype),
        seed_(params.seed),
        layers_(lstm_layers(dtype_, of_.input, of_.hidden, of_.layers, seed_)),
        sets_(device, buffers_of(of_, params)) {}

  Status prepare() {
    LLMPROF_ASSIGN(engine_, DnnlEngine::open());
    const bool apart = of_.layers > 1 && of_.input != of_.hidden;
    LLMPROF_CHECK(add_stack(0, apart ? 1 : of_.layers, of_.input));
    if (apart) {
      LLMPROF_CHECK(add_stack(1, of_.layers - 1, of_.hidden));
      LLMPROF_ASSIGN(between_, device_.allocate(static_cast<size_t>(of_.steps * of_.batch * of_.hidden) * element()));
    }
    candidates_.push_back({"oneDNN " + stacks_[0].primitive.name, [this](int set) { return run(set); }});
    return prepare_sets(1);
  }

  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return sets_.bytes_per_set() + packed_bytes_; }

  Status prepare_sets(int sets) override {
    for (int set = sets_.count(); set < sets; ++set) {
      LLMPROF_CHECK(sets_.grow(set + 1));
      std::vector<Bound> bound;
      for (size_t s = 0; s < stacks_.size(); ++s) {
        LLMPROF_ASSIGN(Bound made, bind(stacks_[s], s == 0 ? sets_.data<void>(set, kX) : between_->address(),
                                        s + 1 == stacks_.size() ? sets_.data<void>(set, kOut) : between_->address()));
        bound.push_back(std::move(made));
      }
      memory_.push_back(std::move(bound));
    }
    return {};
  }

  Result<Check> check(size_t candidate) override {
    LLMPROF_CHECK(sets_.poison(0));
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    return check_lstm(device_,
                      {sets_.at(0, kX), sets_.at(0, kOut), of_.steps, of_.batch, of_.input, of_.hidden, dtype_},
                      layers_, seed_);
  }

 private:
  // A stack with the memory of one set.
  struct Bound {
    std::unique_ptr<Buffer> inputs_packed, states_packed;
    DnnlMemory from, to, w_inputs, w_states, bias;
  };
  size_t element() const { return static_cast<size_t>(dtype_bytes(dtype_)); }

  Status add_stack(int64_t first, int64_t layers, int64_t input) {
    Stack stack;
    stack.layers = layers;
    stack.input = input;
    for (int64_t layer = first; layer < first + layers; ++layer) {
      const LstmLayer& of = layers_[static_cast<size_t>(layer)];
      for (size_t gate = 0; gate < 4; ++gate) {
        append(stack.w_inputs, of.matrices[gate]);
        append(stack.w_states, of.matrices[gate + 4]);
        for (size_t i = 0; i < of.biases[gate].size(); ++i)
          stack.biases.push_back(of.biases[gate][i] + of.biases[gate + 4][i]);
      }
    }
    LLMPROF_CHECK(describe(stack));
    stacks_.push_back(std::move(stack));
    return {};
  }

  void append(std::vector<char>& to, const std::vector<float>& values) const {
    for (const float value : values) {
      const uint16_t half = device::to_bf16(value);
      const char* const from =
          dtype_ == DType::kBf16 ? reinterpret_cast<const char*>(&half) : reinterpret_cast<const char*>(&value);
      to.insert(to.end(), from, from + element());
    }
  }

  Status describe(Stack& stack) const {
    const device::cpu::OneDnn& lib = device::cpu::one_dnn();
    const dnnl_data_type_t type = device::cpu::dnnl_type(dtype_);
    const dnnl_dims_t from_dims = {of_.steps, of_.batch, stack.input}, to_dims = {of_.steps, of_.batch, of_.hidden};
    const dnnl_dims_t inputs = {stack.layers, 1, stack.input, 4, of_.hidden};
    const dnnl_dims_t states = {stack.layers, 1, of_.hidden, 4, of_.hidden};
    const dnnl_dims_t biases = {stack.layers, 1, 4, of_.hidden};
    dnnl_memory_desc_t any_inputs{}, any_states{};
    LLMPROF_CHECK(device::cpu::dnnl_ok(
        std::max({lib.dnnl_memory_desc_init_by_tag(&stack.from, 3, from_dims, type, dnnl_tnc),
                  lib.dnnl_memory_desc_init_by_tag(&stack.to, 3, to_dims, type, dnnl_tnc),
                  lib.dnnl_memory_desc_init_by_tag(&stack.inputs_layout, 5, inputs, type, dnnl_ldgoi),
                  lib.dnnl_memory_desc_init_by_tag(&stack.states_layout, 5, states, type, dnnl_ldgoi),
                  lib.dnnl_memory_desc_init_by_tag(&any_inputs, 5, inputs, type, dnnl_format_tag_any),
                  lib.dnnl_memory_desc_init_by_tag(&any_states, 5, states, type, dnnl_format_tag_any),
                  lib.dnnl_memory_desc_init_by_tag(&stack.bias_layout, 4, biases, dnnl_f32, dnnl_ldgo)}),
        "describe the layers"));
    dnnl_rnn_desc_t operation{};
    LLMPROF_CHECK(device::cpu::dnnl_ok(
        lib.dnnl_lstm_forward_desc_init(&operation, dnnl_forward_inference, dnnl_unidirectional_left2right, &stack.from,
                                        nullptr, nullptr, &any_inputs, &any_states, &stack.bias_layout, &stack.to,
                                        nullptr, nullptr, 0),
        "describe these layers"));
    LLMPROF_ASSIGN(std::vector<DnnlPrimitive> ways, engine_->ways(&operation, 1, "run these layers"));
    stack.primitive = std::move(ways[0]);
    return {};
  }

  Result<Bound> bind(Stack& stack, void* from_address, void* to_address) {
    LLMPROF_ASSIGN(DnnlMemory from, engine_->memory(stack.from, from_address));
    LLMPROF_ASSIGN(DnnlMemory to, engine_->memory(stack.to, to_address));
    LLMPROF_ASSIGN(DnnlMemory bias, engine_->memory(stack.bias_layout, stack.biases.data()));
    const auto pack = [&](int index, const dnnl_memory_desc_t& plain, std::vector<char>& weights,
                          std::unique_ptr<Buffer>& buffer) -> Result<DnnlMemory> {
      LLMPROF_ASSIGN(const dnnl_memory_desc_t* const layout, stack.primitive.weights(index));
      LLMPROF_ASSIGN(buffer, device_.allocate(device::cpu::one_dnn().dnnl_memory_desc_get_size(layout)));
      if (memory_.empty()) packed_bytes_ += buffer->bytes();
      LLMPROF_CHECK(engine_->reorder(plain, weights.data(), *layout, buffer->address()));
      return engine_->memory(*layout, buffer->address());
    };
    std::unique_ptr<Buffer> inputs_packed, states_packed;
    LLMPROF_ASSIGN(DnnlMemory w_inputs, pack(0, stack.inputs_layout, stack.w_inputs, inputs_packed));
    LLMPROF_ASSIGN(DnnlMemory w_states, pack(1, stack.states_layout, stack.w_states, states_packed));
    return Bound{std::move(inputs_packed), std::move(states_packed), std::move(from), std::move(to),
                 std::move(w_inputs),      std::move(w_states),      std::move(bias)};
  }

  Status run(int set) {
    for (size_t s = 0; s < stacks_.size(); ++s) {
      const Bound& of = memory_[static_cast<size_t>(set)][s];
      const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC_LAYER, of.from.get()},
                                           {DNNL_ARG_WEIGHTS_LAYER, of.w_inputs.get()},
                                           {DNNL_ARG_WEIGHTS_ITER, of.w_states.get()},
                                           {DNNL_ARG_BIAS, of.bias.get()},
                                           {DNNL_ARG_DST_LAYER, of.to.get()}};
      LLMPROF_CHECK(engine_->run(stacks_[s].primitive, arguments, "run the layers"));
    }
    return {};
  }

  device::cpu::CpuDevice& device_;
  ops::LstmSizes of_;
  DType dtype_;
  uint64_t seed_;
  std::vector<LstmLayer> layers_;
  BufferSets sets_;
  std::unique_ptr<DnnlEngine> engine_;
  std::vector<Stack> stacks_;
  std::unique_ptr<Buffer> between_;
  std::vector<std::vector<Bound>> memory_;  // of each set, as the stacks
  size_t packed_bytes_ = 0;
  std::vector<Candidate> candidates_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_lstm(Device& device, const OpParams& params) {
  if (const std::optional<std::string> why = library_unsupported(params)) return fail(*why, {}, {}, ExitCode::kUsage);
  auto op = std::make_unique<LstmOp>(static_cast<device::cpu::CpuDevice&>(device), params);
  LLMPROF_CHECK(op->prepare());
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace llmprof::kernels::cpu
