// Threads of the CPU device: one pool for everything. oneDNN and the OpenMP flavour of OpenBLAS bring libgomp; our own
// kernels run on the very same threads (GOMP_parallel, the entry that GCC compiles `#pragma omp parallel` to), because
// threads of a second pool would compete with libgomp's, which spin for a while after each region. Without libgomp
// plain threads are started for each call.
#pragma once

#include <functional>
#include <string>

namespace llmprof::device::cpu {

class Team {
 public:
  // At least 1 thread. libgomp, if it is there, stays open until the process ends: its threads do.
  explicit Team(int threads);
  int threads() const { return threads_; }
  // Calls body(thread) once for every thread in [0, threads()), side by side; returns when all are done. Not from
  // inside a body.
  void run(const std::function<void(int thread)>& body) const;
  bool has_libgomp() const { return parallel_ != nullptr; }
  const std::string& path() const { return path_; }  // of libgomp; empty: plain threads

 private:
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  int threads_;
  Parallel parallel_ = nullptr;
  int (*thread_number_)() = nullptr;
  std::string path_;
};

}  // namespace llmprof::device::cpu
