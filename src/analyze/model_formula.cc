#include "analyze/model_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "analyze/processor.h"
#include "analyze/telemetry.h"
#include "base/text_table.h"
#include "derive/recorded_spans.h"
#include "hardware/hardware.h"
#include "model/catalogue.h"
#include "model/cost.h"

namespace llmprof {
namespace {

// Weights counted from shapes and those of a model agree to rounding; helper GEMMs (rotary tables) stay below this.
constexpr double kMatchTolerance = 0.002;
constexpr size_t kDistinctShapes = 256;

}  // namespace

StepWeights weights_of_step(const Context& context, const Report& report) {
  StepWeights best;
  const Works& works = context.trace.works;
  for (const StageKind kind : {StageKind::kDecode, StageKind::kPrefill}) {
    for (const StageTiming& row : report.stages) {
      if (row.kind != kind || row.count == 0) continue;
      // The shapes of library calls cover every GEMM, though not attention.
      const bool gemms = is_live_recording(context.trace) && row.gemm_coverage_frac.value_or(0) >= 0.99;
      if (row.flop_coverage_frac.value_or(0) < 0.95 && !gemms) continue;
      StepWeights sum;
      sum.stage = &row;
      for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
        const KernelKey& key = context.groups.kernel_keys.key(k);
        const StageGroup& group = context.groups.stages[key.stage];
        if (group.unattributed || key.work == kNoRow || works.kind[key.work] != WorkKind::kGemm) continue;
        if (group.device != row.device || stage_name(context.trace, context.groups, key.stage) != row.name) continue;
        if (works.batch[key.work] != 1) continue;
        const double elements = static_cast<double>(works.n[key.work]) * static_cast<double>(works.k[key.work]);
        sum.elements +=
            elements * static_cast<double>(context.groups.kernels[k].calls) / static_cast<double>(row.count);
        if (works.n[key.work] > sum.widest_n) {
          sum.widest_n = works.n[key.work];
          sum.widest_k = works.k[key.work];
        }
      }
      if (sum.elements > best.elements) best = sum;
    }
    if (best.elements > 0) return best;
  }
  return best;
}

namespace {

// Dense models whose matrices and vocabulary fit what the GEMMs of a step multiply with.
std::optional<ModelConfig> recognise(const StepWeights& step, ModelSummary& model) {
  std::optional<ModelConfig> found;
  std::vector<std::string> others;
  for (const ModelRow& row : model_rows()) {
    Result<ModelConfig> config = find_model(row.id);
    if (!config || config->moe || config->vocab_size != step.widest_n || config->hidden_size != step.widest_k) continue;
    const Params params = count_params(*config);
    const double expected = static_cast<double>(params.linear_per_token + params.lm_head);
    if (std::fabs(step.elements / expected - 1) > kMatchTolerance) continue;
    if (found) {
      others.push_back(row.id);
      continue;
    }
    found = std::move(*config);
    model.evidence = fmt::format(
        "the GEMMs of one {} step multiply with {} weights, the model has {} in its linear layers; the widest one is "
        "{} x "
        "{}, its vocabulary and hidden size",
        step.stage->name, format_count(step.elements), format_count(expected), step.widest_n, step.widest_k);
  }
  for (const std::string& other : others) model.evidence += "; " + other + " fits as well";
  return found;
}

}  // namespace

std::string recognised_model(const Context& context, const Report& report) {
  const StepWeights step = weights_of_step(context, report);
  ModelSummary model;
  if (step.elements <= 0) return {};
  const std::optional<ModelConfig> found = recognise(step, model);
  return found ? found->id : std::string();
}

namespace {

struct StageWork {
  double flops = 0, flops_full = 0, weights = 0, kv = 0, bytes = 0;
  std::map<std::string, double> by_format;  // flops, by what the matrix units run them in
  void add(const StageCost& cost, const RequestShape& load, double times) {
    for (const auto& [format, count] : flops_by_format(cost, load)) by_format[format] += count * times;
    flops += cost.flops.total() * times;
    flops_full += (cost.flops.linear + cost.flops.attention_full + cost.flops.lm_head) * times;
    weights += cost.bytes.weights * times;
    kv += cost.bytes.kv_read * times;
    bytes += cost.bytes.total() * times;
  }
};

// Cost of all instances of a stage; empty if a count is unknown.
std::optional<StageWork> stage_work(const Context& context, const ModelConfig& config, const StageGroup& group) {
  const Steps& steps = context.trace.steps;
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> shapes;  // batch, new tokens per sequence, context
  for (const Row s : group.steps) {
    const int64_t batch = context.options.batch > 0 ? context.options.batch : steps.sequences[s];
    // A context that was counted from prompt and steps gives way to what the user says.
    const bool counted = !context.trace.library_calls.empty();
    // It is the context of a decode step: what a prompt attends to does not follow from it.
    const bool given = group.kind == StageKind::kDecode && context.options.context > 0;
    const int64_t seen = given && (steps.context[s] < 0 || counted) ? context.options.context : steps.context[s];
    if (batch <= 0) return std::nullopt;
    int64_t fresh = 1;
    if (group.kind == StageKind::kPrefill) {
      if (steps.new_tokens[s] <= 0) return std::nullopt;
      fresh = std::max<int64_t>(1, steps.new_tokens[s] / batch);
    } else if (seen <= 0) {
      return std::nullopt;
    }
    ++shapes[{batch, fresh, std::max(seen, fresh)}];
    if (shapes.size() > kDistinctShapes) return std::nullopt;
  }
  StageWork work;
  for (const auto& [key, times] : shapes) {
    RequestShape load;
    load.batch = std::get<0>(key);
    load.prompt = std::get<1>(key);
    load.context = std::get<2>(key);
    load.images = 0;
    load.weights = config.dtype;
    if (config.quantization && config.quantization->format) {
      load.weights = *config.quantization->format;
      load.inputs = config.quantization->activations;
    }
    if (group.kind == StageKind::kPrefill) load.prefix = load.context - load.prompt;
    if (load.prefix < 0) return std::nullopt;
    if (!check_shape(config, load)) return std::nullopt;
    work.add(group.kind == StageKind::kPrefill ? prefill_cost(config, load) : decode_cost(config, load), load,
             static_cast<double>(times));
  }
  return work;
}

// Of a number format: "fp8-block" is multiplied as fp8.
DType dtype_of_format(const std::string& format) {
  const std::optional<PeakType> type = parse_peak_type(format);
  for (size_t d = 0; type && d < static_cast<size_t>(DType::kCount); ++d)
    if (dtype_name(static_cast<DType>(d)) == name_of(*type)) return static_cast<DType>(d);
  return DType::kUnknown;
}

// Time of the arithmetic at the peaks and at the roofs of the formats it runs in; empty where one of them is unknown.
ComputeTimes compute_times(const DeviceReport& device, const StageWork& work) {
  ComputeTimes out{0.0, 0.0};
  for (const auto& [format, flops] : work.by_format) {
    const DType dtype = dtype_of_format(format);
    const OptDouble peak = device.peak_of(dtype), roof = device.roof_of(dtype);
    if (!peak || !roof) return {};
    *out.at_peak_ns += flops / *peak * 1e9;
    *out.at_roof_ns += flops / *roof * 1e9;
  }
  return out;
}

// Rows that the lm_head was run on in all instances of a stage.
int64_t lm_head_rows(const Context& context, const ModelConfig& config, uint32_t stage) {
  const Works& works = context.trace.works;
  int64_t rows = 0;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    if (key.stage != stage || key.work == kNoRow || works.kind[key.work] != WorkKind::kGemm) continue;
    if (works.n[key.work] != config.vocab_size || works.k[key.work] != config.hidden_size) continue;
    rows += works.m[key.work] * context.groups.kernels[k].calls;
  }
  return rows;
}

void fill_by_formula(const Context& context, const StageWork& work, StageTiming& row) {
  row.flops = work.flops;
  row.flops_full_attention = work.flops_full;
  row.flops_provenance = Provenance::kFormula;
  row.weight_bytes = work.weights;
  row.kv_bytes = work.kv;
  row.dram_bytes_model = work.bytes;
  row.dtype.reset();
  double most = 0;
  OptDouble tensor_rate;
  for (const auto& [format, flops] : work.by_format) {
    const DType dtype = dtype_of_format(format);
    if (context.device != nullptr && context.device->compute_capability)
      if (const OptDouble rate = tensor_flops_per_cycle(*context.device->compute_capability, dtype))
        tensor_rate = std::max(tensor_rate.value_or(0), *rate);
    if (flops <= most) continue;
    most = flops;
    row.dtype = dtype != DType::kUnknown ? OptText(dtype_name(dtype)) : std::nullopt;
  }
  const ComputeTimes compute = context.device != nullptr ? compute_times(*context.device, work) : ComputeTimes{};
  if (!row.flops_measured) fill_measured_flops(tensor_rate, row);
  fill_stage_rates(context.device, compute, row);
}

// Stages that have no FLOPs in the end: why, and what to do.
void explain_missing_flops(const Context& context, const Report& report, std::vector<CannotTell>& cannot_tell) {
  const bool live = is_live_recording(context.trace), cpu = on_cpu(context);
  // What the formula lacks of what can be given.
  std::string options;
  if (!report.model) options += ", --model";
  if (context.options.batch <= 0) options += ", --batch";
  if (context.options.context <= 0) options += ", --context";
  const std::string pass =
      options.empty() ? "check --model, --batch and --context"
                      : fmt::format("pass {} (which is not recorded) to get FLOPs by formula", options.substr(2));
  for (const StageTiming& row : report.stages) {
    if (row.flops || row.count == 0 || row.kernels == 0 || report.mark_of(row).is_warm_up()) continue;
    std::string why = "no kernel of it was recognised as GEMM or attention";
    if (row.flop_coverage_frac)
      why = fmt::format("only {} of its GEMM and attention time has recorded shapes{}",
                        format_percent(*row.flop_coverage_frac),
                        row.launches * 4 < row.kernels && !live ? " (replay of a CUDA graph records none)" : "");
    cannot_tell.push_back(
        {fmt::format("How many FLOPs does {} do, and what are its MFU and MBU?", row.name), std::move(why),
         cpu    ? std::string("operators.csv lists what it does; only matrix products and attention have formulas here")
         : live ? pass
                : "record with record_shapes=True; for CUDA graphs " + pass});
  }
}

}  // namespace

void fill_stage_rates(const DeviceReport* device, const ComputeTimes& compute, StageTiming& row) {
  // What was counted was counted in recorded time; a formula holds for all of it.
  const bool counted = row.flops_provenance == Provenance::kCounted;
  const int64_t recorded_ns = row.wall_ms.ns - row.not_recorded_ms.ns;
  const double recorded_over_own =
      row.own_ms && *row.own_ms > 0 ? static_cast<double>(recorded_ns) / 1e6 / *row.own_ms : 1;
  const double wall_ns = static_cast<double>(counted ? recorded_ns : row.wall_ms.ns) / recorded_over_own;
  if (!row.flops || wall_ns <= 0) return;
  row.tflops = *row.flops / wall_ns / 1e3;
  if (row.dram_bytes_measured && row.dram_bytes_model && *row.dram_bytes_model > 0)
    row.dram_measured_over_model = *row.dram_bytes_measured / *row.dram_bytes_model;
  if (row.flops_measured && *row.flops > 0) row.flops_measured_over_flops = *row.flops_measured / *row.flops;
  if (row.dram_bytes_model && *row.dram_bytes_model > 0) row.intensity = *row.flops / *row.dram_bytes_model;
  if (device == nullptr) return;
  if (compute.at_peak_ns && *compute.at_peak_ns > 0) {
    row.mfu = *compute.at_peak_ns / wall_ns;
    row.mfu_at_least.reset();
    OptDouble scale = device->clock_scale;
    if (row.sm_clock_mhz && device->peak_clock_mhz) scale = *row.sm_clock_mhz / *device->peak_clock_mhz;
    if (scale && *scale > 0) row.mfu_at_clock = *row.mfu / *scale;
  }
  if (!row.weight_bytes) return;
  // What a step reads again and again in the last-level cache uses no bandwidth of memory.
  const double step_bytes =
      (*row.weight_bytes + row.kv_bytes.value_or(0)) / static_cast<double>(std::max<int64_t>(1, row.count));
  const bool in_cache = device->cache_bytes && row.count > 0 && step_bytes <= *device->cache_bytes;
  if (device->bytes_per_s && !in_cache)
    row.mbu = (*row.weight_bytes + row.kv_bytes.value_or(0)) / *device->bytes_per_s * 1e9 / wall_ns;
  if (row.mbu) row.mbu_at_least.reset();
  const OptDouble bandwidth = device->roof_bytes_per_s();
  if (bandwidth && compute.at_roof_ns && *compute.at_roof_ns > 0 && row.intensity) {
    const double peak = *row.flops / (*compute.at_roof_ns / 1e9);
    row.roof_tflops = (in_cache ? peak : std::min(peak, *row.intensity * *bandwidth)) / 1e12;
    row.of_roof_frac = *row.tflops / *row.roof_tflops;
  }
}

Status check_model_options(const AnalyzeOptions& options) {
  if (options.batch < 0 || options.context < 0)
    return fail(fmt::format("--batch and --context must be positive, got {} and {}", options.batch, options.context),
                {}, "leave them out to take them from the recording", ExitCode::kUsage);
  if (options.model.empty()) return {};
  const Result<ModelConfig> config = load_model(options.model);
  if (!config) return tl::unexpected<Error>(config.error());
  return {};
}

void analyze_model_formula(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  ModelSummary model;
  std::optional<ModelConfig> config;
  if (!context.options.model.empty()) {
    Result<ModelConfig> loaded = load_model(context.options.model);  // was loaded once by check_model_options
    if (!loaded) return;
    config = std::move(*loaded);
    model.origin = ModelOrigin::kGiven;
    model.evidence = "named by the user";
  } else {
    const StepWeights step = weights_of_step(context, report);
    if (step.elements > 0) config = recognise(step, model);
    model.origin = ModelOrigin::kRecognised;
  }
  if (!config) {
    cannot_tell.push_back({"Which model is it?",
                           "no shipped model has the weights that the recorded GEMMs multiply with, or no shapes are "
                           "recorded",
                           "pass --model with a name of `llmprof list models` or a config.json"});
    explain_missing_flops(context, report, cannot_tell);
    explain_measured_flops(report, cannot_tell);
    return;
  }
  const Params params = count_params(*config);
  model.id = config->id;
  model.params = static_cast<double>(params.total);
  model.dtype = config->dtype.name;
  const NumberFormat wide = config->dtype;
  const NumberFormat weights =
      config->quantization && config->quantization->format ? *config->quantization->format : wide;
  model.weight_bytes = weight_bytes(*config, weights, wide.quantised() ? bf16_format() : wide);
  model.kv_bytes_per_token = kv_bytes_per_token(*config, bf16_format());
  report.model = model;
  size_t r = 0;
  for (uint32_t s = 0; s < context.groups.stages.size() && r < report.stages.size(); ++s) {
    const StageGroup& group = context.groups.stages[s];
    StageTiming& row = report.stages[r];
    if (row.device != group.device || row.name != stage_name(context.trace, context.groups, s)) continue;
    ++r;
    if (group.unattributed || (group.kind != StageKind::kPrefill && group.kind != StageKind::kDecode)) continue;
    const std::optional<StageWork> work = stage_work(context, *config, group);
    if (!work) continue;
    if (row.flops) {
      const double ratio = *row.flops / work->flops;
      std::string text = "FLOPs counted from shapes over those of " + model.id + " by formula";
      if (const int64_t rows = lm_head_rows(context, *config, s); rows > row.sequences.value_or(1) * row.count)
        text += fmt::format("; the lm_head ran on {} rows, although only the last of each sequence is needed", rows);
      report.coverage.push_back({std::string(kCrossCheck) + row.name, ratio, std::move(text)});
    } else {
      fill_by_formula(context, *work, row);
    }
  }
  explain_missing_flops(context, report, cannot_tell);
  explain_measured_flops(report, cannot_tell);
}

}  // namespace llmprof
