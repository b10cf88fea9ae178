// What calls of PM sampling answer: a value, or CUPTI's code with the call that failed, so that permissions.h can say
// what it means.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>

#include "nvidia/cupti_profiler_library.h"

namespace llmprof::samplers {

struct PmFailure {
  cupti_profiler::Code code = cupti_profiler::kUnknown;
  std::string call;  // "cuptiPmSamplingEnable"
  std::string text;  // for a person
};
template <class T>
using PmResult = tl::expected<T, PmFailure>;

inline tl::unexpected<PmFailure> pm_failure(const nvidia::CuptiProfilerLibrary& cupti, cupti_profiler::Code code,
                                            const char* call) {
  return tl::unexpected<PmFailure>(PmFailure{code, call, std::string(call) + ": " + cupti.describe(code)});
}

// One sample as CUPTI has it: values in the order of the set, times in CLOCK_REALTIME ns, nothing scaled or dropped.
using PmSink = std::function<void(int64_t start_ns, int64_t end_ns, const double* values)>;

}  // namespace llmprof::samplers
