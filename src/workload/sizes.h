// The models that the workload can be: a ViT with a projector in front of a Llama-like decoder, and how much of them is
// run. Shapes only; weights are random numbers of a seed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace llmprof::workload {

// Pre-norm ViT with biases, LayerNorm and GELU.
struct VisionConfig {
  int64_t hidden = 0, layers = 0, heads = 0, intermediate = 0;
  int image = 0, patch = 0;  // pixels a side
  int merge = 2;             // patches a side that the projector joins into one token
  int64_t patches() const { return int64_t{image / patch} * (image / patch); }
  int64_t tokens() const { return patches() / (int64_t{merge} * merge); }
  int64_t patch_values() const { return int64_t{3} * patch * patch; }
  int64_t head_size() const { return hidden / heads; }
};

// RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.
struct DecoderConfig {
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_size = 0, intermediate = 0, vocabulary = 0;
  double rope_base = 10000;
  int64_t query_width() const { return heads * head_size; }
  int64_t kv_width() const { return kv_heads * head_size; }
};

struct Size {
  std::string_view name, description;
  VisionConfig vision;
  DecoderConfig decoder;
  int64_t prompt = 0, new_tokens = 0;  // text tokens, and tokens to make, by default
};
std::span<const Size> sizes();
const Size* find_size(std::string_view name);

constexpr float kNormEpsilon = 1e-5F;

struct ParameterCount {
  int64_t vision = 0;   // encoder and projector
  int64_t decoder = 0;  // embedding, layers, head
};
ParameterCount count_parameters(const Size& size);

}  // namespace llmprof::workload
