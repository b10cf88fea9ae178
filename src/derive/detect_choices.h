// The launches of one device in the order of the host, and which of them choose a token: what steps are detected from
// (detect.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

constexpr size_t kTrailingMax = 64;  // launches after the last token choice that still belong to the step

// Those of the main thread, with what is known of each.
struct Sequence {
  const Trace& trace;
  const HostCalls& calls;
  ThreadId thread;
  std::span<const GpuOpId> gpu;
  std::span<const int64_t> time_ns;
  std::vector<uint32_t> heavy_before;  // GEMMs and attention before launch i; one longer than gpu
  std::vector<uint8_t> samples;        // 1: part of choosing the next token

  size_t size() const { return gpu.size(); }
  Category category(size_t i) const { return trace.gpu_links.category[gpu[i]]; }
  bool heavy(size_t i) const { return heavy_before[i + 1] > heavy_before[i]; }
  uint32_t heavy_in(size_t from, size_t to) const { return from < to ? heavy_before[to] - heavy_before[from] : 0; }
  size_t at_or_after(int64_t time) const {
    return static_cast<size_t>(std::lower_bound(time_ns.begin(), time_ns.end(), time) - time_ns.begin());
  }
};

// `gpu` and `time_ns`: what the thread launched, in order, and when; they must outlive it. `samplings`: operators that
// choose tokens. Where there are none, kernels do that rules know; behind an output layer where a library computes one,
// or as it is done there.
Sequence make_sequence(const Trace& trace, const HostCalls& calls, ThreadId thread, std::span<const GpuOpId> gpu,
                       std::span<const int64_t> time_ns, const std::vector<TokenEvent>& samplings);

}  // namespace llmprof
