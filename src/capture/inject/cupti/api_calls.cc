#include "capture/inject/cupti/api_calls.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "capture/inject/cupti/attachment.h"
#include "capture/inject/cupti/call_targets.h"
#include "capture/inject/cupti/graph_nodes.h"
#include "capture/inject/launch_sites/launch_sites.h"
#include "capture/inject/libraries/library_logs.h"
#include "capture/inject/recording.h"
#include "capture/inject/threads/reentry_guard.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {
namespace {

// By layer (0 runtime, 1 driver) and callback id.
constexpr uint32_t kCallsMost = 2000;
bool kept[2][kCallsMost];
bool launches_kernel[kCallsMost];  // of the driver
bool disturbs[2][kCallsMost];      // no steady step makes it
bool waits[2][kCallsMost];         // for the GPU, whatever its arguments
bool of_graphs[2][kCallsMost];     // launches or makes an executable graph
bool instantiates[2][kCallsMost];  // makes one
CallArguments layouts[2][kCallsMost];
bool per_thread_stream[2][kCallsMost];       // stream 0 is the thread's own
LoggedStep steps[2][kCallsMost];             // what it is to a product known from a library's log
std::atomic<Id> definitions[2][kCallsMost];  // in the spool; 0 until the first call

// Added to CUPTI's ids. Other calls than ours draw ids too, and threads race for the maximum: leave room for both.
constexpr uint32_t kCorrelationRoom = 1U << 16;
std::atomic<uint32_t> correlation_base{0};
std::atomic<uint32_t> correlation_max{0};

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The calls worth a record: what launches, copies, waits, allocates, loads code or builds graphs. Nine of ten calls of
// a PyTorch program are none of these. Chosen by name, so that variants added by later CUDA versions are in.
bool worth_recording(std::string_view name, bool runtime) {
  const std::string_view prefix = runtime ? "cuda" : "cu";
  if (!starts_with(name, prefix)) return false;
  name.remove_prefix(prefix.size());
  if (contains(name, "GetAttribute") || starts_with(name, "Get")) return false;
  // Launches are taken at the driver: every kernel has exactly one there, whether the program called the runtime, the
  // driver (Triton, cuBLAS) or the driver through the runtime. So are the frequent calls on events, for half the
  // callbacks. All else is taken where the program calls it, the runtime or the driver: on_api_callback passes over a
  // driver call below a runtime call.
  static constexpr std::string_view kAtDriver[] = {"Launch", "GraphLaunch", "EventRecord", "StreamWaitEvent"};
  static constexpr std::string_view kRuntime[] = {"Memcpy",
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
                                                  "StreamBeginCapture",
                                                  "StreamEndCapture",
                                                  "LibraryLoad"};
  static constexpr std::string_view kDriver[] = {
      "Memcpy",          "Memset",      "StreamSynchronize",  "CtxSynchronize",   "EventSynchronize",
      "MemAlloc",        "MemFree",     "MemHostAlloc",       "MemHostRegister",  "MemHostUnregister",
      "MemCreate",       "MemMap",      "MemUnmap",           "MemPrefetch",      "GraphInstantiate",
      "GraphExecUpdate", "GraphUpload", "StreamBeginCapture", "StreamEndCapture", "ModuleLoad",
      "LibraryLoad"};
  const auto begins = [name](std::string_view start) { return starts_with(name, start); };
  if (std::any_of(std::begin(kAtDriver), std::end(kAtDriver), begins)) return !runtime;
  return runtime ? std::any_of(std::begin(kRuntime), std::end(kRuntime), begins)
                 : std::any_of(std::begin(kDriver), std::end(kDriver), begins);
}

// What the deep mode leaves out: questions about state that libraries ask before every launch. Each takes some tens of
// nanoseconds, a callback ten times that.
bool mere_question(std::string_view name) {
  static constexpr std::string_view kParts[] = {"Get",
                                                "SetDevice",
                                                "PeekAtLastError",
                                                "IsCapturing",
                                                "Occupancy",
                                                "DeviceCanAccess",
                                                "PushCallConfiguration",
                                                "PopCallConfiguration",
                                                "ExchangeStreamCaptureMode",
                                                "EventQuery"};
  for (const std::string_view part : kParts)
    if (contains(name, part)) return true;
  return false;
}

LoggedStep step_of(std::string_view name, bool runtime) {
  if (contains(name, "GraphLaunch")) return LoggedStep::kGraphLaunch;
  if (contains(name, "StreamBeginCapture")) return LoggedStep::kCaptureBegins;
  if (contains(name, "StreamEndCapture")) return LoggedStep::kCaptureEnds;
  if (contains(name, "Memcpy") || contains(name, "Memset") || contains(name, "Synchronize")) return LoggedStep::kCopy;
  return !runtime && contains(name, "Launch") ? LoggedStep::kLaunch : LoggedStep::kOther;
}

bool waits_for_gpu(std::string_view name) {
  return contains(name, "Synchronize") || (contains(name, "Memcpy") && !contains(name, "Async"));
}

// Allocations in the order of a stream come from a pool and are part of steady steps.
bool disturbs_step(std::string_view name) {
  for (const std::string_view part : {"ModuleLoad", "LibraryLoad", "Malloc", "MemAlloc", "MemHostAlloc", "HostAlloc",
                                      "MemCreate", "GraphInstantiate", "StreamBeginCapture"})
    if (contains(name, part)) return !contains(name, "Async");
  return false;
}

Id definition_of(uint32_t layer, uint32_t cbid, const char* function) {
  std::atomic<Id>& known = definitions[layer][cbid];
  Id id = known.load(std::memory_order_relaxed);
  if (id != 0) return id;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  SpoolAccess access;
  if (access.writer() == nullptr) return 0;
  spool::ApiDef def;
  def.layer = static_cast<uint8_t>(layer);
  def.cbid = cbid;
  def.name = access.writer()->text(function == nullptr ? "[unknown call]" : plain_call_name(function));
  id = access.writer()->define(def);
  known.store(id, std::memory_order_relaxed);
  return id;
}

void record(uint32_t layer, uint32_t cbid, const cupti::CallbackData& data, int64_t start_ns) {
  ThreadLog* const log = thread_log();
  if (log == nullptr) return;
  Event event;
  event.kind = EventKind::kApiCall;
  event.definition = definition_of(layer, cbid, data.function);
  if (event.definition == 0) return;
  const uint32_t result = data.result == nullptr ? 0 : static_cast<uint32_t>(*static_cast<const int*>(data.result));
  event.handle = uint64_t{result} << 32 | written_correlation(data.correlation);
  event.start_ns = start_ns;
  event.end_ns = now_ns();
  if (layouts[layer][cbid] != CallArguments::kOthers) {
    const CallTarget target = target_of(layouts[layer][cbid], per_thread_stream[layer][cbid], data, *log);
    event.domain = target.stream;
    std::memcpy(&event.payload, &target.event, sizeof event.payload);
  }
  append(*log, event);
}

}  // namespace

std::string_view plain_call_name(std::string_view name) {
  const size_t version = name.rfind("_v");
  if (version != std::string_view::npos && version + 2 < name.size() && name[version + 2] >= '0' &&
      name[version + 2] <= '9') {
    bool digits = true;
    for (size_t i = version + 2; i < name.size(); ++i) digits = digits && name[i] >= '0' && name[i] <= '9';
    // Driver calls keep a short suffix of their own (cuMemAlloc_v2); the runtime's carries a release (v7000).
    if (digits) name = name.substr(0, version);
  }
  for (const std::string_view suffix : {"_ptsz", "_ptds"})
    if (name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix)
      name.remove_suffix(suffix.size());
  while (!name.empty() && name.front() == '_') name.remove_prefix(1);  // __cudaLaunchKernel of CUDA 13
  return name;
}

void choose_calls(const nvidia::CuptiLibrary& api, Level deepest) {
  for (const bool runtime : {true, false}) {
    int unnamed = 0;
    for (uint32_t cbid = 1; cbid < kCallsMost && unnamed < 50; ++cbid) {
      const char* name = nullptr;
      if (api.cuptiGetCallbackName(runtime ? cupti::kDomainRuntime : cupti::kDomainDriver, cbid, &name) !=
              cupti::kSuccess ||
          name == nullptr) {
        ++unnamed;
        continue;
      }
      unnamed = 0;
      const std::string_view plain = plain_call_name(name);
      if (!runtime)
        launches_kernel[cbid] = contains(plain, "LaunchKernel") || contains(plain, "LaunchCooperativeKernel");
      steps[runtime ? 0 : 1][cbid] = step_of(plain, runtime);
      disturbs[runtime ? 0 : 1][cbid] = disturbs_step(plain);
      waits[runtime ? 0 : 1][cbid] = waits_for_gpu(plain);
      instantiates[runtime ? 0 : 1][cbid] = contains(plain, "GraphInstantiate");
      of_graphs[runtime ? 0 : 1][cbid] = contains(plain, "GraphLaunch") || instantiates[runtime ? 0 : 1][cbid];
      layouts[runtime ? 0 : 1][cbid] = arguments_of(plain);
      per_thread_stream[runtime ? 0 : 1][cbid] = contains(name, "_ptsz");
      kept[runtime ? 0 : 1][cbid] =
          worth_recording(plain, runtime) ||
          (runtime && deepest == Level::kDeep && !mere_question(plain) && !contains(plain, "Launch"));
    }
  }
}

void enable_calls(const nvidia::CuptiLibrary& api, cupti::Subscriber subscriber) {
  for (uint32_t cbid = 1; cbid < kCallsMost; ++cbid) {
    if (kept[0][cbid]) api.cuptiEnableCallback(1, subscriber, cupti::kDomainRuntime, cbid);
    if (kept[1][cbid]) api.cuptiEnableCallback(1, subscriber, cupti::kDomainDriver, cbid);
  }
}

void enable_own_calls() {
  if (has_activities() && own_subscriber() != nullptr) enable_calls(*loaded_cupti(), own_subscriber());
}

bool call_waits(uint32_t domain, uint32_t cbid) {
  return cbid < kCallsMost && steps[domain == cupti::kDomainRuntime ? 0 : 1][cbid] == LoggedStep::kCopy;
}

bool wants_call(uint32_t domain, uint32_t cbid) {
  if (domain != cupti::kDomainRuntime && domain != cupti::kDomainDriver) return false;
  return cbid < kCallsMost && kept[domain == cupti::kDomainRuntime ? 0 : 1][cbid];
}

bool on_api_callback(uint32_t domain, uint32_t cbid, const cupti::CallbackData& data) {
  const uint32_t layer = domain == cupti::kDomainRuntime ? 0 : 1;
  if (cbid >= kCallsMost || !kept[layer][cbid] || thread_state.inside) return false;
  ThreadState& state = thread_state;
  if (data.site == cupti::kApiEnter) {
    // A driver call below a runtime call has the same id and is part of it. A call whose end was never seen, because
    // callbacks were switched off under it, gives way to the next one.
    if (state.api_correlation == data.correlation) return false;
    if (of_graphs[layer][cbid]) {
      graph_call_seen();
      if (instantiates[layer][cbid]) instantiation_begins();
    }
    state.api_correlation = data.correlation;
    state.api_key = layer << 16 | cbid;
    if (layer == 1 && launches_kernel[cbid] && level() == Level::kDeep)
      sample_launch_site(0, data.symbol, written_correlation(data.correlation));
    if (concerns_logged_calls(steps[layer][cbid])) logged_step_begins(steps[layer][cbid], data.symbol);
    state.api_start_ns = now_ns();
    if (layer == 1 && launches_kernel[cbid]) {
      if (attachment.kernels_on.load(std::memory_order_relaxed) &&
          attachment.launched.fetch_add(1, std::memory_order_relaxed) == 0)
        attachment.first_launch_ns.store(state.api_start_ns, std::memory_order_relaxed);
      kernel_launched(data.symbol, state.api_start_ns);
    }
    return false;
  }
  if (state.api_correlation != data.correlation || state.api_key != (layer << 16 | cbid)) return false;
  state.api_correlation = 0;
  if (disturbs[layer][cbid]) step_disturbed(state.api_start_ns);
  if (data.correlation > correlation_max.load(std::memory_order_relaxed))
    correlation_max.store(data.correlation, std::memory_order_relaxed);
  if (records_kernels()) record(layer, cbid, data, state.api_start_ns);
  if (of_graphs[layer][cbid] && instantiates[layer][cbid]) instantiation_ends(data);
  if (concerns_logged_calls(steps[layer][cbid])) logged_step_ends(steps[layer][cbid], now_ns());
  if (waits[layer][cbid]) {
    state.launches_since_wait = 0;
    host_waited(now_ns());
  }
  return true;
}

void continue_correlations() {
  const uint32_t used = correlation_max.exchange(0, std::memory_order_relaxed);
  correlation_base.fetch_add(used + kCorrelationRoom, std::memory_order_relaxed);
}

uint32_t written_correlation(uint32_t correlation) {
  return correlation == 0 ? 0 : correlation + correlation_base.load(std::memory_order_relaxed);
}

void abandon_calls() {
  for (std::atomic<Id>(&layer)[kCallsMost] : definitions)
    for (std::atomic<Id>& id : layer) id.store(0, std::memory_order_relaxed);
  correlation_base.store(0);
  correlation_max.store(0);
}

}  // namespace llmprof::inject
