#include "replay/replay.h"

#include <algorithm>
#include <limits>
#include <map>

#include "derive/recorded_spans.h"

namespace llmprof::replay {
namespace {

class Runner {
 public:
  Runner(const Timeline& timeline, const Durations& durations, const Latencies& latencies)
      : timeline_(timeline),
        trace_(timeline.trace),
        durations_(durations),
        latencies_(latencies),
        recorded_ends_(awaited_ends(timeline)),
        by_thread_(trace_.threads.size(), kNoRow) {
    out_.call_start_ns = trace_.api_calls.start_ns;
    out_.op_start_ns = trace_.gpu_ops.start_ns;
    out_.call_end_ns.resize(trace_.api_calls.size());
    for (Row call = 0; call < trace_.api_calls.size(); ++call) out_.call_end_ns[call] = timeline.end_of(call);
    out_.op_end_ns.resize(trace_.gpu_ops.size());
    for (Row op = 0; op < trace_.gpu_ops.size(); ++op) out_.op_end_ns[op] = trace_.end_of(op);
    out_.followed.assign(trace_.gpu_ops.size(), Followed::kNone);
    out_.woken_by.assign(trace_.api_calls.size(), kNoRow);
  }

  Replayed run(const std::vector<Stretch>& stretches) {
    size_t at = 0;
    for (Row call = 0; call < trace_.api_calls.size(); ++call) {
      const int64_t start = timeline_.start_of(call);
      while (at < stretches.size() && stretches[at].end_ns <= start) ++at;
      if (at < stretches.size() && start >= stretches[at].start_ns) run_call(call, stretches[at].start_ns);
      note_launched(call);
    }
    return std::move(out_);
  }

 private:
  void run_call(ApiCallId call, int64_t from_ns) {
    const ApiCallId before = timeline_.before[call];
    if (before != kNoRow && timeline_.start_of(before) >= from_ns) {
      const int64_t from = timeline_.nested[call] != 0 ? out_.call_start_ns[before] : out_.call_end_ns[before];
      out_.call_start_ns[call] = from + durations_.before_ns[call];
    }
    const int64_t start = out_.call_start_ns[call];
    out_.call_end_ns[call] = start + durations_.call_ns[call];
    GpuOpId own = kNoRow;
    for (uint32_t i = timeline_.launched_begin[call]; i < timeline_.launched_begin[call + 1]; ++i) {
      start_op(call, timeline_.launched[i]);
      own = later(own, timeline_.launched[i]);
    }
    wait(call, own);
  }

  GpuOpId later(GpuOpId a, GpuOpId b) const {
    if (a == kNoRow || b == kNoRow) return a == kNoRow ? b : a;
    return out_.op_end_ns[b] > out_.op_end_ns[a] ? b : a;
  }

  void start_op(ApiCallId call, GpuOpId op) {
    int64_t start = kNever;
    Followed followed = Followed::kNone;
    const auto after = [&](int64_t time, double latency, Followed what) {
      const int64_t then = time + static_cast<int64_t>(latency);
      if (then > start) start = then, followed = what;
    };
    if (const GpuOpId node = timeline_.in_graph[op]; node != kNoRow) {
      after(out_.op_end_ns[node], latencies_.edge_ns(timeline_, node, op), Followed::kGraph);
    } else {
      const StartKind kind = timeline_.kinds[op];
      const bool from_end = latencies_.from_end[static_cast<size_t>(kind)];
      after(from_end ? out_.call_end_ns[call] : out_.call_start_ns[call], latencies_.launch_ns(kind),
            Followed::kLaunch);
      if (const GpuOpId before = timeline_.on_stream[op]; before != kNoRow)
        after(out_.op_end_ns[before], latencies_.behind_ns(timeline_, before, op), Followed::kStream);
    }
    out_.op_start_ns[op] = start;
    out_.op_end_ns[op] = start + durations_.op_ns[op];
    out_.followed[op] = followed;
  }

  void wait(ApiCallId call, GpuOpId own) {
    const Awaited awaited = timeline_.awaited[call];
    const int64_t recorded = recorded_ends_[call];
    // What ended after the call had returned was waited for by somebody else.
    if (awaited == Awaited::kNothing || recorded == kNever || recorded > timeline_.end_of(call)) return;
    const GpuOpId last = awaited == Awaited::kOwn      ? own
                         : awaited == Awaited::kDevice ? all_
                                                       : by_thread_[trace_.api_calls.thread[call]];
    const size_t kind = static_cast<size_t>(awaited);
    const int64_t start = out_.call_start_ns[call], until = last == kNoRow ? kNever : out_.op_end_ns[last];
    const bool waited = recorded > timeline_.start_of(call), waits = until > start;
    if (!waited && !waits) return;
    out_.call_end_ns[call] = start + static_cast<int64_t>(latencies_.unblocked[kind].ns);
    const int64_t woken = until + static_cast<int64_t>(latencies_.woken[kind].ns);
    if (!waits || woken < out_.call_end_ns[call]) return;
    out_.call_end_ns[call] = woken;
    out_.woken_by[call] = last;
  }

  void note_launched(ApiCallId call) {
    GpuOpId& of_thread = by_thread_[trace_.api_calls.thread[call]];
    for (uint32_t i = timeline_.launched_begin[call]; i < timeline_.launched_begin[call + 1]; ++i)
      of_thread = later(of_thread, timeline_.launched[i]);
    all_ = later(all_, of_thread);
  }

  const Timeline& timeline_;
  const Trace& trace_;
  const Durations& durations_;
  const Latencies& latencies_;
  const std::vector<int64_t> recorded_ends_;
  GpuOpId all_ = kNoRow;  // the last to end of what was launched so far
  std::vector<GpuOpId> by_thread_;
  Replayed out_;
};

bool is_whole(const Trace& trace, StepId step) {
  return trace.steps.state[step] == StepState::kUsual && trace.steps.missing[step] == MissingKernels::kNone &&
         trace.steps.phase[step] == StepPhase::kServing;
}

// Every other step of each stage, by step: 1 learn, 0 judge.
std::vector<uint8_t> alternate(const Trace& trace) {
  std::vector<uint8_t> learn(trace.steps.size(), 0);
  std::map<std::pair<int32_t, StringId>, bool> last;
  for (Row step = 0; step < trace.steps.size(); ++step) {
    if (!is_whole(trace, step)) continue;
    bool& flag = last[{trace.steps.device[step], trace.steps.stage[step]}];
    flag = !flag;
    learn[step] = flag ? 1 : 0;
  }
  return learn;
}

// What ended a step's window: the last activity, and the call that waited for it.
struct StepEnd {
  GpuOpId op = kNoRow;
  ApiCallId call = kNoRow;
};

std::vector<StepEnd> step_ends(const Timeline& timeline) {
  const Trace& trace = timeline.trace;
  std::vector<StepEnd> ends(trace.steps.size());
  std::map<int64_t, ApiCallId> waits;  // by end
  for (Row call = 0; call < trace.api_calls.size(); ++call)
    if (timeline.awaited[call] != Awaited::kNothing) waits.emplace(timeline.end_of(call), call);
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow) continue;
    if (ends[step].op == kNoRow || trace.end_of(op) > trace.end_of(ends[step].op)) ends[step].op = op;
  }
  for (Row step = 0; step < trace.steps.size(); ++step)
    if (const auto found = waits.find(trace.steps.sync_ns[step]); found != waits.end()) ends[step].call = found->second;
  return ends;
}

// By step: when a moment of its host is, by how much the first call at or behind it has moved.
int64_t moved(const Timeline& timeline, const Replayed& replayed, ThreadId thread, int64_t time) {
  const ApiCalls& calls = timeline.trace.api_calls;
  size_t at = static_cast<size_t>(std::lower_bound(calls.start_ns.begin(), calls.start_ns.end(), time) -
                                  calls.start_ns.begin());
  while (at < calls.size() && calls.thread[at] != thread) ++at;
  return at < calls.size() ? time + replayed.call_start_ns[at] - calls.start_ns[at] : time;
}

// From the host's start of one step to the end of the last in a row of completely recorded steps.
std::vector<Stretch> stretches_of(const Trace& trace) {
  std::vector<Stretch> out;
  const RecordedSpans recorded(trace);
  for (Row step = 0; step < trace.steps.size(); ++step) {
    if (!is_whole(trace, step)) continue;
    const Stretch one{trace.steps.host_start_ns[step], trace.steps.end_ns[step] + 1};
    const bool goes_on = !out.empty() && !RecordedSpans::touches(recorded.unrecorded(trace.steps.device[step]),
                                                                 out.back().end_ns, one.start_ns);
    if (goes_on)
      out.back().end_ns = std::max(out.back().end_ns, one.end_ns);
    else
      out.push_back(one);
  }
  return out;
}

int64_t end_of(const Replayed& replayed, const StepEnd& end) {
  const int64_t gpu = replayed.op_end_ns[end.op];
  return end.call == kNoRow ? gpu : std::max(gpu, replayed.call_end_ns[end.call]);
}

Latencies learn_from(const Timeline& timeline, const std::vector<uint8_t>& learn, const std::vector<StepEnd>& ends) {
  std::vector<uint8_t> ended(timeline.trace.api_calls.size(), 0);
  for (size_t step = 0; step < learn.size(); ++step)
    if (learn[step] != 0 && ends[step].call != kNoRow) ended[ends[step].call] = 1;
  const auto learns = [&](GpuOpId op) {
    const StepId step = timeline.trace.gpu_links.step[op];
    return step != kNoRow && learn[step] != 0;
  };
  // Waits within a step count with its activities; those that end it by the step.
  return fit(timeline, learns, [&](ApiCallId call) {
    if (ended[call] != 0) return true;
    const uint32_t first = timeline.launched_begin[call];
    return first < timeline.launched_begin[call + 1] && learns(timeline.launched[first]);
  });
}

// Walks back from the end of a step to its beginning, from each to what it waited for last.
class Path {
 public:
  Path(const Timeline& timeline, const Latencies& latencies, const Replayed& replayed, int64_t from_ns)
      : timeline_(timeline), latencies_(latencies), replayed_(replayed), from_ns_(from_ns) {}

  std::array<int64_t, kPathParts> to(const StepEnd& end) {
    time_ns_ = end_of(replayed_, end);
    call_ = end.call != kNoRow && replayed_.call_end_ns[end.call] == time_ns_ ? end.call : ApiCallId(kNoRow);
    op_ = call_ == kNoRow ? end.op : GpuOpId(kNoRow);
    while (time_ns_ > from_ns_ && (call_ != kNoRow || op_ != kNoRow)) {
      if (op_ != kNoRow)
        behind_op();
      else
        behind_call();
    }
    back_to(from_ns_, PathPart::kHostCode);  // of a thread before its first call
    return parts_;
  }

 private:
  void back_to(int64_t time, PathPart part) {
    time = std::max(time, from_ns_);
    if (time >= time_ns_) return;
    parts_[static_cast<size_t>(part)] += time_ns_ - time;
    time_ns_ = time;
  }

  void behind_op() {
    const GpuOpId op = op_;
    const ApiCallId launch = timeline_.trace.gpu_links.api[op];
    back_to(replayed_.op_start_ns[op], PathPart::kGpuWork);
    op_ = kNoRow;
    if (replayed_.followed[op] == Followed::kStream || replayed_.followed[op] == Followed::kGraph) {
      op_ = replayed_.followed[op] == Followed::kStream ? timeline_.on_stream[op] : timeline_.in_graph[op];
      back_to(replayed_.op_end_ns[op_], PathPart::kGpuGap);
    } else if (replayed_.followed[op] == Followed::kLaunch) {
      call_ = launch;
      const bool from_end = latencies_.from_end[static_cast<size_t>(timeline_.kinds[op])];
      back_to(from_end ? replayed_.call_end_ns[launch] : replayed_.call_start_ns[launch], PathPart::kLaunchLatency);
    }
  }

  // `time_ns_` lies in the call or behind it.
  void behind_call() {
    const ApiCallId call = call_;
    if (const GpuOpId op = replayed_.woken_by[call]; op != kNoRow && time_ns_ >= replayed_.call_end_ns[call]) {
      back_to(replayed_.op_end_ns[op], PathPart::kWakeUp);
      call_ = kNoRow, op_ = op;
      return;
    }
    back_to(replayed_.call_start_ns[call], PathPart::kCudaCalls);
    call_ = timeline_.before[call];
    while (call_ != kNoRow && timeline_.nested[call] != 0 && replayed_.call_end_ns[call_] > time_ns_) {
      // Of the enclosing call only what lies before.
      back_to(replayed_.call_start_ns[call_], PathPart::kCudaCalls);
      const ApiCallId outer = call_;
      call_ = timeline_.before[outer];
      if (timeline_.nested[outer] == 0) break;
    }
    if (call_ != kNoRow) back_to(replayed_.call_end_ns[call_], PathPart::kHostCode);
  }

  const Timeline& timeline_;
  const Latencies& latencies_;
  const Replayed& replayed_;
  const int64_t from_ns_;
  int64_t time_ns_ = 0;
  ApiCallId call_ = kNoRow;
  GpuOpId op_ = kNoRow;
  std::array<int64_t, kPathParts> parts_{};
};

}  // namespace

Durations::Durations(const Timeline& timeline)
    : call_ns(timeline.trace.api_calls.dur_ns),
      before_ns(timeline.trace.api_calls.size(), 0),
      op_ns(timeline.trace.gpu_ops.dur_ns) {
  for (Row call = 0; call < before_ns.size(); ++call) {
    const ApiCallId before = timeline.before[call];
    if (before == kNoRow) continue;
    before_ns[call] =
        timeline.start_of(call) - (timeline.nested[call] != 0 ? timeline.start_of(before) : timeline.end_of(before));
  }
}

Replayed run(const Timeline& timeline, const Durations& durations, const Latencies& latencies,
             const std::vector<Stretch>& stretches) {
  return Runner(timeline, durations, latencies).run(stretches);
}

std::vector<StepTime> replay_steps(const Trace& trace) {
  const Timeline timeline(trace);
  const std::vector<uint8_t> learn = alternate(trace);
  const std::vector<StepEnd> ends = step_ends(timeline);
  const Latencies latencies = learn_from(timeline, learn, ends);
  const Replayed replayed = run(timeline, Durations(timeline), latencies, stretches_of(trace));
  std::vector<StepTime> out;
  std::map<int32_t, StepId> previous;
  for (Row step = 0; step < trace.steps.size(); ++step) {
    if (!is_whole(trace, step) || ends[step].op == kNoRow) continue;
    StepId& before = previous.try_emplace(trace.steps.device[step], kNoRow).first->second;
    const int64_t start = trace.steps.start_ns[step];
    int64_t from = start;
    if (before != kNoRow && trace.steps.end_ns[before] == start) {
      from = end_of(replayed, ends[before]);
    } else if (const ApiCallId call = trace.gpu_links.api[ends[step].op]; call != kNoRow) {
      from = moved(timeline, replayed, trace.api_calls.thread[call], start);
    }
    before = step;
    StepTime time{step, learn[step] != 0, trace.steps.end_ns[step] - start, end_of(replayed, ends[step]) - from, {}};
    time.path_ns = Path(timeline, latencies, replayed, from).to(ends[step]);
    out.push_back(time);
  }
  return out;
}

}  // namespace llmprof::replay
