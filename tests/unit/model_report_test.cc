#include "model/model_report.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "base/csv.h"
#include "model/catalogue.h"
#include "report/render.h"
#include "report/text_model.h"
#include "text_contains.h"

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

TEST(ModelReport, JsonHasEveryKeyOfTheSchemaAndExactWholeNumbers) {
  ModelOptions options = options_for("llama-3.1-8b");
  options.prompt = options.context = 512;
  const std::string text = render_json(model_result(report(options)));
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
    EXPECT_EQ(parser.parse(render_json(model_result(made))).get(root), simdjson::SUCCESS) << row.id;
    const Result<CsvTable> table = read_csv(render_csv(model_result(made)).front().content, row.id);
    ASSERT_TRUE(table) << row.id << table.error().text();
    size_t operators = 0;
    for (const StageCost& stage : made.stages) operators += stage.operators.size();
    EXPECT_EQ(table->rows.size(), operators);
    EXPECT_TRUE(table->column("intensity"));
  }
}

TEST(ModelReport, TheTextStartsWithTheAnswer) {
  const std::string text = render_text(model_result(report(options_for("llama-3.1-8b"))), {});
  EXPECT_EQ(text.rfind("meta-llama/Llama-3.1-8B", 0), 0U);
  for (const std::string part : {"8,030,261,248", "16.1 GB", "131 kB a token", "prefill, 1 x 2048 tokens",
                                 "decode step, 1 x 1 at 2049", "29.7 T", "lm_head"})
    EXPECT_TRUE(contains(text, part));
  EXPECT_EQ(text.find('\033'), std::string::npos) << "colour only when asked for";
  EXPECT_NE(render_text(model_result(report(options_for("llama-3.1-8b"))), {TextStyle{true}, 12}).find('\033'),
            std::string::npos);
}

TEST(ModelReport, GroupsAddUpToTheStage) {
  for (const std::string model : {"gpt-oss-20b", "deepseek-v2-lite", "qwen2.5-vl-7b-instruct"}) {
    const ModelReport made = report(options_for(model));
    const ModelResult result = model_result(made);
    for (const StageCost& stage : made.stages) {
      double flops = 0;
      size_t members = 0;
      for (const ModelOperatorGroup& group : group_operators(result.operators, stage.stage)) {
        flops += group.flops;
        members += group.layers.size();
      }
      EXPECT_EQ(flops, stage.flops.total());
      EXPECT_EQ(members, stage.operators.size());
      EXPECT_LT(group_operators(result.operators, stage.stage).size(), 40U);
    }
  }
}

TEST(ModelReport, FormatsFollowTheModelUnlessSaid) {
  EXPECT_EQ(report(options_for("gpt-oss-20b")).shape.weights.name, "mxfp4");
  EXPECT_EQ(report(options_for("deepseek-v3")).shape.weights.name, "fp8-block");
  EXPECT_EQ(report(options_for("llama-2-7b-hf")).shape.weights.name, "fp16");
  const ModelReport stored_wide = report(options_for("gemma-2-9b"));
  EXPECT_EQ(stored_wide.shape.weights.name, "bf16");
  EXPECT_TRUE(contains(render_text(model_result(stored_wide), {}), "stored in fp32"));
  ModelOptions options = options_for("llama-3.1-8b");
  options.weights = "int4-g128";
  options.kv_dtype = "fp8";
  const ModelReport quantised = report(options);
  EXPECT_EQ(quantised.kv_bytes_per_token, 65536);
  EXPECT_EQ(quantised.shape.compute_format(), "bf16") << "weight-only: the matrix units see bf16";
  options.weights.clear();
  options.dtype = "fp8";
  EXPECT_EQ(report(options).shape.weights.name, "fp8") << "--dtype is that of the weights too";
  options.dtype = options.weights = "fp8";
  EXPECT_EQ(report(options).shape.compute_format(), "fp8");
  EXPECT_EQ(report(options).shape.wide().name, "bf16");
  options.weights = "int3";
  EXPECT_FALSE(report_model(options));
}

TEST(ModelReport, WhatInputsAreQuantisedToFollowsFromTheConfigUnlessSaid) {
  EXPECT_EQ(report(options_for("deepseek-v3")).shape.scheme(), "W8A8") << "fp8 checkpoints quantise inputs too";
  EXPECT_EQ(report(options_for("gpt-oss-20b")).shape.scheme(), "W4A16") << "mxfp4 is for weights";
  ModelOptions options = options_for("llama-3.1-8b");
  EXPECT_EQ(report(options).shape.scheme(), "W16A16");
  options.weights = "fp8";
  EXPECT_TRUE(contains(render_text(model_result(report(options)), {}), "W8A16"));
  options.activations = "fp8";
  const ModelReport both = report(options);
  EXPECT_TRUE(contains(render_text(model_result(both), {}), "W8A8: multiplied in fp8"));
  EXPECT_TRUE(contains(render_json(model_result(both)), "\"scheme\": \"W8A8\""));
  options.weights = options.activations = "int4";
  EXPECT_TRUE(contains(render_text(model_result(report(options)), {}), "W4A4: multiplied in int4\n"))
      << "not in groups";
  options = options_for("deepseek-v3");
  options.activations = "bf16";
  EXPECT_EQ(report(options).shape.scheme(), "W8A16");
}

TEST(ModelReport, ImagesOfATextModelAreRefused) {
  ModelOptions options = options_for("llama-3.1-8b");
  options.images = 0;
  EXPECT_TRUE(report_model(options));
  options.images = 1;
  ASSERT_FALSE(report_model(options));
  EXPECT_EQ(report_model(options).error().exit_code, ExitCode::kUsage);
}

// Llama-3.1-8B in bf16 on an H200: 6,979,321,856 weights in layers and 525,336,576 of the lm_head at 989.4 TFLOP/s and
// 4,800 GB/s.
TEST(ModelReport, TheBoundOnAGpuByHand) {
  ModelOptions options = options_for("llama-3.1-8b");
  options.prompt = 1000;
  options.context = 4000;
  options.gpu = "h200";
  const ModelReport bf16 = report(options);
  ASSERT_TRUE(bf16.on_gpu);
  EXPECT_EQ(bf16.on_gpu->gpus_at_least, 1);
  const double linear = 6979321856, head = 525336576, pairs = 1000 * 1001 / 2;
  const double flops = 2 * 1000 * linear + 2 * head + 32 * 4 * 4096.0 * pairs;
  const StageBound &prefill = bf16.on_gpu->stages[0], &decode = bf16.on_gpu->stages[1];
  EXPECT_NEAR(*prefill.compute_ms, flops / 989.4e9, 1e-6 * *prefill.compute_ms);
  EXPECT_EQ(prefill.limit(), StageLimit::kArithmetic);
  EXPECT_EQ(prefill.least_ms(), prefill.compute_ms);
  const double cached = 32 * 2 * 8 * 128 * 2.0, norms = (65 * 4096) * 2.0, row = 4096 * 2.0;
  const double bytes = 2 * (linear + head) + norms + row + cached * 4000 - 50 * 1048576.0;
  EXPECT_EQ(decode.dram_bytes, bytes);  // the last-level cache may keep its size of it; the new token is in the 4000
  EXPECT_EQ(decode.dram_bytes, bf16.stages[1].bytes.weights + bf16.stages[1].bytes.kv_read - bf16.on_gpu->cache_bytes);
  EXPECT_NEAR(*decode.memory_ms, decode.dram_bytes / 4.8e9, 1e-9);
  EXPECT_EQ(decode.limit(), StageLimit::kMemory);
  options.weights = options.activations = "fp8";
  const ModelReport fp8 = report(options);
  const double narrow = 2 * 1000 * linear, wide = flops - narrow;
  EXPECT_NEAR(*fp8.on_gpu->stages[0].compute_ms, narrow / 1978.9e9 + wide / 989.4e9, 1e-3 * *prefill.compute_ms);
}

// The times that are printed are those of the bytes and FLOPs printed beside them.
TEST(ModelReport, TheBoundSaysWhatItIsMadeOf) {
  ModelOptions options = options_for("llama-3.1-8b");
  options.gpu = "h200-sxm";
  const std::string text = render_text(model_result(report(options)), {});
  EXPECT_TRUE(contains(text, "at least 3.172 ms by memory (15.2 GB); arithmetic 16.26 us (16.1 GFLOP)")) << text;
  EXPECT_TRUE(contains(text, "less 52.4 MB that the last-level cache may keep"));
  // A prefix lies in memory and is read; what the prefill itself puts there is written.
  options.prompt = 16;
  options.prefix = 100000;
  const ModelReport cached = report(options);
  EXPECT_EQ(cached.on_gpu->stages[0].dram_bytes, cached.stages[0].bytes.weights + 131072.0 * 100016 - 50 * 1048576.0);
}

TEST(ModelReport, WhatOneGpuDoesNotHoldIsBoundByAsManyAsDo) {
  ModelOptions options = options_for("deepseek-v3");
  options.gpu = "h200-sxm";
  const ModelReport made = report(options);
  const GpuFit& fit = *made.on_gpu;
  ASSERT_EQ(fit.gpus_at_least, 5);
  EXPECT_EQ(fit.gpus, 5);
  for (size_t i = 0; i < fit.stages.size(); ++i) {
    const StageBytes& bytes = made.stages[i].bytes;
    EXPECT_EQ(fit.stages[i].dram_bytes, bytes.weights + bytes.kv_read - 5 * 50 * 1048576.0);
    EXPECT_NEAR(*fit.stages[i].memory_ms, fit.stages[i].dram_bytes / (5 * 4.8e9), 1e-9);
    EXPECT_NEAR(*fit.stages[i].compute_ms * 5 * 989.4e9 / made.stages[i].flops.total(), 0.75, 0.26) << "fp8 and bf16";
  }
  EXPECT_TRUE(contains(render_text(model_result(made), {}), "split evenly over 5 GPUs"));
  options.model = "llama-3.1-8b";
  EXPECT_FALSE(contains(render_text(model_result(report(options)), {}), "split evenly"));
}

TEST(ModelReport, LinesAboutAGpuCanBeRead) {
  ModelOptions options = options_for("qwen3-30b-a3b");
  options.prefix = 100000;
  options.prompt = 1;
  options.gpu = "b300";
  EXPECT_TRUE(contains(render_text(model_result(report(options)), {}), "prefill, 1 x 1 tokens after 100000  at least"));
  options = options_for("Mistral-7B-v0.1");
  options.prompt = 100000;
  options.gpu = "l4";
  const std::string text = render_text(model_result(report(options)), {});
  EXPECT_TRUE(contains(text, "none beyond the window of 4096"));
  EXPECT_FALSE(contains(text, "24.0 GB needed, it has 24.0 GB"));
  EXPECT_TRUE(contains(text, "B needed, it has 24,000,000,000 B by its data sheet; at least 2 of them"));
}

TEST(ModelReport, ANameOfSeveralPartsSaysWhichWasTaken) {
  ModelOptions options = options_for("gpt2");
  options.prompt = 64;
  const std::string line = "\"h200\" is taken to be H200-SXM-141GB; it may also mean H200-NVL-141GB";
  for (const char* name : {"h200", "H200", "H200-SXM-141GB", "NVIDIA H200", "h200-nvl", "a10"}) {
    options.gpu = name;
    EXPECT_EQ(render_text(model_result(report(options)), {}).find("may also mean") != std::string::npos,
              std::string_view(name) == "h200" || std::string_view(name) == "H200")
        << name;
  }
  options.gpu = "h200";
  EXPECT_TRUE(contains(render_text(model_result(report(options)), {}), line));
  EXPECT_TRUE(contains(render_json(model_result(report(options))), "\"may_also_mean\": [\n      \"H200-NVL-141GB\""))
      << render_json(model_result(report(options))).substr(0, 4000);
}

TEST(ModelReport, WhatAGpuCannotDoLeavesTheTimeUnknown) {
  ModelOptions options = options_for("llama-3.1-70b");
  options.gpu = "a100-sxm4-80gb";
  options.weights = options.activations = "fp8";
  const ModelReport made = report(options);
  ASSERT_TRUE(made.on_gpu);
  EXPECT_FALSE(made.on_gpu->stages[0].compute_ms) << "no fp8 units";
  ASSERT_EQ(made.on_gpu->stages[0].unknown.size(), 1U);
  EXPECT_TRUE(contains(made.on_gpu->stages[0].unknown[0], "fp8"));
  EXPECT_TRUE(contains(made.on_gpu->stages[0].unknown[0], "(--activations bf16: weights only)"));
  options.activations = "bf16";
  EXPECT_TRUE(report(options).on_gpu->stages[0].unknown.empty());
  options.weights = options.activations = "";
  options.gpu = "v100-sxm2-32gb";
  EXPECT_TRUE(contains(report(options).on_gpu->stages[0].unknown.at(0), "(--dtype fp16)"));
  options.dtype = "fp16";
  EXPECT_TRUE(report(options).on_gpu->stages[0].unknown.empty());
  options.gpu = "a100-sxm4-80gb";
  options.dtype = "";
  options.weights = options.activations = "";
  EXPECT_EQ(report(options).on_gpu->gpus_at_least, 2);
  options.gpu = "no-such-gpu";
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
  EXPECT_EQ(render_text(model_result(*made), {}).find('\033'), std::string::npos);
}

}  // namespace
}  // namespace llmprof
