// One device that is measured: a GPU or the CPU. What the bench room knows of it: memory, time, telemetry. Operations
// (op.h) are prepared for one device and enqueue work on it.
//
// Implementations: cuda/ (driver API, NVRTC, cuBLASLt and cuDNN, all opened at run time), cpu/ (oneDNN, OpenBLAS, own
// kernels), and a scripted one in the tests of bench. One thread uses a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/shared_library.h"

namespace llmprof::device {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct DeviceIdentity {
  DeviceKind kind = DeviceKind::kCpu;
  std::string key;           // names the file of its ceilings: the GPU's uuid; the CPU's name and threads
  std::string name;          // as the driver or /proc/cpuinfo gives it
  std::string uuid, driver;  // empty for a CPU
  int ordinal = 0;           // CUDA ordinal; 0 of a GPU that was opened by its uuid
  int cc_major = 0, cc_minor = 0;
  int units = 0;             // SMs, or threads used
  int64_t memory_bytes = 0;  // all of it
  int64_t cache_bytes = 0;   // L2 of a GPU, last level of a CPU, all units together
  double clock_max_mhz = 0;  // 0: unknown
  std::vector<LibraryVersion> libraries;
};

// Memory of the device; freed with its owner. Outlives no Device.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* address() const = 0;  // a device pointer on a GPU
  virtual size_t bytes() const = 0;
};

// What a buffer is filled with: reproducible from (seed, index), and the same numbers on every device.
struct Fill {
  enum class Kind : uint8_t { kUniform, kPoison, kIndex } kind = Kind::kUniform;
  DType dtype = DType::kFp32;  // of the elements; 8-bit types fill their whole range
  uint64_t seed = 1;
  int64_t below = 0;  // kIndex: 32-bit integers in [0, below)
};                    // kUniform: [-1, 1); kPoison: all bits set (NaN, -1)

// One timed repetition: `launches` executions, `us` for one of them.
struct Sample {
  double us = 0;
  float clock_mhz = 0;  // of the units during it; NaN: unknown
  uint8_t flags = 0;
  // So much of `us` the threads of a CPU, all together, were ready and waited for a core that others had: without them
  // it would have been between us - waited_us and us. NaN: unknown.
  double waited_us = std::numeric_limits<double>::quiet_NaN();
};
enum SampleFlag : uint8_t { kThrottled = 1, kHostGap = 2 };

struct TimingRequest {
  // Executes the work once, on buffers of set `set` in [0, sets). Asynchronous on a GPU.
  std::function<Status(int set)> enqueue;
  int sets = 1;
  int launches = 1;          // per sample
  int samples = 1;           // of time_cold and time_sustained
  bool flush_cache = false;  // trials: empty the last-level cache before each sample
};

// Over a stretch of time. Unknown parts are absent.
struct Telemetry {
  std::optional<double> power_w, temperature_c, clock_mhz;
  std::optional<double> power_limit_w;
  // Share of the readings with each reason why the clock was held down: "power cap", "thermal", ...
  std::vector<std::pair<std::string, double>> throttle_fracs;
  // Of a GPU, whoever uses it: share of the time that kernels ran, and memory in use. The driver's own and this
  // process's are part of both.
  std::optional<double> busy_frac;
  std::optional<int64_t> used_bytes;
  // Of a CPU: time that its threads waited for a core which others had, added over threads, over that between the first
  // and the last sample: what lies between samples is part of both.
  std::optional<double> wait_ratio;
};

// Work made ready to be timed again and again. What has to be made for it (on a GPU, graphs) is made once: a GPU that
// idles between two stretches has more power left for them than a program that never pauses. Ends before its device.
class Repetitions {
 public:
  virtual ~Repetitions() = default;
  // So many samples, at least one; nothing else runs between them. The sets go on where the last ones ended.
  virtual Result<std::vector<Sample>> time(int samples) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceIdentity& identity() const = 0;

  // The error says what was asked for and what is free.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;
  virtual int64_t free_bytes() const = 0;
  virtual int64_t peak_bytes() const = 0;  // of allocate, since reset_peak
  virtual void reset_peak() = 0;
  virtual Status fill(const Buffer& buffer, const Fill& fill) = 0;
  virtual Status upload(const Buffer& buffer, size_t offset, const void* from, size_t bytes) = 0;
  virtual Status download(const Buffer& buffer, size_t offset, void* to, size_t bytes) = 0;
  virtual Status synchronize() = 0;

  // Isolated: what a step after a pause sees. Each sample starts on an idle device.
  virtual Result<std::unique_ptr<Repetitions>> trials(const TimingRequest& request) = 0;
  // Back to back: what a loop sees.
  virtual Result<std::unique_ptr<Repetitions>> loop(const TimingRequest& request) = 0;
  // The samples of the request, of trials or a loop that are not gone on with.
  Result<std::vector<Sample>> time_cold(const TimingRequest& request);
  Result<std::vector<Sample>> time_sustained(const TimingRequest& request);

  // What was read since `since_ns` of its clock.
  virtual Telemetry telemetry(int64_t since_ns) = 0;
  // The clock that everything around the timings is counted by, CLOCK_MONOTONIC, and a rest of the caller on it. A
  // scripted device has one of its own: what the protocol does by the clock is the same on a machine of any speed.
  virtual int64_t now_ns() const;
  virtual void pause(double seconds) const;
  // Process numbers of the other programs on a GPU, as its driver counts them; empty where it does not tell, as in
  // most containers.
  virtual std::vector<int64_t> other_processes() { return {}; }
};

// "cpu", "cuda:1", a uuid of a GPU ("GPU-...") or of a part of one ("MIG-..."), or "" for the first GPU, else the CPU.
// By uuid it is the only GPU that this process and those it starts see from then on. The error says what was tried,
// what is missing and what works instead. `threads` 0: all that the process may use.
struct OpenOptions {
  std::string name;
  int threads = 0;
};
Result<std::unique_ptr<Device>> open_device(const OpenOptions& options);

}  // namespace llmprof::device
