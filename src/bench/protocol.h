// How one case is measured: refused early, checked, the best candidate chosen, settled, timed in both regimes until the
// statistics hold (docs/adr/0011-measuring-kernels.md says why each step is there).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/statistics.h"
#include "bench/power_control.h"
#include "device/device.h"
#include "kernels/op.h"
#include "results/bench.h"

namespace llmprof::bench {

struct Protocol {
  double cold_min_s = 0.25, sustained_min_s = 0.6;
  double settle_max_s = 1.5, wall_max_s = 3;  // the latter of each regime, where the clock is not held down
  int samples_min = 10;
  double rel_stdev_max = 0.005;    // good enough, or:
  double noise_change_max = 0.05;  // the relative deviation itself changed by less than this over the window
  int noise_window = 512;
  // At a limit of power the control moves the clock up and down with a period of 0.92 s, and a part of a period is off
  // by one to three percent: at least one period is taken then, and whole periods where the times follow the clock.
  double period_s = kPowerPeriodS, held_down_s = 2 * kPowerPeriodS;
  double cold_duty_max = 1.0 / 3;  // of a GPU in the cold regime; it rests for the remainder
  bool cold = true, sustained = true;
  int sets_max = 64;      // 1: one set of buffers, which stays in a cache that holds it
  double choose_s = 0.3;  // for choosing among candidates, roughly; slow ones are run a few times all the same
};

// Of many cases together: none of them takes much over two seconds, converged or not, or twice that at a power limit.
Protocol suite_protocol();

// Where the time of a case went, in seconds of the wall clock.
struct Phases {
  double prepare_s = 0;  // buffers, fills, compiling, the library's algorithms
  double check_s = 0, choose_s = 0, settle_s = 0, timing_s = 0;
};

// Times in one regime.
struct Timing {
  Regime regime = Regime::kSustained;
  std::string backend;           // the candidate that is fastest in this regime
  double gap_to_first_frac = 0;  // how much slower than it the library's own first choice was
  // Those compared last in this regime with their times, roughly, in us: the fastest first. Of one alone, itself.
  std::vector<std::pair<std::string, double>> compared;
  bool choice_disturbed = false;   // another may be faster: threads waited for a core when they were compared
  kernels::Check check;            // of that candidate
  std::vector<double> samples_us;  // at most 512, evenly thinned; of one execution each
  SampleSummary summary;           // over all samples that were kept
  int launches_per_sample = 1, sets = 1;
  // Where the clock moves up and down, a sample is the mean of replays that are spread over the whole regime, so that
  // each has seen the same clocks; this is what the single ones spread by: (p95 - p5) / median.
  std::optional<double> spread_frac;
  int64_t throttled = 0;  // samples left out for it
  // The median of a stretch that was left out: slower than this one and than the one before it, at the same clock.
  std::optional<double> disturbed_us;
  // Of a CPU whose threads had to wait for a core meanwhile, where the kernel counts it: that time, added over threads,
  // over the time of all samples that were taken, or that of the regime with what lies between
  // them, whichever is more; how many were left out for it; and what the median would be at least without it. They are
  // left out while enough others stay, so that it is the median itself then.
  std::optional<double> wait_ratio, unwaited_us;
  int64_t waited = 0;
  // How far the medians of stretches of time lie apart, beyond what their samples vary by: the same goes on between
  // this run and the next (base/statistics.h).
  std::optional<double> noise_frac;
  bool settled = true;    // clock and power held still before
  bool drifting = false;  // the spread still changed when the time was over
  std::optional<double> clock_mhz, power_w, temperature_c;
  std::vector<std::pair<std::string, double>> throttle_fracs;
};

struct CaseResult {
  std::string operation;
  kernels::Ceiling ceiling = kernels::Ceiling::kNone;  // of the operation
  kernels::OpParams params;
  CaseStatus status = CaseStatus::kError;
  std::string note;  // why not passed, in one sentence
  // Of the candidate that is fastest back to back; isolated, it may be another.
  std::string backend;
  double gap_to_first_frac = 0;
  kernels::Check check;
  kernels::Cost cost;
  std::vector<Timing> timings;  // of the regimes asked for; empty unless passed or mistrusted
  int64_t memory_bytes = 0, peak_memory_bytes = 0;
  Phases phases;
};

// Never throws away what it knows: errors become a status and a note. `stop` is looked at between batches of at most
// about 100 ms; what was in hand is dropped then (kInterrupted).
CaseResult measure(device::Device& device, const kernels::Operation& operation, const kernels::OpParams& params,
                   const Protocol& protocol, const std::atomic<bool>& stop);

}  // namespace llmprof::bench
