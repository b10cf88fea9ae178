// A Kineto recording as llmprof's own recorder would have seen the same run: no framework operators and no Python, but
// the GEMM shapes of library calls around the launches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "derive/derive.h"
#include "import/importer.h"
#include "trace/trace_builder.h"

namespace llmprof {

inline Trace import_golden(const std::string& name) {
  Result<Trace> trace = import_files({std::string(LLMPROF_TEST_DATA) + "/golden/inputs/" + name});
  EXPECT_TRUE(trace.has_value()) << name;
  return trace ? std::move(*trace) : Trace();
}

inline LibraryCallId add_library_call(Trace& trace, int64_t start, int64_t end, ThreadId thread, DType dtype,
                                      int64_t batch, int64_t m, int64_t n, int64_t k, DType weight = DType::kUnknown,
                                      DType out = DType::kUnknown) {
  TraceBuilder builder(trace);
  return builder.add<LibraryCalls>({.start_ns = start,
                                    .dur_ns = end - start,
                                    .thread = thread,
                                    .name = builder.text("cublasGemmEx"),
                                    .kind = WorkKind::kGemm,
                                    .dtype = dtype,
                                    .weight_dtype = weight == DType::kUnknown ? dtype : weight,
                                    .out_dtype = out == DType::kUnknown ? dtype : out,
                                    .batch = batch,
                                    .m = m,
                                    .n = n,
                                    .k = k});
}

inline void add_level(Trace& trace, int64_t start, int64_t end, RecordingLevel level, int64_t process = 1) {
  TraceBuilder(trace).add<Recorded>(
      {.start_ns = start, .dur_ns = end - start, .process_id = process, .level = level, .cut_ns = 0});
}

// `trace` must have been through derive().
inline void make_live(Trace& trace) {
  std::map<Row, std::pair<int64_t, int64_t>> span_of_op;  // of its launching calls
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const Row api = trace.gpu_links.api[g], op = trace.gpu_links.op[g];
    if (api == kNoRow || op == kNoRow) continue;
    const int64_t start = trace.api_calls.start_ns[api], end = start + trace.api_calls.dur_ns[api];
    const auto [it, fresh] = span_of_op.emplace(op, std::pair(start, end));
    if (!fresh) it->second = {std::min(it->second.first, start), std::max(it->second.second, end)};
  }
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const Row work = trace.gpu_links.work[g], op = trace.gpu_links.op[g];
    if (work == kNoRow || op == kNoRow || trace.works.kind[work] != WorkKind::kGemm) continue;
    if (span_of_op.count(op) == 0) continue;
    const Works& w = trace.works;
    add_library_call(trace, span_of_op[op].first, span_of_op[op].second + 1,
                     trace.api_calls.thread[trace.gpu_links.api[g]], w.dtype[work], w.batch[work], w.m[work], w.n[work],
                     w.k[work], w.weight_dtype[work]);
  }
  int64_t start = INT64_MAX, end = INT64_MIN;
  for (const Window& window : trace.windows) {
    start = std::min(start, window.start_ns);
    end = std::max(end, window.end_ns);
  }
  add_level(trace, start - 1'000'000'000, end + 1'000'000'000, RecordingLevel::kDefault,
            trace.threads.empty() ? 1 : trace.threads.process_id[0]);
  trace.ops.clear();
  trace.python_calls.clear();
  trace.memory_events.clear();
  std::fill(trace.api_calls.external_id.begin(), trace.api_calls.external_id.end(), 0);
  std::fill(trace.gpu_ops.external_id.begin(), trace.gpu_ops.external_id.end(), 0);
  trace.source.kind = "session";
  trace.diagnostics = {};
}

}  // namespace llmprof
