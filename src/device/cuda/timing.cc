#include "device/cuda/timing.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/statistics.h"

namespace llmprof::device::cuda {
namespace {

constexpr size_t kColdBatch = 16;
constexpr size_t kReplaysQueued = 3;
constexpr size_t kSustainedBatch = 256;  // samples between two readings of the stamps
constexpr double kStampNsMin = 50'000;   // shorter stretches: the clock of the whole batch
constexpr double kSlowClockFrac = 0.75;  // of the batch's median clock
constexpr int kStampSmsMin = 8;          // fewer that agree tell nothing
constexpr unsigned kFlushThreads = 512;
constexpr float kUnknownClock = std::numeric_limits<float>::quiet_NaN();

double host_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status check_request(const TimingRequest& request) {
  if (request.sets < 1 || request.launches < 1) return fail("a timing needs at least one set and one launch");
  return {};
}

int set_of(const TimingRequest& request, int64_t launch) { return static_cast<int>(launch % request.sets); }

// Lets go of the gate when it is told to, when time is up, or when it goes out of scope.
class Watchdog {
 public:
  Watchdog(volatile uint32_t* gate, std::chrono::milliseconds after)
      : gate_(gate), thread_([this, after] { watch(after); }) {}
  ~Watchdog() { release(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // True if it had bitten before.
  bool release() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    *gate_ = 1;
    return bitten_;
  }

 private:
  void watch(std::chrono::milliseconds after) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, after, [this] { return released_; })) return;
    bitten_ = true;
    *gate_ = 1;
  }

  volatile uint32_t* gate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false, bitten_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace

// One replayable graph of launches.
class Timer::Graph {
 public:
  // `enqueue` may fail in the middle; nothing is captured any more then.
  static Result<std::unique_ptr<Graph>> capture(Context& context, const std::function<Status()>& enqueue) {
    const cuda_abi::Api& api = context.api();
    LLMPROF_CHECK(context.check(api.capture_begin(context.stream(), cuda_abi::kCaptureRelaxed), "starting a graph"));
    const Status enqueued = enqueue();
    cuda_abi::Graph graph = nullptr;
    const cuda_abi::Result ended = api.capture_end(context.stream(), &graph);
    if (!enqueued) {
      if (graph != nullptr) api.graph_destroy(graph);
      return tl::unexpected<Error>(enqueued.error());
    }
    LLMPROF_CHECK(context.check(ended, "ending a graph"));
    auto made = std::make_unique<Graph>(context);
    const cuda_abi::Result instantiated = api.graph_instantiate(&made->exec_, graph, 0);
    api.graph_destroy(graph);
    LLMPROF_CHECK(context.check(instantiated, "making a graph runnable"));
    LLMPROF_CHECK(context.check(api.graph_upload(made->exec_, context.stream()), "uploading a graph"));
    return made;
  }
  explicit Graph(Context& context) : context_(context) {}
  ~Graph() {
    if (exec_ != nullptr) context_.api().graph_exec_destroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Status launch() { return context_.check(context_.api().graph_launch(exec_, context_.stream()), "launching a graph"); }

 private:
  Context& context_;
  cuda_abi::GraphExec exec_ = nullptr;
};

// Of a request: they take turns where one does not visit every set.
class Timer::Graphs {
 public:
  Graphs(Context& context, const TimingRequest& request)
      : context_(context),
        request_(request),
        graphs_(static_cast<size_t>(request.sets / std::gcd(request.sets, request.launches))) {}

  // Those of `count` repetitions from this one on that are not there yet.
  Status make(int64_t first, size_t count) {
    const int64_t end = first + static_cast<int64_t>(std::min(count, graphs_.size()));
    for (int64_t repetition = first; repetition < end; ++repetition) {
      std::unique_ptr<Graph>& graph = of(repetition);
      if (graph != nullptr) continue;
      LLMPROF_ASSIGN(graph, Graph::capture(context_, [&] { return enqueue(repetition); }));
    }
    return {};
  }
  Status launch(int64_t repetition) { return of(repetition)->launch(); }
  // Without one.
  Status enqueue(int64_t repetition) const {
    for (int i = 0; i < request_.launches; ++i)
      LLMPROF_CHECK(request_.enqueue(set_of(request_, repetition * request_.launches + i)));
    return {};
  }

 private:
  std::unique_ptr<Graph>& of(int64_t repetition) { return graphs_[static_cast<size_t>(repetition) % graphs_.size()]; }

  Context& context_;
  const TimingRequest& request_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

Timer::~Timer() {
  const cuda_abi::Api& api = context_.api();
  for (const cuda_abi::Event event : events_) api.event_destroy(event);
  if (gate_ != nullptr) api.host_free(const_cast<uint32_t*>(gate_));
  if (flush_ != 0) api.memory_free(flush_);
  if (stamps_ != 0) api.memory_free(stamps_);
}

// Events for so many stamps, the gate, the flush buffer; kernels where there is a compiler.
Status Timer::prepare(size_t stamps, bool flush) {
  const cuda_abi::Api& api = context_.api();
  while (events_.size() < 2 * stamps) {
    cuda_abi::Event event = nullptr;
    LLMPROF_CHECK(context_.check(api.event_create(&event, 0), "making an event"));
    events_.push_back(event);
  }
  if (!kernels_known_) {
    kernels_known_ = true;
    const Result<Kernel> stamp_kernel = context_.kernel({"timing.cu", {}}, "stamp");
    const Result<Kernel> flush_kernel = context_.kernel({"timing.cu", {}}, "flush_read");
    have_kernels_ = stamp_kernel && flush_kernel;
    if (have_kernels_) {
      stamp_kernel_ = *stamp_kernel;
      flush_kernel_ = *flush_kernel;
      flush_grid_ = static_cast<unsigned>(context_.sms() * context_.blocks_per_sm(flush_kernel_, kFlushThreads));
    }
  }
  if (gate_ == nullptr) {
    void* address = nullptr;
    LLMPROF_CHECK(context_.check(
        api.host_alloc(&address, 64, cuda_abi::kHostAllocPortable | cuda_abi::kHostAllocDeviceMap), "making the gate"));
    gate_ = static_cast<uint32_t*>(address);
  }
  const size_t stamp_bytes = static_cast<size_t>(context_.sms()) * 16;
  if (stamps_room_ < stamps + 1) {
    if (stamps_ != 0) api.memory_free(stamps_);
    stamps_ = 0;
    stamps_room_ = 0;
    LLMPROF_CHECK(context_.check(api.memory_alloc(&stamps_, (stamps + 1) * stamp_bytes), "memory for stamps"));
    stamps_room_ = stamps + 1;
  }
  if (flush && flush_ == 0) {
    flush_bytes_ = static_cast<size_t>(2 * std::max<int64_t>(cache_bytes_, 1 << 20)) / 4096 * 4096;
    LLMPROF_CHECK(context_.check(api.memory_alloc(&flush_, flush_bytes_ + 256), "memory to flush the L2 with"));
    LLMPROF_CHECK(context_.check(api.set_d8(flush_, 0, flush_bytes_ + 256, context_.stream()), "clearing memory"));
  }
  return context_.check(api.set_d8(stamps_, 0, stamps_room_ * stamp_bytes, context_.stream()), "clearing stamps");
}

Status Timer::stamp(size_t index) {
  if (!have_kernels_) return {};
  const cuda_abi::DevicePtr slots = stamps_ + index * static_cast<size_t>(context_.sms()) * 16;
  const uint32_t sms = static_cast<uint32_t>(context_.sms());
  return context_.launch(stamp_kernel_, 2 * sms, 32, slots, sms);
}

Status Timer::flush() {
  if (have_kernels_) {
    const uint64_t count = flush_bytes_ / 16;
    const uint32_t never = 0x9e3779b9;  // the buffer holds zeros
    return context_.launch(flush_kernel_, flush_grid_, kFlushThreads, flush_, count, never, flush_ + flush_bytes_);
  }
  // Without a compiler: a fill, which leaves lines that are still to be written back.
  return context_.check(context_.api().set_d8(flush_, 0, flush_bytes_, context_.stream()), "flushing the L2");
}

// MHz between two stamps: the median over the SMs that have both. NaN if too few have, or if it cannot be.
double Timer::clock_mhz(const std::vector<uint64_t>& slots, size_t from, size_t to) const {
  const size_t sms = static_cast<size_t>(context_.sms());
  std::vector<double> clocks;
  for (size_t sm = 0; sm < sms; ++sm) {
    const uint64_t* a = &slots[(from * sms + sm) * 2];
    const uint64_t* b = &slots[(to * sms + sm) * 2];
    if (a[1] == 0 || b[1] <= a[1] || b[0] <= a[0]) continue;
    clocks.push_back(static_cast<double>(b[0] - a[0]) / static_cast<double>(b[1] - a[1]) * 1000);
  }
  if (clocks.size() < static_cast<size_t>(std::min(kStampSmsMin, context_.sms())))
    return std::numeric_limits<double>::quiet_NaN();
  const double mhz = median_of(std::move(clocks));
  const double most = clock_max_mhz_ > 0 ? 1.05 * clock_max_mhz_ : 5000;
  return mhz >= 200 && mhz <= most ? mhz : std::numeric_limits<double>::quiet_NaN();
}

// Sample i lies between events 2 i and 2 i + 1 and between two stamps: i and i + 1 (`between_stamps`), or 2 i and 2 i
// + 1.
Status Timer::read_samples(size_t count, int launches, bool between_stamps, bool gap, std::vector<Sample>& samples) {
  const cuda_abi::Api& api = context_.api();
  LLMPROF_CHECK(context_.synchronize());
  const size_t sms = static_cast<size_t>(context_.sms());
  const size_t stamps = between_stamps ? count + 1 : 2 * count;
  std::vector<uint64_t> slots(stamps * sms * 2);
  if (have_kernels_) {
    LLMPROF_CHECK(
        context_.check(api.copy_to_host(slots.data(), stamps_, slots.size() * 8, context_.stream()), "reading stamps"));
    LLMPROF_CHECK(context_.synchronize());
  }
  const double whole = clock_mhz(slots, 0, stamps - 1);
  std::vector<double> clocks;
  const size_t first = samples.size();
  for (size_t i = 0; i < count; ++i) {
    float milliseconds = 0;
    LLMPROF_CHECK(
        context_.check(api.event_elapsed(&milliseconds, events_[2 * i], events_[2 * i + 1]), "reading a time"));
    const double us = static_cast<double>(milliseconds) * 1000;
    double clock = whole;
    if (us * 1000 >= kStampNsMin)
      clock = between_stamps ? clock_mhz(slots, i, i + 1) : clock_mhz(slots, 2 * i, 2 * i + 1);
    if (std::isfinite(clock)) clocks.push_back(clock);
    samples.push_back({us / launches, std::isfinite(clock) ? static_cast<float>(clock) : kUnknownClock,
                       gap ? static_cast<uint8_t>(kHostGap) : uint8_t{0}});
  }
  if (clocks.empty()) return {};
  const double median = median_of(std::move(clocks));
  for (size_t i = first; i < samples.size(); ++i)
    if (static_cast<double>(samples[i].clock_mhz) < kSlowClockFrac * median) samples[i].flags |= kThrottled;
  return {};
}

// What trials and loops have in common.
class Timer::CudaRepetitions : public Repetitions {
 public:
  CudaRepetitions(Timer& timer, TimingRequest request, size_t batch)
      : timer_(timer),
        context_(timer.context_),
        api_(timer.context_.api()),
        request_(std::move(request)),
        graphs_(timer.context_, request_),
        batch_(batch) {}

  Result<std::vector<Sample>> time(int samples) override {
    if (samples < 1) return fail("a timing needs at least one sample");
    if (!warm_) LLMPROF_CHECK(warm_up());
    std::vector<Sample> taken;
    const size_t wanted = static_cast<size_t>(samples);
    if (host_bound_) {
      while (taken.size() < wanted) LLMPROF_CHECK(take_by_host(taken));
      return taken;
    }
    LLMPROF_CHECK(prepare(wanted));
    while (taken.size() < wanted) LLMPROF_CHECK(take(std::min(batch_, wanted - taken.size()), taken));
    return taken;
  }

 protected:
  // Before any of so many repetitions runs.
  virtual Status prepare(size_t count) = 0;
  virtual Status take(size_t count, std::vector<Sample>& taken) = 0;
  Status record(size_t event) {
    return context_.check(api_.event_record(timer_.events_[event], context_.stream()), "recording an event");
  }

  Timer& timer_;
  Context& context_;
  const cuda_abi::Api& api_;
  TimingRequest request_;
  Graphs graphs_;
  int64_t repeated_ = 0;

 private:
  // One execution that is not timed: libraries load their kernels at the first.
  Status warm_up() {
    timer_.host_bound_ = false;
    LLMPROF_CHECK(request_.enqueue(0));
    LLMPROF_CHECK(context_.synchronize());
    host_bound_ = timer_.host_bound_;
    warm_ = true;
    return {};
  }
  Status take_by_host(std::vector<Sample>& taken) {
    const double start = host_us();
    LLMPROF_CHECK(graphs_.enqueue(repeated_++));
    LLMPROF_CHECK(context_.synchronize());
    taken.push_back({(host_us() - start) / request_.launches, kUnknownClock, 0});
    return {};
  }

  size_t batch_;
  bool warm_ = false, host_bound_ = false;
};

class Timer::Trials : public CudaRepetitions {
 public:
  Trials(Timer& timer, TimingRequest request) : CudaRepetitions(timer, std::move(request), kColdBatch) {}

 private:
  Status prepare(size_t count) override {
    if (!as_graphs_) return {};
    const Status made = graphs_.make(repeated_, count);
    if (made || request_.launches > 1) return made;
    as_graphs_ = false;  // one launch that cannot be captured is timed without
    return context_.synchronize();
  }

  Status take(size_t count, std::vector<Sample>& taken) override {
    LLMPROF_CHECK(timer_.prepare(2 * count, request_.flush_cache));
    LLMPROF_CHECK(context_.synchronize());
    *timer_.gate_ = 0;
    // Host memory that is mapped has the same address on the GPU.
    const cuda_abi::DevicePtr gate = reinterpret_cast<cuda_abi::DevicePtr>(timer_.gate_);
    // A driver may refuse to wait on memory; then the host races ahead of the GPU, which is right for all but the
    // first.
    const bool gated =
        api_.stream_wait_value(context_.stream(), gate, 1, cuda_abi::kWaitValueGeq) == cuda_abi::kSuccess;
    Watchdog watchdog(timer_.gate_, timer_.watchdog_);
    const Status queued = queue(count);
    const bool bitten = watchdog.release();
    LLMPROF_CHECK(queued);
    return timer_.read_samples(count, request_.launches, false, bitten || !gated, taken);
  }

  Status queue(size_t count) {
    for (size_t i = 0; i < count; ++i, ++repeated_) {
      if (request_.flush_cache) LLMPROF_CHECK(timer_.flush());
      LLMPROF_CHECK(timer_.stamp(2 * i));
      LLMPROF_CHECK(record(2 * i));
      LLMPROF_CHECK(as_graphs_ ? graphs_.launch(repeated_) : graphs_.enqueue(repeated_));
      LLMPROF_CHECK(record(2 * i + 1));
      LLMPROF_CHECK(timer_.stamp(2 * i + 1));
    }
    return {};
  }

  bool as_graphs_ = true;
};

class Timer::BackToBack : public CudaRepetitions {
 public:
  BackToBack(Timer& timer, TimingRequest request) : CudaRepetitions(timer, std::move(request), kSustainedBatch) {}

 private:
  Status prepare(size_t count) override { return graphs_.make(repeated_, count); }

  Status take(size_t count, std::vector<Sample>& taken) override {
    LLMPROF_CHECK(timer_.prepare(count + 1, false));
    // Not timed: the GPU comes out of the pause before it.
    LLMPROF_CHECK(graphs_.launch(repeated_));
    LLMPROF_CHECK(timer_.stamp(0));
    for (size_t i = 0; i < count; ++i, ++repeated_) {
      if (i >= kReplaysQueued)
        LLMPROF_CHECK(context_.check(api_.event_synchronize(timer_.events_[2 * (i - kReplaysQueued) + 1]), "waiting"));
      LLMPROF_CHECK(record(2 * i));
      LLMPROF_CHECK(graphs_.launch(repeated_));
      LLMPROF_CHECK(record(2 * i + 1));
      LLMPROF_CHECK(timer_.stamp(i + 1));
    }
    return timer_.read_samples(count, request_.launches, true, false, taken);
  }
};

Result<std::unique_ptr<Repetitions>> Timer::trials(const TimingRequest& request) {
  LLMPROF_CHECK(check_request(request));
  return std::unique_ptr<Repetitions>(std::make_unique<Trials>(*this, request));
}

Result<std::unique_ptr<Repetitions>> Timer::loop(const TimingRequest& request) {
  LLMPROF_CHECK(check_request(request));
  return std::unique_ptr<Repetitions>(std::make_unique<BackToBack>(*this, request));
}

}  // namespace llmprof::device::cuda
