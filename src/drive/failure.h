// Why a profiler gave nothing, by what it wrote, and what to do: the words of `llmprof doctor` where it knows the
// cause.
#pragma once

#include <string>
#include <string_view>

namespace llmprof::drive {

enum class ToolFailure { kUnknown, kNoPermission, kBusy, kSecondProfiler, kNoMetric, kNoKernels, kBadOption };

ToolFailure failure_of(std::string_view output);
struct FailureText {
  std::string what, advice;  // advice may be empty
};
// Looks at this machine (container, root) where the advice depends on it.
FailureText explain_failure(ToolFailure failure);

// The last lines that say something, at most `lines` of at most 300 bytes, without the table's rows and progress.
std::string last_lines(std::string_view output, size_t lines);

}  // namespace llmprof::drive
