// Work of three kinds whose time is compared with that of a loop of Python (benchmarks/host_pace.py): what the
// recorder's probe does (base/pace_work.h), a small interpreter, and a walk through 512 KiB.
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/pace_work.h"

namespace {

uint32_t next_random(uint32_t& state) { return (state = state * 1664525U + 1013904223U) >> 8; }

constexpr size_t kCodes = 4096, kKinds = 8, kCells = 32, kLines = 8192, kWordsOfLine = 16;

uint64_t interpret(const std::array<uint8_t, kCodes>& code) {
  std::array<uint64_t, kCells> cells{1, 2, 3};
  uint64_t x = 7;
  for (size_t i = 0; i < 3000; ++i) {
    switch (code[i]) {
      case 0:
        x += cells[x % kCells];
        break;
      case 1:
        cells[x % kCells] = x;
        break;
      case 2:
        x ^= x >> 7;
        break;
      case 3:
        x *= 0x9e3779b97f4a7c15ULL;
        break;
      case 4:
        cells[(x >> 5) % kCells] += x;
        break;
      case 5:
        if ((x & 1) != 0) x += 5;
        break;
      case 6:
        x = x * 5 + 1;
        break;
      default:
        if (cells[x % kCells] > x) x ^= cells[1];
    }
  }
  return x;
}

struct Data {
  Data() : next(kLines * kWordsOfLine) {
    uint32_t random = 12345;
    for (uint8_t& one : code) one = static_cast<uint8_t>(next_random(random) % kKinds);
    std::vector<uint32_t> order(kLines);
    std::iota(order.begin(), order.end(), 0U);
    for (uint32_t i = kLines - 1; i > 0; --i) std::swap(order[i], order[next_random(random) % (i + 1)]);
    for (size_t i = 0; i < kLines; ++i)
      next[order[i] * kWordsOfLine] = static_cast<uint32_t>(order[(i + 1) % kLines] * kWordsOfLine);
  }
  std::array<uint8_t, kCodes> code{};
  std::vector<uint32_t> next;
};

uint64_t walk(const std::vector<uint32_t>& next) {
  uint32_t at = 0;
  for (int i = 0; i < 600; ++i) at = next[at];
  return at;
}

template <class Work>
int64_t timed(Work&& work) {
  const int64_t start_ns = llmprof::monotonic_ns();
  asm volatile("" ::"r"(work()));
  return llmprof::monotonic_ns() - start_ns;
}

}  // namespace

// ns of each: the probe, the interpreter, the walk.
extern "C" __attribute__((visibility("default"))) void llmprof_host_pace_probes(int64_t* ns) {
  static const Data data;
  ns[0] = llmprof::timed_pace_work_ns();
  ns[1] = timed([] { return interpret(data.code); });
  ns[2] = timed([] { return walk(data.next); });
}
