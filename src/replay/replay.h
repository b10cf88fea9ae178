// Runs stretches of a timeline again: every start is its latest predecessor plus the fitted latency, nothing else. What
// the recording says of starts is used only for the first call of each thread in a stretch, and for what ran before it.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/latencies.h"
#include "results/call_costs.h"

namespace llmprof::replay {

// Calls that begin in it are run again; the rest is as recorded.
struct Stretch {
  int64_t start_ns = 0, end_ns = 0;
};

using StreamPairs = std::set<std::pair<StreamId, StreamId>>;  // the lower one first

// Of streams whose copies to the GPU follow each other, and those to the host too, but none of the one way one of the
// other. By activity; of others as recorded.
struct CopyOrder {
  NearRows<GpuOpId> behind;        // the one that it follows, kNoRow for the first
  std::vector<GpuOpId> other_way;  // the last of the other way before it: who waits for it waits for that one too
  bool empty() const { return behind.empty(); }
};

// A value per row: of the recording, or 0 for all; copied when the first is about to be changed, for most are not. Of a
// recording of millions of kernels the copies would be a good part of what replay needs.
template <class T, class Column = std::vector<T>>
class Changeable {
 public:
  explicit Changeable(const Column& recorded) : recorded_(&recorded), size_(recorded.size()) {}
  explicit Changeable(size_t size) : size_(size) {}

  size_t size() const { return size_; }
  T operator[](size_t row) const { return !own_.empty() ? own_[row] : recorded_ != nullptr ? (*recorded_)[row] : T{}; }
  T& operator[](size_t row) { return own()[row]; }
  typename std::vector<T>::iterator begin() { return own().begin(); }
  typename std::vector<T>::iterator end() { return own().end(); }

 private:
  std::vector<T>& own() {
    if (!own_.empty()) return own_;
    if (recorded_ != nullptr)
      own_.assign(recorded_->begin(), recorded_->end());
    else
      own_.resize(size_);
    return own_;
  }
  const Column* recorded_ = nullptr;
  size_t size_;
  std::vector<T> own_;
};

// Of the host on its thread, by call: from the end of the call before, or the start of the enclosing one, to the call;
// 0 for the first of a thread. Worked out from the timeline, which must outlive it, until one is about to be changed.
class HostTimes {
 public:
  explicit HostTimes(const Timeline& timeline) : timeline_(&timeline) {}
  int64_t operator[](size_t call) const { return own_.empty() ? recorded(static_cast<Row>(call)) : own_[call]; }
  int64_t& operator[](size_t call) {
    if (own_.empty()) own_ = all();
    return own_[call];
  }

 private:
  int64_t recorded(Row call) const {
    const ApiCallId before = timeline_->before[call];
    if (before == kNoRow) return 0;
    return timeline_->start_of(call) -
           (timeline_->nested[call] != 0 ? timeline_->start_of(before) : timeline_->end_of(before));
  }
  std::vector<int64_t> all() const;
  const Timeline* timeline_;
  std::vector<int64_t> own_;
};

// Moments of a replay by row, kept as what they are later than the recorded ones: half the memory, until one is further
// from its own than 32 bits tell.
class Moments {
 public:
  // Recorded at `start`, or `dur` behind it. Both must outlive it.
  explicit Moments(const std::vector<int64_t>& start, const std::vector<int64_t>* dur = nullptr)
      : start_(&start), dur_(dur), later_(start.size()) {}
  int64_t operator[](size_t row) const { return wide_.empty() ? recorded(row) + later_[row] : wide_[row]; }
  void set(size_t row, int64_t moment) {
    if (wide_.empty()) {
      // kNever is further away than any number tells.
      const int64_t later = static_cast<int64_t>(static_cast<uint64_t>(moment) - static_cast<uint64_t>(recorded(row)));
      if (later == static_cast<int32_t>(later)) {
        later_[row] = static_cast<int32_t>(later);
        return;
      }
      widen();
    }
    wide_[row] = moment;
  }

 private:
  int64_t recorded(size_t row) const { return (*start_)[row] + (dur_ == nullptr ? 0 : (*dur_)[row]); }
  void widen();
  const std::vector<int64_t>* start_;
  const std::vector<int64_t>* dur_;
  std::vector<int32_t> later_;
  std::vector<int64_t> wide_;  // once one is too far away: all of them
};

using OpDurations = Changeable<int64_t, decltype(GpuOps::dur_ns)>;

// What is constant, by row of the trace's tables: to replay something else than was recorded, change it. The timeline
// must outlive it.
struct Durations {
  explicit Durations(const Timeline& timeline);  // as recorded

  Changeable<int64_t> call_ns;  // of calls, waits included: those are replaced where a call waits
  HostTimes before_ns;
  OpDurations op_ns;  // of activities
  // As recorded: none. What a counterfactual (what_if.h) takes away:
  Changeable<uint8_t> no_wait;  // of calls: returns after call_ns, whatever the GPU does
  Changeable<uint8_t> gone;     // of activities: takes no time, no place on its stream and no latency
  // Of activities: launched with the one before it on its stream, in one call.
  Changeable<uint8_t> with_previous;
  StreamPairs apart;  // kernels of these wait for each other's no more
  CopyOrder copies;   // empty: copies of a stream follow each other as recorded
  bool meet = true;   // in a collective each GPU waits for the last one to begin (meetings.h)
};

// By row of the trace's tables.
struct Replayed {
  explicit Replayed(const Trace& trace);  // which must outlive it; as recorded

  Moments call_start_ns, call_end_ns, op_start_ns;
  OpDurations op_lasts_ns;
  std::vector<Followed> followed;  // of activities; kNone where nothing was run again
  NearRows<GpuOpId> behind;        // of activities: the one that it followed, kNoRow if none
  std::vector<GpuOpId> met;  // of activities: the last to begin of a meeting, kNoRow for itself; empty without meetings
  FewRows<GpuOpId> woken_by;  // of calls: the activity whose end let it return, kNoRow if it did not wait

  // The start may be kNever, from which any distance is one of 64 bits without a sign.
  int64_t op_end_ns(GpuOpId op) const {
    return static_cast<int64_t>(static_cast<uint64_t>(op_start_ns[op]) + static_cast<uint64_t>(op_lasts_ns[op]));
  }
  void end_op(GpuOpId op, int64_t end_ns) {
    const int64_t lasts = static_cast<int64_t>(static_cast<uint64_t>(end_ns) - static_cast<uint64_t>(op_start_ns[op]));
    if (std::as_const(op_lasts_ns)[op] != lasts) op_lasts_ns[op] = lasts;
  }
};

// Stretches in order of time, none touching another.
Replayed run(const Timeline& timeline, const Durations& durations, const Latencies& latencies,
             const std::vector<Stretch>& stretches);

// What the time of a step consists of, along the longest chain of dependencies that leads to its end.
enum class PathPart : uint8_t {
  kHostCode,       // the program and its framework, between CUDA calls
  kNoInput,        // the program does nothing between CUDA calls (derive/no_input.h)
  kCudaCalls,      // inside CUDA calls that wait for nothing
  kLaunchLatency,  // from a launch to the start of what it launched
  kGpuWork,        // kernels, copies, memsets
  kGpuGap,         // between activities that follow each other on a stream, across streams by an event, or in a graph
  kWakeUp,         // from the end of what a call waited for to its return
  kUnexplained,  // of the host between calls, what another thread of the process spent from its first to its last call
                 // there, making none before it that lasts into it: it may have been waited for, and is taken as it was
  kCount
};
inline constexpr size_t kPathParts = static_cast<size_t>(PathPart::kCount);
std::string_view in_words(PathPart part);
inline constexpr size_t kCategories = static_cast<size_t>(Category::kCount);

// A piece of that chain. It lies where it was recorded, although the chain is found in what is replayed: pieces are cut
// where they would overlap, so that those of a step are in order and none reaches into another.
struct PathSegment {
  int64_t start_ns = 0, end_ns = 0;
  PathPart part = PathPart::kHostCode;
  GpuOpId op = kNoRow;  // of kGpuWork; of a latency and a gap: what began behind it; of kWakeUp: what was waited for
  ApiCallId call = kNoRow;  // of kCudaCalls and kWakeUp; of kHostCode and kUnexplained: the call behind it
};

// A step's window as it was recorded and as replay gives it back.
struct StepTime {
  StepId step = kNoRow;
  bool learned = false;  // the latencies are those of this step among others; only the rest judges them
  int64_t recorded_ns = 0, replayed_ns = 0;
  std::optional<int64_t> undisturbed_ns;       // replayed without what recording costs, where that is known
  std::optional<int64_t> by_machine_ns;        // the same by costs that were measured on this machine alone
  std::array<int64_t, kPathParts> path_ns{};   // adds up to replayed_ns
  std::array<int64_t, kCategories> work_ns{};  // by Category; adds up to path_ns of kGpuWork
  double error_frac() const {
    return recorded_ns > 0 ? static_cast<double>(replayed_ns - recorded_ns) / static_cast<double>(recorded_ns) : 0;
  }
};

// What ended a step's window: the last activity, and the call that waited for it.
struct StepEnd {
  GpuOpId op = kNoRow;
  ApiCallId call = kNoRow;
};

class RecorderCostModel;

// Every completely recorded step of a program, to be run again as often as is liked, each after the one before it.
// Latencies are learned from every other step of a stage. The trace must outlive it.
class StepReplay {
 public:
  explicit StepReplay(const Trace& trace);
  ~StepReplay();
  StepReplay(const StepReplay&) = delete;
  StepReplay& operator=(const StepReplay&) = delete;

  // As they were, in order of time.
  std::vector<StepTime> as_recorded() const;
  // What each of as_recorded() takes without the recorder, ns; `model` must be known.
  std::vector<int64_t> without_recorder(const RecorderCostModel& model) const;
  // What the time of each of these steps consists of, piece by piece; nothing of steps that are not replayed.
  std::vector<std::vector<PathSegment>> paths(std::span<const StepId> steps) const;
  // What each takes with what is changed, ns.
  std::vector<int64_t> windows(const Durations& durations, const Latencies& latencies) const;
  // The same of these alone, ns, kNever of one that is not replayed. Of the rest only what leads to them is run again,
  // from two steps before each on: for many replays of a few steps.
  std::vector<int64_t> windows_of(std::span<const StepId> steps, const Durations& durations,
                                  const Latencies& latencies) const;

  const Timeline& timeline() const { return timeline_; }
  const Latencies& latencies() const { return latencies_; }
  // By step; of those that are not replayed nothing.
  const std::vector<StepEnd>& ends() const { return ends_; }

 private:
  const Timeline timeline_;
  const std::vector<uint8_t> learn_;  // by step
  const std::vector<StepEnd> ends_;   // by step
  const std::vector<Stretch> stretches_;
  const Latencies latencies_;
};

}  // namespace llmprof::replay
