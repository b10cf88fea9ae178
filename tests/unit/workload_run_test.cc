#include <gtest/gtest.h>

#include "workload/run.h"

namespace llmprof::workload {
namespace {

RunResult run_of(const std::vector<int64_t>& steps_ms) {
  RunResult out;
  out.tokens.resize(2);
  out.token_ns = {0};
  for (const int64_t ms : steps_ms) out.token_ns.push_back(out.token_ns.back() + ms * 1000000);
  return out;
}

// The first lines of a report leave out cold steps; the page of the run is to say the same.
TEST(RunResult, SteadyStepsAreNotCold) {
  const RunResult cold = run_of({300, 200, 10, 200, 10, 11, 9, 10, 10, 30, 10});
  EXPECT_NEAR(cold.tpot_ms(), 800.0 / 11, 1e-9) << "the mean of all";
  const std::optional<RunResult::Steady> steady = cold.steady();
  ASSERT_TRUE(steady);
  EXPECT_DOUBLE_EQ(steady->median_ms, 10);
  EXPECT_EQ(steady->steps, 8U);
  EXPECT_DOUBLE_EQ(steady->first_ms, 300);
  EXPECT_EQ(steady->cold, 3U) << "a slow step later on is none";
  EXPECT_DOUBLE_EQ(steady->cold_ms, 700.0 / 3);
  EXPECT_DOUBLE_EQ(steady->tokens_per_s, 2 * 8 * 1e3 / 100);
  EXPECT_EQ(run_of({12, 10, 10, 10}).steady()->steps, 4U) << "a first one that is not slow is like the others";
  EXPECT_EQ(run_of({12}).steady()->steps, 1U);
  EXPECT_FALSE(run_of({}).steady());
}

}  // namespace
}  // namespace llmprof::workload
