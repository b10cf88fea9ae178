// First instances of a stage that ran slow because they were the first: kernels are loaded, tuned and compiled on first
// use.
#include <algorithm>

#include "analyze/groups.h"
#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr double kColdFactor = kSlowFirstFactor;
constexpr size_t kComparableMin = 3;  // with fewer there is no telling which of them is usual

}  // namespace

std::vector<double> find_cold_steps(const Trace& trace, const std::vector<StageGroup>& stages) {
  const Steps& steps = trace.steps;
  std::vector<double> extra(steps.size(), 0);
  for (const StageGroup& group : stages) {
    if (group.unattributed || group.kind == StageKind::kOther || group.missing != MissingKernels::kNone ||
        group.steps.empty())
      continue;
    const Row first = group.steps.front();
    // Prompts differ in length, so they are compared only where the length is known.
    if (group.kind == StageKind::kPrefill && steps.new_tokens[first] <= 0) continue;
    const auto alike = [&](Row s) {
      return steps.new_tokens[s] == steps.new_tokens[first] && steps.sequences[s] == steps.sequences[first];
    };
    const auto window_ns = [&](Row s) { return static_cast<double>(steps.end_ns[s] - steps.start_ns[s]); };
    std::vector<double> windows;
    for (const Row s : group.steps)
      if (alike(s)) windows.push_back(window_ns(s));
    if (windows.size() < kComparableMin) continue;
    const double median = median_of(windows);
    // A longer context than usual is a reason of its own.
    int64_t longest = -1;
    for (const Row s : group.steps)
      if (alike(s) && window_ns(s) <= kColdFactor * median) longest = std::max(longest, steps.context[s]);
    const auto is_slow = [&](Row s) {
      return alike(s) && window_ns(s) > kColdFactor * median && steps.context[s] <= longest;
    };
    std::vector<uint8_t> slow;
    for (const Row s : group.steps) slow.push_back(is_slow(s) ? 1 : 0);
    for (size_t i = 0, end = slow_beginning(slow); i < end; ++i)
      if (is_slow(group.steps[i])) extra[group.steps[i]] = window_ns(group.steps[i]) - median;
  }
  return extra;
}

}  // namespace llmprof
