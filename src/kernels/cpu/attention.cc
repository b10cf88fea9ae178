// Attention of a prompt, and of one new query per sequence over a cache in one piece or in pages, by own kernels.
#include "kernels/reference/attention.h"

#include <fmt/format.h>

#include <list>
#include <optional>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_op.h"
#include "ops/attention.h"

namespace llmprof::kernels::cpu {
namespace {

enum : size_t { kOut, kQ, kK, kV, kTable };  // buffers of a set

AttentionShape shape_of(const OpParams& params, bool decode) {
  AttentionShape shape;
  shape.batch = params.axis("batch");
  shape.heads = params.axis("heads");
  shape.kv_heads = params.axis("kv_heads");
  shape.head_dim = params.axis("head_dim");
  shape.queries = decode ? 1 : params.axis("prompt");
  shape.keys = decode ? params.axis("context") : ops::attention_keys(params);
  shape.dtype = params.dtype;
  shape.causal = params.variant == "causal";
  return shape;
}

class AttentionOp : public OwnOp {
 public:
  AttentionOp(device::cpu::CpuDevice& device, const OpParams& params, bool decode)
      : OwnOp(device, params, plan(params, decode)),
        shape_(shape_of(params, decode)),
        paged_(params.variant == "paged") {
    for (const AttentionKernels& kernels : attention_kernels(device.instructions(), params.dtype)) {
      AttentionRunner* const runner = &runners_.emplace_back(device.team(), kernels);
      add(kernels.name, [this, runner](int set) { runner->run(arrays(set)); });
    }
  }

 protected:
  Status set_made(int set) override {
    return paged_ ? upload(set, kTable, page_table(shape_.batch * pages(), set)) : Status();
  }

  Result<Check> compare() override {
    if (!expected_) {
      const auto heads = [&](size_t buffer) {
        return paged_ ? paged_heads(device_, sets_.at(0, buffer), shape_, page_table(shape_.batch * pages(), 0))
                      : dense_heads(device_, sets_.at(0, buffer), shape_);
      };
      LLMPROF_ASSIGN(expected_, expect_attention(device_, shape_, sets_.at(0, kQ), heads(kK), heads(kV), params_.seed));
    }
    return check_attention(device_, shape_, sets_.at(0, kOut), *expected_);
  }

 private:
  static std::vector<BufferPlan> plan(const OpParams& params, bool decode) {
    const AttentionShape of = shape_of(params, decode);
    const bool paged = params.variant == "paged";
    const int64_t pages = (of.keys + ops::kPageTokens - 1) / ops::kPageTokens,
                  tokens = paged ? pages * ops::kPageTokens : of.keys;
    const auto bytes = [&](int64_t elements) {
      return static_cast<size_t>(elements) * static_cast<size_t>(dtype_bytes(params.dtype));
    };
    const size_t queries = bytes(of.batch * of.heads * of.queries * of.head_dim);
    const size_t cache = bytes(of.batch * of.kv_heads * tokens * of.head_dim);
    std::vector<BufferPlan> plan = {{queries, params.dtype, true, params.seed},
                                    {queries, params.dtype, false, params.seed + 1},
                                    {cache, params.dtype, false, params.seed + 2},
                                    {cache, params.dtype, false, params.seed + 3}};
    if (paged) plan.push_back({static_cast<size_t>(of.batch * pages) * sizeof(int32_t), DType::kFp32, false, 1});
    return plan;
  }

  int64_t pages() const { return (shape_.keys + ops::kPageTokens - 1) / ops::kPageTokens; }

  AttentionArrays arrays(int set) const {
    const AttentionShape& of = shape_;
    const int64_t query_head = of.queries * of.head_dim, key_head = of.keys * of.head_dim;
    AttentionArrays arrays;
    arrays.q = {sets_.data<void>(set, kQ), of.heads * query_head, query_head, of.head_dim};
    arrays.out = {sets_.data<void>(set, kOut), of.heads * query_head, query_head, of.head_dim};
    arrays.k = {sets_.data<void>(set, kK), of.kv_heads * key_head, key_head, of.head_dim};
    if (paged_) {
      const int64_t token = of.kv_heads * of.head_dim;
      arrays.k = {sets_.data<void>(set, kK), ops::kPageTokens * token, of.head_dim, token};
      arrays.table = sets_.data<int32_t>(set, kTable);
      arrays.page_tokens = ops::kPageTokens;
      arrays.pages = pages();
    }
    arrays.v = arrays.k;
    arrays.v.data = sets_.data<void>(set, kV);
    arrays.sequences = of.batch;
    arrays.heads = of.heads;
    arrays.kv_heads = of.kv_heads;
    arrays.head_dim = of.head_dim;
    arrays.queries = of.queries;
    arrays.keys = of.keys;
    arrays.causal = of.causal;
    arrays.scale = static_cast<float>(of.scale());
    return arrays;
  }

  AttentionShape shape_;
  bool paged_;
  std::list<AttentionRunner> runners_;  // as the candidates
  std::optional<AttentionExpected> expected_;
};

Result<std::unique_ptr<PreparedOp>> prepare(Device& device, const OpParams& params, bool decode) {
  if (const std::optional<std::string> why = attention_unsupported(params)) return fail(*why, {}, {}, ExitCode::kUsage);
  auto op = std::make_unique<AttentionOp>(static_cast<device::cpu::CpuDevice&>(device), params, decode);
  LLMPROF_CHECK(op->prepare_sets(1));
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace

std::optional<std::string> attention_unsupported(const OpParams& params) {
  if (std::optional<std::string> why = rows_unsupported(params)) return why;
  const int64_t heads = params.axis("heads"), kv_heads = params.axis("kv_heads");
  if (heads % kv_heads == 0) return std::nullopt;
  return fmt::format("heads must be a multiple of kv_heads, {} is none of {}", heads, kv_heads);
}

Result<std::unique_ptr<PreparedOp>> prepare_attention(Device& device, const OpParams& params) {
  return prepare(device, params, false);
}
Result<std::unique_ptr<PreparedOp>> prepare_attention_decode(Device& device, const OpParams& params) {
  return prepare(device, params, true);
}

}  // namespace llmprof::kernels::cpu
