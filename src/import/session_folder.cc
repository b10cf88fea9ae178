#include "import/session_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json_document.h"
#include "base/parallel.h"
#include "trace/check_trace.h"
#include "trace/trace_builder.h"

namespace llmprof::session_importer {
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
  // A part of a divided GPU; of several that are recorded the first is the one that is found.
  void add_part(std::string_view whole, int32_t number) {
    if (!whole.empty()) parts_.try_emplace(std::string(whole), number);
  }
  // -1 if no process uses this GPU.
  int32_t find(std::string_view uuid) const {
    const auto at = by_key_.find(std::string(uuid));
    return at == by_key_.end() || uuid.empty() ? -1 : at->second;
  }
  // The same, or a part of that GPU.
  int32_t find_with_parts(std::string_view uuid) const {
    const auto at = parts_.find(std::string(uuid));
    return at == parts_.end() ? find(uuid) : at->second;
  }

 private:
  std::map<std::string, int32_t> parts_;  // by the uuid of the whole GPU
  std::map<std::string, int32_t> by_key_;
  std::set<int32_t> taken_;
  int32_t next_free_ = 0;
};

// ---- joining
// ---------------------------------------------------------------------------------------------------------

class Joiner {
 public:
  explicit Joiner(Trace& trace) : trace_(trace), builder_(trace) {}

  void add(SpoolTables& file);
  void finish();

 private:
  void number_devices(SpoolTables& file);
  int32_t device(int32_t ordinal) {
    const auto [at, fresh] = ordinals_.try_emplace(ordinal, 0);
    if (fresh) at->second = numbers_.of({}, ordinal);
    return at->second;
  }
  void add_facts(const SpoolTables& file);
  // Uuids of samples, as handles of the trace, parallel to the table.
  void keep_uuids(std::vector<StringId>& to, const std::vector<StringId>& from) {
    for (const StringId id : from) to.push_back(builder_.appended(id));
  }

  Trace& trace_;
  TraceBuilder builder_;
  DeviceNumbers numbers_;
  std::map<int32_t, int32_t> ordinals_;  // of the process being added
  std::vector<StringId> gpu_sample_uuids_, nvml_sample_uuids_;
  int64_t clock_offset_ns_ = 0;
  bool has_clock_offset_ = false;
};

void Joiner::number_devices(SpoolTables& file) {
  ordinals_.clear();
  const Devices& devices = file.part.devices;
  for (Row row = 0; row < devices.size(); ++row) {
    const int32_t number = numbers_.of(file.part.text(devices.uuid[row]), devices.device[row]);
    numbers_.add_part(file.part.text(devices.whole_uuid[row]), number);
    ordinals_[devices.device[row]] = number;
  }
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
  number_devices(file);
  builder_.append(std::move(file.part),
                  {.share = false, .device = [this](int32_t ordinal) { return device(ordinal); }});
  keep_uuids(gpu_sample_uuids_, file.gpu_sample_uuids);
  keep_uuids(nvml_sample_uuids_, file.nvml_sample_uuids);
  add_facts(file);
  file = SpoolTables();
}

void Joiner::finish() {
  using Find = int32_t (DeviceNumbers::*)(std::string_view) const;
  const auto number = [&](std::vector<int32_t>& devices, const std::vector<StringId>& uuids, Find find) {
    std::map<StringId, int32_t> numbers;
    for (size_t i = 0; i < devices.size() && i < uuids.size(); ++i) {
      const auto [at, fresh] = numbers.try_emplace(uuids[i], -1);
      if (fresh) at->second = (numbers_.*find)(trace_.text(uuids[i]));
      devices[i] = at->second;
    }
  };
  // Counters of a whole GPU say nothing of a part of it; its clock and temperature are the part's too.
  number(trace_.gpu_samples.device, gpu_sample_uuids_, &DeviceNumbers::find);
  number(trace_.nvml_samples.device, nvml_sample_uuids_, &DeviceNumbers::find_with_parts);
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

}  // namespace llmprof::session_importer
