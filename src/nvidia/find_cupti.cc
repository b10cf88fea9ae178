#include "nvidia/find_cupti.h"

#include "nvidia/cupti_library.h"
#include "nvidia/find_library.h"

namespace llmprof::nvidia {

std::vector<std::string> cupti_candidates(const std::string& program) {
  LibrarySearch search;
  search.file = "libcupti.so";
  search.variable = kEnvCupti;
  search.package_folders = {"nvidia/cu[0-9]*/lib", "nvidia/cuda_cupti/lib", "torch/lib"};
  search.toolkit_folders = {"extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"};
  search.program = program;
  return find_library(search);
}

}  // namespace llmprof::nvidia
