// Environment: FAKE_CUPTI_SUBSCRIBE=N makes cuptiSubscribe fail with N; FAKE_CUPTI_VERSION=N is what cuptiGetVersion
// says (default 130001). Like the real one it keeps what is not flushed, so a killed program loses it.
#include "fake_cupti.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "nvidia/cupti_abi.h"

namespace cupti = llmprof::cupti;

#define EXPORT __attribute__((visibility("default")))

namespace {

constexpr size_t kKernelBytes = 216;  // CUpti_ActivityKernel10
constexpr size_t kMemcpyBytes = 96;
constexpr size_t kApiBytes = 40;

struct Out {
  uint8_t* buffer = nullptr;
  size_t size = 0;
  size_t used = 0;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
bool kinds[64];
uint64_t (*clock_function)() = nullptr;
bool clocks_mixed = false;
cupti::BufferRequest request = nullptr;
cupti::BufferComplete complete = nullptr;
cupti::CallbackFunction callback = nullptr;
void* callback_user = nullptr;
bool wanted[8][2048];
Out out;
uint32_t next_correlation = 1;
int handle;
thread_local bool in_callback = false;
uint32_t finalized = 0;

// As driver 580 with CUPTI 13.0.1: a graph that was launched with records on and then with records off, CUPTI still
// attached, does not run once CUPTI has left; none does that CUPTI left while another thread was launching one, or
// behind a copy that does not wait, while what the thread had launched ran; and none that was first uploaded, or first
// launched, with records on.
struct FakeExec {
  bool on_gpu = false, writes_records = false, recorded = false, spoiled = false;
};
std::map<uint64_t, FakeExec>& execs = *new std::map<uint64_t, FakeExec>;
std::atomic<int> launching_graphs{0};
bool left_under_a_launch = false;
thread_local bool gpu_runs = false;  // since the thread's last wait
bool running = false;
bool buffers_come_zeroed = false;
int context;  // the one that is current
constexpr uint32_t kContextId = 1, kDefaultStreamId = 7, kPerThreadStreamId = 8;
constexpr int kInvalidStream = 20, kInvalidContext = 3;  // CUptiResult

// Streams of the program: their handles are used again when they are destroyed, their ids are not.
struct FakeStream {
  uint32_t id = 0;  // 0: there is none
  char object[256] = {};
};
FakeStream streams[8];
uint32_t next_stream = 13;
uint32_t stream_questions = 0;

size_t size_of(uint32_t kind) {
  if (kind == cupti::kConcurrentKernel) return kKernelBytes;
  if (kind == cupti::kMemcpy) return kMemcpyBytes;
  if (kind == cupti::kRuntime || kind == cupti::kDriver) return kApiBytes;
  return 0;
}

uint64_t now() {
  if (clocks_mixed) return 1;
  if (clock_function != nullptr) return clock_function();
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000U + static_cast<uint64_t>(time.tv_nsec);
}

void hand_over() {
  if (out.buffer == nullptr) return;
  const Out full = out;
  out = Out();
  complete(nullptr, 0, full.buffer, full.size, full.used);
}

// With the lock held. Records are as long as CUDA 13's, their tail zero.
template <class Record>
void append(const Record& record, size_t bytes) {
  if (request == nullptr) return;
  if (out.buffer != nullptr && out.used + bytes > out.size) hand_over();
  if (out.buffer == nullptr) {
    size_t records = 0;
    request(&out.buffer, &out.size, &records);
    out.used = 0;
    if (out.buffer == nullptr || out.size < bytes) return;
  }
  if (buffers_come_zeroed && out.buffer[out.used] != 0) return;  // taken for written already
  std::memset(out.buffer + out.used, 0, bytes);
  std::memcpy(out.buffer + out.used, &record, sizeof record < bytes ? sizeof record : bytes);
  out.used += bytes;
}

// One end of a call, without the lock: the subscriber may take CUPTI out of the process here.
// `arguments`: the structure of the call's parameters.
void call_back(uint32_t domain, uint32_t cbid, const char* name, uint32_t correlation, cupti::ApiSite site,
               const char* symbol = nullptr, const void* arguments = nullptr) {
  if (callback == nullptr || !wanted[domain][cbid]) return;
  int result = 0;
  cupti::CallbackData data{};
  data.site = site;
  data.function = name;
  data.result = &result;
  data.correlation = correlation;
  data.symbol = symbol;
  data.parameters = arguments;
  data.context = &context;
  in_callback = true;
  callback(callback_user, domain, cbid, &data);
  in_callback = false;
}

void append_call(uint32_t cbid, uint32_t correlation, uint64_t start) {
  if (!kinds[cupti::kRuntime]) return;
  cupti::ApiActivity call{};
  call.kind = cupti::kRuntime;
  call.cbid = cbid;
  call.start = start;
  call.end = now();
  call.process = static_cast<uint32_t>(getpid());
  call.thread = static_cast<uint32_t>(syscall(SYS_gettid));
  call.correlation = correlation;
  append(call, kApiBytes);
}

constexpr uint32_t kLaunchCall = 211;
constexpr uint32_t kDriverLaunchCall = 307;
constexpr uint32_t kCopyCall = 41;
constexpr uint32_t kBeginCaptureCall = 272, kEndCaptureCall = 273;
constexpr const char* kBeginCaptureName = "cudaStreamBeginCapture_v10000";
constexpr const char* kEndCaptureName = "cudaStreamEndCapture_v10000";
constexpr const char* kLaunchName = "cudaLaunchKernel_v7000";
constexpr const char* kDriverLaunchName = "cuLaunchKernel";
constexpr const char* kCopyName = "cudaMemcpyAsync_v3020";
constexpr uint32_t kInstantiateCall = 290;
constexpr const char* kInstantiateName = "cudaGraphInstantiate_v12000";
constexpr uint32_t kNoiseCall = 17;  // cudaGetDevice: never worth a record
constexpr uint32_t kDriverCopyCall = 279;
constexpr const char* kDriverCopyName = "cuMemcpyHtoDAsync_v2";

struct DriverCall {
  uint32_t cbid;
  const char* name;
};
constexpr DriverCall kDriverCalls[] = {{kDriverLaunchCall, kDriverLaunchName},
                                       {kDriverCopyCall, kDriverCopyName},
                                       {282, "cuMemcpyDtoHAsync_v2"},
                                       {126, "cuStreamSynchronize"},
                                       {390, "cuGraphLaunch"},
                                       {391, "cuStreamBeginCapture_v2"},
                                       {392, "cuStreamEndCapture"},
                                       {119, "cuEventRecord"},
                                       {121, "cuEventSynchronize"},
                                       {295, "cuStreamWaitEvent"},
                                       {393, "cuEventRecord_ptsz"},
                                       {394, "cuStreamWaitEvent_ptsz"},
                                       {395, "cuStreamSynchronize_ptsz"}};
// Of the runtime, which calls the driver in them.
constexpr DriverCall kRuntimeCalls[] = {
    {kLaunchCall, kLaunchName},
    {kCopyCall, kCopyName},
    {kBeginCaptureCall, kBeginCaptureName},
    {kEndCaptureCall, kEndCaptureName},
    {kInstantiateCall, kInstantiateName},
    {131, "cudaStreamSynchronize_v3020"},
    {135, "cudaEventRecord_v3020"},
    {137, "cudaEventSynchronize_v3020"},
    {147, "cudaStreamWaitEvent_v3020"},
    {239, "cudaStreamSynchronize_ptsz_v7000"},
    {242, "cudaEventRecord_ptsz_v7000"},
    {247, "cudaStreamWaitEvent_ptsz_v7000"},
};

// A call of the runtime and the one of the driver in it. The names are those of kRuntimeCalls without their release.
void call_both(std::string_view runtime, std::string_view driver, const void* arguments) {
  const DriverCall *outer = nullptr, *inner = nullptr;
  for (const DriverCall& call : kRuntimeCalls) {
    const std::string_view name = call.name;
    if (name.substr(0, name.rfind("_v")) == runtime) outer = &call;
  }
  for (const DriverCall& call : kDriverCalls)
    if (call.name == driver) inner = &call;
  if (outer == nullptr || inner == nullptr) std::abort();
  pthread_mutex_lock(&lock);
  const uint32_t correlation = next_correlation++;
  pthread_mutex_unlock(&lock);
  for (const cupti::ApiSite site : {cupti::kApiEnter, cupti::kApiExit}) {
    const bool enters = site == cupti::kApiEnter;
    const DriverCall* const first = enters ? outer : inner;
    const DriverCall* const second = enters ? inner : outer;
    const auto domain = [&](const DriverCall* call) {
      return call == outer ? cupti::kDomainRuntime : cupti::kDomainDriver;
    };
    call_back(domain(first), first->cbid, first->name, correlation, site, nullptr, arguments);
    call_back(domain(second), second->cbid, second->name, correlation, site, nullptr, arguments);
  }
}

std::string with_stream(std::string_view call, bool per_thread) {
  return std::string(call) + (per_thread ? "_ptsz" : "");
}

const DriverCall* driver_call(uint32_t cbid) {
  for (const DriverCall& call : kDriverCalls)
    if (call.cbid == cbid) return &call;
  return nullptr;
}

void driver_call_back(const char* name, uint32_t correlation, cupti::ApiSite site) {
  for (const DriverCall& call : kDriverCalls)
    if (std::strcmp(call.name, name) == 0)
      return call_back(cupti::kDomainDriver, call.cbid, call.name, correlation, site);
  std::abort();
}

template <class Record>
void fill_ran(Record& record, uint64_t start_ns, uint64_t end_ns, uint32_t correlation, uint64_t graph_node) {
  record.start = start_ns;
  record.end = end_ns;
  record.context = 1;
  record.stream = 7;
  record.correlation = correlation;
  record.graph_node = graph_node;
}

uint32_t copy(uint64_t bytes, uint64_t start_ns, uint64_t duration_ns, bool pageable, bool by_runtime) {
  const uint64_t called = now();
  pthread_mutex_lock(&lock);
  const uint32_t correlation = next_correlation++;
  pthread_mutex_unlock(&lock);
  if (by_runtime) call_back(cupti::kDomainRuntime, kCopyCall, kCopyName, correlation, cupti::kApiEnter);
  call_back(cupti::kDomainDriver, kDriverCopyCall, kDriverCopyName, correlation, cupti::kApiEnter);
  pthread_mutex_lock(&lock);
  if (kinds[cupti::kMemcpy]) {
    cupti::MemcpyActivity record{};
    record.kind = cupti::kMemcpy;
    record.copy_kind = 1;
    record.source_kind = pageable ? 1 : 2;
    record.dest_kind = 3;
    record.bytes = bytes;
    record.start = start_ns;
    record.end = start_ns + duration_ns;
    record.context = 1;
    record.stream = 7;
    record.correlation = correlation;
    append(record, kMemcpyBytes);
  }
  if (by_runtime) append_call(kCopyCall, correlation, called);
  pthread_mutex_unlock(&lock);
  call_back(cupti::kDomainDriver, kDriverCopyCall, kDriverCopyName, correlation, cupti::kApiExit);
  if (by_runtime) call_back(cupti::kDomainRuntime, kCopyCall, kCopyName, correlation, cupti::kApiExit);
  return correlation;
}

}  // namespace

extern "C" {

EXPORT uint32_t fake_launch(const char* kernel, uint64_t start_ns, uint64_t duration_ns, uint32_t stream,
                            uint64_t graph_node) {
  const uint64_t called = now();
  pthread_mutex_lock(&lock);
  const uint32_t correlation = next_correlation++;
  pthread_mutex_unlock(&lock);
  call_back(cupti::kDomainRuntime, kLaunchCall, kLaunchName, correlation, cupti::kApiEnter);
  call_back(cupti::kDomainDriver, kDriverLaunchCall, kDriverLaunchName, correlation, cupti::kApiEnter, kernel);
  pthread_mutex_lock(&lock);
  if (kinds[cupti::kConcurrentKernel]) {
    cupti::KernelActivity record{};
    record.kind = cupti::kConcurrentKernel;
    record.registers_per_thread = 32;
    // In the time of CUPTI's clock, whatever the caller's.
    record.start = clock_function == nullptr && !clocks_mixed ? start_ns : now();
    record.end = record.start + duration_ns;
    record.context = 1;
    record.stream = stream;
    for (int i = 0; i < 3; ++i) record.grid[i] = record.block[i] = 1;
    record.grid[0] = 8;
    record.block[0] = 128;
    record.correlation = correlation;
    record.name = kernel;
    record.graph_node = graph_node;
    append(record, kKernelBytes);
  }
  append_call(kLaunchCall, correlation, called);
  append_call(kNoiseCall, next_correlation++, now());
  pthread_mutex_unlock(&lock);
  call_back(cupti::kDomainDriver, kDriverLaunchCall, kDriverLaunchName, correlation, cupti::kApiExit);
  call_back(cupti::kDomainRuntime, kLaunchCall, kLaunchName, correlation, cupti::kApiExit);
  return correlation;
}

EXPORT uint32_t fake_copy(uint64_t bytes, uint64_t start_ns, uint64_t duration_ns, bool pageable) {
  return copy(bytes, start_ns, duration_ns, pageable, true);
}

EXPORT uint32_t fake_driver_copy(uint64_t bytes, uint64_t start_ns, uint64_t duration_ns) {
  return copy(bytes, start_ns, duration_ns, false, false);
}

EXPORT uint64_t fake_now() { return now(); }

EXPORT uint32_t fake_call_begins(const char* name) {
  if (std::strstr(name, "Synchronize") != nullptr) gpu_runs = false;
  pthread_mutex_lock(&lock);
  const uint32_t correlation = next_correlation++;
  pthread_mutex_unlock(&lock);
  driver_call_back(name, correlation, cupti::kApiEnter);
  return correlation;
}

EXPORT void fake_call_ends(const char* name, uint32_t correlation) {
  driver_call_back(name, correlation, cupti::kApiExit);
}

EXPORT void fake_graph_uploaded(uint64_t graph) {
  pthread_mutex_lock(&lock);
  FakeExec& exec = execs[graph];
  if (!exec.on_gpu) exec.writes_records = callback != nullptr && kinds[cupti::kConcurrentKernel];
  exec.on_gpu = true;
  pthread_mutex_unlock(&lock);
}

EXPORT int fake_graph_launches(uint64_t graph) {
  fake_graph_uploaded(graph);
  pthread_mutex_lock(&lock);
  FakeExec& exec = execs[graph];
  const bool fails = callback == nullptr && (exec.spoiled || left_under_a_launch);
  if (callback != nullptr && kinds[cupti::kConcurrentKernel])
    exec.recorded = true;
  else if (callback != nullptr && exec.recorded)
    exec.spoiled = true;
  gpu_runs = true;
  pthread_mutex_unlock(&lock);
  return fails ? 719 : 0;  // CUDA_ERROR_LAUNCH_FAILED
}

EXPORT int fake_launch_graph(uint32_t graph, uint64_t first_node, uint32_t nodes, uint64_t node_ns) {
  if (const int error = fake_graph_launches(graph); error != 0) return error;
  ++launching_graphs;
  const uint32_t correlation = fake_call_begins("cuGraphLaunch");
  if (callback != nullptr) usleep(500);  // as long as the driver takes for some hundred nodes under CUPTI
  for (uint32_t i = 0; i < nodes; ++i)
    fake_kernel_ran("_Z4nodePf", now() + i * node_ns, now() + (i + 1) * node_ns, correlation, first_node + i);
  fake_call_ends("cuGraphLaunch", correlation);
  --launching_graphs;
  return 0;
}

EXPORT void fake_kernel_ran(const char* kernel, uint64_t start_ns, uint64_t end_ns, uint32_t correlation,
                            uint64_t graph_node) {
  pthread_mutex_lock(&lock);
  if (kinds[cupti::kConcurrentKernel]) {
    cupti::KernelActivity record{};
    record.kind = cupti::kConcurrentKernel;
    record.registers_per_thread = 32;
    for (int i = 0; i < 3; ++i) record.grid[i] = record.block[i] = 1;
    record.name = kernel;
    fill_ran(record, start_ns, end_ns, correlation, graph_node);
    append(record, kKernelBytes);
  }
  pthread_mutex_unlock(&lock);
}

EXPORT void fake_copy_ran(uint64_t bytes, bool to_device, uint64_t start_ns, uint64_t end_ns, uint32_t correlation,
                          uint64_t graph_node) {
  pthread_mutex_lock(&lock);
  if (kinds[cupti::kMemcpy]) {
    cupti::MemcpyActivity record{};
    record.kind = cupti::kMemcpy;
    record.copy_kind = to_device ? 1 : 2;
    record.source_kind = to_device ? 2 : 3;
    record.dest_kind = to_device ? 3 : 2;
    record.bytes = bytes;
    fill_ran(record, start_ns, end_ns, correlation, graph_node);
    append(record, kMemcpyBytes);
  }
  pthread_mutex_unlock(&lock);
}

EXPORT void fake_capture(bool begins) {
  const uint32_t cbid = begins ? kBeginCaptureCall : kEndCaptureCall;
  const char* const name = begins ? kBeginCaptureName : kEndCaptureName;
  pthread_mutex_lock(&lock);
  const uint32_t correlation = next_correlation++;
  pthread_mutex_unlock(&lock);
  call_back(cupti::kDomainRuntime, cbid, name, correlation, cupti::kApiEnter);
  call_back(cupti::kDomainRuntime, cbid, name, correlation, cupti::kApiExit);
}

EXPORT void* fake_stream() {
  for (FakeStream& stream : streams)
    if (stream.id == 0) {
      stream.id = next_stream++;
      return &stream.object;
    }
  std::abort();
}
EXPORT void fake_stream_ends(void* ended) {
  if (callback != nullptr && wanted[cupti::kDomainResource][cupti::kStreamDestroyStarting]) {
    cupti::ResourceData resource{};
    resource.stream = ended;
    callback(callback_user, cupti::kDomainResource, cupti::kStreamDestroyStarting, &resource);
  }
  for (FakeStream& stream : streams)
    if (&stream.object == ended) stream.id = 0;
}
EXPORT uint32_t fake_stream_questions() { return stream_questions; }

EXPORT void fake_event_record(void* event, void* stream, bool per_thread) {
  const struct { void *event, *stream; } arguments{event, stream};
  call_both(with_stream("cudaEventRecord", per_thread), with_stream("cuEventRecord", per_thread), &arguments);
}
EXPORT void fake_stream_waits(void* stream, void* event, bool per_thread) {
  const struct {
    void *stream, *event;
    unsigned flags;
  } arguments{stream, event, 0};
  call_both(with_stream("cudaStreamWaitEvent", per_thread), with_stream("cuStreamWaitEvent", per_thread), &arguments);
}
EXPORT void fake_synchronize_stream(void* stream, bool per_thread) {
  gpu_runs = false;
  call_both(with_stream("cudaStreamSynchronize", per_thread), with_stream("cuStreamSynchronize", per_thread), &stream);
}
EXPORT void fake_synchronize_event(void* event) {
  gpu_runs = false;
  call_both("cudaEventSynchronize", "cuEventSynchronize", &event);
}

EXPORT void fake_instantiate(void* graph, const FakeCopy* copies, uint32_t count) {
  void* made = nullptr;
  const struct {
    void** exec;
    void* graph;
    unsigned long long flags;
  } arguments{&made, graph, 0};
  pthread_mutex_lock(&lock);
  const uint32_t correlation = next_correlation++;
  pthread_mutex_unlock(&lock);
  call_back(cupti::kDomainRuntime, kInstantiateCall, kInstantiateName, correlation, cupti::kApiEnter, nullptr,
            &arguments);
  for (uint32_t i = 0; i < count; ++i) fake_graph_node(copies[i].copy, copies[i].original, copies[i].type);
  call_back(cupti::kDomainRuntime, kInstantiateCall, kInstantiateName, correlation, cupti::kApiExit, nullptr,
            &arguments);
}

EXPORT void fake_graph_node(uint64_t node, uint64_t original, uint32_t type) {
  const uint32_t cbid = original == 0 ? cupti::kGraphNodeCreated : cupti::kGraphNodeCloned;
  if (callback == nullptr || !wanted[cupti::kDomainResource][cbid]) return;
  cupti::GraphData graph{};
  graph.node_type = type;
  graph.node = reinterpret_cast<void*>(node);
  graph.original_node = reinterpret_cast<void*>(original);
  cupti::ResourceData resource{};
  resource.descriptor = &graph;
  callback(callback_user, cupti::kDomainResource, cbid, &resource);
}

EXPORT int cuptiGetVersion(uint32_t* version) {
  const char* text = std::getenv("FAKE_CUPTI_VERSION");
  *version = text == nullptr ? cupti::kVersion13_0u1 : static_cast<uint32_t>(std::atoi(text));
  return 0;
}
EXPORT int cuptiGetTimestamp(uint64_t* time) {
  *time = now();
  return 0;
}
EXPORT int cuptiSubscribe(void** subscriber, cupti::CallbackFunction function, void* user) {
  if (const char* text = std::getenv("FAKE_CUPTI_SUBSCRIBE")) return std::atoi(text);
  if (callback != nullptr) return cupti::kErrorMultipleSubscribers;
  callback = function;
  callback_user = user;
  *subscriber = &handle;
  return 0;
}
EXPORT int cuptiUnsubscribe(void*) {
  callback = nullptr;
  return 0;
}
EXPORT int cuptiEnableCallback(uint32_t enable, void* subscriber, uint32_t domain, uint32_t cbid) {
  if (subscriber != &handle) return 1;
  if (domain < 8 && cbid < 2048) wanted[domain][cbid] = enable != 0;
  return 0;
}
EXPORT int cuptiEnableDomain(uint32_t enable, void* subscriber, uint32_t domain) {
  if (subscriber != &handle) return 1;
  for (bool& one : wanted[domain]) one = enable != 0;
  return 0;
}
EXPORT int cuptiActivityEnable(uint32_t kind) {
  pthread_mutex_lock(&lock);
  if (kind < 64) kinds[kind] = true;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuptiActivityDisable(uint32_t kind) {
  pthread_mutex_lock(&lock);
  if (kind < 64) kinds[kind] = false;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuptiActivityRegisterCallbacks(cupti::BufferRequest requested, cupti::BufferComplete completed) {
  request = requested;
  complete = completed;
  return 0;
}
EXPORT int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_size, cupti::Activity** record) {
  uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + valid_size) return 11;  // CUPTI_ERROR_MAX_LIMIT_REACHED of this call
  *record = reinterpret_cast<cupti::Activity*>(next);
  return size_of((*record)->kind) == 0 ? 21 : 0;
}
EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  *dropped = 0;
  return 0;
}
EXPORT int cuptiActivityFlushAll(uint32_t forced) {
  pthread_mutex_lock(&lock);
  if (forced != 0 || !running) hand_over();
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT void fake_running(bool runs) { running = runs; }
EXPORT int cuptiActivitySetAttribute(uint32_t attribute, size_t*, void* value) {
  if (attribute == cupti::kAttributeZeroedOutBuffer) buffers_come_zeroed = *static_cast<uint8_t*>(value) != 0;
  return 0;
}
// As the real one: with a kind on, the clocks of before and after are mixed, and times are worthless from then on.
EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*function)()) {
  for (const bool on : kinds) clocks_mixed |= on && function != clock_function;
  clock_function = function;
  return 0;
}
EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char** name) {
  if (domain == cupti::kDomainDriver && cbid < 400) {
    const DriverCall* const call = driver_call(cbid);
    *name = call != nullptr ? call->name : "cuCtxGetCurrent";
    return 0;
  }
  if (domain != cupti::kDomainRuntime || cbid >= 300) return 1;
  *name = "cudaGetDevice_v3020";
  for (const DriverCall& call : kRuntimeCalls)
    if (call.cbid == cbid) *name = call.name;
  return 0;
}
EXPORT int cuptiGetGraphNodeId(void* node, uint64_t* id) {
  *id = reinterpret_cast<uint64_t>(node);
  return 0;
}
// As the real ones: a context that is given must be the stream's, and a handle must be one of now.
EXPORT int cuptiGetStreamIdEx(void* of, void* asked, uint8_t per_thread, uint32_t* id) {
  ++stream_questions;
  if (of != nullptr && of != &context) return kInvalidContext;
  if (asked == nullptr) {
    *id = per_thread != 0 ? kPerThreadStreamId : kDefaultStreamId;
    return 0;
  }
  for (const FakeStream& stream : streams)
    if (&stream.object == asked && stream.id != 0) {
      *id = stream.id;
      return 0;
    }
  return kInvalidStream;
}
EXPORT int cuptiGetContextId(void* of, uint32_t* id) {
  *id = kContextId;
  return of == &context ? 0 : kInvalidContext;
}
EXPORT int cuptiGetDeviceId(void* of, uint32_t* id) {
  *id = 0;
  return of == nullptr || of == &context ? 0 : kInvalidContext;
}
EXPORT int cuptiSetThreadIdType(uint32_t) { return 0; }
EXPORT int cuptiGetResultString(int, const char** text) {
  *text = "FAKE_ERROR";
  return 0;
}
// As the real one: everything is forgotten, ids begin anew, records that were not flushed come with their names gone.
// It must be
// called at the end of a call; this one insists.
EXPORT int cuptiFinalize() {
  if (!in_callback) std::abort();
  pthread_mutex_lock(&lock);
  if (complete != nullptr) hand_over();
  std::memset(kinds, 0, sizeof kinds);
  std::memset(wanted, 0, sizeof wanted);
  callback = nullptr;
  request = nullptr;
  complete = nullptr;
  next_correlation = 1;
  for (auto& [graph, exec] : execs) {
    exec.spoiled = exec.spoiled || exec.writes_records || (exec.recorded && gpu_runs);
    exec.recorded = false;
  }
  left_under_a_launch = left_under_a_launch || launching_graphs > 0;
  ++finalized;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT uint32_t fake_finalized() { return finalized; }

}  // extern "C"
