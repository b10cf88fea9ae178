#include "report/timeline_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/flat_index.h"
#include "derive/host_calls.h"
#include "report/kernel_name.h"
#include "report/timeline_counters.h"

namespace llmprof::timeline {

std::string_view name_of(TrackKind kind) {
  constexpr std::string_view kNames[] = {"stages", "path",      "stream",    "idle",  "waits",   "ranges",
                                         "python", "operators", "libraries", "calls", "recorder"};
  static_assert(std::size(kNames) == static_cast<size_t>(TrackKind::kCount));
  return kNames[static_cast<size_t>(kind)];
}

std::string_view tint_name(uint8_t tint) {
  if (tint < static_cast<uint8_t>(Category::kCount)) return category_name(static_cast<Category>(tint));
  constexpr std::string_view kNames[] = {"graph",     "stage",      "path",    "idle",     "range",
                                         "python",    "operator",   "library", "launch",   "wait",
                                         "copy-call", "allocation", "call",    "recorder", "merged"};
  static_assert(std::size(kNames) == static_cast<size_t>(Tint::kCount) - static_cast<size_t>(Category::kCount));
  return kNames[tint - static_cast<uint8_t>(Category::kCount)];
}

namespace {

constexpr uint16_t kDepthMost = 1000;

uint8_t tint_of(Tint tint) { return static_cast<uint8_t>(tint); }

Tint tint_of(ApiKind kind) {
  switch (kind) {
    case ApiKind::kLaunch:
    case ApiKind::kGraphLaunch:
      return Tint::kLaunch;
    case ApiKind::kEnqueue:
    case ApiKind::kCopy:
      return Tint::kCopyCall;
    case ApiKind::kSync:
      return Tint::kWait;
    case ApiKind::kAllocator:
      return Tint::kAllocation;
    case ApiKind::kOther:
      break;
  }
  return Tint::kCall;
}

void sort_by_start(std::vector<Slice>& slices) {
  const auto before = [](const Slice& a, const Slice& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.dur_ns > b.dur_ns;
  };
  if (!std::is_sorted(slices.begin(), slices.end(), before)) std::stable_sort(slices.begin(), slices.end(), before);
}

// One deeper than the innermost that is still open.
void nest(std::vector<Slice>& slices) {
  sort_by_start(slices);
  std::vector<std::pair<int64_t, uint16_t>> open;  // end, depth
  for (Slice& slice : slices) {
    while (!open.empty() && open.back().first <= slice.start_ns) open.pop_back();
    slice.depth = open.empty() ? 0 : std::min<uint16_t>(static_cast<uint16_t>(open.back().second + 1), kDepthMost);
    open.emplace_back(slice.end_ns(), slice.depth);
  }
}

// The first lane that is free.
void lay_in_lanes(std::vector<Slice>& slices) {
  sort_by_start(slices);
  std::vector<int64_t> free_from;
  for (Slice& slice : slices) {
    size_t lane = 0;
    while (lane < free_from.size() && free_from[lane] > slice.start_ns) ++lane;
    if (lane == free_from.size() && lane < kDepthMost) free_from.push_back(0);
    lane = std::min<size_t>(lane, free_from.size() - 1);
    free_from[lane] = slice.end_ns();
    slice.depth = static_cast<uint16_t>(lane);
  }
}

class Collector {
 public:
  Collector(const Trace& trace, const TimelineChoice& choice) : trace_(trace), choice_(choice), calls_(trace) {}

  Timeline run() {
    by_stream_.assign(trace_.streams.size(), kNone);
    for (const int32_t device : devices()) add_device(device);
    add_activities();
    add_counters(trace_, group_of_device_, out_);
    add_threads();
    std::erase_if(out_.tracks, [](const Track& track) { return track.slices.empty(); });
    for (Track& track : out_.tracks) {
      const bool lanes = track.kind == TrackKind::kStream || track.kind == TrackKind::kWaits;
      lanes ? lay_in_lanes(track.slices) : nest(track.slices);
    }
    return std::move(out_);
  }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFU;

  uint32_t text(StringId id) {
    if (index(id) >= texts_.size()) texts_.resize(std::max<size_t>(trace_.strings.size(), index(id) + 1), kNone);
    uint32_t& known = texts_[index(id)];
    if (known == kNone) known = text(trace_.text(id));
    return known;
  }
  uint32_t text(std::string_view words) { return index(out_.texts.intern(words)); }

  uint32_t kernel_name(StringId id) {
    const uint32_t known = out_.texts.size();
    const uint32_t name = text(id);
    if (name < known) return name;
    std::string shown = short_kernel_name(trace_.text(id));
    if (shown != trace_.text(id)) out_.shorts.emplace_back(name, std::move(shown));
    return name;
  }

  uint32_t add_track(std::string name, uint32_t group, TrackKind kind) {
    out_.tracks.push_back({std::move(name), group, kind, {}, {}});
    return static_cast<uint32_t>(out_.tracks.size() - 1);
  }

  std::set<int32_t> devices() const {
    std::set<int32_t> found;
    for (const int32_t device : trace_.steps.device) found.insert(device);
    for (Row op = 0; op < trace_.gpu_ops.size(); ++op) found.insert(trace_.device_of(op));
    for (const StreamId stream : trace_.graph_launches.stream) found.insert(trace_.streams.device[stream]);
    // Of a recording of nothing but readings, the devices that were read.
    const bool seen = !found.empty();
    for (const std::vector<int32_t>* of : {&trace_.gpu_samples.device, &trace_.nvml_samples.device})
      for (const int32_t device : *of)
        if (device >= 0 || !seen) found.insert(device);
    return found;
  }

  void add_device(int32_t device) {
    std::string name = device < 0 ? "GPU" : fmt::format("GPU {}", device);
    for (Row row = 0; row < trace_.devices.size(); ++row) {
      if (trace_.devices.device[row] != device) continue;
      if (trace_.devices.kind[row] == ProcessorKind::kCpu) name = "CPU";
      if (trace_.devices.name[row] != StringId::kEmpty)
        name += fmt::format(" ({})", trace_.text(trace_.devices.name[row]));
    }
    const uint32_t group = static_cast<uint32_t>(out_.groups.size());
    out_.groups.push_back(std::move(name));
    group_of_device_[device] = group;
    add_stages(device, add_track("Stages", group, TrackKind::kStages));
    add_path(device, add_track("Critical path", group, TrackKind::kPath));
    for (Row stream = 0; stream < trace_.streams.size(); ++stream)
      if (trace_.streams.device[stream] == device)
        by_stream_[stream] = add_track(stream_name(stream), group, TrackKind::kStream);
    add_idle(device, add_track("GPU idle, by cause", group, TrackKind::kIdle));
    add_waits(device, add_track("Waits, as the GPU has them", group, TrackKind::kWaits));
  }

  std::string stream_name(Row stream) const {
    const int64_t context = trace_.streams.context[stream];
    for (Row other = 0; other < trace_.streams.size(); ++other)
      if (other != stream && trace_.streams.device[other] == trace_.streams.device[stream] &&
          trace_.streams.stream[other] == trace_.streams.stream[stream])
        return fmt::format("Stream {} of context {}", trace_.streams.stream[stream], context);
    return fmt::format("Stream {}", trace_.streams.stream[stream]);
  }

  void add_stages(int32_t device, uint32_t track) {
    const Steps& steps = trace_.steps;
    for (Row step = 0; step < steps.size(); ++step) {
      if (steps.device[step] != device) continue;
      Slice& slice = out_.tracks[track].slices.emplace_back();
      slice.start_ns = steps.start_ns[step];
      slice.dur_ns = steps.end_ns[step] - steps.start_ns[step];
      slice.name = text(steps.stage[step]);
      slice.tint = tint_of(Tint::kStage);
      if (steps.annotation[step] != kNoRow) slice.target = {Of::kRange, steps.annotation[step]};
      std::string detail{name_of_kind(step)};
      const auto add = [&](int64_t count, const char* what) {
        if (count >= 0) detail += fmt::format(", {} {}", count, what);
      };
      add(steps.new_tokens[step], "new tokens");
      add(steps.sequences[step], "sequences");
      add(steps.context[step], "tokens of context");
      if (steps.phase[step] == StepPhase::kWarmUp) detail += ", warm-up";
      slice.detail = text(detail);
    }
  }
  std::string_view name_of_kind(Row step) const { return llmprof::name_of(trace_.steps.kind[step]); }

  void add_path(int32_t device, uint32_t track) {
    std::set<Row> done;
    for (const StageChoice& stage : choice_.stages) {
      for (const StepChoice* step : {&stage.median, &stage.slowest}) {
        if (step->step == kNoRow || trace_.steps.device[step->step] != device || !done.insert(step->step).second)
          continue;
        for (const CriticalPiece& piece : step->path) {
          Slice& slice = out_.tracks[track].slices.emplace_back();
          slice.start_ns = piece.start_ns;
          slice.dur_ns = piece.end_ns - piece.start_ns;
          slice.name = text(piece.part);
          slice.tint = tint_of(Tint::kPath);
          if (piece.op != kNoRow) {
            slice.target = {Of::kActivity, piece.op};
            slice.detail = kernel_name(trace_.gpu_ops.name[piece.op]);
          } else if (piece.call != kNoRow) {
            slice.target = {Of::kCall, piece.call};
            slice.detail = text(trace_.api_calls.name[piece.call]);
          }
        }
      }
    }
  }

  void add_activities() {
    const GpuOps& ops = trace_.gpu_ops;
    for (Row op = 0; op < ops.size(); ++op) {
      Slice& slice = out_.tracks[by_stream_[ops.stream[op]]].slices.emplace_back();
      slice.start_ns = ops.start_ns[op];
      slice.dur_ns = ops.dur_ns[op];
      slice.name = kernel_name(ops.name[op]);
      slice.own = {Of::kActivity, op};
      const bool linked = op < trace_.gpu_links.size();
      slice.tint = linked ? static_cast<uint8_t>(trace_.gpu_links.category[op]) : 0;
      if (linked && trace_.gpu_links.api[op] != kNoRow) slice.target = {Of::kCall, trace_.gpu_links.api[op]};
      slice.detail = ops.kind[op] == GpuOpKind::kKernel ? config_text(ops.config[op]) : bytes_text(op);
    }
    add_graphs();
  }

  uint32_t config_text(LaunchConfigId config) {
    if (config == kNoRow) return 0;
    configs_.resize(trace_.launch_configs.size(), kNone);
    uint32_t& known = configs_[config];
    if (known != kNone) return known;
    const LaunchConfigs& c = trace_.launch_configs;
    std::string words = fmt::format("grid {} x {} x {}, block {} x {} x {}", c.grid_x[config], c.grid_y[config],
                                    c.grid_z[config], c.block_x[config], c.block_y[config], c.block_z[config]);
    if (c.registers_per_thread[config] >= 0) words += fmt::format(", {} registers", c.registers_per_thread[config]);
    if (c.shared_bytes[config] >= 0) words += fmt::format(", {} bytes shared", c.shared_bytes[config]);
    return known = text(words);
  }
  uint32_t bytes_text(Row op) {
    const int64_t bytes = trace_.gpu_ops.bytes[op];
    if (bytes < 0) return 0;
    const HostMemory memory = trace_.gpu_ops.host_memory[op];
    return text(fmt::format("{} bytes{}", bytes,
                            memory == HostMemory::kPageable ? ", pageable"
                            : memory == HostMemory::kPinned ? ", pinned"
                                                            : ""));
  }

  void add_graphs() {
    const GraphLaunches& graphs = trace_.graph_launches;
    if (graphs.size() == 0) return;
    FlatMap calls;
    for (Row call = 0; call < trace_.api_calls.size(); ++call)
      if (calls_.kind(call) == ApiKind::kGraphLaunch && trace_.api_calls.correlation[call] != 0)
        calls.find_or_insert(trace_.api_calls.correlation[call], call);
    for (Row graph = 0; graph < graphs.size(); ++graph) {
      Slice& slice = out_.tracks[by_stream_[graphs.stream[graph]]].slices.emplace_back();
      slice.start_ns = graphs.start_ns[graph];
      slice.dur_ns = graphs.dur_ns[graph];
      slice.name = text("CUDA graph");
      slice.detail = text(fmt::format("graph {}", graphs.graph[graph]));
      slice.tint = tint_of(Tint::kGraph);
      slice.own = {Of::kGraph, graph};
      const uint32_t call = graphs.correlation[graph] == 0 ? kNone : calls.find(graphs.correlation[graph]);
      if (call != kNone) slice.target = {Of::kCall, call};
    }
  }

  void add_idle(int32_t device, uint32_t track) {
    const Gaps& gaps = trace_.gaps;
    for (Row gap = 0; gap < gaps.size(); ++gap) {
      if (gaps.device[gap] != device) continue;
      Slice& slice = out_.tracks[track].slices.emplace_back();
      slice.start_ns = gaps.start_ns[gap];
      slice.dur_ns = gaps.dur_ns[gap];
      slice.name = text(idle_cause_name(gaps.cause[gap]));
      slice.tint = tint_of(Tint::kIdle);
      if (gaps.python[gap] != kNoRow) slice.detail = text(trace_.python_calls.name[gaps.python[gap]]);
      if (gaps.op[gap] != kNoRow) slice.detail = text(trace_.ops.name[gaps.op[gap]]);
      if (gaps.next_gpu_op[gap] != kNoRow) slice.target = {Of::kActivity, gaps.next_gpu_op[gap]};
    }
  }

  void add_waits(int32_t device, uint32_t track) {
    const SyncEvents& waits = trace_.sync_events;
    for (Row wait = 0; wait < waits.size(); ++wait) {
      if (std::max<int32_t>(waits.device[wait], 0) != device) continue;
      Slice& slice = out_.tracks[track].slices.emplace_back();
      slice.start_ns = waits.start_ns[wait];
      slice.dur_ns = waits.dur_ns[wait];
      slice.name = text(waits.name[wait]);
      slice.tint = tint_of(Tint::kWait);
      if (waits.stream[wait] >= 0) slice.detail = text(fmt::format("stream {}", waits.stream[wait]));
      if (waits.correlation[wait] == 0) continue;
      if (const uint32_t call = waiting_calls().find(waits.correlation[wait]); call != kNone)
        slice.target = awaited_by(ApiCallId(call));
    }
  }

  // Calls that waited for something, by correlation.
  const FlatMap& waiting_calls() {
    if (waiting_calls_) return *waiting_calls_;
    waiting_calls_.emplace();
    for (Row call = 0; call < choice_.awaited.size(); ++call)
      if (choice_.awaited[call] != kNoRow && trace_.api_calls.correlation[call] != 0)
        waiting_calls_->find_or_insert(trace_.api_calls.correlation[call], call);
    return *waiting_calls_;
  }
  Anchor awaited_by(ApiCallId call) const {
    if (call >= choice_.awaited.size() || choice_.awaited[call] == kNoRow) return {};
    return {Of::kActivity, choice_.awaited[call]};
  }

  // ---- the host ----

  // Those that launch most come first.
  std::vector<Row> threads_in_order() const {
    std::vector<size_t> calls(trace_.threads.size(), 0);
    for (const ThreadId thread : trace_.api_calls.thread) ++calls[thread];
    std::vector<Row> order(trace_.threads.size());
    for (Row thread = 0; thread < order.size(); ++thread) order[thread] = thread;
    std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) { return calls[a] > calls[b]; });
    return order;
  }

  void add_threads() {
    constexpr std::pair<TrackKind, const char*> kKinds[] = {
        {TrackKind::kRanges, "Ranges"},       {TrackKind::kPython, "Python"},
        {TrackKind::kOperators, "Operators"}, {TrackKind::kLibraries, "Math libraries"},
        {TrackKind::kCalls, "CUDA calls"},    {TrackKind::kRecorder, "The recorder"}};
    std::vector<uint32_t> first(trace_.threads.size() + 1);
    for (const Row thread : threads_in_order()) {
      const uint32_t group = static_cast<uint32_t>(out_.groups.size());
      out_.groups.push_back(thread_name(thread));
      first[thread] = static_cast<uint32_t>(out_.tracks.size());
      for (const auto& [kind, name] : kKinds) add_track(name, group, kind);
    }
    first.back() = kNone;  // rows without a thread
    const auto into = [&](ThreadId thread, uint32_t which) -> Slice& {
      uint32_t& track = first[thread == kNoRow ? trace_.threads.size() : static_cast<Row>(thread)];
      if (track == kNone) {
        track = static_cast<uint32_t>(out_.tracks.size());
        out_.groups.emplace_back("On no thread");
        for (const auto& [kind, name] : kKinds) add_track(name, static_cast<uint32_t>(out_.groups.size() - 1), kind);
      }
      return out_.tracks[track + which].slices.emplace_back();
    };
    add_rows(trace_.annotations, Tint::kRange, [&](Row row) -> Slice& {
      Slice& slice = into(trace_.annotations.thread[row], 0);
      slice.own = {Of::kRange, row};
      slice.detail = text(trace_.annotations.domain[row]);
      return slice;
    });
    add_rows(trace_.python_calls, Tint::kPython,
             [&](Row row) -> Slice& { return into(trace_.python_calls.thread[row], 1); });
    add_rows(trace_.ops, Tint::kOperator, [&](Row row) -> Slice& {
      Slice& slice = into(trace_.ops.thread[row], 2);
      if (const SignatureId signature = trace_.ops.signature[row]; signature != kNoRow)
        slice.detail = text(trace_.signatures.dims[signature]);
      return slice;
    });
    add_rows(trace_.library_calls, Tint::kLibrary,
             [&](Row row) -> Slice& { return into(trace_.library_calls.thread[row], 3); });
    add_rows(trace_.api_calls, Tint::kCall, [&](Row row) -> Slice& {
      Slice& slice = into(trace_.api_calls.thread[row], 4);
      slice.own = {Of::kCall, row};
      slice.target = awaited_by(ApiCallId(row));
      return slice;
    });
    add_rows(trace_.overheads, Tint::kRecorder,
             [&](Row row) -> Slice& { return into(trace_.overheads.thread[row], 5); });
  }

  template <class Table, class Place>
  void add_rows(const Table& table, Tint tint, Place&& place) {
    for (Row row = 0; row < table.size(); ++row) {
      Slice& slice = place(row);
      slice.start_ns = table.start_ns[row];
      slice.dur_ns = table.dur_ns[row];
      slice.name = text(table.name[row]);
      slice.tint = tint_of(slice.own.of == Of::kCall ? tint_of(calls_.kind(row)) : tint);
    }
  }

  std::string thread_name(Row thread) const {
    std::string name = fmt::format("Thread {}", trace_.threads.thread_id[thread]);
    if (trace_.threads.name[thread] != StringId::kEmpty)
      name += fmt::format(" ({})", trace_.text(trace_.threads.name[thread]));
    return name;
  }

  const Trace& trace_;
  const TimelineChoice& choice_;
  const HostCalls calls_;
  Timeline out_;
  std::vector<uint32_t> texts_, configs_, by_stream_;
  std::optional<FlatMap> waiting_calls_;
  std::map<int32_t, uint32_t> group_of_device_;
};

}  // namespace

Timeline collect(const Trace& trace, const TimelineChoice& choice) { return Collector(trace, choice).run(); }

}  // namespace llmprof::timeline
