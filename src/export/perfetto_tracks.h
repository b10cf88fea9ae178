// What a Perfetto trace shows of a recording, in parts: docs/formats/perfetto.md lists the tracks. Internal to
// src/export.
#pragma once

#include <map>
#include <vector>

#include "export/perfetto_writer.h"

namespace llmprof::exporting {

// The group of tracks of each device, made when it is first asked for.
class DeviceGroups {
 public:
  DeviceGroups(const Trace& trace, PerfettoWriter& out) : trace_(trace), out_(out) {}
  TrackId group(int32_t device);

 private:
  const Trace& trace_;
  PerfettoWriter& out_;
  std::map<int32_t, TrackId> groups_;
};

// Places of a device's tracks, from the top.
enum class DeviceRank : int32_t { kSteps, kIdle, kStreams, kWaits, kCounters };
// That of the n-th track of a kind; kinds are far enough apart.
constexpr int32_t rank_of(DeviceRank kind, size_t n = 0) {
  return (static_cast<int32_t>(kind) << 20) + static_cast<int32_t>(n);
}

// Processes with their threads: ranges, Python functions, operators, library and CUDA calls. A call lists a flow for
// each GPU activity that it launched: the activity's row plus 1.
void write_host_tracks(const Trace& trace, PerfettoWriter& out);
constexpr uint64_t flow_of(Row gpu_op) { return uint64_t{gpu_op} + 1; }

// Devices: steps, idle time by cause, streams, waits.
void write_device_tracks(const Trace& trace, PerfettoWriter& out, DeviceGroups& devices);
// Everything that has a value over time.
void write_counter_tracks(const Trace& trace, PerfettoWriter& out, DeviceGroups& devices);

}  // namespace llmprof::exporting
