// Collectives that several GPUs of one recording take part in meet: none ends before the last of them has begun. What a
// GPU spends in one consists of its wait for the others, which depends on them, and of the rest, which is constant.
//
// Who takes part in which is not recorded. Collectives of one name meet in the order in which each GPU ran them, if all
// GPUs of the recording that communicate were in them at one time; what a GPU ran alone meets nothing. So with groups
// of which each holds some of the GPUs, collectives stay as they were recorded. Where recordings of several ranks were
// joined, trace/rank_collectives.h says more: groups of some of the ranks meet as well.
#pragma once

#include <vector>

#include "trace/trace.h"

namespace llmprof::replay {

using Meeting = std::vector<GpuOpId>;  // one activity of each GPU, by device

std::vector<Meeting> find_meetings(const Trace& trace);

// How long an activity waited, as recorded, until the last of its meeting had begun, ns.
int64_t waited_ns(const Trace& trace, const Meeting& meeting, GpuOpId op);

}  // namespace llmprof::replay
