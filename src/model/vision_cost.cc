// The operator graph of the vision tower: patches in, tokens for the language model out. Attention is bidirectional, so
// "causal" counts all pairs inside a window (or the image) and "full" all pairs of the image.
#include <fmt/format.h>

#include <algorithm>

#include "model/cost.h"
#include "model/stage_builder.h"

namespace llmprof {
namespace {

// Sum of the squares of the pieces that a side of `length` is cut into.
int64_t squared_pieces(int64_t length, int64_t piece) {
  const int64_t rest = length % piece;
  return length / piece * piece * piece + rest * rest;
}

bool has_windows(const VisionConfig& v, int64_t layer) {
  return v.window_patches != 0 && std::find(v.full_layers.begin(), v.full_layers.end(), layer) == v.full_layers.end();
}

// Pairs of one image in one layer; windows at the border may be smaller.
int64_t image_pairs(const VisionConfig& v, const ImageGrid& grid, int64_t layer) {
  if (!has_windows(v, layer)) return grid.patches * grid.patches;
  return squared_pieces(grid.rows, v.window_patches) * squared_pieces(grid.columns, v.window_patches);
}

void add_block(StageBuilder& b, const VisionConfig& v, const ImageGrid& grid, int64_t images, int64_t layer) {
  const int64_t rows = images * grid.patches;
  b.set_layer(layer);
  for (const Tensor& tensor : vision_block_tensors(v)) {
    if (!tensor.linear) {
      const double passes = tensor.name == "norm1" && layer == 0 ? 1 : 2;
      b.add_pointwise("vision." + tensor.name, OperatorKind::kNorm, rows, v.hidden_size, passes, passes, &tensor);
      continue;
    }
    if (tensor.name == "attn_out") {
      if (v.positions == 0)
        b.add_pointwise("vision.rope", OperatorKind::kElementwise, rows, 2 * v.hidden_size, 1, 1, nullptr);
      Operator& op = b.add("vision.attention", OperatorKind::kAttention,
                           fmt::format("{} x {} heads x {} patches x {}", images, v.num_heads, grid.patches,
                                       v.hidden_size / v.num_heads));
      if (has_windows(v, layer)) op.shape += fmt::format(" (windows of {0} x {0})", v.window_patches);
      const double per_pair = 4 * as_double(v.hidden_size) * as_double(images);
      op.flops = per_pair * as_double(image_pairs(v, grid, layer));
      op.flops_full = per_pair * as_double(grid.patches) * as_double(grid.patches);
      const double elements = as_double(rows) * as_double(v.hidden_size);
      b.set_activations(op, 3 * elements, elements);
    }
    if (tensor.name == "mlp.down")
      b.add_pointwise("vision.activation", OperatorKind::kElementwise, rows, v.intermediate_size, v.gated_mlp ? 2 : 1,
                      1, nullptr);
    b.add_linear(tensor, rows);
    b.last().name.insert(0, "vision.");
  }
}

void add_projector(StageBuilder& b, const VisionConfig& v, const ImageGrid& grid, int64_t images) {
  const int64_t rows = images * grid.tokens;
  if (v.projector == ProjectorKind::kPooledLinear) {
    Operator& pool = b.add("projector.pool", OperatorKind::kElementwise,
                           fmt::format("{} x {} -> {}", images * grid.patches, v.hidden_size, rows));
    b.set_activations(pool, as_double(images * grid.patches) * as_double(v.hidden_size),
                      as_double(rows) * as_double(v.hidden_size));
  }
  for (const Tensor& tensor : projector_tensors(v)) {
    if (tensor.linear) {
      if (tensor.name.ends_with("fc2") || tensor.name.ends_with("linear_2"))
        b.add_pointwise("projector.activation", OperatorKind::kElementwise, rows, tensor.in, 1, 1, nullptr);
      b.add_linear(tensor, rows);
    } else {
      // The merger's norm runs on patches, before they are merged.
      const int64_t norm_rows = v.projector == ProjectorKind::kPatchMerger ? images * grid.patches : rows;
      b.add_pointwise(tensor.name, OperatorKind::kNorm, norm_rows, v.hidden_size, 1, 1, &tensor);
    }
  }
}

}  // namespace

StageCost vision_cost(const ModelConfig& config, const RequestShape& w) {
  StageBuilder b(ModelStage::kVision, w);
  if (!config.vision) return b.finish();
  const VisionConfig& v = *config.vision;
  const ImageGrid grid = image_grid(v, w);
  const int64_t images = w.images * w.batch;
  const int64_t rows = images * grid.patches;
  for (const Tensor& tensor : vision_tensors(config)) {
    if (tensor.name == "patch_embed") b.add_linear(tensor, images * grid.rows * grid.columns);
    if (tensor.name == "position_embedding")
      b.add_pointwise("vision.position_embedding", OperatorKind::kElementwise, rows, v.hidden_size, 1, 1, &tensor);
    if (tensor.name == "pre_layernorm")
      b.add_pointwise("vision.pre_layernorm", OperatorKind::kNorm, rows, v.hidden_size, 1, 1, &tensor);
  }
  for (int64_t layer = 0; layer < v.depth; ++layer) add_block(b, v, grid, images, layer);
  b.set_layer(-1);
  for (const Tensor& tensor : vision_tensors(config))
    if (tensor.name == "post_layernorm")
      b.add_pointwise("vision.post_layernorm", OperatorKind::kNorm, rows, v.hidden_size, 1, 1, &tensor);
  add_projector(b, v, grid, images);
  StageCost cost = b.finish();
  cost.batch = images;
  cost.new_tokens = cost.context = grid.patches;
  return cost;
}

}  // namespace llmprof
