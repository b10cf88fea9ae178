// Figures of rows: copies against their links, operands in a cache, occupancy, the arithmetic a program is held
// against.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "analyze/occupancy.h"
#include "analyze/roof.h"
#include "analyze_recording.h"
#include "import/importer.h"
#include "temporary_folder.h"

namespace llmprof {
namespace {

const KernelRecord& kernel_of(const Report& report, std::string_view name) {
  static const KernelRecord kNone;
  for (const KernelRecord& row : report.kernels_topk)
    if (row.name == name) return row;
  ADD_FAILURE() << "no kernel " << name;
  return kNone;
}

const DiagnosticRecord* diagnostic_of(const Report& report, std::string_view key) {
  for (const DiagnosticRecord& row : report.diagnostics)
    if (name_of(row.key) == key) return &row;
  return nullptr;
}

MeasuredCeilings ceilings_of(const std::string& name) {
  MeasuredCeilings ceilings;
  ceilings.device_key = ceilings.name = name;
  ceilings.unix_s = 1'763'700'000;
  return ceilings;
}

AnalyzeOptions given(const MeasuredCeilings& ceilings) {
  AnalyzeOptions options;
  options.measured = {ceilings};
  options.measured_given = true;
  return options;
}

// 55 MB in 1 ms by aten::copy_, whose operand is read once and written once.
AnalyzedRecording copying_run(std::string_view name) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  const Row step = run.step(StageKind::kDecode, 0, 10 * kMs);
  const Row op = run.op("aten::copy_", 0, 1000);
  const Row copy = run.gpu(name, Category::kCopy, 0, kMs,
                           {.step = step,
                            .op = op,
                            .work = run.work(WorkKind::kPointwise, DType::kBf16, 0, 110e6),
                            .kind = GpuOpKind::kMemcpy});
  run.trace.gpu_ops.bytes[copy] = 55'000'000;
  run.busy(0, kMs);
  run.gap(IdleCause::kUnknown, kMs, 9 * kMs, step);
  return run;
}

TEST(Copies, OverALinkCountEachByteOnceAndAreHeldAgainstIt) {
  MeasuredCeilings ceilings = ceilings_of("NVIDIA H200");
  ceilings.bandwidth_gbs["h2d"] = {55.2, "pinned"};
  ceilings.bandwidth_gbs["d2h"] = {50.0, "pinned"};
  ceilings.bandwidth_gbs["read"] = {4584, "own"};
  const AnalyzedRecording run = copying_run("Memcpy HtoD (Pinned -> Device)");
  const Report report = report_of(run, given(ceilings));
  const KernelRecord& row = kernel_of(report, "Memcpy HtoD (Pinned -> Device)");
  EXPECT_DOUBLE_EQ(*row.bytes, 55e6);
  EXPECT_DOUBLE_EQ(*row.gbs, 55);
  EXPECT_NEAR(*row.of_roof_frac, 55 / 55.2, 1e-12);
  EXPECT_EQ(row.bound, Bound::kCopy);
  ASSERT_EQ(report.roofline.size(), 1U);
  EXPECT_NEAR(*report.roofline[0].peak_gbs, 55.2, 1e-9);
  EXPECT_FALSE(report.roofline[0].ridge);
  EXPECT_NEAR(*report.roofline[0].gain_ms, 1 - 55 / 55.2, 1e-9);
  ASSERT_EQ(report.categories.size(), 1U);
  EXPECT_DOUBLE_EQ(*report.categories[0].bytes, 55e6);
  EXPECT_NEAR(*report.categories[0].of_roof_frac, 55 / 55.2, 1e-12);
  ASSERT_EQ(report.operators.size(), 1U);
  EXPECT_DOUBLE_EQ(*report.operators[0].memory_bytes, 55e6);

  // By the data sheet: PCIe 5.0 x16 gives 64 GB/s each way.
  const Report sheet = report_of(run);
  EXPECT_NEAR(*kernel_of(sheet, "Memcpy HtoD (Pinned -> Device)").of_roof_frac, 55.0 / 64, 1e-12);
  const KernelRecord back = kernel_of(report_of(copying_run("Memcpy DtoH (Device -> Pageable)"), given(ceilings)),
                                      "Memcpy DtoH (Device -> Pageable)");
  EXPECT_NEAR(*back.of_roof_frac, 55.0 / 50, 1e-12) << "the other way has a rate of its own";
}

TEST(Copies, WithoutAKnownLinkThereIsNoRoof) {
  AnalyzedRecording run = copying_run("Memcpy HtoD (Pinned -> Device)");
  run.trace.devices.name[0] = run.trace.strings.intern("An unknown GPU");
  const KernelRecord row = kernel_of(report_of(run), "Memcpy HtoD (Pinned -> Device)");
  EXPECT_DOUBLE_EQ(*row.gbs, 55);
  EXPECT_FALSE(row.of_roof_frac);
  // A bridge between two cards need not be plugged in.
  AnalyzedRecording peer = copying_run("Memcpy PtoP (Device -> Device)");
  EXPECT_NEAR(*kernel_of(report_of(peer), "Memcpy PtoP (Device -> Device)").of_roof_frac, 55.0 / 450, 1e-12);
  peer.trace.devices.name[0] = peer.trace.strings.intern("NVIDIA A100-PCIE-40GB");
  peer.trace.devices.sm_count[0] = 108;
  peer.trace.devices.compute_major[0] = 8;
  peer.trace.devices.memory_bytes[0] = 42'405'855'232;
  const Report bridged = report_of(peer);
  EXPECT_EQ(bridged.device->sku, "A100-PCIe-40GB");
  EXPECT_FALSE(kernel_of(bridged, "Memcpy PtoP (Device -> Device)").of_roof_frac);
}

TEST(Copies, InsideTheDeviceReadAndWriteItsMemory) {
  const KernelRecord row =
      kernel_of(report_of(copying_run("Memcpy DtoD (Device -> Device)")), "Memcpy DtoD (Device -> Device)");
  EXPECT_DOUBLE_EQ(*row.bytes, 110e6);
  EXPECT_NEAR(*row.of_roof_frac, 110.0 / 4800, 1e-12);
}

// A copy of 8 ms on a stream of its own beside kernels of 1 ms: those that start meanwhile do not wait for it.
TEST(Copies, WhatRunsBesideKernelsHoldsUpNobody) {
  for (const bool beside : {true, false}) {
    AnalyzedRecording run;
    const Row other = run.add_stream(0);
    run.window(0, 10 * kMs);
    const Row step = run.step(StageKind::kDecode, 0, 10 * kMs);
    run.gpu("Memcpy HtoD (Pinned -> Device)", Category::kCopy, 0, 8 * kMs,
            {.step = step, .stream = other, .kind = GpuOpKind::kMemcpy});
    for (int k = 0; k < 5; ++k)
      run.gpu("gemm", Category::kGemm, (beside ? 2 * k : 8) * kMs + k * 200'000, beside ? kMs : 200'000,
              {.step = step});
    run.busy(0, 10 * kMs);
    const Report report = report_of(run);
    const Finding* finding = finding_of(report, "copy-bound");
    ASSERT_EQ(finding != nullptr, !beside);
    const StageTiming* decode = stage_of(report, "decode");
    EXPECT_EQ(decode->bound == Bound::kCopy, !beside);
    bool explained = false;
    for (const CannotTell& row : report.cannot_tell) explained |= row.question == "What limits decode?";
    EXPECT_EQ(explained, beside);
    if (!beside) {
      EXPECT_DOUBLE_EQ(*finding->evidence[0].value, 8);
    }
  }
}

// 8 of 10 ms in copies, of which a kernel of another stream hides the first 5.
TEST(Copies, TheFindingSaysWhichShareIsOfWhat) {
  AnalyzedRecording run;
  const Row other = run.add_stream(0);
  run.window(0, 10 * kMs);
  const Row step = run.step(StageKind::kDecode, 0, 10 * kMs);
  run.gpu("Memcpy HtoD (Pinned -> Device)", Category::kCopy, 0, 8 * kMs,
          {.step = step, .stream = other, .kind = GpuOpKind::kMemcpy});
  run.gpu("gemm", Category::kGemm, 1 * kMs, 4 * kMs, {.step = step});
  run.busy(0, 8 * kMs);
  run.gap(IdleCause::kUnknown, 8 * kMs, 2 * kMs, step);
  const Report report = report_of(run);
  const Finding* finding = finding_of(report, "copy-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title, "decode: copies that no kernel hides take 30.0 % of the time of a step");
  const auto value = [&](std::string_view metric) {
    for (const Evidence& row : finding->evidence)
      if (row.metric == metric) return row.value.value_or(-1);
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(value("copies on the GPU that no kernel hides per step"), 3);
  EXPECT_DOUBLE_EQ(value("all copies on the GPU per step"), 8);
  EXPECT_DOUBLE_EQ(value("all copies, hidden ones too, over the time"), 0.8);
}

TEST(Copies, FindingsSayTheLinksRate) {
  const Report report = report_of(copying_run("Memcpy HtoD (Pageable -> Device)"));
  const Finding* finding = finding_of(report, "pageable-copy");
  ASSERT_NE(finding, nullptr);
  const auto rate = std::find_if(finding->evidence.begin(), finding->evidence.end(),
                                 [](const Evidence& evidence) { return evidence.unit == Unit::kGbs; });
  ASSERT_NE(rate, finding->evidence.end());
  EXPECT_EQ(rate->metric, "rate from host to device, of 64 GB/s of the link");
  EXPECT_DOUBLE_EQ(*rate->value, 55);
}

// One product of a step again and again: 1 x 1024 x 1024 in FP32 on a CPU, 4 MiB of weights, in `ns` each.
AnalyzedRecording cpu_run(int64_t n, int64_t ns) {
  AnalyzedRecording run;
  run.trace.devices.kind[0] = ProcessorKind::kCpu;
  run.trace.devices.name[0] = run.trace.strings.intern("Some CPU");
  run.window(0, 100 * kMs);
  const Row step = run.step(StageKind::kDecode, 0, 100 * kMs);
  run.gpu("gemv", Category::kGemm, 0, ns, {.step = step, .work = run.gemm(DType::kFp32, 1, n, 1024)});
  run.busy(0, ns);
  run.gap(IdleCause::kUnknown, ns, 100 * kMs - ns, step);
  return run;
}

MeasuredCeilings cpu_ceilings() {
  MeasuredCeilings ceilings = ceilings_of("Some CPU");
  ceilings.library_tflops["fp32"] = {0.5, "own"};
  ceilings.bandwidth_gbs["read"] = {20, "own"};
  ceilings.bandwidth_gbs["copy"] = {30, "own"};
  ceilings.cache_bytes = 32 << 20;
  return ceilings;
}

TEST(Roofs, ProductsAreHeldAgainstReading) {
  const int64_t n = 64 << 10;  // 256 MiB of weights
  const double bytes = 4.0 * (1024.0 * static_cast<double>(n) + 1024 + static_cast<double>(n));
  const AnalyzedRecording run = cpu_run(n, 20 * kMs);
  const KernelRecord row = kernel_of(report_of(run, given(cpu_ceilings())), "gemv");
  const double weights = 4.0 * 1024 * static_cast<double>(n);
  const double writes =
      4.0 * static_cast<double>(n) / bytes;  // read at 20, copied at 30 GB/s; half of a copy is written
  EXPECT_NEAR(*row.of_roof_frac, weights / (20 + 10 * writes / 0.5) / 20e6, 1e-9);
  EXPECT_EQ(row.bound, Bound::kMemory);
}

TEST(Roofs, WhatLiesInTheCacheIsNotHeldAgainstMemory) {
  // 4 MiB of weights, read at 42 GB/s: twice of what memory gives.
  const AnalyzedRecording run = cpu_run(1024, 100'000);
  MeasuredCeilings ceilings = cpu_ceilings();
  const KernelRecord bare = kernel_of(report_of(run, given(ceilings)), "gemv");
  EXPECT_NEAR(*bare.of_roof_frac, 2.0 * 1024 * 1024 / 0.5e12 / 100e-6, 1e-9) << "arithmetic alone";
  EXPECT_EQ(bare.bound, Bound::kLatency);
  ceilings.bandwidth_gbs["cache_read"] = {60, "own"};
  const KernelRecord cached = kernel_of(report_of(run, given(ceilings)), "gemv");
  EXPECT_NEAR(*cached.of_roof_frac, 4.0 * (1024 * 1024 + 2048) / 60e9 / 100e-6, 1e-9);
  EXPECT_EQ(cached.bound, Bound::kMemory);
  // A file of an earlier version does not tell the size of the cache; the rate tells that memory is not the roof.
  ceilings = cpu_ceilings();
  ceilings.cache_bytes = 0;
  const KernelRecord faster = kernel_of(report_of(run, given(ceilings)), "gemv");
  EXPECT_FALSE(faster.of_roof_frac);
  EXPECT_EQ(faster.bound, Bound::kMemory);
}

// A step of 128 MiB on a CPU with a cache of 32: a quarter may have been kept, the rest came from memory.
TEST(Roofs, WhatTheCacheCannotKeepIsHeldAgainstMemory) {
  const int64_t n = 32 << 10;
  const double bytes = 4.0 * (1024.0 * static_cast<double>(n) + 1024 + static_cast<double>(n));
  MeasuredCeilings ceilings = cpu_ceilings();
  ceilings.bandwidth_gbs.erase("copy");
  ceilings.bandwidth_gbs["cache_read"] = {70, "own"};
  const auto share_of = [&](double gbs, double& value) {
    const Report report = report_of(cpu_run(n, static_cast<int64_t>(bytes / gbs)), given(ceilings));
    const Finding* finding = finding_of(report, "memory-bound-weights");
    for (const Evidence& row : finding->evidence)
      if (row.metric.starts_with("share of the measured")) {
        value = *row.value;
        return row.metric;
      }
    return std::string();
  };
  double share = 0;
  EXPECT_EQ(share_of(18, share), "share of the measured 20 GB/s of memory");
  EXPECT_NEAR(share, 0.9, 1e-3);
  EXPECT_EQ(share_of(24, share),
            "share of the measured 20 GB/s of memory, for the 74.9 % of the bytes that the cache cannot keep");
  EXPECT_NEAR(share, 0.75 * 24 / 20, 1e-3);
  EXPECT_EQ(share_of(40, share), "share of the measured 20 GB/s of memory, which is exceeded: it was measured too low");
  EXPECT_NEAR(share, 2, 1e-3);
}

// Measured while others had the cores: what ran faster than it shows that it is no ceiling, and a CPU has no other.
TEST(Roofs, ACeilingThatTheProgramExceedsIsDropped) {
  AnalyzedRecording run;
  run.trace.devices.kind[0] = ProcessorKind::kCpu;
  run.trace.devices.name[0] = run.trace.strings.intern("Some CPU");
  const int64_t ns = static_cast<int64_t>(2.0 * 512 * 4096 * 4096 / 1.3e12 * 1e9);  // at 2.6 times the ceiling
  run.window(0, ns);
  const Row step = run.step(StageKind::kPrefill, 0, ns, 512, 512);
  run.gpu("gemm", Category::kGemm, 0, ns, {.step = step, .work = run.gemm(DType::kFp32, 512, 4096, 4096)});
  run.busy(0, ns);
  const Report report = report_of(run, given(cpu_ceilings()));
  EXPECT_FALSE(stage_of(report, "prefill")->mfu);
  EXPECT_FALSE(kernel_of(report, "gemm").of_roof_frac);
  EXPECT_FALSE(report.device->peak_of(DType::kFp32));
  bool explained = false;
  for (const DiagnosticRecord& row : report.diagnostics)
    explained |= name_of(row.key) == "above-ceiling" && row.text.find("which is not used") != std::string::npos;
  EXPECT_TRUE(explained);
}

// Ceilings that were measured while others had the cores are perhaps too low: the header says so, and a row that is
// above one is named.
TEST(Roofs, RowsAboveADisturbedCeilingAreNamed) {
  const AnalyzedRecording run = cpu_run(64 << 10, 8'700'000);
  for (const bool disturbed : {false, true}) {
    MeasuredCeilings ceilings = cpu_ceilings();
    ceilings.bandwidth_gbs["read"].value = 30;
    ceilings.bandwidth_gbs["read"].disturbed = disturbed;
    const Report report = report_of(run, given(ceilings));
    EXPECT_NEAR(*kernel_of(report, "gemv").of_roof_frac, 1.028, 0.001);
    std::string said, remarks;
    for (const DiagnosticRecord& row : report.diagnostics)
      if (name_of(row.key) == "above-ceiling") said += row.text;
    for (const std::string& remark : report.device->remarks) remarks += remark;
    EXPECT_EQ(said.find("gemv") != std::string::npos, disturbed) << "runs differ by as much";
    EXPECT_EQ(said.find("in decode: 103 % of its roof") != std::string::npos, disturbed) << said;
    EXPECT_EQ(remarks.find("read: the measured ceiling may be too low (measured while disturbed: repeat "
                           "`llmprof peaks`)") != std::string::npos,
              disturbed)
        << remarks;
  }
}

// A copy above what its link was measured to give: no product of any type says so.
TEST(Roofs, ACopyAboveItsMeasuredLinkIsNamed) {
  const AnalyzedRecording run = copying_run("Memcpy HtoD (Pageable -> Device)");
  MeasuredCeilings ceilings = ceilings_of("NVIDIA H200");
  ceilings.bandwidth_gbs["h2d"] = {20, "256 MB"};
  const Report report = report_of(run, given(ceilings));
  std::string said;
  for (const DiagnosticRecord& row : report.diagnostics)
    if (name_of(row.key) == "above-ceiling") said += row.text;
  EXPECT_NE(said.find("Memcpy HtoD (Pageable -> Device)"), std::string::npos) << said;
}

TEST(Roofs, AStepWhoseWeightsStayInTheCacheUsesNoBandwidthOfMemory) {
  // One step of 100 us.
  const auto run_of = [](int64_t n) {
    AnalyzedRecording run = cpu_run(n, 100'000);
    run.trace.windows[0].end_ns = run.trace.steps.end_ns[0] = 100'000;
    run.trace.gaps.resize(0);
    return run;
  };
  const Report small = report_of(run_of(1024), given(cpu_ceilings()));
  const StageTiming* decode = stage_of(small, "decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_FALSE(decode->mbu) << "42 GB/s of a memory that gives 30";
  EXPECT_NEAR(*decode->roof_tflops, 0.5, 1e-9);
  EXPECT_LT(*decode->of_roof_frac, 1);
  EXPECT_TRUE(stage_of(report_of(run_of(64 << 10), given(cpu_ceilings())), "decode")->mbu);
}

TEST(Roofs, PassesOverOperandsInTheL2HaveNoRoofOfMemory) {
  AnalyzedRecording run;
  run.window(0, kMs);
  const Row step = run.step(StageKind::kDecode, 0, kMs);
  const auto add = [&](const char* name, double bytes, int64_t start, int64_t ns) {
    run.gpu(name, Category::kElementwise, start, ns,
            {.step = step, .work = run.work(WorkKind::kPointwise, DType::kBf16, bytes / 6, bytes)});
    run.busy(start, start + ns);
  };
  add("small", 24e6, 0, 4'000);  // 6,000 GB/s
  add("large", 240e6, 100'000, 100'000);
  add("slow", 24e6, 300'000, 500'000);
  run.gap(IdleCause::kUnknown, 4'000, 96'000, step);
  run.gap(IdleCause::kUnknown, 200'000, 100'000, step);
  run.gap(IdleCause::kUnknown, 800'000, 200'000, step);
  const Report report = report_of(run);
  EXPECT_FALSE(kernel_of(report, "small").of_roof_frac);
  EXPECT_EQ(kernel_of(report, "small").bound, Bound::kMemory);
  EXPECT_NEAR(*kernel_of(report, "large").of_roof_frac, 0.5, 1e-9);
  EXPECT_FALSE(kernel_of(report, "slow").of_roof_frac);
  EXPECT_EQ(kernel_of(report, "slow").bound, Bound::kLatency)
      << "a hundredth of what memory gives, so of any cache too";
  MeasuredCeilings ceilings = ceilings_of("NVIDIA H200");
  ceilings.bandwidth_gbs["read"] = {4500, "own"};
  ceilings.bandwidth_gbs["cache_read"] = {8000, "own"};
  EXPECT_NEAR(*kernel_of(report_of(run, given(ceilings)), "small").of_roof_frac, 0.75, 1e-9);
}

// The recording lists the GPUs of its machine: what recording costs was measured on another one of them, or elsewhere.
TEST(Ceilings, CostsOfTheRecorderAreThoseOfAnEqualGpuInTheMachine) {
  AnalyzedRecording run = copying_run("Memcpy DtoD (Device -> Device)");
  run.trace.devices.uuid[0] = run.trace.strings.intern("GPU-1");
  run.trace.metadata["gpus.0.uuid"] = "GPU-0";
  run.trace.metadata["gpus.1.uuid"] = "GPU-1";
  AnalyzeOptions options;
  for (const char* const uuid : {"GPU-0", "GPU-7"}) {
    MeasuredCeilings& one = options.measured.emplace_back(ceilings_of("NVIDIA H200"));
    one.device_key = one.uuid = uuid;
    one.recorder_ns["wait"] = {100, 200, 150, 0, 0};
  }
  options.measured[1].recorder_ns["wait"].plain_ns = 99;
  Result<Report> found = analyze(run.trace, options);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->device->recorder_ns.count("wait"), 1U);
  EXPECT_EQ(found->device->recorder_ns.at("wait").plain_ns, 100);
  options.measured.erase(options.measured.begin());
  found = analyze(run.trace, options);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->device->recorder_ns.empty()) << "of another machine";
}

TEST(Roofs, BytesThatTheHardwareCannotMoveAreNotTheKernels) {
  AnalyzedRecording run;
  run.window(0, kMs);
  const Row step = run.step(StageKind::kDecode, 0, kMs);
  const auto add = [&](const char* name, double bytes, int64_t start, int64_t ns) {
    run.gpu(name, Category::kElementwise, start, ns,
            {.step = step, .work = run.work(WorkKind::kPointwise, DType::kBf16, bytes / 6, bytes)});
    run.busy(start, start + ns);
  };
  add("beyond the L2", 2e9, 0, 100'000);        // 20 TB/s; at most 60 MB of it can come from the cache
  add("beyond the SMs", 50e6, 200'000, 1'000);  // 50 TB/s; 132 SMs at 128 bytes and 1.98 GHz take 33
  add("from the L2", 24e6, 300'000, 4'000);     // 6 TB/s
  run.gap(IdleCause::kUnknown, 100'000, 100'000, step);
  run.gap(IdleCause::kUnknown, 201'000, 99'000, step);
  run.gap(IdleCause::kUnknown, 304'000, 696'000, step);
  const Report report = report_of(run);
  EXPECT_FALSE(kernel_of(report, "beyond the L2").gbs);
  EXPECT_FALSE(kernel_of(report, "beyond the SMs").gbs);
  EXPECT_NEAR(*kernel_of(report, "from the L2").gbs, 6000, 1e-9);
  ASSERT_EQ(report.roofline.size(), 1U);
  EXPECT_EQ(report.roofline[0].name, "from the L2");
}

TEST(Roofs, BytesThatComeFromMemoryWhateverTheCacheKeeps) {
  AnalyzedRecording run;
  const Row gemm = run.gemm(DType::kBf16, 1, 1024, 1024);
  const Row attention = run.work(WorkKind::kAttention, DType::kBf16, 1, 5000);
  run.trace.works.kv_bytes[attention] = 4000;
  run.trace.works.m[attention] = 1;
  run.trace.works.n[attention] = 4;
  const Works& works = run.trace.works;
  StageGroup stage;
  stage.steps.resize(2);
  stage.weight_bytes = 2 * 40e6;
  EXPECT_EQ(bytes_from_memory(works, gemm, stage, 50e6), 0) << "40 MB a step stay";
  stage.weight_bytes = 2 * 60e6;
  EXPECT_EQ(bytes_from_memory(works, gemm, stage, 50e6), 2 * 1024 * 1024);
  EXPECT_EQ(bytes_from_memory(works, attention, stage, 50e6), 3000) << "three of four keys are old";
  EXPECT_NEAR(bytes_from_memory(works, gemm, stage, 50e6, CacheKeeps::kAllItCan), 2.0 * 1024 * 1024 / 6, 1e-6);
  EXPECT_EQ(bytes_from_memory(works, attention, stage, 500, CacheKeeps::kAllItCan), 4000) << "500 of each part stay";
  EXPECT_EQ(bytes_from_memory(works, attention, stage, 500), 5000) << "more than the cache holds";
}

TEST(Occupancy, ARecordedZeroIsNotTaken) {
  AnalyzedRecording run;
  const Row config = run.config(128, 384);
  run.trace.launch_configs.registers_per_thread[config] = 168;
  run.trace.launch_configs.shared_bytes[config] = 213'188;
  run.trace.launch_configs.occupancy_frac[config] = 0;
  const Occupancy computed = occupancy_of(run.trace, config, 0);
  EXPECT_DOUBLE_EQ(*computed.theoretical, 12.0 / 64);
  EXPECT_DOUBLE_EQ(*computed.frac, 128.0 / 132 * 12 / 64) << "one block for each of 128 of 132 SMs";
  EXPECT_EQ(computed.provenance, Provenance::kComputed);
  run.trace.launch_configs.occupancy_frac[config] = 0.18F;
  EXPECT_EQ(occupancy_of(run.trace, config, 0).provenance, Provenance::kRecorded);
  run.trace.launch_configs.occupancy_frac[config] = 0;
  run.trace.devices.compute_major[0] = 3;
  EXPECT_FALSE(occupancy_of(run.trace, config, 0).frac) << "a part whose limits are not known";
  EXPECT_EQ(occupancy_of(run.trace, config, 0).provenance, std::nullopt);
  EXPECT_FALSE(occupancy_of(run.trace, config, 1).frac) << "a device that is not described";
}

// Kineto computes with CUDA's own header and writes whole percents; blocks of more than 48 KiB of shared memory are 0.
TEST(Occupancy, EqualsWhatKinetoRecorded) {
  int compared = 0, unknown = 0;
  for (const char* name : {"kineto_llama-3.1-8b_unlabelled", "kineto_qwen2.5-0.5b_cuda_graph", "mixture_of_experts",
                           "vision_language", "two_streams"}) {
    Result<Trace> trace = import_files({std::string(LLMPROF_TEST_DATA) + "/golden/inputs/" + name + ".json.gz"});
    ASSERT_TRUE(trace) << trace.error().text();
    LaunchConfigs& configs = trace->launch_configs;
    for (Row c = 0; c < configs.size(); ++c) {
      const float recorded = configs.occupancy_frac[c];
      configs.occupancy_frac[c] = 0;
      const Occupancy computed = occupancy_of(*trace, c, 0);
      ASSERT_TRUE(computed.frac) << name << " row " << c;
      if (configs.shared_bytes[c] > 48 * 1024) {
        EXPECT_EQ(recorded, 0) << name << " row " << c;
        EXPECT_GT(*computed.frac, 0) << name << " row " << c;
        ++unknown;
        continue;
      }
      // It counts threads, not warps, where the last warp is not full.
      const double threads = static_cast<double>(configs.block_x[c] * configs.block_y[c] * configs.block_z[c]);
      const double full = threads / (32 * std::ceil(threads / 32));
      EXPECT_EQ(std::floor(0.5 + 100 * *computed.frac * full), std::round(100 * recorded)) << name << " row " << c;
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);
  EXPECT_GT(unknown, 30);
}

TEST(Arithmetic, IsTheTypeOfMostProductTime) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  const Row step = run.step(StageKind::kPrefill, 0, 10 * kMs, 512, 512);
  run.gpu("fill", Category::kElementwise, 0, 4 * kMs,
          {.step = step, .work = run.work(WorkKind::kPointwise, DType::kInt8, 1e6, 1e9)});
  run.gpu("gemm", Category::kGemm, 4 * kMs, 3 * kMs, {.step = step, .work = run.gemm(DType::kTf32, 512, 4096, 4096)});
  run.gpu("head", Category::kGemm, 7 * kMs, kMs, {.step = step, .work = run.gemm(DType::kFp32, 512, 4096, 4096)});
  run.busy(0, 8 * kMs);
  run.gap(IdleCause::kUnknown, 8 * kMs, 2 * kMs, step);
  const Report report = report_of(run);
  EXPECT_EQ(report.device->arithmetic, "tf32");
  EXPECT_NEAR(*report.device->ridge, 494.7e12 / 4800e9, 1e-9);
  // Products of unknown type that take longer than it leave it open.
  run.gpu("graph", Category::kGemm, 8 * kMs, 9 * kMs / 2, {.step = step});
  EXPECT_FALSE(report_of(run).device->arithmetic);
}

// A checkpoint whose products run in FP8 while attention and the head stay in 16 bits.
TEST(Arithmetic, AnFp8CheckpointIsHeldAgainstThePeakOfFp8) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/config.json";
  std::ofstream(path) << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 2,
    "num_key_value_heads": 16, "head_dim": 64, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "vocab_size": 32000, "max_position_embeddings": 4096, "quantization_config": {"quant_method": "fp8"}})";
  AnalyzedRecording run;
  run.window(0, kMs);
  const Row step = run.step(StageKind::kDecode, 0, kMs, 1, 100);
  run.gpu("graph", Category::kGemm, 0, kMs, {.step = step});
  run.busy(0, kMs);
  AnalyzeOptions options;
  options.model = path;
  const Report report = report_of(run, options);
  const StageTiming* decode = stage_of(report, "decode");
  ASSERT_NE(decode, nullptr);
  // Two layers of 4 x 1024 x 1024 and 3 x 1024 x 4096 weights; 100 keys for 16 heads of 64; the head.
  const double linear = 2.0 * 2 * (4.0 * 1024 * 1024 + 3.0 * 1024 * 4096);
  const double wide = 2.0 * (4 * 16 * 64 * 100) + 2.0 * 1024 * 32000;
  ASSERT_TRUE(decode->mfu);
  EXPECT_NEAR(*decode->mfu, (linear / 1978.9e12 + wide / 989.4e12) / 1e-3, 1e-9);
  EXPECT_EQ(decode->dtype, "fp8");
  EXPECT_EQ(report.device->arithmetic, "fp8");
}

TEST(Ceilings, OfAnotherDeviceAreRefused) {
  const AnalyzedRecording run = eager_run();
  MeasuredCeilings ceilings = cpu_ceilings();
  const Report report = report_of(run, given(ceilings));
  const DiagnosticRecord* said = diagnostic_of(report, "option-other-ceilings");
  ASSERT_NE(said, nullptr);
  EXPECT_NE(said->text.find("Expected ceilings of NVIDIA H200, found those of Some CPU"), std::string::npos);
  EXPECT_FALSE(report.device->measured_by);
  for (const RooflineRecord& row : report.roofline) EXPECT_LE(row.of_roof_frac.value_or(0), 1) << row.name;
  // Held against another part, that part's are right.
  AnalyzeOptions other = given(ceilings_of("NVIDIA A100-SXM4-80GB"));
  other.gpu = "A100-SXM4-80GB";
  EXPECT_TRUE(report_of(run, other).device->measured_by);
  other.gpu = "H100-SXM5-80GB";
  EXPECT_NE(diagnostic_of(report_of(run, other), "option-other-ceilings"), nullptr);
}

TEST(Source, SaysInWhichPartKernelsWereRecorded) {
  AnalyzedRecording run;
  run.window(0, 100 * kMs);
  run.gpu("k", Category::kNorm, 0, 10 * kMs, {});
  run.busy(0, 10 * kMs);
  run.gap(IdleCause::kNotRecorded, 10 * kMs, 70 * kMs, kNoRow);
  run.gap(IdleCause::kNoWork, 80 * kMs, 20 * kMs, kNoRow);
  const Report report = report_of(run);
  EXPECT_EQ(report.source.duration_ms.ns, 100 * kMs);
  EXPECT_EQ(report.source.recorded_ms.ns, 30 * kMs);
}

}  // namespace
}  // namespace llmprof
