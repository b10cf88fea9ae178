// Counters, power and clocks attached to stages and kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analyze/telemetry.h"
#include "analyze/without_program.h"
#include "analyze_recording.h"
#include "base/csv.h"
#include "base/input_file.h"
#include "derive/derive.h"

namespace llmprof {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// All metrics absent.
size_t add_sample(Trace& trace, int64_t start, int64_t dur, CounterSource source = CounterSource::kPmSampling,
                  int32_t device = 0) {
  GpuSamples& table = trace.gpu_samples;
  const size_t row = table.size();
  table.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
    if constexpr (std::is_same_v<T, float>) {
      column.push_back(kNaN);
    } else {
      column.push_back(T{});
    }
  });
  table.start_ns[row] = start;
  table.dur_ns[row] = dur;
  table.device[row] = device;
  table.source[row] = source;
  return row;
}

size_t add_reading(Trace& trace, int64_t time, float power_w = kNaN, double energy_j = std::nan("")) {
  NvmlSamples& table = trace.nvml_samples;
  const size_t row = table.size();
  table.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
    if constexpr (std::is_same_v<T, float>) {
      column.push_back(kNaN);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      column.push_back(-1);
    } else {
      column.push_back(T{});
    }
  });
  table.time_ns[row] = time;
  table.device[row] = 0;
  table.power_w[row] = power_w;
  table.energy_j[row] = energy_j;
  return row;
}

TEST(CounterSamples, PartOfASampleCountsByItsPart) {
  Trace trace;
  GpuSamples& table = trace.gpu_samples;
  table.sm_active_frac[add_sample(trace, 0, 100)] = 0.2F;
  table.sm_active_frac[add_sample(trace, 100, 100)] = 0.8F;
  add_sample(trace, 200, 100);                                                              // not sampled: no weight
  table.sm_active_frac[add_sample(trace, 100, 100, CounterSource::kPmSampling, 1)] = 1.0F;  // another GPU
  table.sm_active_frac[add_sample(trace, 0, 1'000'000, CounterSource::kGpm)] = 1.0F;  // GPM gives way to PM sampling
  const CounterSamples counters(trace, 0, {});
  CounterSums sums;
  counters.add(50, 250, sums);
  EXPECT_EQ(sums.samples, 3);
  EXPECT_EQ(sums.covered_ns, 200);
  EXPECT_NEAR(*sums.sm_active.mean(), (0.2 * 50 + 0.8 * 100) / 150, 1e-6);
  EXPECT_FALSE(sums.tensor_active.mean().has_value());
}

// The sampler goes over to a longer interval early in a run: the beginning must not outweigh the rest by its number.
TEST(CounterSamples, WhatWasSampledMoreOftenCountsByItsTime) {
  Trace trace;
  GpuSamples& table = trace.gpu_samples;
  const auto sample = [&](int64_t start_ns, int64_t dur_ns, float clock_hz) {
    table.sm_clock_hz[add_sample(trace, start_ns, dur_ns)] = clock_hz;
  };
  for (int64_t at = 0; at < 4000; at += 100) sample(at, 100, 1.9e9F);
  for (int64_t at = 4500; at < 10500; at += 1000) sample(at, 1000, 1.4e9F);  // after a gap
  const CounterSamples counters(trace, 0, {});
  EXPECT_EQ(counters.interval_ns(), 1000);
  CounterSums sums;
  counters.add(0, 10500, sums);
  EXPECT_EQ(sums.samples, 46);
  EXPECT_EQ(sums.covered_ns, 10000) << "the gap is not covered";
  EXPECT_NEAR(static_cast<double>(std::count(sums.clocks_hz.begin(), sums.clocks_hz.end(), 1.9e9F)), 4, 1);
  EXPECT_EQ(std::count(sums.clocks_hz.begin(), sums.clocks_hz.end(), 1.4e9F), 6);
}

TEST(CounterSamples, SharesOfThePeakBecomeBytesAndBack) {
  Trace trace;
  const size_t row = add_sample(trace, 0, 100);
  trace.gpu_samples.dram_read_frac[row] = 0.5F;
  trace.gpu_samples.dram_write_frac[row] = 0.25F;
  const size_t other = add_sample(trace, 100, 100);
  trace.gpu_samples.dram_read_bytes_per_s[other] = 1e12F;
  trace.gpu_samples.dram_write_bytes_per_s[other] = 0;
  const CounterSamples counters(trace, 0, 4e12);
  EXPECT_DOUBLE_EQ(counters.dram_bytes_per_s(0), 3e12);
  EXPECT_NEAR(counters.dram_frac(1), 0.25, 1e-6);
  EXPECT_TRUE(std::isnan(CounterSamples(trace, 0, {}).dram_bytes_per_s(0)));
}

TEST(Readings, AHoleIsLongAndUnusual) {
  constexpr int64_t kSecond = 1'000'000'000;
  Readings steady, stopped, slow;
  for (int64_t i = 0; i < 10; ++i) {
    steady.add(i * kSecond, 100);
    stopped.add((i + (i < 5 ? 0 : 40)) * kSecond, 100);
    slow.add(i * 60 * kSecond, 100);
  }
  EXPECT_FALSE(steady.broken(0, 9 * kSecond));
  EXPECT_TRUE(stopped.broken(0, 49 * kSecond));
  EXPECT_FALSE(stopped.broken(0, 4 * kSecond));
  EXPECT_FALSE(slow.broken(0, 540 * kSecond));
  EXPECT_FALSE(Readings().broken(0, kSecond));
}

TEST(Readings, IntegrateLinearlyAndStopWhereNothingIsKnown) {
  Readings power;
  power.add(1'000'000'000, 100);
  power.add(2'000'000'000, 300);
  EXPECT_DOUBLE_EQ(power.integral(1'000'000'000, 2'000'000'000), 200);
  EXPECT_DOUBLE_EQ(power.integral(1'500'000'000, 2'000'000'000), (200 + 300) / 2.0 * 0.5);
  EXPECT_TRUE(power.covers(900'000'000, 2'100'000'000));
  EXPECT_FALSE(power.covers(100'000'000, 2'000'000'000));
  EXPECT_DOUBLE_EQ(power.integral(900'000'000, 1'000'000'000), 10);  // constant beyond the first reading
}

// The eager run (prefill 10 ms, three decode steps of 10 ms) with 100 us samples over all of it.
AnalyzedRecording sampled_run() {
  AnalyzedRecording run = eager_run();
  for (int64_t at = 0; at < 45 * kMs; at += kMs / 10) {
    const size_t row = add_sample(run.trace, at, kMs / 10);
    GpuSamples& t = run.trace.gpu_samples;
    const bool prefill = at < 10 * kMs;
    t.tensor_active_frac[row] = prefill ? 0.6F : 0.02F;
    t.sm_active_frac[row] = prefill ? 0.9F : 0.25F;
    t.gr_active_frac[row] = prefill ? 0.9F : 0.3F;
    t.dram_read_bytes_per_s[row] = prefill ? 1e12F : 4e11F;
    t.dram_write_bytes_per_s[row] = 0;
    t.l2_hit_frac[row] = 0.5F;
    t.sm_clock_hz[row] = 1.5e9F;
  }
  return run;
}

TEST(Telemetry, CountersBelongToTheStagesTheyOverlap) {
  const AnalyzedRecording run = sampled_run();
  const Report report = report_of(run.trace);
  const StageTiming& prefill = *stage_of(report, "prefill");
  const StageTiming& decode = *stage_of(report, "decode");
  EXPECT_EQ(prefill.counter_samples, 100);
  EXPECT_EQ(decode.counter_samples, 300);
  EXPECT_NEAR(*prefill.tensor_active_frac, 0.6, 1e-6);
  EXPECT_NEAR(*decode.tensor_active_frac, 0.02, 1e-6);
  EXPECT_NEAR(*prefill.dram_bytes_measured, 1e12 * 0.010, 1e6);
  EXPECT_NEAR(*decode.dram_bytes_measured, 4e11 * 0.030, 1e6);
  EXPECT_NEAR(*decode.dram_measured_over_model, *decode.dram_bytes_measured / *decode.dram_bytes_model, 1e-12);
  EXPECT_NEAR(*decode.l2_hit_frac, 0.5, 1e-6);
  EXPECT_EQ(*decode.counter_coverage_frac, 1);
  EXPECT_EQ(decode.counter_source, "pm-sampling");
  EXPECT_NEAR(*decode.sm_clock_mhz, 1500, 0.1);
  ASSERT_TRUE(report.telemetry.has_value());
  EXPECT_EQ(report.telemetry->counter_samples, 450);
  EXPECT_FALSE(report.telemetry->series.empty());
  for (const ConservationCheck& check : report.conservation) EXPECT_TRUE(check.ok) << check.name;
}

// The counter is over wall time: 0.8 % of it on a GPU that works 2 % of the time is 40 % of its work.
TEST(Telemetry, AMostlyIdleGpuHasNoIdleTensorCores) {
  for (const double busy_frac : {0.02, 0.9}) {
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    const int64_t busy = static_cast<int64_t>(busy_frac * 10 * kMs);
    const Row step = run.step(StageKind::kPrefill, 0, 10 * kMs, 512, 512);
    run.gap(IdleCause::kHostWork, 0, 10 * kMs - busy, step);
    run.gpu("nvjet_sm90", Category::kGemm, 10 * kMs - busy, busy,
            {.step = step, .work = run.gemm(DType::kBf16, 512, 4096, 4096)});
    run.busy(10 * kMs - busy, 10 * kMs);
    for (int64_t i = 0; i < 100; ++i)
      run.trace.gpu_samples.tensor_active_frac[add_sample(run.trace, i * kMs / 10, kMs / 10)] = 0.008F;
    EXPECT_EQ(finding_of(report_of(run.trace), "tensor-cores-idle") != nullptr, busy_frac > 0.5);
  }
}

// The same as deep mode samples it. At 1.5 GHz and 132 SMs, 60 % of the prefill's cycles are tensor cycles.
AnalyzedRecording deep_run() {
  AnalyzedRecording run = sampled_run();
  GpuSamples& t = run.trace.gpu_samples;
  for (size_t row = 0; row < t.size(); ++row) {
    const bool prefill = t.start_ns[row] < 10 * kMs;
    t.fma_instructions_per_s[row] = prefill ? 1e10F : 4e11F;
    t.fma_half_instructions_per_s[row] = prefill ? 0.0F : 1e11F;
  }
  return run;
}

const CannotTell* cannot_tell_of(const Report& report, std::string_view part) {
  for (const CannotTell& row : report.cannot_tell)
    if (row.question.find(part) != std::string::npos) return &row;
  return nullptr;
}

TEST(MeasuredFlops, AreActiveCyclesAndInstructionsAtTheirFullRate) {
  const Report report = report_of(deep_run().trace);
  const StageTiming& prefill = *stage_of(report, "prefill");
  const StageTiming& decode = *stage_of(report, "decode");
  EXPECT_NEAR(*prefill.tensor_cycles, 0.6 * 1.5e9 * 132 * 0.010, 1e3);
  EXPECT_NEAR(*prefill.tensor_flops_measured / (*prefill.tensor_cycles * 4096), 1, 1e-12);
  EXPECT_NEAR(*prefill.fma_instructions / (1e10 * 0.010), 1, 1e-6);
  EXPECT_NEAR(*prefill.fma_flops_measured / (64 * 1e10 * 0.010), 1, 1e-6);
  EXPECT_NEAR(*decode.fma_flops_measured / (64 * 4e11 * 0.030), 1, 1e-6) << "packed halves are counted twice in it";
  EXPECT_DOUBLE_EQ(*decode.flops_measured, *decode.tensor_flops_measured + *decode.fma_flops_measured);
  EXPECT_DOUBLE_EQ(*decode.flops_measured_over_flops, *decode.flops_measured / *decode.flops);
  EXPECT_EQ(cannot_tell_of(report, "the hardware execute"), nullptr);
}

TEST(MeasuredFlops, PackedHalvesAreAddedToCountersOfEachPipe) {
  AnalyzedRecording run = deep_run();
  GpuSamples& t = run.trace.gpu_samples;
  for (size_t row = 0; row < t.size(); ++row) {
    t.fma_heavy_instructions_per_s[row] = t.fma_lite_instructions_per_s[row] = t.fma_instructions_per_s[row] / 2;
    t.fma_instructions_per_s[row] = std::numeric_limits<float>::quiet_NaN();
  }
  const StageTiming decode = *stage_of(report_of(run.trace), "decode");
  EXPECT_NEAR(*decode.fma_flops_measured / (64 * (4e11 + 1e11) * 0.030), 1, 1e-6);
}

// 2 x 512 x 14336 x 4096 FLOP in 10 ms: 1.2 % of the cycles at full rate could not do them.
TEST(MeasuredFlops, ShapesThatSayMoreThanWasExecutedAreToldOf) {
  AnalyzedRecording run = deep_run();
  EXPECT_EQ(cannot_tell_of(report_of(run.trace), "FLOP of its shapes"), nullptr) << "0.6 of the cycles are enough";
  GpuSamples& t = run.trace.gpu_samples;
  for (size_t row = 0; row < 100; ++row) t.tensor_active_frac[row] = t.fma_instructions_per_s[row] = 0.0F;
  for (size_t row = 0; row < 100; ++row) t.tensor_active_frac[row] = 0.001F;
  const Report report = report_of(run.trace);
  const StageTiming& prefill = *stage_of(report, "prefill");
  EXPECT_LT(*prefill.flops_measured_over_flops, 1);
  const CannotTell* told = cannot_tell_of(report, "Does prefill do the");
  ASSERT_NE(told, nullptr);
  EXPECT_NE(told->why.find("at most"), std::string::npos);
  EXPECT_EQ(cannot_tell_of(report, "Does decode do the"), nullptr);
}

TEST(MeasuredFlops, AreAbsentWithAReason) {
  const Report usual = report_of(sampled_run().trace);
  EXPECT_TRUE(stage_of(usual, "prefill")->tensor_flops_measured.has_value()) << "every mode samples the tensor pipe";
  EXPECT_FALSE(stage_of(usual, "prefill")->fma_flops_measured.has_value());
  EXPECT_FALSE(stage_of(usual, "prefill")->flops_measured.has_value());
  const CannotTell* told = cannot_tell_of(usual, "the hardware execute");
  ASSERT_NE(told, nullptr);
  EXPECT_NE(told->how_to_find_out.find("--mode deep"), std::string::npos);

  AnalyzedRecording typeless = deep_run();
  for (DType& dtype : typeless.trace.works.dtype) dtype = DType::kUnknown;
  const Report report = report_of(typeless.trace);
  EXPECT_TRUE(stage_of(report, "prefill")->tensor_cycles.has_value()) << "what was counted needs no type";
  EXPECT_FALSE(stage_of(report, "prefill")->flops_measured.has_value());
  told = cannot_tell_of(report, "the hardware execute");
  ASSERT_NE(told, nullptr);
  EXPECT_NE(told->why.find("element types"), std::string::npos);

  AnalyzedRecording idle = deep_run();
  for (DType& dtype : idle.trace.works.dtype) dtype = DType::kUnknown;
  for (float& frac : idle.trace.gpu_samples.tensor_active_frac) frac = 0;
  EXPECT_EQ(*stage_of(report_of(idle.trace), "prefill")->tensor_flops_measured, 0)
      << "a pipe that never ran did nothing, whatever the type";
}

TEST(MeasuredFlops, HalfCoveredStagesHaveNoTotal) {
  AnalyzedRecording run = eager_run();
  for (int64_t at = 0; at < 45 * kMs; at += kMs) {
    const size_t row = add_sample(run.trace, at, kMs / 2);
    GpuSamples& t = run.trace.gpu_samples;
    t.tensor_active_frac[row] = 0.5F;
    t.sm_clock_hz[row] = 1.5e9F;
    t.fma_instructions_per_s[row] = 1e10F;
  }
  const StageTiming decode = *stage_of(report_of(run.trace), "decode");
  EXPECT_TRUE(decode.tensor_active_frac.has_value());
  EXPECT_FALSE(decode.tensor_cycles.has_value());
  EXPECT_FALSE(decode.fma_flops_measured.has_value());
}

TEST(MeasuredFlops, EachFmaPipeAloneAddsUpOnlyIfBothAreKnown) {
  Trace trace;
  GpuSamples& t = trace.gpu_samples;
  t.fma_heavy_instructions_per_s[add_sample(trace, 0, 100)] = 3e9F;
  t.fma_heavy_instructions_per_s[add_sample(trace, 100, 100)] = 3e9F;
  t.fma_lite_instructions_per_s[1] = 1e9F;
  const CounterSamples counters(trace, 0, {});
  EXPECT_TRUE(std::isnan(counters.fma_per_s(0)));
  EXPECT_DOUBLE_EQ(counters.fma_per_s(1), 4e9);
}

TEST(MeasuredFlops, RatesOfTheTensorPipeAreThoseOfTheDataSheets) {
  struct Part {
    const char* capability;
    double sms, mhz, fp16_tflops;
  };
  for (const Part& part : {Part{"8.0", 108, 1410, 312}, Part{"8.6", 72, 1695, 125}, Part{"8.9", 142, 2490, 362},
                           Part{"9.0", 132, 1830, 989.4}, Part{"12.0", 188, 2617, 503.8}}) {
    const OptDouble rate = tensor_flops_per_cycle(part.capability, DType::kBf16);
    ASSERT_TRUE(rate.has_value()) << part.capability;
    EXPECT_NEAR(*rate * part.sms * part.mhz / 1e6 / part.fp16_tflops, 1, 0.01) << part.capability;
    EXPECT_DOUBLE_EQ(*tensor_flops_per_cycle(part.capability, DType::kTf32), *rate / 2);
    EXPECT_DOUBLE_EQ(*tensor_flops_per_cycle(part.capability, DType::kInt8), *rate * 2);
    EXPECT_DOUBLE_EQ(*tensor_flops_per_cycle(part.capability, DType::kFp32), *rate) << "may be composed of BF16";
  }
  EXPECT_NEAR(*tensor_flops_per_cycle("9.0", DType::kFp64) * 132 * 1.98e9 / 66.9e12, 1, 0.01);
  EXPECT_FALSE(tensor_flops_per_cycle("8.9", DType::kFp64).has_value()) << "not by the tensor pipe";
  EXPECT_FALSE(tensor_flops_per_cycle("9.0", DType::kUnknown).has_value());
  EXPECT_FALSE(tensor_flops_per_cycle("99.0", DType::kBf16).has_value());
}

TEST(Telemetry, MfuAtTheClockSeen) {
  const AnalyzedRecording run = sampled_run();
  const Report report = report_of(run.trace);
  ASSERT_TRUE(report.device && report.device->peak_clock_mhz && report.device->sm_clock_mhz);
  EXPECT_NEAR(report.device->sm_clock_mhz->median, 1500, 0.1);
  EXPECT_NEAR(*report.device->clock_scale, 1500 / *report.device->peak_clock_mhz, 1e-6);
  const StageTiming& prefill = *stage_of(report, "prefill");
  EXPECT_NEAR(*prefill.mfu_at_clock, *prefill.mfu * *report.device->peak_clock_mhz / 1500, 1e-6);
  for (const auto& [name, peak] : report.device->peaks)
    if (name == "bf16_tflops") {
      EXPECT_NEAR(*peak.at_clock, peak.value * *report.device->clock_scale, 0.5);
    }
}

TEST(Telemetry, HalfCoveredTrafficIsNoTotal) {
  AnalyzedRecording run = eager_run();
  for (int64_t at = 0; at < 45 * kMs; at += kMs) {
    const size_t row = add_sample(run.trace, at, kMs / 2);
    run.trace.gpu_samples.dram_read_bytes_per_s[row] = 1e12F;
    run.trace.gpu_samples.dram_write_bytes_per_s[row] = 0;
  }
  const Report report = report_of(run.trace);
  const StageTiming& decode = *stage_of(report, "decode");
  EXPECT_NEAR(*decode.counter_coverage_frac, 0.5, 1e-9);
  EXPECT_TRUE(decode.dram_frac.has_value());
  EXPECT_FALSE(decode.dram_bytes_measured.has_value());
}

TEST(Telemetry, SlowSamplesAreNotGivenToShortSteps) {
  AnalyzedRecording run = eager_run();
  run.trace.gpu_samples.sm_active_frac[add_sample(run.trace, 0, 45 * kMs, CounterSource::kGpm)] = 0.5F;
  const Report report = report_of(run.trace);
  EXPECT_FALSE(stage_of(report, "decode")->sm_active_frac.has_value());
  EXPECT_EQ(report.telemetry->counter_source, "gpm");
}

TEST(Telemetry, KernelsNeedFiveSamplesOfTheirOwn) {
  AnalyzedRecording run = sampled_run();
  Report report = report_of(run.trace);
  const KernelRecord* big = nullptr;
  for (const KernelRecord& row : report.kernels_topk)
    if (row.name == "gemm_big") big = &row;
  ASSERT_NE(big, nullptr);
  EXPECT_EQ(big->counter_samples, 80);  // 8 ms of one kernel
  EXPECT_NEAR(*big->tensor_active_frac, 0.6, 1e-6);
  EXPECT_NEAR(*big->dram_bytes_per_s_measured, 1e12, 1e6);
  for (const KernelRecord& row : report.kernels_topk) {
    if (row.name != "gemv") continue;
    EXPECT_FALSE(row.counter_samples.has_value()) << "10 us kernels fill no sample of 100 us";
    EXPECT_FALSE(row.tensor_active_frac.has_value());
  }
}

// One decode stage of 4 s at 500 W.
AnalyzedRecording long_run() {
  AnalyzedRecording run;
  constexpr int64_t kStep = 1'000'000'000;
  run.window(0, 4 * kStep);
  for (int64_t s = 0; s < 4; ++s) {
    const Row step = run.step(StageKind::kDecode, s * kStep, (s + 1) * kStep, 1, 100);
    run.gpu("gemm", Category::kGemm, s * kStep, kStep, {step, kNoRow, kNoRow, run.gemm(DType::kBf16, 1, 4096, 4096)});
  }
  run.busy(0, 4 * kStep);
  for (int64_t t = 0; t <= 40; ++t) {
    const size_t row = add_reading(run.trace, t * kStep / 10, 500, 1000.0 + 50.0 * static_cast<double>(t));
    NvmlSamples& n = run.trace.nvml_samples;
    n.sm_clock_mhz[row] = 1200;
    n.temperature_c[row] = 60;
    n.memory_used_bytes[row] = 20'000'000'000 + t;
    n.throttle_power_ns[row] = t * kStep / 20;  // half of the time
    n.throttle_thermal_hw_ns[row] = 0;
    n.throttle_reasons[row] = 0x20;
  }
  return run;
}

TEST(Telemetry, EnergyPowerAndThrottlingOverTheWindow) {
  const AnalyzedRecording run = long_run();
  const Report report = report_of(run.trace);
  ASSERT_TRUE(report.telemetry.has_value());
  const TelemetryReport& t = *report.telemetry;
  EXPECT_NEAR(*t.energy_j, 2000, 1e-6);  // the counter's difference
  EXPECT_NEAR(*t.energy_per_token_j, 500, 1e-6);
  EXPECT_EQ(t.power_w->p50, 500);
  EXPECT_EQ(t.sm_clock_source, "nvml");
  EXPECT_EQ(*t.memory_used_peak_bytes, 20'000'000'039.0);
  ASSERT_EQ(t.throttle.size(), 6U);
  EXPECT_EQ(t.throttle[0].reason, ThrottleReason::kPowerCap);
  EXPECT_NEAR(t.throttle[0].frac, 0.5, 1e-9);
  EXPECT_EQ(t.throttle[0].source, "counter");
  EXPECT_EQ(t.throttle[1].reason, ThrottleReason::kThermalSoftware);
  EXPECT_EQ(t.throttle[1].source, "samples") << "no counter: by the bits";
  EXPECT_EQ(t.throttle[1].frac, 1);
  EXPECT_EQ(t.throttle[2].frac, 0);
  const StageTiming& decode = *stage_of(report, "decode");
  EXPECT_NEAR(*decode.energy_j, 2000, 1e-6);
  EXPECT_NEAR(*decode.power_w, 500, 1e-6);
  EXPECT_NEAR(*decode.energy_per_token_j, 500, 1e-6);
  EXPECT_EQ(*decode.sm_clock_mhz, 1200);
}

// The counter is read each 1.3 s, power each 100 ms: 200 W at first, 600 W from 2 s on. The counter is 3 % above the
// sensor of power, to tell which of them says what.
TEST(Telemetry, EnergyByACounterThatIsReadRarely) {
  AnalyzedRecording run = long_run();
  NvmlSamples& n = run.trace.nvml_samples;
  double joules = 0;
  for (Row row = 0; row < n.size(); ++row) {
    n.power_w[row] = row < 20 ? 200 : 600;
    if (row > 0) joules += 0.1 * static_cast<double>(n.power_w[row] + n.power_w[row - 1]) / 2;
    const bool read = row == 0 || row == 3 || row == 16 || row == 29 || row == 40;
    n.energy_j[row] = read ? 5000 + 1.03 * joules : std::nan("");
  }
  // Readings of 0, 3, 16 and 29 lie in the window, which ends at the one of 40.
  const double counted = 1.9 * 200 + 0.1 * (200 + 600) / 2 + 0.9 * 600, rest = 1.1 * 600;
  EXPECT_NEAR(*report_of(run.trace).telemetry->energy_j, 1.03 * counted + rest, 1);
  for (double& value : n.energy_j) value = std::nan("");
  EXPECT_NEAR(*report_of(run.trace).telemetry->energy_j, counted + rest, 1) << "by power alone";
}

TEST(Telemetry, ShortStagesHaveNoEnergyAndSayWhy) {
  AnalyzedRecording run = eager_run();
  for (int64_t t = 0; t < 10; ++t) add_reading(run.trace, t * 5 * kMs, 400, 10.0 * static_cast<double>(t));
  const Report report = report_of(run.trace);
  EXPECT_FALSE(stage_of(report, "decode")->energy_j.has_value());
  EXPECT_FALSE(report.telemetry->energy_j.has_value());
  bool told = false;
  for (const CannotTell& row : report.cannot_tell) told |= row.question.find("energy") != std::string::npos;
  EXPECT_TRUE(told);
}

TEST(Telemetry, PowerAndClockFindings) {
  AnalyzedRecording run = long_run();
  Report report = report_of(run.trace);
  const Finding* power = finding_of(report, "power-throttled");
  ASSERT_NE(power, nullptr);  // 500 W of 700: the limit is set low
  EXPECT_GE(power->severity, FindingSeverity::kMajor);
  EXPECT_NE(finding_of(report, "thermal-throttled"), nullptr);
  EXPECT_EQ(finding_of(report, "clock-drop"), nullptr) << "the cap explains it";

  for (float& watt : run.trace.nvml_samples.power_w) watt = 695;
  report = report_of(run.trace);
  ASSERT_NE(finding_of(report, "power-throttled"), nullptr);
  EXPECT_EQ(finding_of(report, "power-throttled")->severity, FindingSeverity::kInfo) << "the board's own limit";

  for (int64_t& ns : run.trace.nvml_samples.throttle_power_ns) ns = 0;
  for (uint64_t& bits : run.trace.nvml_samples.throttle_reasons) bits = 0;
  report = report_of(run.trace);
  EXPECT_EQ(finding_of(report, "power-throttled"), nullptr);
  EXPECT_EQ(finding_of(report, "thermal-throttled"), nullptr);
  EXPECT_NE(finding_of(report, "clock-drop", "decode"), nullptr);

  for (float& mhz : run.trace.nvml_samples.sm_clock_mhz) mhz = 1980;
  EXPECT_EQ(finding_of(report_of(run.trace), "clock-drop"), nullptr);
}

TEST(Telemetry, NothingSampledIsNullAndExplained) {
  const Report report = report_of(eager_run().trace);
  EXPECT_FALSE(report.telemetry.has_value());
  const auto asks = [&](std::string_view word) {
    for (const CannotTell& row : report.cannot_tell)
      if (row.question.find(word) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(asks("hardware counters"));
  EXPECT_TRUE(asks("throttled"));
}

// ---- a real recording --------------------------------------------------------------------------------------------

double number(const std::string& text) { return text.empty() ? std::nan("") : std::stod(text); }

// Llama-3.1-8B in bf16, decode by CUDA graph on an H200: three replays with their kernels, and PM samples of 20 us that
// another process took, on one clock. Shares are of the memory's 4.8 TB/s.
Trace real_excerpt() {
  Trace trace;
  Result<InputFile> file = InputFile::open(std::string(LLMPROF_TEST_DATA) + "/unit/data/graph_decode_excerpt.csv.gz");
  EXPECT_TRUE(file.has_value());
  std::string text(1 << 20, '\0');
  text.resize(file->read(text.data(), text.size()));
  const Result<CsvTable> csv = read_csv(text, "graph_decode_excerpt.csv.gz");
  EXPECT_TRUE(csv.has_value());
  TraceBuilder builder(trace);
  const ThreadId thread = builder.thread(1, 0);
  const StreamId stream = builder.stream(0, 0, 0);
  trace.devices = AnalyzedRecording().trace.devices;
  trace.devices.name[0] = trace.strings.intern("NVIDIA H200");
  for (const std::vector<std::string>& row : csv->rows) {
    const int64_t start = std::stoll(row[1]), dur = std::stoll(row[2]);
    if (row[0] == "sample") {
      const size_t s = add_sample(trace, start, dur);
      const auto frac = [&](size_t column) { return static_cast<float>(number(row[column]) / 100); };
      trace.gpu_samples.dram_read_frac[s] = frac(4);
      trace.gpu_samples.dram_write_frac[s] = frac(5);
      trace.gpu_samples.sm_active_frac[s] = frac(6);
      trace.gpu_samples.tensor_active_frac[s] = frac(7);
      trace.gpu_samples.gr_active_frac[s] = frac(8);
      trace.gpu_samples.l2_hit_frac[s] = frac(9);
      continue;
    }
    const uint64_t replay = std::stoull(row[3]) + 1;
    if (row[0] == "decode_step") {
      builder.add<Annotations>({.start_ns = start,
                                .dur_ns = dur,
                                .thread = thread,
                                .name = builder.text(row[0]),
                                .kind = AnnotationKind::kNvtx});
      builder.add<ApiCalls>({.start_ns = start + 1000,
                             .dur_ns = dur - 2000,
                             .thread = thread,
                             .name = builder.text("cudaGraphLaunch"),
                             .correlation = replay});
      continue;
    }
    builder.add<GpuOps>({.start_ns = start,
                         .dur_ns = dur,
                         .stream = stream,
                         .name = builder.text(row[0]),
                         .correlation = replay,
                         .graph_node = 1 + trace.gpu_ops.size()});
  }
  builder.add<Recorded>({.start_ns = -1'000'000'000,
                         .dur_ns = 2'000'000'000,
                         .process_id = 1,
                         .level = RecordingLevel::kDefault,
                         .cut_ns = 0});
  return trace;
}

TEST(RealRecording, MeasuredTrafficOfADecodeStepIsThatOfTheWeights) {
  Trace trace = real_excerpt();
  ASSERT_TRUE(derive(trace).has_value());
  ASSERT_EQ(trace.steps.size(), 3U);
  const Report report = report_of(trace);
  const StageTiming* decode = stage_of(report, "decode_step");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->count, 3);
  EXPECT_NEAR(decode->wall_ms.ms() / 3, 8.1, 0.1);
  ASSERT_TRUE(decode->dram_bytes_measured.has_value()) << *decode->counter_coverage_frac;
  // 7.50 billion weights without the embedding, 2 bytes each; the KV cache of 600 tokens is 0.08 GB, activations
  // little.
  EXPECT_NEAR(*decode->dram_bytes_measured / 3, 15.5e9, 0.6e9);
  EXPECT_NEAR(*decode->gr_active_frac, 1.0, 0.02);
  EXPECT_LT(*decode->tensor_active_frac, 0.2);
  for (const ConservationCheck& check : report.conservation) EXPECT_TRUE(check.ok) << check.name;
}

TEST(RealRecording, FormulaAndMeasurementAgreeOnceTheModelIsKnown) {
  Trace trace = real_excerpt();
  ASSERT_TRUE(derive(trace).has_value());
  AnalyzeOptions options;
  options.model = "llama-3.1-8b";
  options.batch = 1;
  options.context = 600;
  const Report report = report_of(trace, options);
  const StageTiming* decode = stage_of(report, "decode_step");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->flops_provenance, Provenance::kFormula);
  ASSERT_TRUE(decode->dram_measured_over_model.has_value());
  EXPECT_NEAR(*decode->dram_measured_over_model, 1.0, 0.05);
}

// Readings alone, tables of other tools alone: no file is the recording that others stand beside.
TEST(WithoutRecording, IsWhatHasNoProgram) {
  const auto with_readings = [](auto&& change) {
    Trace trace;
    TraceBuilder builder(trace);
    builder.add<NvmlSamples>({.time_ns = 5, .device = 0, .power_w = 300});
    builder.add<Recorded>({.start_ns = 0,
                           .dur_ns = 10,
                           .process_id = 0,
                           .level = RecordingLevel::kLight,
                           .reason = builder.text("nvidia-smi dmon"),
                           .cut_ns = 0});
    change(trace);
    return without_recording(trace);
  };
  EXPECT_TRUE(with_readings([](Trace&) {}));
  EXPECT_FALSE(with_readings([](Trace& trace) { trace.diagnostics.add(DiagnosticId::kDamagedBlock, "gpu_ops"); }));
  EXPECT_FALSE(with_readings([](Trace& trace) { trace.metadata["mode"] = "light"; }));  // of a session
  EXPECT_FALSE(with_readings([](Trace& trace) { TraceBuilder(trace).thread(1, 2); }));
  Trace logs;
  TraceBuilder of_logs(logs);
  of_logs.add<LoggedProducts>({.function = of_logs.text("cublasGemmEx"), .batch = 1, .m = 2, .n = 3, .k = 4});
  EXPECT_TRUE(without_recording(logs));
  TraceBuilder(logs).add<GpuOps>({.start_ns = 0,
                                  .dur_ns = 5,
                                  .stream = of_logs.stream(0, 1, 7),
                                  .name = of_logs.text("k"),
                                  .kind = GpuOpKind::kKernel});
  EXPECT_FALSE(without_recording(logs));
}

// The driver's facts are of all GPUs of the machine, by its numbers; a device is found by its uuid.
TEST(Telemetry, PowerLimitIsThatOfTheDevice) {
  Trace trace;
  TraceBuilder rows(trace);
  rows.add<Devices>({.device = 0, .name = rows.text("NVIDIA H200"), .uuid = rows.text("GPU-b")});
  rows.add<Devices>({.device = 1, .name = rows.text("NVIDIA H200")});  // a trace of another tool
  rows.add<Devices>({.device = 2, .uuid = rows.text("MIG-c"), .whole_uuid = rows.text("GPU-b")});
  trace.metadata["gpu.0"] = R"({"uuid":"GPU-a","name":"NVIDIA H200","power_limit_w":700})";
  trace.metadata["gpu.1"] = R"({"uuid":"GPU-b","name":"NVIDIA H200","power_limit_w":350})";
  trace.metadata["gpu.2"] = "no JSON";
  EXPECT_EQ(power_limit_w(trace, 0), OptDouble(350));
  EXPECT_EQ(power_limit_w(trace, 1), std::nullopt);  // which of the two is not said
  EXPECT_EQ(power_limit_w(trace, 2), std::nullopt);
  EXPECT_EQ(power_limit_w(trace, 3), std::nullopt);
  trace.metadata["gpu.1"] = R"({"uuid":"GPU-b","name":"NVIDIA H200","power_limit_w":700})";
  EXPECT_EQ(power_limit_w(trace, 1), OptDouble(700));
}

}  // namespace
}  // namespace llmprof
