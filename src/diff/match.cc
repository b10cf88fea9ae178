#include "diff/match.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/statistics.h"

namespace llmprof::diff {
namespace {

bool is_same_stage(const StepGroup& a, const StepGroup& b) {
  return a.kind == b.kind && a.name == b.name && a.device == b.device;
}
// The one with the bare name of its kind is all that its run has of it.
bool is_same_kind(const StepGroup& a, const StepGroup& b) {
  const std::string_view kind = ::llmprof::name_of(a.kind);
  return a.kind == b.kind && a.device == b.device && a.kind != StageKind::kOther && (a.name == kind || b.name == kind);
}
bool is_same_or_unknown(int64_t a, int64_t b) { return a == b || a < 0 || b < 0; }

double middle_context(const Run& run, const StepGroup& group) {
  std::vector<double> known;
  for (const StepId step : group.steps)
    if (run.trace.steps.context[step] >= 0) known.push_back(static_cast<double>(run.trace.steps.context[step]));
  return known.empty() ? -1 : median_of(std::move(known));
}

StepGroup within_contexts(const Run& run, const StepGroup& group, int64_t low, int64_t high) {
  StepGroup out = group;
  out.steps.clear();
  out.total_ns = 0;
  out.context_low = out.context_high = -1;
  const Steps& steps = run.trace.steps;
  for (const StepId step : group.steps) {
    const int64_t context = steps.context[step];
    if (context < low || context > high) continue;
    out.steps.push_back(step);
    out.total_ns += steps.end_ns[step] - steps.start_ns[step];
    out.context_low = out.context_low < 0 ? context : std::min(out.context_low, context);
    out.context_high = std::max(out.context_high, context);
  }
  out.whole_stage = group.whole_stage && out.steps.size() == group.steps.size();
  return out;
}

}  // namespace

GroupPairs match_groups(const std::vector<StepGroup>& a, const std::vector<StepGroup>& b) {
  GroupPairs out;
  std::vector<size_t> of_a(a.size(), b.size());
  std::vector<uint8_t> taken(b.size(), 0);
  const auto pass = [&](auto&& fits) {
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t k = 0; k < b.size() && of_a[i] == b.size(); ++k)
        if (taken[k] == 0 && fits(a[i], b[k])) of_a[i] = k, taken[k] = 1;
  };
  pass([](const StepGroup& one, const StepGroup& other) {
    return is_same_stage(one, other) && one.sequences == other.sequences && one.tokens == other.tokens;
  });
  const auto alike = [](const StepGroup& one, const StepGroup& other) {
    return is_same_or_unknown(one.sequences, other.sequences) && is_same_or_unknown(one.tokens, other.tokens);
  };
  pass([&](const StepGroup& one, const StepGroup& other) { return is_same_stage(one, other) && alike(one, other); });
  pass([&](const StepGroup& one, const StepGroup& other) { return is_same_kind(one, other) && alike(one, other); });
  for (size_t i = 0; i < a.size(); ++i)
    if (of_a[i] < b.size())
      out.pairs.emplace_back(i, of_a[i]);
    else
      out.only_a.push_back(i);
  for (size_t k = 0; k < b.size(); ++k)
    if (taken[k] == 0) out.only_b.push_back(k);
  return out;
}

void keep_common_contexts(const Run& run_a, StepGroup& a, const Run& run_b, StepGroup& b) {
  constexpr double kApart = 0.10;
  constexpr size_t kFewest = 3;
  const double of_a = middle_context(run_a, a), of_b = middle_context(run_b, b);
  if (of_a <= 0 || of_b <= 0 || std::abs(of_a - of_b) <= kApart * std::max(of_a, of_b)) return;
  const int64_t low = std::max(a.context_low, b.context_low), high = std::min(a.context_high, b.context_high);
  StepGroup less_a = within_contexts(run_a, a, low, high), less_b = within_contexts(run_b, b, low, high);
  if (less_a.steps.size() < kFewest || less_b.steps.size() < kFewest) return;
  a = std::move(less_a);
  b = std::move(less_b);
}

namespace {

// Those with a figure, the nearest first.
GroupsOfSide by_distance(const GroupsOfSide& runs, double figure_ms) {
  std::vector<std::pair<double, GroupOfRun>> known;
  for (const GroupOfRun& of : runs)
    if (const std::optional<Figure> figure = step_figure(*of.run, *of.group))
      known.emplace_back(std::abs(std::log(figure->value / figure_ms)), of);
  std::stable_sort(known.begin(), known.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  GroupsOfSide out;
  for (const auto& [off, of] : known) out.push_back(of);
  return out;
}

// The nearer half of a side's runs, a handful at most, of those with recorded steps.
std::vector<std::pair<double, GroupOfRun>> near_recorded(const GroupsOfSide& nearest) {
  constexpr size_t kRunsMost = 5;
  std::vector<std::pair<double, GroupOfRun>> out;
  for (size_t i = 0; i < std::min(kRunsMost, (nearest.size() + 1) / 2); ++i)
    if (const std::optional<double> ms = recorded_step_ms(*nearest[i].run, *nearest[i].group))
      out.emplace_back(*ms, nearest[i]);
  return out;
}

}  // namespace

GroupOfRun nearest_run(const GroupsOfSide& runs, double figure_ms) {
  const GroupsOfSide nearest = by_distance(runs, figure_ms);
  return nearest.empty() ? GroupOfRun{} : nearest.front();
}

std::pair<GroupOfRun, GroupOfRun> pair_to_attribute(const GroupsOfSide& a, double a_ms, const GroupsOfSide& b,
                                                    double b_ms) {
  const GroupsOfSide nearest_a = by_distance(a, a_ms), nearest_b = by_distance(b, b_ms);
  if (nearest_a.empty() || nearest_b.empty()) return {};
  std::pair<GroupOfRun, GroupOfRun> out = {nearest_a.front(), nearest_b.front()};
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [of_a, run_a] : near_recorded(nearest_a))
    for (const auto& [of_b, run_b] : near_recorded(nearest_b)) {
      const double off = std::abs((of_b - of_a) - (b_ms - a_ms));
      if (off < least) out = {run_a, run_b}, least = off;
    }
  return out;
}

}  // namespace llmprof::diff
