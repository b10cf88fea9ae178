// The GPU as a device, on a stand-in for NVIDIA's libraries: what is said when something is missing, memory, fills and
// times.
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "device/cuda/call_costs.h"
#include "device/elements.h"
#include "device/fill.h"
#include "device_cuda_support.h"

namespace llmprof::device::cuda {
namespace {

class DeviceCuda : public FakeGpu {};

TEST_F(DeviceCuda, SaysWhatIsMissing) {
  setenv(nvidia::kEnvCuda, "/nowhere/libcuda.so.1", 1);
  EXPECT_TRUE(holds(refusal(), "expected the CUDA driver's library, found none")) << refusal();
  EXPECT_TRUE(holds(refusal(), "--device cpu"));
  setenv(nvidia::kEnvCuda, LLMPROF_FAKE_CUDA, 1);
  script_->version = 11040;
  EXPECT_TRUE(holds(refusal(), "expected a driver for CUDA 12.0 or later, found one for CUDA 11.4")) << refusal();
  script_->version = 12080;
  script_->init_result = cuda_abi::kNoDevice;
  EXPECT_TRUE(holds(refusal(), "no GPU (CUDA_ERROR_NO_DEVICE)")) << refusal();
  EXPECT_TRUE(holds(refusal(), "CUDA_VISIBLE_DEVICES"));
  script_->init_result = cuda_abi::kSystemDriverMismatch;
  EXPECT_TRUE(holds(refusal(), "restart the machine")) << refusal();
  script_->init_result = 0;
  script_->devices = 0;
  EXPECT_TRUE(holds(refusal(), "lists none")) << refusal();
  script_->devices = 2;
  EXPECT_TRUE(holds(refusal(2), "from 0 to 1, found 2")) << refusal(2);
}

// Every kind of call once, in the order in which they were timed, each with calls and times of its own.
TEST_F(DeviceCuda, TimesItsCalls) {
  const Result<std::unique_ptr<Context>> context = Context::open(0);
  ASSERT_TRUE(context) << context.error().text();
  const uint64_t launches = script_->launches;
  const Result<std::vector<CallCost>> costs = time_calls(**context, 0.001);
  ASSERT_TRUE(costs) << costs.error().text();
  std::vector<std::string> names;
  int64_t launched = 0, end_ns = 0;
  for (const CallCost& cost : *costs) {
    if (names.empty() || names.back() != cost.name) names.push_back(cost.name);  // a row for each pace
    EXPECT_GT(cost.pace_ns, 0) << cost.name;
    EXPECT_GT(cost.call_ns, 0) << cost.name;
    EXPECT_GE(cost.calls, 5) << cost.name;
    EXPECT_GE(cost.start_unix_ns, end_ns) << cost.name << " begins when the one before it has ended";
    EXPECT_GT(cost.end_unix_ns, cost.start_unix_ns) << cost.name;
    EXPECT_EQ(cost.between_ns > 1'000,
              cost.name == "launch_64k" || cost.name == "launch_512k" || cost.name == "launch_2048k");
    end_ns = cost.end_unix_ns;
    if (cost.name.starts_with("launch") || cost.name == "gpu_kernel") launched += cost.calls;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"launch_0k", "launch_64k", "launch_512k", "launch_2048k", "wait",
                                             "launch_wait", "copy_in", "copy_out", "gpu_kernel", "graph_32",
                                             "graph_256", "gpu_graph", "gpu_node"}));
  EXPECT_GE(script_->launches - launches, static_cast<uint64_t>(launched));
  // One that fails is an error, and no figure.
  script_->launch_result = cuda_abi::kLaunchFailed;
  script_->fail_launch_after = static_cast<int>(script_->launches) + 250;
  EXPECT_FALSE(time_calls(**context, 0.001));
}

// Graphs with all else in each turn, or once behind them where the recorder could not go any more.
TEST_F(DeviceCuda, TimesItsCallsInTurns) {
  const Result<std::unique_ptr<Context>> context = Context::open(0);
  ASSERT_TRUE(context) << context.error().text();
  for (const bool graphs_in_turns : {true, false}) {
    std::vector<int> turns;
    std::vector<uint64_t> graph_launches;
    const auto switched = [&](int turn) {
      turns.push_back(turn);
      graph_launches.push_back(script_->graph_launches);
      return settle(**context, 0.001);
    };
    const Result<std::vector<CallCost>> costs = time_calls(**context, 0.001, 4, switched, graphs_in_turns);
    ASSERT_TRUE(costs) << costs.error().text();
    std::map<std::string, int> times;
    std::string before;
    for (const CallCost& cost : *costs)
      if (cost.name != std::exchange(before, cost.name)) ++times[cost.name];
    EXPECT_EQ(times.size(), 13U);
    for (const auto& [name, count] : times) {
      const bool graph = name.starts_with("graph") || name == "gpu_graph" || name == "gpu_node";
      EXPECT_EQ(count, graph && !graphs_in_turns ? 1 : 4) << name;
    }
    EXPECT_EQ(turns, graphs_in_turns ? (std::vector<int>{0, 1, 2, 3}) : (std::vector<int>{0, 1, 2, 3, -1}));
    // None is launched before the first turn: the recorder may not be there yet.
    EXPECT_EQ(graph_launches[1] > graph_launches[0], graphs_in_turns);
    EXPECT_EQ(graph_launches[3] > graph_launches[2], graphs_in_turns);
  }
}

TEST_F(DeviceCuda, KnowsItself) {
  const DeviceIdentity identity = open().identity();
  EXPECT_EQ(identity.kind, DeviceKind::kCuda);
  EXPECT_EQ(identity.name, "NVIDIA Fake");
  EXPECT_EQ(identity.uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(identity.key, identity.uuid);
  EXPECT_EQ(identity.cc_major, 9);
  EXPECT_EQ(identity.units, 4);
  EXPECT_EQ(identity.cache_bytes, 1 << 16);
  EXPECT_EQ(identity.memory_bytes, 1 << 30);
  EXPECT_DOUBLE_EQ(identity.clock_max_mhz, 1000);
  EXPECT_EQ(identity.driver, "CUDA 12.8") << "without NVML";
  ASSERT_EQ(identity.libraries.size(), 2U);
  EXPECT_EQ(identity.libraries[1].version, "12.8");
}

TEST_F(DeviceCuda, CompilersAndLibrariesOfAnotherMajorArePassedOver) {
  script_->nvrtc_major = 13;
  const Result<nvidia::NvrtcLibrary> nvrtc = nvidia::open_nvrtc(12080);
  ASSERT_FALSE(nvrtc);
  EXPECT_TRUE(holds(nvrtc.error().text(), "it is of CUDA 13, and the driver runs up to CUDA 12.8"));
  EXPECT_TRUE(holds(nvrtc.error().text(), "nvidia-cuda-nvrtc"));
  script_->cublaslt_version = 130100;
  EXPECT_FALSE(nvidia::open_cublaslt(12080));
  EXPECT_TRUE(nvidia::open_cublaslt(13000));
}

TEST_F(DeviceCuda, MemoryEndsWithASentence) {
  CudaDevice& device = open();
  const Result<std::unique_ptr<Buffer>> buffer = device.allocate(size_t{2} << 30);
  ASSERT_FALSE(buffer);
  EXPECT_TRUE(holds(buffer.error().what, "2.15 GB of GPU memory were asked for, 1.07 GB of 1.07 GB are free"))
      << buffer.error().what;
  EXPECT_TRUE(device.allocate(1000)) << "and that is all";
}

TEST_F(DeviceCuda, CountsWhatItHolds) {
  CudaDevice& device = open();
  {
    const Result<std::unique_ptr<Buffer>> first = device.allocate(1000), second = device.allocate(2000);
    ASSERT_TRUE(first && second);
    EXPECT_EQ((*first)->bytes(), 1000U);
    EXPECT_GE(device.peak_bytes(), 3000);
  }
  EXPECT_GE(device.peak_bytes(), 3000);
  device.reset_peak();
  EXPECT_EQ(device.peak_bytes(), 0);
  device_.reset();
  EXPECT_EQ(script_->allocations, script_->freed);
}

TEST_F(DeviceCuda, GuardsSeeAWriteBeyondTheEnd) {
  CudaDevice& device = open();
  const Result<std::unique_ptr<Buffer>> buffer = device.allocate(1000);
  ASSERT_TRUE(buffer);
  EXPECT_TRUE(device.check_guards(**buffer));
  char* const bytes = static_cast<char*>((*buffer)->address());
  ASSERT_TRUE(device.synchronize());
  bytes[1003] = 0;
  const Status behind = device.check_guards(**buffer);
  ASSERT_FALSE(behind);
  EXPECT_TRUE(holds(behind.error().what, "byte 3 behind the end of a buffer of 1000 bytes")) << behind.error().what;
  bytes[1003] = static_cast<char>(0xa5);
  bytes[-1] = 0;
  EXPECT_FALSE(device.check_guards(**buffer));
}

TEST_F(DeviceCuda, FillsAreTheNumbersOfEveryDevice) {
  CudaDevice& device = open();
  constexpr size_t kCount = 70001;
  for (const DType dtype :
       {DType::kFp64, DType::kFp32, DType::kTf32, DType::kBf16, DType::kFp16, DType::kFp8, DType::kFp4, DType::kInt8}) {
    const size_t bytes = kCount * fill_unit_bytes(dtype);
    const Result<std::unique_ptr<Buffer>> buffer = device.allocate(bytes);
    ASSERT_TRUE(buffer);
    Fill fill;
    fill.dtype = dtype;
    fill.seed = 7;
    ASSERT_TRUE(device.fill(**buffer, fill));
    std::vector<char> found(bytes), expected(bytes);
    ASSERT_TRUE(device.download(**buffer, 0, found.data(), bytes));
    fill_elements(fill, 0, kCount, expected.data());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), bytes), 0) << dtype_name(dtype);
    EXPECT_TRUE(device.check_guards(**buffer));
  }
  const Result<std::unique_ptr<Buffer>> indices = device.allocate(4 * kCount);
  Fill fill{Fill::Kind::kIndex, DType::kInt32, 3, 1000};
  ASSERT_TRUE(device.fill(**indices, fill));
  std::vector<int32_t> found(kCount), expected(kCount);
  ASSERT_TRUE(device.download(**indices, 0, found.data(), 4 * kCount));
  fill_elements(fill, 0, kCount, expected.data());
  EXPECT_EQ(found, expected);
  ASSERT_TRUE(device.fill(**indices, {Fill::Kind::kPoison, DType::kFp32, 1, 0}));
  ASSERT_TRUE(device.download(**indices, 0, found.data(), 4 * kCount));
  EXPECT_EQ(found.front(), -1);
  EXPECT_EQ(found.back(), -1);
}

TEST_F(DeviceCuda, WithoutACompilerTheHostFills) {
  setenv(nvidia::kEnvNvrtc, "/nowhere/libnvrtc.so", 1);
  CudaDevice& device = open();
  const Result<std::unique_ptr<Buffer>> buffer = device.allocate(4000);
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(device.fill(**buffer, {Fill::Kind::kUniform, DType::kFp32, 5, 0}));
  std::vector<float> found(1000), expected(1000);
  ASSERT_TRUE(device.download(**buffer, 0, found.data(), 4000));
  fill_elements({Fill::Kind::kUniform, DType::kFp32, 5, 0}, 0, 1000, expected.data());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(script_->launches, 0U);
  const Result<Kernel> kernel = device.context().kernel({"timing.cu", {}}, "stamp");
  ASSERT_FALSE(kernel);
  EXPECT_TRUE(holds(kernel.error().text(), "expected NVRTC")) << kernel.error().text();
}

TEST_F(DeviceCuda, AKernelThatDoesNotCompileIsTriedOnce) {
  script_->compile_result = nvrtc_abi::kCompilation;
  CudaDevice& device = open();
  for (int i = 0; i < 2; ++i) {
    const Result<Kernel> kernel = device.context().kernel({"timing.cu", {}}, "stamp");
    ASSERT_FALSE(kernel);
    EXPECT_TRUE(holds(kernel.error().what, "error: as scripted")) << kernel.error().what;
  }
  EXPECT_EQ(script_->compilations, 1U);
}

TEST_F(DeviceCuda, KernelsAreCompiledAheadOnce) {
  Context& context = open().context();
  const std::vector<KernelSource> walks = {{"memory.cu", {"UNROLL=2"}},
                                           {"memory.cu", {"UNROLL=4"}},
                                           {"memory.cu", {"UNROLL=8"}},
                                           {"memory.cu", {"UNROLL=4"}}};
  context.compile_ahead(walks);
  EXPECT_EQ(script_->compilations, 3U);
  for (const KernelSource& walk : walks) EXPECT_TRUE(context.kernel(walk, "memory_copy"));
  context.compile_ahead(walks);
  EXPECT_EQ(script_->compilations, 3U);
  // Another process finds them in the cache; what does not compile is said where it is asked for.
  device_.reset();
  script_->compile_result = nvrtc_abi::kCompilation;
  Context& again = open().context();
  again.compile_ahead({walks[0], walks[1], {"elementwise.cu", {"T=Bf16"}}, {"no_such.cu", {}}});
  EXPECT_EQ(script_->compilations, 4U);
  EXPECT_TRUE(again.kernel(walks[1], "memory_copy"));
  for (int i = 0; i < 2; ++i) {
    const Result<Kernel> wrong = again.kernel({"elementwise.cu", {"T=Bf16"}}, "swiglu");
    ASSERT_FALSE(wrong);
    EXPECT_TRUE(holds(wrong.error().what, "error: as scripted")) << wrong.error().what;
  }
  EXPECT_FALSE(again.kernel({"no_such.cu", {}}, "any"));
  EXPECT_EQ(script_->compilations, 4U);
}

TEST_F(DeviceCuda, ABrokenContextSaysSoForEver) {
  CudaDevice& device = open();
  script_->fail_launch_after = 0;
  script_->launch_result = cuda_abi::kIllegalAddress;
  const Result<std::unique_ptr<Buffer>> buffer = device.allocate(4000);
  const Status filled = device.fill(**buffer, {});
  ASSERT_FALSE(filled);
  EXPECT_TRUE(holds(filled.error().what, "a kernel used memory that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)"))
      << filled.error().what;
  EXPECT_TRUE(holds(filled.error().advice, "start again"));
  script_->fail_launch_after = -1;
  EXPECT_EQ(device.synchronize().error().what, filled.error().what);
  EXPECT_FALSE(device.allocate(100));
  EXPECT_TRUE(device.context().lost());
}

// Work that is one empty kernel; the stand-in lets each take kernel_ns.
class DeviceCudaTimes : public FakeGpu {
 protected:
  TimingRequest request(int launches, int samples) {
    const Result<Kernel> kernel = device_->context().kernel({"timing.cu", {}}, "empty");
    EXPECT_TRUE(kernel);
    Context& context = device_->context();
    sets_seen_.clear();
    TimingRequest request;
    request.enqueue = [this, &context, empty = *kernel](int set) {
      sets_seen_.push_back(set);
      return context.launch(empty, 1, 32);
    };
    request.sets = 3;
    request.launches = launches;
    request.samples = samples;
    return request;
  }
  std::vector<int> sets_seen_;
};

TEST_F(DeviceCudaTimes, ColdTrialsWaitBehindTheGate) {
  CudaDevice& device = open();
  TimingRequest cold = request(1, 40);
  cold.flush_cache = true;
  const Result<std::vector<Sample>> samples = device.time_cold(cold);
  ASSERT_TRUE(samples) << samples.error().text();
  ASSERT_EQ(samples->size(), 40U);
  EXPECT_EQ(script_->waits, 3U) << "16 + 16 + 8";
  for (const Sample& sample : *samples) {
    EXPECT_NEAR(sample.us, 10, 1e-3) << "neither the flush nor the stamps";
    EXPECT_NEAR(sample.clock_mhz, 1000, 1);
    EXPECT_EQ(sample.flags, 0);
  }
  EXPECT_EQ(sets_seen_, (std::vector<int>{0, 0, 1, 2})) << "a warm-up, and a graph of each set";
  EXPECT_EQ(script_->graph_launches, 40U);
}

TEST_F(DeviceCudaTimes, ShortWorkIsAGraphOfSeveral) {
  CudaDevice& device = open();
  const Result<std::vector<Sample>> samples = device.time_cold(request(8, 5));
  ASSERT_TRUE(samples) << samples.error().text();
  ASSERT_EQ(samples->size(), 5U);
  EXPECT_EQ(script_->graph_launches, 5U);
  for (const Sample& sample : *samples) EXPECT_NEAR(sample.us, 10, 1e-3) << "of one launch";
}

TEST_F(DeviceCudaTimes, SustainedReplaysAGraph) {
  CudaDevice& device = open();
  const Result<std::vector<Sample>> samples = device.time_sustained(request(21, 300));
  ASSERT_TRUE(samples) << samples.error().text();
  ASSERT_EQ(samples->size(), 300U);
  EXPECT_EQ(script_->graph_launches, 302U) << "one more in each batch, not timed";
  EXPECT_EQ(sets_seen_.size(), 22U) << "enqueued for the graph, once";
  EXPECT_NEAR((*samples)[299].us, 10, 1e-3);
  EXPECT_NEAR((*samples)[299].clock_mhz, 1000, 1);
}

// Graphs are made once and when they are needed; where one does not visit all sets, the next goes on.
TEST_F(DeviceCudaTimes, ALoopGoesOnWithTheNextSet) {
  CudaDevice& device = open();
  const Result<std::unique_ptr<Repetitions>> loop = device.loop(request(5, 1));
  ASSERT_TRUE(loop);
  EXPECT_TRUE(sets_seen_.empty());
  ASSERT_TRUE((*loop)->time(1));
  EXPECT_EQ(sets_seen_, (std::vector<int>{0, 0, 1, 2, 0, 1})) << "a warm-up, and a graph";
  ASSERT_TRUE((*loop)->time(4));
  EXPECT_EQ(sets_seen_, (std::vector<int>{0, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  const Result<std::vector<Sample>> more = (*loop)->time(10);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->size(), 10U);
  EXPECT_EQ(sets_seen_.size(), 16U) << "all are there";
  EXPECT_EQ(script_->graph_launches, 2U + 5U + 11U);
  EXPECT_FALSE((*loop)->time(0));
}

TEST_F(DeviceCudaTimes, ASlowClockIsFlagged) {
  CudaDevice& device = open();
  script_->kernel_ns = 100000;
  script_->slow_kernel_from = 46;  // 1 warm-up, then stamp, kernel, stamp a trial: within the 16th
  const Result<std::vector<Sample>> samples = device.time_cold(request(1, 16));
  ASSERT_TRUE(samples);
  EXPECT_NEAR(samples->front().clock_mhz, 1000, 1);
  EXPECT_EQ(samples->front().flags, 0);
  EXPECT_LT(samples->back().clock_mhz, 750);
  EXPECT_EQ(samples->back().flags, kThrottled);
}

TEST_F(DeviceCudaTimes, TheWatchdogLetsGo) {
  CudaDevice& device = open();
  device.timer().set_watchdog(std::chrono::milliseconds(50));
  TimingRequest waiting = request(1, 2);
  const std::function<Status(int)> launch = waiting.enqueue;
  // Waits for the GPU without saying so: behind the gate that would be for ever.
  waiting.enqueue = [&](int set) -> Status {
    LLMPROF_CHECK(launch(set));
    return device.synchronize();
  };
  const Result<std::vector<Sample>> samples = device.time_cold(waiting);
  ASSERT_TRUE(samples) << samples.error().text();
  for (const Sample& sample : *samples) EXPECT_EQ(sample.flags & kHostGap, kHostGap);
}

// Of one launch each, of several: what is timed next begins where the last ended, with graphs that are there already.
TEST_F(DeviceCudaTimes, TrialsGoOnWithTheNextSet) {
  CudaDevice& device = open();
  const Result<std::unique_ptr<Repetitions>> single = device.trials(request(1, 1));
  ASSERT_TRUE(single);
  EXPECT_TRUE(sets_seen_.empty());
  ASSERT_TRUE((*single)->time(2));
  EXPECT_EQ(sets_seen_, (std::vector<int>{0, 0, 1}));
  ASSERT_TRUE((*single)->time(3));
  EXPECT_EQ(sets_seen_, (std::vector<int>{0, 0, 1, 2}));
  EXPECT_FALSE((*single)->time(0));
  const Result<std::unique_ptr<Repetitions>> several = device.trials(request(2, 1));
  ASSERT_TRUE(several);
  ASSERT_TRUE((*several)->time(1));
  ASSERT_TRUE((*several)->time(1));
  EXPECT_EQ(sets_seen_, (std::vector<int>{0, 0, 1, 2, 0}));
}

// Not one by one: some would be in the queue as a whole and some would not. However many trials are asked for at once,
// and however few kernels there are.
TEST_F(DeviceCudaTimes, WorkOfAnyNumberOfKernelsIsOneGraph) {
  CudaDevice& device = open();
  for (const int samples : {1, 5}) {
    for (const int kernels : {1, 31, 100}) {
      TimingRequest many = request(1, samples);
      many.enqueue = [one = many.enqueue, kernels](int set) -> Status {
        for (int i = 0; i < kernels; ++i) LLMPROF_CHECK(one(set));
        return {};
      };
      const auto before = script_->graph_launches;
      const Result<std::vector<Sample>> times = device.time_cold(many);
      ASSERT_TRUE(times) << times.error().text();
      ASSERT_EQ(times->size(), static_cast<size_t>(samples));
      EXPECT_EQ(script_->graph_launches - before, static_cast<unsigned>(samples));
      EXPECT_NEAR(times->back().us, 10.0 * kernels, 1e-3);
    }
  }
}

TEST_F(DeviceCudaTimes, WorkOfTheHostIsTimedByTheHost) {
  CudaDevice& device = open();
  TimingRequest host = request(4, 3);
  const std::function<Status(int)> launch = host.enqueue;
  host.enqueue = [&](int set) {
    device.timer().mark_host_bound();
    return launch(set);
  };
  for (const bool cold : {true, false}) {
    const Result<std::vector<Sample>> samples = cold ? device.time_cold(host) : device.time_sustained(host);
    ASSERT_TRUE(samples);
    ASSERT_EQ(samples->size(), 3U);
    EXPECT_GT((*samples)[0].us, 0);
    EXPECT_TRUE(std::isnan((*samples)[0].clock_mhz));
  }
  EXPECT_EQ(script_->waits + script_->graph_launches, 0U);
}

TEST_F(DeviceCudaTimes, WithoutWaitsOnMemoryTheGapIsFlagged) {
  CudaDevice& device = open();
  script_->can_wait = false;
  const Result<std::vector<Sample>> samples = device.time_cold(request(1, 4));
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->back().flags & kHostGap, kHostGap);
}

TEST_F(DeviceCudaTimes, WithoutACompilerTimesHaveNoClock) {
  setenv(nvidia::kEnvNvrtc, "/nowhere/libnvrtc.so", 1);
  CudaDevice& device = open();
  const Result<std::unique_ptr<Buffer>> buffer = device.allocate(4096);
  ASSERT_TRUE(buffer);
  TimingRequest poisons;
  poisons.enqueue = [&](int) { return device.fill(**buffer, {Fill::Kind::kPoison, DType::kFp32, 1, 0}); };
  poisons.samples = 4;
  poisons.flush_cache = true;
  const Result<std::vector<Sample>> samples = device.time_cold(poisons);
  ASSERT_TRUE(samples) << samples.error().text();
  EXPECT_NEAR(samples->back().us, 1, 1e-3);
  EXPECT_TRUE(std::isnan(samples->back().clock_mhz));
}

TEST_F(DeviceCudaTimes, AFailingEnqueueEndsTheGraph) {
  CudaDevice& device = open();
  TimingRequest failing = request(3, 3);
  int calls = 0;
  failing.enqueue = [&](int) -> Status {
    if (++calls > 2) return fail("the third one fails");
    return {};
  };
  const Result<std::vector<Sample>> samples = device.time_sustained(failing);
  ASSERT_FALSE(samples);
  EXPECT_EQ(samples.error().what, "the third one fails");
  EXPECT_TRUE(device.time_sustained(request(2, 2))) << "the next one works";
}

}  // namespace
}  // namespace llmprof::device::cuda
