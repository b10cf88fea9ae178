#include "drive/failure.h"

#include <algorithm>
#include <array>
#include <vector>

#include "capture/samplers/permissions.h"

namespace llmprof::drive {
namespace {

struct Sign {
  std::string_view words;
  ToolFailure failure;
};
// What the tools print, the most certain first (Nsight Compute 2020 to 2025, CUPTI's names of errors).
constexpr std::array kSigns = {
    Sign{"ERR_NVGPUCTRPERM", ToolFailure::kNoPermission},
    Sign{"INSUFFICIENT_PRIVILEGES", ToolFailure::kNoPermission},
    Sign{"driver resource was unavailable", ToolFailure::kBusy},
    Sign{"HARDWARE_BUSY", ToolFailure::kBusy},
    Sign{"MULTIPLE_SUBSCRIBERS", ToolFailure::kSecondProfiler},
    Sign{"Failed to find metric", ToolFailure::kNoMetric},
    Sign{"unrecognised option", ToolFailure::kBadOption},
    Sign{"unrecognized option", ToolFailure::kBadOption},
    Sign{"unknown option", ToolFailure::kBadOption},
    Sign{"No kernels were profiled", ToolFailure::kNoKernels},
};

FailureText as_doctor_says(int code) {
  samplers::Observations seen;
  samplers::observe_machine(seen);
  seen.counters_code = code;
  const std::vector<samplers::Explanation> found = samplers::explain(seen);
  if (found.empty()) return {};
  return {found.front().message, found.front().advice};
}

}  // namespace

ToolFailure failure_of(std::string_view output) {
  for (const Sign& sign : kSigns)
    if (output.find(sign.words) != std::string_view::npos) return sign.failure;
  return ToolFailure::kUnknown;
}

FailureText explain_failure(ToolFailure failure) {
  switch (failure) {
    case ToolFailure::kUnknown:
      return {};
    case ToolFailure::kNoPermission:
      return as_doctor_says(cupti_profiler::kInsufficientPrivileges);
    case ToolFailure::kBusy:
      return as_doctor_says(cupti_profiler::kHardwareBusy);
    case ToolFailure::kSecondProfiler:
      return {"Another tool already profiles this program (torch.profiler, Nsight Systems, cuda-gdb).",
              "run the program without its own profiler"};
    case ToolFailure::kNoMetric:
      return {"A metric is not known to this version of ncu on this GPU.",
              "name others: --metrics gpu__time_duration.sum,dram__bytes.sum (ncu --query-metrics lists them)"};
    case ToolFailure::kNoKernels:
      return {
          "No launch came that is to be profiled: the program launched fewer of these kernels than in the recording, "
          "or others.",
          "record and profile with the same inputs; or begin earlier, with the line by hand and less --launch-skip"};
    case ToolFailure::kBadOption:
      return {"This version of the tool lacks an option.",
              "install a newer one, or run the line by hand without that option"};
  }
  return {};
}

std::string last_lines(std::string_view output, size_t lines) {
  constexpr size_t kBytesMost = 300;
  std::vector<std::string_view> kept;
  while (!output.empty()) {
    const size_t end = std::min(output.find('\n'), output.size());
    std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '"' || line.starts_with("==PROF==")) continue;
    kept.push_back(line.substr(0, kBytesMost));
  }
  std::string out;
  for (size_t i = kept.size() > lines ? kept.size() - lines : 0; i < kept.size(); ++i)
    out += (out.empty() ? "" : "\n") + std::string(kept[i]);
  return out;
}

}  // namespace llmprof::drive
