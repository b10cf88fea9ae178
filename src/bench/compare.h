// Two runs of the same cases: SAME, FAST, SLOW or AMBIGUOUS for each row, with the reason. It starts from AMBIGUOUS and
// says more only where intervals, quartiles and, for kernels that wait for arithmetic, cycles agree: a clock that moved
// by 6 % makes no kernel faster or slower.
//
// The interval of the ratio has what was seen of the noise in it. Samples of one moment have theirs in common, so that
// resampling them says little of another moment: what medians of stretches of time differ by, beyond that, goes on
// between the two runs as it does within each. And where threads of a CPU waited for a core, a time is known only to
// lie between what it was and what it would have been without.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/results_file.h"

namespace llmprof::bench {

enum class Verdict : uint8_t { kSame, kFast, kSlow, kAmbiguous, kCannotCompare, kCount };
std::string_view verdict_name(Verdict verdict);  // "SAME", "CANNOT-COMPARE"

#define LLMPROF_COMPARISON_FIELDS(C)                                                                                   \
  C(std::string, name, "", "operation")                                                                                \
  C(std::string, variant, "", "variant of the operation")                                                              \
  C(std::string, shape, "", "the axes and their values")                                                               \
  C(std::string, dtype, "", "data type of the inputs")                                                                 \
  C(std::string, regime, "", "cold or sustained")                                                                      \
  C(OptNumber, old_us, "us", "median before")                                                                          \
  C(OptNumber, new_us, "us", "median now")                                                                             \
  C(OptNumber, ratio, "", "median now over median before")                                                             \
  C(OptNumber, ratio_low, "",                                                                                          \
    "lower end of the ratio's 95 % interval: bootstrap of both samples, noise between stretches of time, and waiting " \
    "for cores")                                                                                                       \
  C(OptNumber, ratio_high, "", "upper end; empty where waiting leaves none")                                           \
  C(OptNumber, noise_frac, "frac",                                                                                     \
    "of the ratio: what both runs' medians of stretches of time vary by, beyond their samples; empty where neither "   \
    "run says")                                                                                                        \
  C(OptNumber, wait_frac, "frac", "of a CPU: the larger share of a run's time in which its threads waited for a core") \
  C(std::string, drifting, "", "before, now or both: the run whose spread still changed when the time was over")       \
  C(OptNumber, cycles_ratio, "", "the ratio in cycles: times the clock now over the clock before")                     \
  C(std::string, verdict, "", "SAME, FAST, SLOW, AMBIGUOUS, or CANNOT-COMPARE")                                        \
  C(std::string, reason, "", "what decided, or what was in the way")
LLMPROF_RECORD(ComparisonRow, "comparison", "Two runs compared case by case", LLMPROF_COMPARISON_FIELDS)

struct Comparison {
  Verdict verdict = Verdict::kAmbiguous;
  ComparisonRow row;
};

// Differences below it are none: 1 % of a kernel over 50 us, 3 % over 5 us, 5 % below.
double tolerance_of(double us);

Comparison compare_records(const CaseRecord& before, const CaseRecord& now);
// Every row of `now`; those without a counterpart, or of another device, cannot be compared.
std::vector<Comparison> compare_results(const ResultsFile& before, const ResultsFile& now);
// What differs between the runs and may be the cause: "driver 570 -> 580".
std::vector<std::string> changed_facts(const RunFacts& before, const RunFacts& now);

struct FailOn {
  std::optional<double> slow_frac;  // SLOW, and slower by more than this
  bool ambiguous = false, failed = false;
};
// "slow", "slow:5%", "ambiguous", "failed", several with commas.
Result<FailOn> parse_fail_on(const std::vector<std::string>& words);
// The sentence that says what tripped the gate; empty if nothing did.
std::string tripped(const FailOn& gate, const std::vector<Comparison>& comparisons, const std::vector<CaseRecord>& now);

}  // namespace llmprof::bench
