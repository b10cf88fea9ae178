// Collects the operators of one pass. Inside the model room only.
#pragma once

#include <string>
#include <utility>

#include "model/cost.h"

namespace llmprof {

double as_double(int64_t value);

class StageBuilder {
 public:
  StageBuilder(ModelStage stage, const RequestShape& shape);

  void set_layer(int64_t layer) { layer_ = layer; }
  // References stay valid until the next operator is added.
  Operator& add(std::string name, OperatorKind kind, std::string shape);
  Operator& last() { return cost_.operators.back(); }
  void set_activations(Operator& op, double read_elements, double written_elements);
  // rows x in -> out, the weights read once.
  void add_linear(const Tensor& tensor, int64_t rows);
  // Every row goes to `tensor.used` of the `tensor.copies` experts; the weights of those hit are read once.
  void add_expert_linear(const Tensor& tensor, int64_t rows);
  // Work on each of rows x width elements; `read` and `written` count tensors of that size.
  void add_pointwise(std::string name, OperatorKind kind, int64_t rows, int64_t width, double read, double written,
                     const Tensor* weights);
  // The totals are the sums over the operators.
  StageCost finish();

  // Bytes per element of what this tensor is multiplied with, over those of an activation: below 1 where inputs are
  // quantised. The operator before it writes them so, as fused kernels do (norm, gate or attention with quantisation).
  double input_passes(const Tensor& tensor) const;

  double kv_bytes() const { return kv_bytes_; }
  double wide_bytes() const { return wide_.element_bytes(); }
  double copy_bytes(const Tensor& tensor) const { return tensor.copy_bytes(weights_, wide_); }
  const NumberFormat& kv_format() const { return kv_; }

 private:
  StageCost cost_;
  NumberFormat weights_, wide_, kv_;
  std::optional<NumberFormat> inputs_;
  double activation_bytes_, kv_bytes_;
  int64_t layer_ = -1;
};

}  // namespace llmprof
