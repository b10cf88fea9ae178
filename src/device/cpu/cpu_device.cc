#include "device/cpu/cpu_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

#include "base/clock.h"
#include "device/cpu/math_libraries.h"
#include "device/fill.h"

namespace llmprof::device::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Caches of unknown size are taken to be so large.
constexpr int64_t kUsualCache = int64_t{32} << 20;
// Telemetry of a long run: older readings are dropped.
constexpr size_t kReadingsKept = 1 << 16;

class Pages : public Buffer {
 public:
  Pages(void* address, size_t bytes, size_t mapped, std::shared_ptr<CpuDevice::Usage> usage)
      : address_(address), bytes_(bytes), mapped_(mapped), usage_(std::move(usage)) {
    usage_->now += static_cast<int64_t>(bytes_);
    usage_->peak = std::max(usage_->peak, usage_->now);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() override {
    munmap(address_, mapped_);
    usage_->now -= static_cast<int64_t>(bytes_);
  }
  void* address() const override { return address_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* address_;
  size_t bytes_, mapped_;
  std::shared_ptr<CpuDevice::Usage> usage_;
};

Status check_range(const Buffer& buffer, size_t offset, size_t bytes) {
  if (offset <= buffer.bytes() && bytes <= buffer.bytes() - offset) return {};
  return fail(fmt::format("bytes {} to {} of a buffer of {}", offset, offset + bytes, buffer.bytes()));
}

std::string gigabytes(int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9); }

}  // namespace

std::pair<size_t, size_t> share_of(size_t count, size_t multiple, int thread, int threads) {
  const size_t blocks = (count + multiple - 1) / multiple;
  const auto at = [&](int of) {
    return std::min(count, blocks * static_cast<size_t>(of) / static_cast<size_t>(threads) * multiple);
  };
  return {at(thread), at(thread + 1)};
}

float measured_clock_mhz() {
#if defined(__x86_64__)
  constexpr int kSteps = 8000;
  float best = 0;
  // Twice, because an interrupt makes one of them too long.
  for (int round = 0; round < 2; ++round) {
    uint64_t value = 3;
    const int64_t start = read_clock_ns(CLOCK_MONOTONIC_RAW);
    for (int step = 0; step < kSteps / 8; ++step)
      asm volatile(
          "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\t"
          "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
          : "+r"(value)
          :
          : "cc");
    const int64_t ns = read_clock_ns(CLOCK_MONOTONIC_RAW) - start;
    if (ns > 0) best = std::max(best, 3.0F * kSteps * 1000 / static_cast<float>(ns));
  }
  return best > 0 ? best : std::numeric_limits<float>::quiet_NaN();
#else
  return std::numeric_limits<float>::quiet_NaN();
#endif
}

CpuDevice::CpuDevice(const Facts& facts, int threads) : team_(threads) {
  identity_.kind = DeviceKind::kCpu;
  identity_.name = facts.name;
  identity_.key = fmt::format("{}-{}-thread{}", facts.key, team_.threads(), team_.threads() == 1 ? "" : "s");
  identity_.units = team_.threads();
  identity_.memory_bytes = facts.memory_bytes;
  identity_.cache_bytes = facts.cache_bytes > 0 ? facts.cache_bytes : kUsualCache;
  identity_.clock_max_mhz = facts.clock_max_mhz;
  if (one_dnn().missing.empty()) identity_.libraries.push_back({"oneDNN", one_dnn().version, one_dnn().path});
  if (open_blas().missing.empty()) {
    identity_.libraries.push_back({"OpenBLAS", open_blas().version, open_blas().path});
    open_blas().openblas_set_num_threads(team_.threads());
  }
  if (team_.has_libgomp()) identity_.libraries.push_back({"libgomp", "1", team_.path()});
}

Result<std::unique_ptr<Buffer>> CpuDevice::allocate(size_t bytes) {
  const int64_t free = free_bytes();
  const auto refuse = [&] {
    return fail(fmt::format("{} were asked for, {} are free", gigabytes(static_cast<int64_t>(bytes)), gigabytes(free)));
  };
  // Linux promises more than it has; what is not there would end the process when it is touched.
  if (bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max() / 2)) return refuse();
  if (free > 0 && static_cast<int64_t>(bytes) > free) return refuse();
  const size_t mapped = (std::max<size_t>(bytes, 1) + kHugePage - 1) / kHugePage * kHugePage;
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return refuse();
  madvise(address, mapped, MADV_HUGEPAGE);
  char* start = static_cast<char*>(address);
  team_.run([&](int thread) {
    const auto [first, last] = share_of(bytes, 4096, thread, team_.threads());
    for (size_t at = first; at < last; at += 4096) *static_cast<volatile char*>(start + at) = 0;
  });
  return std::unique_ptr<Buffer>(std::make_unique<Pages>(address, bytes, mapped, usage_));
}

int64_t CpuDevice::free_bytes() const { return available_memory(); }

Status CpuDevice::fill(const Buffer& buffer, const Fill& fill) {
  LLMPROF_CHECK(check_fill(fill));
  // Poison is bytes, whatever the type.
  if (fill.kind == Fill::Kind::kPoison) {
    team_.run([&](int thread) {
      const auto [first, last] = share_of(buffer.bytes(), 4096, thread, team_.threads());
      std::memset(static_cast<char*>(buffer.address()) + first, 0xff, last - first);
    });
    return {};
  }
  const size_t size = fill_unit_bytes(fill.dtype);
  team_.run([&](int thread) {
    const auto [first, last] = share_of(buffer.bytes() / size, 4096, thread, team_.threads());
    fill_elements(fill, first, last - first, static_cast<char*>(buffer.address()) + first * size);
  });
  return {};
}

Status CpuDevice::upload(const Buffer& buffer, size_t offset, const void* from, size_t bytes) {
  LLMPROF_CHECK(check_range(buffer, offset, bytes));
  std::memcpy(static_cast<char*>(buffer.address()) + offset, from, bytes);
  return {};
}

Status CpuDevice::download(const Buffer& buffer, size_t offset, void* to, size_t bytes) {
  LLMPROF_CHECK(check_range(buffer, offset, bytes));
  std::memcpy(to, static_cast<const char*>(buffer.address()) + offset, bytes);
  return {};
}

// Reading leaves clean lines: nothing is left to be written back while the sample runs.
Status CpuDevice::flush_cache() {
  if (flush_ == nullptr) {
    LLMPROF_ASSIGN(flush_, allocate(static_cast<size_t>(2 * identity_.cache_bytes)));
  }
  const auto* words = static_cast<const uint64_t*>(flush_->address());
  team_.run([&](int thread) {
    const auto [first, last] = share_of(flush_->bytes() / 8, 512, thread, team_.threads());
    uint64_t sum = 0;
    for (size_t at = first; at < last; at += 8) sum += words[at];
    static_cast<void>(*static_cast<volatile uint64_t*>(&sum));
  });
  return {};
}

Result<Sample> CpuDevice::time_once(const TimingRequest& request, int64_t first_launch) {
  const std::optional<int64_t> waited_before = run_queue_.waited_ns();
  const int64_t start = read_clock_ns(CLOCK_MONOTONIC_RAW);
  for (int launch = 0; launch < request.launches; ++launch)
    LLMPROF_CHECK(request.enqueue(static_cast<int>((first_launch + launch) % request.sets)));
  const int64_t ns = read_clock_ns(CLOCK_MONOTONIC_RAW) - start;
  const std::optional<int64_t> waited = run_queue_.waited_ns();
  Sample sample;
  sample.us = static_cast<double>(ns) * 1e-3 / request.launches;
  // A thread that has ended takes its count with it.
  if (waited_before && waited && *waited >= *waited_before)
    sample.waited_us = static_cast<double>(*waited - *waited_before) * 1e-3 / request.launches;
  sample.clock_mhz = measured_clock_mhz();
  if (readings_.size() >= kReadingsKept) readings_.erase(readings_.begin(), readings_.begin() + kReadingsKept / 2);
  readings_.push_back({now_ns(), sample.clock_mhz, waited});
  return sample;
}

class CpuDevice::CpuRepetitions : public Repetitions {
 public:
  CpuRepetitions(CpuDevice& device, TimingRequest request, bool flush)
      : device_(device), request_(std::move(request)), flush_(flush) {}
  Result<std::vector<Sample>> time(int samples) override {
    std::vector<Sample> taken;
    device_.run_queue_.find_threads();
    for (int sample = 0; sample < samples; ++sample) {
      if (flush_) LLMPROF_CHECK(device_.flush_cache());
      LLMPROF_ASSIGN(const Sample one, device_.time_once(request_, launched_));
      launched_ += request_.launches;
      taken.push_back(one);
    }
    return taken;
  }

 private:
  CpuDevice& device_;
  TimingRequest request_;
  bool flush_;
  int64_t launched_ = 0;
};

Result<std::unique_ptr<Repetitions>> CpuDevice::trials(const TimingRequest& request) {
  return std::unique_ptr<Repetitions>(std::make_unique<CpuRepetitions>(*this, request, request.flush_cache));
}

Result<std::unique_ptr<Repetitions>> CpuDevice::loop(const TimingRequest& request) {
  return std::unique_ptr<Repetitions>(std::make_unique<CpuRepetitions>(*this, request, false));
}

Telemetry CpuDevice::telemetry(int64_t since_ns) {
  double sum = 0;
  int64_t count = 0, waited_ns = 0;
  const Reading *first = nullptr, *last = nullptr;
  for (const Reading& reading : readings_) {
    if (reading.when_ns < since_ns) continue;
    if (!std::isnan(reading.mhz)) sum += static_cast<double>(reading.mhz), ++count;
    if (!reading.waited_ns) continue;
    // A thread that has ended takes its count with it.
    if (last != nullptr) waited_ns += std::max<int64_t>(0, *reading.waited_ns - *last->waited_ns);
    if (first == nullptr) first = &reading;
    last = &reading;
  }
  Telemetry telemetry;
  if (count > 0) telemetry.clock_mhz = sum / static_cast<double>(count);
  if (first != last && last->when_ns > first->when_ns)
    telemetry.wait_ratio = static_cast<double>(waited_ns) / static_cast<double>(last->when_ns - first->when_ns);
  return telemetry;
}

Result<std::unique_ptr<Device>> open_cpu(int threads) {
  const Facts facts = read_facts();
  if (threads < 0 || threads > facts.threads)
    return fail(fmt::format("expected 1 to {} threads, found {}", facts.threads, threads), {},
                "a larger affinity mask or CPU quota for this process", ExitCode::kUsage);
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(facts, threads > 0 ? threads : facts.threads));
}

}  // namespace llmprof::device::cpu
