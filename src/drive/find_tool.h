// Where a profiler of NVIDIA's may lie that is not on PATH.
#pragma once

#include <string>
#include <vector>

namespace llmprof::drive {

struct ToolSearch {
  std::string name;                   // "ncu", "nsys"
  std::string path;                   // PATH
  std::vector<std::string> toolkits;  // CUDA_HOME, CUDA_PATH
  std::string root;                   // before every other folder, for tests
};

struct FoundTool {
  std::string path;                    // empty: none
  std::vector<std::string> looked_in;  // for the error
};

// In the folders of PATH, then bin/ of the toolkits and of /usr/local/cuda*, then where the tools' own packages go,
// the newest version first.
FoundTool find_tool(const ToolSearch& search);
// With this process's environment.
FoundTool find_tool(const std::string& name);

}  // namespace llmprof::drive
