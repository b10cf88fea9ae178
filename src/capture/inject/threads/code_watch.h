// Where a thread is in its Python program while it calls no CUDA for long. At the call that ends such code the function
// that did it has returned, so the drain thread reads the thread's frames meanwhile, without its knowing and without
// the interpreter's lock (python/python_stack.h): each 200 us, later each millisecond, from 100 us after the last call
// on. The watched thread only says when its calls end, in one store to a line of the cache that is its own.
//
// Bounds: 16 threads; while kernels are recorded only; some forty samples of one second of code, and a thousand a
// second behind the first 150 of a window; reading takes a twentieth of the drain thread's time at most.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

constexpr uint32_t kCodeWatchesMost = 16;

// A thread that is watched. Static memory: whoever reads it needs no lock.
struct alignas(64) CodeWatch {
  std::atomic<bool> taken{false};
  std::atomic<int64_t> since_ns{0};                 // end of the thread's last CUDA call; 0 while it is in one
  std::atomic<const void*> python_thread{nullptr};  // its PyThreadState
  std::atomic<ThreadLog*> log{nullptr};             // looked into with the spool locked only
};

// The calling thread is in CUDA from here on, or was until `end_ns`.
inline void code_ends(const ThreadState& state) {
  if (state.code_watch != nullptr) state.code_watch->since_ns.store(0, std::memory_order_relaxed);
}
inline void code_begins(const ThreadState& state, int64_t end_ns) {
  if (state.code_watch != nullptr) state.code_watch->since_ns.store(end_ns, std::memory_order_relaxed);
}

// The calling thread runs Python as `python_thread`.
void watch_code(ThreadState& state, ThreadLog& log, const void* python_thread);
// It ends: before its log is given up.
void unwatch_code(ThreadState& state);
// After fork, in the child.
void abandon_code_watches();

// Called by the drain thread alone, without the spool's lock: reads frames where it is time to. Returns after how many
// nanoseconds it wants to be called again.
constexpr int64_t kNoCodeWatched = std::numeric_limits<int64_t>::max();
int64_t sample_code();

}  // namespace llmprof::inject
