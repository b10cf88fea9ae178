// A GPU as a device: memory with guard zones, fills, and the timings of timing.h.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/context.h"
#include "device/cuda/telemetry.h"
#include "device/cuda/timing.h"
#include "device/device.h"

namespace llmprof::device::cuda {

// On both sides of every buffer, filled with a pattern: a kernel that writes past its output is found.
constexpr size_t kGuardBytes = 256;

class CudaDevice : public Device {
 public:
  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);
  ~CudaDevice() override;

  const DeviceIdentity& identity() const override { return identity_; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override;
  int64_t free_bytes() const override;
  int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = held_; }
  Status fill(const Buffer& buffer, const Fill& fill) override;
  Status upload(const Buffer& buffer, size_t offset, const void* from, size_t bytes) override;
  Status download(const Buffer& buffer, size_t offset, void* to, size_t bytes) override;
  Status synchronize() override { return context_->synchronize(); }
  Result<std::unique_ptr<Repetitions>> trials(const TimingRequest& request) override { return timer_->trials(request); }
  Result<std::unique_ptr<Repetitions>> loop(const TimingRequest& request) override { return timer_->loop(request); }
  Telemetry telemetry(int64_t since_ns) override { return telemetry_->since(since_ns); }
  std::vector<int64_t> other_processes() override { return telemetry_->other_processes(); }

  Context& context() { return *context_; }
  Timer& timer() { return *timer_; }
  // Both guard zones of a buffer of this device are as they were. The error names the first byte that is not.
  Status check_guards(const Buffer& buffer);
  // A library that was opened later is added to the identity once.
  void note_library(const LibraryVersion& library);

 private:
  class CudaBuffer;
  CudaDevice() = default;
  Status fill_by_host(const Buffer& buffer, const Fill& fill, size_t count);

  std::unique_ptr<Context> context_;
  std::unique_ptr<TelemetryThread> telemetry_;
  std::unique_ptr<Timer> timer_;
  DeviceIdentity identity_;
  int64_t held_ = 0, peak_ = 0;
};

// For the catalog: the GPU of this ordinal.
Result<std::unique_ptr<Device>> open_cuda(int ordinal);

}  // namespace llmprof::device::cuda
