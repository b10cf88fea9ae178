// Where a series of times of the same work becomes steady: what its beginning takes longer than what follows. Robust
// statistics of one series in order of time; who the steps are, and what evidence there is, the caller knows
// (derive/steady.h).
//
//   - A step's level is the median of the steps behind the beginning, the trend with what it grows with (context,
//     tokens) taken out where that trend explains the spread.
//   - The beginning ends with the last slow step of the longest stretch from the first on of which half is slow. Only
//     slow steps of it have an excess. One slow step later on is none of it.
//   - Without evidence "slow" is more than 6 standard deviations (by the median absolute deviation, so drift widens it)
//     and more than 10 % over the level of at least 8 steps, 50 % of 2 to 7, or 100 % of a single one. What recurs
//     later is none; and up to 50 % it is none without a sharp end either, for clocks drift by as much.
//   - With evidence 3 standard deviations and 2 % over the steps around it are enough; of fewer than 8, 5 %
//     where its length is known, else 50 %. Where it is known, what is left of the step is its level too. Evidence that
//     lies in most later steps is how the program runs, and is none.
//   - Where the pace of the CPU is known, a step is slow only if it is that also with every time taken at full pace.
//   - A series that falls to its end is nowhere steady: all of it is beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llmprof {

// Of what known size a step is, and how time may depend on it.
enum class StepSize : uint8_t {
  kAlike,    // the same work: `size` is a context, with which time may grow
  kBinned,   // within a factor of 2: `size` is the tokens, with which time grows at most in proportion
  kUnknown,  // perhaps not comparable: at least 8 later steps of little spread are needed
};

struct SeriesStep {
  double ns = 0;
  double size = -1;    // -1 unknown
  double once_ns = 0;  // part of it that comes once: modules loaded, kernels compiled, graphs captured
  bool hint = false;   // evidence that has no such part, or that may come again: memory allocated, a first launch
  double pace = -1;    // of the CPU meanwhile, 1: as fast as ever; -1 unknown
};

struct SteadySeries {
  std::vector<double> excess_ns;  // by step; 0 of steady ones
  std::vector<uint8_t> warm_up;   // 1: part of the beginning, or of what comes once
  bool falls = false;             // nowhere steady
  double level_ns = 0;            // median of the steady steps; of the fastest where there are none
};
SteadySeries find_steady_series(const std::vector<SeriesStep>& steps, StepSize size);

// How long the slow beginning of a series is, in order of time: the longest beginning of which at least half is slow,
// up to its last slow value.
size_t slow_beginning(const std::vector<uint8_t>& slow);

}  // namespace llmprof
