#include "device/cpu/team.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/shared_library.h"

namespace llmprof::device::cpu {

Team::Team(int threads) : threads_(std::max(1, threads)) {
  SharedLibrary library("libgomp.so.1");
  void (*set_threads)(int) = nullptr;
  void (*set_dynamic)(int) = nullptr;
  if (library.load(parallel_, "GOMP_parallel") && library.load(thread_number_, "omp_get_thread_num") &&
      library.load(set_threads, "omp_set_num_threads")) {
    set_threads(threads_);  // what oneDNN asks; of the calling thread
    if (library.load(set_dynamic, "omp_set_dynamic")) set_dynamic(0);
    path_ = SharedLibrary::file_of(parallel_);
  } else {
    parallel_ = nullptr;
  }
  library.keep_open();
}

void Team::run(const std::function<void(int thread)>& body) const {
  if (threads_ == 1) return body(0);
  if (parallel_ == nullptr) {
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads_; ++thread) others.emplace_back([&body, thread] { body(thread); });
    body(0);
    for (std::thread& other : others) other.join();
    return;
  }
  struct Call {
    const std::function<void(int)>* body;
    int (*thread_number)();
    int threads;
    std::atomic<int> arrived{0};
  } call{&body, thread_number_, threads_, {}};
  parallel_(
      [](void* data) {
        Call& of = *static_cast<Call*>(data);
        of.arrived.fetch_add(1, std::memory_order_relaxed);
        (*of.body)(of.thread_number());
      },
      &call, static_cast<unsigned>(threads_), 0);
  // libgomp gives fewer threads where a limit (OMP_THREAD_LIMIT) stands: the shares left over are done here.
  for (int thread = call.arrived.load(); thread < threads_; ++thread) body(thread);
}

}  // namespace llmprof::device::cpu
