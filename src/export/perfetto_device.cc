#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "export/perfetto_tracks.h"
#include "export/value_names.h"

namespace llmprof::exporting {

TrackId DeviceGroups::group(int32_t device) {
  const auto [at, fresh] = groups_.try_emplace(device);
  if (!fresh) return at->second;
  std::string name = device < 0 ? "other GPUs" : fmt::format("GPU {}", device);
  for (Row row = 0; row < trace_.devices.size(); ++row) {
    if (trace_.devices.device[row] != device) continue;
    const bool cpu = trace_.devices.kind[row] == ProcessorKind::kCpu;
    name = fmt::format("{} {}: {}", cpu ? "CPU" : "GPU", device, trace_.text(trace_.devices.name[row]));
  }
  return at->second = out_.add({.name = name, .orders_children = true});
}

namespace {

class DeviceTracks {
 public:
  DeviceTracks(const Trace& trace, PerfettoWriter& out, DeviceGroups& devices)
      : trace_(trace), out_(out), devices_(devices) {}

  void write() {
    write_steps();
    write_gaps();
    write_streams();
    write_waits();
  }

 private:
  // Rows by `group`, then in their order, with a track and its lanes for each group. `track`: what a row's track is;
  // `slice` begins the row's slice on the track it gets.
  template <class Table, class Group, class MakeTrack, class Slice>
  void write_flat(const Table& table, Group&& group, MakeTrack&& make_track, Slice&& slice) {
    write_flat(
        table.size(), group, make_track,
        [&](Row row) {
          return std::pair<int64_t, int64_t>(table.start_ns[row], table.start_ns[row] + table.dur_ns[row]);
        },
        slice);
  }
  template <class Group, class MakeTrack, class Times, class Slice>
  void write_flat(size_t rows, Group&& group, MakeTrack&& make_track, Times&& times, Slice&& slice) {
    std::vector<Row> order(rows);
    std::iota(order.begin(), order.end(), Row{0});
    std::sort(order.begin(), order.end(), [&](Row a, Row b) {
      const auto group_a = group(a), group_b = group(b);
      if (group_a != group_b) return group_a < group_b;
      const auto [start_a, end_a] = times(a);
      const auto [start_b, end_b] = times(b);
      if (start_a != start_b) return start_a < start_b;
      return end_a != end_b ? end_a > end_b : a < b;
    });
    for (size_t from = 0; from < order.size();) {
      const auto of = group(order[from]);
      const Track track = make_track(order[from]);
      SliceLanes lanes(out_, false, out_.add(track), [&] { return out_.add(track); });
      for (; from < order.size() && group(order[from]) == of; ++from) {
        const auto [start_ns, end_ns] = times(order[from]);
        slice(lanes.place(start_ns, end_ns), order[from]);
      }
      lanes.end_all();
    }
  }

  void write_steps() {
    const Steps& steps = trace_.steps;
    write_flat(
        steps.size(), [&](Row row) { return steps.device[row]; },
        [&](Row row) {
          return Track{
              .name = "steps", .parent = devices_.group(steps.device[row]), .rank = rank_of(DeviceRank::kSteps)};
        },
        [&](Row row) { return std::pair<int64_t, int64_t>(steps.start_ns[row], steps.end_ns[row]); },
        [&](TrackId track, Row row) { step(track, row); });
  }

  void step(TrackId track, Row row) {
    const Steps& steps = trace_.steps;
    out_.begin(track, steps.start_ns[row], "step", out_.name(steps.stage[row]));
    out_.arg("step", int64_t{row});
    out_.arg("kind", word_of(steps.kind[row]));
    out_.arg("source", word_of(steps.source[row]));
    out_.arg("phase", word_of(steps.phase[row]));
    out_.arg("state", word_of(steps.state[row]));
    known("new_tokens", steps.new_tokens[row]);
    known("sequences", steps.sequences[row]);
    known("context", steps.context[row]);
    known("output_tokens", steps.output_tokens[row]);
    out_.finish();
  }

  void write_gaps() {
    const Gaps& gaps = trace_.gaps;
    write_flat(
        gaps, [&](Row row) { return gaps.device[row]; },
        [&](Row row) {
          return Track{
              .name = "idle by cause", .parent = devices_.group(gaps.device[row]), .rank = rank_of(DeviceRank::kIdle)};
        },
        [&](TrackId track, Row row) {
          out_.begin(track, gaps.start_ns[row], "idle", out_.name(word_of(gaps.cause[row])));
          stage_of(gaps.step[row]);
          name_in("operator", trace_.ops, gaps.op[row]);
          name_in("api", trace_.api_calls, gaps.api[row]);
          name_in("python", trace_.python_calls, gaps.python[row]);
          name_in("ended_by", trace_.gpu_ops, gaps.next_gpu_op[row]);
          out_.finish();
        });
  }

  void write_streams() {
    // Streams stand in the order of device, context and stream.
    const Streams& streams = trace_.streams;
    std::vector<Row> order(streams.size()), place(streams.size());
    std::iota(order.begin(), order.end(), Row{0});
    std::sort(order.begin(), order.end(), [&](Row a, Row b) {
      return std::tuple(streams.device[a], streams.context[a], streams.stream[a]) <
             std::tuple(streams.device[b], streams.context[b], streams.stream[b]);
    });
    for (Row i = 0; i < order.size(); ++i) place[order[i]] = i;
    const GpuOps& gpu_ops = trace_.gpu_ops;
    write_flat(
        gpu_ops, [&](Row row) { return place[gpu_ops.stream[row]]; },
        [&](Row row) {
          const StreamId stream = gpu_ops.stream[row];
          const int64_t context = streams.context[stream];
          return Track{.name = fmt::format("stream {}", streams.stream[stream]) +
                               (context < 0 ? "" : fmt::format(" of context {}", context)),
                       .parent = devices_.group(streams.device[stream]),
                       .rank = rank_of(DeviceRank::kStreams, place[stream])};
        },
        [&](TrackId track, Row row) { gpu_op(track, row); });
  }

  void gpu_op(TrackId track, Row row) {
    const GpuOps& ops = trace_.gpu_ops;
    const bool kernel = ops.kind[row] == GpuOpKind::kKernel;
    out_.begin(track, ops.start_ns[row], kernel ? "kernel" : word_of(ops.kind[row]), out_.name(ops.name[row]));
    if (row < trace_.gpu_links.size()) links(row);
    if (const LaunchConfigId config = ops.config[row]; config != kNoRow) launch_config(config);
    if (ops.correlation[row] != 0) out_.arg("correlation", ops.correlation[row]);
    if (ops.graph_node[row] != 0) out_.arg("graph_node", ops.graph_node[row]);
    if (!kernel) {
      known("bytes", ops.bytes[row]);
      if (ops.path[row] != CopyPath::kUnknown) out_.arg("path", word_of(ops.path[row]));
      if (ops.host_memory[row] != HostMemory::kUnknown) out_.arg("host_memory", word_of(ops.host_memory[row]));
    }
    if (row < trace_.gpu_links.size() && trace_.gpu_links.api[row] != kNoRow) out_.flow(flow_of(row));
    out_.finish();
  }

  void links(Row row) {
    const GpuLinks& of = trace_.gpu_links;
    out_.arg("category", word_of(of.category[row]));
    stage_of(of.step[row]);
    name_in("operator", trace_.ops, of.op[row]);
    if (const WorkId work = of.work[row]; work != kNoRow) {
      out_.arg("shape", trace_.works.shape[work]);
      out_.arg("dtype", word_of(trace_.works.dtype[work]));
      out_.arg("flops", trace_.works.flops[work]);
      out_.arg("least_bytes", trace_.works.bytes[work]);
    }
  }

  void launch_config(LaunchConfigId row) {
    const LaunchConfigs& of = trace_.launch_configs;
    out_.arg("grid", fmt::format("{} x {} x {}", of.grid_x[row], of.grid_y[row], of.grid_z[row]));
    out_.arg("block", fmt::format("{} x {} x {}", of.block_x[row], of.block_y[row], of.block_z[row]));
    known("registers_per_thread", of.registers_per_thread[row]);
    known("shared_bytes", of.shared_bytes[row]);
    out_.arg("occupancy_frac", double{of.occupancy_frac[row]});
  }

  void write_waits() {
    const SyncEvents& waits = trace_.sync_events;
    write_flat(
        waits, [&](Row row) { return waits.device[row]; },
        [&](Row row) {
          return Track{
              .name = "waits", .parent = devices_.group(waits.device[row]), .rank = rank_of(DeviceRank::kWaits)};
        },
        [&](TrackId track, Row row) {
          out_.begin(track, waits.start_ns[row], "wait", out_.name(waits.name[row]));
          known("stream", waits.stream[row]);
          known("event_stream", waits.event_stream[row]);
          if (waits.correlation[row] != 0) out_.arg("correlation", waits.correlation[row]);
          out_.finish();
        });
  }

  void known(std::string_view key, int64_t number) {
    if (number >= 0) out_.arg(key, number);
  }
  void stage_of(StepId step) {
    if (step == kNoRow) return;
    out_.arg("stage", trace_.steps.stage[step]);
    out_.arg("step", int64_t{static_cast<Row>(step)});
  }
  template <class Table, class Id>
  void name_in(std::string_view key, const Table& table, Id row) {
    if (row != kNoRow) out_.arg(key, table.name[row]);
  }

  const Trace& trace_;
  PerfettoWriter& out_;
  DeviceGroups& devices_;
};

}  // namespace

void write_device_tracks(const Trace& trace, PerfettoWriter& out, DeviceGroups& devices) {
  DeviceTracks(trace, out, devices).write();
}

}  // namespace llmprof::exporting
