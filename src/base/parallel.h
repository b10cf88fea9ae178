// parallel_for on plain threads. The body must not throw.
#pragma once

#include <cstddef>
#include <functional>

namespace llmprof {

// Cores this process may run on (the affinity mask, not the machine), at least 1. LLMPROF_THREADS overrides.
unsigned worker_count();

// Calls body(i) for every i in [0, n), each once, from up to worker_count() threads; returns when all are done.
void parallel_for(size_t n, const std::function<void(size_t)>& body);

// Runs the given jobs side by side and waits for all of them.
void parallel_run(std::initializer_list<std::function<void()>> jobs);

}  // namespace llmprof
