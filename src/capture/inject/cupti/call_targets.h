// Which stream and event a CUDA call names, from the arguments that CUPTI's callback hands over. A stream's handle
// becomes the ids that activities carry, once per thread and handle; handles are used again after a stream is
// destroyed, so what is known of them is forgotten at each destruction, and at each attaching of CUPTI, which may have
// missed some.
#pragma once

#include <cstdint>
#include <string_view>

#include "capture/inject/threads/thread_events.h"
#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// What stands where among a call's arguments.
enum class CallArguments : uint8_t {
  kOthers,      // nothing that is looked at
  kRecord,      // EventRecord
  kWaitEvent,   // StreamWaitEvent
  kStream,      // StreamSynchronize
  kEvent,       // EventSynchronize
  kGraphLaunch  // GraphLaunch
};
// By the name of the call without its version's suffix.
CallArguments arguments_of(std::string_view plain_name);

struct CallTarget {
  Id stream = 0;  // 0: none, or it has no id
  uint64_t event = 0;
};
// On the program's thread, inside the callback. `per_thread`: stream 0 is the thread's own (a call with suffix _ptsz).
CallTarget target_of(CallArguments arguments, bool per_thread, const cupti::CallbackData& data, ThreadLog& log);

// The event of EventRecord and EventSynchronize; 0 where it is not known.
uint64_t event_of(CallArguments arguments, const cupti::CallbackData& data);

// The definition of a stream by CUPTI's ids of it, in records and here alike.
Id stream_id(spool::Writer& writer, uint32_t device, uint32_t context, uint32_t stream);

// Handles of streams may mean others from here on.
void forget_streams();

}  // namespace llmprof::inject
