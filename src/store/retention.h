// What the store keeps: of each kind the newest few as they are, some more compressed, and no more than so many bytes.
// Pinned runs are outside of all this: they are never touched and not counted. So are runs that go on, and damaged
// ones, of which something may still be saved by hand.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "results/runs.h"
#include "store/settings.h"

namespace llmprof::store {

// What is due by age: a pure function of the rows, newest first. Removals stand before compressions: they make room.
std::vector<RetentionStep> due_by_age(const std::vector<RunRow>& runs, const Settings& settings);
// What must go so that all runs together fit: the oldest first, never those of `keep`. `runs`: after the former.
std::vector<RetentionStep> due_by_size(const std::vector<RunRow>& runs, const Settings& settings);

// Does both. A dry run says what would be done, with runs that would be compressed at the size they have now.
Result<PrunedRuns> apply_retention(const std::string& store, const Settings& settings, bool dry_run);

}  // namespace llmprof::store
