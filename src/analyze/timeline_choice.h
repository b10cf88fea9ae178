// Which steps a timeline opens with.
#pragma once

#include "trace/timeline_choice.h"
#include "trace/trace.h"

namespace llmprof {

// `trace` has been through derive(). Stages by the names that reports give them; the median is a step, that in the
// middle.
TimelineChoice choose_timeline(const Trace& trace);

}  // namespace llmprof
