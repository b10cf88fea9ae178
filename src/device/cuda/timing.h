// Times of work on one GPU (docs/adr/0011-measuring-kernels.md).
//
// A sample is the replay of a CUDA graph between two events. Graphs are made when they are first needed, one for each
// set, or as many as it takes to visit every set where a sample is several launches.
// Trials: up to 16 are queued behind a wait on a word of host memory, which occupies no SM, and let go at once, so the
// host is not in the times. Before each twice the L2 is read, which leaves clean lines. Launched without a graph, a
// trial takes 0.2 to 1.5 us more as long as another two are queued behind it (docs/adr/0011-measuring-kernels.md). A
// watchdog lets go after two seconds whatever happens: work that waits for the GPU inside `enqueue`, which cannot be a
// graph, would never return otherwise; its samples carry kHostGap.
// A loop: three replays are always queued.
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

  Result<std::unique_ptr<Repetitions>> trials(const TimingRequest& request);
  Result<std::unique_ptr<Repetitions>> loop(const TimingRequest& request);
  // Called by work inside `enqueue`: it returns when the GPU is done, or its time is the host's.
  void mark_host_bound() { host_bound_ = true; }
  void set_watchdog(std::chrono::milliseconds after) { watchdog_ = after; }

 private:
  class Graph;
  class Graphs;
  class CudaRepetitions;
  class Trials;
  class BackToBack;
  Status prepare(size_t stamps, bool flush);
  Status stamp(size_t index);
  Status flush();
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
  bool kernels_known_ = false, have_kernels_ = false;
  Kernel stamp_kernel_, flush_kernel_;
  unsigned flush_grid_ = 0;
};

}  // namespace llmprof::device::cuda
