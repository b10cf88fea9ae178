// The CPU as a device. Work runs on the calling thread and its team, and is done when enqueue returns.
//
// Time is CLOCK_MONOTONIC_RAW, which nothing adjusts. Memory comes in pages that the team touched first in equal
// shares, as kernels share their work, so that on machines with several memory nodes each thread has its own near it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "device/cpu/facts.h"
#include "device/cpu/run_queue.h"
#include "device/cpu/team.h"
#include "device/device.h"

namespace llmprof::device::cpu {

// `threads` 0: all that the process may use. Error: more threads than it may use.
Result<std::unique_ptr<Device>> open_cpu(int threads);

class CpuDevice : public Device {
 public:
  CpuDevice(const Facts& facts, int threads);

  const DeviceIdentity& identity() const override { return identity_; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override;
  int64_t free_bytes() const override;
  int64_t peak_bytes() const override { return usage_->peak; }
  void reset_peak() override { usage_->peak = usage_->now; }
  Status fill(const Buffer& buffer, const Fill& fill) override;
  Status upload(const Buffer& buffer, size_t offset, const void* from, size_t bytes) override;
  Status download(const Buffer& buffer, size_t offset, void* to, size_t bytes) override;
  Status synchronize() override { return {}; }
  Result<std::unique_ptr<Repetitions>> trials(const TimingRequest& request) override;
  Result<std::unique_ptr<Repetitions>> loop(const TimingRequest& request) override;
  // Of the samples taken since: the mean clock, and how long threads waited. Power and temperature are not read.
  Telemetry telemetry(int64_t since_ns) override;

  const Team& team() const { return team_; }
  const Instructions& instructions() const { return instructions_; }

  struct Usage {
    int64_t now = 0, peak = 0;
  };

 private:
  class CpuRepetitions;
  Status flush_cache();
  Result<Sample> time_once(const TimingRequest& request, int64_t first_launch);

  Team team_;
  Instructions instructions_ = cpu_instructions();
  DeviceIdentity identity_;
  std::shared_ptr<Usage> usage_ = std::make_shared<Usage>();
  std::unique_ptr<Buffer> flush_;
  RunQueue run_queue_;
  // After a sample: its clock, and the waiting of all threads until then; NaN and absent where they are not known.
  struct Reading {
    int64_t when_ns = 0;
    float mhz = 0;
    std::optional<int64_t> waited_ns;
  };
  std::vector<Reading> readings_;
};

// Of the calling thread's core, by a chain of multiplications that take 3 cycles each on every x86-64 core since 2008;
// NaN elsewhere. Takes about 12 us.
float measured_clock_mhz();

// Elements [first, second) of `count` that are thread's share of `threads`: equal, begins at multiples of `multiple`.
std::pair<size_t, size_t> share_of(size_t count, size_t multiple, int thread, int threads);

}  // namespace llmprof::device::cpu
