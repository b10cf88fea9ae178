#include "import/nsys.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/parallel.h"
#include "import/nsys_join.h"

namespace llmprof::nsys {
namespace {

constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr std::string_view kActivity = "CUPTI_ACTIVITY_KIND_";
constexpr size_t kFactBytesMax = 4096;
constexpr int64_t kSmallRowsMax = 100'000;  // of tables that describe: machines, GPUs, metrics, settings

// All rows of a small table, one after another.
template <class Visit>
void for_rows(Database& database, std::string_view name, const std::vector<std::string_view>& columns, Trace& trace,
              Visit&& visit) {
  const TableInfo* table = database.find(name);
  if (table == nullptr) return;
  std::unique_ptr<Connection> connection = database.take();
  if (connection == nullptr) return;
  {
    Rows rows(*connection, *table, columns, {INT64_MIN, INT64_MAX, std::min(table->rows_max, kSmallRowsMax)});
    while (rows.next()) visit(rows);
    const bool limited = rows.read() == kSmallRowsMax && table->rows_max > kSmallRowsMax;
    if (!rows.error().empty())
      trace.diagnostics.add(limited ? DiagnosticId::kLimitReached : DiagnosticId::kDamagedTable,
                            fmt::format("{}: {}", table->name, limited ? "too many rows" : rows.error()));
  }
  database.give_back(std::move(connection));
}

// ---- what kind of file ---------------------------------------------------------------------------------------------

std::string names_of(const std::vector<TableInfo>& tables) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < tables.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + tables[i].name.substr(0, 64);
  return text + (tables.size() > kShown ? fmt::format(" and {} more", tables.size() - kShown) : "");
}

// An error, where the file is no export of Nsight Systems.
Status check_kind(const Database& database, const std::string& file) {
  const auto has = [&](std::string_view name) { return database.find(name) != nullptr; };
  const std::vector<TableInfo>& tables = database.tables();
  const bool activity = std::any_of(sources().begin(), sources().end(), [&](const Source& source) {
    return std::string_view(source.table).starts_with(kActivity) && has(source.table);
  });
  if (has("StringIds") && (activity || has("NVTX_EVENTS") || has("META_DATA_EXPORT") || has("TARGET_INFO_SYSTEM_ENV") ||
                           has("ANALYSIS_DETAILS")))
    return {};
  const std::string expected = "expected an SQLite file of `nsys export`, found ";
  if (has("gpu_ops") && has("columns"))
    return fail(expected + "one that llmprof itself exported, which is for other tools", file,
                "name the recording that it was made from");
  if (activity && has("StringTable"))
    return fail(expected + "one of nvprof, the profiler before Nsight Systems", file,
                "record with nsys profile, and export with nsys export --type sqlite");
  if (tables.empty())
    return fail(expected + (database.other_names().empty() ? "one without tables" : "one that has views and no tables"),
                file, "export it again: nsys export --type sqlite REPORT.nsys-rep");
  return fail(expected + "one with the tables " + names_of(tables), file,
              "an export has StringIds, and CUPTI_ACTIVITY_KIND_KERNEL where kernels were recorded; `llmprof list "
              "importers` names the formats");
}

// ---- the machine and the recording ---------------------------------------------------------------------------------

void add_fact(Trace& trace, const std::string& key, std::string_view value) {
  if (!value.empty()) trace.metadata[key] = std::string(value.substr(0, kFactBytesMax));
}

bool number_of(std::string_view text, int64_t& number) {
  const std::from_chars_result read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// Names in exports and those that llmprof has for the same fact. What may hold secrets, as environments do, is not
// kept.
struct Fact {
  std::string_view theirs;
  const char* ours;
};
constexpr Fact kSystemFacts[] = {{"NvDriverVersion", "driver_version"},
                                 {"CudaDriverVersion", "cuda_driver_version"},
                                 {"Hostname", "host.name"},
                                 {"CpuCores", "host.cpus"},
                                 {"CpuDescription", "host.cpu"},
                                 {"OsDescription", "host.os"},
                                 {"SoftwareReleaseVersion", "host.kernel"}};
constexpr Fact kExportFacts[] = {{"EXPORT_PRODUCT_VERSION", "nsys.version"},
                                 {"EXPORT_SCHEMA_VERSION", "nsys.schema_version"}};

template <size_t n>
void take_fact(const Fact (&facts)[n], std::string_view name, std::string_view value, Trace& trace) {
  for (const Fact& fact : facts)
    if (fact.theirs == name) add_fact(trace, fact.ours, value);
}

void read_machine(Database& database, Trace& trace) {
  for_rows(database, "TARGET_INFO_SYSTEM_ENV", {"name", "value"}, trace,
           [&](const Rows& rows) { take_fact(kSystemFacts, rows.text(0), rows.text(1), trace); });
  std::map<int64_t, std::string> arguments;  // 0: the program
  std::string graphs;
  for_rows(database, "META_DATA_CAPTURE", {"name", "value"}, trace, [&](const Rows& rows) {
    constexpr std::string_view kArgument = "PROCESS_0:ARGUMENT_";
    constexpr size_t kArgumentsMax = 256;
    const std::string_view name = rows.text(0);
    int64_t number = 0;
    if (name == "PROCESS_0:COMMAND") arguments[0] = std::string(rows.text(1));
    if (name == "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE") add_fact(trace, "nsys.cuda_graph_trace", rows.text(1));
    if (name.starts_with(kArgument) && number_of(name.substr(kArgument.size()), number) && number >= 0 &&
        arguments.size() < kArgumentsMax)
      arguments[number + 1] = std::string(rows.text(1).substr(0, kFactBytesMax));
  });
  std::string command;
  for (const auto& [number, word] : arguments) command += (command.empty() ? "" : " ") + word;
  add_fact(trace, "command", command);
}

// Sets the epoch; what is subtracted from the times of the file. Exports are in time since the start of the capture,
// unless they were asked to shift it (--ts-shift) or to write UTC (--ts-normalize).
int64_t read_clock(Database& database, Trace& trace) {
  int64_t shift_ns = 0, utc_ns = 0;
  bool utc = false;
  for_rows(database, "META_DATA_EXPORT", {"name", "value"}, trace, [&](const Rows& rows) {
    const std::string_view name = rows.text(0), value = rows.text(1);
    take_fact(kExportFacts, name, value, trace);
    if (name == "EXPORT_PARAM_TIME_NORMALIZE") utc = value == "true" || value == "1";
    if (name == "EXPORT_PARAM_TIME_SHIFT" && !number_of(value, shift_ns)) shift_ns = 0;
  });
  for_rows(database, "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"}, trace,
           [&](const Rows& rows) { utc_ns = utc_ns == 0 ? rows.integer(0, 0) : utc_ns; });
  if (utc_ns < 0 || utc_ns > kTimeNsMax) {
    trace.diagnostics.add(DiagnosticId::kBadMetadata, "TARGET_INFO_SESSION_START_TIME");
    utc_ns = 0;
  }
  if (shift_ns < -kTimeNsMax / 2 || shift_ns > kTimeNsMax / 2) shift_ns = 0;
  trace.base_unix_ns = utc_ns;
  return shift_ns + (utc ? utc_ns : 0);
}

void read_gpus(Database& database, Trace& trace, Gpus& gpus) {
  for_rows(database, "TARGET_INFO_CUDA_DEVICE", {"pid", "cudaId", "gpuId"}, trace,
           [&](const Rows& rows) { gpus.add(rows.integer(0), rows.integer(1), rows.integer(2, rows.integer(1))); });
  TraceBuilder builder(trace);
  std::set<int32_t> known;
  for_rows(database, "TARGET_INFO_GPU",
           {"id", "name", "smCount", "computeMajor", "computeMinor", "totalMemory", "maxWarpsPerSm", "threadsPerWarp",
            "maxRegistersPerSm", "maxShmemPerSm", "uuid"},
           trace, [&](const Rows& rows) {
             constexpr size_t kDevicesMax = 1024;
             const int32_t device = gpus.of_gpu(rows.integer(0, -1));  // -1: the program does not use it
             if (device < 0 || trace.devices.size() >= kDevicesMax || !known.insert(device).second) return;
             const auto small = [&](int column) {
               const int64_t value = rows.integer(column, -1);
               return value > 0 && value <= INT32_MAX ? static_cast<int32_t>(value) : -1;
             };
             const auto large = [&](int column) {
               const int64_t value = rows.integer(column, -1);
               return value > 0 ? value : -1;
             };
             const int32_t warps = small(6), lanes = small(7);
             const std::string_view uuid = rows.text(10).substr(0, 64);
             const bool bare = !uuid.empty() && !uuid.starts_with("GPU-") && !uuid.starts_with("MIG-");
             builder.add<Devices>(
                 {.device = device,
                  .name = builder.text(rows.text(1).substr(0, 256)),
                  .sm_count = small(2),
                  .compute_major = small(3),
                  .compute_minor = static_cast<int32_t>(std::clamp<int64_t>(rows.integer(4, -1), -1, 1000)),
                  .memory_bytes = large(5),
                  .threads_per_sm_max = warps > 0 && lanes > 0 && warps < 4096 && lanes < 4096 ? warps * lanes : -1,
                  .registers_per_sm = small(8),
                  .shared_bytes_per_sm = large(9),
                  .uuid = builder.text((bare ? "GPU-" : "") + std::string(uuid))});
           });
}

// ---- hardware counters ---------------------------------------------------------------------------------------------

struct MetricName {
  std::string_view theirs;
  std::string_view column;
};
// Shares, whose names end with [Throughput %], and a clock. Shares of a bandwidth that the file does not tell, and what
// graphics does, have no column.
constexpr std::string_view kShare = " [Throughput %]";
constexpr MetricName kMetricNames[] = {
    {"GR Active", "gr_active_frac"},
    {"SMs Active", "sm_active_frac"},
    {"SM Active", "sm_active_frac"},
    {"SM Issue", "instructions_frac"},
    {"Tensor Active", "tensor_active_frac"},
    {"Compute Warps in Flight", "warps_active_frac"},
    {"DRAM Read Bandwidth", "dram_read_frac"},
    {"DRAM Write Bandwidth", "dram_write_frac"},
    {"GPC Clock Frequency [MHz]", "sm_clock_hz"},
};

Metric metric_of(std::string_view name) {
  if (name.ends_with(kShare)) name.remove_suffix(kShare.size());
  Metric metric;
  for (const MetricName& known : kMetricNames) {
    if (known.theirs != name) continue;
    int at = 0;
    GpuSamples().for_each_column([&]<class T>(const FieldInfo& field, std::vector<T>&) {
      if constexpr (std::is_same_v<T, float>) {
        if (field.name == known.column) metric.column = at;
        ++at;
      }
    });
    metric.clock = known.column == "sm_clock_hz";
  }
  return metric;
}

void read_metrics(Database& database, Trace& trace, Shared& shared) {
  std::set<std::string> others;
  for_rows(database, "TARGET_INFO_GPU_METRICS", {"typeId", "metricId", "metricName"}, trace, [&](const Rows& rows) {
    const std::string_view name = rows.text(2);
    const Metric metric = metric_of(name);
    constexpr size_t kOthersMax = 1024;
    if (metric.column >= 0)
      shared.metrics[{rows.integer(0), rows.integer(1)}] = metric;
    else if (others.size() < kOthersMax)
      others.insert(std::string(name.substr(0, 128)));
  });
  const TableInfo* table = database.find("GPU_METRICS");
  if (table == nullptr || !table->has_rows()) return;
  for (const std::string& name : others)
    trace.diagnostics.add(DiagnosticId::kUnknownCategory, fmt::format("GPU metric '{}'", name));
}

// ---- parts ---------------------------------------------------------------------------------------------------------

struct Task {
  const Source* source;
  const TableInfo* table;
  RowRange range;
};

std::vector<Task> make_tasks(const Database& database, int64_t part_rows) {
  std::vector<Task> tasks;
  for (const Source& source : sources()) {
    const TableInfo* table = database.find(source.table);
    if (table == nullptr) continue;
    if (!table->numbered) {
      tasks.push_back({&source, table, {INT64_MIN, INT64_MAX, table->rows_max}});
      continue;
    }
    for (int64_t first = table->first_row;;) {
      const int64_t count = std::min(part_rows, table->last_row - first + 1);
      tasks.push_back({&source, table, {first, first + count - 1, count}});
      if (first + count - 1 >= table->last_row) break;
      first += count;
    }
  }
  return tasks;
}

// Workers read parts side by side; whoever has read the next one in order joins it and those that wait for it. A few
// parts are in memory at a time.
class Reading {
 public:
  Reading(Database& database, const Shared& shared, std::vector<Task> tasks, Trace& trace, Joiner& joiner)
      : database_(database), shared_(shared), tasks_(std::move(tasks)), trace_(trace), joiner_(joiner) {}

  void run() {
    parallel_for(tasks_.size(), [this](size_t i) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        room_.wait(lock, [&] { return i < joined_ + 2 * size_t{worker_count()}; });
      }
      hand_in(i, read(tasks_[i]));
    });
  }

 private:
  std::unique_ptr<Part> read(const Task& task) {
    std::unique_ptr<Part> part = std::make_unique<Part>();
    std::unique_ptr<Connection> connection = database_.take();
    if (connection == nullptr) {
      part->error = "the file cannot be opened again";
      return part;
    }
    task.source->read(*connection, *task.table, task.range, shared_, *part);
    database_.give_back(std::move(connection));
    return part;
  }

  void hand_in(size_t index, std::unique_ptr<Part> part) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.emplace(index, std::move(part));
    while (!waiting_.empty() && waiting_.begin()->first == joined_) {
      const Part& next = *waiting_.begin()->second;
      joiner_.add(next);
      if (!next.error.empty())
        trace_.diagnostics.add(DiagnosticId::kDamagedTable,
                               fmt::format("{}: {}", tasks_[joined_].table->name, next.error));
      waiting_.erase(waiting_.begin());
      ++joined_;
    }
    room_.notify_all();
  }

  Database& database_;
  const Shared& shared_;
  const std::vector<Task> tasks_;
  Trace& trace_;
  Joiner& joiner_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::map<size_t, std::unique_ptr<Part>> waiting_;
  size_t joined_ = 0;
};

// Room for all rows at once: tables that grow hold their rows twice for a moment.
void reserve_rows(const Database& database, Trace& trace) {
  const auto rows = [&](std::string_view name) {
    const TableInfo* table = database.find(name);
    return table == nullptr ? size_t{0} : static_cast<size_t>(table->row_count());
  };
  trace.gpu_ops.reserve(rows("CUPTI_ACTIVITY_KIND_KERNEL") + rows("CUPTI_ACTIVITY_KIND_MEMCPY") +
                        rows("CUPTI_ACTIVITY_KIND_MEMSET"));
  trace.api_calls.reserve(rows("CUPTI_ACTIVITY_KIND_RUNTIME"));
}

// ---- behind the last part ------------------------------------------------------------------------------------------

// Names of the threads that did something; others are listed as well.
void name_threads(Database& database, const Strings& strings, Trace& trace) {
  std::map<std::pair<int64_t, int64_t>, Row> threads;
  for (Row row = 0; row < trace.threads.size(); ++row)
    threads.emplace(std::make_pair(trace.threads.process_id[row], trace.threads.thread_id[row]), row);
  for_rows(database, "ThreadNames", {"nameId", "globalTid"}, trace, [&](const Rows& rows) {
    const int64_t global_id = rows.integer(1, -1);
    const auto found = threads.find({process_of(global_id), thread_of(global_id)});
    if (global_id < 0 || found == threads.end() || trace.threads.name[found->second] != StringId::kEmpty) return;
    trace.threads.name[found->second] = trace.strings.intern(strings.get(rows.integer(0, -1)).substr(0, 256));
  });
}

void name_processes(Database& database, const std::vector<int64_t>& processes, Trace& trace) {
  for_rows(database, "PROCESSES", {"pid", "name"}, trace, [&](const Rows& rows) {
    const int64_t process = rows.integer(0, -1);
    constexpr size_t kNamedMax = 256;
    if (std::binary_search(processes.begin(), processes.end(), process) && processes.size() <= kNamedMax)
      add_fact(trace, fmt::format("process.{}.name", process), rows.text(1).substr(0, 256));
  });
}

// What Nsight Systems itself warned of: lost events, tables that may lack some.
void read_warnings(Database& database, Trace& trace) {
  constexpr int64_t kWarning = 2, kError = 3;
  for_rows(database, "DIAGNOSTIC_EVENT", {"severity", "text"}, trace, [&](const Rows& rows) {
    const int64_t severity = rows.integer(0);
    if (severity == kWarning || severity == kError)
      trace.diagnostics.add(DiagnosticId::kRecorderNote, "Nsight Systems: " + std::string(rows.text(1).substr(0, 256)));
  });
}

// Tables that describe or repeat, whose rows are no events.
bool is_description(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {"ENUM_", "TARGET_INFO_", "META_DATA_", "ANALYSIS_", "EXPORT_"};
  constexpr std::string_view kNames[] = {"StringIds",          "ThreadNames",      "PROCESSES",
                                         "ProcessStreams",     "DIAGNOSTIC_EVENT", "GENERIC_EVENT_SOURCES",
                                         "GENERIC_EVENT_TYPES"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [&](std::string_view begin) { return name.starts_with(begin); }) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Events of kinds that a recording has no table for, by the numbers of their rows.
void count_unread(const Database& database, Trace& trace) {
  std::vector<std::pair<int64_t, std::string>> unread;  // most rows first
  for (const TableInfo& table : database.tables()) {
    const bool is_read = std::any_of(sources().begin(), sources().end(),
                                     [&](const Source& source) { return table.is_named(source.table); });
    if (is_read || is_description(table.name) || !table.has_rows()) continue;
    const std::string shown = table.name.substr(0, 64);
    unread.emplace_back(-table.row_count(), table.numbered ? fmt::format("{} ({} rows)", shown, table.row_count())
                                                           : shown + " (rows not counted)");
  }
  // What is no plain table is not looked into, whatever its name.
  for (const std::string& name : database.other_names())
    unread.emplace_back(0, name.substr(0, 64) + " (no plain table)");
  if (unread.empty()) return;
  std::sort(unread.begin(), unread.end());
  uint64_t count = 0;
  std::string names;
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < unread.size(); ++i) {
    count += static_cast<uint64_t>(std::max<int64_t>(-unread[i].first, 1));
    if (i < kShown) names += (i == 0 ? "" : ", ") + unread[i].second;
  }
  if (unread.size() > kShown) names += fmt::format(" and {} more", unread.size() - kShown);
  trace.diagnostics.add(DiagnosticId::kUnknownTable, names, count);
}

// A recording without kernels is one of its samples or ranges, not one of an idle GPU.
void mark_without_kernels(Trace& trace) {
  if (!trace.gpu_ops.empty() || !trace.graph_launches.empty()) return;
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
  const auto take = [&](const std::vector<int64_t>& start, const std::vector<int64_t>& dur) {
    for (size_t i = 0; i < start.size(); ++i) {
      first_ns = std::min(first_ns, start[i]);
      last_ns = std::max(last_ns, start[i] + dur[i]);
    }
  };
  take(trace.gpu_samples.start_ns, trace.gpu_samples.dur_ns);
  if (trace.gpu_samples.empty()) take(trace.annotations.start_ns, trace.annotations.dur_ns);
  if (first_ns >= last_ns) return;
  TraceBuilder builder(trace);
  builder.add<Recorded>({.start_ns = first_ns,
                         .dur_ns = last_ns - first_ns,
                         .process_id = 0,
                         .level = RecordingLevel::kLight,
                         .reason = builder.text("Nsight Systems without CUDA"),
                         .cut_ns = 0});
}

}  // namespace

int sniff(std::string_view head) {
  if (!head.starts_with(kMagic)) return 0;
  return head.find(kActivity) != std::string_view::npos || head.find("StringIds") != std::string_view::npos ? 90 : 40;
}

Status import_in_parts(InputFile& input, Trace& trace, int64_t part_rows) {
  LLMPROF_ASSIGN(const std::unique_ptr<Database> database, Database::open(input));
  LLMPROF_CHECK(check_kind(*database, input.name()));
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (database->is_cut())
    trace.diagnostics.add(DiagnosticId::kTruncatedFile, "the file is shorter than its header says");

  if (!database->schema_damage().empty())
    trace.diagnostics.add(DiagnosticId::kDamagedTable, "sqlite_master: " + database->schema_damage());

  Strings strings;
  Gpus gpus;
  Shared shared;
  if (const TableInfo* table = database->find("StringIds"); table != nullptr) {
    std::unique_ptr<Connection> connection = database->take();
    if (connection == nullptr) return fail("expected an SQLite file, found one that cannot be read", input.name());
    strings.read(*connection, *table, database->bytes(), trace.diagnostics);
    database->give_back(std::move(connection));
  }
  read_machine(*database, trace);
  read_gpus(*database, trace, gpus);
  read_metrics(*database, trace, shared);
  std::atomic<int64_t> text_left{static_cast<int64_t>(database->bytes())};
  shared.strings = &strings;
  shared.gpus = &gpus;
  shared.time_offset_ns = read_clock(*database, trace);
  shared.text_left = &text_left;

  Joiner joiner(trace, gpus);
  reserve_rows(*database, trace);
  Reading(*database, shared, make_tasks(*database, part_rows), trace, joiner).run();
  joiner.finish();
  name_threads(*database, strings, trace);
  name_processes(*database, joiner.processes(), trace);
  read_warnings(*database, trace);
  count_unread(*database, trace);
  mark_without_kernels(trace);
  return {};
}

Status import(InputFile& input, Trace& trace) { return import_in_parts(input, trace, kPartRows); }

}  // namespace llmprof::nsys
