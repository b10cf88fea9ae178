// Each verdict and each reason.
#include <gtest/gtest.h>

#include <random>

#include "base/statistics.h"
#include "bench/compare.h"
#include "hardware/roofline.h"
#include "report/text_bench.h"

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
  row.regime = Regime::kSustained;
  row.status = CaseStatus::kPassed;
  row.n = s.n;
  row.median_us = s.median;
  row.min_us = s.min;
  row.q3_us = s.q3;
  row.sm_clock_mhz = clock_mhz;
  row.settled = true;
  row.bound = bound;
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

ComparisonRow compared(const CaseRecord& before, const CaseRecord& now) { return compare_records(before, now); }

TEST(BenchCompare, TolerancesBySize) {
  EXPECT_EQ(tolerance_of(51), 0.01);
  EXPECT_EQ(tolerance_of(50), 0.03);
  EXPECT_EQ(tolerance_of(5), 0.1);
}

TEST(BenchCompare, Same) {
  const ComparisonRow c =
      compared(record(100, 0.004, 1500, Bound::kCompute, 1), record(100.2, 0.004, 1500, Bound::kCompute, 2));
  EXPECT_EQ(c.verdict, Verdict::kSame) << c.reason;
  EXPECT_NEAR(*c.ratio, 1.002, 0.003);
  EXPECT_NEAR(*c.cycles_ratio, 1.002, 0.003);
}

TEST(BenchCompare, FastAndSlowMirrored) {
  const ComparisonRow fast = compared(record(100, 0.004, 1500), record(90, 0.004, 1500));
  EXPECT_EQ(fast.verdict, Verdict::kFast) << fast.reason;
  EXPECT_EQ(fast.reason, "10.0 % less time");
  const ComparisonRow slow = compared(record(90, 0.004, 1500), record(100, 0.004, 1500));
  EXPECT_EQ(slow.verdict, Verdict::kSlow) << slow.reason;
  EXPECT_EQ(slow.reason, "11.1 % more time");
}

TEST(BenchCompare, AClockThatMovedIsNoVerdict) {
  const ComparisonRow c = compared(record(100, 0.002, 1600), record(106.4, 0.002, 1504));
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_EQ(c.reason, "clock differs -6.0 %: equal in cycles");
  const ComparisonRow faster = compared(record(106.4, 0.002, 1504), record(100, 0.002, 1600));
  EXPECT_EQ(faster.verdict, Verdict::kAmbiguous);
  EXPECT_NE(faster.reason.find("equal in cycles"), std::string::npos);
}

TEST(BenchCompare, EqualTimesAtAnotherClockAreNotTheSame) {
  const ComparisonRow c = compared(record(100, 0.002, 1500), record(100, 0.002, 1650));
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_EQ(c.reason, "equal in time, but the clock differs +10.0 %");
}

TEST(BenchCompare, MemoryHasAClockOfItsOwn) {
  EXPECT_EQ(compared(record(100, 0.002, 1500), record(100, 0.002, 1650, Bound::kMemory)).verdict, Verdict::kSame);
  EXPECT_EQ(compared(record(100, 0.002, 1600), record(106.4, 0.002, 1504, Bound::kMemory)).verdict, Verdict::kSlow);
}

TEST(BenchCompare, UnknownClocksNeedTwiceTheDifference) {
  const ComparisonRow near = compared(record(100, 0.001, std::nullopt), record(101.5, 0.001, std::nullopt));
  EXPECT_EQ(near.verdict, Verdict::kAmbiguous);
  EXPECT_EQ(near.reason, "the clock is unknown, and the difference is under 2 %");
  EXPECT_FALSE(near.cycles_ratio.has_value());
  EXPECT_EQ(compared(record(100, 0.001, std::nullopt), record(103, 0.001, std::nullopt)).verdict, Verdict::kSlow);
  EXPECT_EQ(compared(record(100, 0.001, 1500), record(101.5, 0.001, 1500)).verdict, Verdict::kSlow);
}

TEST(BenchCompare, OverlappingRangesAreAmbiguous) {
  const ComparisonRow c =
      compared(record(100, 0.1, 1500, Bound::kCompute, 1), record(110, 0.1, 1500, Bound::kCompute, 2));
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_NE(c.reason.find("overlap"), std::string::npos) << c.reason;
}

TEST(BenchCompare, WideIntervalsAreAmbiguousAndSaySo) {
  CaseRecord before = record(100, 0.1, 1500, Bound::kCompute, 1), now = record(100, 0.1, 1500, Bound::kCompute, 2);
  now.row.settled = false;
  const ComparisonRow c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_NE(c.reason.find("the ratio lies between"), std::string::npos) << c.reason;
  EXPECT_NE(c.reason.find("not settled"), std::string::npos);
}

TEST(BenchCompare, FewSamplesDecideNothing) {
  CaseRecord now = record(50, 0.001, 1500);
  now.row.n = 7;
  EXPECT_EQ(compared(record(100, 0.001, 1500), now).reason, "n 7");
}

TEST(BenchCompare, WithoutTimesThereIsNothingToCompare) {
  CaseRecord failed = record(100, 0.001, 1500);
  failed.row.median_us.reset();
  failed.row.status = CaseStatus::kFailed;
  const ComparisonRow c = compared(record(100, 0.001, 1500), failed);
  EXPECT_EQ(c.verdict, Verdict::kCannotCompare);
  EXPECT_EQ(c.reason, "was passed, is failed");
}

ResultsFile file_of(std::vector<CaseRecord> records, const std::string& device = "GPU-1") {
  return {{"1.0", device, "NVIDIA X", "570", "cuBLASLt 12", "usual"}, false, std::move(records)};
}

TEST(BenchCompare, RowsMeetByCaseAndDevice) {
  CaseRecord other_shape = record(100, 0.001, 1500);
  other_shape.row.shape = "m=2";
  const ResultsFile before = file_of({record(100, 0.001, 1500)});
  const std::vector<ComparisonRow> rows = compare_results(before, file_of({other_shape, record(100, 0.001, 1500)}));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].reason, "not in the earlier run");
  EXPECT_EQ(rows[1].verdict, Verdict::kSame);
  const std::vector<ComparisonRow> elsewhere = compare_results(before, file_of({record(100, 0.001, 1500)}, "GPU-2"));
  EXPECT_EQ(elsewhere[0].verdict, Verdict::kCannotCompare);
  EXPECT_EQ(elsewhere[0].reason, "other device: NVIDIA X");
}

TEST(BenchCompare, WhatChangedIsSaid) {
  RunFacts before = file_of({}).facts, now = before;
  EXPECT_TRUE(changed_facts(before, now).empty());
  now.driver = "580";
  EXPECT_EQ(changed_facts(before, now), (std::vector<std::string>{"driver 570 -> 580"}));
}

TEST(BenchCompare, GatesTripOnWhatTheyWereAskedFor) {
  const std::vector<ComparisonRow> slow = {compared(record(90, 0.004, 1500), record(100, 0.004, 1500))};
  const std::vector<ComparisonRow> ambiguous = {compared(record(100, 0.002, 1600), record(106.4, 0.002, 1504))};
  const auto trips = [](const char* word, const std::vector<ComparisonRow>& rows,
                        const std::vector<CaseRecord>& now = {}) { return tripped(*parse_fail_on({word}), rows, now); };
  EXPECT_EQ(trips("slow", slow), "1 slower");
  EXPECT_EQ(trips("slow:5%", slow), "1 slower");
  EXPECT_EQ(trips("slow:20%", slow), "");
  EXPECT_EQ(trips("slow", ambiguous), "");
  EXPECT_EQ(trips("ambiguous", ambiguous), "1 ambiguous");
  EXPECT_EQ(trips("ambiguous", slow), "");
  CaseRecord failed;
  failed.row.status = CaseStatus::kFailed;
  EXPECT_EQ(trips("failed", {}, {failed}), "1 failed");
  for (const char* bad : {"slower", "slow:", "slow:5", "slow:%", "slow:-1%", "slow:x%", "slow:nan%", ""})
    EXPECT_FALSE(parse_fail_on({bad}).has_value()) << bad;
}

// Two runs on a busy machine: each moves by 3 % while it is measured, so that the next may be 8 % away.
TEST(BenchCompare, RunsThatDriftAreAmbiguousAndSaySo) {
  const CaseRecord before = drifting_record(100, 0.03, 1), now = drifting_record(108, 0.03, 2);
  ASSERT_LT(*before.row.q3_us, *now.row.min_us) << "or the ranges would overlap";
  const ComparisonRow c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous) << c.reason;
  EXPECT_NE(c.reason.find("medians of stretches of time vary by"), std::string::npos) << c.reason;
  EXPECT_NE(c.reason.find("drifting in both"), std::string::npos) << c.reason;
  EXPECT_EQ(c.drifting, Drifting::kBoth);
  EXPECT_NEAR(*c.noise_frac, 0.045, 0.015);
  EXPECT_EQ(compared(record(100, 0.004, 1500), drifting_record(108, 0.03, 2)).drifting, Drifting::kNow);
  // What is beyond that is found all the same.
  EXPECT_EQ(compared(before, drifting_record(150, 0.03, 2)).verdict, Verdict::kSlow);
  EXPECT_EQ(compared(drifting_record(150, 0.03, 2), before).verdict, Verdict::kFast);
}

// Threads that waited for a core: the time is between what it was and what it would have been without.
TEST(BenchCompare, WaitingForACoreMakesNoKernelSlower) {
  const CaseRecord before = record(100, 0.004, 1500);
  CaseRecord now = record(150, 0.004, 1500);
  now.row.wait_ratio = 0.1;
  now.row.unwaited_us = 90;
  const ComparisonRow c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous);
  EXPECT_NE(c.reason.find("other programs had its cores, and may have added up to 45 % of a time"), std::string::npos)
      << c.reason;
  EXPECT_NEAR(*c.ratio_low, 0.9 / 1.1, 0.01);
  EXPECT_EQ(c.wait_ratio, 0.1);
  const ComparisonRow mirrored = compared(now, before);
  EXPECT_EQ(mirrored.verdict, Verdict::kAmbiguous);
  EXPECT_NEAR(*mirrored.ratio_high, 1.1 / 0.9, 0.01);
  now.row.unwaited_us = 0;
  const ComparisonRow open_end = compared(now, before);
  EXPECT_EQ(open_end.verdict, Verdict::kAmbiguous);
  EXPECT_FALSE(open_end.ratio_high.has_value());
  EXPECT_NE(open_end.reason.find("at least"), std::string::npos) << open_end.reason;
  // Slower than before by more than the waiting.
  now.row.unwaited_us = 130;
  EXPECT_EQ(compared(before, now).verdict, Verdict::kSlow) << compared(before, now).reason;
  // Samples without waiting, of a machine that others used for as long as this: its memory was theirs, too.
  now.row.unwaited_us = 150;
  now.row.wait_ratio = 1;
  EXPECT_EQ(compared(before, now).verdict, Verdict::kAmbiguous);
}

// One candidate was chosen in one run and another in the other, because a third program had the cores just then: the
// same program against itself would be many times as fast.
TEST(BenchCompare, AnotherCandidateThatOthersChoseIsNoVerdict) {
  CaseRecord before = record(154, 0.004, 1500), now = record(17.9, 0.004, 1500);
  before.row.backend = "own AVX2";
  now.row.backend = "own AVX-512";
  EXPECT_EQ(compared(before, now).verdict, Verdict::kFast) << "on a quiet machine";
  before.row.choice_disturbed = true;
  const ComparisonRow c = compared(before, now);
  EXPECT_EQ(c.verdict, Verdict::kAmbiguous) << c.reason;
  EXPECT_NE(c.reason.find("disturbed, cannot tell: own AVX2 was chosen before and own AVX-512 now"), std::string::npos)
      << c.reason;
  EXPECT_EQ(compared(now, before).verdict, Verdict::kAmbiguous);
  // A file from before the field: its samples had waited.
  before.row.choice_disturbed = false;
  before.row.wait_ratio = 0.4;
  EXPECT_EQ(compared(before, now).verdict, Verdict::kAmbiguous);
  now.row.backend = "own AVX2";
  EXPECT_EQ(compared(before, now).verdict, Verdict::kFast) << "of one candidate the times say it, beyond the waiting";
}

TEST(BenchText, EachRegimeHasItsStatus) {
  CaseRecord sustained = record(100, 0.01, 1500), cold = record(140, 0.01, 1500);
  cold.row.regime = Regime::kCold;
  EXPECT_EQ(cases_text({sustained, cold}, {}).find("cold:"), std::string::npos) << "both passed";
  cold.row.unwaited_us = 20;
  cold.row.note = "of the cold one alone";
  const std::string text = cases_text({sustained, cold}, {});
  EXPECT_NE(text.find("passed, cold: disturbed"), std::string::npos) << text;
  EXPECT_NE(text.find("gemm m=1, cold: of the cold one alone"), std::string::npos) << text;
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
  CaseRecord far = disturbed, lost = disturbed;
  far.row.unwaited_us = *far.row.median_us / 1200;
  lost.row.unwaited_us = 0;
  lost.row.choice_disturbed = true;
  const std::string much = cases_text({disturbed, far, lost}, {});
  EXPECT_NE(much.find("times are up to 1,200 times as long"), std::string::npos) << much;
  EXPECT_NE(much.find("1 of them waited as long as they took"), std::string::npos) << much;
  EXPECT_NE(much.find("candidates of 1 row was timed: another may be faster"), std::string::npos) << much;
  const std::string text = cases_text({drifting, disturbed, cleaned}, {});
  for (const char* said : {"drifting, 1 row: the spread of the samples still changed when the time was over",
                           "vary by up to 3.4 %", "disturbed, 1 row: its threads waited for cores",
                           "times are up to 1.66 times as long for it (gemm m=2, sustained)",
                           "samples in which threads waited for a core are left out of 1 row"})
    EXPECT_NE(text.find(said), std::string::npos) << said << "\n" << text;
}

}  // namespace
}  // namespace llmprof::bench
