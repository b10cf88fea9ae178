#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "model/architectures.h"
#include "model/config.h"
#include "model/json_fields.h"
#include "model/parameters.h"

namespace llmprof {
namespace {

Result<JsonDocument> parse_object(std::string_view text, const std::string& origin) {
  if (text.size() > kMaxConfigBytes)
    return fail(fmt::format("expected a config.json of at most {} bytes, found {}", kMaxConfigBytes, text.size()),
                origin, "pass the model's config.json, not its weights or an index");
  if (text.empty())
    return fail("expected a model's config in JSON, found an empty file", origin,
                "pass the config.json that lies beside the model's weights");
  Result<JsonDocument> document = JsonDocument::parse(text);
  if (!document)
    return fail("expected a model's config in JSON: " + document.error().what, origin,
                "pass the config.json that lies beside the model's weights");
  if (!document->root().is_object())
    return fail("expected a JSON object at the top of the config", origin,
                "pass the config.json that lies beside the model's weights");
  return document;
}

Result<const Family*> choose_family(const JsonFields& root) {
  LLMPROF_ASSIGN(const std::optional<std::vector<std::string>> listed, root.strings("architectures", 64));
  LLMPROF_ASSIGN(const std::string model_type, root.string_or("model_type", ""));
  const std::string architecture = listed && !listed->empty() ? listed->front() : std::string();
  if (architecture.empty() && model_type.empty()) return root.missing("architectures");
  if (const Family* family = find_family(architecture, model_type)) return family;
  std::vector<std::string> names;
  for (const Family& known : families()) names.emplace_back(known.architecture);
  std::sort(names.begin(), names.end());
  return fail(fmt::format("the architecture \"{}\" is not supported", architecture.empty() ? model_type : architecture),
              root.origin(), "supported are " + join_or(names));
}

// compressed-tensors: one group of modules with the bits and scales of its weights.
Result<std::optional<NumberFormat>> compressed_format(const JsonFields& q) {
  LLMPROF_ASSIGN(const std::optional<JsonFields> groups, q.object("config_groups"));
  if (!groups) return std::optional<NumberFormat>();
  LLMPROF_ASSIGN(const std::optional<JsonFields> group, groups->object("group_0"));
  if (!group) return std::optional<NumberFormat>();
  LLMPROF_ASSIGN(const std::optional<JsonFields> weights, group->object("weights"));
  if (!weights) return std::optional<NumberFormat>();
  LLMPROF_ASSIGN(const int64_t bits, weights->integer_or("num_bits", 1, 64, 0));
  LLMPROF_ASSIGN(const std::string type, weights->string_or("type", "int"));
  LLMPROF_ASSIGN(const int64_t group_size, weights->integer_or("group_size", -1, kMaxDimension, -1));
  std::string name;
  if (bits == 8) name = type == "float" ? "fp8" : "int8";
  if (bits == 4 && type == "int" && group_size > 0) name = fmt::format("int4-g{}", group_size);
  if (bits == 4 && type == "float") name = group_size == 32 ? "mxfp4" : "nvfp4";
  const Result<NumberFormat> format = parse_weight_format(name, "");
  return format ? std::optional<NumberFormat>(*format) : std::nullopt;
}

Result<std::optional<NumberFormat>> quantised_format(const JsonFields& q, const std::string& method) {
  std::string name;
  if (method == "fp8") name = q.has("weight_block_size") ? "fp8-block" : "fp8";
  if (method == "fbgemm_fp8") name = "fp8";
  if (method == "mxfp4") name = "mxfp4";
  if (method == "compressed-tensors") return compressed_format(q);
  if (method == "modelopt") {
    LLMPROF_ASSIGN(const std::string algorithm, q.string_or("quant_algo", ""));
    if (algorithm == "NVFP4") name = "nvfp4";
    if (algorithm == "FP8") name = "fp8";
  }
  if (method == "gptq" || method == "awq") {
    LLMPROF_ASSIGN(const int64_t bits, q.integer_or("bits", 1, 64, 4));
    LLMPROF_ASSIGN(const int64_t group, q.integer_or("group_size", -1, kMaxDimension, 128));
    // Both store a zero point per group, needed or not.
    if (bits == 4 && group > 0) name = fmt::format("int4-g{}-zp", group);
    if (bits == 8 && group < 0) name = "int8";
  }
  const Result<NumberFormat> format = parse_weight_format(name, "");
  return format ? std::optional<NumberFormat>(*format) : std::nullopt;
}

// The format that inputs are multiplied in, where the method quantises them too.
Result<std::optional<NumberFormat>> quantised_inputs(const JsonFields& q, const std::string& method) {
  std::string name;
  if (method == "fp8" || method == "fbgemm_fp8") name = "fp8";
  if (method == "modelopt") {
    LLMPROF_ASSIGN(const std::string algorithm, q.string_or("quant_algo", ""));
    if (algorithm == "NVFP4") name = "nvfp4";
    if (algorithm == "FP8") name = "fp8";
  }
  if (method == "compressed-tensors") {
    LLMPROF_ASSIGN(const std::optional<JsonFields> groups, q.object("config_groups"));
    if (!groups) return std::optional<NumberFormat>();
    LLMPROF_ASSIGN(const std::optional<JsonFields> group, groups->object("group_0"));
    if (!group) return std::optional<NumberFormat>();
    LLMPROF_ASSIGN(const std::optional<JsonFields> inputs, group->object("input_activations"));
    if (!inputs) return std::optional<NumberFormat>();
    LLMPROF_ASSIGN(const int64_t bits, inputs->integer_or("num_bits", 1, 64, 0));
    LLMPROF_ASSIGN(const std::string type, inputs->string_or("type", "int"));
    if (bits == 8) name = type == "float" ? "fp8" : "int8";
    if (bits == 4 && type == "float") name = "nvfp4";
  }
  const Result<NumberFormat> format = parse_weight_format(name, "");
  return format ? std::optional<NumberFormat>(*format) : std::nullopt;
}

Status read_quantization(const JsonFields& root, ModelConfig& config) {
  LLMPROF_ASSIGN(const std::optional<JsonFields> q, root.object("quantization_config"));
  if (!q) return {};
  QuantizationConfig& quantization = config.quantization.emplace();
  LLMPROF_ASSIGN(quantization.method, q->string_or("quant_method", "unnamed"));
  LLMPROF_ASSIGN(quantization.format, quantised_format(*q, quantization.method));
  if (quantization.format) {
    LLMPROF_ASSIGN(quantization.activations, quantised_inputs(*q, quantization.method));
  }
  LLMPROF_ASSIGN(const std::optional<std::vector<std::string>> kept, q->strings("modules_to_not_convert", 65536));
  if (kept)
    quantization.attention_kept = std::any_of(kept->begin(), kept->end(), [](const std::string& name) {
      return name.find("self_attn") != std::string::npos && name.find('*') != std::string::npos;
    });
  if (!quantization.format)
    config.notes.push_back(
        fmt::format("quantization_config has the method \"{}\", which llmprof does not know; say "
                    "--weights",
                    quantization.method));
  return {};
}

Status read_dtype(const JsonFields& root, const JsonFields& text, ModelConfig& config) {
  config.dtype = bf16_format();
  for (const JsonFields* fields : {&root, &text}) {
    for (const std::string_view field : {"torch_dtype", "dtype"}) {
      LLMPROF_ASSIGN(const std::string name, fields->string_or(field, ""));
      if (name.empty() || name == "auto") continue;
      Result<NumberFormat> format = parse_plain_format(name, fields->full_name(field));
      if (!format) return fields->wrong(field, "bfloat16, float16, float32 or an 8-bit type", "\"" + name + "\"");
      config.dtype = *std::move(format);
      config.dtype_given = true;
      return {};
    }
  }
  config.notes.emplace_back("the config names no torch_dtype; bf16 is taken");
  return {};
}

}  // namespace

int64_t ModelConfig::windowed_layers() const {
  return std::count_if(layers.begin(), layers.end(), [](const LayerConfig& layer) { return layer.window != 0; });
}
int64_t ModelConfig::longest_window() const {
  int64_t window = 0;
  for (const LayerConfig& layer : layers) window = std::max(window, layer.window);
  return window;
}
int64_t ModelConfig::moe_layers() const {
  return std::count_if(layers.begin(), layers.end(), [](const LayerConfig& layer) { return layer.moe; });
}

Result<ModelConfig> read_config(std::string_view json_text, std::string origin) {
  LLMPROF_ASSIGN(const JsonDocument document, parse_object(json_text, origin));
  const JsonFields root(document.root(), origin);
  LLMPROF_ASSIGN(const Family* const family, choose_family(root));

  ModelConfig config;
  config.id = origin;
  config.origin = origin;
  config.architecture = family->architecture;
  // Vision-language models nest the language model; older files of theirs do not.
  LLMPROF_ASSIGN(std::optional<JsonFields> nested, root.object("text_config"));
  if (nested) nested->set_defaults(family->nested_defaults);
  const JsonFields text = nested ? *nested : root;
  LLMPROF_CHECK(family->read_text(text, config));
  if (nested) {
    // Whether the embeddings are tied is said at the top where it is said at all.
    LLMPROF_ASSIGN(config.tied_embeddings, root.boolean_or("tie_word_embeddings", config.tied_embeddings));
  }
  if (family->read_vision != nullptr) LLMPROF_CHECK(family->read_vision(root, config));
  LLMPROF_CHECK(read_dtype(root, text, config));
  LLMPROF_CHECK(read_quantization(root, config));
  LLMPROF_CHECK(check_size(config));
  return config;
}

std::vector<ArchitectureRow> architecture_rows() {
  std::vector<ArchitectureRow> rows;
  for (const Family& family : families()) rows.push_back({std::string(family.architecture), std::string(family.what)});
  return rows;
}

}  // namespace llmprof
