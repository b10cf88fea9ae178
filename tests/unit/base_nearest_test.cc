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

TEST(Nearest, EmptyAndHugeInputsAreBounded) {
  EXPECT_EQ(nearest_names("", kNames, 2).size(), 2U);
  EXPECT_TRUE(nearest_names("x", {}, 3).empty());
  EXPECT_EQ(nearest_names(std::string(1'000'000, 'h'), kNames, 9).size(), kNames.size());
}

TEST(Nearest, Joining) {
  EXPECT_EQ(join_or({}), "");
  EXPECT_EQ(join_or({"a"}), "a");
  EXPECT_EQ(join_or({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace llmprof
