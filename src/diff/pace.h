// By how much longer the host of one run takes than that of another for the same: code between CUDA calls, and calls
// that do not wait. A process gets slow memory, a core whose other half is busy, a virtual machine that others share:
// then all that it does takes longer by nearly one factor, while a program that was changed takes longer at some
// places. So the median over all places of a step, each with the weight of its time, is the pace, whatever was changed
// at places of less than half of the time.
//
// 248 pairs of equal eager runs on four H200s on three occasions: with the pace taken out, steps were within 0.049
// of each other in 90 of 100 pairs (of the logarithm), within 0.075 by a median in which each place counts the same
// (docs/results/h200_diff_2.json).
#pragma once

#include <vector>

#include "diff/align.h"
#include "diff/exchange.h"

namespace llmprof::diff {

// From the first of the two to the other.
HostPaceRatio pace_between(const Replayable& a, const Replayable& b, const std::vector<AlignedStep>& steps);

}  // namespace llmprof::diff
