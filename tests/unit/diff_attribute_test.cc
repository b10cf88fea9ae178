#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "diff/attribute.h"
#include "diff_runs.h"

namespace llmprof::diff {
namespace {

struct Found {
  Attribution attribution;
  double delta_ms = 0;  // of the steps as recorded
  double of(DiffPart part) const {
    double sum = 0;
    for (const DiffShare& share : attribution.shares) sum += share.part == part ? share.delta_ms : 0;
    return sum;
  }
  double all() const {
    double sum = 0;
    for (const DiffShare& share : attribution.shares) sum += share.delta_ms;
    return sum;
  }
};

Found attributed(const Run& a, const Run& b) {
  const std::vector<StepGroup> of_a = step_groups(a), of_b = step_groups(b);
  EXPECT_FALSE(of_a.empty());
  EXPECT_FALSE(of_b.empty());
  Attributor attributor;
  Found out;
  out.attribution = attributor.attribute({&a, &of_a.front()}, {&b, &of_b.front()});
  out.delta_ms = step_figure(b, of_b.front())->value - step_figure(a, of_a.front())->value;
  EXPECT_TRUE(out.attribution.by_replay) << out.attribution.why_not;
  return out;
}
Found attributed(const Plan& a, const Plan& b) { return attributed(run_of(a), run_of(b)); }

// The first steps of `run` at the pace of those of `base`.
StepAtPace at_pace_of(const diff::Run& base, const diff::Run& run) {
  const StepGroup of_base = step_groups(base).front(), of_run = step_groups(run).front();
  Attributor attributor;
  const std::optional<StepAtPace> found = attributor.at_pace({&base, &of_base}, {&run, &of_run});
  EXPECT_TRUE(found);
  return found.value_or(StepAtPace{});
}
double step_ms_of(const diff::Run& run) { return step_figure(run, step_groups(run).front())->value; }

// The whole difference, nearly all of it by one part.
void expect_part(const Found& found, DiffPart part) {
  ASSERT_GT(std::abs(found.delta_ms), 0.05);
  EXPECT_NEAR(found.all(), found.delta_ms, 0.01 * std::abs(found.delta_ms));
  EXPECT_NEAR(found.of(part), found.delta_ms, 0.1 * std::abs(found.delta_ms)) << name_of(part);
  EXPECT_EQ(found.attribution.shares.front().part, part);
}

TEST(Shapley, IsTheMeanOverAllOrders) {
  constexpr size_t kParts = 4;
  std::vector<double> value(1U << kParts);
  for (size_t set = 0; set < value.size(); ++set)
    value[set] = static_cast<double>(set * set % 37) + ((set & 5) == 5 ? 100 : 0);
  std::vector<size_t> order(kParts);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> mean(kParts, 0);
  double orders = 0;
  do {
    size_t set = 0;
    for (const size_t part : order) {
      mean[part] += value[set | size_t{1} << part] - value[set];
      set |= size_t{1} << part;
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  const std::vector<double> shares = shapley(value, kParts);
  for (size_t part = 0; part < kParts; ++part) EXPECT_NEAR(shares[part], mean[part] / orders, 1e-9);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), value.back() - value.front(), 1e-9);
}

TEST(Shapley, PartsThatDoTheSameGetTheSame) {
  // Two of three parts needed for a gain of 6: whoever they are.
  const std::vector<double> shares = shapley({0, 0, 0, 6, 0, 6, 6, 6}, 3);
  for (const double share : shares) EXPECT_NEAR(share, 2, 1e-12);
}

TEST(Attribute, EqualRunsHaveNothingToAttribute) {
  const Found found = attributed(Plan{}, Plan{});
  EXPECT_NEAR(found.all(), 0, 1e-9);
  for (const DiffShare& share : found.attribution.shares) EXPECT_NEAR(share.delta_ms, 0, 1e-9) << share.name;
}

TEST(Attribute, ASlowerKernelThatTheHostWaitsFor) {
  Plan slow;
  slow.special_ns = 900'000;
  const Found found = attributed(Plan{}, slow);
  expect_part(found, DiffPart::kKernelSlower);
  EXPECT_EQ(found.attribution.shares.front().name, "gemm_special");
}

TEST(Attribute, ASlowerKernelBesideTheHostCostsNothing) {
  Plan slow;
  slow.special_ns = 7'000;  // hidden: the host launches every 12 us
  const Found found = attributed(Plan{}, slow);
  EXPECT_NEAR(found.of(DiffPart::kKernelSlower), 0, 1e-6);
}

TEST(Attribute, AnotherKernelInItsPlace) {
  Plan other;
  other.special = "gemm_better";
  Plan slow;
  slow.special_ns = 900'000;
  const Found found = attributed(slow, other);
  expect_part(found, DiffPart::kKernelReplaced);
  EXPECT_EQ(found.attribution.shares.front().name, "gemm_special -> gemm_better");
  EXPECT_LT(found.all(), 0);
}

TEST(Attribute, ALongerStretchOfHostCode) {
  Plan gap;
  gap.gap_ns = 500'000;
  expect_part(attributed(Plan{}, gap), DiffPart::kHost);
}

// Everything that the host does takes 1.8 times as long, and nothing of the program has changed.
TEST(Attribute, ASlowerHost) {
  Plan slow;
  slow.pace = 1.8;
  expect_part(attributed(Plan{}, slow), DiffPart::kPace);
}

TEST(HostPace, IsTheHostsWhereTheDriverGoesAlong) {
  const auto moved = [](double code, double calls) { return HostPaceRatio{.code = code, .calls = calls}.host_moved(); };
  EXPECT_FALSE(moved(1.04, 1.3));
  EXPECT_TRUE(moved(1.3, 1.0));  // calls of equal runs differ by as much
  EXPECT_TRUE(moved(4, 1.5));
  EXPECT_TRUE(moved(0.25, 0.7));
  EXPECT_FALSE(moved(4, 1.05));
  EXPECT_FALSE(moved(4, 0.7));
  EXPECT_FALSE(moved(0.25, 1.2));
}

// A step is a sum of times: a third of the places, that take most of them, say how slow a host is.
TEST(HostPace, IsByTimeAndNotByTheNumberOfPlaces) {
  Plan plain, slow;
  plain.long_ns = slow.long_ns = 60'000;
  slow.pace = 1.2;
  slow.long_pace = 1.25;
  const diff::Run base = run_of(plain);
  const StepAtPace found = at_pace_of(base, run_of(slow));
  // Long places have 63 % of the weight (none more than a fortieth): three quarters of the middle half.
  EXPECT_NEAR(found.pace.code, 1.2 * std::pow(1.25, 0.75), 0.02);
  EXPECT_NEAR(found.ms, step_ms_of(base), 0.06 * step_ms_of(base));  // by places it would be a fifth longer
}

// A host's pace changes within a run: each step has its own.
TEST(HostPace, IsOfEachStep) {
  Plan plan;
  plan.odd_pace = 2;
  const diff::Run base = run_of(Plan{});
  const StepAtPace found = at_pace_of(base, run_of(plan));
  EXPECT_NEAR(found.pace.code, 1.5, 0.01);  // the median of as many at 1 and at 2
  const double step_ms = step_ms_of(base);
  EXPECT_NEAR(found.ms, step_ms, 0.005 * step_ms);
  EXPECT_NEAR(found.low_ms.value_or(0), step_ms, 0.005 * step_ms);
  EXPECT_NEAR(found.high_ms.value_or(0), step_ms, 0.005 * step_ms);
}

// Places of less than a quarter of the time may take any time.
TEST(HostPace, IsNotWhatWasChangedAtSomePlaces) {
  Plan plain, changed;
  plain.long_ns = changed.long_ns = 10'000;
  plain.long_every = changed.long_every = 8;  // 5 places of 40, of 17 us where others are of 7
  changed.long_pace = 3;
  const diff::Run base = run_of(plain);
  const StepAtPace found = at_pace_of(base, run_of(changed));
  EXPECT_NEAR(found.pace.code, 1, 0.001);
  EXPECT_NEAR(found.ms, step_ms_of(base) + 5 * 0.020, 0.002);
}

TEST(HostPace, IsNotKnownOfFewPlacesHoweverManySteps) {
  Plan few;
  few.launches = 30;
  few.steps = 40;
  const diff::Run base = run_of(few), run = run_of(few);
  const StepGroup of_base = step_groups(base).front(), of_run = step_groups(run).front();
  Attributor attributor;
  EXPECT_FALSE(attributor.at_pace({&base, &of_base}, {&run, &of_run}));
}

// Of a step that the end of recording cut, what comes behind its end is no part of it.
TEST(Attribute, CallsBehindTheLastRecordedStepAreOfNone) {
  Plan few, cut;
  few.steps = cut.steps = 5;
  cut.unrecorded = 30;
  const Found found = attributed(few, cut);
  EXPECT_NEAR(found.all(), 0, 0.002);  // its wait for the GPU is missing
  for (const DiffShare& share : found.attribution.shares) EXPECT_NE(share.part, DiffPart::kCount) << share.name;
}

// Of steps with another cause too: that one alone is left at one pace.
TEST(Attribute, StepsAtOnePaceDifferByWhatWasChanged) {
  Plan slow, gap, more;
  slow.pace = gap.pace = more.pace = 1.8;
  gap.gap_ns = 60'000;
  more.launches = 46;
  const diff::Run base = run_of(Plan{});
  const double step_ms = step_ms_of(base);
  const auto at_pace = [&](const Plan& plan) {
    const StepAtPace found = at_pace_of(base, run_of(plan));
    EXPECT_NEAR(found.pace.code, plan.pace, 0.01);
    EXPECT_NEAR(found.pace.calls, plan.pace, 0.01);
    return found.ms;
  };
  EXPECT_NEAR(at_pace(Plan{}), step_ms, 0.001);
  EXPECT_NEAR(at_pace(slow), step_ms, 0.005 * step_ms);
  EXPECT_NEAR(at_pace(gap), step_ms + 0.060, 0.005 * step_ms);
  EXPECT_NEAR(at_pace(more), step_ms + 6 * 0.012, 0.005 * step_ms);
}

TEST(Attribute, MoreWaits) {
  Plan plain, waits;
  plain.kernel_ns = waits.kernel_ns = 30'000;  // the GPU is behind: each wait makes the host start over
  plain.special_ns = waits.special_ns = 30'000;
  waits.waits = 6;
  expect_part(attributed(plain, waits), DiffPart::kWait);
}

// The host comes to them by code of their own, which is neither host code elsewhere nor part of another timeline.
TEST(Attribute, MoreWaitsWithTheCodeThatCameWithThem) {
  Plan waits;
  waits.waits = 6;
  waits.wait_code_ns = 30'000;
  expect_part(attributed(Plan{}, waits), DiffPart::kWait);
  const Found fewer = attributed(waits, Plan{});
  expect_part(fewer, DiffPart::kWait);
  EXPECT_LT(fewer.delta_ms, 0);
}

TEST(Attribute, MoreLaunches) {
  Plan more;
  more.launches = 60;
  const Found found = attributed(Plan{}, more);
  expect_part(found, DiffPart::kCount);
  EXPECT_EQ(found.attribution.shares.front().name, "40 -> 60 launches of 40 -> 60 activities");
}

// Steps with a kernel and copies of 300 us either way, that share a stream or have one each.
Trace copying_trace(bool apart) {
  constexpr int64_t kLaunchNs = 4'000, kCallNs = 5'000, kWakeNs = 3'000, kCopyNs = 300'000;
  TestTrace b;
  const StreamId up = b.stream(0, 13), down = apart ? b.stream(0, 14) : up;
  int64_t host = 0;
  for (int step = 0; step < 12; ++step) {
    const int64_t begin = host;
    std::map<StreamId, int64_t> busy_until;
    const auto give = [&](const char* name, const char* call, StreamId stream, int64_t dur) {
      int64_t& until = busy_until[stream];
      const int64_t start = std::max(host + kLaunchNs, until == 0 ? 0 : until + 1'000);
      b.gpu(name, start, dur, b.api(call, host, kCallNs), stream);
      until = start + dur;
      host += 12'000;
    };
    for (int i = 0; i < 10; ++i) give("gemm", "cudaLaunchKernel", 0, 4'000);
    give("Memcpy DtoH (Device -> Pinned)", "cudaMemcpyAsync", down, kCopyNs);
    give("Memcpy HtoD (Pinned -> Device)", "cudaMemcpyAsync", up, kCopyNs);
    for (const StreamId stream : {StreamId(0), up, down}) {
      const int64_t returned = std::max(host, busy_until[stream]) + kWakeNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      b.names(stream);
      host = returned + 2'000;
    }
    b.annotation("decode", begin, host - begin);
    host += 20'000;
  }
  b.derive_all();
  return std::move(b.trace);
}

TEST(Attribute, CopiesThatGetAStreamOfTheirOwn) {
  const diff::Run together = run_of(copying_trace(false)), apart = run_of(copying_trace(true));
  const Found found = attributed(together, apart);
  EXPECT_LT(found.delta_ms, -0.25);
  expect_part(found, DiffPart::kCopy);
  EXPECT_EQ(found.attribution.shares.front().name, "streams of copies: 1 -> 2");
  expect_part(attributed(apart, together), DiffPart::kCopy);
}

TEST(Attribute, TheOtherWayRoundIsTheSameWithTheOtherSign) {
  Plan other;
  other.special_ns = 600'000;
  other.gap_ns = 300'000;
  other.launches = 50;
  const diff::Run a = run_of(Plan{}), b = run_of(other);
  const Found there = attributed(a, b), back = attributed(b, a);
  for (size_t part = 0; part < kDiffParts; ++part) {
    const DiffPart one = static_cast<DiffPart>(part);
    EXPECT_NEAR(there.of(one), -back.of(one), 1e-6) << name_of(one);
  }
  EXPECT_NEAR(there.all(), there.delta_ms, 0.01 * there.delta_ms);
}

}  // namespace
}  // namespace llmprof::diff
