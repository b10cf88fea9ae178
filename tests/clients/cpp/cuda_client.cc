// Behaves like a CUDA program as far as a profiler can see, without a GPU: loads what CUDA_INJECTION64_PATH names as
// the driver does inside cuInit, and "launches" through the fake CUPTI.
//
//   cuda_client [ACTION...]   each action in turn:
//     launch=N      N kernels of 10 us, one every 20 us on the clock
//     graph=N       captures a graph of 3 nodes and replays it N times
//     make=N        makes N executable graphs, which have the next numbers from 1 on
//     replays=N     N ranges "decode" of 5 ms, in each a graph of 3 nodes launched and waited for; exits with 3 where
//     that fails
//     both_replay=N the same, while another thread launches a graph all the time
//     copy_replays=N    the same, with a copy that does not wait behind each launch
//     driver_replays=N  the same by a pointer to the driver's function, past the runtime
//     captures=N    the same, each with a capture before it
//     order=N       N times: two streams, events between them, waits for one; then one stream is destroyed and its
//     handle
//                   used again; prints how often CUPTI was asked for the id of a stream
//     edges         makes a graph with a fork, a join and a graph in a node, and instantiates it twice
//     chain=N       makes a graph of N nodes in a row, and instantiates it
//     capture       cudaStreamBeginCapture
//     capture_ends  cudaStreamEndCapture
//     detached      prints how often CUPTI was taken out of the process so far
//     copy=BYTES    a pageable copy
//     driver_copy=BYTES  a copy by the driver, as programs make it that have no runtime
//     stage=N       N kernels inside the range "prefill"
//     ordered_stage=N  order=N inside the range "prefill"
//     steps=N       N ranges "decode 1", "decode 2" ... of 5 ms and 10 kernels each
//     waited_steps=N  the same, each of which waits for a stream at its end
//     waited_gemms=N  N times 4 products of cuBLAS and 5 ms without a range, then a wait
//     cublas        opens cuBLAS privately, as Python does; as the first action, before CUDA starts
//     own           gives cuBLAS a log callback of the program's own
//     gemm=N        N products of cuBLAS: each a kernel of its own, the reduction after it, and one that is not its own
//     matmul=N      N products of cuBLASLt
//     threads=N     N threads that end after a product each
//     sgemv=N       N products of cuBLAS that it does not run through cuBLASLt
//     shaped_graph  captures a graph: a product's node and one after it
//     sleep=MS      lets time pass
//     running=0|1   a kernel runs from here on: CUPTI keeps the buffer that it is in, unless it is forced
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

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fake_cupti.h"
#include "fake_graphs.h"
#include "nvidia/cupti_abi.h"
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
int cuptiActivityRegisterTimestampCallback(cupti::TimestampFunction);
int cuptiActivityGetNextRecord(uint8_t*, size_t, cupti::Activity**);
int cudaStreamBeginCapture(void*, int);
int cudaGraphLaunch(void*, void*);
int cudaGraphInstantiate(void**, void*, unsigned long long);
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

// As many milliseconds at least in which the GPU has always something to do, however late this process is woken.
void busy(long milliseconds) {
  for (long i = 0; i < milliseconds; ++i) {
    fake_launch("_Z4gemmPf", now(), 10'000'000, 7, 0);
    usleep(950);
  }
}

template <class Work>
void in_range(const char* name, Work&& work) {
  static client::NvtxLoader nvtx;
  static const bool attached = nvtx.attach();
  using Push = int(const char*);
  using Pop = int();
  if (attached) nvtx.core<Push>(client::nvtx::kRangePushA)(name);
  work();
  if (attached) nvtx.core<Pop>(client::nvtx::kRangePop)();
}

void range(const char* name, long kernels, useconds_t then_us) {
  in_range(name, [&] {
    launch(kernels);
    if (then_us > 0) usleep(then_us);
  });
}

void stage(long count) { range("prefill", count, 0); }

void steps(long count) {
  for (long i = 1; i <= count; ++i) range(("decode " + std::to_string(i)).c_str(), 10, 5'000);
}

void waited_steps(long count) {
  for (long i = 1; i <= count; ++i)
    in_range(("decode " + std::to_string(i)).c_str(), [] {
      launch(10);
      usleep(5'000);
      fake_synchronize_stream(nullptr, false);
    });
}

void graph(long replays) {
  for (uint64_t node = 1; node <= 3; ++node) fake_graph_node(node, 0);
  for (uint64_t node = 1; node <= 3; ++node) fake_graph_node(100 + node, node);
  for (long i = 0; i < replays; ++i)
    for (uint64_t node = 101; node <= 103; ++node) fake_launch("_Z4nodePf", now(), 5'000, 7, node);
}

void launch_graph(uintptr_t number, bool by_driver = false) {
  const int error = by_driver ? fake_launch_graph(static_cast<uint32_t>(number), 201, 3, 5'000)
                              : cudaGraphLaunch(reinterpret_cast<void*>(number), nullptr);
  if (error != 0) {
    std::printf("launching the graph failed: %d\n", error);
    std::exit(3);
  }
}

void make(long count) {
  for (long i = 0; i < count; ++i) {
    void* executable = nullptr;
    cudaGraphInstantiate(&executable, fake_graph(), 0);
  }
}

void replays(long times, bool captured_anew, bool by_driver = false, bool copies = false) {
  for (long i = 0; i < times; ++i)
    in_range("decode", [captured_anew, by_driver, copies] {
      if (captured_anew) {
        cudaStreamBeginCapture(nullptr, 0);
        fake_capture(false);
      }
      launch_graph(1, by_driver);
      usleep(5'000);
      if (copies) fake_copy(64, fake_now(), 1'000, true);
      fake_synchronize_stream(nullptr, false);
    });
}

void order(long times) {
  void* const a = fake_stream();
  void* b = fake_stream();
  void* const event = reinterpret_cast<void*>(0x7f0012345680);
  void* const other = reinterpret_cast<void*>(0x7f0012345700);
  for (long i = 0; i < times; ++i) {
    fake_event_record(event, a, false);
    fake_stream_waits(b, event, false);
    fake_event_record(other, nullptr, false);
    fake_event_record(other, reinterpret_cast<void*>(1), true);  // CU_STREAM_LEGACY
    fake_event_record(other, nullptr, true);
    fake_event_record(other, reinterpret_cast<void*>(2), false);  // CU_STREAM_PER_THREAD
    fake_synchronize_event(event);
    fake_synchronize_stream(b, false);
  }
  fake_stream_ends(b);
  b = fake_stream();
  fake_event_record(event, b, false);
  fake_stream_ends(a);
  fake_stream_ends(b);
  fake_event_record(event, b, false);  // no stream any more
  std::printf("asked %u\n", fake_stream_questions());
}

// 1 -> 2, 3 -> 4, the graph {11 -> 12, 13} -> 5; 6 stands alone.
void edges() {
  void* const inner = fake_graph();
  for (const uint64_t node : {11, 12, 13}) fake_graph_has(inner, node, nullptr);
  fake_graph_follows(inner, 12, 11, false);
  void* const graph = fake_graph();
  for (const uint64_t node : {1, 2, 3, 5, 6}) fake_graph_has(graph, node, nullptr);
  fake_graph_has(graph, 4, inner);
  fake_graph_follows(graph, 2, 1, false);
  fake_graph_follows(graph, 3, 1, true);
  fake_graph_follows(graph, 4, 2, false);
  fake_graph_follows(graph, 4, 3, false);
  fake_graph_follows(graph, 5, 4, false);
  for (const uint64_t copy : {100, 200}) {
    std::vector<FakeCopy> copies;
    for (const uint64_t node : {6, 1, 2, 3, 4, 5, 11, 12, 13})
      copies.push_back({node, copy + node, node == 4 ? 4U : 0U});
    fake_instantiate(graph, copies.data(), static_cast<uint32_t>(copies.size()));
  }
}

void chain(long nodes) {
  void* const graph = fake_graph();
  const uint64_t first = 0x1000;
  std::vector<FakeCopy> copies;
  for (uint64_t i = 0; i < static_cast<uint64_t>(nodes); ++i) {
    fake_graph_has(graph, first + 8 * i, nullptr);
    if (i > 0) fake_graph_follows(graph, first + 8 * i, first + 8 * (i - 1), false);
    copies.push_back({first + 8 * i, 0x10'0000'0000 + i, 0});
  }
  fake_instantiate(graph, copies.data(), static_cast<uint32_t>(copies.size()));
}

// ---- products ----------------------------------------------------------------------------------------------------

void* cublas = nullptr;

template <typename Function>
Function* in_cublas(const char* name) {
  Function* const found = cublas == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(cublas, name));
  if (found == nullptr) {
    std::fprintf(stderr, "cuda_client: no %s; the action 'cublas' comes first\n", name);
    std::exit(2);
  }
  return found;
}

void open_cublas() {
  char program[4096];
  const ssize_t size = readlink("/proc/self/exe", program, sizeof program);
  std::string path(program, size > 0 ? static_cast<size_t>(size) : 0);
  path = path.substr(0, path.rfind('/')) + "/hooks/libcublas.so.13";
  cublas = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (cublas == nullptr) std::fprintf(stderr, "cuda_client: %s\n", dlerror());
}

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

using GemmEx = int(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                   const void*, void*, int, int, int, int);

void one_gemm(GemmEx* gemm = in_cublas<GemmEx>("cublasGemmEx")) {
  gemm(at(0x10), 1, 0, 4096, 7, 2048, at(1), at(2), 14, 2048, at(3), 14, 2048, at(4), at(5), 14, 4096, 68, -1);
  fake_launch("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", now(), 1000, 7, 0);
}

void gemms(long count) {
  for (long i = 0; i < count; ++i) {
    one_gemm();
    fake_launch("_ZN8cublasLt19splitKreduce_kernelILi32E", now(), 1000, 7, 0);
    fake_launch("_ZN2at6native29vectorized_elementwise_kernelE", now(), 1000, 7, 0);
  }
}

// By the name that the whole process has, as a program calls it that is linked to cuBLAS.
void waited_gemms(long count) {
  GemmEx* const gemm = reinterpret_cast<GemmEx*>(dlsym(RTLD_DEFAULT, "cublasGemmEx"));
  for (long i = 0; gemm != nullptr && i < count; ++i) {
    for (int layer = 0; layer < 4; ++layer) one_gemm(gemm);
    usleep(5'000);
    fake_synchronize_stream(nullptr, false);
  }
}

void matmuls(long count) {
  void *a = nullptr, *b = nullptr, *d = nullptr, *compute = nullptr;
  const auto layout = in_cublas<int(void**, int, uint64_t, uint64_t, int64_t)>("cublasLtMatrixLayoutCreate");
  const auto set = in_cublas<int(void*, int, const void*, size_t)>("cublasLtMatmulDescSetAttribute");
  layout(&a, 28, 1024, 4096, 1024);
  layout(&b, 28, 1024, 16, 1024);
  layout(&d, 14, 4096, 16, 4096);
  in_cublas<int(void**, int, int)>("cublasLtMatmulDescCreate")(&compute, 68, 0);
  const int transposed = 1, gelu_bias = 36, vec128 = 4;
  set(compute, 3, &transposed, sizeof transposed);
  set(compute, 7, &gelu_bias, sizeof gelu_bias);
  set(compute, 31, &vec128, sizeof vec128);
  set(compute, 32, &vec128, sizeof vec128);
  using Matmul = int(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                     void*, void*, const void*, void*, size_t, void*);
  const auto matmul = in_cublas<Matmul>("cublasLtMatmul");
  for (long i = 0; i < count; ++i) {
    matmul(at(1), compute, at(2), at(3), a, at(4), b, at(5), at(6), d, at(7), d, nullptr, at(8), 4096, at(9));
    fake_launch("nvjet_sm90_qqtst_64x8", now(), 1000, 7, 0);
  }
}

// As cuBLAS's matrix-vector kernels: only its own record tells of them.
void alone(long count) {
  using Sgemm =
      int(void*, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);
  const auto sgemm = in_cublas<Sgemm>("cublasSgemm_v2");
  for (long i = 0; i < count; ++i) {
    sgemm(at(0x3F), 0, 0, 100, 1, 30, at(1), at(2), 30, at(3), 31, at(4), at(5), 101);
    fake_launch("_ZN8internal5gemvx6kernelE", now(), 1000, 7, 0);
  }
}

void both_replay(long times) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      launch_graph(2);
      usleep(100);
    }
  });
  replays(times, false);
  done = true;
  other.join();
}

void threads(long count) {
  for (long i = 0; i < count; ++i) std::thread([] { one_gemm(); }).join();
}

void ignore_log(const char*) { std::printf("the program's own log\n"); }

void shaped_graph() {
  fake_capture(true);
  in_cublas<GemmEx>("cublasGemmEx")(at(0x10), 1, 0, 512, 7, 2048, at(1), at(2), 14, 2048, at(3), 14, 2048, at(4), at(5),
                                    14, 4096, 68, -1);
  fake_graph_node(1, 0);
  int mode = 0;
  in_cublas<int(const void*, int*)>("cublasGetMathMode")(at(0x10), &mode);
  fake_graph_node(2, 0);
  fake_capture(false);
  for (uint64_t node = 1; node <= 2; ++node) fake_graph_node(100 + node, node);
  for (uint64_t node = 101; node <= 102; ++node) fake_launch("_Z4nodePf", now(), 5'000, 7, node);
}

// As torch.profiler does: buffers are not cleared, and what was recorded is looked for only while CUPTI holds one.
struct ReadyBuffer {
  uint8_t* buffer;
  size_t valid;
};
int buffers_with_cupti = 0;
std::vector<ReadyBuffer> ready_buffers;

void requested(uint8_t** buffer, size_t* size, size_t* records) {
  *size = 65536;
  *buffer = static_cast<uint8_t*>(std::malloc(*size));
  std::memset(*buffer, 0xa5, *size);
  *records = 0;
  ++buffers_with_cupti;
}

// A clock of its own, as torch.profiler has: 3 ticks a nanosecond, from some other zero.
uint64_t ticks() { return 3 * (static_cast<uint64_t>(now()) - 1'600'000'000'000'000'000U); }
uint64_t profiler_from = 0;
int profiler_in_time = 0;

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  --buffers_with_cupti;
  ready_buffers.push_back({buffer, valid});
}

void process(uint8_t* buffer, size_t valid) {
  cupti::Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == 0) {
    if (record->kind != cupti::kConcurrentKernel) continue;
    const cupti::KernelActivity& kernel = *reinterpret_cast<const cupti::KernelActivity*>(record);
    // Its start lies between the profiler's and now, and it is as long as it was: 10 us are 30000 ticks.
    constexpr uint64_t kSlack = 3'000;
    if (kernel.start + kSlack < profiler_from) continue;  // ours from before; it looks at its own time only
    ++profiler_kernels;
    if (kernel.start <= ticks() + kSlack && kernel.end - kernel.start > 29'900 && kernel.end - kernel.start < 30'100)
      ++profiler_in_time;
  }
  std::free(buffer);
}

void ignore(void*, uint32_t, uint32_t, const void*) {}

void profiler() {
  void* subscriber = nullptr;
  std::printf("subscribe %d\n", cuptiSubscribe(&subscriber, ignore, nullptr));
  cuptiActivityRegisterTimestampCallback(ticks);
  profiler_from = ticks();
  cuptiActivityRegisterCallbacks(requested, completed);
  cuptiActivityEnable(cupti::kConcurrentKernel);
  launch(10);
  cuptiActivityDisable(cupti::kConcurrentKernel);
  usleep(300'000);  // it takes its time until it processes what it has
  if (buffers_with_cupti > 0) {
    cuptiActivityFlushAll(1);
    for (const ReadyBuffer& ready : ready_buffers) process(ready.buffer, ready.valid);
  }
  cuptiUnsubscribe(subscriber);
  std::printf("profiler saw %d, %d in its own time\n", profiler_kernels, profiler_in_time);
}

void act(const char* program, const std::string& action) {
  const size_t equal = action.find('=');
  const std::string name = action.substr(0, equal);
  const long value = equal == std::string::npos ? 0 : std::atol(action.c_str() + equal + 1);
  if (name == "launch") {
    launch(value);
  } else if (name == "busy") {
    busy(value);
  } else if (name == "running") {
    fake_running(value != 0);
  } else if (name == "stage") {
    stage(value);
  } else if (name == "steps") {
    steps(value);
  } else if (name == "waited_steps") {
    waited_steps(value);
  } else if (name == "graph") {
    graph(value);
  } else if (name == "make") {
    make(value);
  } else if (name == "replays") {
    replays(value, false);
  } else if (name == "both_replay") {
    both_replay(value);
  } else if (name == "copy_replays") {
    replays(value, false, false, true);
  } else if (name == "driver_replays") {
    replays(value, false, true);
  } else if (name == "captures") {
    replays(value, true);
  } else if (name == "capture_ends") {
    fake_capture(false);
  } else if (name == "order") {
    order(value);
  } else if (name == "ordered_stage") {
    in_range("prefill", [&] { order(value); });
  } else if (name == "edges") {
    edges();
  } else if (name == "chain") {
    chain(value);
  } else if (name == "capture") {
    cudaStreamBeginCapture(nullptr, 0);
  } else if (name == "detached") {
    std::printf("detached %u\n", fake_finalized());
  } else if (name == "copy") {
    fake_copy(static_cast<uint64_t>(value), now(), 1000, true);
  } else if (name == "driver_copy") {
    fake_driver_copy(static_cast<uint64_t>(value), now(), 1000);
  } else if (name == "cublas") {
    if (cublas == nullptr) open_cublas();
  } else if (name == "own") {
    in_cublas<int(void (*)(const char*))>("cublasSetLoggerCallback")(ignore_log);
  } else if (name == "gemm") {
    gemms(value);
  } else if (name == "waited_gemms") {
    waited_gemms(value);
  } else if (name == "matmul") {
    matmuls(value);
  } else if (name == "sgemv") {
    alone(value);
  } else if (name == "threads") {
    threads(value);
  } else if (name == "shaped_graph") {
    shaped_graph();
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
  if (argc > 1 && std::strcmp(argv[1], "cublas") == 0) open_cublas();
  if (std::getenv("CLOCK_BEFORE_CUDA") != nullptr) cuptiActivityRegisterTimestampCallback(ticks);
  initialise_cuda();
  for (int i = 1; i < argc; ++i) act(argv[0], argv[i]);
  return 0;
}
