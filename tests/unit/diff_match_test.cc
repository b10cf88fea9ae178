#include <algorithm>

#include "diff/align.h"
#include "diff/diff.h"
#include "diff/match.h"
#include "diff_runs.h"

namespace llmprof::diff {
namespace {

StepGroup group(StageKind kind, int64_t sequences, int64_t tokens) {
  StepGroup out;
  out.kind = kind;
  out.name = name_of(kind);
  out.sequences = sequences;
  out.tokens = tokens;
  return out;
}

TEST(Match, StepsOfOneShapeBelongTogether) {
  const std::vector<StepGroup> a = {group(StageKind::kPrefill, 1, 512), group(StageKind::kDecode, 1, 1),
                                    group(StageKind::kPrefill, 1, 64)};
  const std::vector<StepGroup> b = {group(StageKind::kDecode, 8, 8), group(StageKind::kPrefill, 1, 64),
                                    group(StageKind::kDecode, 1, 1)};
  const GroupPairs found = match_groups(a, b);
  EXPECT_EQ(found.pairs, (std::vector<std::pair<size_t, size_t>>{{1, 2}, {2, 1}}));
  EXPECT_EQ(found.only_a, std::vector<size_t>{0});
  EXPECT_EQ(found.only_b, std::vector<size_t>{0});
}

TEST(Match, WhatIsNotKnownFitsWhatIsLeft) {
  const std::vector<StepGroup> a = {group(StageKind::kDecode, 1, 1), group(StageKind::kDecode, -1, -1)};
  const std::vector<StepGroup> b = {group(StageKind::kDecode, 8, 8), group(StageKind::kDecode, 1, 1)};
  const GroupPairs found = match_groups(a, b);
  EXPECT_EQ(found.pairs, (std::vector<std::pair<size_t, size_t>>{{0, 1}, {1, 0}}));
  StepGroup other = group(StageKind::kDecode, 1, 1);
  other.device = 1;
  EXPECT_TRUE(match_groups(a, {other}).pairs.empty());
}

// What recording cost another process more says nothing of what the program does.
TEST(Match, TheRunsToAttributeDifferByWhatTheirSidesDo) {
  // Steps alone, and what recording added to them.
  const auto runs_of = [](std::initializer_list<std::pair<double, double>> times_ms) {
    std::vector<diff::Run> out;
    for (const auto& [alone_ms, added_ms] : times_ms) {
      Plan plan;
      plan.gap_ns = static_cast<int64_t>(1e6 * (alone_ms + added_ms));
      diff::Run& run = out.emplace_back(run_of(plan));
      UndisturbedRecord& row = run.report.undisturbed.emplace_back();
      row.stage = step_groups(run).front().stage;
      row.source = StepTimeSource::kUnrecorded;
      row.step_ms = alone_ms;
      row.unrecorded_steps = 100;
    }
    return out;
  };
  const std::vector<diff::Run> a = runs_of({{1.70, 0.3}, {1.80, 0.3}, {1.79, 0.3}, {1.81, 0.3}, {1.95, 0.3}});
  const std::vector<diff::Run> b = runs_of({{1.90, 0.5}, {1.91, 0.6}, {1.92, 0.3}, {2.20, 0.0}, {1.70, 0.5}});
  std::vector<StepGroup> groups;
  for (const std::vector<diff::Run>* const side : {&a, &b})
    for (const diff::Run& run : *side) groups.push_back(step_groups(run).front());
  const auto side = [&](const std::vector<diff::Run>& runs, size_t first) {
    GroupsOfSide out;
    for (size_t i = 0; i < runs.size(); ++i) out.push_back({&runs[i], &groups[first + i]});
    return out;
  };
  const GroupsOfSide of_a = side(a, 0), of_b = side(b, 5);
  EXPECT_EQ(nearest_run(of_a, 1.80).run, &a[1]);
  EXPECT_EQ(nearest_run(of_b, 1.91).run, &b[1]);
  const auto [run_a, run_b] = pair_to_attribute(of_a, 1.80, of_b, 1.91);
  EXPECT_EQ(run_b.run, &b[2]);  // 0.11 longer than a[3], not 0.4
  EXPECT_EQ(run_a.run, &a[3]);
}

TEST(Align, FindsTheLongestCommonOrder) {
  const auto items = [](std::initializer_list<int> names) {
    std::vector<Item> out;
    for (const int name : names) out.push_back({1, static_cast<uint32_t>(name)});
    return out;
  };
  // Two more in the middle of the second.
  EXPECT_EQ(align_items(items({1, 2, 3, 4}), items({1, 2, 8, 9, 3, 4})), (PlacePairs{{0, 0}, {1, 1}, {2, 4}, {3, 5}}));
  // Another of the same role in the place of one.
  EXPECT_EQ(align_items(items({1, 2, 3}), items({1, 9, 3})), (PlacePairs{{0, 0}, {1, 1}, {2, 2}}));
  // Another role stands for nothing.
  std::vector<Item> other = items({1, 2, 3});
  other[1].role = 2;
  EXPECT_EQ(align_items(items({1, 2, 3}), other), (PlacePairs{{0, 0}, {2, 2}}));
  EXPECT_TRUE(align_items({}, items({1})).empty());
}

TEST(Diff, KernelsAreMatchedByRoleAndName) {
  Plan other;
  other.special = "gemm_better";
  other.launches = 42;
  std::vector<Side> sides(2);
  sides[0].push_back(run_of(Plan{}));
  sides[1].push_back(run_of(other));
  const DiffResult result = diff(sides);
  ASSERT_FALSE(result.kernels.empty());
  const auto of = [&](DiffPresence presence) {
    return std::count_if(result.kernels.begin(), result.kernels.end(),
                         [&](const DiffKernel& row) { return row.presence == presence; });
  };
  EXPECT_EQ(of(DiffPresence::kBoth), 38);  // all but those in the middle, and what took their numbers
  const auto replaced = std::find_if(result.kernels.begin(), result.kernels.end(),
                                     [](const DiffKernel& row) { return row.presence == DiffPresence::kReplaced; });
  ASSERT_NE(replaced, result.kernels.end());
  EXPECT_EQ(of(DiffPresence::kGone), 0);
  EXPECT_EQ(of(DiffPresence::kNew), 2);
}

TEST(Diff, StagesAndSharesAddUp) {
  Plan slow;
  slow.special_ns = 900'000;
  std::vector<Side> sides(2);
  sides[0].push_back(run_of(Plan{}));
  sides[1].push_back(run_of(slow));
  const DiffResult result = diff(sides);
  ASSERT_EQ(result.sides.size(), 2U);
  ASSERT_FALSE(result.stages.empty());
  for (const DiffStage& row : result.stages) {
    ASSERT_TRUE(row.a && row.b && row.change_frac);
    EXPECT_NEAR(*row.change_frac, *row.b / *row.a - 1, 1e-9);
    if (!row.unattributed_ms) continue;
    double sum = *row.unattributed_ms;
    for (const DiffShare& share : row.attribution) sum += share.delta_ms;
    EXPECT_NEAR(sum, *row.b - *row.a, 1e-9);
  }
  const auto step = std::find_if(result.stages.begin(), result.stages.end(),
                                 [](const DiffStage& row) { return row.metric == DiffMetric::kStep; });
  ASSERT_NE(step, result.stages.end());
  EXPECT_EQ(step->verdict, DiffVerdict::kSlower);
  EXPECT_EQ(step->attributed_by, "replay");
}

TEST(Diff, RepeatsAreOneSide) {
  Plan slow;
  slow.apart_ns = 12'600;
  std::vector<Side> sides(2);
  for (const int64_t more : {0, 20, 40, 10, 30}) {
    Plan a, b = slow;
    a.apart_ns += more;
    b.apart_ns += more;
    sides[0].push_back(run_of(a));
    sides[1].push_back(run_of(b));
  }
  const DiffResult result = diff(sides);
  const auto step = std::find_if(result.stages.begin(), result.stages.end(),
                                 [](const DiffStage& row) { return row.metric == DiffMetric::kStep; });
  ASSERT_NE(step, result.stages.end());
  EXPECT_EQ(step->noise_source, "repeats");
  EXPECT_EQ(step->verdict, DiffVerdict::kSlower) << step->reason;
}

// However much slower a host is: it is not the program. That takes its calls along; a tracer does not.
TEST(Diff, OneRunASideOnASlowHostSaysNothingOfTheProgram) {
  for (const bool driver_keeps : {false, true}) {
    Plan slow;
    slow.pace = 4;
    slow.driver_keeps = driver_keeps;
    std::vector<Side> sides(2);
    sides[0].push_back(run_of(Plan{}));
    sides[1].push_back(run_of(slow));
    const DiffResult result = diff(sides);
    const auto verdict = [&result](DiffMetric metric) {
      const auto row = std::find_if(result.stages.begin(), result.stages.end(),
                                    [metric](const DiffStage& one) { return one.metric == metric; });
      return row != result.stages.end() ? row->verdict : DiffVerdict::kFaster;
    };
    EXPECT_EQ(verdict(DiffMetric::kStep), driver_keeps ? DiffVerdict::kSlower : DiffVerdict::kAmbiguous);
    EXPECT_EQ(verdict(DiffMetric::kStepAtPace), DiffVerdict::kSame) << driver_keeps;
  }
}

// One of several without recorded steps takes the figure from none of the others; of half of them it is none.
TEST(Diff, StepsAtOnePaceAreOfTheRunsThatHaveSome) {
  std::vector<Side> sides(2);
  for (int i = 0; i < 3; ++i)
    for (Side& side : sides) side.push_back(run_of(Plan{}));
  const auto at_pace = [&sides]() -> std::optional<DiffStage> {
    const DiffResult result = diff(sides);
    for (const DiffStage& row : result.stages)
      if (row.metric == DiffMetric::kStepAtPace) return row;
    return std::nullopt;
  };
  const auto lose_kernels = [](diff::Run& run) {
    std::fill(run.trace.steps.missing.begin(), run.trace.steps.missing.end(), MissingKernels::kAll);
  };
  ASSERT_TRUE(at_pace());
  EXPECT_EQ(at_pace()->reason.find("3 of 3"), std::string::npos);
  lose_kernels(sides[0][1]);
  ASSERT_TRUE(at_pace());
  EXPECT_NE(at_pace()->reason.find("of 2 of 3 and 3 of 3 runs"), std::string::npos) << at_pace()->reason;
  lose_kernels(sides[0][0]);
  EXPECT_FALSE(at_pace());
}

TEST(Diff, SaysWhereTheSidesWereNotInTurns) {
  std::vector<Side> sides(2);
  for (const int64_t i : {0, 1, 2})
    for (const size_t side : {size_t{0}, size_t{1}}) {
      sides[side].push_back(run_of(Plan{}));
      sides[side].back().trace.base_unix_ns = 1'000'000'000 * (10 + 2 * i + static_cast<int64_t>(side));
    }
  const auto says = [&sides] {
    const DiffResult result = diff(sides);
    return std::any_of(result.cannot_tell.begin(), result.cannot_tell.end(),
                       [](const CannotTell& row) { return row.question.find("another order") != std::string::npos; });
  };
  EXPECT_FALSE(says());
  for (diff::Run& run : sides[1]) run.trace.base_unix_ns += 100'000'000'000;
  EXPECT_TRUE(says());
  for (diff::Run& run : sides[1]) run.trace.base_unix_ns = 0;  // not known
  EXPECT_FALSE(says());
}

}  // namespace
}  // namespace llmprof::diff
