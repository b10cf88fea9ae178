// Counters against kernels: the shift between their clocks is found, and nothing is claimed where it cannot be told.
#include <gtest/gtest.h>

#include "analyze/clock_offset.h"
#include "analyze_recording.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

constexpr int64_t kSampleNs = 100'000;

// Bursts of irregular length and distance, as launch-bound programs have, and counter samples of their activity whose
// times are `late_ns` behind the kernels'.
AnalyzedRecording bursts(int64_t late_ns, double scale = 0.9, size_t count = 3000) {
  AnalyzedRecording run;
  uint64_t state = 12345;
  const auto random = [&state](int64_t most) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(most));
  };
  int64_t at = 0;
  const int64_t end = static_cast<int64_t>(count) * kSampleNs;
  while (at < end) {
    const int64_t length = 5'000 + random(40'000);
    run.busy(at, at + length);
    at += length + 5'000 + random(60'000);
  }
  run.window(0, at);
  const BusyIndex busy(run.trace);
  GpuSamples& samples = run.trace.gpu_samples;
  for (size_t i = 10; i + 10 < count; ++i) {
    const int64_t start = static_cast<int64_t>(i) * kSampleNs;
    const size_t row = samples.size();
    samples.resize(row + 1);
    samples.start_ns[row] = start + late_ns;
    samples.dur_ns[row] = kSampleNs;
    samples.device[row] = 0;
    samples.source[row] = CounterSource::kPmSampling;
    samples.gr_active_frac[row] =
        static_cast<float>(scale * static_cast<double>(busy.busy_in(0, start, start + kSampleNs)) / kSampleNs);
  }
  return run;
}

std::optional<ClockOffset> offset_of(const AnalyzedRecording& run) {
  return counter_clock_offset(run.trace, 0, CounterSamples(run.trace, 0, std::nullopt));
}

class Late : public testing::TestWithParam<int64_t> {};

TEST_P(Late, TheShiftIsFound) {
  const AnalyzedRecording run = bursts(GetParam());
  const std::optional<ClockOffset> offset = offset_of(run);
  ASSERT_TRUE(offset.has_value());
  EXPECT_NEAR(offset->offset_us, -static_cast<double>(GetParam()) / 1e3, 0.11);
  EXPECT_GT(offset->correlation, 0.99);
  EXPECT_GT(offset->samples, 1000);
}

INSTANTIATE_TEST_SUITE_P(ClockOffset, Late, testing::Values(0, 300, -4'700, 33'000, -412'300));

TEST(ClockOffset, AConstantFactorDoesNotMoveIt) {
  const std::optional<ClockOffset> offset = offset_of(bursts(7'000, 0.4));
  ASSERT_TRUE(offset.has_value());
  EXPECT_NEAR(offset->offset_us, -7, 0.11);
}

TEST(ClockOffset, NothingIsClaimedWithoutAgreement) {
  AnalyzedRecording run = bursts(0);
  GpuSamples& samples = run.trace.gpu_samples;
  // Activity that has nothing to do with these kernels.
  for (size_t i = 0; i < samples.size(); ++i)
    samples.gr_active_frac[i] = 0.1F + 0.8F * static_cast<float>(i * 7919 % 97) / 97;
  EXPECT_FALSE(offset_of(run).has_value());
}

TEST(ClockOffset, NothingIsClaimedOfFewSamplesOrUnrecordedTime) {
  EXPECT_FALSE(offset_of(bursts(0, 0.9, 150)).has_value());
  AnalyzedRecording run = bursts(0);
  run.trace.recorded.resize(1);
  run.trace.recorded.start_ns[0] = 0;
  run.trace.recorded.dur_ns[0] = run.trace.windows[0].end_ns;
  run.trace.recorded.process_id[0] = 1;
  run.trace.recorded.level[0] = RecordingLevel::kLight;
  EXPECT_FALSE(offset_of(run).has_value()) << "kernels were not recorded then";
  AnalyzedRecording gpm = bursts(0);
  for (CounterSource& source : gpm.trace.gpu_samples.source) source = CounterSource::kGpm;
  EXPECT_FALSE(offset_of(gpm).has_value());
}

}  // namespace
}  // namespace llmprof
