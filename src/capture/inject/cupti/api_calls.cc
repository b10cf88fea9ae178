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
#include "capture/inject/threads/code_watch.h"
#include "capture/inject/threads/host_pace.h"
#include "capture/inject/threads/reentry_guard.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {
namespace {

// What is known of a call, in eight bytes.
struct KnownCall {
  std::atomic<Id> definition{0};         // in the spool; 0 until the first call
  LoggedStep step = LoggedStep::kOther;  // what it is to a product known from a library's log
  CallArguments arguments = CallArguments::kOthers;
  bool kept : 1 = false;
  bool launches_kernel : 1 = false;  // of the driver
  bool disturbs : 1 = false;         // no steady step makes it
  bool waits : 1 = false;            // for the GPU, whatever its arguments
  bool allocates : 1 = false;        // memory, not from a pool
  bool launches_graph : 1 = false;
  bool ends_capture : 1 = false;
  bool instantiates : 1 = false;       // makes one
  bool changes_graph : 1 = false;      // of one that was made
  bool per_thread_stream : 1 = false;  // stream 0 is the thread's own
  bool enqueues : 1 = false;           // gives the GPU something to do
  bool copies : 1 = false;             // may return before it is done
};
static_assert(sizeof(KnownCall) == 8);

// By layer (0 runtime, 1 driver) and callback id.
constexpr uint32_t kCallsMost = 2000;
KnownCall calls[2][kCallsMost];

// Calls that gave the GPU something to do, and how many there had been when an event was last recorded.
std::atomic<uint64_t> enqueued{0}, enqueued_at_event{0}, latest_event{0};

// Other calls than ours draw ids of CUPTI's too, and threads race for the largest: leave room for both.
constexpr uint32_t kCorrelationRoom = 1U << 16;

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The calls worth a record: what launches, copies, waits, allocates, loads code or builds graphs. Nine of ten calls of
// a PyTorch program are none of these. Chosen by name, so that variants added by later CUDA versions are in.
bool worth_recording(std::string_view name, bool runtime) {
  const std::string_view prefix = runtime ? "cuda" : "cu";
  if (!starts_with(name, prefix)) return false;
  name.remove_prefix(prefix.size());
  if (contains(name, "GetAttribute") || starts_with(name, "Get")) return false;
  // What comes often is taken at the driver: every launch, copy and wait has exactly one call there, whether the
  // program called the runtime, the driver (Triton, cuBLAS) or the driver through the runtime; taken at both, it would
  // cost twice the callbacks. All else is taken where the program calls it, the runtime or the driver: on_api_callback
  // passes over a driver call below a runtime call.
  static constexpr std::string_view kAtDriver[] = {
      "Launch", "GraphLaunch",    "EventRecord",       "StreamWaitEvent", "Memcpy",
      "Memset", "CtxSynchronize", "StreamSynchronize", "EventSynchronize"};
  static constexpr std::string_view kRuntime[] = {
      "Malloc",          "Free",        "HostAlloc",   "HostRegister",       "HostUnregister",   "GraphInstantiate",
      "GraphExecUpdate", "GraphUpload", "MemPrefetch", "StreamBeginCapture", "StreamEndCapture", "LibraryLoad"};
  static constexpr std::string_view kDriver[] = {
      "MemAlloc",           "MemFree",          "MemHostAlloc",    "MemHostRegister",
      "MemHostUnregister",  "MemCreate",        "MemMap",          "MemUnmap",
      "MemPrefetch",        "GraphInstantiate", "GraphExecUpdate", "GraphUpload",
      "StreamBeginCapture", "StreamEndCapture", "ModuleLoad",      "LibraryLoad"};
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

bool allocates(std::string_view name) {
  if (contains(name, "Async") || contains(name, "FromPool")) return false;
  for (const std::string_view part : {"Malloc", "Alloc", "Free", "MemCreate", "MemMap", "MemUnmap"})
    if (contains(name, part)) return true;
  return false;
}

// Host code that is long enough to ask where it is, and not so long that nothing was recorded meanwhile.
constexpr int64_t kHostCodeLeastNs = 100'000, kHostCodeMostNs = 1'000'000'000;

// What the program has used of its CPUs when something long ends. Between the end of a long call and that of the code
// behind it lies the code alone: a thread that waits for the GPU, in a copy or a full queue too, uses a CPU all along,
// and a program that waits for its input none.
void read_cpu_time(ThreadLog& log, int64_t start_ns, int64_t end_ns) {
  timespec used{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0)
    add_cpu_reading(log, start_ns, end_ns, used.tv_sec * 1'000'000'000LL + used.tv_nsec);
}

// Where the program is at the start of a call.
void place_call(const KnownCall& call, ThreadState& state) {
  const int64_t code_ns = state.api_end_ns == 0 ? 0 : state.api_start_ns - state.api_end_ns;
  const bool after_code = code_ns >= kHostCodeLeastNs && code_ns <= kHostCodeMostNs;
  if (!after_code && !call.allocates) return;
  ThreadLog* const log = state.log != nullptr ? state.log : make_thread_log();
  if (log == nullptr) return;
  // Whether that was code, or waiting for something that is no GPU, which other threads may do meanwhile.
  if (after_code) read_cpu_time(*log, state.api_end_ns, state.api_start_ns);
  const Id stack = python_stack_id(*log);
  if (stack == 0) return;
  if (after_code) add_host_place(*log, spool::PlaceKind::kHostCode, stack, state.api_end_ns, state.api_start_ns);
  if (call.allocates)
    add_host_place(*log, spool::PlaceKind::kAllocation, stack, state.api_start_ns, state.api_start_ns);
}

// A copy, with the time the call took: one of pageable memory to the host waits for all work before it.
void place_copy(const ThreadState& state) {
  if (state.log == nullptr || state.api_end_ns < state.api_start_ns) return;
  const Id stack = python_stack_id(*state.log);
  if (stack == 0) return;
  add_host_place(*state.log, spool::PlaceKind::kCopy, stack, state.api_start_ns, state.api_end_ns);
}

// One launch of eight, drawn at random, so that every launch of a step has its turn whatever recurs in it. Reading a
// stack takes a tenth of what a launch takes; of all of them it would be seen. Where many are placed already, more say
// little: one of 32 then. The shares of a report are those of a kernel's own launches, so a rate that changes does not
// move them.
uint8_t launches_to_pass(ThreadState& state) {
  constexpr uint16_t kManyPlaced = 1024;
  constexpr uint32_t kMeanTwice = 15, kMeanTwiceOfMany = 63;
  state.drawn ^= state.drawn << 13;
  state.drawn ^= state.drawn >> 17;
  state.drawn ^= state.drawn << 5;
  const bool many = state.placed_launches >= kManyPlaced;
  if (!many) ++state.placed_launches;
  return static_cast<uint8_t>(state.drawn % (many ? kMeanTwiceOfMany : kMeanTwice));
}

void place_launch(ThreadState& state) {
  if (state.unplaced_launches != 0) {
    --state.unplaced_launches;
    return;
  }
  state.unplaced_launches = launches_to_pass(state);
  if (state.log == nullptr || state.api_end_ns < state.api_start_ns) return;
  const Id stack = python_stack_id(*state.log, FramesOf::kModels);
  if (stack == 0) return;
  add_host_place(*state.log, spool::PlaceKind::kLaunch, stack, state.api_start_ns, state.api_end_ns);
}

Id definition_of(std::atomic<Id>& known, uint32_t layer, uint32_t cbid, const char* function) {
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

void record(KnownCall& call, uint32_t layer, uint32_t cbid, const cupti::CallbackData& data, ThreadState& state) {
  ThreadLog* const log = state.log != nullptr ? state.log : make_thread_log();
  if (log == nullptr) return;
  Event event;
  event.kind = EventKind::kApiCall;
  event.definition = definition_of(call.definition, layer, cbid, data.function);
  if (event.definition == 0) return;
  const uint32_t result = data.result == nullptr ? 0 : static_cast<uint32_t>(*static_cast<const int*>(data.result));
  event.handle = uint64_t{result} << 32 | written_correlation(data.correlation);
  event.start_ns = state.api_start_ns;
  event.end_ns = state.api_end_ns = now_ns();
  code_begins(state, state.api_end_ns);
  if (call.arguments != CallArguments::kOthers) {
    const CallTarget target = target_of(call.arguments, call.per_thread_stream, data, *log);
    event.domain = target.stream;
    std::memcpy(&event.payload, &target.event, sizeof event.payload);
  }
  append(*log, event);
  if (event.end_ns - event.start_ns >= kHostCodeLeastNs) read_cpu_time(*log, event.end_ns, event.end_ns);
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
      KnownCall& call = calls[runtime ? 0 : 1][cbid];
      call.launches_kernel =
          !runtime && (contains(plain, "LaunchKernel") || contains(plain, "LaunchCooperativeKernel"));
      call.step = step_of(plain, runtime);
      call.disturbs = disturbs_step(plain);
      call.waits = waits_for_gpu(plain);
      call.allocates = allocates(plain);
      call.instantiates = contains(plain, "GraphInstantiate");
      call.changes_graph = contains(plain, "GraphExecUpdate") || contains(plain, "GraphUpload");
      call.launches_graph = contains(plain, "GraphLaunch");
      call.ends_capture = contains(plain, "StreamEndCapture");
      call.arguments = arguments_of(plain);
      call.per_thread_stream = contains(name, "_ptsz");
      call.enqueues = call.launches_kernel || call.launches_graph || contains(plain, "Memcpy") ||
                      contains(plain, "Memset") || contains(plain, "LaunchHostFunc");
      call.copies = contains(plain, "Memcpy") && !call.waits;
      call.kept = worth_recording(plain, runtime) ||
                  (runtime && deepest == Level::kDeep && !mere_question(plain) && !contains(plain, "Launch"));
    }
  }
}

void enable_calls(const nvidia::CuptiLibrary& api, cupti::Subscriber subscriber) {
  latest_event.store(0, std::memory_order_relaxed);  // what was launched while CUPTI was away was not counted
  for (uint32_t cbid = 1; cbid < kCallsMost; ++cbid) {
    if (calls[0][cbid].kept) api.cuptiEnableCallback(1, subscriber, cupti::kDomainRuntime, cbid);
    if (calls[1][cbid].kept) api.cuptiEnableCallback(1, subscriber, cupti::kDomainDriver, cbid);
  }
}

void enable_own_calls() {
  if (has_activities() && own_subscriber() != nullptr) enable_calls(*loaded_cupti(), own_subscriber());
}

namespace {

// Whether the GPU has nothing left to do behind a call that ends: it waited, and nobody has given it anything since it
// began; for an event, nobody since that was recorded. Work of streams that it does not wait for is not seen.
bool leaves_gpu_idle(const KnownCall& call, const cupti::CallbackData& data, const ThreadState& state) {
  const uint64_t now = enqueued.load(std::memory_order_relaxed);
  if (!call.waits) return false;
  if (call.arguments != CallArguments::kEvent) return now == state.enqueued_before + (call.enqueues ? 1 : 0);
  return event_of(call.arguments, data) == latest_event.load(std::memory_order_relaxed) &&
         now == enqueued_at_event.load(std::memory_order_relaxed);
}

void event_recorded(const cupti::CallbackData& data) {
  enqueued_at_event.store(enqueued.load(std::memory_order_relaxed), std::memory_order_relaxed);
  latest_event.store(event_of(CallArguments::kRecord, data), std::memory_order_relaxed);
}

}  // namespace

bool wants_call(uint32_t domain, uint32_t cbid) {
  if (domain != cupti::kDomainRuntime && domain != cupti::kDomainDriver) return false;
  return cbid < kCallsMost && calls[domain == cupti::kDomainRuntime ? 0 : 1][cbid].kept;
}

CallEnd on_api_callback(uint32_t domain, uint32_t cbid, const cupti::CallbackData& data) {
  const uint32_t layer = domain == cupti::kDomainRuntime ? 0 : 1;
  if (cbid >= kCallsMost) return CallEnd::kNone;
  KnownCall& call = calls[layer][cbid];
  ThreadState& state = thread_state;
  if (!call.kept || state.inside) return CallEnd::kNone;
  const uint32_t key = layer << 16 | cbid;
  if (data.site == cupti::kApiEnter) {
    // A driver call below a runtime call has the same id and is part of it. A call whose end was never seen, because
    // callbacks were switched off under it, gives way to the next one.
    if (state.api_correlation == data.correlation) return CallEnd::kNone;
    if (call.launches_graph) graph_launched();
    if (call.changes_graph) graph_made();
    if (call.instantiates) {
      graph_instantiation_begins();
      instantiation_begins();
    }
    code_ends(state);
    state.api_correlation = data.correlation;
    state.api_key = key;
    state.enqueued_before =
        call.enqueues ? enqueued.fetch_add(1, std::memory_order_relaxed) : enqueued.load(std::memory_order_relaxed);
    if (call.launches_kernel && level() == Level::kDeep)
      sample_launch_site(0, data.symbol, written_correlation(data.correlation));
    if (concerns_logged_calls(call.step)) logged_step_begins(call.step, data.symbol);
    state.api_start_ns = now_ns();
    if (call.launches_kernel) {
      Attachment::Launches& launches = attachment.launches;
      if (switches.kernels_on.load(std::memory_order_relaxed) &&
          launches.count.fetch_add(1, std::memory_order_relaxed) == 0)
        launches.first_ns.store(state.api_start_ns, std::memory_order_relaxed);
      kernel_launched(state, data.symbol, state.api_start_ns);
    }
    if (records_kernels()) {
      // Of a program whose waits no hook sees, it has the runtime in itself.
      if (call.waits && state.log != nullptr) state.api_start_ns = probe_host_pace(*state.log, state.api_start_ns);
      place_call(call, state);
    }
    return CallEnd::kNone;
  }
  if (state.api_correlation != data.correlation || state.api_key != key) return CallEnd::kNone;
  state.api_correlation = 0;
  const bool gpu_idle = leaves_gpu_idle(call, data, state);
  if (call.arguments == CallArguments::kRecord) event_recorded(data);
  if (call.disturbs) step_disturbed(state.api_start_ns);
  if (call.instantiates) graph_made_for_steps(now_ns());
  std::atomic<uint32_t>& correlation_max = attachment.launches.correlation_max;
  if (data.correlation > correlation_max.load(std::memory_order_relaxed))
    correlation_max.store(data.correlation, std::memory_order_relaxed);
  if (records_kernels()) {
    record(call, layer, cbid, data, state);
    if (call.copies) place_copy(state);
    if (call.launches_kernel) place_launch(state);
    // A wait that a hook did not see: of a program that has the runtime in itself.
    if (call.waits && !state.waits && state.log != nullptr)
      add_host_place(*state.log, spool::PlaceKind::kWait, python_stack_id(*state.log), state.api_start_ns,
                     state.api_end_ns);
  }
  if (call.instantiates) {
    instantiation_ends(data);
    graph_made();
  }
  if (call.ends_capture) capture_ended();
  if (concerns_logged_calls(call.step)) logged_step_ends(call.step, now_ns());
  if (call.waits) {
    state.launches_since_wait = 0;
    host_waited(now_ns());
  }
  return gpu_idle ? CallEnd::kGpuIdle : CallEnd::kCall;
}

void continue_correlations() {
  const uint32_t used = attachment.launches.correlation_max.exchange(0, std::memory_order_relaxed);
  switches.correlation_base.fetch_add(used + kCorrelationRoom, std::memory_order_relaxed);
}

uint32_t written_correlation(uint32_t correlation) {
  return correlation == 0 ? 0 : correlation + switches.correlation_base.load(std::memory_order_relaxed);
}

void abandon_calls() {
  for (KnownCall(&layer)[kCallsMost] : calls)
    for (KnownCall& call : layer) call.definition.store(0, std::memory_order_relaxed);
  switches.correlation_base.store(0);
  attachment.launches.correlation_max.store(0);
}

}  // namespace llmprof::inject
