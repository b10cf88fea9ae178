#include "device/reference/lstm.h"

#include <algorithm>
#include <cmath>

#include "device/reference/compare.h"

namespace llmprof::device {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double dot(const float* weights, const Row& x) {
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
          gates[gate] = dot(layer.matrices[gate].data() + i * step.size(), step) +
                        dot(layer.matrices[gate + 4].data() + i * hidden, h) +
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

}  // namespace llmprof::device
