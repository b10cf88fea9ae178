// Where a library of CUDA may lie. The first candidate is the copy that the user's own Python programs load (the one
// next to their PyTorch), so that what is measured here is what they run.
#pragma once

#include <string>
#include <vector>

namespace llmprof::nvidia {

struct LibrarySearch {
  std::string file;                          // without a version: "libnvrtc.so"
  std::string variable;                      // of the environment: names the file to be taken before all others
  std::vector<std::string> package_folders;  // in site-packages, as shell patterns: "nvidia/cu[0-9]*/lib"
  std::vector<std::string> toolkit_folders;  // in the toolkit: "lib64"
  std::string program;                       // what will be run, as a path or a name on PATH; empty: not known
};

// Existing files, best first, each once (symbolic links resolved):
//   1. `variable`;
//   2. the Python environment: that of `program` if it is an interpreter or a script whose first line names one
//      (torchrun, vllm), else VIRTUAL_ENV, CONDA_PREFIX, else python3 and python of PATH; in it the package folders of
//      lib*/python3*/{site,dist}-packages;
//   3. LD_LIBRARY_PATH; the toolkit folders of CUDA_HOME, CUDA_PATH and /usr/local/cuda*; /usr/lib/x86_64-linux-gnu.
// What only the loader's cache knows is not in the list: a caller tries the plain name last.
std::vector<std::string> find_library(const LibrarySearch& search);

}  // namespace llmprof::nvidia
