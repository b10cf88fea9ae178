#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/steady_series.h"

namespace llmprof {
namespace {

// A spread of 2 % that is the same every time.
double noise(size_t i) { return 1 + 0.02 * std::sin(static_cast<double>(i) * 12.9898); }

std::vector<SeriesStep> series(const std::vector<double>& ms) {
  std::vector<SeriesStep> out;
  for (const double value : ms) out.push_back({.ns = value * 1e6});
  return out;
}
std::vector<SeriesStep> flat(size_t n, double ms) {
  std::vector<double> out;
  for (size_t i = 0; i < n; ++i) out.push_back(ms * noise(i));
  return series(out);
}

// "#..." with # for steps of warm-up.
std::string marks(const SteadySeries& found) {
  std::string out;
  for (const uint8_t warm_up : found.warm_up) out += warm_up != 0 ? '#' : '.';
  return out;
}
std::string marks(const std::vector<double>& ms, StepSize size = StepSize::kAlike) {
  return marks(find_steady_series(series(ms), size));
}
size_t count(const SteadySeries& found) {
  size_t out = 0;
  for (const uint8_t warm_up : found.warm_up) out += warm_up;
  return out;
}

TEST(SteadySeries, FewStepsNeedMuchExcess) {
  EXPECT_EQ(marks(std::vector<double>()), "");
  EXPECT_EQ(marks({300}), ".") << "nothing to compare with";
  EXPECT_EQ(marks({300, 30}), "#.");
  EXPECT_EQ(marks({50, 30}), "..");
  EXPECT_EQ(marks({30, 300}), "..");
  EXPECT_EQ(marks({25, 5, 5}), "#..");
  EXPECT_EQ(marks({26.25, 25.88, 25.87}), "...");
  EXPECT_EQ(marks({16, 10, 15, 9, 11}), ".....") << "steps of an eager program";
  EXPECT_EQ(marks({50, 10, 10, 30, 10}), "#....");
  EXPECT_EQ(marks({30, 10, 10, 30, 10}), ".....") << "it comes again";
  EXPECT_EQ(marks({300, 200, 10, 200, 10, 11, 9, 10, 10, 30, 10}), "##.#.......");
}

TEST(SteadySeries, ExcessIsOverTheLevelBehind) {
  const SteadySeries found = find_steady_series(series({25, 5, 5, 6}), StepSize::kAlike);
  EXPECT_DOUBLE_EQ(found.excess_ns[0], 20e6);
  EXPECT_DOUBLE_EQ(found.excess_ns[1], 0);
  EXPECT_DOUBLE_EQ(found.level_ns, 5e6);
}

TEST(SteadySeries, ManyStepsShowSmallExcessToo) {
  std::vector<SeriesStep> steps = flat(20, 1.39);
  steps[0].ns = 1.75e6;
  EXPECT_EQ(marks(find_steady_series(steps, StepSize::kAlike)), "#...................");
  steps[0].ns = 1.45e6;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U) << "within what they vary";
}

TEST(SteadySeries, OneSlowStepInTheMiddleIsNone) {
  std::vector<SeriesStep> steps = flat(500, 10);
  steps[250].ns = 500e6;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
  steps[0].ns = 100e6;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 1U);
}

TEST(SteadySeries, EveryFourthIsSlowAndSoIsTheFirst) {
  std::vector<SeriesStep> steps = flat(40, 4);
  for (size_t i = 0; i < steps.size(); i += 4) steps[i].ns *= 2;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
}

// A whole first request at four times the usual time, as where memory of a virtual machine is touched for the first
// time.
TEST(SteadySeries, APlateauIsWarmUp) {
  for (const size_t slow : {5U, 40U, 64U, 300U}) {
    std::vector<SeriesStep> steps = flat(slow, 60), rest = flat(slow + 8, 14);
    steps.insert(steps.end(), rest.begin(), rest.end());
    const SteadySeries found = find_steady_series(steps, StepSize::kAlike);
    EXPECT_EQ(count(found), slow);
    EXPECT_NEAR(found.level_ns, 14e6, 0.5e6);
  }
}

// 160 steps on a CPU of 0.6 of its pace, 40 at full pace: the program did not warm up.
TEST(SteadySeries, ASlowCpuIsNoWarmUp) {
  std::vector<SeriesStep> steps = flat(200, 1.3);
  for (size_t i = 0; i < 160; ++i) steps[i].ns *= 1.65;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 160U) << "whose pace is not known";
  for (size_t i = 0; i < steps.size(); ++i) steps[i].pace = i < 160 ? 0.6 : 1;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
  for (size_t i = 0; i < 10; ++i) steps[i].ns *= 2;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 10U) << "more than the CPU explains";
}

TEST(SteadySeries, MostOfARunMayBeWarmUpIfTheRestIsMuchFaster) {
  std::vector<SeriesStep> steps = flat(48, 60), rest = flat(20, 14);
  steps.insert(steps.end(), rest.begin(), rest.end());
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 48U);
  for (size_t i = 0; i < 48; ++i) steps[i].ns = 18e6 * noise(i);  // 30 %: perhaps another program ended
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
}

// How often a first step is called slow that is not, and three that are three times as slow are found.
TEST(SteadySeries, IsRarelyWrongAboutNoise) {
  std::mt19937 random(1);
  for (const double sigma : {0.02, 0.05, 0.15}) {
    for (const size_t n : {3U, 5U, 20U, 100U}) {
      constexpr size_t kRuns = 300;
      size_t wrong = 0, found = 0;
      for (size_t run = 0; run < kRuns; ++run) {
        // A sum of uniform numbers is near enough to normal, and the same on every platform.
        std::vector<SeriesStep> steps(n);
        for (SeriesStep& step : steps) {
          double sum = -6;
          for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) / 4294967296.0;
          step.ns = 10e6 * std::exp(sigma * sum);
        }
        wrong += count(find_steady_series(steps, StepSize::kAlike)) > 0 ? 1 : 0;
        const size_t slow = n >= 20 ? 3 : 1;
        for (size_t i = 0; i < slow; ++i) steps[i].ns *= 3;
        const SteadySeries again = find_steady_series(steps, StepSize::kAlike);
        found += std::count(again.warm_up.begin(), again.warm_up.begin() + static_cast<long>(slow), 1) ==
                         static_cast<long>(slow)
                     ? 1
                     : 0;
      }
      EXPECT_LE(wrong, kRuns * 3 / 100) << n << " steps, spread " << sigma;
      EXPECT_GE(found, kRuns * 95 / 100) << n << " steps, spread " << sigma;
    }
  }
}

TEST(SteadySeries, SlowDriftOfTheClockIsNone) {
  for (const double drift : {0.3, 0.1, -0.1, -0.3}) {
    std::vector<SeriesStep> steps = flat(500, 10);
    for (size_t i = 0; i < steps.size(); ++i) steps[i].ns *= 1 + drift * static_cast<double>(i) / 500;
    EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U) << drift;
  }
  std::vector<SeriesStep> settling = flat(500, 10);
  for (size_t i = 0; i < settling.size(); ++i) settling[i].ns *= 1 + 0.2 * std::exp(-static_cast<double>(i) / 60);
  EXPECT_EQ(count(find_steady_series(settling, StepSize::kAlike)), 0U);
  settling[0].ns *= 2;
  EXPECT_EQ(count(find_steady_series(settling, StepSize::kAlike)), 1U);
}

// Steps of 10 us and 10 us per token of context, over three requests; the first one is the longest.
TEST(SteadySeries, GrowingContextIsNone) {
  std::vector<SeriesStep> steps;
  for (const int length : {400, 200, 300})
    for (int c = 0; c < length; ++c)
      steps.push_back({.ns = (10e6 + 10e3 * c) * noise(steps.size()), .size = static_cast<double>(c)});
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
  steps[0].ns = 13e6;  // as much as a step of 300 tokens
  const SteadySeries found = find_steady_series(steps, StepSize::kAlike);
  EXPECT_EQ(count(found), 1U);
  EXPECT_NEAR(found.excess_ns[0], 3e6, 0.5e6);
  for (SeriesStep& step : steps) step.size = -1;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 1U) << "by the steps behind it";
}

TEST(SteadySeries, ALongContextIsAReasonToBeSlow) {
  std::vector<SeriesStep> steps = series({40, 10, 10, 10, 10, 10});
  for (SeriesStep& step : steps) step.size = 100;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 1U);
  steps[0].size = 8000;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
}

TEST(SteadySeries, MoreTokensMayTakeLongerInProportion) {
  std::vector<SeriesStep> steps = series({100, 60, 55, 70, 52});
  const double tokens[] = {1000, 600, 550, 700, 520};
  for (size_t i = 0; i < steps.size(); ++i) steps[i].size = tokens[i];
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kBinned)), 0U);
  steps[0].ns *= 3;
  EXPECT_EQ(marks(find_steady_series(steps, StepSize::kBinned)), "#....");
}

TEST(SteadySeries, WithoutShapesOnlyManyLikeStepsCanTell) {
  EXPECT_EQ(marks({300, 30, 31, 30}, StepSize::kUnknown), "....");
  EXPECT_EQ(marks({300, 30, 31, 30, 29, 30, 30, 31, 30, 30}, StepSize::kUnknown), "#.........");
  EXPECT_EQ(marks({300, 30, 200, 90, 29, 130, 30, 310, 50, 80}, StepSize::kUnknown), "..........");
}

TEST(SteadySeries, WhatComesOnceTellsByItself) {
  std::vector<SeriesStep> one = series({300});
  one[0].once_ns = 270e6;
  SteadySeries found = find_steady_series(one, StepSize::kAlike);
  EXPECT_EQ(marks(found), "#");
  EXPECT_DOUBLE_EQ(found.excess_ns[0], 270e6);
  std::vector<SeriesStep> two = series({300, 200});
  two[0].once_ns = 250e6;
  two[1].once_ns = 120e6;
  EXPECT_EQ(marks(find_steady_series(two, StepSize::kAlike)), "##");
}

// A second prompt that loads a few modules, behind a first one that was slow for other reasons too.
TEST(SteadySeries, WhatComesOnceIsNotHiddenBySlowerStepsBefore) {
  std::vector<SeriesStep> steps = series({708, 90});
  steps[0].once_ns = 100e6;
  steps[1].once_ns = 12e6;
  const SteadySeries found = find_steady_series(steps, StepSize::kAlike);
  EXPECT_EQ(marks(found), "##");
  EXPECT_DOUBLE_EQ(found.level_ns, 78e6) << "what is left of the faster one";
  std::vector<SeriesStep> only = series({100});
  only[0].once_ns = 6e6;
  EXPECT_EQ(marks(find_steady_series(only, StepSize::kAlike)), "#");
  only[0].once_ns = 3e6;
  EXPECT_EQ(marks(find_steady_series(only, StepSize::kAlike)), ".");
}

TEST(SteadySeries, EvidenceWithoutExcessIsNone) {
  std::vector<SeriesStep> steps = flat(20, 10);
  steps[0].hint = true;
  steps[5].once_ns = 1e6;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
  steps[0].ns = 10.9e6;  // 9 %: with a reason, that is enough
  EXPECT_EQ(marks(find_steady_series(steps, StepSize::kAlike)), "#...................");
  steps[5].ns = 11e6;
  EXPECT_EQ(marks(find_steady_series(steps, StepSize::kAlike)), "#....#..............")
      << "where it comes once, anywhere";
  steps[5].once_ns = 0;
  steps[5].hint = true;
  EXPECT_EQ(marks(find_steady_series(steps, StepSize::kAlike)), "#...................");
}

TEST(SteadySeries, EvidenceInMostStepsIsHowTheProgramRuns) {
  std::vector<SeriesStep> steps = flat(40, 10);
  for (SeriesStep& step : steps) step.once_ns = 4e6;
  EXPECT_EQ(count(find_steady_series(steps, StepSize::kAlike)), 0U);
}

TEST(SteadySeries, WhatFallsToTheEndIsNowhereSteady) {
  for (const std::vector<double>& ms : {std::vector<double>{300, 100, 30},
                                        {100, 40, 15},
                                        {500, 400, 300, 200, 100},
                                        {90, 80, 70, 60, 50, 42, 35, 30, 26, 22, 19, 16}}) {
    const SteadySeries found = find_steady_series(series(ms), StepSize::kAlike);
    EXPECT_TRUE(found.falls) << ms.size();
    EXPECT_EQ(count(found), ms.size());
  }
  EXPECT_FALSE(find_steady_series(series({40, 30, 25}), StepSize::kAlike).falls);
  EXPECT_FALSE(find_steady_series(flat(500, 10), StepSize::kAlike).falls);
}

}  // namespace
}  // namespace llmprof
