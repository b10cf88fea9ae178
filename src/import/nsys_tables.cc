#include "import/nsys_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "capture/spool/records.h"
#include "import/session_names.h"
#include "import/torch_ranges.h"
#include "trace/copy_names.h"

namespace llmprof::nsys {
namespace {

constexpr size_t kNameBytesMax = 64 * 1024;  // longer names are cut: a name is for people
constexpr double kNoPayload = std::numeric_limits<double>::quiet_NaN();

// A place only for the first few of a kind: a bad file has one per row.
void count_problem(Part& part, DiagnosticId id, const char* table, const char* what) {
  part.rows.diagnostics.add(id, part.rows.diagnostics.count(id) < Diagnostics::kKeptPlaces
                                    ? fmt::format("{}: {}", table, what)
                                    : std::string());
}

std::string_view cut_name(Part& part, std::string_view text) {
  if (text.size() <= kNameBytesMax) return text;
  part.rows.diagnostics.add(DiagnosticId::kLimitReached, fmt::format("a name of {} bytes", text.size()));
  return text.substr(0, kNameBytesMax);
}

// The reading of one part: what its rows have in common.
class PartReader {
 public:
  PartReader(const char* table, const Shared& shared, Part& part)
      : table_(table), shared_(shared), part_(part), texts_(shared.strings->size(), kUnseen) {}

 protected:
  // Text number `id` of StringIds.
  StringId text(int64_t id) {
    const size_t place = shared_.strings->place(id);
    if (place == Strings::kNone) return StringId::kEmpty;
    if (texts_[place] == kUnseen) texts_[place] = part_.builder.text(cut_name(part_, shared_.strings->get(id)));
    return texts_[place];
  }

  bool problem(DiagnosticId id, const char* what) {
    count_problem(part_, id, table_, what);
    return false;
  }

  // Of the columns 0 and 1; false (and counted) if they are no times.
  bool moment(const Rows& rows, int column, int64_t& time_ns) {
    constexpr int64_t kAbsent = INT64_MIN;
    time_ns = rows.integer(column, kAbsent);
    if (time_ns == kAbsent) return problem(DiagnosticId::kMissingField, "no time");
    if (time_ns < -kTimeNsMax || time_ns > kTimeNsMax) return problem(DiagnosticId::kBadNumber, "time out of range");
    time_ns -= shared_.time_offset_ns;
    part_.last_ns = std::max(part_.last_ns, time_ns);
    return true;
  }
  bool span(const Rows& rows, int64_t& start_ns, int64_t& dur_ns) {
    int64_t end_ns = 0;
    if (!moment(rows, 0, start_ns) || !moment(rows, 1, end_ns)) return false;
    dur_ns = end_ns - start_ns;
    return dur_ns >= 0 || problem(DiagnosticId::kNegativeDuration, "a row ends before it starts");
  }

  ThreadId thread(int64_t global_id) {
    if (global_id != last_thread_id_ || last_thread_ == kNoRow)
      last_thread_ = global_id < 0 ? part_.builder.thread(-1, -1)
                                   : part_.builder.thread(process_of(global_id), llmprof::nsys::thread_of(global_id));
    last_thread_id_ = global_id;
    return last_thread_;
  }

  int32_t device(int64_t process, int64_t ordinal) {
    if (process != last_device_[0] || ordinal != last_device_[1]) last_number_ = shared_.gpus->of(process, ordinal);
    last_device_[0] = process;
    last_device_[1] = ordinal;
    return last_number_;
  }

  // Streams of two processes are two, whatever their numbers: the context carries the process until parts are joined.
  StreamId stream(int64_t process, int64_t ordinal, int64_t context, int64_t number) {
    const int64_t key[4] = {process, ordinal, context, number};
    if (last_stream_row_ != kNoRow && std::equal(std::begin(key), std::end(key), std::begin(last_stream_)))
      return last_stream_row_;
    std::copy(std::begin(key), std::end(key), std::begin(last_stream_));
    const int64_t qualified = static_cast<int64_t>(with_process(process, context >= 0 ? context + 1 : 0));
    last_stream_row_ = part_.builder.stream(std::max(device(process, ordinal), 0), qualified, number);
    return last_stream_row_;
  }

  const char* table_;
  const Shared& shared_;
  Part& part_;

 private:
  static constexpr StringId kUnseen = static_cast<StringId>(0xFFFFFFFFU);
  std::vector<StringId> texts_;
  int64_t last_thread_id_ = -1;
  ThreadId last_thread_;
  int64_t last_device_[2] = {-2, -2};
  int32_t last_number_ = 0;
  int64_t last_stream_[4] = {-2, -2, -2, -2};
  StreamId last_stream_row_;
};

// How many rows a part will have; of a table that is read as one not more than of a usual part.
size_t room_for(const RowRange& range) {
  constexpr int64_t kRowsMax = 1 << 16;
  return static_cast<size_t>(std::clamp<int64_t>(range.most, 0, kRowsMax));
}

void finish_rows(const Rows& rows, Part& part) {
  part.error = rows.error();
  part.read = rows.read();
}

// ---- work on the GPU -----------------------------------------------------------------------------------------------

// The first columns of kernels, copies and memsets.
#define LLMPROF_NSYS_WORK \
  "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId"
enum WorkColumn : int { kStart, kEnd, kDevice, kContext, kStream, kCorrelation, kProcess, kGraphNode, kWorkColumns };

class WorkReader : public PartReader {
 public:
  using PartReader::PartReader;

 protected:
  // Adds the row with what every kind of work has; null if it has no times.
  bool work(const Rows& rows, GpuOps::Values& op) {
    if (!span(rows, op.start_ns, op.dur_ns)) return false;
    const int64_t process = process_of(rows.integer(kProcess));
    op.stream = stream(process, rows.integer(kDevice), rows.integer(kContext, -1), rows.integer(kStream, -1));
    op.correlation = with_process(process, rows.integer(kCorrelation));
    op.graph_node = static_cast<uint64_t>(rows.integer(kGraphNode));
    return true;
  }
};

class KernelReader : public WorkReader {
 public:
  using WorkReader::WorkReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    // Every column costs time, wanted or not.
    const std::string_view name = table.has("demangledName") ? "demangledName"
                                  : table.has("shortName")   ? "shortName"
                                                             : "mangledName";
    Rows rows(connection, table,
              {LLMPROF_NSYS_WORK, name, "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
               "staticSharedMemory", "dynamicSharedMemory"},
              range);
    enum : int { kName = kWorkColumns, kRegisters };
    part_.rows.gpu_ops.reserve(room_for(range));
    GpuOps::Values op;
    op.kind = GpuOpKind::kKernel;
    while (rows.next()) {
      if (!work(rows, op)) continue;
      op.name = text(rows.integer(kName, -1));
      if (op.name == StringId::kEmpty) {
        problem(DiagnosticId::kMissingField, "no name");
        op.name = part_.builder.text("[name lost]");
      }
      int64_t numbers[9];
      for (int i = 0; i < 9; ++i) numbers[i] = rows.integer(kRegisters + i, -1);
      op.config = config(numbers);
      part_.builder.add<GpuOps>(op);
    }
    finish_rows(rows, part_);
  }

 private:
  // Registers, grid, block, static and dynamic shared memory.
  LaunchConfigId config(const int64_t (&numbers)[9]) {
    if (last_config_ != kNoRow && std::equal(std::begin(numbers), std::end(numbers), std::begin(last_numbers_)))
      return last_config_;
    std::copy(std::begin(numbers), std::end(numbers), std::begin(last_numbers_));
    const auto small = [&](int i) {
      return numbers[i] >= 0 && numbers[i] <= INT32_MAX ? static_cast<int32_t>(numbers[i]) : -1;
    };
    const int32_t fixed = small(7), dynamic = small(8);
    last_config_ = part_.builder.launch_config(
        {.grid_x = small(1),
         .grid_y = small(2),
         .grid_z = small(3),
         .block_x = small(4),
         .block_y = small(5),
         .block_z = small(6),
         .registers_per_thread = small(0),
         .shared_bytes = fixed < 0 && dynamic < 0 ? -1 : int64_t{std::max(fixed, 0)} + std::max(dynamic, 0)});
    return last_config_;
  }
  int64_t last_numbers_[9] = {};
  LaunchConfigId last_config_;
};

// Of the memory kinds of exports: 0 pageable, 1 pinned, 2 device, 3 array, 4 managed, 5 and 6 static, 7 unknown;
// CUPTI's begin with unknown.
uint8_t cupti_memory(int64_t kind) { return kind >= 0 && kind <= 6 ? static_cast<uint8_t>(kind + 1) : uint8_t{0}; }

class CopyReader : public WorkReader {
 public:
  using WorkReader::WorkReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {LLMPROF_NSYS_WORK, "bytes", "copyKind", "srcKind", "dstKind"}, range);
    enum : int { kBytes = kWorkColumns, kKind, kFrom, kTo };
    GpuOps::Values op;
    op.kind = GpuOpKind::kMemcpy;
    while (rows.next()) {
      if (!work(rows, op)) continue;
      op.bytes = std::max<int64_t>(rows.integer(kBytes, -1), -1);
      name(rows.integer(kKind), rows.integer(kFrom, 7), rows.integer(kTo, 7), op);
      part_.builder.add<GpuOps>(op);
    }
    finish_rows(rows, part_);
  }

 private:
  void name(int64_t kind, int64_t from, int64_t to, GpuOps::Values& op) {
    if (kind != last_[0] || from != last_[1] || to != last_[2]) {
      // Migrations of unified memory are copies over the same link.
      const int64_t plain = kind == 11 ? 1 : kind == 12 ? 2 : kind == 13 ? 8 : kind;
      spool::Memcpy copy;
      copy.copy_kind = plain >= 0 && plain <= 10 ? static_cast<uint8_t>(plain) : uint8_t{0};
      copy.source_kind = cupti_memory(from);
      copy.dest_kind = cupti_memory(to);
      const std::string text = session_importer::memcpy_name(copy);
      last_[0] = kind;
      last_[1] = from;
      last_[2] = to;
      name_ = part_.builder.text(text);
      path_ = copy_path_of_name(text);
      host_ = host_memory_of_name(text);
    }
    op.name = name_;
    op.path = path_;
    op.host_memory = host_;
  }
  int64_t last_[3] = {-1, -1, -1};
  StringId name_ = StringId::kEmpty;
  CopyPath path_ = CopyPath::kUnknown;
  HostMemory host_ = HostMemory::kUnknown;
};

class MemsetReader : public WorkReader {
 public:
  using WorkReader::WorkReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {LLMPROF_NSYS_WORK, "bytes"}, range);
    GpuOps::Values op;
    op.kind = GpuOpKind::kMemset;
    op.name = part_.builder.text("Memset (Device)");
    while (rows.next()) {
      if (!work(rows, op)) continue;
      op.bytes = std::max<int64_t>(rows.integer(kWorkColumns, -1), -1);
      part_.builder.add<GpuOps>(op);
    }
    finish_rows(rows, part_);
  }
};

// Launches of CUDA graphs as a whole (--cuda-graph-trace=graph, which is the default).
class GraphReader : public WorkReader {
 public:
  using WorkReader::WorkReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {LLMPROF_NSYS_WORK, "graphExecId", "graphId"}, range);
    GpuOps::Values op;
    while (rows.next()) {
      if (!work(rows, op)) continue;
      int64_t graph = rows.integer(kWorkColumns);
      if (graph == 0) graph = rows.integer(kWorkColumns + 1);
      part_.builder.add<GraphLaunches>({.start_ns = op.start_ns,
                                        .dur_ns = op.dur_ns,
                                        .stream = op.stream,
                                        .graph = static_cast<uint64_t>(graph),
                                        .correlation = op.correlation});
    }
    finish_rows(rows, part_);
  }
};

// ---- the host ------------------------------------------------------------------------------------------------------

// "cudaLaunchKernel_v7000": the version of CUDA that brought the call. "_v2" belongs to the name.
std::string_view without_version(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || at + 6 > name.size()) return name;
  const bool digits = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at) + 2, name.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return digits ? name.substr(0, at) : name;
}

class CallReader : public PartReader {
 public:
  CallReader(const char* table, const Shared& shared, Part& part)
      : PartReader(table, shared, part), names_(shared.strings->size(), kUnseen) {}
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {"start", "end", "globalTid", "correlationId", "nameId", "returnValue", "eventClass"},
              range);
    enum : int { kThread = 2, kCorrelationId, kName, kReturned, kClass };
    constexpr int64_t kDriverClass = 1;
    constexpr int64_t kNotReady = 600;  // cudaErrorNotReady: the answer of a query, not a failure
    part_.rows.api_calls.reserve(room_for(range));
    ApiCalls::Values call;
    while (rows.next()) {
      if (!span(rows, call.start_ns, call.dur_ns)) continue;
      const int64_t global_id = rows.integer(kThread, -1), name = rows.integer(kName, -1);
      call.thread = thread(global_id);
      call.name = call_name(name);
      call.correlation = with_process(process_of(global_id), rows.integer(kCorrelationId));
      call.layer = rows.integer(kClass) == kDriverClass ? ApiLayer::kDriver : ApiLayer::kRuntime;
      part_.builder.add<ApiCalls>(call);
      const int64_t returned = rows.integer(kReturned);
      constexpr size_t kFailuresMax = 64;
      if (returned != 0 && returned != kNotReady && part_.failures.size() < kFailuresMax)
        ++part_.failures[{std::string(part_.rows.text(call.name)), returned}];
    }
    finish_rows(rows, part_);
  }

 private:
  StringId call_name(int64_t id) {
    const size_t place = shared_.strings->place(id);
    if (place == Strings::kNone) {
      problem(DiagnosticId::kMissingField, "no name");
      return part_.builder.text("[name lost]");
    }
    if (names_[place] == kUnseen)
      names_[place] = part_.builder.text(without_version(cut_name(part_, shared_.strings->get(id))));
    return names_[place];
  }
  static constexpr StringId kUnseen = static_cast<StringId>(0xFFFFFFFFU);
  std::vector<StringId> names_;
};

class RangeReader : public PartReader {
 public:
  using PartReader::PartReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table,
              {"start", "end", "eventType", "globalTid", "text", "textId", "domainId", "uint64Value", "int64Value",
               "doubleValue", "uint32Value", "int32Value", "floatValue"},
              range);
    bool room = true;
    while (room && rows.next()) {
      add(rows);
      room = has_room();
    }
    finish_rows(rows, part_);
    if (!take_room() || !room) part_.error = "the table gives more text than fits into the file";
  }

 private:
  enum : int {
    kBegin,
    kFinish,
    kType,
    kThread,
    kText,
    kTextId,
    kDomain,
    kPayload,
    kPayloads = 6,
    kDouble = 9,
    kFloat = 12
  };
  enum Type : int64_t {
    kMark = 34,
    kThreadName = 39,
    kPushPop = 59,
    kStartEnd = 60,
    kTextMark = 65,  // of a file in NVTX's text format
    kTextPushPop = 70,
    kTextStartEnd = 71,
    kDomainCreate = 75,
    kDomainDestroy = 76,
  };

  // Texts that lie over each other in a damaged file could be more than memory holds. Counted in steps.
  bool has_room() {
    constexpr int64_t kStepBytes = 64 * 1024;
    return text_bytes_ < kStepBytes || take_room();
  }
  bool take_room() {
    const int64_t taken = std::exchange(text_bytes_, 0);
    return shared_.text_left->fetch_sub(taken) >= taken;
  }

  StringId name_of(const Rows& rows) {
    const std::string_view own = rows.text(kText);
    text_bytes_ += static_cast<int64_t>(own.size());
    return own.empty() ? text(rows.integer(kTextId, -1)) : part_.builder.text(cut_name(part_, own));
  }
  double payload_of(const Rows& rows) const {
    for (int column = kPayload; column < kPayload + kPayloads; ++column)
      if (!rows.is_null(column))
        return column == kDouble || column == kFloat ? rows.real(column) : static_cast<double>(rows.integer(column));
    return kNoPayload;
  }

  void add(const Rows& rows) {
    const int64_t global_id = rows.integer(kThread, -1), domain = rows.integer(kDomain);
    // Exports without types hold ranges only.
    switch (const int64_t type = rows.integer(kType, kPushPop); type) {
      case kPushPop:
      case kStartEnd:
      case kTextPushPop:
      case kTextStartEnd:
        return add_range(rows, global_id, domain);
      case kMark:
      case kTextMark: {
        int64_t time_ns = 0;
        if (moment(rows, kBegin, time_ns)) annotate(rows, global_id, domain, name_of(rows), time_ns, 0);
        return;
      }
      case kDomainCreate:
        part_.domains.push_back({process_of(global_id), domain, name_of(rows)});
        return;
      case kThreadName:
        if (global_id >= 0)
          part_.builder.thread(process_of(global_id), llmprof::nsys::thread_of(global_id), name_of(rows));
        return;
      case kDomainDestroy:
        return;
      default:
        constexpr size_t kTypesMax = 64;
        if (part_.other_ranges.size() < kTypesMax) ++part_.other_ranges[type];
    }
  }

  void add_range(const Rows& rows, int64_t global_id, int64_t domain) {
    int64_t start_ns = 0, dur_ns = 0;
    const bool open = rows.is_null(kFinish);
    if (open ? !moment(rows, kBegin, start_ns) : !span(rows, start_ns, dur_ns)) return;
    const StringId name = name_of(rows);
    if (domain == 0 && !open &&
        add_torch_range(part_.builder, thread(global_id), part_.rows.text(name), start_ns, dur_ns))
      return;
    const Row row = annotate(rows, global_id, domain, name, start_ns, dur_ns);
    if (open) part_.open_ranges.push_back(row);
  }

  Row annotate(const Rows& rows, int64_t global_id, int64_t domain, StringId name, int64_t start_ns, int64_t dur_ns) {
    const Row row = part_.builder.add<Annotations>({.start_ns = start_ns,
                                                    .dur_ns = dur_ns,
                                                    .thread = thread(global_id),
                                                    .name = name,
                                                    .kind = AnnotationKind::kNvtx,
                                                    .payload = payload_of(rows)});
    if (domain != 0) part_.in_domains.push_back({row, process_of(global_id), domain});
    return row;
  }

  int64_t text_bytes_ = 0;
};

class OverheadReader : public PartReader {
 public:
  using PartReader::PartReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {"start", "end", "globalTid", "nameId"}, range);
    while (rows.next()) {
      Overheads::Values row;
      if (!span(rows, row.start_ns, row.dur_ns)) continue;
      const int64_t global_id = rows.integer(2, -1);
      if (global_id >= 0) row.thread = thread(global_id);
      row.name = text(rows.integer(3, -1));
      part_.builder.add<Overheads>(row);
    }
    finish_rows(rows, part_);
  }
};

// ---- waits and events ----------------------------------------------------------------------------------------------

class SyncReader : public PartReader {
 public:
  using PartReader::PartReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(
        connection, table,
        {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "syncType", "eventId", "eventSyncId"},
        range);
    enum : int { kDeviceId = 2, kStreamId, kCorrelationId, kProcessId, kType, kEvent, kEventSync };
    while (rows.next()) {
      SyncEvents::Values row;
      if (!span(rows, row.start_ns, row.dur_ns)) continue;
      const int64_t process = process_of(rows.integer(kProcessId));
      const int64_t stream = rows.integer(kStreamId, kNoId);
      const int64_t event = rows.integer(kEvent, kNoId), event_sync = rows.integer(kEventSync, kNoId);
      row.device = device(process, rows.integer(kDeviceId, 0));
      if (stream != kNoId) row.stream = stream;
      row.name = part_.builder.text(sync_name(rows.integer(kType), event != kNoId || event_sync != kNoId));
      row.correlation = with_process(process, rows.integer(kCorrelationId));
      const Row added = part_.builder.add<SyncEvents>(row);
      if (event != kNoId || event_sync != kNoId) part_.event_waits.push_back({added, process, event, event_sync});
    }
    finish_rows(rows, part_);
  }

 private:
  // Exports of 2025 give waits for a stream the number of waits for an event on a stream: those have no event.
  static std::string_view sync_name(int64_t type, bool has_event) {
    constexpr uint8_t kStreamWaitEvent = 2, kStreamSync = 3;
    const uint8_t kind = type >= 0 && type < 16 ? static_cast<uint8_t>(type) : uint8_t{0};
    return session_importer::sync_name(kind == kStreamWaitEvent && !has_event ? kStreamSync : kind);
  }
};

class EventReader : public PartReader {
 public:
  using PartReader::PartReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {"deviceId", "streamId", "correlationId", "globalPid", "eventId", "eventSyncId"},
              range);
    while (rows.next()) {
      const int64_t process = process_of(rows.integer(3));
      part_.event_records.push_back({process, rows.integer(4, kNoId), rows.integer(5, kNoId), rows.integer(1, -1),
                                     device(process, rows.integer(0, 0)), with_process(process, rows.integer(2))});
    }
    finish_rows(rows, part_);
  }
};

// ---- memory and counters -------------------------------------------------------------------------------------------

class MemoryReader : public PartReader {
 public:
  using PartReader::PartReader;
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table,
              {"start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType", "correlationId"},
              range);
    enum : int { kTime, kProcessId, kDeviceId, kAddress, kBytes, kMemory, kOperation, kCorrelationId };
    constexpr int64_t kPageable = 0, kPinned = 1, kDeviceMemory = 2, kFreed = 1;
    while (rows.next()) {
      MemoryEvents::Values row;
      if (!moment(rows, kTime, row.time_ns)) continue;
      const int64_t global_id = rows.integer(kProcessId), process = process_of(global_id);
      const int64_t memory = rows.integer(kMemory, kDeviceMemory), bytes = rows.integer(kBytes);
      if (bytes < 0) {
        problem(DiagnosticId::kBadNumber, "bytes");
        continue;
      }
      row.thread = part_.builder.thread(process, -1);  // until the call is found
      row.device = memory == kPageable || memory == kPinned ? -1 : device(process, rows.integer(kDeviceId, 0));
      row.address = static_cast<uint64_t>(rows.integer(kAddress));
      row.bytes = rows.integer(kOperation) == kFreed ? -bytes : bytes;
      part_.builder.add<MemoryEvents>(row);
      part_.memory_correlations.push_back(with_process(process, rows.integer(kCorrelationId)));
    }
    finish_rows(rows, part_);
  }
};

// One row of an export is one metric at one time; neighbours of one time and GPU are one sample. The number of the GPU
// stands for the device, and the time for the start, until all samples are known.
class MetricReader : public PartReader {
 public:
  MetricReader(const char* table, const Shared& shared, Part& part) : PartReader(table, shared, part) {
    part.rows.gpu_samples.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
      if constexpr (std::is_same_v<T, float>) columns_.push_back(&column);
    });
  }
  void read(Connection& connection, const TableInfo& table, const RowRange& range) {
    Rows rows(connection, table, {"timestamp", "typeId", "metricId", "value"}, range);
    int64_t last_type = -1, last_ns = INT64_MIN;
    while (rows.next()) {
      const int64_t type = rows.integer(1), number = rows.integer(2);
      const Metric* metric = find(type, number);
      if (metric == nullptr) continue;
      int64_t time_ns = 0;
      if (!moment(rows, 0, time_ns)) continue;
      if (type != last_type || time_ns != last_ns)
        part_.builder.add<GpuSamples>({.start_ns = time_ns,
                                       .dur_ns = 0,
                                       .device = static_cast<int32_t>(type & 0x7FFFFFFF),
                                       .source = CounterSource::kPmSampling});
      last_type = type;
      last_ns = time_ns;
      columns_[static_cast<size_t>(metric->column)]->back() = value_of(rows.integer(3), metric->clock);
    }
    finish_rows(rows, part_);
  }

 private:
  const Metric* find(int64_t type, int64_t number) {
    if (type != known_type_) {
      known_.clear();
      known_type_ = type;
    }
    constexpr int64_t kKnownMax = 1024;
    if (number < 0 || number >= kKnownMax) return nullptr;
    const size_t at = static_cast<size_t>(number);
    if (at >= known_.size()) known_.resize(at + 1, {nullptr, false});
    if (!known_[at].second) {
      const auto found = shared_.metrics.find({type, number});
      known_[at] = {found == shared_.metrics.end() ? nullptr : &found->second, true};
    }
    return known_[at].first;
  }
  // Shares are whole percent. Clocks are called MHz and are Hz, cut to 32 bits with a sign.
  static float value_of(int64_t value, bool clock) {
    if (!clock) return static_cast<float>(static_cast<double>(value) / 100.0);
    constexpr uint32_t kHzMin = 1'000'000;
    const uint32_t raw = static_cast<uint32_t>(value);
    return static_cast<float>(raw < kHzMin ? static_cast<double>(raw) * 1e6 : static_cast<double>(raw));
  }
  std::vector<std::vector<float>*> columns_;
  int64_t known_type_ = -1;
  std::vector<std::pair<const Metric*, bool>> known_;
};

template <class Reader>
void read_with(Connection& connection, const TableInfo& table, const RowRange& range, const Shared& shared,
               Part& part) {
  Reader(table.name.c_str(), shared, part).read(connection, table, range);
}

}  // namespace

const std::vector<Source>& sources() {
  static const std::vector<Source> kSources = {
      {"CUPTI_ACTIVITY_KIND_KERNEL", read_with<KernelReader>},
      {"CUPTI_ACTIVITY_KIND_MEMCPY", read_with<CopyReader>},
      {"CUPTI_ACTIVITY_KIND_MEMSET", read_with<MemsetReader>},
      {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", read_with<GraphReader>},
      {"CUPTI_ACTIVITY_KIND_RUNTIME", read_with<CallReader>},
      {"NVTX_EVENTS", read_with<RangeReader>},
      {"PROFILER_OVERHEAD", read_with<OverheadReader>},
      {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", read_with<SyncReader>},
      {"CUPTI_ACTIVITY_KIND_CUDA_EVENT", read_with<EventReader>},
      {"CUDA_GPU_MEMORY_USAGE_EVENTS", read_with<MemoryReader>},
      {"GPU_METRICS", read_with<MetricReader>},
  };
  return kSources;
}

}  // namespace llmprof::nsys
