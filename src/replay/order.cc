#include "replay/order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace llmprof::replay {
namespace {

using Pairs = std::vector<std::pair<Row, GpuOpId>>;

// What lay last on each stream when a call that waits for all of a device or thread was made: by the order in which
// calls were recorded, whatever is replayed in between.
Pairs tails_of(const Timeline& timeline) {
  const Trace& trace = timeline.trace;
  struct Last {
    GpuOpId op = kNoRow;
    ThreadId thread = kNoRow;
  };
  std::map<StreamId, Last> streams;
  Pairs out;
  for (Row call = 0; call < trace.api_calls.size(); ++call) {
    const ThreadId thread = trace.api_calls.thread[call];
    const Awaited awaited = timeline.awaited[call];
    const bool by_thread = awaited == Awaited::kThread;
    if (by_thread || awaited == Awaited::kDevice || awaited == Awaited::kFree)
      for (const auto& [stream, last] : streams)
        if (by_thread ? last.thread == thread
                      : timeline.process[last.thread] == timeline.process[thread] &&
                            timeline.awaits_device(call, trace.streams.device[stream]))
          out.emplace_back(call, last.op);
    for (uint32_t i = timeline.launched_begin[call]; i < timeline.launched_begin[call + 1]; ++i)
      streams[trace.gpu_ops.stream[timeline.launched[i]]] = {timeline.launched[i], thread};
  }
  return out;
}

// Numbers of things: calls, then activities, then returns.
class Dependencies {
 public:
  explicit Dependencies(const Timeline& timeline)
      : timeline_(timeline), calls_(timeline.trace.api_calls.size()), ops_(timeline.trace.gpu_ops.size()) {}

  void find(const ActivityLists& tails) {
    for (Row call = 0; call < calls_; ++call) {
      if (const ApiCallId before = timeline_.before[call]; before != kNoRow)
        add(timeline_.nested[call] != 0 ? Row(before) : returned(before), call);
      if (!waits(call)) continue;
      add(call, returned(call));
      const bool own = timeline_.awaited[call] == Awaited::kOwn;
      for (uint32_t i = timeline_.launched_begin[call]; own && i < timeline_.launched_begin[call + 1]; ++i)
        add_done(timeline_.launched[i], returned(call));
      for (const GpuOpId op : timeline_.awaits.of(call)) add_done(op, returned(call));
      for (const GpuOpId op : tails.of(call)) add_done(op, returned(call));
    }
    for (Row op = 0; op < ops_; ++op) {
      if (const ApiCallId call = timeline_.trace.gpu_links.api[op]; call != kNoRow) add(call, ran(op));
      for (const GpuOpId before : timeline_.in_graph.of(op)) add_done(before, ran(op));
      if (!timeline_.in_graph.of(op).empty()) continue;
      if (timeline_.on_stream[op] != kNoRow) add_done(timeline_.on_stream[op], ran(op));
      for (const GpuOpId before : timeline_.joined.of(op)) add_done(before, ran(op));
      if (const GpuOpId same_way = timeline_.before_on_engine(op); same_way != kNoRow) add_done(same_way, ran(op));
    }
  }

  // Kahn's algorithm.
  std::vector<Item> sorted() {
    const size_t count = 2 * calls_ + ops_;
    std::vector<uint32_t> begin(count + 1, 0), open(count, 0), next;
    for (const auto& [from, to] : edges_) ++begin[from + 1], ++open[to];
    for (size_t i = 0; i < count; ++i) begin[i + 1] += begin[i];
    std::vector<uint32_t> at(begin.begin(), begin.end() - 1), targets(edges_.size());
    for (const auto& [from, to] : edges_) targets[at[from]++] = to;
    for (uint32_t i = 0; i < count; ++i)
      if (open[i] == 0) next.push_back(i);
    std::vector<Item> out;
    size_t done = 0;
    for (; done < next.size(); ++done) {
      const uint32_t i = next[done];
      if (i < calls_)
        out.push_back({Item::Kind::kCall, i});
      else if (i < calls_ + ops_)
        out.push_back({Item::Kind::kActivity, static_cast<Row>(i - calls_)});
      else if (waits(static_cast<Row>(i - calls_ - ops_)))
        out.push_back({Item::Kind::kReturn, static_cast<Row>(i - calls_ - ops_)});
      for (uint32_t e = begin[i]; e < begin[i + 1]; ++e)
        if (--open[targets[e]] == 0) next.push_back(targets[e]);
    }
    if (done != count) out.clear();
    return out;
  }

 private:
  bool waits(ApiCallId call) const { return timeline_.awaited[call] != Awaited::kNothing; }
  uint32_t ran(GpuOpId op) const { return static_cast<uint32_t>(calls_ + op); }
  uint32_t returned(ApiCallId call) const {
    return static_cast<uint32_t>(waits(call) ? calls_ + ops_ + call : size_t{call});
  }
  void add(uint32_t from, uint32_t to) { edges_.emplace_back(from, to); }
  // The end of an activity that meets others is known once all of them have begun.
  void add_done(GpuOpId op, uint32_t to) {
    if (timeline_.meeting_of(op) == kNoRow) return add(ran(op), to);
    for (const GpuOpId one : timeline_.meetings[timeline_.meeting_of(op)]) add(ran(one), to);
  }

  const Timeline& timeline_;
  const size_t calls_, ops_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
};

}  // namespace

void set_order(Timeline& timeline) {
  timeline.last_given.take(tails_of(timeline), timeline.trace.api_calls.size());
  Dependencies dependencies(timeline);
  dependencies.find(timeline.last_given);
  timeline.order = dependencies.sorted();
  if (timeline.order.empty()) timeline.meetings.clear(), timeline.meeting.clear();
}

}  // namespace llmprof::replay
