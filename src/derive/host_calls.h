// What CUDA API calls do to the host thread, judged once per distinct name, and the calls that wait for the GPU.
#pragma once

#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

enum class ApiKind : uint8_t {
  kOther,
  kLaunch,       // kernel launch
  kGraphLaunch,  // CUDA graph launch
  kEnqueue,      // asynchronous copy or memset: queued like a kernel
  kCopy,         // copy that blocks the host
  kSync,         // waits for the GPU
  kAllocator     // cudaMalloc, cudaFree, cudaHostAlloc, cuMemCreate, ...
};

ApiKind api_kind_of(std::string_view name);

// A call that returns only when the GPU has finished earlier work.
struct BlockingCall {
  int64_t start_ns;
  int64_t end_ns;
  ApiCallId api;
};

class HostCalls {
 public:
  explicit HostCalls(const Trace& trace);

  // Copies between device and pageable host memory are kCopy although they are called asynchronous.
  ApiKind kind(ApiCallId api) const { return kinds_[api]; }
  // Blocking calls of one thread, by start.
  const std::vector<BlockingCall>& blocking(ThreadId thread) const;
  // First blocking call of the thread with start in [from, to); nullptr if none.
  const BlockingCall* first_blocking(ThreadId thread, int64_t from, int64_t to) const;
  // Last blocking call of the thread that ended at or before `time`; nullptr if none.
  const BlockingCall* last_blocking_before(ThreadId thread, int64_t time) const;

 private:
  std::vector<ApiKind> kinds_;  // by row of api_calls
  std::vector<std::vector<BlockingCall>> blocking_;
  std::vector<BlockingCall> none_;
};

}  // namespace llmprof
