// Perfetto: the whole file. Tracks follow one another; Perfetto sorts events by their time when it reads them, and
// keeps the order of equal ones.
#include <algorithm>

#include "export/formats.h"
#include "export/perfetto_tracks.h"

namespace llmprof::exporting {
namespace {

// The earliest time of any row; 0 if there is none.
int64_t earliest_ns(const Trace& trace) {
  std::optional<int64_t> earliest;
  trace.for_each_table([&](const auto& table) {
    bool is_first = true;  // the first moment of a row is its start; a later one may be -1 for "none"
    table.for_each_column([&](const FieldInfo& field, const auto& column) {
      if constexpr (std::is_same_v<std::decay_t<decltype(column)>, std::vector<int64_t>>) {
        if (field.role != ColumnRole::kMoment || !is_first) return;
        is_first = false;
        for (const int64_t time : column) earliest = std::min(earliest.value_or(time), time);
      }
    });
  });
  return earliest.value_or(0);
}

}  // namespace

Status write_perfetto(const Trace& trace, const std::string& path) {
  LLMPROF_ASSIGN(Destination destination, Destination::for_file(path, false));
  TextFile file(destination.part(), path);
  const int64_t earliest = earliest_ns(trace);
  PerfettoWriter out(trace, file, std::max<int64_t>(0, -earliest));
  if (trace.base_unix_ns != 0) out.clocks(earliest);
  DeviceGroups devices(trace, out);
  write_device_tracks(trace, out, devices);
  write_host_tracks(trace, out);
  write_counter_tracks(trace, out, devices);
  LLMPROF_CHECK(file.close());
  return destination.take_name();
}

}  // namespace llmprof::exporting
