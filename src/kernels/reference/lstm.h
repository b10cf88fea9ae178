// LSTM layers in fp64, one sequence at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels {

// Gates in the order input, forget, cell, output; first the matrices of the inputs, then those of the state before,
// each [hidden][size of what it is multiplied with], with a bias each.
struct LstmLayer {
  std::array<std::vector<float>, 8> matrices, biases;
};
// Outputs of the last layer for each step, from zeros:
//   c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), each of i, f, g, o = W x + R h + both biases.
// What a layer hands on is rounded to `dtype`, as it is stored.
std::vector<Row> lstm_outputs(const std::vector<LstmLayer>& layers, const std::vector<Row>& inputs, DType dtype);

// What an element in (-1, 1) may be off by: rounded at every step, and rounding fed back; a wrong gate is off by
// tenths.
double lstm_tolerance(DType dtype);

// Layers of random weights and biases, as they are initialised for training: in [-1, 1) / sqrt(hidden), rounded to
// `dtype`. Larger ones would let every gate be fully open or shut.
std::vector<LstmLayer> lstm_layers(DType dtype, int64_t input, int64_t hidden, int64_t layers, uint64_t seed);

// x: [steps][batch][input], out: [steps][batch][hidden], dense.
struct LstmOperands {
  const Buffer& x;
  const Buffer& out;
  int64_t steps = 1, batch = 1, input = 1, hidden = 1;
  DType dtype = DType::kFp32;
};
// The first steps of the first and the last sequence, as many as cost a tenth of a second or two (at least 2); and
// whether rows spread over the result were written. `out` was poisoned before.
Result<Check> check_lstm(Device& device, const LstmOperands& operands, const std::vector<LstmLayer>& layers,
                         uint64_t seed);

}  // namespace llmprof::kernels
