// Plans, runs, results files and the sentence of a sweep.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/case_rows.h"
#include "bench/peak_rows.h"
#include "bench/peaks.h"
#include "bench/plan.h"
#include "bench/results_file.h"
#include "bench/runner.h"
#include "bench_scripted.h"
#include "report/render.h"
#include "report/text_bench.h"
#include "temporary_folder.h"

namespace llmprof::bench {
namespace {

std::vector<int64_t> sweep(const std::string& text) {
  const Result<Sweep> parsed = parse_sweep(text);
  return parsed ? parsed->values : std::vector<int64_t>{};
}

TEST(BenchSweep, ListsDoublingsAndSteps) {
  EXPECT_EQ(sweep("m=1,16,512"), (std::vector<int64_t>{1, 16, 512}));
  EXPECT_EQ(sweep("m=1:10:x2"), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(sweep("m=16:64:16"), (std::vector<int64_t>{16, 32, 48, 64}));
  EXPECT_EQ(sweep("m=5:5:x2"), (std::vector<int64_t>{5}));
  EXPECT_EQ(sweep("m=7"), (std::vector<int64_t>{7}));
  EXPECT_EQ(sweep("m=4611686018427387904:9223372036854775807:x2"), (std::vector<int64_t>{4611686018427387904}))
      << "no overflow";
  EXPECT_EQ(parse_sweep("hidden=1:4:1")->axis, "hidden");
  EXPECT_EQ(parse_sweep("kv-heads=1")->axis, "kv_heads");
}

TEST(BenchSweep, BadOnesSayWhatWasExpected) {
  for (const char* bad : {"m", "=1", "m=", "m=1,", "m=0", "m=-1", "m=1:2", "m=4:1:x2", "m=1:4:x1", "m=1:4:0", "m=a:b:c",
                          "m=1:4:x", "m=1:2:3:4", "m=1e3", "m=1:100000:1"}) {
    const Result<Sweep> parsed = parse_sweep(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_NE(parsed.error().what.find("AXIS=FROM:TO:x2"), std::string::npos);
    EXPECT_EQ(parsed.error().exit_code, ExitCode::kUsage);
  }
}

TEST(BenchPlan, EveryCombinationTheLastSweepFastest) {
  Selection selection;
  selection.names = {"gemm"};
  selection.axes = {{"k", 64}};
  selection.sweeps = {{"m", {1, 2}}, {"n", {8, 16, 32}}};
  selection.dtypes = {DType::kFp32, DType::kBf16};
  selection.seed = 9;
  const Result<std::vector<CasePlan>> plans = plan_cases({&scripted_gemm(), 1}, selection);
  ASSERT_TRUE(plans.has_value());
  ASSERT_EQ(plans->size(), 12U);
  EXPECT_EQ(shape_text((*plans)[0].params), "m=1 n=8 k=64");
  EXPECT_EQ(shape_text((*plans)[1].params), "m=1 n=16 k=64");
  EXPECT_EQ(shape_text((*plans)[3].params), "m=2 n=8 k=64");
  EXPECT_EQ((*plans)[6].params.dtype, DType::kBf16);
  EXPECT_EQ((*plans)[6].params.seed, 9U);
}

TEST(BenchPlan, MisuseNamesTheNearest) {
  const auto error_of = [](Selection selection) {
    const Result<std::vector<CasePlan>> plans = plan_cases({&scripted_gemm(), 1}, selection);
    EXPECT_FALSE(plans.has_value());
    return plans ? std::string() : plans.error().text();
  };
  Selection selection;
  selection.names = {"gem"};
  EXPECT_NE(error_of(selection).find("no benchmark \"gem\""), std::string::npos);
  EXPECT_NE(error_of(selection).find("llmprof bench gemm"), std::string::npos);
  selection.names = {"gemm"};
  selection.axes = {{"hidden", 5}};
  EXPECT_NE(error_of(selection).find("gemm has no axis \"hidden\""), std::string::npos);
  selection.axes.clear();
  selection.dtypes = {DType::kFp4};
  EXPECT_NE(error_of(selection).find("--dtype fp32 or bf16"), std::string::npos);
  selection.dtypes.clear();
  selection.variants = {"biased"};
  EXPECT_NE(error_of(selection).find("--variant plain or bias"), std::string::npos);
  selection.variants.clear();
  selection.axes = {{"m", 16}};
  selection.sweeps = {{"m", {32}}};
  EXPECT_NE(error_of(selection).find("expected an axis once, found two lists of values for m"), std::string::npos);
  selection.axes.clear();
  selection.sweeps.push_back({"m", {64}});
  EXPECT_NE(error_of(selection).find("found two lists of values for m"), std::string::npos);
  const std::vector<int64_t> many(900, 1);
  selection.sweeps = {{"m", many}, {"n", many}, {"k", many}};
  EXPECT_NE(error_of(selection).find("more than 10000 cases"), std::string::npos) << "before they are made";
}

class BenchRun : public testing::Test {
 protected:
  void SetUp() override { g_op = ScriptedOp{}; }

  static std::vector<CasePlan> plans(const std::vector<int64_t>& m) {
    Selection selection;
    selection.names = {"gemm"};
    selection.sweeps = {{"m", m}};
    return *plan_cases({&scripted_gemm(), 1}, selection);
  }
  RunOutcome run(const std::vector<CasePlan>& plans, const std::vector<CaseRecord>& earlier = {}) {
    const Result<RunOutcome> outcome = run_cases(device_, plans, suite_protocol(), ceilings_, earlier, stop_, hooks_);
    EXPECT_TRUE(outcome.has_value());
    return *outcome;
  }
  ResultsFile results(const RunOutcome& outcome) const {
    return {facts_of(device_.who, suite_protocol(), "1.0"), false, outcome.records};
  }

  ScriptedDevice device_;
  std::atomic<bool> stop_{false};
  Ceilings ceilings_;
  RunHooks hooks_;
  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(BenchRun, RowsCarryRatesAndTheirCommand) {
  MeasuredCeilings measured;
  measured.library_tflops["fp32"] = {25, "", 0, 0, 0};
  measured.bandwidth_gbs["copy"] = {100, "", 0, 0, 0};
  ceilings_.measured = measured;
  const RunOutcome outcome = run(plans({2048}));
  ASSERT_EQ(outcome.records.size(), 2U);
  const CaseRow& row = outcome.records[1].row;
  EXPECT_EQ(row.regime, Regime::kSustained);
  EXPECT_DOUBLE_EQ(*row.median_us, 100);
  EXPECT_DOUBLE_EQ(*row.tflops, 20) << "2e9 FLOPs in 100 us";
  EXPECT_DOUBLE_EQ(*row.gbs, 10);
  EXPECT_DOUBLE_EQ(*row.intensity, 2000);
  EXPECT_NEAR(*row.of_ceiling_frac, 0.8, 1e-12);
  EXPECT_EQ(row.ceiling_kind, "fp32");
  EXPECT_EQ(row.bound, Bound::kCompute);
  EXPECT_EQ(row.repro, "llmprof bench gemm --m 2048 --n 1024 --k 1024 --dtype fp32 --variant plain --seed 1");
  EXPECT_FALSE(row.of_datasheet_frac.has_value());
}

// A share of more than 100 % is one of a ceiling that is none, and the row says so.
TEST_F(BenchRun, RowsAboveTheirCeilingSaySo) {
  for (const bool disturbed : {false, true}) {
    MeasuredCeilings measured;
    measured.library_tflops["fp32"] = {16, "", 0, {}, {}, false, disturbed};
    measured.bandwidth_gbs["copy"] = {100, ""};
    ceilings_.measured = measured;
    const RunOutcome outcome = run(plans({2048}));
    const CaseRow& row = outcome.records[1].row;
    EXPECT_EQ(row.note, std::string("125 % of the measured ceiling (fp32), which is too low") +
                            (disturbed ? " (measured while disturbed)" : "") + ": repeat `llmprof peaks`");
    BenchResult result = bench_result(results(outcome), device_.who);
    result.ceilings_remark = disturbed_remark(measured);
    const std::string page = render_text(result, {});
    EXPECT_EQ(page.find("fp32: the measured ceiling may be too low") != std::string::npos, disturbed) << page;
    EXPECT_NE(page.find("m=2048 n=1024 k=1024: 125 % of the measured ceiling"), std::string::npos) << page;
  }
}

TEST_F(BenchRun, WhatStaysInTheCacheIsNotHeldAgainstMemory) {
  MeasuredCeilings measured;
  measured.library_tflops["fp32"] = {25, "", 0, 0, 0};
  measured.bandwidth_gbs["read"] = {40, "", 0, 0, 0};
  ceilings_.measured = measured;
  g_op.flops = 1e9;
  g_op.bytes = 8e6;  // 80 GB/s in 100 us
  EXPECT_NEAR(*run(plans({1})).records[1].row.of_ceiling_frac, 2, 1e-9) << "by the memory's rate";
  ceilings_.cache_bytes = int64_t{1} << 40;
  const CaseRow row = run(plans({1})).records[1].row;
  EXPECT_NEAR(*row.of_ceiling_frac, 0.4, 1e-9) << "40 us of arithmetic";
  EXPECT_EQ(row.ceiling_kind, "fp32");
  ceilings_.measured->bandwidth_gbs["cache_read"] = {160, "", 0, 0, 0};
  const CaseRow cached = run(plans({1})).records[1].row;
  EXPECT_NEAR(*cached.of_ceiling_frac, 0.5, 1e-9);
  EXPECT_EQ(cached.ceiling_kind, "cache");
  EXPECT_NEAR(*run(plans({1})).records[0].row.of_ceiling_frac,
              8e6 / 40e9 * 1e6 / *run(plans({1})).records[0].row.median_us, 1e-9)
      << "cold operands come from memory";
}

TEST_F(BenchRun, MemoryAndLatencyBounds) {
  MeasuredCeilings measured;
  measured.library_tflops["fp32"] = {25, "", 0, 0, 0};
  measured.bandwidth_gbs["copy"] = {100, "", 0, 0, 0};
  ceilings_.measured = measured;
  g_op.flops = 1e6;
  g_op.bytes = 8e6;  // 80 us at 100 GB/s
  EXPECT_EQ(run(plans({1})).records[1].row.bound, Bound::kMemory);
  EXPECT_EQ(run(plans({1})).records[1].row.ceiling_kind, "memory, 50 % writes");
  g_op.bytes = 8e4;
  EXPECT_EQ(run(plans({1})).records[1].row.bound, Bound::kLatency);
  ceilings_.measured.reset();
  EXPECT_EQ(run(plans({1})).records[1].row.bound, Bound::kUnknown);
}

TEST_F(BenchRun, CasesThatWereNotTimedHaveARowAndAReason) {
  g_op.unsupported = "it has no such unit";
  const RunOutcome outcome = run(plans({1}));
  ASSERT_EQ(outcome.records.size(), 1U);
  EXPECT_EQ(outcome.records[0].row.status, CaseStatus::kUnsupported);
  EXPECT_EQ(outcome.records[0].row.note, "it has no such unit");
  EXPECT_FALSE(outcome.records[0].timed());
  EXPECT_NE(cases_text(outcome.records, {}).find("it has no such unit"), std::string::npos);
}

TEST_F(BenchRun, InterruptedKeepsWhatIsThereAndResumeDoesTheRest) {
  size_t finished = 0;
  hooks_.done = [&](const std::vector<CaseRecord>&) -> Status {
    stop_ = ++finished == 2;
    return {};
  };
  const RunOutcome part = run(plans({1, 2, 4, 8}));
  EXPECT_TRUE(part.interrupted);
  EXPECT_EQ(part.left, 2U);
  EXPECT_EQ(part.records.size(), 4U) << "two cases of two regimes";
  stop_ = false;
  hooks_.done = [](const std::vector<CaseRecord>&) { return Status(); };
  const RunOutcome rest = run(plans({1, 2, 4, 8}), part.records);
  EXPECT_FALSE(rest.interrupted);
  EXPECT_EQ(rest.taken_over, 2U);
  EXPECT_EQ(rest.measured, 2U);
  ASSERT_EQ(rest.records.size(), 8U);
  EXPECT_EQ(rest.records[0].samples_us, part.records[0].samples_us);
}

// A run that went on with other cases would write its file without these rows.
TEST_F(BenchRun, RowsThatNoPlanHasAreNamedOnceEach) {
  const RunOutcome earlier = run(plans({1, 2, 4}));
  EXPECT_TRUE(rows_of_no_plan(plans({1, 2, 4, 8}), earlier.records).empty());
  const std::vector<std::string> others = rows_of_no_plan(plans({2}), earlier.records);
  ASSERT_EQ(others.size(), 2U) << "two cases, of two regimes each";
  EXPECT_NE(others[0].find("m=1"), std::string::npos) << others[0];
  EXPECT_NE(others[1].find("m=4"), std::string::npos) << others[1];
}

TEST_F(BenchRun, ALostDeviceEndsTheRunAndNamesTheCase) {
  hooks_.begin = [&](const RunProgress& at) { device_.broken = at.done == 1; };
  const RunOutcome outcome = run(plans({1, 2, 4}));
  EXPECT_EQ(outcome.left, 1U);
  EXPECT_NE(outcome.lost.find("--m 2"), std::string::npos) << outcome.lost;
  EXPECT_NE(outcome.lost.find("the device is lost"), std::string::npos);
  EXPECT_EQ(outcome.records.size(), 3U) << "the first case in both regimes, and the row of the second";
  const RunOutcome again = run(plans({1, 2, 4}), outcome.records);
  EXPECT_EQ(again.taken_over, 1U) << "what ended in an error is tried again";
}

TEST_F(BenchRun, TimeLeftComesFromBudgetsAndThenFromTheCases) {
  std::vector<double> left;
  const int64_t start_ns = device_.now_ns();
  int64_t now_ns = 0;
  hooks_.begin = [&](const RunProgress& at) {
    left.push_back(at.left_s);
    now_ns = device_.now_ns();
  };
  run(plans({1, 2, 4}));
  ASSERT_EQ(left.size(), 3U);
  EXPECT_NEAR(left[0], 3 * budget_s(suite_protocol(), device::DeviceKind::kCuda), 1e-9);
  EXPECT_NEAR(left[2], static_cast<double>(now_ns - start_ns) * 1e-9 / 2, 1e-6) << "as long as each of two";
}

TEST_F(BenchRun, ResultsFileRoundTrip) {
  device_.script = [](const std::string&, bool, int64_t i) {
    return device::Sample{100 + static_cast<double>(i % 7), 1500, 0};
  };
  const ResultsFile wrote = results(run(plans({1, 2})));
  const std::string text = render_json(bench_result(wrote, device_.who));
  const Result<ResultsFile> read = parse_results(text, "file");
  ASSERT_TRUE(read.has_value()) << read.error().text();
  EXPECT_EQ(read->facts.device_key, "GPU-1");
  EXPECT_EQ(read->facts.protocol, wrote.facts.protocol);
  ASSERT_EQ(read->records.size(), wrote.records.size());
  for (size_t i = 0; i < read->records.size(); ++i) {
    EXPECT_EQ(read->records[i].key(), wrote.records[i].key());
    EXPECT_EQ(read->records[i].samples_us, wrote.records[i].samples_us);
    EXPECT_EQ(read->records[i].row.median_us, wrote.records[i].row.median_us);
    EXPECT_EQ(read->records[i].row.power_w, std::nullopt);
    EXPECT_EQ(read->records[i].row.repro, wrote.records[i].row.repro);
  }
  EXPECT_EQ(render_json(bench_result(*read, device_.who)), text);
}

TEST_F(BenchRun, JournalSurvivesACutAnywhere) {
  const ResultsFile all = results(run(plans({1, 2, 4})));
  const std::string path = folder_ + "/run.json.partial";
  Result<Journal> journal = Journal::open(path, all.facts, {});
  ASSERT_TRUE(journal.has_value());
  for (const CaseRecord& record : all.records) ASSERT_TRUE(journal->add(record).has_value());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string whole = text.str();
  EXPECT_EQ(parse_results(whole, path)->records.size(), 6U);
  EXPECT_TRUE(parse_results(whole, path)->interrupted);
  size_t last = 0;
  for (size_t length = whole.find('\n') + 1; length <= whole.size(); length += 211) {
    const Result<ResultsFile> part = parse_results(whole.substr(0, length), path);
    ASSERT_TRUE(part.has_value()) << part.error().text();
    EXPECT_GE(part->records.size(), last);
    last = part->records.size();
  }
  journal->remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(BenchRun, DamagedAndForeignResultsSayWhatIsWrong) {
  const std::string good = render_json(bench_result(results(run(plans({1}))), device_.who));
  const auto error_of = [](const std::string& text) {
    const Result<ResultsFile> read = parse_results(text, "old.json");
    EXPECT_FALSE(read.has_value());
    return read ? std::string() : read.error().text();
  };
  const auto replaced = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_NE(error_of("").find("empty"), std::string::npos);
  EXPECT_NE(error_of("x").find("no JSON"), std::string::npos);
  EXPECT_NE(error_of("[]").find("no schema"), std::string::npos);
  EXPECT_NE(error_of(replaced("bench/1", "peaks/1")).find("llmprof.peaks/1"), std::string::npos);
  EXPECT_NE(error_of(replaced("\"median_us\":", "\"median_us\": [], \"x\":")).find("median_us"), std::string::npos);
  EXPECT_NE(error_of(replaced("\"shape\"", "\"form\"")).find("shape"), std::string::npos);
  // Files of earlier versions do not say everything that may be unknown.
  const Result<ResultsFile> older = parse_results(replaced("\"settle_s\"", "\"other\""), "");
  ASSERT_TRUE(older.has_value()) << older.error().text();
  EXPECT_FALSE(older->records[0].row.settle_s.has_value());
  EXPECT_NE(error_of(replaced("\"settled\": true", "\"settled\": 1")).find("settled"), std::string::npos);
  EXPECT_NE(error_of(replaced("\"samples_us\"", "\"samples\"")).find("samples_us"), std::string::npos);
  for (size_t length = 1; length + 2 < good.size(); length += 97)
    EXPECT_FALSE(parse_results(good.substr(0, length), "").has_value());
}

TEST_F(BenchRun, CasesOfAnEarlierRunAreTheSameCases) {
  const RunOutcome outcome = run(plans({1, 2}));
  const Result<std::vector<CasePlan>> again = plans_of({&scripted_gemm(), 1}, outcome.records);
  ASSERT_TRUE(again.has_value());
  ASSERT_EQ(again->size(), 2U);
  EXPECT_EQ(run(*again, outcome.records).taken_over, 2U);
}

TEST_F(BenchRun, RowsSayWhereTheTimeOfTheCaseWent) {
  const int64_t start_ns = device_.now_ns();
  const std::vector<CaseRecord> records = run(plans({1})).records;
  const double spent_s = static_cast<double>(device_.now_ns() - start_ns) * 1e-9;
  ASSERT_EQ(records.size(), 2U);
  for (const CaseRecord& record : records) {
    const CaseRow& row = record.row;
    EXPECT_GT(*row.choose_s, 0);
    EXPECT_GT(*row.settle_s, 0);
    EXPECT_GT(*row.timing_s, 0);
    EXPECT_NEAR(*row.prepare_s, 0, 1e-6);
    EXPECT_NEAR(*row.prepare_s + *row.check_s + *row.choose_s + *row.settle_s + *row.timing_s, spent_s, 1e-6);
  }
  g_op.unsupported = "not here";
  EXPECT_FALSE(run(plans({1})).records[0].row.check_s.has_value());
}

// ---- what is measured on a device that cannot do the usual

kernels::Operation picky() {
  kernels::Operation op = scripted_gemm();
  op.unsupported = [](const device::DeviceIdentity&, const kernels::OpParams& p) -> std::optional<std::string> {
    if (p.variant == "bias" && p.dtype == DType::kBf16) return std::nullopt;
    return "only bias in bf16";
  };
  return op;
}

TEST_F(BenchRun, WithoutAChoiceTheFirstThatTheDeviceHas) {
  const kernels::Operation op = picky();
  Result<CasePlan> plan = plan_case(op, device_.who, DType::kUnknown, "", {{"m", 3}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->params.variant, "bias");
  EXPECT_EQ(plan->params.dtype, DType::kBf16);
  EXPECT_EQ(plan->params.axis("m"), 3);
  EXPECT_EQ(plan->chosen, "gemm in bf16 as bias");
  // What was asked for is not replaced: its row says why it cannot be.
  plan = plan_case(op, device_.who, DType::kFp32, "", {});
  EXPECT_EQ(plan->params.dtype, DType::kFp32);
  EXPECT_EQ(plan->chosen, "");
  plan = plan_case(op, device_.who, DType::kUnknown, "plain", {});
  EXPECT_EQ(plan->params.variant, "plain");
  plan = plan_case(scripted_gemm(), device_.who, DType::kUnknown, "", {});
  EXPECT_EQ(plan->chosen, "") << "the usual is there";
  EXPECT_FALSE(plan_case(op, device_.who, DType::kUnknown, "", {{"hidden", 3}}).has_value());
}

TEST_F(BenchRun, RegistersGetEnoughWorkForAGpuUnlessToldOtherwise) {
  static constexpr kernels::Axis kAxes[] = {{"mflop", 1000, "work", 1'000'000}};
  kernels::Operation op = scripted_gemm();
  op.name = "registers";
  op.axes = kAxes;
  EXPECT_EQ(plan_case(op, device_.who, DType::kUnknown, "", {})->params.axis("mflop"), 1'000'000);
  EXPECT_EQ(plan_case(op, device_.who, DType::kUnknown, "", {{"mflop", 7}})->params.axis("mflop"), 7);
  device_.who.kind = device::DeviceKind::kCpu;
  EXPECT_EQ(plan_case(op, device_.who, DType::kUnknown, "", {})->params.axis("mflop"), 1000);
}

TEST_F(BenchRun, TheSuiteHasItsShapesAndOthersOncePerVariant) {
  kernels::Operation other = scripted_gemm();
  other.name = "something";
  const std::vector<kernels::Operation> operations = {scripted_gemm(), other};
  const std::vector<CasePlan> suite = *default_suite(operations, device_.who, false, 4);
  std::vector<std::string> shapes;
  size_t others = 0;
  for (const CasePlan& plan : suite) {
    EXPECT_EQ(plan.params.seed, 4U);
    others += plan.operation->name == "something";
    shapes.push_back(shape_text(plan.params));
  }
  EXPECT_EQ(others, 2U);
  EXPECT_EQ(suite.size(), 21U) << "19 products in bf16; this operation has no fp8 and no int8";
  EXPECT_EQ(std::count(shapes.begin(), shapes.end(), "m=16 n=28672 k=4096"), 1);
  EXPECT_LT(default_suite(operations, device_.who, true, 1)->size(), 6U);
}

// ---- sweeps

CaseRecord point(int64_t m, double tflops, Bound bound, double of_ceiling) {
  CaseRecord record;
  record.row.name = "gemm";
  record.row.shape = "m=" + std::to_string(m) + " n=64 k=64";
  record.row.dtype = "bf16";
  record.row.regime = Regime::kSustained;
  record.row.tflops = tflops;
  record.row.bound = bound;
  record.row.of_ceiling_frac = of_ceiling;
  return record;
}

TEST(BenchPlateau, SaysWhereWhyAndWhatLiesBelow) {
  const std::vector<CaseRecord> records = {point(256, 99, Bound::kCompute, 0.9), point(1, 2, Bound::kMemory, 0.8),
                                           point(16, 40, Bound::kMemory, 0.8), point(64, 97, Bound::kCompute, 0.86)};
  const std::vector<std::string> sentences = plateau_sentences(records, "m");
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_EQ(sentences[0],
            "gemm n=64 k=64 bf16: throughput plateaus at m 64 (0.98 of the best): compute-bound, 0.86 of the measured "
            "ceiling; below 64 memory-bound");
}

TEST(BenchPlateau, StillRisingFallingAndTooFew) {
  EXPECT_EQ(
      plateau_sentences(
          {point(1, 1, Bound::kMemory, 1), point(2, 2, Bound::kMemory, 1), point(4, 4, Bound::kMemory, 1)}, "m")[0],
      "gemm n=64 k=64 bf16: throughput is still rising at m 4");
  EXPECT_EQ(
      plateau_sentences(
          {point(1, 1, Bound::kMemory, 1), point(2, 4, Bound::kMemory, 1), point(4, 2, Bound::kMemory, 1)}, "m")[0],
      "gemm n=64 k=64 bf16: throughput falls after its best at m 2");
  EXPECT_TRUE(plateau_sentences({point(1, 1, Bound::kMemory, 1), point(2, 2, Bound::kMemory, 1)}, "m").empty());
  EXPECT_TRUE(plateau_sentences({point(1, 1, Bound::kMemory, 1), point(2, 2, Bound::kMemory, 1)}, "batch").empty());
}

// ---- peaks

const kernels::Operation& scripted_memory() {
  static constexpr kernels::Axis kAxes[] = {{"bytes", 1 << 20, "of an array"}};
  static constexpr DType kDtypes[] = {DType::kFp32};
  static constexpr std::string_view kVariants[] = {"copy", "read", "write", "triad"};
  static const kernels::Operation kOperation = [] {
    kernels::Operation op = scripted_gemm();
    op.name = "memory";
    op.ceiling = kernels::Ceiling::kMemory;
    op.axes = kAxes;
    op.dtypes = kDtypes;
    op.variants = kVariants;
    op.cost = [](const kernels::OpParams& p) {
      const double n = static_cast<double>(p.axis("bytes"));
      return kernels::Cost{0,
                           p.variant == "write"   ? 0
                           : p.variant == "triad" ? 2 * n
                                                  : n,
                           p.variant == "read" ? 0 : n, false};
    };
    op.footprint_of = [](const kernels::OpParams& p) { return 3 * p.axis("bytes"); };
    return op;
  }();
  return kOperation;
}

TEST_F(BenchRun, PeaksAreTheBestShapeAndTheCeilingsFollow) {
  device_.script = [](const std::string&, bool, int64_t) { return device::Sample{100'000, 1500, 0}; };
  device_.who.name = "a GPU that no table knows";
  g_op.flops = 2e12;
  const std::vector<kernels::Operation> operations = {scripted_gemm(), scripted_memory()};
  PeaksOptions options;
  options.operations = operations;
  options.quick = true;
  options.time_factor = 0.01;
  options.dtypes = {DType::kBf16};
  std::vector<std::string> order;
  const Result<Peaks> peaks =
      measure_peaks(device_, options, stop_, [&](const PeakRow& row) { order.push_back(row.name); });
  ASSERT_TRUE(peaks.has_value());
  EXPECT_EQ(order, (std::vector<std::string>{"bf16", "read", "write", "copy", "triad", "cache_read"}));
  const MeasuredCeilings ceilings = ceilings_of(*peaks);
  EXPECT_NEAR(ceilings.library_tflops.at("bf16").value, 20, 1e-9);
  const double bytes = static_cast<double>(int64_t{1} << 30);
  EXPECT_NEAR(ceilings.bandwidth_gbs.at("triad").value, 3 * bytes / 1e8, 1e-6) << "the convention: 2 read, 1 written";
  EXPECT_NEAR(*measured_ridge(ceilings, "bf16"), 20e12 / (3 * bytes * 10), 1e-6);
  const PeaksResult tables = peaks_result(*peaks, "1.0");
  ASSERT_EQ(tables.ridge.size(), 1U) << "no data sheet, no second ridge";
  EXPECT_FALSE(tables.flops[0].of_datasheet_frac.has_value());
  EXPECT_NE(render_text(peaks_result(*peaks, "1.0"), {}).find("measured"), std::string::npos);
  EXPECT_NE(render_json(peaks_result(*peaks, "1.0")).find("\"llmprof.peaks/1\""), std::string::npos);
}

TEST_F(BenchRun, PeaksOfAKnownGpuHaveBothRidgesAndDoubtAboveTheSheet) {
  device_.script = [](const std::string&, bool, int64_t) { return device::Sample{100'000, 1830, 0}; };
  device_.who.name = "NVIDIA H200";
  device_.who.units = 132;
  device_.who.memory_bytes = int64_t{150'000'000'000};
  const std::vector<kernels::Operation> operations = {scripted_gemm(), scripted_memory()};
  PeaksOptions options;
  options.operations = operations;
  options.quick = true;
  options.time_factor = 0.01;
  options.dtypes = {DType::kBf16};
  g_op.flops = 70e12;  // 700 TFLOP/s
  Result<Peaks> peaks = measure_peaks(device_, options, stop_, [](const PeakRow&) {});
  PeaksResult tables = peaks_result(*peaks, "1.0");
  ASSERT_EQ(tables.ridge.size(), 2U);
  EXPECT_EQ(tables.ridge[1].provenance, PeakSource::kDatasheet);
  EXPECT_NEAR(*tables.ridge[1].flop_per_byte, 989.4e12 / 4.8e12, 1);
  EXPECT_NEAR(*tables.flops[0].of_datasheet_frac, 0.7075, 0.001);
  EXPECT_NEAR(*tables.flops[0].of_clock_frac, 0.7075, 0.01);
  g_op.flops = 120e12;  // more than it can do
  peaks = measure_peaks(device_, options, stop_, [](const PeakRow&) {});
  EXPECT_EQ(ceilings_of(*peaks).library_tflops.count("bf16"), 0U);
  bool said = false;
  for (const std::string& remark : peaks->remarks) said |= remark.find("above-datasheet") == 0;
  EXPECT_TRUE(said);
}

TEST_F(BenchRun, RegistersUnderTheLibraryAreNotTheUnitsLimit) {
  static constexpr kernels::Axis kAxes[] = {{"mflop", 1000, "work"}};
  kernels::Operation registers = scripted_gemm();
  registers.name = "registers";
  registers.ceiling = kernels::Ceiling::kRegisters;
  registers.axes = kAxes;
  registers.footprint_of = [](const kernels::OpParams&) -> int64_t { return 4096; };
  const std::vector<kernels::Operation> operations = {scripted_gemm(), scripted_memory(), registers};
  PeaksOptions options;
  options.operations = operations;
  options.quick = true;
  options.time_factor = 0.01;
  options.dtypes = {DType::kBf16};
  g_op.flops = 2e12;
  for (const bool below : {true, false}) {
    // The library comes first, the registers row next.
    bool library = true;
    device_.script = [&](const std::string&, bool, int64_t) {
      return device::Sample{library ? 10'000.0 : below ? 12'000.0 : 9'000.0, 1500, 0};
    };
    const Result<Peaks> peaks = measure_peaks(device_, options, stop_, [&](const PeakRow&) { library = false; });
    const MeasuredCeilings ceilings = ceilings_of(*peaks);
    EXPECT_EQ(ceilings.unit_tflops.count("bf16"), below ? 0U : 1U);
    const std::string page = render_text(peaks_result(*peaks, "1.0"), {});
    EXPECT_EQ(page.find("not the unit's limit") != std::string::npos, below);
    EXPECT_EQ(page.find("registers reach more than the library's best product (bf16 1.11 times): ridge points") !=
                  std::string::npos,
              !below)
        << page;
    EXPECT_TRUE(ceilings.library_tflops.at("bf16").quick);
  }
}

int g_products = 0;  // measured so far

// Other programs can only slow a CPU down: a ceiling under what a short look has reached is none.
TEST_F(BenchRun, ACeilingOfABusyCpuIsTakenAgain) {
  kernels::Operation gemm = scripted_gemm(), memory = scripted_memory();
  gemm.prepare_cpu = [](device::Device& device, const kernels::OpParams& params) {
    ++g_products;
    return prepare_scripted(device, params);
  };
  memory.prepare_cpu = prepare_scripted;
  const std::vector<kernels::Operation> operations = {gemm, memory};
  device_.who.kind = device::DeviceKind::kCpu;
  PeaksOptions options;
  options.operations = operations;
  options.dtypes = {DType::kBf16};
  constexpr int kShapes = 3;
  for (const int disturbed : {0, 1, 2, 9}) {
    g_products = 0;
    device_.script = [&](const std::string&, bool, int64_t) {
      const bool slow = g_products > kShapes && g_products <= kShapes + disturbed;
      return device::Sample{slow ? 150.0 : 100.0, 1500, 0};
    };
    int products = 0;
    const Result<Peaks> peaks = measure_peaks(device_, options, stop_, [&](const PeakRow& row) {
      if (row.group == PeakGroup::kFlops) products = g_products;
    });
    ASSERT_TRUE(peaks.has_value());
    EXPECT_EQ(products, kShapes + std::min(disturbed + 1, 4)) << disturbed;
    EXPECT_DOUBLE_EQ(ceilings_of(*peaks).library_tflops.at("bf16").value, 20) << disturbed;
  }
}

int g_runs = 0;  // of the memory kernels

// The first run has others on its cores: bandwidths, too, are taken again, and what no turn is free of is said.
TEST_F(BenchRun, BandwidthsOfABusyCpuAreTakenAgain) {
  kernels::Operation gemm = scripted_gemm(), memory = scripted_memory();
  gemm.prepare_cpu = prepare_scripted;
  memory.prepare_cpu = [](device::Device& device, const kernels::OpParams& params) {
    ++g_runs;
    return prepare_scripted(device, params);
  };
  const std::vector<kernels::Operation> operations = {gemm, memory};
  device_.who.kind = device::DeviceKind::kCpu;
  device_.who.cache_bytes = 0;
  PeaksOptions options;
  options.operations = operations;
  options.dtypes = {DType::kBf16};
  double quiet = 0;
  for (const bool always : {false, true}) {
    g_runs = 0;
    device_.script = [&](const std::string&, bool, int64_t) {
      return g_runs == 1 || (always && g_runs > 0) ? device::Sample{150, 1500, 0, 60} : device::Sample{100, 1500, 0, 0};
    };
    const Result<Peaks> peaks = measure_peaks(device_, options, stop_, [](const PeakRow&) {});
    ASSERT_TRUE(peaks.has_value());
    const MeasuredCeilings ceilings = ceilings_of(*peaks);
    const MeasuredRate read = ceilings.bandwidth_gbs.at("read");
    EXPECT_DOUBLE_EQ(read.value, ceilings.bandwidth_gbs.at("write").value) << "not the first run, which was slow";
    EXPECT_EQ(read.disturbed, always);
    if (!always) quiet = read.value;
    EXPECT_DOUBLE_EQ(read.value, always ? quiet / 1.5 : quiet);
    EXPECT_EQ(
        render_text(peaks_result(*peaks, "1.0"), {}).find("disturbed: in 4 of 5 rows threads waited for a core") !=
            std::string::npos,
        always)
        << render_text(peaks_result(*peaks, "1.0"), {});
  }
}

TEST_F(BenchRun, InterruptedPeaksKeepTheirRows) {
  const std::vector<kernels::Operation> operations = {scripted_gemm(), scripted_memory()};
  PeaksOptions options;
  options.operations = operations;
  options.quick = true;
  options.time_factor = 0.01;
  options.dtypes = {DType::kBf16};
  const Result<Peaks> peaks = measure_peaks(device_, options, stop_, [&](const PeakRow&) { stop_ = true; });
  EXPECT_TRUE(peaks->interrupted);
  EXPECT_EQ(peaks->rows.size(), 1U);
  EXPECT_EQ(ceilings_of(*peaks).library_tflops.size(), 1U);
}

}  // namespace
}  // namespace llmprof::bench
