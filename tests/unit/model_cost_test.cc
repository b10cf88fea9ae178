// Costs: closed forms that can be checked by hand, and properties that must hold for every shipped model.
#include <gtest/gtest.h>

#include <cmath>

#include "model/catalogue.h"
#include "model/cost.h"
#include "model_shipped.h"

namespace llmprof {
namespace {

NumberFormat format(const std::string& name) {
  Result<NumberFormat> parsed = parse_weight_format(name, "test");
  EXPECT_TRUE(parsed) << name;
  return parsed ? *std::move(parsed) : NumberFormat();
}

RequestShape shape(int64_t batch, int64_t prompt, int64_t prefix = 0, int64_t context = 0) {
  RequestShape w;
  w.batch = batch;
  w.prompt = prompt;
  w.prefix = prefix;
  w.context = context;
  return w;
}

const Operator& find_operator(const StageCost& stage, const std::string& name, int64_t layer) {
  for (const Operator& op : stage.operators)
    if (op.name == name && op.layer == layer) return op;
  ADD_FAILURE() << "no operator " << name << " in layer " << layer;
  static const Operator none;
  return none;
}

double sum_of(const StageCost& stage, double (*value)(const Operator&)) {
  double sum = 0;
  for (const Operator& op : stage.operators) sum += value(op);
  return sum;
}

TEST(NumberFormats, BytesPerElementAreThePublishedOnes) {
  const auto per_element = [](const std::string& name) {
    return static_cast<double>(format(name).matrix_bytes(4096, 4096)) / (4096.0 * 4096.0);
  };
  EXPECT_EQ(per_element("fp32"), 4);
  EXPECT_EQ(per_element("bf16"), 2);
  EXPECT_EQ(per_element("fp8"), 1);
  EXPECT_EQ(per_element("fp8-block"), 1 + 4.0 / 16384);
  EXPECT_EQ(per_element("int8"), 1 + 2.0 / 4096);
  EXPECT_EQ(per_element("int4-g128"), 0.515625);
  EXPECT_EQ(per_element("int4-g128-zp"), 0.51953125);
  EXPECT_EQ(per_element("mxfp4"), 0.53125);
  EXPECT_EQ(per_element("nvfp4"), 0.5625);
  for (const std::string& name : weight_format_names())
    EXPECT_EQ(format(name).effective_bytes(4096), per_element(name)) << name;
}

TEST(NumberFormats, GroupsThatDoNotDivideAreRoundedUp) {
  EXPECT_EQ(format("int4-g128").matrix_bytes(3, 130), 3 * 65 + 3 * 2 * 2);
  EXPECT_EQ(format("fp8-block").matrix_bytes(129, 128), 129 * 128 + 2 * 4);
  EXPECT_EQ(format("mxfp4").matrix_bytes(1, 33), 17 + 2);
  EXPECT_EQ(format("int4-g128-zp").matrix_bytes(1, 128), 64 + 3);  // 16 + 4 bits round up to 3 bytes
}

TEST(NumberFormats, UnknownNamesListTheKnownOnes) {
  for (const std::string name : {"", "bf17", "int4-g", "int4-g0", "int4-g128-z", "int4-g99999999999999999999"}) {
    const Result<NumberFormat> parsed = parse_weight_format(name, "--weights");
    ASSERT_FALSE(parsed) << name;
    EXPECT_NE(parsed.error().text().find("nvfp4"), std::string::npos);
    EXPECT_NE(parsed.error().text().find("--weights"), std::string::npos);
  }
  EXPECT_FALSE(parse_plain_format("int4-g128", "--kv-dtype"));
  EXPECT_FALSE(parse_plain_format("fp8-block", "--kv-dtype"));
  EXPECT_EQ(parse_plain_format("int8", "--kv-dtype")->element_bytes(), 1);
  EXPECT_EQ(parse_weight_format("BFloat16", "")->name, "bf16");
}

// Llama-2-7B at batch 1, by hand.
TEST(Cost, ALinearLayerByHand) {
  const StageCost prefill = prefill_cost(shipped("llama-2-7b-hf"), shape(2, 100));
  const Operator& up = find_operator(prefill, "up_proj", 5);
  EXPECT_EQ(up.flops, 2.0 * 200 * 4096 * 11008);
  EXPECT_EQ(up.weight_bytes, 2.0 * 4096 * 11008);
  EXPECT_EQ(up.activation_bytes, 2.0 * 200 * (4096 + 11008));
  EXPECT_EQ(up.output_bytes, 2.0 * 200 * 11008);
  EXPECT_EQ(up.shape, "200 x 4096 -> 11008");
  const Operator& attention = find_operator(prefill, "attention", 31);
  EXPECT_EQ(attention.flops, 4.0 * 32 * 128 * 2 * 5050);
  EXPECT_EQ(attention.flops_full, 4.0 * 32 * 128 * 2 * 100 * 100);
  EXPECT_EQ(find_operator(prefill, "lm_head", -1).flops, 2.0 * 2 * 4096 * 32000) << "one row per sequence";
  EXPECT_EQ(find_operator(prefill, "embed_tokens", -1).weight_bytes, 200 * 4096 * 2.0) << "rows, not the table";
}

TEST(Cost, DecodeAttentionIntensityIsTheGroupSize) {
  for (const auto& [name, group] : {std::pair<std::string, double>{"llama-2-7b-hf", 1},
                                    {"llama-3.1-8b", 4},
                                    {"llama-3.1-70b", 8},
                                    {"qwen2.5-7b", 7}}) {
    const StageCost decode = decode_cost(shipped(name), shape(4, 1, 0, 4096));
    EXPECT_EQ(decode.flops.attention_causal / decode.bytes.kv_read, group) << name;
  }
}

TEST(Cost, LatentAttentionIsAbsorbedInDecodeAndExpandedInPrefill) {
  const ModelConfig v3 = shipped("deepseek-v3");
  const StageCost decode = decode_cost(v3, shape(1, 1, 0, 1000));
  EXPECT_EQ(decode.flops.attention_causal, 61 * 2.0 * 128 * 1088 * 1000);
  EXPECT_EQ(decode.bytes.kv_read, 61 * 576.0 * 2 * 1000);
  EXPECT_NEAR(decode.flops.attention_causal / decode.bytes.kv_read, 242, 0.5);
  const StageCost prefill = prefill_cost(v3, shape(1, 100, 50));
  EXPECT_EQ(prefill.flops.attention_causal, 61 * 2.0 * 128 * (192 + 128) * (100 * 50 + 5050));
  const Operator& expand = find_operator(prefill, "kv_b_proj", 0);
  EXPECT_EQ(expand.flops, 2.0 * 512 * 128 * 256 * 150) << "the prefix is expanded again";
  const double absorbed = find_operator(decode, "absorb_k", 0).flops + find_operator(decode, "absorb_v", 0).flops;
  EXPECT_EQ(absorbed, 2.0 * 512 * 128 * 256) << "as much as kv_b_proj for the new token";
}

TEST(Cost, PrefixTokensCostAttentionButNoLinearWork) {
  const ModelConfig c = shipped("llama-3.1-8b");
  const StageCost whole = prefill_cost(c, shape(1, 1000)), first = prefill_cost(c, shape(1, 600)),
                  second = prefill_cost(c, shape(1, 400, 600));
  EXPECT_EQ(whole.flops.linear, first.flops.linear + second.flops.linear);
  EXPECT_EQ(whole.flops.attention_causal, first.flops.attention_causal + second.flops.attention_causal);
  EXPECT_EQ(whole.bytes.kv_write, first.bytes.kv_write + second.bytes.kv_write);
}

TEST(Cost, ADecodeStepIsAPrefillOfOneToken) {
  for (const std::string name : {"llama-3.1-8b", "gemma-2-9b", "gpt-oss-20b", "gpt2", "qwen3-30b-a3b"}) {
    const ModelConfig c = shipped(name);
    const StageCost decode = decode_cost(c, shape(3, 1, 0, 700)), prefill = prefill_cost(c, shape(3, 1, 699));
    EXPECT_EQ(decode.flops.total(), prefill.flops.total()) << name;
    EXPECT_EQ(decode.bytes.total(), prefill.bytes.total()) << name;
  }
}

TEST(Cost, TheVisionTowerByHand) {
  const ModelConfig c = shipped("qwen2-vl-7b-instruct");
  RequestShape w;
  w.image_height = 280;
  w.image_width = 560;
  const ImageGrid grid = image_grid(*c.vision, w);
  EXPECT_EQ(grid.patches, 20 * 40);
  EXPECT_EQ(grid.tokens, 200);
  const StageCost vision = vision_cost(c, w);
  EXPECT_EQ(vision.flops.attention_causal, 32 * 4.0 * 1280 * 800 * 800);
  EXPECT_EQ(vision.flops.attention_full, vision.flops.attention_causal);
  const double block = 1280.0 * (3840 + 1280 + 2 * 5120), merger = 5120.0 * (5120 + 3584);
  EXPECT_EQ(vision.flops.linear, 2 * (800 * (1176.0 * 1280 + 32 * block) + 200 * merger));
  EXPECT_EQ(image_grid(*shipped("llava-1.5-7b-hf").vision, RequestShape()).tokens, 576);
  EXPECT_EQ(image_grid(*shipped("gemma-3-4b-it").vision, RequestShape()).tokens, 256);
}

TEST(Cost, VisionWindowsAreCutAtTheBorder) {
  const ModelConfig c = shipped("qwen2.5-vl-7b-instruct");
  RequestShape w;
  w.image_height = 14 * 20;  // 20 x 12 patches, windows of 8: rows 8 8 4, columns 8 4
  w.image_width = 14 * 12;
  const double windows = (64 + 64 + 16) * (64 + 16), whole = 240.0 * 240;
  EXPECT_EQ(vision_cost(c, w).flops.attention_causal, 4.0 * 1280 * (28 * windows + 4 * whole));
  EXPECT_EQ(vision_cost(c, w).flops.attention_full, 4.0 * 1280 * 32 * whole);
}

// The sizes of published checkpoints, less the header of the file.
TEST(Weights, BytesOfPublishedCheckpoints) {
  EXPECT_EQ(weight_bytes(shipped("gpt-oss-20b"), format("mxfp4"), bf16_format()), 13'761'264'768.0);
  EXPECT_EQ(weight_bytes(shipped("llama-3.1-8b"), bf16_format(), bf16_format()), 16'060'522'496.0);
}

TEST(Weights, EmbeddingHeadAndNormsStayWide) {
  const ModelConfig c = shipped("llama-3.1-8b");
  const double linear = 6'979'321'856.0, rest = 8'030'261'248.0 - linear;
  EXPECT_EQ(weight_bytes(c, format("int4-g128"), bf16_format()), linear * 0.515625 + rest * 2);
  EXPECT_EQ(weight_bytes(c, format("nvfp4"), bf16_format()), linear * 0.5625 + rest * 2);
  EXPECT_EQ(weight_bytes(c, format("fp8"), bf16_format()), linear + rest * 2);
  EXPECT_EQ(weight_bytes(c, format("fp8-block"), bf16_format()), linear * (1 + 4.0 / 16384) + rest * 2);
}

TEST(Memory, SlidingLayersBothWays) {
  const MemoryNeed need = memory_need(shipped("gemma-2-9b"), shape(2, 8191));  // cache of 8192 tokens
  EXPECT_EQ(need.kv_bytes, 2.0 * 2'113'929'216);
  EXPECT_EQ(need.kv_bytes_whole, 2.0 * 344064 * 8192);
  EXPECT_EQ(need.total_bytes(), need.weights_bytes + need.kv_bytes + need.activation_peak_bytes);
  const MemoryNeed full = memory_need(shipped("llama-3.1-8b"), shape(1, 100));
  EXPECT_EQ(full.kv_bytes, full.kv_bytes_whole);
}

// One row per pattern of layers: (sliding layers, window, all layers, bytes of one token in one layer).
TEST(Memory, TheWindowOfEveryShippedModelByItsClosedForm) {
  struct Row {
    const char* model;
    int64_t sliding, window, layers, bytes;
  };
  for (const Row& row :
       {Row{"gpt-oss-20b", 12, 128, 24, 2 * 8 * 64 * 2}, Row{"gpt-oss-120b", 18, 128, 36, 2048},
        Row{"gemma-2-9b", 21, 4096, 42, 2 * 8 * 256 * 2}, Row{"gemma-2-2b", 13, 4096, 26, 4096},
        Row{"gemma-3-4b-it", 29, 1024, 34, 2 * 4 * 256 * 2}, Row{"Mistral-7B-v0.1", 32, 4096, 32, 2 * 8 * 128 * 2},
        Row{"Phi-3-mini-4k-instruct", 32, 2047, 32, 2 * 32 * 96 * 2}, Row{"Qwen2.5-7B", 0, 0, 28, 2 * 4 * 128 * 2}}) {
    const ModelConfig c = shipped(row.model);
    EXPECT_EQ(c.windowed_layers(), row.sliding) << row.model;
    EXPECT_EQ(c.longest_window(), row.window) << row.model;
    for (const int64_t context : {int64_t{100}, int64_t{2048}, int64_t{32768}}) {
      RequestShape w = shape(3, context - 1);
      const int64_t kept = row.sliding * std::min(context, row.window) + (row.layers - row.sliding) * context;
      const MemoryNeed need = memory_need(c, w);
      EXPECT_EQ(need.kv_bytes, static_cast<double>(3 * row.bytes * kept)) << row.model << " " << context;
      EXPECT_EQ(need.kv_bytes_whole, static_cast<double>(3 * row.bytes * row.layers * context)) << row.model;
      // A decode step reads all that is kept, the new token's own key and value among it, and multiplies with each.
      const StageCost step = decode_cost(c, w);
      EXPECT_EQ(step.bytes.kv_read, need.kv_bytes) << row.model << " " << context;
      EXPECT_EQ(step.bytes.kv_write, static_cast<double>(3 * row.bytes * row.layers)) << row.model;
      EXPECT_EQ(step.flops.attention_causal, static_cast<double>(3 * 4 * c.num_heads * c.head_dim * kept)) << row.model;
    }
  }
}

TEST(Workloads, OutOfRangeIsAUsageError) {
  const ModelConfig text = shipped("gpt2");
  for (void (*spoil)(RequestShape&) :
       {+[](RequestShape& w) { w.batch = 0; }, +[](RequestShape& w) { w.prompt = -1; },
        +[](RequestShape& w) { w.prefix = -1; }, +[](RequestShape& w) { w.context = int64_t{1} << 60; },
        +[](RequestShape& w) { w.new_tokens = -1; }, +[](RequestShape& w) { w.images = int64_t{1} << 40; },
        +[](RequestShape& w) { w.image_height = 100; }}) {
    RequestShape w;
    EXPECT_TRUE(check_shape(text, w));
    spoil(w);
    const Status status = check_shape(text, w);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().exit_code, ExitCode::kUsage);
  }
}

TEST(Workloads, ImagesMustFitThePrompt) {
  const ModelConfig c = shipped("qwen2.5-vl-7b-instruct");
  RequestShape w = shape(1, 2048);
  w.image_height = 1344;
  w.image_width = 3136;
  EXPECT_EQ(image_grid(*c.vision, w).tokens, 48 * 112);  // 5,376 in 2,048
  const Status refused = check_shape(c, w);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("5376 tokens"), std::string::npos) << refused.error().what;
  w.images = 0;
  EXPECT_TRUE(check_shape(c, w));
  w.images = 1;
  w.prompt = 5376;
  EXPECT_TRUE(check_shape(c, w));
  w.images = 2;
  EXPECT_FALSE(check_shape(c, w));
}

TEST(Cost, EverySequenceHasItsImages) {
  const ModelConfig c = shipped("qwen2-vl-7b-instruct");
  RequestShape one = shape(1, 2048), four = shape(4, 2048);
  one.images = 4;
  EXPECT_EQ(vision_cost(c, four).flops.total(), vision_cost(c, one).flops.total());
  EXPECT_EQ(vision_cost(c, four).batch, 4);
}

// W8A8: the same FLOPs; a quantised product reads its input in 8 bits, and the operator before it writes it so.
TEST(Cost, QuantisedInputsHalveWhatProductsRead) {
  const ModelConfig c = shipped("llama-3.1-8b");
  RequestShape w = shape(2, 100);
  w.weights = format("fp8");
  const StageCost weights_only = prefill_cost(c, w);
  EXPECT_EQ(w.scheme(), "W8A16");
  EXPECT_EQ(w.compute_format(), "bf16");
  w.inputs = format("fp8");
  EXPECT_EQ(w.scheme(), "W8A8");
  EXPECT_EQ(w.compute_format(), "fp8");
  const StageCost both = prefill_cost(c, w);
  EXPECT_EQ(both.flops.total(), weights_only.flops.total());
  EXPECT_EQ(both.bytes.weights, weights_only.bytes.weights);
  EXPECT_EQ(both.bytes.kv_read, weights_only.bytes.kv_read);
  const double tokens = 200, h = 4096, f = 14336;
  EXPECT_EQ(find_operator(both, "q_proj", 3).activation_bytes, tokens * (h * 1 + h * 2));
  EXPECT_EQ(find_operator(both, "down_proj", 3).activation_bytes, tokens * (f * 1 + h * 2));
  EXPECT_EQ(find_operator(both, "attention", 3).output_bytes, tokens * h);
  EXPECT_EQ(find_operator(both, "post_attention_layernorm", 3).output_bytes, tokens * h * (2 + 1));
  EXPECT_EQ(find_operator(both, "lm_head", -1).activation_bytes,
            find_operator(weights_only, "lm_head", -1).activation_bytes);
  EXPECT_LT(both.bytes.activations, weights_only.bytes.activations);
}

TEST(Workloads, QuantisedInputsNeedWeightsOfTheirKind) {
  const ModelConfig c = shipped("llama-3.1-8b");
  const auto accepted = [&](const char* weights, const char* inputs) {
    RequestShape w = shape(1, 10);
    w.weights = format(weights);
    w.inputs = format(inputs);
    return check_shape(c, w).has_value();
  };
  EXPECT_TRUE(accepted("fp8", "fp8"));
  EXPECT_TRUE(accepted("fp8-block", "fp8"));
  EXPECT_TRUE(accepted("int8", "int8"));
  EXPECT_TRUE(accepted("nvfp4", "nvfp4"));
  EXPECT_TRUE(accepted("int4-g128", "fp8"));  // W4A8
  EXPECT_FALSE(accepted("bf16", "fp8"));
  EXPECT_FALSE(accepted("fp8", "int8"));
  EXPECT_FALSE(accepted("fp8", "nvfp4"));
}

// Every shipped model, several shapes.
class EveryModel : public testing::TestWithParam<std::string> {};

std::vector<StageCost> stages_of(const ModelConfig& c, const RequestShape& w) {
  std::vector<StageCost> stages = {prefill_cost(c, w), decode_cost(c, w)};
  if (c.vision) stages.push_back(vision_cost(c, w));
  return stages;
}

TEST_P(EveryModel, TotalsAreTheSumsOfTheOperators) {
  const ModelConfig c = shipped(GetParam());
  for (const StageCost& stage : stages_of(c, shape(2, 37, 5))) {
    EXPECT_EQ(sum_of(stage, [](const Operator& op) { return op.flops; }), stage.flops.total());
    EXPECT_NEAR(sum_of(stage, [](const Operator& op) { return op.bytes(); }), stage.bytes.total(),
                1e-9 * stage.bytes.total());
    for (const Operator& op : stage.operators) {
      EXPECT_GT(op.bytes(), 0) << op.name;
      EXPECT_GE(op.activation_bytes, op.output_bytes) << op.name;
    }
  }
}

TEST_P(EveryModel, MasksOnlyEverRemoveWork) {
  const ModelConfig c = shipped(GetParam());
  for (const int64_t prompt : {1, 200, 9000}) {
    for (const StageCost& stage : stages_of(c, shape(1, prompt, 3)))
      EXPECT_LE(stage.flops.attention_causal, stage.flops.attention_full);
    ModelConfig open = c;
    for (LayerConfig& layer : open.layers) layer.window = 0;
    const StageCost windowed = prefill_cost(c, shape(1, prompt)), all = prefill_cost(open, shape(1, prompt));
    EXPECT_LE(windowed.flops.attention_causal, all.flops.attention_causal);
    EXPECT_LE(windowed.bytes.kv_read, all.bytes.kv_read);
    EXPECT_EQ(windowed.flops.linear, all.flops.linear);
  }
}

TEST_P(EveryModel, CostsGrowWithTheBatchAndFlopsAreProportional) {
  const ModelConfig c = shipped(GetParam());
  for (const int64_t batch : {1, 2, 8, 64}) {
    const StageCost one = decode_cost(c, shape(batch, 50)), two = decode_cost(c, shape(2 * batch, 50));
    EXPECT_EQ(two.flops.total(), 2 * one.flops.total());
    EXPECT_EQ(two.bytes.kv_read, 2 * one.bytes.kv_read);
    EXPECT_GE(two.bytes.weights, one.bytes.weights);
    EXPECT_GE(two.intensity(), one.intensity());
    EXPECT_LE(two.bytes.weights, weight_bytes(c, bf16_format(), bf16_format()) + 4.0 * 128 * 65536);
  }
}

TEST_P(EveryModel, ADenseForwardPassTouchesEveryMatrixOnce) {
  const ModelConfig c = shipped(GetParam());
  const Params params = count_params(c);
  const StageCost decode = decode_cost(c, shape(1, 10));
  EXPECT_EQ(decode.flops.linear, 2.0 * static_cast<double>(params.linear_per_token));
  double linear_bytes = 0;
  for (const Operator& op : decode.operators)
    if (op.kind == OperatorKind::kLinear) linear_bytes += op.weight_bytes;
  EXPECT_GE(linear_bytes, 2.0 * static_cast<double>(params.linear_per_token));  // and biases
  EXPECT_LE(linear_bytes, 2.02 * static_cast<double>(params.linear_per_token));
}

TEST_P(EveryModel, TheLayersAddUpToTheTotal) {
  const Params params = count_params(shipped(GetParam()));
  int64_t total = params.embedding + params.final_norm + params.vision + params.projector;
  if (!params.lm_head_tied) total += params.lm_head;
  for (const LayerParams& layer : params.by_layer) {
    EXPECT_EQ(layer.attention + layer.mlp + layer.router + layer.experts + layer.norms, layer.total);
    total += layer.total;
  }
  EXPECT_EQ(total, params.total);
}

std::vector<std::string> all_ids() {
  std::vector<std::string> ids;
  for (const ModelRow& row : model_rows()) ids.push_back(row.id);
  return ids;
}

std::string test_name(const testing::TestParamInfo<std::string>& param) {
  std::string name;
  for (const char c : param.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Shipped, EveryModel, testing::ValuesIn(all_ids()), test_name);

}  // namespace
}  // namespace llmprof
