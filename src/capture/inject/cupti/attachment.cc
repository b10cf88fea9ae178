#include "capture/inject/cupti/attachment.h"

#include <sched.h>

#include "capture/inject/cupti/capture_hooks.h"
#include "capture/inject/locked.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

Attachment attachment;

namespace {

bool graphs_survive() { return attachment.cupti->version >= cupti::kVersion13_0; }

}  // namespace

bool wants_kind(uint32_t kind) {
  if (!has_activities() || !switches.kernels_on.load(std::memory_order_relaxed)) return false;
  for (const cupti::ActivityKind own : kKernelKinds)
    if (own == kind) return true;
  if (attachment.deepest_wanted != Level::kDeep) return false;
  for (const cupti::ActivityKind own : kDeepKinds)
    if (own == kind) return true;
  return false;
}

void keep_attached() {
  if (attachment.stays.exchange(true, std::memory_order_relaxed) || !has_activities()) return;
  const Locked locked(attachment.lock);  // a detaching under way is waited for
  attachment.attach_again();
}

void graph_begins(bool capture) {
  if (!has_activities()) return;
  graph_made();
  if (capture) attachment.graphs.captures.fetch_add(1, std::memory_order_relaxed);
  if (attachment.stays.load(std::memory_order_relaxed)) return;
  if (!graphs_survive()) return keep_attached();
  const Locked locked(attachment.lock);
  attachment.come_for_graph();
}

void graph_launched() {
  // One that does not come by our hook cannot be held up while CUPTI leaves.
  const bool held_up = thread_state.launches_graph || captures_are_announced();
  if (!graphs_survive() || !held_up) attachment.stays.store(true, std::memory_order_relaxed);
  // Records may still be on although none are wanted any more, never the other way round.
  if (attachment.records_on.load(std::memory_order_relaxed)) {
    attachment.graphs.recorded.store(true, std::memory_order_relaxed);
  } else if (attachment.graphs.recorded.load(std::memory_order_relaxed)) {
    attachment.stays.store(true, std::memory_order_relaxed);
  }
}

void graph_launch_begins() {
  Graphs& graphs = attachment.graphs;
  for (;;) {
    graphs.launching.fetch_add(1);
    if (!graphs.held.load()) break;
    graphs.launching.fetch_sub(1);
    while (graphs.held.load()) sched_yield();
  }
  thread_state.launches_graph = true;
}

void graph_launch_ends() {
  thread_state.launches_graph = false;
  attachment.graphs.launching.fetch_sub(1);
}

bool hold_graph_launches() {
  // Under CUPTI the launch of a thousand nodes takes some milliseconds, the first one of a graph 12.
  constexpr int64_t kWaitMostNs = 20'000'000;
  Graphs& graphs = attachment.graphs;
  graphs.held.store(true);
  const int own = thread_state.launches_graph ? 1 : 0;
  const int64_t until = now_ns() + kWaitMostNs;
  while (graphs.launching.load() > own) {
    if (now_ns() > until) {
      release_graph_launches();
      return false;
    }
    sched_yield();
  }
  return true;
}

void release_graph_launches() { attachment.graphs.held.store(false); }

void graph_made() {
  if (!graphs_survive()) attachment.stays.store(true, std::memory_order_relaxed);
  attachment.graphs.made_ns.store(now_ns(), std::memory_order_relaxed);
}

void graph_instantiation_begins() {
  graph_made();
  // One that does not come by our hook cannot be uploaded before its first launch.
  if (!thread_state.instantiates_graph) attachment.stays.store(true, std::memory_order_relaxed);
}

void graph_instantiated(void* executable) {
  if (!has_activities() || attachment.stays.load(std::memory_order_relaxed)) return;
  const Locked locked(attachment.lock);
  attachment.upload_unrecorded(executable);
}

void capture_ended() {
  graph_made();
  int under_way = attachment.graphs.captures.load(std::memory_order_relaxed);
  while (under_way > 0 && !attachment.graphs.captures.compare_exchange_weak(under_way, under_way - 1)) {
  }
}

bool graphs_under_way(int64_t now_ns) {
  // What is captured is instantiated at once, and the next one captured soon.
  constexpr int64_t kSoonNs = 300'000'000;
  return attachment.graphs.captures.load(std::memory_order_relaxed) > 0 ||
         now_ns - attachment.graphs.made_ns.load(std::memory_order_relaxed) < kSoonNs;
}

}  // namespace llmprof::inject
