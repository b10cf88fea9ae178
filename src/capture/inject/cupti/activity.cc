#include "capture/inject/cupti/activity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "capture/inject/cupti/api_calls.h"
#include "capture/inject/cupti/buffers.h"
#include "capture/inject/cupti/capture_hooks.h"
#include "capture/inject/cupti/client_clock.h"
#include "capture/inject/cupti/cupti_share.h"
#include "capture/inject/cupti/decode.h"
#include "capture/inject/cupti/graph_nodes.h"
#include "capture/inject/devices.h"
#include "capture/inject/locked.h"
#include "capture/inject/process.h"
#include "capture/inject/recording.h"
#include "nvidia/cupti_library.h"

namespace llmprof::inject {
namespace {

// After recording stopped, CUPTI is flushed this often until so many flushes in a row bring no kernel: then what was in
// flight has come in.
constexpr int64_t kSettleStepNs = 40'000'000;
constexpr int kQuietFlushes = 2;

nvidia::CuptiLibrary* opened_cupti = nullptr;  // never destroyed
cupti::Subscriber subscriber = nullptr;
// CUPTI was found and taken; it may be out of the process right now all the same.
std::atomic<bool> active{false};
std::atomic<bool> kernels_on{false};
std::atomic<bool> flush_due{false};
Level deepest_wanted = Level::kOff;
std::atomic<bool> devices_described{false};
std::atomic<bool> cuda_started{false};
int64_t cuda_started_ns = 0;

// Of being attached: whoever attaches, detaches, flushes or asks CUPTI for the time holds it.
pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
std::atomic<bool> attached{false};
std::atomic<bool> stays_attached{false};                 // for good: graphs or a second client depend on it
enum class Leaving : uint32_t { kNo, kSettling, kDue };  // kDue: the next end of a call takes CUPTI out
std::atomic<Leaving> leaving{Leaving::kNo};
int quiet_flushes = 0;
int64_t records_on_ns = 0, records_off_ns = 0;
bool gpu_was_busy = false;  // at the end of the last window that was long enough to tell
// A program that keeps the GPU busier than this does not feel that its launches are slower, but it would feel CUPTI's
// leaving and coming back: an H200's host was seen to stand still for 90 and 200 ms with PyTorch's modules loaded.
constexpr double kBusyStays = 0.85;

// What is switched on and off together. Synchronisation records are not among them: they make every launch of a
// program a quarter slower, and go on doing so when they are off (docs/adr 10). The calls that wait are recorded.
constexpr cupti::ActivityKind kKernelKinds[] = {cupti::kConcurrentKernel, cupti::kMemcpy, cupti::kMemcpy2,
                                                cupti::kMemset, cupti::kOverhead};
constexpr cupti::ActivityKind kDeepKinds[] = {cupti::kMemory2};

// A graph that was captured under CUPTI does not survive its leaving (launches fail), and one that is captured without
// it has no nodes in the recording. So it stays once a graph was seen, and leaves only where a capture cannot begin
// unseen.
bool may_detach() {
  return opened_cupti->cuptiFinalize != nullptr && opened_cupti->version >= cupti::kVersion12_6 &&
         !stays_attached.load(std::memory_order_relaxed) && capture_hooks_work();
}

// CUPTI's count begins anew with each attaching.
void report_dropped() {
  size_t dropped = 0;
  if (opened_cupti->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) != cupti::kSuccess || dropped == 0) return;
  char text[128];
  std::snprintf(text, sizeof text, "CUPTI dropped %zu activity records", dropped);
  note("lost-records", text);
}

// The level of detail is the recording's; these spans say when CUPTI was away, and the program as fast as alone.
void write_level(const char* reason) {
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  spool::LevelChange change;
  change.time_ns = now_ns();
  change.level = level();
  change.reason = access.writer()->text(reason);
  access.writer()->add(change);
}

// At the end of a call, on the program's thread: the place that NVIDIA recommends, and the one where taking CUPTI out
// was seen to be safe while other threads use CUDA.
void detach_here() {
  if (pthread_mutex_trylock(&attach_lock) != 0) return;  // the next call will do
  const bool due = leaving.load(std::memory_order_relaxed) == Leaving::kDue && may_detach();
  if (due) {
    leaving.store(Leaving::kNo, std::memory_order_relaxed);
    report_dropped();
    const cupti::Result result = opened_cupti->cuptiFinalize();
    attached.store(false, std::memory_order_relaxed);
    subscriber = nullptr;
    // Names in records that come now are gone; everything recorded has been decoded long before.
    discard_completed();
    if (result != cupti::kSuccess) stays_attached.store(true, std::memory_order_relaxed);
  }
  pthread_mutex_unlock(&attach_lock);
  if (due) write_level("detached");
}

void on_callback(void*, uint32_t domain, uint32_t cbid, const void* data) {
  if (domain == cupti::kDomainResource) {
    const cupti::ResourceData& resource = *static_cast<const cupti::ResourceData*>(data);
    if (cbid == cupti::kGraphNodeCreated || cbid == cupti::kGraphNodeCloned) {
      stays_attached.store(true, std::memory_order_relaxed);
      graph_node_seen(*opened_cupti, cbid == cupti::kGraphNodeCloned, resource);
    }
    // The program ends its use of the GPU: everything has run, so a flush of the rest loses nothing.
    if (cbid == cupti::kContextDestroyStarting) opened_cupti->cuptiActivityFlushAll(1);
  }
  bool call_ended = false;
  if (domain == cupti::kDomainRuntime || domain == cupti::kDomainDriver)
    call_ended = on_api_callback(domain, cbid, *static_cast<const cupti::CallbackData*>(data));
  forward_callback(domain, cbid, data);
  if (call_ended && leaving.load(std::memory_order_relaxed) == Leaving::kDue) detach_here();
}

bool subscribe() {
  const cupti::Result result = opened_cupti->cuptiSubscribe(&subscriber, on_callback, nullptr);
  if (result == cupti::kSuccess) return true;
  subscriber = nullptr;
  char text[1024];
  if (result == cupti::kErrorMultipleSubscribers || result == cupti::kErrorMaxLimitReached) {
    std::snprintf(text, sizeof text,
                  "CUPTI of process %lld is taken (%s: nsys, ncu, cuda-gdb, compute-sanitizer or another profiler); "
                  "ranges, library calls and samples are recorded, kernels are not",
                  static_cast<long long>(thread_id()), opened_cupti->text_of(result));
    note("cupti-held", text);
    set_cupti_state(session::SlotState::kCuptiHeld);
  } else {
    std::snprintf(text, sizeof text, "cuptiSubscribe of %s: %s", opened_cupti->path, opened_cupti->text_of(result));
    note("no-cupti", text);
    set_cupti_state(session::SlotState::kNoCupti);
  }
  return false;
}

// With attach_lock held. Subscribes and registers; nothing is recorded yet.
bool attach() {
  if (!subscribe()) return false;
  take_clock_back(*opened_cupti);
  // Our buffers come zeroed from the pool; CUPTI would otherwise clear them on the program's threads.
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed;
  opened_cupti->cuptiActivitySetAttribute(cupti::kAttributeZeroedOutBuffer, &size, &zeroed);
  opened_cupti->cuptiSetThreadIdType(1);  // Linux tids
  for (const uint32_t cbid : {cupti::kGraphNodeCreated, cupti::kGraphNodeCloned, cupti::kContextDestroyStarting})
    opened_cupti->cuptiEnableCallback(1, subscriber, cupti::kDomainResource, cbid);
  const cupti::Result registered =
      opened_cupti->cuptiActivityRegisterCallbacks(shared_buffer_requested, shared_buffer_completed);
  if (registered != cupti::kSuccess) {
    char text[1024];
    std::snprintf(text, sizeof text, "cuptiActivityRegisterCallbacks of %s: %s", opened_cupti->path,
                  opened_cupti->text_of(registered));
    note("no-cupti", text);
    set_cupti_state(session::SlotState::kNoCupti);
    return false;
  }
  enable_calls(*opened_cupti, subscriber);
  attached.store(true, std::memory_order_relaxed);
  return true;
}

// With attach_lock held. False if CUPTI cannot be had back: nothing is recorded from here on.
bool attach_again() {
  leaving.store(Leaving::kNo, std::memory_order_relaxed);
  if (attached.load(std::memory_order_relaxed)) return true;
  continue_correlations();
  if (attach()) return true;
  stays_attached.store(true, std::memory_order_relaxed);
  active.store(false, std::memory_order_release);
  return false;
}

void switch_kind(cupti::ActivityKind kind, bool on) {
  const cupti::Result result = on ? opened_cupti->cuptiActivityEnable(kind) : opened_cupti->cuptiActivityDisable(kind);
  // Copies between devices have a kind of their own that old versions refuse beside kMemcpy: not needed there.
  if (result == cupti::kSuccess || kind == cupti::kMemcpy2) return;
  char text[256];
  std::snprintf(text, sizeof text, "CUPTI refused to switch activity kind %u %s: %s", kind, on ? "on" : "off",
                opened_cupti->text_of(result));
  note(result == cupti::kErrorInsufficientPrivileges ? "no-counter-permission" : "recorder-note", text);
}

}  // namespace

const nvidia::CuptiLibrary* loaded_cupti() { return opened_cupti; }
cupti::Subscriber own_subscriber() { return subscriber; }

bool wants_kind(uint32_t kind) {
  if (!has_activities() || !kernels_on.load(std::memory_order_relaxed)) return false;
  for (const cupti::ActivityKind own : kKernelKinds)
    if (own == kind) return true;
  if (deepest_wanted != Level::kDeep) return false;
  for (const cupti::ActivityKind own : kDeepKinds)
    if (own == kind) return true;
  return false;
}

void enable_own_calls() {
  if (has_activities() && subscriber != nullptr) enable_calls(*opened_cupti, subscriber);
}

bool start_activities(Level deepest) {
  deepest_wanted = deepest;
  cuda_started_ns = now_ns();
  cuda_started.store(true, std::memory_order_release);
  if (deepest < Level::kDefault) return false;
  nvidia::CuptiLibrary* opened = new (std::nothrow) nvidia::CuptiLibrary();
  if (opened == nullptr) return false;
  std::string why;
  if (!opened->open(why)) {
    note("no-cupti", why);
    set_cupti_state(session::SlotState::kNoCupti);
    delete opened;
    return false;
  }
  opened_cupti = opened;
  {
    SpoolAccess access;
    if (access.writer() != nullptr) {
      spool::Fact fact;
      fact.key = access.writer()->text("cupti_version");
      fact.value = access.writer()->text(std::to_string(opened_cupti->version));
      access.writer()->add(fact);
      fact.key = access.writer()->text("cupti_path");
      fact.value = access.writer()->text(opened_cupti->path);
      access.writer()->add(fact);
    }
  }
  {
    const Locked locked(attach_lock);
    choose_calls(*opened_cupti, deepest);
    if (!attach()) return false;
    active.store(true, std::memory_order_release);
  }
  activities_started();
  return true;
}

void set_kernel_records(bool on) {
  if (!active.load(std::memory_order_acquire)) return;
  const Locked locked(attach_lock);
  if (on && !attach_again()) return;
  if (!attached.load(std::memory_order_relaxed)) return;
  kernels_on.store(on, std::memory_order_relaxed);
  for (const cupti::ActivityKind kind : kKernelKinds) switch_kind(kind, on);
  if (deepest_wanted == Level::kDeep)
    for (const cupti::ActivityKind kind : kDeepKinds) switch_kind(kind, on);
  quiet_flushes = 0;
  (on ? records_on_ns : records_off_ns) = now_ns();
  leaving.store(!on && may_detach() ? Leaving::kSettling : Leaving::kNo, std::memory_order_relaxed);
}

void graph_call_seen() { stays_attached.store(true, std::memory_order_relaxed); }

void keep_attached() {
  if (stays_attached.exchange(true, std::memory_order_relaxed) || !active.load(std::memory_order_acquire)) return;
  const Locked locked(attach_lock);  // a detaching under way is waited for
  attach_again();
}

void leave_deep_mode() {
  if (!active.load(std::memory_order_acquire) || deepest_wanted != Level::kDeep) return;
  const Locked locked(attach_lock);
  if (attached.load(std::memory_order_relaxed) && kernels_on.load(std::memory_order_relaxed))
    for (const cupti::ActivityKind kind : kDeepKinds) switch_kind(kind, false);
  deepest_wanted = Level::kDefault;
  choose_calls(*opened_cupti, deepest_wanted);
}

bool has_activities() { return active.load(std::memory_order_acquire); }

int64_t flush_wait_ns(int64_t most) {
  return leaving.load(std::memory_order_relaxed) == Leaving::kSettling && kSettleStepNs < most ? kSettleStepNs : most;
}

void flush_activities() {
  if (!active.load(std::memory_order_acquire) || other_client_active()) return;
  // Once more after recording paused, for what was in flight; then there is nothing to flush.
  const bool on = kernels_on.load(std::memory_order_relaxed);
  const bool settling = leaving.load(std::memory_order_relaxed) == Leaving::kSettling;
  if (!on && !settling && !flush_due.exchange(false, std::memory_order_relaxed)) return;
  if (on) flush_due.store(true, std::memory_order_relaxed);
  const Locked locked(attach_lock);
  if (!attached.load(std::memory_order_relaxed)) return;
  const uint64_t before = recorded_kernels();
  opened_cupti->cuptiActivityFlushAll(0);
  decode_completed();
  if (!settling || leaving.load(std::memory_order_relaxed) != Leaving::kSettling) return;
  quiet_flushes = recorded_kernels() == before ? quiet_flushes + 1 : 0;
  if (quiet_flushes < kQuietFlushes) return;
  constexpr int64_t kTellsNs = 450'000'000;
  if (records_off_ns - records_on_ns >= kTellsNs) gpu_was_busy = gpu_busy_before(records_off_ns) > kBusyStays;
  leaving.store(gpu_was_busy ? Leaving::kNo : Leaving::kDue, std::memory_order_relaxed);
}

void finish_activities(bool orderly) {
  if (!active.load(std::memory_order_acquire)) return;
  // Whoever holds the lock may be a thread that is gone: the end must not wait for it for good.
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  if (pthread_mutex_timedlock(&attach_lock, &until) != 0) return;
  if (attached.load(std::memory_order_relaxed)) {
    if (orderly) {
      // Kernels in flight would be delivered without an end: wait for them if this thread has a live context.
      if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
        using GetCurrent = int (*)(void**);
        using Synchronize = int (*)();
        const GetCurrent current = reinterpret_cast<GetCurrent>(dlsym(driver, "cuCtxGetCurrent"));
        const Synchronize synchronize = reinterpret_cast<Synchronize>(dlsym(driver, "cuCtxSynchronize"));
        void* context = nullptr;
        if (current != nullptr && synchronize != nullptr && current(&context) == 0 && context != nullptr) synchronize();
      }
    }
    opened_cupti->cuptiActivityFlushAll(0);
    if (orderly) opened_cupti->cuptiActivityFlushAll(1);
    decode_completed();
    if (orderly) report_dropped();
  }
  active.store(false, std::memory_order_release);
  pthread_mutex_unlock(&attach_lock);
}

bool abandon_activities() {
  const bool traced = active.exchange(false);
  pthread_mutex_init(&attach_lock, nullptr);
  attached.store(false);
  kernels_on.store(false);
  leaving.store(Leaving::kNo);
  abandon_buffers();
  abandon_calls();
  devices_described.store(false);
  cuda_started.store(false);
  return traced;
}

spool::ClockReading read_clocks() {
  spool::ClockReading reading;
  timespec raw{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
  reading.realtime_ns = now_ns();
  reading.monotonic_raw_ns = int64_t{raw.tv_sec} * 1'000'000'000 + raw.tv_nsec;
  if (!active.load(std::memory_order_acquire) || pthread_mutex_trylock(&attach_lock) != 0) return reading;
  uint64_t stamp = 0;
  if (attached.load(std::memory_order_relaxed) && opened_cupti->cuptiGetTimestamp(&stamp) == cupti::kSuccess)
    reading.cupti_ns = static_cast<int64_t>(stamp);
  pthread_mutex_unlock(&attach_lock);
  return reading;
}

void decode_buffer(uint8_t* buffer, size_t valid_size) {
  if (opened_cupti == nullptr || valid_size == 0) return;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  decode(*opened_cupti, buffer, valid_size, *access.writer());
}

void describe_devices() {
  if (devices_described.load(std::memory_order_relaxed) || !cuda_started.load(std::memory_order_acquire)) return;
  // InitializeInjection runs inside cuInit: ask the driver only when that must be over.
  if (now_ns() - cuda_started_ns < 200'000'000) return;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  if (write_devices(*access.writer())) devices_described.store(true, std::memory_order_relaxed);
}

}  // namespace llmprof::inject
