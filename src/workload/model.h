// The model of one size on one backend: a ViT with a projector in front of a Llama-like decoder, written once for every
// device. What it computes, in formulas: docs/formulas.md, "The reference workload"; tests/workload/reference.py does
// the same in another language.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "workload/backend.h"
#include "workload/sizes.h"

namespace llmprof::workload {

struct ModelOptions {
  int64_t sequences = 1, prompt = 0, new_tokens = 0;
  uint64_t seed = 1;
  int64_t tokens(const Size& size) const { return size.vision.tokens() + prompt; }  // of a sequence, before the first
};

// Sees every weight as it is made and every result that the numerical check compares; only a dump listens.
struct Inspector {
  std::function<Status(const std::string& name, int64_t rows, int64_t columns, const Numbers& numbers)> weight;
  std::function<Status(const std::string& name, const Tensor& tensor)> result;
};

class Model {
 public:
  // Makes the weights and everything else that takes time. Error: not enough memory, or what the backend says.
  static Result<std::unique_ptr<Model>> make(Backend& backend, const Size& size, const ModelOptions& options,
                                             const Inspector& inspector);

  // patches: fp32 [vision.patches(), vision.patch_values()] on the host.
  Status load(const std::vector<float>& patches);
  // The image's tokens from them. Both wait until it is done.
  Status encode();
  Status project();
  // The prompt of each sequence, [sequences, prompt]; fills the cache and gives each sequence's first token.
  Result<std::vector<int32_t>> prefill(const std::vector<int32_t>& prompt);
  // One token of each sequence further: step 0 takes what prefill gave, then 1, 2, ...
  Result<std::vector<int32_t>> decode(int64_t step);

 private:
  struct VisionLayer {
    Tensor norm1_gain, norm1_bias, norm2_gain, norm2_bias;
    Linear qkv, out, up, down;
  };
  struct DecoderLayer {
    Tensor norm1, norm2;
    Linear qkv, out, gate_up, down;
    Cache cache;
  };
  struct VisionTensors {
    Tensor patches, x, normed, qkv, mixed, wide;
    Tensor merged, joined, joined_act, image;
  };
  struct DecoderTensors {
    Tensor x, normed, qkv, mixed, branch, gate_up, active;  // [rows, ...]
    Tensor positions, ids, last;
    Tensor last_normed, logits, tokens;  // of the last position of each sequence
  };
  class Maker;

  Model(Backend& backend, const Size& size, const ModelOptions& options, const Inspector& inspector)
      : backend_(backend), size_(size), options_(options), inspector_(inspector) {}
  AttentionCall vision_attention() const;
  AttentionCall decoder_attention(const DecoderTensors& t, int64_t keys, const Cache& cache) const;
  Status prepare();
  // `name`: of the results that are shown.
  Status layers(const DecoderTensors& t, int64_t keys, const std::string& name);
  Status decode_step();
  Result<std::vector<int32_t>> tokens_of(const DecoderTensors& t, const std::string& name);
  Status show(const std::string& name, const Tensor& tensor) const {
    return inspector_.result ? inspector_.result(name, tensor) : Status();
  }

  Backend& backend_;
  const Size& size_;
  ModelOptions options_;
  Inspector inspector_;
  Linear patch_embedding_, project1_, project2_, head_;
  Tensor position_embedding_, vision_norm_gain_, vision_norm_bias_, embedding_, final_norm_, angles_;
  std::vector<VisionLayer> vision_;
  std::vector<DecoderLayer> decoder_;
  VisionTensors v_;
  DecoderTensors prefill_, decode_;  // with the same tokens
  int64_t step_ = 0;
  Backend::Work repeat_step_;
};

}  // namespace llmprof::workload
