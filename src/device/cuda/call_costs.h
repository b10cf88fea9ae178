// Times what calls of a program cost the host, and how far apart its kernels are on the GPU, in this process as it is:
// with a recorder in it or without. The difference between two such processes is what recording costs.
//
// A call costs more where the program has used the caches between two calls: the driver and CUPTI are read from memory
// again. So launches are timed with nothing between them and behind 64 KiB, 512 KiB and 2 MiB of the program's own data
// and a fitting amount of its code, which spans what was seen of C++ loops and of Python.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "device/cuda/context.h"
#include "results/call_costs.h"

namespace llmprof::device::cuda {

// launch_0k, launch_64k, launch_512k, launch_2048k: cuLaunchKernel. wait: cuStreamSynchronize where nothing is to be
// waited for. launch_wait: a kernel of about 10 us, and the wait for it. copy_in: 4 KiB to the GPU, copy_out: 4 bytes
// from it, pageable. gpu_kernel, gpu_node: from the start of a kernel of about 2 us to that of the next, queued on a
// stream and in a graph. graph_32, graph_256: cuGraphLaunch of so many kernels. gpu_graph: from the start of such a
// kernel to that of the next, where a graph of kGraphTurnNodes of them lies between two. About `seconds` for each; up
// to four times that where the host is at its full pace too seldom. A row is of samples one after the other between
// which the host kept its pace, so a turn may have several of a kind, at most 16 of each pace.
//
// Processes of one machine differ by a factor of two in this, so the recorder is to be switched within one: before each
// of `turns` turns `switch_recorder(turn)` is called. Without it (null) there is one turn. The graphs are made in the
// first turn and launched in each; where CUPTI cannot leave a process that has some (`graphs_in_turns` false), they are
// made and timed once behind all turns, after `switch_recorder(-1)`.
using SwitchRecorder = std::function<Status(int turn)>;
Result<std::vector<CallCost>> time_calls(Context& context, double seconds, int turns = 1,
                                         const SwitchRecorder& switch_recorder = nullptr, bool graphs_in_turns = true);

// Waits again and again, so that a recorder that is to come or go does so: it goes at the end of a call that waits.
Status settle(Context& context, double seconds);

}  // namespace llmprof::device::cuda
