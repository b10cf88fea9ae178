// What reports say of steps of warm-up (derive/steady.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// By times and causes, not by the names of the program's ranges: a request that users may have waited for.
inline bool is_found_warm_up(const Steps& steps, Row s) {
  return steps.phase[s] == StepPhase::kWarmUp && steps.warm_up_cause[s] != WarmUpCause::kNamed;
}

// Why there is no steady one among `cold`: "the only prompt is warm-up: modules were loaded in it". At least one step.
std::string no_steady(const Steps& steps, const std::vector<Row>& cold, std::string_view one);

}  // namespace llmprof
