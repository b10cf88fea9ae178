// A recording as a dependency graph. Host threads issue calls one after the other; calls put activities on streams;
// a stream runs its activities in order; some calls wait for activities. What each of these takes by itself is
// constant: the host's work between two calls, the own time of a call, the duration of an activity. When each begins
// is not: it follows from what it waits for, and a latency (latencies.h). So steps can be replayed, as they were or
// with something about them changed (replay.h).
//
// Known of the dependencies: order on a thread, the call that launched an activity, order on a stream, the order in
// which nodes of a CUDA graph were seen to run, and what the blocking calls wait for. Not known: what threads wait for
// from each other, and events between streams.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "derive/host_calls.h"
#include "trace/trace.h"

namespace llmprof::replay {

// What a blocking call waits for.
enum class Awaited : uint8_t { kNothing, kDevice, kThread, kOwn };  // all; what its thread launched; its own copy
inline constexpr size_t kAwaitedCount = 4;

// No moment: before every other.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

// What an activity followed: none (nothing is known), the launch, the activity before it on its stream, or one of the
// same graph launch.
enum class Followed : uint8_t { kNone, kLaunch, kStream, kGraph };

// Kinds of activities by what their start costs.
enum class StartKind : uint8_t { kKernel, kCopy, kSet, kGraphNode };
inline constexpr size_t kStartKinds = 4;

// The parallel arrays of a trace that replay needs beside its tables.
struct Timeline {
  explicit Timeline(const Trace& recording);

  const Trace& trace;
  HostCalls calls;
  // By activity.
  std::vector<StartKind> kinds;
  std::vector<GpuOpId> on_stream;   // the one before it on its stream, kNoRow
  std::vector<GpuOpId> in_graph;    // of a graph node: the one of its launch that ended last before it began
  std::vector<uint32_t> in_launch;  // how many activities its call launched before it
  // By call: the one before it on its thread that encloses it (a driver call in a runtime call) or ended before it.
  std::vector<ApiCallId> before;
  std::vector<uint8_t> nested;  // whether that one encloses it
  std::vector<Awaited> awaited;
  // Activities by call, in order of their start.
  std::vector<GpuOpId> launched;
  std::vector<uint32_t> launched_begin;  // by call, one more at the end

  int64_t start_of(ApiCallId call) const { return trace.api_calls.start_ns[call]; }
  int64_t end_of(ApiCallId call) const { return trace.api_calls.start_ns[call] + trace.api_calls.dur_ns[call]; }
  bool is_graph_node(GpuOpId op) const { return kinds[op] == StartKind::kGraphNode; }
};

}  // namespace llmprof::replay
