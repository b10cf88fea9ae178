// Readings of utilisation against a recording with pauses: what was not recorded is neither busy nor idle.
#include <gtest/gtest.h>

#include "import/utilisation_check.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Kernels from `from` to `to`, with a gap of 1 % between one and the next.
void run_kernels(TraceBuilder& builder, int64_t from, int64_t to) {
  for (int64_t start = from; start < to; start += kSecond / 100)
    builder.add<GpuOps>({.start_ns = start, .dur_ns = kSecond / 101, .stream = 0, .kind = GpuOpKind::kKernel});
}

// Sixty seconds of a GPU that works all the time; kernels were recorded in the first and the last twenty.
Trace paused(RecordingLevel level, bool says_so) {
  Trace trace;
  TraceBuilder builder(trace);
  builder.add<Streams>({.device = 0, .context = 1, .stream = 7});
  run_kernels(builder, 0, 20 * kSecond);
  run_kernels(builder, 40 * kSecond, 60 * kSecond);
  const auto add = [&](int64_t from, RecordingLevel which) {
    builder.add<Recorded>({.start_ns = from * kSecond, .dur_ns = 20 * kSecond, .process_id = 1, .level = which});
  };
  add(0, RecordingLevel::kDefault);
  if (says_so) add(20, level);
  add(40, RecordingLevel::kDefault);
  return trace;
}

NvmlSamples busy_readings(int32_t device) {
  Trace log;
  TraceBuilder builder(log);
  for (int64_t s = 2; s < 60; ++s)
    builder.add<NvmlSamples>({.time_ns = s * kSecond, .device = device, .gpu_util_frac = 0.99F});
  return log.nvml_samples;
}

TEST(UtilisationCheck, WhatWasNotRecordedIsNeitherBusyNorIdle) {
  for (const RecordingLevel level : {RecordingLevel::kOff, RecordingLevel::kLight}) {
    const UtilisationAgreement said =
        RecordedBusy(paused(level, true)).compare(busy_readings(3), {{3, 0}}, 0, kSecond / 2);
    EXPECT_EQ(said.agreeing, said.compared);
    EXPECT_FALSE(said.idle_seen || said.contradicts());
    // A reading is of the second and a half before it to half a second behind it.
    EXPECT_GE(said.compared, 30);
    EXPECT_LE(said.compared, 38);
  }
  const UtilisationAgreement silent =
      RecordedBusy(paused(RecordingLevel::kOff, false)).compare(busy_readings(3), {{3, 0}}, 0, kSecond / 2);
  EXPECT_TRUE(silent.idle_seen && silent.contradicts()) << "idle, where nothing says that it was not recorded";
}

TEST(UtilisationCheck, WhatAWindowLostBeforeItsEndIsNotIdle) {
  Trace trace;
  TraceBuilder builder(trace);
  builder.add<Streams>({.device = 0, .context = 1, .stream = 7});
  run_kernels(builder, 0, 10 * kSecond);
  run_kernels(builder, 40 * kSecond, 60 * kSecond);
  // The kernels of ten seconds before the pause were still to come when recording ended.
  builder.add<Recorded>({.start_ns = 0, .dur_ns = 20 * kSecond, .process_id = 1, .level = RecordingLevel::kDefault});
  builder.add<Recorded>({.start_ns = 20 * kSecond,
                         .dur_ns = 20 * kSecond,
                         .process_id = 1,
                         .level = RecordingLevel::kOff,
                         .cut_ns = 10 * kSecond});
  const UtilisationAgreement said = RecordedBusy(trace).compare(busy_readings(0), {{0, 0}}, 0, kSecond / 2);
  EXPECT_FALSE(said.idle_seen || said.contradicts()) << said.agreeing << " of " << said.compared;
}

TEST(UtilisationCheck, ReadingsOfOtherGpusAndWithoutAValueAreLeftOut) {
  const RecordedBusy busy(paused(RecordingLevel::kOff, true));
  EXPECT_EQ(busy.compare(busy_readings(1), {{3, 0}}, 0, kSecond / 2).compared, 0);
  EXPECT_EQ(busy.compare(busy_readings(3), {{3, 2}}, 0, kSecond / 2).compared, 0) << "a GPU without work";
  NvmlSamples silent = busy_readings(3);
  for (float& value : silent.gpu_util_frac) value = -1;
  EXPECT_EQ(busy.compare(silent, {{3, 0}}, 0, kSecond / 2).compared, 0);
  EXPECT_EQ(busy.compare(busy_readings(3), {{3, 0}}, 1000 * kSecond, kSecond / 2).compared, 0);
}

}  // namespace
}  // namespace llmprof
