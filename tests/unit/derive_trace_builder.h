// Small traces in code, for the tests of src/derive: rows in any order, sorted and linked by build(). Times in ns.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "derive/derive.h"
#include "trace/trace.h"

namespace llmprof {

class TraceBuilder {
 public:
  Trace trace;

  TraceBuilder() {
    thread();
    stream(0, 7);
  }
  Row thread() {
    const Row row = static_cast<Row>(trace.threads.size());
    trace.threads.resize(row + 1);
    trace.threads.process_id[row] = 1;
    trace.threads.thread_id[row] = row + 100;
    return row;
  }
  Row stream(int32_t device, int64_t id) {
    const Row row = static_cast<Row>(trace.streams.size());
    trace.streams.resize(row + 1);
    trace.streams.device[row] = device;
    trace.streams.stream[row] = id;
    return row;
  }
  // Returns the operator's external id.
  uint64_t op(std::string_view name, int64_t start, int64_t dur, std::string_view dims = {}, Row on_thread = 0) {
    const size_t row = trace.ops.size();
    trace.ops.resize(row + 1);
    trace.ops.start_ns[row] = start;
    trace.ops.dur_ns[row] = dur;
    trace.ops.thread[row] = on_thread;
    trace.ops.name[row] = trace.strings.intern(name);
    trace.ops.signature[row] = kNoRow;
    trace.ops.external_id[row] = row + 1;
    if (!dims.empty()) {
      const Row signature = static_cast<Row>(trace.signatures.size());
      trace.signatures.resize(signature + 1);
      trace.signatures.dims[signature] = trace.strings.intern(dims);
      trace.ops.signature[row] = signature;
    }
    return row + 1;
  }
  // Returns the correlation id.
  uint64_t api(std::string_view name, int64_t start, int64_t dur, uint64_t external_id = 0, Row on_thread = 0) {
    const size_t row = trace.api_calls.size();
    trace.api_calls.resize(row + 1);
    trace.api_calls.start_ns[row] = start;
    trace.api_calls.dur_ns[row] = dur;
    trace.api_calls.thread[row] = on_thread;
    trace.api_calls.name[row] = trace.strings.intern(name);
    trace.api_calls.correlation[row] = row + 1;
    trace.api_calls.external_id[row] = external_id;
    return row + 1;
  }
  void gpu(std::string_view name, int64_t start, int64_t dur, uint64_t correlation = 0, Row on_stream = 0) {
    const size_t row = trace.gpu_ops.size();
    trace.gpu_ops.resize(row + 1);
    trace.gpu_ops.start_ns[row] = start;
    trace.gpu_ops.dur_ns[row] = dur;
    trace.gpu_ops.stream[row] = on_stream;
    trace.gpu_ops.name[row] = trace.strings.intern(name);
    trace.gpu_ops.config[row] = kNoRow;
    trace.gpu_ops.correlation[row] = correlation;
    const bool copy = name.substr(0, 6) == "Memcpy";
    trace.gpu_ops.kind[row] = copy ? GpuOpKind::kMemcpy : GpuOpKind::kKernel;
  }
  // A launch and its kernel.
  void launch(std::string_view kernel, int64_t call_start, int64_t gpu_start, int64_t gpu_dur,
              uint64_t external_id = 0) {
    gpu(kernel, gpu_start, gpu_dur, api("cudaLaunchKernel", call_start, 5, external_id));
  }
  void annotation(std::string_view name, int64_t start, int64_t dur, AnnotationKind kind = AnnotationKind::kUser,
                  Row on_thread = 0) {
    const size_t row = trace.annotations.size();
    trace.annotations.resize(row + 1);
    trace.annotations.start_ns[row] = start;
    trace.annotations.dur_ns[row] = dur;
    trace.annotations.thread[row] = kind == AnnotationKind::kGpuUser ? kNoRow : on_thread;
    trace.annotations.name[row] = trace.strings.intern(name);
    trace.annotations.kind[row] = kind;
  }
  void python(std::string_view name, int64_t start, int64_t dur) {
    const size_t row = trace.python_calls.size();
    trace.python_calls.resize(row + 1);
    trace.python_calls.start_ns[row] = start;
    trace.python_calls.dur_ns[row] = dur;
    trace.python_calls.thread[row] = 0;
    trace.python_calls.name[row] = trace.strings.intern(name);
  }
  void overhead(std::string_view name, int64_t start, int64_t dur, Row on_thread = kNoRow) {
    const size_t row = trace.overheads.size();
    trace.overheads.resize(row + 1);
    trace.overheads.start_ns[row] = start;
    trace.overheads.dur_ns[row] = dur;
    trace.overheads.thread[row] = on_thread;
    trace.overheads.name[row] = trace.strings.intern(name);
  }

  // ---- what a live recording adds ----
  // A GEMM through a math library on the host during [start, start + dur).
  Row library_call(int64_t start, int64_t dur, int64_t m, int64_t n, int64_t k, int64_t batch = 1,
                   DType dtype = DType::kBf16, Row on_thread = 0) {
    LibraryCalls& calls = trace.library_calls;
    const Row row = static_cast<Row>(calls.size());
    calls.resize(row + 1);
    calls.start_ns[row] = start;
    calls.dur_ns[row] = dur;
    calls.thread[row] = on_thread;
    calls.name[row] = trace.strings.intern("cublasGemmEx");
    calls.kind[row] = WorkKind::kGemm;
    calls.dtype[row] = calls.weight_dtype[row] = calls.out_dtype[row] = dtype;
    calls.batch[row] = batch;
    calls.m[row] = m;
    calls.n[row] = n;
    calls.k[row] = k;
    return row;
  }
  void graph_node(uint64_t node, Row library_call) {
    trace.graph_nodes.node.push_back(node);
    trace.graph_nodes.library_call.push_back(library_call);
  }
  // A kernel that a graph replayed.
  void node_kernel(std::string_view name, int64_t start, int64_t dur, uint64_t correlation, uint64_t node) {
    gpu(name, start, dur, correlation);
    trace.gpu_ops.graph_node.back() = node;
  }
  void graph_launch(int64_t start, int64_t dur, uint64_t correlation) {
    GraphLaunches& graphs = trace.graph_launches;
    const size_t row = graphs.size();
    graphs.resize(row + 1);
    graphs.start_ns[row] = start;
    graphs.dur_ns[row] = dur;
    graphs.stream[row] = 0;
    graphs.graph[row] = 9;
    graphs.correlation[row] = correlation;
  }
  void level(int64_t start, int64_t end, RecordingLevel level, int64_t process = 1) {
    Recorded& table = trace.recorded;
    const size_t row = table.size();
    table.resize(row + 1);
    table.start_ns[row] = start;
    table.dur_ns[row] = end - start;
    table.process_id[row] = process;
    table.level[row] = level;
  }
  void beat(int64_t time, uint64_t key, Row on_thread = 0) {
    trace.beats.time_ns.push_back(time);
    trace.beats.thread.push_back(on_thread);
    trace.beats.key.push_back(key);
  }

  // Sorted tables with launches linked and categories by the words gemm, attn, argmax, conv and Memcpy in kernel names.
  Trace& build() {
    sort(trace.ops, trace.ops.start_ns, trace.ops.dur_ns);
    sort(trace.api_calls, trace.api_calls.start_ns, trace.api_calls.dur_ns);
    sort(trace.gpu_ops, trace.gpu_ops.start_ns, trace.gpu_ops.dur_ns);
    sort(trace.annotations, trace.annotations.start_ns, trace.annotations.dur_ns);
    sort(trace.python_calls, trace.python_calls.start_ns, trace.python_calls.dur_ns);
    fold_whole_graphs(trace);
    link_launches(trace);
    for (size_t i = 0; i < trace.gpu_ops.size(); ++i) {
      const std::string_view name = trace.text(trace.gpu_ops.name[i]);
      const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
      trace.gpu_links.category[i] = has("gemm")     ? Category::kGemm
                                    : has("attn")   ? Category::kAttention
                                    : has("argmax") ? Category::kSampling
                                    : has("conv")   ? Category::kConvolution
                                    : has("Memcpy") ? Category::kCopy
                                    : has("[CUDA")  ? Category::kOther
                                                    : Category::kElementwise;
    }
    if (!trace.library_calls.empty()) {
      link_library_calls(trace);
      attach_work(trace);
    }
    return trace;
  }
  // build(), then the passes of busy, steps and idle.
  Trace& derive_all(const DeriveOptions& options = {}) {
    build();
    find_busy(trace);
    const Status status = find_steps(trace, options);
    if (status) attribute_idle(trace);
    return trace;
  }

 private:
  template <class Table>
  static void sort(Table& table, const std::vector<int64_t>& starts, const std::vector<int64_t>& durations) {
    std::vector<size_t> order(table.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return starts[a] != starts[b] ? starts[a] < starts[b] : durations[a] > durations[b];
    });
    const Table before = table;
    std::vector<const void*> columns;
    before.for_each_column([&](const FieldInfo&, const auto& column) { columns.push_back(&column); });
    size_t at = 0;
    table.for_each_column([&](const FieldInfo&, auto& column) {
      const auto& from = *static_cast<const std::decay_t<decltype(column)>*>(columns[at++]);
      for (size_t i = 0; i < order.size(); ++i) column[i] = from[order[i]];
    });
  }
};

// What must hold of any derived trace. Returns an empty text, or the first violation.
inline std::string broken_invariant(const Trace& trace) {
  const auto busy_between = [&](int32_t device, int64_t from, int64_t to) {
    int64_t sum = 0;
    for (size_t i = 0; i < trace.busy_intervals.size(); ++i) {
      if (trace.busy_intervals.device[i] != device) continue;
      sum += std::max<int64_t>(
          0, std::min(to, trace.busy_intervals.end_ns[i]) - std::max(from, trace.busy_intervals.start_ns[i]));
    }
    return sum;
  };
  for (const Window& window : trace.windows) {
    int64_t sum = busy_between(window.device, window.start_ns, window.end_ns), last_end = window.start_ns;
    for (size_t i = 0; i < trace.gaps.size(); ++i) {
      if (trace.gaps.device[i] != window.device) continue;
      if (trace.gaps.dur_ns[i] <= 0) return "empty gap";
      if (trace.gaps.start_ns[i] < last_end) return "gaps overlap or are unsorted";
      last_end = trace.gaps.start_ns[i] + trace.gaps.dur_ns[i];
      if (busy_between(window.device, trace.gaps.start_ns[i], last_end) != 0) return "gap over busy time";
      sum += trace.gaps.dur_ns[i];
    }
    if (last_end > window.end_ns) return "gap outside the window";
    if (sum != window.end_ns - window.start_ns) return "busy and gaps do not fill the window of the device";
  }
  for (Row s = 0; s < trace.steps.size(); ++s) {
    int64_t sum = busy_between(trace.steps.device[s], trace.steps.start_ns[s], trace.steps.end_ns[s]);
    for (size_t i = 0; i < trace.gaps.size(); ++i) {
      if (trace.gaps.step[i] == s) sum += trace.gaps.dur_ns[i];
    }
    if (sum != trace.steps.end_ns[s] - trace.steps.start_ns[s]) return "busy and gaps do not fill a step";
    for (Row other = s + 1; other < trace.steps.size(); ++other) {
      if (trace.steps.device[other] != trace.steps.device[s]) continue;
      if (trace.steps.start_ns[other] < trace.steps.end_ns[s]) return "windows of steps overlap";
      break;
    }
  }
  return {};
}

}  // namespace llmprof
