// What a spool file can hold: one plain struct per record. A spool is the append-only file that one process writes
// while it is being watched (the target through libllmprof_inject.so, or a sampler); docs/formats/spool.md has the
// layout.
//
// What always holds: times are int64 nanoseconds of CLOCK_REALTIME, which is also CUPTI's default clock, so records of
// the target, of NVML and of the counter sampler share one axis. An Id names a definition (a ...Def record) that stands
// earlier in the same file; 0 is "none". Identifiers of the program (correlation, graph node, library call) are unique
// within their process only. Records are in the order in which they were collected, not sorted by time.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof::spool {

using Id = uint32_t;

// How much is recorded, in the order of cost.
enum class Level : uint8_t {
  kOff,      // armed: nothing is recorded
  kLight,    // ranges (NVTX), library calls; nothing per launch
  kDefault,  // and kernels, copies, launching, waiting and event-recording API calls, graph nodes
  kDeep,     // and every CUDA API call, call stacks of launch sites
};

// ---- definitions -------------------------------------------------------------------------------------------------

struct ThreadDef {
  Id id = 0;
  int64_t thread_id = 0;  // Linux tid
  Id name = 0;            // string
};

struct DeviceDef {
  int32_t device = 0;  // CUDA ordinal in this process
  Id name = 0;
  int32_t sm_count = -1, compute_major = -1, compute_minor = -1;
  int64_t memory_bytes = -1;
  int32_t threads_per_sm_max = -1, registers_per_sm = -1;
  int64_t shared_bytes_per_sm = -1;
  Id uuid = 0;        // string "GPU-xxxxxxxx-...": joins the samplers' devices; ordinals differ between processes
  Id pci_bus = 0;     // string "0000:0f:00.0", 0 if unknown
  Id whole_uuid = 0;  // where uuid is a part's of a divided GPU ("MIG-..."): the GPU's, as the samplers name it
};

struct StreamDef {
  Id id = 0;
  int32_t device = 0;
  int64_t context = 0;
  int64_t stream = 0;
};

// A kernel with everything about it that repeats from launch to launch.
struct KernelDef {
  Id id = 0;
  Id name = 0;  // string, as the driver has it (mangled); the importer demangles
  Id stream = 0;
  int32_t grid[3] = {0, 0, 0};
  int32_t block[3] = {0, 0, 0};
  int32_t cluster[3] = {0, 0, 0};  // 0 where the recorder does not tell
  int32_t registers_per_thread = -1;
  int64_t static_shared_bytes = -1, dynamic_shared_bytes = -1;
};

struct ApiDef {
  Id id = 0;
  uint8_t layer = 0;  // 0 runtime, 1 driver: ApiLayer of trace/tables.h
  uint32_t cbid = 0;
  Id name = 0;  // string without version suffix: cudaLaunchKernel
};

// Distinct shapes of GEMM, attention and convolution calls. GEMM as the library was called (column-major, as BLAS has
// it): D[m x n] = op(A)[m x k] * op(B)[k x n].
struct LibraryDef {
  Id id = 0;
  Id function = 0;   // string: cublasGemmEx, cublasLtMatmul, cudnnBackendExecute
  uint8_t kind = 0;  // WorkKind of trace/tables.h
  int64_t m = -1, n = -1, k = -1, batch = 1;
  int32_t type_a = -1, type_b = -1, type_d = -1;  // cudaDataType_t values, -1 unknown
  int32_t compute_type = -1;                      // cublasComputeType_t, -1 unknown
  uint8_t transpose_a = 0, transpose_b = 0;       // 0 N, 1 T, 2 C
  uint8_t row_major = 0;                          // 1: the operands' order is row-major
  Id epilogue = 0;                                // string: BIAS, RELU_BIAS, GELU...; 0 for none
  Id detail = 0;                                  // string: anything else worth showing, as text
  // Of attention: `batch` sequences of m queries and n keys (-1: told at run time), heads of k numbers, values of
  // value_size numbers. type_a is of the queries, type_b of the keys, type_d of the result.
  int32_t heads = 0, kv_heads = 0, value_size = 0;
  uint8_t mask = 0;  // 0 none, 1 causal: query i sees the keys up to i, 2 there is one whose content is not known
};

// The meaning of the values of GpuSample records: names of struct fields in trace/tables.h (gpu_samples).
struct MetricSetDef {
  Id id = 0;
  int32_t count = 0;
  Id metrics[48] = {};  // strings: "dram_read_frac", "sm_active_frac", ...
  Id source = 0;        // string: "pm-sampling", "gpm"
  Id gpu_uuid = 0;      // string
};

// A file that the process has code from, as its loader names it.
struct ModuleDef {
  Id id = 0;
  Id path = 0;
  Id build_id = 0;  // string: hexadecimal, empty where the file has none
};

// ---- events ------------------------------------------------------------------------------------------------------

struct Kernel {
  Id def = 0;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
  uint64_t graph_node = 0;  // id of the node in the executed graph, 0 if not replayed from one
  uint32_t graph_id = 0;
};

struct Memcpy {
  Id stream = 0;
  uint8_t copy_kind = 0;                   // CUpti_ActivityMemcpyKind: 1 HtoD 2 DtoH 8 DtoD 10 PtoP
  uint8_t source_kind = 0, dest_kind = 0;  // CUpti_ActivityMemoryKind: 1 pageable 2 pinned 3 device
  uint8_t asynchronous = 0;
  int64_t bytes = 0;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
  uint64_t graph_node = 0;
};

struct Memset {
  Id stream = 0;
  int64_t bytes = 0;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
  uint64_t graph_node = 0;
};

// One record for a whole graph launch, where its nodes were not recorded.
struct GraphLaunch {
  Id stream = 0;
  uint32_t graph_id = 0;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
};

struct ApiCall {
  Id def = 0;
  Id thread = 0;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
  int32_t result = 0;  // the call's return value
};

// What an ApiCall names: the stream that it launches on, records, makes wait or waits for, and the event. Belongs to
// the ApiCall before it, if that has the same correlation id; calls that name neither have none.
struct CallTarget {
  uint32_t correlation = 0;
  Id stream = 0;       // 0: none, or unknown
  uint64_t event = 0;  // the event's handle: 0 none; equal for different events if one is destroyed
};

// A call stack taken at a launch. Only some launches have one: the 1st, 2nd, 4th, 8th, ... of each function.
constexpr int32_t kFramesMax = 64;
struct Frame {
  Id module = 0;        // 0: code of no module
  uint64_t offset = 0;  // address of the call in the module's file, as its symbols count
};
struct LaunchSite {
  int64_t time_ns = 0;
  Id thread = 0;
  Id function = 0;  // string, as KernelDef::name has it
  Id stack = 0;     // string, of recorders before `frames`: module!function, innermost first, joined by '\n'
  uint32_t correlation = 0;
  int32_t frame_count = 0;
  Frame frames[kFramesMax] = {};  // innermost first
};

struct Synchronization {
  uint8_t kind = 0;  // CUpti_ActivitySynchronizationType: 1 event 2 stream-wait 3 stream 4 context
  Id stream = 0;     // 0 where it concerns the whole context
  int32_t device = -1;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
};

struct Overhead {
  Id name = 0;    // string: what the profiler or driver was doing
  Id thread = 0;  // 0 if not tied to one
  int64_t start_ns = 0, end_ns = 0;
};

struct MemoryEvent {
  int64_t time_ns = 0;
  Id thread = 0;
  int32_t device = -1;
  uint8_t memory_kind = 0;  // CUpti_ActivityMemoryKind
  uint64_t address = 0;
  int64_t bytes = 0;  // positive allocated, negative freed
  uint32_t correlation = 0;
};

// NVTX. Push/pop ranges are written when they close; one that is still open when the file ends is known from its
// RangeOpen, which is written when it has been open for a whole drain period.
enum class PayloadKind : uint8_t { kNone, kUnsigned, kSigned, kDouble, kBytes };
struct Range {
  uint64_t handle = 0;  // equals the RangeOpen's, if one was written; 0 otherwise
  Id thread = 0;
  Id name = 0;
  Id domain = 0;  // string, 0 for the default domain
  int64_t start_ns = 0, end_ns = 0;
  PayloadKind payload_kind = PayloadKind::kNone;
  double payload = 0;
  uint8_t process_wide = 0;  // 1: nvtxRangeStart/End, may close on another thread
};
struct RangeOpen {
  uint64_t handle = 0;
  Id thread = 0;
  Id name = 0;
  Id domain = 0;
  int64_t start_ns = 0;
  uint8_t process_wide = 0;
};
struct Mark {
  Id thread = 0;
  Id name = 0;
  Id domain = 0;
  int64_t time_ns = 0;
  PayloadKind payload_kind = PayloadKind::kNone;
  double payload = 0;
};

// A call of cuBLAS, cuBLASLt or cuDNN. Kernels launched by API calls of the same thread inside [start, end] belong to
// it; under graph capture GraphNode records say which nodes do.
struct LibraryCall {
  uint64_t call = 0;  // unique in the process, never 0
  Id def = 0;
  Id thread = 0;
  int64_t start_ns = 0, end_ns = 0;
};

// Where the matrices of a GEMM begin: A, B and D as the library names them. Belongs to the LibraryCall with the same
// number, which stands before it.
struct Operands {
  uint64_t call = 0;
  uint64_t a = 0, b = 0, d = 0;  // 0: not known
};

// A node seen at capture (original == 0) or copied from another by instantiation.
struct GraphNode {
  uint64_t node = 0;
  uint64_t original = 0;
  uint64_t call = 0;  // LibraryCall under which it was captured, 0 if none
};

// Where the thread was in its Python program when it made a node of a graph, by capture or by hand.
struct NodePlace {
  uint64_t node = 0;
  Id stack = 0;  // text of the thread's Python stack
};

// A dependency between two nodes of an executable graph: `node` begins after `after`; 0: when the graph does. Complete
// for the nodes that it has. Nodes that run nothing on the GPU stand among them.
struct GraphEdge {
  uint64_t node = 0;
  uint64_t after = 0;
};

// A host event that recurs every step (a graph launch, the widest GEMM): what TPOT is read from where nothing else is
// recorded.
struct RecurringCall {
  Id thread = 0;
  uint64_t key = 0;  // equal keys: same graph, same GEMM shape
  int64_t time_ns = 0;
};

// A GEMM with weights that is the first of its thread behind a RecurringCall, or at all, or has other rows than the one
// before it: where passes of the model begin, and over how many tokens.
struct ProductRows {
  Id thread = 0;
  int64_t time_ns = 0;
  int64_t rows = -1;  // of the operand that is no weights
};

// Where a thread was in its Python program. Calls that wait for the GPU are recorded at every level, with or without
// Python; the others where API calls are, and only with it: copies and launches
// with the time of their call, allocations and code samples with none.
enum class PlaceKind : uint8_t {
  kWait,        // a call that waits for the GPU
  kCopy,        // a copy by a call that need not wait for it, but does where host memory is pageable
  kAllocation,  // of memory, not from a pool
  kHostCode,    // the program's own code between two CUDA calls, if it is long; the stack is that of the later call
  kLaunch,      // of a kernel: some of them, drawn at random (inject/cupti/api_calls.cc)
  kCodeSample,  // a moment within long code between two CUDA calls (inject/python/code_watch.h)
};
struct HostPlace {
  PlaceKind kind = PlaceKind::kWait;
  Id thread = 0;
  Id stack = 0;  // text of the thread's Python stack; 0: none
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// A probe of how fast the thread's CPU is: the same work each time (base/pace_work.h).
struct HostPace {
  Id thread = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t waited_ns = -1;  // without a CPU although ready to run, since the thread's probe before it; -1: not known
};

// At the end of long code between two CUDA calls, and of long calls: how much CPU time the process has used.
struct CpuReading {
  Id thread = 0;
  int64_t start_ns = 0;  // of the code; of a call its end
  int64_t end_ns = 0;
  int64_t cpu_ns = 0;  // of all threads, since the process began
};

// ---- the recording itself ------------------------------------------------------------------------------------------

struct ClockReading {
  int64_t realtime_ns = 0, monotonic_raw_ns = 0, cupti_ns = 0;  // cupti_ns 0 where CUPTI is not loaded
};

// From time_ns on, this much is recorded. The first of a file says when recording began.
struct LevelChange {
  int64_t time_ns = 0;
  Level level = Level::kOff;
  Id reason = 0;  // string: "start", "delay", "capture-range", "unrecorded", "attaching", "detaching", "detached", ...
};

// Something that the report must say. key is a stable name listed by `llmprof list diagnostics`.
struct Note {
  Id key = 0;
  Id text = 0;
  uint64_t count = 1;
};

// A fact about the process or machine: "command", "rank", "cupti_version", "driver_version", ...
struct Fact {
  Id key = 0;
  Id value = 0;
};

// One reading of NVML. NaN or -1 where the device does not tell.
struct NvmlSample {
  Id gpu_uuid = 0;
  int64_t time_ns = 0;
  float gpu_util_frac = 0, memory_util_frac = 0;
  float sm_clock_mhz = 0, memory_clock_mhz = 0;
  float power_w = 0;    // instantaneous where the driver has it
  double energy_j = 0;  // since driver load, cumulative
  float temperature_c = 0;
  float memory_temperature_c = 0;
  int64_t memory_used_bytes = -1;
  uint64_t throttle_reasons = 0;  // bits of nvmlDeviceGetCurrentClocksEventReasons
  // Cumulative nanoseconds, -1 unknown.
  int64_t throttle_power_ns = -1, throttle_thermal_sw_ns = -1, throttle_thermal_hw_ns = -1, throttle_brake_ns = -1,
          throttle_sync_boost_ns = -1;
  float pcie_rx_bytes_per_s = 0, pcie_tx_bytes_per_s = 0;
};

// Hardware counters over [start, end]: means over the interval, in the order of the metric set.
struct GpuSample {
  Id set = 0;
  int64_t start_ns = 0, end_ns = 0;
  float values[48] = {};
};

}  // namespace llmprof::spool
