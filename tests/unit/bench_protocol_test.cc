// Every branch of the protocol, on a device whose times are written down.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "bench/case_rows.h"
#include "bench/fit.h"
#include "bench/power_control.h"
#include "bench/protocol.h"
#include "bench/stop_rule.h"
#include "bench/timing.h"
#include "bench_scripted.h"
#include "report/text_bench.h"

namespace llmprof::bench {
namespace {

using device::Sample;
using kernels::CheckStatus;

class BenchProtocol : public testing::Test {
 protected:
  void SetUp() override { g_op = ScriptedOp{}; }

  CaseResult run(const std::vector<std::pair<std::string, int64_t>>& axes = {}) {
    const Result<kernels::OpParams> params = kernels::make_params(scripted_gemm(), DType::kFp32, "", axes);
    EXPECT_TRUE(params.has_value());
    return measure(device_, scripted_gemm(), *params, protocol_, stop_);
  }
  static const Timing& of(const CaseResult& result, Regime regime) {
    for (const Timing& timing : result.timings)
      if (timing.regime == regime) return timing;
    ADD_FAILURE() << "no " << name_of(regime) << " timing";
    static const Timing kNone;
    return kNone;
  }

  ScriptedDevice device_;
  Protocol protocol_;
  std::atomic<bool> stop_{false};
};

TEST_F(BenchProtocol, BothRegimesOfAnEvenKernel) {
  device_.script = [](const std::string&, bool cold, int64_t) { return Sample{cold ? 120.0 : 100.0, 1500, 0}; };
  device_.readings = [] {
    device::Telemetry t;
    t.power_w = 400;
    t.temperature_c = 50;
    t.throttle_fracs = {{"power cap", 0.25}};
    return t;
  };
  device_.peak = 1;
  const CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kPassed) << result.note;
  ASSERT_EQ(result.timings.size(), 2U);
  const Timing &cold = of(result, Regime::kCold), &sustained = of(result, Regime::kSustained);
  EXPECT_DOUBLE_EQ(cold.summary.median, 120);
  EXPECT_DOUBLE_EQ(sustained.summary.median, 100);
  EXPECT_GE(cold.summary.n, 10);
  EXPECT_TRUE(cold.settled);
  EXPECT_DOUBLE_EQ(*sustained.clock_mhz, 1500);
  EXPECT_DOUBLE_EQ(*sustained.power_w, 400);
  EXPECT_DOUBLE_EQ(*sustained.temperature_c, 50);
  ASSERT_EQ(sustained.throttle_fracs.size(), 1U);
  EXPECT_EQ(sustained.throttle_fracs[0].first, "power cap");
  EXPECT_EQ(result.backend, "only");
  EXPECT_EQ(result.check.compared, 100);
  EXPECT_DOUBLE_EQ(result.cost.flops, 2e9);
  EXPECT_EQ(result.memory_bytes, int64_t{1} << 20);
  EXPECT_EQ(g_op.prepared_sets, 64) << "sets of 1 MiB: as many as there may be";
  EXPECT_EQ(sustained.sets, 64);
  EXPECT_EQ(sustained.launches_per_sample % 64, 0) << "every set equally often";
  EXPECT_EQ(cold.launches_per_sample, 1);
  for (const ScriptedDevice::Request& request : device_.requests) {
    EXPECT_EQ(request.flush, request.cold);
    EXPECT_LE(request.cold ? request.samples : 0, 16);
  }
}

TEST_F(BenchProtocol, OnlyTheRegimeAskedFor) {
  protocol_.cold = false;
  const CaseResult result = run();
  ASSERT_EQ(result.timings.size(), 1U);
  EXPECT_EQ(result.timings[0].regime, Regime::kSustained);
}

TEST_F(BenchProtocol, ShortKernelsAreTimedSeveralAtOnce) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{2, 1500, 0}; };
  EXPECT_EQ(of(run(), Regime::kCold).launches_per_sample, 20) << "40 us of 2 us each";
  device_.script = [](const std::string&, bool, int64_t) { return Sample{0.1, 1500, 0}; };
  EXPECT_EQ(of(run(), Regime::kCold).launches_per_sample, 64);
  device_.script = [](const std::string&, bool, int64_t) { return Sample{15, 1500, 0}; };
  EXPECT_EQ(of(run(), Regime::kCold).launches_per_sample, 4);
}

TEST_F(BenchProtocol, LongKernelsAreTimedOneByOne) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{80'000, 1500, 0}; };
  const CaseResult result = run();
  EXPECT_EQ(of(result, Regime::kSustained).launches_per_sample, 1);
  EXPECT_GE(of(result, Regime::kSustained).summary.n, 10);
}

TEST_F(BenchProtocol, ThrottledColdSamplesAreLeftOutWhileEnoughStay) {
  device_.script = [](const std::string&, bool, int64_t i) {
    return i % 4 == 0 ? Sample{200, 900, 0} : Sample{100, 1500, 0};
  };
  const Timing cold = of(run(), Regime::kCold);
  EXPECT_GT(cold.throttled, 0);
  EXPECT_DOUBLE_EQ(cold.summary.max, 100) << "900 MHz is under 75 % of 1500";
  ASSERT_FALSE(cold.throttle_fracs.empty());
  EXPECT_NEAR(cold.throttle_fracs[0].second, 0.25, 0.08);
}

TEST_F(BenchProtocol, ThrottlingNeverEmptiesTheRow) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{200, 1500, device::kThrottled}; };
  const CaseResult result = run();
  for (const Regime regime : {Regime::kCold, Regime::kSustained}) {
    const Timing timing = of(result, regime);
    EXPECT_EQ(timing.throttled, 0) << "none was left out";
    EXPECT_GE(timing.summary.n, 10);
    EXPECT_DOUBLE_EQ(timing.summary.median, 200);
    ASSERT_FALSE(timing.throttle_fracs.empty()) << "but it is said";
    EXPECT_DOUBLE_EQ(timing.throttle_fracs[0].second, 1);
  }
}

TEST_F(BenchProtocol, SustainedSamplesAreKeptWhateverTheClock) {
  device_.script = [](const std::string&, bool, int64_t i) {
    return i % 4 == 0 ? Sample{200, 900, 0} : Sample{100, 1500, 0};
  };
  const Timing timing = of(run(), Regime::kSustained);
  EXPECT_EQ(timing.throttled, 0);
  EXPECT_DOUBLE_EQ(timing.summary.max, 200);
}

TEST_F(BenchProtocol, SamplesWithAHostGapAreNoThrottling) {
  device_.script = [](const std::string&, bool, int64_t i) {
    return i % 4 == 0 ? Sample{300, 1500, device::kHostGap} : Sample{100, 1500, 0};
  };
  const Timing cold = of(run(), Regime::kCold);
  EXPECT_EQ(cold.throttled, 0);
  EXPECT_TRUE(cold.throttle_fracs.empty());
  EXPECT_DOUBLE_EQ(cold.summary.max, 100);
}

TEST_F(BenchProtocol, ASlowClockIsReportedAndNothingIsLeftOut) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{300, 500, 0}; };
  const Timing cold = of(run(), Regime::kCold);
  EXPECT_EQ(cold.throttled, 0);
  EXPECT_DOUBLE_EQ(*cold.clock_mhz, 500);
}

TEST_F(BenchProtocol, AnUnknownClockIsAbsent) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{100, std::nanf(""), 0}; };
  const Timing cold = of(run(), Regime::kCold);
  EXPECT_FALSE(cold.clock_mhz.has_value());
  EXPECT_FALSE(cold.power_w.has_value());
  EXPECT_TRUE(cold.settled) << "its times hold still";
}

TEST_F(BenchProtocol, NoiseThatNeverSettlesEndsAtTheWallLimit) {
  double us = 1;
  device_.script = [&us](const std::string&, bool, int64_t) { return Sample{us *= 1.0005, std::nanf(""), 0}; };
  const CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kPassed);
  EXPECT_FALSE(of(result, Regime::kCold).settled);
  EXPECT_GE(of(result, Regime::kSustained).summary.n, 10);
}

TEST_F(BenchProtocol, ASpreadThatStillGrowsAtTheWallIsSaid) {
  protocol_.rel_stdev_max = 1e-9;
  protocol_.noise_change_max = 0;
  double us = 1;
  device_.script = [&us](const std::string&, bool, int64_t) { return Sample{us *= 1.0005, 1500, 0}; };
  for (const Timing& timing : run().timings) EXPECT_TRUE(timing.drifting);
  device_.script = [](const std::string&, bool, int64_t) { return Sample{100, 1500, 0}; };
  for (const Timing& timing : run().timings) EXPECT_FALSE(timing.drifting);
}

TEST_F(BenchProtocol, PowerThatClimbsIsNotSettled) {
  double power = 100;
  device_.readings = [&power] {
    device::Telemetry t;
    t.power_w = power *= 1.1;
    return t;
  };
  EXPECT_FALSE(of(run(), Regime::kCold).settled);
}

TEST_F(BenchProtocol, TheFastestRightCandidateIsTimed) {
  g_op.ways = {{"first"}, {"second"}, {"third"}};
  device_.script = [](const std::string& backend, bool, int64_t) {
    return Sample{backend == "second" ? 80.0 : backend == "first" ? 100.0 : 130.0, 1500, 0};
  };
  const CaseResult result = run();
  EXPECT_EQ(result.backend, "second");
  EXPECT_NEAR(result.gap_to_first_frac, 0.25, 1e-9);
  EXPECT_DOUBLE_EQ(of(result, Regime::kSustained).summary.median, 80);
}

// Of many algorithms only the first and the fastest of a short screen are checked, in the library's order; what is
// refused when it runs is none of them.
TEST_F(BenchProtocol, OfManyOnlyThoseWorthACheckAreChecked) {
  g_op.ways = {{"first"}, {"slow"}, {"refused", kernels::CheckStatus::kPassed, false, true},
               {"fast"},  {"near"}, {"far"}};
  g_op.worth_checking = 3;
  device_.script = [](const std::string& backend, bool, int64_t) {
    const std::map<std::string, double> us = {{"first", 100}, {"slow", 300}, {"fast", 80}, {"near", 90}, {"far", 500}};
    return Sample{us.at(backend), 1500, 0};
  };
  const CaseResult result = run();
  EXPECT_EQ(result.backend, "fast");
  EXPECT_EQ(g_op.checked, (std::vector<size_t>{0, 3, 4}));
  g_op.checked.clear();
  // All the same where few are slow for the screen's time: so many are timed that there is a choice.
  device_.script = [](const std::string& backend, bool, int64_t) {
    return Sample{backend == "near" ? 200'000.0 : 400'000.0, 1500, 0};
  };
  EXPECT_EQ(run().backend, "near");
  EXPECT_EQ(g_op.checked.front(), 0U);
  g_op.checked.clear();
  for (ScriptedOp::Way& way : g_op.ways) way.refused = true;
  const CaseResult none = run();
  EXPECT_EQ(none.status, CaseStatus::kError);
  EXPECT_EQ(none.note, "the algorithm is not supported");
  EXPECT_TRUE(g_op.checked.empty());
}

// Cold, "hot" wins; where the power limit holds the clock down, it loses more than "cool".
TEST_F(BenchProtocol, TheFastestUnderThePowerLimitIsTimed) {
  g_op.ways = {{"slow"}, {"hot"}, {"cool"}};
  bool warm = false;
  device_.readings = [&] {
    warm = true;
    device::Telemetry telemetry;
    telemetry.throttle_fracs = {{"power cap", 0.6}};
    return telemetry;
  };
  device_.script = [&](const std::string& backend, bool, int64_t) {
    const double us = backend == "slow" ? 130 : backend == "cool" ? 105 : warm ? 120 : 100;
    return device::Sample{us, 1500, 0};
  };
  const CaseResult limited = run();
  EXPECT_EQ(limited.backend, "cool");
  EXPECT_NEAR(limited.gap_to_first_frac, 0.3, 1e-9) << "so far behind before that it had no turn";
  const Timing& loop = of(limited, Regime::kSustained);
  ASSERT_EQ(loop.compared.size(), 2U);
  EXPECT_EQ(loop.compared[0].first, "cool");
  EXPECT_NEAR(loop.compared[1].second, 120, 1e-9);
  // Without a limit, or where it is reached now and then, the choice stands.
  for (const double frac : {0.0, 0.4}) {
    device_.readings = [frac] {
      device::Telemetry telemetry;
      telemetry.throttle_fracs = {{"power cap", frac}};
      return telemetry;
    };
    warm = false;
    EXPECT_EQ(run().backend, "hot") << frac;
  }
}

// The control of power looks at about a second: before it acts, all that it reads holds still.
TEST_F(BenchProtocol, NearThePowerLimitSettlingWaitsForItsControl) {
  protocol_.cold = false;
  g_op.ways = {{"hot"}, {"cool"}};
  int64_t first_ns = 0;
  const auto limited = [&] { return first_ns > 0 && device_.now_ns() - first_ns > 800'000'000; };
  device_.readings = [&] {
    if (first_ns == 0) first_ns = device_.now_ns();
    device::Telemetry telemetry;
    telemetry.power_w = 695;
    telemetry.power_limit_w = 700;
    telemetry.throttle_fracs = {{"power cap", limited() ? 1 : 0}};
    return telemetry;
  };
  device_.script = [&](const std::string& backend, bool, int64_t) {
    return Sample{backend == "cool" ? 105.0 : limited() ? 120.0 : 100.0, 1500, 0};
  };
  EXPECT_EQ(run().backend, "cool");
}

// The control goes too far when it first acts, a second after load began: neither a look at a candidate nor a sample of
// a row is taken then.
TEST_F(BenchProtocol, TheFirstActOfThePowersControlIsInNoSample) {
  protocol_.cold = false;
  const auto at = [&](double s) { return static_cast<double>(device_.now_ns()) * 1e-9 >= s; };
  device_.readings = [&] {
    device::Telemetry telemetry;
    telemetry.throttle_fracs = {{"power cap", at(0.4) ? 1 : 0}};
    return telemetry;
  };
  device_.script = [&](const std::string& backend, bool, int64_t) {
    const bool too_far = at(0.9) && !at(1.2);
    return Sample{(backend == "even" ? 102.0 : 100.0) * (too_far ? 1.3 : 1), 1500, 0};
  };
  g_op.ways = {{"one"}};
  const Timing alone = of(run(), Regime::kSustained);
  EXPECT_NEAR(alone.summary.max, 100, 1e-6);
  EXPECT_TRUE(at(1.3 + 1));
  for (const bool even_first : {false, true}) {
    device_.restart();
    g_op.ways = even_first ? decltype(g_op.ways){{"even"}, {"one"}} : decltype(g_op.ways){{"one"}, {"even"}};
    const CaseResult result = run();
    EXPECT_EQ(result.backend, "one");
    EXPECT_NEAR(of(result, Regime::kSustained).compared[1].second, 102, 0.01);
  }
}

// Nor is a look taken while the control acts for the second and third time; whoever comes first has no advantage.
TEST_F(BenchProtocol, LooksAreClearOfThePowersControl) {
  protocol_.cold = protocol_.sustained = false;
  const std::vector<std::pair<double, double>> acts = {{0.84, 1.26}, {1.76, 1.08}, {2.68, 1.05}};  // from: slower by
  device_.readings = [] {
    device::Telemetry telemetry;
    telemetry.throttle_fracs = {{"power cap", 1}};
    return telemetry;
  };
  device_.script = [&](const std::string& backend, bool, int64_t) {
    const double now_s = static_cast<double>(device_.now_ns()) * 1e-9;
    double us = 100 + 3 * std::stod(backend);
    for (const auto& [from_s, slower] : acts)
      if (now_s >= from_s && now_s < from_s + 0.25) us *= slower;
    return Sample{us, 1500, 0};
  };
  std::vector<std::string> order = {"0", "1", "2", "3", "4"};
  protocol_.choose_s = 0.05;
  do {
    device_.restart();
    g_op.ways.clear();
    for (const std::string& one : order) g_op.ways.push_back({one});
    const CaseResult result = run();
    EXPECT_EQ(result.backend, "0") << fmt::format("{}", fmt::join(order, " "));
  } while (std::next_permutation(order.begin(), order.end()));
  // What each look saw.
  protocol_.sustained = true;
  for (int i = 0; i < 2; ++i) {
    device_.restart();
    std::reverse(g_op.ways.begin(), g_op.ways.end());
    const CaseResult result = run();
    const Timing& loop = of(result, Regime::kSustained);
    ASSERT_GE(loop.compared.size(), 4U);
    for (const auto& [backend, us] : loop.compared) EXPECT_NEAR(us, 100 + 3 * std::stod(backend), 0.01) << backend;
  }
}

// Ties cost time, and any of them will do.
TEST_F(BenchProtocol, ThreeHaveATurnAtMost) {
  protocol_.cold = protocol_.sustained = false;
  protocol_.sets_max = 1;  // samples of 10 ms
  g_op.ways = {{"0"}, {"1"}, {"2"}, {"3"}, {"4"}};
  device_.readings = [] {
    device::Telemetry telemetry;
    telemetry.throttle_fracs = {{"power cap", 1}};
    return telemetry;
  };
  std::string last;
  int in_a_row = 0;
  std::map<std::string, int> longest;
  device_.script = [&](const std::string& backend, bool, int64_t) {
    in_a_row = backend == last ? in_a_row + 1 : 0;
    last = backend;
    longest[backend] = std::max(longest[backend], in_a_row);
    return Sample{100 + 0.2 * std::stod(backend), 1500, 0};
  };
  protocol_.choose_s = 0.05;
  EXPECT_EQ(run().backend, "0");
  EXPECT_GT(longest["2"], 90);
  EXPECT_LT(longest["3"], 70);
  EXPECT_LT(longest["4"], 70);
}

// What is slower than a look a moment before is taken again, and the fastest counts: something else was at work.
TEST_F(BenchProtocol, ADisturbedStretchIsTakenAgain) {
  g_op.ways = {{"one"}, {"other"}};
  protocol_.sustained = false;
  protocol_.choose_s = 0.05;
  double looked_s = 0;  // the end of the look: "other" is not run any more
  const auto seconds = [&] { return static_cast<double>(device_.now_ns()) * 1e-9; };
  const auto run_with = [&](double slower, double from_s, double to_s) {
    device_.restart();
    device_.script = [=, &looked_s](const std::string& backend, bool cold, int64_t) {
      const double now_s = seconds();
      if (backend == "other") looked_s = now_s + 0.01;
      const bool disturbed = cold && now_s >= from_s && now_s < to_s;
      return Sample{(backend == "one" ? 100.0 : 150.0) * (disturbed ? slower : 1), 1500, 0};
    };
    return of(run(), Regime::kCold);
  };
  const Timing even = run_with(1, 0, 0);
  EXPECT_FALSE(even.disturbed_us.has_value());
  const double from_s = looked_s, stretch_s = seconds() - from_s;
  const Timing once = run_with(1.03, from_s, from_s + stretch_s);
  EXPECT_DOUBLE_EQ(once.summary.median, 100);
  ASSERT_TRUE(once.disturbed_us.has_value());
  EXPECT_NEAR(*once.disturbed_us, 103, 1e-9);
  const Timing longer = run_with(1.08, from_s, from_s + 4 * stretch_s);
  EXPECT_DOUBLE_EQ(longer.summary.median, 100) << "the more it is, the longer it is waited for";
  const Timing always = run_with(1.08, from_s, 1e9);
  EXPECT_DOUBLE_EQ(always.summary.median, 108);
  EXPECT_FALSE(always.disturbed_us.has_value());
  EXPECT_NEAR(seconds() - from_s, 5 * stretch_s, 0.2 * stretch_s);
}

// In a mixture all candidates have the same clock, and "hungry", which needs more power, looks best; alone, once the
// control has answered, it pays for that. "frugal" was not even among the finalists. "second" is behind after a look,
// "first" and "even" after a turn.
TEST_F(BenchProtocol, EachThatIsNearHasATurnOfItsOwnUnderALimit) {
  protocol_.cold = protocol_.sustained = false;
  protocol_.sets_max = 1;  // samples of 10 ms
  g_op.ways = {{"first"}, {"hungry"}, {"frugal"}, {"even"}, {"second"}, {"hopeless"}};
  bool warm = false;
  device_.readings = [&] {
    warm = true;
    device::Telemetry telemetry;
    telemetry.throttle_fracs = {{"power cap", 1}};
    return telemetry;
  };
  std::string last;
  int in_a_row = 0;
  std::map<std::string, int> longest, alone;
  device_.script = [&](const std::string& backend, bool, int64_t i) {
    in_a_row = backend == last ? in_a_row + 1 : 0;
    last = backend;
    const bool answered = warm && in_a_row >= 10;  // of 10 ms
    if (warm) longest[backend] = std::max(longest[backend], in_a_row + 1);
    alone[backend] += answered;
    const std::map<std::string, std::pair<double, double>> us = {// mixed, alone
                                                                 {"first", {102, 102.5}}, {"hungry", {98, 104}},
                                                                 {"frugal", {103, 101}},  {"even", {101, 101.4}},
                                                                 {"second", {100, 105}},  {"hopeless", {130, 130}}};
    const double swing = !warm ? 1 : i % 2 == 0 ? 1.02 : 0.98;
    return Sample{(answered ? us.at(backend).second : us.at(backend).first) * swing, 1500, 0};
  };
  const CaseResult result = run();
  EXPECT_EQ(result.backend, "frugal");
  EXPECT_NEAR(result.gap_to_first_frac, 0.015, 0.001) << "without the first samples, which have another's clock";
  EXPECT_NEAR(longest["even"], 102, 6) << "a turn of samples of 10 ms, and a tenth of a second to answer";
  // A look, waiting for the control, a turn, and the one that won once more before it is timed.
  const int waits = 32;
  for (const char* turn : {"frugal", "even", "first"}) {
    EXPECT_GE(alone[turn], 12 + 92 - 6) << turn;
    EXPECT_LE(alone[turn], 12 + waits + 92 + 12) << turn;
  }
  EXPECT_GE(alone["second"], 10);
  EXPECT_LE(alone["second"], 12 + waits + 6);
  EXPECT_EQ(alone["hopeless"], 0);
  // A quick look has no time for turns, nor for more than the finalists.
  protocol_.held_down_s = 0.5;
  warm = false;
  longest.clear();
  EXPECT_NE(run().backend, "frugal");
  EXPECT_LT(longest["even"], 30);
}

// The clock is high for one half of each turn and low for the other: the median of single stretches would be that of
// whichever half has one more. What draws nearly all of the power it may have is at the limit before it is held down.
TEST_F(BenchProtocol, WhereTheClockSwingsASampleHasSeenWholeTurns) {
  protocol_.cold = false;
  double power = 690;
  device_.readings = [&] {
    device::Telemetry telemetry;
    telemetry.power_w = power;
    telemetry.power_limit_w = 700;
    return telemetry;
  };
  device_.script = [&](const std::string&, bool, int64_t) {
    return device_.now_ns() / 500'000'000 % 2 == 0 ? Sample{90, 1600, 0} : Sample{110, 1400, 0};
  };
  const Timing timing = of(run(), Regime::kSustained);
  EXPECT_NEAR(timing.summary.median, 99, 1) << "in equal times more samples are fast";
  EXPECT_GE(timing.summary.n, 10);
  ASSERT_TRUE(timing.spread_frac.has_value());
  EXPECT_NEAR(*timing.spread_frac, 0.2, 0.03);
  EXPECT_EQ(timing.launches_per_sample % 8, 0);
  const std::vector<CaseRecord> records = records_of(run(), {});
  EXPECT_TRUE(records[0].row.spread_frac.has_value());
  EXPECT_NE(cases_text(records, {}).find("in 1 row: samples are means over whole periods"), std::string::npos)
      << cases_text(records, {});
  power = 500;
  const Timing free = of(run(), Regime::kSustained);
  EXPECT_FALSE(free.spread_frac.has_value());
  EXPECT_NEAR(std::fabs(free.summary.median - 100), 10, 1e-6);
}

// Trials that follow each other without a pause are not isolated: the power limit is reached.
TEST_F(BenchProtocol, AGpuRestsBetweenIsolatedTrials) {
  protocol_.sustained = false;
  const CaseResult result = run();
  EXPECT_GT(device_.busy_cold_s, 0);
  EXPECT_NEAR(result.phases.timing_s, 3 * device_.busy_cold_s + protocol_.cold_min_s / 2, 1e-6)
      << "a third of the time, after a rest from what ran before";
}

// Requests are of a few trials each; all of them together have visited every set as often.
TEST_F(BenchProtocol, IsolatedTrialsVisitAllSets) {
  protocol_.sustained = false;
  g_op.set_bytes = size_t{100} << 20;
  const CaseResult result = run();
  ASSERT_EQ(of(result, Regime::kCold).sets, 41);
  EXPECT_EQ(device_.isolated.size(), 41U);
  const auto [least, most] = std::minmax_element(device_.isolated.begin(), device_.isolated.end(),
                                                 [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_LE(most->second - least->second, 1);
}

// Each regime has its own fastest, and its rows say which.
TEST_F(BenchProtocol, IsolatedAnotherCandidateMayBeTheFastest) {
  g_op.ways = {{"loop", CheckStatus::kMistrusted}, {"alone"}};
  device_.script = [](const std::string& backend, bool cold, int64_t) {
    return Sample{backend == "loop" ? 100.0 : cold ? 90.0 : 110.0, 1500, 0};
  };
  const CaseResult result = run();
  EXPECT_EQ(result.backend, "loop");
  EXPECT_EQ(of(result, Regime::kSustained).backend, "loop");
  EXPECT_EQ(of(result, Regime::kSustained).check.status, CheckStatus::kMistrusted);
  const Timing& cold = of(result, Regime::kCold);
  EXPECT_EQ(cold.backend, "alone");
  EXPECT_EQ(cold.check.status, CheckStatus::kPassed);
  EXPECT_DOUBLE_EQ(cold.summary.median, 90);
  EXPECT_NEAR(cold.gap_to_first_frac, 100.0 / 90 - 1, 1e-9);
  const std::vector<CaseRecord> records = records_of(result, {});
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].row.backend, "alone");
  EXPECT_EQ(records[1].row.backend, "loop");
}

TEST_F(BenchProtocol, TheGapIsKnownWhereTheFirstIsFarBehind) {
  g_op.ways = {{"0"}, {"1"}, {"2"}, {"3"}, {"4"}};
  device_.script = [](const std::string& backend, bool, int64_t) {
    return Sample{200 - 10 * std::stod(backend), 1500, 0};
  };
  const CaseResult result = run();
  EXPECT_EQ(result.backend, "4");
  EXPECT_NEAR(result.gap_to_first_frac, 0.25, 1e-9);
}

TEST_F(BenchProtocol, AWrongCandidateIsNeverTimed) {
  g_op.ways = {{"wrong", CheckStatus::kFailed}, {"right"}};
  device_.script = [](const std::string& backend, bool, int64_t) {
    return Sample{backend == "wrong" ? 1.0 : 100.0, 1500, 0};
  };
  const CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kPassed);
  EXPECT_EQ(result.backend, "right");
  EXPECT_EQ(device_.timed.count("wrong"), 0U);
  EXPECT_NE(result.note.find("wrong: wrong results, 40 times the tolerance"), std::string::npos) << result.note;
}

TEST_F(BenchProtocol, OnlyWrongCandidatesFailTheRow) {
  g_op.ways = {{"wrong", CheckStatus::kFailed}};
  const CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kFailed);
  EXPECT_TRUE(result.timings.empty());
  EXPECT_TRUE(device_.timed.empty());
}

TEST_F(BenchProtocol, ACandidateThatCannotRunIsLeftOut) {
  g_op.ways = {{"broken", CheckStatus::kPassed, true}, {"right"}};
  CaseResult result = run();
  EXPECT_EQ(result.backend, "right");
  EXPECT_EQ(result.note, "broken: it cannot be launched");
  g_op.ways = {{"broken", CheckStatus::kPassed, true}};
  result = run();
  EXPECT_EQ(result.status, CaseStatus::kError);
  EXPECT_EQ(result.note, "broken: it cannot be launched");
}

TEST_F(BenchProtocol, MistrustedResultsAreTimedAndSaidSo) {
  g_op.ways = {{"odd", CheckStatus::kMistrusted}};
  const CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kMistrusted);
  EXPECT_EQ(result.timings.size(), 2U);
}

TEST_F(BenchProtocol, WhatDoesNotFitIsRefusedBeforeAnything) {
  const CaseResult result = run({{"m", 2'000'000'000}});
  EXPECT_EQ(result.status, CaseStatus::kOutOfMemory);
  EXPECT_TRUE(device_.requests.empty());
  // 4 (1024 m + 1024 n + m n) <= 16 GiB - 512 MiB with n = k = 1024: m <= 2031616 - 512.
  EXPECT_NE(result.note.find("needs 16.4 TB"), std::string::npos) << result.note;
  EXPECT_NE(result.note.find("the largest --m that fits: 2031104"), std::string::npos) << result.note;
}

TEST_F(BenchProtocol, TheAxisThatGrewIsTheOneToShrink) {
  const CaseResult result = run({{"k", 4'000'000'000}, {"m", 2048}});
  EXPECT_NE(result.note.find("the largest --k that fits"), std::string::npos) << result.note;
  const CaseResult wide = run({{"m", 4'000'000}, {"n", 4'000'000}, {"k", 4'000'000}});
  // 3 x 4 m^2 bytes in 15.5 GiB: m = 37241.
  EXPECT_NE(wide.note.find("it fits with --m 37184 --n 37184 --k 37184"), std::string::npos) << wide.note;
}

TEST_F(BenchProtocol, SetsStayWithinHalfOfWhatIsFree) {
  g_op.set_bytes = size_t{4} << 20;
  device_.who.cache_bytes = int64_t{4} << 30;
  device_.free = int64_t{64} << 20;
  run();
  EXPECT_EQ(g_op.prepared_sets, 9) << "one that exists and 8 x 4 MiB";
  g_op.set_bytes = 1024;
  run();
  EXPECT_EQ(g_op.prepared_sets, 64);
}

TEST_F(BenchProtocol, SetsExceedTheCacheAndOnAGpuSpreadOverManyPages) {
  device_.free = device_.who.memory_bytes = int64_t{20} << 30;
  g_op.set_bytes = size_t{512} << 20;
  run();
  EXPECT_EQ(g_op.prepared_sets, 8) << "4 GiB";
  g_op.set_bytes = size_t{6} << 30;
  run();
  EXPECT_EQ(g_op.prepared_sets, 2);
  kernels::Operation on_cpu = scripted_gemm();
  on_cpu.prepare_cpu = on_cpu.prepare_cuda;
  device_.who.kind = device::DeviceKind::kCpu;
  g_op.set_bytes = size_t{1} << 20;
  measure(device_, on_cpu, *kernels::make_params(on_cpu, DType::kFp32, "", {}), protocol_, stop_);
  EXPECT_EQ(g_op.prepared_sets, 16) << "2 x 8 MiB of cache";
}

TEST_F(BenchProtocol, UnsupportedSaysWhy) {
  g_op.unsupported = "it has no fp4 matrix units";
  CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kUnsupported);
  EXPECT_EQ(result.note, "it has no fp4 matrix units");
  g_op.unsupported.clear();
  device_.who.kind = device::DeviceKind::kCpu;
  result = run();
  EXPECT_EQ(result.status, CaseStatus::kUnsupported);
  EXPECT_EQ(result.note, "gemm is not measured on a CPU");
}

TEST_F(BenchProtocol, ErrorsOfTheDeviceBecomeANote) {
  g_op.prepare_error = "libx.so was not found";
  CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kError);
  EXPECT_EQ(result.note, "libx.so was not found");
  g_op.prepare_error.clear();
  device_.broken = true;
  result = run();
  EXPECT_EQ(result.status, CaseStatus::kError);
  EXPECT_EQ(result.note, "an illegal address was accessed");
  EXPECT_TRUE(result.timings.empty());
}

TEST_F(BenchProtocol, StoppedBetweenBatches) {
  int batches = 0;
  device_.on_batch = [&] { stop_ = ++batches >= 12; };
  const CaseResult result = run();
  EXPECT_EQ(result.status, CaseStatus::kInterrupted);
  EXPECT_TRUE(result.timings.empty());
  EXPECT_EQ(batches, 12) << "nothing more was queued";
}

TEST_F(BenchProtocol, StoppedAtAnyBatchNothingMoreIsQueued) {
  int all = 0;
  device_.on_batch = [&] { ++all; };
  run();
  for (int at = 1; at < std::min(all, 20); ++at) {
    stop_ = false;
    int batches = 0;
    device_.on_batch = [&] { stop_ = ++batches >= at; };
    EXPECT_EQ(run().status, CaseStatus::kInterrupted);
    EXPECT_LE(batches, at + 1) << "at most the timed half of a warm-up";
  }
}

TEST_F(BenchProtocol, StoppedBeforeItBegan) {
  stop_ = true;
  EXPECT_EQ(run().status, CaseStatus::kInterrupted);
  EXPECT_TRUE(device_.requests.empty());
}

TEST_F(BenchProtocol, KeepsAtMost512SamplesAndSummarizesAll) {
  const Timing timing = of(run(), Regime::kCold);
  EXPECT_EQ(timing.samples_us.size(), 512U);
  EXPECT_NEAR(static_cast<double>(timing.summary.n), 833, 16) << "a third of a quarter second, 100 us each";
}

TEST(BenchLoopLaunches, VisitEverySetInFewSamples) {
  const auto launches = [](double us, int sets) {
    return loop_launches({[](int) { return Status(); }, sets, us}, 5000);
  };
  EXPECT_EQ(launches(100, 64), 64) << "each set in every sample";
  EXPECT_EQ(launches(10, 64), 512);
  EXPECT_EQ(launches(0, 1), 4096);
  EXPECT_EQ(launches(900, 64), 4) << "5 would take 64 samples";
  EXPECT_EQ(launches(700, 32), 4) << "of 7, 6, 5 and 4";
  EXPECT_EQ(launches(1600, 13), 3) << "nothing in common";
  EXPECT_EQ(launches(60'000, 4), 1);
}

TEST(BenchThin, IsEvenAndKeepsTheOrder) {
  std::vector<double> values(1000);
  std::iota(values.begin(), values.end(), 0);
  const std::vector<double> kept = thin(values, 512);
  ASSERT_EQ(kept.size(), 512U);
  EXPECT_EQ(kept.front(), 0);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_LE(kept[i] - kept[i - 1], 2);
  EXPECT_EQ(thin(values, 1000).size(), 1000U);
}

TEST(BenchStopRule, NeedsSamplesAndTime) {
  Protocol protocol;
  StopRule rule(protocol, 0.25);
  for (int i = 0; i < 9; ++i) rule.add(100);
  EXPECT_FALSE(rule.enough(1, false)) << "9 samples";
  rule.add(100);
  EXPECT_FALSE(rule.enough(0.2, false));
  EXPECT_TRUE(rule.enough(0.3, false));
}

TEST(BenchStopRule, SpreadKeepsGoingUntilItIsStableOrTheWall) {
  Protocol protocol;
  protocol.wall_max_s = 15;
  StopRule rule(protocol, 0);
  for (int i = 0; i < 63; ++i) rule.add(i % 2 == 0 ? 90 : 110);
  EXPECT_FALSE(rule.enough(1, false)) << "10 % spread";
  rule.add(110);
  EXPECT_TRUE(rule.enough(1, false)) << "the same spread over the last half";
  StopRule growing(protocol, 0);
  double us = 100;
  for (int i = 0; i < 400; ++i) growing.add(us *= 1.01);
  EXPECT_FALSE(growing.enough(14.9, false));
  EXPECT_TRUE(growing.enough(15, false));
}

// The control of power swings: part of a swing is no measurement, unless the times do not follow it.
TEST(BenchStopRule, AtALimitWholeTurnsAreTaken) {
  Protocol protocol;
  protocol.wall_max_s = 0.7;
  StopRule rule(protocol, 0.5);
  for (int i = 0; i < 200; ++i) rule.add(i % 2 == 0 ? 97 : 103);
  EXPECT_TRUE(rule.enough(0.7, false));
  EXPECT_FALSE(rule.enough(0.7, true));
  EXPECT_FALSE(rule.enough(1.8, true));
  EXPECT_TRUE(rule.enough(1.85, true));
  StopRule quiet(protocol, 0.5);
  for (int i = 0; i < 200; ++i) quiet.add(i % 2 == 0 ? 99.9 : 100.1);
  EXPECT_TRUE(quiet.enough(0.6, false));
  EXPECT_FALSE(quiet.enough(0.6, true)) << "it may be held down before the turn is over";
  EXPECT_TRUE(quiet.enough(1, true));
  protocol.held_down_s = 0.25;
  EXPECT_TRUE(rule.enough(0.7, true)) << "a quick look";
  EXPECT_TRUE(quiet.enough(0.5, true));
  protocol.held_down_s = 2;
  protocol.wall_max_s = 20;
  StopRule longer(protocol, 5);
  for (int i = 0; i < 200; ++i) longer.add(100 + i);
  EXPECT_FALSE(longer.enough(4, true)) << "whoever asks for more gets it";
  EXPECT_TRUE(longer.enough(5, true));
}

TEST(BenchPowerControl, ClearOfTheFirstActs) {
  const int64_t began = 5'000'000'000;
  const PowerControl control(began);
  const auto clear_s = [&](double now_s, double seconds) {
    return static_cast<double>(control.clear_from(began + static_cast<int64_t>(now_s * 1e9), seconds) - began) * 1e-9;
  };
  EXPECT_NEAR(clear_s(0.1, 0.2), 0.1, 1e-6);
  EXPECT_NEAR(clear_s(0.7, 0.12), 0.7, 1e-6);
  EXPECT_NEAR(clear_s(0.7, 0.2), 1.12, 1e-6) << "it would not be over in time";
  EXPECT_NEAR(clear_s(1.0, 0.2), 1.12, 1e-6);
  EXPECT_NEAR(clear_s(1.0, 0.7), 2.04 + 0.92, 1e-6) << "longer than what lies between two acts";
  EXPECT_NEAR(clear_s(3.5, 0.7), 3.5, 1e-6);
  EXPECT_NEAR(static_cast<double>(control.acted_ns() - began) * 1e-9, 1.12, 1e-6);
  EXPECT_EQ(PowerControl().clear_from(began, 10), began);
  EXPECT_EQ(PowerControl().acted_ns(), 0);
}

TEST_F(BenchProtocol, SamplesWhoseThreadsWaitedAreLeftOutWhileEnoughStay) {
  device_.script = [](const std::string&, bool, int64_t i) {
    return i % 3 != 0 ? Sample{180, 1500, 0, 80} : Sample{100, 1500, 0, 0.5};
  };
  const CaseResult result = run();
  for (const Regime regime : {Regime::kCold, Regime::kSustained}) {
    const Timing timing = of(result, regime);
    EXPECT_GT(timing.waited, 0);
    EXPECT_DOUBLE_EQ(timing.summary.max, 100);
    EXPECT_FALSE(timing.drifting) << "those that are left are steady";
    EXPECT_NEAR(*timing.wait_ratio, 160.5 / 460, 0.05);
    EXPECT_DOUBLE_EQ(*timing.unwaited_us, 99.5);
  }
}

// Others had the cores while the faster candidate was looked at for the first times.
TEST_F(BenchProtocol, WaitingForACoreDoesNotMakeTheChoice) {
  g_op.ways = {{"slow"}, {"fast"}};
  device_.who.kind = device::DeviceKind::kCpu;
  std::map<std::string, int64_t> seen;
  device_.script = [&](const std::string& backend, bool, int64_t) {
    const int64_t i = seen[backend]++;
    if (backend == "slow") return Sample{150, 1500, 0, 0.1};
    return i % 4 == 3 ? Sample{20, 1500, 0, 0} : Sample{400, 1500, 0, 390};
  };
  kernels::Operation on_a_cpu = scripted_gemm();
  on_a_cpu.prepare_cpu = prepare_scripted;
  const auto take = [&] {
    return measure(device_, on_a_cpu, *make_params(on_a_cpu, DType::kFp32, "", {}), protocol_, stop_);
  };
  const CaseResult result = take();
  for (const Regime regime : {Regime::kCold, Regime::kSustained}) {
    EXPECT_EQ(of(result, regime).backend, "fast");
    EXPECT_FALSE(of(result, regime).choice_disturbed);
    EXPECT_DOUBLE_EQ(of(result, regime).summary.median, 20);
  }
  // Whenever it was looked at: it may be the faster one, and this is said.
  device_.script = [](const std::string& backend, bool, int64_t) {
    return backend == "slow" ? Sample{150, 1500, 0, 0.1} : Sample{400, 1500, 0, 390};
  };
  const CaseResult open = take();
  for (const Regime regime : {Regime::kCold, Regime::kSustained}) {
    EXPECT_EQ(of(open, regime).backend, "slow");
    EXPECT_TRUE(of(open, regime).choice_disturbed);
    EXPECT_TRUE(records_of(open, {})[0].row.choice_disturbed);
  }
}

// Short samples come between the turns of others, which had the cores for half of the regime.
TEST_F(BenchProtocol, WaitingBetweenSamplesIsTold) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{100, 1500, 0, 0}; };
  device_.readings = [] {
    device::Telemetry t;
    t.wait_ratio = 0.5;
    return t;
  };
  EXPECT_DOUBLE_EQ(*of(run(), Regime::kCold).wait_ratio, 0.5);
}

TEST_F(BenchProtocol, WhereAllWaitedTheLeastIsSaid) {
  device_.script = [](const std::string&, bool, int64_t) { return Sample{180, 1500, 0, 80}; };
  const Timing timing = of(run(), Regime::kSustained);
  EXPECT_EQ(timing.waited, 0);
  EXPECT_DOUBLE_EQ(timing.summary.median, 180);
  EXPECT_DOUBLE_EQ(*timing.unwaited_us, 100);
  device_.script = [](const std::string&, bool, int64_t) { return Sample{180, 1500, 0}; };
  EXPECT_FALSE(of(run(), Regime::kSustained).unwaited_us.has_value()) << "a device that does not tell";
}

}  // namespace
}  // namespace llmprof::bench
