// What `llmprof model` answers: a model's parameters, FLOPs, bytes and memory for one request shape, and the same
// against a GPU's data sheet. No measurement is involved: formulas of docs/formulas.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results/values.h"

namespace llmprof {

enum class ModelStage : uint8_t { kPrefill, kDecode, kVision };
std::string_view name_of(ModelStage stage);

#define LLMPROF_LAYER_PARAMS_FIELDS(F)                                                 \
  F(int64_t, layer, "", "from 0")                                                      \
  F(std::string, kind, "", "dense or moe, with \", window N\" where the layer slides") \
  F(int64_t, total, "", "of the layer")                                                \
  F(int64_t, active, "", "that one token passes through")                              \
  F(int64_t, attention, "", "projections of attention")                                \
  F(int64_t, mlp, "", "dense or shared")                                               \
  F(int64_t, router, "", "of mixtures of experts")                                     \
  F(int64_t, experts, "", "all routed ones")                                           \
  F(int64_t, norms, "", "with their biases")
LLMPROF_RECORD(LayerParams, "layer_params", "Parameters of one decoder layer", LLMPROF_LAYER_PARAMS_FIELDS)

#define LLMPROF_PARAMS_FIELDS(F)                                                                                \
  F(int64_t, total, "", "tied embeddings once, vision tower and projector included")                            \
  F(int64_t, active_per_token, "",                                                                              \
    "total less the routed experts that a token does not pass through; with embedding and tower")               \
  F(int64_t, embedding, "", "token and position tables")                                                        \
  F(int64_t, lm_head, "", "V * h, also where it is tied: then it is part of embedding and not added again")     \
  F(bool, lm_head_tied, "", "to the embedding")                                                                 \
  F(int64_t, vision, "", "the tower with what its reference implementation keeps inside it (Qwen-VL's merger)") \
  F(int64_t, projector, "", "between tower and language model, where it is a module of its own")                \
  F(int64_t, final_norm, "", "behind the last layer")                                                           \
  F(int64_t, linear_per_token, "",                                                                              \
    "elements of the matrices one token is multiplied with, router included, lm_head, biases and norms not")    \
  F(std::vector<LayerParams>, by_layer, "", "in order")
LLMPROF_RECORD(Params, "params", "Parameters of a model", LLMPROF_PARAMS_FIELDS)

// The fields are declared by hand: `new` is no name for a member.
struct ModelRequestShape {
  int64_t batch = 0, prompt = 0, prefix = 0, context = 0, new_tokens = 0;

  static constexpr TableInfo info() { return {"request_shape"}; }
  template <class V>
  void for_each_field(V&& visitor) const {
    visitor(FieldInfo{"batch", ""}, batch);
    visitor(FieldInfo{"prompt", ""}, prompt);
    visitor(FieldInfo{"prefix", ""}, prefix);
    visitor(FieldInfo{"context", ""}, context);
    visitor(FieldInfo{"new", ""}, new_tokens);
  }
  template <class V>
  static void sentences(V&& visitor) {
    visitor(FieldSentence{"request_shape", "", LLMPROF_SENTENCE("What the model is run with")});
    visitor(FieldSentence{"batch", "", LLMPROF_SENTENCE("sequences")});
    visitor(
        FieldSentence{"prompt", "", LLMPROF_SENTENCE("new tokens per sequence in the prefill, image tokens included")});
    visitor(FieldSentence{"prefix", "", LLMPROF_SENTENCE("tokens already cached before them")});
    visitor(
        FieldSentence{"context", "", LLMPROF_SENTENCE("tokens that one decode step attends to, the new one included")});
    visitor(FieldSentence{"new", "", LLMPROF_SENTENCE("tokens generated per sequence; sizes the KV cache")});
  }
};

#define LLMPROF_MODEL_WEIGHTS_FIELDS(F)                                           \
  F(std::string, dtype, "", "number format of what is quantised, if anything is") \
  F(Count, bytes, "bytes", "all weights, scales included")                        \
  F(std::string, unquantised_dtype, "", "of everything else")                     \
  F(std::string, compute_dtype, "", "what matrix units multiply them in")         \
  F(std::string, scheme, "", "bits of weights and of what they are multiplied with: W8A16")
LLMPROF_RECORD(ModelWeights, "weights", "How weights are stored and multiplied", LLMPROF_MODEL_WEIGHTS_FIELDS)

#define LLMPROF_KV_CACHE_FIELDS(F)                                                                 \
  F(std::string, dtype, "", "number format")                                                       \
  F(Count, bytes_per_token, "bytes", "in the caches of all layers")                                \
  F(Count, bytes_per_token_beyond_window, "bytes", "that a further token adds where layers slide") \
  F(Count, bytes, "bytes", "all sequences; sliding layers keep their window")                      \
  F(Count, bytes_whole, "bytes", "the same where every layer keeps every token")                   \
  F(int64_t, tokens_per_sequence, "", "that the cache must hold")
LLMPROF_RECORD(KvCache, "kv_cache", "Keys and values", LLMPROF_KV_CACHE_FIELDS)

#define LLMPROF_MODEL_MEMORY_FIELDS(F)                                                                              \
  F(Count, weights_bytes, "bytes", "all weights")                                                                   \
  F(Count, kv_bytes, "bytes", "KV cache")                                                                           \
  F(Count, activation_peak_bytes, "bytes", "rough: 4 residual-sized buffers, 2 of the MLP's width, logits in FP32") \
  F(Count, total_bytes, "bytes", "the sum")
LLMPROF_RECORD(ModelMemory, "model_memory", "What must fit", LLMPROF_MODEL_MEMORY_FIELDS)

#define LLMPROF_MODEL_FLOPS_FIELDS(F)                                    \
  F(Count, linear, "FLOP", "projections and MLPs")                       \
  F(Count, attention_causal, "FLOP", "pairs that the mask lets through") \
  F(Count, attention_full, "FLOP", "every query against every key")      \
  F(Count, lm_head, "FLOP", "for the last token of each sequence")       \
  F(Count, total, "FLOP", "with attention_causal")
LLMPROF_RECORD(ModelFlops, "stage_flops", "Arithmetic of a stage, a multiply-add as two", LLMPROF_MODEL_FLOPS_FIELDS)

#define LLMPROF_MODEL_BYTES_FIELDS(F)                                               \
  F(Count, weights, "bytes", "once per pass; of experts, those expected to be hit") \
  F(Count, kv_read, "bytes", "once per sequence")                                   \
  F(Count, kv_write, "bytes", "of new tokens")                                      \
  F(Count, activations, "bytes", "read and written once per operator")              \
  F(Count, total, "bytes", "the sum")
LLMPROF_RECORD(ModelBytes, "stage_bytes", "Least traffic of a stage", LLMPROF_MODEL_BYTES_FIELDS)

#define LLMPROF_MODEL_STAGE_FIELDS(F)                                         \
  F(ModelStage, kind, "", "vision, prefill or decode")                        \
  F(int64_t, batch, "", "sequences, or images of all sequences")              \
  F(int64_t, new_tokens, "", "per sequence; patches per image")               \
  F(int64_t, context, "", "keys that the last token sees; patches per image") \
  F(ModelFlops, flops, "", "arithmetic")                                      \
  F(ModelBytes, bytes, "", "traffic")                                         \
  F(double, intensity, "FLOP/byte", "flops.total / bytes.total")
LLMPROF_RECORD(ModelStageRow, "model_stages", "What one pass of a stage costs", LLMPROF_MODEL_STAGE_FIELDS)

// Which of arithmetic and memory takes longer at the data sheet's rates.
enum class StageLimit : uint8_t { kUnknown, kArithmetic, kMemory };
std::string_view name_of(StageLimit limit);

#define LLMPROF_STAGE_BOUND_FIELDS(F)                                                                \
  F(ModelStage, kind, "", "vision, prefill or decode")                                               \
  F(OptDouble, least_ms, "ms", "the larger of the two that are known")                               \
  F(StageLimit, limit, "", "arithmetic, memory or unknown")                                          \
  F(OptDouble, compute_ms, "ms", "flops at the data sheet's peaks of the formats they run in")       \
  F(OptDouble, memory_ms, "ms", "dram_bytes at the data sheet's bandwidth")                          \
  F(double, flops, "FLOP", "of the stage")                                                           \
  F(double, dram_bytes, "bytes",                                                                     \
    "what must cross the bus: weights and KV cache less what the last-level cache may hold of them") \
  F(std::vector<std::string>, unknown, "", "why a part is not known")
LLMPROF_RECORD(StageBoundRow, "stage_bounds", "Least time of a stage: a bound, not a prediction",
               LLMPROF_STAGE_BOUND_FIELDS)

#define LLMPROF_GPU_MEMORY_FIELDS(F)                                                                       \
  F(OptDouble, bytes, "bytes", "what programs see of it, else the label")                                  \
  F(std::string, provenance, "", "where in the data sheet")                                                \
  F(bool, as_driver_counts, "", "what programs see; false: what the GPU is called, in units of 1e9 bytes") \
  F(std::optional<bool>, fits, "", "whether one GPU holds it")                                             \
  F(OptInt, gpus_at_least, "", "by memory alone")
LLMPROF_RECORD(GpuMemory, "gpu_memory", "Whether a model fits a GPU", LLMPROF_GPU_MEMORY_FIELDS)

#define LLMPROF_MODEL_GPU_FIELDS(F)                                                               \
  F(std::string, name, "", "row of the hardware table")                                           \
  F(std::vector<std::string>, may_also_mean, "", "other rows that the name may stand for")        \
  F(GpuMemory, memory, "", "whether it fits")                                                     \
  F(int64_t, gpus, "", "that the bounds are for: work, bytes and caches of all of them together") \
  F(OptInt, cache_bytes, "bytes", "last-level cache of one")                                      \
  F(std::vector<StageBoundRow>, stages, "", "least times")                                        \
  F(std::vector<std::string>, provenance, "", "of the rates")
LLMPROF_RECORD(ModelGpuFields, "model_gpu", "The model on a GPU, by its data sheet", LLMPROF_MODEL_GPU_FIELDS)

struct ModelOnGpu : ModelGpuFields {
  std::string asked;           // the name that it was asked for by
  std::string basis, traffic;  // which rates, and which bytes, the bounds rest on: sentences of the page
};

#define LLMPROF_MODEL_OPERATOR_FIELDS(F)                                 \
  F(std::string, name, "", "q_proj, attention, experts.down_proj, ...")  \
  F(OptInt, layer, "", "from 0; none outside the layers")                \
  F(ModelStage, stage, "", "vision, prefill or decode")                  \
  F(std::string, shape, "", "for people: 2048 x 4096 -> 1024")           \
  F(Count, flops, "FLOP", "attention: causal")                           \
  F(Count, bytes, "bytes", "least traffic")                              \
  F(double, intensity, "FLOP/byte", "flops / bytes")                     \
  F(Count, weight_bytes, "bytes", "part of bytes")                       \
  F(Count, kv_read_bytes, "bytes", "part of bytes")                      \
  F(Count, kv_write_bytes, "bytes", "part of bytes")                     \
  F(Count, activation_bytes, "bytes", "part of bytes: read and written") \
  F(Count, output_bytes, "bytes", "part of activation_bytes: the result")
LLMPROF_RECORD(ModelOperatorRow, "model_operators", "Operators of a model, layer by layer, in order of execution",
               LLMPROF_MODEL_OPERATOR_FIELDS)

#define LLMPROF_MODEL_RESULT_FIELDS(F)                                                           \
  F(std::string, id, "", "of the model table, or of its config")                                 \
  F(std::string, architecture, "", "as its config names it")                                     \
  F(std::string, dtype, "", "number format of activations")                                      \
  F(int64_t, layers, "", "decoder layers")                                                       \
  F(ModelRequestShape, request_shape, "", "what it is run with")                                 \
  F(Params, params, "", "how many")                                                              \
  F(ModelWeights, weights, "", "how they are stored")                                            \
  F(KvCache, kv_cache, "", "keys and values")                                                    \
  F(ModelMemory, memory, "", "what must fit")                                                    \
  F(std::vector<ModelStageRow>, stages, "", "vision (with a tower and images), prefill, decode") \
  F(std::optional<ModelOnGpu>, gpu, "", "of --gpu")                                              \
  F(std::vector<ModelOperatorRow>, operators, "", "stage by stage")                              \
  F(std::vector<std::string>, notes, "", "what was assumed")
LLMPROF_RECORD(ModelResultFields, "model_result", "A model by its configuration", LLMPROF_MODEL_RESULT_FIELDS)

struct ModelResult : ModelResultFields {
  // For the page's description; 0 where it has none of it.
  int64_t hidden_size = 0, vocab_size = 0, heads = 0, kv_heads = 0, head_dim = 0, latent_rank = 0;
  int64_t windowed_layers = 0, longest_window = 0;
  int64_t mlp_size = 0, experts = 0, expert_size = 0, experts_per_token = 0, shared_experts = 0, dense_layers = 0;
  bool gated_mlp = false, quantised_weights = false;
};

}  // namespace llmprof
