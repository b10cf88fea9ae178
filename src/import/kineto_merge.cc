#include "import/kineto_merge.h"

#include <type_traits>

#include "base/json_document.h"
#include "import/json_scan.h"

namespace llmprof::kineto {
namespace {

// Copies one column, passing every value through `map`.
template <class T, class Map>
void append_mapped(std::vector<T>& to, const std::vector<T>& from, Map&& map) {
  const size_t at = to.size();
  to.resize(at + from.size());
  for (size_t i = 0; i < from.size(); ++i) to[at + i] = map(from[i]);
}

// Pairs up the columns of two tables of the same type.
template <class Table>
void for_each_column_pair(Table& to, const Table& from, auto&& visitor) {
  std::vector<const void*> sources;
  from.for_each_column([&](const FieldInfo&, const auto& column) { sources.push_back(&column); });
  size_t i = 0;
  to.for_each_column([&]<class T>(const FieldInfo& info, std::vector<T>& column) {
    visitor(info, column, *static_cast<const std::vector<T>*>(sources[i++]));
  });
}

// Calls add(table row in the block) for rows of a small shared table and returns the map from block rows to trace rows.
template <class Table, class Hash, class Equal>
void map_rows(Table& to, const Table& from, RowIndex& rows, std::vector<Row>& map, Hash&& hash, Equal&& equal,
              auto&& push) {
  map.resize(from.size());
  for (Row row = 0; row < from.size(); ++row) {
    map[row] = rows.find_or_add(
        hash(row), [&](Row existing) { return equal(existing, row); },
        [&] {
          push(row);
          return static_cast<Row>(to.size() - 1);
        });
  }
}

uint64_t hash_column_value(StringId value) { return index(value); }
template <class T>
uint64_t hash_column_value(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else
    return static_cast<uint64_t>(value);
}

template <class T>
bool same_value(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);  // NaN stands for "absent" and equals itself
  else
    return a == b;
}

}  // namespace

// The shared tables are small (hundreds of rows a block), so they are compared column by column.
template <class Table>
static void map_shared(Table& to, const Table& from, RowIndex& rows, std::vector<Row>& map,
                       const std::vector<StringId>& strings) {
  const auto translate = [&]<class T>(T value) {
    if constexpr (std::is_same_v<T, StringId>)
      return strings[index(value)];
    else
      return value;
  };
  std::vector<uint64_t> hashes(from.size(), 0);
  from.for_each_column([&](const FieldInfo&, const auto& column) {
    for (size_t row = 0; row < column.size(); ++row)
      hashes[row] = mix_hash(hashes[row], hash_column_value(translate(column[row])));
  });
  map_rows(
      to, from, rows, map, [&](Row row) { return hashes[row]; },
      [&](Row existing, Row row) {
        bool same = true;
        for_each_column_pair(to, from, [&](const FieldInfo&, const auto& a, const auto& b) {
          same = same && same_value(a[existing], translate(b[row]));
        });
        return same;
      },
      [&](Row row) {
        for_each_column_pair(to, from,
                             [&](const FieldInfo&, auto& a, const auto& b) { a.push_back(translate(b[row])); });
      });
}

void Merger::map_shared_tables(const Block& block) {
  maps_.strings.resize(block.strings.size());
  for (uint32_t id = 0; id < block.strings.size(); ++id)
    maps_.strings[id] = trace_.strings.intern(block.strings[static_cast<StringId>(id)]);
  map_shared(trace_.threads, block.threads, thread_index_, maps_.threads, maps_.strings);
  map_shared(trace_.streams, block.streams, stream_index_, maps_.streams, maps_.strings);
  map_shared(trace_.launch_configs, block.launch_configs, config_index_, maps_.configs, maps_.strings);
  map_shared(trace_.signatures, block.signatures, signature_index_, maps_.signatures, maps_.strings);
  maps_.gpu_op_base = static_cast<Row>(trace_.gpu_ops.size());
}

template <class Table>
void Merger::append(Table& to, const Table& from) {
  if (from.empty()) return;
  if (to.size() + from.size() >= kNoRow) {  // rows are 32-bit handles
    trace_.diagnostics.add(DiagnosticId::kLimitReached, std::string(Table::info().name) + " has 2^32 rows",
                           from.size());
    return;
  }
  for_each_column_pair(to, from, [&]<class T>(const FieldInfo& info, std::vector<T>& a, const std::vector<T>& b) {
    if constexpr (std::is_same_v<T, StringId>) {
      append_mapped(a, b, [&](StringId id) { return maps_.strings[index(id)]; });
    } else if constexpr (std::is_same_v<T, Row>) {
      const std::vector<Row>* map = info.name == "thread"      ? &maps_.threads
                                    : info.name == "stream"    ? &maps_.streams
                                    : info.name == "config"    ? &maps_.configs
                                    : info.name == "signature" ? &maps_.signatures
                                                               : nullptr;
      if (map != nullptr)
        append_mapped(a, b, [&](Row row) { return row == kNoRow ? kNoRow : (*map)[row]; });
      else  // collectives.gpu_op
        append_mapped(a, b, [&](Row row) { return row + maps_.gpu_op_base; });
    } else {
      a.insert(a.end(), b.begin(), b.end());
    }
  });
}

void Merger::merge(const Block& block) {
  map_shared_tables(block);
  append(trace_.collectives, block.collectives);
  append(trace_.gpu_ops, block.gpu_ops);
  append(trace_.ops, block.ops);
  append(trace_.annotations, block.annotations);
  append(trace_.python_calls, block.python_calls);
  append(trace_.api_calls, block.api_calls);
  append(trace_.sync_events, block.sync_events);
  append(trace_.overheads, block.overheads);
  append(trace_.memory_events, block.memory_events);
  append(trace_.counters, block.counters);
  trace_.diagnostics.merge(block.diagnostics);
  for (const Block::ThreadName& entry : block.thread_names)
    thread_names_.push_back({entry.process_id, entry.thread_id, maps_.strings[index(entry.name)]});
  metadata_.insert(metadata_.end(), block.metadata.begin(), block.metadata.end());
}

void reserve_tables(Trace& trace, double factor) {
  trace.for_each_table([&](auto& table) {
    if (!table.empty()) table.reserve(static_cast<size_t>(static_cast<double>(table.size()) * factor));
  });
}

namespace {

void add_device(Trace& trace, JsonValue properties) {
  const auto number = [&](std::string_view key, int64_t absent) { return properties[key].integer().value_or(absent); };
  const auto small = [&](std::string_view key) {
    const int64_t value = number(key, -1);
    return value >= 0 && value <= INT32_MAX ? static_cast<int32_t>(value) : -1;
  };
  const std::string_view name = properties["name"].text().value_or(std::string_view());
  Devices& devices = trace.devices;
  devices.device.push_back(small("id"));
  devices.name.push_back(trace.strings.intern(name.substr(0, 256)));
  devices.sm_count.push_back(small("numSms"));
  devices.compute_major.push_back(small("computeMajor"));
  devices.compute_minor.push_back(small("computeMinor"));
  devices.memory_bytes.push_back(number("totalGlobalMem", -1));
  devices.threads_per_sm_max.push_back(small("maxThreadsPerMultiprocessor"));
  devices.registers_per_sm.push_back(small("regsPerMultiprocessor"));
  devices.shared_bytes_per_sm.push_back(number("sharedMemPerMultiprocessor", -1));
  devices.uuid.push_back(StringId::kEmpty);
  devices.kind.push_back(ProcessorKind::kGpu);
}

// False if the text is no list of objects.
bool read_devices(Trace& trace, const std::string& text) {
  const Result<JsonDocument> document = JsonDocument::parse(text);
  if (!document || !document->root().is_array()) return false;
  for (const JsonValue properties : document->root().entries()) {
    if (!properties.is_object()) return false;
    if (trace.devices.size() < 1024) add_device(trace, properties);
  }
  return true;
}

}  // namespace

void Merger::finish() {
  for (const auto& [key, text] : metadata_) {
    if (key == "deviceProperties") {
      if (!read_devices(trace_, text)) trace_.diagnostics.add(DiagnosticId::kBadMetadata, "deviceProperties");
    } else if (key == "baseTimeNanoseconds") {
      if (!json::parse_int(text, trace_.base_unix_ns))
        trace_.diagnostics.add(DiagnosticId::kBadMetadata, "baseTimeNanoseconds");
    } else if (!text.empty() && text.size() <= 4096) {
      const bool quoted = text.size() >= 2 && text.front() == '"';
      trace_.metadata[key.substr(0, 256)] =
          quoted ? json::unescape(std::string_view(text).substr(1, text.size() - 2)) : text;
    }
  }
  // GPU rows carry names such as "stream 7" under (device, stream), which may equal a (process, thread) pair.
  for (const Block::ThreadName& entry : thread_names_) {
    if (trace_.text(entry.name).starts_with("stream ")) continue;
    for (Row row = 0; row < trace_.threads.size(); ++row)
      if (trace_.threads.process_id[row] == entry.process_id && trace_.threads.thread_id[row] == entry.thread_id)
        trace_.threads.name[row] = entry.name;
  }
}

}  // namespace llmprof::kineto
