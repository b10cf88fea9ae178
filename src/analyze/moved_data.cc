#include "analyze/moved_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "analyze/converted_weights.h"
#include "analyze/finding.h"
#include "analyze/host_places.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kLongNs = 10'000;  // several times what a launch and a start take: the bytes are the reason

bool moves(const Trace& trace, GpuOpId op) {
  const GpuOps& ops = trace.gpu_ops;
  if (ops.dur_ns[op] < kLongNs || ops.kind[op] == GpuOpKind::kMemset) return false;
  if (ops.kind[op] == GpuOpKind::kMemcpy) return ops.path[op] == CopyPath::kOnDevice;
  const Category category = trace.gpu_links.category[op];
  return category == Category::kCopy || category == Category::kEmbedding || category == Category::kKvCache;
}

// Kernels of one kind (Groups::kernels) are launched by one function if nearly all places say so.
constexpr double kOneFunction = 0.9;
constexpr double kMostly = 0.5;        // of the time of a function's passes over memory
constexpr double kStagePartMin = 0.1;  // of the GPU time of a stage: less is no cause by itself

void add_functions(const Context& context, MovedData& out) {
  const Trace& trace = context.trace;
  const Groups& groups = context.groups;
  if (context.launch_places.empty()) return;
  std::vector<uint8_t> moved(trace.gpu_ops.size());
  for (const GpuOpId op : out.moves) moved[op] = 1;
  struct Sums {
    double moves_ns = 0, passes_ns = 0;
  };
  using Function = std::pair<uint32_t, std::string>;  // of a stage
  std::map<Function, Sums> functions;
  std::map<uint32_t, std::map<std::string, double>> kernels;  // launches of a kind of kernels by function
  std::map<StringId, std::string> names;
  for (const LaunchPlace& place : context.launch_places) {
    const uint32_t kernel = groups.kernel_of[place.op];
    const StepId step = trace.gpu_links.step[place.op];
    const Category category = trace.gpu_links.category[place.op];
    if (step == kNoRow || (moved[place.op] == 0 && !is_pass_over_memory(category))) continue;
    const auto [name, added] = names.try_emplace(place.stack);
    if (added) name->second = python_function(trace.text(place.stack));
    const double ns = place.weight * static_cast<double>(trace.gpu_ops.dur_ns[place.op]);
    Sums& sums = functions[{groups.stage_of_step[step], name->second}];
    sums.passes_ns += ns;
    if (moved[place.op] != 0) sums.moves_ns += ns;
    kernels[kernel][name->second] += place.weight;
  }
  for (const auto& [function, sums] : functions)
    if (sums.moves_ns >= kMostly * sums.passes_ns &&
        sums.moves_ns >= kStagePartMin * static_cast<double>(groups.stages[function.first].gpu_ns))
      out.functions.insert(function);
  std::vector<uint8_t> beside(groups.kernels.size());
  for (const auto& [kernel, by_function] : kernels) {
    double all = 0, of_moves = 0;
    for (const auto& [function, launches] : by_function) {
      all += launches;
      if (out.functions.count({groups.kernel_keys.key(kernel).stage, function}) > 0) of_moves += launches;
    }
    beside[kernel] = of_moves >= kOneFunction * all ? 1 : 0;
  }
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op)
    if (moved[op] == 0 && trace.gpu_links.step[op] != kNoRow && beside[groups.kernel_of[op]] != 0 &&
        is_pass_over_memory(trace.gpu_links.category[op]))
      out.beside.push_back(op);
}

}  // namespace

MovedData moved_data(const Context& context) {
  const Trace& trace = context.trace;
  std::set<GpuOpId> known;
  for (const ConvertedWeights& one : converted_weights(context)) known.insert(one.passes.begin(), one.passes.end());
  MovedData out;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || !moves(trace, op) || known.count(op) > 0) continue;
    const bool appends =
        trace.steps.kind[step] == StageKind::kDecode && concatenates(trace.text(trace.gpu_ops.name[op]));
    if (!appends) out.moves.push_back(op);
  }
  add_functions(context, out);
  std::erase_if(out.beside, [&](GpuOpId op) { return known.count(op) > 0; });
  return out;
}

void find_data_movement(const FindingContext& finding) {
  constexpr double kShareMin = 0.1;
  struct Sums {
    double ns = 0, kernels = 0, beside_ns = 0, beside = 0;
    std::map<StringId, double> names;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  const MovedData data = moved_data(finding.context);
  for (const GpuOpId op : data.beside) {
    Sums& sums = stages[finding.stage_of(op)];
    sums.beside_ns += static_cast<double>(trace.gpu_ops.dur_ns[op]);
    ++sums.beside;
  }
  for (const GpuOpId op : data.moves) {
    Sums& sums = stages[finding.stage_of(op)];
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[op]);
    sums.ns += ns;
    ++sums.kernels;
    sums.names[trace.gpu_ops.name[op]] += ns;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || found->second.ns < kShareMin * stage.busy_ns()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "no-moves", true)) continue;
    Finding& out = finding.add("data-movement", &stage,
                               fmt::format("{}kernels that only move data take {} of the GPU time", stage.label(),
                                           format_percent(sums.ns / stage.busy_ns())),
                               sums.ns + sums.beside_ns);
    out.evidence = {measured("such kernels of 10 us or more per step", sums.kernels / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    const auto most = std::max_element(sums.names.begin(), sums.names.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    out.evidence.push_back(measured("of it the largest, " + std::string(trace.text(most->first).substr(0, 60)),
                                    stage.per_step_ms(most->second), Unit::kMs));
    if (sums.beside > 0) {
      out.evidence.push_back(
          measured("other passes of the functions that move it, per step", sums.beside / stage.count(), Unit::kOne));
      out.evidence.push_back(measured("their GPU time per step", stage.per_step_ms(sums.beside_ns), Unit::kMs));
    }
    out.advice = {
        "Move places instead of what is there: let attention and gathers read through a table (pages, beams, slots), "
        "and "
        "reorder only what differs.",
        "Give kernels the layout that they read, write in place, and convert or repeat once instead of in each step."};
    out.bound = stage.bound(sums.ns + sums.beside_ns);
  }
}

}  // namespace llmprof
