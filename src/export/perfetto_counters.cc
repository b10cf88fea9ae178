#include <cmath>

#include "export/perfetto_tracks.h"
#include "export/value_names.h"

namespace llmprof::exporting {
namespace {

constexpr std::string_view kAllocator = "allocator", kProgram = "program";  // who counted

class CounterTracks {
 public:
  CounterTracks(const Trace& trace, PerfettoWriter& out, DeviceGroups& devices)
      : trace_(trace), out_(out), devices_(devices) {}

  void write() {
    columns(trace_.gpu_samples, trace_.gpu_samples.start_ns, trace_.gpu_samples.device,
            [&](Row row) { return word_of(trace_.gpu_samples.source[row]); });
    columns(trace_.nvml_samples, trace_.nvml_samples.time_ns, trace_.nvml_samples.device,
            [](Row) { return std::string_view("nvml"); });
    const MemoryEvents& memory = trace_.memory_events;
    for (Row row = 0; row < memory.size(); ++row) {
      set(memory.device[row], "allocated_bytes", kAllocator, "bytes", memory.time_ns[row], memory.allocated_bytes[row]);
      set(memory.device[row], "reserved_bytes", kAllocator, "bytes", memory.time_ns[row], memory.reserved_bytes[row]);
    }
    const Counters& counters = trace_.counters;
    for (Row row = 0; row < counters.size(); ++row)
      set(counters.device[row], trace_.text(counters.name[row]), kProgram, "", counters.time_ns[row],
          counters.value[row]);
  }

 private:
  // Every column of numbers that is no time and no device is a counter of each device and source.
  template <class Table, class Source>
  void columns(const Table& table, const std::vector<int64_t>& times, const std::vector<int32_t>& devices,
               Source&& source) {
    table.for_each_column([&](const FieldInfo& field, const auto& column) {
      using Value = typename std::decay_t<decltype(column)>::value_type;
      if constexpr (std::is_arithmetic_v<Value>) {
        if (field.role == ColumnRole::kMoment || field.role == ColumnRole::kDuration ||
            field.role == ColumnRole::kDevice)
          return;
        for (Row row = 0; row < table.size(); ++row)
          set(devices[row], field.name, source(row), field.unit, times[row], column[row]);
      }
    });
  }

  // Values that stand for "unknown" are left out.
  template <class Value>
  void set(int32_t device, std::string_view name, std::string_view source, std::string_view unit, int64_t time_ns,
           Value value) {
    if constexpr (std::is_floating_point_v<Value>) {
      if (std::isfinite(value)) out_.counter(track(device, name, source, unit), time_ns, double{value});
    } else if constexpr (std::is_unsigned_v<Value>) {
      if (value != kThrottleReasonsUnknown)
        out_.counter(track(device, name, source, unit), time_ns, static_cast<int64_t>(value));
    } else {
      if (value >= 0) out_.counter(track(device, name, source, unit), time_ns, int64_t{value});
    }
  }

  TrackId track(int32_t device, std::string_view name, std::string_view source, std::string_view unit) {
    std::string full(name);
    full += " (";
    full += source;
    full += ")";
    // The allocator's and the program's may be of no device: those of host memory, and of nothing in particular.
    const bool of_host = device < 0 && (source == kAllocator || source == kProgram);
    if (of_host && source == kAllocator) full = "host " + full;
    const auto [at, fresh] = tracks_.try_emplace({device, full});
    if (fresh)
      at->second = out_.add({.name = full,
                             .parent = of_host ? TrackId::kNone : devices_.group(device),
                             .rank = rank_of(DeviceRank::kCounters, tracks_.size()),
                             .counter_unit = unit});
    return at->second;
  }

  const Trace& trace_;
  PerfettoWriter& out_;
  DeviceGroups& devices_;
  std::map<std::pair<int32_t, std::string>, TrackId> tracks_;
};

}  // namespace

void write_counter_tracks(const Trace& trace, PerfettoWriter& out, DeviceGroups& devices) {
  CounterTracks(trace, out, devices).write();
}

}  // namespace llmprof::exporting
