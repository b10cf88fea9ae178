// A second CUPTI client inside the process (torch.profiler above all). CUPTI serves one client per process; whoever
// comes second gets an error or silently takes over the first one's buffers. The injection library is preloaded, so the
// second client's calls come by here first: its subscription is a branch of ours, its buffers are read on their way to
// it, and what it switches off stays on while we need it (its clock: client_clock.h). Both get their records, and the
// report says who else was there.
//
// Clients that look CUPTI up in a handle of their own (Triton's Proton) do not come by here; they get CUPTI's error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/inject/inject.h"

namespace llmprof::inject {

// The callbacks that are registered with CUPTI: they pass on to the second client while it is recording.
void shared_buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records);
void shared_buffer_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size);

// Hands a callback to the second client if it asked for it.
void forward_to_client(uint32_t domain, uint32_t cbid, const void* data);
inline void forward_callback(uint32_t domain, uint32_t cbid, const void* data) {
  if (switches.client_callbacks.load(std::memory_order_acquire)) forward_to_client(domain, cbid, data);
}

// True while the second client has activity kinds switched on, and after that until it has fetched its buffers (for ten
// seconds at most): it flushes then, not we. What is recorded meanwhile reaches the disk when it does.
bool other_client_active();

}  // namespace llmprof::inject
