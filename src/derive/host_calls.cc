#include "derive/host_calls.h"

#include <algorithm>
#include <array>

namespace llmprof {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

constexpr std::array<std::string_view, 12> kAllocatorParts{"Malloc",     "Free",         "MemAlloc",   "HostAlloc",
                                                           "MemCreate",  "MemMap",       "MemUnmap",   "MemRelease",
                                                           "MemAddress", "MemSetAccess", "MemGetInfo", "HostRegister"};

constexpr uint8_t kNotJudged = 0xFF;
constexpr size_t kNestedMax = 16;  // calls of one thread open at one time: a driver call in a runtime call, not more

// Marks the calls whose copy touches pageable host memory: the driver stages it, and the host waits meanwhile. Copies
// back to the host wait for the GPU as well; those are returned.
std::vector<Row> mark_pageable(const Trace& trace, std::vector<ApiKind>& kinds) {
  std::vector<Row> waits;
  const size_t count = std::min(trace.gpu_ops.size(), trace.gpu_links.size());
  for (size_t i = 0; i < count; ++i) {
    if (trace.gpu_ops.kind[i] != GpuOpKind::kMemcpy || trace.gpu_ops.host_memory[i] != HostMemory::kPageable) continue;
    const ApiCallId api = trace.gpu_links.api[i];
    if (api == kNoRow) continue;
    kinds[api] = ApiKind::kCopy;
    if (trace.gpu_ops.path[i] == CopyPath::kDeviceToHost) waits.push_back(api);
  }
  return waits;
}

}  // namespace

ApiKind api_kind_of(std::string_view name) {
  if (has(name, "GraphLaunch")) return ApiKind::kGraphLaunch;
  if (has(name, "Launch")) return ApiKind::kLaunch;
  if (has(name, "Synchronize")) return ApiKind::kSync;
  if (has(name, "Memcpy")) return has(name, "Async") ? ApiKind::kEnqueue : ApiKind::kCopy;
  if (has(name, "Memset")) return ApiKind::kEnqueue;
  for (const std::string_view part : kAllocatorParts) {
    if (has(name, part)) return ApiKind::kAllocator;
  }
  return ApiKind::kOther;
}

HostCalls::HostCalls(const Trace& trace) : kinds_(trace.api_calls.size()), blocking_(trace.threads.size()) {
  std::vector<uint8_t> judged(trace.strings.size(), kNotJudged);
  std::vector<Row> waits;
  for (Row i = 0; i < trace.api_calls.size(); ++i) {
    uint8_t& verdict = judged[index(trace.api_calls.name[i])];
    if (verdict == kNotJudged) verdict = static_cast<uint8_t>(api_kind_of(trace.text(trace.api_calls.name[i])));
    kinds_[i] = static_cast<ApiKind>(verdict);
    if (kinds_[i] == ApiKind::kSync || kinds_[i] == ApiKind::kCopy) waits.push_back(i);
  }
  const std::vector<Row> copies = mark_pageable(trace, kinds_);
  if (!copies.empty()) {
    waits.insert(waits.end(), copies.begin(), copies.end());
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  }
  for (const ApiCallId api : waits) {
    const ThreadId thread = trace.api_calls.thread[api];
    const int64_t start = trace.api_calls.start_ns[api];
    if (thread < blocking_.size()) {
      blocking_[thread].push_back({start, start + trace.api_calls.dur_ns[api], api});
    }
  }
}

const std::vector<BlockingCall>& HostCalls::blocking(ThreadId thread) const {
  return thread < blocking_.size() ? blocking_[thread] : none_;
}

const BlockingCall* HostCalls::first_blocking(ThreadId thread, int64_t from, int64_t to) const {
  const std::vector<BlockingCall>& calls = blocking(thread);
  const std::vector<BlockingCall>::const_iterator it = std::lower_bound(
      calls.begin(), calls.end(), from, [](const BlockingCall& call, int64_t time) { return call.start_ns < time; });
  return it != calls.end() && it->start_ns < to ? &*it : nullptr;
}

const BlockingCall* HostCalls::last_blocking_before(ThreadId thread, int64_t time) const {
  const std::vector<BlockingCall>& calls = blocking(thread);
  std::vector<BlockingCall>::const_iterator it = std::upper_bound(
      calls.begin(), calls.end(), time, [](int64_t t, const BlockingCall& call) { return t < call.start_ns; });
  for (size_t tries = 0; it != calls.begin() && tries < kNestedMax; ++tries) {
    --it;
    if (it->end_ns <= time) return &*it;
  }
  return nullptr;
}

}  // namespace llmprof
