// Reading configs: every shape of file that is out there, and every kind of file that is not one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "model/catalogue.h"
#include "model/config.h"
#include "model/parameters.h"
#include "text_contains.h"

namespace llmprof {
namespace {

constexpr std::string_view kLlama =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
  "torch_dtype": "bfloat16"})";

// kLlama with `field` set to the JSON text `value`; an empty value removes the field.
std::string llama_with(const std::string& field, const std::string& value) {
  std::string text(kLlama);
  const size_t at = text.find('"' + field + '"');
  if (at != std::string::npos) {
    size_t end = text.find_first_of(",}", at);
    if (text[end] == ',') ++end;
    text.erase(at, end - at);
    const size_t last = text.find_last_not_of(" \n", text.size() - 2);
    if (text[last] == ',') text.erase(last, 1);
  }
  if (!value.empty()) text.insert(1, '"' + field + "\": " + value + ", ");
  return text;
}

std::string error_of(std::string_view text) {
  const Result<ModelConfig> config = read_config(text, "dir/config.json");
  return config ? "" : config.error().text();
}

ModelConfig good(std::string_view text) {
  Result<ModelConfig> config = read_config(text, "config.json");
  EXPECT_TRUE(config) << (config ? "" : config.error().text());
  return config ? *std::move(config) : ModelConfig();
}

TEST(ModelConfig, ReadsALlama) {
  const ModelConfig c = good(kLlama);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.num_layers(), 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_FALSE(c.tied_embeddings);
  // 2 x 100 x 64 tables; per layer q, o 64 x 64, k, v 32 x 64, three of 96 x 64, two norms; one norm.
  EXPECT_EQ(count_params(c).total, 12800 + 2 * (8192 + 4096 + 18432 + 128) + 64);
}

TEST(ModelConfig, TheOrderOfFieldsAndUnknownOnesDoNotMatter) {
  const ModelConfig c = good(R"({"vocab_size": 100, "zzz": {"deep": [1, {"x": null}]}, "num_key_value_heads": 2,
    "num_attention_heads": 4, "num_hidden_layers": 2.0, "intermediate_size": 96, "hidden_size": 64, "mlp_bias": null,
    "model_type": "llama"})");
  EXPECT_EQ(count_params(c).total, count_params(good(kLlama)).total);
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_FALSE(c.dtype_given);
}

TEST(ModelConfig, HeadDimIsReadAndBiasesCount) {
  EXPECT_EQ(good(llama_with("head_dim", "32")).head_dim, 32);
  const int64_t plain = count_params(good(kLlama)).total;
  EXPECT_EQ(count_params(good(llama_with("attention_bias", "true"))).total - plain, 2 * (64 + 32 + 32 + 64));
  EXPECT_EQ(count_params(good(llama_with("mlp_bias", "true"))).total - plain, 2 * (96 + 96 + 64));
  EXPECT_EQ(count_params(good(llama_with("tie_word_embeddings", "true"))).total - plain, -6400);
}

TEST(ModelConfig, WindowsByRuleByListAndByLayer) {
  const std::string mistral = R"({"architectures": ["MistralForCausalLM"], "sliding_window": 8, )";
  const std::string rest = llama_with("architectures", "").substr(1);
  EXPECT_EQ(good(mistral + rest).windowed_layers(), 2);
  const ModelConfig listed = good(mistral + R"("layer_types": ["full_attention", "sliding_attention"], )" + rest);
  EXPECT_EQ(listed.layers[0].window, 0);
  EXPECT_EQ(listed.layers[1].window, 8);
  EXPECT_TRUE(contains(error_of(mistral + R"("layer_types": ["full_attention"], )" + rest), "expected 2 entries"));
  EXPECT_TRUE(contains(error_of(mistral + R"("layer_types": ["linear_attention", "full_attention"], )" + rest),
                       "linear_attention"));
  // Qwen2 slides only when told to, and then from max_window_layers on.
  const std::string qwen = R"({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 8, "max_window_layers": 1, )";
  EXPECT_EQ(good(qwen + rest).windowed_layers(), 0);
  const ModelConfig used = good(qwen + R"("use_sliding_window": true, )" + rest);
  EXPECT_EQ(used.layers[0].window, 0);
  EXPECT_EQ(used.layers[1].window, 8);
}

TEST(ModelConfig, AWindowThatIsNotNamedIsTheReferencesAndNullIsNone) {
  const std::string rest = llama_with("architectures", "").substr(1);
  const auto window = [&](const std::string& fields) {
    const ModelConfig c = good("{" + fields + ", " + rest);
    return c.layers.back().window;
  };
  EXPECT_EQ(window(R"("architectures": ["MistralForCausalLM"])"), 4096);
  EXPECT_EQ(window(R"("architectures": ["MistralForCausalLM"], "sliding_window": null)"), 0);
  EXPECT_EQ(window(R"("architectures": ["MistralForCausalLM"], "sliding_window": 0)"), 0);
  EXPECT_EQ(window(R"("architectures": ["Phi3ForCausalLM"])"), 0);
  EXPECT_EQ(window(R"("architectures": ["Qwen2ForCausalLM"], "max_window_layers": 0)"), 0);
  EXPECT_EQ(window(R"("architectures": ["Qwen2ForCausalLM"], "max_window_layers": 0, "use_sliding_window": true)"),
            4096);
  // Every second layer is full, by either name of the field.
  const std::string gemma = R"("architectures": ["Gemma3ForCausalLM"], "head_dim": 16, "sliding_window": 8)";
  EXPECT_EQ(window(gemma), 8);
  EXPECT_EQ(window(gemma + R"(, "sliding_window_pattern": 2)"), 0);
  EXPECT_EQ(window(gemma + R"(, "_sliding_window_pattern": 2)"), 0);
}

TEST(ModelConfig, QuantisedCheckpoints) {
  const auto format = [](const std::string& quantization) {
    const ModelConfig c = good(llama_with("quantization_config", quantization));
    return c.quantization && c.quantization->format ? c.quantization->format->name : std::string();
  };
  EXPECT_EQ(format(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"), "fp8-block");
  EXPECT_EQ(format(R"({"quant_method": "fp8"})"), "fp8");
  EXPECT_EQ(format(R"({"quant_method": "awq", "bits": 4, "group_size": 128})"), "int4-g128-zp");
  EXPECT_EQ(format(R"({"quant_method": "gptq", "bits": 4, "group_size": 32})"), "int4-g32-zp");
  EXPECT_EQ(format(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"), "nvfp4");
  EXPECT_EQ(format(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8,
    "type": "float"}}}})"),
            "fp8");
  EXPECT_EQ(format(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4,
    "type": "int", "group_size": 64}}}})"),
            "int4-g64");
  EXPECT_EQ(format(R"({"quant_method": "never-heard-of"})"), "");
}

TEST(ModelConfig, AMissingFieldIsNamedWithTheFileAndTheRemedy) {
  for (const std::string field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    const std::string error = error_of(llama_with(field, ""));
    EXPECT_TRUE(contains(error, "\"" + field + "\""));
    EXPECT_TRUE(contains(error, "dir/config.json"));
    EXPECT_TRUE(contains(error, "try:"));
    EXPECT_EQ(error_of(llama_with(field, "null")), error) << "null is as good as absent";
  }
  EXPECT_TRUE(contains(error_of("{}"), "\"architectures\""));
}

TEST(ModelConfig, WrongTypesAndSizesAreErrorsWithTheLimits) {
  EXPECT_TRUE(contains(error_of(llama_with("num_hidden_layers", "1000000000000000000")), "from 1 to 1024"));
  EXPECT_TRUE(contains(error_of(llama_with("num_hidden_layers", "0")), "found 0"));
  EXPECT_TRUE(contains(error_of(llama_with("hidden_size", "-4096")), "found -4096"));
  EXPECT_TRUE(contains(error_of(llama_with("hidden_size", "4096.5")), "found 4096.5"));
  EXPECT_TRUE(contains(error_of(llama_with("hidden_size", "1e300")), "expected a whole number"));
  EXPECT_TRUE(contains(error_of(llama_with("hidden_size", "18446744073709551615")), "18446744073709551615"));
  EXPECT_TRUE(contains(error_of(llama_with("hidden_size", "\"4096\"")), "found a text"));
  EXPECT_TRUE(contains(error_of(llama_with("hidden_size", "[4096]")), "found a list"));
  EXPECT_TRUE(contains(error_of(llama_with("num_key_value_heads", "3")), "a divisor of num_attention_heads (4)"));
  EXPECT_TRUE(contains(error_of(llama_with("num_attention_heads", "6")), "not a multiple of"));
  EXPECT_TRUE(contains(error_of(llama_with("attention_bias", "1")), "expected true or false"));
  EXPECT_TRUE(contains(error_of(llama_with("text_config", "[]")), "expected an object"));
  EXPECT_TRUE(contains(error_of(llama_with("torch_dtype", "\"complex64\"")), "complex64"));
}

TEST(ModelConfig, AModelBeyondAllMeasureIsRefused) {
  std::string text = llama_with("hidden_size", "16777216");
  text.insert(1, R"("head_dim": 16777216, )");
  EXPECT_TRUE(contains(error_of(text), "parameters, more than the limit"));
}

TEST(ModelConfig, WhatIsNoConfigIsRefused) {
  for (const std::string text :
       {"", " ", "{", "[]", "null", "\"x\"", "{\"a\":}", "\x89PNG\r\n\x1a\n", "{\"architectures\": [NaN]}", "{}{}"})
    EXPECT_FALSE(read_config(text, "x").has_value()) << text;
  EXPECT_TRUE(contains(error_of(std::string(kMaxConfigBytes + 1, ' ')), "at most"));
  // Nesting as deep as the limit on size allows.
  const std::string deep = "{\"a\":" + std::string(kMaxConfigBytes / 2, '[');
  EXPECT_FALSE(read_config(deep, "x").has_value());
  std::string closed = "{\"a\":" + std::string(400'000, '[') + std::string(400'000, ']') + "}";
  EXPECT_FALSE(read_config(closed, "x").has_value());
}

TEST(ModelConfig, AnUnsupportedArchitectureListsTheSupportedOnes) {
  const std::string error = error_of(llama_with("architectures", "[\"BertForMaskedLM\"]"));
  EXPECT_TRUE(contains(error, "\"BertForMaskedLM\" is not supported"));
  for (const ArchitectureRow& row : architecture_rows()) EXPECT_TRUE(contains(error, row.name));
}

TEST(ModelCatalogue, NamesAreFoundInAnySpelling) {
  for (const std::string name : {"meta-llama/Llama-3.1-8B", "llama-3.1-8b", "LLAMA_3.1_8B", "Llama 3.1 8B"}) {
    const Result<ModelConfig> config = find_model(name);
    ASSERT_TRUE(config) << config.error().text();
    EXPECT_EQ(config->id, "meta-llama/Llama-3.1-8B");
  }
}

TEST(ModelCatalogue, VariantsHaveTheShapeOfTheirModelAndSaySo) {
  const std::pair<const char*, const char*> names[] = {
      {"meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"},
      {"Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"},
      {"meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"},
      {"unsloth/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B"},
      {"meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"},
      {"google/gemma-2-2b-it", "google/gemma-2-2b"},
      {"Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"},
      {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"},
      {"mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-7B-v0.1"}};
  for (const auto& [typed, id] : names) {
    const Result<ModelConfig> config = find_model(typed);
    ASSERT_TRUE(config) << typed << ": " << config.error().text();
    EXPECT_EQ(config->id, id);
    ASSERT_FALSE(config->notes.empty()) << typed;
    EXPECT_TRUE(contains(config->notes.back(), typed)) << config->notes.back();
  }
  // Another version may have another vocabulary; another model, or its quantised weights, are not the same at all.
  for (const char* other : {"mistralai/Mistral-7B-Instruct-v0.3", "meta-llama/Llama-3.1-405B-Instruct",
                            "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "instruct", "hf"})
    EXPECT_FALSE(find_model(other)) << other;
}

TEST(ModelCatalogue, AMissOffersTheNearestNames) {
  const Result<ModelConfig> config = find_model("lama-3.1-8b");
  ASSERT_FALSE(config);
  EXPECT_TRUE(contains(config.error().text(), "meta-llama/Llama-3.1-8B"));
  EXPECT_EQ(config.error().exit_code, ExitCode::kUsage);
  EXPECT_EQ(find_model("mixtral-8x7b")->id, "mistralai/Mixtral-8x7B-v0.1");  // the start of one name
  EXPECT_FALSE(find_model("llama-3"));                                       // of several
  EXPECT_FALSE(find_model("gpt"));                                           // too short to mean anything
  EXPECT_FALSE(find_model(""));
  EXPECT_FALSE(find_model(std::string(100'000, 'x')));
}

TEST(ModelCatalogue, EveryShippedModelReads) {
  const std::vector<ModelRow> rows = model_rows();
  size_t files = 0;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(std::string(LLMPROF_DATA) + "/models"))
    files += entry.path().extension() == ".json" ? 1 : 0;
  EXPECT_EQ(rows.size(), files);
  for (const ModelRow& row : rows) {
    EXPECT_GT(row.params, 0) << row.id;
    EXPECT_LE(row.active_per_token, row.params) << row.id;
    EXPECT_GT(row.kv_bytes_per_token, 0) << row.id;
    EXPECT_FALSE(row.what.empty()) << row.id;
    EXPECT_TRUE(find_model(row.id)) << row.id;
  }
}

TEST(ModelCatalogue, PathsFoldersAndNamesAreToldApart) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("llmprof_model_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(contains(load_model(folder.string()).error().text(), "holds no config.json"));
  std::ofstream(folder / "config.json") << kLlama;
  EXPECT_TRUE(load_model(folder.string()));
  EXPECT_TRUE(load_model((folder / "config.json").string()));
  EXPECT_TRUE(contains(load_model((folder / "other.json").string()).error().text(), "does not exist"));
  EXPECT_FALSE(load_model("/dev/null"));
  EXPECT_TRUE(load_model("qwen3-8b"));
  EXPECT_FALSE(load_model(""));
  EXPECT_FALSE(load_model(std::string("a\0b", 3)));
  EXPECT_TRUE(contains(load_model("./no/such/folder").error().text(), "no such file or folder"));
  EXPECT_TRUE(contains(load_model("-").error().text(), "standard input"));
  std::filesystem::remove_all(folder);
}

TEST(ModelCatalogue, TheCacheOfHuggingFaceIsRead) {
  namespace fs = std::filesystem;
  const fs::path hub = fs::temp_directory_path() / ("llmprof_hub_test_" + std::to_string(::getpid()));
  const fs::path model = hub / "models--some-lab--Tiny-1B-Instruct";
  fs::create_directories(model / "refs");
  fs::create_directories(model / "blobs");
  for (const char* snapshot : {"aaa", "bbb"}) fs::create_directories(model / "snapshots" / snapshot);
  std::ofstream(model / "blobs" / "1234") << kLlama;
  fs::create_symlink("../../blobs/1234", model / "snapshots" / "aaa" / "config.json");
  fs::create_symlink("../../blobs/1234", model / "snapshots" / "bbb" / "config.json");
  EXPECT_FALSE(load_model(model.string())) << "two snapshots, and none of them is main";
  std::ofstream(model / "refs" / "main") << "bbb";
  for (const fs::path& path : {model, model / "snapshots" / "aaa", model / "snapshots" / "bbb" / "config.json"}) {
    const Result<ModelConfig> config = load_model(path.string());
    ASSERT_TRUE(config) << path << config.error().text();
    EXPECT_EQ(config->id, "some-lab/Tiny-1B-Instruct");
  }
  EXPECT_FALSE(load_model("some-lab/Tiny-1B-Instruct"));
  ASSERT_EQ(setenv("HF_HUB_CACHE", hub.c_str(), 1), 0);
  EXPECT_TRUE(load_model("some-lab/Tiny-1B-Instruct")) << "what is downloaded goes by its name";
  EXPECT_EQ(load_model("meta-llama/Llama-3.1-8B")->origin, "shipped table");
  unsetenv("HF_HUB_CACHE");
  fs::remove_all(hub);
}

}  // namespace
}  // namespace llmprof
