// GPU time without operators because `llmprof run --torch` was not naming yet. Recording begins at any moment when a
// rare stage comes; names follow when the thread comes to its next module or function. Before a window that was planned
// they are on for 30 ms already.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "analyze/analysis.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kLateNs = 50'000'000;   // no name for longer than this has another cause
constexpr int64_t kAheadNs = 30'000'000;  // what the recorder calls kNamesAheadNs

// By row of api_calls, 1: early in a recorded window, on a thread that has named no operator there, nor shortly before.
std::vector<uint8_t> before_names(const Trace& trace) {
  std::map<int64_t, std::vector<int64_t>> windows;  // starts by process, in time order
  std::map<int64_t, RecordingLevel> levels;
  for (Row row = 0; row < trace.recorded.size(); ++row) {
    const RecordingLevel level = trace.recorded.level[row];
    const auto [before, first] = levels.try_emplace(trace.recorded.process_id[row], level);
    if (!first && before->second < RecordingLevel::kDefault && level >= RecordingLevel::kDefault)
      windows[before->first].push_back(trace.recorded.start_ns[row]);
    before->second = level;
  }
  const ApiCalls& calls = trace.api_calls;
  std::vector<uint8_t> out(calls.size(), 0);
  if (windows.empty()) return out;
  std::vector<int64_t> named_ns(trace.threads.size(), INT64_MIN);  // when the thread last began an operator
  OpId op = 0;
  for (Row call = 0; call < calls.size(); ++call) {
    const int64_t at_ns = calls.start_ns[call];
    for (; op < trace.ops.size() && trace.ops.start_ns[op] <= at_ns; ++op)
      if (trace.ops.thread[op] < named_ns.size()) named_ns[trace.ops.thread[op]] = trace.ops.start_ns[op];
    const ThreadId thread = calls.thread[call];
    if (thread >= named_ns.size()) continue;
    const std::vector<int64_t>& starts = windows[trace.threads.process_id[thread]];
    const auto after = std::upper_bound(starts.begin(), starts.end(), at_ns);
    if (after == starts.begin()) continue;
    const int64_t window_ns = *std::prev(after);
    out[call] = at_ns < window_ns + kLateNs && named_ns[thread] < window_ns - kAheadNs;
  }
  return out;
}

}  // namespace

std::string unnamed_before_names(const Trace& trace) {
  if (trace.recorded.empty() || trace.ops.empty()) return {};
  const std::vector<uint8_t> early = before_names(trace);
  const auto is_early = [&](GpuOpId gpu) {
    const Row call = gpu < trace.gpu_links.size() ? trace.gpu_links.api[gpu] : kNoRow;
    return call < early.size() && early[call] != 0;
  };
  int64_t unnamed_ns = 0, early_ns = 0, idle_ns = 0;
  for (GpuOpId gpu = 0; gpu < trace.gpu_links.size(); ++gpu) {
    if (trace.gpu_links.op[gpu] != kNoRow) continue;
    unnamed_ns += trace.gpu_ops.dur_ns[gpu];
    if (is_early(gpu)) early_ns += trace.gpu_ops.dur_ns[gpu];
  }
  if (early_ns == 0) return {};
  for (Row gap = 0; gap < trace.gaps.size(); ++gap)
    if (trace.gaps.cause[gap] != IdleCause::kNotRecorded && trace.gaps.python[gap] == kNoRow &&
        is_early(trace.gaps.next_gpu_op[gap]))
      idle_ns += trace.gaps.dur_ns[gap];
  return fmt::format(
      " Of their {}, {} were launched in the first 50 ms of a recorded window, before --torch named operators there; "
      "idle time without a function before them: {}.",
      format_ns(unnamed_ns), format_ns(early_ns), format_ns(idle_ns));
}

}  // namespace llmprof
