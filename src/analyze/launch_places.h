// Which Python code launched the GPU's work: the places of launches that were drawn at random, of all copies, and of
// the nodes of CUDA graphs (host_places, node_places).
#pragma once

#include <vector>

#include "analyze/groups.h"
#include "trace/trace.h"

namespace llmprof {

struct LaunchPlace {
  GpuOpId op = kNoRow;
  StringId stack = StringId::kEmpty;
  // Activities that it stands for: those of its group (Groups::kernels) over those of them whose place is known.
  double weight = 1;
};

// In the order of gpu_ops.
std::vector<LaunchPlace> launch_places(const Trace& trace, const Groups& groups);

}  // namespace llmprof
