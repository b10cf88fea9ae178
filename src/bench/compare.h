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

// Differences below it are none: 1 % of a kernel over 50 us, 3 % over 5 us, 5 % below.
double tolerance_of(double us);

ComparisonRow compare_records(const CaseRecord& before, const CaseRecord& now);
// Every row of `now`; those without a counterpart, or of another device, cannot be compared.
std::vector<ComparisonRow> compare_results(const ResultsFile& before, const ResultsFile& now);
// What differs between the runs and may be the cause: "driver 570 -> 580".
std::vector<std::string> changed_facts(const RunFacts& before, const RunFacts& now);

struct FailOn {
  std::optional<double> slow_frac;  // SLOW, and slower by more than this
  bool ambiguous = false, failed = false;
};
// "slow", "slow:5%", "ambiguous", "failed", several with commas.
Result<FailOn> parse_fail_on(const std::vector<std::string>& words);
// The sentence that says what tripped the gate; empty if nothing did.
std::string tripped(const FailOn& gate, const std::vector<ComparisonRow>& comparisons,
                    const std::vector<CaseRecord>& now);

}  // namespace llmprof::bench
