#include "import/capture_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/flat_index.h"
#include "base/json_document.h"
#include "base/parallel.h"
#include "trace/check_trace.h"

namespace llmprof::capture {
namespace {

constexpr size_t kFactsMax = 512;
constexpr size_t kFactBytesMax = 4096;

// ---- session.json
// ----------------------------------------------------------------------------------------------------

bool scalar_text(JsonValue value, std::string& text) {
  switch (value.kind()) {
    case JsonKind::kText:
      text = std::string(value.text().value_or(std::string_view()));
      return true;
    case JsonKind::kInteger:
      text = fmt::format("{}", value.integer().value_or(0));
      return true;
    case JsonKind::kNatural:
      text = fmt::format("{}", value.natural().value_or(0));
      return true;
    case JsonKind::kReal:
      text = fmt::format("{}", value.number().value_or(0));
      return true;
    case JsonKind::kBool:
      text = value.boolean().value_or(false) ? "true" : "false";
      return true;
    default:
      return false;
  }
}

void add_fact(Trace& trace, const std::string& key, std::string value) {
  if (key.empty() || value.empty() || trace.metadata.size() >= kFactsMax) return;
  trace.metadata[key.substr(0, 256)] = value.substr(0, kFactBytesMax);
}

void flatten(Trace& trace, const std::string& key, JsonValue value, int depth) {
  constexpr int kDepthMax = 4;
  std::string text;
  if (scalar_text(value, text)) return add_fact(trace, key, std::move(text));
  if (depth >= kDepthMax) return;
  for (const JsonMember field : value.members())
    flatten(trace, (key.empty() ? "" : key + ".") + std::string(field.name), field.value, depth + 1);
  if (!value.is_array()) return;
  std::string joined;
  size_t at = 0;
  for (const JsonValue item : value.entries()) {
    if (scalar_text(item, text))
      joined += (joined.empty() ? "" : " ") + text;
    else
      flatten(trace, fmt::format("{}.{}", key, at), item, depth + 1);
    ++at;
  }
  add_fact(trace, key, std::move(joined));
}

// ---- devices
// ---------------------------------------------------------------------------------------------------------

// One numbering of GPUs for all processes. A GPU keeps the ordinal of the first process that names it, if it is free.
class DeviceNumbers {
 public:
  // The trace's ordinal for a GPU that a process calls `ordinal`. Without a uuid the ordinal is all there is to go by.
  int32_t of(std::string_view uuid, int32_t ordinal) {
    const std::string key = uuid.empty() ? fmt::format("ordinal {}", ordinal) : std::string(uuid);
    const auto [at, fresh] = by_key_.try_emplace(key, 0);
    if (!fresh) return at->second;
    int32_t number = std::max(ordinal, 0);
    while (!taken_.insert(number).second) number = next_free_++;
    return at->second = number;
  }
  // -1 if no process uses this GPU.
  int32_t find(std::string_view uuid) const {
    const auto at = by_key_.find(std::string(uuid));
    return at == by_key_.end() || uuid.empty() ? -1 : at->second;
  }

 private:
  std::map<std::string, int32_t> by_key_;
  std::set<int32_t> taken_;
  int32_t next_free_ = 0;
};

// ---- joining
// ---------------------------------------------------------------------------------------------------------

template <class Table>
void for_each_column_pair(Table& to, const Table& from, auto&& visitor) {
  std::vector<const void*> sources;
  from.for_each_column([&](const FieldInfo&, const auto& column) { sources.push_back(&column); });
  size_t i = 0;
  to.for_each_column([&]<class T>(const FieldInfo& info, std::vector<T>& column) {
    visitor(info, column, *static_cast<const std::vector<T>*>(sources[i++]));
  });
}

class Joiner {
 public:
  explicit Joiner(Trace& trace) : trace_(trace) {}

  void add(SpoolTables& file);
  void finish();

 private:
  void number_devices(SpoolTables& file);
  int32_t device(int32_t ordinal) {
    if (ordinal < 0) return -1;
    const auto [at, fresh] = ordinals_.try_emplace(ordinal, 0);
    if (fresh) at->second = numbers_.of({}, ordinal);
    return at->second;
  }
  template <class Table>
  void append(Table& to, Table& from);
  template <class T>
  void translate(const FieldInfo& info, std::vector<T>& column, size_t from_row, bool own_strings);
  void add_devices(const SpoolTables& file);
  void add_facts(const SpoolTables& file);
  // Uuids of samples, as handles of the trace, parallel to the table.
  void keep_uuids(std::vector<StringId>& to, const std::vector<StringId>& from) {
    for (const StringId id : from) to.push_back(strings_[index(id)]);
  }

  Trace& trace_;
  DeviceNumbers numbers_;
  std::map<int32_t, int32_t> ordinals_;  // of the process being added
  std::vector<StringId> strings_;        // handle in the file -> handle in the trace
  Row threads_at_ = 0, streams_at_ = 0, configs_at_ = 0, calls_at_ = 0, signatures_at_ = 0;
  std::vector<StringId> gpu_sample_uuids_, nvml_sample_uuids_;
  int64_t clock_offset_ns_ = 0;
  bool has_clock_offset_ = false;
};

void Joiner::number_devices(SpoolTables& file) {
  ordinals_.clear();
  const Devices& devices = file.part.devices;
  for (Row row = 0; row < devices.size(); ++row)
    ordinals_[devices.device[row]] = numbers_.of(file.part.text(file.device_uuids[row]), devices.device[row]);
}

void Joiner::add_devices(const SpoolTables& file) {
  const Devices& from = file.part.devices;
  Devices& to = trace_.devices;
  for (Row row = 0; row < from.size(); ++row) {
    const int32_t number = ordinals_[from.device[row]];
    if (std::find(to.device.begin(), to.device.end(), number) != to.device.end()) continue;
    to.device.push_back(number);
    to.name.push_back(strings_[index(from.name[row])]);
    to.sm_count.push_back(from.sm_count[row]);
    to.compute_major.push_back(from.compute_major[row]);
    to.compute_minor.push_back(from.compute_minor[row]);
    to.memory_bytes.push_back(from.memory_bytes[row]);
    to.threads_per_sm_max.push_back(from.threads_per_sm_max[row]);
    to.registers_per_sm.push_back(from.registers_per_sm[row]);
    to.shared_bytes_per_sm.push_back(from.shared_bytes_per_sm[row]);
    to.uuid.push_back(strings_[index(from.uuid[row])]);
    to.kind.push_back(from.kind[row]);
  }
}

// Rows of the file become rows of the trace, from `from_row` on.
template <class T>
void Joiner::translate(const FieldInfo& info, std::vector<T>& column, size_t from_row, bool own_strings) {
  if constexpr (std::is_same_v<T, StringId>) {
    if (own_strings) return;  // the file's strings became the trace's
    for (size_t i = from_row; i < column.size(); ++i) column[i] = strings_[index(column[i])];
  } else if constexpr (std::is_same_v<T, Row>) {
    const std::string_view target = table_named_by(info.doc);
    const Row offset = target == "threads"          ? threads_at_
                       : target == "streams"        ? streams_at_
                       : target == "launch_configs" ? configs_at_
                       : target == "library_calls"  ? calls_at_
                       : target == "signatures"     ? signatures_at_
                                                    : 0;
    if (offset == 0) return;
    for (size_t i = from_row; i < column.size(); ++i)
      if (column[i] != kNoRow) column[i] += offset;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (info.name != "device") return;
    int32_t last = -1, last_number = -1;
    for (size_t i = from_row; i < column.size(); ++i) {
      if (column[i] != last) last_number = device(last = column[i]);
      column[i] = last_number;
    }
  }
}

template <class Table>
void Joiner::append(Table& to, Table& from) {
  if (from.empty()) return;
  if (to.size() + from.size() >= kNoRow) {  // rows are 32-bit handles
    trace_.diagnostics.add(DiagnosticId::kLimitReached, fmt::format("{} has 2^32 rows", Table::info().name),
                           from.size());
    return;
  }
  const size_t at = to.size();
  const bool own_strings = strings_.empty();
  if (at == 0)
    to = std::move(from);
  else
    for_each_column_pair(to, from,
                         [](const FieldInfo&, auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); });
  to.for_each_column([&](const FieldInfo& info, auto& column) { translate(info, column, at, own_strings); });
  from.clear();
}

void Joiner::add_facts(const SpoolTables& file) {
  for (const auto& [key, value] : file.facts) {
    const auto at = trace_.metadata.find(key);
    if (at == trace_.metadata.end())
      add_fact(trace_, key, value);
    else if (at->second != value)
      add_fact(trace_, fmt::format("process.{}.{}", file.head.process_id, key), value);
  }
  if (!file.has_clock_offset) return;
  has_clock_offset_ = true;
  if (std::abs(file.clock_offset_ns) > std::abs(clock_offset_ns_)) clock_offset_ns_ = file.clock_offset_ns;
}

void Joiner::add(SpoolTables& file) {
  Trace& part = file.part;
  number_devices(file);
  threads_at_ = static_cast<Row>(trace_.threads.size());
  streams_at_ = static_cast<Row>(trace_.streams.size());
  configs_at_ = static_cast<Row>(trace_.launch_configs.size());
  calls_at_ = static_cast<Row>(trace_.library_calls.size());
  signatures_at_ = static_cast<Row>(trace_.signatures.size());
  std::vector<StringId> map(part.strings.size());
  const bool first = trace_.strings.size() == 1;  // only the empty string: handles stay what they are
  for (uint32_t id = 0; id < map.size(); ++id)
    map[id] = first ? static_cast<StringId>(id) : trace_.strings.intern(part.strings[static_cast<StringId>(id)]);
  strings_ = map;
  add_devices(file);
  keep_uuids(gpu_sample_uuids_, file.gpu_sample_uuids);
  keep_uuids(nvml_sample_uuids_, file.nvml_sample_uuids);
  if (first) strings_.clear();
  part.devices.clear();
#define LLMPROF_APPEND(Type, name) append(trace_.name, part.name);
  LLMPROF_IMPORTED_TABLES(LLMPROF_APPEND)
#undef LLMPROF_APPEND
  if (first) trace_.strings = std::move(part.strings);
  trace_.diagnostics.merge(part.diagnostics);
  add_facts(file);
  file = SpoolTables();
}

void Joiner::finish() {
  const auto number = [&](std::vector<int32_t>& devices, const std::vector<StringId>& uuids) {
    std::map<StringId, int32_t> numbers;
    for (size_t i = 0; i < devices.size() && i < uuids.size(); ++i) {
      const auto [at, fresh] = numbers.try_emplace(uuids[i], -1);
      if (fresh) at->second = numbers_.find(trace_.text(uuids[i]));
      devices[i] = at->second;
    }
  };
  number(trace_.gpu_samples.device, gpu_sample_uuids_);
  number(trace_.nvml_samples.device, nvml_sample_uuids_);
  if (has_clock_offset_) add_fact(trace_, "clock_offset_ns", std::to_string(clock_offset_ns_));
}

bool plausible_time(int64_t ns) { return ns > 0 && ns < kTimeNsMax; }

}  // namespace

void read_session_facts(std::string_view json, Trace& trace) {
  const Result<JsonDocument> document = JsonDocument::parse(json);
  if (!document || !document->root().is_object())
    return trace.diagnostics.add(DiagnosticId::kBadMetadata, "session.json: expected a JSON object");
  for (const JsonMember field : document->root().members()) {
    const std::optional<int64_t> number = field.value.integer();
    if (field.name == "start_unix_ns" && number && plausible_time(*number)) trace.base_unix_ns = *number;
    flatten(trace, std::string(field.name), field.value, 0);
  }
}

void read_spools(std::vector<SpoolTables> files, Trace& trace) {
  // The watched processes in order of their start, then the samplers.
  std::sort(files.begin(), files.end(), [](const SpoolTables& a, const SpoolTables& b) {
    if (a.is_target != b.is_target) return a.is_target;
    if (a.head.realtime_ns != b.head.realtime_ns) return a.head.realtime_ns < b.head.realtime_ns;
    return a.name < b.name;
  });
  uint64_t processes = 0;
  bool has_base = plausible_time(trace.base_unix_ns);
  if (!has_base) trace.base_unix_ns = 0;
  for (SpoolTables& file : files) {
    if (file.is_target) file.process_index = processes++;
    const int64_t start_ns = file.head.realtime_ns;
    if (has_base || !plausible_time(start_ns)) continue;
    if (trace.base_unix_ns == 0 || start_ns < trace.base_unix_ns) trace.base_unix_ns = start_ns;
  }
  parallel_for(files.size(), [&](size_t i) { read_spool(files[i], trace.base_unix_ns); });
  Joiner joiner(trace);
  for (SpoolTables& file : files) joiner.add(file);
  joiner.finish();
  add_fact(trace, "processes", std::to_string(processes));
}

}  // namespace llmprof::capture
