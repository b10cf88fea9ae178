#include <gtest/gtest.h>
#include <simdjson.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "analyze_recording.h"
#include "base/csv.h"
#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/metrics_doc.h"
#include "report/render.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

// A run with everything: memory events, Python frames, a hostile name.
Report full_report() {
  AnalyzedRecording run = eager_run();
  run.memory(kMs, 1000, 5000, 8000);
  run.memory(2 * kMs, -1000, 4000, 8000);
  const Row frame = run.python("model.py(3): \x1b[31mforward, \"x\"\n", 0, 40 * kMs);
  run.trace.gaps.python[0] = frame;
  run.trace.source.kind = "kineto";
  run.trace.source.files = {"a folder/run, 1.json"};
  run.trace.diagnostics.add(DiagnosticId::kBadNumber, "byte 7");
  Result<Report> report = analyze(run.trace);
  EXPECT_TRUE(report);
  return report ? std::move(*report) : Report{};
}

void expect_keys(const simdjson::dom::element& object, std::initializer_list<const char*> keys, const char* what) {
  for (const char* key : keys) EXPECT_FALSE(object[key].error()) << what << " lacks " << key;
}

TEST(Json, EveryKeyOfTheSchemaIsThere) {
  simdjson::dom::parser parser;
  const std::string text = render_json(full_report());
  simdjson::dom::element root;
  ASSERT_FALSE(parser.parse(text).get(root));
  EXPECT_EQ(std::string_view(root["schema"]), "llmprof.report/1");
  expect_keys(root, {"schema",      "tool_version", "source",     "device",    "model",        "latency",  "stages",
                     "operators",   "kernels_topk", "categories", "telemetry", "memory",       "overhead", "findings",
                     "cannot_tell", "diagnostics",  "roofline",   "idle",      "conservation", "coverage"},
              "report");
  expect_keys(root["source"], {"kind", "files", "start_unix_ns", "duration_ms", "recorded_ms"}, "source");
  expect_keys(root["device"],
              {"name", "sku", "compute_capability", "sm_count", "sm_clock_mhz", "peaks", "arithmetic", "ridge"},
              "device");
  expect_keys(root["device"]["peaks"]["bf16_tflops"], {"value", "provenance"}, "peak");
  expect_keys(root["latency"], {"headline", "ttft_ms", "tpot_ms", "itl_ms", "output_tokens_per_s", "warmup_ms"},
              "latency");
  expect_keys(root["latency"]["itl_ms"], {"n", "mean", "stddev", "min", "p50", "p90", "p99", "max"}, "itl_ms");
  expect_keys(root["stages"].at(0),
              {"name",
               "kind",
               "source",
               "count",
               "tokens",
               "wall_ms",
               "gpu_busy_ms",
               "gpu_idle_ms",
               "kernels",
               "launches",
               "flops",
               "dram_bytes_model",
               "dram_bytes_measured",
               "tflops",
               "mfu",
               "mfu_at_clock",
               "mbu",
               "intensity",
               "tensor_active_frac",
               "sm_active_frac",
               "dram_frac",
               "l2_hit_frac",
               "bound",
               "energy_j"},
              "stage");
  expect_keys(root["operators"].at(0),
              {"name", "stage", "calls", "cpu_total_ms", "cpu_self_ms", "gpu_total_ms", "gpu_mean_ms", "shapes",
               "flops", "memory_bytes"},
              "operator");
  expect_keys(root["kernels_topk"].at(0),
              {"name",   "category", "stage",     "calls", "total_ms",     "mean_ms",        "min_ms",    "p50_ms",
               "max_ms", "share",    "grid",      "block", "shape",        "dtype",          "flops",     "bytes",
               "tflops", "gbs",      "intensity", "bound", "of_roof_frac", "occupancy_frac", "provenance"},
              "kernel");
  const simdjson::dom::element finding = root["findings"].at(0);
  expect_keys(finding, {"id", "severity", "stage", "title", "evidence", "advice", "bound"}, "finding");
  expect_keys(finding["evidence"].at(0), {"metric", "value", "unit", "provenance"}, "evidence");
  expect_keys(finding["bound"], {"metric", "from", "to"}, "bound");
  expect_keys(root["cannot_tell"].at(0), {"question", "why", "how_to_find_out"}, "cannot_tell");
  expect_keys(root["diagnostics"].at(0), {"key", "severity", "count", "text"}, "diagnostic");
  EXPECT_TRUE(root["stages"].at(0)["energy_j"].is_null());
  EXPECT_TRUE(root["latency"]["ttft_ms"]["stddev"].is_null());  // one sample
  EXPECT_TRUE(root["telemetry"].is_null());
  // Milliseconds hold the nanoseconds exactly.
  EXPECT_EQ(double(root["stages"].at(1)["gpu_busy_ms"]), 6.0);
}

TEST(Json, AnEmptyReportHasTheSameKeys) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const std::string text = render_json(Report{});
  ASSERT_FALSE(parser.parse(text).get(root));
  for (const char* key : {"device", "model", "latency", "memory", "overhead", "telemetry"})
    EXPECT_TRUE(root[key].is_null()) << key;
  for (const char* key : {"stages", "operators", "kernels_topk", "findings", "roofline", "idle"})
    EXPECT_EQ(root[key].get_array().value().size(), 0U) << key;
}

TEST(Csv, TablesReadBackWithTheDeclaredNames) {
  const Report report = full_report();
  size_t seen = 0;
  for (const RenderedFile& file : render_csv(report)) {
    const Result<CsvTable> table = read_csv(file.content, file.name);
    ASSERT_TRUE(table) << table.error().text();
    if (file.name == "stages.csv") {
      ++seen;
      ASSERT_EQ(table->rows.size(), report.stages.size());
      EXPECT_EQ(table->rows[1][*table->column("gpu_busy_ms")], "6");
      EXPECT_EQ(table->rows[1][*table->column("energy_j")], "");
      EXPECT_EQ(table->rows[1][*table->column("name")], "decode");
    }
    if (file.name == "idle.csv") {
      ++seen;
      // Quotes, commas and line ends of an untrusted name survive; what a terminal would obey is escaped.
      EXPECT_EQ(table->rows[0][*table->column("top_python")], "model.py(3): \\u001b[31mforward, \"x\"\n");
    }
    if (file.name == "roofline.csv") {
      ++seen;
      EXPECT_EQ(table->rows.size(), report.roofline.size());
    }
    if (file.name == "findings.csv") {
      ++seen;
      EXPECT_EQ(table->rows.size(), report.findings.size());
    }
    if (file.name == "kernels.csv" || file.name == "operators.csv" || file.name == "categories.csv" ||
        file.name == "memory.csv")
      ++seen;
  }
  EXPECT_EQ(seen, 8U);
}

TEST(Csv, FilesAreWritten) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "llmprof_csv" / "deep";
  ASSERT_TRUE(write_files(folder.string(), {{"a.csv", "x\r\n"}}));
  std::ifstream in(folder / "a.csv", std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), "x\r\n");
  const Status wrong = write_files((folder / "a.csv").string(), {{"b.csv", ""}});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("a.csv"), std::string::npos);
  std::filesystem::remove_all(folder.parent_path());
}

TEST(Csv, AFolderThatCannotEvenBeLookedAtIsAnError) {
  // A name longer than file systems take fails like a folder without permission, also for root.
  const Status status = write_files("/tmp/" + std::string(300, 'x'), {{"a.csv", "x\r\n"}});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().what.find("cannot be made"), std::string::npos) << status.error().what;
}

TEST(Text, AnswersFirstAndStaysInItsWidth) {
  RenderOptions options;
  options.width = 110;
  const std::string text = render_text(full_report(), options);
  const size_t ttft = text.find("TTFT"), tables = text.find("Stages"), findings = text.find("\nFindings");
  ASSERT_NE(findings, std::string::npos);
  EXPECT_LT(ttft, tables);
  EXPECT_LT(tables, findings);
  EXPECT_NE(text.find("totals add up"), std::string::npos);
  EXPECT_NE(text.find("data-loss bad-number x1"), std::string::npos);
  // No escape sequence of the recording and none of ours reaches the terminal.
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 120U) << line;
  options.color = true;
  EXPECT_NE(render_text(full_report(), options).find("\x1b[1m"), std::string::npos);
}

TEST(Text, TheFirstLinesSayWhatWasRecordedAndWhatItIsHeldAgainst) {
  Report report = full_report();
  report.source.duration_ms.ns = 10'000 * kMs;
  report.source.recorded_ms.ns = 1'500 * kMs;
  const auto text = [&] { return render_text(report, {}); };
  EXPECT_NE(text().find(" · 10.00 s, kernels recorded in 1500 ms of it\n"), std::string::npos) << text();
  report.source.recorded_ms.ns = 0;
  EXPECT_NE(text().find(" · 10.00 s, no kernels recorded\n"), std::string::npos);
  report.source.recorded_ms = report.source.duration_ms;
  EXPECT_NE(text().find(" · 10.00 s recorded\n"), std::string::npos);
  EXPECT_NE(text().find(", bf16 989 TFLOP/s, 4800 GB/s"), std::string::npos);
  report.device->arithmetic = "tf32";
  report.device->ridge = 103;
  EXPECT_NE(text().find(", tf32 495 TFLOP/s, 4800 GB/s"), std::string::npos);
  EXPECT_NE(text().find("; ridge of tf32 at 103 FLOP/B"), std::string::npos);
  report.device->arithmetic.reset();
  report.device->ridge.reset();
  EXPECT_NE(text().find("132 SMs, 4800 GB/s"), std::string::npos) << "none is named that is not known";
  EXPECT_EQ(text().find("; ridge"), std::string::npos);
}

// On one page a stage that takes little has no row, but its name and time: all of the window is accounted for.
TEST(Text, OnePageNamesStagesThatTakeLittle) {
  Report report = full_report();
  RenderOptions options;
  options.one_page = true;
  for (const char* name : {"vision encoder", "vision projector", "preprocess", "fourth", "fifth"}) {
    StageTiming& stage = report.stages.emplace_back();
    stage.name = name;
    stage.count = 1;
    stage.wall_ms.ns = 1000;
  }
  report.stage_marks.resize(report.stages.size());
  const std::string text = render_text(report, options);
  EXPECT_NE(text.find("vision encoder, vision projector, preprocess, fourth and 1 more: 5.000 us"), std::string::npos)
      << text;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60);
}

TEST(Text, TheFirstRequestStandsBesideTheMedian) {
  Report report;
  report.latency.emplace();
  Headline& headline = report.latency->headline;
  headline.ttft_ms = 31.2, headline.ttft_p99_ms = 80, headline.ttft_n = 123, headline.first_ttft_ms = 412;
  headline.itl_ms = headline.tpot_ms = 3.5, headline.itl_p99_ms = 4, headline.itl_n = 3, headline.first_itl_ms = 900;
  headline.output_tokens_per_s = 285.7;
  EXPECT_EQ(text_latency(report, {}, Ink(false)),
            "  TTFT  31.20 ms  median of 123 prompts, p99 80.00 ms; first prompt 412.0 ms\n"
            "  TPOT  3.500 ms  median of 3 steps; first step 900.0 ms\n"
            "  rate  285.7 output tokens/s while decoding\n");
  headline.ttft_n = 1;
  headline.first_ttft_ms = headline.ttft_ms;
  headline.tpot_ms.reset();
  EXPECT_TRUE(text_latency(report, {}, Ink(false))
                  .starts_with("  TTFT  31.20 ms  the only prompt\n  ITL   3.500 ms  median of 3 steps"));
  // Where kernels were recorded in a part of the time, others of unnamed steps were not seen.
  StageTiming& found = report.stages.emplace_back();
  found.kind = StageKind::kOther;
  found.source = StageSource::kDetected;
  found.count = 1;
  report.source.duration_ms.ns = 100;
  report.source.recorded_ms.ns = 40;
  EXPECT_TRUE(text_latency(report, {}, Ink(false))
                  .starts_with("  TTFT  31.20 ms  the first prompt, and the only one recorded\n"
                               "  ITL   3.500 ms  median of 3 steps recorded"));
  headline.before_prompt_ms = 47;
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("without 47.00 ms on the host before it"), std::string::npos);
  headline.before_prompt_ms.reset();
  headline.ttft_other_model_frac = 0.57;
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("57.0 % of it another"), std::string::npos);
  headline.ttft_other_model_frac.reset();
  // Its start is not known where llmprof found it.
  found.kind = StageKind::kPrefill;
  headline.ttft_n = 2;
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("; first sample 31.20 ms from its first kernel on"),
            std::string::npos);
  found.kind = StageKind::kOther;
  headline.ttft_n = 1;
  report.source.recorded_ms = report.source.duration_ms;
  // A prefill that may hold several prompts is one sample of TTFT, not one prompt.
  StageTiming& prefill = report.stages.emplace_back();
  prefill.kind = StageKind::kPrefill;
  prefill.count = 1;
  prefill.sequences = 1;
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("the only prompt"), std::string::npos);
  for (const OptInt sequences : {OptInt(), OptInt(4)}) {
    prefill.sequences = sequences;
    EXPECT_NE(text_latency(report, {}, Ink(false)).find("the only sample"), std::string::npos);
  }
}

TEST(Text, StagesOfRangesAndFoundOnesAreToldTogether) {
  Report report;
  const auto add = [&](StageSource source) {
    StageTiming& stage = report.stages.emplace_back();
    stage.source = source;
    stage.count = 3;
    report.stage_marks.resize(report.stages.size());
  };
  const auto title = [&] {
    const std::string text = text_stages(report, {}, Ink(false));
    return text.substr(0, text.find('\n'));
  };
  add(StageSource::kNvtx);
  EXPECT_EQ(title(), "Stages  as annotated");
  add(StageSource::kDetected);
  EXPECT_EQ(title(), "Stages  as annotated; what no range names was found from token counts and kernel sequences");
  report.stages.erase(report.stages.begin());
  EXPECT_EQ(title(), "Stages  found by llmprof from token counts and kernel sequences, not annotated");
}

// A headline of unrecorded steps, where more of them may be in time of which nothing was recorded.
TEST(Text, UnrecordedStepsAreNotCalledRecorded) {
  Report report;
  Headline& headline = report.latency.emplace().headline;
  headline.itl_ms = headline.tpot_ms = 3.5, headline.itl_n = 31, headline.itl_source = StepTimeSource::kUnrecorded;
  StageTiming& found = report.stages.emplace_back();
  found.source = StageSource::kDetected;
  found.count = 1;
  report.source.duration_ms.ns = 100;
  report.source.recorded_ms.ns = 40;
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("TPOT  3.500 ms  median of 31 steps, unrecorded"),
            std::string::npos);
}

TEST(Text, SaysWhetherFiguresHoldTheRecorder) {
  Report report;
  Headline& headline = report.latency.emplace().headline;
  headline.ttft_ms = 31.2, headline.ttft_n = 3, headline.ttft_source = StepTimeSource::kReplayed;
  headline.itl_ms = headline.tpot_ms = 3.5, headline.itl_n = 30, headline.itl_source = StepTimeSource::kUnrecorded;
  headline.output_tokens_per_s = 285.7;
  // The stage's steps are recorded ones, whose mean says nothing of the others.
  StageTiming& decode = report.stages.emplace_back();
  decode.kind = StageKind::kDecode;
  decode.count = 10;
  decode.wall_ms.ns = 70'000'000;
  EXPECT_EQ(text_latency(report, {}, Ink(false)),
            "  TTFT  31.20 ms  median of 3 prompts, recorder's cost subtracted\n"
            "  TPOT  3.500 ms  median of 30 steps, unrecorded\n"
            "  rate  285.7 output tokens/s while decoding\n");
  headline.itl_source = StepTimeSource::kRecorded;
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("median of 30 steps, as recorded"), std::string::npos);
  EXPECT_NE(text_latency(report, {}, Ink(false)).find("whose steps are uneven: their mean is 7.000 ms"),
            std::string::npos);
}

TEST(Text, DoubtsAboutTheDeviceStandAtTheTop) {
  Report report = full_report();
  report.device->remarks = {"\"h200\" is taken to be H200-SXM-141GB; it may also mean H200-NVL-141GB"};
  const std::string text = render_text(report, {});
  EXPECT_LT(text.find("note: \"h200\" is taken to be H200-SXM-141GB"), text.find("TTFT")) << text;
}

TEST(Text, ARecordingThatEndsEarlySaysSoAtTheTop) {
  Report report = full_report();
  const auto top = [&] {
    const std::string text = render_text(report, {});
    return text.substr(0, text.find("change first"));
  };
  EXPECT_EQ(top().find("without closing"), std::string::npos);
  DiagnosticRecord& row = report.diagnostics.emplace_back();
  row.key = DiagnosticId::kUnfinishedSpool;
  row.text = "a process ended without closing its recording";
  EXPECT_NE(top().find("note: a process ended without closing"), std::string::npos);
}

TEST(Text, WarmUpIsALineOfItsOwnAndInNoOtherTable) {
  Report report = full_report();
  EXPECT_EQ(render_text(report, {}).find("[warm-up]"), std::string::npos);
  report.stage_marks.resize(report.stages.size());
  for (size_t i = 0; i < report.stages.size(); ++i) {
    if (report.stages[i].kind != StageKind::kDecode) continue;
    report.stages[i].name += " [warm-up]";
    report.stage_marks[i].phase = StepPhase::kWarmUp;
    report.warm_up.push_back({"decode", 0, WarmUpCause::kModuleLoading, 3, {30'000'000}, 27.0, 0});
  }
  for (KernelRecord& row : report.kernels_topk) row.stage = "decode [warm-up]";
  for (RooflineRecord& row : report.roofline) row.stage = "decode [warm-up]";
  for (OperatorRecord& row : report.operators) row.stage = "decode [warm-up]";
  for (HostRecord& row : report.host) row.stage = "decode [warm-up]";
  report.latency->headline.itl_ms.reset();
  report.latency->headline.tpot_ms.reset();
  report.latency->headline.first_itl_ms = 12;
  const std::string text = render_text(report, {});
  EXPECT_NE(text.find("[warm-up]: in no other figure"), std::string::npos) << text;
  EXPECT_EQ(text.find("decode [warm-up]: "), std::string::npos) << "no bound of theirs is in the first lines";
  EXPECT_EQ(text.find("Where the time goes: decode [warm-up]"), std::string::npos);
  EXPECT_NE(text.find("modules were loaded"), std::string::npos);
  EXPECT_NE(text.find("27.00 ms"), std::string::npos);
  EXPECT_NE(text.find("no warm one in this recording; first step 12.00 ms"), std::string::npos);
  for (const char* table : {"Kernels", "Roofline", "Operators", "Host against GPU"})
    EXPECT_EQ(text.find(std::string("\n") + table), std::string::npos) << "it holds warm-up alone";
}

TEST(Text, TheOnlyPromptOfAProgramMayBeCold) {
  Report report = full_report();
  Headline& headline = report.latency->headline;
  headline.first_ttft_ms = headline.ttft_ms = 20;
  headline.ttft_n = 1;
  EXPECT_EQ(render_text(report, {}).find("perhaps cold"), std::string::npos);
  headline.ttft_in_doubt = true;
  EXPECT_NE(render_text(report, {}).find("20.00 ms  the only prompt, the program's first: perhaps cold"),
            std::string::npos);
}

TEST(Text, WhatIsKnownInPartIsAtLeast) {
  EXPECT_EQ(at_least_text({}, 0.41), "≥ 41.0 %");
  EXPECT_EQ(at_least_text(0.5, {}), "50.0 %");
  EXPECT_EQ(at_least_text({}, {}), "-");
  RenderOptions ascii;
  ascii.charset = Charset::kAscii;
  EXPECT_EQ(finish_page(at_least_text({}, 0.41), ascii), ">= 41.0 %");
}

TEST(Text, FailedConservationIsSaid) {
  Report report = full_report();
  report.conservation[0].ok = false;
  EXPECT_NE(render_text(report, {}).find("conservation: device 0"), std::string::npos);
}

TEST(Text, WrapsAtBlanks) {
  EXPECT_EQ(wrap_text("aa bb cc", 7, "> ", "  "), "> aa bb\n  cc\n");
  EXPECT_EQ(wrap_text("averylongword b", 5, "", ""), "averylongword\nb\n");
}

TEST(Text, KeepsAPercentSignWithItsNumber) {
  EXPECT_EQ(wrap_text("MFU 12.3 %, x", 8, "", ""), "MFU\n12.3 %,\nx\n");
  EXPECT_EQ(wrap_text("a 5 % b", 20, "", ""), "a 5 % b\n");
  EXPECT_EQ(wrap_text("ends in 5 %", 9, "", ""), "ends in\n5 %\n");
  EXPECT_EQ(wrap_text("ends in 5", 7, "", ""), "ends in\n5\n");
}

TEST(Text, SaysThatNoRuleFoundAnything) {
  Report report = full_report();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(render_text(report, {}).find("no rule found anything"), std::string::npos);
  report.findings.clear();
  EXPECT_NE(render_text(report, {}).find("Findings\n  none: no rule found anything"), std::string::npos);
}

TEST(Text, TheLastRowOfStagesSaysOfHowManyWindowsItIs) {
  Report report = full_report();
  EXPECT_NE(render_text(report, {}).find("\n  window "), std::string::npos);
  StageTiming other = report.stages.front();
  other.device = 1;
  report.stages.push_back(std::move(other));
  EXPECT_NE(render_text(report, {}).find("\n  2 windows "), std::string::npos);
}

TEST(KernelName, TemplateNoiseGoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_kernel(at::"
       "TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#8}, std::array<char*, 2ul> >(int, float)",
       "vectorized_elementwise_kernel<silu_kernel>"},
      {"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::"
       "BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > "
       ">(at::TensorIterator&)",
       "elementwise_kernel<MulFunctor>"},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(int)",
       "reduce_kernel<MeanOps>"},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, "
       "unsigned int, 4>(int)",
       "CatArrayBatchedCopy"},
      {"void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_tn_align1>(cutlass_80_simt_sgemm_128x32::Params)",
       "cutlass_80_simt_sgemm_128x32_8x5_tn_align1"},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)", "splitKreduce_kernel"},
      {"nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT"},
      {"triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"},
      {"Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"},
      {"", ""},
      {"<<<<((((", "<<<<(((("},
      {"void f<a", "f"},
  };
  for (const auto& [full, expected] : cases) EXPECT_EQ(short_kernel_name(full), expected) << full;
}

TEST(MetricsDoc, HasASentenceForEveryColumn) {
  const std::string doc = metrics_markdown();
  for (const char* name : {"| `mfu_at_clock` |", "| `of_roof_frac` |", "### gpu_ops", "### steps", "| `launch-bound` |",
                           "| `truncated-file` |", "`blocking-sync`", "`kv-cache`"})
    EXPECT_NE(doc.find(name), std::string::npos) << name;
  std::istringstream lines(doc);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    EXPECT_EQ(line.find("|  |\n"), std::string::npos) << line;
    EXPECT_GT(line.size() - line.rfind("| ", line.size() - 2), 5U) << line;  // the last cell says something
  }
  EXPECT_NE(metrics_text().find("wall_ms [ms]"), std::string::npos);
}

TEST(Renderers, AreFoundByName) {
  EXPECT_NE(find_renderer("text"), nullptr);
  EXPECT_TRUE(find_renderer("csv")->tables);
  EXPECT_EQ(find_renderer("docx"), nullptr);
  for (const Renderer& renderer : renderers())
    EXPECT_FALSE(renderer.render(full_report(), {}).empty()) << renderer.name;
}

TEST(Render, AGainSaysWhatOneFunctionAloneBringsWhereThatIsNotAll) {
  FindingGain gain;
  gain.metric = GainMetric::kTpot;
  gain.from = 30, gain.to = 15, gain.method = "replay";
  gain.ci95 = {12, 18};
  EXPECT_EQ(gain_text(gain), "Simulated: TPOT 30.00 ms -> 15.00 ms (95 %: 12.00 ms to 18.00 ms)");
  gain.at = "gate", gain.at_to = 18;
  EXPECT_EQ(gain_text(gain),
            "Simulated: TPOT 30.00 ms -> 15.00 ms (95 %: 12.00 ms to 18.00 ms), at gate alone 18.00 ms");
  gain.at_to = 15;
  EXPECT_EQ(gain_text(gain), "Simulated: TPOT 30.00 ms -> 15.00 ms (95 %: 12.00 ms to 18.00 ms)");
}

}  // namespace
}  // namespace llmprof
