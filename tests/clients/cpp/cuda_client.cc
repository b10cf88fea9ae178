// Behaves like a CUDA program as far as a profiler can see, without a GPU: loads what CUDA_INJECTION64_PATH names as
// the driver does inside cuInit, and "launches" through the fake CUPTI.
//
//   cuda_client [ACTION...]   each action in turn:
//     launch=N      N kernels of 10 us, one every 20 us on the clock
//     graph=N       captures a graph of 3 nodes and replays it N times
//     capture       cudaStreamBeginCapture
//     detached      prints how often CUPTI was taken out of the process so far
//     copy=BYTES    a pageable copy
//     stage=N       N kernels inside the range "prefill"
//     sleep=MS      lets time pass
//     profiler      a second CUPTI client records 10 kernels, as torch.profiler does
//     fork          forks; the child launches nothing and exits with 5, the parent waits for it
//     forkexec      forks; the child executes /bin/true
//     spawn=N       runs itself with launch=N
//     exit=CODE | _exit=CODE | abort | segv | kill
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "capture/abi/cupti_abi.h"
#include "fake_cupti.h"
#include "nvtx_loader.h"

namespace cupti = llmprof::cupti;

// What torch links: the second client's calls go through the global symbols.
extern "C" {
int cuptiSubscribe(void**, cupti::CallbackFunction, void*);
int cuptiUnsubscribe(void*);
int cuptiActivityEnable(uint32_t);
int cuptiActivityDisable(uint32_t);
int cuptiActivityFlushAll(uint32_t);
int cuptiActivityRegisterCallbacks(cupti::BufferRequest, cupti::BufferComplete);
int cuptiActivityGetNextRecord(uint8_t*, size_t, cupti::Activity**);
int cudaStreamBeginCapture(void*, int);
}

namespace {

int profiler_kernels = 0;

uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000U + static_cast<uint64_t>(time.tv_nsec);
}

void initialise_cuda() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  using Function = int (*)();
  if (const Function initialise = reinterpret_cast<Function>(dlsym(library, "InitializeInjection"))) initialise();
}

void launch(long count) {
  for (long i = 0; i < count; ++i) {
    fake_launch("_Z6kernelPfi", now(), 10'000, 7, 0);
    timespec pause{0, 10'000};
    nanosleep(&pause, nullptr);
  }
}

void stage(long count) {
  static client::NvtxLoader nvtx;
  static const bool attached = nvtx.attach();
  using Push = int(const char*);
  using Pop = int();
  if (attached) nvtx.core<Push>(client::nvtx::kRangePushA)("prefill");
  launch(count);
  if (attached) nvtx.core<Pop>(client::nvtx::kRangePop)();
}

void graph(long replays) {
  for (uint64_t node = 1; node <= 3; ++node) fake_graph_node(node, 0);
  for (uint64_t node = 1; node <= 3; ++node) fake_graph_node(100 + node, node);
  for (long i = 0; i < replays; ++i)
    for (uint64_t node = 101; node <= 103; ++node) fake_launch("_Z4nodePf", now(), 5'000, 7, node);
}

void requested(uint8_t** buffer, size_t* size, size_t* records) {
  *size = 65536;
  *buffer = static_cast<uint8_t*>(std::calloc(1, *size));
  *records = 0;
}

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  cupti::Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == 0)
    if (record->kind == cupti::kConcurrentKernel) ++profiler_kernels;
  std::free(buffer);
}

void ignore(void*, uint32_t, uint32_t, const void*) {}

void profiler() {
  void* subscriber = nullptr;
  std::printf("subscribe %d\n", cuptiSubscribe(&subscriber, ignore, nullptr));
  cuptiActivityRegisterCallbacks(requested, completed);
  cuptiActivityEnable(cupti::kConcurrentKernel);
  launch(10);
  cuptiActivityFlushAll(0);
  cuptiActivityDisable(cupti::kConcurrentKernel);
  cuptiUnsubscribe(subscriber);
  std::printf("profiler saw %d\n", profiler_kernels);
}

void act(const char* program, const std::string& action) {
  const size_t equal = action.find('=');
  const std::string name = action.substr(0, equal);
  const long value = equal == std::string::npos ? 0 : std::atol(action.c_str() + equal + 1);
  if (name == "launch") {
    launch(value);
  } else if (name == "stage") {
    stage(value);
  } else if (name == "graph") {
    graph(value);
  } else if (name == "capture") {
    cudaStreamBeginCapture(nullptr, 0);
  } else if (name == "detached") {
    std::printf("detached %u\n", fake_finalized());
  } else if (name == "copy") {
    fake_copy(static_cast<uint64_t>(value), now(), 1000, true);
  } else if (name == "sleep") {
    usleep(static_cast<useconds_t>(value) * 1000);
  } else if (name == "profiler") {
    profiler();
  } else if (name == "fork" || name == "forkexec") {
    const pid_t child = fork();
    if (child == 0) {
      if (name == "forkexec") execl("/bin/true", "true", static_cast<char*>(nullptr));
      std::exit(5);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  } else if (name == "spawn") {
    std::fflush(stdout);
    const std::string command = std::string(program) + " launch=" + std::to_string(value);
    std::printf("spawned %d\n", std::system(command.c_str()));
  } else if (name == "exit") {
    std::exit(static_cast<int>(value));
  } else if (name == "_exit") {
    std::fflush(stdout);
    _exit(static_cast<int>(value));
  } else if (name == "abort") {
    std::abort();
  } else if (name == "segv") {
    raise(SIGSEGV);
  } else if (name == "kill") {
    raise(SIGKILL);
  } else {
    std::fprintf(stderr, "cuda_client: no action '%s'\n", action.c_str());
    std::exit(2);
  }
}

}  // namespace

int main(int argc, char** argv) {
  initialise_cuda();
  for (int i = 1; i < argc; ++i) act(argv[0], argv[i]);
  return 0;
}
