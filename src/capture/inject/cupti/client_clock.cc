#include "capture/inject/cupti/client_clock.h"

#include <pthread.h>
#include <time.h>

#include <atomic>

#include "capture/inject/inject.h"

namespace llmprof::inject {
namespace {

// The same moment on both clocks.
struct Moment {
  int64_t ns = 0;
  uint64_t ticks = 0;
};

std::atomic<cupti::TimestampFunction> current{nullptr};
std::atomic<cupti::TimestampFunction> given_clock{nullptr};
Moment clock_set;  // written before `current`

// The reading of several that was interrupted least.
Moment read_both(cupti::TimestampFunction clock) {
  Moment best;
  int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = now_ns();
    const uint64_t ticks = clock();
    const int64_t after = now_ns();
    if (after - before >= least || after < before) continue;
    least = after - before;
    best = {before + (after - before) / 2, ticks};
  }
  return best;
}

class Conversion {
 public:
  explicit Conversion(cupti::TimestampFunction clock) {
    // The rate needs two moments that are apart: 2 ms give 25 parts in a million for readings 50 ns wide.
    constexpr int64_t kApartNs = 2'000'000;
    Moment last = read_both(clock);
    while (last.ns - clock_set.ns < kApartNs && last.ns >= clock_set.ns) last = read_both(clock);
    if (last.ns > clock_set.ns)
      rate_ = static_cast<double>(last.ticks - clock_set.ticks) / static_cast<double>(last.ns - clock_set.ns);
  }
  void operator()(uint64_t& time) const {
    if (time == 0) return;  // unknown stays unknown
    const double ticks = static_cast<double>(static_cast<int64_t>(time) - clock_set.ns) * rate_;
    time = clock_set.ticks + static_cast<uint64_t>(static_cast<int64_t>(ticks));
  }

 private:
  double rate_ = 1;
};

template <class Record>
void stamp_span(cupti::Activity* activity, const Conversion& convert) {
  Record& record = *reinterpret_cast<Record*>(activity);
  convert(record.start);
  convert(record.end);
}

uint64_t realtime_clock() { return static_cast<uint64_t>(now_ns()); }

}  // namespace

void set_client_clock(cupti::TimestampFunction clock) {
  current.store(nullptr, std::memory_order_release);
  clock_set = read_both(clock);
  current.store(clock, std::memory_order_release);
}

cupti::TimestampFunction client_clock() { return current.load(std::memory_order_acquire); }

void stamp_for_client(const nvidia::CuptiLibrary& api, uint8_t* buffer, size_t valid_size) {
  const cupti::TimestampFunction clock = client_clock();
  if (clock == nullptr || buffer == nullptr || valid_size == 0) return;
  const Conversion convert(clock);
  cupti::Activity* record = nullptr;
  while (api.cuptiActivityGetNextRecord(buffer, valid_size, &record) == cupti::kSuccess && record != nullptr) {
    switch (record->kind) {
      case cupti::kConcurrentKernel:
      case cupti::kSerialKernel: {
        cupti::KernelActivity& kernel = *reinterpret_cast<cupti::KernelActivity*>(record);
        for (uint64_t* time : {&kernel.start, &kernel.end, &kernel.completed, &kernel.queued, &kernel.submitted})
          convert(*time);
        break;
      }
      case cupti::kMemcpy:
        stamp_span<cupti::MemcpyActivity>(record, convert);
        break;
      case cupti::kMemcpy2:
        stamp_span<cupti::PeerMemcpyActivity>(record, convert);
        break;
      case cupti::kMemset:
        stamp_span<cupti::MemsetActivity>(record, convert);
        break;
      case cupti::kRuntime:
      case cupti::kDriver:
        stamp_span<cupti::ApiActivity>(record, convert);
        break;
      case cupti::kSynchronization:
        stamp_span<cupti::SynchronizationActivity>(record, convert);
        break;
      case cupti::kOverhead:
        stamp_span<cupti::OverheadActivity>(record, convert);
        break;
      case cupti::kGraphTrace:
        stamp_span<cupti::GraphActivity>(record, convert);
        break;
      case cupti::kMemory2:
        convert(reinterpret_cast<cupti::MemoryActivity*>(record)->timestamp);
        break;
      case cupti::kMarker:
        convert(reinterpret_cast<cupti::MarkerActivity*>(record)->timestamp);
        break;
      default:
        break;
    }
  }
}

void clock_given_to_cupti(cupti::TimestampFunction clock) { given_clock.store(clock, std::memory_order_release); }

void take_clock_back(const nvidia::CuptiLibrary& api) {
  const cupti::TimestampFunction clock = given_clock.exchange(nullptr, std::memory_order_acq_rel);
  if (clock == nullptr || api.cuptiActivityRegisterTimestampCallback == nullptr) return;
  if (api.cuptiActivityRegisterTimestampCallback(realtime_clock) == cupti::kSuccess) set_client_clock(clock);
}

}  // namespace llmprof::inject
