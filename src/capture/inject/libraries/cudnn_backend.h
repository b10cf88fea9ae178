// What a program told cuDNN's backend API: descriptors, as far as they lead to the shape of an execution plan.
//
// Fed with the calls that cuDNN accepted. Nothing is computed when a plan is executed: the shape of a graph is found
// when its operations are set, and is handed on from there to heuristics, engines, configurations and plans, so that it
// does not matter which of them the program destroys in between.
//
// Any thread may call anything at any time. Bounds: the 2048 descriptors and the 16 x 512 plans with a shape that were
// created or used last, in static memory of which a program without cuDNN touches no page (3.2 MB where all are used);
// what a program destroys is forgotten.
#pragma once

#include <cstdint>

#include "capture/inject/libraries/cudnn_backend_shape.h"

namespace llmprof::inject {

void backend_created(int type, const void* descriptor);
void backend_set(const void* descriptor, int attribute, int type, int64_t count, const void* elements);
// cudnnBackendGetAttribute filled `elements`: configurations that heuristics proposed, the engine of a configuration.
void backend_got(const void* descriptor, int attribute, int type, int64_t count, const void* elements);
void backend_finalized(const void* descriptor);
void backend_destroyed(const void* descriptor);

// The shape of a finalized plan. False where it is unknown, also because the pack overrides the sizes of the graph.
bool plan_shape(const void* plan, const void* pack, CallShape& shape);

// After fork, in the child: nothing is known.
void abandon_cudnn_backend();

}  // namespace llmprof::inject
