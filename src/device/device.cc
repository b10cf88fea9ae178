#include "device/device.h"

#include <chrono>
#include <ctime>
#include <thread>

namespace llmprof::device {

int64_t Device::now_ns() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Result<std::vector<Sample>> Device::time_cold(const TimingRequest& request) {
  LLMPROF_ASSIGN(const std::unique_ptr<Repetitions> once, trials(request));
  return once->time(request.samples);
}

Result<std::vector<Sample>> Device::time_sustained(const TimingRequest& request) {
  LLMPROF_ASSIGN(const std::unique_ptr<Repetitions> once, loop(request));
  return once->time(request.samples);
}

void Device::pause(double seconds) const { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace llmprof::device
