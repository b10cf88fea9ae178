// Every row of tests/golden/model/models.csv and golden_flops.csv, to the unit, plus published totals of further
// models.
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "base/csv.h"
#include "model/catalogue.h"
#include "model/cost.h"
#include "model/parameters.h"
#include "model_shipped.h"

namespace llmprof {
namespace {

CsvTable golden_table(const std::string& name) {
  const std::string path = std::string(LLMPROF_TEST_DATA) + "/golden/model/" + name;
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  Result<CsvTable> table = read_csv(text.str(), path);
  EXPECT_TRUE(table) << table.error().text();
  return table ? *std::move(table) : CsvTable();
}

class Row {
 public:
  Row(const CsvTable& table, size_t index) : table_(table), index_(index) {}
  std::string text(std::string_view column) const {
    const std::optional<size_t> at = table_.column(column);
    EXPECT_TRUE(at) << column;
    return at ? table_.rows[index_][*at] : std::string();
  }
  int64_t integer(std::string_view column) const {
    const std::string cell = text(column);
    int64_t value = -1;
    const std::from_chars_result parsed = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    EXPECT_TRUE(parsed.ec == std::errc() && parsed.ptr == cell.data() + cell.size()) << column << ": " << cell;
    return value;
  }
  bool empty(std::string_view column) const { return text(column).empty(); }

 private:
  const CsvTable& table_;
  size_t index_;
};

// A count of the model that must be a whole number.
int64_t whole(double value) {
  EXPECT_EQ(value, static_cast<double>(static_cast<int64_t>(value)));
  return static_cast<int64_t>(value);
}

void expect_shape(const Row& row, const ModelConfig& c) {
  EXPECT_EQ(c.architecture, row.text("arch"));
  EXPECT_EQ(c.hidden_size, row.integer("hidden_size"));
  EXPECT_EQ(c.num_layers(), row.integer("num_layers"));
  EXPECT_EQ(c.num_heads, row.integer("n_heads"));
  EXPECT_EQ(c.num_kv_heads, row.integer("n_kv_heads"));
  EXPECT_EQ(c.vocab_size, row.integer("vocab_size"));
  EXPECT_EQ(c.max_position, row.integer("max_position"));
  EXPECT_EQ(c.tied_embeddings, row.text("tied_embeddings") == "True");
  EXPECT_EQ(c.qkv_bias, row.text("qkv_bias") == "True");
  EXPECT_EQ(c.qk_norm != QkNorm::kNone, row.text("qk_norm") == "True");
  EXPECT_EQ(c.norms_per_layer, row.integer("norms_per_layer"));
  if (c.mla) {
    EXPECT_EQ(row.text("head_dim"), std::to_string(c.head_dim) + "/" + std::to_string(c.mla->v_head_dim));
    EXPECT_EQ(c.mla->kv_lora_rank, row.integer("kv_lora_rank"));
    EXPECT_EQ(c.mla->qk_nope_dim, row.integer("qk_nope_dim"));
    EXPECT_EQ(c.mla->qk_rope_dim, row.integer("qk_rope_dim"));
  } else {
    EXPECT_EQ(c.head_dim, row.integer("head_dim"));
  }
  EXPECT_EQ(c.moe.has_value(), !row.empty("n_experts"));
  if (!c.moe || c.moe_layers() != c.num_layers()) {
    EXPECT_EQ(c.intermediate_size, row.integer("intermediate_size"));
  }
  if (c.moe) {
    EXPECT_EQ(c.moe->experts, row.integer("n_experts"));
    EXPECT_EQ(c.moe->top_k, row.integer("top_k"));
    EXPECT_EQ(c.moe->intermediate_size, row.integer("moe_intermediate_size"));
    EXPECT_EQ(c.moe->shared_experts, row.integer("n_shared_experts"));
    if (!row.empty("first_dense_layers")) {
      EXPECT_EQ(c.num_layers() - c.moe_layers(), row.integer("first_dense_layers"));
    }
  }
  if (row.empty("sliding_window")) {
    EXPECT_EQ(c.windowed_layers(), 0);
  } else {
    EXPECT_EQ(c.layers[0].window, row.integer("sliding_window"));
    const bool alternating = row.text("swa_pattern").find("alternating") != std::string::npos;
    EXPECT_EQ(c.windowed_layers(), alternating ? c.num_layers() / 2 : c.num_layers());
  }
}

TEST(ModelGolden, EveryRowOfModelsCsvToTheUnit) {
  const CsvTable table = golden_table("models.csv");
  ASSERT_EQ(table.rows.size(), 16U);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Row row(table, i);
    SCOPED_TRACE(row.text("model"));
    const ModelConfig config = shipped(row.text("model"));
    ASSERT_FALSE(config.layers.empty());
    expect_shape(row, config);
    const Params params = count_params(config);
    EXPECT_EQ(params.total, row.integer("total_params_exact"));
    EXPECT_EQ(params.total, row.integer("published_total"));
    EXPECT_EQ(params.vision, row.integer("vision_params"));
    EXPECT_EQ(params.projector, row.integer("projector_params"));
    EXPECT_EQ(params.active_per_token, row.integer("active_params_per_token"));
    EXPECT_EQ(params.linear_per_token, row.integer("linear_matmul_params_per_token_no_head"));
    EXPECT_EQ(params.lm_head, row.integer("lm_head_params"));
    EXPECT_EQ(whole(kv_bytes_per_token(config, bf16_format())), row.integer("kv_bytes_per_token_16bit"));
    const StageCost decode = decode_cost(config, RequestShape());
    EXPECT_EQ(whole(decode.flops.linear + decode.flops.lm_head), row.integer("decode_linear_flops_per_token"));
  }
}

TEST(ModelGolden, EveryRowOfGoldenFlopsCsvToTheUnit) {
  const CsvTable table = golden_table("golden_flops.csv");
  ASSERT_EQ(table.rows.size(), 32U);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Row row(table, i);
    SCOPED_TRACE(row.text("model") + " " + row.text("S_or_C"));
    const ModelConfig config = shipped(row.text("model"));
    ASSERT_FALSE(config.layers.empty());
    RequestShape shape;
    shape.prompt = shape.context = row.integer("S_or_C");
    const StageCost prefill = prefill_cost(config, shape), decode = decode_cost(config, shape);
    EXPECT_EQ(whole(prefill.flops.linear), row.integer("prefill_linear_flops(batch1)"));
    EXPECT_EQ(whole(prefill.flops.attention_causal), row.integer("prefill_attention_flops_causal"));
    EXPECT_EQ(whole(prefill.flops.lm_head), row.integer("lm_head_flops_last_token"));
    EXPECT_EQ(whole(prefill.flops.total()), row.integer("prefill_total"));
    const double share = std::stod(row.text("attention_share"));
    EXPECT_NEAR(prefill.flops.attention_causal / prefill.flops.total(), share, 0.5001e-4);
    EXPECT_EQ(whole(decode.flops.linear + decode.flops.lm_head), row.integer("decode_linear+head_flops_per_token"));
    EXPECT_EQ(whole(decode.flops.attention_causal), row.integer("decode_attention_flops_at_ctx"));
    EXPECT_EQ(whole(decode.bytes.kv_read), row.integer("decode_kv_bytes_read_16bit_at_ctx"));
  }
}

// Totals the publishers state for further architectures and sizes of the shipped table.
TEST(ModelGolden, PublishedTotalsOfTheOtherShippedModels) {
  const std::vector<std::pair<std::string, int64_t>> totals = {
      {"openai-community/gpt2-medium", 354'823'168},
      {"openai-community/gpt2-large", 774'030'080},
      {"openai-community/gpt2-xl", 1'557'611'200},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1'100'048'384},
      {"meta-llama/Llama-3.2-1B", 1'235'814'400},
      {"meta-llama/Llama-3.2-3B", 3'212'749'824},
      {"Qwen/Qwen3-0.6B", 596'049'920},
      {"Qwen/Qwen3-32B", 32'762'123'264},
      {"google/gemma-2b", 2'506'172'416},
      {"google/gemma-2-2b", 2'614'341'888},
      {"google/gemma-3-4b-it", 4'300'079'472},
      {"microsoft/phi-4", 14'659'507'200},
      {"allenai/OLMo-2-1124-7B", 7'298'617'344},
      {"mistralai/Mixtral-8x22B-v0.1", 140'620'634'112},
      {"Qwen/Qwen1.5-MoE-A2.7B", 14'315'784'192},
      {"Qwen/Qwen2.5-VL-7B-Instruct", 8'292'166'656},
      {"llava-hf/llava-1.5-7b-hf", 7'063'427'072},
      {"openai/gpt-oss-120b", 116'829'156'672},
      {"deepseek-ai/DeepSeek-V3", 671'026'419'200},
  };
  for (const auto& [id, total] : totals) EXPECT_EQ(count_params(shipped(id)).total, total) << id;
}

}  // namespace
}  // namespace llmprof
