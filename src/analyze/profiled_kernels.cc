// Rows of what Nsight Compute counted of kernels (kernel_figures.h): equal calls together, the roofline of counted
// FLOPs over counted bytes, kernels of a trace of the same program beside them, and what was not collected.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/kernel_figures.h"
#include "analyze/recorded_names.h"
#include "analyze/without_program.h"
#include "derive/kernel_rules.h"
#include "hardware/ncu_metrics.h"
#include "hardware/roofline.h"

namespace llmprof {
namespace {

// ---- rows ----------------------------------------------------------------------------------------------------------

// Mean of what is known of some calls, or of nothing less than all of them.
struct MeanOf {
  double sum = 0, weight = 0;
  int64_t n = 0;
  void add(const OptDouble& value, double by = 1) {
    if (!value) return;
    sum += *value * by;
    weight += by;
    ++n;
  }
  OptDouble mean() const { return weight > 0 ? OptDouble(sum / weight) : std::nullopt; }
  OptDouble of_all(int64_t calls) const { return n == calls ? mean() : std::nullopt; }
};

// Calls of one kernel with one launch configuration under the same ranges.
struct ProfiledGroup {
  Row first = 0;
  int64_t calls = 0;
  MeanOf duration, read, write, traffic, flops, tensor;
  std::array<MeanOf, kInstructionWidths> widths;
  std::array<MeanOf, 7> shares;
  std::map<std::string_view, MeanOf> stalls;
  DType dtype = DType::kUnknown;

  void add(const KernelFigures& call) {
    ++calls;
    duration.add(call.duration_ns);
    read.add(call.read);
    write.add(call.write);
    traffic.add(call.traffic);
    flops.add(call.flops);
    tensor.add(call.tensor_flops);
    for (size_t i = 0; i < kInstructionWidths; ++i) widths[i].add(call.width_flops[i]);
    // Shares are of time: longer calls weigh more.
    const double weight = std::max(1.0, call.duration_ns.value_or(1));
    for (size_t i = 0; i < shares.size(); ++i) shares[i].add(call.shares[i], weight);
    for (const auto& [state, frac] : call.stalls) stalls[state].add(frac, weight);
    if (call.dtype != DType::kUnknown) dtype = call.dtype;
  }
};

std::string joined_ranges(std::string_view lines) {
  std::string out;
  for (const char c : lines) out += c == '\n' ? "/" : std::string(1, c);
  return out;
}

std::string category_of_name(std::string_view kernel) {
  const int rule = first_rule(rules_for_kernel(kernel) & rules_for_any_operator(), InputFacts(1));
  return std::string(category_name(rule < 0 ? Category::kOther : kernel_rules()[static_cast<size_t>(rule)].category));
}

// What no metric counts of the sum of FLOPs.
OptText not_counted(const ProfiledKernelRecord& row) {
  std::string out;
  const auto add = [&](const OptDouble& part, const char* name) {
    if (!part) out += (out.empty() ? "" : ", ") + std::string(name);
  };
  add(row.fp32_flops, "fp32");
  add(row.fp16_flops, "fp16");
  add(row.fp64_flops, "fp64");
  add(row.tensor_flops, "tensor");
  return out.empty() ? OptText() : OptText(out);
}

ProfiledKernelRecord profiled_record(const Trace& trace, const ProfiledGroup& group) {
  const ProfiledKernels& kernels = trace.profiled_kernels;
  const StreamId stream = kernels.stream[group.first];
  ProfiledKernelRecord row;
  row.name = trace.text(kernels.name[group.first]);
  row.category = category_of_name(row.name);
  row.ranges = joined_ranges(trace.text(kernels.ranges[group.first]));
  row.device = trace.streams.device[stream];
  row.stream = trace.streams.stream[stream];
  row.calls = group.calls;
  if (const LaunchConfigId c = kernels.config[group.first]; c != kNoRow) {
    const LaunchConfigs& configs = trace.launch_configs;
    row.grid = launched_grid(configs, c);
    row.block = launched_block(configs, c);
    if (std::isfinite(configs.occupancy_frac[c]))
      row.theoretical_occupancy_frac = static_cast<double>(configs.occupancy_frac[c]);
  }
  const OptDouble duration_ns = group.duration.of_all(group.calls);
  if (duration_ns) row.duration_us = *duration_ns / 1e3;
  row.fp32_flops = group.widths[0].of_all(group.calls);
  row.fp16_flops = group.widths[1].of_all(group.calls);
  row.fp64_flops = group.widths[2].of_all(group.calls);
  row.tensor_flops = group.tensor.of_all(group.calls);
  row.flops = group.flops.of_all(group.calls);
  row.not_counted = not_counted(row);
  if (group.dtype != DType::kUnknown) row.dtype = dtype_name(group.dtype);
  row.dram_read_bytes = group.read.of_all(group.calls);
  row.dram_write_bytes = group.write.of_all(group.calls);
  row.dram_bytes = group.traffic.of_all(group.calls);
  if (row.flops && row.dram_bytes && *row.dram_bytes > 0) row.intensity = *row.flops / *row.dram_bytes;
  if (duration_ns && *duration_ns > 0) {
    if (row.flops) row.tflops = *row.flops / *duration_ns / 1e3;
    if (row.dram_bytes) row.gbs = *row.dram_bytes / *duration_ns;
  }
  const std::array fields = {&row.occupancy_frac,     &row.sm_frac,     &row.memory_frac, &row.dram_frac,
                             &row.tensor_active_frac, &row.l1_hit_frac, &row.l2_hit_frac};
  for (size_t i = 0; i < fields.size(); ++i) *fields[i] = group.shares[i].mean();
  for (const auto& [state, mean] : group.stalls) {
    if (state == "selected" || !mean.mean() || *mean.mean() <= row.stall_frac.value_or(0)) continue;
    row.stall = std::string(state);
    row.stall_frac = mean.mean();
  }
  return row;
}

RooflineRecord counted_roofline(const Context& context, const ProfiledGroup& group,
                                const ProfiledKernelRecord& kernel) {
  const double calls = static_cast<double>(kernel.calls), total_ns = *kernel.duration_us * 1e3 * calls;
  RooflineRecord row;
  row.name = kernel.name;
  row.category = kernel.category;
  row.stage = kernel.ranges;
  if (kernel.grid) row.shape = "grid " + *kernel.grid + " block " + *kernel.block;
  row.dtype = kernel.dtype.value_or("unknown");
  row.calls = kernel.calls;
  row.total_ms.ns = std::llround(std::min(total_ns, 9e18));
  row.flops = *kernel.flops;
  row.bytes = *kernel.dram_bytes;
  row.intensity = *kernel.intensity;
  row.tflops = *kernel.tflops;
  row.gbs = *kernel.gbs;
  if (context.device == nullptr) return row;
  const OptDouble flops_per_s = context.device->roof_of(group.dtype), bytes_per_s = context.device->roof_bytes_per_s();
  const RoofPoint point =
      place_on_roof(row.flops * calls, row.bytes * calls, total_ns, calls, flops_per_s, bytes_per_s);
  if (flops_per_s) row.peak_tflops = *flops_per_s / 1e12;
  if (bytes_per_s) row.peak_gbs = *bytes_per_s / 1e9;
  if (flops_per_s && bytes_per_s && *bytes_per_s > 0) row.ridge = *flops_per_s / *bytes_per_s;
  if (point.bound != Bound::kUnknown) row.bound = point.bound;
  if (!point.roof_ns || !(*point.roof_ns > 0)) return row;
  row.attainable_tflops = row.flops * calls / *point.roof_ns / 1e3;
  row.of_roof_frac = *point.roof_ns / total_ns;
  row.gain_ms = total_ns / 1e6 * std::max(0.0, 1 - *row.of_roof_frac);
  return row;
}

// ---- the recording beside ------------------------------------------------------------------------------------------

struct RecordedKernel {
  std::set<std::string_view> names;  // that share the function, grid and block
  int64_t calls = 0, total_ns = 0;
};
using LaunchedKernel = std::tuple<std::string, std::string, std::string>;  // name, grid, block

using RecordedKernels = std::array<std::map<LaunchedKernel, RecordedKernel>, kNamings>;
RecordedKernels recorded_kernels(const Context& context) {
  RecordedKernels out;
  const LaunchConfigs& configs = context.trace.launch_configs;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    if (key.config == kNoRow) continue;
    const Row c = key.config;
    const std::string grid = launched_grid(configs, c);
    const std::string block = launched_block(configs, c);
    const std::string_view name = context.trace.text(key.name);
    for (int naming = 0; naming < kNamings; ++naming) {
      RecordedKernel& kernel = out[static_cast<size_t>(naming)][{named(naming, name), grid, block}];
      kernel.names.insert(name);
      kernel.calls += context.groups.kernels[k].calls;
      kernel.total_ns += context.groups.kernels[k].total_ns;
    }
  }
  return out;
}

struct Matches {
  int64_t rows = 0, none = 0, ambiguous = 0;
};

// Gives the rows what the recording says of their kernels, where only one kernel on either side is named so.
Matches match_recorded(const Context& context, std::vector<ProfiledKernelRecord>& rows) {
  const RecordedKernels recorded = recorded_kernels(context);
  const auto launched = [](int naming, const ProfiledKernelRecord& row) {
    return LaunchedKernel(named(naming, row.name), row.grid.value_or(""), row.block.value_or(""));
  };
  std::array<std::map<LaunchedKernel, std::set<std::string_view>>, kNamings> profiled;  // whole names
  for (const ProfiledKernelRecord& row : rows)
    for (int naming = 0; naming < kNamings; ++naming)
      profiled[static_cast<size_t>(naming)][launched(naming, row)].insert(row.name);
  Matches out;
  for (ProfiledKernelRecord& row : rows) {
    ++out.rows;
    const RecordedKernel* match = nullptr;
    bool several = false;
    for (int naming = 0; naming < kNamings && match == nullptr; ++naming) {
      const LaunchedKernel name = launched(naming, row);
      const auto& of_recording = recorded[static_cast<size_t>(naming)];
      const auto found = of_recording.find(name);
      if (found == of_recording.end()) continue;
      several |= found->second.names.size() > 1 || profiled[static_cast<size_t>(naming)][name].size() > 1;
      if (several) break;  // a shorter name tells them apart no better
      match = &found->second;
    }
    if (match == nullptr) {
      ++(several ? out.ambiguous : out.none);
      continue;
    }
    const RecordedKernel& kernel = *match;
    row.recorded_calls = kernel.calls;
    const double mean_ns = static_cast<double>(kernel.total_ns) / static_cast<double>(kernel.calls);
    row.recorded_us = mean_ns / 1e3;
    if (!(mean_ns > 0)) continue;
    if (row.flops) row.recorded_tflops = *row.flops / mean_ns / 1e3;
    if (row.dram_bytes) row.recorded_gbs = *row.dram_bytes / mean_ns;
  }
  return out;
}

void say_what_matched(const Matches& matches, std::vector<CannotTell>& cannot_tell) {
  if (matches.none + matches.ambiguous == 0) return;
  std::string why = fmt::format("of {} profiled kernels, by name, grid and block, {} are not in the recording",
                                matches.rows, matches.none);
  if (matches.ambiguous > 0)
    why += fmt::format(", and {} could be one of several, whose names the two recorders write differently",
                       matches.ambiguous);
  cannot_tell.push_back({"How long do all profiled kernels take in the recording?", why,
                         "profile the same program with the same inputs; their counters are in profiled_kernels"});
}

// ---- what is missing -----------------------------------------------------------------------------------------------

// Names of the tensor pipe's counters and of those of traffic differ between chips.
int32_t major_of(const Trace& trace) { return trace.devices.empty() ? -1 : trace.devices.compute_major.front(); }

struct Lacking {
  int64_t all = 0, duration = 0, flops = 0, traffic = 0, occupancy = 0, stalls = 0, hit_rates = 0;
};

std::string so_many(int64_t n, int64_t all) {
  return n == all ? "none of the kernels" : fmt::format("not every kernel ({} of {} lack it)", n, all);
}

void say_what_lacks(const Trace& trace, const Lacking& lacks, std::vector<CannotTell>& cannot_tell) {
  const int32_t major = major_of(trace);
  const std::string traffic = ncu_metric_list(ncu_traffic_metrics(major));
  const auto ask = [&](int64_t n, const char* question, const std::string& why, const std::string& metrics) {
    if (n > 0)
      cannot_tell.push_back({question, fmt::format("{} {}", so_many(n, lacks.all), why),
                             "collect it: ncu --csv --page raw --print-units base --metrics " + metrics});
  };
  ask(lacks.duration, "How long did the kernels take under the profiler?", "has its duration",
      "gpu__time_duration.sum");
  ask(lacks.flops, "What are the FLOPs and the arithmetic intensity of the kernels?",
      "has its arithmetic in 32 bits and that of the tensor pipe counted",
      ncu_metric_list(ncu_flop_metrics(major)) + (lacks.traffic > 0 ? "," + traffic : "") +
          (lacks.duration > 0 ? ",gpu__time_duration.sum" : ""));
  ask(lacks.traffic, "How much memory traffic do the kernels have?", "has its memory traffic counted", traffic);
  ask(lacks.occupancy, "What occupancy do the kernels achieve?", "has its resident warps counted",
      "sm__warps_active.avg.pct_of_peak_sustained_active");
  ask(lacks.stalls, "What do the warps wait for?", "has its stalls counted",
      "regex:smsp__warp_issue_stalled_.*_per_warp_active");
  if (lacks.hit_rates > 0)
    cannot_tell.push_back(
        {"What are the cache hit rates of all kernels?",
         fmt::format("those of {} of {} kernels exceed 100 %: hits and requests were counted in different passes",
                     lacks.hit_rates, lacks.all),
         "kernels of some microseconds are too short for it: rather trust those of longer ones"});
}

CannotTell about_durations(const Trace& trace) {
  const bool unmodified = trace.metadata.count("ncu.clocks") != 0;
  return {"How long do these kernels take in production; what are TTFT, TPOT and idle time?",
          std::string("Nsight Compute runs kernels one at a time, several times over, by default with empty caches") +
              (unmodified ? "; clocks were left as they are (--clock-control none)"
                          : " and with clocks locked to base, below what the GPU runs at"),
          "record the program as it runs: llmprof run -- COMMAND"};
}

}  // namespace

void analyze_profiled_kernels(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  const ProfiledKernels& kernels = trace.profiled_kernels;
  if (kernels.empty()) return;
  const bool alone = profiled_only(trace);
  const std::vector<KernelFigures> all_figures = figures_of_kernels(trace);
  std::map<std::tuple<StringId, Row, Row, StringId>, size_t> known;
  std::vector<ProfiledGroup> groups;
  Lacking lacks;
  for (Row kernel = 0; kernel < kernels.size(); ++kernel) {
    const KernelFigures& figures = all_figures[kernel];
    const auto [at, added] = known.try_emplace(
        {kernels.name[kernel], kernels.stream[kernel], kernels.config[kernel], kernels.ranges[kernel]}, groups.size());
    if (added) groups.emplace_back().first = kernel;
    groups[at->second].add(figures);
    ++lacks.all;
    lacks.duration += figures.duration_ns ? 0 : 1;
    lacks.flops += figures.flops ? 0 : 1;
    lacks.traffic += figures.traffic ? 0 : 1;
    lacks.occupancy += figures.shares[0] ? 0 : 1;
    lacks.stalls += figures.stalls.empty() ? 1 : 0;
    lacks.hit_rates += figures.hit_rate_above_one ? 1 : 0;
  }
  // Those that take most first.
  const auto total = [](const ProfiledGroup& group) { return group.duration.sum; };
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const ProfiledGroup& a, const ProfiledGroup& b) { return total(a) > total(b); });
  for (const ProfiledGroup& group : groups) {
    const ProfiledKernelRecord& row = report.profiled_kernels.emplace_back(profiled_record(trace, group));
    // Beside a recording the roofline is of its kernels, times and shapes.
    if (alone && row.intensity && row.tflops && row.gbs)
      report.roofline.push_back(counted_roofline(context, group, row));
    for (const auto& [state, mean] : group.stalls)
      if (const OptDouble frac = mean.mean())
        report.kernel_stalls.push_back(
            {row.name, row.ranges, row.device, row.grid, row.block, std::string(state), *frac});
  }
  if (alone)
    cannot_tell.push_back(about_durations(trace));
  else
    say_what_matched(match_recorded(context, report.profiled_kernels), cannot_tell);
  say_what_lacks(trace, lacks, cannot_tell);
}

}  // namespace llmprof
