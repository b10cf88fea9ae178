// What a manifest says of where a run took place: the machine, the repository, the variables that matter. Nothing of it
// can fail a command: what is not known is left empty.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results/runs.h"

namespace llmprof::store {

// The words that this process was started with.
std::vector<std::string> own_command();
// CUDA_*, NCCL_*, PYTORCH_*, TORCH_*, LLMPROF_*, OMP_NUM_THREADS and the like, sorted; none whose name speaks of a
// secret. As environ: ends with a null pointer.
std::vector<RunVariable> variables_that_matter(const char* const* environment);
// The commit and branch of the repository that `folder` is in, read from its files; whether it is dirty, by git within
// `limit_ms`.
std::optional<RunGit> git_state(const std::string& folder, int limit_ms);

// The version of NVIDIA's driver in what the kernel says of it (/proc/driver/nvidia/version).
std::optional<std::string> driver_in(std::string_view text);

// Fills command, working_folder, git, environment, host, kernel, driver, start_unix_ns and tool_version.
void describe_surroundings(RunManifest& manifest);

}  // namespace llmprof::store
