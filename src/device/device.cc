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

void Device::pause(double seconds) const { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace llmprof::device
