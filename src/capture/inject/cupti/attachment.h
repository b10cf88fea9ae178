// CUPTI as this process has it: found or not, attached or taken out, and which of its records we have on. What the
// other files of this folder share; activity.cc alone attaches, detaches and switches.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "capture/inject/inject.h"
#include "nvidia/cupti_library.h"

namespace llmprof::inject {

struct Attachment {
  nvidia::CuptiLibrary* cupti = nullptr;  // never destroyed
  cupti::Subscriber subscriber = nullptr;
  // CUPTI was found and taken; it may be out of the process right now all the same.
  std::atomic<bool> active{false};
  // Of being attached: whoever attaches, detaches, flushes or asks CUPTI for the time holds it.
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<bool> attached{false};
  std::atomic<bool> stays{false};    // for good: graphs or a second client depend on it
  bool (*attach_again)() = nullptr;  // with the lock held
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

// CUPTI stays from now on, and comes back if it is out: a graph is about to be captured, or another client wants it.
void keep_attached();
// The same, from inside one of its callbacks.
inline void graph_call_seen() { attachment.stays.store(true, std::memory_order_relaxed); }

}  // namespace llmprof::inject
