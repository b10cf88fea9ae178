// Times of work on one GPU (docs/adr/0011-measuring-kernels.md).
//
// Cold: up to 16 trials are queued behind a wait on a word of host memory, which occupies no SM, and let go at once, so
// the host is not in the times. Before each trial twice the L2 is read, which leaves clean lines. A watchdog lets go
// after two seconds whatever happens: work that waits for the GPU inside `enqueue` would never return otherwise, and
// work of very many kernels fills the queue. The latter is taken again as a graph; what cannot be one carries kHostGap.
// A loop: CUDA graphs of the launches, which take turns where one does not visit every set, replayed with three replays
// always queued; events around each. They are made when they are first needed.
// Work that says it waits for the host by itself (mark_host_bound: copies of pageable memory, synchronisation) is timed
// by the host's clock in both regimes.
//
// The clock of the SMs comes from stamps in the stream: each SM's cycle counter and the GPU's nanoseconds before and
// after. Stretches under 50 us use the stamps round the whole batch, since the GPU's nanoseconds tick once per
// microsecond on some chips.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/cuda/context.h"
#include "device/device.h"

namespace llmprof::device::cuda {

class Timer {
 public:
  // `cache_bytes`: of the L2.
  Timer(Context& context, int64_t cache_bytes, double clock_max_mhz)
      : context_(context), cache_bytes_(cache_bytes), clock_max_mhz_(clock_max_mhz) {}
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  Result<std::vector<Sample>> cold(const TimingRequest& request);
  Result<std::unique_ptr<Loop>> loop(const TimingRequest& request);
  // Called by work inside `enqueue`: it returns when the GPU is done, or its time is the host's.
  void mark_host_bound() { host_bound_ = true; }
  void set_watchdog(std::chrono::milliseconds after) { watchdog_ = after; }
  // Memory that the timer itself holds.
  int64_t bytes_held() const { return bytes_held_; }

 private:
  struct Replay;  // a graph of the request's launches
  class CudaLoop;
  Result<bool> warm_up(const TimingRequest& request);
  // From this launch on.
  Result<std::vector<Sample>> by_host(const TimingRequest& request, int64_t first = 0);
  Status prepare(size_t stamps, bool flush);
  Status stamp(size_t index);
  Status flush();
  Status cold_batch(const TimingRequest& request, Replay& replay, size_t first, size_t count,
                    std::vector<Sample>& samples);
  Status queue_trials(const TimingRequest& request, Replay& replay, size_t first, size_t count);
  Status read_samples(size_t count, int launches, bool between_stamps, bool gap, std::vector<Sample>& samples);
  double clock_mhz(const std::vector<uint64_t>& slots, size_t from, size_t to) const;

  Context& context_;
  int64_t cache_bytes_;
  double clock_max_mhz_;
  std::chrono::milliseconds watchdog_{2000};
  bool host_bound_ = false;
  std::vector<cuda_abi::Event> events_;
  volatile uint32_t* gate_ = nullptr;
  cuda_abi::DevicePtr flush_ = 0, stamps_ = 0;
  size_t flush_bytes_ = 0, stamps_room_ = 0;
  int64_t bytes_held_ = 0;
  bool kernels_known_ = false, have_kernels_ = false;
  Kernel stamp_kernel_, flush_kernel_;
  unsigned flush_grid_ = 0;
};

}  // namespace llmprof::device::cuda
