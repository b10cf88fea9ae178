// The driver's side of CUDA graphs, as far as the recorder asks for it: nodes and edges of a graph that a program made.
#pragma once

#include <cstdint>

extern "C" {

void* fake_graph();
// `inner`: the graph that the node is, null if it is none.
void fake_graph_has(void* graph, uint64_t node, void* inner);
// An edge with data is one that cuGraphGetEdges tells only who asks for data.
void fake_graph_follows(void* graph, uint64_t node, uint64_t after, bool with_data);

}  // extern "C"
