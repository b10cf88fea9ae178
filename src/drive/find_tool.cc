#include "drive/find_tool.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace llmprof::drive {
namespace {

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Newest version first: "2025.3" before "2024.10", numbers compared as such.
std::vector<std::string> matching(const std::string& pattern) {
  std::vector<std::string> out;
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::sort(out.begin(), out.end(),
            [](const std::string& a, const std::string& b) { return strverscmp(a.c_str(), b.c_str()) > 0; });
  return out;
}

}  // namespace

FoundTool find_tool(const ToolSearch& search) {
  FoundTool out;
  for (size_t from = 0; from <= search.path.size() && !search.path.empty();) {
    const size_t end = std::min(search.path.find(':', from), search.path.size());
    const std::string folder = search.path.substr(from, end - from);
    const std::string path = (folder.empty() ? "." : folder) + "/" + search.name;
    if (is_program(path)) return {path, {}};
    from = end + 1;
  }
  out.looked_in.emplace_back("the folders of PATH");
  std::vector<std::string> patterns;
  const std::string usual = search.root + "/usr/local/cuda/bin";
  for (const std::string& toolkit : search.toolkits)
    if (!toolkit.empty() && toolkit + "/bin" != usual &&
        std::find(patterns.begin(), patterns.end(), toolkit + "/bin") == patterns.end())
      patterns.push_back(toolkit + "/bin");
  patterns.push_back(usual);
  patterns.push_back(search.root + "/usr/local/cuda-*/bin");
  if (search.name == "ncu") {
    patterns.push_back(search.root + "/opt/nvidia/nsight-compute/*");
  } else {
    patterns.push_back(search.root + "/opt/nvidia/nsight-systems/*/bin");
    patterns.push_back(search.root + "/opt/nvidia/nsight-systems-cli/*/bin");
  }
  for (const std::string& pattern : patterns) {
    for (const std::string& folder : matching(pattern))
      if (is_program(folder + "/" + search.name)) return {folder + "/" + search.name, {}};
    out.looked_in.push_back(pattern);
  }
  return out;
}

FoundTool find_tool(const std::string& name) {
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::string(value != nullptr ? value : "");
  };
  return find_tool({name, variable("PATH"), {variable("CUDA_HOME"), variable("CUDA_PATH")}, {}});
}

}  // namespace llmprof::drive
