#include "device/cuda/call_costs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/pace_work.h"
#include "base/statistics.h"

namespace llmprof::device::cuda {
namespace {

// As text for the driver's own compiler: no NVRTC is needed. One spins so many cycles; the other does nothing, and has
// the parameters of an elementwise kernel.
constexpr const char* kKernels = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 cycles) {
  .reg .u64 %rd<5>;
  .reg .pred %p<3>;
  ld.param.u64 %rd1, [cycles];
  setp.eq.u64 %p1, %rd1, 0;
  @%p1 bra done;
  mov.u64 %rd2, %clock64;
again:
  mov.u64 %rd3, %clock64;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p2, %rd4, %rd1;
  @%p2 bra again;
done:
  ret;
}
.visible .entry elementwise(.param .align 8 .b8 parameters[48]) {
  ret;
}
)";
constexpr size_t kElementwiseBytes = 48;

constexpr int kLaunchesPerSample = 40;
constexpr size_t kSamplesLeast = 5;         // of a row
constexpr size_t kAtFullPaceLeast = 20;     // samples of a kind in a turn, if that can be had
constexpr int kLongestTimes = 4;            // so many times as long a kind is timed for that at most
constexpr size_t kStretchesMost = 16;       // rows of a kind in a turn at one pace, the longest
constexpr int kQueued = 256;                // kernels behind one that holds the GPU up until all are launched
constexpr uint64_t kHoldCycles = 8000000;   // 4 to 6 ms
constexpr uint64_t kAwaitedCycles = 20000;  // 10 us: the host waits for certain when it ends
constexpr int kGraphTurns = 24;             // kernels and graphs by turns behind one
constexpr size_t kDataBytes = size_t{8} << 20;

// Functions that differ, so that their code fills caches as a program's does.
template <size_t kNumber>
__attribute__((noinline)) uint64_t own_code(uint64_t x) {
#pragma GCC unroll 24
  for (uint64_t i = 0; i < 24; ++i) x = (x ^ (x >> (i % 23 + 7))) * (0x9E3779B97F4A7C15ULL + kNumber * 2 + i);
  return x;
}
constexpr size_t kFunctions = 512;
template <size_t... kNumbers>
constexpr std::array<uint64_t (*)(uint64_t), kFunctions> own_functions(std::index_sequence<kNumbers...>) {
  return {own_code<kNumbers>...};
}

// What a program does between two calls: reads its data and runs its code.
class OwnWork {
 public:
  OwnWork() : data_(kDataBytes, 1) {}
  void touch(size_t bytes) {
    static constexpr std::array<uint64_t (*)(uint64_t), kFunctions> kCode =
        own_functions(std::make_index_sequence<kFunctions>());
    const size_t lines = bytes / 64;
    for (size_t i = 0; i < lines; ++i) {
      at_ = (at_ + size_t{64} * 129) % kDataBytes;
      sum_ += data_[at_];
    }
    for (size_t i = 0; i < lines / 8; ++i) sum_ += kCode[(next_ += 37) % kFunctions](sum_);
  }
  uint64_t sum() const { return sum_; }

 private:
  std::vector<uint8_t> data_;
  size_t at_ = 0, next_ = 0;
  uint64_t sum_ = 0;
};

class CallTimer {
 public:
  CallTimer(Context& context, double seconds) : context_(context), each_ns_(static_cast<int64_t>(seconds * 1e9)) {}
  ~CallTimer() {
    for (const TimedGraph& timed : graphs_) {
      if (timed.exec != nullptr) context_.api().graph_exec_destroy(timed.exec);
      if (timed.graph != nullptr) context_.api().graph_destroy(timed.graph);
    }
    for (const cuda_abi::Event event : events_)
      if (event != nullptr) context_.api().event_destroy(event);
    if (memory_ != 0) context_.api().memory_free(memory_);
    if (library_ != nullptr) context_.api().library_unload(library_);
    if (module_ != nullptr) context_.api().module_unload(module_);
  }
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  Result<std::vector<CallCost>> run(int turns, const SwitchRecorder& switch_recorder, bool graphs_in_turns) {
    LLMPROF_CHECK(prepare());
    for (int turn = 0; turn < turns; ++turn) {
      if (switch_recorder) LLMPROF_CHECK(switch_recorder(turn));
      // While it records: no hook of its sees these captures, only the callbacks of a CUPTI that is there.
      if (graphs_in_turns && turn == 0) LLMPROF_CHECK(make_graphs());
      LLMPROF_CHECK(eager());
      LLMPROF_CHECK(graphs());
    }
    if (graphs_in_turns) return rows();
    if (switch_recorder) LLMPROF_CHECK(switch_recorder(-1));
    LLMPROF_CHECK(make_graphs());
    LLMPROF_CHECK(graphs());
    return rows();
  }

 private:
  struct TimedGraph {
    int nodes;
    bool busy;  // of kernels that take the GPU, whose distances are timed; else of empty ones, whose launch is
    cuda_abi::Graph graph = nullptr;
    cuda_abi::GraphExec exec = nullptr;
  };

  Status eager() {
    for (const size_t kib : {0, 64, 512, 2048}) LLMPROF_CHECK(launches(kib));
    LLMPROF_CHECK(simple("wait", [&] { return context_.synchronize(); }));
    LLMPROF_CHECK(simple("launch_wait", [&]() -> Status {
      LLMPROF_CHECK(launch(kAwaitedCycles));
      return context_.synchronize();
    }));
    std::array<uint8_t, 4096> host{};
    LLMPROF_CHECK(simple("copy_in", [&] {
      return done(context_.api().copy_to_device(memory_, host.data(), host.size(), context_.stream()));
    }));
    LLMPROF_CHECK(simple("copy_out", [&]() -> Status {
      LLMPROF_CHECK(done(context_.api().copy_to_host(host.data(), memory_, 4, context_.stream())));
      return context_.synchronize();
    }));
    return kernels();
  }
  Status done(cuda_abi::Result result) {
    return result == cuda_abi::kSuccess ? Status() : context_.check(result, "timing calls of the driver");
  }
  Status launch(uint64_t cycles, unsigned blocks = 1, unsigned threads = 32) {
    void* parameters[] = {&cycles, nullptr};
    return done(context_.api().launch(spin_, blocks, 1, 1, threads, 1, 1, 0, context_.stream(), parameters, nullptr));
  }

  // As PyTorch launches: on the default stream, a kernel that the runtime has loaded as a library where the driver has
  // such. On another stream, of a module, a launch takes 0.15 us less on hosts of H200s, of which 0.05 us are CUPTI's.
  Status launch_of_program() {
    std::array<uint64_t, kElementwiseBytes / sizeof(uint64_t)> values{};
    void* parameters[] = {values.data(), nullptr};
    return done(context_.api().launch(elementwise_, 64, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  }
  Status wait_for_all() { return context_.check(context_.api().context_synchronize(), "waiting for the GPU"); }

  // A kernel as models have them: about 2 us on all of the GPU. Between empty ones a recorder costs something else,
  // 0.33 us a node of a graph on an H200 instead of 0.23, which is what it costs between a model's.
  Status launch_busy() { return launch(4000, 264, 128); }

  Status prepare() {
    const cuda_abi::Api& api = context_.api();
    LLMPROF_CHECK(context_.check(api.module_load(&module_, kKernels), "loading a kernel"));
    LLMPROF_CHECK(context_.check(api.module_function(&spin_, module_, "spin"), "loading a kernel"));
    if (api.library_load != nullptr && api.library_kernel != nullptr && api.library_unload != nullptr) {
      LLMPROF_CHECK(context_.check(api.library_load(&library_, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0),
                                   "loading a kernel"));
      LLMPROF_CHECK(context_.check(api.library_kernel(&elementwise_, library_, "elementwise"), "loading a kernel"));
    } else {
      LLMPROF_CHECK(context_.check(api.module_function(&elementwise_, module_, "elementwise"), "loading a kernel"));
    }
    LLMPROF_CHECK(context_.check(api.memory_alloc(&memory_, 4096), "allocating on the GPU"));
    for (cuda_abi::Event& event : events_)
      LLMPROF_CHECK(context_.check(api.event_create(&event, 0), "making an event"));
    // First calls load what they need.
    for (int i = 0; i < 200; ++i) {
      LLMPROF_CHECK(launch(0));
      LLMPROF_CHECK(launch_of_program());
    }
    return wait_for_all();
  }

  struct Sample {
    double call_ns = 0, between_ns = 0, pace_ns = 0;
    int64_t start_unix_ns = 0, end_unix_ns = 0;
  };
  struct Taken {
    std::string name;
    int64_t calls_per_sample = 0;
    std::vector<Sample> samples;
  };

  // A probe before each sample and one behind it.
  double probe() {
    const double took_ns = static_cast<double>(timed_pace_work_ns());
    best_pace_ns_ = std::min(best_pace_ns_, took_ns);
    return took_ns;
  }

  // Takes samples until the time is over; `sample` gives {ns of a call, ns between}.
  template <class TakeOne>
  Status take(std::string name, int64_t calls_per_sample, TakeOne&& sample) {
    Taken& taken = taken_.emplace_back(Taken{std::move(name), calls_per_sample, {}});
    const int64_t from = monotonic_ns();
    size_t at_full_pace = 0;
    double before_ns = probe();
    for (;;) {
      const int64_t now = monotonic_ns();
      const bool enough = taken.samples.size() >= kSamplesLeast && now >= from + each_ns_;
      if (enough && (at_full_pace >= kAtFullPaceLeast || now >= from + kLongestTimes * each_ns_)) return {};
      Sample one;
      one.start_unix_ns = realtime_ns();
      std::pair<double, double> times;
      LLMPROF_CHECK(sample(times));
      one.end_unix_ns = realtime_ns();
      const double behind_ns = probe();
      one.call_ns = times.first, one.between_ns = times.second;
      one.pace_ns = std::max(before_ns, std::exchange(before_ns, behind_ns));
      at_full_pace += one.pace_ns * kFullPace <= best_pace_ns_ ? 1 : 0;
      taken.samples.push_back(one);
    }
  }

  // A row for each stretch of samples at full pace, or of others; those that are too short only where a kind has
  // nothing else. Of a host whose pace changes all the time only the longest, of which most is known.
  std::vector<CallCost> rows() const {
    std::vector<CallCost> out;
    for (const Taken& taken : taken_) {
      const std::vector<Sample>& samples = taken.samples;
      const auto full = [&](const Sample& one) { return one.pace_ns * kFullPace <= best_pace_ns_; };
      std::array<std::vector<std::pair<size_t, size_t>>, 2> stretches;  // begin and end, of others and at full pace
      for (size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
        while (end < samples.size() && full(samples[end]) == full(samples[begin])) ++end;
        if (end - begin >= kSamplesLeast) stretches[full(samples[begin]) ? 1 : 0].emplace_back(begin, end);
      }
      if (stretches[0].empty() && stretches[1].empty()) stretches[0].emplace_back(0, samples.size());
      std::vector<std::pair<size_t, size_t>> longest;
      for (std::vector<std::pair<size_t, size_t>>& of_pace : stretches) {
        std::stable_sort(of_pace.begin(), of_pace.end(), [](const auto& one, const auto& other) {
          return one.second - one.first > other.second - other.first;
        });
        if (of_pace.size() > kStretchesMost) of_pace.resize(kStretchesMost);
        longest.insert(longest.end(), of_pace.begin(), of_pace.end());
      }
      std::sort(longest.begin(), longest.end());
      for (const auto& [begin, end] : longest) out.push_back(row(taken, begin, end));
    }
    return out;
  }

  static CallCost row(const Taken& taken, size_t begin, size_t end) {
    std::vector<double> calls, between, paces;
    for (size_t i = begin; i < end; ++i) {
      calls.push_back(taken.samples[i].call_ns);
      between.push_back(taken.samples[i].between_ns);
      paces.push_back(taken.samples[i].pace_ns);
    }
    CallCost cost;
    cost.name = taken.name;
    cost.start_unix_ns = taken.samples[begin].start_unix_ns;
    cost.end_unix_ns = taken.samples[end - 1].end_unix_ns;
    const SampleSummary summary = *summarize_samples(calls);
    cost.call_ns = summary.median;
    cost.iqr_frac = summary.iqr_frac();
    cost.between_ns = median_of(std::move(between));
    cost.calls = static_cast<int64_t>(calls.size()) * taken.calls_per_sample;
    cost.pace_ns = median_of(std::move(paces));
    return cost;
  }

  Status launches(size_t kib) {
    return take(fmt::format("launch_{}k", kib), kLaunchesPerSample, [&](std::pair<double, double>& times) -> Status {
      int64_t inside = 0;
      const int64_t start = monotonic_ns();
      for (int i = 0; i < kLaunchesPerSample; ++i) {
        work_.touch(kib * 1024);
        const int64_t before = monotonic_ns();
        LLMPROF_CHECK(launch_of_program());
        inside += monotonic_ns() - before;
      }
      const int64_t all = monotonic_ns() - start;
      times = {static_cast<double>(inside) / kLaunchesPerSample,
               static_cast<double>(all - inside) / kLaunchesPerSample};
      return wait_for_all();
    });
  }

  template <class Call>
  Status simple(const char* name, Call&& call) {
    return take(name, kLaunchesPerSample, [&](std::pair<double, double>& times) -> Status {
      const int64_t start = monotonic_ns();
      for (int i = 0; i < kLaunchesPerSample; ++i) LLMPROF_CHECK(call());
      times = {static_cast<double>(monotonic_ns() - start) / kLaunchesPerSample, 0};
      return context_.synchronize();
    });
  }

  // GPU time of what `enqueue` puts between two events, behind a kernel that holds it up until all of it is there.
  template <class Enqueue>
  Result<double> gpu_ns(Enqueue&& enqueue) {
    LLMPROF_CHECK(launch(kHoldCycles));
    LLMPROF_CHECK(done(context_.api().event_record(events_[0], context_.stream())));
    LLMPROF_CHECK(enqueue());
    LLMPROF_CHECK(done(context_.api().event_record(events_[1], context_.stream())));
    LLMPROF_CHECK(context_.synchronize());
    float ms = 0;
    LLMPROF_CHECK(done(context_.api().event_elapsed(&ms, events_[0], events_[1])));
    return static_cast<double>(ms) * 1e6;
  }

  Status kernels() {
    return take("gpu_kernel", kQueued, [&](std::pair<double, double>& times) -> Status {
      LLMPROF_ASSIGN(const double ns, gpu_ns([&]() -> Status {
                       for (int i = 0; i < kQueued; ++i) LLMPROF_CHECK(launch_busy());
                       return {};
                     }));
      times = {ns / kQueued, 0};
      return {};
    });
  }

  Status make_graphs() {
    for (const int nodes : kCostNodes) LLMPROF_CHECK(make_graph(nodes, false));
    LLMPROF_CHECK(make_graph(kGraphTurnNodes, true));
    return make_graph(kCostNodes[1], true);
  }

  Status make_graph(int nodes, bool busy) {
    const cuda_abi::Api& api = context_.api();
    TimedGraph& made = graphs_.emplace_back(TimedGraph{nodes, busy});
    LLMPROF_CHECK(context_.check(api.capture_begin(context_.stream(), cuda_abi::kCaptureRelaxed), "making a graph"));
    Status launched;
    for (int i = 0; i < nodes && launched; ++i) launched = busy ? launch_busy() : launch(0);
    LLMPROF_CHECK(context_.check(api.capture_end(context_.stream(), &made.graph), "making a graph"));
    LLMPROF_CHECK(launched);
    return context_.check(api.graph_instantiate(&made.exec, made.graph, 0), "making a graph");
  }

  Status graphs() {
    for (const TimedGraph& timed : graphs_) LLMPROF_CHECK(graph(timed));
    return {};
  }

  Status graph(const TimedGraph& timed) {
    const auto replay = [&] { return done(context_.api().graph_launch(timed.exec, context_.stream())); };
    // The first launch takes milliseconds: of all, and after CUPTI has come.
    for (int i = 0; i < 5; ++i) LLMPROF_CHECK(replay());
    LLMPROF_CHECK(context_.synchronize());
    const auto on_gpu = [&](std::pair<double, double>& times) -> Status {
      LLMPROF_ASSIGN(const double ns, gpu_ns(replay));
      times = {ns / timed.nodes, 0};
      return {};
    };
    const auto by_turns = [&](std::pair<double, double>& times) -> Status {
      LLMPROF_ASSIGN(const double ns, gpu_ns([&]() -> Status {
                       for (int i = 0; i < kGraphTurns; ++i) {
                         LLMPROF_CHECK(launch_busy());
                         LLMPROF_CHECK(replay());
                       }
                       return {};
                     }));
      times = {ns / kGraphTurns, 0};
      return {};
    };
    const auto on_host = [&](std::pair<double, double>& times) -> Status {
      const int64_t start = monotonic_ns();
      LLMPROF_CHECK(replay());
      times = {static_cast<double>(monotonic_ns() - start), 0};
      return context_.synchronize();
    };
    if (timed.busy && timed.nodes == kGraphTurnNodes) return take("gpu_graph", kGraphTurns, by_turns);
    return timed.busy ? take("gpu_node", timed.nodes, on_gpu) : take(fmt::format("graph_{}", timed.nodes), 1, on_host);
  }

  Context& context_;
  const int64_t each_ns_;
  OwnWork work_;
  cuda_abi::Module module_ = nullptr;
  cuda_abi::Library library_ = nullptr;
  cuda_abi::Function spin_ = nullptr, elementwise_ = nullptr;
  cuda_abi::DevicePtr memory_ = 0;
  std::array<cuda_abi::Event, 2> events_{};
  std::vector<TimedGraph> graphs_;
  std::vector<Taken> taken_;
  double best_pace_ns_ = 1e9;
};

}  // namespace

Result<std::vector<CallCost>> time_calls(Context& context, double seconds, int turns,
                                         const SwitchRecorder& switch_recorder, bool graphs_in_turns) {
  return CallTimer(context, seconds).run(turns, switch_recorder, graphs_in_turns);
}

Status settle(Context& context, double seconds) {
  const int64_t until = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  while (monotonic_ns() < until) {
    LLMPROF_CHECK(context.synchronize());
    usleep(1000);
  }
  return {};
}

}  // namespace llmprof::device::cuda
