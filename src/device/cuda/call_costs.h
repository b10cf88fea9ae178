// Times what calls of a program cost the host, and how far apart its kernels are on the GPU, in this process as it is:
// with a recorder in it or without. The difference between two such processes is what recording costs.
//
// A call costs more where the program has used the caches between two calls: the driver and CUPTI are read from memory
// again. So launches are timed with nothing between them and behind 64 KiB, 512 KiB and 2 MiB of the program's own data
// and a fitting amount of its code, which spans what was seen of C++ loops and of Python.
#pragma once

#include <vector>

#include "base/result.h"
#include "device/cuda/context.h"
#include "results/call_costs.h"

namespace llmprof::device::cuda {

inline constexpr int kCostNodes[] = {32, 256};  // of the graphs

// launch_0k, launch_64k, launch_512k, launch_2048k: cuLaunchKernel. graph_32, graph_256: cuGraphLaunch of so many
// kernels. wait: cuStreamSynchronize where nothing is to be waited for. copy_in: 4 KiB to the GPU, copy_out: 4 bytes
// from it, pageable. gpu_kernel, gpu_node: from the start of an empty kernel to that of the next, queued on a stream
// and in a graph. About `seconds` for each.
Result<std::vector<CallCost>> time_calls(Context& context, double seconds);

}  // namespace llmprof::device::cuda
