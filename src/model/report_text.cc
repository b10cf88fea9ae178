// `llmprof model` for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "base/text_table.h"
#include "model/model_report.h"

namespace llmprof {
namespace {

using Align = TextTable::Align;
constexpr Align kRight = Align::kRight;

std::string bold(std::string_view text, const TextStyle& style) {
  return style.color ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

// 8030261248 -> "8.03 B"
std::string format_params(double count) {
  if (count >= 1e12) return fmt::format("{:.2f} T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  return format_count(count);
}

std::string describe_attention(const ModelConfig& c) {
  std::string text;
  if (c.mla)
    text = fmt::format("{} heads, latent attention of rank {}", c.num_heads, c.mla->kv_lora_rank);
  else if (c.num_kv_heads == c.num_heads)
    text = fmt::format("{} heads of {}", c.num_heads, c.head_dim);
  else
    text = fmt::format("{} heads of {} on {} KV heads", c.num_heads, c.head_dim, c.num_kv_heads);
  const int64_t windowed = c.windowed_layers();
  if (windowed == 0) return text;
  return text + fmt::format(", window {} in {} of {} layers", c.longest_window(), windowed, c.num_layers());
}

std::string describe_mlp(const ModelConfig& c) {
  if (!c.moe) return fmt::format("MLP {}{}", c.intermediate_size, c.gated_mlp ? " (gated)" : "");
  std::string text =
      fmt::format("{} experts of {}, {} per token", c.moe->experts, c.moe->intermediate_size, c.moe->top_k);
  if (c.moe->shared_intermediate_size != 0) text += fmt::format(", {} shared", c.moe->shared_experts);
  const int64_t dense = c.num_layers() - c.moe_layers();
  if (dense != 0) text += fmt::format(", dense in {} of {} layers", dense, c.num_layers());
  return text;
}

std::string answer(const ModelReport& r, const TextStyle& style) {
  const ModelConfig& c = r.config;
  const Workload& w = r.workload;
  std::string out = bold(printable(c.id, style.charset), style) + fmt::format("  {}\n", c.architecture);
  out += fmt::format("  {} layers of {}, {}, {}, vocabulary {}\n\n", c.num_layers(), c.hidden_size,
                     describe_attention(c), describe_mlp(c), format_count(static_cast<double>(c.vocab_size)));
  const auto line = [&](std::string_view label, const std::string& value, const std::string& detail) {
    out += fmt::format("  {:<14}{:>12}   {}\n", label, value, detail);
  };
  std::string detail = format_count(static_cast<double>(r.params.total));
  if (r.params.active_per_token != r.params.total)
    detail += fmt::format(", {} active per token", format_params(static_cast<double>(r.params.active_per_token)));
  line("parameters", format_params(static_cast<double>(r.params.total)), detail);
  line("weights", format_bytes(r.memory.weights_bytes),
       w.weights.quantised() ? fmt::format("{}, {}: multiplied in {}", w.weights.name, w.scheme(), w.compute_format())
                             : w.weights.name);
  std::string a_token = fmt::format("{} a token in {}", format_bytes(r.kv_bytes_per_token), w.kv.name);
  if (w.cache_tokens() > c.longest_window() && c.longest_window() != 0)
    a_token +=
        fmt::format(", {} beyond the window of {}",
                    r.kv_bytes_per_token_beyond_window > 0 ? format_bytes(r.kv_bytes_per_token_beyond_window) : "none",
                    c.longest_window());
  line("KV cache", format_bytes(r.memory.kv_bytes),
       fmt::format("{}, {} sequence{} of {} tokens", a_token, w.batch, w.batch == 1 ? "" : "s", w.cache_tokens()));
  line("memory needed", format_bytes(r.memory.total_bytes()),
       fmt::format("weights, KV cache and about {} of activations", format_bytes(r.memory.activation_peak_bytes)));
  return out;
}

std::string stage_title(const StageCost& stage) {
  switch (stage.stage) {
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
std::string bound_text(const StageBound& bound) {
  const auto part = [](const char* name, std::optional<double> ms, const std::string& amount) {
    return ms ? fmt::format("{} {} ({})", name, format_ms(*ms), amount) : std::string();
  };
  const std::string flops = format_si(bound.flops, "FLOP"), bytes = format_bytes(bound.dram_bytes);
  const bool by_memory = bound.limit() == "memory";
  std::string text = "unknown";
  if (bound.least_ms()) {
    text =
        fmt::format("at least {} by {} ({})", format_ms(*bound.least_ms()), bound.limit(), by_memory ? bytes : flops);
    const std::string other =
        by_memory ? part("arithmetic", bound.compute_ms, flops) : part("memory", bound.memory_ms, bytes);
    if (!other.empty()) text += "; " + other;
  }
  for (const std::string& reason : bound.unknown) text += "; not known: " + reason;
  return text;
}

// What the data sheet allows at most: a bound, and said to be one.
std::string gpu_lines(const ModelReport& r) {
  const GpuFit& fit = *r.on_gpu;
  std::string out;
  size_t width = 32;
  for (const StageCost& stage : r.stages) width = std::max(width, stage_title(stage).size());
  const auto line = [&](const std::string& label, const std::string& text) {
    out += fmt::format("  {:<{}}  {}\n", label, width, text);
  };
  if (!fit.others.empty())
    out += fmt::format("  \"{}\" is taken to be {}; it may also mean {}\n", printable(fit.asked), fit.gpu,
                       fmt::join(fit.others, " or "));
  std::string need = format_bytes(r.memory.total_bytes()), has = format_bytes(fit.memory_bytes.value_or(0));
  // Too near to each other to tell in three digits.
  if (need == has) {
    need = format_count(r.memory.total_bytes()) + " B";
    has = format_count(*fit.memory_bytes) + " B";
  }
  if (!fit.memory_bytes)
    line("memory", fmt::format("{} needed; the table does not know what it has", need));
  else if (fit.gpus_at_least == 1)
    line("memory", fmt::format("fits: {} of {}; CUDA context, graphs and workspaces come on top", need, has));
  else
    line("memory", fmt::format("does not fit: {} needed, it has {}; at least {} of them", need, has,
                               format_count(static_cast<double>(fit.gpus_at_least))));
  for (size_t i = 0; i < fit.stages.size(); ++i) line(stage_title(r.stages[i]), bound_text(fit.stages[i]));
  return out + "  " + fit.basis + "\n  " + fit.traffic + "\n";
}

std::string stage_table(const ModelReport& r, const TextStyle& style) {
  TextTable table({{"stage", Align::kLeft},
                   {"FLOPs"},
                   {"linear", kRight, 0, 6},
                   {"attention", kRight, 0, 5},
                   {"(no mask)", kRight, 0, 7},
                   {"bytes"},
                   {"weights", kRight, 0, 3},
                   {"KV", kRight, 0, 2},
                   {"activations", kRight, 0, 4},
                   {"FLOP/B", kRight, 0, 1}});
  for (const StageCost& stage : r.stages)
    table.add_row({stage_title(stage), format_si(stage.flops.total(), ""),
                   format_si(stage.flops.linear + stage.flops.lm_head, ""), format_si(stage.flops.attention_causal, ""),
                   format_si(stage.flops.attention_full, ""), format_bytes(stage.bytes.total()),
                   format_bytes(stage.bytes.weights), format_bytes(stage.bytes.kv_read + stage.bytes.kv_write),
                   format_bytes(stage.bytes.activations), fmt::format("{:.4g}", stage.intensity())});
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

std::string operator_table(const StageCost& stage, const TextStyle& style) {
  TextTable table({{"operator", Align::kLeft},
                   {"layers", Align::kLeft, 0, 3},
                   {"shape", Align::kLeft, 64, 4},
                   {"FLOPs"},
                   {"share", kRight, 0, 2},
                   {"bytes"},
                   {"share", kRight, 0, 2},
                   {"FLOP/B", kRight, 0, 1}});
  const double flops = stage.flops.total(), bytes = stage.bytes.total();
  for (const OperatorGroup& group : group_operators(stage))
    table.add_row({group.first->name, layer_span(group.layers), group.first->shape,
                   group.flops == 0 ? "" : format_si(group.flops, ""),
                   group.flops == 0 || flops == 0 ? "" : format_percent(group.flops / flops), format_bytes(group.bytes),
                   bytes == 0 ? "" : format_percent(group.bytes / bytes),
                   group.flops == 0 ? "" : fmt::format("{:.4g}", group.flops / group.bytes)});
  return table.render("  ", style);
}

}  // namespace

std::string to_text(const ModelReport& report, const TextStyle& style) {
  std::string out = answer(report, style);
  if (report.on_gpu) out += "\n" + bold("on " + report.on_gpu->gpu, style) + "  (data sheet)\n" + gpu_lines(report);
  out += "\n" + stage_table(report, style);
  for (const StageCost& stage : report.stages)
    out += fmt::format("\n{}\n", bold(stage_title(stage), style)) + operator_table(stage, style);
  if (!report.notes.empty()) out += "\n" + bold("notes", style) + "\n";
  for (const std::string& note : report.notes) out += "  - " + printable(note) + "\n";
  return out;
}

}  // namespace llmprof
