#include "bench/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text_table.h"

namespace llmprof::bench {
namespace {

using device::Operation;
using Align = TextTable::Align;

constexpr int64_t kLengthMax = int64_t{1} << 24;
constexpr size_t kPlansMax = 10'000;

const Operation* find(std::span<const Operation> operations, std::string_view name) {
  for (const Operation& operation : operations)
    if (operation.name == name) return &operation;
  return nullptr;
}

// Key of a case, for finding its records again.
std::string key_of(const std::string& name, const std::string& variant, const std::string& shape,
                   const std::string& dtype) {
  return name + "|" + variant + "|" + shape + "|" + dtype;
}
std::string key_of(const CasePlan& plan) {
  return key_of(std::string(plan.operation->name), plan.params.variant, shape_text(plan.params),
                std::string(dtype_name(plan.params.dtype)));
}

// One step of the model: `rows` tokens go through every layer.
struct Step {
  std::string name;
  int64_t batch = 0, queries = 0, context = 0;
  bool decode = false;
  int64_t rows() const { return batch * queries; }
};

class Builder {
 public:
  Builder(std::span<const Operation> operations, const device::DeviceIdentity& device, const ModelConfig& model,
          uint64_t seed)
      : operations_(operations), device_(device), model_(model), seed_(seed) {
    out_.model = model.id;
    dtype_ = parse_dtype(model.dtype.name).value_or(DType::kBf16);
    product_dtype_ = dtype_;
    if (!model.quantization || !model.quantization->format) return;
    const std::string& format = model.quantization->format->name;
    if (format.rfind("fp8", 0) == 0) product_dtype_ = DType::kFp8;
    if (product_dtype_ == dtype_)
      remark(fmt::format("weights in {}: products are measured in {}, in which they are computed", format,
                         dtype_name(dtype_)));
    else
      remark(fmt::format("weights in {}: products are measured in fp8 with a scale per tensor", format));
  }

  Status add(const Step& step) {
    out_.steps.push_back(step.name);
    const ModelConfig& m = model_;
    const int64_t layers = m.num_layers(), moe = m.moe_layers(), rows = step.rows(), h = m.hidden_size;
    LLMPROF_CHECK(
        part("embedding", "embedding", {}, dtype_, 1, {{"tokens", rows}, {"vocab", m.vocab_size}, {"hidden", h}}));
    LLMPROF_CHECK(add_norms(rows, layers));
    if (m.mla) {
      remark("attention over latents (MLA) and its projections have no operation here");
    } else {
      LLMPROF_CHECK(add_attention(step, layers));
    }
    if (layers > moe) LLMPROF_CHECK(add_mlp("", rows, m.intermediate_size, layers - moe));
    if (moe > 0) LLMPROF_CHECK(add_experts(rows, moe));
    LLMPROF_CHECK(product("lm_head", step.batch, m.vocab_size, h, 1, dtype_));
    return part("sampling", "sampling", {}, dtype_, 1, {{"batch", step.batch}, {"vocab", m.vocab_size}});
  }

  Preset take() && { return std::move(out_); }

 private:
  void remark(const std::string& text) {
    if (std::find(out_.remarks.begin(), out_.remarks.end(), text) == out_.remarks.end()) out_.remarks.push_back(text);
  }

  Status part(const std::string& name, std::string_view operation_name, std::string_view variant, DType dtype,
              int64_t calls, const AxisValues& axes) {
    const Operation* const operation = find(operations_, operation_name);
    if (operation == nullptr) {
      remark(fmt::format("{}: there is no operation {}", name, operation_name));
      return {};
    }
    LLMPROF_ASSIGN(CasePlan plan, plan_case(*operation, device_, dtype, variant, axes));
    plan.params.seed = seed_;
    if (!possible(*operation, device_, plan.params)) {
      const std::optional<std::string> why =
          operation->unsupported == nullptr ? std::nullopt : operation->unsupported(device_, plan.params);
      remark(fmt::format("{}: {}", name, why.value_or(fmt::format("{} is not measured here", operation_name))));
      return {};
    }
    const auto [known, fresh] = index_.emplace(key_of(plan), out_.plans.size());
    if (fresh) out_.plans.push_back(std::move(plan));
    if (out_.plans.size() > kPlansMax)
      return fail(fmt::format("more than {} cases", kPlansMax), "--batch", "fewer lengths", ExitCode::kUsage);
    out_.parts.push_back({out_.steps.size() - 1, known->second, name, calls});
    return {};
  }

  Status product(const std::string& name, int64_t m, int64_t n, int64_t k, int64_t calls, DType dtype) {
    return part(name, "gemm", {}, dtype, calls, {{"m", m}, {"n", n}, {"k", k}});
  }

  // The first norm sees no residual; every other one, the last included, adds it.
  Status add_norms(int64_t rows, int64_t layers) {
    if (model_.norm == NormKind::kLayer) {
      remark("LayerNorm without GELU behind it has no operation here");
      return {};
    }
    const AxisValues axes = {{"tokens", rows}, {"hidden", model_.hidden_size}};
    const int64_t between = (model_.norms_per_layer - 2) * layers;  // those that add nothing
    LLMPROF_CHECK(part("first norm", "rmsnorm", "plain", dtype_, 1 + between, axes));
    return part("norms", "rmsnorm", "residual", dtype_, 2 * layers, axes);
  }

  Status add_attention(const Step& step, int64_t layers) {
    const ModelConfig& m = model_;
    const int64_t heads = m.num_heads, kv = m.num_kv_heads, dim = m.head_dim, rows = step.rows();
    LLMPROF_CHECK(product("qkv", rows, (heads + 2 * kv) * dim, m.hidden_size, layers, product_dtype_));
    if (m.qk_norm != QkNorm::kNone) remark("norms of queries and keys have no operation here");
    const AxisValues of_heads = {{"tokens", rows}, {"heads", heads}, {"kv_heads", kv}, {"head_dim", dim}};
    if (m.learned_positions == 0) LLMPROF_CHECK(part("rope", "rope", {}, dtype_, layers, of_heads));
    LLMPROF_CHECK(
        part("kv_append", "kv_append", {}, dtype_, layers, {{"tokens", rows}, {"kv_heads", kv}, {"head_dim", dim}}));
    if (m.windowed_layers() > 0)
      remark(fmt::format("{} layers attend to a window: they are measured over everything", m.windowed_layers()));
    AxisValues axes = {
        {"batch", step.batch}, {"heads", heads}, {"kv_heads", kv}, {"head_dim", dim}, {"context", step.context}};
    if (!step.decode) axes.emplace_back("prompt", step.queries);
    LLMPROF_CHECK(part("attention", step.decode ? "attention_decode" : "attention",
                       step.decode ? "contiguous" : "causal", dtype_, layers, axes));
    return product("o", rows, m.hidden_size, heads * dim, layers, product_dtype_);
  }

  Status add_activation(const std::string& name, int64_t rows, int64_t f, int64_t layers) {
    if (model_.gated_mlp) return part(name, "swiglu", {}, dtype_, layers, {{"tokens", rows}, {"ffn", f}});
    remark("the activation between the layers of the MLP has no operation here: engines join it to the product");
    return {};
  }

  // `of` is in front of the parts' names.
  Status add_mlp(const std::string& of, int64_t rows, int64_t f, int64_t layers) {
    const ModelConfig& m = model_;
    LLMPROF_CHECK(product(of + (m.gated_mlp ? "gate_up" : "up"), rows, m.gated_mlp ? 2 * f : f, m.hidden_size, layers,
                          product_dtype_));
    LLMPROF_CHECK(add_activation(of + "swiglu", rows, f, layers));
    return product(of + "down", rows, m.hidden_size, f, layers, product_dtype_);
  }

  // Rows are shared out evenly: what the weights of a step cost depends on how many experts get one.
  Status add_experts(int64_t rows, int64_t layers) {
    const ModelConfig& m = model_;
    const MoeConfig& moe = *m.moe;
    const int64_t routed = rows * moe.top_k, f = moe.intermediate_size;
    const auto grouped = [&](const std::string& name, int64_t n, int64_t k) {
      return part("experts' " + name, "gemm_grouped", "even", product_dtype_, layers,
                  {{"rows", routed}, {"groups", moe.experts}, {"n", n}, {"k", k}});
    };
    LLMPROF_CHECK(product("router", rows, moe.experts, m.hidden_size, layers, dtype_));
    LLMPROF_CHECK(part("routing", "moe_routing", {}, dtype_, layers,
                       {{"tokens", rows}, {"experts", moe.experts}, {"k", moe.top_k}}));
    LLMPROF_CHECK(grouped(m.gated_mlp ? "gate_up" : "up", m.gated_mlp ? 2 * f : f, m.hidden_size));
    LLMPROF_CHECK(add_activation("experts' swiglu", routed, f, layers));
    LLMPROF_CHECK(grouped("down", m.hidden_size, f));
    remark("rows gathered for the experts, and their results weighted and added, have no operation here");
    if (moe.shared_intermediate_size > 0) LLMPROF_CHECK(add_mlp("shared ", rows, moe.shared_intermediate_size, layers));
    return {};
  }

  std::span<const Operation> operations_;
  const device::DeviceIdentity& device_;
  const ModelConfig& model_;
  uint64_t seed_;
  DType dtype_ = DType::kBf16, product_dtype_ = DType::kBf16;
  Preset out_;
  std::map<std::string, size_t> index_;
};

Status check_lengths(const std::vector<int64_t>& lengths, const char* option) {
  for (const int64_t length : lengths)
    if (length < 1 || length > kLengthMax)
      return fail(fmt::format("expected 1 to {}, found {}", kLengthMax, length), option, {}, ExitCode::kUsage);
  return {};
}

}  // namespace

Result<Preset> preset_of(std::span<const Operation> operations, const device::DeviceIdentity& device,
                         const ModelConfig& model, const PresetOptions& options) {
  LLMPROF_CHECK(check_lengths(options.batches, "--batch"));
  LLMPROF_CHECK(check_lengths(options.prompts, "--prompt"));
  LLMPROF_CHECK(check_lengths(options.contexts, "--context"));
  Builder builder(operations, device, model, options.seed);
  for (const int64_t batch : options.batches)
    for (const int64_t prompt : options.prompts)
      LLMPROF_CHECK(builder.add({fmt::format("prefill {} x {}", batch, prompt), batch, prompt, prompt, false}));
  for (const int64_t batch : options.batches)
    for (const int64_t context : options.contexts.empty() ? options.prompts : options.contexts)
      LLMPROF_CHECK(builder.add({fmt::format("decode {} x {}", batch, context), batch, 1, context, true}));
  return std::move(builder).take();
}

std::vector<ModelStepRow> model_steps(const Preset& preset, const std::vector<CaseRecord>& records) {
  std::map<std::string, const CaseRow*> rows;
  for (const CaseRecord& record : records) {
    const CaseRow& row = record.row;
    if (!row.median_us) continue;
    const CaseRow*& slot = rows[key_of(row.name, row.variant, row.shape, row.dtype)];
    if (slot == nullptr || row.regime == Regime::kSustained) slot = &row;
  }
  std::vector<ModelStepRow> out;
  std::vector<double> sums(preset.steps.size(), 0);
  std::vector<bool> whole(preset.steps.size(), true);
  for (const Preset::Part& part : preset.parts) {
    const CasePlan& plan = preset.plans[part.plan];
    ModelStepRow row;
    row.step = preset.steps[part.step];
    row.part = part.name;
    row.name = plan.operation->name;
    row.variant = plan.params.variant;
    row.shape = shape_text(plan.params);
    row.dtype = dtype_name(plan.params.dtype);
    row.calls = part.calls;
    if (const auto found = rows.find(key_of(plan)); found != rows.end()) {
      row.us = found->second->median_us;
      row.total_us = *row.us * static_cast<double>(part.calls);
      row.bound = found->second->bound;
      sums[part.step] += *row.total_us;
    } else {
      whole[part.step] = false;
    }
    out.push_back(std::move(row));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t step = preset.parts[i].step;
    if (whole[step] && out[i].total_us) out[i].share_frac = *out[i].total_us / sums[step];
  }
  return out;
}

}  // namespace llmprof::bench
