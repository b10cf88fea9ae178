#include "store/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "store/store.h"

namespace llmprof::store {
namespace {

bool is_subject(const RunRow& row) {
  return !row.pinned && row.state != RunState::kRunning && row.state != RunState::kDamaged;
}

RetentionStep step_of(const RunRow& row, RetentionAction action, std::string why) {
  return {row.number, row.kind, row.name, action, std::move(why), row.stored_bytes, {}};
}

int64_t bytes_of(const std::vector<RunRow>& runs) {
  int64_t sum = 0;
  for (const RunRow& row : runs) sum += row.stored_bytes;
  return sum;
}

void carry_out(const std::string& store, const Settings& settings, const std::vector<RunRow>& runs,
               std::vector<RetentionStep>& steps) {
  for (RetentionStep& step : steps)
    for (const RunRow& row : runs) {
      if (row.number != step.number) continue;
      const Status done = step.action == RetentionAction::kRemove
                              ? remove_run(store, row)
                              : compress_run(store, row, settings.compress_from_kb * 1000);
      if (!done) step.failed = done.error().what;
    }
}

}  // namespace

std::vector<RetentionStep> due_by_age(const std::vector<RunRow>& runs, const Settings& settings) {
  std::vector<RetentionStep> remove, compress;
  std::map<RunKind, int64_t> seen;
  for (const RunRow& row : runs) {
    if (!is_subject(row)) continue;
    const int64_t place = ++seen[row.kind];
    if (place > settings.keep + settings.keep_compressed)
      remove.push_back(step_of(row, RetentionAction::kRemove,
                               fmt::format("{} newer of its kind", settings.keep + settings.keep_compressed)));
    else if (place > settings.keep && row.state == RunState::kWhole && !row.compressed)
      compress.push_back(step_of(row, RetentionAction::kCompress, fmt::format("{} newer of its kind", settings.keep)));
  }
  std::reverse(remove.begin(), remove.end());  // the oldest first
  remove.insert(remove.end(), compress.rbegin(), compress.rend());
  return remove;
}

std::vector<RetentionStep> due_by_size(const std::vector<RunRow>& runs, const Settings& settings) {
  std::map<RunKind, int64_t> seen;
  std::vector<const RunRow*> may_go;
  for (const RunRow& row : runs)
    if (is_subject(row) && ++seen[row.kind] > settings.keep) may_go.push_back(&row);
  int64_t pinned = 0;
  for (const RunRow& row : runs) pinned += row.pinned ? row.stored_bytes : 0;
  int64_t total = bytes_of(runs) - pinned;
  std::vector<RetentionStep> steps;
  for (auto row = may_go.rbegin(); row != may_go.rend() && total > settings.total_bytes(); ++row) {
    steps.push_back(
        step_of(**row, RetentionAction::kRemove, fmt::format("more than {} GB in the store", settings.total_gb)));
    total -= (*row)->stored_bytes;
  }
  return steps;
}

Result<PrunedRuns> apply_retention(const std::string& store, const Settings& settings, bool dry_run) {
  PrunedRuns out;
  out.dry_run = dry_run;
  std::optional<Lock> alone;
  if (!dry_run) {
    alone = Lock::try_maintenance(store);
    if (!alone) {
      // Another process does the same now; what it leaves is done after the next run.
      LLMPROF_ASSIGN(const std::vector<RunRow> runs, list_runs(store));
      out.before_bytes = bytes_of(runs);
      out.after_bytes = out.before_bytes;
      return out;
    }
  }
  LLMPROF_ASSIGN(std::vector<RunRow> runs, list_runs(store));
  out.before_bytes = bytes_of(runs);
  out.steps = due_by_age(runs, settings);
  if (dry_run) {
    std::set<int64_t> gone;
    for (const RetentionStep& step : out.steps)
      if (step.action == RetentionAction::kRemove) gone.insert(step.number);
    std::erase_if(runs, [&](const RunRow& row) { return gone.count(row.number) != 0; });
  } else {
    carry_out(store, settings, runs, out.steps);
    LLMPROF_ASSIGN(runs, list_runs(store));
  }
  std::vector<RetentionStep> more = due_by_size(runs, settings);
  if (!dry_run) {
    carry_out(store, settings, runs, more);
    LLMPROF_ASSIGN(runs, list_runs(store));
    out.after_bytes = bytes_of(runs);
  }
  out.steps.insert(out.steps.end(), more.begin(), more.end());
  return out;
}

}  // namespace llmprof::store
