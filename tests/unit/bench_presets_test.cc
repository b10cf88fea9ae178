// Cases of a model: shapes as its config gives them, and what its steps add up to.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/presets.h"
#include "bench_scripted.h"
#include "model/catalogue.h"
#include "model/cost.h"
#include "report/render.h"

namespace llmprof::bench {
namespace {

// Operations with the axes that the presets name; none of them is run.
kernels::Operation stub(std::string_view name, std::span<const kernels::Axis> axes,
                        std::span<const std::string_view> variants) {
  static constexpr DType kTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8};
  kernels::Operation op = scripted_gemm();
  op.name = name;
  op.axes = axes;
  op.dtypes = kTypes;
  op.variants = variants;
  op.unsupported = nullptr;
  return op;
}

std::vector<kernels::Operation> catalogue() {
  static constexpr kernels::Axis kGemm[] = {{"m", 1, ""}, {"n", 1, ""}, {"k", 1, ""}};
  static constexpr kernels::Axis kNorm[] = {{"tokens", 1, ""}, {"hidden", 1, ""}};
  static constexpr kernels::Axis kSwiglu[] = {{"tokens", 1, ""}, {"ffn", 1, ""}};
  static constexpr kernels::Axis kRope[] = {
      {"tokens", 1, ""}, {"heads", 1, ""}, {"kv_heads", 1, ""}, {"head_dim", 1, ""}};
  static constexpr kernels::Axis kAppend[] = {{"tokens", 1, ""}, {"kv_heads", 1, ""}, {"head_dim", 1, ""}};
  static constexpr kernels::Axis kEmbedding[] = {{"tokens", 1, ""}, {"vocab", 1, ""}, {"hidden", 1, ""}};
  static constexpr kernels::Axis kDecode[] = {
      {"batch", 1, ""}, {"heads", 1, ""}, {"kv_heads", 1, ""}, {"head_dim", 1, ""}, {"context", 1, ""}};
  static constexpr kernels::Axis kPrefill[] = {{"batch", 1, ""},    {"heads", 1, ""},  {"kv_heads", 1, ""},
                                               {"head_dim", 1, ""}, {"prompt", 1, ""}, {"context", 1, ""}};
  static constexpr std::string_view kNorms[] = {"residual", "plain"}, kCaches[] = {"contiguous", "paged"},
                                    kMasks[] = {"causal", "full"};
  return {stub("gemm", kGemm, {}),
          stub("rmsnorm", kNorm, kNorms),
          stub("swiglu", kSwiglu, {}),
          stub("rope", kRope, {}),
          stub("kv_append", kAppend, {}),
          stub("embedding", kEmbedding, {}),
          stub("attention", kPrefill, kMasks),
          stub("attention_decode", kDecode, kCaches)};
}

Preset preset(const std::string& model, const PresetOptions& options,
              const std::vector<kernels::Operation>& operations) {
  const ScriptedDevice device;
  const Result<ModelConfig> config = load_model(model);
  EXPECT_TRUE(config.has_value());
  Result<Preset> made = preset_of(operations, device.who, *config, options);
  EXPECT_TRUE(made.has_value()) << made.error().text();
  return *std::move(made);
}

std::vector<std::string> lines_of(const Preset& preset, size_t step) {
  std::vector<std::string> out;
  for (const Preset::Part& part : preset.parts) {
    if (part.step != step) continue;
    const CasePlan& plan = preset.plans[part.plan];
    out.push_back(part.name + ": " + std::to_string(part.calls) + " " + std::string(plan.operation->name) + " " +
                  plan.params.variant + " " + shape_text(plan.params));
  }
  return out;
}

TEST(BenchPreset, ShapesOfLlama) {
  const std::vector<kernels::Operation> operations = catalogue();
  const Preset llama = preset("llama-3.1-8b", {{2}, {512}, {}, 1}, operations);
  EXPECT_EQ(llama.steps, (std::vector<std::string>{"prefill 2 x 512", "decode 2 x 512"}));
  EXPECT_EQ(
      lines_of(llama, 0),
      (std::vector<std::string>{
          "embedding: 1 embedding  tokens=1024 vocab=128256 hidden=4096",
          "first norm: 1 rmsnorm plain tokens=1024 hidden=4096", "norms: 64 rmsnorm residual tokens=1024 hidden=4096",
          "qkv: 32 gemm  m=1024 n=6144 k=4096", "rope: 32 rope  tokens=1024 heads=32 kv_heads=8 head_dim=128",
          "kv_append: 32 kv_append  tokens=1024 kv_heads=8 head_dim=128",
          "attention: 32 attention causal batch=2 heads=32 kv_heads=8 head_dim=128 prompt=512 context=512",
          "o: 32 gemm  m=1024 n=4096 k=4096", "gate_up: 32 gemm  m=1024 n=28672 k=4096",
          "swiglu: 32 swiglu  tokens=1024 ffn=14336", "down: 32 gemm  m=1024 n=4096 k=14336",
          "lm_head: 1 gemm  m=2 n=128256 k=4096"}));
  const std::vector<std::string> decode = lines_of(llama, 1);
  EXPECT_EQ(decode[3], "qkv: 32 gemm  m=2 n=6144 k=4096");
  EXPECT_EQ(decode[6],
            "attention: 32 attention_decode contiguous batch=2 heads=32 kv_heads=8 head_dim=128 context=512");
  EXPECT_EQ(llama.remarks, (std::vector<std::string>{"sampling: there is no operation sampling"}));
}

// The products of a step have the FLOPs that `llmprof model` counts: one implementation is the truth of the other.
TEST(BenchPreset, FlopsOfTheProductsAreThoseOfTheModel) {
  const std::vector<kernels::Operation> operations = catalogue();
  for (const char* model : {"llama-3.1-8b", "qwen3-8b", "phi-4", "gpt2"}) {
    const Preset made = preset(model, {{3}, {100}, {}, 1}, operations);
    RequestShape shape;
    shape.batch = 3;
    shape.prompt = 100;
    shape.context = 100;
    const Result<ModelConfig> config = load_model(model);
    for (const size_t step : {size_t{0}, size_t{1}}) {
      const StageCost cost = step == 0 ? prefill_cost(*config, shape) : decode_cost(*config, shape);
      double flops = 0;
      for (const Preset::Part& part : made.parts) {
        const kernels::OpParams& params = made.plans[part.plan].params;
        if (part.step != step || made.plans[part.plan].operation->name != "gemm") continue;
        flops += 2.0 * static_cast<double>(params.axis("m") * params.axis("n") * params.axis("k") * part.calls);
      }
      EXPECT_EQ(flops, cost.flops.linear + cost.flops.lm_head) << model << " " << step;
    }
  }
}

TEST(BenchPreset, SharedShapesAreMeasuredOnceAndTypesFollowTheConfig) {
  const std::vector<kernels::Operation> operations = catalogue();
  const Preset made = preset("llama-3.1-8b", {{1, 8}, {512, 2048}, {4096}, 7}, operations);
  EXPECT_EQ(made.steps.size(), 6U) << "4 prefills, 2 decode steps";
  std::set<std::string> keys;
  for (const CasePlan& plan : made.plans) {
    EXPECT_TRUE(keys.insert(std::string(plan.operation->name) + plan.params.variant + shape_text(plan.params)).second);
    EXPECT_EQ(plan.params.dtype, DType::kBf16);
    EXPECT_EQ(plan.params.seed, 7U);
  }
  EXPECT_LT(made.plans.size(), made.parts.size()) << "lm_head of both prompt lengths is one";
  const Preset fp8 = preset("deepseek-v3", {}, operations);
  EXPECT_TRUE(std::any_of(fp8.remarks.begin(), fp8.remarks.end(),
                          [](const std::string& remark) { return remark.find("MLA") != std::string::npos; }));
  EXPECT_TRUE(std::any_of(fp8.remarks.begin(), fp8.remarks.end(),
                          [](const std::string& remark) { return remark.find("experts") != std::string::npos; }));
}

TEST(BenchPreset, StepsAddUpAndMissingPartsLeaveNoSum) {
  const std::vector<kernels::Operation> operations = catalogue();
  const Preset made = preset("llama-3.1-8b", {{1}, {128}, {}, 1}, operations);
  std::vector<CaseRecord> records;
  for (const CasePlan& plan : made.plans) {
    for (const Regime regime : {Regime::kCold, Regime::kSustained}) {
      CaseRecord record;
      record.row.name = plan.operation->name;
      record.row.variant = plan.params.variant;
      record.row.shape = shape_text(plan.params);
      record.row.dtype = dtype_name(plan.params.dtype);
      record.row.regime = regime;
      record.row.median_us = regime == Regime::kCold ? 1000 : 10;
      records.push_back(record);
    }
  }
  std::vector<ModelStepRow> rows = model_steps(made, records);
  double decode_us = 0, share = 0;
  for (const ModelStepRow& row : rows) {
    if (row.step != "decode 1 x 128") continue;
    decode_us += *row.total_us;
    share += *row.share_frac;
  }
  // 1 embedding, 65 norms, 4 products, rope, kv_append, attention and swiglu in each of 32 layers, 1 head: 10 us each.
  EXPECT_DOUBLE_EQ(decode_us, 10 * (1 + 65 + 8 * 32 + 1));
  EXPECT_NEAR(share, 1, 1e-12);
  const auto page_of = [](const std::vector<ModelStepRow>& parts) {
    BenchResult result;
    result.model_steps = parts;
    return render_text(result, {});
  };
  EXPECT_NE(page_of(rows).find("decode 1 x 128: 3.230 ms altogether"), std::string::npos) << page_of(rows);
  records.pop_back();
  records.pop_back();  // the last plan: a part of decode
  rows = model_steps(made, records);
  EXPECT_NE(page_of(rows).find("decode 1 x 128: parts were not timed"), std::string::npos);
  for (const ModelStepRow& row : rows) EXPECT_EQ(row.share_frac.has_value(), row.step != "decode 1 x 128");
}

TEST(BenchPreset, LengthsThatCannotBe) {
  const std::vector<kernels::Operation> operations = catalogue();
  const ScriptedDevice device;
  const Result<ModelConfig> config = load_model("llama-3.1-8b");
  const Result<Preset> none = preset_of(operations, device.who, *config, {{0}, {512}, {}, 1});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().exit_code, ExitCode::kUsage);
  EXPECT_NE(none.error().text().find("--batch"), std::string::npos);
}

}  // namespace
}  // namespace llmprof::bench
