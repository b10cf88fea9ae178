// What samples the GPUs beside the target: a thread that reads NVML, and for each GPU that the target can see a process
// that samples its hardware counters. Neither can fail a run: what could not be sampled is a note in its spool or a
// notice here.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/launch/session_folder.h"
#include "capture/launch/signals.h"
#include "capture/samplers/nvml.h"

namespace llmprof::launch {

// Hidden command of llmprof that samples the counters of one GPU:
//   llmprof __counters --session DIR --gpu UUID --program PATH --interval-us N --ready-fd FD [--operations]
constexpr const char* kCountersCommand = "__counters";

struct SamplingOptions {
  std::string session_folder;
  bool counters = true;
  int64_t counter_interval_us = 0;       // 0: by samplers::default_interval_ns()
  bool operations = false;               // deep mode: counters that bound the arithmetic
  bool wait_until_ready = true;          // false where recording begins later: the samplers sleep until then
  std::string program;                   // what will run: the counter samplers look for its CUPTI
  std::vector<std::string> environment;  // of the target: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are looked up
};

// The GPUs that a program with this environment can use, as far as it tells: CUDA numbers GPUs its own way unless
// CUDA_DEVICE_ORDER says PCI_BUS_ID, so numbers are believed only then or when all GPUs are alike. In doubt, all.
std::vector<SessionRecord::Gpu> visible_gpus(const std::vector<SessionRecord::Gpu>& gpus, const char* visible_devices,
                                             const char* device_order);

class Sampling {
 public:
  Sampling() = default;
  ~Sampling() { stop(); }
  Sampling(const Sampling&) = delete;
  Sampling& operator=(const Sampling&) = delete;

  // Returns once NVML has listed the GPUs (up to 100 ms) and every counter sampler samples or has given up, so that the
  // first kernel is covered; after kReadyMax at the latest.
  void start(const SamplingOptions& options, const SignalRelay& signals);
  // Asks the samplers to end and waits for them, at most kStopMax; then they are killed. Nothing if not started.
  void stop();

  const std::vector<SessionRecord::Gpu>& gpus() const { return gpus_; }
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void start_counters(const SamplingOptions& options, const SignalRelay& signals);

  samplers::NvmlSampler nvml_;
  std::vector<pid_t> helpers_;
  std::string helper_log_;
  std::vector<SessionRecord::Gpu> gpus_;
  std::vector<std::string> notices_;
};

}  // namespace llmprof::launch
