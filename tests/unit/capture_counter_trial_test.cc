// Whether counters are switched off because they cost too much, over programs that are played.
#include <gtest/gtest.h>

#include <memory>

#include "capture/launch/counter_trial.h"
#include "capture/spool/records.h"

namespace llmprof::launch {
namespace {

constexpr int64_t kTickNs = 100'000'000;

struct Trial {
  CounterTrial trial{0.02};
  StepsSeen seen{true, 0, 0, 0, -1};
  int64_t now_ns = 1'000'000'000;
  int switched = 0;
  bool on = true;

  // Ticks of 0.1 s in which so many steps come each, until the trial is over.
  void run(uint32_t steps, double cost, double error, int ticks = 200) {
    for (int i = 0; i < ticks && !trial.over(); ++i, now_ns += kTickNs) {
      const bool sample = trial.sample(now_ns, seen);
      switched += sample != on;
      on = sample;
      if (seen.unrecorded) (on ? seen.with : seen.without) += steps;
      if (seen.with >= 8 && seen.without >= 8) seen.cost = cost, seen.cost_error = error;
    }
  }
};

TEST(CounterTrial, SwitchesTwiceAndGoesOnWhereTheyCostLittle) {
  Trial played;
  played.run(4, 0.01, 0.002);
  EXPECT_TRUE(played.trial.over());
  EXPECT_TRUE(played.on);
  EXPECT_EQ(played.switched, 4);
}

TEST(CounterTrial, SwitchesThemOffWhereTheySurelyCostMoreThanTheBudget) {
  Trial played;
  played.run(4, 0.26, 0.03);
  EXPECT_TRUE(played.trial.too_costly());
  EXPECT_FALSE(played.trial.sample(played.now_ns, played.seen));
  EXPECT_NEAR(played.trial.cost(), 0.26, 1e-9);
}

TEST(CounterTrial, NoiseIsNoCost) {
  Trial played;
  played.run(4, 0.05, 0.03);
  EXPECT_TRUE(played.trial.over());
  EXPECT_FALSE(played.trial.too_costly());
}

TEST(CounterTrial, WaitsForUnrecordedTime) {
  Trial played;
  played.seen.unrecorded = false;
  played.seen.with = 100;
  played.run(4, 0.3, 0.01);
  EXPECT_EQ(played.switched, 0);
  played.seen.unrecorded = true;
  EXPECT_FALSE(played.trial.sample(played.now_ns, played.seen));
  played.seen.unrecorded = false;
  EXPECT_TRUE(played.trial.sample(played.now_ns, played.seen)) << "a recorded window wants its counters";
}

TEST(CounterTrial, IsGivenUpWhereNoStepsCome) {
  Trial played;
  played.seen.with = 100;
  played.run(0, 0.3, 0.01);
  EXPECT_TRUE(played.trial.over());
  EXPECT_FALSE(played.trial.too_costly());
  EXPECT_TRUE(played.on);
}

TEST(CounterTrial, LooksAtTheProcessThatShowsMostSteps) {
  const auto page = std::make_unique<session::Control>();
  const auto slot = [&](size_t at, spool::Level level, uint32_t with, float cost) {
    page->slots[at].process_id = static_cast<int64_t>(at) + 1;
    page->slots[at].level = static_cast<uint32_t>(level);
    page->slots[at].steps_with_counters = with;
    page->slots[at].counters_cost = cost;
  };
  slot(0, spool::Level::kLight, 3, 0.5F);
  slot(1, spool::Level::kLight, 90, 0.25F);
  StepsSeen seen = steps_seen(*page);
  EXPECT_TRUE(seen.unrecorded);
  EXPECT_EQ(seen.with, 90U);
  EXPECT_EQ(seen.cost, 0.25);
  slot(2, spool::Level::kDefault, 0, 0);
  EXPECT_FALSE(steps_seen(*page).unrecorded);
  page->slots[2].state = static_cast<uint32_t>(session::SlotState::kEnded);
  EXPECT_TRUE(steps_seen(*page).unrecorded);
}

}  // namespace
}  // namespace llmprof::launch
