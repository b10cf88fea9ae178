#include <gtest/gtest.h>

#include "diff/diff.h"
#include "diff/noise.h"
#include "diff/verdict.h"

namespace llmprof::diff {
namespace {

SideFigures side(std::vector<double> values, double deviation, double width = 0.002) {
  SideFigures out;
  for (const double value : values) out.runs.push_back({value, value * (1 - width), value * (1 + width), 50});
  out.deviation = deviation;
  return out;
}

TEST(Noise, IsTheHostsMoreThanTheGpus) {
  EXPECT_DOUBLE_EQ(deviation_of(1, false), kHostDeviation);
  EXPECT_DOUBLE_EQ(deviation_of(1, true), kHostFullPaceDeviation);
  EXPECT_DOUBLE_EQ(deviation_of(0, false), kGpuDeviation);
  EXPECT_GT(deviation_of(0.5, false), deviation_of(0.5, true));
  EXPECT_TRUE(at_full_pace(0.01));
  EXPECT_FALSE(at_full_pace(0.5));
  EXPECT_FALSE(at_full_pace(std::nullopt));  // not known
}

TEST(Verdict, OnePairOfTheGpuTellsTenPercent) {
  const Change slower = compare(side({10}, kGpuDeviation), side({11}, kGpuDeviation), false);
  EXPECT_EQ(slower.verdict, DiffVerdict::kSlower);
  EXPECT_NEAR(slower.frac, 0.1, 1e-9);
  EXPECT_GT(slower.low, 0.05);
  EXPECT_LT(slower.high, 0.15);
  EXPECT_FALSE(slower.by_repeats);
  EXPECT_EQ(compare(side({11}, kGpuDeviation), side({10}, kGpuDeviation), false).verdict, DiffVerdict::kFaster);
  EXPECT_EQ(compare(side({10}, kGpuDeviation), side({11}, kGpuDeviation), true).verdict, DiffVerdict::kFaster);
}

TEST(Verdict, OnePairOfASharedHostDoesNot) {
  const Change change = compare(side({10}, kHostDeviation), side({11}, kHostDeviation), false);
  EXPECT_EQ(change.verdict, DiffVerdict::kAmbiguous);
  EXPECT_NE(change.reason.find("repeats"), std::string::npos) << change.reason;
  EXPECT_EQ(compare(side({10}, kHostDeviation), side({10}, kHostDeviation), false).verdict, DiffVerdict::kAmbiguous);
  EXPECT_EQ(compare(side({10}, kHostDeviation), side({2}, kHostDeviation), false).verdict, DiffVerdict::kFaster);
}

TEST(Verdict, EqualRunsOfTheGpuAreTheSame) {
  EXPECT_EQ(compare(side({10}, kGpuDeviation), side({10.05}, kGpuDeviation), false).verdict, DiffVerdict::kSame);
  // The interval of their own is too wide to say so.
  EXPECT_EQ(compare(side({10}, kGpuDeviation, 0.05), side({10.05}, kGpuDeviation, 0.05), false).verdict,
            DiffVerdict::kAmbiguous);
  // Without an interval nothing is the same.
  SideFigures one;
  one.runs = {{10, std::nullopt, std::nullopt, 1}};
  one.deviation = kGpuDeviation;
  EXPECT_EQ(compare(one, one, false).verdict, DiffVerdict::kAmbiguous);
  // One step may be any: the interval is wider than that of many.
  SideFigures other = one;
  other.runs[0].value = 20;
  const Change few = compare(one, other, false),
               many = compare(side({10}, kGpuDeviation), side({20}, kGpuDeviation), false);
  EXPECT_LT(few.low, many.low);
  EXPECT_GT(few.high, many.high);
  EXPECT_EQ(few.verdict, DiffVerdict::kSlower);
}

TEST(Verdict, RepeatsSayWhatTheyDifferBy) {
  // On a host whose runs agree, whatever the model says of hosts.
  const Change change = compare(side({10, 10.1, 9.9}, kHostDeviation), side({11, 11.1, 10.9}, kHostDeviation), false);
  EXPECT_TRUE(change.by_repeats);
  EXPECT_EQ(change.verdict, DiffVerdict::kSlower);
  // t(4) = 2.776 on the pooled deviation of 0.96 % over 3 and 3 runs.
  EXPECT_NEAR(change.noise_frac, 2.776 * 0.00957 * std::sqrt(2.0 / 3), 3e-4);
  const Change wide = compare(side({10, 13, 8}, kGpuDeviation), side({11, 14, 9}, kGpuDeviation), false);
  EXPECT_EQ(wide.verdict, DiffVerdict::kAmbiguous);
  const Change same = compare(side({10, 10.02, 9.98, 10.01}, 0), side({10.01, 10, 9.99, 10.02}, 0), false);
  EXPECT_EQ(same.verdict, DiffVerdict::kSame);
}

TEST(Verdict, QuantilesOfStudentsT) {
  EXPECT_NEAR(t_quantile(1), 12.706, 1e-3);
  EXPECT_NEAR(t_quantile(4), 2.776, 1e-3);
  EXPECT_NEAR(t_quantile(21), 2.080, 0.01);
  EXPECT_NEAR(t_quantile(100), 1.984, 0.01);
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
