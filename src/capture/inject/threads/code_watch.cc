#include "capture/inject/threads/code_watch.h"

#include <algorithm>

#include "capture/inject/python/guarded_memory.h"
#include "capture/inject/python/python_stack.h"
#include "capture/inject/threads/thread_log.h"

namespace llmprof::inject {
namespace {

constexpr int64_t kCodeLeastNs = 100'000, kCodeMostNs = 1'000'000'000;  // as what is recorded as host code
// From one question where threads are to the next; longer where long code goes on, where enough was seen in a window,
// and where there is no long code. A host that has no core for the drain thread takes 10 us and more from the program
// for each.
constexpr int64_t kQuestionNs = 200'000, kQuestionMostNs = 1'000'000;
constexpr uint32_t kOfCode = 4, kOfWindow = 50, kInVain = 50;  // so many, then half as many a second
constexpr int64_t kCostShare = 20, kRestMostNs = 10'000'000;
constexpr uint32_t kTextsKnown = 1024;

CodeWatch watches[kCodeWatchesMost];

// What the drain thread knows.
struct Sampled {
  int64_t since_ns = 0;  // of the code that the other two are about
  int64_t next_ns = 0;
  uint32_t samples = 0;
};
struct Sampler {
  Sampled of[kCodeWatchesMost];
  CachedShape texts[kTextsKnown];
  int64_t window_ns = 0;  // since when kernels are recorded; 0: they are not
  uint32_t samples = 0;   // of the window
  uint32_t in_vain = 0;   // questions since the last long code
};
Sampler sampler;
GuardedMemory code_memory;

// 0 where the stack cannot be read.
Id sampled_stack_id(const void* python_thread) {
  PythonStack stack;
  code_memory.begin();
  if (!read_python_stack_of(python_thread, code_memory, stack)) return 0;
  CachedShape& known = sampler.texts[stack.hash % kTextsKnown];
  if (known.hash == stack.hash && known.id != 0) return known.id;
  char text[kPythonTextMost];
  const size_t length = python_stack_text_of(stack, code_memory, FramesOf::kProgram, text, sizeof text);
  if (length == 0) return 0;
  SpoolAccess access;
  if (access.writer() == nullptr) return 0;
  known = {stack.hash, access.writer()->text({text, length})};
  return known.id;
}

void add_code_sample(CodeWatch& watch, int64_t since_ns, int64_t time_ns) {
  const Id stack = sampled_stack_id(watch.python_thread.load(std::memory_order_relaxed));
  // What was read belongs to this code only if it still goes on.
  if (stack == 0 || watch.since_ns.load(std::memory_order_relaxed) != since_ns) return;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  ThreadLog* const log = watch.log.load(std::memory_order_relaxed);
  if (log == nullptr) return;
  spool::HostPlace place;
  place.kind = spool::PlaceKind::kCodeSample;
  place.thread = thread_def_of(*log, *access.writer());
  place.stack = stack;
  place.start_ns = place.end_ns = time_ns;
  access.writer()->add(place);
}

// Whether the thread is in long code; a sample of it is taken if it is time to.
bool in_long_code(uint32_t number, int64_t now) {
  CodeWatch& watch = watches[number];
  Sampled& sampled = sampler.of[number];
  const int64_t since_ns = watch.since_ns.load(std::memory_order_relaxed);
  if (since_ns < sampler.window_ns || now - since_ns < kCodeLeastNs || now - since_ns > kCodeMostNs) return false;
  if (sampled.since_ns != since_ns) sampled = {since_ns, 0, 0};
  if (now < sampled.next_ns) return true;
  add_code_sample(watch, since_ns, now);
  ++sampler.samples;
  ++sampled.samples;
  sampled.next_ns = now + (kQuestionNs << std::min<uint32_t>(sampled.samples / kOfCode, 12));
  return true;
}

}  // namespace

void watch_code(ThreadState& state, ThreadLog& log, const void* python_thread) {
  if (state.code_watch == nullptr) {
    if (state.code_watch_asked) return;
    state.code_watch_asked = true;
    for (CodeWatch& watch : watches) {
      if (watch.taken.exchange(true, std::memory_order_acquire)) continue;
      watch.log.store(&log, std::memory_order_relaxed);
      state.code_watch = &watch;
      break;
    }
    if (state.code_watch == nullptr) return;
    state.code_watch->python_thread.store(python_thread, std::memory_order_relaxed);
    rouse_drain_thread();
  }
  if (state.code_watch->python_thread.load(std::memory_order_relaxed) != python_thread)
    state.code_watch->python_thread.store(python_thread, std::memory_order_relaxed);
}

void unwatch_code(ThreadState& state) {
  CodeWatch* const watch = state.code_watch;
  state.code_watch = nullptr;
  state.code_watch_asked = false;
  if (watch == nullptr) return;
  watch->since_ns.store(0, std::memory_order_relaxed);
  watch->python_thread.store(nullptr, std::memory_order_relaxed);
  watch->log.store(nullptr, std::memory_order_relaxed);
  watch->taken.store(false, std::memory_order_release);
}

void abandon_code_watches() {
  for (CodeWatch& watch : watches) {
    watch.since_ns.store(0);
    watch.python_thread.store(nullptr);
    watch.log.store(nullptr);
    watch.taken.store(false);
  }
  for (CachedShape& text : sampler.texts) text = {};  // ids of the parent's spool
  for (Sampled& sampled : sampler.of) sampled = {};
  sampler.window_ns = 0;
}

int64_t sample_code() {
  if (!records_kernels() || !code_memory.works()) {
    sampler.window_ns = 0;
    return kNoCodeWatched;
  }
  const int64_t now = now_ns();
  if (sampler.window_ns == 0) {
    sampler.window_ns = now;
    sampler.samples = sampler.in_vain = 0;
  }
  bool watched_any = false, long_code = false;
  for (uint32_t number = 0; number < kCodeWatchesMost; ++number) {
    if (watches[number].python_thread.load(std::memory_order_relaxed) == nullptr) continue;
    watched_any = true;
    long_code |= in_long_code(number, now);
  }
  if (!watched_any) return kNoCodeWatched;
  sampler.in_vain = long_code ? 0 : sampler.in_vain + 1;
  const uint32_t halved = std::min<uint32_t>(sampler.samples / kOfWindow + sampler.in_vain / kInVain, 8);
  const int64_t question_ns = std::min(kQuestionNs << halved, kQuestionMostNs);
  return std::max(question_ns, std::min((kCostShare - 1) * (now_ns() - now), kRestMostNs));
}

}  // namespace llmprof::inject
