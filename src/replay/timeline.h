// A recording as a dependency graph. Host threads issue calls one after the other; calls put activities on streams;
// a stream runs its activities in order; some calls wait for activities. What each of these takes by itself is
// constant: the host's work between two calls, the own time of a call, the duration of an activity. When each begins
// is not: it follows from what it waits for, and a latency (latencies.h). So steps can be replayed, as they were or
// with something about them changed (replay.h).
//
// Known of the dependencies: order on a thread, the call that launched an activity, order on a stream, events that one
// stream records and another waits for, the engine that copies one way, the edges of CUDA graphs, what the blocking
// calls wait for, and collectives in which all GPUs meet (meetings.h). Where a recording does not hold the last three
// (lacking()), nodes of a graph follow each other as they were seen to run, and a thread waits for what it launched.
// Not known: what threads wait for from each other, and that the legacy default stream waits for streams that were not
// made non-blocking.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "derive/host_calls.h"
#include "derive/no_input.h"
#include "replay/meetings.h"
#include "replay/near_rows.h"
#include "trace/trace.h"

namespace llmprof::replay {

// What a blocking call waits for.
enum class Awaited : uint8_t {
  kNothing,
  kDevice,  // all that its process launched
  kThread,  // what its thread launched: of a call whose stream or event is not recorded
  kOwn,     // its own copy
  kStream,  // what is on its stream
  kEvent,   // what was on a stream when its event was recorded; nothing if that was before the recording
  kFree     // all that its process launched, before memory is given back, which takes its own time
};
inline constexpr size_t kAwaitedCount = 7;

// No moment: before every other.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

// What an activity followed: none (nothing is known), the launch, the activity before it on its stream, one that its
// stream was told to wait for, or one of the same graph launch.
enum class Followed : uint8_t { kNone, kLaunch, kStream, kEvent, kGraph };

// Kinds of activities by what their start costs.
enum class StartKind : uint8_t { kKernel, kCopy, kSet, kGraphNode };
inline constexpr size_t kStartKinds = 4;

// Some activities, or a single one that is stored nowhere.
class ActivityList {
 public:
  ActivityList() = default;
  ActivityList(const GpuOpId* first, size_t size) : first_(first), size_(size) {}
  explicit ActivityList(GpuOpId single) : size_(1), single_(single) {}

  const GpuOpId* begin() const { return first_ != nullptr ? first_ : &single_; }
  const GpuOpId* end() const { return begin() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  GpuOpId operator[](size_t i) const { return begin()[i]; }

 private:
  const GpuOpId* first_ = nullptr;
  size_t size_ = 0;
  GpuOpId single_;
};

// Some activities for each row of a table, in the order of the rows.
class ActivityLists {
 public:
  ActivityList of(Row row) const {
    if (!single_.empty())
      if (const GpuOpId one = single_[row]; one != kNoRow) return ActivityList(one);
    if (ops_.empty()) return {};
    const size_t at = place_of(row);
    return at == kNowhere ? ActivityList() : ActivityList(ops_.data() + begin_[at], begin_[at + 1] - begin_[at]);
  }
  // In any order of the rows; those of one row stay in theirs.
  void take(std::vector<std::pair<Row, GpuOpId>> pairs, size_t rows);
  // Beside those, of rows that have no others: one each.
  void take_single(NearRows<GpuOpId> single) { single_ = std::move(single); }

 private:
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
  size_t place_of(Row row) const;

  std::vector<GpuOpId> ops_;
  std::vector<Row> rows_;        // that have any, where few do; empty: every row has a place
  std::vector<uint32_t> begin_;  // by place, one more at the end
  NearRows<GpuOpId> single_;
};

// A call begins, an activity runs, a call that waits returns.
struct Item {
  enum class Kind : uint8_t { kCall, kActivity, kReturn };
  Kind kind;
  Row row;  // of the calls or activities
};

// What a call launched.
using LaunchedOps = NearRange<GpuOpId>;

// The parallel arrays of a trace that replay needs beside its tables.
struct Timeline {
  explicit Timeline(const Trace& recording);

  const Trace& trace;
  HostCalls calls;
  NoInput no_input;
  // By activity.
  std::vector<StartKind> kinds;
  NearRows<GpuOpId> on_stream;  // the one before it on its stream, kNoRow
  // Of copies between a GPU and the host: the one before it the same way, on another stream. An engine makes those of
  // one way, one after the other, whoever asked for them.
  std::vector<GpuOpId> on_engine;  // empty where no copy has any
  ActivityLists joined;            // those that its stream was told to wait for since the one before it
  ActivityLists in_graph;          // of a graph node: those of its launch that it follows; none of a first one
  // By call: the one before it on its thread that encloses it (a driver call in a runtime call) or ended before it.
  NearRows<ApiCallId> before;
  std::vector<uint8_t> nested;  // whether that one encloses it
  std::vector<Awaited> awaited;
  ActivityLists awaits;         // of kStream and kEvent
  ActivityLists stream_awaits;  // of calls that make a stream wait for an event: what that stream waits for
  // Of calls that wait for a device, where there are several: one bit for each that is not meant, since what was
  // launched on it went on behind the return. Else empty.
  std::vector<uint32_t> other_devices;
  // By thread: a number of its process.
  std::vector<uint32_t> process;
  // Activities by call, in order of their start.
  NearRows<GpuOpId> launched;            // in order of their rows, too
  std::vector<uint32_t> launched_begin;  // by call, one more at the end
  // Where GPUs meet; else all empty.
  std::vector<Meeting> meetings;
  std::vector<uint32_t> meeting;  // by activity: which one, kNoRow
  std::vector<Item> order;        // in which a replay works things out; else that of the calls
  ActivityLists last_given;       // by call: of kDevice, kThread and kFree, the last on each stream before it

  int64_t start_of(ApiCallId call) const { return trace.api_calls.start_ns[call]; }
  int64_t end_of(ApiCallId call) const { return trace.api_calls.start_ns[call] + trace.api_calls.dur_ns[call]; }
  // Whether the program did nothing from the end of the thread's call before until this one.
  bool lacks_input(ApiCallId call) const {
    return !no_input.empty() && before[call] != kNoRow && nested[call] == 0 &&
           no_input.holds(trace.api_calls.thread[call], end_of(before[call]), start_of(call));
  }
  GpuOpId before_on_engine(GpuOpId op) const { return on_engine.empty() ? GpuOpId(kNoRow) : on_engine[op]; }
  // How many activities its call launched before it.
  uint32_t place_in_launch(GpuOpId op) const;
  bool is_graph_node(GpuOpId op) const { return kinds[op] == StartKind::kGraphNode; }
  Row meeting_of(GpuOpId op) const { return meeting.empty() ? Row(kNoRow) : meeting[op]; }
  bool awaits_device(ApiCallId call, int32_t device) const {
    return other_devices.empty() || (other_devices[call] >> (static_cast<uint32_t>(device) % 32) & 1) == 0;
  }
};

// Dependencies that the program has and the recording does not hold, in words for a report, joined by commas; empty if
// there are none.
std::string lacking(const Trace& trace);

}  // namespace llmprof::replay
