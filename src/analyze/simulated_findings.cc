// Findings by their consequence: what the change that mends one brings is simulated, and so is what another one brings
// on top of it. What brings next to nothing then has the same cause.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "analyze/finding.h"
#include "analyze/moved_data.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// On top of another.
constexpr double kOnTopMin = 0.03;

struct Mended {
  std::string_view finding, what_if;
  bool gpu_stays = true;  // what the GPU does stays
  FindingSeverity most = FindingSeverity::kCritical;
  // The findings that this one stands before where it makes up most of their gain.
  std::array<std::string_view, 3> part_of = {};
  // Every model has some of it everywhere: a cause only where one function has most of it.
  bool spread = false;
  bool distorts = false;   // while it is there nobody knows what the others are: it comes first
  bool has_places = true;  // whether the code that it befell has anything to do with it
  bool is_part() const { return !part_of[0].empty(); }
  bool is_part_of(std::string_view id) const {
    return is_part() && std::find(part_of.begin(), part_of.end(), id) != part_of.end();
  }
};
constexpr std::string_view kSyncBound = "sync-bound";
constexpr std::string_view kDataMovement = "data-movement";
constexpr std::string_view kSmallKernels = "small-kernels-unfused";
constexpr Mended kMended[] = {
    {"graphs-made-anew", "graphs-kept"},
    {"launches-block", "returning-launches", true, FindingSeverity::kCritical, {}, false, true},
    {"cpu-contention",
     "own-cpu",
     true,
     FindingSeverity::kCritical,
     {"cpu-bound-gap", "host-preprocessing", kLaunchBound},
     false,
     false,
     false},
    {"cpu-bound-gap", "no-host-gaps", true, FindingSeverity::kCritical, {kLaunchBound}},
    {"host-preprocessing", "no-host-gaps", true, FindingSeverity::kCritical, {kLaunchBound}},
    {"graphs-in-pieces", "graph"},  // before launch-bound, whose change is the same
    {kLaunchBound, "graph"},
    {kSyncBound, "reads-at-once", false},
    {"allocator-churn", "no-allocations"},
    {"pageable-copy", "pinned-copies", false, FindingSeverity::kCritical, {"copy-bound"}},
    {"norm-unfused", "fused-norms", false, FindingSeverity::kCritical, {kSmallKernels}},
    {"layout-conversion", "channels-last", false, FindingSeverity::kCritical, {kSmallKernels}},
    {"double-precision", "single-precision", false, FindingSeverity::kCritical, {kSmallKernels}},
    {kSmallKernels, "fused", false, FindingSeverity::kCritical, {}, true},
    {"copies-one-stream", "copies-apart", false, FindingSeverity::kCritical, {"copy-bound"}},
    {"copy-bound", "no-copies", false},
    {"attention-unfused", "fused-attention", false, FindingSeverity::kCritical, {kDataMovement, kSmallKernels}},
    {"kv-cache-copy", "in-place-cache", false},
    // What takes longer because it is wide may be needed all the same.
    {"dtype-wide", "half-precision", false, FindingSeverity::kCritical, {"logits-all-tokens"}},
    {"tensor-cores-idle", "half-precision", false},
    {"logits-all-tokens", "last-logits", false},
    {"dense-experts", "routed-experts", false},
    {"padded-batch", "needed-rows", false},
    {"padded-attention", "needed-keys", false},
    {"converted-weights", "ready-weights", false},
    {"recomputation", "products-kept", false},
    {"separate-adapters", "merged-adapters", false},
    {"repeated-weight-reads", "one-pass", false},
    {"rewritten-weights", "weights-kept", false},
    {"no-kv-cache", "cached-keys", false},
    {"products-in-pieces", "joined-products", false},
    {"full-sort", "largest-only", false},
    {"gathered-weights", "weights-in-place", false},
    {"oversized-tensors", "small-tensors", false},
    {kDataMovement, "no-moves", false, FindingSeverity::kCritical, {}, true},
    {"gemm-shape-misaligned", "aligned", false},
    {"memory-bound-weights", "fp8-weights", false, FindingSeverity::kMinor},
    {"comm-bound", "no-communication", false},
    {"streams-taking-turns", "streams-apart", false},
    {"uneven-gpus", "even-gpus", false, FindingSeverity::kCritical, {}, false, false, false},
    {"rank-skew", "even-ranks", false},
};

const Mended* mends(const Finding& finding) {
  if (finding.beyond_steps) return nullptr;
  for (const Mended& one : kMended)
    if (one.finding == finding.id) return &one;
  return nullptr;
}

const StageView* stage_of(const FindingContext& finding, const Finding& one) {
  for (const StageView& stage : finding.stages)
    if (stage.timing->name == one.stage && stage.timing->device == one.device) return &stage;
  return nullptr;
}

// The figure that the stage moves once `gain_frac` of its step is gone. Where several GPUs take turns in a pass, the
// next pass may begin while this one goes on: replay knows what has to wait, the sum of their work does not.
double figure_ms(const StageView& stage, double gain_frac, bool gpu_stays) {
  const double gain_ns = gain_frac * stage.wall_ns();
  const bool alone = stage.least_gpu_ns() <= stage.busy_ns();
  return (gpu_stays && alone ? stage.bound_of_waiting(gain_ns) : stage.bound(gain_ns)).to;
}

// Of what is all over a model: the function that launches most of what a change makes less of; of moved data, all that
// mostly move it.
struct MostAt {
  std::string function;
  double frac = 0;
  double alone_frac = 0;  // the function's own part
};
std::optional<MostAt> most_at(const FindingContext& finding, const StageView& stage, const Mended& mended,
                              const Combination& change) {
  if (!mended.spread) return {};
  std::map<std::string, double> saved_ns;
  double all_ns = 0;
  for (const Simulation::Place& of : finding.simulation->places(stage.stage, change)) {
    saved_ns[python_function(finding.trace().text(of.stack))] += of.saved_ns;
    all_ns += of.saved_ns;
  }
  if (all_ns <= 0) return {};
  const auto most = std::max_element(saved_ns.begin(), saved_ns.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  double at_ns = most->second;
  if (mended.finding == kDataMovement) {
    double movers_ns = 0;
    for (const auto& [of, function] : moved_data(finding.context).functions)
      if (const auto saved = saved_ns.find(function); of == stage.stage && saved != saved_ns.end())
        movers_ns += saved->second;
    at_ns = std::max(at_ns, movers_ns);
  }
  return MostAt{most->first.substr(0, most->first.find(" (")), at_ns / all_ns, most->second / all_ns};
}

// Nobody knows whether the rest goes with what is at the place that the finding names.
void add_place(const MostAt& most, double figure, FindingGain& row) {
  row.at = most.function;
  row.at_to = figure;
  if (row.ci95) (*row.ci95)[1] = std::max((*row.ci95)[1], figure);
}

// `gpu_stays`: of all that is changed.
// `most`: of what is all over the model, where it is at one place.
void set_gain(const StageView& stage, const StageGain& gain, double before_frac, bool gpu_stays,
              std::string_view on_top_of, const std::optional<MostAt>& most, Finding& out) {
  const auto figure = [&](double frac) { return figure_ms(stage, frac, gpu_stays); };
  FindingGain row;
  row.metric = stage.consequence.metric;
  row.from = figure(before_frac);
  row.to = figure(gain.frac());
  if (gain.ci95_ms && gain.step_ms > 0) {
    row.ci95 = {figure((*gain.ci95_ms)[1] / gain.step_ms), figure((*gain.ci95_ms)[0] / gain.step_ms)};
    // Nobody knows whether code can go or only move: it may then be what takes longest.
    const double beside = figure(1 - gain.beside_ms / gain.step_ms);
    if (gain.beside_ms > gain.then_ms && beside > (*row.ci95)[1]) {
      (*row.ci95)[1] = beside;
      out.evidence.push_back(
          {"the figure if this code runs in another thread beside the step", beside, Unit::kMs, Provenance::kFormula});
    }
  }
  if (most) add_place(*most, figure(before_frac + most->alone_frac * (gain.frac() - before_frac)), row);
  row.method = "replay";
  if (on_top_of.empty()) row.full_pace_frac = gain.full_pace_frac;
  if (!on_top_of.empty()) row.on_top_of = std::string(on_top_of);
  out.gain = row;
  out.bound = GainBound{row.metric, row.from, row.to};
}

// Two thirds of it and more are at one place: the rest is half of that at most. On models that nobody had changed it
// was 0.63 at most, in programs with a cause 0.88 at least.
constexpr double kAtOnePlaceMin = 2.0 / 3;
// What one function alone brings of a step, however much others bring: on models that nobody had changed at most 0.13
// of a step that makes up most of a request.
constexpr double kPlaceBringsMin = 0.15;

// One finding of a stage whose change is simulated.
struct Simulated {
  Finding* finding = nullptr;
  const StageView* stage = nullptr;
  Combination change;
  StageGain gain;
  double rank_ms = 0;  // its gain, or that of a part of it that comes before
  FindingSeverity most = FindingSeverity::kCritical;
  std::optional<MostAt> at;  // of what is all over the model, where most of it is at one place
};

// Whether no place has so much of a change that it is a cause, where places are known.
bool is_spread(const std::optional<MostAt>& most, double gain_frac) {
  return most && most->frac < kAtOnePlaceMin && most->frac * gain_frac < kPlaceBringsMin;
}

// A change that waits within a step forbid is simulated once they are gone.
void lift_waits(const FindingContext& finding, Simulated& one) {
  if (one.gain.forbidden.empty()) return;
  const replay::WhatIf* const waits = replay::find_what_if("last-wait-only");
  Combination both = one.change;
  both.insert(both.begin(), Change{waits});
  const std::optional<StageGain> lifted = finding.simulation->gain(one.stage->stage, both);
  one.finding->forbidden_by = one.gain.forbidden;
  if (!lifted || !lifted->forbidden.empty()) return;
  one.change = both;
  one.gain = *lifted;
}

// What makes up most of another change's gain says what to change, and comes before it.
void rank(std::vector<Simulated>& all) {
  constexpr double kMostOf = 0.5;
  for (Simulated& one : all) one.rank_ms = one.gain.gain_ms;
  for (const Simulated& part : all)
    for (Simulated& whole : all)
      if (mends(*part.finding)->is_part_of(whole.finding->id) && part.gain.gain_ms >= kMostOf * whole.gain.gain_ms)
        whole.rank_ms = std::min(whole.rank_ms, part.gain.gain_ms);
}

bool possible(const Simulated& one) { return one.gain.forbidden.empty(); }

// The most first. What the program cannot do as it is comes last, what changes its answers before that, and what its
// waits forbid behind these waits.
int order_of(const Simulated& one, bool waits_found) {
  if (!possible(one)) return 3;
  if (one.most < FindingSeverity::kCritical) return 2;
  return waits_found && one.finding->forbidden_by ? 1 : 0;
}

Combination joined(const Combination& a, const Combination& b) {
  Combination out = a;
  for (const Change& one : b)
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
  return out;
}

void rate(const FindingContext& finding, const Simulated& one, double gain_frac) {
  const StageView& stage = *one.stage;
  Finding& out = *one.finding;
  const double share = stage.consequence.share(gain_frac * stage.wall_ns(), stage.wall_ns());
  out.gain_ns = finding.whole_ns(stage.stage, gain_frac * stage.wall_ns());
  out.share = order_share(stage.consequence, share, one.most);
  out.severity = std::min(one.most, severity_for(stage.consequence, share));
}

// What the program cannot do as it is, is no advice to begin with, whatever sums say that it could bring.
void rate_impossible(Simulated& one) {
  Finding& out = *one.finding;
  out.severity = std::min(out.severity, FindingSeverity::kMinor);
  out.share = order_share(one.stage->consequence, out.share, FindingSeverity::kMinor);
}

// The findings of one stage, each with what it brings on top of those before it. Returns those that are no findings of
// their own.
std::vector<const Finding*> settle_stage(const FindingContext& finding, std::vector<Simulated>& all) {
  std::vector<const Finding*> gone;
  for (Simulated& one : all) {
    lift_waits(finding, one);
    const Mended& mended = *mends(*one.finding);
    one.most = mended.most;  // a rule's own is for gains that are assumed
    one.at = most_at(finding, *one.stage, mended, one.change);
    if (!is_spread(one.at, one.gain.frac())) continue;
    one.most = std::min(one.most, FindingSeverity::kMinor);
    one.finding->evidence.push_back(
        {fmt::format("of what would go, launched by {}, more than by any other function", one.at->function),
         one.at->frac, Unit::kFrac, Provenance::kMeasured});
    one.at.reset();
  }
  const bool waits_found =
      std::any_of(all.begin(), all.end(), [](const Simulated& one) { return one.finding->id == kSyncBound; });
  rank(all);
  std::stable_sort(all.begin(), all.end(), [&](const Simulated& a, const Simulated& b) {
    const bool first_a = mends(*a.finding)->distorts, first_b = mends(*b.finding)->distorts;
    if (first_a != first_b) return first_a;
    const int of_a = order_of(a, waits_found), of_b = order_of(b, waits_found);
    if (of_a != of_b || a.rank_ms != b.rank_ms) return of_a != of_b ? of_a < of_b : a.rank_ms > b.rank_ms;
    return mends(*a.finding) < mends(*b.finding);  // of one change the finding that says more
  });
  Simulated* first = nullptr;
  Combination done;
  double done_frac = 0, last_share = 0;
  bool gpu_stays = true;
  for (Simulated& one : all) {
    if (!possible(one)) {
      rate_impossible(one);
      continue;
    }
    if (first == nullptr) {
      gpu_stays = mends(*one.finding)->gpu_stays;
      set_gain(*one.stage, one.gain, 0, gpu_stays, {}, one.at, *one.finding);
      rate(finding, one, one.gain.frac());
      first = &one;
      last_share = one.finding->share;
      done = one.change;
      done_frac = one.gain.frac();
      continue;
    }
    const Combination together = joined(done, one.change);
    const std::optional<StageGain> gain = finding.simulation->gain(one.stage->stage, together);
    if (!gain || gain->frac() - done_frac < kOnTopMin) {
      first->finding->symptoms.push_back(one.finding->title);
      gone.push_back(one.finding);
      continue;
    }
    gpu_stays = gpu_stays && mends(*one.finding)->gpu_stays;
    set_gain(*one.stage, *gain, done_frac, gpu_stays, first->finding->id, one.at, *one.finding);
    rate(finding, one, gain->frac() - done_frac);
    // Not before what it is on top of.
    one.finding->severity = std::min(one.finding->severity, first->finding->severity);
    one.finding->share = std::min(one.finding->share, std::nextafter(last_share, 0.0));
    last_share = one.finding->share;
    done = together;
    done_frac = gain->frac();
  }
  return gone;
}

// Which code launches what a change makes less of: at most three places, none of them with less than a tenth of what
// the first has.
void add_launching_code(const FindingContext& finding, const Simulated& one) {
  constexpr size_t kPlacesMost = 3;
  constexpr double kPartMin = 0.1;
  const auto is_python = [](const FindingPlace& place) { return place.kind != "kernel"; };
  if (!mends(*one.finding)->has_places) return;
  if (std::any_of(one.finding->where.begin(), one.finding->where.end(), is_python)) return;
  std::vector<PlaceAmounts> places;
  for (const Simulation::Place& of : finding.simulation->places(one.stage->stage, one.change))
    add_to_place(finding.trace().text(of.stack), of.saved_ns, of.launches, places);
  std::stable_sort(places.begin(), places.end(),
                   [](const PlaceAmounts& a, const PlaceAmounts& b) { return a.ns > b.ns; });
  const double steps = std::max(1.0, static_cast<double>(one.stage->group->steps.size()));
  for (size_t i = 0; i < std::min(kPlacesMost, places.size()); ++i)
    if (places[i].ns >= kPartMin * places[0].ns)
      one.finding->where.push_back({"python", places[i].place, places[i].times / steps});
}

// Where no change by itself brings much, but several do together, that is the answer: of the stages that make up most
// of a request.
void find_no_single_cause(const FindingContext& finding, std::vector<Finding>& found) {
  constexpr double kRequestPartMin = 0.5, kSingleMost = 0.10, kEachMin = 0.01, kPartMost = 0.6;
  for (const StageView& stage : finding.stages) {
    if (finding.simulation == nullptr || stage.consequence.of_request < kRequestPartMin) continue;
    const bool single = std::any_of(found.begin(), found.end(), [&](const Finding& one) {
      return one.stage == stage.timing->name && one.device == stage.timing->device && one.gain &&
             one.gain->method == "replay" && one.severity >= FindingSeverity::kMajor;
    });
    if (single) continue;
    struct One {
      std::string_view id;
      double frac;
      bool spread;
    };
    std::vector<One> ones;
    Combination all;
    for (const Mended& mended : kMended) {
      if (mended.most < FindingSeverity::kCritical) continue;  // it changes what the program computes
      // Counted with the whole, but for host code, which stays where launches become a graph.
      if (mended.is_part() && !mended.gpu_stays) continue;
      const Combination change = combination_of({mended.what_if});
      const std::optional<StageGain> gain = finding.simulation->gain(stage.stage, change);
      if (!gain || !gain->forbidden.empty() || gain->frac() < kEachMin || joined(all, change).size() == all.size())
        continue;
      ones.push_back({mended.what_if, gain->frac(), is_spread(most_at(finding, stage, mended, change), gain->frac())});
      all = joined(all, change);
    }
    const std::optional<StageGain> together =
        ones.size() > 1 ? finding.simulation->gain(stage.stage, all) : std::nullopt;
    if (!together || together->frac() < kGainMin) continue;
    std::stable_sort(ones.begin(), ones.end(), [](const One& a, const One& b) { return a.frac > b.frac; });
    // What is all over the model is many small things itself.
    const bool single_one =
        !ones.front().spread && (ones.front().frac >= kSingleMost || ones.front().frac > kPartMost * together->frac());
    if (single_one) continue;
    Finding& out = finding.add(
        "no-single-cause", &stage,
        fmt::format("{}no single cause: the most that one change brings is {}{}, {} of them together {}", stage.label(),
                    format_percent(ones.front().frac), ones.front().spread ? ", all over the model" : "", ones.size(),
                    format_percent(together->frac())),
        together->frac() * stage.wall_ns());
    for (const One& one : ones)
      out.evidence.push_back({std::string(one.id) + " alone", one.frac, Unit::kFrac, Provenance::kFormula});
    out.advice = {"Look at the details (--full): each of these is small, and what takes the time is the work itself."};
    set_gain(stage, *together, 0, false, {}, {}, out);
    // It says what is to be gained of the stage, so it is not behind less in another one.
    out.share = std::max(out.share, stage.consequence.share(together->frac() * stage.wall_ns(), stage.wall_ns()) *
                                        stage.consequence.of_request);
    // Before each of its parts.
    for (const Finding& part : found)
      if (&part != &out && part.stage == out.stage && part.device == out.device && part.gain &&
          part.gain->method == "replay" && part.severity <= out.severity && part.share >= out.share)
        out.share = std::nextafter(part.share, 2.0);
  }
}

// Times of the host are those of Python slowed down where it calls something for each line: that comes before what they
// are the reason for.
void put_tracers_first(std::vector<Finding>& found) {
  constexpr std::array<std::string_view, 8> kOfHost = {"cpu-bound-gap",   "host-preprocessing", "graphs-in-pieces",
                                                       kLaunchBound,      kSyncBound,           "allocator-churn",
                                                       "no-single-cause", "cpu-contention"};
  for (Finding& tracer : found) {
    if (tracer.id != "python-traced") continue;
    for (const Finding& one : found) {
      const bool of_host = std::find(kOfHost.begin(), kOfHost.end(), one.id) != kOfHost.end();
      if (!of_host || one.stage != tracer.stage || one.device != tracer.device) continue;
      if (one.share >= tracer.share) tracer.share = std::nextafter(one.share, 2.0);
      tracer.severity = std::max(tracer.severity, one.severity);
    }
  }
}

// What a GPU waits for another one is minor where a finding of that one brings most of it: that is the cause.
void yield_to_late_gpu(std::vector<Finding>& found) {
  constexpr double kMostOf = 0.7;
  const auto gain_ms = [](const Finding& one) {
    return one.gain && one.gain->method == "replay" ? one.gain->from - one.gain->to : 0;
  };
  for (Finding& wait : found) {
    if (wait.late_device < 0) continue;
    const bool caused = std::any_of(found.begin(), found.end(), [&](const Finding& one) {
      return one.device == wait.late_device && one.stage == wait.stage && one.late_device < 0 && !one.forbidden_by &&
             gain_ms(one) >= kMostOf * gain_ms(wait);
    });
    if (caused) wait.severity = std::min(wait.severity, FindingSeverity::kMinor);
  }
}

}  // namespace

std::optional<StageGain> FindingContext::simulated(const StageView& stage,
                                                   std::initializer_list<std::string_view> what_ifs) const {
  if (simulation == nullptr || stage.whole()) return {};
  return simulation->gain(stage.stage, combination_of(what_ifs));
}

bool FindingContext::worth(const StageView& stage, std::string_view what_if, bool by_sums) const {
  const std::optional<StageGain> gain = simulated(stage, {what_if});
  if (!gain) return by_sums;
  if (gain->frac() >= kGainMin) return true;
  // What waits hide.
  const std::optional<StageGain> waits = gain->forbidden.empty() ? std::nullopt : simulated(stage, {"last-wait-only"});
  if (!waits) return false;
  const std::optional<StageGain> both = simulated(stage, {"last-wait-only", what_if});
  return both->forbidden.empty() && both->frac() - waits->frac() >= kGainMin;
}

void FindingContext::add_places(const StageView& stage, PlaceKind kind, Finding& finding, bool but_ends) const {
  constexpr size_t kPlacesMost = 3;
  std::vector<PlaceAmounts> of_kind;
  const double steps = std::max(1.0, static_cast<double>(stage.group->steps.size()));
  for (const PlaceSums& place : places[stage.stage])
    if (place.kind == kind)
      add_to_place(place.place.text(trace()), static_cast<double>(place.host_ns),
                   static_cast<double>(place.count) / steps, of_kind);
  if (but_ends) {
    // The wait for all of a step's work is the longest, and there once.
    if (of_kind.size() > 1 && of_kind.front().times <= 1.05) of_kind.erase(of_kind.begin());
    std::stable_sort(of_kind.begin(), of_kind.end(),
                     [](const PlaceAmounts& a, const PlaceAmounts& b) { return a.times > b.times; });
  }
  for (size_t i = 0; i < std::min(kPlacesMost, of_kind.size()); ++i)
    finding.where.push_back({"python", of_kind[i].place, of_kind[i].times});
}

void simulate_findings(const FindingContext& finding, std::vector<Finding>& found) {
  std::map<uint32_t, std::vector<Simulated>> stages;
  for (Finding& one : found) {
    const Mended* const mended = mends(one);
    const StageView* const stage = mended != nullptr ? stage_of(finding, one) : nullptr;
    if (stage == nullptr || finding.simulation == nullptr) continue;
    const Combination change = combination_of({mended->what_if});
    const std::optional<StageGain> gain = finding.simulation->gain(stage->stage, change);
    if (gain) stages[stage->stage].push_back({&one, stage, change, *gain, 0, FindingSeverity::kCritical, {}});
  }
  std::vector<const Finding*> gone;
  for (auto& [stage, all] : stages) {
    const std::vector<const Finding*> merged = settle_stage(finding, all);
    for (const Simulated& one : all) add_launching_code(finding, one);
    gone.insert(gone.end(), merged.begin(), merged.end());
  }
  for (Finding& one : found)
    if (!one.gain && one.bound) {
      FindingGain row;
      row.metric = one.bound->metric;
      row.from = one.bound->from;
      row.to = one.bound->to;
      row.method = "formula";
      one.gain = row;
    }
  std::vector<Finding> kept;
  for (Finding& one : found)
    if (std::find(gone.begin(), gone.end(), &one) == gone.end()) kept.push_back(std::move(one));
  found = std::move(kept);
  yield_to_late_gpu(found);
  find_no_single_cause(finding, found);
  put_tracers_first(found);
}

}  // namespace llmprof
