#include "capture/inject/cupti/activity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "capture/inject/cupti/api_calls.h"
#include "capture/inject/cupti/attachment.h"
#include "capture/inject/cupti/buffers.h"
#include "capture/inject/cupti/call_targets.h"
#include "capture/inject/cupti/capture_hooks.h"
#include "capture/inject/cupti/client_clock.h"
#include "capture/inject/cupti/cupti_share.h"
#include "capture/inject/cupti/decode.h"
#include "capture/inject/cupti/graph_nodes.h"
#include "capture/inject/cupti/graph_upload.h"
#include "capture/inject/devices.h"
#include "capture/inject/locked.h"
#include "capture/inject/process.h"
#include "capture/inject/recording.h"

namespace llmprof::inject {
namespace {

// After recording stopped, CUPTI is flushed this often until as many kernels have come in as were launched. Where the
// numbers do not agree, because a launch lay at an edge or records were dropped, until none has come for so long.
constexpr int64_t kSettleStepNs = 5'000'000;
constexpr int64_t kQuietNs = 80'000'000;

std::atomic<bool> flush_due{false};
std::atomic<bool> devices_described{false};
std::atomic<bool> cuda_started{false};
int64_t cuda_started_ns = 0;

std::atomic<int64_t> leaving_due_ns{0};
// With attachment.lock held.
uint64_t recorded_before = 0;     // kernels, when CUPTI was attached
uint64_t launched_until_off = 0;  // Attachment::launched when records were switched off
int64_t last_came_ns = 0;         // a kernel, since then
int64_t records_on_ns = 0, records_off_ns = 0;
bool gpu_was_busy = false;  // at the end of the last window that was long enough to tell
// A program that keeps the GPU busier than this does not feel that its launches are slower, but it would feel CUPTI's
// leaving and coming back: an H200's host was seen to stand still for 90 and 200 ms with PyTorch's modules loaded.
constexpr double kBusyStays = 0.85;

// A graph that is made without CUPTI has neither shapes nor edges in the recording: it leaves only where a capture
// cannot begin unseen.
bool may_detach() {
  return attachment.cupti->cuptiFinalize != nullptr && attachment.cupti->version >= cupti::kVersion12_6 &&
         !attachment.stays.load(std::memory_order_relaxed) && capture_hooks_work();
}

// With attachment.lock held: CUPTI knows nothing of records yet, or any more.
void forget_records() {
  attachment.records_on.store(false, std::memory_order_relaxed);
  attachment.graphs.recorded.store(false, std::memory_order_relaxed);
  attachment.unwanted_above.store(0, std::memory_order_relaxed);
  attachment.unwanted_until.store(0, std::memory_order_relaxed);
  forget_correlations();
}

// CUPTI's count begins anew with each attaching.
void report_dropped() {
  size_t dropped = 0;
  if (attachment.cupti->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) != cupti::kSuccess || dropped == 0)
    return;
  char text[128];
  std::snprintf(text, sizeof text, "CUPTI dropped %zu activity records", dropped);
  note("lost-records", text);
}

// At the end of a call, on the program's thread: the place that NVIDIA recommends, and the one where taking CUPTI out
// was seen to be safe while other threads use CUDA.
void detach_here() {
  if (pthread_mutex_trylock(&attachment.lock) != 0) return;  // the next call will do
  const int64_t began_ns = now_ns();
  const bool due = switches.leaving.load(std::memory_order_relaxed) == Leaving::kDue && may_detach() &&
                   !graphs_under_way(began_ns) && hold_graph_launches();
  if (due) {
    switches.leaving.store(Leaving::kNo, std::memory_order_relaxed);
    // Copies are not counted, and a small one may end with this very call.
    attachment.cupti->cuptiActivityFlushAll(0);
    decode_completed();
    // What is dropped of records that are on although none is wanted is no loss.
    if (!attachment.records_on.load(std::memory_order_relaxed)) report_dropped();
    const cupti::Result result = attachment.cupti->cuptiFinalize();
    attachment.attached.store(false, std::memory_order_relaxed);
    switches.cupti_left.store(true, std::memory_order_relaxed);
    attachment.subscriber = nullptr;
    forget_records();
    // Names in records that come now are gone; everything recorded has been decoded long before.
    discard_completed();
    if (result != cupti::kSuccess) attachment.stays.store(true, std::memory_order_relaxed);
    release_graph_launches();
  }
  pthread_mutex_unlock(&attachment.lock);
  if (due) cupti_left(began_ns, now_ns());
}

// Behind a wait, when the GPU has nothing to do: such a call stands at the end of a step more often than any other. Who
// has none is not waited for, but where graphs were recorded: a program that replays one and has kernels, copies and
// settings of memory behind it failed at its next launch when CUPTI left while they ran.
bool may_leave(CallEnd end) {
  constexpr int64_t kWaitForNs = 300'000'000;
  if (switches.leaving.load(std::memory_order_relaxed) != Leaving::kDue) return false;
  if (end == CallEnd::kGpuIdle) return true;
  return !attachment.graphs.recorded.load(std::memory_order_relaxed) &&
         now_ns() - leaving_due_ns.load(std::memory_order_relaxed) > kWaitForNs;
}

void on_callback(void*, uint32_t domain, uint32_t cbid, const void* data) {
  if (domain == cupti::kDomainResource) {
    const cupti::ResourceData& resource = *static_cast<const cupti::ResourceData*>(data);
    if (cbid == cupti::kGraphNodeCreated || cbid == cupti::kGraphNodeCloned) {
      graph_node_seen(*attachment.cupti, cbid == cupti::kGraphNodeCloned, resource);
    }
    if (cbid == cupti::kStreamDestroyStarting || cbid == cupti::kContextDestroyStarting) forget_streams();
    // The program ends its use of the GPU: everything has run, so a flush of the rest loses nothing.
    if (cbid == cupti::kContextDestroyStarting) attachment.cupti->cuptiActivityFlushAll(1);
  }
  CallEnd end = CallEnd::kNone;
  if (domain == cupti::kDomainRuntime || domain == cupti::kDomainDriver)
    end = on_api_callback(domain, cbid, *static_cast<const cupti::CallbackData*>(data));
  forward_callback(domain, cbid, data);
  if (end == CallEnd::kNone) return;
  if (switches.first_call_due.load(std::memory_order_relaxed) && switches.first_call_due.exchange(false))
    first_call_ended();
  if (may_leave(end)) detach_here();
}

bool subscribe() {
  const cupti::Result result = attachment.cupti->cuptiSubscribe(&attachment.subscriber, on_callback, nullptr);
  if (result == cupti::kSuccess) return true;
  attachment.subscriber = nullptr;
  char text[1024];
  if (result == cupti::kErrorMultipleSubscribers || result == cupti::kErrorMaxLimitReached) {
    std::snprintf(text, sizeof text,
                  "CUPTI of process %lld is taken (%s: nsys, ncu, cuda-gdb, compute-sanitizer or another profiler); "
                  "ranges, library calls and samples are recorded, kernels are not",
                  static_cast<long long>(thread_id()), attachment.cupti->text_of(result));
    note("cupti-held", text);
    set_cupti_state(session::SlotState::kCuptiHeld);
  } else {
    std::snprintf(text, sizeof text, "cuptiSubscribe of %s: %s", attachment.cupti->path,
                  attachment.cupti->text_of(result));
    note("no-cupti", text);
    set_cupti_state(session::SlotState::kNoCupti);
  }
  return false;
}

// With attachment.lock held. Subscribes and registers; nothing is recorded yet.
bool attach() {
  if (!subscribe()) return false;
  take_clock_back(*attachment.cupti);
  // Our buffers come zeroed from the pool; CUPTI would otherwise clear them on the program's threads.
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed;
  attachment.cupti->cuptiActivitySetAttribute(cupti::kAttributeZeroedOutBuffer, &size, &zeroed);
  attachment.cupti->cuptiSetThreadIdType(1);  // Linux tids
  forget_streams();                           // what was destroyed while CUPTI was away was not seen
  for (const uint32_t cbid : kResourceCallbacks)
    attachment.cupti->cuptiEnableCallback(1, attachment.subscriber, cupti::kDomainResource, cbid);
  const cupti::Result registered =
      attachment.cupti->cuptiActivityRegisterCallbacks(shared_buffer_requested, shared_buffer_completed);
  if (registered != cupti::kSuccess) {
    char text[1024];
    std::snprintf(text, sizeof text, "cuptiActivityRegisterCallbacks of %s: %s", attachment.cupti->path,
                  attachment.cupti->text_of(registered));
    note("no-cupti", text);
    set_cupti_state(session::SlotState::kNoCupti);
    return false;
  }
  forget_records();
  attachment.launches.count.store(0, std::memory_order_relaxed);
  recorded_before = recorded_kernels();
  enable_calls(*attachment.cupti, attachment.subscriber);
  attachment.attached.store(true, std::memory_order_relaxed);
  switches.cupti_left.store(false, std::memory_order_relaxed);
  return true;
}

// With attachment.lock held. False if CUPTI cannot be had back: nothing is recorded from here on.
bool attach_again() {
  switches.leaving.store(Leaving::kNo, std::memory_order_relaxed);
  if (attachment.attached.load(std::memory_order_relaxed)) return true;
  continue_correlations();
  if (attach()) return true;
  attachment.stays.store(true, std::memory_order_relaxed);
  attachment.active.store(false, std::memory_order_release);
  return false;
}

// With attachment.lock held, before the first call that makes a graph.
void come_for_graph() {
  if (attachment.attached.load(std::memory_order_relaxed)) return;
  const int64_t began_ns = now_ns();
  if (!attach_again()) return;
  launched_until_off = 0;
  last_came_ns = now_ns();
  switches.leaving.store(Leaving::kSettling, std::memory_order_relaxed);
  cupti_came(began_ns, last_came_ns);
}

void switch_kind(cupti::ActivityKind kind, bool on) {
  const cupti::Result result =
      on ? attachment.cupti->cuptiActivityEnable(kind) : attachment.cupti->cuptiActivityDisable(kind);
  // Copies between devices have a kind of their own that old versions refuse beside kMemcpy: not needed there.
  if (result == cupti::kSuccess || kind == cupti::kMemcpy2) return;
  char text[256];
  std::snprintf(text, sizeof text, "CUPTI refused to switch activity kind %u %s: %s", kind, on ? "on" : "off",
                attachment.cupti->text_of(result));
  note(result == cupti::kErrorInsufficientPrivileges ? "no-counter-permission" : "recorder-note", text);
}

// With attachment.lock held. A graph's launch on another thread may be under way: it sees what is true before it is.
void switch_records(bool on) {
  if (on == attachment.records_on.load(std::memory_order_relaxed)) return;
  if (on) attachment.records_on.store(true, std::memory_order_relaxed);
  for (const cupti::ActivityKind kind : kKernelKinds) switch_kind(kind, on);
  if (attachment.deepest_wanted == Level::kDeep)
    for (const cupti::ActivityKind kind : kDeepKinds) switch_kind(kind, on);
  if (!on) attachment.records_on.store(false, std::memory_order_relaxed);
}

// With attachment.lock held, when a graph was instantiated: its first upload fixes what it writes (attachment.h).
void upload_unrecorded(void* executable) {
  const bool records = attachment.records_on.load(std::memory_order_relaxed);
  // A graph that was launched with records on must not be launched while they are off.
  if (!hold_graph_launches()) return attachment.stays.store(true, std::memory_order_relaxed);
  const int64_t began_ns = now_ns();
  switch_records(false);
  const bool uploaded = upload_graph(executable);
  switch_records(records);
  release_graph_launches();
  if (!uploaded) attachment.stays.store(true, std::memory_order_relaxed);
  if (records) records_were_off(began_ns, now_ns());
}

// CUPTI was to leave with its records on, and something has come to depend on it, or no moment comes in which it may: a
// program that captures a graph for each step. Records go off; a graph that is launched now makes it stay for good.
void give_up_leaving() {
  constexpr int64_t kLeavesWithinNs = 2'000'000'000;
  const Locked locked(attachment.lock);
  if (switches.leaving.load(std::memory_order_relaxed) == Leaving::kNo) return;
  const bool overdue = attachment.records_on.load(std::memory_order_relaxed) &&
                       !switches.kernels_on.load(std::memory_order_relaxed) &&
                       now_ns() - records_off_ns > kLeavesWithinNs;
  if (may_detach() && !overdue) return;
  switches.leaving.store(Leaving::kNo, std::memory_order_relaxed);
  if (!switches.kernels_on.load(std::memory_order_relaxed)) switch_records(false);
}

// With attachment.lock held. Whether what was launched while it was wanted has come in.
bool all_came(int64_t now) {
  if (now - last_came_ns >= kQuietNs) return true;
  // Records that nobody wants any more come behind the last wanted one; nodes of graphs are not counted by launches.
  if (attachment.records_on.load(std::memory_order_relaxed))
    return last_recorded_correlation() > attachment.unwanted_above.load(std::memory_order_relaxed);
  return recorded_kernels() - recorded_before >= launched_until_off;
}

}  // namespace

bool start_activities(Level deepest, bool attached) {
  attachment.deepest_wanted = deepest;
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
  attachment.cupti = opened;
  attachment.attach_again = attach_again;
  attachment.come_for_graph = come_for_graph;
  attachment.upload_unrecorded = upload_unrecorded;
  keep_buffers_ready();
  {
    SpoolAccess access;
    if (access.writer() != nullptr) {
      spool::Fact fact;
      fact.key = access.writer()->text("cupti_version");
      fact.value = access.writer()->text(std::to_string(attachment.cupti->version));
      access.writer()->add(fact);
      fact.key = access.writer()->text("cupti_path");
      fact.value = access.writer()->text(attachment.cupti->path);
      access.writer()->add(fact);
    }
  }
  {
    const Locked locked(attachment.lock);
    choose_calls(*attachment.cupti, deepest);
    const bool comes = attached || !may_detach();  // where it may not leave, graphs are not to be made without it
    if (comes && !attach()) return false;
    switches.cupti_left.store(!comes, std::memory_order_relaxed);
    attachment.active.store(true, std::memory_order_release);
  }
  activities_started();
  return true;
}

bool set_kernel_records(bool on) {
  if (!has_activities()) return false;
  const Locked locked(attachment.lock);
  const bool was_attached = attachment.attached.load(std::memory_order_relaxed);
  if (on && !attach_again()) return false;
  if (!attachment.attached.load(std::memory_order_relaxed)) return false;
  if (!on) launched_until_off = attachment.launches.count.load(std::memory_order_relaxed);
  if (!on) report_dropped();
  const bool leaves = !on && may_detach();
  switches.kernels_on.store(on, std::memory_order_relaxed);
  if (on || !leaves || !attachment.graphs.recorded.load(std::memory_order_relaxed)) switch_records(on);
  last_came_ns = (on ? records_on_ns : records_off_ns) = now_ns();
  switches.leaving.store(leaves ? Leaving::kSettling : Leaving::kNo, std::memory_order_relaxed);
  switches.first_call_due.store(false, std::memory_order_relaxed);
  return on && !was_attached;
}

void want_kernels(bool on) {
  const uint32_t correlation = attachment.launches.correlation_max.load(std::memory_order_relaxed);
  if (!on) attachment.unwanted_above.store(correlation, std::memory_order_relaxed);
  attachment.unwanted_until.store(on ? correlation : UINT32_MAX, std::memory_order_relaxed);
}

void leave_deep_mode() {
  if (!has_activities() || attachment.deepest_wanted != Level::kDeep) return;
  const Locked locked(attachment.lock);
  if (attachment.attached.load(std::memory_order_relaxed) && switches.kernels_on.load(std::memory_order_relaxed))
    for (const cupti::ActivityKind kind : kDeepKinds) switch_kind(kind, false);
  attachment.deepest_wanted = Level::kDefault;
  choose_calls(*attachment.cupti, attachment.deepest_wanted);
}

bool activities_leave() { return switches.leaving.load(std::memory_order_relaxed) != Leaving::kNo; }

int64_t flush_wait_ns(int64_t most) {
  return switches.leaving.load(std::memory_order_relaxed) == Leaving::kSettling && kSettleStepNs < most ? kSettleStepNs
                                                                                                        : most;
}

void flush_activities() {
  if (!has_activities() || other_client_active()) return;
  // Once more after recording paused, for what was in flight; then there is nothing to flush.
  const bool on = switches.kernels_on.load(std::memory_order_relaxed);
  if (switches.leaving.load(std::memory_order_relaxed) != Leaving::kNo) give_up_leaving();
  const bool settling = switches.leaving.load(std::memory_order_relaxed) == Leaving::kSettling;
  if (!on && !settling && !flush_due.exchange(false, std::memory_order_relaxed)) return;
  if (on) flush_due.store(true, std::memory_order_relaxed);
  if (on) keep_buffers_ready();
  const Locked locked(attachment.lock);
  if (!attachment.attached.load(std::memory_order_relaxed)) return;
  const uint64_t before = recorded_kernels();
  attachment.cupti->cuptiActivityFlushAll(0);
  decode_completed();
  if (!settling || switches.leaving.load(std::memory_order_relaxed) != Leaving::kSettling) return;
  const int64_t now = now_ns();
  if (recorded_kernels() != before) last_came_ns = now;
  if (!all_came(now) || graphs_under_way(now)) return;
  constexpr int64_t kTellsNs = 450'000'000;
  if (records_off_ns - records_on_ns >= kTellsNs) gpu_was_busy = gpu_busy_before(records_off_ns) > kBusyStays;
  // Launching a graph takes a hundred times as long while CUPTI is there, recording or not.
  const bool stays_now = gpu_was_busy && !attachment.graphs.recorded.load(std::memory_order_relaxed);
  leaving_due_ns.store(now, std::memory_order_relaxed);
  switches.leaving.store(stays_now ? Leaving::kNo : Leaving::kDue, std::memory_order_relaxed);
}

void finish_activities(bool orderly) {
  if (!has_activities()) return;
  // Whoever holds the lock may be a thread that is gone: the end must not wait for it for good.
  const timespec until = realtime_after(1'000'000'000);
  if (pthread_mutex_timedlock(&attachment.lock, &until) != 0) return;
  if (attachment.attached.load(std::memory_order_relaxed)) {
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
    attachment.cupti->cuptiActivityFlushAll(0);
    if (orderly) attachment.cupti->cuptiActivityFlushAll(1);
    decode_completed();
    if (orderly) report_dropped();
  }
  attachment.active.store(false, std::memory_order_release);
  pthread_mutex_unlock(&attachment.lock);
}

bool abandon_activities() {
  const bool traced = attachment.active.exchange(false);
  pthread_mutex_init(&attachment.lock, nullptr);
  attachment.attached.store(false);
  switches.kernels_on.store(false);
  switches.leaving.store(Leaving::kNo, std::memory_order_relaxed);
  forget_records();
  attachment.graphs.captures.store(0, std::memory_order_relaxed);
  attachment.graphs.launching.store(thread_state.launches_graph ? 1 : 0);
  attachment.graphs.held.store(false);
  abandon_buffers();
  abandon_calls();
  devices_described.store(false);
  cuda_started.store(false);
  return traced;
}

spool::ClockReading read_clocks() {
  spool::ClockReading reading;
  reading.monotonic_raw_ns = read_clock_ns(CLOCK_MONOTONIC_RAW);
  reading.realtime_ns = now_ns();
  if (!has_activities() || pthread_mutex_trylock(&attachment.lock) != 0) return reading;
  uint64_t stamp = 0;
  if (attachment.attached.load(std::memory_order_relaxed) &&
      attachment.cupti->cuptiGetTimestamp(&stamp) == cupti::kSuccess)
    reading.cupti_ns = static_cast<int64_t>(stamp);
  pthread_mutex_unlock(&attachment.lock);
  return reading;
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
