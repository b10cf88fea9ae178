#include "import/kineto_merge.h"

#include "base/json_document.h"
#include "import/json_scan.h"

namespace llmprof::kineto {

void Merger::merge(const Block& block) {
  builder_.append(block.rows);
  for (const Block::ThreadName& entry : block.thread_names)
    thread_names_.push_back({entry.process_id, entry.thread_id, builder_.appended(entry.name)});
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
  trace.devices.append({.device = small("id"),
                        .name = trace.strings.intern(name.substr(0, 256)),
                        .sm_count = small("numSms"),
                        .compute_major = small("computeMajor"),
                        .compute_minor = small("computeMinor"),
                        .memory_bytes = number("totalGlobalMem", -1),
                        .threads_per_sm_max = small("maxThreadsPerMultiprocessor"),
                        .registers_per_sm = small("regsPerMultiprocessor"),
                        .shared_bytes_per_sm = number("sharedMemPerMultiprocessor", -1)});
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
