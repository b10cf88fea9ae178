#include "bench/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "base/text_table.h"
#include "model/cost.h"

namespace llmprof::bench {
namespace {

using kernels::Operation;
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

// One step of the model.
struct Step {
  std::string name;
  int64_t batch = 0, queries = 0, context = 0;
  bool decode = false;
};

// An operator of the model as a case, joined with its neighbours as engines join them; or a sentence on what has none.
enum class PartRole : uint8_t { kOther, kFirstNorm, kNorm };
struct PartShape {
  std::string name;
  PartRole role = PartRole::kOther;
  std::string_view operation, variant;
  DType dtype = DType::kUnknown;
  AxisValues axes;
  int64_t calls = 1;
  std::string remark;
};

// Calls of equal parts are counted together.
class PartList {
 public:
  void add(std::string name, std::string_view operation, std::string_view variant, DType dtype, AxisValues axes,
           PartRole role = PartRole::kOther) {
    add(PartShape{std::move(name), role, operation, variant, dtype, std::move(axes), 1, {}});
  }
  void remark(std::string text) { add(PartShape{{}, {}, {}, {}, DType::kUnknown, {}, 1, std::move(text)}); }
  const std::vector<PartShape>& parts() const { return parts_; }

 private:
  void add(PartShape part) {
    for (PartShape& known : parts_) {
      if (known.name != part.name || known.axes != part.axes || known.remark != part.remark) continue;
      ++known.calls;
      return;
    }
    // Norms stand together.
    size_t at = parts_.size();
    for (size_t i = 0; part.role == PartRole::kNorm && i < parts_.size(); ++i)
      if (parts_[i].role == PartRole::kFirstNorm) at = i + 1;
    parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(at), std::move(part));
  }

  std::vector<PartShape> parts_;
};

// "experts' ", "shared ", or nothing, by the operator's name: "experts.up_proj".
std::string owner_of(const Operator& op) {
  if (op.name.rfind("experts.", 0) == 0) return "experts' ";
  return op.name.rfind("shared_experts.", 0) == 0 ? "shared " : "";
}

// The name of the product that this one is part of; empty: it has no case.
std::string product_name(const ModelConfig& model, const Operator& op) {
  switch (op.part) {
    case TensorPart::kAttention:
      return model.mla ? "" : op.name == "o_proj" ? "o" : "qkv";
    case TensorPart::kRouter:
      return op.name == "router" ? "router" : "";
    case TensorPart::kLmHead:
      return "lm_head";
    default:
      if (op.name.ends_with("down_proj") || op.name.ends_with("fc_out")) return owner_of(op) + "down";
      return owner_of(op) + (model.gated_mlp ? "gate_up" : "up");
  }
}

class Builder {
 public:
  Builder(std::span<const Operation> operations, const device::DeviceIdentity& device, const ModelConfig& model,
          uint64_t seed)
      : operations_(operations), device_(device), model_(model), seed_(seed) {
    out_.model = model.id;
    dtype_ = model.dtype.element;
    product_dtype_ = dtype_;
    if (!model.quantization || !model.quantization->format) return;
    const std::string& format = model.quantization->format->name;
    if (model.quantization->format->element == DType::kFp8) product_dtype_ = DType::kFp8;
    if (product_dtype_ == dtype_)
      remark(fmt::format("weights in {}: products are measured in {}, in which they are computed", format,
                         dtype_name(dtype_)));
    else
      remark(fmt::format("weights in {}: products are measured in fp8 with a scale per tensor", format));
  }

  Status add(const Step& step) {
    out_.steps.push_back(step.name);
    RequestShape shape;
    shape.batch = step.batch;
    shape.prompt = step.queries;
    shape.context = step.context;
    const StageCost cost = step.decode ? decode_cost(model_, shape) : prefill_cost(model_, shape);
    PartList list;
    for (size_t i = 0; i < cost.operators.size(); ++i) {
      const Operator& op = cost.operators[i];
      if (op.kind != OperatorKind::kLinear && op.kind != OperatorKind::kLmHead) {
        add_other(op, step.decode, list);
        continue;
      }
      const std::string name = product_name(model_, op);
      if (name.empty()) continue;
      int64_t out = op.out;
      while (i + 1 < cost.operators.size() && cost.operators[i + 1].kind == OperatorKind::kLinear &&
             product_name(model_, cost.operators[i + 1]) == name)
        out += cost.operators[++i].out;
      add_product(name, op, out, list);
    }
    list.add("sampling", "sampling", {}, dtype_, {{"batch", step.batch}, {"vocab", model_.vocab_size}});
    for (const PartShape& part : list.parts()) {
      if (part.remark.empty()) {
        LLMPROF_CHECK(add_part(part));
      } else {
        remark(part.remark);
      }
    }
    return {};
  }

  Preset take() && { return std::move(out_); }

 private:
  void remark(const std::string& text) {
    if (std::find(out_.remarks.begin(), out_.remarks.end(), text) == out_.remarks.end()) out_.remarks.push_back(text);
  }

  Status add_part(const PartShape& part) {
    const Operation* const operation = find(operations_, part.operation);
    if (operation == nullptr) {
      remark(fmt::format("{}: there is no operation {}", part.name, part.operation));
      return {};
    }
    LLMPROF_ASSIGN(CasePlan plan, plan_case(*operation, device_, part.dtype, part.variant, part.axes));
    plan.params.seed = seed_;
    if (!possible(*operation, device_, plan.params)) {
      const std::optional<std::string> why =
          operation->unsupported == nullptr ? std::nullopt : operation->unsupported(device_, plan.params);
      remark(fmt::format("{}: {}", part.name, why.value_or(fmt::format("{} is not measured here", operation->name))));
      return {};
    }
    const auto [known, fresh] = index_.emplace(key_of(plan), out_.plans.size());
    if (fresh) out_.plans.push_back(std::move(plan));
    if (out_.plans.size() > kPlansMax)
      return fail(fmt::format("more than {} cases", kPlansMax), "--batch", "fewer lengths", ExitCode::kUsage);
    out_.parts.push_back({out_.steps.size() - 1, known->second, part.name, part.calls});
    return {};
  }

  // Rows of experts are shared out evenly: what the weights of a step cost depends on how many experts get one.
  void add_product(const std::string& name, const Operator& op, int64_t out, PartList& list) const {
    const DType dtype = op.quantised ? product_dtype_ : dtype_;
    if (op.experts > 1) {
      list.add(name, "gemm_grouped", "even", dtype,
               {{"rows", op.rows}, {"groups", op.experts}, {"n", out}, {"k", op.in}});
      return;
    }
    list.add(name, "gemm", {}, dtype, {{"m", op.rows}, {"n", out}, {"k", op.in}});
    if (op.part == TensorPart::kRouter)
      list.add("routing", "moe_routing", {}, dtype_, {{"tokens", op.rows}, {"experts", out}, {"k", model_.moe->top_k}});
  }

  void add_other(const Operator& op, bool decode, PartList& list) const {
    const ModelConfig& m = model_;
    switch (op.kind) {
      case OperatorKind::kGather:
        if (op.name == "embed_tokens")
          list.add("embedding", "embedding", {}, dtype_,
                   {{"tokens", op.rows}, {"vocab", m.vocab_size}, {"hidden", op.out}});
        break;
      case OperatorKind::kNorm:
        if (op.out != m.hidden_size) break;  // of latents
        if (m.norm == NormKind::kLayer)
          list.remark("LayerNorm without GELU behind it has no operation here");
        else
          list.add(op.adds_residual ? "norms" : "first norm", "rmsnorm", op.adds_residual ? "residual" : "plain",
                   dtype_, {{"tokens", op.rows}, {"hidden", op.out}},
                   op.adds_residual ? PartRole::kNorm : PartRole::kFirstNorm);
        break;
      case OperatorKind::kElementwise:
        if (op.attention) {
          if (m.qk_norm != QkNorm::kNone) list.remark("norms of queries and keys have no operation here");
          list.add("rope", "rope", {}, dtype_,
                   {{"tokens", op.rows},
                    {"heads", op.attention->heads},
                    {"kv_heads", op.attention->kv_heads},
                    {"head_dim", op.attention->key_width}});
        } else if (op.name.ends_with("activation")) {
          if (m.gated_mlp)
            list.add(owner_of(op) + "swiglu", "swiglu", {}, dtype_, {{"tokens", op.rows}, {"ffn", op.out}});
          else
            list.remark(
                "the activation between the layers of the MLP has no operation here: engines join it to the product");
        } else if (op.name == "experts.combine") {
          list.remark("rows gathered for the experts, and their results weighted and added, have no operation here");
        }
        break;
      case OperatorKind::kCacheWrite:
        if (m.mla)
          list.remark("attention over latents (MLA) and its projections have no operation here");
        else
          list.add("kv_append", "kv_append", {}, dtype_,
                   {{"tokens", op.rows}, {"kv_heads", op.attention->kv_heads}, {"head_dim", op.attention->key_width}});
        break;
      case OperatorKind::kAttention:
        if (!m.mla) add_attention(*op.attention, decode, list);
        break;
      default:
        break;
    }
  }

  void add_attention(const ops::Attention& of, bool decode, PartList& list) const {
    if (model_.windowed_layers() > 0)
      list.remark(
          fmt::format("{} layers attend to a window: they are measured over everything", model_.windowed_layers()));
    AxisValues axes = {{"batch", of.batch},
                       {"heads", of.heads},
                       {"kv_heads", of.kv_heads},
                       {"head_dim", of.key_width},
                       {"context", of.keys}};
    if (!decode) axes.emplace_back("prompt", of.queries);
    list.add("attention", decode ? "attention_decode" : "attention", decode ? "contiguous" : "causal", dtype_,
             std::move(axes));
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
