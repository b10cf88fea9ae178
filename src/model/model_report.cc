#include "model/model_report.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

#include "base/csv.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "model/catalogue.h"

namespace llmprof {
namespace {

constexpr double kExactLimit = 9007199254740992.0;  // 2^53

// Counts are printed as whole numbers while they are exact.
void count_field(JsonWriter& json, std::string_view name, double value) {
  if (value == std::floor(value) && std::fabs(value) < kExactLimit)
    json.field(name, static_cast<int64_t>(value));
  else
    json.field(name, value);
}

std::string count_text(double value) {
  if (value == std::floor(value) && std::fabs(value) < kExactLimit)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

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
  const Workload& w = report.workload;
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
  Workload& w = report.workload;
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
  LLMPROF_CHECK(check_workload(config, w));

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

std::vector<OperatorGroup> group_operators(const StageCost& stage) {
  std::vector<OperatorGroup> groups;
  std::unordered_map<std::string, size_t> index;
  for (const Operator& op : stage.operators) {
    const auto [found, added] = index.try_emplace(op.name + '\n' + op.shape, groups.size());
    if (added) groups.push_back({&op, {}, 0, 0});
    OperatorGroup& group = groups[found->second];
    group.layers.push_back(op.layer);
    group.flops += op.flops;
    group.bytes += op.bytes();
  }
  return groups;
}

namespace {

void write_params(JsonWriter& json, const Params& params) {
  json.key("params").begin_object();
  json.field("total", params.total).field("active_per_token", params.active_per_token);
  json.field("embedding", params.embedding).field("lm_head", params.lm_head);
  json.field("lm_head_tied", params.lm_head_tied);
  json.field("vision", params.vision).field("projector", params.projector);
  json.field("final_norm", params.final_norm).field("linear_per_token", params.linear_per_token);
  json.key("by_layer").begin_array();
  for (const LayerParams& layer : params.by_layer) {
    json.begin_object().field("layer", layer.layer).field("kind", layer.kind);
    json.field("total", layer.total).field("active", layer.active).field("attention", layer.attention);
    json.field("mlp", layer.mlp).field("router", layer.router).field("experts", layer.experts);
    json.field("norms", layer.norms).end_object();
  }
  json.end_array().end_object();
}

void write_stage(JsonWriter& json, const StageCost& stage) {
  json.begin_object().field("kind", name_of(stage.stage)).field("batch", stage.batch);
  json.field("new_tokens", stage.new_tokens).field("context", stage.context);
  json.key("flops").begin_object();
  count_field(json, "linear", stage.flops.linear);
  count_field(json, "attention_causal", stage.flops.attention_causal);
  count_field(json, "attention_full", stage.flops.attention_full);
  count_field(json, "lm_head", stage.flops.lm_head);
  count_field(json, "total", stage.flops.total());
  json.end_object().key("bytes").begin_object();
  count_field(json, "weights", stage.bytes.weights);
  count_field(json, "kv_read", stage.bytes.kv_read);
  count_field(json, "kv_write", stage.bytes.kv_write);
  count_field(json, "activations", stage.bytes.activations);
  count_field(json, "total", stage.bytes.total());
  json.end_object().field("intensity", stage.intensity()).end_object();
}

void write_operator(JsonWriter& json, const Operator& op, ModelStage stage) {
  json.begin_object().field("name", op.name);
  json.key("layer");
  if (op.layer < 0)
    json.null();
  else
    json.value(op.layer);
  json.field("stage", name_of(stage)).field("shape", op.shape);
  count_field(json, "flops", op.flops);
  count_field(json, "bytes", op.bytes());
  json.field("intensity", op.intensity());
  count_field(json, "weight_bytes", op.weight_bytes);
  count_field(json, "kv_read_bytes", op.kv_read_bytes);
  count_field(json, "kv_write_bytes", op.kv_write_bytes);
  count_field(json, "activation_bytes", op.activation_bytes);
  count_field(json, "output_bytes", op.output_bytes);
  json.end_object();
}

}  // namespace

std::string to_json(const ModelReport& report) {
  const Workload& w = report.workload;
  JsonWriter json;
  json.begin_object().field("schema", "llmprof.model/1").field("id", report.config.id);
  json.field("architecture", report.config.architecture).field("dtype", w.activations.name);
  json.field("layers", report.config.num_layers());
  json.key("workload").begin_object();
  json.field("batch", w.batch).field("prompt", w.prompt).field("prefix", w.prefix);
  json.field("context", w.decode_context()).field("new", w.new_tokens).end_object();
  write_params(json, report.params);
  json.key("weights").begin_object().field("dtype", w.weights.name);
  count_field(json, "bytes", report.memory.weights_bytes);
  json.field("unquantised_dtype", w.wide().name).field("compute_dtype", w.compute_format());
  json.field("scheme", w.scheme()).end_object();
  json.key("kv_cache").begin_object().field("dtype", w.kv.name);
  count_field(json, "bytes_per_token", report.kv_bytes_per_token);
  count_field(json, "bytes_per_token_beyond_window", report.kv_bytes_per_token_beyond_window);
  count_field(json, "bytes", report.memory.kv_bytes);
  count_field(json, "bytes_whole", report.memory.kv_bytes_whole);
  json.field("tokens_per_sequence", w.cache_tokens()).end_object();
  json.key("memory").begin_object();
  count_field(json, "weights_bytes", report.memory.weights_bytes);
  count_field(json, "kv_bytes", report.memory.kv_bytes);
  count_field(json, "activation_peak_bytes", report.memory.activation_peak_bytes);
  count_field(json, "total_bytes", report.memory.total_bytes());
  json.end_object().key("stages").begin_array();
  for (const StageCost& stage : report.stages) write_stage(json, stage);
  json.end_array().key("gpu");
  if (report.on_gpu)
    write_json(json, *report.on_gpu);
  else
    json.null();
  json.key("operators").begin_array();
  for (const StageCost& stage : report.stages)
    for (const Operator& op : stage.operators) write_operator(json, op, stage.stage);
  json.end_array().key("notes").begin_array();
  for (const std::string& note : report.notes) json.value(note);
  json.end_array().end_object();
  return json.take() + "\n";
}

std::string to_csv(const ModelReport& report) {
  std::string out =
      "name,layer,stage,shape,flops,bytes,intensity,weight_bytes,kv_read_bytes,kv_write_bytes,activation_bytes,"
      "output_bytes\n";
  for (const StageCost& stage : report.stages)
    for (const Operator& op : stage.operators)
      append_csv_row(
          out, {op.name, op.layer < 0 ? std::string() : fmt::format("{}", op.layer), std::string(name_of(stage.stage)),
                op.shape, count_text(op.flops), count_text(op.bytes()), fmt::format("{}", op.intensity()),
                count_text(op.weight_bytes), count_text(op.kv_read_bytes), count_text(op.kv_write_bytes),
                count_text(op.activation_bytes), count_text(op.output_bytes)});
  return out;
}

}  // namespace llmprof
