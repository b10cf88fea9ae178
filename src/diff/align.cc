#include "diff/align.h"

#include <algorithm>
#include <map>

namespace llmprof::diff {
namespace {

constexpr int kEqualScore = 5, kRoleScore = 1;

int score_of(const Item& a, const Item& b) {
  if (a.role != b.role) return 0;
  return a.name == b.name ? kEqualScore : kRoleScore;
}

enum Move : uint8_t { kPair, kSkipA, kSkipB };

// The middle of two sequences, by dynamic programming over what is left of both (Needleman and Wunsch, 1970).
void align_middle(const std::vector<Item>& a, const std::vector<Item>& b, size_t from, size_t end_a, size_t end_b,
                  PlacePairs& out) {
  const size_t rows = end_a - from, columns = end_b - from;
  if (rows == 0 || columns == 0 || rows > kCellsMost / columns) return;
  std::vector<uint8_t> moves(rows * columns);
  std::vector<int> below(columns + 1, 0), best(columns + 1, 0);
  for (size_t i = rows; i-- > 0;) {
    best[columns] = 0;
    for (size_t k = columns; k-- > 0;) {
      const int score = score_of(a[from + i], b[from + k]);
      const int pair = score > 0 ? score + below[k + 1] : -1;
      Move move = kSkipA;
      int most = below[k];
      if (best[k + 1] > most) most = best[k + 1], move = kSkipB;
      if (pair >= most) most = pair, move = kPair;
      best[k] = most;
      moves[i * columns + k] = move;
    }
    std::swap(best, below);
  }
  for (size_t i = 0, k = 0; i < rows && k < columns;) {
    const uint8_t move = moves[i * columns + k];
    if (move == kPair) out.emplace_back(from + i, from + k);
    i += move != kSkipB ? 1 : 0;
    k += move != kSkipA ? 1 : 0;
  }
}

// What a call is for: a launch by its first activity, so that it does not matter through which function it goes.
Item item_of(const replay::Recording& recording, ApiCallId call, Names& names) {
  const Trace& trace = recording.trace();
  const ApiKind kind = recording.kind(call);
  uint64_t role = static_cast<uint64_t>(kind) + 1;
  const replay::LaunchedOps launched = recording.launched(call);
  if (kind == ApiKind::kGraphLaunch) return {role, 0};  // whatever is in it
  if (launched.empty()) return {role << 40 | names.of(trace.text(trace.api_calls.name[call])), 0};
  const GpuOpId op = launched.front();
  role = role << 8 | static_cast<uint64_t>(trace.gpu_links.category[op]);
  role = role << 8 | static_cast<uint64_t>(trace.gpu_ops.path[op]);
  return {role, names.of(trace.text(trace.gpu_ops.name[op]))};
}

Item item_of_op(const Trace& trace, GpuOpId op, Names& names) {
  return {static_cast<uint64_t>(trace.gpu_ops.kind[op]) << 16 |
              static_cast<uint64_t>(trace.gpu_links.category[op]) << 8 | static_cast<uint64_t>(trace.gpu_ops.path[op]),
          names.of(trace.text(trace.gpu_ops.name[op]))};
}

// Activities of calls, in the order of their launches.
std::vector<GpuOpId> ops_of(const replay::Recording& recording, const std::vector<ApiCallId>& calls) {
  std::vector<GpuOpId> out;
  for (const ApiCallId call : calls) {
    const replay::LaunchedOps launched = recording.launched(call);
    out.insert(out.end(), launched.begin(), launched.end());
  }
  return out;
}

bool is_kernel(const Trace& trace, GpuOpId op) { return trace.gpu_ops.kind[op] == GpuOpKind::kKernel; }

// Between two aligned activities: kernels of both sides stand for each other, the rest is of one side alone.
void take_gap(const Trace& trace_a, std::span<const GpuOpId> a, const Trace& trace_b, std::span<const GpuOpId> b,
              AlignedStep& out) {
  Replaced replaced;
  for (const GpuOpId op : a) (is_kernel(trace_a, op) ? replaced.a : out.only_a).push_back(op);
  for (const GpuOpId op : b) (is_kernel(trace_b, op) ? replaced.b : out.only_b).push_back(op);
  if (!replaced.a.empty() && !replaced.b.empty()) return out.replaced.push_back(std::move(replaced));
  out.only_a.insert(out.only_a.end(), replaced.a.begin(), replaced.a.end());
  out.only_b.insert(out.only_b.end(), replaced.b.begin(), replaced.b.end());
}

// Kernels of both sides that are left, in whatever place: those of one category stand for each other, one by one where
// there are as many. (A conversion before attention instead of behind it is in the other's place in the order.)
void pair_left_kernels(const Trace& trace_a, const Trace& trace_b, AlignedStep& out) {
  std::map<Category, Replaced> left;
  const auto take = [&](const Trace& trace, std::vector<GpuOpId>& ops, std::vector<GpuOpId> Replaced::*side) {
    for (const GpuOpId op : ops)
      if (is_kernel(trace, op)) (left[trace.gpu_links.category[op]].*side).push_back(op);
    std::erase_if(ops, [&](GpuOpId op) { return is_kernel(trace, op); });
  };
  take(trace_a, out.only_a, &Replaced::a);
  take(trace_b, out.only_b, &Replaced::b);
  for (auto& [category, group] : left) {
    if (group.a.empty() || group.b.empty()) {
      out.only_a.insert(out.only_a.end(), group.a.begin(), group.a.end());
      out.only_b.insert(out.only_b.end(), group.b.begin(), group.b.end());
    } else if (group.a.size() != group.b.size()) {
      out.replaced.push_back(std::move(group));
    } else {
      for (size_t i = 0; i < group.a.size(); ++i) {
        const bool same =
            trace_a.text(trace_a.gpu_ops.name[group.a[i]]) == trace_b.text(trace_b.gpu_ops.name[group.b[i]]);
        out.ops.push_back({group.a[i], group.b[i], same});
      }
    }
  }
}

}  // namespace

PlacePairs align_items(const std::vector<Item>& a, const std::vector<Item>& b) {
  PlacePairs out;
  size_t from = 0, end_a = a.size(), end_b = b.size();
  while (from < end_a && from < end_b && a[from] == b[from]) {
    out.emplace_back(from, from);
    ++from;
  }
  PlacePairs back;
  while (end_a > from && end_b > from && a[end_a - 1] == b[end_b - 1]) {
    --end_a, --end_b;
    back.emplace_back(end_a, end_b);
  }
  align_middle(a, b, from, end_a, end_b, out);
  out.insert(out.end(), back.rbegin(), back.rend());
  return out;
}

std::vector<std::vector<ApiCallId>> calls_by_step(const replay::Recording& recording) {
  const Trace& trace = recording.trace();
  // Behind the call that ends a step its thread is in none until the next one's first launch; the window of that step
  // begins with the end of the last, and such calls (allocations, say) lie in it.
  std::vector<StepId> step_of(trace.api_calls.size(), kNoRow);
  std::map<ThreadId, StepId> next;
  for (Row call = static_cast<Row>(step_of.size()); call-- > 0;) {
    const auto found = next.try_emplace(trace.api_calls.thread[call], kNoRow).first;
    if (const StepId own = recording.step_of(call); own != kNoRow) {
      step_of[call] = found->second = own;
    } else if (found->second != kNoRow && trace.api_calls.start_ns[call] >= trace.steps.start_ns[found->second]) {
      step_of[call] = found->second;
    }
  }
  std::vector<std::vector<ApiCallId>> out(trace.steps.size());
  for (ApiCallId call = 0; call < step_of.size(); ++call)
    if (step_of[call] != kNoRow) out[step_of[call]].push_back(call);
  return out;
}

AlignedStep align_steps(const replay::Recording& a, const std::vector<ApiCallId>& calls_a, const replay::Recording& b,
                        const std::vector<ApiCallId>& calls_b, Names& names) {
  AlignedStep out;
  std::vector<Item> items_a, items_b;
  for (const ApiCallId call : calls_a) items_a.push_back(item_of(a, call, names));
  for (const ApiCallId call : calls_b) items_b.push_back(item_of(b, call, names));
  size_t i = 0, k = 0;
  const auto alone = [&](size_t end_a, size_t end_b) {
    for (; i < end_a; ++i) out.calls.push_back({calls_a[i], kNoRow});
    for (; k < end_b; ++k) out.calls.push_back({kNoRow, calls_b[k]});
  };
  for (const auto& [at_a, at_b] : align_items(items_a, items_b)) {
    alone(at_a, at_b);
    out.calls.push_back({calls_a[i++], calls_b[k++]});
  }
  alone(calls_a.size(), calls_b.size());

  // Activities by themselves: a graph's nodes are those of many launches.
  const std::vector<GpuOpId> ops_a = ops_of(a, calls_a), ops_b = ops_of(b, calls_b);
  std::vector<Item> names_a, names_b;
  for (const GpuOpId op : ops_a) names_a.push_back(item_of_op(a.trace(), op, names));
  for (const GpuOpId op : ops_b) names_b.push_back(item_of_op(b.trace(), op, names));
  size_t done_a = 0, done_b = 0;
  const auto gap = [&](size_t end_a, size_t end_b) {
    take_gap(a.trace(), std::span(ops_a).subspan(done_a, end_a - done_a), b.trace(),
             std::span(ops_b).subspan(done_b, end_b - done_b), out);
  };
  for (const auto& [at_a, at_b] : align_items(names_a, names_b)) {
    gap(at_a, at_b);
    out.ops.push_back({ops_a[at_a], ops_b[at_b], names_a[at_a].name == names_b[at_b].name});
    done_a = at_a + 1, done_b = at_b + 1;
  }
  gap(ops_a.size(), ops_b.size());
  pair_left_kernels(a.trace(), b.trace(), out);
  return out;
}

}  // namespace llmprof::diff
