// Decode steps that read the whole text again: without a cache of keys and values, each runs its products on all tokens
// so far for the sake of the newest.
#pragma once

#include "analyze/analysis.h"

namespace llmprof {

// The part of its rows that a step of such a kind needs, of 16 times as many or more; 1 for every other.
double needed_part(const Steps& steps, StepId step);

}  // namespace llmprof
