#include "model/model_report.h"

#include <fmt/format.h>

#include "base/text_table.h"
#include "model/catalogue.h"

namespace llmprof {
namespace {

Result<NumberFormat> choose_activations(const ModelConfig& config, const ModelOptions& options, ModelReport& report) {
  if (!options.dtype.empty()) return parse_plain_format(options.dtype, "--dtype");
  if (config.dtype.bits <= 16) return config.dtype;
  report.notes.push_back(
      fmt::format("the checkpoint is stored in {}; bf16 is taken, as serving engines do (--dtype {} "
                  "to keep it)",
                  config.dtype.name, config.dtype.name));
  return bf16_format();
}

Result<NumberFormat> choose_weights(const ModelConfig& config, const ModelOptions& options,
                                    const NumberFormat& activations) {
  if (!options.weights.empty()) return parse_weight_format(options.weights, "--weights");
  // An 8-bit --dtype or torch_dtype is that of the weights too, with the scales that weights of that type have.
  if (!config.quantization)
    return activations.quantised() ? parse_weight_format(activations.name, "--dtype") : activations;
  if (config.quantization->format) return *config.quantization->format;
  return fail(
      fmt::format("the checkpoint is quantised by a method llmprof does not know: \"{}\"", config.quantization->method),
      config.origin, "say how the weights are stored with --weights, for example --weights int4-g128",
      ExitCode::kUsage);
}

Result<std::optional<NumberFormat>> choose_inputs(const ModelConfig& config, const ModelOptions& options,
                                                  const NumberFormat& weights) {
  if (!options.activations.empty()) {
    LLMPROF_ASSIGN(NumberFormat format, parse_weight_format(options.activations, "--activations"));
    return format.quantised() ? std::optional<NumberFormat>(std::move(format)) : std::nullopt;
  }
  // What the checkpoint says holds for the weights that it has.
  const bool own = config.quantization && config.quantization->format && *config.quantization->format == weights;
  return own ? config.quantization->activations : std::nullopt;
}

void add_notes(ModelReport& report) {
  const ModelConfig& c = report.config;
  const RequestShape& w = report.shape;
  const double slid_out = report.memory.kv_bytes_whole - report.memory.kv_bytes;
  if (slid_out > 0)
    report.notes.push_back(fmt::format(
        "{} of {} layers keep no more than the last {} tokens, as engines free what slid out (vLLM's hybrid KV cache "
        "manager, caches of transformers); one that keeps every token in every layer needs {} more",
        c.windowed_layers(), c.num_layers(), c.longest_window(), format_bytes(slid_out)));
  if (c.max_position != 0 && w.cache_tokens() > c.max_position)
    report.notes.push_back(fmt::format("{} tokens are more than the model's {} positions{}", w.cache_tokens(),
                                       c.max_position,
                                       c.learned_positions == 0 ? "" : ", which are learned: it cannot run them"));
  if (w.weights.bits < w.activations.bits || w.inputs) {
    const bool attention_kept = c.quantization && c.quantization->attention_kept;
    report.notes.push_back(fmt::format(
        "{}: weights in {} are multiplied in {}{}; {}embedding, lm_head, norms, biases, routers and the "
        "vision tower stay in {}",
        w.scheme(), w.weights.name, w.compute_format(),
        w.inputs ? ", their inputs quantised as they come" : " (weights only; --activations quantises inputs)",
        attention_kept ? "attention, " : "", w.wide().name));
  }
  if (c.moe)
    report.notes.emplace_back(
        "weight bytes count the experts expected to be hit by uniform, independent routing; skewed routing hits fewer");
  if (c.vision && w.images != 0) {
    const ImageGrid grid = image_grid(*c.vision, w);
    report.notes.push_back(fmt::format("an image of {} x {} pixels becomes {} patches and {} tokens of the prompt",
                                       grid.height_px, grid.width_px, grid.patches, grid.tokens));
  }
}

}  // namespace

Result<ModelReport> report_model(const ModelOptions& options) {
  LLMPROF_ASSIGN(ModelConfig config, options.model == "-" ? read_model_from_input() : load_model(options.model));
  return report_model(std::move(config), options);
}

Result<ModelReport> report_model(ModelConfig config, const ModelOptions& options) {
  ModelReport report;
  report.notes = config.notes;
  RequestShape& w = report.shape;
  w.batch = options.batch;
  w.prompt = options.prompt;
  w.prefix = options.prefix;
  w.context = options.context;
  w.new_tokens = options.new_tokens;
  w.images = options.images.value_or(1);
  if (!config.vision && options.images.value_or(0) != 0)
    return fail(fmt::format("{} takes no images, found --images {}", config.id, *options.images), "--images",
                "leave the option out; `llmprof list models` says which models have a vision tower", ExitCode::kUsage);
  w.image_height = options.image_height;
  w.image_width = options.image_width;
  LLMPROF_ASSIGN(w.activations, choose_activations(config, options, report));
  LLMPROF_ASSIGN(w.weights, choose_weights(config, options, w.activations));
  LLMPROF_ASSIGN(w.inputs, choose_inputs(config, options, w.weights));
  w.kv = w.activations;
  if (!options.kv_dtype.empty()) {
    LLMPROF_ASSIGN(w.kv, parse_plain_format(options.kv_dtype, "--kv-dtype"));
  }
  LLMPROF_CHECK(check_shape(config, w));

  report.params = count_params(config);
  report.memory = memory_need(config, w);
  report.kv_bytes_per_token = kv_bytes_per_token(config, w.kv);
  report.kv_bytes_per_token_beyond_window = kv_bytes_per_token_beyond_window(config, w.kv);
  if (config.vision && w.images != 0) report.stages.push_back(vision_cost(config, w));
  report.stages.push_back(prefill_cost(config, w));
  report.stages.push_back(decode_cost(config, w));
  report.config = std::move(config);
  if (!options.gpu.empty()) {
    LLMPROF_ASSIGN(const Gpu gpu, find_gpu(options.gpu));
    report.on_gpu = hold_against(gpu, w, report.memory, report.stages);
    report.on_gpu->asked = options.gpu;
    report.on_gpu->others = other_parts_called(options.gpu);
  }
  add_notes(report);
  return report;
}

namespace {

ModelStageRow row_of(const StageCost& stage) {
  const StageFlops& flops = stage.flops;
  const StageBytes& bytes = stage.bytes;
  return {stage.stage,
          stage.batch,
          stage.new_tokens,
          stage.context,
          {{flops.linear}, {flops.attention_causal}, {flops.attention_full}, {flops.lm_head}, {flops.total()}},
          {{bytes.weights}, {bytes.kv_read}, {bytes.kv_write}, {bytes.activations}, {bytes.total()}},
          stage.intensity()};
}

ModelOperatorRow row_of(const Operator& op, ModelStage stage) {
  return {op.name,
          op.layer < 0 ? OptInt() : OptInt(op.layer),
          stage,
          op.shape,
          {op.flops},
          {op.bytes()},
          op.intensity(),
          {op.weight_bytes},
          {op.kv_read_bytes},
          {op.kv_write_bytes},
          {op.activation_bytes},
          {op.output_bytes}};
}

void describe(const ModelConfig& config, ModelResult& out) {
  out.hidden_size = config.hidden_size;
  out.vocab_size = config.vocab_size;
  out.heads = config.num_heads;
  out.kv_heads = config.num_kv_heads;
  out.head_dim = config.head_dim;
  if (config.mla) out.latent_rank = config.mla->kv_lora_rank;
  out.windowed_layers = config.windowed_layers();
  out.longest_window = config.longest_window();
  out.mlp_size = config.intermediate_size;
  out.gated_mlp = config.gated_mlp;
  if (!config.moe) return;
  out.experts = config.moe->experts;
  out.expert_size = config.moe->intermediate_size;
  out.experts_per_token = config.moe->top_k;
  if (config.moe->shared_intermediate_size != 0) out.shared_experts = config.moe->shared_experts;
  out.dense_layers = config.num_layers() - config.moe_layers();
}

}  // namespace

ModelResult model_result(const ModelReport& report) {
  const RequestShape& w = report.shape;
  const MemoryNeed& memory = report.memory;
  ModelResult out;
  out.id = report.config.id;
  out.architecture = report.config.architecture;
  out.dtype = w.activations.name;
  out.layers = report.config.num_layers();
  out.request_shape = {w.batch, w.prompt, w.prefix, w.decode_context(), w.new_tokens};
  out.params = report.params;
  out.weights = {w.weights.name, {memory.weights_bytes}, w.wide().name, w.compute_format(), w.scheme()};
  out.kv_cache = {w.kv.name,         {report.kv_bytes_per_token}, {report.kv_bytes_per_token_beyond_window},
                  {memory.kv_bytes}, {memory.kv_bytes_whole},     w.cache_tokens()};
  out.memory = {{memory.weights_bytes}, {memory.kv_bytes}, {memory.activation_peak_bytes}, {memory.total_bytes()}};
  if (report.on_gpu) out.gpu = on_gpu_result(*report.on_gpu);
  for (const StageCost& stage : report.stages) {
    out.stages.push_back(row_of(stage));
    for (const Operator& op : stage.operators) out.operators.push_back(row_of(op, stage.stage));
  }
  out.notes = report.notes;
  out.quantised_weights = w.weights.quantised();
  describe(report.config, out);
  return out;
}

}  // namespace llmprof
