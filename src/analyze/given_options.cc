#include "analyze/given_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analyze/model_formula.h"
#include "base/text_table.h"
#include "model/catalogue.h"
#include "model/parameters.h"

namespace llmprof {
namespace {

// Weights counted from shapes over those of the model: helper products (rotary tables), adapters and a padded
// vocabulary stay below it, other models of the same width do not (Mistral-7B for Llama-3.1-8B: 5 %).
constexpr double kSameWeights = 0.02;
constexpr double kAllCovered = 0.999;

bool of_model(StageKind kind) { return kind == StageKind::kPrefill || kind == StageKind::kDecode; }

std::string count_text(int64_t count) { return format_count(static_cast<double>(count)); }

// ---- --gpu

void check_gpu(const Context& context, Diagnostics& diagnostics) {
  const DeviceReport* device = context.device;
  if (context.options.gpu.empty() || device == nullptr || !device->sku || device->name == *device->sku) return;
  if (!device->cpu && may_call_itself(*device->sku, device->name)) return;
  diagnostics.add(
      DiagnosticId::kOtherGpu,
      fmt::format(
          "Recorded on {}, compared with {}: shares of peaks, roofs and gains compare the recorded times with the "
          "peaks of that part, and may exceed 100 %. How long anything would take on it is not said.",
          device->name, *device->sku));
}

// ---- --model

// Sides of the products that the model's steps consist of.
struct Products {
  int64_t count = 0, widest_n = 0, widest_k = 0;
  int64_t deepest_k = 0;  // of those with as many outputs as the model's hidden size
  bool has_side = false;  // one of them has the model's hidden size
  bool has_down = false;  // one of them is its down projection, which no runtime merges with another
};
Products products_of(const Context& context, const ModelConfig& config) {
  Products out;
  const Works& works = context.trace.works;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    const StageGroup& group = context.groups.stages[key.stage];
    if (group.unattributed || !of_model(group.kind) || key.work == kNoRow) continue;
    if (works.kind[key.work] != WorkKind::kGemm || works.batch[key.work] != 1) continue;
    out.count += context.groups.kernels[k].calls;
    const int64_t outputs = works.n[key.work], inputs = works.k[key.work];
    out.has_side |= outputs == config.hidden_size || inputs == config.hidden_size;
    out.has_down |= outputs == config.hidden_size && inputs == config.intermediate_size;
    if (outputs == config.hidden_size) out.deepest_k = std::max(out.deepest_k, inputs);
    if (outputs <= out.widest_n) continue;
    out.widest_n = outputs;
    out.widest_k = inputs;
  }
  return out;
}

// A model that is split over several devices shows each of them a part of its weights.
bool is_split(const Context& context) {
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k)
    if (context.groups.kernel_keys.key(k).category == Category::kCommunication) return true;
  return context.trace.windows.size() > 1;
}

// Why the weights that the recorded steps multiply with are not the model's; empty if nothing says so.
std::string weights_differ(const Context& context, const Report& report, const ModelConfig& config) {
  const Products products = products_of(context, config);
  if (products.count > 0 && !products.has_side)
    return fmt::format(
        "no product of its prefill and decode steps has a side of {}, the model's hidden size; the widest "
        "is {} x {}",
        count_text(config.hidden_size), count_text(products.widest_n), count_text(products.widest_k));
  if (config.moe || config.quantization || is_split(context)) return {};
  const StepWeights step = weights_of_step(context, report);
  if (step.elements <= 0 || step.stage->gemm_coverage_frac.value_or(0) < kAllCovered) return {};
  const Params params = count_params(config);
  const double expected = static_cast<double>(params.linear_per_token + params.lm_head);
  // Models of one width come to nearly as many weights by other shapes (Qwen3-8B and Llama-3.1-8B: 1 %).
  if (config.intermediate_size > 0 && !products.has_down && products.deepest_k > 0)
    return fmt::format(
        "no product of its steps is {} x {}, the model's down projection; the deepest of {} outputs is "
        "{} x {}",
        count_text(config.hidden_size), count_text(config.intermediate_size), count_text(config.hidden_size),
        count_text(config.hidden_size), count_text(products.deepest_k));
  if (std::fabs(step.elements / expected - 1) <= kSameWeights) return {};
  return fmt::format("the products of one {} step multiply with {} weights, the model has {} in its linear layers",
                     step.stage->name, format_count(step.elements), format_count(expected));
}

// Why the model's weights cannot have been read in the time that was recorded: what does not fit into the last-level
// cache comes from memory in every step. Empty if they can.
std::string too_large_to_read(const Context& context, const Report& report) {
  const DeviceReport* device = context.device;
  if (device == nullptr || !device->bytes_per_s || !device->sku) return {};
  if (!device->cache_bytes) return {};
  for (const StageTiming& row : report.stages) {
    if (row.flops_provenance != Provenance::kFormula || !row.weight_bytes || row.count == 0 || row.wall_ms.ns == 0)
      continue;
    const double count = static_cast<double>(row.count), step_ms = row.wall_ms.ms() / count;
    const double bytes = *row.weight_bytes / count - *device->cache_bytes;
    const double least_ms = bytes / *device->bytes_per_s * 1e3;
    if (least_ms > step_ms)
      return fmt::format("reading its weights once takes {} at {} GB/s of the data sheet, a {} step took {}",
                         format_ms(least_ms), format_count(*device->bytes_per_s / 1e9), row.name, format_ms(step_ms));
  }
  return {};
}

void check_model(const Context& context, const Report& report, bool other_gpu, Diagnostics& diagnostics) {
  if (context.options.model.empty() || !report.model) return;
  const Result<ModelConfig> config = load_model(context.options.model);
  if (!config) return;
  std::string why = weights_differ(context, report, *config);
  if (why.empty() && !other_gpu) why = too_large_to_read(context, report);
  if (why.empty()) return;
  std::string text = fmt::format("{}: {}", config->id, why);
  for (const CoverageRecord& row : report.coverage) {
    if (!row.frac || !row.name.starts_with(kCrossCheck)) continue;
    text += fmt::format("; FLOPs counted in {} are {:.2f} times those of its formula",
                        row.name.substr(kCrossCheck.size()), *row.frac);
    break;
  }
  if (const std::string looks = recognised_model(context, report); !looks.empty() && looks != config->id)
    text += fmt::format("; by its shapes the recording is {}", looks);
  diagnostics.add(DiagnosticId::kModelDoesNotFit, text + ".");
}

// ---- --batch and --context

// What the steps of prompts and tokens say of themselves.
struct Counts {
  int64_t steps = 0, known = 0, low = INT64_MAX, high = 0;
  void add(int64_t value) {
    ++steps;
    if (value <= 0) return;
    ++known;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // None of the known ones need be another: what is given for all may be any of a range.
  bool reach(int64_t value) const { return known > 0 && low <= value && value <= high; }
  bool all_are(int64_t value) const { return known == steps && low == value && high == value; }
  std::string text() const {
    return low == high ? count_text(low) : fmt::format("{} to {}", count_text(low), count_text(high));
  }
};

std::string stage_names(const Report& report) {
  std::string names;
  for (const StageTiming& row : report.stages)
    if (row.name != kUnattributed) names += (names.empty() ? "" : ", ") + row.name;
  return names.empty() ? "none" : names;
}

// Whether FLOPs of a stage of that kind follow from the model, and whether they are compared with it.
struct Use {
  bool formula = false, cross_check = false;
};
Use use_of_formula(const Report& report, bool decode_only) {
  Use use;
  for (const StageTiming& row : report.stages) {
    if (row.kind != StageKind::kDecode && (decode_only || row.kind != StageKind::kPrefill)) continue;
    use.formula |= row.flops_provenance == Provenance::kFormula;
    for (const CoverageRecord& check : report.coverage)
      use.cross_check |= check.name == std::string(kCrossCheck) + row.name;
  }
  return use;
}

// `wins`: what the user says goes before what the recording tells.
void check_count(std::string_view option, int64_t given, const Counts& counts, bool wins, bool decode_only,
                 std::string_view what, const Report& report, Diagnostics& diagnostics) {
  const auto say = [&](const std::string& text) {
    diagnostics.add(DiagnosticId::kOptionDoubtful, fmt::format("{} {}: {}.", option, given, text));
  };
  if (!report.model) return say("it serves FLOPs by formula, and no model is known here (--model)");
  if (counts.steps == 0)
    return say(fmt::format("there is no {} here; stages are {}", decode_only ? "decode step" : "prefill or decode step",
                           stage_names(report)));
  if (counts.all_are(given) || (decode_only && counts.reach(given))) return;
  const Use use = use_of_formula(report, decode_only);
  const std::string tells = fmt::format("the recording has {} {}", counts.text(), what);
  if (!use.formula && !use.cross_check)
    return say("FLOPs by formula need more than it: `cannot tell` at the foot says what");
  if (counts.known == counts.steps && !wins) return say(tells + ", and that is used");
  if (counts.known > 0 && use.formula) return say(fmt::format("used, although {}", tells));
  if (use.formula) return;
  say(fmt::format("FLOPs are counted from recorded shapes, so it changes only their comparison with the formula{}",
                  counts.known > 0 ? "; " + tells : std::string()));
}

void check_counts(const Context& context, const Report& report, Diagnostics& diagnostics) {
  Counts sequences, contexts;
  const Steps& steps = context.trace.steps;
  for (const StageGroup& group : context.groups.stages) {
    if (group.unattributed || !of_model(group.kind)) continue;
    for (const StepId step : group.steps) {
      sequences.add(steps.sequences[step]);
      if (group.kind == StageKind::kDecode) contexts.add(steps.context[step]);
    }
  }
  const bool counted = !context.trace.library_calls.empty();  // contexts that are counted give way to the user's
  if (context.options.batch > 0)
    check_count("--batch", context.options.batch, sequences, true, false, "sequence(s) a step", report, diagnostics);
  if (context.options.context > 0)
    check_count("--context", context.options.context, contexts, counted, true, "tokens of context a decode step",
                report, diagnostics);
}

}  // namespace

void check_given_options(const Context& context, const Report& report, Diagnostics& diagnostics) {
  check_gpu(context, diagnostics);
  check_model(context, report, diagnostics.count(DiagnosticId::kOtherGpu) > 0, diagnostics);
  check_counts(context, report, diagnostics);
}

}  // namespace llmprof
