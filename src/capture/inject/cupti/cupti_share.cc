#include "capture/inject/cupti/cupti_share.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "capture/inject/cupti/api_calls.h"
#include "capture/inject/cupti/attachment.h"
#include "capture/inject/cupti/buffers.h"
#include "capture/inject/cupti/client_clock.h"
#include "capture/inject/cupti/decode.h"
#include "capture/inject/export.h"
#include "capture/inject/locked.h"
#include "capture/inject/real_symbol.h"

namespace llmprof::inject {
namespace {

constexpr uint32_t kDomains = 8;
constexpr uint32_t kCallbacks = 2048;
constexpr size_t kForeignBuffers = 1024;

// What the second client asked for.
struct Client {
  cupti::CallbackFunction callback = nullptr;
  void* user = nullptr;
  uint64_t wants[kDomains][kCallbacks / 64] = {};
  cupti::BufferRequest request = nullptr;
  cupti::BufferComplete complete = nullptr;
  uint64_t kinds = 0;  // activity kinds it has on, by bit
};

pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;
Client client;
uint8_t* foreign_buffers[kForeignBuffers];  // handed out by the client; null where free
uint8_t* spare = nullptr;                   // one of the client's that CUPTI does not have
size_t spare_size = 0;
std::atomic<bool> client_records{false};
std::atomic<int64_t> client_stopped_ns{0};  // 0: it never recorded, or still does
// So long a client that has stopped is given to fetch its records by a flush of its own.
constexpr int64_t kFetchesWithinNs = 10'000'000'000;

// The handle that a second subscriber gets.
cupti::Subscriber branch() { return &client; }

void tell_who(const void* caller, const char* what) {
  Dl_info info{};
  const char* library = dladdr(caller, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "an unknown library";
  const bool torch = std::strstr(library, "libtorch") != nullptr;
  char text[768];
  std::snprintf(text, sizeof text, "%s (%s) %s in process %lld; CUPTI was shared with it", library,
                torch ? "torch.profiler" : "another profiler", what, static_cast<long long>(thread_id()));
  note("second-cupti-user", text);
}

bool wants(uint32_t domain, uint32_t cbid) {
  return domain < kDomains && cbid < kCallbacks && (client.wants[domain][cbid / 64] >> (cbid % 64) & 1) != 0;
}

void set_wants(uint32_t domain, uint32_t cbid, bool on) {
  if (domain >= kDomains || cbid >= kCallbacks) return;
  const uint64_t bit = uint64_t{1} << (cbid % 64);
  if (on)
    client.wants[domain][cbid / 64] |= bit;
  else
    client.wants[domain][cbid / 64] &= ~bit;
}

bool ours(uint32_t domain, uint32_t cbid) {
  return wants_call(domain, cbid) || (domain == cupti::kDomainResource && wants_resource(cbid));
}

bool holds_buffers() {
  const Locked locked(share_lock);
  if (spare != nullptr) return true;
  for (const uint8_t* slot : foreign_buffers)
    if (slot != nullptr) return true;
  return false;
}

// torch.profiler looks for records only if it has handed out a buffer. So it is asked for one when it stops and CUPTI
// has none, and gets it back when it flushes.
void take_spare() {
  cupti::BufferRequest request = nullptr;
  {
    const Locked locked(share_lock);
    if (spare == nullptr) request = client.request;
  }
  if (request == nullptr) return;
  uint8_t* buffer = nullptr;
  size_t size = 0, max_records = 0;
  request(&buffer, &size, &max_records);
  const Locked locked(share_lock);
  spare = buffer;
  spare_size = size;
}

void return_spare() {
  cupti::BufferComplete complete = nullptr;
  uint8_t* buffer = nullptr;
  {
    const Locked locked(share_lock);
    complete = client.complete;
    std::swap(buffer, spare);
  }
  if (buffer != nullptr && complete != nullptr) complete(nullptr, 0, buffer, spare_size, 0);
}

// A buffer of ours that CUPTI was still filling when the client began holds the first of its records (those from
// before are not in the time it asks for).
void copy_to_client(void* context, uint32_t stream, const uint8_t* buffer, size_t valid_size) {
  cupti::BufferRequest request = nullptr;
  cupti::BufferComplete complete = nullptr;
  {
    const Locked locked(share_lock);
    request = client.request;
    complete = client.complete;
  }
  if (request == nullptr || complete == nullptr || valid_size == 0) return;
  uint8_t* copy = nullptr;
  size_t size = 0, max_records = 0;
  request(&copy, &size, &max_records);
  if (copy == nullptr) return;
  const size_t copied = size < valid_size ? 0 : valid_size;
  std::memcpy(copy, buffer, copied);
  stamp_for_client(*loaded_cupti(), copy, copied);
  complete(context, stream, copy, size, copied);
}

}  // namespace

void shared_buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  if (client_records.load(std::memory_order_acquire)) {
    cupti::BufferRequest request = nullptr;
    {
      const Locked locked(share_lock);
      request = client.request;
    }
    if (request != nullptr) {
      request(buffer, size, max_records);
      if (*buffer == nullptr) return;
      // CUPTI was told that buffers come zeroed, which is true of ours.
      std::memset(*buffer, 0, *size);
      const Locked locked(share_lock);
      for (uint8_t*& slot : foreign_buffers) {
        if (slot != nullptr) continue;
        slot = *buffer;
        return;
      }
      return;
    }
  }
  buffer_requested(buffer, size, max_records);
}

void shared_buffer_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size) {
  cupti::BufferComplete complete = nullptr;
  {
    const Locked locked(share_lock);
    for (uint8_t*& slot : foreign_buffers) {
      if (slot == nullptr || slot != buffer) continue;
      slot = nullptr;
      complete = client.complete;
      break;
    }
  }
  if (complete == nullptr) {
    if (other_client_active() && buffer != nullptr) copy_to_client(context, stream, buffer, valid_size);
    return buffer_completed(context, stream, buffer, size, valid_size);
  }
  if (buffer != nullptr) {
    decode_buffer(buffer, valid_size);
    stamp_for_client(*loaded_cupti(), buffer, valid_size);
  }
  complete(context, stream, buffer, size, valid_size);
}

void forward_to_client(uint32_t domain, uint32_t cbid, const void* data) {
  cupti::CallbackFunction callback = nullptr;
  void* user = nullptr;
  {
    const Locked locked(share_lock);
    if (!wants(domain, cbid)) return;
    callback = client.callback;
    user = client.user;
  }
  if (callback != nullptr) callback(user, domain, cbid, data);
}

bool other_client_active() {
  if (client_records.load(std::memory_order_acquire)) return true;
  const int64_t stopped_ns = client_stopped_ns.load(std::memory_order_acquire);
  if (stopped_ns == 0) return false;
  if (now_ns() - stopped_ns < kFetchesWithinNs && holds_buffers()) return true;
  client_stopped_ns.store(0, std::memory_order_release);
  return false;
}

}  // namespace llmprof::inject

// ---- hooks ---------------------------------------------------------------------------------------------------------

using namespace llmprof::inject;  // NOLINT: the hooks below are C functions at global scope
namespace cupti = llmprof::cupti;

#define LLMPROF_REAL(name, signature)                           \
  static RealSymbol symbol(#name, "libcupti.so");               \
  std::add_pointer_t<signature> real = symbol.get<signature>(); \
  if (real == nullptr) return 15; /* CUPTI_ERROR_NOT_INITIALIZED: no libcupti */

extern "C" {

LLMPROF_EXPORT cupti::Result cuptiSubscribe(cupti::Subscriber* handle, cupti::CallbackFunction callback, void* user) {
  LLMPROF_REAL(cuptiSubscribe, cupti::Result(cupti::Subscriber*, cupti::CallbackFunction, void*))
  if (!has_activities() || handle == nullptr) return real(handle, callback, user);
  keep_attached();
  {
    const Locked locked(share_lock);
    if (client.callback != nullptr) return cupti::kErrorMultipleSubscribers;
    client.callback = callback;
    client.user = user;
    *handle = branch();
  }
  switches.client_callbacks.store(true, std::memory_order_release);
  tell_who(reinterpret_cast<const void*>(callback), "subscribed to CUPTI");
  return cupti::kSuccess;
}

LLMPROF_EXPORT cupti::Result cuptiUnsubscribe(cupti::Subscriber handle) {
  LLMPROF_REAL(cuptiUnsubscribe, cupti::Result(cupti::Subscriber))
  if (handle != branch()) return real(handle);
  switches.client_callbacks.store(false, std::memory_order_release);
  const Locked locked(share_lock);
  client.callback = nullptr;
  std::memset(client.wants, 0, sizeof client.wants);
  return cupti::kSuccess;
}

LLMPROF_EXPORT cupti::Result cuptiEnableCallback(uint32_t enable, cupti::Subscriber handle, uint32_t domain,
                                                 uint32_t cbid) {
  LLMPROF_REAL(cuptiEnableCallback, cupti::Result(uint32_t, cupti::Subscriber, uint32_t, uint32_t))
  if (handle != branch()) return real(enable, handle, domain, cbid);
  {
    const Locked locked(share_lock);
    set_wants(domain, cbid, enable != 0);
  }
  if (enable == 0 && ours(domain, cbid)) return cupti::kSuccess;
  return real(enable, own_subscriber(), domain, cbid);
}

LLMPROF_EXPORT cupti::Result cuptiEnableDomain(uint32_t enable, cupti::Subscriber handle, uint32_t domain) {
  LLMPROF_REAL(cuptiEnableDomain, cupti::Result(uint32_t, cupti::Subscriber, uint32_t))
  if (handle != branch()) return real(enable, handle, domain);
  {
    const Locked locked(share_lock);
    for (uint32_t cbid = 0; cbid < kCallbacks; ++cbid) set_wants(domain, cbid, enable != 0);
  }
  const cupti::Result result = real(enable, own_subscriber(), domain);
  const llmprof::nvidia::CuptiLibrary* api = loaded_cupti();
  if (enable == 0 && domain == cupti::kDomainResource && api != nullptr)
    for (const uint32_t cbid : kResourceCallbacks) api->cuptiEnableCallback(1, own_subscriber(), domain, cbid);
  if (enable == 0 && (domain == cupti::kDomainRuntime || domain == cupti::kDomainDriver)) enable_own_calls();
  return result;
}

LLMPROF_EXPORT cupti::Result cuptiActivityRegisterCallbacks(cupti::BufferRequest request,
                                                            cupti::BufferComplete complete) {
  LLMPROF_REAL(cuptiActivityRegisterCallbacks, cupti::Result(cupti::BufferRequest, cupti::BufferComplete))
  if (!has_activities()) return real(request, complete);
  keep_attached();
  {
    const Locked locked(share_lock);
    client.request = request;
    client.complete = complete;
  }
  tell_who(reinterpret_cast<const void*>(complete), "records activities through CUPTI");
  return cupti::kSuccess;
}

LLMPROF_EXPORT cupti::Result cuptiActivityEnable(uint32_t kind) {
  LLMPROF_REAL(cuptiActivityEnable, cupti::Result(uint32_t))
  if (!has_activities()) return real(kind);
  keep_attached();
  bool first_kind = false;
  {
    const Locked locked(share_lock);
    if (kind < 64) client.kinds |= uint64_t{1} << kind;
    first_kind = client.request != nullptr && !client_records.load(std::memory_order_relaxed);
  }
  if (first_kind) {
    // What is full so far is ours alone. A buffer that CUPTI keeps because something in it still runs is copied later.
    loaded_cupti()->cuptiActivityFlushAll(0);
    client_stopped_ns.store(0, std::memory_order_release);
    client_records.store(true, std::memory_order_release);
  }
  return real(kind);
}

LLMPROF_EXPORT cupti::Result cuptiActivityDisable(uint32_t kind) {
  LLMPROF_REAL(cuptiActivityDisable, cupti::Result(uint32_t))
  if (!has_activities()) return real(kind);
  bool last = false;
  {
    const Locked locked(share_lock);
    if (kind < 64) client.kinds &= ~(uint64_t{1} << kind);
    last = client.kinds == 0;
  }
  const bool wanted = wants_kind(kind);
  const cupti::Result result = wanted ? cupti::kSuccess : real(kind);
  // They may have been ours still, on until CUPTI would have left.
  if (!wanted && kind == cupti::kConcurrentKernel) attachment.records_on.store(false, std::memory_order_relaxed);
  if (last && client_records.load(std::memory_order_relaxed)) {
    // No flush: torch.profiler looks for records only while CUPTI still holds a buffer of its own.
    client_stopped_ns.store(now_ns(), std::memory_order_release);
    client_records.store(false, std::memory_order_release);
    if (!holds_buffers()) take_spare();
  }
  return result;
}

LLMPROF_EXPORT cupti::Result cuptiActivityFlushAll(uint32_t forced) {
  LLMPROF_REAL(cuptiActivityFlushAll, cupti::Result(uint32_t))
  const cupti::Result result = real(forced);
  if (has_activities()) return_spare();
  return result;
}

LLMPROF_EXPORT cupti::Result cuptiActivityRegisterTimestampCallback(cupti::TimestampFunction clock) {
  LLMPROF_REAL(cuptiActivityRegisterTimestampCallback, cupti::Result(cupti::TimestampFunction))
  if (clock == nullptr) return real(clock);
  if (has_activities()) {
    keep_attached();
    set_client_clock(clock);
    return cupti::kSuccess;
  }
  const cupti::Result result = real(clock);
  if (result == cupti::kSuccess) clock_given_to_cupti(clock);
  return result;
}

LLMPROF_EXPORT cupti::Result cuptiGetTimestamp(uint64_t* time) {
  LLMPROF_REAL(cuptiGetTimestamp, cupti::Result(uint64_t*))
  const cupti::TimestampFunction clock = client_clock();
  if (clock == nullptr || time == nullptr) return real(time);
  *time = clock();
  return cupti::kSuccess;
}

// A client that tears CUPTI down would take ours along.
LLMPROF_EXPORT cupti::Result cuptiFinalize() {
  LLMPROF_REAL(cuptiFinalize, cupti::Result())
  if (!has_activities()) return real();
  note("recorder-note", "cuptiFinalize by another CUPTI client was held back");
  return cupti::kSuccess;
}

}  // extern "C"
