// The vision towers of the supported vision-language models.
#include <fmt/format.h>

#include <array>

#include "model/architectures.h"

namespace llmprof {
namespace {

constexpr std::array<FieldDefault, 8> kQwen2Defaults = {{{"depth", 32},
                                                         {"embed_dim", 1280},
                                                         {"num_heads", 16},
                                                         {"mlp_ratio", 4},
                                                         {"in_channels", 3},
                                                         {"patch_size", 14},
                                                         {"spatial_merge_size", 2},
                                                         {"temporal_patch_size", 2}}};
constexpr std::array<FieldDefault, 7> kClipDefaults = {{{"hidden_size", 768},
                                                        {"intermediate_size", 3072},
                                                        {"num_hidden_layers", 12},
                                                        {"num_attention_heads", 12},
                                                        {"num_channels", 3},
                                                        {"image_size", 224},
                                                        {"patch_size", 32}}};
constexpr std::array<FieldDefault, 7> kSiglipDefaults = {{{"hidden_size", 768},
                                                          {"intermediate_size", 3072},
                                                          {"num_hidden_layers", 12},
                                                          {"num_attention_heads", 12},
                                                          {"num_channels", 3},
                                                          {"image_size", 224},
                                                          {"patch_size", 16}}};

Result<JsonFields> vision_fields(const JsonFields& root, std::span<const FieldDefault> defaults) {
  LLMPROF_ASSIGN(std::optional<JsonFields> fields, root.object("vision_config"));
  if (!fields) return root.missing("vision_config");
  fields->set_defaults(defaults);
  return *std::move(fields);
}

Status check_heads(const JsonFields& f, std::string_view field, const VisionConfig& v) {
  if (v.hidden_size % v.num_heads != 0)
    return f.wrong(field, fmt::format("a divisor of the tower's width {}", v.hidden_size),
                   fmt::format("{}", v.num_heads));
  return {};
}

Status read_patches(const JsonFields& f, VisionConfig& v) {
  // Files on the hub say in_chans, saved configs in_channels.
  LLMPROF_ASSIGN(v.channels, f.integer_or("in_channels", 1, 1024, 3));
  LLMPROF_ASSIGN(v.channels, f.integer_or("in_chans", 1, 1024, v.channels));
  LLMPROF_ASSIGN(v.patch_size, f.integer("patch_size", 1, 4096));
  LLMPROF_ASSIGN(v.temporal_patch, f.integer_or("temporal_patch_size", 1, 64, 2));
  LLMPROF_ASSIGN(v.merge, f.integer_or("spatial_merge_size", 1, 64, 2));
  return {};
}

// A plain ViT of a fixed image size, as CLIP and SigLIP name its fields.
Status read_fixed_tower(const JsonFields& f, VisionConfig& v) {
  LLMPROF_ASSIGN(v.depth, f.integer("num_hidden_layers", 1, kMaxLayers));
  LLMPROF_ASSIGN(v.hidden_size, f.integer("hidden_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(v.intermediate_size, f.integer("intermediate_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(v.num_heads, f.integer("num_attention_heads", 1, kMaxDimension));
  LLMPROF_ASSIGN(v.channels, f.integer("num_channels", 1, 1024));
  LLMPROF_ASSIGN(v.image_size, f.integer("image_size", 1, 16384));
  LLMPROF_ASSIGN(v.patch_size, f.integer("patch_size", 1, v.image_size));
  v.norm = NormKind::kLayer;
  return check_heads(f, "num_attention_heads", v);
}

}  // namespace

Status read_qwen2_vision(const JsonFields& root, ModelConfig& config) {
  LLMPROF_ASSIGN(const JsonFields f, vision_fields(root, kQwen2Defaults));
  VisionConfig& v = config.vision.emplace();
  v.kind = "qwen2_vl";
  LLMPROF_ASSIGN(v.depth, f.integer("depth", 1, kMaxLayers));
  LLMPROF_ASSIGN(v.hidden_size, f.integer("embed_dim", 1, kMaxDimension));
  LLMPROF_ASSIGN(v.num_heads, f.integer("num_heads", 1, kMaxDimension));
  LLMPROF_ASSIGN(const int64_t ratio, f.integer("mlp_ratio", 1, 256));
  v.intermediate_size = ratio * v.hidden_size;
  LLMPROF_CHECK(read_patches(f, v));
  v.projector = ProjectorKind::kPatchMerger;
  // Here hidden_size is the width of the language model the merger projects to.
  LLMPROF_ASSIGN(v.output_size, f.integer_or("hidden_size", 1, kMaxDimension, config.hidden_size));
  return check_heads(f, "num_heads", v);
}

Status read_qwen25_vision(const JsonFields& root, ModelConfig& config) {
  LLMPROF_ASSIGN(const JsonFields f, vision_fields(root, {}));
  VisionConfig& v = config.vision.emplace();
  v.kind = "qwen2_5_vl";
  LLMPROF_ASSIGN(v.depth, f.integer_or("depth", 1, kMaxLayers, 32));
  LLMPROF_ASSIGN(v.hidden_size, f.integer_or("hidden_size", 1, kMaxDimension, 1280));
  LLMPROF_ASSIGN(v.intermediate_size, f.integer_or("intermediate_size", 1, kMaxDimension, 3420));
  LLMPROF_ASSIGN(v.num_heads, f.integer_or("num_heads", 1, kMaxDimension, 16));
  LLMPROF_CHECK(read_patches(f, v));
  LLMPROF_ASSIGN(v.output_size, f.integer_or("out_hidden_size", 1, kMaxDimension, config.hidden_size));
  LLMPROF_ASSIGN(const int64_t window, f.integer_or("window_size", 1, 1 << 20, 112));
  v.window_patches = window / v.patch_size;
  if (v.window_patches < 1)
    return f.wrong("window_size", fmt::format("at least patch_size ({})", v.patch_size), fmt::format("{}", window));
  LLMPROF_ASSIGN(std::optional<std::vector<int64_t>> full,
                 f.integers("fullatt_block_indexes", static_cast<size_t>(kMaxLayers)));
  v.full_layers = full ? *std::move(full) : std::vector<int64_t>{7, 15, 23, 31};
  v.norm = NormKind::kRms;
  v.gated_mlp = true;
  v.projector = ProjectorKind::kPatchMerger;
  return check_heads(f, "num_heads", v);
}

Status read_llava_vision(const JsonFields& root, ModelConfig& config) {
  LLMPROF_ASSIGN(const JsonFields f, vision_fields(root, kClipDefaults));
  LLMPROF_ASSIGN(const std::string type, f.string_or("model_type", "clip_vision_model"));
  if (type != "clip_vision_model") return f.wrong("model_type", "clip_vision_model", "\"" + type + "\"");
  VisionConfig& v = config.vision.emplace();
  v.kind = "clip";
  LLMPROF_CHECK(read_fixed_tower(f, v));
  const int64_t side = v.image_size / v.patch_size;
  v.class_token = v.pre_norm = v.post_norm = true;
  v.positions = side * side + 1;
  v.projector = ProjectorKind::kTwoLayer;
  v.output_size = config.hidden_size;
  v.tokens_per_image = side * side;  // the class token is dropped (vision_feature_select_strategy "default")
  return {};
}

Status read_gemma3_vision(const JsonFields& root, ModelConfig& config) {
  LLMPROF_ASSIGN(const JsonFields f, vision_fields(root, kSiglipDefaults));
  VisionConfig& v = config.vision.emplace();
  v.kind = "siglip";
  LLMPROF_CHECK(read_fixed_tower(f, v));
  const int64_t side = v.image_size / v.patch_size;
  v.patch_bias = v.post_norm = true;
  v.positions = side * side;
  v.projector = ProjectorKind::kPooledLinear;
  v.output_size = config.hidden_size;
  LLMPROF_ASSIGN(v.tokens_per_image, root.integer_or("mm_tokens_per_image", 1, v.positions, 256));
  return {};
}

}  // namespace llmprof
