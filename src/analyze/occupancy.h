// Occupancy of a launch: warps that an SM holds of it at most, over the most it can hold.
#pragma once

#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

struct Occupancy {
  // By its registers, shared memory and block size: what a grid of any size would reach.
  OptDouble theoretical;
  // The same with its own grid spread evenly over the SMs: fewer blocks than fit leave an SM emptier. As the recorder
  // estimated it, or computed here in the same way. Neither is measured.
  OptDouble frac;
  std::optional<Provenance> provenance;  // of frac: recorded or computed
};
// Of a row of launch_configs on a device. Kineto writes a whole percent, and 0 both for what rounds to it and for every
// block of more than 48 KiB of shared memory, which it does not know how to count: a recorded 0 is never taken.
Occupancy occupancy_of(const Trace& trace, LaunchConfigId config, int64_t device);

}  // namespace llmprof
