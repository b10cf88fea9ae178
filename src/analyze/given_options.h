// Options that a user gave for a recording they do not fit: another GPU, another model, counts that change nothing or
// contradict what was recorded. Numbers that follow from them are right by their formulas and wrong about the
// recording, so the report says it first.
#pragma once

#include "analyze/analysis.h"

namespace llmprof {

// After all analyses: whether an option had an effect shows in what they filled.
void check_given_options(const Context& context, const Report& report, Diagnostics& diagnostics);

}  // namespace llmprof
