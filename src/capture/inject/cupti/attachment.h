// CUPTI as this process has it: found or not, attached or taken out, and which of its records we have on. What the
// other files of this folder share; activity.cc alone attaches, detaches and switches.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "capture/inject/inject.h"
#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// CUDA graphs and CUPTI's leaving (docs/adr 24). A graph that was launched with kernel records on and then, CUPTI still
// attached, with records off fails at its next launch once CUPTI has left. So where graphs were recorded CUPTI leaves
// with its records on; and it does not leave while a graph is made, whose nodes and edges would not be seen. A launch
// of a graph that CUPTI leaves under, on another thread, ends in illegal accesses of the GPU: it does not leave then
// either. And what a graph writes when it has run is fixed when it is first uploaded, which its first launch does where
// nobody did before: under records it goes on writing to CUPTI's memory, which is gone when CUPTI has left. So each
// graph is uploaded with records off as soon as it is instantiated; where that was not seen, CUPTI stays.
struct Graphs {
  std::atomic<bool> recorded{false};  // launched with records on, since attaching
  std::atomic<int> captures{0};       // under way
  std::atomic<int64_t> made_ns{0};    // when last a capture or an instantiation began or ended
  std::atomic<int> launching{0};      // threads inside the launch of one
  std::atomic<bool> held{false};      // who comes to launch one waits
};

struct Attachment {
  nvidia::CuptiLibrary* cupti = nullptr;  // never destroyed
  cupti::Subscriber subscriber = nullptr;
  // CUPTI was found and taken; it may be out of the process right now all the same.
  std::atomic<bool> active{false};
  // Of being attached: whoever attaches, detaches, flushes or asks CUPTI for the time holds it.
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<bool> attached{false};
  std::atomic<bool> stays{false};       // for good: a second client depends on it, or graphs do
  std::atomic<bool> records_on{false};  // CUPTI's own switches, whether or not what comes is wanted
  bool (*attach_again)() = nullptr;     // both with the lock held
  void (*come_for_graph)() = nullptr;
  void (*upload_unrecorded)(void* executable) = nullptr;
  Graphs graphs;
  // Kernels whose records are on although they are not wanted: CUPTI's correlation ids above the first, up to the
  // second.
  std::atomic<uint32_t> unwanted_above{0}, unwanted_until{0};
  Level deepest_wanted = Level::kOff;
  // Written at each launch; a line of the cache of their own.
  struct alignas(64) Launches {
    std::atomic<uint64_t> count{0};  // of kernels with their records on, since attaching; seldom a few too many
    std::atomic<int64_t> first_ns{0};
    std::atomic<uint32_t> correlation_max{0};
  } launches;
};
extern Attachment attachment;

// What is switched on and off together. Synchronisation records are not among them: they make every launch of a
// program a quarter slower, and go on doing so when they are off (docs/adr 10). The calls that wait are recorded.
constexpr cupti::ActivityKind kKernelKinds[] = {cupti::kConcurrentKernel, cupti::kMemcpy, cupti::kMemcpy2,
                                                cupti::kMemset, cupti::kOverhead};
constexpr cupti::ActivityKind kDeepKinds[] = {cupti::kMemory2};

// Callbacks about resources that we have on while CUPTI is attached.
constexpr cupti::ResourceCallback kResourceCallbacks[] = {
    cupti::kGraphNodeCreated, cupti::kGraphNodeCloned, cupti::kStreamDestroyStarting, cupti::kContextDestroyStarting};
inline bool wants_resource(uint32_t cbid) {
  for (const cupti::ResourceCallback own : kResourceCallbacks)
    if (own == cbid) return true;
  return false;
}

// The process's CUPTI if it is open, and our subscription.
inline const nvidia::CuptiLibrary* loaded_cupti() { return attachment.cupti; }
inline cupti::Subscriber own_subscriber() { return attachment.subscriber; }

// True while CUPTI can record kernels.
inline bool has_activities() { return attachment.active.load(std::memory_order_acquire); }

// Whether we need this activity kind on.
bool wants_kind(uint32_t kind);

// CUPTI stays from now on, and comes back if it is out: another client wants it.
void keep_attached();

// A graph is about to be captured or made by hand: CUPTI comes back for it if it is out, and leaves when it is made.
void graph_begins(bool capture);
// Around the launch of a graph: its beginning waits while CUPTI leaves.
void graph_launch_begins();
void graph_launch_ends();
// Holds launches of graphs up and waits, not for long, until no other thread is inside one; false if one stays inside,
// and then nothing is held up. Release when CUPTI has left.
bool hold_graph_launches();
void release_graph_launches();
// At the end of a call of the program that made an executable graph, before it is launched.
void graph_instantiated(void* executable);
// Inside callbacks of a graph's launch, of a call that makes an executable graph, and of a capture's end.
void graph_launched();
void graph_made();
void graph_instantiation_begins();
void capture_ended();
// Whether graphs are being made, so that CUPTI must not leave yet.
bool graphs_under_way(int64_t now_ns);

}  // namespace llmprof::inject
