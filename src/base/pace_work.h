// A piece of work that is always the same: how long it takes tells how fast the CPU is at the moment. As many
// independent instructions as a core takes at once and no memory, so that another program on the core's other half
// always slows it, by an eighth to a half. An interpreter, which needs the caches and the branch predictor, takes half
// as long again then or twice as long, but differs by more without any other program.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace llmprof {

// 4 us on a CPU of 3 GHz.
inline uint32_t pace_work() {
  constexpr int kTurns = 3000;
  uint32_t a = 1, b = 2, c = 3, d = 4;
  for (int i = 0; i < kTurns; ++i) {
    a = (a << 3) ^ (a + 0x9e3779b9U);
    b = (b << 3) ^ (b + 0x9e3779b9U);
    c = (c << 3) ^ (c + 0x9e3779b9U);
    d = (d << 3) ^ (d + 0x9e3779b9U);
    // Keeps the compiler from making one of several turns, or vectors of the four: they are to be instructions of their
    // own.
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  }
  return a ^ b ^ c ^ d;
}

inline int64_t timed_pace_work_ns() {
  const int64_t start_ns = monotonic_ns();
  asm volatile("" ::"r"(pace_work()));
  return monotonic_ns() - start_ns;
}

// The CPU is at full pace where it takes no longer than its best time over this. On a host of 16 CPUs whose cores
// others shared, 90 % of times were less than 1.02 times the best where Python ran at its full pace, and 90 % more
// than 1.12 times where it took half as long again to twice as long (docs/adr 31).
constexpr double kFullPace = 0.92;

}  // namespace llmprof
