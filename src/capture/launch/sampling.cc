#include "capture/launch/sampling.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "capture/launch/child.h"
#include "capture/launch/environment.h"

namespace llmprof::launch {
namespace {

using Gpu = SessionRecord::Gpu;

// Starting CUDA and CUPTI takes about a second; a sampler that takes much longer is left to catch up.
constexpr std::chrono::milliseconds kReadyMax(4000);
// A sampler drains its last buffers within a fraction of a second; one that hangs in the driver must not hold the
// report.
constexpr std::chrono::milliseconds kStopMax(3000), kKillMax(500), kStopStep(5);

// Reads until every writer has closed the pipe or the time is over.
void wait_for_end(int pipe_end, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + limit;
  while (true) {
    const int64_t left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{pipe_end, POLLIN, 0};
    if (left_ms <= 0 || poll(&wanted, 1, static_cast<int>(left_ms)) <= 0) return;
    char lines[512];
    if (read(pipe_end, lines, sizeof lines) <= 0) return;
  }
}

void sleep_for(std::chrono::milliseconds time) {
  timespec span{};
  span.tv_nsec = time.count() * 1000000;
  nanosleep(&span, nullptr);
}

}  // namespace

std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* visible_devices, const char* device_order) {
  if (visible_devices == nullptr) return gpus;
  const bool alike =
      std::all_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.name == gpus.front().name; });
  const bool numbered = alike || (device_order != nullptr && std::string_view(device_order) == "PCI_BUS_ID");
  std::vector<Gpu> by_bus = gpus;
  std::sort(by_bus.begin(), by_bus.end(), [](const Gpu& a, const Gpu& b) { return a.pci_bus < b.pci_bus; });
  std::vector<Gpu> visible;
  std::string_view rest = visible_devices;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string one(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t before = visible.size();
    if (one.starts_with("GPU-")) {
      for (const Gpu& gpu : gpus)
        if (gpu.uuid.starts_with(one)) visible.push_back(gpu);
    } else if (!one.empty() && one.find_first_not_of("0123456789") == std::string::npos) {
      if (!numbered) return gpus;
      const size_t index = one.size() > 6 ? by_bus.size() : std::strtoul(one.c_str(), nullptr, 10);
      if (index < by_bus.size()) visible.push_back(by_bus[index]);
    } else if (one.starts_with("MIG-")) {
      return gpus;
    }
    if (visible.size() == before) break;  // CUDA stops at the first name that is none
  }
  return visible;
}

void Sampling::start(const SamplingOptions& options, const SignalRelay& signals) {
  samplers::NvmlSamplerOptions nvml;
  nvml.folder = options.session_folder;
  if (const Status started = nvml_.start(nvml); !started) {
    notices_.push_back(started.error().what);
    return;
  }
  for (const nvidia::NvmlGpu& gpu : nvml_.gpus()) gpus_.push_back({gpu.uuid, gpu.name, gpu.pci_bus});
  if (options.counters) start_counters(options, signals);
}

void Sampling::start_counters(const SamplingOptions& options, const SignalRelay& signals) {
  const std::vector<Gpu> visible = visible_gpus(gpus_, environment_value(options.environment, "CUDA_VISIBLE_DEVICES"),
                                                environment_value(options.environment, "CUDA_DEVICE_ORDER"));
  helper_log_ = options.session_folder + "/samples/counters.log";
  Pipe ready;  // all samplers write to it and close it
  if (!ready.open()) return;
  for (const Gpu& gpu : visible) {
    const std::string interval_us = std::to_string(options.counter_interval_us);
    std::vector<std::string> words = {kCountersCommand, "--session", options.session_folder, "--gpu", gpu.uuid};
    words.insert(words.end(), {"--program", options.program, "--interval-us", interval_us});
    words.insert(words.end(), {"--ready-fd", std::to_string(ready.write_end)});
    if (options.operations) words.push_back("--operations");
    const Result<pid_t> helper =
        start_helper(words, options.session_folder + "/samples/counters.log", ready.write_end, signals);
    if (helper)
      helpers_.push_back(*helper);
    else
      notices_.push_back("hardware counters are not sampled: " + helper.error().what);
  }
  Pipe::close_end(ready.write_end);
  if (options.wait_until_ready) wait_for_end(ready.read_end, kReadyMax);
}

void Sampling::stop() {
  for (const pid_t helper : helpers_) kill(helper, SIGTERM);
  nvml_.stop();
  const auto wait_for_helpers = [&](std::chrono::milliseconds limit) {
    for (std::chrono::milliseconds waited(0);; waited += kStopStep) {
      std::erase_if(helpers_, [](pid_t helper) { return collect(helper).has_value(); });
      if (helpers_.empty() || waited >= limit) return;
      sleep_for(kStopStep);
    }
  };
  wait_for_helpers(kStopMax);
  struct stat log {};
  if (!helper_log_.empty() && stat(helper_log_.c_str(), &log) == 0 && log.st_size == 0) unlink(helper_log_.c_str());
  if (helpers_.empty()) return;
  notices_.push_back("a counter sampler did not end in time and was killed; its last samples may be missing");
  for (const pid_t helper : helpers_) kill(helper, SIGKILL);
  wait_for_helpers(kKillMax);
  helpers_.clear();  // one that hangs in the driver is left to the system
}

}  // namespace llmprof::launch
