// What the injection library costs the watched program: nanoseconds for an NVTX push and pop, and for a hooked GEMM
// call, where the library does nothing but the call. The program runs itself without the library, with it loaded but no
// session, and watched at the level light.
//
//   hook_cost [--library PATH] [--rounds N]
//
// Each figure is the smallest mean of the rounds (20): what the code costs when nothing disturbs it. `extra` is what
// the watched program pays beyond the clock readings that a range cannot do without.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "nvtx_loader.h"

extern "C" int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                            const void*, void*, int, int, int, int);
extern "C" int cublasSgemm_v2(void*, int, int, int, int, int, const void*, const void*, int, const void*, int,
                              const void*, void*, int);

namespace {

constexpr int kCalls = 20000;

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

template <typename Body>
double smallest_ns(int rounds, Body body) {
  double smallest = 1e30;
  for (int round = 0; round < rounds; ++round) {
    int64_t start = now_ns();
    for (int i = 0; i < kCalls; ++i) body(i);
    smallest = std::min(smallest, static_cast<double>(now_ns() - start) / kCalls);
  }
  return smallest;
}

// The measuring process: one line of figures.
int measure(int rounds) {
  client::NvtxLoader loader;
  bool attached = loader.attach();
  double range = 0, range_texts = 0, deep = 0;
  if (attached) {
    auto* push = loader.core<int(const char*)>(client::nvtx::kRangePushA);
    auto* pop = loader.core<int()>(client::nvtx::kRangePop);
    range = smallest_ns(rounds, [=](int) {
      push("model.layers.17.self_attn");
      pop();
    });
    std::vector<std::string> texts;
    for (int i = 0; i < 200; ++i) texts.push_back("model.layers." + std::to_string(i) + ".mlp");
    range_texts = smallest_ns(rounds, [&](int i) {
      push(texts[static_cast<size_t>(i) % texts.size()].c_str());
      pop();
    });
    for (int i = 0; i < 10; ++i) push("outer");
    deep = smallest_ns(rounds, [=](int) {
      push("model.layers.17.self_attn");
      pop();
    });
    for (int i = 0; i < 10; ++i) pop();
  }
  double gemm = smallest_ns(rounds, [](int i) {
    cublasGemmEx(nullptr, 1, 0, 4096, i % 50, 4096, nullptr, nullptr, 14, 1, nullptr, 14, 1, nullptr, nullptr, 14, 1,
                 68, 0);
  });
  double sgemm = smallest_ns(rounds, [](int i) {
    cublasSgemm_v2(nullptr, 0, 0, 4096, i % 50, 4096, nullptr, nullptr, 1, nullptr, 1, nullptr, nullptr, 1);
  });
  double clock = smallest_ns(rounds, [](int) { now_ns(); });
  printf("%.1f %.1f %.1f %.1f %.1f %.1f\n", range, range_texts, deep, gemm, sgemm, clock);
  return 0;
}

struct Figures {
  double range = 0, range_texts = 0, deep = 0, gemm = 0, sgemm = 0, clock = 0;
};

bool run_measurement(const std::string& environment, int rounds, Figures& figures) {
  std::string command =
      "env " + environment + " /proc/" + std::to_string(getpid()) + "/exe --measure " + std::to_string(rounds);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  int read = fscanf(pipe, "%lf %lf %lf %lf %lf %lf", &figures.range, &figures.range_texts, &figures.deep, &figures.gemm,
                    &figures.sgemm, &figures.clock);
  return pclose(pipe) == 0 && read == 6;
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  int rounds = 20;
  std::error_code error;
  std::string library =
      (fs::read_symlink("/proc/self/exe", error).parent_path() / "../lib/libllmprof_inject.so").string();
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--measure") == 0) return measure(atoi(argv[i + 1]));
    if (strcmp(argv[i], "--library") == 0) library = argv[i + 1];
    if (strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, atoi(argv[i + 1]));
  }
  if (access(library.c_str(), R_OK) != 0) {
    fprintf(stderr, "hook_cost: no library at %s: build llmprof_inject or name it with --library\n", library.c_str());
    return 2;
  }
  std::string folder = (fs::temp_directory_path(error) / "hook_cost_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr || mkdir((folder + "/spool").c_str(), 0755) != 0) {
    perror("hook_cost: no session folder");
    return 2;
  }
  const std::string preload = "LD_PRELOAD=" + library + " NVTX_INJECTION64_PATH=" + library;
  const std::string session = preload + " LLMPROF_SESSION=" + folder;
  struct Row {
    const char* name;
    std::string environment;
  } rows[] = {{"without the library", ""},
              {"loaded, not watched", preload},
              {"watched, light", session + " LLMPROF_LEVEL=light"}};
  printf("ns a call             push+pop  200 texts  10 deep  GemmEx  Sgemm  clock\n");
  Figures bare, watched;
  for (const Row& row : rows) {
    Figures figures;
    if (!run_measurement(row.environment, rounds, figures)) {
      fprintf(stderr, "hook_cost: the measuring process failed (%s)\n", row.name);
      return 1;
    }
    if (&row == &rows[0]) bare = figures;
    watched = figures;
    printf("%-21s %8.1f %10.1f %8.1f %7.1f %6.1f %6.1f\n", row.name, figures.range, figures.range_texts, figures.deep,
           figures.gemm, figures.sgemm, figures.clock);
  }
  printf("extra: %.1f ns a range beyond two clock readings, %.1f ns a GEMM beyond two\n",
         watched.range - 2 * watched.clock, watched.gemm - bare.gemm - 2 * watched.clock);
  fs::remove_all(folder, error);
  return 0;
}
