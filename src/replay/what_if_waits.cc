// Waits for the GPU. What a program reads back from the GPU now and then is a copy of few bytes and the wait for it
// (`.item()`): without the wait nobody would make the copy. One of many bytes is what takes the time, waited for or
// not.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

bool copies_to_host(const Recording& recording, ApiCallId call) {
  const LaunchedOps ops = recording.launched(call);
  return ops.size() == 1 && recording.trace().gpu_ops.path[ops[0]] == CopyPath::kDeviceToHost;
}

// Longer than any wait for a few bytes: 20 us are 0.5 MB over PCIe.
bool copies_long_to_host(const Recording& recording, ApiCallId call) {
  constexpr int64_t kFewBytesMostNs = 20'000;
  return copies_to_host(recording, call) &&
         recording.trace().gpu_ops.dur_ns[recording.launched(call)[0]] > kFewBytesMostNs;
}

void take_wait(const Recording& recording, ApiCallId call, Durations& durations) {
  if (copies_long_to_host(recording, call)) {
    durations.no_wait[call] = 1;
    durations.call_ns[call] = std::min(durations.call_ns[call], recording.dispatch_ns());
    return;
  }
  take_away(recording, call, durations);
  // The copy that this wait is for is the call right before it, in a call of its own.
  const ApiCallId before = recording.timeline().before[call];
  if (before != kNoRow && copies_to_host(recording, before) && !copies_long_to_host(recording, before) &&
      !recording.ends_step(before))
    take_away(recording, before, durations);
}

// A wait for a copy of pageable memory to the GPU, or for a long one to the host, in the copying call or right behind
// it, is that copy's matter.
bool is_for_copy(const Recording& recording, ApiCallId call) {
  const auto matters = [&](ApiCallId one) {
    return one != kNoRow && (copies_pageable_in(recording, one) || copies_long_to_host(recording, one));
  };
  return matters(call) || matters(recording.timeline().before[call]);
}

void take_waits(const Recording& recording, bool last_too, Durations& durations) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (recording.waits(call) &&
        (last_too || ((!recording.ends_step(call) || recording.ends_in_vain(call)) && !is_for_copy(recording, call))))
      take_wait(recording, call, durations);
}

// A wait within a step that nothing but what is read asks for.
bool reads(const Recording& recording, ApiCallId call) {
  return recording.waits(call) && !recording.ends_step(call) && !is_for_copy(recording, call);
}

// Kernels that work out what is read: none that runs a part of the model.
bool is_check(const Recording& recording, ApiCallId call) {
  const Trace& trace = recording.trace();
  for (const GpuOpId op : recording.launched(call)) {
    const Category category = trace.gpu_links.category[op];
    if (recording.timeline().is_graph_node(op) || category == Category::kGemm || category == Category::kAttention ||
        category == Category::kCommunication)
      return false;
  }
  return true;
}

// What lies between one such wait and the next, of one thread in one step.
struct Turn {
  StepId step = kNoRow;
  bool checks = true;             // no kernel of the model in it
  std::vector<ApiCallId> calls;   // the wait that ends it is the last
  std::vector<StringId> kernels;  // by name
};

}  // namespace

void without_waits(const Recording& recording, Durations& durations, Latencies&) {
  take_waits(recording, true, durations);
}

void with_last_wait_only(const Recording& recording, Durations& durations, Latencies&) {
  take_waits(recording, false, durations);
}

void with_reads_at_once(const Recording& recording, Durations& durations, Latencies&) {
  const Trace& trace = recording.trace();
  struct Thread {
    Turn now;
    std::set<std::vector<StringId>> seen;  // kernels of turns of the step that checked something
  };
  std::map<ThreadId, Thread> threads;
  for (ApiCallId call = 0; call < trace.api_calls.size(); ++call) {
    auto& [now, seen] = threads[trace.api_calls.thread[call]];
    const StepId step = recording.step_of(call);
    if (step == kNoRow || step != now.step || recording.ends_step(call)) {
      seen.clear();
      now = {};
      now.step = step;
      if (step == kNoRow || recording.ends_step(call)) continue;
    }
    now.calls.push_back(call);
    now.checks = now.checks && is_check(recording, call);
    for (const GpuOpId op : recording.launched(call)) now.kernels.push_back(trace.gpu_ops.name[op]);
    if (!reads(recording, call)) continue;
    // Like one before it: one reading of all of them takes their place.
    if (now.checks && !seen.insert(now.kernels).second)
      for (const ApiCallId one : now.calls) {
        take_away(recording, one, durations);
        durations.before_ns[one] = 0;
      }
    now = {};
    now.step = step;
  }
  take_waits(recording, false, durations);
}

}  // namespace llmprof::replay
