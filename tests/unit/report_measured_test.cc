// Measured ceilings in reports: whose they are, what they are used for, and what stays the data sheet's.
#include <gtest/gtest.h>

#include <algorithm>

#include "analyze_recording.h"
#include "report/render.h"

namespace llmprof {
namespace {

MeasuredCeilings measured(const std::string& key, const std::string& name, double tflops, double gbs) {
  MeasuredCeilings ceilings;
  ceilings.device_key = key;
  ceilings.name = name;
  ceilings.driver = "580.1";
  ceilings.unix_s = 1'763'700'000;  // 2025-11-21
  ceilings.library_tflops["bf16"] = {tflops, "8192x8192x8192, cuBLASLt #7", 0.01, 1500, 690};
  ceilings.bandwidth_gbs["read"] = {gbs, "4 GiB, own", 0.001, 0, 0};
  ceilings.bandwidth_gbs["copy"] = {gbs, "4 GiB, own", 0.001, 0, 0};
  return ceilings;
}

std::string rendered(const Report& report, const char* format) {
  return find_renderer(format)->render(report, {}).front().content;
}

TEST(MeasuredCeilings, RoofsAreMeasuredAndMfuStaysAShareOfTheSheet) {
  AnalyzedRecording run = eager_run();
  run.trace.devices.uuid[0] = run.trace.strings.intern("GPU-1");
  const Report sheet = report_of(run, {});
  AnalyzeOptions options;
  options.measured = {measured("GPU-0", "NVIDIA H200", 1, 1), measured("GPU-1", "NVIDIA H200", 791.52, 3840)};
  const Report report = report_of(run, options);
  ASSERT_TRUE(report.device->measured_by.has_value());
  EXPECT_EQ(*report.device->measured_by, "llmprof peaks on 2025-11-21, driver 580.1");
  EXPECT_TRUE(report.device->remarks == sheet.device->remarks);
  ASSERT_FALSE(report.roofline.empty());
  for (size_t i = 0; i < report.roofline.size(); ++i) {
    const RooflineRecord& row = report.roofline[i];
    const auto same = std::find_if(sheet.roofline.begin(), sheet.roofline.end(), [&](const RooflineRecord& other) {
      return other.name == row.name && other.shape == row.shape && other.stage == row.stage;
    });
    ASSERT_NE(same, sheet.roofline.end());
    EXPECT_NEAR(*row.peak_tflops, 791.52, 1e-9);
    EXPECT_NEAR(*row.peak_gbs, 3840, 1e-9);
    EXPECT_NEAR(*row.ridge, 791.52e12 / 3840e9, 1e-9);
    // Both are four fifths, so every share grows by a quarter.
    EXPECT_NEAR(*row.of_roof_frac, 1.25 * *same->of_roof_frac, 1e-9);
  }
  bool some = false;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    EXPECT_EQ(report.stages[i].mfu, sheet.stages[i].mfu);
    EXPECT_EQ(report.stages[i].mbu, sheet.stages[i].mbu);
    if (!report.stages[i].of_roof_frac) continue;
    some = true;
    EXPECT_NEAR(*report.stages[i].of_roof_frac, 1.25 * *sheet.stages[i].of_roof_frac, 1e-9);
  }
  EXPECT_TRUE(some);
  EXPECT_NE(rendered(report, "text").find("bf16 989 TFLOP/s (measured 792), 4800 GB/s (measured 3840)"),
            std::string::npos);
  EXPECT_EQ(rendered(sheet, "text").find("measured 792"), std::string::npos);
  const std::string json = rendered(report, "json");
  EXPECT_NE(json.find("\"measured\": 791.52"), std::string::npos);
  EXPECT_NE(json.find("\"how\": \"8192x8192x8192, cuBLASLt #7\""), std::string::npos);
  EXPECT_NE(json.find("\"measured_by\": \"llmprof peaks on 2025-11-21, driver 580.1\""), std::string::npos);
  EXPECT_EQ(rendered(sheet, "json").find("measured_by"), std::string::npos);
}

TEST(MeasuredCeilings, OnlyThoseOfTheRecordedDevice) {
  AnalyzedRecording run = eager_run();
  run.trace.devices.uuid[0] = run.trace.strings.intern("GPU-1");
  AnalyzeOptions options;
  options.measured = {measured("GPU-7", "NVIDIA A100-SXM4-80GB", 250, 1500)};
  EXPECT_FALSE(report_of(run, options).device->measured_by.has_value()) << "another model";
  options.measured = {measured("GPU-7", "NVIDIA H200", 700, 4000)};
  const Report neighbour = report_of(run, options);
  EXPECT_TRUE(neighbour.device->measured_by.has_value()) << "the only one of this model";
  EXPECT_EQ(neighbour.device->remarks.back(), "measured on another NVIDIA H200, GPU-7");
  options.measured.push_back(measured("GPU-8", "NVIDIA H200", 600, 4100));
  EXPECT_FALSE(report_of(run, options).device->measured_by.has_value()) << "which of the two?";
  options.measured_given = true;  // a file that was named
  EXPECT_NEAR(*report_of(run, options).device->measured_bytes_per_s, 4000e9, 1);
  options.measured = {measured("GPU-7", "NVIDIA A100-SXM4-80GB", 250, 1500)};
  const Report other = report_of(run, options);
  EXPECT_FALSE(other.device->measured_by.has_value()) << "a file that was named, of another device";
  EXPECT_NE(rendered(other, "text").find("warning: --ceilings names ceilings of another device"), std::string::npos);
  // Asked about another part, measured ceilings of this one say nothing.
  options = {};
  options.gpu = "A100-SXM4-80GB";
  options.measured = {measured("GPU-1", "NVIDIA H200", 700, 4000)};
  EXPECT_FALSE(report_of(run, options).device->measured_by.has_value());
}

TEST(MeasuredCeilings, ACpuHasNoOthers) {
  AnalyzedRecording run = eager_run();
  run.trace.devices.kind[0] = ProcessorKind::kCpu;
  run.trace.devices.name[0] = run.trace.strings.intern("Some CPU");
  run.trace.devices.uuid[0] = run.trace.strings.intern("some-cpu-2-threads");
  const Report without = report_of(run, {});
  EXPECT_TRUE(without.device->peaks.empty());
  EXPECT_TRUE(std::any_of(without.cannot_tell.begin(), without.cannot_tell.end(), [](const CannotTell& what) {
    return what.question.find("Some CPU") != std::string::npos &&
           what.how_to_find_out.find("llmprof peaks") != std::string::npos;
  }));
  AnalyzeOptions options;
  options.measured = {measured("some-cpu-2-threads", "Some CPU", 50, 20)};
  const Report report = report_of(run, options);
  EXPECT_NEAR(*report.device->peak_of(DType::kBf16), 50e12, 1) << "MFU is a share of what was measured";
  bool some = false;
  for (const StageTiming& stage : report.stages) some |= stage.mfu.has_value();
  EXPECT_TRUE(some);
  for (const auto& [name, peak] : report.device->peaks)
    EXPECT_EQ(peak.provenance, "measured: llmprof peaks on 2025-11-21, driver 580.1");
  EXPECT_NE(rendered(report, "text").find("bf16 50 TFLOP/s measured, 20 GB/s measured"), std::string::npos);
  for (const CannotTell& what : report.cannot_tell) EXPECT_EQ(what.question.find("peaks"), std::string::npos);
}

}  // namespace
}  // namespace llmprof
