#include "capture/inject/cupti/call_targets.h"

#include <atomic>

#include "capture/inject/cupti/attachment.h"
#include "capture/inject/threads/reentry_guard.h"

namespace llmprof::inject {
namespace {

// What the threads' caches were filled under; never 0.
std::atomic<uint32_t> streams_known{1};

// Handles with a meaning of their own: CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
constexpr uintptr_t kLegacyStream = 1, kPerThreadStream = 2;

Id define_stream(void* context, void* handle, bool per_thread) {
  const nvidia::CuptiLibrary* const api = loaded_cupti();
  if (api == nullptr || context == nullptr || api->cuptiGetStreamIdEx == nullptr || api->cuptiGetContextId == nullptr ||
      api->cuptiGetDeviceId == nullptr)
    return 0;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  uint32_t stream = 0, context_id = 0, device = 0;
  // With the context, so that a stream of another one (another GPU's) is refused rather than taken for one of this.
  if (api->cuptiGetStreamIdEx(context, handle, per_thread ? 1 : 0, &stream) != cupti::kSuccess ||
      api->cuptiGetContextId(context, &context_id) != cupti::kSuccess ||
      api->cuptiGetDeviceId(context, &device) != cupti::kSuccess)
    return 0;
  SpoolAccess access;
  return access.writer() == nullptr ? 0 : stream_id(*access.writer(), device, context_id, stream);
}

Id stream_of(void* handle, bool per_thread, const cupti::CallbackData& data, ThreadLog& log) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(handle);
  if (address > kPerThreadStream) per_thread = false;
  if (address == kPerThreadStream) per_thread = true;
  if (address == kLegacyStream) per_thread = false;
  if (address <= kPerThreadStream) handle = nullptr;
  const uint32_t known = streams_known.load(std::memory_order_relaxed);
  const uintptr_t key = reinterpret_cast<uintptr_t>(handle) | (per_thread ? kPerThreadStream : 0);
  // Handles are addresses, so that two streams may have one place whatever the hash: the next few are looked at as
  // well.
  constexpr size_t kPlaces = 4;
  const size_t first = (key * 0x9E3779B97F4A7C15ULL >> 32) % kStreamCacheSize;
  CachedStream* free = nullptr;
  for (size_t i = 0; i < kPlaces; ++i) {
    CachedStream& cached = log.streams[(first + i) % kStreamCacheSize];
    if (cached.known != known) {
      if (free == nullptr) free = &cached;
    } else if (cached.key == key && cached.context == data.context) {
      return cached.id;
    }
  }
  CachedStream& cached = free != nullptr ? *free : log.streams[first];
  cached = {key, data.context, known, define_stream(data.context, handle, per_thread)};
  return cached.id;
}

template <class Arguments>
const Arguments& arguments_in(const cupti::CallbackData& data) {
  return *static_cast<const Arguments*>(data.parameters);
}

uint64_t number_of(const void* event) { return reinterpret_cast<uintptr_t>(event); }

}  // namespace

CallArguments arguments_of(std::string_view plain_name) {
  const auto is = [&](std::string_view call) {
    return plain_name.size() > call.size() && plain_name.substr(0, 2) == "cu" &&
           (plain_name.substr(2) == call || (plain_name.substr(0, 4) == "cuda" && plain_name.substr(4) == call));
  };
  if (is("EventRecord") || is("EventRecordWithFlags")) return CallArguments::kRecord;
  if (is("StreamWaitEvent")) return CallArguments::kWaitEvent;
  if (is("StreamSynchronize")) return CallArguments::kStream;
  if (is("EventSynchronize")) return CallArguments::kEvent;
  if (is("GraphLaunch")) return CallArguments::kGraphLaunch;
  return CallArguments::kOthers;
}

CallTarget target_of(CallArguments arguments, bool per_thread, const cupti::CallbackData& data, ThreadLog& log) {
  CallTarget target;
  if (data.parameters == nullptr) return target;
  const auto stream = [&](void* handle) { return stream_of(handle, per_thread, data, log); };
  switch (arguments) {
    case CallArguments::kOthers:
      break;
    case CallArguments::kRecord:
      target = {stream(arguments_in<cupti::EventRecordArguments>(data).stream),
                number_of(arguments_in<cupti::EventRecordArguments>(data).event)};
      break;
    case CallArguments::kWaitEvent:
      target = {stream(arguments_in<cupti::StreamWaitEventArguments>(data).stream),
                number_of(arguments_in<cupti::StreamWaitEventArguments>(data).event)};
      break;
    case CallArguments::kStream:
      target.stream = stream(arguments_in<cupti::StreamSynchronizeArguments>(data).stream);
      break;
    case CallArguments::kEvent:
      target.event = number_of(arguments_in<cupti::EventSynchronizeArguments>(data).event);
      break;
    case CallArguments::kGraphLaunch:
      target.stream = stream(arguments_in<cupti::GraphLaunchArguments>(data).stream);
      break;
  }
  return target;
}

uint64_t event_of(CallArguments arguments, const cupti::CallbackData& data) {
  if (data.parameters == nullptr) return 0;
  if (arguments == CallArguments::kRecord) return number_of(arguments_in<cupti::EventRecordArguments>(data).event);
  if (arguments == CallArguments::kEvent) return number_of(arguments_in<cupti::EventSynchronizeArguments>(data).event);
  return 0;
}

Id stream_id(spool::Writer& writer, uint32_t device, uint32_t context, uint32_t stream) {
  spool::StreamDef def;
  def.device = static_cast<int32_t>(device);
  def.context = context;
  def.stream = stream;
  return writer.define(def);
}

void forget_streams() {
  // Never 0, the mark of an empty place.
  if (streams_known.fetch_add(1, std::memory_order_relaxed) == UINT32_MAX)
    streams_known.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace llmprof::inject
