#include "analyze/host_places.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analyze/analysis.h"
#include "derive/no_input.h"

namespace llmprof {

std::string_view name_of(PlaceKind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {"wait",      "copy",   "allocation",
                                                             "host-code", "launch", "code-sample"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {
constexpr std::string_view kHook = " < [sys.set";  // settrace, setprofile
}

std::string_view without_hooks(std::string_view stack) { return stack.substr(0, stack.find(kHook)); }

std::string_view hooks_of(std::string_view stack) {
  const size_t at = stack.find(kHook);
  if (at == std::string_view::npos) return {};
  const std::string_view hook = stack.substr(at + kHook.size() - std::string_view("sys.set").size());
  return hook.substr(0, hook.find(']'));
}

std::string python_place(std::string_view stack) {
  stack = without_hooks(stack);
  constexpr size_t kFramesMost = 2;
  constexpr std::string_view kCaller = " < ";
  std::string out;
  for (size_t frame = 0; frame < kFramesMost && !stack.empty(); ++frame) {
    const size_t end = std::min(stack.find(kCaller), stack.size());
    std::string_view text = stack.substr(0, end);
    stack.remove_prefix(std::min(end + kCaller.size(), stack.size()));
    if (!out.empty()) out += kCaller;
    const size_t open = text.rfind(" (");
    const size_t slash = text.rfind('/');
    if (open == std::string_view::npos || slash == std::string_view::npos || slash < open) {
      out += text;
    } else {
      out += text.substr(0, open + 2);
      out += text.substr(slash + 1);
    }
  }
  return out;
}

std::string python_function(std::string_view stack) {
  const std::string place = python_place(stack);
  return place.substr(0, place.find(':'));
}

void add_to_place(std::string_view stack, double ns, double times, std::vector<PlaceAmounts>& places) {
  const std::string name = python_place(stack);
  auto known = std::find_if(places.begin(), places.end(), [&](const PlaceAmounts& one) { return one.place == name; });
  if (known == places.end()) known = places.insert(places.end(), {name, 0, 0});
  known->ns += ns;
  known->times += times;
}

std::vector<std::vector<PlaceSums>> places_of_stages(const Trace& trace, const Groups& groups) {
  const HostPlaces& places = trace.host_places;
  const CodePlaces code(trace);
  std::vector<std::map<std::tuple<PlaceKind, StringId, uint32_t>, PlaceSums>> sums(groups.stages.size());
  HostCursor host(groups);
  const NoInput no_input(trace);
  for (Row row = 0; row < places.size(); ++row) {
    if (places.kind[row] == PlaceKind::kLaunch || places.kind[row] == PlaceKind::kCodeSample) continue;
    const int64_t start_ns = places.start_ns[row], end_ns = start_ns + places.dur_ns[row];
    if (places.kind[row] == PlaceKind::kHostCode && no_input.holds(places.thread[row], start_ns, end_ns)) continue;
    const uint32_t stage = host.stage_at(places.thread[row], places.start_ns[row]);
    const CodePlace place =
        places.kind[row] == PlaceKind::kHostCode ? code.of(row) : CodePlace{places.stack[row], 0, false};
    if (groups.stages[stage].missing == MissingKernels::kAll || place.stack == StringId::kEmpty) continue;
    PlaceSums& sum = sums[stage][{places.kind[row], place.stack, place.from}];
    sum.place = place;
    sum.kind = places.kind[row];
    ++sum.count;
    sum.host_ns += places.dur_ns[row];
  }
  std::vector<std::vector<PlaceSums>> out(groups.stages.size());
  for (size_t stage = 0; stage < sums.size(); ++stage) {
    for (const auto& [key, sum] : sums[stage]) out[stage].push_back(sum);
    std::stable_sort(out[stage].begin(), out[stage].end(), [](const PlaceSums& a, const PlaceSums& b) {
      return a.host_ns != b.host_ns ? a.host_ns > b.host_ns : a.count > b.count;
    });
  }
  return out;
}

void analyze_host_places(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Trace& trace = context.trace;
  const Groups& groups = context.groups;
  const std::vector<std::vector<PlaceSums>> places = places_of_stages(trace, groups);
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    const StageGroup& group = groups.stages[s];
    if (group.unattributed || group.is_warm_up() || group.steps.empty()) continue;
    const double steps = static_cast<double>(group.steps.size());
    for (const PlaceSums& place : places[s]) {
      HostPlaceRecord& row = report.host_places.emplace_back();
      row.stage = stage_name(trace, groups, s);
      row.device = group.device;
      row.kind = std::string(name_of(place.kind));
      row.place = python_place(place.place.text(trace));
      row.per_step = static_cast<double>(place.count) / steps;
      if (place.host_ns > 0) row.host_ms_per_step = static_cast<double>(place.host_ns) / steps / 1e6;
      row.stack = place.place.text(trace);
    }
  }
}

}  // namespace llmprof
