// The visitor that turns the records of one spool into the tables of a SpoolTables. Private to session_spool.cc
// (definitions, samples, the end) and session_events.cc (what the program did).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "base/flat_index.h"
#include "capture/spool/reader.h"
#include "import/session_names.h"
#include "import/session_spool.h"
#include "import/session_stacks.h"
#include "trace/check_trace.h"
#include "trace/copy_names.h"
#include "trace/trace_builder.h"

namespace llmprof::session_importer {

constexpr double kNoDouble = std::numeric_limits<double>::quiet_NaN();
constexpr int32_t kNotReady = 600;  // cudaErrorNotReady: the answer of a query, not a failure

enum class Kind : uint8_t { kNothing, kText, kThread, kStream, kKernel, kApi, kLibrary, kMetricSet, kModule };

struct KernelInfo {
  StringId name;
  StreamId stream;
  LaunchConfigId config;
};
struct ApiInfo {
  StringId name;
  ApiLayer layer;
};
struct MetricSet {
  std::array<int8_t, spool::kMetricsMax> columns;  // index among the float columns of GpuSamples, -1 if unknown
  CounterSource source;
  StringId gpu_uuid;
};
struct LevelAt {
  int64_t time_ns;
  spool::Level level;
  StringId reason;
};
struct OpenRange {
  spool::RangeOpen record;
  bool closed;
};

// CUPTI counts calls in 32 bits. Records come within 2^31 calls of each other, so the nearest continuation is right.
class CorrelationUnwrapper {
 public:
  uint64_t operator()(uint32_t correlation, uint64_t process_index) {
    if (correlation == 0) return 0;
    if (started_)
      last_ += static_cast<uint64_t>(int64_t{static_cast<int32_t>(correlation - static_cast<uint32_t>(last_))});
    else
      last_ = correlation;
    started_ = true;
    return qualified(last_ & 0xFFFFFFFFFFFFU, process_index);
  }

 private:
  uint64_t last_ = 0;
  bool started_ = false;
};

class SpoolReader {
 public:
  SpoolReader(SpoolTables& file, int64_t base_ns)
      : file_(file), trace_(file.part), builder_(file.part), base_ns_(base_ns) {
    trace_.gpu_samples.for_each_column([&]<class T>(const FieldInfo& info, std::vector<T>& column) {
      if constexpr (std::is_same_v<T, float>) {
        sample_columns_.push_back(&column);
        sample_names_.push_back(info.name);
      }
    });
  }

  void finish(const spool::ReadSummary& summary);

  // ---- definitions ----
  void operator()(const spool::TextDef& def) { define(def.id, Kind::kText, index(builder_.text(def.text))); }
  void operator()(const spool::ThreadDef& def) {
    define(def.id, Kind::kThread, builder_.thread(file_.head.process_id, def.thread_id, text(def.name)));
  }
  void operator()(const spool::StreamDef& def) {
    define(def.id, Kind::kStream, builder_.stream(std::max(def.device, 0), def.context, def.stream));
  }
  void operator()(const spool::ApiDef& def) {
    apis_.push_back({text(def.name), def.layer == 0 ? ApiLayer::kRuntime : ApiLayer::kDriver});
    define(def.id, Kind::kApi, static_cast<Row>(apis_.size() - 1));
  }
  void operator()(const spool::LibraryDef& def) {
    libraries_.push_back(def);
    define(def.id, Kind::kLibrary, static_cast<Row>(libraries_.size() - 1));
  }
  void operator()(const spool::ModuleDef& def) {
    const size_t module = modules_.add(trace_.text(text(def.path)), trace_.text(text(def.build_id)));
    define(def.id, Kind::kModule, static_cast<Row>(module));
  }
  void operator()(const spool::KernelDef& def);
  void operator()(const spool::MetricSetDef& def);
  void operator()(const spool::DeviceDef& def);

  // ---- events ----
  void operator()(const spool::Kernel& r) {
    const Row row = find(r.def, Kind::kKernel);
    if (row != kNoRow)
      add_gpu_op(r, GpuOpKind::kKernel, kernels_[row].stream, kernels_[row].name, kernels_[row].config, -1);
    else
      add_gpu_op(r, GpuOpKind::kKernel, unknown_stream(), builder_.text("[name lost]"), kNoRow, -1);
  }
  void operator()(const spool::Memcpy& r) {
    const uint32_t key = uint32_t{r.copy_kind} << 16 | uint32_t{r.source_kind} << 8 | r.dest_kind;
    if (key != copy_key_ || copy_name_ == StringId::kEmpty) copy_name_ = builder_.text(memcpy_name(r));
    copy_key_ = key;
    const GpuOpId row = add_gpu_op(r, GpuOpKind::kMemcpy, stream(r.stream), copy_name_, kNoRow, r.bytes);
    if (row == kNoRow) return;
    trace_.gpu_ops.path[row] = copy_path_of_name(trace_.text(copy_name_));
    trace_.gpu_ops.host_memory[row] = host_memory_of_name(trace_.text(copy_name_));
  }
  void operator()(const spool::Memset& r) {
    add_gpu_op(r, GpuOpKind::kMemset, stream(r.stream), builder_.text("Memset (Device)"), kNoRow, r.bytes);
  }
  void operator()(const spool::GraphLaunch& r);
  void operator()(const spool::ApiCall& r);
  void operator()(const spool::CallTarget& r);
  void operator()(const spool::LaunchSite& r);
  void operator()(const spool::Synchronization& r);
  void operator()(const spool::Overhead& r);
  void operator()(const spool::MemoryEvent& r);
  void operator()(const spool::Range& r);
  void operator()(const spool::RangeOpen& r);
  void operator()(const spool::Mark& r);
  void operator()(const spool::LibraryCall& r);
  void operator()(const spool::Operands& r);
  void operator()(const spool::GraphNode& r) {
    if (r.node != 0) graph_nodes_.push_back(r);
  }
  void operator()(const spool::GraphEdge& r) {
    if (r.node != 0) builder_.add<GraphEdges>({.node = unique(r.node), .after = unique(r.after)});
  }
  void operator()(const spool::NodePlace& r) {
    if (r.node != 0) node_places_.push_back(r);
  }
  void operator()(const spool::RecurringCall& r);
  void operator()(const spool::ProductRows& r);
  void operator()(const spool::HostPlace& r);
  void operator()(const spool::CpuReading& r);
  void operator()(const spool::HostPace& r);

  // ---- the recording itself ----
  void operator()(const spool::ClockReading& r);
  void operator()(const spool::LevelChange& r) {
    int64_t time_ns = 0;
    if (moment(r.time_ns, time_ns)) levels_.push_back({time_ns, r.level, text(r.reason)});
  }
  void operator()(const spool::Note& r);
  void operator()(const spool::Fact& r) {
    file_.facts.emplace_back(std::string(trace_.text(text(r.key))), std::string(trace_.text(text(r.value))));
  }
  void operator()(const spool::NvmlSample& r);
  void operator()(const spool::GpuSample& r);
  void operator()(const spool::Closed& r);

 private:
  // One numbering serves all kinds. Ids are bounded by the reader: at most the bytes of the file.
  void define(spool::Id id, Kind kind, Row row) {
    if (id >= kinds_.size()) {
      kinds_.resize(std::max<size_t>(size_t{id} + 1, kinds_.size() * 2), Kind::kNothing);
      rows_.resize(kinds_.size(), kNoRow);
    }
    kinds_[id] = kind;
    rows_[id] = row;
  }
  Row find(spool::Id id, Kind kind) const { return id < kinds_.size() && kinds_[id] == kind ? rows_[id] : kNoRow; }
  StringId text(spool::Id id) const {
    const Row row = find(id, Kind::kText);
    return row == kNoRow ? StringId::kEmpty : static_cast<StringId>(row);
  }
  // The thread of a record; where its definition was lost, one that stands for the lost ones.
  ThreadId thread(spool::Id id) {
    const Row row = find(id, Kind::kThread);
    if (row != kNoRow) return row;
    if (unknown_thread_ == kNoRow) unknown_thread_ = builder_.thread(file_.head.process_id, -1);
    return unknown_thread_;
  }
  StreamId stream(spool::Id id) {
    const Row row = find(id, Kind::kStream);
    return row != kNoRow ? StreamId(row) : unknown_stream();
  }
  StreamId unknown_stream() {
    if (unknown_stream_ == kNoRow) unknown_stream_ = builder_.stream(0, -1, -1);
    return unknown_stream_;
  }
  uint64_t correlation(uint32_t value) { return unwrap_(value, file_.process_index); }
  uint64_t unique(uint64_t id) const { return qualified(id, file_.process_index); }

  LaunchConfigId add_config(const spool::KernelDef& def);
  StringId kernel_name(spool::Id id);
  void add_annotation(ThreadId thread, StringId name, StringId domain, int64_t start_ns, int64_t dur_ns,
                      double payload);
  void close_open_ranges();
  void finish_levels();
  void correct_ends(const std::vector<std::pair<int64_t, int64_t>>& off);
  void drop_unrecorded();
  void finish_graph_nodes();
  void finish_diagnostics(const spool::ReadSummary& summary);

  void problem(DiagnosticId id, const char* what) {
    trace_.diagnostics.add(id, trace_.diagnostics.count(id) < Diagnostics::kKeptPlaces
                                   ? fmt::format("{}: {}", file_.name, what)
                                   : std::string());
  }
  // Relative to the session; false (and counted) if it is no time.
  bool moment(int64_t absolute_ns, int64_t& time_ns) {
    if (absolute_ns < 0 || absolute_ns > kTimeNsMax) {
      problem(DiagnosticId::kBadNumber, "time out of range");
      return false;
    }
    time_ns = absolute_ns - base_ns_;
    last_ns_ = std::max(last_ns_, time_ns);
    return true;
  }
  bool span(int64_t absolute_start_ns, int64_t absolute_end_ns, int64_t& start_ns, int64_t& dur_ns) {
    int64_t end_ns = 0;
    if (!moment(absolute_start_ns, start_ns) || !moment(absolute_end_ns, end_ns)) return false;
    dur_ns = end_ns - start_ns;
    if (dur_ns < 0) problem(DiagnosticId::kNegativeDuration, "a record ends before it starts");
    return dur_ns >= 0;
  }

  template <class Record>
  GpuOpId add_gpu_op(const Record& r, GpuOpKind kind, StreamId on_stream, StringId name, LaunchConfigId config,
                     int64_t bytes) {
    const uint64_t launch = correlation(r.correlation);
    if (r.start_ns == 0 && r.end_ns == 0) {
      problem(DiagnosticId::kZeroTimestamp, "GPU activity");
      return kNoRow;
    }
    int64_t start_ns = 0, dur_ns = 0;
    if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return kNoRow;
    return builder_.add<GpuOps>({.start_ns = start_ns,
                                 .dur_ns = dur_ns,
                                 .stream = on_stream,
                                 .name = name,
                                 .config = config,
                                 .correlation = launch,
                                 .graph_node = unique(r.graph_node),
                                 .bytes = bytes,
                                 .kind = kind});
  }

  SpoolTables& file_;
  Trace& trace_;
  TraceBuilder builder_;
  int64_t base_ns_;
  int64_t last_ns_ = std::numeric_limits<int64_t>::min();
  CorrelationUnwrapper unwrap_;

  std::vector<Kind> kinds_;
  std::vector<Row> rows_;
  std::vector<KernelInfo> kernels_;
  std::vector<ApiInfo> apis_;
  std::vector<spool::LibraryDef> libraries_;
  std::vector<MetricSet> metric_sets_;
  Modules modules_;
  std::map<spool::Id, StringId> kernel_names_;
  ThreadId unknown_thread_;
  StreamId unknown_stream_;
  uint32_t copy_key_ = 0;
  StringId copy_name_ = StringId::kEmpty;

  std::vector<std::vector<float>*> sample_columns_;
  std::vector<std::string_view> sample_names_;
  std::vector<LevelAt> levels_;
  std::vector<OpenRange> open_ranges_;
  FlatMap open_by_handle_;
  FlatMap row_by_call_;
  std::vector<spool::GraphNode> graph_nodes_;
  std::vector<spool::NodePlace> node_places_;
  ApiCallId last_call_;                 // whose CallTarget may follow
  uint32_t last_call_correlation_ = 0;  // as recorded
  LibraryCallId last_product_;          // whose Operands may follow
  uint64_t last_product_call_ = 0;      // as recorded
  bool last_product_swapped_ = false;   // the library's A is the second operand
  std::map<std::pair<StringId, int32_t>, uint64_t> failures_;
};

}  // namespace llmprof::session_importer
