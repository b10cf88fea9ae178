// Where libcupti may lie. The first candidate is the copy that the program itself will load (the one next to its
// PyTorch): two copies in one process would fight over the driver's one subscription.
#pragma once

#include <string>
#include <vector>

namespace llmprof::nvidia {

// Existing files, best first, each once (symbolic links resolved):
//   1. LLMPROF_CUPTI;
//   2. the Python environment: that of `program` if it is an interpreter or a script whose first line names one
//      (torchrun, vllm), else VIRTUAL_ENV, CONDA_PREFIX, else python3 and python of PATH; in it
//      lib*/python3*/{site,dist}-packages/nvidia/{cu13,cu12,cuda_cupti}/lib, then torch/lib;
//   3. LD_LIBRARY_PATH, CUDA_HOME, CUDA_PATH and /usr/local/cuda*: extras/CUPTI/lib64, lib64,
//      targets/x86_64-linux/lib; /usr/lib/x86_64-linux-gnu.
// `program` is what will be run, as a path or a name on PATH; empty for "not known".
std::vector<std::string> cupti_candidates(const std::string& program = {});

}  // namespace llmprof::nvidia
