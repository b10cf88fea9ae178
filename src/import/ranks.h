// Joining the recordings of several ranks of one job into one Trace: devices, processes and identifiers kept apart,
// times on the clock of the first rank. Which recording belongs where is in the table ranks_joined.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace llmprof {

// Imports each path into a Trace of its own with `import`, several at a time, and joins them in the order of their
// ranks. An error says which of them are no ranks of one job, and why. The caller finishes the trace, which is sorted
// within each rank alone: finish_joined.
Result<Trace> import_ranks(const std::vector<std::string>& paths,
                           const std::function<Status(const std::string&, Trace&)>& import);

// finish_import for a trace of joined ranks, whose rows come rank by rank: that is no disorder of a file.
void finish_joined(Trace& trace);

}  // namespace llmprof
