// By how much longer the host of one run takes than that of another for the same: code between CUDA calls, and calls
// that do not wait. A process gets slow memory, a core whose other half is busy, a virtual machine that others share:
// then all that it does takes longer by nearly one factor, while a program that was changed takes longer at some
// places. So the mean of the middle half of all places of a step, each with the weight of its time, is the pace,
// whatever was changed at places of less than a quarter of the time. Each step has its own, for a host's pace changes
// within a run.
//
// With it, steps of equal eager runs on two H200s that it was not made on were within 0.021 of each other in 90 of 100
// pairs (of the logarithm), where they were within 0.61 as measured; of five other programs within 0.009 to 0.030
// (docs/results/h200_diff_3.json).
#pragma once

#include <vector>

#include "diff/align.h"
#include "diff/exchange.h"

namespace llmprof::diff {

// Of each pair of steps, from the first of the two to the other. Where some pairs have too few places in common they
// have the median of the others; where most have, none is known.
std::vector<HostPaceRatio> paces_between(const Replayable& a, const Replayable& b,
                                         const std::vector<AlignedStep>& steps);

// The median of several, code and calls each for itself; at least one.
HostPaceRatio median_of_paces(const std::vector<HostPaceRatio>& paces);

}  // namespace llmprof::diff
