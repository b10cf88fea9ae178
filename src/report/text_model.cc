// The page of `llmprof model`: the answer, the stages, then the operators with identical layers on one line.
#include "report/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "report/text_parts.h"

namespace llmprof {
namespace {

// 8030261248 -> "8.03 B"
std::string format_params(double count) {
  if (count >= 1e12) return fmt::format("{:.2f} T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  return format_count(count);
}

std::string describe_attention(const ModelResult& m) {
  std::string text;
  if (m.latent_rank != 0)
    text = fmt::format("{} heads, latent attention of rank {}", m.heads, m.latent_rank);
  else if (m.kv_heads == m.heads)
    text = fmt::format("{} heads of {}", m.heads, m.head_dim);
  else
    text = fmt::format("{} heads of {} on {} KV heads", m.heads, m.head_dim, m.kv_heads);
  if (m.windowed_layers == 0) return text;
  return text + fmt::format(", window {} in {} of {} layers", m.longest_window, m.windowed_layers, m.layers);
}

std::string describe_mlp(const ModelResult& m) {
  if (m.experts == 0) return fmt::format("MLP {}{}", m.mlp_size, m.gated_mlp ? " (gated)" : "");
  std::string text = fmt::format("{} experts of {}, {} per token", m.experts, m.expert_size, m.experts_per_token);
  if (m.shared_experts != 0) text += fmt::format(", {} shared", m.shared_experts);
  if (m.dense_layers != 0) text += fmt::format(", dense in {} of {} layers", m.dense_layers, m.layers);
  return text;
}

std::string answer(const ModelResult& m, const RenderOptions& options, const Ink& ink) {
  std::string out = ink.bold(printable(m.id, options.charset)) + fmt::format("  {}\n", m.architecture);
  out += fmt::format("  {} layers of {}, {}, {}, vocabulary {}\n\n", m.layers, m.hidden_size, describe_attention(m),
                     describe_mlp(m), format_count(static_cast<double>(m.vocab_size)));
  const auto line = [&](std::string_view label, const std::string& value, const std::string& detail) {
    out += fmt::format("  {:<14}{:>12}   {}\n", label, value, detail);
  };
  std::string detail = format_count(static_cast<double>(m.params.total));
  if (m.params.active_per_token != m.params.total)
    detail += fmt::format(", {} active per token", format_params(static_cast<double>(m.params.active_per_token)));
  line("parameters", format_params(static_cast<double>(m.params.total)), detail);
  line("weights", format_bytes(m.weights.bytes),
       m.quantised_weights
           ? fmt::format("{}, {}: multiplied in {}", m.weights.dtype, m.weights.scheme, m.weights.compute_dtype)
           : m.weights.dtype);
  const KvCache& kv = m.kv_cache;
  std::string a_token = fmt::format("{} a token in {}", format_bytes(kv.bytes_per_token), kv.dtype);
  if (kv.tokens_per_sequence > m.longest_window && m.longest_window != 0)
    a_token +=
        fmt::format(", {} beyond the window of {}",
                    kv.bytes_per_token_beyond_window > 0 ? format_bytes(kv.bytes_per_token_beyond_window) : "none",
                    m.longest_window);
  line("KV cache", format_bytes(kv.bytes),
       fmt::format("{}, {} sequence{} of {} tokens", a_token, m.request_shape.batch,
                   m.request_shape.batch == 1 ? "" : "s", kv.tokens_per_sequence));
  line("memory needed", format_bytes(m.memory.total_bytes),
       fmt::format("weights, KV cache and about {} of activations", format_bytes(m.memory.activation_peak_bytes)));
  return out;
}

std::string stage_title(const ModelStageRow& stage) {
  switch (stage.kind) {
    case ModelStage::kVision:
      return fmt::format("vision, {} x {} patches", stage.batch, stage.new_tokens);
    case ModelStage::kPrefill:
      if (stage.context != stage.new_tokens)
        return fmt::format("prefill, {} x {} tokens after {}", stage.batch, stage.new_tokens,
                           stage.context - stage.new_tokens);
      return fmt::format("prefill, {} x {} tokens", stage.batch, stage.new_tokens);
    case ModelStage::kDecode:
      break;
  }
  return fmt::format("decode step, {} x 1 at {}", stage.batch, stage.context);
}

// "at least 1.774 ms by memory (8.51 GB); arithmetic 119 us (122 GFLOP)": both times, each with what it is made of.
std::string stage_bound_text(const StageBoundRow& bound) {
  const auto part = [](const char* name, std::optional<double> ms, const std::string& amount) {
    return ms ? fmt::format("{} {} ({})", name, format_ms(*ms), amount) : std::string();
  };
  const std::string flops = format_si(bound.flops, "FLOP"), bytes = format_bytes(bound.dram_bytes);
  const bool by_memory = bound.limit == StageLimit::kMemory;
  std::string text = "unknown";
  if (bound.least_ms) {
    text = fmt::format("at least {} by {} ({})", format_ms(*bound.least_ms), name_of(bound.limit),
                       by_memory ? bytes : flops);
    const std::string other =
        by_memory ? part("arithmetic", bound.compute_ms, flops) : part("memory", bound.memory_ms, bytes);
    if (!other.empty()) text += "; " + other;
  }
  return text;
}

// What the data sheet allows at most: a bound, and said to be one.
std::string gpu_lines(const ModelResult& r) {
  const ModelOnGpu& fit = *r.gpu;
  std::string out;
  size_t width = 32;
  for (const ModelStageRow& stage : r.stages) width = std::max(width, stage_title(stage).size());
  const auto line = [&](const std::string& label, const std::string& text) {
    out += fmt::format("  {:<{}}  {}\n", label, width, text);
  };
  if (!fit.may_also_mean.empty())
    out += fmt::format("  \"{}\" is taken to be {}; it may also mean {}\n", printable(fit.asked), fit.name,
                       fmt::join(fit.may_also_mean, " or "));
  std::string need = format_bytes(r.memory.total_bytes), has = format_bytes(fit.memory.bytes.value_or(0));
  // Too near to each other to tell in three digits.
  if (need == has) {
    need = format_count(r.memory.total_bytes) + " B";
    has = format_count(*fit.memory.bytes) + " B";
  }
  has += fit.memory.as_driver_counts ? " that programs see" : " by its data sheet";
  if (!fit.memory.bytes)
    line("memory", fmt::format("{} needed; the table does not know what it has", need));
  else if (fit.memory.fits.value_or(false))
    line("memory", fmt::format("fits: {} of {}; CUDA context, graphs and workspaces come on top", need, has));
  else
    line("memory", fmt::format("does not fit: {} needed, it has {}; at least {} of them", need, has,
                               format_count(static_cast<double>(fit.memory.gpus_at_least.value_or(0)))));
  for (size_t i = 0; i < fit.stages.size(); ++i) line(stage_title(r.stages[i]), stage_bound_text(fit.stages[i]));
  // Mostly the same for every stage, and then said once.
  std::vector<std::string> named;
  for (const StageBoundRow& bound : fit.stages)
    for (const std::string& reason : bound.unknown)
      if (std::find(named.begin(), named.end(), reason) == named.end()) {
        named.push_back(reason);
        out += "  not known: " + reason + "\n";
      }
  return out + "  " + fit.basis + "\n  " + fit.traffic + "\n";
}

std::string stage_table(const ModelResult& r, const TextStyle& style) {
  TextTable table({{"stage", kLeft},
                   {"FLOPs"},
                   {"linear", kRight, 0, 6},
                   {"attention", kRight, 0, 5},
                   {"(no mask)", kRight, 0, 7},
                   {"bytes"},
                   {"weights", kRight, 0, 3},
                   {"KV", kRight, 0, 2},
                   {"activations", kRight, 0, 4},
                   {"FLOP/B", kRight, 0, 1}});
  for (const ModelStageRow& stage : r.stages)
    table.add_row({stage_title(stage), format_si(stage.flops.total, ""),
                   format_si(stage.flops.linear + stage.flops.lm_head, ""), format_si(stage.flops.attention_causal, ""),
                   format_si(stage.flops.attention_full, ""), format_bytes(stage.bytes.total),
                   format_bytes(stage.bytes.weights), format_bytes(stage.bytes.kv_read + stage.bytes.kv_write),
                   format_bytes(stage.bytes.activations), fmt::format("{:.4g}", stage.intensity)});
  return table.render("  ", style);
}

// "0-31", "0,2..22", "28 layers" or "-"
std::string layer_span(const std::vector<int64_t>& layers) {
  if (layers.front() < 0) return "-";
  if (layers.size() == 1) return fmt::format("{}", layers[0]);
  const int64_t step = layers[1] - layers[0];
  for (size_t i = 1; i < layers.size(); ++i)
    if (layers[i] - layers[i - 1] != step) return fmt::format("{} layers", layers.size());
  if (step == 1) return fmt::format("{}-{}", layers.front(), layers.back());
  return fmt::format("{},{}..{}", layers[0], layers[1], layers.back());
}

std::string operator_table(const ModelResult& r, const ModelStageRow& stage, const TextStyle& style) {
  TextTable table({{"operator", kLeft},
                   {"layers", kLeft, 0, 3},
                   {"shape", kLeft, 64, 4},
                   {"FLOPs"},
                   {"share", kRight, 0, 2},
                   {"bytes"},
                   {"share", kRight, 0, 2},
                   {"FLOP/B", kRight, 0, 1}});
  const double flops = stage.flops.total, bytes = stage.bytes.total;
  for (const ModelOperatorGroup& group : group_operators(r.operators, stage.kind))
    table.add_row({group.first->name, layer_span(group.layers), group.first->shape,
                   group.flops == 0 ? "" : format_si(group.flops, ""),
                   group.flops == 0 || flops == 0 ? "" : format_percent(group.flops / flops), format_bytes(group.bytes),
                   bytes == 0 ? "" : format_percent(group.bytes / bytes),
                   group.flops == 0 ? "" : fmt::format("{:.4g}", group.flops / group.bytes)});
  return table.render("  ", style);
}

}  // namespace

std::vector<ModelOperatorGroup> group_operators(const std::vector<ModelOperatorRow>& operators, ModelStage stage) {
  std::vector<ModelOperatorGroup> groups;
  std::unordered_map<std::string, size_t> index;
  for (const ModelOperatorRow& op : operators) {
    if (op.stage != stage) continue;
    const auto [found, added] = index.try_emplace(op.name + '\n' + op.shape, groups.size());
    if (added) groups.push_back({&op, {}, 0, 0});
    ModelOperatorGroup& group = groups[found->second];
    group.layers.push_back(op.layer.value_or(-1));
    group.flops += op.flops;
    group.bytes += op.bytes;
  }
  return groups;
}

std::string render_text(const ModelResult& result, const RenderOptions& options) {
  const Ink ink(options.color);
  std::string out = answer(result, options, ink);
  if (result.gpu) out += "\n" + ink.bold("on " + result.gpu->name) + "  (data sheet)\n" + gpu_lines(result);
  out += "\n" + stage_table(result, options);
  for (const ModelStageRow& stage : result.stages)
    out += fmt::format("\n{}\n", ink.bold(stage_title(stage))) + operator_table(result, stage, options);
  if (!result.notes.empty()) out += "\n" + ink.bold("notes") + "\n";
  for (const std::string& note : result.notes) out += "  - " + printable(note) + "\n";
  return finish_page(out, options);
}

}  // namespace llmprof
