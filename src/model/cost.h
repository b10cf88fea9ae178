// What one forward pass costs: the operator graph of a model for given requests, with FLOPs and bytes per operator.
//
// Conventions (docs/formulas.md derives them and names the sources):
// - FLOPs are those of matrix products, 2 per multiply-add; biases, norms, softmax and activations count 0.
// - Attention is stated twice. "causal" counts the (query, key) pairs the model's mask lets through, sliding windows
//   included; "full" counts every query against every key, as counters do that know no mask. Totals use causal.
// - lm_head runs for the last token of each sequence only.
// - Weights are read once per pass, KV once per sequence; of the experts, those expected to be hit.
// - Activations are read and written once per operator, as the fused kernels of current engines do it: residual add
//   with norm, gate with activation, attention without a score matrix.
// Counts are exact in a double up to 2^53 (9.0e15) and correctly rounded beyond.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/parameters.h"
#include "ops/attention.h"
#include "results/model.h"

namespace llmprof {

struct RequestShape {
  int64_t batch = 1;       // sequences
  int64_t prompt = 2048;   // new tokens per sequence in the prefill, image tokens included
  int64_t prefix = 0;      // tokens already cached before them
  int64_t context = 0;     // tokens one decode step attends to, the new one included; 0: prefix + prompt + 1
  int64_t new_tokens = 1;  // generated per sequence; sizes the KV cache
  int64_t images = 1;      // of each sequence; ignored without a vision tower
  int64_t image_height = 0, image_width = 0;  // pixels; 0: the tower's own size, or kDefaultImageSide
  NumberFormat weights = bf16_format();
  NumberFormat kv = bf16_format();
  NumberFormat activations = bf16_format();
  // What the inputs of quantised products are quantised to before they are multiplied (W8A8); absent: only the weights
  // are quantised (W8A16), and the products run in the activations' format.
  std::optional<NumberFormat> inputs;

  int64_t decode_context() const { return context != 0 ? context : prefix + prompt + 1; }
  // Tokens per sequence the cache must hold.
  int64_t cache_tokens() const;
  // Of what is not quantised: the weight format if that has 16 bits or more, else the activations', but never below 16.
  NumberFormat wide() const;
  // The format the matrix units multiply quantised weights in: weight-only quantisation computes in the activations'.
  std::string compute_format() const;
  // "W8A8", "W8A16", "W4A16": bits of the weights and of what they are multiplied with.
  std::string scheme() const;
};
constexpr int64_t kDefaultImageSide = 1008;

// Errors (usage): a count that is not positive or is over its limit, an image for a model that takes none, images that
// become more tokens than the prompt has.
Status check_shape(const ModelConfig& config, const RequestShape& shape);

enum class OperatorKind : uint8_t { kLinear, kAttention, kLmHead, kNorm, kElementwise, kGather, kCacheWrite };

struct Operator {
  std::string name;    // "q_proj", "attention", "experts.down_proj"
  int64_t layer = -1;  // -1: outside the layers
  OperatorKind kind = OperatorKind::kLinear;
  bool quantised = false;  // its weights are of those that are quantised, if any are
  std::string shape;       // for people: "2048 x 4096 -> 1024"
  // The same as data. A product multiplies `rows` of `in` with weights of `part` to `out`, each row those of one of
  // `experts`; a token that several experts take is that many rows. All others work on `rows` of `out`.
  TensorPart part = TensorPart::kNorm;
  int64_t rows = 0, in = 0, out = 0, experts = 1;
  bool adds_residual = false;               // a norm that takes in the residual, too
  std::optional<ops::Attention> attention;  // of attention, and of what readies queries and keys for it
  double flops = 0;                         // attention: causal
  double flops_full = 0;                    // attention: full; otherwise as flops
  double weight_bytes = 0, kv_read_bytes = 0, kv_write_bytes = 0;
  double activation_bytes = 0;  // read and written
  double output_bytes = 0;      // of activation_bytes, the written part: the size of the result

  double bytes() const { return weight_bytes + kv_read_bytes + kv_write_bytes + activation_bytes; }
  double intensity() const { return bytes() > 0 ? flops / bytes() : 0; }  // FLOP/B
};

struct StageFlops {
  double linear = 0, attention_causal = 0, attention_full = 0, lm_head = 0;
  double total() const { return linear + attention_causal + lm_head; }
};
struct StageBytes {
  double weights = 0, kv_read = 0, kv_write = 0, activations = 0;
  double total() const { return weights + kv_read + kv_write + activations; }
};

struct StageCost {
  ModelStage stage = ModelStage::kPrefill;
  int64_t batch = 0;       // sequences, or images of all sequences
  int64_t new_tokens = 0;  // per sequence; patches per image
  int64_t context = 0;     // keys the last token sees; patches per image
  StageFlops flops;
  StageBytes bytes;
  std::vector<Operator> operators;  // in order of execution; their sums are the totals above

  double intensity() const { return bytes.total() > 0 ? flops.total() / bytes.total() : 0; }
};

// One prefill of the whole batch, one decode step, one pass of the vision tower. The shape must have passed
// check_shape; vision_cost needs a model with a tower.
StageCost prefill_cost(const ModelConfig& config, const RequestShape& shape);
StageCost decode_cost(const ModelConfig& config, const RequestShape& shape);
StageCost vision_cost(const ModelConfig& config, const RequestShape& shape);

// FLOPs by the format that the matrix units run them in: quantised products in theirs, all others and attention wide.
std::map<std::string, double> flops_by_format(const StageCost& stage, const RequestShape& shape);

// One token in the caches of all layers. Every layer counts, sliding or not.
double kv_bytes_per_token(const ModelConfig& config, const NumberFormat& kv);
double kv_bytes_per_token_and_layer(const ModelConfig& config, const NumberFormat& kv);
// What a further token adds once the window is full: the layers that do not slide.
double kv_bytes_per_token_beyond_window(const ModelConfig& config, const NumberFormat& kv);

struct MemoryNeed {
  double weights_bytes = 0;
  double kv_bytes = 0;        // sliding layers keep their window, the others every token
  double kv_bytes_whole = 0;  // every layer keeps every token, as engines without an allocator per kind of layer do
  double activation_peak_bytes = 0;  // rough: 4 residual-sized buffers, 2 of the MLP's width, logits in FP32
  double total_bytes() const { return weights_bytes + kv_bytes + activation_peak_bytes; }
};
MemoryNeed memory_need(const ModelConfig& config, const RequestShape& shape);

// Patches of one image per side and in all, and the tokens it becomes.
struct ImageGrid {
  int64_t height_px = 0, width_px = 0;  // after resizing
  int64_t rows = 0, columns = 0;        // patches
  int64_t patches = 0;                  // rows * columns and the class token, where there is one
  int64_t tokens = 0;                   // given to the language model
};
ImageGrid image_grid(const VisionConfig& vision, const RequestShape& shape);

}  // namespace llmprof
