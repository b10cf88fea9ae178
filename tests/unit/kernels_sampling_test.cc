// What counts as a rightly drawn token.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference/sampling.h"

namespace llmprof::kernels {
namespace {

// Weights 1, 1/2, 1/4, 1/8 ... at temperature 1, out of order.
const Row kLogits = {std::log(0.25), std::log(1.0), std::log(0.125), std::log(0.5), std::log(0.0625)};
const SamplingRule kRule{3, 0.8, 1.0};  // 1, 1/2, 1/4; of 1.75 the first two are 0.857

TEST(Sampling, TheDrawSaysWhichToken) {
  EXPECT_EQ(sampling_wrong(kLogits, kRule, 0.1, 1, 1 / 1.5), std::nullopt);
  EXPECT_EQ(sampling_wrong(kLogits, kRule, 0.7, 3, 0.5 / 1.5), std::nullopt);
  EXPECT_NE(sampling_wrong(kLogits, kRule, 0.1, 3, 0.5 / 1.5), std::nullopt) << "0.1 is the first";
  EXPECT_NE(sampling_wrong(kLogits, kRule, 0.7, 1, 1 / 1.5), std::nullopt) << "0.7 is the second";
  EXPECT_NE(sampling_wrong(kLogits, kRule, 0.1, 1, 0.5), std::nullopt) << "another probability";
}

TEST(Sampling, KeepsWhatTheRuleKeeps) {
  EXPECT_NE(sampling_wrong(kLogits, kRule, 0.99, 0, 0.25 / 1.75), std::nullopt) << "behind top-p";
  EXPECT_EQ(sampling_wrong(kLogits, {3, 1.0, 1.0}, 0.99, 0, 0.25 / 1.75), std::nullopt);
  EXPECT_NE(sampling_wrong(kLogits, {2, 1.0, 1.0}, 0.99, 0, 0.25 / 1.5), std::nullopt) << "not of the first two";
  EXPECT_NE(sampling_wrong(kLogits, kRule, 0.5, 5, 0.5), std::nullopt) << "no such token";
  EXPECT_NE(sampling_wrong(kLogits, kRule, 0.5, -1, 0.5), std::nullopt);
}

TEST(Sampling, TemperatureFlattens) {
  // At 2, weights are 1, 0.707, 0.5: all of them are needed for 0.8.
  const double all = 1 + std::sqrt(0.5) + 0.5;
  EXPECT_EQ(sampling_wrong(kLogits, {3, 0.8, 2.0}, 0.99, 0, 0.5 / all), std::nullopt);
}

TEST(Sampling, AnyOfEqualsIsRight) {
  const Row equal(8, 1.0);
  for (int64_t token = 0; token < 8; ++token)
    EXPECT_EQ(sampling_wrong(equal, {4, 1.0, 1.0}, 0.3, token, 0.25), std::nullopt) << token;
}

TEST(Sampling, TheLargestIsTheFirstOfEquals) { EXPECT_EQ(argmax({1, 3, 2, 3}), 1); }

}  // namespace
}  // namespace llmprof::kernels
