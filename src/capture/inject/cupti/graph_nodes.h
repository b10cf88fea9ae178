// Which library call each node of a CUDA graph was captured under.
#pragma once

#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// A node was created (by capture or by hand) or copied from another one when its graph was instantiated. Runs on the
// program's thread, inside the CUDA call that does it.
void graph_node_seen(const nvidia::CuptiLibrary& api, bool cloned, const cupti::ResourceData& resource);

}  // namespace llmprof::inject
