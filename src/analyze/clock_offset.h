// Whether hardware counters and kernel records share a clock: the shift at which the busy time that kernels imply
// agrees best with the activity that the counters saw. Both are stamped with the GPU's timer, converted by different
// paths, so an offset of more than some microseconds would put counters into the wrong stage.
#pragma once

#include "analyze/counters.h"
#include "trace/trace.h"

namespace llmprof {

struct ClockOffset {
  double offset_us = 0;    // kernel times minus counter times of the same moment
  double correlation = 0;  // of busy and active shares at that shift, 0.5 to 1
  int64_t samples = 0;     // that were compared
};

// Searched within 500 us, to 0.1 us. Nothing where it cannot be told: fewer than 200 samples in which the GPU was
// partly busy while its kernels were recorded, no agreement anywhere, samples of other sources than PM sampling.
std::optional<ClockOffset> counter_clock_offset(const Trace& trace, int32_t device, const CounterSamples& counters);

}  // namespace llmprof
