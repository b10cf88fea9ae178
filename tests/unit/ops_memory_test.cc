// Costs by hand.
#include <gtest/gtest.h>

#include "ops/memory.h"
#include "ops_params.h"

namespace llmprof::ops {
namespace {

TEST(Cost, Memory) {
  const std::vector<std::pair<std::string_view, int64_t>> axes = {{"bytes", 4000}};
  const auto cost = [&](const char* variant) { return memory_cost(params_of(axes, DType::kFp32, variant)); };
  EXPECT_EQ(cost("read").read_bytes, 4000);
  EXPECT_EQ(cost("read").write_bytes, 0);
  EXPECT_EQ(cost("write").read_bytes, 0);
  EXPECT_EQ(cost("write").write_bytes, 4000);
  EXPECT_EQ(cost("copy").bytes(), 8000);
  EXPECT_EQ(cost("triad").bytes(), 12'000);
  EXPECT_EQ(cost("triad").flops, 2000);
}

TEST(Cost, Registers) {
  EXPECT_EQ(registers_cost(params_of({{"mflop", 3}}, DType::kFp64)).flops, 3e6);
  EXPECT_EQ(registers_cost(params_of({{"mflop", 3}}, DType::kFp64)).bytes(), 0);
}

}  // namespace
}  // namespace llmprof::ops
