// Where the host waits for the GPU, and from which Python code, at every recording level (Trace::host_places): a step
// ends when the host has its tokens, and the code that fetches them is the same in every step of a kind.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "derive/step_draft.h"
#include "trace/trace.h"

namespace llmprof {

// Those of one thread, or of several (in order) that work by turns, by time.
class HostWaits {
 public:
  HostWaits(const Trace& trace, const std::vector<ThreadId>& threads);
  // The window of a step ends with the driver's call, the wait with the runtime's around it, or with the one behind a
  // copy that has waited: 12 to 30 us later on a slow host.
  static constexpr int64_t kBehindNs = 100'000;
  struct Wait {
    int64_t start_ns = 0, end_ns = 0;
    StringId stack = StringId::kEmpty;
  };
  // The last one that ends in (from_ns, to_ns], of all or from these stacks (in order) alone; null if there is none.
  const Wait* last_in(int64_t from_ns, int64_t to_ns, std::span<const StringId> stacks = {}) const;
  std::vector<StringId> stacks() const;  // that waits come from, in order
  // The first one that ends behind the time.
  const Wait* first_behind(int64_t time_ns) const;

 private:
  std::vector<Wait> waits_;  // by end
};

// The code whose waits end steps with these windows: of nearly all of them, two at least. Where it is called from
// several lines, all stacks that have its innermost frames in common, two at the least: once in nearly every step, and
// at its end. In order; empty where steps end otherwise. The first step may be a warm-up, which other code ends.
std::vector<StringId> stacks_that_end(const Trace& trace, const HostWaits& waits, const std::vector<TimeSpan>& steps);

// Prompts among detected steps that nothing tells from those that make tokens, because they multiply as many rows (a
// recurrent network's): fetched by other code, each with a step of the usual code behind it, and longer on the GPU.
// Call when recorded steps have their kinds.
void settle_by_waits(const Trace& trace, std::vector<StepDraft>& steps);

}  // namespace llmprof
