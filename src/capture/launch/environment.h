// The environment in which the target of `llmprof run` starts: the current one, plus what makes the CUDA driver, NVTX
// and the dynamic loader bring in the injection library, plus what tells that library how to record. A pure function of
// its arguments; what the user must know about comes back as notices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/spool/records.h"

namespace llmprof::launch {

struct InjectionPlan {
  std::string session_folder;  // absolute
  std::string library;         // libllmprof_inject.so, absolute
  spool::Level level = spool::Level::kDefault;
  bool preload = true;          // false where the library cannot be preloaded (musl)
  std::string cupti;            // path; empty: the injection library searches
  std::string capture_range;    // empty: everything
  int64_t steps = 0;            // 0: no limit
  bool unrecorded = true;       // unrecorded windows that measure the distortion
  double budget_percent = 2;    // by which recording may slow the run, in the mean
  bool adapt = true;            // a mode that costs too much is lowered
  std::string python_folder{};  // --torch: the folder of the hook module; empty: no operators of PyTorch
};

struct TargetEnvironment {
  std::vector<std::string> entries;  // NAME=value
  std::vector<std::string> notices;
};

// `current` as environ: ends with a null pointer.
TargetEnvironment target_environment(const char* const* current, const InjectionPlan& plan);

// For a program under another profiler, since CUPTI has one client: `current` without what a session of llmprof adds,
// its injection library in every variable that would load it included. Notices name other tools that are left.
TargetEnvironment plain_environment(const char* const* current);

// The value of NAME in a list of NAME=value, null if it is not there.
const char* environment_value(const std::vector<std::string>& entries, const std::string& name);

// The folder that the running llmprof lies in, "" if that is unknown.
std::string binary_folder();

}  // namespace llmprof::launch
