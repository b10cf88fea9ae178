#include "capture/inject/activity.h"

#include <dlfcn.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "capture/inject/buffers.h"
#include "capture/inject/cupti.h"
#include "capture/inject/cupti_share.h"
#include "capture/inject/decode.h"
#include "capture/inject/graph_nodes.h"
#include "capture/inject/process.h"
#include "capture/inject/recording.h"

namespace llmprof::inject {
namespace {

Cupti* api = nullptr;  // never destroyed
cupti::Subscriber subscriber = nullptr;
std::atomic<bool> active{false};
std::atomic<bool> kernels_on{false};
std::atomic<bool> flush_due{false};
Level deepest_wanted = Level::kOff;
// By layer (0 runtime, 1 driver) and callback id: calls whose records are kept.
constexpr uint32_t kCallsMost = 2000;
bool kept_calls[2][kCallsMost];
std::atomic<bool> devices_described{false};
std::atomic<bool> cuda_started{false};
int64_t cuda_started_ns = 0;

// The calls worth a record: what launches, copies, waits, allocates, loads code or builds graphs. Nine of ten calls of
// a PyTorch program are none of these. Chosen by name, so that variants added by later CUDA versions are in.
bool worth_recording(std::string_view name, bool runtime) {
  const std::string_view prefix = runtime ? "cuda" : "cu";
  if (name.substr(0, prefix.size()) != prefix) return false;
  name.remove_prefix(prefix.size());
  if (name.find("GetAttribute") != std::string_view::npos || name.find("Get") == 0) return false;
  // Driver calls below the runtime are records of their own; those of copies and allocations would only repeat it, but
  // launches through the driver alone (Triton, cuBLAS kernels loaded as libraries) have no runtime call.
  static constexpr std::string_view kBoth[] = {"LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch", "LaunchGrid"};
  static constexpr std::string_view kRuntimeOnly[] = {"Launch_",
                                                      "Memcpy",
                                                      "Memset",
                                                      "StreamSynchronize",
                                                      "DeviceSynchronize",
                                                      "EventSynchronize",
                                                      "ThreadSynchronize",
                                                      "Malloc",
                                                      "Free",
                                                      "HostAlloc",
                                                      "HostRegister",
                                                      "HostUnregister",
                                                      "GraphInstantiate",
                                                      "GraphExecUpdate",
                                                      "GraphUpload",
                                                      "MemPrefetch",
                                                      "StreamEndCapture",
                                                      "LibraryLoad"};
  static constexpr std::string_view kDriverOnly[] = {"ModuleLoad", "LibraryLoad", "CtxSynchronize",   "MemCreate",
                                                     "MemMap",     "MemUnmap",    "StreamSynchronize"};
  for (const std::string_view start : kBoth)
    if (name.substr(0, start.size()) == start) return true;
  if (name == "Launch") return true;
  if (runtime) {
    for (const std::string_view start : kRuntimeOnly)
      if (name.substr(0, start.size()) == start) return true;
    return false;
  }
  for (const std::string_view start : kDriverOnly)
    if (name.substr(0, start.size()) == start) return true;
  return false;
}

// Looks through the callback ids that this version of CUPTI names.
void choose_calls(uint32_t domain, bool runtime) {
  int unnamed = 0;
  for (uint32_t cbid = 1; cbid < kCallsMost && unnamed < 50; ++cbid) {
    const char* name = nullptr;
    if (api->cuptiGetCallbackName(domain, cbid, &name) != cupti::kSuccess || name == nullptr) {
      ++unnamed;
      continue;
    }
    unnamed = 0;
    kept_calls[runtime ? 0 : 1][cbid] =
        (runtime && deepest_wanted == Level::kDeep) || worth_recording(plain_call_name(name), runtime);
  }
}

// CUDA 12.5 brought switches for single calls. Before, a kind is on or off as a whole, the decoder drops what is not
// worth keeping, and the kind stays on: toggling it breaks the node records of graphs captured before.
bool selective() {
  return api->cuptiActivityEnableRuntimeApi != nullptr && api->cuptiActivityEnableDriverApi != nullptr;
}

void switch_calls(bool on) {
  for (uint32_t cbid = 1; cbid < kCallsMost; ++cbid) {
    if (kept_calls[0][cbid]) api->cuptiActivityEnableRuntimeApi(cbid, on ? 1 : 0);
    if (kept_calls[1][cbid]) api->cuptiActivityEnableDriverApi(cbid, on ? 1 : 0);
  }
}

void enable_api_calls() {
  if (selective()) return switch_calls(true);
  api->cuptiActivityEnable(cupti::kRuntime);
  api->cuptiActivityEnable(cupti::kDriver);
}

void on_callback(void*, uint32_t domain, uint32_t cbid, const void* data) {
  if (domain == cupti::kDomainResource) {
    const cupti::ResourceData& resource = *static_cast<const cupti::ResourceData*>(data);
    if (cbid == cupti::kGraphNodeCreated || cbid == cupti::kGraphNodeCloned)
      graph_node_seen(*api, cbid == cupti::kGraphNodeCloned, resource);
    // The program ends its use of the GPU: everything has run, so a flush of the rest loses nothing.
    if (cbid == cupti::kContextDestroyStarting) api->cuptiActivityFlushAll(1);
  }
  forward_callback(domain, cbid, data);
}

bool subscribe() {
  const cupti::Result result = api->cuptiSubscribe(&subscriber, on_callback, nullptr);
  if (result == cupti::kSuccess) return true;
  subscriber = nullptr;
  char text[1024];
  if (result == cupti::kErrorMultipleSubscribers || result == cupti::kErrorMaxLimitReached) {
    std::snprintf(text, sizeof text,
                  "CUPTI of process %lld is taken (%s: nsys, ncu, cuda-gdb, compute-sanitizer or another profiler); "
                  "ranges, library calls and samples are recorded, kernels are not",
                  static_cast<long long>(thread_id()), api->text_of(result));
    note("cupti-held", text);
    set_cupti_state(session::SlotState::kCuptiHeld);
  } else {
    std::snprintf(text, sizeof text, "cuptiSubscribe of %s: %s", api->path, api->text_of(result));
    note("no-cupti", text);
    set_cupti_state(session::SlotState::kNoCupti);
  }
  return false;
}

// What is switched on and off together. Overhead records are among them because any kind that stays on keeps CUPTI in
// the way of every launch.
constexpr cupti::ActivityKind kKernelKinds[] = {cupti::kConcurrentKernel, cupti::kMemcpy, cupti::kMemcpy2,
                                                cupti::kMemset, cupti::kOverhead};

}  // namespace

const Cupti* loaded_cupti() { return api; }
cupti::Subscriber own_subscriber() { return subscriber; }

bool keeps_call(bool runtime, uint32_t cbid) { return cbid < kCallsMost && kept_calls[runtime ? 0 : 1][cbid]; }

bool wants_kind(uint32_t kind) {
  if (!has_activities()) return false;
  if (deepest_wanted == Level::kDeep && (kind == cupti::kSynchronization || kind == cupti::kMemory2)) return true;
  if (!kernels_on.load(std::memory_order_relaxed)) return false;
  for (const cupti::ActivityKind own : kKernelKinds)
    if (own == kind) return true;
  return false;
}

void enable_own_calls() {
  if (has_activities()) enable_api_calls();
}

bool start_activities(Level deepest) {
  deepest_wanted = deepest;
  cuda_started_ns = now_ns();
  cuda_started.store(true, std::memory_order_release);
  if (deepest < Level::kDefault) return false;
  Cupti* opened = new (std::nothrow) Cupti();
  if (opened == nullptr) return false;
  std::string why;
  if (!opened->open(why)) {
    note("no-cupti", why);
    set_cupti_state(session::SlotState::kNoCupti);
    delete opened;
    return false;
  }
  api = opened;
  {
    SpoolAccess access;
    if (access.writer() != nullptr) {
      spool::Fact fact;
      fact.key = access.writer()->text("cupti_version");
      fact.value = access.writer()->text(std::to_string(api->version));
      access.writer()->add(fact);
      fact.key = access.writer()->text("cupti_path");
      fact.value = access.writer()->text(api->path);
      access.writer()->add(fact);
    }
  }
  if (!subscribe()) return false;
  // Our buffers come zeroed from the pool; CUPTI would otherwise clear them on the program's threads.
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed;
  api->cuptiActivitySetAttribute(cupti::kAttributeZeroedOutBuffer, &size, &zeroed);
  api->cuptiSetThreadIdType(1);  // Linux tids
  api->cuptiEnableCallback(1, subscriber, cupti::kDomainResource, cupti::kGraphNodeCreated);
  api->cuptiEnableCallback(1, subscriber, cupti::kDomainResource, cupti::kGraphNodeCloned);
  api->cuptiEnableCallback(1, subscriber, cupti::kDomainResource, cupti::kContextDestroyStarting);
  const cupti::Result registered =
      api->cuptiActivityRegisterCallbacks(shared_buffer_requested, shared_buffer_completed);
  if (registered != cupti::kSuccess) {
    char text[1024];
    std::snprintf(text, sizeof text, "cuptiActivityRegisterCallbacks of %s: %s", api->path, api->text_of(registered));
    note("no-cupti", text);
    set_cupti_state(session::SlotState::kNoCupti);
    return false;
  }
  choose_calls(cupti::kDomainRuntime, true);
  choose_calls(cupti::kDomainDriver, false);
  // On before the first context even if nothing is recorded yet: calls that were never on cannot be switched on later.
  enable_api_calls();
  if (deepest == Level::kDeep) {
    api->cuptiActivityEnable(cupti::kMemory2);
    api->cuptiActivityEnable(cupti::kSynchronization);
  }
  active.store(true, std::memory_order_release);
  activities_started();
  return true;
}

void set_kernel_records(bool on) {
  if (!active.load(std::memory_order_acquire)) return;
  kernels_on.store(on, std::memory_order_relaxed);
  if (selective()) switch_calls(on);
  for (const cupti::ActivityKind kind : kKernelKinds) {
    const cupti::Result result = on ? api->cuptiActivityEnable(kind) : api->cuptiActivityDisable(kind);
    // Copies between devices have a kind of their own that old versions refuse beside kMemcpy: not needed there.
    if (result == cupti::kSuccess || kind == cupti::kMemcpy2) continue;
    char text[256];
    std::snprintf(text, sizeof text, "CUPTI refused to switch activity kind %u %s: %s", kind, on ? "on" : "off",
                  api->text_of(result));
    note(result == cupti::kErrorInsufficientPrivileges ? "no-counter-permission" : "recorder-note", text);
  }
}

void leave_deep_mode() {
  if (!active.load(std::memory_order_acquire) || deepest_wanted != Level::kDeep) return;
  if (selective()) switch_calls(false);
  deepest_wanted = Level::kDefault;
  choose_calls(cupti::kDomainRuntime, true);
  if (selective() && kernels_on.load(std::memory_order_relaxed)) switch_calls(true);
  api->cuptiActivityDisable(cupti::kMemory2);
  api->cuptiActivityDisable(cupti::kSynchronization);
}

bool has_activities() { return active.load(std::memory_order_acquire); }

void flush_activities() {
  if (!active.load(std::memory_order_acquire) || other_client_active()) return;
  // Once more after recording paused, for what was in flight; then there is nothing to flush.
  const bool on = kernels_on.load(std::memory_order_relaxed);
  if (!on && !flush_due.exchange(false, std::memory_order_relaxed)) return;
  if (on) flush_due.store(true, std::memory_order_relaxed);
  api->cuptiActivityFlushAll(0);
  decode_completed();
}

void finish_activities(bool orderly) {
  if (!active.load(std::memory_order_acquire)) return;
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
  api->cuptiActivityFlushAll(0);
  if (orderly) api->cuptiActivityFlushAll(1);
  decode_completed();
  size_t dropped = 0;
  if (orderly && api->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == cupti::kSuccess && dropped != 0) {
    char text[128];
    std::snprintf(text, sizeof text, "CUPTI dropped %zu activity records", dropped);
    note("lost-records", text);
  }
  active.store(false, std::memory_order_release);
}

bool abandon_activities() {
  const bool traced = active.exchange(false);
  abandon_buffers();
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
  uint64_t stamp = 0;
  if (active.load(std::memory_order_acquire) && api->cuptiGetTimestamp(&stamp) == cupti::kSuccess)
    reading.cupti_ns = static_cast<int64_t>(stamp);
  return reading;
}

void decode_buffer(uint8_t* buffer, size_t valid_size) {
  if (api == nullptr || valid_size == 0) return;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  decode(*api, buffer, valid_size, *access.writer());
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
