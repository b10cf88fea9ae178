// The NVML sampler: a thread of `llmprof run` that reads every GPU of the machine every 100 ms and writes
// samples/nvml.spool: an NvmlSample each, and on Hopper and later a GpuSample of source "gpm"; what holds a lock of the
// driver is read more rarely (nvidia/nvml_reader.h), but always first and last. Starting NVML takes 10
// to 100 ms, so it happens on that thread; the launch of the target never waits for it. Without NVML the spool holds
// the note "no-nvml" and nothing else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "capture/spool/writer.h"
#include "nvidia/nvml_library.h"

namespace llmprof::samplers {

struct NvmlSamplerOptions {
  std::string folder;     // the session folder
  int period_ms = 100;    // NVML takes a lock of the driver: below 20 ms the target would feel it
  bool gpm = true;        // read GPM where the GPU has it
  std::string nvml_path;  // empty: LLMPROF_NVML, else libnvidia-ml.so.1
};

class NvmlSampler {
 public:
  NvmlSampler() = default;
  ~NvmlSampler() { stop(); }
  NvmlSampler(const NvmlSampler&) = delete;
  NvmlSampler& operator=(const NvmlSampler&) = delete;

  // Creates the spool and starts the thread; an error only if the spool cannot be created.
  Status start(const NvmlSamplerOptions& options);
  // Takes a last reading, closes the spool and joins. Nothing if not started.
  void stop();

  // The GPUs of the machine; waits until NVML has listed them. Empty without NVML: why_empty() says the reason.
  const std::vector<nvidia::NvmlGpu>& gpus();
  std::string why_empty();
  // Readings written so far, all GPUs.
  uint64_t samples() const;

 private:
  void run();
  bool wait_until(int64_t monotonic_ns);  // false when it is time to stop

  NvmlSamplerOptions options_;
  spool::Writer writer_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, listed_ = false;
  std::vector<nvidia::NvmlGpu> gpus_;
  std::string why_empty_;
  uint64_t samples_ = 0;
};

}  // namespace llmprof::samplers
