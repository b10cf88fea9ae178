#include <gtest/gtest.h>

#include "base/nearest.h"

namespace llmprof {
namespace {

const std::vector<std::string> kNames = {"A100-SXM4-80GB", "H100-SXM5-80GB", "H100-PCIe-80GB", "H200-SXM-141GB",
                                         "MI300X"};

TEST(Nearest, FoldingLeavesLettersAndDigits) {
  EXPECT_EQ(fold_name("H100-SXM5 80_GB"), "h100sxm580gb");
  EXPECT_EQ(fold_name("\xC3\xA9.-"), "");
}

TEST(Nearest, NamesThatContainTheWantedOneComeFirst) {
  EXPECT_EQ(nearest_names("pcie", kNames, 1), (std::vector<std::string>{"H100-PCIe-80GB"}));
}

TEST(Nearest, TypingErrorsAndMissingEndingsAreForgiven) {
  EXPECT_EQ(nearest_names("h1000-sxm", kNames, 1), (std::vector<std::string>{"H100-SXM5-80GB"}));
  EXPECT_EQ(nearest_names("mi30x", kNames, 1), (std::vector<std::string>{"MI300X"}));
  EXPECT_EQ(nearest_names("h300", kNames, 3).size(), 3U);
}

TEST(Nearest, SwappedLettersAreOneSlip) {
  EXPECT_EQ(nearest_names("anaylze", {"list", "analyze"}, 1), (std::vector<std::string>{"analyze"}));
  EXPECT_EQ(nearest_names("gmem", {"memory", "gemm"}, 1), (std::vector<std::string>{"gemm"}));
}

TEST(Nearest, WhatGoesOnBehindANameIsForgiven) {
  EXPECT_EQ(nearest_names("h100-sxm5-80gb-oc-edition", kNames, 1), (std::vector<std::string>{"H100-SXM5-80GB"}));
}

TEST(Nearest, AnotherWordIsNoSuggestion) {
  const std::vector<std::string> benchmarks = {"gemm", "memory", "softmax", "embedding", "sampling", "attention"};
  EXPECT_TRUE(nearest_names("matmul", benchmarks, 3).empty());
  EXPECT_TRUE(nearest_names("xyz", benchmarks, 3).empty());
  EXPECT_TRUE(nearest_names("q", benchmarks, 3).empty());
  EXPECT_TRUE(nearest_names("version", {"run", "ctl", "demo"}, 3).empty());
  EXPECT_TRUE(nearest_names("no-such-model", {"gpt2-medium", "OLMo-2-1124-7B", "Qwen1.5-MoE-A2.7B"}, 3).empty());
}

TEST(Nearest, EmptyAndHugeInputsAreBounded) {
  EXPECT_TRUE(nearest_names("", kNames, 2).empty());
  EXPECT_TRUE(nearest_names("x", {}, 3).empty());
  EXPECT_TRUE(nearest_names(std::string(1'000'000, 'h'), kNames, 9).empty());
}

TEST(Nearest, TheQuestionIsOnlyAskedWithAnAnswer) {
  EXPECT_EQ(did_you_mean({}), "");
  EXPECT_EQ(did_you_mean({"a", "b"}), "did you mean a or b? ");
}

TEST(Nearest, Joining) {
  EXPECT_EQ(join_or({}), "");
  EXPECT_EQ(join_or({"a"}), "a");
  EXPECT_EQ(join_or({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace llmprof
