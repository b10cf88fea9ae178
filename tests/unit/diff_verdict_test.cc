#include <gtest/gtest.h>

#include "diff/diff.h"
#include "diff/noise.h"
#include "diff/verdict.h"

namespace llmprof::diff {
namespace {

SideFigures side(std::vector<double> values, const Noise& noise, double width = 0.002) {
  SideFigures out;
  for (const double value : values) out.runs.push_back({value, value * (1 - width), value * (1 + width), 50});
  out.noise = noise;
  return out;
}

DiffVerdict verdict_of(std::vector<double> a, std::vector<double> b, const Noise& noise) {
  return compare(side(std::move(a), noise), side(std::move(b), noise), false).verdict;
}

TEST(Noise, IsTheHostsMoreThanTheGpus) {
  EXPECT_DOUBLE_EQ(noise_of({.host_frac = 1}).p95, kHostNoise.p95);
  EXPECT_DOUBLE_EQ(noise_of({.host_frac = 1, .full_pace = true}).p98, kHostFullPaceNoise.p98);
  EXPECT_DOUBLE_EQ(noise_of({.host_frac = 0}).p90, kGpuNoise.p90);
  EXPECT_GT(noise_of({.host_frac = 0.5}).p95, noise_of({.host_frac = 0.5, .full_pace = true}).p95);
  // On a CPU all of it is the host's.
  EXPECT_DOUBLE_EQ(noise_of({.host_frac = 0, .on_cpu = true, .full_pace = true}).p95, kHostNoise.p95);
  EXPECT_DOUBLE_EQ(noise_of({.host_frac = 1, .unsure = true}).p95, kUnsureNoise.p95);
  EXPECT_TRUE(at_full_pace(0.01));
  EXPECT_FALSE(at_full_pace(0.5));
  EXPECT_FALSE(at_full_pace(std::nullopt));  // not known
  EXPECT_TRUE(is_contended(0.2));
  EXPECT_FALSE(is_contended(0.02));
  EXPECT_FALSE(is_contended(std::nullopt));
}

TEST(Verdict, OnePairOfTheGpuTellsTenPercent) {
  const Change slower = compare(side({10}, kGpuNoise), side({11}, kGpuNoise), false);
  EXPECT_EQ(slower.verdict, DiffVerdict::kSlower);
  EXPECT_NEAR(slower.frac, 0.1, 1e-9);
  EXPECT_GT(slower.low, 0.05);
  EXPECT_LT(slower.high, 0.15);
  EXPECT_FALSE(slower.by_repeats);
  EXPECT_EQ(verdict_of({11}, {10}, kGpuNoise), DiffVerdict::kFaster);
  EXPECT_EQ(compare(side({10}, kGpuNoise), side({11}, kGpuNoise), true).verdict, DiffVerdict::kFaster);
}

TEST(Verdict, OnePairOfASharedHostDoesNot) {
  const Change change = compare(side({10}, kHostNoise), side({11}, kHostNoise), false);
  EXPECT_EQ(change.verdict, DiffVerdict::kAmbiguous);
  EXPECT_NE(change.reason.find("repeats"), std::string::npos) << change.reason;
  EXPECT_EQ(verdict_of({10}, {10}, kHostNoise), DiffVerdict::kAmbiguous);
  EXPECT_EQ(verdict_of({10}, {2}, kHostNoise), DiffVerdict::kFaster);
}

// The interval is one of 95 %, what is decided is so at 98.
TEST(Verdict, WhatIsDecidedIsSureBeyondTheInterval) {
  const Change change = compare(side({10}, kHostFullPaceNoise), side({12}, kHostFullPaceNoise), false);
  EXPECT_GT(change.low, 0);
  EXPECT_EQ(change.verdict, DiffVerdict::kAmbiguous);
  EXPECT_NE(change.reason.find("not at 98"), std::string::npos) << change.reason;
  EXPECT_EQ(verdict_of({10}, {14}, kHostFullPaceNoise), DiffVerdict::kSlower);
}

TEST(Verdict, RunsThatWaitedForACpuTellNothing) {
  SideFigures a = side({10}, kUnsureNoise), b = side({300}, kUnsureNoise);
  a.unsure = b.unsure = a.contended = b.contended = true;
  const Change change = compare(a, b, false);
  EXPECT_EQ(change.verdict, DiffVerdict::kAmbiguous);
  EXPECT_NE(change.reason.find("waited for a CPU"), std::string::npos) << change.reason;
  EXPECT_FALSE(change.has_interval);
  // Three a side may be in two modes of the machine by chance.
  SideFigures some = side({10, 10.1, 10.2}, kUnsureNoise), others = side({30, 30.1, 30.2}, kUnsureNoise);
  EXPECT_EQ(compare(some, others, false).verdict, DiffVerdict::kSlower);
  some.unsure = true;
  EXPECT_EQ(compare(some, others, false).verdict, DiffVerdict::kAmbiguous);
}

TEST(Verdict, EqualRunsOfTheGpuAreTheSame) {
  EXPECT_EQ(verdict_of({10}, {10.05}, kGpuNoise), DiffVerdict::kSame);
  // The interval of their own is too wide to say so.
  EXPECT_EQ(compare(side({10}, kGpuNoise, 0.05), side({10.05}, kGpuNoise, 0.05), false).verdict,
            DiffVerdict::kAmbiguous);
  // Without an interval nothing is the same.
  SideFigures one;
  one.runs = {{10, std::nullopt, std::nullopt, 1}};
  one.noise = kGpuNoise;
  EXPECT_EQ(compare(one, one, false).verdict, DiffVerdict::kAmbiguous);
  // One step may be any: the interval is wider than that of many.
  SideFigures other = one;
  other.runs[0].value = 20;
  const Change few = compare(one, other, false), many = compare(side({10}, kGpuNoise), side({20}, kGpuNoise), false);
  EXPECT_LT(few.low, many.low);
  EXPECT_GT(few.high, many.high);
  EXPECT_EQ(few.verdict, DiffVerdict::kSlower);
  one.unsure = true;
  EXPECT_EQ(compare(one, other, false).verdict, DiffVerdict::kAmbiguous);
}

TEST(Verdict, AFewRepeatsAreWeighedAgainstTheModel) {
  const Change change = compare(side({10, 10.1, 9.9}, kGpuNoise), side({11, 11.1, 10.9}, kGpuNoise), false);
  EXPECT_TRUE(change.by_repeats);
  EXPECT_EQ(change.verdict, DiffVerdict::kSlower);
  // t(5) = 2.571 on the deviation of 0.96 % with four degrees of freedom and of the model's 1.33 % with one, over 3
  // and 3 runs.
  EXPECT_NEAR(change.noise_frac,
              2.571 * std::sqrt((4 * 0.00957 * 0.00957 + 0.01335 * 0.01335) / 5) * std::sqrt(2.0 / 3), 3e-4);
  // The same on a host whose noise is not known: three runs may be alike by chance.
  EXPECT_EQ(verdict_of({10, 10.1, 9.9}, {11, 11.1, 10.9}, kHostNoise), DiffVerdict::kAmbiguous);
  // All of one side must be quicker.
  EXPECT_EQ(verdict_of({10, 10.01, 10.02}, {10.02, 11, 11.01}, kGpuNoise), DiffVerdict::kAmbiguous);
  EXPECT_EQ(verdict_of({10, 13, 8}, {11, 14, 9}, kGpuNoise), DiffVerdict::kAmbiguous);
  EXPECT_EQ(verdict_of({10, 10.02, 9.98, 10.01}, {10.01, 10, 9.99, 10.02}, kGpuNoise), DiffVerdict::kSame);
}

TEST(Verdict, FiveRepeatsASideTellByThemselves) {
  // Whatever the model says.
  const std::vector<double> before = {10, 10.1, 9.9, 10.05, 9.95};
  EXPECT_EQ(verdict_of(before, {10.5, 10.6, 10.4, 10.55, 10.45}, kUnsureNoise), DiffVerdict::kSlower);
  // One run that took half as long again is one, on either side.
  EXPECT_EQ(verdict_of(before, {10.5, 10.6, 10.4, 10.55, 16}, kHostNoise), DiffVerdict::kSlower);
  const Change one = compare(side(before, kHostNoise), side({10, 10.1, 9.9, 10.05, 16}, kHostNoise), false);
  EXPECT_EQ(one.verdict, DiffVerdict::kAmbiguous);
  EXPECT_LT(one.low, 0);
  EXPECT_GT(one.high, 0);
  // Of two modes in which a machine may be, by chance three runs in one and two in the other.
  EXPECT_EQ(verdict_of({10, 10.1, 15, 10.05, 15.2}, {15, 15.1, 10.2, 15.3, 10}, kHostNoise), DiffVerdict::kAmbiguous);
  EXPECT_EQ(verdict_of(before, {10.01, 10.09, 9.91, 10.04, 9.96}, kHostNoise), DiffVerdict::kSame);
  // Runs that differ by more themselves do not say that nothing of 5 % has changed.
  const Change wide =
      compare(side({10, 10.3, 9.7, 10.45, 9.55}, kHostNoise), side({10.25, 10, 10.45, 9.75, 10.4}, kHostNoise), false);
  EXPECT_EQ(wide.verdict, DiffVerdict::kAmbiguous);
  EXPECT_GT(wide.high, 0.05);
  EXPECT_LT(wide.high, 0.10);
  EXPECT_NE(wide.reason.find("more than 5.0 %"), std::string::npos) << wide.reason;
}

// ---- --fail-on

DiffResult with(DiffMetric metric, double low, double frac, double high) {
  DiffResult out;
  out.sides.resize(2);
  out.comparable.yes = true;
  DiffStage& row = out.stages.emplace_back();
  row.side = 1;
  row.kind = KeyText("decode");
  row.metric = metric;
  row.change_frac = frac;
  row.ci95 = std::array<double, 2>{low, high};
  return out;
}

GateState state_of(const std::string& expression, const DiffResult& result) {
  const Result<std::vector<Gate>> gates = parse_gates({expression});
  EXPECT_TRUE(gates) << gates.error().text();
  return judge(*gates, result).front().state;
}

TEST(Gates, HoldBreakOrCannotBeTold) {
  EXPECT_EQ(state_of("tpot>3%", with(DiffMetric::kTpot, -0.01, 0.01, 0.02)), GateState::kHolds);
  EXPECT_EQ(state_of("tpot>3%", with(DiffMetric::kTpot, 0.04, 0.06, 0.08)), GateState::kBroken);
  EXPECT_EQ(state_of("tpot>3%", with(DiffMetric::kTpot, 0.01, 0.04, 0.08)), GateState::kAmbiguous);
  EXPECT_EQ(state_of("ttft>3%", with(DiffMetric::kTpot, 0, 0, 0)), GateState::kAmbiguous);  // there is none
  EXPECT_EQ(state_of("slower:5%", with(DiffMetric::kStep, 0.06, 0.08, 0.1)), GateState::kBroken);
  // A rate is worse where it is less.
  EXPECT_EQ(state_of("rate>3%", with(DiffMetric::kRate, 0.05, 0.1, 0.2)), GateState::kHolds);
  EXPECT_EQ(state_of("rate>3%", with(DiffMetric::kRate, -0.2, -0.1, -0.05)), GateState::kBroken);
}

TEST(Gates, OfOtherMachinesCannotBeTold) {
  DiffResult result = with(DiffMetric::kTpot, 0.04, 0.06, 0.08);
  result.comparable.yes = false;
  result.comparable.differs = {"driver 570 -> 580"};
  EXPECT_EQ(state_of("tpot>3%", result), GateState::kAmbiguous);
}

// Clocks 5 % apart may be 5 % of a change, whichever way.
TEST(Gates, AnotherClockWidensWhatCanBeTold) {
  const auto state = [](const char* expression, double low, double high, OptDouble clock) {
    DiffResult result = with(DiffMetric::kTpot, low, (low + high) / 2, high);
    result.comparable.yes = false;
    result.comparable.differs = {"SM clock (MHz) 2000 -> 1905", "clock held down by: none -> sw-power-cap"};
    result.sides[0].sm_clock_mhz = 2000;
    result.sides[1].sm_clock_mhz = clock;
    return state_of(expression, result);
  };
  EXPECT_EQ(state("tpot>3%", 0.20, 0.25, 1905), GateState::kBroken);
  EXPECT_EQ(state("tpot>3%", -0.60, -0.50, 1905), GateState::kHolds);
  EXPECT_EQ(state("tpot>3%", 0.04, 0.06, 1905), GateState::kAmbiguous);
  EXPECT_EQ(state("tpot>3%", -0.04, -0.01, 1905), GateState::kAmbiguous);
  EXPECT_EQ(state("tpot>3%", 0.20, 0.25, std::nullopt), GateState::kAmbiguous) << "nobody knows by how much";
}

TEST(Gates, AreParsedStrictly) {
  const Result<std::vector<Gate>> two = parse_gates({"tpot>3%, ttft>5.5%"});
  ASSERT_TRUE(two);
  ASSERT_EQ(two->size(), 2U);
  EXPECT_DOUBLE_EQ((*two)[1].limit_frac, 0.055);
  for (const char* bad : {"", "tpot", "tpot>3", "tpot>x%", "tpot>-1%", "tpot:3%", "slower>3%", "tpot>3%,", "tpt>3%"}) {
    const Result<std::vector<Gate>> gates = parse_gates({bad});
    ASSERT_FALSE(gates) << bad;
    EXPECT_EQ(gates.error().exit_code, ExitCode::kUsage);
    EXPECT_NE(gates.error().advice.find("METRIC>N%"), std::string::npos);
  }
  EXPECT_NE(parse_gates({"tpt>3%"}).error().advice.find("tpot"), std::string::npos);
}

}  // namespace
}  // namespace llmprof::diff
