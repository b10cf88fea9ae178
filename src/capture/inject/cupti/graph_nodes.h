// CUDA graphs as they are made: which library call each node was captured under, and which nodes follow which in an
// executable graph.
#pragma once

#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// A node was created (by capture or by hand) or copied from another one when its graph was instantiated. Runs on the
// program's thread, inside the CUDA call that does it.
void graph_node_seen(const nvidia::CuptiLibrary& api, bool cloned, const cupti::ResourceData& resource);

// Around a call that makes an executable graph, on its thread: at its end the edges of the original graph are read from
// the driver, and written as those between the copies seen meanwhile, by whose ids kernels are recorded. A graph inside
// a node is part of it. At most kGraphEdgesMax edges a process; a graph is written whole or not at all.
constexpr uint64_t kGraphEdgesMax = uint64_t{1} << 20;
void instantiation_begins();
void instantiation_ends(const cupti::CallbackData& call);

}  // namespace llmprof::inject
