#include "capture/samplers/find_cupti.h"

#include "base/find_library.h"
#include "capture/session/control.h"

namespace llmprof::samplers {

std::vector<std::string> cupti_candidates(const std::string& program) {
  LibrarySearch search;
  search.file = "libcupti.so";
  search.variable = session::kEnvCupti;
  search.package_folders = {"nvidia/cu[0-9]*/lib", "nvidia/cuda_cupti/lib", "torch/lib"};
  search.toolkit_folders = {"extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"};
  search.program = program;
  return find_library(search);
}

}  // namespace llmprof::samplers
