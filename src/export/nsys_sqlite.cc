// The tables of an export of Nsight Systems, for tools that read these: as `nsys export --type sqlite` names them, with
// what a trace has of each. docs/formats/nsys-sqlite.md says what is left out.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>
#include <unordered_map>

#include "export/destination.h"
#include "export/formats.h"
#include "export/sqlite_file.h"
#include "trace/whole_graph_name.h"

namespace llmprof::exporting {
namespace {

constexpr Cell kNull;
constexpr int64_t kNoId = 0xFFFFFFFF;  // CUPTI's "no stream" and "no event"
constexpr int64_t kIdMost = 0xFFFFFF;  // of a process or a thread: 24 bits each in a global id
constexpr int64_t kWarpLanes = 32;

// NvtxEventType as exports number it, and the severity of a warning.
constexpr int64_t kPushPop = 59, kDomainCreate = 75, kWarning = 2;

Cell or_null(int64_t value, bool known) { return known ? Cell(value) : kNull; }

// "Memcpy HtoD (Pageable -> Device)": names of both recorders. Exports begin to count memories at pageable, and have 7
// for an unknown one.
struct CopyKind {
  int64_t kind = 0, from = 7, to = 7;
};
CopyKind copy_kind(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kKinds = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                              "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  static constexpr std::array<std::string_view, 7> kMemories = {"Pageable", "Pinned",        "Device",        "Array",
                                                                "Managed",  "Device Static", "Managed Static"};
  constexpr std::string_view kCopy = "Memcpy ", kTo = " -> ";
  CopyKind out;
  if (!name.starts_with(kCopy)) return out;
  name.remove_prefix(kCopy.size());
  const auto number = [](const auto& names, std::string_view text, int64_t otherwise) {
    const auto at = std::find(names.begin(), names.end(), text);
    return at == names.end() ? otherwise : static_cast<int64_t>(at - names.begin());
  };
  out.kind = number(kKinds, name.substr(0, name.find(' ')), 0);
  const size_t open = name.find('('), to = name.find(kTo), close = name.rfind(')');
  if (open == std::string_view::npos || to == std::string_view::npos || close == std::string_view::npos || to < open ||
      close < to)
    return out;
  out.from = number(kMemories, name.substr(open + 1, to - open - 1), 7);
  out.to = number(kMemories, name.substr(to + kTo.size(), close - to - kTo.size()), 7);
  return out;
}

int64_t sync_kind(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames = {"Unknown", "Event Sync", "Stream Wait Event",
                                                             "Stream Sync", "Context Sync"};
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  return at == kNames.end() ? 0 : at - kNames.begin();
}

// A column of gpu_samples that exports have as a metric.
struct ExportedMetric {
  std::string_view column, name;
  bool clock = false;
};
constexpr ExportedMetric kExportedMetrics[] = {
    {"gr_active_frac", "GR Active [Throughput %]"},
    {"sm_active_frac", "SMs Active [Throughput %]"},
    {"instructions_frac", "SM Issue [Throughput %]"},
    {"tensor_active_frac", "Tensor Active [Throughput %]"},
    {"warps_active_frac", "Compute Warps in Flight [Throughput %]"},
    {"dram_read_frac", "DRAM Read Bandwidth [Throughput %]"},
    {"dram_write_frac", "DRAM Write Bandwidth [Throughput %]"},
    {"sm_clock_hz", "GPC Clock Frequency [MHz]", true},
};

class NsysWriter {
 public:
  NsysWriter(const Trace& trace, SqliteFile& file) : trace_(trace), file_(file) {
    for (Row row = 0; row < trace.threads.size(); ++row) {
      const int64_t id = trace.threads.process_id[row];
      if (std::find(processes_.begin(), processes_.end(), id) == processes_.end()) processes_.push_back(id);
    }
    if (processes_.empty()) processes_.push_back(-1);
    for (Row call = 0; call < trace.api_calls.size(); ++call)
      if (trace.api_calls.correlation[call] != 0)
        process_of_.try_emplace(trace.api_calls.correlation[call],
                                trace.threads.process_id[trace.api_calls.thread[call]]);
  }

  Status write() {
    LLMPROF_CHECK(machine());
    LLMPROF_CHECK(work());
    LLMPROF_CHECK(host());
    LLMPROF_CHECK(ranges());
    LLMPROF_CHECK(waits());
    LLMPROF_CHECK(memory());
    LLMPROF_CHECK(samples());
    LLMPROF_CHECK(diagnostics());
    return texts();  // behind all that name one
  }

 private:
  using Values = std::initializer_list<Cell>;

  // The columns as SQL has them: "start INTEGER NOT NULL, ...".
  Status table(std::string_view name, std::string_view columns) {
    LLMPROF_CHECK(file_.run(fmt::format("CREATE TABLE \"{}\" ({})", name, columns)));
    const size_t count = static_cast<size_t>(std::count(columns.begin(), columns.end(), ',')) + 1;
    std::string values = "?";
    for (size_t i = 1; i < count; ++i) values += ",?";
    return file_.prepare(fmt::format("INSERT INTO \"{}\" VALUES ({})", name, values));
  }
  Status add(Values values) {
    int at = 0;
    for (const Cell& cell : values) file_.bind(++at, cell);
    return file_.insert();
  }

  int64_t text_id(std::string_view text) {
    const auto [at, fresh] = text_ids_.try_emplace(std::string(text), static_cast<int64_t>(text_ids_.size()));
    return at->second;
  }
  int64_t text_id(StringId id) { return text_id(trace_.text(id)); }

  // What does not fit into 24 bits has a number of its own, from the top.
  static int64_t small_id(int64_t id, std::map<int64_t, int64_t>& known) {
    if (id >= 0 && id <= kIdMost) return id;
    return known.try_emplace(id, kIdMost - static_cast<int64_t>(known.size())).first->second;
  }
  int64_t global_process(int64_t process) { return small_id(process, large_processes_) << 24; }
  int64_t global_thread(ThreadId thread) {
    return global_process(trace_.threads.process_id[thread]) |
           small_id(trace_.threads.thread_id[thread], large_threads_);
  }
  int64_t process_of(uint64_t correlation) const {
    const auto at = process_of_.find(correlation);
    return at == process_of_.end() ? processes_.front() : at->second;
  }
  // Ids of several processes differ in high bits in a trace; in an export they are numbers of one process.
  int64_t correlation_id(uint64_t correlation) {
    if (correlation == 0) return 0;
    return correlations_.try_emplace(correlation, static_cast<int64_t>(correlations_.size()) + 1).first->second;
  }
  static int64_t end_of(int64_t start_ns, int64_t dur_ns) { return start_ns + dur_ns; }

  // ---- the machine ----
  Status machine() {
    LLMPROF_CHECK(table("META_DATA_EXPORT", "name TEXT NOT NULL, value TEXT"));
    const std::string version = "llmprof " LLMPROF_VERSION;
    LLMPROF_CHECK(add({std::string_view("EXPORT_PRODUCT_NAME"), std::string_view(version)}));
    LLMPROF_CHECK(add({std::string_view("EXPORT_PARAM_TIME_NORMALIZE"), std::string_view("false")}));
    LLMPROF_CHECK(add({std::string_view("EXPORT_PARAM_TIME_SHIFT"), std::string_view("0")}));
    LLMPROF_CHECK(table("META_DATA_CAPTURE", "name TEXT NOT NULL, value TEXT"));
    if (const auto command = trace_.metadata.find("command"); command != trace_.metadata.end())
      LLMPROF_CHECK(add({std::string_view("PROCESS_0:COMMAND"), utf8(command->second)}));
    LLMPROF_CHECK(table("TARGET_INFO_SESSION_START_TIME", "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT"));
    if (trace_.base_unix_ns != 0) LLMPROF_CHECK(add({trace_.base_unix_ns, kNull, kNull}));
    static constexpr std::pair<const char*, std::string_view> kFacts[] = {{"driver_version", "NvDriverVersion"},
                                                                          {"cuda_driver_version", "CudaDriverVersion"},
                                                                          {"host.name", "Hostname"},
                                                                          {"host.cpus", "CpuCores"},
                                                                          {"host.cpu", "CpuDescription"},
                                                                          {"host.os", "OsDescription"},
                                                                          {"host.kernel", "SoftwareReleaseVersion"}};
    LLMPROF_CHECK(table("TARGET_INFO_SYSTEM_ENV",
                        "globalVid INTEGER, devStateName TEXT, name TEXT NOT NULL, "
                        "nameEnum INTEGER, value TEXT NOT NULL"));
    for (const auto& [ours, theirs] : kFacts)
      if (const auto fact = trace_.metadata.find(ours); fact != trace_.metadata.end())
        LLMPROF_CHECK(add({kNull, kNull, theirs, kNull, utf8(fact->second)}));
    LLMPROF_CHECK(table("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT"));
    for (const int64_t process : processes_) {
      const auto name = trace_.metadata.find(fmt::format("process.{}.name", process));
      LLMPROF_CHECK(add({global_process(process), global_process(process) >> 24,
                         name == trace_.metadata.end() ? kNull : Cell(utf8(name->second))}));
    }
    LLMPROF_CHECK(table("ThreadNames", "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER"));
    for (Row row = 0; row < trace_.threads.size(); ++row)
      if (trace_.threads.name[row] != StringId::kEmpty)
        LLMPROF_CHECK(add({text_id(trace_.threads.name[row]), kNull, global_thread(ThreadId(row))}));
    return devices();
  }

  Status devices() {
    const Devices& devices = trace_.devices;
    LLMPROF_CHECK(table("TARGET_INFO_GPU",
                        "vmId INTEGER, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, smCount INTEGER, uuid "
                        "TEXT, computeMajor INTEGER, computeMinor INTEGER, maxWarpsPerSm INTEGER, threadsPerWarp "
                        "INTEGER, maxRegistersPerSm INTEGER, maxShmemPerSm INTEGER"));
    std::set<int32_t> ordinals;
    for (Row row = 0; row < devices.size(); ++row) {
      if (devices.kind[row] != ProcessorKind::kGpu) continue;
      ordinals.insert(devices.device[row]);
      const int64_t threads = devices.threads_per_sm_max[row];
      const auto positive = [](int64_t value) { return or_null(value, value > 0); };
      std::string_view uuid = trace_.text(devices.uuid[row]);
      if (uuid.starts_with("GPU-")) uuid.remove_prefix(4);
      LLMPROF_CHECK(add({int64_t{0}, int64_t{devices.device[row]}, utf8(trace_.text(devices.name[row])),
                         positive(devices.memory_bytes[row]), positive(devices.sm_count[row]),
                         uuid.empty() ? kNull : Cell(utf8(uuid)), positive(devices.compute_major[row]),
                         or_null(devices.compute_minor[row], devices.compute_minor[row] >= 0),
                         positive(threads / kWarpLanes), or_null(kWarpLanes, threads > 0),
                         positive(devices.registers_per_sm[row]), positive(devices.shared_bytes_per_sm[row])}));
    }
    for (Row row = 0; row < trace_.streams.size(); ++row) ordinals.insert(trace_.streams.device[row]);
    LLMPROF_CHECK(table("TARGET_INFO_CUDA_DEVICE", "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL"));
    for (const int64_t process : processes_)
      for (const int32_t device : ordinals)
        if (device >= 0) LLMPROF_CHECK(add({int64_t{device}, int64_t{device}, global_process(process) >> 24}));
    return {};
  }

  // ---- the GPU ----
  Status work() {
    LLMPROF_CHECK(kernels());
    LLMPROF_CHECK(copies());
    LLMPROF_CHECK(memsets());
    return graphs();
  }

  template <class Add>
  Status of_kind(GpuOpKind kind, Add&& add_row) {
    const GpuOps& gpu = trace_.gpu_ops;
    for (Row op = 0; op < gpu.size(); ++op)
      if (gpu.kind[op] == kind && !is_whole_graph(op)) LLMPROF_CHECK(add_row(op));
    return {};
  }
  Cell graph_node(Row op) const {
    const uint64_t node = trace_.gpu_ops.graph_node[op];
    return node == 0 ? kNull : Cell(node);
  }
  Cell context(StreamId stream) const {
    const int64_t context = trace_.streams.context[stream];
    return or_null(context, context >= 0);
  }

  // A table of such work: what every kind has, then columns of its own.
  Status work_table(std::string_view name, std::string_view own) {
    return table(name, fmt::format("start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId "
                                   "INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, {}",
                                   own));
  }
  Status add_work(Row op, Values own) {
    const GpuOps& gpu = trace_.gpu_ops;
    const StreamId stream = gpu.stream[op];
    int at = 0;
    for (const Cell& cell :
         {Cell(gpu.start_ns[op]), Cell(end_of(gpu.start_ns[op], gpu.dur_ns[op])),
          Cell(int64_t{trace_.streams.device[stream]}), context(stream), Cell(trace_.streams.stream[stream]),
          Cell(correlation_id(gpu.correlation[op])), Cell(global_process(process_of(gpu.correlation[op])))})
      file_.bind(++at, cell);
    for (const Cell& cell : own) file_.bind(++at, cell);
    return file_.insert();
  }

  Status kernels() {
    LLMPROF_CHECK(work_table(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, registersPerThread INTEGER, gridX INTEGER, gridY "
        "INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, "
        "dynamicSharedMemory INTEGER, graphNodeId INTEGER"));
    const GpuOps& gpu = trace_.gpu_ops;
    const LaunchConfigs& configs = trace_.launch_configs;
    return of_kind(GpuOpKind::kKernel, [&](Row op) {
      const LaunchConfigId config = gpu.config[op];
      const auto of = [&](const auto& column) {
        return config == kNoRow || column[config] < 0 ? kNull : Cell(int64_t{column[config]});
      };
      const int64_t name = text_id(gpu.name[op]);
      const Cell shared = of(configs.shared_bytes);
      return add_work(op, {name, name, of(configs.registers_per_thread), of(configs.grid_x), of(configs.grid_y),
                           of(configs.grid_z), of(configs.block_x), of(configs.block_y), of(configs.block_z),
                           shared == kNull ? kNull : Cell(int64_t{0}), shared, graph_node(op)});
    });
  }

  Status copies() {
    LLMPROF_CHECK(work_table("CUPTI_ACTIVITY_KIND_MEMCPY",
                             "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, "
                             "graphNodeId INTEGER"));
    const GpuOps& gpu = trace_.gpu_ops;
    return of_kind(GpuOpKind::kMemcpy, [&](Row op) {
      const CopyKind kind = copy_kind(trace_.text(gpu.name[op]));
      return add_work(op, {gpu.bytes[op], kind.kind, kind.from, kind.to, graph_node(op)});
    });
  }

  Status memsets() {
    LLMPROF_CHECK(work_table("CUPTI_ACTIVITY_KIND_MEMSET", "bytes INTEGER NOT NULL, graphNodeId INTEGER"));
    return of_kind(GpuOpKind::kMemset, [&](Row op) {
      return add_work(op, {trace_.gpu_ops.bytes[op], graph_node(op)});
    });
  }

  // Which graph it was is no longer known: launches recorded as a whole are GPU activities like any other by now.
  Status graphs() {
    LLMPROF_CHECK(work_table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graphExecId INTEGER"));
    for (Row op = 0; op < trace_.gpu_ops.size(); ++op)
      if (is_whole_graph(op)) LLMPROF_CHECK(add_work(op, {kNull}));
    return {};
  }
  bool is_whole_graph(Row op) const {
    return whole_graph_ != StringId::kEmpty && trace_.gpu_ops.name[op] == whole_graph_;
  }

  // ---- the host ----
  Status host() {
    LLMPROF_CHECK(table("CUPTI_ACTIVITY_KIND_RUNTIME",
                        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
                        "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL"));
    const ApiCalls& calls = trace_.api_calls;
    for (Row call = 0; call < calls.size(); ++call)
      LLMPROF_CHECK(add({calls.start_ns[call], end_of(calls.start_ns[call], calls.dur_ns[call]),
                         int64_t{calls.layer[call] == ApiLayer::kDriver ? 1 : 0}, global_thread(calls.thread[call]),
                         correlation_id(calls.correlation[call]), text_id(calls.name[call]), int64_t{0}}));
    const Overheads& overheads = trace_.overheads;
    if (overheads.empty()) return {};
    LLMPROF_CHECK(table("PROFILER_OVERHEAD",
                        "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId "
                        "INTEGER NOT NULL, returnValue INTEGER NOT NULL"));
    for (Row row = 0; row < overheads.size(); ++row)
      LLMPROF_CHECK(add({overheads.start_ns[row], end_of(overheads.start_ns[row], overheads.dur_ns[row]),
                         overheads.thread[row] == kNoRow ? kNull : Cell(global_thread(overheads.thread[row])),
                         text_id(overheads.name[row]), int64_t{0}}));
    return {};
  }

  // Ranges of the program, and operators and Python functions as PyTorch's NVTX mode writes them.
  Status ranges() {
    LLMPROF_CHECK(table("NVTX_EVENTS",
                        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid "
                        "INTEGER, textId INTEGER, domainId INTEGER, doubleValue REAL"));
    std::map<std::pair<int64_t, StringId>, int64_t> domains;
    const Annotations& notes = trace_.annotations;
    for (Row row = 0; row < notes.size(); ++row) {
      if (notes.thread[row] == kNoRow) continue;  // a projection on the GPU, which the kernels are
      const int64_t process = trace_.threads.process_id[notes.thread[row]];
      int64_t domain = 0;
      if (notes.domain[row] != StringId::kEmpty) {
        const auto [at, fresh] =
            domains.try_emplace({process, notes.domain[row]}, static_cast<int64_t>(domains.size()) + 1);
        domain = at->second;
        if (fresh)
          LLMPROF_CHECK(add({notes.start_ns[row], kNull, kDomainCreate, kNull, global_thread(notes.thread[row]),
                             text_id(notes.domain[row]), domain, kNull}));
      }
      LLMPROF_CHECK(range(notes.start_ns[row], notes.dur_ns[row], notes.thread[row], text_id(notes.name[row]), domain,
                          std::isnan(notes.payload[row]) ? kNull : Cell(notes.payload[row])));
    }
    const Ops& ops = trace_.ops;
    for (Row op = 0; op < ops.size(); ++op) {
      std::string text(trace_.text(ops.name[op]));
      if (ops.sequence[op] >= 0) text += fmt::format(", seq = {}", ops.sequence[op]);
      if (ops.signature[op] != kNoRow)
        text += fmt::format(", sizes = {}", trace_.text(trace_.signatures.dims[ops.signature[op]]));
      LLMPROF_CHECK(range(ops.start_ns[op], ops.dur_ns[op], ops.thread[op], text_id(text), 0, kNull));
    }
    const PythonCalls& calls = trace_.python_calls;
    constexpr std::string_view kModule = "nn.Module: ";
    for (Row call = 0; call < calls.size(); ++call) {
      std::string text(trace_.text(calls.name[call]));
      text = text.starts_with(kModule) ? "[module] " + text.substr(kModule.size()) : "[python] " + text;
      LLMPROF_CHECK(range(calls.start_ns[call], calls.dur_ns[call], calls.thread[call], text_id(text), 0, kNull));
    }
    return {};
  }
  Status range(int64_t start_ns, int64_t dur_ns, ThreadId thread, int64_t name, int64_t domain, const Cell& payload) {
    return add({start_ns, end_of(start_ns, dur_ns), kPushPop, kNull, global_thread(thread), name, domain, payload});
  }

  // ---- waits and events ----
  Status waits() {
    const SyncEvents& syncs = trace_.sync_events;
    const auto stream_id = [](int64_t stream) { return stream < 0 ? kNoId : stream; };
    // A wait names the recording of the event by its call, whose number stands for the event.
    struct Record {
      int64_t device, stream;
      uint64_t call;
    };
    std::map<uint64_t, Record> records;
    LLMPROF_CHECK(table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, streamId INTEGER NOT NULL, "
                        "correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT "
                        "NULL, eventSyncId INTEGER"));
    for (Row row = 0; row < syncs.size(); ++row) {
      const std::string_view name = trace_.text(syncs.name[row]);
      const uint64_t call = syncs.event_call[row];
      if (call != 0) records.try_emplace(call, Record{syncs.device[row], stream_id(syncs.event_stream[row]), call});
      if (name == "Event Record") continue;
      const int64_t event = call == 0 ? kNoId : correlation_id(call);
      LLMPROF_CHECK(add({syncs.start_ns[row], end_of(syncs.start_ns[row], syncs.dur_ns[row]),
                         or_null(syncs.device[row], syncs.device[row] >= 0), stream_id(syncs.stream[row]),
                         correlation_id(syncs.correlation[row]), global_process(process_of(syncs.correlation[row])),
                         sync_kind(name), event, event}));
    }
    if (records.empty()) return {};
    LLMPROF_CHECK(table("CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                        "deviceId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
                        "eventId INTEGER NOT NULL, eventSyncId INTEGER"));
    for (const auto& [call, record] : records)
      LLMPROF_CHECK(add({or_null(record.device, record.device >= 0), record.stream, correlation_id(call),
                         global_process(process_of(call)), correlation_id(call), correlation_id(call)}));
    return {};
  }

  // ---- memory and counters ----
  // Allocations of CUDA; what a framework's allocator hands out of them has no table in an export.
  Status memory() {
    const MemoryEvents& events = trace_.memory_events;
    std::map<ThreadId, std::vector<Row>> calls_of_thread;
    for (Row call = 0; call < trace_.api_calls.size(); ++call)
      calls_of_thread[trace_.api_calls.thread[call]].push_back(call);
    LLMPROF_CHECK(table("CUDA_GPU_MEMORY_USAGE_EVENTS",
                        "start INTEGER NOT NULL, globalPid INTEGER, deviceId INTEGER, address INTEGER NOT NULL, bytes "
                        "INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, "
                        "correlationId INTEGER"));
    for (Row row = 0; row < events.size(); ++row) {
      if (events.allocated_bytes[row] >= 0 || events.reserved_bytes[row] >= 0) continue;
      const bool device = events.device[row] >= 0, freed = events.bytes[row] < 0;
      const std::vector<Row>& calls = calls_of_thread[events.thread[row]];
      const auto behind =
          std::upper_bound(calls.begin(), calls.end(), events.time_ns[row],
                           [&](int64_t time, Row call) { return time < trace_.api_calls.start_ns[call]; });
      const Row call = behind == calls.begin() ? kNoRow : *std::prev(behind);
      const bool within = call != kNoRow &&
                          events.time_ns[row] <= end_of(trace_.api_calls.start_ns[call], trace_.api_calls.dur_ns[call]);
      LLMPROF_CHECK(add({events.time_ns[row], global_process(trace_.threads.process_id[events.thread[row]]),
                         or_null(events.device[row], device), events.address[row], std::abs(events.bytes[row]),
                         int64_t{device ? 2 : 1}, int64_t{freed ? 1 : 0},
                         or_null(within ? correlation_id(trace_.api_calls.correlation[call]) : 0, within)}));
    }
    return {};
  }

  Status samples() {
    const GpuSamples& samples = trace_.gpu_samples;
    if (samples.empty()) return {};
    std::map<int64_t, const std::vector<float>*> columns;  // by the number of the metric
    samples.for_each_column([&]<class T>(const FieldInfo& field, const std::vector<T>& column) {
      if constexpr (std::is_same_v<T, float>)
        for (size_t i = 0; i < std::size(kExportedMetrics); ++i)
          if (field.name == kExportedMetrics[i].column) columns[static_cast<int64_t>(i)] = &column;
    });
    std::set<int32_t> devices(samples.device.begin(), samples.device.end());
    LLMPROF_CHECK(table("TARGET_INFO_GPU_METRICS",
                        "typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, metricName TEXT "
                        "NOT NULL"));
    for (const int32_t device : devices)
      for (const auto& [number, column] : columns)
        if (device >= 0)
          LLMPROF_CHECK(add({int64_t{device}, number, kExportedMetrics[static_cast<size_t>(number)].name}));
    LLMPROF_CHECK(table("GPU_METRICS",
                        "timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value "
                        "INTEGER NOT NULL"));
    for (Row row = 0; row < samples.size(); ++row)
      for (const auto& [number, column] : columns) {
        const double value = (*column)[row];
        if (std::isnan(value) || samples.device[row] < 0) continue;
        const bool clock = kExportedMetrics[static_cast<size_t>(number)].clock;
        // Clocks are Hz in a column of 32 bits with a sign, as exports have them.
        const int64_t stored =
            clock ? int64_t{static_cast<int32_t>(static_cast<uint32_t>(std::clamp(value, 0.0, 4294967295.0)))}
                  : std::llround(value * 100);
        LLMPROF_CHECK(
            add({end_of(samples.start_ns[row], samples.dur_ns[row]), int64_t{samples.device[row]}, number, stored}));
      }
    return {};
  }

  // What a reader must know that no other table has room for.
  Status diagnostics() {
    LLMPROF_CHECK(table("DIAGNOSTIC_EVENT",
                        "timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL, severity "
                        "INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER"));
    const Recorded& recorded = trace_.recorded;
    int64_t without_ns = 0, all_ns = 0;
    for (Row row = 0; row < recorded.size(); ++row) {
      all_ns += recorded.dur_ns[row];
      if (recorded.level[row] < RecordingLevel::kDefault) without_ns += recorded.dur_ns[row];
    }
    if (without_ns == 0) return {};
    const std::string text =
        fmt::format("llmprof recorded no kernels in {:.1f} of {:.1f} ms: the GPU is not idle where there are none",
                    static_cast<double>(without_ns) / 1e6, static_cast<double>(all_ns) / 1e6);
    return add({recorded.start_ns[0], int64_t{0}, int64_t{0}, kWarning, std::string_view(text), kNull});
  }

  Status texts() {
    LLMPROF_CHECK(table("StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL"));
    for (const auto& [text, id] : text_ids_) LLMPROF_CHECK(add({id, utf8(text)}));
    return {};
  }

  // As SQLite wants a text; good until the next one of the same row but eight.
  std::string_view utf8(std::string_view text) {
    std::string& kept = kept_[next_kept_++ % kept_.size()];
    return as_utf8(text, kept);
  }

  const Trace& trace_;
  SqliteFile& file_;
  const StringId whole_graph_ = trace_.strings.find(kWholeGraphName);
  std::vector<int64_t> processes_;
  std::unordered_map<uint64_t, int64_t> process_of_;  // by correlation
  std::unordered_map<uint64_t, int64_t> correlations_;
  std::unordered_map<std::string, int64_t> text_ids_;
  std::map<int64_t, int64_t> large_processes_, large_threads_;
  std::array<std::string, 8> kept_;
  size_t next_kept_ = 0;
};

}  // namespace

Status write_nsys_sqlite(const Trace& trace, const std::string& path) {
  LLMPROF_ASSIGN(Destination destination, Destination::for_file(path, true));
  SqliteFile file(path);
  LLMPROF_CHECK(file.begin(destination.part()));
  LLMPROF_CHECK(NsysWriter(trace, file).write());
  LLMPROF_CHECK(file.commit());
  return destination.take_name();
}

}  // namespace llmprof::exporting
