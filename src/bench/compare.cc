#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "base/statistics.h"
#include "hardware/roofline.h"

namespace llmprof::bench {
namespace {

constexpr double kLongUs = 50, kMediumUs = 5;
// The shortest differ by up to 8 percent between processes of one program (H200), each of which repeats to 0.1.
constexpr double kLongTolerance = 0.01, kMediumTolerance = 0.03, kShortTolerance = 0.1;
constexpr int64_t kSamplesMin = 10;

// Memory has a clock of its own, so the cycles of the units say nothing of kernels that wait for it.
bool waits_for_units(const CaseRow& row) { return row.bound != Bound::kMemory && row.bound != Bound::kCopy; }

// Of eight stretches: the 95 % of Student's t with seven degrees of freedom.
constexpr double kNoiseReach = 2.36;

struct Evidence {
  double ratio = 1, tolerance = 0;
  Interval interval;           // of the ratio, with noise and waiting in it
  double noise = 0;            // of the ratio
  bool noise_known = false;    // of one run at least
  double waiting = 0;          // the larger share of a side's median that waiting may have added
  OptNumber cycles;            // where they count and are known
  bool cycles_wanted = false;  // they count
  double needed() const { return cycles_wanted && !cycles ? 2 * tolerance : tolerance; }
};

// From the samples where a file is older than the field.
// Of a CPU, and of what drifts: stretches of a GPU that does not differ by the periods of its power's control, which
// come again and of which whole ones were taken.
OptNumber noise_of(const CaseRecord& record) {
  if (!record.row.wait_ratio && !record.row.drifting) return std::nullopt;
  if (record.row.noise_frac) return record.row.noise_frac;
  return noise_between_stretches(record.samples_us);
}

// What is left of the median without the waiting that is in it.
double unwaited_share(const CaseRow& row) {
  return row.unwaited_us ? std::clamp(*row.unwaited_us / *row.median_us, 0.0, 1.0) : 1;
}

// Samples in which no thread waited are still of a machine whose caches and memory others used, and few of many: those
// that came between the time slices of others. Who has cores for w of this run's time may change it by a factor of 1 +
// w, and either way: a sample between two time slices may also find more of a cache than a loop leaves.
double sharing(const CaseRow& row) { return 1 + row.wait_ratio.value_or(0); }

Evidence gather(const CaseRecord& before, const CaseRecord& now) {
  Evidence e;
  e.ratio = *now.row.median_us / *before.row.median_us;
  e.tolerance = tolerance_of(*before.row.median_us);
  const OptNumber noise_before = noise_of(before), noise_now = noise_of(now);
  e.noise_known = noise_before || noise_now;
  const double earlier = noise_before.value_or(0), later = noise_now.value_or(0);
  // Not std::hypot, which asks for glibc 2.35.
  e.noise = std::sqrt(earlier * earlier + later * later);
  const Interval samples = bootstrap_median_ratio(now.samples_us, before.samples_us);
  const double reach = std::exp(kNoiseReach * e.noise) * sharing(before.row) * sharing(now.row);
  const double less_now = unwaited_share(now.row), less_before = unwaited_share(before.row);
  e.waiting = 1 - std::min(less_now / sharing(now.row), less_before / sharing(before.row));
  e.interval.low = samples.low / reach * less_now;
  e.interval.high = less_before > 0 ? samples.high * reach / less_before : std::numeric_limits<double>::infinity();
  e.cycles_wanted = waits_for_units(now.row);
  if (e.cycles_wanted && before.row.sm_clock_mhz && now.row.sm_clock_mhz && *before.row.sm_clock_mhz > 0)
    e.cycles = e.ratio * *now.row.sm_clock_mhz / *before.row.sm_clock_mhz;
  return e;
}

// Whether other programs may have made the choice among candidates: two of them compared are no program with itself. A
// file that is older than the field says at least whether its samples had to wait.
constexpr double kCoresSharedFrac = 0.01;
bool chosen_by_others(const CaseRow& before, const CaseRow& now) {
  const auto open = [](const CaseRow& row) { return row.choice_disturbed || sharing(row) > 1 + kCoresSharedFrac; };
  return before.backend != now.backend && (open(before) || open(now));
}

bool is_same(const Evidence& e) {
  const double low = 1 - e.tolerance, high = 1 + e.tolerance;
  return e.interval.low >= low && e.interval.high <= high && (!e.cycles || (*e.cycles >= low && *e.cycles <= high));
}

// Between the smallest value and the third quartile lies what a run usually gives.
bool apart(const CaseRow& fast, const CaseRow& slow) { return *fast.q3_us < *slow.min_us; }

std::string why_ambiguous(const Evidence& e, const CaseRow& before, const CaseRow& now) {
  const bool faster = e.interval.high<1 - e.tolerance, slower = e.interval.low> 1 + e.tolerance;
  const bool clocks = before.sm_clock_mhz && now.sm_clock_mhz && *before.sm_clock_mhz > 0;
  const double clock_change = clocks ? *now.sm_clock_mhz / *before.sm_clock_mhz - 1 : 0;
  if ((faster || slower) && e.cycles && (faster ? *e.cycles >= 1 - e.tolerance / 2 : *e.cycles <= 1 + e.tolerance / 2))
    return fmt::format("clock differs {:+.1f} %: {} in cycles", clock_change * 100,
                       std::abs(*e.cycles - 1) <= e.tolerance ? "equal" : "the other way round");
  if ((faster || slower) && e.cycles_wanted && !e.cycles)
    return fmt::format("the clock is unknown, and the difference is under {:.0f} %", e.needed() * 100);
  if (faster || slower) return "the ranges of the samples overlap";
  if (e.interval.low >= 1 - e.tolerance && e.interval.high <= 1 + e.tolerance)
    return fmt::format("equal in time, but the clock differs {:+.1f} %", clock_change * 100);
  // What of it is the most to blame.
  if (e.waiting > e.tolerance)
    return fmt::format(
        "other programs had its cores, and may have added up to {:.0f} % of a time: the ratio {}", e.waiting * 100,
        std::isfinite(e.interval.high) ? fmt::format("lies between {:.2f} and {:.2f}", e.interval.low, e.interval.high)
                                       : fmt::format("is {:.2f} at least", e.interval.low));
  std::string out = fmt::format("the ratio lies between {:.3f} and {:.3f}; {:.0f} % are asked for", e.interval.low,
                                e.interval.high, e.tolerance * 100);
  if (kNoiseReach * e.noise > e.tolerance)
    out += fmt::format("; medians of stretches of time vary by {:.1f} %", e.noise * 100);
  return out;
}

Drifting drifting_runs(const CaseRow& before, const CaseRow& now) {
  return before.drifting && now.drifting ? Drifting::kBoth
         : before.drifting               ? Drifting::kBefore
         : now.drifting                  ? Drifting::kNow
                                         : Drifting::kNeither;
}

ComparisonRow cannot(const CaseRecord& now, std::string reason) {
  ComparisonRow out;
  out.verdict = Verdict::kCannotCompare;
  out.name = now.row.name;
  out.variant = now.row.variant;
  out.shape = now.row.shape;
  out.dtype = now.row.dtype;
  out.regime = now.row.regime;
  out.new_us = now.row.median_us;
  out.reason = std::move(reason);
  return out;
}

bool has_times(const CaseRecord& record) {
  return record.timed() && *record.row.median_us > 0 && record.row.q3_us && record.row.min_us &&
         !record.samples_us.empty();
}

}  // namespace

double tolerance_of(double us) {
  return us > kLongUs ? kLongTolerance : us > kMediumUs ? kMediumTolerance : kShortTolerance;
}

ComparisonRow compare_records(const CaseRecord& before, const CaseRecord& now) {
  if (!has_times(before) || !has_times(now))
    return cannot(now, fmt::format("was {}, is {}", name_of(before.row.status), name_of(now.row.status)));
  ComparisonRow out = cannot(now, {});
  const Evidence e = gather(before, now);
  out.old_us = before.row.median_us;
  out.ratio = e.ratio;
  out.ratio_low = e.interval.low;
  if (std::isfinite(e.interval.high)) out.ratio_high = e.interval.high;
  if (e.noise_known) out.noise_frac = e.noise;
  if (before.row.wait_ratio || now.row.wait_ratio)
    out.wait_ratio = std::max(before.row.wait_ratio.value_or(0), now.row.wait_ratio.value_or(0));
  out.drifting = drifting_runs(before.row, now.row);
  if (before.row.sm_clock_mhz && now.row.sm_clock_mhz && *before.row.sm_clock_mhz > 0)
    out.cycles_ratio = e.ratio * *now.row.sm_clock_mhz / *before.row.sm_clock_mhz;
  out.verdict = Verdict::kAmbiguous;
  const int64_t n = std::min(before.row.n, now.row.n);
  if (n < kSamplesMin) {
    out.reason = fmt::format("n {}", n);
  } else if (chosen_by_others(before.row, now.row)) {
    out.reason = fmt::format(
        "disturbed, cannot tell: {} was chosen before and {} now, and other programs had the cores while they were "
        "compared",
        before.row.backend, now.row.backend);
  } else if (is_same(e)) {
    out.verdict = Verdict::kSame;
    out.reason = fmt::format("within {:.0f} %", e.tolerance * 100);
  } else if (e.interval.high < 1 - e.needed() && apart(now.row, before.row) &&
             (!e.cycles || *e.cycles < 1 - e.tolerance / 2)) {
    out.verdict = Verdict::kFast;
    out.reason = fmt::format("{:.1f} % less time", (1 - e.ratio) * 100);
  } else if (e.interval.low > 1 + e.needed() && apart(before.row, now.row) &&
             (!e.cycles || *e.cycles > 1 + e.tolerance / 2)) {
    out.verdict = Verdict::kSlow;
    out.reason = fmt::format("{:.1f} % more time", (e.ratio - 1) * 100);
  } else {
    out.reason = why_ambiguous(e, before.row, now.row);
    if (!before.row.settled || !now.row.settled) out.reason += "; not settled";
    if (out.drifting != Drifting::kNeither)
      out.reason += fmt::format("; drifting {}{}", out.drifting == Drifting::kBoth ? "in " : "", name_of(out.drifting));
  }
  return out;
}

std::vector<ComparisonRow> compare_results(const ResultsFile& before, const ResultsFile& now) {
  std::map<std::string, const CaseRecord*> earlier;
  for (const CaseRecord& record : before.records) earlier.emplace(record.key(), &record);
  std::vector<ComparisonRow> out;
  const bool other = before.facts.device_key != now.facts.device_key;
  for (const CaseRecord& record : now.records) {
    const std::map<std::string, const CaseRecord*>::const_iterator found = earlier.find(record.key());
    if (other) {
      out.push_back(cannot(record, "other device: " + before.facts.device_name));
    } else if (found == earlier.end()) {
      out.push_back(cannot(record, record.timed() ? "not in the earlier run"
                                                  : fmt::format("not timed: {}", name_of(record.row.status))));
    } else {
      out.push_back(compare_records(*found->second, record));
    }
  }
  return out;
}

std::vector<std::string> changed_facts(const RunFacts& before, const RunFacts& now) {
  std::vector<std::string> out;
  const auto changed = [&out](const char* what, const std::string& a, const std::string& b) {
    if (a != b) out.push_back(fmt::format("{} {} -> {}", what, a, b));
  };
  changed("driver", before.driver, now.driver);
  changed("libraries", before.libraries, now.libraries);
  changed("llmprof", before.tool_version, now.tool_version);
  changed("protocol", before.protocol, now.protocol);
  return out;
}

Result<FailOn> parse_fail_on(const std::vector<std::string>& words) {
  FailOn gate;
  for (const std::string& word : words) {
    const std::string_view text = word;
    if (text == "slow") {
      gate.slow_frac = 0;
    } else if (text == "ambiguous") {
      gate.ambiguous = true;
    } else if (text == "failed") {
      gate.failed = true;
    } else {
      double percent = -1;
      const bool shaped = text.starts_with("slow:") && text.ends_with("%");
      const std::string_view number = shaped ? text.substr(5, text.size() - 6) : std::string_view{};
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
      if (!shaped || error != std::errc() || end != number.data() + number.size() || !(percent >= 0 && percent < 1e6))
        return fail(fmt::format("expected slow, slow:N%, ambiguous or failed, found \"{}\"", word), "--fail-on",
                    "--fail-on slow:5%", ExitCode::kUsage);
      gate.slow_frac = percent / 100;
    }
  }
  return gate;
}

std::string tripped(const FailOn& gate, const std::vector<ComparisonRow>& comparisons,
                    const std::vector<CaseRecord>& now) {
  size_t slow = 0, ambiguous = 0, failed = 0;
  for (const ComparisonRow& c : comparisons) {
    slow += c.verdict == Verdict::kSlow && gate.slow_frac && *c.ratio > 1 + *gate.slow_frac;
    ambiguous += gate.ambiguous && c.verdict == Verdict::kAmbiguous;
  }
  for (const CaseRecord& record : now)
    failed += gate.failed && (record.row.status == CaseStatus::kFailed || record.row.status == CaseStatus::kError);
  std::string out;
  const auto add = [&out](size_t count, const char* what) {
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  };
  add(slow, "slower");
  add(ambiguous, "ambiguous");
  add(failed, "failed");
  return out;
}

}  // namespace llmprof::bench
