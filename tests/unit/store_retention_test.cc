// What retention does with runs, by age and by size.
#include <gtest/gtest.h>

#include "store/retention.h"

namespace llmprof::store {
namespace {

RunRow row(int64_t number, RunKind kind = RunKind::kRun, int64_t bytes = 100) {
  RunRow out;
  out.number = number;
  out.kind = kind;
  out.stored_bytes = bytes;
  return out;
}

std::vector<RunRow> runs(int64_t newest) {
  std::vector<RunRow> out;
  for (int64_t number = newest; number > 0; --number) out.push_back(row(number));
  return out;
}

std::string text(const std::vector<RetentionStep>& steps) {
  std::string out;
  for (const RetentionStep& step : steps)
    out += (out.empty() ? "" : " ") + std::string(step.action == RetentionAction::kRemove ? "-" : "z") +
           std::to_string(step.number);
  return out;
}

Settings keeping(int64_t keep, int64_t compressed) {
  Settings out;
  out.keep = keep;
  out.keep_compressed = compressed;
  return out;
}

TEST(StoreRetention, keeps_five_and_then_compresses) {
  EXPECT_EQ(text(due_by_age(runs(5), Settings())), "");
  EXPECT_EQ(text(due_by_age(runs(7), Settings())), "z1 z2");
  EXPECT_EQ(text(due_by_age(runs(22), keeping(5, 15))), "-1 -2 z3 z4 z5 z6 z7 z8 z9 z10 z11 z12 z13 z14 z15 z16 z17");
}

TEST(StoreRetention, counts_each_kind_by_itself) {
  std::vector<RunRow> rows = {row(6, RunKind::kBench), row(5), row(4, RunKind::kBench), row(3), row(2), row(1)};
  EXPECT_EQ(text(due_by_age(rows, keeping(1, 1))), "-1 -2 z3 z4");
}

TEST(StoreRetention, leaves_pinned_running_and_damaged_ones_alone_and_does_not_count_them) {
  std::vector<RunRow> rows = runs(6);
  rows[0].state = RunState::kRunning;
  rows[2].pinned = true;
  rows[5].state = RunState::kDamaged;
  EXPECT_EQ(text(due_by_age(rows, keeping(1, 1))), "-2 z3");
  rows[5].state = RunState::kIncomplete;
  EXPECT_EQ(text(due_by_age(rows, keeping(1, 1))), "-1 -2 z3");
}

TEST(StoreRetention, compresses_once_and_never_what_is_incomplete) {
  std::vector<RunRow> rows = runs(3);
  rows[1].compressed = true;
  rows[2].state = RunState::kIncomplete;
  EXPECT_EQ(text(due_by_age(rows, keeping(1, 5))), "");
}

TEST(StoreRetention, by_size_the_oldest_go_but_none_of_the_newest) {
  Settings settings = keeping(2, 10);
  settings.total_gb = 250e-9;
  EXPECT_EQ(text(due_by_size(runs(6), settings)), "-1 -2 -3 -4");
  settings.total_gb = 400e-9;
  EXPECT_EQ(text(due_by_size(runs(6), settings)), "-1 -2");
  settings.total_gb = 600e-9;
  EXPECT_EQ(text(due_by_size(runs(6), settings)), "");
  settings.total_gb = 0;
  EXPECT_EQ(text(due_by_size(runs(6), settings)), "-1 -2 -3 -4");
  std::vector<RunRow> rows = runs(6);
  rows[5].pinned = true;  // its bytes do not count either
  settings.total_gb = 400e-9;
  EXPECT_EQ(text(due_by_size(rows, settings)), "-2");
}

}  // namespace
}  // namespace llmprof::store
