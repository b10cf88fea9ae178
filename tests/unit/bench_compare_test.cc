// Each verdict and each reason.
#include <gtest/gtest.h>

#include <random>

#include "base/statistics.h"
#include "bench/compare.h"
#include "bench/text.h"
#include "hardware/roofline.h"

namespace llmprof::bench {
namespace {

// 60 samples around `us` that vary by `spread`, at the clock.
CaseRecord record(double us, double spread, OptNumber clock_mhz, Bound bound = Bound::kCompute, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> noise(-spread, spread);
  CaseRecord out;
  for (int i = 0; i < 60; ++i) out.samples_us.push_back(us * (1 + noise(random)));
  const SampleSummary s = *summarize_samples(out.samples_us);
  CaseRow& row = out.row;
  row.name = "gemm";
  row.shape = "m=1";
  row.dtype = "bf16";
  row.regime = "sustained";
  row.status = "passed";
  row.n = s.n;
  row.median_us = s.median;
  row.min_us = s.min;
  row.q3_us = s.q3;
  row.sm_clock_mhz = clock_mhz;
  row.settled = true;
  row.bound = bound_name(bound);
  return out;
}

// The same, but stretches of ten have a level of their own: what resampling single samples does not see.
CaseRecord drifting_record(double us, double between, uint64_t seed) {
  CaseRecord out = record(us, 0.004, 1500, Bound::kCompute, seed);
  const double levels[] = {0.6, -1.4, 1.2, -0.3, -1.0, 0.9};
  for (size_t i = 0; i < out.samples_us.size(); ++i) out.samples_us[i] *= 1 + between * levels[i / 10];
  const SampleSummary s = *summarize_samples(out.samples_us);
  out.row.median_us = s.median;
  out.row.min_us = s.min;
  out.row.q3_us = s.q3;
  out.row.drifting = true;
  return out;
}

Comparison compared(const CaseRecord& before, const CaseRecord& now) { return compare_records(before, now); }

TEST(BenchCompare, TolerancesBySize) {
  EXPECT_EQ(tolerance_of(51), 0.01);
  EXPECT_EQ(tolerance_of(50), 0.03);
  EXPECT_EQ(tolerance_of(5), 0.1);
}

TEST(BenchCompare, Same) {
  const Comparison c =
      compared(record(100, 0.004, 1500, Bound::kCompute, 1), record(100.2, 0.004, 1500, Bound::kCompute, 2));
  EXPECT_EQ(c.verdict, Verdict::kSame) << c.row.reason;
  EXPECT_NEAR(*c.row.ratio, 1.002, 0.003);
  EXPECT_NEAR(*c.row.cycles_ratio, 1.002, 0.003);
}

TEST(BenchCompare, FastAndSlowMirrored) {
  const Comparison fast = compared(record(100, 0.004, 1500), record(90, 0.004, 1500));
  EXPECT_EQ(fast.verdict, Verdict::kFast) << fast.row.reason;
  EXPECT_EQ(fast.row.reason, "10.0 % less time");
  const Comparison slow = compared(record(90, 0.004, 1500), record(100, 0.004, 1500));
  EXPECT_EQ(slow.verdict, Verdict::kSlow) << slow.row.reason;
  EXPECT_EQ(slow.row.reason, "11.1 % more time");
}

TEST(BenchCompare, AClockThatMovedIsNoVerdict) {
  const Comparison c = compared(record(100, 0.002, 1600), record(106.4, 0.002, 1504));
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_EQ(c.row.reason, "clock differs -6.0 %: equal in cycles");
  const Comparison faster = compared(record(106.4, 0.002, 1504), record(100, 0.002, 1600));
  EXPECT_EQ(faster.verdict, Verdict::kAmbiguous);
  EXPECT_NE(faster.row.reason.find("equal in cycles"), std::string::npos);
}

TEST(BenchCompare, EqualTimesAtAnotherClockAreNotTheSame) {
  const Comparison c = compared(record(100, 0.002, 1500), record(100, 0.002, 1650));
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_EQ(c.row.reason, "equal in time, but the clock differs +10.0 %");
}

TEST(BenchCompare, MemoryHasAClockOfItsOwn) {
  EXPECT_EQ(compared(record(100, 0.002, 1500), record(100, 0.002, 1650, Bound::kMemory)).verdict, Verdict::kSame);
  EXPECT_EQ(compared(record(100, 0.002, 1600), record(106.4, 0.002, 1504, Bound::kMemory)).verdict, Verdict::kSlow);
}

TEST(BenchCompare, UnknownClocksNeedTwiceTheDifference) {
  const Comparison near = compared(record(100, 0.001, std::nullopt), record(101.5, 0.001, std::nullopt));
  EXPECT_EQ(near.verdict, Verdict::kAmbiguous);
  EXPECT_EQ(near.row.reason, "the clock is unknown, and the difference is under 2 %");
  EXPECT_FALSE(near.row.cycles_ratio.has_value());
  EXPECT_EQ(compared(record(100, 0.001, std::nullopt), record(103, 0.001, std::nullopt)).verdict, Verdict::kSlow);
  EXPECT_EQ(compared(record(100, 0.001, 1500), record(101.5, 0.001, 1500)).verdict, Verdict::kSlow);
}

TEST(BenchCompare, OverlappingRangesAreAmbiguous) {
  const Comparison c = compared(record(100, 0.1, 1500, Bound::kCompute, 1), record(110, 0.1, 1500, Bound::kCompute, 2));
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_NE(c.row.reason.find("overlap"), std::string::npos) << c.row.reason;
}

TEST(BenchCompare, WideIntervalsAreAmbiguousAndSaySo) {
  CaseRecord before = record(100, 0.1, 1500, Bound::kCompute, 1), now = record(100, 0.1, 1500, Bound::kCompute, 2);
  now.row.settled = false;
  const Comparison c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_NE(c.row.reason.find("the ratio lies between"), std::string::npos) << c.row.reason;
  EXPECT_NE(c.row.reason.find("not settled"), std::string::npos);
}

TEST(BenchCompare, FewSamplesDecideNothing) {
  CaseRecord now = record(50, 0.001, 1500);
  now.row.n = 7;
  EXPECT_EQ(compared(record(100, 0.001, 1500), now).row.reason, "n 7");
}

TEST(BenchCompare, WithoutTimesThereIsNothingToCompare) {
  CaseRecord failed = record(100, 0.001, 1500);
  failed.row.median_us.reset();
  failed.row.status = "failed";
  const Comparison c = compared(record(100, 0.001, 1500), failed);
  EXPECT_EQ(c.verdict, Verdict::kCannotCompare);
  EXPECT_EQ(c.row.reason, "was passed, is failed");
}

ResultsFile file_of(std::vector<CaseRecord> records, const std::string& device = "GPU-1") {
  return {{"1.0", device, "NVIDIA X", "570", "cuBLASLt 12", "usual"}, false, std::move(records)};
}

TEST(BenchCompare, RowsMeetByCaseAndDevice) {
  CaseRecord other_shape = record(100, 0.001, 1500);
  other_shape.row.shape = "m=2";
  const ResultsFile before = file_of({record(100, 0.001, 1500)});
  const std::vector<Comparison> rows = compare_results(before, file_of({other_shape, record(100, 0.001, 1500)}));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].row.reason, "not in the earlier run");
  EXPECT_EQ(rows[1].verdict, Verdict::kSame);
  const std::vector<Comparison> elsewhere = compare_results(before, file_of({record(100, 0.001, 1500)}, "GPU-2"));
  EXPECT_EQ(elsewhere[0].verdict, Verdict::kCannotCompare);
  EXPECT_EQ(elsewhere[0].row.reason, "other device: NVIDIA X");
}

TEST(BenchCompare, WhatChangedIsSaid) {
  RunFacts before = file_of({}).facts, now = before;
  EXPECT_TRUE(changed_facts(before, now).empty());
  now.driver = "580";
  EXPECT_EQ(changed_facts(before, now), (std::vector<std::string>{"driver 570 -> 580"}));
}

TEST(BenchCompare, GatesTripOnWhatTheyWereAskedFor) {
  const std::vector<Comparison> slow = {compared(record(90, 0.004, 1500), record(100, 0.004, 1500))};
  const std::vector<Comparison> ambiguous = {compared(record(100, 0.002, 1600), record(106.4, 0.002, 1504))};
  const auto trips = [](const char* word, const std::vector<Comparison>& rows,
                        const std::vector<CaseRecord>& now = {}) { return tripped(*parse_fail_on({word}), rows, now); };
  EXPECT_EQ(trips("slow", slow), "1 slower");
  EXPECT_EQ(trips("slow:5%", slow), "1 slower");
  EXPECT_EQ(trips("slow:20%", slow), "");
  EXPECT_EQ(trips("slow", ambiguous), "");
  EXPECT_EQ(trips("ambiguous", ambiguous), "1 ambiguous");
  EXPECT_EQ(trips("ambiguous", slow), "");
  CaseRecord failed;
  failed.row.status = "failed";
  EXPECT_EQ(trips("failed", {}, {failed}), "1 failed");
  for (const char* bad : {"slower", "slow:", "slow:5", "slow:%", "slow:-1%", "slow:x%", "slow:nan%", ""})
    EXPECT_FALSE(parse_fail_on({bad}).has_value()) << bad;
}

// Two runs on a busy machine: each moves by 3 % while it is measured, so that the next may be 8 % away.
TEST(BenchCompare, RunsThatDriftAreAmbiguousAndSaySo) {
  const CaseRecord before = drifting_record(100, 0.03, 1), now = drifting_record(108, 0.03, 2);
  ASSERT_LT(*before.row.q3_us, *now.row.min_us) << "or the ranges would overlap";
  const Comparison c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous) << c.row.reason;
  EXPECT_NE(c.row.reason.find("medians of stretches of time vary by"), std::string::npos) << c.row.reason;
  EXPECT_NE(c.row.reason.find("drifting in both"), std::string::npos) << c.row.reason;
  EXPECT_EQ(c.row.drifting, "both");
  EXPECT_NEAR(*c.row.noise_frac, 0.045, 0.015);
  EXPECT_EQ(compared(record(100, 0.004, 1500), drifting_record(108, 0.03, 2)).row.drifting, "now");
  // What is beyond that is found all the same.
  EXPECT_EQ(compared(before, drifting_record(150, 0.03, 2)).verdict, Verdict::kSlow);
  EXPECT_EQ(compared(drifting_record(150, 0.03, 2), before).verdict, Verdict::kFast);
}

// Threads that waited for a core: the time is between what it was and what it would have been without.
TEST(BenchCompare, WaitingForACoreMakesNoKernelSlower) {
  const CaseRecord before = record(100, 0.004, 1500);
  CaseRecord now = record(150, 0.004, 1500);
  now.row.wait_frac = 0.1;
  now.row.unwaited_us = 90;
  const Comparison c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_NE(c.row.reason.find("other programs had its cores, and may have added up to 45 % of a time"),
            std::string::npos)
      << c.row.reason;
  EXPECT_NEAR(*c.row.ratio_low, 0.9 / 1.1, 0.01);
  EXPECT_EQ(c.row.wait_frac, 0.1);
  const Comparison mirrored = compared(now, before);
  EXPECT_EQ(mirrored.verdict, Verdict::kAmbiguous);
  EXPECT_NEAR(*mirrored.row.ratio_high, 1.1 / 0.9, 0.01);
  now.row.unwaited_us = 0;
  const Comparison open_end = compared(now, before);
  EXPECT_EQ(open_end.verdict, Verdict::kAmbiguous);
  EXPECT_FALSE(open_end.row.ratio_high.has_value());
  EXPECT_NE(open_end.row.reason.find("at least"), std::string::npos) << open_end.row.reason;
  // Slower than before by more than the waiting.
  now.row.unwaited_us = 130;
  EXPECT_EQ(compared(before, now).verdict, Verdict::kSlow) << compared(before, now).row.reason;
  // Samples without waiting, of a machine that others used for as long as this: its memory was theirs, too.
  now.row.unwaited_us = 150;
  now.row.wait_frac = 1;
  EXPECT_EQ(compared(before, now).verdict, Verdict::kAmbiguous);
}

TEST(BenchText, WhatTheStatusColumnMeansIsSaid) {
  CaseRecord drifting = record(100, 0.01, 1500), disturbed = record(100, 0.01, 1500), cleaned = record(100, 0.01, 1500);
  drifting.row.drifting = true;
  drifting.row.noise_frac = 0.034;
  disturbed.row.drifting = true;
  disturbed.row.unwaited_us = 60;
  disturbed.row.shape = "m=2";
  cleaned.row.waited = 40;
  cleaned.row.shape = "m=3";
  EXPECT_EQ(cases_text({record(100, 0.01, 1500)}, {}).find("Notes"), std::string::npos);
  const std::string text = cases_text({drifting, disturbed, cleaned}, {});
  for (const char* said :
       {"drifting, 1 row: the spread of the samples still changed when the time was over", "vary by up to 3.4 %",
        "disturbed, 1 row: its threads waited for cores", "times are up to 40 % too long",
        "samples in which threads waited for a core are left out of 1 row"})
    EXPECT_NE(text.find(said), std::string::npos) << said << "\n" << text;
}

}  // namespace
}  // namespace llmprof::bench
