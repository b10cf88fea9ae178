// A program that uses NVTX and nothing else:  range_client [--ranges N] [--until FILE] [--fork]
//   --ranges N    pushes and pops N ranges called "step", then goes on (1000)
//   --until FILE  then pushes one range every millisecond until FILE exists
//   --fork        forks first; the child pushes one range and ends by _exit(3), which the parent reports
// It prints how many ranges it pushed, and "without NVTX" if no tool took them.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "clients/cpp/nvtx_loader.h"

namespace {

namespace nvtx = llmprof::nvtx;

using Push = int(const char*);
using Pop = int();

}  // namespace

int main(int argc, char** argv) {
  long ranges = 1000;
  const char* until = nullptr;
  bool forks = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ranges") == 0 && i + 1 < argc) ranges = std::atol(argv[++i]);
    if (std::strcmp(argv[i], "--until") == 0 && i + 1 < argc) until = argv[++i];
    if (std::strcmp(argv[i], "--fork") == 0) forks = true;
  }
  static client::NvtxLoader loader;
  const bool attached = loader.attach();
  Push* push = loader.core<Push>(nvtx::kRangePushA);
  Pop* pop = loader.core<Pop>(nvtx::kRangePop);
  long pushed = 0;
  const auto step = [&] {
    if (push != nullptr) push("step");
    if (pop != nullptr) pop();
    ++pushed;
  };
  if (forks) {
    const pid_t child = fork();
    if (child == 0) {
      step();
      _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  for (long i = 0; i < ranges; ++i) step();
  while (until != nullptr && access(until, F_OK) != 0) {
    step();
    usleep(1000);
  }
  std::printf("pushed %ld%s\n", pushed, attached ? "" : " without NVTX");
  return 0;
}
