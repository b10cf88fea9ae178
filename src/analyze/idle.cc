// GPU idle time by cause and stage, and where the host was meanwhile.
#include <fmt/format.h>

#include <algorithm>

#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "derive/recorded_spans.h"

namespace llmprof {
namespace {

constexpr size_t kCauses = static_cast<size_t>(IdleCause::kCount);
constexpr size_t kSitesPerStage = 10;

struct SiteKey {
  uint32_t stage;
  IdleCause cause;
  SiteKind kind;
  StringId name;
  friend bool operator==(const SiteKey&, const SiteKey&) = default;
  uint64_t hash() const {
    return mix_bits(uint64_t{index(name)} << 32 | uint64_t{stage} << 8 | static_cast<uint64_t>(cause) << 2 |
                    static_cast<uint64_t>(kind));
  }
};
struct Sums {
  int64_t gaps = 0, total_ns = 0;
  Row last_gap = kNoRow;  // first part of the gap that was counted last
};

struct IdleSums {
  std::vector<Sums> by_cause;  // stage x cause
  FlatIndex<SiteKey> site_keys;
  std::vector<Sums> sites;
  FlatIndex<SiteKey> place_keys;  // of all causes together: their cause is kUnknown
  std::vector<Sums> places;
};

// A cause and a place come again and again in one gap, which counts once.
void add_to(Sums& sums, Row gap, int64_t dur_ns) {
  if (sums.last_gap != gap) ++sums.gaps;
  sums.last_gap = gap;
  sums.total_ns += dur_ns;
}

void add_part(FlatIndex<SiteKey>& keys, std::vector<Sums>& all, const SiteKey& key, Row gap, int64_t dur_ns) {
  const uint32_t row = keys.add(key);
  if (row == all.size()) all.emplace_back();
  add_to(all[row], gap, dur_ns);
}

IdleSums sum_gaps(const Context& context) {
  const Trace& trace = context.trace;
  const Gaps& gaps = trace.gaps;
  IdleSums out;
  out.by_cause.resize(context.groups.stages.size() * kCauses);
  Row gap = 0;  // first part of the gap that this one is of
  const auto add_site = [&](SiteKey key, int64_t dur_ns) {
    add_part(out.site_keys, out.sites, key, gap, dur_ns);
    key.cause = IdleCause::kUnknown;
    add_part(out.place_keys, out.places, key, gap, dur_ns);
  };
  for (Row g = 0; g < gaps.size(); ++g) {
    const bool same = g > 0 && gaps.device[g] == gaps.device[g - 1] && gaps.next_gpu_op[g] == gaps.next_gpu_op[g - 1] &&
                      gaps.start_ns[g] == gaps.start_ns[g - 1] + gaps.dur_ns[g - 1];
    if (!same) gap = g;
    const uint32_t stage = gaps.step[g] == kNoRow ? context.groups.unattributed(gaps.device[g])
                                                  : context.groups.stage_of_step[gaps.step[g]];
    const IdleCause cause = gaps.cause[g];
    if (cause == IdleCause::kNotRecorded) continue;  // nobody knows whether the GPU was idle
    const int64_t dur_ns = gaps.dur_ns[g];
    add_to(out.by_cause[stage * kCauses + static_cast<size_t>(cause)], gap, dur_ns);
    if (cause == IdleCause::kGraphInternal) continue;  // the host has no part in what happens inside a graph
    if (gaps.op[g] != kNoRow) add_site({stage, cause, SiteKind::kOperator, trace.ops.name[gaps.op[g]]}, dur_ns);
    if (gaps.api[g] != kNoRow) add_site({stage, cause, SiteKind::kApi, trace.api_calls.name[gaps.api[g]]}, dur_ns);
    if (gaps.python[g] != kNoRow)
      add_site({stage, cause, SiteKind::kPython, trace.python_calls.name[gaps.python[g]]}, dur_ns);
  }
  return out;
}

void name_top_sites(const Context& context, const IdleSums& sums, uint32_t stage, IdleCause cause, IdleRecord& row) {
  const Sums* best[3] = {};
  StringId names[3] = {};
  for (uint32_t i = 0; i < sums.sites.size(); ++i) {
    const SiteKey& key = sums.site_keys.key(i);
    if (key.stage != stage || key.cause != cause) continue;
    const size_t kind = static_cast<size_t>(key.kind);
    if (best[kind] != nullptr && best[kind]->total_ns >= sums.sites[i].total_ns) continue;
    best[kind] = &sums.sites[i];
    names[kind] = key.name;
  }
  const auto fill = [&](SiteKind kind, OptText& name, OptDouble& ms) {
    const Sums* site = best[static_cast<size_t>(kind)];
    if (site == nullptr) return;
    name = std::string(context.trace.text(names[static_cast<size_t>(kind)]));
    ms = Milliseconds{site->total_ns}.ms();
  };
  fill(SiteKind::kOperator, row.top_operator, row.top_operator_ms);
  fill(SiteKind::kApi, row.top_api, row.top_api_ms);
  fill(SiteKind::kPython, row.top_python, row.top_python_ms);
}

void add_sites(const Context& context, const IdleSums& sums, Report& report) {
  // Causes together: one row per stage, kind and name.
  const FlatIndex<SiteKey>& keys = sums.place_keys;
  const std::vector<Sums>& totals = sums.places;
  std::vector<uint32_t> order(totals.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const SiteKey &x = keys.key(a), &y = keys.key(b);
    if (x.stage != y.stage) return x.stage < y.stage;
    if (x.kind != y.kind) return x.kind < y.kind;
    return totals[a].total_ns != totals[b].total_ns ? totals[a].total_ns > totals[b].total_ns : a < b;
  });
  size_t in_block = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const SiteKey& key = keys.key(order[i]);
    const bool same = i > 0 && keys.key(order[i - 1]).stage == key.stage && keys.key(order[i - 1]).kind == key.kind;
    in_block = same ? in_block + 1 : 0;
    if (in_block >= kSitesPerStage) continue;
    const Sums& total = totals[order[i]];
    const StageGroup& stage = context.groups.stages[key.stage];
    IdleSiteRecord row;
    row.stage = stage_name(context.trace, context.groups, key.stage);
    row.device = stage.device;
    row.kind = key.kind;
    row.site = context.trace.text(key.name);
    row.gaps = total.gaps;
    row.total_ms.ns = total.total_ns;
    row.share = stage.idle_ns > 0 ? static_cast<double>(total.total_ns) / static_cast<double>(stage.idle_ns) : 0;
    report.idle_sites.push_back(std::move(row));
  }
}

}  // namespace

void analyze_idle(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Groups& groups = context.groups;
  const IdleSums sums = sum_gaps(context);
  int64_t unknown_ns = 0, idle_ns = 0, host_ns = 0;
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    std::vector<IdleRecord> rows;
    for (size_t c = 0; c < kCauses; ++c) {
      const Sums& cause = sums.by_cause[s * kCauses + c];
      if (cause.gaps == 0) continue;
      IdleRecord& row = rows.emplace_back();
      row.cause = idle_cause_name(static_cast<IdleCause>(c));
      row.stage = stage_name(context.trace, groups, s);
      row.device = groups.stages[s].device;
      row.gaps = cause.gaps;
      row.total_ms.ns = cause.total_ns;
      const int64_t recorded_ns = groups.stages[s].wall_ns - groups.stages[s].not_recorded_ns;
      if (recorded_ns > 0) row.wall_share = static_cast<double>(cause.total_ns) / static_cast<double>(recorded_ns);
      row.mean_us = static_cast<double>(cause.total_ns) / static_cast<double>(cause.gaps) / 1e3;
      name_top_sites(context, sums, s, static_cast<IdleCause>(c), row);
      idle_ns += cause.total_ns;
      if (static_cast<IdleCause>(c) == IdleCause::kUnknown) unknown_ns += cause.total_ns;
      if (static_cast<IdleCause>(c) == IdleCause::kHostWork) host_ns += cause.total_ns;
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const IdleRecord& a, const IdleRecord& b) { return a.total_ms.ns > b.total_ms.ns; });
    for (IdleRecord& row : rows) report.idle.push_back(std::move(row));
  }
  add_sites(context, sums, report);
  if (unknown_ns > idle_ns / 10 && idle_ns > 0)
    cannot_tell.push_back({fmt::format("Why was the {} idle in the gaps of cause `unknown`?", processor(context)),
                           "the recording does not show what the launching thread did then",
                           on_cpu(context) ? "perf record shows what its threads do between kernels"
                           : is_live_recording(context.trace)
                               ? "record with `llmprof run --mode deep`, which adds every CUDA call"
                               : "record CPU activity too (ProfilerActivity.CPU), with_stack=True for Python frames"});
  // No Python runs in the reference workload, of which recordings of a CPU are.
  if (context.trace.python_calls.empty() && host_ns > idle_ns / 20 && !on_cpu(context))
    cannot_tell.push_back(
        {"Which Python code was the host in while the GPU idled?",
         context.trace.host_places.empty()
             ? "the recording holds no Python stacks"
             : "only waits, copies, allocations and long stretches of host code have Python stacks in it",
         is_live_recording(context.trace) ? "record with `llmprof run --torch`, which adds operators"
                                          : "record with with_stack=True"});
}

}  // namespace llmprof
