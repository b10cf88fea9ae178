// Every weight of a model, tensor by tensor, as its reference implementation holds them, and the exact counts that
// follow. Costs are computed from the same list, so parameters, bytes and FLOPs cannot disagree.
//
// Buffers that some checkpoints carry (rotary inverse frequencies, causal masks) are no parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "results/model.h"

namespace llmprof {

enum class TensorPart : uint8_t { kEmbedding, kAttention, kMlp, kRouter, kExpert, kNorm, kLmHead, kVision, kProjector };
std::string_view name_of(TensorPart part);

struct Tensor {
  std::string name;  // as in the reference implementation: "q_proj", "gate_up_proj", "embed_tokens"
  TensorPart part = TensorPart::kNorm;
  int64_t out = 0, in = 1;  // rows and columns; vectors have in = 1
  int64_t bias = 0;         // elements, of one copy
  int64_t copies = 1;       // experts
  int64_t used = 1;         // copies that one token passes through
  bool linear = false;      // multiplied with every token (an embedding is looked up instead)
  bool quantised = false;   // takes the weight format; everything else stays at 16 bits

  int64_t matrix_elements() const { return out * in; }
  int64_t params() const { return copies * (matrix_elements() + bias); }
  int64_t used_params() const { return used * (matrix_elements() + bias); }
  // Bytes of all copies: the matrices in `weights` if quantised, else in `wide`; biases in `wide`.
  double bytes(const NumberFormat& weights, const NumberFormat& wide) const;
  // Bytes of one copy.
  double copy_bytes(const NumberFormat& weights, const NumberFormat& wide) const;
};

// The weights of one decoder layer, in the order in which a token meets them.
std::vector<Tensor> layer_tensors(const ModelConfig& config, const LayerConfig& layer);
std::vector<Tensor> embedding_tensors(const ModelConfig& config);
// Final norm and lm_head. A tied lm_head is listed with 0 copies: it has no weights of its own, but runs.
std::vector<Tensor> head_tensors(const ModelConfig& config);
// The tower, its patch embedding and its projector. Empty without vision.
std::vector<Tensor> vision_tensors(const ModelConfig& config);
// One block of the tower.
std::vector<Tensor> vision_block_tensors(const VisionConfig& vision);
std::vector<Tensor> projector_tensors(const VisionConfig& vision);

Params count_params(const ModelConfig& config);

// Error if the model has more than kMaxParameters; read_config has called this for every config it returns.
Status check_size(const ModelConfig& config);

// Bytes of the whole model with its matrices in `weights` and everything that stays wide in `wide`.
double weight_bytes(const ModelConfig& config, const NumberFormat& weights, const NumberFormat& wide);

}  // namespace llmprof
