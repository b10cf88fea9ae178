// CUPTI with nothing but kernel records, in turns with llmprof's recorder in one process: the floor under what any tool
// of CUPTI costs. benchmarks/recorded_steps.py drives it.
//
// CUPTI has one subscriber a process, and before CUDA 13 the recorder cannot let go of it where CUDA graphs were
// captured. So this library stands between the recorder and libcupti: it has libcupti's functions under a name by which
// the recorder takes it for the copy that is loaded already (CuptiLibrary::open), and hands every call on. It sees when
// CUPTI is attached and taken out, and which callbacks and records are on. While the recorder is stopped it can
//   - do without it: if CUPTI is out, it subscribes itself, switches kernel records on, and takes CUPTI out again at
//     the end of a call that waits;
//   - take its subscription over: switch all callbacks off, and kernel records on into buffers of its own; afterwards
//     everything is as it was.
// The recorder that is measured is the one that ships; a handed-on call costs it a jump.
#include "cupti_alone.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "nvidia/cupti_abi.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace cupti = llmprof::cupti;

namespace {

struct Real {
#define MEMBER(name, signature) std::add_pointer_t<signature> name = nullptr;
  LLMPROF_CUPTI_FUNCTIONS(MEMBER)
  LLMPROF_CUPTI_OPTIONAL_FUNCTIONS(MEMBER)
#undef MEMBER
  bool opened = false;
};

constexpr cupti::Result kNotInitialized = 15, kNotSupported = 27;  // CUptiResult
constexpr uint32_t kDomains = 8, kCallbacks = 2048;
constexpr size_t kBufferBytes = size_t{1} << 20;  // as the recorder's
constexpr size_t kBuffers = 256;

Real real;
char why_not[512];
pthread_once_t open_once = PTHREAD_ONCE_INIT;

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of all below
AloneState state;
cupti::Subscriber recorder_handle = nullptr, own_handle = nullptr;
bool wanted[kDomains][kCallbacks];       // the recorder's callbacks
bool wanted_last[kDomains][kCallbacks];  // when CUPTI was taken out
bool leaving = false;                    // without the lock, between calls of the program
cupti::BufferRequest recorder_request = nullptr;
cupti::BufferComplete recorder_complete = nullptr;
uint8_t* arena = nullptr;
bool taken[kBuffers];

class Locked {
 public:
  Locked() { pthread_mutex_lock(&lock); }
  ~Locked() { pthread_mutex_unlock(&lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

// ---- the real one --------------------------------------------------------------------------------------------------

struct Search {
  const char* self = nullptr;
  char path[512] = {};
};

int note_library(dl_phdr_info* info, size_t, void* user) {
  Search& search = *static_cast<Search*>(user);
  const char* name = info->dlpi_name;
  if (name == nullptr || (search.self != nullptr && std::strcmp(name, search.self) == 0)) return 0;
  const char* slash = std::strrchr(name, '/');
  if (std::strncmp(slash == nullptr ? name : slash + 1, "libcupti.so", 11) == 0)
    std::snprintf(search.path, sizeof search.path, "%s", name);
  return 0;
}

// Only a copy that is loaded, of several the last, as the recorder does. What this library loads itself would come
// after it in the linker's list, and the recorder would take that one.
void open_real() {
  Search search;
  Dl_info own{};
  if (dladdr(reinterpret_cast<void*>(&open_real), &own) != 0) search.self = own.dli_fname;
  dl_iterate_phdr(note_library, &search);
  if (search.path[0] == '\0') {
    std::snprintf(why_not, sizeof why_not, "no libcupti is loaded in this process");
    return;
  }
  void* const library = dlopen(search.path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::snprintf(why_not, sizeof why_not, "%s", dlerror());
    return;
  }
#define LOOK_UP(name, signature) real.name = reinterpret_cast<std::add_pointer_t<signature>>(dlsym(library, #name));
  LLMPROF_CUPTI_FUNCTIONS(LOOK_UP)
  LLMPROF_CUPTI_OPTIONAL_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
#define REQUIRE(name, signature)                                                      \
  if (real.name == nullptr) {                                                         \
    std::snprintf(why_not, sizeof why_not, "%s has no function " #name, search.path); \
    return;                                                                           \
  }
  LLMPROF_CUPTI_FUNCTIONS(REQUIRE)
  REQUIRE(cuptiFinalize, cupti::Result())
#undef REQUIRE
  real.opened = true;
}

bool opened() {
  pthread_once(&open_once, open_real);
  return real.opened;
}

// ---- buffers -------------------------------------------------------------------------------------------------------

bool is_own(const uint8_t* buffer) {
  return arena != nullptr && buffer >= arena && buffer < arena + kBuffers * kBufferBytes;
}

void request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  cupti::BufferRequest recorders = nullptr;
  {
    const Locked locked;
    if (state.place >= kPlaceAlone || state.own_subscription != 0 || recorder_request == nullptr) {
      *buffer = nullptr;
      *size = *max_records = 0;
      for (size_t i = 0; i < kBuffers && arena != nullptr; ++i) {
        if (taken[i]) continue;
        taken[i] = true;
        *buffer = arena + i * kBufferBytes;
        *size = kBufferBytes;
        return;
      }
      ++state.refused_buffers;
      return;
    }
    recorders = recorder_request;
  }
  recorders(buffer, size, max_records);
}

void complete_buffer(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size) {
  if (!is_own(buffer)) {
    cupti::BufferComplete recorders = nullptr;
    {
      const Locked locked;
      recorders = recorder_complete;
    }
    if (recorders != nullptr) recorders(context, stream, buffer, size, valid_size);
    return;
  }
  uint64_t records = 0;
  cupti::Activity* record = nullptr;
  while (real.cuptiActivityGetNextRecord(buffer, valid_size, &record) == cupti::kSuccess) ++records;
  std::memset(buffer, 0,
              valid_size < kBufferBytes ? valid_size : kBufferBytes);  // CUPTI was told that they come zeroed
  const Locked locked;
  state.records += records;
  taken[static_cast<size_t>(buffer - arena) / kBufferBytes] = false;
}

// ---- switching -----------------------------------------------------------------------------------------------------

constexpr cupti::ActivityKind kCopyKinds[] = {cupti::kMemcpy, cupti::kMemcpy2, cupti::kMemset, cupti::kOverhead};

// At the end of a call that waits, where CUPTI may be taken out.
void leave_at_end(void*, uint32_t, uint32_t, const void* data) {
  if (!leaving || static_cast<const cupti::CallbackData*>(data)->site != cupti::kApiExit) return;
  llmprof_alone_finalize();
}

// Never with the lock held: CUPTI may be about to hand a buffer over on another thread.
cupti::Result set_recorder_callbacks(bool on) {
  cupti::Result worst = cupti::kSuccess;
  for (uint32_t domain = 0; domain < kDomains; ++domain)
    for (uint32_t cbid = 0; cbid < kCallbacks; ++cbid) {
      if (!wanted[domain][cbid]) continue;
      const cupti::Result result = real.cuptiEnableCallback(on ? 1 : 0, recorder_handle, domain, cbid);
      if (result != cupti::kSuccess) worst = result;
    }
  return worst;
}

cupti::Result subscribe_alone() {
  cupti::Subscriber handle = nullptr;
  const cupti::Result result = real.cuptiSubscribe(&handle, leave_at_end, nullptr);
  if (result != cupti::kSuccess) return result;
  {
    const Locked locked;
    own_handle = handle;
    state.own_subscription = 1;
    leaving = false;
  }
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed;
  real.cuptiActivitySetAttribute(cupti::kAttributeZeroedOutBuffer, &size, &zeroed);
  return real.cuptiActivityRegisterCallbacks(request_buffer, complete_buffer);
}

// The recorder's callbacks, of launches alone or all of them. CUPTI is in the process by the own subscription.
cupti::Result set_callbacks(bool launches_alone) {
  cupti::Result worst = cupti::kSuccess;
  for (const uint32_t domain : {uint32_t{cupti::kDomainRuntime}, uint32_t{cupti::kDomainDriver}})
    for (uint32_t cbid = 0; cbid < kCallbacks; ++cbid) {
      const char* name = nullptr;
      if (!wanted_last[domain][cbid] || real.cuptiGetCallbackName(domain, cbid, &name) != cupti::kSuccess) continue;
      if (launches_alone && (domain != cupti::kDomainDriver || std::strstr(name, "Launch") == nullptr)) continue;
      const cupti::Result result = real.cuptiEnableCallback(1, own_handle, domain, cbid);
      if (result != cupti::kSuccess) worst = result;
    }
  return worst;
}

cupti::Result set_records(int place, bool on) {
  const auto set = on ? real.cuptiActivityEnable : real.cuptiActivityDisable;
  const cupti::Result result = set(cupti::kConcurrentKernel);
  for (const cupti::ActivityKind kind : kCopyKinds)
    if (place >= kPlaceCopies) set(kind);  // old versions refuse kMemcpy2 beside kMemcpy
  return result;
}

// The next call of the runtime that waits takes CUPTI out.
cupti::Result leave_soon() {
  leaving = true;
  uint32_t found = 0;
  for (uint32_t cbid = 1; cbid < kCallbacks; ++cbid) {
    const char* name = nullptr;
    if (real.cuptiGetCallbackName(cupti::kDomainRuntime, cbid, &name) != cupti::kSuccess || name == nullptr) continue;
    if (std::strstr(name, "Synchronize") == nullptr) continue;
    found += real.cuptiEnableCallback(1, own_handle, cupti::kDomainRuntime, cbid) == cupti::kSuccess;
  }
  return found != 0 ? cupti::kSuccess : kNotSupported;
}

void set_place(int place) {
  const Locked locked;
  state.place = static_cast<uint64_t>(place);
}

cupti::Result back_to_recorder(const AloneState& before) {
  if (before.place >= kPlaceAlone) {
    set_records(static_cast<int>(before.place), false);
    real.cuptiActivityFlushAll(0);
    // Buffers that are partly filled would otherwise be filled on for the recorder.
    if (before.own_subscription == 0) real.cuptiActivityFlushAll(1);
  }
  set_place(kPlaceRecorder);
  if (before.own_subscription != 0) return leave_soon();
  return before.recorder_attached != 0 ? set_recorder_callbacks(true) : cupti::kSuccess;
}

cupti::Result away_from_recorder(const AloneState& before, int place) {
  cupti::Result result = cupti::kSuccess;
  if (before.recorder_attached != 0) {
    real.cuptiActivityFlushAll(1);
    result = set_recorder_callbacks(false);
  } else if (place >= kPlaceAlone) {
    result = subscribe_alone();
    if (result == cupti::kSuccess && place >= kPlaceLaunches) result = set_callbacks(place == kPlaceLaunches);
  }
  if (result != cupti::kSuccess) return result;
  set_place(place);
  return place >= kPlaceAlone ? set_records(place, true) : result;
}

}  // namespace

EXPORT int llmprof_alone_open(char* why, size_t size) {
  const bool ok = opened();
  if (!ok) std::snprintf(why, size, "%s", why_not);
  return ok ? 0 : 1;
}

EXPORT void llmprof_alone_state(AloneState* out) {
  const Locked locked;
  *out = state;
}

// The caller has waited for the GPU, and no other thread uses CUDA or switches.
EXPORT int llmprof_alone_switch(int place) {
  if (!opened()) return kNotInitialized;
  AloneState before;
  llmprof_alone_state(&before);
  if (place == static_cast<int>(before.place)) return cupti::kSuccess;
  if (place == kPlaceRecorder) return back_to_recorder(before);
  if (before.recorder_kinds != 0 || before.own_subscription != 0) return -1;
  if (before.place != kPlaceRecorder) return -2;
  if (place > kPlaceCopies && before.recorder_attached != 0) return -4;
  if (place >= kPlaceAlone && arena == nullptr) {
    void* const memory =
        mmap(nullptr, kBuffers * kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -3;
    arena = static_cast<uint8_t*>(memory);
  }
  return away_from_recorder(before, place);
}

EXPORT int llmprof_alone_finalize() {
  {
    const Locked locked;
    if (own_handle == nullptr) return cupti::kSuccess;
    own_handle = nullptr;
  }
  const cupti::Result result = real.cuptiFinalize();
  const Locked locked;
  state.own_subscription = 0;
  if (result != cupti::kSuccess) state.last_result = static_cast<uint64_t>(result);
  return result;
}

// ---- what the recorder calls ---------------------------------------------------------------------------------------

EXPORT cupti::Result cuptiSubscribe(cupti::Subscriber* handle, cupti::CallbackFunction callback, void* user) {
  if (!opened()) return kNotInitialized;
  const cupti::Result result = real.cuptiSubscribe(handle, callback, user);
  const Locked locked;
  ++state.switches;
  if (result != cupti::kSuccess) {
    ++state.unexpected;
    state.last_result = static_cast<uint64_t>(result);
    return result;
  }
  recorder_handle = *handle;
  state.recorder_attached = 1;
  ++state.subscriptions;
  return result;
}

EXPORT cupti::Result cuptiUnsubscribe(cupti::Subscriber handle) {
  if (!opened()) return kNotInitialized;
  const cupti::Result result = real.cuptiUnsubscribe(handle);
  const Locked locked;
  ++state.switches;
  ++state.unexpected;  // the recorder never does
  return result;
}

EXPORT cupti::Result cuptiEnableCallback(uint32_t enable, cupti::Subscriber handle, uint32_t domain, uint32_t cbid) {
  if (!opened()) return kNotInitialized;
  {
    const Locked locked;
    if (handle == recorder_handle && domain < kDomains && cbid < kCallbacks) {
      if (wanted[domain][cbid] != (enable != 0)) state.recorder_callbacks += enable != 0 ? 1 : ~uint64_t{0};
      wanted[domain][cbid] = enable != 0;
      if (state.place != kPlaceRecorder) {
        ++state.unexpected;
        return cupti::kSuccess;  // when it gets its callbacks back
      }
    }
  }
  return real.cuptiEnableCallback(enable, handle, domain, cbid);
}

EXPORT cupti::Result cuptiActivityEnable(uint32_t kind) {
  if (!opened()) return kNotInitialized;
  const cupti::Result result = real.cuptiActivityEnable(kind);
  const Locked locked;
  if (result == cupti::kSuccess && kind < 64) state.recorder_kinds |= uint64_t{1} << kind;
  ++state.switches;
  state.unexpected += state.place != kPlaceRecorder;
  return result;
}

EXPORT cupti::Result cuptiActivityDisable(uint32_t kind) {
  if (!opened()) return kNotInitialized;
  const cupti::Result result = real.cuptiActivityDisable(kind);
  const Locked locked;
  if (kind < 64) state.recorder_kinds &= ~(uint64_t{1} << kind);
  ++state.switches;
  return result;
}

EXPORT cupti::Result cuptiActivityRegisterCallbacks(cupti::BufferRequest request, cupti::BufferComplete complete) {
  if (!opened()) return kNotInitialized;
  {
    const Locked locked;
    recorder_request = request;
    recorder_complete = complete;
  }
  return real.cuptiActivityRegisterCallbacks(request_buffer, complete_buffer);
}

EXPORT cupti::Result cuptiFinalize() {
  if (!opened()) return kNotInitialized;
  const cupti::Result result = real.cuptiFinalize();
  const Locked locked;
  ++state.switches;
  ++state.finalizations;
  recorder_handle = nullptr;
  state.recorder_attached = state.recorder_kinds = state.recorder_callbacks = 0;
  std::memcpy(wanted_last, wanted, sizeof wanted);
  std::memset(wanted, 0, sizeof wanted);
  return result;
}

#define HAND_ON(name, parameters, arguments)        \
  EXPORT cupti::Result name parameters {            \
    if (!opened()) return kNotInitialized;          \
    if (real.name == nullptr) return kNotSupported; \
    return real.name arguments;                     \
  }
HAND_ON(cuptiGetVersion, (uint32_t * version), (version))
HAND_ON(cuptiGetTimestamp, (uint64_t * time), (time))
HAND_ON(cuptiActivityGetNextRecord, (uint8_t * buffer, size_t size, cupti::Activity** record), (buffer, size, record))
HAND_ON(cuptiActivityGetNumDroppedRecords, (void* context, uint32_t stream, size_t* dropped),
        (context, stream, dropped))
HAND_ON(cuptiActivityFlushAll, (uint32_t forced), (forced))
HAND_ON(cuptiActivitySetAttribute, (uint32_t attribute, size_t* size, void* value), (attribute, size, value))
HAND_ON(cuptiGetCallbackName, (uint32_t domain, uint32_t cbid, const char** name), (domain, cbid, name))
HAND_ON(cuptiGetGraphNodeId, (void* node, uint64_t* id), (node, id))
HAND_ON(cuptiSetThreadIdType, (uint32_t type), (type))
HAND_ON(cuptiGetResultString, (cupti::Result result, const char** text), (result, text))
HAND_ON(cuptiGetStreamIdEx, (void* context, void* stream, uint8_t per_thread, uint32_t* id),
        (context, stream, per_thread, id))
HAND_ON(cuptiGetContextId, (void* context, uint32_t* id), (context, id))
HAND_ON(cuptiGetDeviceId, (void* context, uint32_t* id), (context, id))
HAND_ON(cuptiActivityRegisterTimestampCallback, (cupti::TimestampFunction clock), (clock))

// Whatever the recorder looks up is above, with the parameters that it expects.
#define IS_THERE(name, signature) static_assert(std::is_same_v<decltype(&::name), std::add_pointer_t<signature>>);
LLMPROF_CUPTI_FUNCTIONS(IS_THERE)
LLMPROF_CUPTI_OPTIONAL_FUNCTIONS(IS_THERE)
