#include "analyze/launch_places.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "analyze/analysis.h"
#include "analyze/host_places.h"

namespace llmprof {
namespace {

// By row of api_calls; empty where no launch was placed.
std::vector<StringId> stacks_of_calls(const Trace& trace) {
  const HostPlaces& places = trace.host_places;
  const ApiCalls& calls = trace.api_calls;
  std::vector<StringId> out;
  for (Row row = 0; row < places.size(); ++row) {
    if (places.kind[row] != PlaceKind::kLaunch && places.kind[row] != PlaceKind::kCopy) continue;
    if (places.stack[row] == StringId::kEmpty) continue;
    const auto first = std::lower_bound(calls.start_ns.begin(), calls.start_ns.end(), places.start_ns[row]);
    for (size_t call = static_cast<size_t>(first - calls.start_ns.begin());
         call < calls.size() && calls.start_ns[call] == places.start_ns[row]; ++call) {
      if (calls.thread[call] != places.thread[row]) continue;
      if (out.empty()) out.assign(calls.size(), StringId::kEmpty);
      out[call] = places.stack[row];
    }
  }
  return out;
}

StringId stack_of_node(const NodePlaces& places, uint64_t node) {
  if (node == 0) return StringId::kEmpty;
  const auto behind = std::upper_bound(places.node.begin(), places.node.end(), node);
  if (behind == places.node.begin() || *(behind - 1) != node) return StringId::kEmpty;
  return places.stack[static_cast<size_t>(behind - places.node.begin()) - 1];
}

struct CodeSums {
  double ns = 0, ops = 0;
  int64_t known = 0;
};

}  // namespace

std::vector<LaunchPlace> launch_places(const Trace& trace, const Groups& groups) {
  std::vector<LaunchPlace> out;
  const std::vector<StringId> of_calls = stacks_of_calls(trace);
  if (of_calls.empty() && trace.node_places.size() == 0) return out;
  std::vector<int64_t> known(groups.kernels.size(), 0);
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    StringId stack = stack_of_node(trace.node_places, trace.gpu_ops.graph_node[op]);
    const ApiCallId call = trace.gpu_links.api[op];
    if (stack == StringId::kEmpty && call != kNoRow && !of_calls.empty()) stack = of_calls[call];
    if (stack == StringId::kEmpty) continue;
    ++known[groups.kernel_of[op]];
    out.push_back({op, stack, 1});
  }
  for (LaunchPlace& place : out) {
    const uint32_t kernel = groups.kernel_of[place.op];
    place.weight = static_cast<double>(groups.kernels[kernel].calls) / static_cast<double>(known[kernel]);
  }
  return out;
}

void analyze_launch_places(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Trace& trace = context.trace;
  const Groups& groups = context.groups;
  std::vector<std::map<std::string, std::pair<StringId, CodeSums>>> stages(groups.stages.size());
  for (const LaunchPlace& place : context.launch_places) {
    const uint32_t stage = groups.kernel_keys.key(groups.kernel_of[place.op]).stage;
    const StringId stack = place.stack;
    auto& [first_seen, sums] = stages[stage][python_place(trace.text(stack))];
    if (sums.known == 0) first_seen = stack;
    sums.ns += place.weight * static_cast<double>(trace.gpu_ops.dur_ns[place.op]);
    sums.ops += place.weight;
    ++sums.known;
  }
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    const StageGroup& group = groups.stages[s];
    if (group.unattributed || group.is_warm_up() || group.steps.empty() || group.gpu_ns == 0) continue;
    const double steps = static_cast<double>(group.steps.size());
    const size_t first = report.launch_places.size();
    for (const auto& [name, place] : stages[s]) {
      LaunchPlaceRecord& row = report.launch_places.emplace_back();
      row.stage = stage_name(trace, groups, s);
      row.device = group.device;
      row.place = name;
      row.gpu_ms_per_step = place.second.ns / steps / 1e6;
      row.gpu_frac = place.second.ns / static_cast<double>(group.gpu_ns);
      row.per_step = place.second.ops / steps;
      row.seen = place.second.known;
      row.stack = trace.text(place.first);
    }
    std::stable_sort(
        report.launch_places.begin() + static_cast<std::ptrdiff_t>(first), report.launch_places.end(),
        [](const LaunchPlaceRecord& a, const LaunchPlaceRecord& b) { return a.gpu_ms_per_step > b.gpu_ms_per_step; });
  }
}

}  // namespace llmprof
