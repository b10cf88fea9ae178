// Every table of a Trace, once. The first half is what importers and collectors fill; the second half ("derived") is
// what src/derive adds. Nothing else is stored about a recording. Times are int64 nanoseconds on the trace's own epoch
// (Trace::base_unix_ns says where that epoch lies); names are handles into Trace::strings; a column that
// points at a table has the id of that table as its type (ThreadId, OpId, ...), Always<...> of it where it is never
// empty.
#pragma once

#include "trace/rows.h"
#include "trace/tables_of_tools.h"

namespace llmprof {

// ---- imported tables -----------------------------------------------------------------------------------------------

#define LLMPROF_THREAD_COLUMNS(C)                           \
  C(int64_t, process_id, "", "Operating system process id") \
  C(int64_t, thread_id, "", "Operating system thread id")   \
  C(StringId, name, "", "Thread name as recorded")
LLMPROF_TABLE(Threads, "threads", "Host threads that appear in the recording", LLMPROF_THREAD_COLUMNS)

#define LLMPROF_DEVICE_COLUMNS(C)                                                                                 \
  C(DeviceOrdinal, device, "", "CUDA device ordinal in the recorded process")                                     \
  C(StringId, name, "", "Device name as the driver reports it")                                                   \
  C(int32_t, sm_count, "", "Streaming multiprocessors")                                                           \
  C(int32_t, compute_major, "", "Compute capability, major")                                                      \
  C(int32_t, compute_minor, "", "Compute capability, minor")                                                      \
  C(int64_t, memory_bytes, "bytes", "Global memory that the driver reports")                                      \
  C(int32_t, threads_per_sm_max, "", "Resident threads per SM")                                                   \
  C(int32_t, registers_per_sm, "", "32-bit registers per SM")                                                     \
  C(int64_t, shared_bytes_per_sm, "bytes", "Shared memory per SM")                                                \
  C(StringId, uuid, "", "Key of its measured ceilings: a GPU's uuid, a CPU's name and threads; empty if unknown") \
  C(StringId, whole_uuid, "", "Of a part of a divided GPU (MIG): uuid of the GPU; empty: it is a whole one")      \
  C(ProcessorKind, kind, "",                                                                                      \
    "gpu, or cpu where the recorded program ran its model on the CPU; SMs are its threads then")
LLMPROF_TABLE(Devices, "devices", "GPUs described by the recording", LLMPROF_DEVICE_COLUMNS)

#define LLMPROF_STREAM_COLUMNS(C)                          \
  C(DeviceOrdinal, device, "", "CUDA device ordinal")      \
  C(int64_t, context, "", "CUDA context id, -1 if absent") \
  C(int64_t, stream, "", "CUDA stream id")
LLMPROF_TABLE(Streams, "streams", "CUDA streams that GPU activities or calls name", LLMPROF_STREAM_COLUMNS)

// Distinct input descriptions of operators; thousands of operator calls share one row. src/trace/signature.h reads and
// shows the three tables.
#define LLMPROF_SIGNATURE_COLUMNS(C)                                                                   \
  C(StringId, dims, "", "Input dimensions as recorded, JSON list of lists, empty if absent")           \
  C(uint64_t, rest, "", "Hash of what was recorded beside dims: equal descriptions are equal in both") \
  C(InputId, first_input, "", "First of its rows in inputs")                                           \
  C(int32_t, input_count, "", "How many rows, -1 if the description makes no sense or exceeds a bound")
LLMPROF_TABLE(Signatures, "signatures", "Distinct input shapes and types of operators", LLMPROF_SIGNATURE_COLUMNS)

#define LLMPROF_INPUT_COLUMNS(C)                                                                            \
  C(InputKind, kind, "", "tensor, list, listed (a tensor of the list before it), integers, boolean, other") \
  C(DType, dtype, "", "Element type of a tensor")                                                           \
  C(StringId, text, "", "As recorded: an element type that has no name here, a scalar that is no integer")  \
  C(InputNumberId, first_number, "", "First of its rows in input_numbers")                                  \
  C(int32_t, number_count, "", "How many rows: the dimensions of a tensor, the values of scalars; -1 if absent")
LLMPROF_TABLE(Inputs, "inputs", "Inputs of operators, those of one signature in order", LLMPROF_INPUT_COLUMNS)

#define LLMPROF_INPUT_NUMBER_COLUMNS(C)                                               \
  C(int64_t, value, "", "Size of a dimension, outermost first, or value of a scalar") \
  C(int64_t, stride, "", "Stride of the dimension in elements, -1 if absent")
LLMPROF_TABLE(InputNumbers, "input_numbers", "Dimensions and integers of inputs", LLMPROF_INPUT_NUMBER_COLUMNS)

#define LLMPROF_OP_COLUMNS(C)                                                                        \
  C(TimeNs, start_ns, "ns", "Start on the host")                                                     \
  C(DurationNs, dur_ns, "ns", "Duration on the host, children included")                             \
  C(Always<ThreadId>, thread, "", "Row in threads")                                                  \
  C(StringId, name, "", "Operator name, for example aten::mm")                                       \
  C(SignatureId, signature, "", "Row in signatures")                                                 \
  C(uint64_t, external_id, "", "Identifier that API calls and GPU activities refer to, 0 if absent") \
  C(int64_t, sequence, "", "Autograd sequence number, -1 if absent")                                 \
  C(double, recorded_flops, "FLOP", "FLOPs as the recorder estimated them, NaN if absent")
LLMPROF_TABLE(Ops, "ops", "Operators that the framework ran on the host", LLMPROF_OP_COLUMNS)

#define LLMPROF_ANNOTATION_COLUMNS(C)                                            \
  C(TimeNs, start_ns, "ns", "Start")                                             \
  C(DurationNs, dur_ns, "ns", "Duration")                                        \
  C(ThreadId, thread, "", "Row in threads; kNoRow for a projection on the GPU")  \
  C(StringId, name, "", "Text of the range")                                     \
  C(StringId, domain, "", "NVTX domain, empty for the default one and the rest") \
  C(AnnotationKind, kind, "", "user, gpu-user or nvtx")                          \
  C(double, payload, "", "Number the program attached, NaN if none")             \
  C(uint64_t, external_id, "", "Identifier shared with operators, 0 if absent")
LLMPROF_TABLE(Annotations, "annotations", "Ranges that the program named itself", LLMPROF_ANNOTATION_COLUMNS)

#define LLMPROF_PYTHON_CALL_COLUMNS(C)                      \
  C(TimeNs, start_ns, "ns", "Start")                        \
  C(DurationNs, dur_ns, "ns", "Duration, callees included") \
  C(Always<ThreadId>, thread, "", "Row in threads")         \
  C(StringId, name, "", "file(line): function")
LLMPROF_TABLE(PythonCalls, "python_calls", "Python functions seen by the recorder", LLMPROF_PYTHON_CALL_COLUMNS)

#define LLMPROF_API_CALL_COLUMNS(C)                                                                                 \
  C(TimeNs, start_ns, "ns", "Start on the host")                                                                    \
  C(DurationNs, dur_ns, "ns", "Duration on the host")                                                               \
  C(Always<ThreadId>, thread, "", "Row in threads")                                                                 \
  C(StringId, name, "", "Function, for example cudaLaunchKernel")                                                   \
  C(Mostly32<uint64_t>, correlation, "", "Joins the GPU activities it launched, 0 if absent")                       \
  C(uint64_t, external_id, "", "Operator that made the call, 0 if absent")                                          \
  C(ApiLayer, layer, "", "runtime or driver")                                                                       \
  C(StreamId, stream, "", "Stream that it launches a graph on, records, makes wait or waits for; empty if unknown") \
  C(uint64_t, event, "", "Event that it records or waits for, 0 if none or unknown; a handle, which is used again")
LLMPROF_TABLE(ApiCalls, "api_calls", "CUDA runtime and driver calls", LLMPROF_API_CALL_COLUMNS)

// Distinct launch configurations; thousands of kernels share one row.
#define LLMPROF_LAUNCH_CONFIG_COLUMNS(C)                                                        \
  C(int32_t, grid_x, "", "Grid, x")                                                             \
  C(int32_t, grid_y, "", "Grid, y")                                                             \
  C(int32_t, grid_z, "", "Grid, z")                                                             \
  C(int32_t, block_x, "", "Block, x")                                                           \
  C(int32_t, block_y, "", "Block, y")                                                           \
  C(int32_t, block_z, "", "Block, z")                                                           \
  C(int32_t, registers_per_thread, "", "Registers per thread, -1 if absent")                    \
  C(int64_t, shared_bytes, "bytes", "Static and dynamic shared memory per block, -1 if absent") \
  C(float, occupancy_frac, "frac", "Occupancy estimated by the recorder from the resources, NaN if absent")
LLMPROF_TABLE(LaunchConfigs, "launch_configs", "Distinct kernel launch configurations", LLMPROF_LAUNCH_CONFIG_COLUMNS)

#define LLMPROF_GPU_OP_COLUMNS(C)                                                                                   \
  C(TimeNs, start_ns, "ns", "Start on the GPU")                                                                     \
  C(Mostly32<DurationNs>, dur_ns, "ns", "Duration on the GPU")                                                      \
  C(Always<StreamId>, stream, "", "Row in streams")                                                                 \
  C(StringId, name, "", "Kernel name, or the kind of copy")                                                         \
  C(LaunchConfigId, config, "", "Row in launch_configs; kNoRow for copies and memsets")                             \
  C(Mostly32<uint64_t>, correlation, "", "Joins the API call that launched it, 0 if absent")                        \
  C(uint64_t, external_id, "", "Operator that launched it, 0 if absent")                                            \
  C(uint64_t, graph_node, "", "Node id when replayed by a CUDA graph and recorded, 0 otherwise")                    \
  C(Mostly32<int64_t>, bytes, "bytes", "Bytes copied or set, -1 for kernels")                                       \
  C(GpuOpKind, kind, "", "kernel, memcpy or memset")                                                                \
  C(CopyPath, path, "", "Of a copy: host to device, device to host, between GPUs or inside one; unknown otherwise") \
  C(HostMemory, host_memory, "", "Of a copy from or to the host: pageable or pinned; unknown otherwise")
LLMPROF_TABLE(GpuOps, "gpu_ops", "Kernels, copies and memsets on the GPU, sorted by start", LLMPROF_GPU_OP_COLUMNS)

#define LLMPROF_COLLECTIVE_COLUMNS(C)                                                             \
  C(GpuOpId, gpu_op, "", "Row in gpu_ops")                                                        \
  C(StringId, name, "", "Collective, for example allreduce")                                      \
  C(StringId, dtype, "", "Element type as recorded")                                              \
  C(int64_t, in_elements, "", "Elements sent, -1 if absent")                                      \
  C(int64_t, out_elements, "", "Elements received, -1 if absent")                                 \
  C(int32_t, group_size, "", "Ranks in the group, -1 if absent")                                  \
  C(StringId, group, "", "Process group, empty if absent")                                        \
  C(StringId, members, "", "Ranks of the group as recorded, for example [0, 1]; empty if absent") \
  C(int64_t, sequence, "", "Number of the call in its group, -1 if absent")                       \
  C(int32_t, from_rank, "", "Rank that sends, of a send or receive, -1 if absent")                \
  C(int32_t, to_rank, "", "Rank that receives, of a send or receive, -1 if absent")
LLMPROF_TABLE(Collectives, "collectives", "Communication kernels with their message sizes", LLMPROF_COLLECTIVE_COLUMNS)

// Recordings of several ranks of one job, where they were joined.
#define LLMPROF_RANK_COLUMNS(C)                                                                                      \
  C(int32_t, rank, "", "Rank in the job")                                                                            \
  C(int32_t, world_size, "", "Ranks of the job as recorded, -1 if absent")                                           \
  C(DeviceOrdinal, device, "", "CUDA device ordinal here, where those of all ranks are numbered together")           \
  C(int32_t, recorded_device, "", "CUDA device ordinal in its own recording")                                        \
  C(StringId, file, "", "Its recording")                                                                             \
  C(StringId, host, "", "Host that it ran on, empty if unknown")                                                     \
  C(int64_t, shift_ns, "ns", "Added to all of its times, so that they are on the clock of the first rank")           \
  C(double, offset_ns, "ns", "Clock of the first rank minus its own by the ends of common collectives; NaN if none") \
  C(double, offset_low_ns, "ns",                                                                                     \
    "Least that it can be: no rank leaves a collective before the last enters; NaN if unknown")                      \
  C(double, offset_high_ns, "ns", "Most that it can be; NaN if unknown")
LLMPROF_TABLE(Ranks, "ranks_joined", "Ranks whose recordings were joined, by rank and device", LLMPROF_RANK_COLUMNS)

#define LLMPROF_SYNC_EVENT_COLUMNS(C)                                                         \
  C(TimeNs, start_ns, "ns", "Start")                                                          \
  C(DurationNs, dur_ns, "ns", "Duration")                                                     \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 if absent")                           \
  C(int64_t, stream, "", "CUDA stream id, -1 if absent")                                      \
  C(StringId, name, "", "Kind of synchronisation as recorded")                                \
  C(uint64_t, correlation, "", "API call that waited, 0 if absent")                           \
  C(int64_t, event_stream, "", "CUDA stream id on which an event was recorded, -1 if absent") \
  C(uint64_t, event_call, "", "API call that recorded the event, 0 if absent")
LLMPROF_TABLE(SyncEvents, "sync_events", "Synchronisation records of the GPU: waits, and recorded events",
              LLMPROF_SYNC_EVENT_COLUMNS)

#define LLMPROF_OVERHEAD_COLUMNS(C)                                    \
  C(TimeNs, start_ns, "ns", "Start")                                   \
  C(DurationNs, dur_ns, "ns", "Duration")                              \
  C(ThreadId, thread, "", "Row in threads, kNoRow if not tied to one") \
  C(StringId, name, "", "What the profiler was doing")
LLMPROF_TABLE(Overheads, "overheads", "Time the recorder itself took", LLMPROF_OVERHEAD_COLUMNS)

#define LLMPROF_MEMORY_EVENT_COLUMNS(C)                                                      \
  C(TimeNs, time_ns, "ns", "When")                                                           \
  C(Always<ThreadId>, thread, "", "Row in threads")                                          \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 for host memory")                    \
  C(uint64_t, address, "", "Address of the block")                                           \
  C(int64_t, bytes, "bytes", "Allocated if positive, freed if negative")                     \
  C(int64_t, allocated_bytes, "bytes", "In use by tensors after the event, -1 if absent")    \
  C(int64_t, reserved_bytes, "bytes", "Held by the allocator after the event, -1 if absent") \
  C(StringId, place, "", "Innermost Python code of it that is not PyTorch's own; empty if absent")
LLMPROF_TABLE(MemoryEvents, "memory_events", "Allocations and frees", LLMPROF_MEMORY_EVENT_COLUMNS)

#define LLMPROF_COUNTER_COLUMNS(C)                                  \
  C(TimeNs, time_ns, "ns", "When")                                  \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 if absent") \
  C(StringId, name, "", "Counter")                                  \
  C(double, value, "", "Value in the counter's own unit")
LLMPROF_TABLE(Counters, "counters", "Counter samples over time", LLMPROF_COUNTER_COLUMNS)

// Calls of cuBLAS, cuBLASLt and cuDNN with their shapes, seen by hooks in the watched process. GEMM as
// LLMPROF_WORK_COLUMNS has it: m tokens (rows of the activation), n output features, k reduction, 2*batch*m*n*k FLOPs.
// Attention likewise: m queries and n keys of each of batch sequences, k the head size.
#define LLMPROF_LIBRARY_CALL_COLUMNS(C)                                                                           \
  C(TimeNs, start_ns, "ns", "Start on the host")                                                                  \
  C(DurationNs, dur_ns, "ns", "Duration on the host")                                                             \
  C(Always<ThreadId>, thread, "", "Row in threads")                                                               \
  C(StringId, name, "", "Function, for example cublasLtMatmul")                                                   \
  C(WorkKind, kind, "", "gemm, attention or convolution")                                                         \
  C(DType, dtype, "", "Element type of the activation")                                                           \
  C(DType, weight_dtype, "", "Element type of the second operand; attention: of the keys and values")             \
  C(DType, out_dtype, "", "Element type of the result")                                                           \
  C(int64_t, batch, "", "Independent problems; attention: sequences")                                             \
  C(int64_t, m, "", "Rows of the activation: tokens, -1 if unknown; attention: queries")                          \
  C(int64_t, n, "", "Output features, -1 if unknown; attention: keys")                                            \
  C(int64_t, k, "", "Reduction length, -1 if unknown; attention: head size")                                      \
  C(StringId, epilogue, "", "What the library fused behind it, for example BIAS; empty if nothing")               \
  C(StringId, detail, "", "Anything else the hook saw")                                                           \
  C(int32_t, heads, "", "Attention: heads of the queries, 0 otherwise")                                           \
  C(int32_t, kv_heads, "", "Attention: heads of keys and values, 0 otherwise")                                    \
  C(int32_t, value_size, "", "Attention: numbers in a value, 0 otherwise")                                        \
  C(AttentionMask, mask, "", "Attention: none, causal (query i sees the keys up to i), or one that is not known") \
  C(uint64_t, input, "", "GEMM: address of the activation, 0 if unknown")                                         \
  C(uint64_t, weights, "", "GEMM: address of the second operand, 0 if unknown")                                   \
  C(uint64_t, output, "", "GEMM: address of the result, 0 if unknown")
LLMPROF_TABLE(LibraryCalls, "library_calls", "Calls of GPU math libraries with their shapes",
              LLMPROF_LIBRARY_CALL_COLUMNS)

// A node that was captured under a library call carries its shape into every replay.
#define LLMPROF_GRAPH_NODE_COLUMNS(C)                           \
  C(uint64_t, node, "", "Node id as gpu_ops.graph_node has it") \
  C(LibraryCallId, library_call, "", "Library call under which it was captured, row in library_calls")
LLMPROF_TABLE(GraphNodes, "graph_nodes", "CUDA graph nodes captured under a library call, by node",
              LLMPROF_GRAPH_NODE_COLUMNS)

// Nodes that Python code made, and their copies.
#define LLMPROF_NODE_PLACE_COLUMNS(C)                           \
  C(uint64_t, node, "", "Node id as gpu_ops.graph_node has it") \
  C(StringId, stack, "", "Python functions, innermost first")
LLMPROF_TABLE(NodePlaces, "node_places", "Python code in which CUDA graph nodes were made, by node",
              LLMPROF_NODE_PLACE_COLUMNS)

// All dependencies between the nodes of executable graphs: a graph has rows here for every node or for none. Nodes that
// run nothing on the GPU stand among them.
#define LLMPROF_GRAPH_EDGE_COLUMNS(C)                           \
  C(uint64_t, node, "", "Node id as gpu_ops.graph_node has it") \
  C(uint64_t, after, "", "Node that it begins after; 0: it begins when the graph does")
LLMPROF_TABLE(GraphEdges, "graph_edges", "Dependencies between the nodes of CUDA graphs, by node",
              LLMPROF_GRAPH_EDGE_COLUMNS)

// A CUDA graph launch as a whole, where its nodes were not recorded.
#define LLMPROF_GRAPH_LAUNCH_COLUMNS(C)              \
  C(TimeNs, start_ns, "ns", "Start on the GPU")      \
  C(DurationNs, dur_ns, "ns", "Duration on the GPU") \
  C(Always<StreamId>, stream, "", "Row in streams")  \
  C(uint64_t, graph, "", "Executable graph id")      \
  C(uint64_t, correlation, "", "Joins the API call that launched it, 0 if absent")
LLMPROF_TABLE(GraphLaunches, "graph_launches", "CUDA graph launches recorded as a whole", LLMPROF_GRAPH_LAUNCH_COLUMNS)

// Call stacks of some launches: of each function's 1st, 2nd, 4th, 8th, ... launch. A sample of where launches come
// from, not a count of them.
#define LLMPROF_LAUNCH_SITE_COLUMNS(C)                                                  \
  C(TimeNs, time_ns, "ns", "When")                                                      \
  C(Always<ThreadId>, thread, "", "Row in threads")                                     \
  C(StringId, name, "", "Kernel that was launched")                                     \
  C(uint64_t, correlation, "", "Joins the API call in which it was taken, 0 if absent") \
  C(StringId, stack, "", "Frames as module!function, innermost first, one a line; [python] for runs of the interpreter")
LLMPROF_TABLE(LaunchSites, "launch_sites", "Call stacks of some kernel launches", LLMPROF_LAUNCH_SITE_COLUMNS)

// Host events that recur every step; seen at every level, so that step times are known where nothing else is recorded.
#define LLMPROF_RECURRING_CALL_COLUMNS(C)           \
  C(TimeNs, time_ns, "ns", "When")                  \
  C(Always<ThreadId>, thread, "", "Row in threads") \
  C(uint64_t, key, "", "Equal for the same graph or the same GEMM shape")
LLMPROF_TABLE(RecurringCalls, "recurring_calls",
              "Graph launches and library calls on the host, at every recording level", LLMPROF_RECURRING_CALL_COLUMNS)

// Where passes of the model begin that nothing else is recorded of.
#define LLMPROF_PRODUCT_ROWS_COLUMNS(C)             \
  C(TimeNs, time_ns, "ns", "When")                  \
  C(Always<ThreadId>, thread, "", "Row in threads") \
  C(int64_t, tokens, "", "Rows of the operand that is no weights")
LLMPROF_TABLE(ProductRows, "product_rows",
              "Products with weights on other rows than the one before, at every recording level",
              LLMPROF_PRODUCT_ROWS_COLUMNS)

// Where the host was in its Python program. Of host code the stack is that of the call behind it; where the thread was
// meanwhile is known at some moments (kCodeSample). Launches are a sample of all, drawn at random: each one as likely
// as any other.
enum class PlaceKind : uint8_t { kWait, kCopy, kAllocation, kHostCode, kLaunch, kCodeSample };
#define LLMPROF_HOST_PLACE_COLUMNS(C)                                                                      \
  C(TimeNs, start_ns, "ns", "Start")                                                                       \
  C(DurationNs, dur_ns, "ns", "Duration; 0 for allocations and code samples")                              \
  C(Always<ThreadId>, thread, "", "Row in threads")                                                        \
  C(PlaceKind, kind, "",                                                                                   \
    "wait (at every recording level), copy, allocation, host-code: 100 us or more, launch: some of them, " \
    "or code-sample: a moment within host code")                                                           \
  C(StringId, stack, "", "Python functions, innermost first, or empty")
LLMPROF_TABLE(HostPlaces, "host_places", "Python code that waits, copies, allocates, launches or keeps the GPU waiting",
              LLMPROF_HOST_PLACE_COLUMNS)

// How fast the CPU of a thread was: the same work each time (base/pace_work.h), so that twice the time is half the
// pace.
#define LLMPROF_HOST_PACE_COLUMNS(C)                \
  C(TimeNs, start_ns, "ns", "Start")                \
  C(DurationNs, dur_ns, "ns", "What it took")       \
  C(Always<ThreadId>, thread, "", "Row in threads") \
  C(LengthNs, waited_ns, "ns",                      \
    "Since the probe before it the thread was ready to run and had no CPU for so long, -1 if that is not known")
LLMPROF_TABLE(HostPaces, "host_paces", "Probes of how fast the CPU of a thread was, at every recording level",
              LLMPROF_HOST_PACE_COLUMNS)

// What CPU time the program used until the end of long code between two CUDA calls, and of long calls, by
// all of its threads: code that runs, or a program that waits.
#define LLMPROF_CPU_READING_COLUMNS(C)                                                                            \
  C(TimeNs, start_ns, "ns", "Start of the code: the end of the thread's call before; or the end of a call")       \
  C(DurationNs, dur_ns, "ns", "How long it took: 100 us or more; 0: read at the end of a call that took so long") \
  C(Always<ThreadId>, thread, "", "Row in threads")                                                               \
  C(int64_t, cpu_ns, "ns", "CPU time of all threads of the process, up to the end of it")
LLMPROF_TABLE(CpuReadings, "cpu_readings", "CPU time of the program at the end of long code and of long calls",
              LLMPROF_CPU_READING_COLUMNS)

// What was recorded when, per process. Rows of one process do not overlap and are in time order.
enum class RecordingLevel : uint8_t { kOff, kLight, kDefault, kDeep };
#define LLMPROF_RECORDED_COLUMNS(C)                                                       \
  C(TimeNs, start_ns, "ns", "Start")                                                      \
  C(DurationNs, dur_ns, "ns", "Duration")                                                 \
  C(int64_t, process_id, "", "Operating system process id")                               \
  C(RecordingLevel, level, "", "off, light (ranges only), default (kernels too) or deep") \
  C(StringId, reason, "", "Why the level changed at the start")                           \
  C(LengthNs, cut_ns, "ns",                                                               \
    "Launches so long before the start lost activities that ran into time without kernels; 0: none")
LLMPROF_TABLE(Recorded, "recorded", "How much was recorded, over time", LLMPROF_RECORDED_COLUMNS)

// Hardware counters over one interval each, device-wide: they see every process on the GPU. NaN where not sampled.
#define LLMPROF_GPU_SAMPLE_COLUMNS(C)                                                       \
  C(TimeNs, start_ns, "ns", "Start of the interval")                                        \
  C(DurationNs, dur_ns, "ns", "Length of the interval")                                     \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 if it is not one of the program's") \
  C(CounterSource, source, "", "PM sampling, GPM or DCGM")                                  \
  C(float, gr_active_frac, "frac", "Graphics and compute engine active")                    \
  C(float, sm_active_frac, "frac", "SMs with at least one warp")                            \
  C(float, warps_active_frac, "frac", "Resident warps over the most an SM can hold")        \
  C(float, instructions_frac, "frac", "Instructions issued over the peak")                  \
  C(float, tensor_active_frac, "frac", "Tensor pipe active")                                \
  C(float, tensor_fp_frac, "frac", "Tensor pipe active with floating point operands")       \
  C(float, tensor_int_frac, "frac", "Tensor pipe active with integer operands")             \
  C(float, fma_instructions_per_s, "1/s", "Warp instructions of all FMA pipes")             \
  C(float, fma_heavy_instructions_per_s, "1/s", "Of the pipe that has integers too")        \
  C(float, fma_lite_instructions_per_s, "1/s", "Of the pipe without integers")              \
  C(float, fma_half_instructions_per_s, "1/s", "Of all pipes, on packed halves")            \
  C(float, dram_read_frac, "frac", "Memory reads over the peak")                            \
  C(float, dram_write_frac, "frac", "Memory writes over the peak")                          \
  C(float, dram_active_frac, "frac", "Memory traffic over the peak, both ways (GPM, DCGM)") \
  C(float, dram_read_bytes_per_s, "bytes/s", "Memory reads")                                \
  C(float, dram_write_bytes_per_s, "bytes/s", "Memory writes")                              \
  C(float, l2_hit_frac, "frac", "L2 sector hit rate")                                       \
  C(float, pcie_read_bytes_per_s, "bytes/s", "PCIe reads by the GPU")                       \
  C(float, pcie_write_bytes_per_s, "bytes/s", "PCIe writes by the GPU")                     \
  C(float, nvlink_rx_bytes_per_s, "bytes/s", "NVLink received")                             \
  C(float, nvlink_tx_bytes_per_s, "bytes/s", "NVLink sent")                                 \
  C(float, copy_engine_frac, "frac", "Any engine but the synchronous copy engine active")   \
  C(float, sm_clock_hz, "Hz", "Clock the SMs ran at")                                       \
  C(float, ctas_launched, "", "Thread blocks started in the interval")
LLMPROF_TABLE(GpuSamples, "gpu_samples", "Hardware counters over time", LLMPROF_GPU_SAMPLE_COLUMNS)

// Readings of NVML. NaN or -1 where the device does not report them; of throttle_reasons, whose 0 says "none", this:
inline constexpr uint64_t kThrottleReasonsUnknown = ~uint64_t{0};
#define LLMPROF_NVML_SAMPLE_COLUMNS(C)                                                                \
  C(TimeNs, time_ns, "ns", "When")                                                                    \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 if it is not one of the program's")           \
  C(float, gpu_util_frac, "frac", "Share of the driver's window in which any kernel ran")             \
  C(float, memory_util_frac, "frac", "Share of the driver's window in which memory was accessed")     \
  C(float, sm_clock_mhz, "MHz", "SM clock")                                                           \
  C(float, memory_clock_mhz, "MHz", "Memory clock")                                                   \
  C(float, power_w, "W", "Board power")                                                               \
  C(double, energy_j, "J", "Energy since driver load")                                                \
  C(float, temperature_c, "C", "GPU temperature")                                                     \
  C(float, memory_temperature_c, "C", "Memory temperature")                                           \
  C(int64_t, memory_used_bytes, "bytes", "Device memory in use, all processes")                       \
  C(uint64_t, throttle_reasons, "", "Bits of nvmlDeviceGetCurrentClocksEventReasons, all if unknown") \
  C(LengthNs, throttle_power_ns, "ns", "Cumulative time at the power cap")                            \
  C(LengthNs, throttle_thermal_sw_ns, "ns", "Cumulative time of software thermal slowdown")           \
  C(LengthNs, throttle_thermal_hw_ns, "ns", "Cumulative time of hardware thermal slowdown")           \
  C(LengthNs, throttle_brake_ns, "ns", "Cumulative time of the power brake")                          \
  C(LengthNs, throttle_sync_boost_ns, "ns", "Cumulative time of sync boost")                          \
  C(float, pcie_rx_bytes_per_s, "bytes/s", "PCIe received")                                           \
  C(float, pcie_tx_bytes_per_s, "bytes/s", "PCIe sent")
LLMPROF_TABLE(NvmlSamples, "nvml_samples", "Power, clocks, temperature, throttling over time",
              LLMPROF_NVML_SAMPLE_COLUMNS)

// ---- derived tables ------------------------------------------------------------------------------------------------

#define LLMPROF_OP_LINK_COLUMNS(C)                                         \
  C(OpId, parent, "", "Enclosing operator on the same thread, row in ops") \
  C(LengthNs, self_ns, "ns", "Duration without enclosed operators")
LLMPROF_PARALLEL_TABLE(OpLinks, Ops, "op_links", "Nesting of operators, parallel to ops", LLMPROF_OP_LINK_COLUMNS)

#define LLMPROF_API_LINK_COLUMNS(C) C(OpId, op, "", "Innermost operator that made the call, row in ops")
LLMPROF_PARALLEL_TABLE(ApiLinks, ApiCalls, "api_links", "Operators of API calls, parallel to api_calls",
                       LLMPROF_API_LINK_COLUMNS)

#define LLMPROF_GPU_LINK_COLUMNS(C)                                                                            \
  C(ApiCallId, api, "", "Call that launched it, row in api_calls")                                             \
  C(OpId, op, "", "Innermost operator that launched it, row in ops")                                           \
  C(WorkId, work, "", "Arithmetic it carries, row in works; one activity of an operator, or all pieces of it") \
  C(StepId, step, "", "Step it belongs to, row in steps")                                                      \
  C(LibraryCallId, library_call, "", "Math library call that launched it, row in library_calls")               \
  C(Category, category, "", "What it is for")
LLMPROF_PARALLEL_TABLE(GpuLinks, GpuOps, "gpu_links",
                       "Launches, operators and steps of GPU activities, parallel to gpu_ops", LLMPROF_GPU_LINK_COLUMNS)

// Distinct arithmetic shapes. GEMM: out[batch][m][n] = sum over k, m = tokens (rows of the activation), n = output
// features, 2*batch*m*n*k FLOPs. Attention: batch sequences, m = new queries, n = keys attended, k = head size,
// heads and kv_heads. Formulas: docs/formulas.md.
#define LLMPROF_WORK_COLUMNS(C)                                                                  \
  C(WorkKind, kind, "", "gemm, attention, convolution, gather, pointwise or reduction")          \
  C(DType, dtype, "", "Element type of the arithmetic inputs")                                   \
  C(DType, weight_dtype, "", "Element type of the second operand (weights or KV)")               \
  C(int64_t, batch, "", "Independent problems; sequences for attention")                         \
  C(int64_t, m, "", "Rows of the activation: tokens; queries per sequence for attention")        \
  C(int64_t, n, "", "Output features; keys per sequence for attention")                          \
  C(int64_t, k, "", "Reduction length; head size for attention")                                 \
  C(int64_t, heads, "", "Query heads for attention, 0 otherwise")                                \
  C(int64_t, kv_heads, "", "Key/value heads for attention, 0 otherwise")                         \
  C(AttentionMask, mask, "", "Attention: causal if that mask was requested, else none")          \
  C(double, flops, "FLOP", "2 per multiply-add; attention counts the pairs that its mask keeps") \
  C(double, flops_full, "FLOP", "The same without the causal mask; equal to flops for the rest") \
  C(double, bytes, "bytes", "Least traffic: each operand read once, each result written once")   \
  C(double, weight_bytes, "bytes", "Part of bytes that is weights (GEMM, convolution, gather)")  \
  C(double, kv_bytes, "bytes", "Part of bytes that is keys and values (attention)")              \
  C(StringId, shape, "", "Shape as text, for example M512 N4096 K4096")
LLMPROF_TABLE(Works, "works", "Distinct arithmetic shapes with FLOPs and bytes", LLMPROF_WORK_COLUMNS)

// One run of the model over some tokens: a prefill, a decode step, a mixed step, a vision encoder pass.
#define LLMPROF_STEP_COLUMNS(C)                                                                                        \
  C(StageKind, kind, "", "prefill, decode, mixed, vision, speculative or other")                                       \
  C(StageSource, source, "", "Who says so: an annotation, NVTX, or detection")                                         \
  C(StringId, stage, "", "Stage name: the annotation's text, or the kind")                                             \
  C(DeviceOrdinal, device, "", "CUDA device ordinal")                                                                  \
  C(TimeNs, start_ns, "ns", "Start of the step's window; windows of one device do not overlap")                        \
  C(TimeNs, end_ns, "ns", "End of the step's window")                                                                  \
  C(TimeNs, host_start_ns, "ns", "Start of the first host activity of the step")                                       \
  C(TimeNs, gpu_start_ns, "ns", "Start of the first GPU activity that its thread launched")                            \
  C(TimeNs, gpu_end_ns, "ns", "End of the last GPU activity that its thread launched")                                 \
  C(TimeNs, sync_ns, "ns", "End of the host call that waited for the step, -1 if none did")                            \
  C(LengthNs, other_model_ns, "ns",                                                                                    \
    "Part of a prompt, from its start, until the host has what passes of another model before it give, 0 otherwise")   \
  C(int64_t, new_tokens, "", "Tokens the step ran the model on, all sequences together, -1 if unknown")                \
  C(int64_t, sequences, "", "Sequences in the step, -1 if unknown")                                                    \
  C(int64_t, context, "", "Longest context attended, new tokens included, -1 if unknown")                              \
  C(int64_t, output_tokens, "", "Tokens the step produced (one per sequence that finished its prompt), -1 if unknown") \
  C(int64_t, gemm_rows, "", "Rows that most GEMMs of the step were run on, -1 if unknown")                             \
  C(MissingKernels, missing, "", "Kernels that are not recorded: none, those inside CUDA graphs, or all")              \
  C(StepState, state, "",                                                                                              \
    "Why it stands apart from others of its name: usual, whole graphs, not recorded, window edge")                     \
  C(StepPhase, phase, "", "serving, or warm-up")                                                                       \
  C(LengthNs, warm_up_ns, "ns", "Excess of a step of warm-up over the steady level of its shape, 0 otherwise")         \
  C(WarmUpCause, warm_up_cause, "", "Why it is warm-up")                                                               \
  C(AnnotationId, annotation, "", "Row in annotations, kNoRow if detected")                                            \
  C(StepId, pass, "", "First of the steps of several GPUs that are one pass by one thread, row in steps, or kNoRow")
LLMPROF_TABLE(Steps, "steps", "Runs of the model: prefills, decode steps, vision passes, in time order",
              LLMPROF_STEP_COLUMNS)

// GPU idle time, cut so that each row has one cause and one step. Rows of one device do not overlap, and together with
// the busy time they fill the window Trace::window of the device exactly.
#define LLMPROF_GAP_COLUMNS(C)                                                                  \
  C(DeviceOrdinal, device, "", "CUDA device ordinal")                                           \
  C(TimeNs, start_ns, "ns", "Start")                                                            \
  C(DurationNs, dur_ns, "ns", "Duration")                                                       \
  C(IdleCause, cause, "", "Why the GPU was idle")                                               \
  C(StepId, step, "", "Row in steps, kNoRow outside every step")                                \
  C(OpId, op, "", "Operator the host was in, row in ops")                                       \
  C(ApiCallId, api, "", "API call the host was in, row in api_calls")                           \
  C(PythonCallId, python, "", "Innermost Python function the host was in, row in python_calls") \
  C(GpuOpId, next_gpu_op, "", "GPU activity that ended the gap, row in gpu_ops")
LLMPROF_TABLE(Gaps, "gaps", "GPU idle time by cause", LLMPROF_GAP_COLUMNS)

// Device timelines: maximal intervals in which at least one stream of the device was busy.
#define LLMPROF_BUSY_COLUMNS(C)                       \
  C(DeviceOrdinal, device, "", "CUDA device ordinal") \
  C(TimeNs, start_ns, "ns", "Start")                  \
  C(TimeNs, end_ns, "ns", "End")
LLMPROF_TABLE(BusyIntervals, "busy_intervals", "When any stream of a device was busy, overlap counted once",
              LLMPROF_BUSY_COLUMNS)

// What the GPU did meanwhile, by time alone: which requests a step served is not known. The parts add up to the whole
// to the nanosecond; all are -1 where it does not lie in recorded time.
#define LLMPROF_CLIENT_SPLIT_COLUMNS(C)                                                                     \
  C(Always<ClientRequestId>, request, "", "Row in client_requests")                                         \
  C(TimeNs, start_ns, "ns", "When it was sent, the clocks of client and recorder taken as one")             \
  C(int64_t, others, "", "Other requests of its file that may have been in flight before its first output") \
  C(int64_t, wait_ns, "ns", "From sending to the first of its output")                                      \
  C(int64_t, wait_queue_ns, "ns", "GPU busy in a step that began before it was sent, so for others")        \
  C(int64_t, wait_prefill_ns, "ns", "GPU busy in prefill and vision steps that began since")                \
  C(int64_t, wait_mixed_ns, "ns", "GPU busy in steps of both that began since")                             \
  C(int64_t, wait_decode_ns, "ns", "GPU busy in decode steps that began since: for others")                 \
  C(int64_t, wait_other_ns, "ns", "GPU busy in other steps, and outside steps")                             \
  C(int64_t, wait_host_ns, "ns", "GPU idle inside a step")                                                  \
  C(int64_t, wait_gap_ns, "ns", "GPU idle outside every step")                                              \
  C(int64_t, out_ns, "ns", "From the first of its output to the last")                                      \
  C(int64_t, out_prefill_ns, "ns", "GPU busy in prefill and vision steps: for others")                      \
  C(int64_t, out_mixed_ns, "ns", "GPU busy in steps of both")                                               \
  C(int64_t, out_decode_ns, "ns", "GPU busy in decode steps")                                               \
  C(int64_t, out_other_ns, "ns", "GPU busy in other steps, and outside steps")                              \
  C(int64_t, out_host_ns, "ns", "GPU idle inside a step")                                                   \
  C(int64_t, out_gap_ns, "ns", "GPU idle outside every step")                                               \
  C(StringId, why, "", "Why a part is absent: failed, no-times, outside, not-recorded; empty where none is")
LLMPROF_TABLE(ClientSplits, "client_splits", "What the GPU did while requests of a client waited",
              LLMPROF_CLIENT_SPLIT_COLUMNS)

// Visits every table: (member of Trace, type). Saving, loading, `llmprof list metrics` and the docs walk this.
#define LLMPROF_IMPORTED_TABLES(T)             \
  T(Threads, threads)                          \
  T(Devices, devices)                          \
  T(Streams, streams)                          \
  T(Signatures, signatures)                    \
  T(Inputs, inputs)                            \
  T(InputNumbers, input_numbers)               \
  T(Ops, ops)                                  \
  T(Annotations, annotations)                  \
  T(PythonCalls, python_calls)                 \
  T(ApiCalls, api_calls)                       \
  T(LaunchConfigs, launch_configs)             \
  T(GpuOps, gpu_ops)                           \
  T(Collectives, collectives)                  \
  T(Ranks, ranks)                              \
  T(SyncEvents, sync_events)                   \
  T(Overheads, overheads)                      \
  T(MemoryEvents, memory_events)               \
  T(Counters, counters)                        \
  T(LibraryCalls, library_calls)               \
  T(GraphNodes, graph_nodes)                   \
  T(NodePlaces, node_places)                   \
  T(GraphEdges, graph_edges)                   \
  T(GraphLaunches, graph_launches)             \
  T(LaunchSites, launch_sites)                 \
  T(RecurringCalls, recurring_calls)           \
  T(ProductRows, product_rows)                 \
  T(HostPlaces, host_places)                   \
  T(HostPaces, host_paces)                     \
  T(CpuReadings, cpu_readings)                 \
  T(Recorded, recorded)                        \
  T(GpuSamples, gpu_samples)                   \
  T(NvmlSamples, nvml_samples)                 \
  T(ProfiledKernels, profiled_kernels)         \
  T(KernelCounters, kernel_counters)           \
  T(LoggedProducts, logged_products)           \
  T(ClientRequests, client_requests)           \
  T(ClientMoments, client_moments)             \
  T(ClientIntervals, client_intervals)         \
  T(ClientFigures, client_figures)             \
  T(ScrapedValues, scraped_values)             \
  T(LoggedRanks, logged_ranks)                 \
  T(LoggedLinks, logged_links)                 \
  T(LoggedCollectives, logged_collectives)     \
  T(LoggedChoices, logged_choices)             \
  T(LoggedWarnings, logged_warnings)           \
  T(InspectedOperations, inspected_operations) \
  T(InspectedLosses, inspected_losses)         \
  T(MemoryBlocks, memory_blocks)               \
  T(MemoryFailures, memory_failures)           \
  T(MemoryRanges, memory_ranges)               \
  T(AllocatorFigures, allocator_figures)       \
  T(InspectedLayers, inspected_layers)         \
  T(LayerTimes, layer_times)                   \
  T(EngineQueries, engine_queries)             \
  T(ProtonNodes, proton_nodes)                 \
  T(ProtonMetrics, proton_metrics)             \
  T(ProtonGpus, proton_gpus)                   \
  T(JoinedFiles, files_joined)
#define LLMPROF_DERIVED_TABLES(T)  \
  T(OpLinks, op_links)             \
  T(ApiLinks, api_links)           \
  T(GpuLinks, gpu_links)           \
  T(Works, works)                  \
  T(Steps, steps)                  \
  T(Gaps, gaps)                    \
  T(BusyIntervals, busy_intervals) \
  T(ClientSplits, client_splits)
#define LLMPROF_TABLES(T) LLMPROF_IMPORTED_TABLES(T) LLMPROF_DERIVED_TABLES(T)

}  // namespace llmprof
