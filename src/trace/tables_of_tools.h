// Tables that only files of other tools fill (Nsight Compute, logs of cuBLAS and NCCL, benchmarks and metrics pages of
// servers, PyTorch's memory snapshots, TensorRT's trtexec, Triton's Proton). Their rows have no place in time, unless a
// column says so.
#pragma once

#include "trace/rows.h"

namespace llmprof {

// Kernels that a profiler ran alone and more than once, to count what they do (Nsight Compute). They have no place in
// time, and their durations are not those of the program: the profiler clears caches and holds clocks, unless it was
// asked not to. In the order of the file.
#define LLMPROF_PROFILED_KERNEL_COLUMNS(C)                                                     \
  C(Always<StreamId>, stream, "", "Row in streams")                                            \
  C(StringId, name, "", "Kernel name")                                                         \
  C(LaunchConfigId, config, "", "Row in launch_configs, empty if absent")                      \
  C(LengthNs, dur_ns, "ns", "Duration under the profiler, -1 if it was not collected")         \
  C(int64_t, process_id, "", "Operating system process id, -1 if absent")                      \
  C(int64_t, number, "", "The profiler's number of it, another one for each kernel of a file") \
  C(StringId, ranges, "", "NVTX ranges of its thread around it, outermost first, one a line, or empty")
LLMPROF_TABLE(ProfiledKernels, "profiled_kernels", "Kernels as a profiler ran them again to count what they do",
              LLMPROF_PROFILED_KERNEL_COLUMNS)

#define LLMPROF_KERNEL_COUNTER_COLUMNS(C)                                                     \
  C(ProfiledKernelId, kernel, "", "Row in profiled_kernels")                                  \
  C(StringId, section, "", "Section that names it, empty if the file has none")               \
  C(StringId, name, "", "Metric: dram__bytes_read.sum, or a section's label for it")          \
  C(double, value, "", "In its unit; NaN for what is no number")                              \
  C(StringId, unit, "", "Unit without a prefix: ns, byte, byte/s, hz, %, inst, ... or empty") \
  C(StringId, text, "", "Value that is no number, or empty")
LLMPROF_TABLE(KernelCounters, "kernel_counters", "Metrics of profiled kernels, those of one kernel in the file's order",
              LLMPROF_KERNEL_COUNTER_COLUMNS)

// Matrix products as the logs of cuBLAS and cuBLASLt have them, in the order of the files. The logs say when by the
// second, so they have no place in time. A product that cuBLAS runs through cuBLASLt has a row for each of the two
// logs. GEMM as LLMPROF_WORK_COLUMNS has it: the columns of a column-major result are the rows of the activation.
#define LLMPROF_LOGGED_PRODUCT_COLUMNS(C)                                                           \
  C(int64_t, unix_s, "s", "Second of the log's own clock, read as UTC, -1 if absent")               \
  C(int64_t, process_id, "", "Operating system process id, -1 if absent")                           \
  C(int64_t, thread_id, "", "POSIX thread handle, -1 if absent: cuBLASLt does not log it")          \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 if absent: cuBLASLt does not log it")       \
  C(uint64_t, stream, "", "Stream handle, 0 for the default stream")                                \
  C(StringId, function, "", "Function, for example cublasGemmEx or cublasLtTSTMatmul")              \
  C(DType, dtype, "", "Element type of the activation")                                             \
  C(DType, weight_dtype, "", "Element type of the second operand")                                  \
  C(DType, out_dtype, "", "Element type of the result")                                             \
  C(int64_t, batch, "", "Independent problems")                                                     \
  C(int64_t, m, "", "Rows of the activation: tokens, -1 if unknown")                                \
  C(int64_t, n, "", "Output features, -1 if unknown")                                               \
  C(int64_t, k, "", "Reduction length, -1 if unknown")                                              \
  C(StringId, layout, "", "Transposes of the library's A and B: TN; row-major where the result is") \
  C(StringId, compute, "", "Compute type: COMPUTE_32F, or empty")                                   \
  C(StringId, epilogue, "", "What the library fused behind it, for example BIAS; empty if nothing") \
  C(StringId, algorithm, "", "What was asked for (cuBLAS) or chosen (cuBLASLt), as the log has it") \
  C(uint64_t, a, "", "Address of the library's A, 0 if absent")                                     \
  C(uint64_t, b, "", "Address of the library's B, 0 if absent")                                     \
  C(uint64_t, d, "", "Address of the result, 0 if absent")
LLMPROF_TABLE(LoggedProducts, "logged_products", "Matrix products by the logs of cuBLAS and cuBLASLt",
              LLMPROF_LOGGED_PRODUCT_COLUMNS)

// Requests as a client saw them, a benchmark of a server for example.
#define LLMPROF_CLIENT_REQUEST_COLUMNS(C)                                              \
  C(TimeNs, start_ns, "ns", "When it was sent; 0 for all where the file does not say") \
  C(int64_t, latency_ns, "ns", "From sending to the last of its output, -1 if absent") \
  C(int64_t, ttft_ns, "ns", "From sending to the first of its output, -1 if absent")   \
  C(int64_t, input_tokens, "", "Tokens of its prompt, -1 if absent")                   \
  C(int64_t, output_tokens, "", "Tokens of its answer, -1 if absent")                  \
  C(StringId, source, "", "File that it is from")                                      \
  C(StringId, error, "", "Why it failed, as the file has it; empty if it did not")
LLMPROF_TABLE(ClientRequests, "client_requests", "Requests of a server as its client saw them",
              LLMPROF_CLIENT_REQUEST_COLUMNS)

// Only of files that have them: most have lengths alone, or times of a clock that starts anywhere.
#define LLMPROF_CLIENT_MOMENT_COLUMNS(C)                                              \
  C(Always<ClientRequestId>, request, "", "Row in client_requests")                   \
  C(int64_t, sent_unix_ns, "ns", "When it was sent, by the wall clock of the client") \
  C(int64_t, first_unix_ns, "ns", "When the first of its output came, -1 if absent")  \
  C(int64_t, end_unix_ns, "ns", "When the last of its output came, -1 if absent")
LLMPROF_TABLE(ClientMoments, "client_moments", "Requests of a server by the wall clock of its client",
              LLMPROF_CLIENT_MOMENT_COLUMNS)

// A piece of output may hold several tokens.
#define LLMPROF_CLIENT_INTERVAL_COLUMNS(C)                          \
  C(Always<ClientRequestId>, request, "", "Row in client_requests") \
  C(LengthNs, length_ns, "ns", "From one piece of its output to the next")
LLMPROF_TABLE(ClientIntervals, "client_intervals", "Times between pieces of a request's output, in order",
              LLMPROF_CLIENT_INTERVAL_COLUMNS)

#define LLMPROF_CLIENT_FIGURE_COLUMNS(C)                                                               \
  C(StringId, source, "", "File that it is from")                                                      \
  C(StringId, name, "", "What was measured: ttft, tpot, itl, e2e, output-tokens-per-s, requests, ...") \
  C(StringId, statistic, "", "mean, median, p99, std, total, ...; empty for a single value")           \
  C(double, value, "", "Value in its unit; infinite where the file says so")                           \
  C(StringId, unit, "", "s, tokens/s, requests/s, tokens, requests; empty for a pure number")          \
  C(StringId, field, "", "Name of the figure in the file")
LLMPROF_TABLE(ClientFigures, "client_figures", "What a benchmark of a server says of its run",
              LLMPROF_CLIENT_FIGURE_COLUMNS)

#define LLMPROF_SCRAPED_VALUE_COLUMNS(C)                                                            \
  C(TimeNs, time_ns, "ns", "When its page was read; 0 where nothing says")                          \
  C(StringId, source, "", "File that it is from")                                                   \
  C(StringId, name, "", "Sample, for example vllm:time_to_first_token_seconds_bucket")              \
  C(StringId, labels, "", "Labels by name, for example le=\"0.1\",model_name=\"m\"")                \
  C(StringId, type, "", "Type of its family: counter, gauge, histogram, summary; empty if untyped") \
  C(double, value, "", "Value; not a number where the page says so")
LLMPROF_TABLE(ScrapedValues, "scraped_values", "Samples of metrics pages of servers (Prometheus, OpenMetrics)",
              LLMPROF_SCRAPED_VALUE_COLUMNS)

// What NCCL's log says (NCCL_DEBUG=INFO), each line summed up. Nothing of it has a place in time. A communicator is its
// commId, the same on all ranks; of a split one its parent's, which of the splits it is, and its color; else its
// address.
#define LLMPROF_LOGGED_RANK_COLUMNS(C)                                              \
  C(StringId, source, "", "File that it is from")                                   \
  C(StringId, communicator, "", "Communicator")                                     \
  C(int64_t, rank, "", "Its rank in it")                                            \
  C(int64_t, ranks, "", "Ranks that the communicator has")                          \
  C(StringId, host, "", "Host")                                                     \
  C(int64_t, process_id, "", "Operating system process id")                         \
  C(int64_t, device, "", "CUDA device ordinal")                                     \
  C(StringId, bus_id, "", "PCI bus id; empty if absent")                            \
  C(StringId, version, "", "Version of NCCL that its process has; empty if absent") \
  C(int64_t, channels, "", "Channels of collectives, -1 if absent")                 \
  C(int64_t, p2p_channels, "", "Channels of sends and receives, -1 if absent")
LLMPROF_TABLE(LoggedRanks, "logged_ranks", "Ranks of communicators by NCCL's log", LLMPROF_LOGGED_RANK_COLUMNS)

#define LLMPROF_LOGGED_LINK_COLUMNS(C)                                             \
  C(StringId, source, "", "File that it is from")                                  \
  C(StringId, communicator, "", "Communicator; empty where no line names it")      \
  C(int64_t, from_rank, "", "Rank that sends")                                     \
  C(int64_t, to_rank, "", "Rank that receives")                                    \
  C(StringId, side, "", "Who printed it: send or receive")                         \
  C(StringId, path, "", "Transport and what it uses, for example NET/IB/0/GDRDMA") \
  C(int64_t, channels, "", "Channels")
LLMPROF_TABLE(LoggedLinks, "logged_links", "Connections of ranks by NCCL's log", LLMPROF_LOGGED_LINK_COLUMNS)

#define LLMPROF_LOGGED_COLLECTIVE_COLUMNS(C)                                  \
  C(StringId, source, "", "File that it is from")                             \
  C(StringId, communicator, "", "Communicator")                               \
  C(StringId, operation, "", "AllReduce, Send, ...")                          \
  C(StringId, dtype, "", "Element type, by NCCL's name: bf16, int8, ...")     \
  C(int64_t, ranks, "", "Ranks that the communicator has")                    \
  C(StringId, host, "", "Host that called")                                   \
  C(int64_t, process_id, "", "Process that called")                           \
  C(int64_t, device, "", "CUDA device ordinal that called, -1 if absent")     \
  C(int64_t, calls, "", "Calls")                                              \
  C(double, bytes, "bytes", "Count times size of an element, of all of them") \
  C(double, bytes_min, "bytes", "Of the smallest")                            \
  C(double, bytes_max, "bytes", "Of the largest")
LLMPROF_TABLE(LoggedCollectives, "logged_collectives", "Calls of collectives by NCCL's log",
              LLMPROF_LOGGED_COLLECTIVE_COLUMNS)

#define LLMPROF_LOGGED_CHOICE_COLUMNS(C)                                              \
  C(StringId, source, "", "File that it is from")                                     \
  C(StringId, operation, "", "AllReduce, ...; collective where the log does not say") \
  C(StringId, algorithm, "", "RING, TREE, NVLS, ...")                                 \
  C(StringId, protocol, "", "LL, LL128 or SIMPLE")                                    \
  C(int64_t, calls, "", "Calls for which it was chosen")                              \
  C(double, bytes_min, "bytes", "Size of the smallest")                               \
  C(double, bytes_max, "bytes", "Size of the largest")                                \
  C(int64_t, channels, "", "Most channels, -1 if absent")
LLMPROF_TABLE(LoggedChoices, "logged_choices", "How NCCL chose to carry collectives out, by its log",
              LLMPROF_LOGGED_CHOICE_COLUMNS)

#define LLMPROF_LOGGED_WARNING_COLUMNS(C)                                 \
  C(StringId, source, "", "File that it is from")                         \
  C(StringId, host, "", "Host")                                           \
  C(StringId, place, "", "File and line of NCCL's code; empty if absent") \
  C(StringId, text, "", "Text")                                           \
  C(int64_t, times, "", "How often")
LLMPROF_TABLE(LoggedWarnings, "logged_warnings", "Warnings of NCCL's log", LLMPROF_LOGGED_WARNING_COLUMNS)

// What NCCL's Inspector writes: it times operations of messages that are not small.
#define LLMPROF_INSPECTED_OPERATION_COLUMNS(C)                                                        \
  C(StringId, source, "", "File that it is from; its rows are in the order of the file")              \
  C(StringId, communicator, "", "Id of the communicator, the same in all files")                      \
  C(StringId, name, "", "Name of the communicator; empty if absent")                                  \
  C(StringId, host, "", "Host")                                                                       \
  C(int64_t, process_id, "", "Operating system process id, -1 if absent")                             \
  C(int64_t, rank, "", "Rank, -1 if absent")                                                          \
  C(int64_t, ranks, "", "Ranks of the communicator, -1 if absent")                                    \
  C(int64_t, nodes, "", "Hosts of the communicator, -1 if absent")                                    \
  C(StringId, operation, "", "AllReduce, Send, ...")                                                  \
  C(StringId, algorithm, "", "RING, TREE, ...; empty if absent")                                      \
  C(StringId, protocol, "", "LL, LL128, SIMPLE; empty if absent")                                     \
  C(StringId, timing, "", "By which clock it was timed; empty if absent")                             \
  C(double, bytes, "bytes", "Size of the message as the file has it")                                 \
  C(double, time_us, "us", "Time")                                                                    \
  C(double, algorithm_gbs, "GB/s", "Bandwidth of the algorithm as the file states it; NaN if absent") \
  C(double, bus_gbs, "GB/s", "Bus bandwidth as the file states it; NaN if absent")
LLMPROF_TABLE(InspectedOperations, "inspected_operations", "Operations that NCCL's Inspector timed",
              LLMPROF_INSPECTED_OPERATION_COLUMNS)

#define LLMPROF_INSPECTED_LOSS_COLUMNS(C)                                 \
  C(StringId, source, "", "File that it is from")                         \
  C(StringId, communicator, "", "Id of the communicator")                 \
  C(int64_t, rank, "", "Rank, -1 if absent")                              \
  C(StringId, host, "", "Host")                                           \
  C(int64_t, process_id, "", "Operating system process id, -1 if absent") \
  C(StringId, kind, "", "coll or p2p")                                    \
  C(double, operations, "", "Operations that were overwritten before they were written")
LLMPROF_TABLE(InspectedLosses, "inspected_losses", "Operations that NCCL's Inspector lost",
              LLMPROF_INSPECTED_LOSS_COLUMNS)

// Blocks of PyTorch's caching allocator at the moment of a snapshot.
#define LLMPROF_MEMORY_BLOCK_COLUMNS(C)                                                           \
  C(StringId, source, "", "File that it is from")                                                 \
  C(DeviceOrdinal, device, "", "CUDA device ordinal")                                             \
  C(uint64_t, segment, "", "Address of the segment that it is part of")                           \
  C(uint64_t, address, "", "Address")                                                             \
  C(int64_t, bytes, "bytes", "Size")                                                              \
  C(int64_t, requested_bytes, "bytes", "What the program asked for, -1 if absent")                \
  C(StringId, state, "", "active_allocated, active_pending_free or inactive, as the file has it") \
  C(StringId, pool, "", "large or small, as the file has it")                                     \
  C(uint64_t, stream, "", "CUDA stream of its segment, as the file has it")                       \
  C(StringId, place, "", "Innermost Python code that allocated it and is not PyTorch's own; empty if absent")
LLMPROF_TABLE(MemoryBlocks, "memory_blocks", "Blocks of PyTorch's allocator at a snapshot",
              LLMPROF_MEMORY_BLOCK_COLUMNS)

#define LLMPROF_MEMORY_FAILURE_COLUMNS(C)                                   \
  C(TimeNs, time_ns, "ns", "When")                                          \
  C(DeviceOrdinal, device, "", "CUDA device ordinal")                       \
  C(int64_t, requested_bytes, "bytes", "What was asked for, -1 if absent")  \
  C(int64_t, free_bytes, "bytes", "What the driver had free, -1 if absent") \
  C(StringId, place, "", "Innermost Python code that asked and is not PyTorch's own; empty if absent")
LLMPROF_TABLE(MemoryFailures, "memory_failures", "Allocations that found no memory", LLMPROF_MEMORY_FAILURE_COLUMNS)

#define LLMPROF_MEMORY_RANGE_COLUMNS(C)                                     \
  C(StringId, source, "", "File that it is from")                           \
  C(TimeNs, start_ns, "ns", "When it began")                                \
  C(LengthNs, dur_ns, "ns", "Length, -1 if it was open at the snapshot")    \
  C(DeviceOrdinal, device, "", "CUDA device that was chosen when it began") \
  C(StringId, name, "", "Name")
LLMPROF_TABLE(MemoryRanges, "memory_ranges", "Ranges of the program (record_function) in a snapshot's history",
              LLMPROF_MEMORY_RANGE_COLUMNS)

#define LLMPROF_ALLOCATOR_FIGURE_COLUMNS(C)                                           \
  C(StringId, source, "", "File that it is from")                                     \
  C(DeviceOrdinal, device, "", "CUDA device ordinal, -1 where the file does not say") \
  C(StringId, name, "", "As PyTorch names it, for example allocated_bytes.all.peak")  \
  C(double, value, "", "Bytes where the name says so, else a count")
LLMPROF_TABLE(AllocatorFigures, "allocator_figures", "What PyTorch's allocator says of itself",
              LLMPROF_ALLOCATOR_FIGURE_COLUMNS)

// What TensorRT's trtexec writes: layers of an engine by its inspector, their times by the profiler, and queries.
#define LLMPROF_INSPECTED_LAYER_COLUMNS(C)                                                               \
  C(StringId, source, "", "File that it is from; its rows are in the engine's order")                    \
  C(StringId, name, "", "Name")                                                                          \
  C(StringId, type, "", "LayerType; empty where the file has names alone")                               \
  C(StringId, tactic, "", "TacticName, else TacticValue; empty if absent")                               \
  C(StringId, inputs, "", "Dimensions and format of each, for example [1,128,768] Half; [768,768] Half") \
  C(StringId, outputs, "", "The same of its outputs")                                                    \
  C(int64_t, stream, "", "StreamId: stream of the engine that it runs on, -1 if absent")                 \
  C(StringId, metadata, "", "Metadata: layers of the network that it was made of; empty if absent")
LLMPROF_TABLE(InspectedLayers, "inspected_layers", "Layers of TensorRT engines, as their inspector says",
              LLMPROF_INSPECTED_LAYER_COLUMNS)

#define LLMPROF_LAYER_TIME_COLUMNS(C)                                                       \
  C(StringId, source, "", "File that it is from; its rows are in the order of the profile") \
  C(StringId, name, "", "Name of the layer")                                                \
  C(int64_t, iterations, "", "Iterations of the whole profile (count), -1 if absent")       \
  C(int64_t, total_ns, "ns", "Time in all iterations (timeMs), -1 if absent")               \
  C(int64_t, mean_ns, "ns", "Time of a run of it (averageMs), -1 if absent")                \
  C(int64_t, median_ns, "ns", "Median of its runs (medianMs), -1 if absent")                \
  C(double, stated_frac, "frac", "Share of the profile as the file states it (percentage); not a number if absent")
LLMPROF_TABLE(LayerTimes, "layer_times", "Times of layers by TensorRT's profiler, as trtexec sums them up",
              LLMPROF_LAYER_TIME_COLUMNS)

#define LLMPROF_ENGINE_QUERY_COLUMNS(C)                                                                     \
  C(StringId, source, "", "File that it is from; its rows are in the order of the file")                    \
  C(int64_t, compute_start_ns, "ns", "When its kernels began, since the program's own start; -1 if absent") \
  C(int64_t, enqueue_ns, "ns", "Host time to enqueue it, -1 if absent")                                     \
  C(int64_t, h2d_ns, "ns", "Copying its inputs to the GPU, -1 if absent")                                   \
  C(int64_t, compute_ns, "ns", "From the start of its first kernel to the end of its last, -1 if absent")   \
  C(int64_t, d2h_ns, "ns", "Copying its outputs to the host, -1 if absent")                                 \
  C(int64_t, latency_ns, "ns", "Sum of the three as the file states it, -1 if absent")                      \
  C(int64_t, end_to_end_ns, "ns", "From the start of its first copy to the end of its last, -1 if absent")
LLMPROF_TABLE(EngineQueries, "engine_queries", "Queries of a TensorRT engine, as trtexec timed them",
              LLMPROF_ENGINE_QUERY_COLUMNS)

// Trees of Triton's profiler Proton: scopes, Python frames and kernels. A node stands behind the one that it is below.
#define LLMPROF_PROTON_NODE_COLUMNS(C)                                                 \
  C(StringId, source, "", "File that it is from")                                      \
  C(ProtonNodeId, parent, "", "Row in proton_nodes; empty at the root")                \
  C(StringId, name, "", "Scope, Python frame or kernel")                               \
  C(int64_t, own_ns, "ns", "Time of its launches (time), -1 where it is no kernel")    \
  C(int64_t, launches, "", "Launches of the kernel (count), -1 where it is no kernel") \
  C(StringId, gpu, "", "Kind and number of the GPU: CUDA 0; empty if absent")
LLMPROF_TABLE(ProtonNodes, "proton_nodes", "Scopes and kernels of Triton's Proton, in the order of the tree",
              LLMPROF_PROTON_NODE_COLUMNS)

#define LLMPROF_PROTON_METRIC_COLUMNS(C)                                        \
  C(Always<ProtonNodeId>, node, "", "Row in proton_nodes")                      \
  C(StringId, name, "", "As the file has it: flops16, bytes, num_samples, ...") \
  C(double, value, "", "Of the node alone, without what is below it")
LLMPROF_TABLE(ProtonMetrics, "proton_metrics", "Metrics of Proton's scopes and kernels but their time and count",
              LLMPROF_PROTON_METRIC_COLUMNS)

#define LLMPROF_PROTON_GPU_COLUMNS(C)                                                    \
  C(StringId, source, "", "File that it is from")                                        \
  C(StringId, gpu, "", "Kind and number: CUDA 0")                                        \
  C(StringId, arch, "", "Architecture: 90 for compute capability 9.0")                   \
  C(int64_t, sms, "", "Streaming multiprocessors (num_sms), -1 if absent")               \
  C(int64_t, clock_khz, "kHz", "Highest clock (clock_rate), -1 if absent")               \
  C(int64_t, memory_clock_khz, "kHz", "Of the memory (memory_clock_rate), -1 if absent") \
  C(int64_t, bus_bits, "bits", "Width of the memory's bus (bus_width), -1 if absent")
LLMPROF_TABLE(ProtonGpus, "proton_gpus", "GPUs as Proton's files describe them", LLMPROF_PROTON_GPU_COLUMNS)

// Files beside a recording, in the order in which they were joined. Readings are placed in time as they are joined;
// what else there is to match, analyses match.
#define LLMPROF_JOINED_FILE_COLUMNS(C)                                                                           \
  C(StringId, file, "", "As it was named")                                                                       \
  C(StringId, format, "", "Importer that read it")                                                               \
  C(int64_t, first_row, "", "First row that it has in the table of its records; -1 if it has none")              \
  C(int64_t, records, "", "Readings, profiled kernels or logged products of it, -1 for other files")             \
  C(StringId, joined_by, "", "Of readings: what their place in the recording follows from; empty if not placed") \
  C(int64_t, shift_ns, "ns", "Added to its times, read as UTC, if they are placed")                              \
  C(LengthNs, uncertain_ns, "ns",                                                                                \
    "From the earliest to the latest moment at which a placed reading may have been "                            \
    "taken; its time is the middle; -1 if not placed")                                                           \
  C(int64_t, matched, "", "Readings that surely lie in the recording, -1 if that is left to analyses")           \
  C(StringId, not_matched, "", "Why others do not, empty if all do")                                             \
  C(int64_t, compared, "", "Readings of GPU utilisation that the recording can be compared with, -1 if none")    \
  C(int64_t, agreeing, "", "Of them those that agree, -1 if that says nothing: the load was constant")
LLMPROF_TABLE(JoinedFiles, "files_joined", "Files beside the recording", LLMPROF_JOINED_FILE_COLUMNS)

}  // namespace llmprof
