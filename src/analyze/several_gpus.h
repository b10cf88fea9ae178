// Steps that several GPUs share: how long the GPUs need for one at least, however early the host launches.
//
// One GPU needs the time in which it was busy. GPUs that wait for each other need more than the busiest of them: where
// one copies to another, what the other starts after the copy needs what came before it. The longest chain of such
// work, with every GPU's own work in the order in which it ran, is the least time of the step. GPUs that only meet in
// collectives need as long as the busiest of them; what one waits there for another to begin is not needed. Steps of
// GPUs between which nothing of the kind was recorded do not share anything.
#pragma once

#include <span>

#include "analyze/groups.h"
#include "trace/trace.h"

namespace llmprof {

// Changes Groups::least_gpu_ns, which holds each step's own busy time, for steps that several GPUs share.
void set_least_gpu_time(const Trace& trace, Groups& groups);

// The longest chain through GPU activities (rows of gpu_ops in time order, of any number of devices), ns. `waited_ns`:
// by activity, what it waited for other GPUs; empty where none did.
int64_t longest_chain_ns(const Trace& trace, std::span<const Row> activities, std::span<const int64_t> waited_ns = {});

}  // namespace llmprof
