#include "kernels/reference/lstm.h"

#include <algorithm>
#include <cmath>

#include "device/fill.h"
#include "kernels/reference/compare.h"

namespace llmprof::kernels {
namespace {

// Multiply-adds: so many cost a tenth of a second or two.
constexpr int64_t kLstmTerms = 200'000'000;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double gate_sum(const float* weights, const Row& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(weights[i]) * x[i];
  return sum;
}

}  // namespace

std::vector<Row> lstm_outputs(const std::vector<LstmLayer>& layers, const std::vector<Row>& inputs, DType dtype) {
  std::vector<Row> sequence = inputs;
  for (const LstmLayer& layer : layers) {
    const size_t hidden = layer.biases[0].size();
    Row h(hidden, 0), c(hidden, 0);
    for (Row& step : sequence) {
      Row next(hidden, 0);
      for (size_t i = 0; i < hidden; ++i) {
        std::array<double, 4> gates{};
        for (size_t gate = 0; gate < 4; ++gate)
          gates[gate] = gate_sum(layer.matrices[gate].data() + i * step.size(), step) +
                        gate_sum(layer.matrices[gate + 4].data() + i * hidden, h) +
                        static_cast<double>(layer.biases[gate][i]) + static_cast<double>(layer.biases[gate + 4][i]);
        c[i] = sigmoid(gates[1]) * c[i] + sigmoid(gates[0]) * std::tanh(gates[2]);
        next[i] = rounded_to(dtype, sigmoid(gates[3]) * std::tanh(c[i]));
      }
      h = next;
      step = std::move(next);
    }
  }
  return sequence;
}

double lstm_tolerance(DType dtype) {
  const Rounding rounding = rounding_of(dtype, dtype);
  return 8 * std::max({rounding.out, rounding.input / 6, 0x1p-20});
}

std::vector<LstmLayer> lstm_layers(DType dtype, int64_t input, int64_t hidden, int64_t layers, uint64_t seed) {
  const float scale = 1 / std::sqrt(static_cast<float>(hidden));
  uint64_t next = 0;
  const auto values = [&](int64_t count) {
    std::vector<float> made(static_cast<size_t>(count));
    for (float& value : made)
      value = static_cast<float>(
          rounded_to(dtype, static_cast<double>(scale * device::fill_uniform(device::fill_hash(seed, next++)))));
    return made;
  };
  std::vector<LstmLayer> all(static_cast<size_t>(layers));
  for (size_t layer = 0; layer < all.size(); ++layer) {
    for (size_t gate = 0; gate < 8; ++gate) {
      all[layer].matrices[gate] = values(hidden * (gate < 4 && layer == 0 ? input : hidden));
      all[layer].biases[gate] = values(hidden);
    }
  }
  return all;
}

Result<Check> check_lstm(Device& device, const LstmOperands& of, const std::vector<LstmLayer>& layers, uint64_t seed) {
  int64_t terms = 0;
  for (const LstmLayer& layer : layers)
    for (const std::vector<float>& matrix : layer.matrices) terms += 2 * static_cast<int64_t>(matrix.size());
  const int64_t steps = std::clamp<int64_t>(kLstmTerms / terms, std::min<int64_t>(2, of.steps), of.steps);
  const RowReader x = rows_of(device, of.x, of.dtype, of.input), out = rows_of(device, of.out, of.dtype, of.hidden);
  Comparison comparison(4 * std::max(rel_l2_limit(of.dtype), rel_l2_limit(DType::kTf32)));
  const double tolerance = lstm_tolerance(of.dtype);
  for (const int64_t sequence : sampled_indices(of.batch, 2, seed)) {
    std::vector<Row> inputs;
    for (int64_t step = 0; step < steps; ++step) {
      LLMPROF_ASSIGN(Row row, x(step * of.batch + sequence));
      inputs.push_back(std::move(row));
    }
    const std::vector<Row> expected = lstm_outputs(layers, inputs, of.dtype);
    for (int64_t step = 0; step < steps; ++step) {
      LLMPROF_ASSIGN(const Row got, out(step * of.batch + sequence));
      for (size_t i = 0; i < got.size(); ++i)
        comparison.add(got[i], expected[static_cast<size_t>(step)][i], tolerance,
                       (step * of.batch + sequence) * of.hidden + static_cast<int64_t>(i));
    }
  }
  for (const int64_t row : sampled_indices(of.steps * of.batch, 256, seed)) {
    LLMPROF_ASSIGN(const Row got, out(row));
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(got[i]) <= 1)) comparison.add_unwritten(row * of.hidden + static_cast<int64_t>(i));
  }
  return comparison.finish();
}

}  // namespace llmprof::kernels
