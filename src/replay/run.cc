#include <algorithm>
#include <utility>

#include "replay/last_given.h"
#include "replay/replay.h"

namespace llmprof::replay {
namespace {

// Of last_awaited() those calls that wait for something, which few do.
std::vector<std::pair<ApiCallId, GpuOpId>> awaited_of(const Timeline& timeline) {
  const std::vector<GpuOpId> last = last_awaited(timeline);
  std::vector<std::pair<ApiCallId, GpuOpId>> out;
  for (Row call = 0; call < last.size(); ++call)
    if (last[call] != kNoRow) out.emplace_back(call, last[call]);
  return out;
}

class Runner {
 public:
  Runner(const Timeline& timeline, const Durations& durations, const Latencies& latencies)
      : timeline_(timeline),
        trace_(timeline.trace),
        durations_(durations),
        latencies_(latencies),
        recorded_(awaited_of(timeline)),
        given_(timeline),
        out_(timeline.trace) {
    out_.met.assign(timeline.meetings.empty() ? 0 : trace_.gpu_ops.size(), kNoRow);
  }

  Replayed run(const std::vector<Stretch>& stretches) {
    if (timeline_.order.empty())
      run_by_calls(stretches);
    else
      run_by_dependencies(stretches);
    return std::move(out_);
  }

 private:
  void run_by_calls(const std::vector<Stretch>& stretches) {
    for_each_call(stretches, [&](ApiCallId call, const Stretch* stretch) {
      if (stretch != nullptr) {
        begin(call, stretch->start_ns);
        for (uint32_t i = timeline_.launched_begin[call]; i < timeline_.launched_begin[call + 1]; ++i)
          start_op(call, timeline_.launched[i]);
        wait(call);
      }
      given_.take(call, [&](GpuOpId op) { return out_.op_end_ns(op); });
    });
  }

  void run_by_dependencies(const std::vector<Stretch>& stretches) {
    std::vector<int64_t> from(trace_.api_calls.size(), kNever);  // of calls that are run again: their stretch's start
    for_each_call(stretches, [&](ApiCallId call, const Stretch* stretch) {
      if (stretch != nullptr) from[call] = stretch->start_ns;
    });
    const auto runs = [&](ApiCallId call) { return call != kNoRow && from[call] != kNever; };
    missing_.assign(timeline_.meetings.size(), 0);
    for (size_t meeting = 0; meeting < missing_.size(); ++meeting)
      for (const GpuOpId op : timeline_.meetings[meeting]) missing_[meeting] += runs(trace_.gpu_links.api[op]) ? 1 : 0;
    for (const Item& item : timeline_.order) {
      const ApiCallId call = item.kind == Item::Kind::kActivity ? trace_.gpu_links.api[item.row] : ApiCallId(item.row);
      if (!runs(call)) continue;
      switch (item.kind) {
        case Item::Kind::kCall:
          begin(call, from[call]);
          break;
        case Item::Kind::kActivity:
          start_op(call, item.row);
          if (const Row meeting = timeline_.meeting_of(item.row); meeting != kNoRow && --missing_[meeting] == 0)
            end_meeting(timeline_.meetings[meeting], runs);
          break;
        case Item::Kind::kReturn:
          wait(call);
          break;
      }
    }
  }

  // `visit(call, stretch)`: null for a call that is in none.
  template <class Visit>
  void for_each_call(const std::vector<Stretch>& stretches, Visit&& visit) const {
    size_t at = 0;
    for (Row call = 0; call < trace_.api_calls.size(); ++call) {
      const int64_t start = timeline_.start_of(call);
      while (at < stretches.size() && stretches[at].end_ns <= start) ++at;
      visit(call, at < stretches.size() && start >= stretches[at].start_ns ? &stretches[at] : nullptr);
    }
  }

  void begin(ApiCallId call, int64_t from_ns) {
    const ApiCallId before = timeline_.before[call];
    if (before != kNoRow && timeline_.start_of(before) >= from_ns) {
      const int64_t from = timeline_.nested[call] != 0 ? out_.call_start_ns[before] : out_.call_end_ns[before];
      out_.call_start_ns.set(call, from + durations_.before_ns[call]);
    }
    out_.call_end_ns.set(call, out_.call_start_ns[call] + durations_.call_ns[call]);
  }

  // All of them have begun.
  template <class Runs>
  void end_meeting(const Meeting& meeting, const Runs& runs) {
    if (!durations_.meet) return;
    GpuOpId last = kNoRow;
    for (const GpuOpId op : meeting)
      if (last == kNoRow || out_.op_start_ns[op] > out_.op_start_ns[last]) last = op;
    for (const GpuOpId op : meeting) {
      if (!runs(trace_.gpu_links.api[op]) || durations_.gone[op] != 0) continue;
      const int64_t together_ns = std::max<int64_t>(0, durations_.op_ns[op] - waited_ns(trace_, meeting, op));
      out_.end_op(op, out_.op_start_ns[last] + together_ns);
      if (last != op) out_.met[op] = last;
    }
  }

  bool is_apart(GpuOpId op, GpuOpId other) const {
    const GpuOps& ops = trace_.gpu_ops;
    return ops.kind[op] == GpuOpKind::kKernel && ops.kind[other] == GpuOpKind::kKernel &&
           durations_.apart.count(std::minmax(ops.stream[op], ops.stream[other])) != 0;
  }

  GpuOpId later(GpuOpId a, GpuOpId b) const {
    if (a == kNoRow || b == kNoRow) return a == kNoRow ? b : a;
    return out_.op_end_ns(b) > out_.op_end_ns(a) ? b : a;
  }

  // An engine copies in the order in which it is asked. Threads that wait for nothing of each other's may ask in
  // another one than they did, where one of them is faster than it was.
  GpuOpId before_on_engine(ApiCallId call, GpuOpId op) const {
    GpuOpId before = timeline_.before_on_engine(op);
    while (before != kNoRow) {
      const ApiCallId asked = trace_.gpu_links.api[before];
      if (asked == kNoRow || out_.call_start_ns[asked] <= out_.call_start_ns[call]) break;
      before = timeline_.before_on_engine(before);
    }
    return before;
  }

  void start_op(ApiCallId call, GpuOpId op) {
    int64_t start = kNever;
    Followed followed = Followed::kNone;
    GpuOpId behind = kNoRow;
    const bool gone = durations_.gone[op] != 0;
    const auto after = [&](int64_t time, double latency, Followed what, GpuOpId which) {
      const int64_t then = gone || time == kNever ? time : time + static_cast<int64_t>(latency);
      if (then > start) start = then, followed = what, behind = which;
    };
    for (const GpuOpId node : timeline_.in_graph.of(op))
      after(out_.op_end_ns(node), latencies_.edge_ns(timeline_, node, op), Followed::kGraph, node);
    if (timeline_.in_graph.of(op).empty()) {
      const Latencies::Launch& launch = latencies_.launch_of(timeline_, op);
      const bool first = timeline_.on_stream[op] == kNoRow;
      if (gone ? first && timeline_.joined.of(op).empty() : first || durations_.with_previous[op] == 0)
        after(launch.from(out_.call_start_ns[call], out_.call_end_ns[call]), launch.latency.ns, Followed::kLaunch,
              kNoRow);
      const CopyOrder& copies = durations_.copies;
      const GpuOpId before = copies.empty() ? timeline_.on_stream[op] : copies.behind[op];
      if (before != kNoRow)
        after(out_.op_end_ns(before), latencies_.behind_ns(timeline_, before, op), Followed::kStream, before);
      const auto join = [&](GpuOpId other) {
        if (durations_.apart.empty() || !is_apart(op, other))
          after(out_.op_end_ns(other), latencies_.joined_ns(timeline_, other, op), Followed::kEvent, other);
      };
      if (const GpuOpId same_way = before_on_engine(call, op); same_way != kNoRow) join(same_way);
      // What its stream has to wait for since then holds for it too, whichever way was meant.
      for (GpuOpId one = op; one != before && one != kNoRow; one = timeline_.on_stream[one])
        for (const GpuOpId other : timeline_.joined.of(one)) {
          join(other);
          if (!copies.empty() && copies.other_way[other] != kNoRow) join(copies.other_way[other]);
        }
    }
    out_.op_start_ns.set(op, start);
    out_.end_op(op, gone ? start : start + durations_.op_ns[op]);
    out_.followed[op] = followed;
    out_.behind.set(op, behind);
  }

  // The last to end of what the call waits for.
  GpuOpId last_of(ApiCallId call) const {
    GpuOpId last = kNoRow;
    switch (timeline_.awaited[call]) {
      case Awaited::kNothing:
        break;
      case Awaited::kOwn:
        for (uint32_t i = timeline_.launched_begin[call]; i < timeline_.launched_begin[call + 1]; ++i)
          last = later(last, timeline_.launched[i]);
        break;
      case Awaited::kDevice:
      case Awaited::kFree:
      case Awaited::kThread:
        if (timeline_.order.empty()) return given_.last_for(call, [&](GpuOpId op) { return out_.op_end_ns(op); });
        for (const GpuOpId op : timeline_.last_given.of(call)) last = later(last, op);
        break;
      case Awaited::kStream:
      case Awaited::kEvent:
        for (const GpuOpId op : timeline_.awaits.of(call)) {
          last = later(last, op);
          if (!durations_.copies.empty()) last = later(last, durations_.copies.other_way[op]);
        }
        break;
    }
    return last;
  }

  void wait(ApiCallId call) {
    const Awaited awaited = timeline_.awaited[call];
    if (awaited == Awaited::kNothing || durations_.no_wait[call] != 0) return;
    const auto known = std::lower_bound(recorded_.begin(), recorded_.end(), call,
                                        [](const auto& one, ApiCallId at) { return one.first < at; });
    if (known == recorded_.end() || known->first != call) return;
    // What ended after the call had returned was waited for by somebody else.
    const int64_t recorded = trace_.end_of(known->second);
    if (recorded > timeline_.end_of(call)) return;
    const GpuOpId last = last_of(call);
    const size_t kind = static_cast<size_t>(awaited);
    const int64_t start = out_.call_start_ns[call], until = last == kNoRow ? kNever : out_.op_end_ns(last);
    const int64_t waited_ns = recorded - timeline_.start_of(call);
    const bool waits = until > start;
    if (waited_ns <= 0 && !waits) return;
    int64_t unblocked = static_cast<int64_t>(latencies_.unblocked[kind].ns);
    int64_t woken = static_cast<int64_t>(latencies_.woken[kind].ns);
    // What freeing takes by itself differs from call to call.
    if (awaited == Awaited::kFree)
      unblocked = woken = std::max<int64_t>(durations_.call_ns[call] - std::max<int64_t>(waited_ns, 0), 0);
    out_.call_end_ns.set(call, start + unblocked);
    if (!waits || until + woken < out_.call_end_ns[call]) return;
    out_.call_end_ns.set(call, until + woken);
    out_.woken_by.set(call, last);
  }

  const Timeline& timeline_;
  const Trace& trace_;
  const Durations& durations_;
  const Latencies& latencies_;
  const std::vector<std::pair<ApiCallId, GpuOpId>> recorded_;  // by call: the last to end of what it waits for
  LastGiven given_;
  std::vector<uint32_t> missing_;  // by meeting: how many have not begun
  Replayed out_;
};

}  // namespace

std::vector<int64_t> HostTimes::all() const {
  std::vector<int64_t> out(timeline_->before.size());
  for (Row call = 0; call < out.size(); ++call) out[call] = recorded(call);
  return out;
}

void Moments::widen() {
  wide_.resize(later_.size());
  for (size_t row = 0; row < later_.size(); ++row) wide_[row] = recorded(row) + later_[row];
  later_ = {};
}

Durations::Durations(const Timeline& timeline)
    : call_ns(timeline.trace.api_calls.dur_ns),
      before_ns(timeline),
      op_ns(timeline.trace.gpu_ops.dur_ns),
      no_wait(call_ns.size()),
      gone(op_ns.size()),
      with_previous(op_ns.size()) {}

Replayed::Replayed(const Trace& trace)
    : call_start_ns(trace.api_calls.start_ns),
      call_end_ns(trace.api_calls.start_ns, &trace.api_calls.dur_ns),
      op_start_ns(trace.gpu_ops.start_ns),
      op_lasts_ns(trace.gpu_ops.dur_ns),
      followed(trace.gpu_ops.size(), Followed::kNone),
      behind(trace.gpu_ops.size()) {}

Replayed run(const Timeline& timeline, const Durations& durations, const Latencies& latencies,
             const std::vector<Stretch>& stretches) {
  return Runner(timeline, durations, latencies).run(stretches);
}

}  // namespace llmprof::replay
