// Waits for the GPU. What a program reads back from the GPU now and then is a copy of few bytes and the wait for it
// (`.item()`): without the wait nobody would make the copy.
#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

bool copies_to_host(const Recording& recording, ApiCallId call) {
  const std::span<const GpuOpId> ops = recording.launched(call);
  return ops.size() == 1 && recording.trace().gpu_ops.path[ops[0]] == CopyPath::kDeviceToHost;
}

void take_wait(const Recording& recording, ApiCallId call, Durations& durations) {
  take_away(recording, call, durations);
  // The copy that this wait is for is the call right before it, in a call of its own.
  const ApiCallId before = recording.timeline().before[call];
  if (before != kNoRow && copies_to_host(recording, before) && !recording.ends_step(before))
    take_away(recording, before, durations);
}

// A wait for a copy of pageable memory to the GPU, in the copying call or right behind it, is that copy's matter.
bool is_for_pageable(const Recording& recording, ApiCallId call) {
  const ApiCallId before = recording.timeline().before[call];
  return copies_pageable_in(recording, call) || (before != kNoRow && copies_pageable_in(recording, before));
}

void take_waits(const Recording& recording, bool last_too, Durations& durations) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (recording.waits(call) && (last_too || (!recording.ends_step(call) && !is_for_pageable(recording, call))))
      take_wait(recording, call, durations);
}

}  // namespace

void without_waits(const Recording& recording, Durations& durations, Latencies&) {
  take_waits(recording, true, durations);
}

void with_last_wait_only(const Recording& recording, Durations& durations, Latencies&) {
  take_waits(recording, false, durations);
}

}  // namespace llmprof::replay
