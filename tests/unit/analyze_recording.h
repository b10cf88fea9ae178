// A derived Trace in code, for the tests of src/analyze and src/report: derived tables are written directly, so that a
// test decides what links, steps and gaps say. Times in ns; one device (0), one stream, one thread unless asked.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "analyze/analysis.h"
#include "derive/steady.h"
#include "trace/copy_names.h"
#include "trace/trace_builder.h"

namespace llmprof {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

class AnalyzedRecording {
 public:
  Trace trace;

  explicit AnalyzedRecording(bool with_device = true) {
    rows().add<Threads>({.process_id = 0, .thread_id = 0});
    add_stream(0);
    if (!with_device) return;
    rows().add<Devices>({.device = 0,
                         .name = text("NVIDIA H200"),
                         .sm_count = 132,
                         .compute_major = 9,
                         .compute_minor = 0,
                         .memory_bytes = 150109880320,
                         .threads_per_sm_max = 2048,
                         .registers_per_sm = 65536,
                         .shared_bytes_per_sm = 233472});
  }
  StreamId add_stream(int32_t device) { return rows().add<Streams>({.device = device, .context = 0, .stream = 7}); }
  void window(int64_t start, int64_t end, int32_t device = 0) { trace.windows.push_back({device, start, end}); }
  StepId step(StageKind kind, int64_t start, int64_t end, int64_t tokens = -1, int64_t context = -1,
              std::string_view name = {}, int32_t device = 0) {
    return rows().add<Steps>({.kind = kind,
                              .source = name.empty() ? StageSource::kDetected : StageSource::kAnnotation,
                              .stage = text(name.empty() ? name_of(kind) : name),
                              .device = device,
                              .start_ns = start,
                              .end_ns = end,
                              .host_start_ns = start,
                              .gpu_start_ns = start,
                              .gpu_end_ns = end,
                              .new_tokens = tokens,
                              .sequences = tokens < 0 ? -1 : 1,
                              .context = context,
                              .output_tokens = tokens < 0 ? -1 : 1,
                              .gemm_rows = 0,
                              .warm_up_ns = 0});
  }
  OpId op(std::string_view name, int64_t start, int64_t dur, OpId parent = kNoRow, std::string_view dims = {}) {
    rows().add<OpLinks>({.parent = parent, .self_ns = dur});
    if (parent != kNoRow) trace.op_links.self_ns[parent] -= dur;
    return rows().add<Ops>({.start_ns = start,
                            .dur_ns = dur,
                            .thread = 0,
                            .name = text(name),
                            .signature = dims.empty() ? SignatureId() : rows().signature({.dims = dims})});
  }
  ApiCallId api(std::string_view name, int64_t start, int64_t dur) {
    rows().add<ApiLinks>({});
    return rows().add<ApiCalls>({.start_ns = start, .dur_ns = dur, .thread = 0, .name = text(name)});
  }
  WorkId gemm(DType dtype, int64_t m, int64_t n, int64_t k) {
    const WorkId row = work(WorkKind::kGemm, dtype, 2.0 * static_cast<double>(m * n * k),
                            dtype_bytes(dtype) * static_cast<double>(m * k + n * k + m * n));
    trace.works.m[row] = m;
    trace.works.n[row] = n;
    trace.works.k[row] = k;
    trace.works.weight_bytes[row] = dtype_bytes(dtype) * static_cast<double>(n * k);
    return row;
  }
  WorkId work(WorkKind kind, DType dtype, double flops, double bytes) {
    return rows().add<Works>({.kind = kind,
                              .dtype = dtype,
                              .weight_dtype = dtype,
                              .batch = 1,
                              .m = 0,
                              .n = 0,
                              .k = 0,
                              .heads = 0,
                              .kv_heads = 0,
                              .flops = flops,
                              .flops_full = flops,
                              .bytes = bytes,
                              .weight_bytes = 0,
                              .kv_bytes = 0,
                              .shape = text("shape " + std::to_string(trace.works.size()))});
  }
  LaunchConfigId config(int32_t grid, int32_t block) {
    return rows().add<LaunchConfigs>({.grid_x = grid,
                                      .grid_y = 1,
                                      .grid_z = 1,
                                      .block_x = block,
                                      .block_y = 1,
                                      .block_z = 1,
                                      .registers_per_thread = 32,
                                      .shared_bytes = 0,
                                      .occupancy_frac = 0});
  }
  struct Kernel {
    StepId step = kNoRow;
    OpId op = kNoRow;
    ApiCallId api = kNoRow;
    WorkId work = kNoRow;
    LaunchConfigId config = kNoRow;
    StreamId stream = 0;
    GpuOpKind kind = GpuOpKind::kKernel;
  };
  GpuOpId gpu(std::string_view name, Category category, int64_t start, int64_t dur, const Kernel& links) {
    rows().add<GpuLinks>(
        {.api = links.api, .op = links.op, .work = links.work, .step = links.step, .category = category});
    return rows().add<GpuOps>({.start_ns = start,
                               .dur_ns = dur,
                               .stream = links.stream,
                               .name = text(name),
                               .config = links.config,
                               .bytes = links.kind == GpuOpKind::kKernel ? -1 : 1'000'000,
                               .kind = links.kind,
                               .path = copy_path_of_name(name),
                               .host_memory = host_memory_of_name(name)});
  }
  void busy(int64_t start, int64_t end, int32_t device = 0) {
    rows().add<BusyIntervals>({.device = device, .start_ns = start, .end_ns = end});
  }
  Row gap(IdleCause cause, int64_t start, int64_t dur, StepId step, OpId op = kNoRow, PythonCallId python = kNoRow,
          int32_t device = 0) {
    return rows().add<Gaps>(
        {.device = device, .start_ns = start, .dur_ns = dur, .cause = cause, .step = step, .op = op, .python = python});
  }
  PythonCallId python(std::string_view name, int64_t start, int64_t dur) {
    return rows().add<PythonCalls>({.start_ns = start, .dur_ns = dur, .thread = 0, .name = text(name)});
  }
  void memory(int64_t time, int64_t bytes, int64_t allocated, int64_t reserved) {
    rows().add<MemoryEvents>({.time_ns = time,
                              .thread = 0,
                              .device = 0,
                              .bytes = bytes,
                              .allocated_bytes = allocated,
                              .reserved_bytes = reserved});
  }

 private:
  TraceBuilder rows() { return TraceBuilder(trace); }
  StringId text(std::string_view text) { return trace.strings.intern(text); }
};

// Of any recording: those of tests about one table need not add up.
inline Report report_of(const Trace& trace, const AnalyzeOptions& options = {}) {
  Result<Report> report = analyze(trace, options);
  EXPECT_TRUE(report) << report.error().text();
  return report ? *std::move(report) : Report();
}
inline Report report_of(const AnalyzedRecording& run, const AnalyzeOptions& options = {}) {
  return report_of(run.trace, options);
}

// The run of most tests: a prefill of 10 ms that computes 8 ms, and three decode steps of 10 ms each that compute 2 ms
// in `kernels` kernels and wait for the host 8 ms; 5 ms outside every step at the end. All work is bf16 GEMMs.
inline AnalyzedRecording eager_run(bool with_device = true, int kernels = 200) {
  AnalyzedRecording run(with_device);
  run.window(0, 45 * kMs);
  const StepId prefill = run.step(StageKind::kPrefill, 0, 10 * kMs, 512, 512);
  const OpId linear = run.op("aten::linear", 0, 3 * kMs, kNoRow, "[[1, 512, 4096], [4096, 4096]]");
  const OpId mm = run.op("aten::mm", kMs / 2, 2 * kMs, linear, "[[512, 4096], [4096, 4096]]");
  run.gap(IdleCause::kOperatorDispatch, 0, 2 * kMs, prefill, linear);
  run.gpu("gemm_big", Category::kGemm, 2 * kMs, 8 * kMs,
          {prefill, mm, run.api("cudaLaunchKernel", kMs, 5000), run.gemm(DType::kBf16, 512, 14336, 4096)});
  run.busy(2 * kMs, 10 * kMs);
  const WorkId small = run.gemm(DType::kBf16, 1, 4096, 4096);
  for (int64_t s = 1; s <= 3; ++s) {
    const int64_t start = s * 10 * kMs;
    const StepId decode = run.step(StageKind::kDecode, start, start + 10 * kMs, 1, 512 + s);
    const int64_t period = 10 * kMs / kernels, busy = 2 * kMs / kernels;
    for (int64_t k = 0; k < kernels; ++k) {
      const int64_t at = start + k * period;
      const OpId op = run.op("aten::mm", at, 1000, kNoRow, "[[1, 4096], [4096, 4096]]");
      run.gap(IdleCause::kOperatorDispatch, at, period - busy, decode, op);
      run.gpu("gemv", Category::kGemm, at + period - busy, busy,
              {decode, op, run.api("cudaLaunchKernel", at, 500), small});
      run.busy(at + period - busy, at + period);
    }
  }
  run.gap(IdleCause::kNoWork, 40 * kMs, 5 * kMs, kNoRow);
  return run;
}

// One step, and what the GPU does in it: one activity behind the other, so far apart.
struct OneStep {
  AnalyzedRecording run;
  int64_t at = 0;
  StepId step;
  int64_t apart_ns;

  OneStep(StageKind kind, int64_t length_ns, int64_t tokens, int64_t apart)
      : step(run.step(kind, 0, length_ns, tokens, 513)), apart_ns(apart) {
    run.window(0, length_ns);
  }
  GpuOpId kernel(Category category, int64_t dur_ns, WorkId work = kNoRow, std::string_view name = "kernel",
                 int32_t blocks = 0, GpuOpKind kind = GpuOpKind::kKernel) {
    const LaunchConfigId config = blocks > 0 ? run.config(blocks, 128) : LaunchConfigId(kNoRow);
    const GpuOpId op =
        run.gpu(name, category, at, dur_ns, {.step = step, .work = work, .config = config, .kind = kind});
    run.busy(at, at + dur_ns);
    at += dur_ns + apart_ns;
    return op;
  }
};

inline const StageTiming* stage_of(const Report& report, std::string_view name) {
  for (const StageTiming& stage : report.stages)
    if (stage.name == name) return &stage;
  return nullptr;
}
inline const Finding* finding_of(const Report& report, std::string_view id, std::string_view stage = {}) {
  for (const Finding& finding : report.findings)
    if (finding.id == id && (stage.empty() || finding.stage == stage)) return &finding;
  return nullptr;
}

}  // namespace llmprof
