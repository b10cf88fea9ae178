#include "analyze/kernel_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>

namespace llmprof {
namespace {

// ---- metrics -------------------------------------------------------------------------------------------------------

enum class Metric : uint8_t {
  kRead,
  kWrite,
  kTraffic,
  kReadRate,
  kWriteRate,
  kTrafficRate,
  kOccupancy,
  kSm,
  kMemory,
  kDram,
  kTensorOfElapsed,
  kTensorOfActive,
  kTensorInstructions,
  kL1Hit,
  kL2Hit,
  kCyclesPerSecond,
  // Thread instructions: add, multiply, fused, of each width; then the same per elapsed cycle.
  kFadd,
  kFmul,
  kFfma,
  kHadd,
  kHmul,
  kHfma,
  kDadd,
  kDmul,
  kDfma,
  kFaddRate,
  kFmulRate,
  kFfmaRate,
  kHaddRate,
  kHmulRate,
  kHfmaRate,
  kDaddRate,
  kDmulRate,
  kDfmaRate,
  kCount,
  kNone = kCount,
  kTensorOps,
  kTensorOpsRate,
  kStallShare,
  kStallCycles,
};
constexpr size_t kMetrics = static_cast<size_t>(Metric::kCount);
constexpr size_t kKinds = 3;  // of thread instructions
constexpr Metric instruction(size_t width, size_t kind, bool rate) {
  const size_t first = static_cast<size_t>(rate ? Metric::kFaddRate : Metric::kFadd);
  return static_cast<Metric>(first + width * kKinds + kind);
}

// Names of the raw page, then labels of the details page, of which the unit tells namesakes apart.
struct NamedMetric {
  std::string_view name, unit;
  Metric metric;
};
constexpr std::array kMetricNames = {
    NamedMetric{"dram__bytes_read.sum", "byte", Metric::kRead},
    NamedMetric{"dram__bytes_op_read.sum", "byte", Metric::kRead},
    NamedMetric{"dram__bytes_write.sum", "byte", Metric::kWrite},
    NamedMetric{"dram__bytes_op_write.sum", "byte", Metric::kWrite},
    NamedMetric{"dram__bytes.sum", "byte", Metric::kTraffic},
    NamedMetric{"dram__bytes_read.sum.per_second", "byte/s", Metric::kReadRate},
    NamedMetric{"dram__bytes_op_read.sum.per_second", "byte/s", Metric::kReadRate},
    NamedMetric{"dram__bytes_write.sum.per_second", "byte/s", Metric::kWriteRate},
    NamedMetric{"dram__bytes_op_write.sum.per_second", "byte/s", Metric::kWriteRate},
    NamedMetric{"dram__bytes.sum.per_second", "byte/s", Metric::kTrafficRate},
    NamedMetric{"Memory Throughput", "byte/s", Metric::kTrafficRate},
    NamedMetric{"sm__warps_active.avg.pct_of_peak_sustained_active", "%", Metric::kOccupancy},
    NamedMetric{"Achieved Occupancy", "%", Metric::kOccupancy},
    NamedMetric{"sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", Metric::kSm},
    NamedMetric{"Compute (SM) Throughput", "%", Metric::kSm},
    NamedMetric{"Compute (SM) [%]", "%", Metric::kSm},
    NamedMetric{"SOL SM", "%", Metric::kSm},
    NamedMetric{"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", Metric::kMemory},
    NamedMetric{"Memory Throughput", "%", Metric::kMemory},
    NamedMetric{"Memory [%]", "%", Metric::kMemory},
    NamedMetric{"SOL Memory", "%", Metric::kMemory},
    NamedMetric{"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", Metric::kDram},
    NamedMetric{"dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", Metric::kDram},
    NamedMetric{"DRAM Throughput", "%", Metric::kDram},
    NamedMetric{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "%", Metric::kTensorOfElapsed},
    NamedMetric{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%", Metric::kTensorOfActive},
    NamedMetric{"sm__inst_executed_pipe_tensor.sum", "inst", Metric::kTensorInstructions},
    NamedMetric{"l1tex__t_sector_hit_rate.pct", "%", Metric::kL1Hit},
    NamedMetric{"L1/TEX Hit Rate", "%", Metric::kL1Hit},
    NamedMetric{"lts__t_sector_hit_rate.pct", "%", Metric::kL2Hit},
    NamedMetric{"L2 Hit Rate", "%", Metric::kL2Hit},
    NamedMetric{"smsp__cycles_elapsed.avg.per_second", "", Metric::kCyclesPerSecond},
    NamedMetric{"sm__cycles_elapsed.avg.per_second", "", Metric::kCyclesPerSecond},
};

// What a metric's name says: which it is, and of tensor operations and stalls the rest of the name.
struct Meaning {
  Metric metric = Metric::kNone;
  std::string_view what{};
};

// `text` between prefix and suffix, if it has both.
std::optional<std::string_view> between(std::string_view text, std::string_view prefix, std::string_view suffix) {
  if (!text.starts_with(prefix) || !text.ends_with(suffix) || text.size() <= prefix.size() + suffix.size())
    return std::nullopt;
  return text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
}

Metric instruction_named(std::string_view name) {
  constexpr std::string_view kLetters = "fhd";
  constexpr std::array<std::string_view, kKinds> kNames = {"add", "mul", "fma"};
  for (const std::string_view unit : {"sm__", "smsp__"}) {
    const std::string prefix = std::string(unit) + "sass_thread_inst_executed_op_";
    for (const bool rate : {false, true}) {
      const std::optional<std::string_view> op =
          between(name, prefix, rate ? "_pred_on.sum.per_cycle_elapsed" : "_pred_on.sum");
      if (!op) continue;
      for (size_t width = 0; width < kInstructionWidths; ++width)
        for (size_t kind = 0; kind < kKinds; ++kind)
          if (op->substr(1) == kNames[kind] && op->front() == kLetters[width]) return instruction(width, kind, rate);
    }
  }
  return Metric::kNone;
}

Meaning meaning_of(std::string_view name, std::string_view unit) {
  for (const NamedMetric& known : kMetricNames)
    if (known.name == name && (known.unit.empty() || known.unit == unit)) return {known.metric};
  if (const Metric metric = instruction_named(name); metric != Metric::kNone) return {metric};
  // Parts with and without structured sparsity are parts of the others.
  if (name.find("sparsity") != std::string_view::npos) return {};
  if (const auto type = between(name, "sm__ops_path_tensor_src_", ".sum")) return {Metric::kTensorOps, *type};
  if (const auto type = between(name, "sm__ops_path_tensor_src_", ".sum.per_cycle_elapsed"))
    return {Metric::kTensorOpsRate, *type};
  if (const auto state = between(name, "smsp__warp_issue_stalled_", "_per_warp_active.pct"))
    return {Metric::kStallShare, *state};
  if (const auto state = between(name, "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"))
    return {Metric::kStallCycles, *state};
  return {};
}

// ---- one kernel ----------------------------------------------------------------------------------------------------

using Named = std::vector<std::pair<std::string_view, double>>;

struct CountedMetrics {
  CountedMetrics() { value.fill(std::numeric_limits<double>::quiet_NaN()); }
  std::array<double, kMetrics> value;
  Named tensor_ops, tensor_rates, stall_shares, stall_cycles;

  OptDouble of(Metric metric) const {
    const double found = value[static_cast<size_t>(metric)];
    return std::isfinite(found) ? OptDouble(found) : std::nullopt;
  }
};

// Thread instructions, or their rate over the cycles of the duration, as Nsight Compute's own roofline has them.
OptDouble instructions(const CountedMetrics& counts, size_t width, size_t kind, const OptDouble& cycles) {
  if (const OptDouble sum = counts.of(instruction(width, kind, false))) return sum;
  const OptDouble rate = counts.of(instruction(width, kind, true));
  return rate && cycles ? OptDouble(*rate * *cycles) : std::nullopt;
}

DType source_type(std::string_view path) {
  const std::string_view source = path.substr(0, path.find("_dst_"));
  if (source == "bf16") return DType::kBf16;
  if (source == "fp16") return DType::kFp16;
  if (source == "tf32") return DType::kTf32;
  if (source == "fp64") return DType::kFp64;
  if (source.find("fp8") != std::string_view::npos) return DType::kFp8;  // fp4_fp6_fp8 too
  if (source.find("fp4") != std::string_view::npos || source.find("fp6") != std::string_view::npos) return DType::kFp4;
  return DType::kUnknown;
}
bool is_integer_path(std::string_view path) { return path.starts_with("int") || path.starts_with("uint"); }

// Of each source type: what is counted for all results, else the sum over the types of results.
std::map<std::string_view, double> tensor_operations(const Named& paths, double factor) {
  std::map<std::string_view, double> all, by_result;
  for (const auto& [path, count] : paths) {
    const std::string_view source = path.substr(0, path.find("_dst_"));
    (source.size() == path.size() ? all : by_result)[source] += count * factor;
  }
  all.merge(by_result);
  return all;
}

void count_tensor(const CountedMetrics& counts, const OptDouble& cycles, KernelFigures& out,
                  std::map<DType, double>& by_type) {
  std::map<std::string_view, double> operations = tensor_operations(counts.tensor_ops, 1);
  if (operations.empty() && cycles) operations = tensor_operations(counts.tensor_rates, *cycles);
  double sum = 0, any = 0;
  for (const auto& [source, count] : operations) {
    any += count;
    if (is_integer_path(source)) continue;
    sum += count;
    by_type[source_type(source)] += count;
  }
  const OptDouble ran = counts.of(Metric::kTensorInstructions);
  // A pipe that ran nothing did nothing. One that did while no operation is counted worked on a type that no metric of
  // the file is about.
  if (ran && *ran == 0) out.tensor_flops = 0;
  if (!operations.empty() && !(ran && *ran > 0 && any == 0)) out.tensor_flops = sum;
}

void count_flops(const CountedMetrics& counts, KernelFigures& out) {
  const OptDouble per_second = counts.of(Metric::kCyclesPerSecond);
  const OptDouble cycles =
      per_second && out.duration_ns ? OptDouble(*per_second * *out.duration_ns / 1e9) : std::nullopt;
  std::map<DType, double> by_type;
  constexpr std::array kTypes = {DType::kFp32, DType::kFp16, DType::kFp64};
  for (size_t width = 0; width < kInstructionWidths; ++width) {
    const OptDouble adds = instructions(counts, width, 0, cycles), products = instructions(counts, width, 1, cycles),
                    fused = instructions(counts, width, 2, cycles);
    if (!adds || !products || !fused) continue;
    out.width_flops[width] = *adds + *products + 2 * *fused;
    by_type[kTypes[width]] += *out.width_flops[width];
  }
  count_tensor(counts, cycles, out, by_type);
  if (!out.width_flops[0] || !out.tensor_flops) return;
  out.flops = std::accumulate(out.width_flops.begin(), out.width_flops.end(), *out.tensor_flops,
                              [](double sum, const OptDouble& part) { return sum + part.value_or(0); });
  double most = 0;
  for (const auto& [dtype, flops] : by_type) {
    if (flops <= most) continue;
    most = flops;
    out.dtype = dtype;
  }
}

void count_traffic(const CountedMetrics& counts, KernelFigures& out) {
  const auto over_time = [&](Metric sum, Metric rate) -> OptDouble {
    if (const OptDouble bytes = counts.of(sum)) return bytes;
    const OptDouble per_second = counts.of(rate);
    return per_second && out.duration_ns ? OptDouble(std::round(*per_second * *out.duration_ns / 1e9)) : std::nullopt;
  };
  out.read = over_time(Metric::kRead, Metric::kReadRate);
  out.write = over_time(Metric::kWrite, Metric::kWriteRate);
  out.traffic =
      out.read && out.write ? OptDouble(*out.read + *out.write) : over_time(Metric::kTraffic, Metric::kTrafficRate);
}

void find_stalls(const CountedMetrics& counts, KernelFigures& out) {
  for (const auto& [state, percent] : counts.stall_shares) out.stalls.emplace_back(state, percent / 100);
  if (!out.stalls.empty()) return;
  double all = 0;
  for (const auto& [state, cycles] : counts.stall_cycles) all += cycles;
  if (!(all > 0)) return;
  for (const auto& [state, cycles] : counts.stall_cycles) out.stalls.emplace_back(state, cycles / all);
}

KernelFigures figures_of(const Trace& trace, Row kernel, const CountedMetrics& counts) {
  // Counters of one value come from several passes; in very short kernels their ratio may exceed what can be.
  constexpr double kHitMost = 1.0001;
  KernelFigures out;
  if (trace.profiled_kernels.dur_ns[kernel] >= 0)
    out.duration_ns = static_cast<double>(trace.profiled_kernels.dur_ns[kernel]);
  count_traffic(counts, out);
  count_flops(counts, out);
  find_stalls(counts, out);
  const auto share = [&](Metric metric) -> OptDouble {
    const OptDouble percent = counts.of(metric);
    return percent ? OptDouble(*percent / 100) : std::nullopt;
  };
  const auto hit = [&](Metric metric) -> OptDouble {
    const OptDouble rate = share(metric);
    if (!rate || *rate <= kHitMost) return rate;
    out.hit_rate_above_one = true;
    return std::nullopt;
  };
  const OptDouble tensor = share(Metric::kTensorOfElapsed);
  out.shares = {share(Metric::kOccupancy),
                share(Metric::kSm),
                share(Metric::kMemory),
                share(Metric::kDram),
                tensor ? tensor : share(Metric::kTensorOfActive),
                hit(Metric::kL1Hit),
                hit(Metric::kL2Hit)};
  return out;
}

// Sums up the counters of each kernel.
std::vector<CountedMetrics> counts_of(const Trace& trace) {
  const KernelCounters& counters = trace.kernel_counters;
  std::unordered_map<uint64_t, Meaning> meanings;  // by name and unit
  std::vector<CountedMetrics> out(trace.profiled_kernels.size());
  for (size_t i = 0; i < counters.size(); ++i) {
    const double value = counters.value[i];
    if (counters.kernel[i] == kNoRow || !std::isfinite(value) || value < 0) continue;
    const uint64_t key = uint64_t{index(counters.name[i])} << 32 | index(counters.unit[i]);
    const auto [at, added] = meanings.try_emplace(key);
    if (added) at->second = meaning_of(trace.text(counters.name[i]), trace.text(counters.unit[i]));
    const Meaning& meaning = at->second;
    CountedMetrics& counts = out[counters.kernel[i]];
    switch (meaning.metric) {
      case Metric::kNone:
        break;
      case Metric::kTensorOps:
        counts.tensor_ops.emplace_back(meaning.what, value);
        break;
      case Metric::kTensorOpsRate:
        counts.tensor_rates.emplace_back(meaning.what, value);
        break;
      case Metric::kStallShare:
        counts.stall_shares.emplace_back(meaning.what, value);
        break;
      case Metric::kStallCycles:
        counts.stall_cycles.emplace_back(meaning.what, value);
        break;
      default:
        // A metric may stand in several sections, with the same value.
        if (double& first = counts.value[static_cast<size_t>(meaning.metric)]; std::isnan(first)) first = value;
    }
  }
  return out;
}

}  // namespace

std::vector<KernelFigures> figures_of_kernels(const Trace& trace) {
  std::vector<CountedMetrics> counts = counts_of(trace);
  std::vector<KernelFigures> out;
  out.reserve(counts.size());
  for (Row kernel = 0; kernel < counts.size(); ++kernel) {
    out.push_back(figures_of(trace, kernel, counts[kernel]));
    counts[kernel] = {};  // those of many kernels take more room than what they say
  }
  return out;
}

}  // namespace llmprof
