// Whether a store is as its manifests say: every file of every run there, with the content that it was kept with.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "results/runs.h"

namespace llmprof::store {

// All runs, or those of `numbers`. Changes nothing.
Result<VerifiedRuns> verify_runs(const std::string& store, const std::vector<int64_t>& numbers = {});

}  // namespace llmprof::store
