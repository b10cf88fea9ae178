// The part of CUPTI's binary interface that the injection library uses, declared by ourselves: llmprof is built on
// machines without a CUDA toolkit, and one binary serves CUDA 11.8 to 13.x. Values and layouts are those of the
// official headers, checked against them by tests/unit/nvidia_cupti_abi_test.cc wherever a toolkit is installed.
//
// Record layouts only grow at their end from one CUDA version to the next, so a prefix is valid for every version that
// has the fields; a field that came later is read only behind a check of cuptiGetVersion() (kVersion constants).
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::cupti {

using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kErrorMaxLimitReached = 12;
constexpr Result kErrorInsufficientPrivileges = 35;
constexpr Result kErrorMultipleSubscribers = 39;

// cuptiGetVersion(): a running number up to CUDA 12.9, from 13 on major*10000 + minor*100 + patch.
constexpr uint32_t kVersion11_8 = 18;
constexpr uint32_t kVersion12_0 = 19;
constexpr uint32_t kVersion12_3 = 21;
constexpr uint32_t kVersion12_6 = 24;        // cuptiFinalize leaves a usable process behind
constexpr uint32_t kVersion12_9 = 27;        // a request for a buffer may be refused
constexpr uint32_t kVersion13_0 = 130000;    // graphs survive cuptiFinalize (docs/adr 24)
constexpr uint32_t kVersion13_0u1 = 130001;  // disabling kernels no longer deadlocks

enum ActivityKind : uint32_t {
  kMemcpy = 1,
  kMemset = 2,
  kSerialKernel = 3,
  kDriver = 4,
  kRuntime = 5,
  kDevice = 8,
  kConcurrentKernel = 10,
  kMarker = 12,
  kOverhead = 17,
  kMemcpy2 = 22,
  kSynchronization = 38,
  kMemory2 = 49,
  kGraphTrace = 51,
};

enum ActivityAttribute : uint32_t {
  kAttributeDeviceBufferSize = 0,
  kAttributeZeroedOutBuffer = 5,
};

enum CallbackDomain : uint32_t {
  kDomainDriver = 1,
  kDomainRuntime = 2,
  kDomainResource = 3,
  kDomainState = 6,
};

enum ResourceCallback : uint32_t {
  kContextCreated = 1,
  kContextDestroyStarting = 2,
  kStreamDestroyStarting = 4,
  kGraphNodeCreated = 13,
  kGraphNodeCloned = 20,
};

enum OverheadKind : uint32_t {
  kOverheadCompiler = 1,
  kOverheadBufferFlush = 1U << 16,
  kOverheadInstrumentation = 2U << 16,
  kOverheadResource = 3U << 16,
  kOverheadModuleLoading = 4U << 16,
  kOverheadLazyFunctionLoading = 5U << 16,
  kOverheadCommandBufferFull = 6U << 16,
  kOverheadBufferRequest = 7U << 16,
  kOverheadManagedMemoryInit = 8U << 16,
};

// All records are 8-aligned and begin with their kind.
struct alignas(8) Activity {
  uint32_t kind;
};

// CUpti_ActivityKernel4 and later; graph_node from CUDA 11.1, graph_id from 11.4, cluster from 11.8.
struct alignas(8) KernelActivity {
  uint32_t kind;
  uint8_t cache_config;
  uint8_t shared_memory_config;
  uint16_t registers_per_thread;
  uint32_t partitioned_cache_requested;
  uint32_t partitioned_cache_executed;
  uint64_t start;
  uint64_t end;
  uint64_t completed;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  int32_t grid[3];
  int32_t block[3];
  int32_t static_shared_bytes;
  int32_t dynamic_shared_bytes;
  uint32_t local_bytes_per_thread;
  uint32_t local_bytes_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued;
  uint64_t submitted;
  uint8_t launch_type;
  uint8_t carveout_requested;
  uint8_t carveout;
  uint8_t padding;
  uint32_t shared_executed;
  uint64_t graph_node;
  uint32_t shared_limit_config;
  uint32_t graph_id;
  void* access_policy;
  uint32_t channel;
  uint32_t channel_type;
  uint32_t cluster[3];
  uint32_t cluster_policy;
};

struct alignas(8) MemcpyActivity {
  uint32_t kind;
  uint8_t copy_kind;
  uint8_t source_kind;
  uint8_t dest_kind;
  uint8_t flags;  // 1: asynchronous
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t correlation;
  uint32_t runtime_correlation;
  uint32_t padding;
  void* reserved;
  uint64_t graph_node;
};

struct alignas(8) PeerMemcpyActivity {
  uint32_t kind;
  uint8_t copy_kind;
  uint8_t source_kind;
  uint8_t dest_kind;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t source_device;
  uint32_t source_context;
  uint32_t dest_device;
  uint32_t dest_context;
  uint32_t correlation;
  void* reserved;
  uint64_t graph_node;
};

struct alignas(8) MemsetActivity {
  uint32_t kind;
  uint32_t value;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t correlation;
  uint16_t flags;
  uint16_t memory_kind;
  uint32_t padding;
  void* reserved;
  uint64_t graph_node;
};

struct alignas(8) ApiActivity {
  uint32_t kind;
  uint32_t cbid;
  uint64_t start;
  uint64_t end;
  uint32_t process;
  uint32_t thread;
  uint32_t correlation;
  uint32_t result;
};

struct alignas(8) SynchronizationActivity {
  uint32_t kind;
  uint32_t type;
  uint64_t start;
  uint64_t end;
  uint32_t correlation;
  uint32_t context;
  uint32_t stream;
  uint32_t event;
};

// The object is a thread {process, thread} or a device {device, context, stream}; object_kind 2 is a thread.
// CUpti_ActivityOverhead, Overhead2 and Overhead3 share this.
constexpr uint32_t kObjectThread = 2;
struct alignas(8) OverheadActivity {
  uint32_t kind;
  uint32_t overhead_kind;
  uint32_t object_kind;
  uint32_t object[3];
  uint64_t start;
  uint64_t end;
};

struct alignas(8) MemoryActivity {  // kMemory2
  uint32_t kind;
  uint32_t operation;  // 1 allocation, 2 release
  uint32_t memory_kind;
  uint32_t correlation;
  uint64_t address;
  uint64_t bytes;
  uint64_t timestamp;
  uint64_t pc;
  uint32_t process;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
};

struct alignas(8) GraphActivity {  // kGraphTrace
  uint32_t kind;
  uint32_t correlation;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t graph_id;
  uint32_t context;
  uint32_t stream;
};

// CUpti_ActivityDevice4 and 5.
struct alignas(8) DeviceActivity {
  uint32_t kind;
  uint32_t flags;
  uint64_t memory_bandwidth;
  uint64_t memory_bytes;
  uint32_t constant_memory_bytes;
  uint32_t l2_bytes;
  uint32_t warp_threads;
  uint32_t core_clock;
  uint32_t copy_engines;
  uint32_t sm_count;
  uint32_t ipc_max;
  uint32_t warps_per_sm_max;
  uint32_t blocks_per_sm_max;
  uint32_t shared_bytes_per_sm;
  uint32_t registers_per_sm;
  uint32_t registers_per_block;
  uint32_t shared_bytes_per_block;
  uint32_t threads_per_block_max;
  uint32_t block_dim_max[3];
  uint32_t grid_dim_max[3];
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t id;
  uint32_t ecc;
  uint8_t uuid[16];
  const char* name;
};

// CUpti_ActivityMarker and Marker2.
struct alignas(8) MarkerActivity {
  uint32_t kind;
  uint32_t flags;
  uint64_t timestamp;
  uint32_t id;
};

// What a resource callback receives.
struct ResourceData {
  void* context;
  void* stream;
  void* descriptor;
};
struct GraphData {
  void* graph;
  void* original_graph;
  void* node;
  void* original_node;
  uint32_t node_type;
  void* dependency;
  void* graph_exec;
};

// What a callback of the runtime's or the driver's domain receives.
enum ApiSite : uint32_t { kApiEnter = 0, kApiExit = 1 };
struct CallbackData {
  uint32_t site;
  const char* function;
  const void* parameters;
  void* result;        // at the exit, the call's return value
  const char* symbol;  // of a launched kernel
  void* context;
  uint32_t context_uid;
  uint64_t* shared;
  uint32_t correlation;
};

// What CallbackData::parameters points at: the arguments of the call in their order. Those of the runtime's function
// and of the driver's are alike, and so are those of its variants, as far as they are declared here.
struct EventRecordArguments {  // EventRecord, EventRecordWithFlags
  void* event;
  void* stream;
};
struct StreamWaitEventArguments {
  void* stream;
  void* event;
};
struct StreamSynchronizeArguments {
  void* stream;
};
struct EventSynchronizeArguments {
  void* event;
};
struct GraphLaunchArguments {
  void* exec;
  void* stream;
};
struct GraphInstantiateArguments {
  void* exec;  // where the new handle goes
  void* graph;
};

using Subscriber = void*;
using TimestampFunction = uint64_t (*)();
using CallbackFunction = void (*)(void* user, uint32_t domain, uint32_t cbid, const void* data);
using BufferRequest = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using BufferComplete = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size);

// Name, return type and arguments of every function that is looked up in libcupti. The second list may be missing in
// old versions.
#define LLMPROF_CUPTI_FUNCTIONS(F)                                                                             \
  F(cuptiGetVersion, ::llmprof::cupti::Result(uint32_t*))                                                      \
  F(cuptiGetTimestamp, ::llmprof::cupti::Result(uint64_t*))                                                    \
  F(cuptiSubscribe,                                                                                            \
    ::llmprof::cupti::Result(::llmprof::cupti::Subscriber*, ::llmprof::cupti::CallbackFunction, void*))        \
  F(cuptiUnsubscribe, ::llmprof::cupti::Result(::llmprof::cupti::Subscriber))                                  \
  F(cuptiEnableCallback, ::llmprof::cupti::Result(uint32_t, ::llmprof::cupti::Subscriber, uint32_t, uint32_t)) \
  F(cuptiActivityEnable, ::llmprof::cupti::Result(uint32_t))                                                   \
  F(cuptiActivityDisable, ::llmprof::cupti::Result(uint32_t))                                                  \
  F(cuptiActivityRegisterCallbacks,                                                                            \
    ::llmprof::cupti::Result(::llmprof::cupti::BufferRequest, ::llmprof::cupti::BufferComplete))               \
  F(cuptiActivityGetNextRecord, ::llmprof::cupti::Result(uint8_t*, size_t, ::llmprof::cupti::Activity**))      \
  F(cuptiActivityGetNumDroppedRecords, ::llmprof::cupti::Result(void*, uint32_t, size_t*))                     \
  F(cuptiActivityFlushAll, ::llmprof::cupti::Result(uint32_t))                                                 \
  F(cuptiActivitySetAttribute, ::llmprof::cupti::Result(uint32_t, size_t*, void*))                             \
  F(cuptiGetCallbackName, ::llmprof::cupti::Result(uint32_t, uint32_t, const char**))                          \
  F(cuptiGetGraphNodeId, ::llmprof::cupti::Result(void*, uint64_t*))                                           \
  F(cuptiSetThreadIdType, ::llmprof::cupti::Result(uint32_t))                                                  \
  F(cuptiGetResultString, ::llmprof::cupti::Result(::llmprof::cupti::Result, const char**))
#define LLMPROF_CUPTI_OPTIONAL_FUNCTIONS(F)                                         \
  F(cuptiFinalize, ::llmprof::cupti::Result())                                      \
  F(cuptiGetStreamIdEx, ::llmprof::cupti::Result(void*, void*, uint8_t, uint32_t*)) \
  F(cuptiGetContextId, ::llmprof::cupti::Result(void*, uint32_t*))                  \
  F(cuptiGetDeviceId, ::llmprof::cupti::Result(void*, uint32_t*))                   \
  F(cuptiActivityRegisterTimestampCallback, ::llmprof::cupti::Result(::llmprof::cupti::TimestampFunction))

}  // namespace llmprof::cupti
