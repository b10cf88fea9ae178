// Whether runs are of one machine in one state.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "analyze/telemetry.h"
#include "base/statistics.h"
#include "diff/diff.h"
#include "diff/noise.h"

namespace llmprof::diff {
namespace {

// Clocks that differ by less are read at other moments.
constexpr double kClockApart = 0.02;
// Held down for a smaller part of the window: not a state.
constexpr double kThrottled = 0.05;

OptText fact(const Trace& trace, const char* key) {
  const auto found = trace.metadata.find(key);
  return found == trace.metadata.end() || found->second.empty() ? std::nullopt : OptText(found->second);
}

OptDouble power_cap_of(const Run& run) {
  if (!run.report.device) return std::nullopt;
  return power_limit_w(run.trace, static_cast<int32_t>(run.report.device->device));
}

OptDouble clock_of(const Run& run) {
  const StageTiming* longest = nullptr;
  for (const StageTiming& stage : run.report.stages)
    if (stage.sm_clock_mhz && stage.name != kUnattributed && !run.report.mark_of(stage).is_warm_up() &&
        (longest == nullptr || stage.wall_ms.ns > longest->wall_ms.ns))
      longest = &stage;
  if (longest != nullptr) return longest->sm_clock_mhz;
  if (run.report.telemetry && run.report.telemetry->sm_clock_mhz) return run.report.telemetry->sm_clock_mhz->p50;
  return std::nullopt;
}

OptDouble median_over(const Side& side, const std::function<OptDouble(const Run&)>& value) {
  std::vector<double> known;
  for (const Run& run : side)
    if (const OptDouble one = value(run)) known.push_back(*one);
  return known.empty() ? std::nullopt : OptDouble(median_of(std::move(known)));
}

// What all runs of a side say; several words where they differ.
OptText text_over(const Side& side, const std::function<OptText(const Run&)>& value) {
  std::set<std::string> known;
  for (const Run& run : side)
    if (const OptText one = value(run)) known.insert(*one);
  if (known.empty()) return std::nullopt;
  std::string out;
  for (const std::string& one : known) out += (out.empty() ? "" : ", ") + one;
  return out;
}

std::string throttled(const Side& side) {
  std::set<std::string> reasons;
  for (const Run& run : side)
    if (run.report.telemetry)
      for (const ThrottleRecord& row : run.report.telemetry->throttle)
        if (row.frac >= kThrottled) reasons.emplace(name_of(row.reason));
  std::string out;
  for (const std::string& one : reasons) out += (out.empty() ? "" : ", ") + one;
  return out.empty() ? "none" : out;
}

bool has_telemetry(const Side& side) {
  return std::all_of(side.begin(), side.end(), [](const Run& run) { return run.report.telemetry.has_value(); });
}

constexpr const char* kClockDiffers = "SM clock (MHz)";
constexpr const char* kHeldDownDiffers = "clock held down by";

class Machines {
 public:
  Machines(const std::vector<DiffSide>& sides, DiffComparable& out) : sides_(sides), out_(out) {}

  void text(const char* what, OptText DiffSide::*field) const {
    each(
        what, [&](const DiffSide& side) { return side.*field; },
        [](const std::string& a, const std::string& b) { return a == b; });
  }
  // Any value as text, with what makes two of them equal.
  template <class Value, class Equal>
  void each(const char* what, Value&& value, Equal&& equal) const {
    const auto first = value(sides_.front());
    bool known = first.has_value();
    for (size_t side = 1; side < sides_.size(); ++side) {
      const auto other = value(sides_[side]);
      known = known && other.has_value();
      if (!first || !other || equal(*first, *other)) continue;
      const std::string whose = sides_.size() > 2 ? fmt::format(" (side {})", side + 1) : "";
      out_.differs.push_back(fmt::format("{} {} -> {}{}", what, *first, *other, whose));
    }
    if (!known) out_.not_known.emplace_back(what);
  }

 private:
  const std::vector<DiffSide>& sides_;
  DiffComparable& out_;
};

}  // namespace

DiffSide describe_side(const Side& side) {
  DiffSide out;
  for (const Run& run : side) out.runs.push_back(run.name);
  out.device = text_over(
      side, [](const Run& run) { return run.report.device ? OptText(run.report.device->name) : std::nullopt; });
  out.driver = text_over(side, [](const Run& run) {
    const OptText own = fact(run.trace, "nvidia_driver");
    if (own) return own;
    const OptText cuda = fact(run.trace, "cuda_driver_version");
    return cuda ? OptText("CUDA " + *cuda) : std::nullopt;
  });
  out.sm_clock_mhz = median_over(side, clock_of);
  out.power_cap_w = median_over(side, power_cap_of);
  out.cpu_slow_frac = median_over(side, [](const Run& run) { return cpu_slow_frac(run.report); });
  out.cpu_waited_frac = median_over(side, [](const Run& run) { return cpu_waited_frac(run.report); });
  return out;
}

DiffComparable compare_machines(const std::vector<DiffSide>& sides, const std::vector<Side>& runs) {
  DiffComparable out;
  const Machines machines(sides, out);
  const bool cpu = std::any_of(runs.begin(), runs.end(), [](const Side& side) {
    return std::any_of(side.begin(), side.end(),
                       [](const Run& run) { return run.report.device && run.report.device->cpu; });
  });
  machines.text(cpu ? "CPU" : "GPU", &DiffSide::device);
  if (!cpu) {
    machines.text("driver", &DiffSide::driver);
    const auto rounded = [](OptDouble value) { return value ? OptDouble(std::round(*value)) : std::nullopt; };
    machines.each(
        kClockDiffers, [&](const DiffSide& side) { return rounded(side.sm_clock_mhz); },
        [](double a, double b) { return std::abs(a - b) <= kClockApart * std::max(a, b); });
    machines.each(
        "power limit (W)", [&](const DiffSide& side) { return rounded(side.power_cap_w); },
        [](double a, double b) { return a == b; });
    const bool readings = std::all_of(runs.begin(), runs.end(), has_telemetry);
    if (!readings) out.not_known.emplace_back("what held the clock down");
    for (size_t side = 1; readings && side < runs.size(); ++side)
      if (throttled(runs[0]) != throttled(runs[side]))
        out.differs.push_back(fmt::format("{}: {} -> {}{}", kHeldDownDiffers, throttled(runs[0]), throttled(runs[side]),
                                          runs.size() > 2 ? fmt::format(" (side {})", side + 1) : ""));
  }
  out.yes = out.differs.empty();
  return out;
}

std::optional<double> clock_difference(const DiffResult& result, size_t side) {
  for (const std::string& one : result.comparable.differs)
    if (!one.starts_with(kClockDiffers) && !one.starts_with(kHeldDownDiffers)) return std::nullopt;
  if (result.comparable.yes) return 0;
  const OptDouble a = result.sides.front().sm_clock_mhz, b = result.sides[side].sm_clock_mhz;
  if (!a || !b || *a <= 0 || *b <= 0) return std::nullopt;
  return std::max(*a / *b, *b / *a) - 1;
}

}  // namespace llmprof::diff
