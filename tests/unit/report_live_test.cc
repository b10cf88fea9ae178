// Reports of live recordings: unknown is null and a dash, what was measured stands where it belongs.
#include <gtest/gtest.h>
#include <simdjson.h>

#include "analyze_recording.h"
#include "report/render.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

Report live_report() {
  Report report;
  report.source.kind = "session";
  report.source.duration_ms.ns = 100'000'000;
  StageTiming& seen = report.stages.emplace_back();
  seen.name = "decode_step";
  seen.kind = StageKind::kDecode;
  seen.source = StageSource::kNvtx;
  seen.count = 5;
  seen.wall_ms.ns = 40'000'000;
  seen.gpu_busy_ms.ns = 39'000'000;
  seen.gpu_idle_ms.ns = 1'000'000;
  seen.gpu_busy_frac = 0.975;
  seen.counter_source = "pm-sampling";
  seen.counter_samples = 400;
  seen.dram_bytes_measured = 5 * 16e9;
  seen.dram_measured_over_model = 1.02;
  seen.dram_frac = 0.41;
  seen.sm_clock_mhz = 1980;
  seen.tensor_flops_measured = 5 * 80e9;
  seen.fma_flops_measured = 5 * 4e9;
  seen.flops_measured = 5 * 84e9;
  seen.flops_measured_over_flops = 5.25;
  StageTiming& dark = report.stages.emplace_back();
  dark.name = "decode_step [not recorded]";
  report.stage_marks.resize(report.stages.size());
  report.stage_marks.back().state = StepState::kNotRecorded;
  dark.kind = StageKind::kDecode;
  dark.source = StageSource::kNvtx;
  dark.count = 5;
  dark.wall_ms.ns = dark.not_recorded_ms.ns = 39'500'000;
  dark.gpu_busy_ms.known = dark.gpu_idle_ms.known = false;
  dark.gr_active_frac = 0.97;
  Latency latency;
  latency.tpot_ms = latency.itl_ms = summarize({8.0, 7.9, 8.1});
  latency.headline.tpot_ms = latency.headline.itl_ms = 8.0;
  latency.headline.itl_n = 2;
  report.latency = latency;
  TelemetryReport telemetry;
  telemetry.counter_samples = 800;
  telemetry.counter_source = "pm-sampling";
  telemetry.counter_interval_us = 100;
  telemetry.power_w = summarize({400, 420});
  telemetry.energy_j = 1234;
  telemetry.throttle = {{ThrottleReason::kPowerCap, 0.25, "counter"}, {ThrottleReason::kThermalHardware, 0, "counter"}};
  telemetry.series.emplace_back().power_w = 400;
  report.telemetry = telemetry;
  OverheadReport overhead;
  overhead.distortion_frac = 0.012;
  overhead.ci95 = std::array<double, 2>{0.008, 0.016};
  overhead.stage = "decode_step";
  overhead.method = "within-run";
  overhead.stages = {{"decode_step", DistortionMethod::kWithinRun, 0.012, 0.008, 0.016, 5, 5, 8.0, 7.9}};
  report.overhead = overhead;
  return report;
}

TEST(LiveReport, TextSaysWhatTheBracketsBehindStagesMean) {
  Report report = live_report();
  EXPECT_EQ(render_text(report, {}).find("[window edge]:"), std::string::npos);
  report.stages.front().name = "decode_step [window edge]";
  EXPECT_EQ(render_text(report, {}).find("[window edge]:"), std::string::npos) << "a range of that name";
  report.stage_marks.front().state = StepState::kWindowEdge;
  EXPECT_NE(render_text(report, {}).find("[window edge]: recorded in part"), std::string::npos);
}

TEST(LiveReport, TextSaysOfHowManyRecordedStepsTheGpusFiguresAre) {
  Report report = live_report();
  report.stages[0].kernels.n = 600;
  StageStepRecord& row = report.stage_steps.emplace_back();
  row.stage = "decode_step";
  row.steps = row.recorded_steps = 5;
  row.all_steps = 1'240;
  row.step_p50_ms = row.step_mean_ms = 8;
  row.gpu_busy_p50_ms = row.gpu_idle_p50_ms = row.kernels_p50_ms = row.copies_p50_ms = 1;
  RenderOptions page;
  page.one_page = true;
  EXPECT_NE(render_text(report, {}).find("GPU busy is of recorded steps: decode_step 5 of 1,240"), std::string::npos);
  EXPECT_NE(render_text(report, page).find("GPU idle is of recorded steps: decode_step 5 of 1,240"), std::string::npos);
  report.stage_steps[0].all_steps = 5;  // nothing to tell apart
  EXPECT_EQ(render_text(report, {}).find("of recorded steps:"), std::string::npos);
  EXPECT_EQ(render_text(report, page).find("of recorded steps:"), std::string::npos);
}

TEST(LiveReport, TextSaysThatNoGpuWasSeen) {
  Report report;
  report.stages.emplace_back().name = "decode_step";
  EXPECT_NE(render_text(report, {}).find("no GPU work seen"), std::string::npos);
  report.stages.front().kernels.n = 1;
  EXPECT_NE(render_text(report, {}).find("unknown GPU"), std::string::npos);
}

TEST(LiveReport, TextLabelsTimingsWithTheCostOfRecording) {
  const std::string text = render_text(live_report(), {});
  EXPECT_NE(text.find("(recording costs +1.2 % [0.8, 1.6] against unrecorded steps)"), std::string::npos) << text;
  EXPECT_EQ(distortion_label(live_report(), StageKind::kPrefill), "");
  Report few = live_report();
  few.overhead->stages = {{"decode_step", DistortionMethod::kWithinRun, -0.15, -0.2, 9.02, 2, 2, 8.0, 7.9}};
  EXPECT_NE(render_text(few, {}).find("(recording costs -20 to +902 %: too few steps to tell)"), std::string::npos);
  EXPECT_NE(text.find("~97.0 %"), std::string::npos) << "busy by counter where kernels are missing";
  EXPECT_NE(text.find("Measured"), std::string::npos);
  EXPECT_NE(text.find("102"), std::string::npos);
  EXPECT_NE(text.find("clock held down: power-cap 25.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("1980 MHz"), std::string::npos);
  EXPECT_NE(text.find("FLOP executed at most"), std::string::npos) << text;
  EXPECT_NE(text.find("84.0 GFLOP"), std::string::npos) << text;
  EXPECT_NE(text.find("5.25x"), std::string::npos) << text;
}

TEST(LiveReport, JsonHasNullsForWhatIsNotKnown) {
  simdjson::dom::parser parser;
  const std::string text = render_json(live_report());
  simdjson::dom::element root;
  ASSERT_FALSE(parser.parse(text).get(root)) << text;
  simdjson::dom::element dark = root["stages"].at(1);
  EXPECT_TRUE(dark["gpu_busy_ms"].is_null());
  EXPECT_TRUE(dark["gpu_idle_ms"].is_null());
  EXPECT_TRUE(dark["flops_measured"].is_null());
  EXPECT_EQ(double(root["stages"].at(0)["flops_measured"]), 5 * 84e9);
  EXPECT_EQ(double(dark["not_recorded_ms"]), 39.5);
  EXPECT_EQ(double(root["telemetry"]["energy_j"]), 1234);
  EXPECT_EQ(std::string_view(root["telemetry"]["throttle"].at(0)["reason"]), "power-cap");
  EXPECT_TRUE(root["telemetry"]["temperature_c"].is_null());
  EXPECT_EQ(double(root["overhead"]["ci95"].at(0)), 0.008);
  EXPECT_EQ(double(root["overhead"]["stages"].at(0)["unrecorded_ms"]), 7.9);
}

TEST(LiveReport, CsvHasTheTablesOfReadings) {
  std::vector<std::string> names;
  for (const RenderedFile& file : render_csv(live_report())) {
    names.push_back(file.name);
    if (file.name == "throttle.csv") {
      EXPECT_EQ(file.content, "reason,frac,source\npower-cap,0.25,counter\nthermal-hardware,0,counter\n");
    }
    if (file.name != "stages.csv") continue;
    EXPECT_NE(file.content.find(",39.5,,,39.5,"), std::string::npos) << file.content;
  }
  for (const char* name : {"telemetry.csv", "throttle.csv", "distortion.csv"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

}  // namespace
}  // namespace llmprof
