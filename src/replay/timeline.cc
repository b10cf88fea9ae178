#include "replay/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "replay/graph_edges.h"
#include "replay/order.h"

namespace llmprof::replay {
namespace {

constexpr uint32_t kBranchesMost = 8;  // of a graph at one time: so far back the node that one follows is looked for
constexpr size_t kTailMost = 64;       // activities that the next one on a stream may have to wait for

using Pairs = std::vector<std::pair<Row, GpuOpId>>;

StartKind start_kind(const Timeline& timeline, GpuOpId op) {
  const ApiCallId call = timeline.trace.gpu_links.api[op];
  if (call != kNoRow && timeline.calls.kind(call) == ApiKind::kGraphLaunch) return StartKind::kGraphNode;
  switch (timeline.trace.gpu_ops.kind[op]) {
    case GpuOpKind::kMemcpy:
      return StartKind::kCopy;
    case GpuOpKind::kMemset:
      return StartKind::kSet;
    case GpuOpKind::kKernel:
      break;
  }
  return StartKind::kKernel;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// cudaFree and its like wait for the device before they give memory back.
bool frees(std::string_view name) {
  return name == "cudaFree" || name == "cuMemFree" || name == "cuMemFree_v2" || name == "cudaFreeHost" ||
         name == "cuMemFreeHost";
}

Awaited awaited_by(const Timeline& timeline, ApiCallId call) {
  const ApiKind kind = timeline.calls.kind(call);
  if (kind == ApiKind::kCopy) return Awaited::kOwn;
  const std::string_view name = timeline.trace.text(timeline.trace.api_calls.name[call]);
  if (kind == ApiKind::kAllocator && frees(name)) return Awaited::kFree;
  if (kind != ApiKind::kSync) return Awaited::kNothing;
  if (has(name, "Device") || has(name, "Ctx")) return Awaited::kDevice;
  return Awaited::kThread;  // until more is known of it
}

// What the calls say of the order between streams. The calls are taken in the order in which they began; what a stream
// was last given is its tail, which whatever comes next on it follows.
class Streams {
 public:
  explicit Streams(Timeline& timeline)
      : timeline_(timeline), trace_(timeline.trace), tails_(trace_.streams.size()), kinds_(trace_.strings.size()) {}

  void run() {
    for (Row call = 0; call < trace_.api_calls.size(); ++call) {
      const StreamId stream = trace_.api_calls.stream[call];
      const uint64_t event = trace_.api_calls.event[call];
      launched(call, stream);
      switch (kind_of(call)) {
        case CallKind::kOther:
          break;
        case CallKind::kRecord:
          if (event != 0) events_[event] = stream != kNoRow ? std::optional<Tail>(tails_[stream]) : std::nullopt;
          break;
        case CallKind::kStreamWait:
          if (const auto at = events_.find(event); at != events_.end() && at->second)
            for (const GpuOpId op : *at->second) {
              stream_awaits_.emplace_back(call, op);
              if (stream != kNoRow) add(tails_[stream], op);
            }
          break;
        case CallKind::kWaitForStream:
          if (stream != kNoRow) awaits(call, Awaited::kStream, tails_[stream]);
          break;
        case CallKind::kWaitForEvent:
          if (event == 0) break;
          if (const std::optional<Tail>& tail = events_.try_emplace(event, Tail()).first->second)
            awaits(call, Awaited::kEvent, *tail);
          break;
      }
    }
    timeline_.joined.take(std::move(joined_), trace_.gpu_ops.size());
    timeline_.awaits.take(std::move(awaits_), trace_.api_calls.size());
    timeline_.stream_awaits.take(std::move(stream_awaits_), trace_.api_calls.size());
  }

 private:
  using Tail = std::vector<GpuOpId>;
  enum class CallKind : uint8_t { kOther, kRecord, kStreamWait, kWaitForStream, kWaitForEvent };

  CallKind kind_of(ApiCallId call) {
    // Judged once per name.
    uint8_t& known = kinds_[index(trace_.api_calls.name[call])];
    if (known != 0) return static_cast<CallKind>(known - 1);
    const std::string_view name = trace_.text(trace_.api_calls.name[call]);
    const CallKind kind = has(name, "EventRecord")         ? CallKind::kRecord
                          : has(name, "StreamWaitEvent")   ? CallKind::kStreamWait
                          : has(name, "StreamSynchronize") ? CallKind::kWaitForStream
                          : has(name, "EventSynchronize")  ? CallKind::kWaitForEvent
                                                           : CallKind::kOther;
    known = static_cast<uint8_t>(static_cast<uint8_t>(kind) + 1);
    return kind;
  }

  static void add(Tail& tail, GpuOpId op) {
    if (tail.size() < kTailMost && std::find(tail.begin(), tail.end(), op) == tail.end()) tail.push_back(op);
  }

  void awaits(ApiCallId call, Awaited what, const Tail& ops) {
    timeline_.awaited[call] = what;
    for (const GpuOpId op : ops) awaits_.emplace_back(call, op);
  }

  // A graph begins on the stream of its launch, and what comes behind it there follows all of its last nodes.
  void launched(ApiCallId call, StreamId stream) {
    const uint32_t begin = timeline_.launched_begin[call], end = timeline_.launched_begin[call + 1];
    if (begin == end) return;
    const bool whole = stream != kNoRow && timeline_.is_graph_node(timeline_.launched[begin]);
    for (uint32_t i = begin; i < end; ++i) {
      const GpuOpId op = timeline_.launched[i];
      Tail& tail = tails_[whole ? stream : trace_.gpu_ops.stream[op]];
      if (timeline_.in_graph.of(op).empty()) join(op, tail);
      if (!whole) tail.assign(1, op);
    }
    if (!whole) return;
    Tail& tail = tails_[stream];
    tail.clear();
    last_.assign(end - begin, 1);
    for (uint32_t i = begin; i < end; ++i)
      for (const GpuOpId before : timeline_.in_graph.of(timeline_.launched[i]))
        last_[timeline_.place_in_launch(before)] = 0;
    for (uint32_t i = end; i-- > begin;)  // the later ones first: the tail is bounded
      if (last_[i - begin] != 0) add(tail, timeline_.launched[i]);
  }

  // What ended after the activity had begun was not waited for, whatever the order of the calls says.
  void join(GpuOpId op, const Tail& tail) {
    for (const GpuOpId before : tail)
      if (before != timeline_.on_stream[op] && trace_.end_of(before) <= trace_.gpu_ops.start_ns[op])
        joined_.emplace_back(op, before);
  }

  Timeline& timeline_;
  const Trace& trace_;
  std::vector<Tail> tails_;
  std::unordered_map<uint64_t, std::optional<Tail>> events_;  // as they were recorded last; empty: on which stream?
  std::vector<uint8_t> kinds_;                                // by name: CallKind + 1, 0 not yet judged
  std::vector<uint8_t> last_;                                 // of a launch: whether nothing follows
  Pairs joined_, awaits_, stream_awaits_;
};

// As they were seen: branches overlap, and a node follows the one that ended last before it began.
void follow_as_seen(const Timeline& timeline, ApiCallId call, Pairs& out) {
  const Trace& trace = timeline.trace;
  const uint32_t begin = timeline.launched_begin[call];
  for (uint32_t i = begin; i < timeline.launched_begin[call + 1]; ++i) {
    const GpuOpId op = timeline.launched[i];
    GpuOpId last = kNoRow;
    for (uint32_t back = i; back-- > begin && i - back <= kBranchesMost;) {
      const GpuOpId earlier = timeline.launched[back];
      if (trace.end_of(earlier) > trace.gpu_ops.start_ns[op] &&
          trace.gpu_ops.stream[earlier] != trace.gpu_ops.stream[op])
        continue;
      if (last == kNoRow || trace.end_of(earlier) > trace.end_of(last)) last = earlier;
    }
    if (last != kNoRow) out.emplace_back(op, last);
  }
}

// Most nodes follow one.
void find_nodes_before(Timeline& timeline) {
  GraphEdgesOf edges(timeline);
  const size_t ops = timeline.kinds.size();
  NearRows<GpuOpId> single;
  Pairs of_launch, several;
  for (Row call = 0; call + 1 < timeline.launched_begin.size(); ++call) {
    const uint32_t first = timeline.launched_begin[call];
    if (first == timeline.launched_begin[call + 1] || !timeline.is_graph_node(timeline.launched[first])) continue;
    of_launch.clear();
    if (!edges.add(call, of_launch)) follow_as_seen(timeline, call, of_launch);
    for (Pairs::const_iterator at = of_launch.begin(); at != of_launch.end();) {
      const Pairs::const_iterator end =
          std::find_if(at, of_launch.cend(), [&](const auto& pair) { return pair.first != at->first; });
      if (single.empty()) single = NearRows<GpuOpId>(ops);
      if (end - at == 1)
        single.set(at->first, at->second);
      else
        several.insert(several.end(), at, end);
      at = end;
    }
  }
  timeline.in_graph.take(std::move(several), ops);
  timeline.in_graph.take_single(std::move(single));
}

// What ended after a copy had begun was not waited for, and what was asked for later is no matter of the order of
// calls.
void find_engines(Timeline& timeline) {
  const Trace& trace = timeline.trace;
  const GpuOps& ops = trace.gpu_ops;
  std::map<std::pair<int32_t, CopyPath>, GpuOpId> engines;
  for (GpuOpId op = 0; op < ops.size(); ++op) {
    if (ops.path[op] != CopyPath::kHostToDevice && ops.path[op] != CopyPath::kDeviceToHost) continue;
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow || timeline.is_graph_node(op)) continue;
    const auto [engine, is_first] = engines.try_emplace({trace.device_of(op), ops.path[op]}, op);
    const GpuOpId before = std::exchange(engine->second, op);
    if (is_first || ops.stream[before] == ops.stream[op] || trace.end_of(before) > ops.start_ns[op]) continue;
    if (trace.gpu_links.api[before] >= call) continue;
    if (timeline.on_engine.empty()) timeline.on_engine.assign(ops.size(), kNoRow);
    timeline.on_engine[op] = before;
  }
}

// A wait for a device is for the current one, which the recording does not tell.
void find_other_devices(Timeline& timeline) {
  const Trace& trace = timeline.trace;
  std::map<std::pair<uint32_t, int32_t>, int64_t> last;  // end of what was launched so far, by process and device
  timeline.other_devices.assign(trace.api_calls.size(), 0);
  for (Row call = 0; call < trace.api_calls.size(); ++call) {
    const uint32_t process = timeline.process[trace.api_calls.thread[call]];
    if (timeline.awaited[call] == Awaited::kDevice || timeline.awaited[call] == Awaited::kFree)
      for (const auto& [of, end] : last)
        if (of.first == process && end > timeline.end_of(call))
          timeline.other_devices[call] |= uint32_t{1} << (static_cast<uint32_t>(of.second) % 32);
    for (uint32_t i = timeline.launched_begin[call]; i < timeline.launched_begin[call + 1]; ++i) {
      const GpuOpId op = timeline.launched[i];
      int64_t& end = last.try_emplace({process, trace.device_of(op)}, kNever).first->second;
      end = std::max(end, trace.end_of(op));
    }
  }
}

}  // namespace

void ActivityLists::take(Pairs pairs, size_t rows) {
  constexpr size_t kFewPart = 16;
  begin_.clear();
  rows_.clear();
  ops_.clear();
  if (pairs.empty()) return;
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(pairs.begin(), pairs.end(), before)) std::stable_sort(pairs.begin(), pairs.end(), before);
  const bool few = pairs.size() < rows / kFewPart;
  if (!few) begin_.assign(rows + 1, 0);
  ops_.reserve(pairs.size());
  for (const auto& [row, op] : pairs) {
    if (!few) ++begin_[row + 1];
    if (few && (rows_.empty() || rows_.back() != row)) {
      rows_.push_back(row);
      begin_.push_back(static_cast<uint32_t>(ops_.size()));
    }
    ops_.push_back(op);
  }
  if (few) begin_.push_back(static_cast<uint32_t>(ops_.size()));
  if (!few)
    for (size_t row = 0; row < rows; ++row) begin_[row + 1] += begin_[row];
}

size_t ActivityLists::place_of(Row row) const {
  if (rows_.empty()) return row;
  const std::vector<Row>::const_iterator at = std::lower_bound(rows_.begin(), rows_.end(), row);
  return at != rows_.end() && *at == row ? static_cast<size_t>(at - rows_.begin()) : kNowhere;
}

uint32_t Timeline::place_in_launch(GpuOpId op) const {
  const ApiCallId call = trace.gpu_links.api[op];
  if (call == kNoRow) return 0;
  uint32_t low = launched_begin[call], high = launched_begin[call + 1];
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (launched[middle] < op)
      low = middle + 1;
    else
      high = middle;
  }
  return low - launched_begin[call];
}

Timeline::Timeline(const Trace& recording) : trace(recording), calls(recording), no_input(recording) {
  const size_t ops = trace.gpu_ops.size(), count = trace.api_calls.size();
  launched_begin.assign(count + 1, 0);
  for (Row op = 0; op < ops; ++op)
    if (const ApiCallId call = trace.gpu_links.api[op]; call != kNoRow) ++launched_begin[call + 1];
  for (size_t call = 0; call < count; ++call) launched_begin[call + 1] += launched_begin[call];
  std::vector<uint32_t> next(launched_begin.begin(), launched_begin.end() - 1);
  launched = NearRows<GpuOpId>(launched_begin.back());
  kinds.resize(ops);
  on_stream = NearRows<GpuOpId>(ops);
  std::vector<GpuOpId> last_on_stream(trace.streams.size(), kNoRow);
  for (Row op = 0; op < ops; ++op) {
    kinds[op] = start_kind(*this, op);
    GpuOpId& last = last_on_stream[trace.gpu_ops.stream[op]];
    on_stream.set(op, last);
    last = op;
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow) continue;
    launched.set(next[call]++, op);
  }
  find_nodes_before(*this);
  std::unordered_map<int64_t, uint32_t> processes;
  for (const int64_t id : trace.threads.process_id)
    process.push_back(processes.emplace(id, static_cast<uint32_t>(processes.size())).first->second);
  before = NearRows<ApiCallId>(count);
  nested.assign(count, 0);
  awaited.resize(count);
  std::vector<ApiCallId> last_on_thread(trace.threads.size(), kNoRow);
  for (Row call = 0; call < count; ++call) {
    awaited[call] = awaited_by(*this, call);
    ApiCallId& last = last_on_thread[trace.api_calls.thread[call]];
    before.set(call, last);
    if (last != kNoRow && end_of(last) > start_of(call)) {
      nested[call] = 1;
      continue;  // the enclosing call goes on
    }
    last = call;
  }
  Streams(*this).run();
  find_engines(*this);
  if (trace.windows.size() < 2) return;
  find_other_devices(*this);
  meetings = find_meetings(trace);
  if (meetings.empty()) return;
  meeting.assign(ops, kNoRow);
  for (uint32_t which = 0; which < meetings.size(); ++which)
    for (const GpuOpId op : meetings[which]) meeting[op] = which;
  set_order(*this);
}

}  // namespace llmprof::replay
