#include "replay/replay.h"

#include <algorithm>
#include <limits>
#include <map>

#include "derive/recorded_spans.h"
#include "replay/undisturbed.h"

namespace llmprof::replay {

namespace {

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

std::vector<StepEnd> step_ends(const Timeline& timeline) {
  const Trace& trace = timeline.trace;
  std::vector<StepEnd> ends(trace.steps.size());
  std::multimap<int64_t, ApiCallId> waits;  // by end
  for (Row call = 0; call < trace.api_calls.size(); ++call)
    if (timeline.awaited[call] != Awaited::kNothing) waits.emplace(timeline.end_of(call), call);
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    // Behind the end of its own work a step has what another thread launched meanwhile, and is not over later for it.
    if (step == kNoRow || trace.end_of(op) > trace.steps.gpu_end_ns[step]) continue;
    if (ends[step].op == kNoRow || trace.end_of(op) > trace.end_of(ends[step].op)) ends[step].op = op;
  }
  // A pass over several GPUs ends on one of them for all.
  std::map<StepId, GpuOpId> last_of_pass;
  for (Row step = 0; step < trace.steps.size(); ++step) {
    if (trace.steps.pass[step] == kNoRow || ends[step].op == kNoRow) continue;
    GpuOpId& last = last_of_pass.try_emplace(trace.steps.pass[step], ends[step].op).first->second;
    if (trace.end_of(ends[step].op) > trace.end_of(last)) last = ends[step].op;
  }
  for (Row step = 0; step < trace.steps.size(); ++step)
    if (trace.steps.pass[step] != kNoRow && ends[step].op != kNoRow)
      ends[step].op = last_of_pass[trace.steps.pass[step]];
  const auto process_of = [&](ApiCallId call) {
    return call == kNoRow ? timeline.process.size() : size_t{timeline.process[trace.api_calls.thread[call]]};
  };
  for (Row step = 0; step < trace.steps.size(); ++step) {
    const GpuOpId last = ends[step].op;
    const size_t process = process_of(last == kNoRow ? ApiCallId(kNoRow) : trace.gpu_links.api[last]);
    const auto [from, to] = waits.equal_range(trace.steps.sync_ns[step]);
    for (auto found = from; found != to; ++found)
      if (found == from || process_of(found->second) == process) ends[step].call = found->second;
  }
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
  const int64_t gpu = replayed.op_end_ns(end.op);
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
  // Waits within a step count with what they wait for; those that end it by the step.
  const std::vector<GpuOpId> awaited = last_awaited(timeline);
  return fit(timeline, learns,
             [&](ApiCallId call) { return ended[call] != 0 || (awaited[call] != kNoRow && learns(awaited[call])); });
}

// Walks back from the end of a step to its beginning, from each to what it waited for last.
class Path {
 public:
  Path(const Timeline& timeline, const Latencies& latencies, const Replayed& replayed, int64_t from_ns)
      : timeline_(timeline), latencies_(latencies), replayed_(replayed), from_ns_(from_ns) {}

  // With `segments` also its pieces, in order of time.
  void to(const StepEnd& end, StepTime& out, std::vector<PathSegment>* segments = nullptr) {
    time_ns_ = end_of(replayed_, end);
    segments_ = segments;
    call_ = end.call != kNoRow && replayed_.call_end_ns[end.call] == time_ns_ ? end.call : ApiCallId(kNoRow);
    op_ = call_ == kNoRow ? end.op : GpuOpId(kNoRow);
    recorded_ns_ = call_ != kNoRow ? timeline_.end_of(call_) : timeline_.trace.end_of(op_);
    while (time_ns_ > from_ns_ && (call_ != kNoRow || op_ != kNoRow)) {
      if (op_ != kNoRow)
        behind_op();
      else
        behind_call();
    }
    back_to(from_ns_, PathPart::kHostCode, recorded_ns_ - (time_ns_ - from_ns_));  // of a thread before its first call
    out.path_ns = parts_;
    out.work_ns = work_;
    if (segments_ != nullptr) std::reverse(segments_->begin(), segments_->end());
  }

 private:
  // To a moment of the replay, which is `recorded` in the recording.
  void back_to(int64_t time, PathPart part, int64_t recorded, GpuOpId op = kNoRow, ApiCallId call = kNoRow) {
    if (time < from_ns_) recorded += from_ns_ - time;
    time = std::max(time, from_ns_);
    if (time >= time_ns_) return;
    parts_[static_cast<size_t>(part)] += time_ns_ - time;
    time_ns_ = time;
    if (recorded >= recorded_ns_) return;
    if (segments_ != nullptr) segments_->push_back({recorded, recorded_ns_, part, op, call});
    recorded_ns_ = recorded;
  }

  void behind_op() {
    const GpuOpId last = replayed_.met.empty() ? GpuOpId(kNoRow) : replayed_.met[op_];
    const GpuOpId op = last == kNoRow ? op_ : last;  // of a collective, the part that the others waited for
    const ApiCallId launch = timeline_.trace.gpu_links.api[op];
    const int64_t end = time_ns_;
    back_to(replayed_.op_start_ns[op], PathPart::kGpuWork, timeline_.trace.gpu_ops.start_ns[op], op);
    work_[static_cast<size_t>(timeline_.trace.gpu_links.category[op])] += end - time_ns_;
    op_ = kNoRow;
    if (replayed_.behind[op] != kNoRow) {
      op_ = replayed_.behind[op];
      back_to(replayed_.op_end_ns(op_), PathPart::kGpuGap, timeline_.trace.end_of(op_), op);
    } else if (replayed_.followed[op] == Followed::kLaunch) {
      call_ = launch;
      const Latencies::Launch& of = latencies_.launch_of(timeline_, op);
      back_to(of.from(replayed_.call_start_ns[launch], replayed_.call_end_ns[launch]), PathPart::kLaunchLatency,
              of.from(timeline_.start_of(launch), timeline_.end_of(launch)), op);
    }
  }

  // `time_ns_` lies in the call or behind it.
  void behind_call() {
    const ApiCallId call = call_;
    if (const GpuOpId op = replayed_.woken_by[call]; op != kNoRow && time_ns_ >= replayed_.call_end_ns[call]) {
      const bool frees = timeline_.awaited[call] == Awaited::kFree;
      back_to(replayed_.op_end_ns(op), frees ? PathPart::kCudaCalls : PathPart::kWakeUp, timeline_.trace.end_of(op), op,
              call);
      call_ = kNoRow, op_ = op;
      return;
    }
    back_to(replayed_.call_start_ns[call], PathPart::kCudaCalls, timeline_.start_of(call), kNoRow, call);
    call_ = timeline_.before[call];
    while (call_ != kNoRow && timeline_.nested[call] != 0 && replayed_.call_end_ns[call_] > time_ns_) {
      // Of the enclosing call only what lies before.
      back_to(replayed_.call_start_ns[call_], PathPart::kCudaCalls, timeline_.start_of(call_), kNoRow, call_);
      const ApiCallId outer = call_;
      call_ = timeline_.before[outer];
      if (timeline_.nested[outer] == 0) break;
    }
    if (call_ == kNoRow) return;
    if (timeline_.nested[call] == 0) {
      const int64_t other_ns = handed_over_ns(call);
      back_to(time_ns_ - other_ns, PathPart::kUnexplained, recorded_ns_ - other_ns, kNoRow, call);
    }
    const PathPart part = timeline_.lacks_input(call) ? PathPart::kNoInput : PathPart::kHostCode;
    back_to(replayed_.call_end_ns[call_], part, timeline_.end_of(call_), kNoRow, call);
  }

  // Between the call before and this one, as recorded: how long other threads of the process took that began and ended
  // their calls there.
  int64_t handed_over_ns(ApiCallId call) {
    const ApiCalls& calls = timeline_.trace.api_calls;
    const ThreadId own = calls.thread[call];
    const int64_t from = timeline_.end_of(timeline_.before[call]), to = timeline_.start_of(call);
    others_.clear();
    for (Row row = call; row-- > 0 && timeline_.start_of(row) >= from;) {
      const ThreadId thread = calls.thread[row];
      if (thread == own || timeline_.process[thread] != timeline_.process[own]) continue;
      auto other = std::find_if(others_.begin(), others_.end(), [&](const Other& o) { return o.thread == thread; });
      if (other == others_.end()) other = others_.insert(other, {thread, 0, kNever, false});
      const ApiCallId before = timeline_.before[row];
      other->first_ns = timeline_.start_of(row);
      other->last_ns = std::max(other->last_ns, timeline_.end_of(row));
      other->runs_in = before != kNoRow && timeline_.end_of(before) > from && timeline_.start_of(before) < from;
    }
    std::sort(others_.begin(), others_.end(), [](const Other& a, const Other& b) { return a.first_ns < b.first_ns; });
    int64_t sum = 0, until = from;
    for (const Other& other : others_) {
      if (other.runs_in || other.last_ns > to) continue;
      sum += std::max<int64_t>(other.last_ns - std::max(other.first_ns, until), 0);
      until = std::max(until, other.last_ns);
    }
    return std::clamp<int64_t>(sum, 0, std::max<int64_t>(time_ns_ - replayed_.call_end_ns[timeline_.before[call]], 0));
  }

  const Timeline& timeline_;
  const Latencies& latencies_;
  const Replayed& replayed_;
  const int64_t from_ns_;
  int64_t time_ns_ = 0, recorded_ns_ = 0;  // the same moment, replayed and recorded
  std::vector<PathSegment>* segments_ = nullptr;
  ApiCallId call_ = kNoRow;
  GpuOpId op_ = kNoRow;
  std::array<int64_t, kPathParts> parts_{};
  std::array<int64_t, kCategories> work_{};
  // Calls of another thread in a stretch of time.
  struct Other {
    ThreadId thread;
    int64_t first_ns, last_ns;
    bool runs_in;  // one that began before lasts into it
  };
  std::vector<Other> others_;
};

}  // namespace

std::string_view in_words(PathPart part) {
  switch (part) {
    case PathPart::kHostCode:
      return "host code";
    case PathPart::kNoInput:
      return "no input";
    case PathPart::kCudaCalls:
      return "CUDA calls";
    case PathPart::kLaunchLatency:
      return "launch latency";
    case PathPart::kGpuWork:
      return "GPU work";
    case PathPart::kGpuGap:
      return "gap on the GPU";
    case PathPart::kWakeUp:
      return "wake-up";
    case PathPart::kUnexplained:
    case PathPart::kCount:
      break;
  }
  return "another thread";
}

namespace {

// By step: from when on a replay counts it, kNever where it is not replayed.
std::vector<int64_t> step_starts(const Timeline& timeline, const std::vector<StepEnd>& ends, const Replayed& replayed) {
  const Trace& trace = timeline.trace;
  std::vector<int64_t> out(trace.steps.size(), kNever);
  std::map<int32_t, StepId> previous;
  for (Row step = 0; step < trace.steps.size(); ++step) {
    if (!is_whole(trace, step) || ends[step].op == kNoRow) continue;
    StepId& before = previous.try_emplace(trace.steps.device[step], kNoRow).first->second;
    const int64_t start = trace.steps.start_ns[step];
    out[step] = start;
    if (before != kNoRow && trace.steps.end_ns[before] == start) {
      out[step] = end_of(replayed, ends[before]);
    } else if (const ApiCallId call = trace.gpu_links.api[ends[step].op]; call != kNoRow) {
      out[step] = moved(timeline, replayed, trace.api_calls.thread[call], start);
      // Where the host gets ahead, the GPU still does one step after the other.
      if (before != kNoRow) out[step] = std::max(out[step], end_of(replayed, ends[before]));
    }
    before = step;
  }
  return out;
}

}  // namespace

StepReplay::StepReplay(const Trace& trace)
    : timeline_(trace),
      learn_(alternate(trace)),
      ends_(step_ends(timeline_)),
      stretches_(stretches_of(trace)),
      latencies_(learn_from(timeline_, learn_, ends_)) {}

StepReplay::~StepReplay() = default;

std::vector<StepTime> StepReplay::as_recorded() const {
  const Trace& trace = timeline_.trace;
  const Replayed replayed = run(timeline_, Durations(timeline_), latencies_, stretches_);
  const std::vector<int64_t> starts = step_starts(timeline_, ends_, replayed);
  std::vector<StepTime> out;
  // A step time is large, and a vector that grows holds its values twice.
  out.reserve(starts.size() - static_cast<size_t>(std::count(starts.begin(), starts.end(), kNever)));
  for (Row step = 0; step < trace.steps.size(); ++step) {
    if (starts[step] == kNever) continue;
    StepTime time;
    time.step = step;
    time.learned = learn_[step] != 0;
    time.recorded_ns = trace.steps.end_ns[step] - trace.steps.start_ns[step];
    time.replayed_ns = end_of(replayed, ends_[step]) - starts[step];
    Path(timeline_, latencies_, replayed, starts[step]).to(ends_[step], time);
    out.push_back(time);
  }
  return out;
}

std::vector<std::vector<PathSegment>> StepReplay::paths(std::span<const StepId> steps) const {
  const Replayed replayed = run(timeline_, Durations(timeline_), latencies_, stretches_);
  const std::vector<int64_t> starts = step_starts(timeline_, ends_, replayed);
  std::vector<std::vector<PathSegment>> out(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    if (starts[steps[i]] == kNever) continue;
    StepTime time;
    Path(timeline_, latencies_, replayed, starts[steps[i]]).to(ends_[steps[i]], time, &out[i]);
  }
  return out;
}

std::vector<int64_t> StepReplay::windows(const Durations& durations, const Latencies& latencies) const {
  const Replayed replayed = run(timeline_, durations, latencies, stretches_);
  const std::vector<int64_t> starts = step_starts(timeline_, ends_, replayed);
  std::vector<int64_t> out;
  for (Row step = 0; step < starts.size(); ++step)
    if (starts[step] != kNever) out.push_back(end_of(replayed, ends_[step]) - starts[step]);
  return out;
}

std::vector<int64_t> StepReplay::windows_of(std::span<const StepId> steps, const Durations& durations,
                                            const Latencies& latencies) const {
  constexpr size_t kLead = 2;
  const Trace& trace = timeline_.trace;
  std::vector<Stretch> parts;
  for (const StepId step : steps) {
    if (!is_whole(trace, step)) continue;
    const auto holds = [&](const Stretch& one) {
      return one.start_ns <= trace.steps.host_start_ns[step] && trace.steps.host_start_ns[step] < one.end_ns;
    };
    const auto whole = std::find_if(stretches_.begin(), stretches_.end(), holds);
    if (whole == stretches_.end()) continue;
    Stretch part{trace.steps.host_start_ns[step], trace.steps.end_ns[step] + 1};
    size_t lead = 0;
    for (Row before = step; before-- > 0 && lead < kLead;) {
      if (trace.steps.device[before] != trace.steps.device[step]) continue;
      if (!is_whole(trace, before) || trace.steps.host_start_ns[before] < whole->start_ns) break;
      part.start_ns = std::min(part.start_ns, trace.steps.host_start_ns[before]);
      ++lead;
    }
    parts.push_back(part);
  }
  std::sort(parts.begin(), parts.end(), [](const Stretch& a, const Stretch& b) { return a.start_ns < b.start_ns; });
  std::vector<Stretch> joined;
  for (const Stretch& part : parts) {
    if (!joined.empty() && part.start_ns <= joined.back().end_ns)
      joined.back().end_ns = std::max(joined.back().end_ns, part.end_ns);
    else
      joined.push_back(part);
  }
  const Replayed replayed = run(timeline_, durations, latencies, joined);
  const std::vector<int64_t> starts = step_starts(timeline_, ends_, replayed);
  std::vector<int64_t> out;
  for (const StepId step : steps)
    out.push_back(starts[step] == kNever ? kNever : end_of(replayed, ends_[step]) - starts[step]);
  return out;
}

std::vector<int64_t> StepReplay::without_recorder(const RecorderCostModel& model) const {
  Durations durations(timeline_);
  Latencies latencies = latencies_;
  take_recorder_out(timeline_, model, durations, latencies);
  return windows(durations, latencies);
}

}  // namespace llmprof::replay
