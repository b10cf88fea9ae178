// Times, cells and damage of `nvidia-smi dmon` output.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "import/dmon.h"

namespace llmprof {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

Trace read_dmon(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "dmon.txt");
  EXPECT_TRUE(input && dmon::import(*input, trace));
  return trace;
}

TEST(Dmon, UnitsAndAbsentCells) {
  const Trace trace = read_dmon("# gpu pwr mtemp sm fb rxpci new\n# Idx W C % MB MB/s x\n 2 130 - 50 3 7 9\n");
  ASSERT_EQ(trace.nvml_samples.size(), 1u);
  EXPECT_EQ(trace.nvml_samples.device[0], 2);
  EXPECT_FLOAT_EQ(trace.nvml_samples.power_w[0], 130);
  EXPECT_TRUE(std::isnan(trace.nvml_samples.memory_temperature_c[0]));
  EXPECT_FLOAT_EQ(trace.nvml_samples.gpu_util_frac[0], 0.5F);
  EXPECT_EQ(trace.nvml_samples.memory_used_bytes[0], 3 << 20);
  EXPECT_FLOAT_EQ(trace.nvml_samples.pcie_rx_bytes_per_s[0], 7e6F);
  EXPECT_TRUE(std::isnan(trace.nvml_samples.sm_clock_mhz[0]));
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownCategory), 1u);
  EXPECT_EQ(trace.recorded.dur_ns[0], kSecond);
}

TEST(Dmon, WithoutTimesGpusShareAnInterval) {
  const Trace trace = read_dmon("# gpu sm\n0 1\n1 2\n0 3\n# gpu sm\n1 4\n0 5\n");
  ASSERT_EQ(trace.nvml_samples.size(), 5u);
  const int64_t expected[] = {0, 0, kSecond, kSecond, 2 * kSecond};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(trace.nvml_samples.time_ns[i], expected[i]);
  EXPECT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.base_unix_ns, 0);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kAssumedTimes), 5u);
}

TEST(Dmon, TimeOfDayPassesMidnight) {
  const Trace trace = read_dmon("#Time gpu sm\n#HH:MM:SS Idx %\n 23:59:58 0 1\n 00:00:03 0 1\n");
  ASSERT_EQ(trace.nvml_samples.size(), 2u);
  EXPECT_EQ(trace.nvml_samples.time_ns[1], 5 * kSecond);
  EXPECT_EQ(trace.recorded.dur_ns[0], 5 * kSecond);
  EXPECT_EQ(trace.base_unix_ns, 0);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(Dmon, DateAndTimeAreUtc) {
  const Trace trace = read_dmon("#Date, Time, gpu, sm\n 20261124, 09:13:04, 0, 70\n\n 20261124, 09:13:05, 0, 70\n");
  EXPECT_EQ(trace.base_unix_ns, 1'795'511'584 * kSecond);
  ASSERT_EQ(trace.nvml_samples.size(), 2u);
  EXPECT_EQ(trace.nvml_samples.time_ns[1], kSecond);
}

TEST(Dmon, DamageIsCountedAndTheRestKept) {
  const Trace trace = read_dmon(
      "#Date Time gpu sm pwr\n20261124 09:00:00 0 x 1e99\n20261324 09:00:01 0 1 1\n20261124 09:00:02 - 1 1\n"
      "20261124 09:00:03 0 1\n20261124 09:00:04 9999 1 1\n20261124 09:00:05 0 nan 7\n" +
      std::string(20000, '7') + "\n20261124 09:00:06 0 12 4");
  ASSERT_EQ(trace.nvml_samples.size(), 3u);
  EXPECT_TRUE(std::isnan(trace.nvml_samples.power_w[0]));
  EXPECT_FLOAT_EQ(trace.nvml_samples.power_w[1], 7);
  EXPECT_FLOAT_EQ(trace.nvml_samples.gpu_util_frac[2], 0.12F);
  EXPECT_TRUE(std::isnan(trace.nvml_samples.power_w[2]));
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadNumber), 5u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMissingField), 3u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMalformedEvent), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kLimitReached), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1u);
}

TEST(Dmon, NothingToRead) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory("# gpu sm\n# Idx %\n", "dmon.txt");
  EXPECT_EQ(dmon::sniff("# gpu sm\n"), 90);
  EXPECT_EQ(dmon::sniff("# sm of a gpu\n0"), 90);  // names in any order
  EXPECT_EQ(dmon::sniff("gpu sm\n"), 0);
  EXPECT_EQ(dmon::sniff("\n#include <gpu>\n"), 0);
  ASSERT_TRUE(input);
  EXPECT_FALSE(dmon::import(*input, trace));
}

}  // namespace
}  // namespace llmprof
