// Names, units, GPUs, times and damage of `nvidia-smi --query-gpu` logs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "import/smi_query.h"
#include "trace/throttle_known.h"

namespace llmprof {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

Status import_text(const std::string& text, Trace& trace) {
  Result<InputFile> input = InputFile::from_memory(text, "gpu.csv");
  EXPECT_TRUE(input);
  return smi_query::import(*input, trace);
}

Trace read_query(const std::string& text) {
  Trace trace;
  EXPECT_TRUE(import_text(text, trace));
  return trace;
}

std::string smi_error_of(const std::string& text) {
  Trace trace;
  const Status status = import_text(text, trace);
  return status ? std::string() : status.error().what;
}

TEST(SmiQuery, UnitsAndAbsentCells) {
  const Trace trace = read_query(
      "timestamp, index, power.draw [W], clocks.sm [MHz], utilization.gpu [%], memory.used [MiB], temperature.memory\n"
      "2026/11/24 09:13:04.5, 2, 123.45 W, 1755, 50 %, 3 MiB, N/A\n"
      "2026/11/24 09:13:04.750, 2, [Unknown Error], [Not Supported], 7 %, 4 MiB, 51\n");
  ASSERT_EQ(trace.nvml_samples.size(), 2u);
  EXPECT_EQ(trace.base_unix_ns, 1'795'511'584'500 * kMillisecond);
  EXPECT_EQ(trace.nvml_samples.time_ns[1], 250 * kMillisecond);
  EXPECT_EQ(trace.nvml_samples.device[0], 2);
  EXPECT_FLOAT_EQ(trace.nvml_samples.power_w[0], 123.45F);
  EXPECT_FLOAT_EQ(trace.nvml_samples.sm_clock_mhz[0], 1755);
  EXPECT_FLOAT_EQ(trace.nvml_samples.gpu_util_frac[0], 0.5F);
  EXPECT_EQ(trace.nvml_samples.memory_used_bytes[0], 3 << 20);
  EXPECT_TRUE(std::isnan(trace.nvml_samples.memory_temperature_c[0]));
  EXPECT_TRUE(std::isnan(trace.nvml_samples.power_w[1]));
  EXPECT_EQ(trace.nvml_samples.throttle_reasons[0], kThrottleReasonsUnknown);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(SmiQuery, OnlyTheReasonsThatEveryLineHasAreKnown) {
  const Trace trace = read_query(
      "index, clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_slowdown, "
      "clocks_throttle_reasons.gpu_idle\n"
      "0, Active, Not Active, Active\n0, Not Active, Active, [N/A]\n0, Active, perhaps, Active\n");
  ASSERT_EQ(trace.nvml_samples.size(), 3u);
  EXPECT_EQ(trace.nvml_samples.throttle_reasons[0], 0x5u);
  EXPECT_EQ(trace.nvml_samples.throttle_reasons[1], 0x8u);
  EXPECT_EQ(trace.nvml_samples.throttle_reasons[2], kThrottleReasonsUnknown);
  EXPECT_EQ(throttle_reasons_known(trace), 0xCu);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadNumber), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kAssumedTimes), 3u);
}

TEST(SmiQuery, TheMaskHoldsAllReasons) {
  const Trace trace = read_query(
      "clocks_event_reasons.sw_power_cap, clocks_event_reasons.active, clocks_event_reasons.hw_slowdown\n"
      "Not Active, 0x0000000000000024, Active\nActive, [N/A], Active\n");
  EXPECT_EQ(trace.nvml_samples.throttle_reasons[0], 0x24u);
  EXPECT_EQ(trace.nvml_samples.throttle_reasons[1], 0xCu);
  EXPECT_EQ(throttle_reasons_known(trace), 0xCu);
  EXPECT_EQ(throttle_reasons_known(read_query("clocks_event_reasons.active\n0x4\n")), kAllThrottleReasons);
}

TEST(SmiQuery, GpusByWhatNamesThem) {
  for (const std::string name : {"uuid", "pci.bus_id", "name"}) {
    const Trace trace = read_query("timestamp, " + name + ", power.draw [W]\n2026/11/24 09:00:00.000, b, 1 W\n" +
                                   "2026/11/24 09:00:00.010, a, 2 W\n2026/11/24 09:00:01.000, b, 3 W\n");
    ASSERT_EQ(trace.nvml_samples.size(), 3u);
    EXPECT_EQ(trace.nvml_samples.device[1], 1);
    EXPECT_EQ(trace.nvml_samples.device[2], 0);
    EXPECT_EQ(trace.devices.size(), 2u);
    EXPECT_EQ(trace.text(trace.devices.name[0]), name == "name" ? "b" : "");
    EXPECT_EQ(trace.text(trace.devices.uuid[0]), name == "uuid" ? "b" : "");
  }
}

TEST(SmiQuery, UnknownColumnsAndUnitsCountOnceEach) {
  const Trace trace = read_query(
      "power.draw [W], new.thing, memory.used [KiB], pstate, ecc.mode.current\n1 W, 2, 3 KiB, P0, Enabled\n"
      "power.draw [W], new.thing, memory.used [KiB], pstate, ecc.mode.current\n1 W, 2, 3 KiB, P0, Enabled\n");
  EXPECT_EQ(trace.nvml_samples.memory_used_bytes[0], -1);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownCategory), 2u);
}

TEST(SmiQuery, DamageIsCountedAndTheRestKept) {
  const Trace trace = read_query(
      "Failed to initialize NVML\ntimestamp, index, power.draw [W], utilization.gpu [%]\n"
      "2026/11/24 09:00:00.000, 0, x W, 1e99 %\n2026/13/24 09:00:01.000, 0, 1 W, 1 %\n"
      "2026/11/24 09:00:02.000, [N/A], 1 W, 1 %\n2026/11/24 09:00:03.000, 0, 1 W\n"
      "2026/11/24 09:00:04.000, 4096, 1 W, 1 %\n2026/11/24 09:00:05.000, 0, 7 mW, -1 %\n" +
      std::string(20000, '7') + "\n2026/11/24 08:00:06.000, 0, 12 W, 4");
  ASSERT_EQ(trace.nvml_samples.size(), 3u);
  EXPECT_FLOAT_EQ(trace.nvml_samples.power_w[2], 12);
  EXPECT_TRUE(std::isnan(trace.nvml_samples.power_w[0]));
  EXPECT_TRUE(std::isnan(trace.nvml_samples.power_w[1]));
  EXPECT_TRUE(std::isnan(trace.nvml_samples.gpu_util_frac[1]));
  EXPECT_TRUE(std::isnan(trace.nvml_samples.gpu_util_frac[2]));
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadNumber), 6u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMissingField), 3u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMalformedEvent), 2u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kLimitReached), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnsortedEvents), 1u);
}

TEST(SmiQuery, RestartedWithOtherColumns) {
  const Trace trace = read_query(
      "index, power.draw [W]\n0, 5 W\npower.draw [W], index, temperature.gpu\n6 W, 0, 40\n"
      "pid, process_name, used_gpu_memory [MiB]\n7, python, 3 MiB\n");
  ASSERT_EQ(trace.nvml_samples.size(), 2u);
  EXPECT_FLOAT_EQ(trace.nvml_samples.power_w[1], 6);
  EXPECT_FLOAT_EQ(trace.nvml_samples.temperature_c[1], 40);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownCategory), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMalformedEvent), 0u);
}

TEST(SmiQuery, WhatCannotBeReadSaysWhy) {
  EXPECT_NE(smi_error_of("0, 412.20 W, 99 %\n").find("noheader"), std::string::npos);
  EXPECT_NE(smi_error_of("pid, used_gpu_memory [MiB]\n1, 5 MiB\n").find("table of processes"), std::string::npos);
  EXPECT_NE(smi_error_of("index, pci.bus_id\n0, 00000000:18:00.0\n").find("only what the GPUs are"), std::string::npos);
  EXPECT_NE(smi_error_of("index, power.draw [W]\n").find("found none"), std::string::npos);
  std::string mixed = "timestamp, power.draw [W]\n";
  for (int i = 0; i < 8; ++i)
    mixed += "2026/11/24 09:00:0" + std::to_string(i) + ".000, 400 W\n2026/11/24 09:00:0" + std::to_string(i) +
             ".011, 70 W\n";
  EXPECT_NE(smi_error_of(mixed).find("several GPUs"), std::string::npos);
}

TEST(SmiQuery, Sniff) {
  EXPECT_EQ(smi_query::sniff("timestamp, power.draw [W]\n"), 90);
  EXPECT_EQ(smi_query::sniff("\xEF\xBB\xBFtemperature.gpu\r\n40\r\n"), 90);
  EXPECT_EQ(smi_query::sniff("nohup: ignoring input\nindex, clocks.mem [MHz]\n"), 40);
  EXPECT_EQ(smi_query::sniff("2026/11/24 09:00:00.000, 0, 12\n"), 30);
  EXPECT_EQ(smi_query::sniff("0, 412.20 W, 99 %\n"), 30);
  EXPECT_EQ(smi_query::sniff("timestamp, name, value\n2026/11/24, a, 5\n"), 0);
  EXPECT_EQ(smi_query::sniff("pid, name\n"), 0);
  EXPECT_EQ(smi_query::sniff("# gpu pwr\n 0 70\n"), 0);
  EXPECT_EQ(smi_query::sniff(""), 0);
}

}  // namespace
}  // namespace llmprof
