// torch.profiler, where it is asked for (enable_cuda_sync_events), tells in records of their own which stream and event
// a call waits for or records. This puts them where other recorders have them: into api_calls.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Sets stream and event of the calls that sync_events name. An event is the correlation id of the call that recorded
// it.
void name_sync_calls(Trace& trace);

}  // namespace llmprof
