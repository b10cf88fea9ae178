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
// From so many on, one execution is timed as a graph: launched one by one, they are in the queue or not by the number
// of trials that are queued at once, and the host is in some of the times.
constexpr size_t kManyNodes = 32;
constexpr size_t kSustainedBatch = 256;  // samples between two looks at the stamps
constexpr double kStampNsMin = 50'000;   // shorter stretches: the clock of the whole batch
constexpr double kSlowClockFrac = 0.75;  // of the batch's median clock
constexpr int kStampSmsMin = 8;          // fewer that agree tell nothing
constexpr unsigned kFlushThreads = 512;
constexpr float kUnknownClock = std::numeric_limits<float>::quiet_NaN();

double host_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
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

struct Timer::Replay {
  explicit Replay(Context& context) : context_(context) {}
  ~Replay() {
    if (exec != nullptr) context_.api().graph_exec_destroy(exec);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // One graph of all launches, rotating over the sets from that of launch `first`; none if it would have fewer than
  // `nodes_min` nodes.
  Status capture(const TimingRequest& request, size_t nodes_min = 0, int64_t first = 0) {
    const cuda_abi::Api& api = context_.api();
    LLMPROF_CHECK(context_.check(api.capture_begin(context_.stream(), cuda_abi::kCaptureRelaxed), "starting a graph"));
    Status enqueued;
    for (int i = 0; i < request.launches && enqueued; ++i) enqueued = request.enqueue(set_of(request, first + i));
    cuda_abi::Graph graph = nullptr;
    const cuda_abi::Result ended = api.capture_end(context_.stream(), &graph);
    if (!enqueued) {
      if (graph != nullptr) api.graph_destroy(graph);
      return enqueued;
    }
    LLMPROF_CHECK(context_.check(ended, "ending a graph"));
    size_t nodes = 0;
    cuda_abi::Result made = nodes_min > 0 ? api.graph_nodes(graph, nullptr, &nodes) : cuda_abi::kSuccess;
    const bool wanted = nodes >= nodes_min;
    if (made == cuda_abi::kSuccess && wanted) made = api.graph_instantiate(&exec, graph, 0);
    api.graph_destroy(graph);
    LLMPROF_CHECK(context_.check(made, "making a graph runnable"));
    if (!wanted) return {};
    return context_.check(api.graph_upload(exec, context_.stream()), "uploading a graph");
  }
  Status launch() { return context_.check(context_.api().graph_launch(exec, context_.stream()), "launching a graph"); }

  cuda_abi::GraphExec exec = nullptr;

 private:
  Context& context_;
};

Timer::~Timer() {
  const cuda_abi::Api& api = context_.api();
  for (const cuda_abi::Event event : events_) api.event_destroy(event);
  if (gate_ != nullptr) api.host_free(const_cast<uint32_t*>(gate_));
  if (flush_ != 0) api.memory_free(flush_);
  if (stamps_ != 0) api.memory_free(stamps_);
}

// One execution that is not timed: libraries load their kernels at the first. True: its time is the host's.
Result<bool> Timer::warm_up(const TimingRequest& request) {
  if (request.sets < 1 || request.launches < 1 || request.samples < 1)
    return fail("a timing needs at least one set, one launch and one sample");
  host_bound_ = false;
  LLMPROF_CHECK(request.enqueue(0));
  LLMPROF_CHECK(context_.synchronize());
  return host_bound_;
}

Result<std::vector<Sample>> Timer::by_host(const TimingRequest& request, int64_t first) {
  std::vector<Sample> samples;
  for (int i = 0; i < request.samples; ++i) {
    const double start = host_us();
    for (int launch = 0; launch < request.launches; ++launch) LLMPROF_CHECK(request.enqueue(set_of(request, first++)));
    LLMPROF_CHECK(context_.synchronize());
    samples.push_back({(host_us() - start) / request.launches, kUnknownClock, 0});
  }
  return samples;
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
    bytes_held_ -= static_cast<int64_t>(stamps_room_ * stamp_bytes);
    stamps_ = 0;
    stamps_room_ = 0;
    LLMPROF_CHECK(context_.check(api.memory_alloc(&stamps_, (stamps + 1) * stamp_bytes), "memory for stamps"));
    stamps_room_ = stamps + 1;
    bytes_held_ += static_cast<int64_t>(stamps_room_ * stamp_bytes);
  }
  if (flush && flush_ == 0) {
    flush_bytes_ = static_cast<size_t>(2 * std::max<int64_t>(cache_bytes_, 1 << 20)) / 4096 * 4096;
    LLMPROF_CHECK(context_.check(api.memory_alloc(&flush_, flush_bytes_ + 256), "memory to flush the L2 with"));
    LLMPROF_CHECK(context_.check(api.set_d8(flush_, 0, flush_bytes_ + 256, context_.stream()), "clearing memory"));
    bytes_held_ += static_cast<int64_t>(flush_bytes_) + 256;
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

Status Timer::queue_trials(const TimingRequest& request, Replay& replay, size_t first, size_t count) {
  const cuda_abi::Api& api = context_.api();
  for (size_t i = 0; i < count; ++i) {
    if (request.flush_cache) LLMPROF_CHECK(flush());
    LLMPROF_CHECK(stamp(2 * i));
    LLMPROF_CHECK(context_.check(api.event_record(events_[2 * i], context_.stream()), "recording an event"));
    if (replay.exec != nullptr) {
      LLMPROF_CHECK(replay.launch());
    } else {
      LLMPROF_CHECK(request.enqueue(static_cast<int>((first + i) % static_cast<size_t>(request.sets))));
    }
    LLMPROF_CHECK(context_.check(api.event_record(events_[2 * i + 1], context_.stream()), "recording an event"));
    LLMPROF_CHECK(stamp(2 * i + 1));
  }
  return {};
}

Status Timer::cold_batch(const TimingRequest& request, Replay& replay, size_t first, size_t count,
                         std::vector<Sample>& samples) {
  const cuda_abi::Api& api = context_.api();
  LLMPROF_CHECK(prepare(2 * count, request.flush_cache));
  LLMPROF_CHECK(context_.synchronize());
  *gate_ = 0;
  // Host memory that is mapped has the same address on the GPU.
  const cuda_abi::DevicePtr gate = reinterpret_cast<cuda_abi::DevicePtr>(gate_);
  // A driver may refuse to wait on memory; then the host races ahead of the GPU, which is right for all but the first.
  const bool gated = api.stream_wait_value(context_.stream(), gate, 1, cuda_abi::kWaitValueGeq) == cuda_abi::kSuccess;
  Watchdog watchdog(gate_, watchdog_);
  const Status queued = queue_trials(request, replay, first, count);
  const bool bitten = watchdog.release();
  LLMPROF_CHECK(queued);
  return read_samples(count, request.launches, false, bitten || !gated, samples);
}

Result<std::vector<Sample>> Timer::cold(const TimingRequest& request) {
  LLMPROF_ASSIGN(const bool host_bound, warm_up(request));
  if (host_bound) return by_host(request);
  // A graph has the buffers of one set where it is one launch; the flush makes them as cold as those of the next.
  Replay replay(context_);
  const Status captured = replay.capture(request, request.launches > 1 ? 0 : kManyNodes);
  if (request.launches > 1) LLMPROF_CHECK(captured);  // one launch that cannot be captured is timed without
  std::vector<Sample> samples;
  const size_t wanted = static_cast<size_t>(request.samples);
  while (samples.size() < wanted) {
    const size_t count = std::min(kColdBatch, wanted - samples.size());
    LLMPROF_CHECK(cold_batch(request, replay, samples.size(), count, samples));
  }
  return samples;
}

class Timer::CudaLoop : public Loop {
 public:
  CudaLoop(Timer& timer, TimingRequest request)
      : timer_(timer),
        request_(std::move(request)),
        graphs_(static_cast<size_t>(request_.sets / std::gcd(request_.sets, request_.launches))) {}

  Result<std::vector<Sample>> time(int samples) override {
    if (samples < 1) return fail("a timing needs at least one sample");
    if (!warm_) {
      LLMPROF_ASSIGN(host_bound_, timer_.warm_up(request_));
      warm_ = true;
    }
    std::vector<Sample> taken;
    if (host_bound_) {
      request_.samples = samples;
      LLMPROF_ASSIGN(taken, timer_.by_host(request_, replayed_ * request_.launches));
      replayed_ += samples;
      return taken;
    }
    const size_t wanted = static_cast<size_t>(samples);
    // Before any of them runs.
    for (size_t i = 0; i < std::min(wanted, graphs_.size()); ++i)
      LLMPROF_CHECK(make(replayed_ + static_cast<int64_t>(i)));
    while (taken.size() < wanted) LLMPROF_CHECK(take(std::min(kSustainedBatch, wanted - taken.size()), taken));
    return taken;
  }

 private:
  std::unique_ptr<Replay>& graph(int64_t replay) { return graphs_[static_cast<size_t>(replay) % graphs_.size()]; }

  Status make(int64_t replay) {
    std::unique_ptr<Replay>& made = graph(replay);
    if (made != nullptr) return {};
    auto making = std::make_unique<Replay>(timer_.context_);
    LLMPROF_CHECK(making->capture(request_, 0, replay * request_.launches));
    made = std::move(making);
    return {};
  }

  Status take(size_t count, std::vector<Sample>& taken) {
    Context& context = timer_.context_;
    const cuda_abi::Api& api = context.api();
    const std::vector<cuda_abi::Event>& events = timer_.events_;
    LLMPROF_CHECK(timer_.prepare(count + 1, false));
    // Not timed: the GPU comes out of the pause before it.
    LLMPROF_CHECK(graph(replayed_)->launch());
    LLMPROF_CHECK(timer_.stamp(0));
    for (size_t i = 0; i < count; ++i) {
      if (i >= kReplaysQueued)
        LLMPROF_CHECK(context.check(api.event_synchronize(events[2 * (i - kReplaysQueued) + 1]), "waiting"));
      LLMPROF_CHECK(context.check(api.event_record(events[2 * i], context.stream()), "recording an event"));
      LLMPROF_CHECK(graph(replayed_++)->launch());
      LLMPROF_CHECK(context.check(api.event_record(events[2 * i + 1], context.stream()), "recording an event"));
      LLMPROF_CHECK(timer_.stamp(i + 1));
    }
    return timer_.read_samples(count, request_.launches, true, false, taken);
  }

  Timer& timer_;
  TimingRequest request_;
  std::vector<std::unique_ptr<Replay>> graphs_;
  bool warm_ = false, host_bound_ = false;
  int64_t replayed_ = 0;
};

Result<std::unique_ptr<Loop>> Timer::loop(const TimingRequest& request) {
  if (request.sets < 1 || request.launches < 1) return fail("a timing needs at least one set and one launch");
  return std::unique_ptr<Loop>(std::make_unique<CudaLoop>(*this, request));
}

}  // namespace llmprof::device::cuda
