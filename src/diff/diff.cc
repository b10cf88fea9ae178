#include "diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/statistics.h"
#include "diff/attribute.h"
#include "diff/match.h"
#include "diff/noise.h"
#include "diff/verdict.h"

namespace llmprof::diff {
namespace {

// Shapes of one kind that get a row: a server's prompts have thousands.
constexpr size_t kShapesMost = 12;
// Shapes of one stage of which it is said where their difference comes from.
constexpr size_t kAttributedMost = 4;
// A step that waits for the host so much is one of the host.
constexpr double kMostly = 0.5;

// Steps of both sides with the host at the pace of one run of the first.
struct AtPace {
  SideFigures a, b;
  Change change;
  HostPaceRatio pace;  // from the run of the first side to that of the other that is nearest to its median
  bool moved = false;  // in any of the runs
};

// One shape of one stage, in all runs that have it.
struct Matched {
  std::vector<std::pair<const Run*, StepGroup>> a, b;
  std::optional<AtPace> at_pace;
};

GroupsOfSide groups_of(const std::vector<std::pair<const Run*, StepGroup>>& side) {
  GroupsOfSide out;
  for (const auto& [run, group] : side) out.push_back({run, &group});
  return out;
}

std::string what_and_shape(const StepGroup& group) {
  const std::string shape = shape_text(group, group);
  return group.name + (shape.empty() ? "" : " (" + shape + ")");
}

// To the noise of the noisiest run.
void widen(SideFigures& side, const FigureOf& figure, double host_frac, bool contended) {
  const Noise noise = noise_of(figure);
  side.noise = {std::max(side.noise.p90, noise.p90), std::max(side.noise.p95, noise.p95),
                std::max(side.noise.p98, noise.p98)};
  side.unsure |= figure.unsure && host_frac > kMostly;
  side.contended |= contended;
}

// `pace_moved`: between the runs that are compared.
void widen(SideFigures& side, const Run& run, const DiffSide& of, double host_frac, bool full_pace, bool pace_moved) {
  const bool contended = !full_pace && is_contended(cpu_waited_frac(run.report));
  FigureOf figure;
  figure.host_frac = host_frac;
  figure.on_cpu = run.report.device && run.report.device->cpu;
  figure.full_pace = !pace_moved && (full_pace || at_full_pace(of.cpu_slow_frac));
  figure.unsure = contended || !side.runs.back().low;
  widen(side, figure, host_frac, contended);
}

// Compares one side with the first.
class Pair {
 public:
  Pair(const Side& a, const Side& b, const DiffSide& of_a, const DiffSide& of_b, int64_t side, Attributor& attributor,
       DiffResult& out)
      : a_(a), b_(b), of_a_(of_a), of_b_(of_b), side_(side), out_(out), attributor_(attributor) {}

  void run() {
    match();
    for (Matched& matched : matched_)
      if (is_first_of_its_stage(matched)) set_at_pace(matched);
    for (const DiffMetric metric : {DiffMetric::kTtft, DiffMetric::kTpot, DiffMetric::kRate}) add_headline(metric);
    std::set<std::pair<std::string, std::string>> tables;  // stages that have theirs
    for (const Matched& matched : matched_) {
      add_step(matched);
      add_step_at_pace(matched);
      const StepGroup& first = matched.a.front().second;
      if (!tables.emplace(first.name, std::to_string(first.device)).second) continue;
      const GroupsOfSide a = groups_of(matched.a), b = groups_of(matched.b);
      add_operations(a, b, side_, out_.operations);
      add_kernels(a, b, side_, out_.kernels);
      add_operators(a, b, side_, out_.operators);
    }
    attribute_headlines();
    say_order();
  }

 private:
  // Ranks err as often as they say only if the order of the runs is by chance.
  void say_order() {
    if (a_.size() < 2 || b_.size() < 2) return;
    const auto starts = [](const Side& side) {
      std::pair<int64_t, int64_t> out = {INT64_MAX, 0};
      for (const Run& run : side)
        out = {std::min(out.first, run.trace.base_unix_ns), std::max(out.second, run.trace.base_unix_ns)};
      return out;
    };
    const auto [first_a, last_a] = starts(a_);
    const auto [first_b, last_b] = starts(b_);
    if (first_a <= 0 || first_b <= 0 || (last_a >= first_b && last_b >= first_a)) return;
    cannot_tell(
        "Would runs in another order differ as much?",
        "all runs of one side were made before those of the other: what changed on the machine meanwhile is in it",
        "record the sides in turns");
  }

  void match() {
    std::vector<std::vector<StepGroup>> of_a, of_b;
    for (const Run& run : a_) of_a.push_back(step_groups(run));
    for (const Run& run : b_) of_b.push_back(step_groups(run));
    const GroupPairs first = match_groups(of_a.front(), of_b.front());
    std::map<std::string, size_t> shapes;
    for (const auto& [i, k] : first.pairs) {
      if (++shapes[of_a.front()[i].name] > kShapesMost) continue;
      Matched& matched = matched_.emplace_back();
      matched.a.emplace_back(&a_.front(), of_a.front()[i]);
      matched.b.emplace_back(&b_.front(), of_b.front()[k]);
      keep_common_contexts(a_.front(), matched.a.front().second, b_.front(), matched.b.front().second);
    }
    add_repeats(a_, of_a, &Matched::a);
    add_repeats(b_, of_b, &Matched::b);
    for (const auto& [name, count] : shapes)
      if (count > kShapesMost)
        cannot_tell(fmt::format("How do the other {} shapes of {} compare?", count - kShapesMost, name),
                    "only those with most time are compared", "record fewer of them");
    say_unmatched(of_a.front(), first.only_a, "first side");
    say_unmatched(of_b.front(), first.only_b, "other side");
  }

  // Groups of the other runs of a side, by those of its first run.
  void add_repeats(const Side& side, const std::vector<std::vector<StepGroup>>& groups,
                   std::vector<std::pair<const Run*, StepGroup>> Matched::*of) {
    for (size_t run = 1; run < side.size(); ++run) {
      std::vector<StepGroup> first;
      for (const Matched& matched : matched_) first.push_back((matched.*of).front().second);
      for (const auto& [i, k] : match_groups(first, groups[run]).pairs)
        (matched_[i].*of).emplace_back(&side[run], groups[run][k]);
    }
  }

  void say_unmatched(const std::vector<StepGroup>& groups, const std::vector<size_t>& places, const char* whose) {
    constexpr size_t kMost = 3;
    if (places.empty()) return;
    std::string names;
    for (size_t i = 0; i < std::min(kMost, places.size()); ++i)
      names += (i > 0 ? "; " : "") + what_and_shape(groups[places[i]]);
    if (places.size() > kMost) names += fmt::format("; and {} more", places.size() - kMost);
    cannot_tell("How do steps compare that one side alone has?", fmt::format("the {} alone has {}", whose, names),
                "compare runs of the same requests");
  }

  void cannot_tell(std::string question, std::string why, std::string advice) {
    const std::string which = out_.sides.size() > 2 ? fmt::format(" (side {})", side_ + 1) : "";
    out_.cannot_tell.push_back({std::move(question) + which, std::move(why), std::move(advice)});
  }

  bool is_first_of_its_stage(const Matched& matched) const {
    const StepGroup& mine = matched.a.front().second;
    for (const Matched& one : matched_) {
      const StepGroup& other = one.a.front().second;
      if (other.name == mine.name && other.device == mine.device) return &one == &matched;
    }
    return false;
  }

  // Steps that hardly wait for the host have no need of it.
  void set_at_pace(Matched& matched) {
    constexpr double kHostLeast = 0.10;
    const auto middle = [](const std::vector<std::pair<const Run*, StepGroup>>& runs) {
      std::vector<double> values;
      for (const auto& [run, group] : runs)
        if (const std::optional<Figure> figure = step_figure(*run, group)) values.push_back(figure->value);
      return values.empty() ? 0 : median_of(std::move(values));
    };
    const double middle_a = middle(matched.a), middle_b = middle(matched.b);
    if (middle_a <= 0 || middle_b <= 0) return;
    const GroupOfRun nearest_a = nearest_run(groups_of(matched.a), middle_a),
                     nearest_b = nearest_run(groups_of(matched.b), middle_b);
    if (std::max(host_frac(nearest_a.run->report, *nearest_a.group),
                 host_frac(nearest_b.run->report, *nearest_b.group)) < kHostLeast)
      return;
    const GroupOfRun at = replayable_run(matched.a, nearest_a);
    AtPace out;
    const auto add = [&](const std::vector<std::pair<const Run*, StepGroup>>& runs, SideFigures& side) {
      for (const auto& [run, group] : runs) {
        const std::optional<StepAtPace> step = attributor_.at_pace(at, {run, &group});
        if (!step) continue;
        side.runs.push_back({step->ms, step->low_ms, step->high_ms, step->steps});
        FigureOf figure;
        figure.host_frac = host_frac(run->report, group);
        figure.on_cpu = run->report.device && run->report.device->cpu;
        figure.at_pace = true;
        figure.unsure = !step->low_ms;
        widen(side, figure, figure.host_frac, false);
        out.moved |= step->pace.host_moved();
        if (&side == &out.b && (side.runs.size() == 1 || run == nearest_b.run)) out.pace = step->pace;
      }
      return 2 * side.runs.size() > runs.size();  // fewer say nothing of their side
    };
    if (!add(matched.a, out.a) || !add(matched.b, out.b)) return;
    out.change = compare(out.a, out.b, false);
    matched.at_pace = std::move(out);
  }

  // `nearest`, or the first that has steps that replay where that has none.
  GroupOfRun replayable_run(const std::vector<std::pair<const Run*, StepGroup>>& runs, const GroupOfRun& nearest) {
    if (attributor_.is_replayable(nearest)) return nearest;
    for (const auto& [run, group] : runs)
      if (attributor_.is_replayable({run, &group})) return {run, &group};
    return nearest;
  }

  bool pace_moved(StageKind kind) const {
    return std::any_of(matched_.begin(), matched_.end(), [kind](const Matched& one) {
      return one.at_pace && one.at_pace->moved && one.a.front().second.kind == kind;
    });
  }

  // What was measured holds the pace of the host. A few runs say of a program only what its steps at one pace say too.
  void agree_with_pace(StageKind kind, bool by_ranks, DiffStage& row) const {
    for (const Matched& matched : matched_) {
      if (by_ranks || !matched.at_pace || !matched.at_pace->moved || matched.a.front().second.kind != kind) continue;
      if (row.verdict == DiffVerdict::kAmbiguous || row.verdict == matched.at_pace->change.verdict) continue;
      row.verdict = DiffVerdict::kAmbiguous;
      row.reason = fmt::format(
          "the host of the other side took {:.2f} times as long for the same code: what the program does, the step at "
          "one pace of the host says",
          matched.at_pace->pace.code);
    }
  }

  void add_step_at_pace(const Matched& matched) {
    if (!matched.at_pace) return;
    const AtPace& of = *matched.at_pace;
    const StepGroup& first = matched.a.front().second;
    DiffStage& row = add_row(first.name, DiffMetric::kStepAtPace, of.change);
    row.shape = shape_text(first, matched.b.front().second);
    row.device = first.device;
    row.reason = fmt::format(
        "the host of the other side took {:.2f} times as long for the same code, {:.2f} times for "
        "the same calls, which is not counted; {}",
        of.pace.code, of.pace.calls, row.reason);
    const size_t of_a = of.a.runs.size(), of_b = of.b.runs.size();
    if (of_a < matched.a.size() || of_b < matched.b.size())
      row.reason += fmt::format("; of {} of {} and {} of {} runs, the others hold no such steps that can be replayed",
                                of_a, matched.a.size(), of_b, matched.b.size());
  }

  // Where the pace of the CPU differs, figures of its full pace are compared, if all runs have them.
  bool compares_full_pace(DiffMetric metric) const {
    const bool slow = (of_a_.cpu_slow_frac && !at_full_pace(of_a_.cpu_slow_frac)) ||
                      (of_b_.cpu_slow_frac && !at_full_pace(of_b_.cpu_slow_frac));
    if (!slow) return false;
    const auto has = [&](const Run& run) { return headline(run.report, metric, true).has_value(); };
    return std::all_of(a_.begin(), a_.end(), has) && std::all_of(b_.begin(), b_.end(), has);
  }

  void add_headline(DiffMetric metric) {
    const StageKind kind = metric == DiffMetric::kTtft ? StageKind::kPrefill : StageKind::kDecode;
    const bool full_pace = compares_full_pace(metric);
    const auto figures = [&](const Side& side, const DiffSide& of) {
      SideFigures out;
      for (const Run& run : side)
        if (const std::optional<Figure> figure = headline(run.report, metric, full_pace)) {
          out.runs.push_back(*figure);
          widen(out, run, of, host_frac(run, kind), full_pace, pace_moved(kind));
        }
      return out;
    };
    const SideFigures a = figures(a_, of_a_), b = figures(b_, of_b_);
    if (a.runs.empty() || b.runs.empty()) {
      const bool both = a.runs.empty() && b.runs.empty();
      if (metric == DiffMetric::kRate || (both && metric == DiffMetric::kTpot)) return;
      cannot_tell(fmt::format("How do {} compare?", metric == DiffMetric::kTtft ? "TTFT" : "TPOT"),
                  both             ? "neither side has a steady one"
                  : a.runs.empty() ? "the first side has no steady one"
                                   : "the other side has no steady one",
                  "llmprof analyze says why");
      return;
    }
    const Change change = compare(a, b, metric == DiffMetric::kRate);
    DiffStage& row = add_row(std::string(name_of(kind)), metric, change);
    row.full_pace = full_pace;
    agree_with_pace(kind, change.by_ranks, row);
    if (const std::string why = unlike(kind); !why.empty()) {
      row.verdict = DiffVerdict::kAmbiguous;
      row.reason = why;
      row.ci95.reset();  // of no change of the program
    }
    std::vector<const Matched*> of_kind;
    for (const Matched& matched : matched_)
      if (matched.a.front().second.kind == kind) of_kind.push_back(&matched);
    if (of_kind.size() == 1)
      row.shape = shape_text(of_kind.front()->a.front().second, of_kind.front()->b.front().second);
  }

  // Why headlines of this kind are of other requests: what a step runs on differs by more than a tenth in the median.
  std::string unlike(StageKind kind) const {
    constexpr double kAlike = 0.10;
    const auto middle = [kind](const Run& run, const std::vector<int64_t>& column) {
      std::vector<double> known;
      for (const StepGroup& group : step_groups(run))
        for (const StepId step : group.steps)
          if (group.kind == kind && column[step] > 0) known.push_back(static_cast<double>(column[step]));
      return known.empty() ? 0 : median_of(std::move(known));
    };
    using Column = std::vector<int64_t> Steps::*;
    for (const auto& [word, column] : {std::pair<const char*, Column>{"tokens", &Steps::new_tokens},
                                       std::pair<const char*, Column>{"sequences", &Steps::sequences}}) {
      const double of_a = middle(a_.front(), a_.front().trace.steps.*column);
      const double of_b = middle(b_.front(), b_.front().trace.steps.*column);
      if (of_a > 0 && of_b > 0 && std::abs(of_a - of_b) > kAlike * std::max(of_a, of_b))
        return fmt::format("of other requests: {:.0f} and {:.0f} {} a step in the median", of_a, of_b, word);
    }
    return {};
  }

  void add_step(const Matched& matched) {
    const auto figures = [&](const std::vector<std::pair<const Run*, StepGroup>>& runs, const DiffSide& of) {
      SideFigures out;
      for (const auto& [run, group] : runs)
        if (const std::optional<Figure> figure = step_figure(*run, group)) {
          out.runs.push_back(*figure);
          widen(out, *run, of, host_frac(run->report, group), false, pace_moved(group.kind));
        }
      return out;
    };
    const SideFigures a = figures(matched.a, of_a_), b = figures(matched.b, of_b_);
    if (a.runs.empty() || b.runs.empty()) return;
    const StepGroup& first = matched.a.front().second;
    const Change change = compare(a, b, false);
    DiffStage& row = add_row(first.name, DiffMetric::kStep, change);
    agree_with_pace(first.kind, change.by_ranks, row);
    row.shape = shape_text(first, matched.b.front().second);
    row.device = first.device;
    const bool decided = row.verdict == DiffVerdict::kFaster || row.verdict == DiffVerdict::kSlower;
    size_t& done = attributed_[first.name];
    if (done > 0 && (!decided || done >= kAttributedMost)) return;
    ++done;
    const auto [run_a, run_b] = pair_to_attribute(groups_of(matched.a), *row.a, groups_of(matched.b), *row.b);
    Attribution found = attributor_.attribute(run_a, run_b);
    take(row, found);
    if (!found.why_not.empty()) say_why_not(first.name, found);
    if (is_most_of_its_kind(matched)) attributions_.emplace_back(first.kind, std::move(found));
  }

  // Once for each reason.
  void say_why_not(const std::string& stage, const Attribution& found) {
    for (const CannotTell& row : out_.cannot_tell)
      if (row.why == found.why_not) return;
    cannot_tell(fmt::format("Where does the difference of {} come from?", stage), found.why_not, found.advice);
  }

  // A headline is of all steps of its kind: what others do says nothing of it.
  bool is_most_of_its_kind(const Matched& matched) const {
    const auto is_most = [](const std::pair<const Run*, StepGroup>& of) {
      int64_t all_ns = 0;
      for (const StepGroup& group : step_groups(*of.first))
        if (group.kind == of.second.kind && group.device == of.second.device) all_ns += group.total_ns;
      return of.second.total_ns * 2 >= all_ns;
    };
    return is_most(matched.a.front()) && is_most(matched.b.front());
  }

  static void take(DiffStage& row, const Attribution& found) {
    if (!found.known()) return;
    row.attribution = found.shares;
    row.attributed_by = found.by_replay ? "replay" : "sums";
    double sum = 0;
    for (const DiffShare& share : found.shares) sum += share.delta_ms;
    row.unattributed_ms = *row.b - *row.a - sum;
  }

  // TTFT is a prompt's, TPOT a decode step's: the same parts, and what they leave.
  void attribute_headlines() {
    for (DiffStage& row : out_.stages) {
      if (row.side != side_ || (row.metric != DiffMetric::kTtft && row.metric != DiffMetric::kTpot)) continue;
      const StageKind kind = row.metric == DiffMetric::kTtft ? StageKind::kPrefill : StageKind::kDecode;
      for (const auto& [of, found] : attributions_) {
        if (of != kind || !found.known()) continue;
        take(row, found);
        break;
      }
    }
  }

  DiffStage& add_row(std::string kind, DiffMetric metric, const Change& change) {
    DiffStage& row = out_.stages.emplace_back();
    row.side = side_;
    row.kind = std::move(kind);
    row.metric = metric;
    row.a = change.a;
    row.b = change.b;
    row.a_samples = change.a_samples;
    row.b_samples = change.b_samples;
    row.change_frac = change.frac;
    if (change.has_interval) {
      row.ci95 = std::array<double, 2>{change.low, change.high};
      row.noise_frac = change.noise_frac;
    }
    row.noise_source = change.by_repeats ? "repeats" : "model";
    row.verdict = change.verdict;
    row.reason = change.reason;
    return row;
  }

  const Side& a_;
  const Side& b_;
  const DiffSide& of_a_;
  const DiffSide& of_b_;
  const int64_t side_;
  DiffResult& out_;
  std::vector<Matched> matched_;
  std::vector<std::pair<StageKind, Attribution>> attributions_;
  std::map<std::string, size_t> attributed_;  // by stage: how many shapes
  Attributor& attributor_;
};

}  // namespace

DiffResult diff(const std::vector<Side>& sides, const std::vector<Gate>& gates) {
  DiffResult out;
  out.tool_version = LLMPROF_VERSION;
  for (const Side& side : sides) out.sides.push_back(describe_side(side));
  out.comparable = compare_machines(out.sides, sides);
  Attributor attributor;
  for (size_t side = 1; side < sides.size(); ++side)
    Pair(sides[0], sides[side], out.sides[0], out.sides[side], static_cast<int64_t>(side), attributor, out).run();
  if (out.stages.empty())
    out.cannot_tell.insert(out.cannot_tell.begin(),
                           {"Which side is faster?", "no stage of the first side is in another one with the same shape",
                            "compare runs of the same program on the same requests"});
  out.gates = judge(gates, out);
  return out;
}

}  // namespace llmprof::diff
