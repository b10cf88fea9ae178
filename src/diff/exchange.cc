#include "diff/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analyze/host_places.h"

namespace llmprof::diff {
namespace {

// Clocks that differ by less are read at other moments: nothing is said of them.
constexpr double kClockMoved = 0.005;
constexpr const char* kNoPlace = "between CUDA calls";

FollowsClock follows_clock(const Replayable& own, GpuOpId op) {
  if (own.trace().gpu_ops.kind[op] != GpuOpKind::kKernel) return FollowsClock::kNo;
  const auto found = own.follows_clock.find(std::string(own.trace().text(own.trace().gpu_ops.name[op])));
  return found != own.follows_clock.end() ? found->second : FollowsClock::kNo;
}

std::string name_of_op(const Trace& trace, GpuOpId op) { return std::string(trace.text(trace.gpu_ops.name[op])); }
std::string name_of_call(const Trace& trace, ApiCallId call) {
  return std::string(trace.text(trace.api_calls.name[call]));
}

// "softmax", or "5 kernels (the longest: softmax)".
std::string name_of_group(const Trace& trace, const std::vector<GpuOpId>& ops) {
  const GpuOpId longest = *std::max_element(
      ops.begin(), ops.end(), [&](GpuOpId a, GpuOpId b) { return trace.gpu_ops.dur_ns[a] < trace.gpu_ops.dur_ns[b]; });
  if (ops.size() == 1) return name_of_op(trace, longest);
  return fmt::format("{} kernels, the longest {}", ops.size(), name_of_op(trace, longest));
}

double sum_of(const Replayable& own, const std::vector<GpuOpId>& ops) {
  double sum = 0;
  for (const GpuOpId op : ops) sum += static_cast<double>(own.durations.op_ns[op]);
  return sum;
}

bool is_launch(ApiKind kind) { return kind == ApiKind::kLaunch || kind == ApiKind::kGraphLaunch; }

void note_launch(const Replayable& own, ApiCallId call, int64_t& launches, int64_t& ops) {
  if (!is_launch(own.recording->kind(call))) return;
  ++launches;
  ops += static_cast<int64_t>(own.recording->launched(call).size());
}

// The latency of the other side where both have seen one.
void exchange(replay::Latency& own, const replay::Latency& other) {
  if (own.samples > 0 && other.samples > 0) own.ns = other.ns;
}

}  // namespace

DiffPart part_of(ApiKind kind) {
  switch (kind) {
    case ApiKind::kLaunch:
    case ApiKind::kGraphLaunch:
      return DiffPart::kLaunch;
    case ApiKind::kEnqueue:
    case ApiKind::kCopy:
      return DiffPart::kCopy;
    case ApiKind::kSync:
      return DiffPart::kWait;
    case ApiKind::kAllocator:
    case ApiKind::kOther:
      break;
  }
  return DiffPart::kOther;
}

std::string host_place(const Trace& trace, ApiCallId call, int64_t before_ns) {
  const int64_t end = trace.api_calls.start_ns[call], start = end - before_ns;
  const HostPlaces& places = trace.host_places;
  const auto first = std::lower_bound(places.start_ns.begin(), places.start_ns.end(), start);
  for (size_t row = static_cast<size_t>(first - places.start_ns.begin());
       row < places.size() && places.start_ns[row] <= end; ++row)
    if (places.thread[row] == trace.api_calls.thread[call] && places.kind[row] == PlaceKind::kHostCode &&
        places.stack[row] != StringId::kEmpty)
      return python_place(trace.text(places.stack[row]));
  const OpId op = trace.api_links.op[call];
  return op == kNoRow ? std::string(kNoPlace) : "before " + std::string(trace.text(trace.ops.name[op]));
}

void Exchange::count(DiffPart part, const std::string& name, double ns, bool counted) {
  if (counted && ns != 0) by_name_[static_cast<size_t>(part)][name] += ns;
}

void Exchange::add(const AlignedStep& aligned, const HostPaceRatio& pace, bool counted) {
  counted_ += counted ? 1 : 0;
  add_calls(aligned, pace, counted);
  add_ops(aligned, counted);
}

void Exchange::note_streams(const Trace& trace, GpuOpId op, Streams& streams) {
  const CopyPath path = trace.gpu_ops.path[op];
  const size_t what = trace.gpu_ops.kind[op] == GpuOpKind::kKernel ? 0
                      : path == CopyPath::kHostToDevice            ? 1
                      : path == CopyPath::kDeviceToHost            ? 2
                                                                   : 3;
  ++streams[trace.gpu_ops.stream[op]][what];
}

Exchange::Sharing Exchange::sharing(const Streams& streams) {
  constexpr int64_t kPartMin = 10;  // one in so many of a kind: a stray one says nothing of where they run
  std::array<int64_t, kClasses> all{};
  for (const auto& [stream, counts] : streams)
    for (size_t what = 0; what < kClasses; ++what) all[what] += counts[what];
  Sharing out;
  for (size_t copies = 1; copies < kClasses; ++copies)
    for (size_t other = 0; other < copies; ++other) {
      if (all[copies] == 0 || all[other] == 0) continue;
      out[copies][other] = std::any_of(streams.begin(), streams.end(), [&](const auto& of) {
        const std::array<int64_t, kClasses>& counts = of.second;
        return counts[copies] * kPartMin >= all[copies] && counts[other] * kPartMin >= all[other];
      });
    }
  return out;
}

size_t Exchange::copying_streams(const Streams& streams) {
  return static_cast<size_t>(std::count_if(streams.begin(), streams.end(), [](const auto& of) {
    return std::any_of(of.second.begin() + 1, of.second.end(), [](int64_t count) { return count > 0; });
  }));
}

bool Exchange::copies_moved() const {
  const Sharing a = sharing(streams_a_), b = sharing(streams_b_);
  for (size_t copies = 1; copies < kClasses; ++copies)
    for (size_t other = 0; other < copies; ++other)
      if (a[copies][other] && b[copies][other] && *a[copies][other] != *b[copies][other]) return true;
  return false;
}

bool Exchange::has_own_part(const Replayable& own, ApiCallId call) {
  const ApiKind kind = own.recording->kind(call);
  const DiffPart part = part_of(kind);
  return part == DiffPart::kWait || part == DiffPart::kCopy || kind == ApiKind::kAllocator;
}

// It came with its call as far as this side's host takes longer until the next call that both have: what code there was
// anyway may stand before either.
std::vector<int64_t> Exchange::code_of_alone(const AlignedStep& aligned, double code_pace) const {
  struct Until {  // the next call that both have, of one side's calls before it that it alone has
    double more_ns = 0;
    std::vector<size_t> at;
  };
  std::vector<int64_t> out(aligned.calls.size(), 0);
  const auto alone = [&](const CallPair& pair) { return pair.a == kNoRow || pair.b == kNoRow; };
  const auto settle = [&](const Replayable& own, ApiCallId CallPair::*side, const Until& until) {
    const int64_t dispatch = own.recording->dispatch_ns();
    const auto code = [&](size_t i) { return own.durations.before_ns[aligned.calls[i].*side]; };
    const auto most = [&](size_t i) { return code(i) > replay::kLongGapNs ? std::min(code(i), dispatch) : code(i); };
    double more = until.more_ns, sum = 0;
    for (const size_t i : until.at) {
      more += static_cast<double>(most(i));
      sum += static_cast<double>(most(i));
    }
    const double share = sum > 0 ? std::clamp(more / sum, 0.0, 1.0) : 0;
    for (const size_t i : until.at)
      out[i] = std::max<int64_t>(std::min(code(i), dispatch), std::llround(share * static_cast<double>(most(i))));
  };
  std::map<ThreadId, Until> of_a, of_b;
  for (size_t i = 0; i < aligned.calls.size(); ++i) {
    const auto& [a, b] = aligned.calls[i];
    if (alone(aligned.calls[i])) {
      const Replayable& own = a != kNoRow ? a_ : b_;
      const ApiCallId call = a != kNoRow ? a : b;
      if (has_own_part(own, call)) (a != kNoRow ? of_a : of_b)[own.trace().api_calls.thread[call]].at.push_back(i);
      continue;
    }
    const double more =
        static_cast<double>(b_.durations.before_ns[b]) - static_cast<double>(a_.durations.before_ns[a]) * code_pace;
    Until& before_a = of_a[a_.trace().api_calls.thread[a]];
    Until& before_b = of_b[b_.trace().api_calls.thread[b]];
    before_a.more_ns = -more / code_pace, before_b.more_ns = more;
    settle(a_, &CallPair::a, before_a), settle(b_, &CallPair::b, before_b);
    before_a = before_b = {};
  }
  for (const auto& [thread, until] : of_a) settle(a_, &CallPair::a, until);
  for (const auto& [thread, until] : of_b) settle(b_, &CallPair::b, until);
  return out;
}

void Exchange::add_calls(const AlignedStep& aligned, const HostPaceRatio& pace, bool counted) {
  const std::vector<int64_t> code = code_of_alone(aligned, pace.code);
  for (size_t i = 0; i < aligned.calls.size(); ++i) {
    const auto& [a, b] = aligned.calls[i];
    if (counted && a != kNoRow) {
      note_launch(a_, a, launches_a_, ops_a_);
      for (const GpuOpId op : a_.recording->launched(a)) note_streams(a_.trace(), op, streams_a_);
    }
    if (counted && b != kNoRow) {
      note_launch(b_, b, launches_b_, ops_b_);
      for (const GpuOpId op : b_.recording->launched(b)) note_streams(b_.trace(), op, streams_b_);
    }
    if (a == kNoRow) {
      add_alone(b_, b, code[i], pace, counted);
      continue;
    }
    if (b == kNoRow) {
      add_alone(a_, a, code[i], pace, counted);
      continue;
    }
    const DiffPart part = part_of(a_.recording->kind(a));
    // What a call waits for is none of its own time: replay finds it out.
    if (!a_.recording->waits(a) && !b_.recording->waits(b)) {
      const int64_t of_a = a_.durations.call_ns[a], of_b = b_.durations.call_ns[b];
      change_host(a, of_a, b, of_b, pace.calls, part, &Edits::calls);
      count(part, name_of_call(b_.trace(), b), static_cast<double>(of_b) - static_cast<double>(of_a) * pace.calls,
            counted);
    }
    const int64_t of_a = a_.durations.before_ns[a], of_b = b_.durations.before_ns[b];
    const double more_ns = static_cast<double>(of_b) - static_cast<double>(of_a) * pace.code;
    change_host(a, of_a, b, of_b, pace.code, DiffPart::kHost, &Edits::before);
    const std::string place = more_ns > 0 ? host_place(b_.trace(), b, of_b) : host_place(a_.trace(), a, of_a);
    count(DiffPart::kHost, place, more_ns, counted);
  }
}

void Exchange::change_host(ApiCallId a, int64_t a_ns, ApiCallId b, int64_t b_ns, double pace, DiffPart part,
                           std::vector<Changed> Edits::*where) {
  const int64_t a_at_pace = std::llround(static_cast<double>(a_ns) * pace);
  const int64_t b_at_pace = std::llround(static_cast<double>(b_ns) / pace);
  const auto add = [where](Edits& edits, ApiCallId call, int64_t add_ns, DiffPart of) {
    if (add_ns != 0) (edits.*where).push_back({call, add_ns, of});
  };
  if (a != kNoRow) add(edits_a_, a, a_at_pace - a_ns, DiffPart::kPace);
  if (b != kNoRow) add(edits_b_, b, b_at_pace - b_ns, DiffPart::kPace);
  if (a == kNoRow || b == kNoRow) return;
  add(edits_a_, a, b_ns - a_at_pace, part);
  add(edits_b_, b, a_ns - b_at_pace, part);
}

// A wait, a copy or an allocation that the other side does not have goes by its own part, with the code that came with
// it. What is left of the code before it is host code. Other calls stay with the timeline that they are on.
void Exchange::add_alone(const Replayable& own, ApiCallId call, int64_t code_ns, const HostPaceRatio& pace,
                         bool counted) {
  const int64_t before = own.durations.before_ns[call];
  const bool of_a = &own == &a_;
  Edits& edits = of_a ? edits_a_ : edits_b_;
  const double sign = of_a ? -1 : 1;
  const auto at_pace = [&](int64_t ns, double times, std::vector<Changed> Edits::*where) {
    change_host(of_a ? call : ApiCallId(kNoRow), ns, of_a ? ApiCallId(kNoRow) : call, ns, times, DiffPart::kPace,
                where);
  };
  at_pace(before, pace.code, &Edits::before);
  if (!own.recording->waits(call)) at_pace(own.durations.call_ns[call], pace.calls, &Edits::calls);
  const bool goes = has_own_part(own, call);
  const int64_t dispatch = own.recording->dispatch_ns();
  const int64_t program_ns = goes                          ? before - code_ns
                             : before > replay::kLongGapNs ? before - std::min(before, dispatch)
                                                           : 0;
  if (program_ns > 0) {
    edits.alone.push_back({call, DiffPart::kHost, program_ns, false});
    count(DiffPart::kHost, host_place(own.trace(), call, before), sign * static_cast<double>(program_ns), counted);
  }
  if (is_launch(own.recording->kind(call))) structure_ = DiffPart::kCount;
  if (!goes) return;
  const DiffPart part = part_of(own.recording->kind(call));
  edits.alone.push_back({call, part, code_ns, true});
  count(part, name_of_call(own.trace(), call),
        sign * static_cast<double>(std::max<int64_t>(own.durations.call_ns[call], 1)), counted);
}

// How many times as long it takes at the other side's clock; `factor` if all of it follows.
double Exchange::clock_factor(const Replayable& own, GpuOpId op, double to_ns, double factor) {
  const double now = static_cast<double>(own.durations.op_ns[op]);
  switch (follows_clock(own, op)) {
    case FollowsClock::kWholly:
      return factor;
    case FollowsClock::kPartly:  // as much of what it became as another clock can have made
      return now > 0 ? std::clamp(to_ns / now, std::min(1.0, factor), std::max(1.0, factor)) : 1;
    case FollowsClock::kNo:
      break;
  }
  return 1;
}

void Exchange::change_one(const Replayable& own, GpuOpId op, double to_ns, double clock, DiffPart part, Edits& edits) {
  const double now = static_cast<double>(own.durations.op_ns[op]);
  if (clock == 1 && now == to_ns) return;
  edits.ops.push_back({op, clock, to_ns - now * clock, part});
}

void Exchange::change_op(GpuOpId a, double to_a_ns, GpuOpId b, double to_b_ns, DiffPart part) {
  double clock = 1;
  if (a_.sm_clock_mhz && b_.sm_clock_mhz && *b_.sm_clock_mhz > 0 && *a_.sm_clock_mhz > 0) {
    clock = *a_.sm_clock_mhz / *b_.sm_clock_mhz;
    if (std::abs(clock - 1) < kClockMoved) clock = 1;
  }
  if (a != kNoRow) change_one(a_, a, to_a_ns, clock_factor(a_, a, to_a_ns, clock), part, edits_a_);
  if (b != kNoRow) change_one(b_, b, to_b_ns, clock_factor(b_, b, to_b_ns, 1 / clock), part, edits_b_);
}

void Exchange::add_ops(const AlignedStep& aligned, bool counted) {
  for (const OpPair& pair : aligned.ops) {
    const double of_a = static_cast<double>(a_.durations.op_ns[pair.a]);
    const double of_b = static_cast<double>(b_.durations.op_ns[pair.b]);
    const bool kernel = a_.trace().gpu_ops.kind[pair.a] == GpuOpKind::kKernel;
    const DiffPart part = !kernel ? DiffPart::kCopy : pair.same ? DiffPart::kKernelSlower : DiffPart::kKernelReplaced;
    change_op(pair.a, of_b, pair.b, of_a, part);
    const std::string name = name_of_op(b_.trace(), pair.b);
    count(part, pair.same || !kernel ? name : name_of_op(a_.trace(), pair.a) + " -> " + name, of_b - of_a, counted);
  }
  // Several in the place of others: each takes the same part more or less, so that all take what those took.
  for (const Replaced& group : aligned.replaced) {
    const double of_a = sum_of(a_, group.a), of_b = sum_of(b_, group.b);
    if (of_a <= 0 || of_b <= 0) continue;
    for (const GpuOpId op : group.a)
      change_op(op, static_cast<double>(a_.durations.op_ns[op]) * of_b / of_a, kNoRow, 0, DiffPart::kKernelReplaced);
    for (const GpuOpId op : group.b)
      change_op(kNoRow, 0, op, static_cast<double>(b_.durations.op_ns[op]) * of_a / of_b, DiffPart::kKernelReplaced);
    count(DiffPart::kKernelReplaced, name_of_group(a_.trace(), group.a) + " -> " + name_of_group(b_.trace(), group.b),
          of_b - of_a, counted);
  }
  // Kernels of graphs that one side alone has are no launches, but they are no less there.
  const auto has_kernel = [](const Replayable& own, const std::vector<GpuOpId>& ops) {
    return std::any_of(ops.begin(), ops.end(),
                       [&](GpuOpId op) { return own.trace().gpu_ops.kind[op] == GpuOpKind::kKernel; });
  };
  if (has_kernel(a_, aligned.only_a) || has_kernel(b_, aligned.only_b)) structure_ = DiffPart::kCount;
}

void Exchange::finish(const HostPaceRatio& pace) {
  if (structure_ == DiffPart::kOther && copies_moved()) {
    structure_ = DiffPart::kCopy;
    // What copies take by themselves goes with the streams that they are on: it is one part.
    by_name_[static_cast<size_t>(DiffPart::kCopy)].clear();
    count(DiffPart::kCopy,
          fmt::format("streams of copies: {} -> {}", copying_streams(streams_a_), copying_streams(streams_b_)), 1,
          true);
  }
  for (const Edits* edits : {&edits_a_, &edits_b_}) {
    for (const Changed& one : edits->calls) active_ |= bit_of(one.part);
    for (const Changed& one : edits->before) active_ |= bit_of(one.part);
    for (const Alone& one : edits->alone) active_ |= bit_of(one.part);
    for (const ChangedOp& one : edits->ops)
      active_ |= bit_of(one.part) | (one.clock != 1 ? bit_of(DiffPart::kClock) : PartSet{0});
  }
  if (pace.known())
    count(DiffPart::kPace,
          fmt::format("the same code takes {:.2f} times as long, the same calls {:.2f}", pace.code, pace.calls), 1,
          true);
  // Latencies of the two recordings are never quite the same.
  active_ |= bit_of(DiffPart::kLaunch) | bit_of(DiffPart::kWait) | bit_of(DiffPart::kOther) | bit_of(structure_);
  const int64_t steps = std::max<int64_t>(counted_, 1);
  count(DiffPart::kCount,
        fmt::format("{} -> {} launches of {} -> {} activities", launches_a_ / steps, launches_b_ / steps,
                    ops_a_ / steps, ops_b_ / steps),
        1, true);
  if (a_.sm_clock_mhz && b_.sm_clock_mhz)
    count(DiffPart::kClock, fmt::format("{:.0f} -> {:.0f} MHz", *a_.sm_clock_mhz, *b_.sm_clock_mhz), 1, true);
}

replay::Durations Exchange::durations_with(const Replayable& own, const Edits& edits, PartSet set, PartSet without) {
  replay::Durations out = own.durations;
  const auto has = [set](DiffPart part) { return (set & bit_of(part)) != 0; };
  for (const Changed& one : edits.calls)
    if (has(one.part)) out.call_ns[one.call] += one.add_ns;
  for (const Changed& one : edits.calls) out.call_ns[one.call] = std::max<int64_t>(0, out.call_ns[one.call]);
  for (const Changed& one : edits.before)
    if (has(one.part)) out.before_ns[one.call] += one.add_ns;
  // Parts of a sum, of which one alone may take more away than there is.
  for (const Changed& one : edits.before) out.before_ns[one.call] = std::max<int64_t>(0, out.before_ns[one.call]);
  for (const ChangedOp& one : edits.ops) {
    double ns = static_cast<double>(out.op_ns[one.op]) * (has(DiffPart::kClock) ? one.clock : 1);
    if (has(one.part)) ns += one.rest_ns;
    out.op_ns[one.op] = std::max<int64_t>(0, std::llround(ns));
  }
  for (const Alone& one : edits.alone) {
    if (((set | without) & bit_of(one.part)) == 0) continue;
    out.before_ns[one.call] = std::max<int64_t>(0, out.before_ns[one.call] - one.before_ns);
    if (!one.gone) continue;
    out.call_ns[one.call] = 0;
    out.no_wait[one.call] = 1;
    for (const GpuOpId op : own.recording->launched(one.call)) out.gone[op] = 1;
  }
  return out;
}

replay::Latencies Exchange::latencies_with(const Replayable& own, const Replayable& other, PartSet set) const {
  replay::Latencies out = own.latencies;
  const replay::Latencies& from = other.latencies;
  if ((set & bit_of(DiffPart::kLaunch)) != 0 && out.launches.size() == from.launches.size())
    for (size_t i = 0; i < out.launches.size(); ++i)
      if (out.launches[i].latency.samples > 0 && from.launches[i].latency.samples > 0) {
        out.launches[i] = from.launches[i];
      }
  if ((set & bit_of(DiffPart::kWait)) != 0)
    for (size_t i = 0; i < replay::kAwaitedCount; ++i) {
      exchange(out.woken[i], from.woken[i]);
      exchange(out.unblocked[i], from.unblocked[i]);
    }
  if ((set & bit_of(DiffPart::kOther)) != 0) {
    for (size_t i = 0; i < replay::kStartKinds; ++i)
      for (size_t k = 0; k < replay::kStartKinds; ++k) exchange(out.behind[i][k], from.behind[i][k]);
    exchange(out.joined, from.joined);
    if (out.any_edge.samples > 0 && from.any_edge.samples > 0) {
      const double apart = from.any_edge.ns - out.any_edge.ns;
      for (auto& [edge, latency] : out.edges) latency.ns += apart;
      out.any_edge.ns = from.any_edge.ns;
    }
  }
  return out;
}

double Exchange::window_with(bool on_b, PartSet changed, PartSet without, const std::vector<StepId>& steps) const {
  const Replayable& own = on_b ? b_ : a_;
  const std::vector<int64_t> windows =
      own.replay->windows_of(steps, durations_with(own, on_b ? edits_b_ : edits_a_, changed, without),
                             latencies_with(own, on_b ? a_ : b_, changed));
  double sum = 0;
  for (const int64_t ns : windows) sum += static_cast<double>(ns);
  return windows.empty() ? 0 : sum / static_cast<double>(windows.size());
}

std::vector<int64_t> Exchange::at_pace_of_a(const std::vector<StepId>& steps_b) const {
  return b_.replay->windows_of(steps_b, durations_with(b_, edits_b_, bit_of(DiffPart::kPace), 0), b_.latencies);
}

double Exchange::evaluate(PartSet set, const std::vector<StepId>& steps_a, const std::vector<StepId>& steps_b) const {
  const bool on_b = (set & bit_of(structure_)) != 0;
  // On B's timeline what is not exchanged is as in A.
  const PartSet parts = active_ & ~bit_of(structure_);
  const PartSet as_in_a = ~set & parts, as_in_b = set & parts;
  double out = window_with(on_b, on_b ? as_in_a : as_in_b, 0, on_b ? steps_b : steps_a);
  // What the other side alone has of the parts that are as there.
  PartSet there = 0;
  for (const Alone& one : (on_b ? edits_a_ : edits_b_).alone) there |= bit_of(one.part);
  there &= on_b ? as_in_a : as_in_b;
  if (there == 0) return out;
  const PartSet changed = on_b ? as_in_b : as_in_a;  // on the other timeline
  const std::vector<StepId>& steps = on_b ? steps_a : steps_b;
  out += window_with(!on_b, changed, 0, steps) - window_with(!on_b, changed, there, steps);
  return out;
}

}  // namespace llmprof::diff
