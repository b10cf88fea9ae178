#include "model/model_report.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "base/csv.h"
#include "model/catalogue.h"

namespace llmprof {
namespace {

ModelReport report(const ModelOptions& options) {
  Result<ModelReport> made = report_model(options);
  EXPECT_TRUE(made) << (made ? "" : made.error().text());
  return made ? *std::move(made) : ModelReport();
}

ModelOptions options_for(const std::string& model) {
  ModelOptions options;
  options.model = model;
  return options;
}

testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in:\n" << text;
}

TEST(ModelReport, JsonHasEveryKeyOfTheSchemaAndExactWholeNumbers) {
  ModelOptions options = options_for("llama-3.1-8b");
  options.prompt = options.context = 512;
  const std::string text = to_json(report(options));
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  ASSERT_EQ(parser.parse(text).get(root), simdjson::SUCCESS);
  for (const char* pointer : {"/schema",
                              "/id",
                              "/architecture",
                              "/dtype",
                              "/params/total",
                              "/params/active_per_token",
                              "/params/embedding",
                              "/params/lm_head",
                              "/params/vision",
                              "/params/by_layer/31/total",
                              "/weights/dtype",
                              "/weights/bytes",
                              "/kv_cache/dtype",
                              "/kv_cache/bytes_per_token",
                              "/kv_cache/bytes",
                              "/memory/weights_bytes",
                              "/memory/kv_bytes",
                              "/memory/activation_peak_bytes",
                              "/memory/total_bytes",
                              "/stages/0/kind",
                              "/stages/0/batch",
                              "/stages/0/new_tokens",
                              "/stages/0/context",
                              "/stages/0/flops/linear",
                              "/stages/0/flops/attention_causal",
                              "/stages/0/flops/attention_full",
                              "/stages/0/flops/lm_head",
                              "/stages/0/flops/total",
                              "/stages/0/bytes/weights",
                              "/stages/0/bytes/kv_read",
                              "/stages/0/bytes/kv_write",
                              "/stages/0/bytes/activations",
                              "/stages/0/bytes/total",
                              "/stages/0/intensity",
                              "/operators/0/name",
                              "/operators/0/layer",
                              "/operators/0/stage",
                              "/operators/0/shape",
                              "/operators/0/flops",
                              "/operators/0/bytes",
                              "/operators/0/intensity"}) {
    simdjson::dom::element value;
    EXPECT_EQ(root.at_pointer(pointer).get(value), simdjson::SUCCESS) << pointer;
  }
  const auto integer = [&root](const char* pointer) {
    int64_t value = -1;
    EXPECT_EQ(root.at_pointer(pointer).get(value), simdjson::SUCCESS) << pointer;
    return value;
  };
  std::string_view schema;
  ASSERT_EQ(root["schema"].get(schema), simdjson::SUCCESS);
  EXPECT_EQ(schema, "llmprof.model/1");
  EXPECT_EQ(integer("/stages/0/flops/total"), 7'216'729'948'160);
  EXPECT_EQ(integer("/stages/1/bytes/kv_read"), 67'108'864);
  EXPECT_EQ(integer("/params/total"), 8'030'261'248);
  EXPECT_EQ(integer("/memory/total_bytes"),
            integer("/memory/weights_bytes") + integer("/memory/kv_bytes") + integer("/memory/activation_peak_bytes"));
}

TEST(ModelReport, EveryShippedModelGivesReadableJsonAndCsv) {
  for (const ModelRow& row : model_rows()) {
    const ModelReport made = report(options_for(row.id));
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    EXPECT_EQ(parser.parse(to_json(made)).get(root), simdjson::SUCCESS) << row.id;
    const Result<CsvTable> table = read_csv(to_csv(made), row.id);
    ASSERT_TRUE(table) << row.id << table.error().text();
    size_t operators = 0;
    for (const StageCost& stage : made.stages) operators += stage.operators.size();
    EXPECT_EQ(table->rows.size(), operators);
    EXPECT_TRUE(table->column("intensity"));
  }
}

TEST(ModelReport, TheTextStartsWithTheAnswer) {
  const std::string text = to_text(report(options_for("llama-3.1-8b")));
  EXPECT_EQ(text.rfind("meta-llama/Llama-3.1-8B", 0), 0U);
  for (const std::string part : {"8,030,261,248", "16.1 GB", "131 kB a token", "prefill, 1 x 2048 tokens",
                                 "decode step, 1 x 1 at 2049", "29.7 T", "lm_head"})
    EXPECT_TRUE(contains(text, part));
  EXPECT_EQ(text.find('\033'), std::string::npos) << "colour only when asked for";
  EXPECT_NE(to_text(report(options_for("llama-3.1-8b")), TextStyle{true}).find('\033'), std::string::npos);
}

TEST(ModelReport, GroupsAddUpToTheStage) {
  for (const std::string model : {"gpt-oss-20b", "deepseek-v2-lite", "qwen2.5-vl-7b-instruct"}) {
    const ModelReport made = report(options_for(model));
    for (const StageCost& stage : made.stages) {
      double flops = 0;
      size_t members = 0;
      for (const OperatorGroup& group : group_operators(stage)) {
        flops += group.flops;
        members += group.layers.size();
      }
      EXPECT_EQ(flops, stage.flops.total());
      EXPECT_EQ(members, stage.operators.size());
      EXPECT_LT(group_operators(stage).size(), 40U);
    }
  }
}

TEST(ModelReport, FormatsFollowTheModelUnlessSaid) {
  EXPECT_EQ(report(options_for("gpt-oss-20b")).workload.weights.name, "mxfp4");
  EXPECT_EQ(report(options_for("deepseek-v3")).workload.weights.name, "fp8-block");
  EXPECT_EQ(report(options_for("llama-2-7b-hf")).workload.weights.name, "fp16");
  const ModelReport stored_wide = report(options_for("gemma-2-9b"));
  EXPECT_EQ(stored_wide.workload.weights.name, "bf16");
  EXPECT_TRUE(contains(to_text(stored_wide), "stored in fp32"));
  ModelOptions options = options_for("llama-3.1-8b");
  options.weights = "int4-g128";
  options.kv_dtype = "fp8";
  const ModelReport quantised = report(options);
  EXPECT_EQ(quantised.kv_bytes_per_token, 65536);
  EXPECT_EQ(quantised.workload.compute_format(), "bf16") << "weight-only: the matrix units see bf16";
  options.dtype = options.weights = "fp8";
  EXPECT_EQ(report(options).workload.compute_format(), "fp8");
  EXPECT_EQ(report(options).workload.wide().name, "bf16");
  options.weights = "int3";
  EXPECT_FALSE(report_model(options));
}

TEST(ModelReport, UnknownQuantisationAsksForTheFormat) {
  const std::string text = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "aqlm"}})";
  const Result<ModelConfig> config = read_config(text, "c.json");
  ASSERT_TRUE(config) << config.error().text();
  const Result<ModelReport> refused = report_model(*config, ModelOptions());
  ASSERT_FALSE(refused);
  EXPECT_TRUE(contains(refused.error().text(), "--weights"));
  ModelOptions options;
  options.weights = "int4-g128";
  EXPECT_TRUE(report_model(*config, options));
}

TEST(ModelReport, NamesFromFilesCannotSteerTheTerminal) {
  Result<ModelConfig> config = find_model("gpt2");
  ASSERT_TRUE(config);
  config->id = "evil\033[2J";
  const Result<ModelReport> made = report_model(*config, ModelOptions());
  ASSERT_TRUE(made);
  EXPECT_EQ(to_text(*made).find('\033'), std::string::npos);
}

}  // namespace
}  // namespace llmprof
