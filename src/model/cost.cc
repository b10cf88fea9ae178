#include "model/cost.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmprof {
namespace {

constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxTokens = int64_t{1} << 26;  // per sequence and option, so that prefix + prompt stays below 2^27
constexpr int64_t kMaxImageSide = 16384;

Status check_range(std::string_view option, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return fail(fmt::format("expected {} to be from {} to {}, found {}", option, low, high, value), std::string(option),
              "", ExitCode::kUsage);
}

}  // namespace

int64_t RequestShape::cache_tokens() const { return std::max(decode_context(), prefix + prompt + new_tokens); }

NumberFormat RequestShape::wide() const {
  if (!weights.quantised()) return weights;
  return activations.quantised() ? bf16_format() : activations;
}

std::string RequestShape::compute_format() const {
  // Groups and scales ("int4-g128") are how it is stored.
  if (inputs) return inputs->name.substr(0, inputs->name.find('-'));
  if (activations.bits == 8 && weights.bits == 8 && activations.floating == weights.floating) return activations.name;
  return activations.quantised() ? wide().name : activations.name;
}

std::string RequestShape::scheme() const {
  const bool narrow = inputs || activations.quantised();
  const int multiplied = inputs                                           ? inputs->bits
                         : narrow && compute_format() == activations.name ? activations.bits
                                                                          : wide().bits;
  return fmt::format("W{}A{}", weights.bits, multiplied);
}

std::map<std::string, double> flops_by_format(const StageCost& stage, const RequestShape& shape) {
  std::map<std::string, double> flops;
  for (const Operator& op : stage.operators)
    if (op.flops > 0) flops[op.quantised ? shape.compute_format() : shape.wide().name] += op.flops;
  return flops;
}

namespace {

// The tokens of its images are part of the prompt.
Status check_images(const ModelConfig& config, const RequestShape& w) {
  if (!config.vision || w.images == 0) return {};
  const ImageGrid grid = image_grid(*config.vision, w);
  if (w.images * grid.tokens <= w.prompt) return {};
  return fail(
      fmt::format("{} image{} of {} x {} pixels {} {} tokens of the prompt, found a prompt of {}", w.images,
                  w.images == 1 ? "" : "s", grid.height_px, grid.width_px, w.images == 1 ? "is" : "are",
                  w.images * grid.tokens, w.prompt),
      "--prompt",
      fmt::format("--prompt {} or more, smaller images (--image-height, --image-width), or --images 0 for text only",
                  w.images * grid.tokens + 1),
      ExitCode::kUsage);
}

// Inputs of 8 bits need weights that the matrix units multiply with them.
Status check_inputs(const RequestShape& w) {
  if (!w.inputs || !w.inputs->quantised()) return {};
  const bool same_kind = w.weights.floating == w.inputs->floating;
  if (w.weights.quantised() && (same_kind ? w.weights.bits <= w.inputs->bits : w.weights.bits < w.inputs->bits))
    return {};
  return fail(fmt::format("inputs in {} are multiplied with quantised weights of the same kind, found weights in {}",
                          w.inputs->name, w.weights.name),
              "--activations", fmt::format("--weights {0} --activations {0}", w.inputs->name), ExitCode::kUsage);
}

}  // namespace

Status check_shape(const ModelConfig& config, const RequestShape& w) {
  LLMPROF_CHECK(check_range("--batch", w.batch, 1, kMaxBatch));
  LLMPROF_CHECK(check_range("--prompt", w.prompt, 1, kMaxTokens));
  LLMPROF_CHECK(check_range("--prefix", w.prefix, 0, kMaxTokens));
  LLMPROF_CHECK(check_range("--context", w.context, 0, 2 * kMaxTokens));
  LLMPROF_CHECK(check_range("--new", w.new_tokens, 0, kMaxTokens));
  LLMPROF_CHECK(check_range("--images", w.images, 0, kMaxBatch));
  LLMPROF_CHECK(check_range("--image-height", w.image_height, 0, kMaxImageSide));
  LLMPROF_CHECK(check_range("--image-width", w.image_width, 0, kMaxImageSide));
  if (!config.vision && (w.image_height != 0 || w.image_width != 0))
    return fail(fmt::format("{} takes no images", config.id), "--image-height, --image-width", "leave the options out",
                ExitCode::kUsage);
  LLMPROF_CHECK(check_inputs(w));
  return check_images(config, w);
}

double kv_bytes_per_token_and_layer(const ModelConfig& config, const NumberFormat& kv) {
  const int64_t elements =
      config.mla ? config.mla->kv_lora_rank + config.mla->qk_rope_dim : 2 * config.num_kv_heads * config.head_dim;
  return static_cast<double>(elements) * kv.element_bytes();
}

double kv_bytes_per_token(const ModelConfig& config, const NumberFormat& kv) {
  return static_cast<double>(config.num_layers()) * kv_bytes_per_token_and_layer(config, kv);
}

double kv_bytes_per_token_beyond_window(const ModelConfig& config, const NumberFormat& kv) {
  return static_cast<double>(config.num_layers() - config.windowed_layers()) * kv_bytes_per_token_and_layer(config, kv);
}

MemoryNeed memory_need(const ModelConfig& config, const RequestShape& w) {
  MemoryNeed need;
  need.weights_bytes = weight_bytes(config, w.weights, w.wide());
  const double per_layer = kv_bytes_per_token_and_layer(config, w.kv);
  const int64_t tokens = w.cache_tokens();
  double kept = 0, mlp_width = 0;
  for (const LayerConfig& layer : config.layers) {
    kept += static_cast<double>(layer.window == 0 ? tokens : std::min(tokens, layer.window));
    const MoeConfig moe = config.moe.value_or(MoeConfig());
    const int64_t width =
        layer.moe ? moe.top_k * moe.intermediate_size + moe.shared_intermediate_size : config.intermediate_size;
    mlp_width = std::max(mlp_width, static_cast<double>(width));
  }
  const double batch = static_cast<double>(w.batch);
  need.kv_bytes = batch * kept * per_layer;
  need.kv_bytes_whole = batch * static_cast<double>(tokens) * static_cast<double>(config.num_layers()) * per_layer;
  const double rows = batch * static_cast<double>(w.prompt);
  need.activation_peak_bytes =
      rows * (4 * static_cast<double>(config.hidden_size) + 2 * mlp_width) * w.activations.element_bytes() +
      batch * static_cast<double>(config.vocab_size) * 4;
  return need;
}

ImageGrid image_grid(const VisionConfig& v, const RequestShape& w) {
  ImageGrid grid;
  if (v.image_size != 0) {
    grid.height_px = grid.width_px = v.image_size;
  } else {
    // To the nearest multiple of what becomes one token, as the models' image processors do.
    const int64_t step = v.patch_size * v.merge;
    const auto snap = [step](int64_t side) { return std::max<int64_t>(1, (side + step / 2) / step) * step; };
    grid.height_px = snap(w.image_height != 0 ? w.image_height : kDefaultImageSide);
    grid.width_px = snap(w.image_width != 0 ? w.image_width : kDefaultImageSide);
  }
  grid.rows = grid.height_px / v.patch_size;
  grid.columns = grid.width_px / v.patch_size;
  grid.patches = grid.rows * grid.columns + (v.class_token ? 1 : 0);
  grid.tokens = v.tokens_per_image != 0 ? v.tokens_per_image : grid.rows * grid.columns / (v.merge * v.merge);
  return grid;
}

}  // namespace llmprof
