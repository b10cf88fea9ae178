// Where the host waits for the GPU, and from which Python code, at every recording level (Trace::host_places): a step
// ends when the host has its tokens, and the code that fetches them is the same in every step of a kind.
#pragma once

#include <optional>
#include <vector>

#include "derive/step_draft.h"
#include "trace/trace.h"

namespace llmprof {

// Those of one thread, or of several (in order) that work by turns, by time.
class HostWaits {
 public:
  HostWaits(const Trace& trace, const std::vector<ThreadId>& threads);
  struct Wait {
    int64_t start_ns = 0, end_ns = 0;
    StringId stack = StringId::kEmpty;
  };
  // The last one that ends in (from_ns, to_ns], of all or from `stack` alone; null if there is none.
  const Wait* last_in(int64_t from_ns, int64_t to_ns, std::optional<StringId> stack = {}) const;
  // The first one that ends behind the time.
  const Wait* first_behind(int64_t time_ns) const;

 private:
  std::vector<Wait> waits_;  // by end
};

// The code whose waits end steps with these window ends: of nearly all of them, two at least. Nothing where they end
// otherwise.
std::optional<StringId> stack_that_ends(const HostWaits& waits, const std::vector<int64_t>& ends_ns);

// Prompts among detected steps that nothing tells from those that make tokens, because they multiply as many rows (a
// recurrent network's): fetched by other code, each with a step of the usual code behind it, and longer on the GPU.
// Call when recorded steps have their kinds.
void settle_by_waits(const Trace& trace, std::vector<StepDraft>& steps);

}  // namespace llmprof
