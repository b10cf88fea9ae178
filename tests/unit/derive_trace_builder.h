// Small traces in code, for the tests of src/derive: rows in any order, sorted and linked by build(). Times in ns.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "derive/derive.h"
#include "trace/copy_names.h"
#include "trace/trace_builder.h"

namespace llmprof {

class TestTrace {
 public:
  Trace trace;

  TestTrace() {
    thread();
    stream(0, 7);
  }
  ThreadId thread() {
    return rows().add<Threads>({.process_id = 1, .thread_id = static_cast<int64_t>(trace.threads.size()) + 100});
  }
  StreamId stream(int32_t device, int64_t id) {
    return rows().add<Streams>({.device = device, .context = 0, .stream = id});
  }
  // Returns the operator's external id.
  uint64_t op(std::string_view name, int64_t start, int64_t dur, std::string_view dims = {}, ThreadId on_thread = 0) {
    const uint64_t id = trace.ops.size() + 1;
    rows().add<Ops>({.start_ns = start,
                     .dur_ns = dur,
                     .thread = on_thread,
                     .name = text(name),
                     .signature = dims.empty() ? SignatureId() : rows().signature({.dims = dims}),
                     .external_id = id});
    return id;
  }
  // Returns the correlation id.
  uint64_t api(std::string_view name, int64_t start, int64_t dur, uint64_t external_id = 0, ThreadId on_thread = 0) {
    const uint64_t id = trace.api_calls.size() + 1;
    rows().add<ApiCalls>({.start_ns = start,
                          .dur_ns = dur,
                          .thread = on_thread,
                          .name = text(name),
                          .correlation = id,
                          .external_id = external_id});
    return id;
  }
  // Of the call added last.
  void names(StreamId on_stream, uint64_t event = 0) {
    trace.api_calls.stream.back() = on_stream;
    trace.api_calls.event.back() = event;
  }
  void gpu(std::string_view name, int64_t start, int64_t dur, uint64_t correlation = 0, StreamId on_stream = 0) {
    const bool copy = name.starts_with("Memcpy");
    rows().add<GpuOps>({.start_ns = start,
                        .dur_ns = dur,
                        .stream = on_stream,
                        .name = text(name),
                        .correlation = correlation,
                        .kind = copy ? GpuOpKind::kMemcpy : GpuOpKind::kKernel,
                        .path = copy_path_of_name(name),
                        .host_memory = host_memory_of_name(name)});
  }
  // A launch and its kernel.
  void launch(std::string_view kernel, int64_t call_start, int64_t gpu_start, int64_t gpu_dur,
              uint64_t external_id = 0) {
    gpu(kernel, gpu_start, gpu_dur, api("cudaLaunchKernel", call_start, 5, external_id));
  }
  void annotation(std::string_view name, int64_t start, int64_t dur, AnnotationKind kind = AnnotationKind::kUser,
                  ThreadId on_thread = 0) {
    rows().add<Annotations>({.start_ns = start,
                             .dur_ns = dur,
                             .thread = kind == AnnotationKind::kGpuUser ? ThreadId() : on_thread,
                             .name = text(name),
                             .kind = kind});
  }
  void python(std::string_view name, int64_t start, int64_t dur) {
    rows().add<PythonCalls>({.start_ns = start, .dur_ns = dur, .thread = 0, .name = text(name)});
  }
  void overhead(std::string_view name, int64_t start, int64_t dur, ThreadId on_thread = kNoRow) {
    rows().add<Overheads>({.start_ns = start, .dur_ns = dur, .thread = on_thread, .name = text(name)});
  }

  // ---- what a live recording adds ----
  // A GEMM through a math library on the host during [start, start + dur).
  LibraryCallId library_call(int64_t start, int64_t dur, int64_t m, int64_t n, int64_t k, int64_t batch = 1,
                             DType dtype = DType::kBf16, ThreadId on_thread = 0) {
    return rows().add<LibraryCalls>({.start_ns = start,
                                     .dur_ns = dur,
                                     .thread = on_thread,
                                     .name = text("cublasGemmEx"),
                                     .kind = WorkKind::kGemm,
                                     .dtype = dtype,
                                     .weight_dtype = dtype,
                                     .out_dtype = dtype,
                                     .batch = batch,
                                     .m = m,
                                     .n = n,
                                     .k = k});
  }
  void graph_node(uint64_t node, LibraryCallId library_call) {
    rows().add<GraphNodes>({.node = node, .library_call = library_call});
  }
  // A kernel that a graph replayed.
  void node_kernel(std::string_view name, int64_t start, int64_t dur, uint64_t correlation, uint64_t node,
                   StreamId on_stream = 0) {
    gpu(name, start, dur, correlation, on_stream);
    trace.gpu_ops.graph_node.back() = node;
  }
  void graph_edge(uint64_t node, uint64_t after) { rows().add<GraphEdges>({.node = node, .after = after}); }
  void graph_launch(int64_t start, int64_t dur, uint64_t correlation) {
    rows().add<GraphLaunches>({.start_ns = start, .dur_ns = dur, .stream = 0, .graph = 9, .correlation = correlation});
  }
  void level(int64_t start, int64_t end, RecordingLevel level, int64_t process = 1, std::string_view reason = {}) {
    rows().add<Recorded>({.start_ns = start,
                          .dur_ns = end - start,
                          .process_id = process,
                          .level = level,
                          .reason = text(reason),
                          .cut_ns = 0});
  }
  void product_rows(int64_t time, int64_t tokens, ThreadId on_thread = 0) {
    rows().add<ProductRows>({.time_ns = time, .thread = on_thread, .tokens = tokens});
  }
  void host_wait(int64_t start, int64_t end, std::string_view stack, ThreadId on_thread = 0) {
    rows().add<HostPlaces>({.start_ns = start,
                            .dur_ns = end - start,
                            .thread = on_thread,
                            .kind = PlaceKind::kWait,
                            .stack = text(stack)});
  }
  void recurring_call(int64_t time, uint64_t key, ThreadId on_thread = 0) {
    rows().add<RecurringCalls>({.time_ns = time, .thread = on_thread, .key = key});
  }

  // Sorted tables with launches linked and categories by the words gemm, attn, argmax, softmax, conv, nccl and Memcpy
  // in kernel names.
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
      trace.gpu_links.category[i] = has("gemm")      ? Category::kGemm
                                    : has("attn")    ? Category::kAttention
                                    : has("argmax")  ? Category::kSampling
                                    : has("softmax") ? Category::kSoftmax
                                    : has("conv")    ? Category::kConvolution
                                    : has("Memcpy")  ? Category::kCopy
                                    : has("nccl")    ? Category::kCommunication
                                    : has("[CUDA")   ? Category::kOther
                                    : has("unknown") ? Category::kOther
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
  TraceBuilder rows() { return TraceBuilder(trace); }
  StringId text(std::string_view text) { return trace.strings.intern(text); }
  template <class Table>
  static void sort(Table& table, const std::vector<int64_t>& starts, const auto& durations) {
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
