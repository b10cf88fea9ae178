// A derived Trace in code, for the tests of src/analyze and src/report: derived tables are written directly, so that a
// test decides what links, steps and gaps say. Times in ns; one device (0), one stream, one thread unless asked.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "analyze/analysis.h"
#include "trace/trace.h"

namespace llmprof {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

class AnalyzedRecording {
 public:
  Trace trace;

  explicit AnalyzedRecording(bool with_device = true) {
    trace.threads.resize(1);
    add_stream(0);
    if (!with_device) return;
    trace.devices.resize(1);
    trace.devices.device[0] = 0;
    trace.devices.name[0] = trace.strings.intern("NVIDIA H200");
    trace.devices.sm_count[0] = 132;
    trace.devices.compute_major[0] = 9;
    trace.devices.memory_bytes[0] = 150109880320;
    trace.devices.threads_per_sm_max[0] = 2048;
    trace.devices.registers_per_sm[0] = 65536;
    trace.devices.shared_bytes_per_sm[0] = 233472;
  }
  Row add_stream(int32_t device) {
    const Row row = static_cast<Row>(trace.streams.size());
    trace.streams.resize(row + 1);
    trace.streams.device[row] = device;
    trace.streams.stream[row] = 7;
    return row;
  }
  void window(int64_t start, int64_t end, int32_t device = 0) { trace.windows.push_back({device, start, end}); }
  Row step(StageKind kind, int64_t start, int64_t end, int64_t tokens = -1, int64_t context = -1,
           std::string_view name = {}, int32_t device = 0) {
    const Row row = static_cast<Row>(trace.steps.size());
    trace.steps.resize(row + 1);
    trace.steps.kind[row] = kind;
    trace.steps.source[row] = name.empty() ? StageSource::kDetected : StageSource::kAnnotation;
    trace.steps.stage[row] = trace.strings.intern(name.empty() ? name_of(kind) : name);
    trace.steps.device[row] = device;
    trace.steps.start_ns[row] = trace.steps.host_start_ns[row] = trace.steps.gpu_start_ns[row] = start;
    trace.steps.end_ns[row] = trace.steps.gpu_end_ns[row] = end;
    trace.steps.sync_ns[row] = -1;
    trace.steps.new_tokens[row] = tokens;
    trace.steps.sequences[row] = tokens < 0 ? -1 : 1;
    trace.steps.context[row] = context;
    trace.steps.output_tokens[row] = tokens < 0 ? -1 : 1;
    trace.steps.annotation[row] = kNoRow;
    return row;
  }
  Row op(std::string_view name, int64_t start, int64_t dur, Row parent = kNoRow, std::string_view dims = {}) {
    const Row row = static_cast<Row>(trace.ops.size());
    trace.ops.resize(row + 1);
    trace.op_links.resize(row + 1);
    trace.ops.start_ns[row] = start;
    trace.ops.dur_ns[row] = trace.op_links.self_ns[row] = dur;
    trace.ops.name[row] = trace.strings.intern(name);
    trace.ops.signature[row] = kNoRow;
    trace.op_links.parent[row] = parent;
    if (parent != kNoRow) trace.op_links.self_ns[parent] -= dur;
    if (!dims.empty()) {
      trace.ops.signature[row] = static_cast<Row>(trace.signatures.size());
      trace.signatures.resize(trace.signatures.size() + 1);
      trace.signatures.dims.back() = trace.strings.intern(dims);
    }
    return row;
  }
  Row api(std::string_view name, int64_t start, int64_t dur) {
    const Row row = static_cast<Row>(trace.api_calls.size());
    trace.api_calls.resize(row + 1);
    trace.api_links.resize(row + 1);
    trace.api_links.op[row] = kNoRow;
    trace.api_calls.start_ns[row] = start;
    trace.api_calls.dur_ns[row] = dur;
    trace.api_calls.name[row] = trace.strings.intern(name);
    return row;
  }
  Row gemm(DType dtype, int64_t m, int64_t n, int64_t k) {
    const Row row = work(WorkKind::kGemm, dtype, 2.0 * static_cast<double>(m * n * k),
                         dtype_bytes(dtype) * static_cast<double>(m * k + n * k + m * n));
    trace.works.m[row] = m;
    trace.works.n[row] = n;
    trace.works.k[row] = k;
    trace.works.weight_bytes[row] = dtype_bytes(dtype) * static_cast<double>(n * k);
    return row;
  }
  Row work(WorkKind kind, DType dtype, double flops, double bytes) {
    const Row row = static_cast<Row>(trace.works.size());
    trace.works.resize(row + 1);
    trace.works.kind[row] = kind;
    trace.works.dtype[row] = trace.works.weight_dtype[row] = dtype;
    trace.works.batch[row] = 1;
    trace.works.flops[row] = trace.works.flops_full[row] = flops;
    trace.works.bytes[row] = bytes;
    trace.works.shape[row] = trace.strings.intern("shape " + std::to_string(row));
    return row;
  }
  Row config(int32_t grid, int32_t block) {
    const Row row = static_cast<Row>(trace.launch_configs.size());
    trace.launch_configs.resize(row + 1);
    trace.launch_configs.grid_x[row] = grid;
    trace.launch_configs.block_x[row] = block;
    trace.launch_configs.grid_y[row] = trace.launch_configs.grid_z[row] = 1;
    trace.launch_configs.block_y[row] = trace.launch_configs.block_z[row] = 1;
    trace.launch_configs.registers_per_thread[row] = 32;
    return row;
  }
  struct Kernel {
    Row step = kNoRow, op = kNoRow, api = kNoRow, work = kNoRow, config = kNoRow, stream = 0;
    GpuOpKind kind = GpuOpKind::kKernel;
  };
  Row gpu(std::string_view name, Category category, int64_t start, int64_t dur, const Kernel& links) {
    const Row row = static_cast<Row>(trace.gpu_ops.size());
    trace.gpu_ops.resize(row + 1);
    trace.gpu_links.resize(row + 1);
    trace.gpu_ops.start_ns[row] = start;
    trace.gpu_ops.dur_ns[row] = dur;
    trace.gpu_ops.name[row] = trace.strings.intern(name);
    trace.gpu_ops.stream[row] = links.stream;
    trace.gpu_ops.config[row] = links.config;
    trace.gpu_ops.kind[row] = links.kind;
    trace.gpu_ops.bytes[row] = links.kind == GpuOpKind::kKernel ? -1 : 1'000'000;
    trace.gpu_links.api[row] = links.api;
    trace.gpu_links.op[row] = links.op;
    trace.gpu_links.work[row] = links.work;
    trace.gpu_links.step[row] = links.step;
    trace.gpu_links.category[row] = category;
    return row;
  }
  void busy(int64_t start, int64_t end, int32_t device = 0) {
    const size_t row = trace.busy_intervals.size();
    trace.busy_intervals.resize(row + 1);
    trace.busy_intervals.device[row] = device;
    trace.busy_intervals.start_ns[row] = start;
    trace.busy_intervals.end_ns[row] = end;
  }
  Row gap(IdleCause cause, int64_t start, int64_t dur, Row step, Row op = kNoRow, Row python = kNoRow,
          int32_t device = 0) {
    const Row row = static_cast<Row>(trace.gaps.size());
    trace.gaps.resize(row + 1);
    trace.gaps.device[row] = device;
    trace.gaps.start_ns[row] = start;
    trace.gaps.dur_ns[row] = dur;
    trace.gaps.cause[row] = cause;
    trace.gaps.step[row] = step;
    trace.gaps.op[row] = op;
    trace.gaps.api[row] = kNoRow;
    trace.gaps.python[row] = python;
    trace.gaps.next_gpu_op[row] = kNoRow;
    return row;
  }
  Row python(std::string_view name, int64_t start, int64_t dur) {
    const Row row = static_cast<Row>(trace.python_calls.size());
    trace.python_calls.resize(row + 1);
    trace.python_calls.start_ns[row] = start;
    trace.python_calls.dur_ns[row] = dur;
    trace.python_calls.name[row] = trace.strings.intern(name);
    return row;
  }
  void memory(int64_t time, int64_t bytes, int64_t allocated, int64_t reserved) {
    const size_t row = trace.memory_events.size();
    trace.memory_events.resize(row + 1);
    trace.memory_events.time_ns[row] = time;
    trace.memory_events.bytes[row] = bytes;
    trace.memory_events.allocated_bytes[row] = allocated;
    trace.memory_events.reserved_bytes[row] = reserved;
  }
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
  const Row prefill = run.step(StageKind::kPrefill, 0, 10 * kMs, 512, 512);
  const Row linear = run.op("aten::linear", 0, 3 * kMs, kNoRow, "[[1, 512, 4096], [4096, 4096]]");
  const Row mm = run.op("aten::mm", kMs / 2, 2 * kMs, linear, "[[512, 4096], [4096, 4096]]");
  run.gap(IdleCause::kOperatorDispatch, 0, 2 * kMs, prefill, linear);
  run.gpu("gemm_big", Category::kGemm, 2 * kMs, 8 * kMs,
          {prefill, mm, run.api("cudaLaunchKernel", kMs, 5000), run.gemm(DType::kBf16, 512, 14336, 4096)});
  run.busy(2 * kMs, 10 * kMs);
  const Row small = run.gemm(DType::kBf16, 1, 4096, 4096);
  for (int64_t s = 1; s <= 3; ++s) {
    const int64_t start = s * 10 * kMs;
    const Row decode = run.step(StageKind::kDecode, start, start + 10 * kMs, 1, 512 + s);
    const int64_t period = 10 * kMs / kernels, busy = 2 * kMs / kernels;
    for (int64_t k = 0; k < kernels; ++k) {
      const int64_t at = start + k * period;
      const Row op = run.op("aten::mm", at, 1000, kNoRow, "[[1, 4096], [4096, 4096]]");
      run.gap(IdleCause::kOperatorDispatch, at, period - busy, decode, op);
      run.gpu("gemv", Category::kGemm, at + period - busy, busy,
              {decode, op, run.api("cudaLaunchKernel", at, 500), small});
      run.busy(at + period - busy, at + period);
    }
  }
  run.gap(IdleCause::kNoWork, 40 * kMs, 5 * kMs, kNoRow);
  return run;
}

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
