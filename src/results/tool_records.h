// Rows of a report that only files of other tools fill: Nsight Compute, logs of cuBLAS and NCCL, benchmarks and metrics
// pages of servers, PyTorch's memory snapshots, TensorRT's trtexec, Triton's Proton.
#pragma once

#include <string>

#include "base/dtype.h"
#include "results/values.h"

namespace llmprof {

// ---- Nsight Compute ----

#define LLMPROF_PROFILED_KERNEL_FIELDS(F)                                                                         \
  F(std::string, name, "", "Kernel")                                                                              \
  F(std::string, category, "", "What it is for, by its name alone")                                               \
  F(std::string, ranges, "", "NVTX ranges around it, outermost first, with / between")                            \
  F(int64_t, device, "", "CUDA device ordinal")                                                                   \
  F(int64_t, stream, "", "CUDA stream id")                                                                        \
  F(OptText, grid, "", "Grid, x*y*z")                                                                             \
  F(OptText, block, "", "Block, x*y*z")                                                                           \
  F(int64_t, calls, "", "Times it was profiled; what follows is the mean of one call")                            \
  F(OptDouble, duration_us, "us", "Alone on the GPU, at the profiler's clock: not the duration in production")    \
  F(OptDouble, fp32_flops, "FLOP", "Counted: adds, multiplies, and fused ones twice, in 32 bits")                 \
  F(OptDouble, fp16_flops, "FLOP", "The same in 16 bits, as Nsight Compute's roofline counts them")               \
  F(OptDouble, fp64_flops, "FLOP", "The same in 64 bits")                                                         \
  F(OptDouble, tensor_flops, "FLOP", "Counted: floating point operations of the tensor pipe")                     \
  F(OptDouble, flops, "FLOP", "Their sum, where 32 bits and the tensor pipe are known")                           \
  F(OptText, not_counted, "", "Parts of the sum that no metric counts")                                           \
  F(OptText, dtype, "", "Element type of most of the arithmetic")                                                 \
  F(OptDouble, dram_read_bytes, "bytes", "Counted memory reads")                                                  \
  F(OptDouble, dram_write_bytes, "bytes", "Counted memory writes")                                                \
  F(OptDouble, dram_bytes, "bytes", "Counted memory traffic, or its rate over the duration")                      \
  F(OptDouble, intensity, "FLOP/byte", "flops / dram_bytes")                                                      \
  F(OptDouble, tflops, "TFLOP/s", "flops / duration_us")                                                          \
  F(OptDouble, gbs, "GB/s", "dram_bytes / duration_us")                                                           \
  F(OptDouble, occupancy_frac, "frac", "Achieved: resident warps over the most an SM holds, while it was active") \
  F(OptDouble, theoretical_occupancy_frac, "frac", "What registers, shared memory and block allow")               \
  F(OptDouble, sm_frac, "frac", "Throughput of the SMs' busiest part over its peak")                              \
  F(OptDouble, memory_frac, "frac", "Throughput of the busiest part of caches and memory over its peak")          \
  F(OptDouble, dram_frac, "frac", "Throughput of the memory over its peak")                                       \
  F(OptDouble, tensor_active_frac, "frac", "Cycles in which the tensor pipe was active")                          \
  F(OptDouble, l1_hit_frac, "frac", "L1 sector hit rate")                                                         \
  F(OptDouble, l2_hit_frac, "frac", "L2 sector hit rate")                                                         \
  F(OptInt, recorded_calls, "", "Times that it ran in the recording beside, with this grid and block")            \
  F(OptDouble, recorded_us, "us", "Its mean duration there: that of production, but for what recording costs")    \
  F(OptDouble, recorded_tflops, "TFLOP/s", "flops / recorded_us")                                                 \
  F(OptDouble, recorded_gbs, "GB/s", "dram_bytes / recorded_us")                                                  \
  F(OptText, stall, "", "What its warps wait for most")                                                           \
  F(OptDouble, stall_frac, "frac", "Part of the warps' time in that state")
LLMPROF_RECORD(ProfiledKernelRecord, "profiled_kernels", "Kernels that Nsight Compute ran alone to count what they do",
               LLMPROF_PROFILED_KERNEL_FIELDS)

#define LLMPROF_KERNEL_STALL_FIELDS(F)                                                                    \
  F(std::string, name, "", "Kernel")                                                                      \
  F(std::string, ranges, "", "NVTX ranges around it, outermost first, with / between")                    \
  F(int64_t, device, "", "CUDA device ordinal")                                                           \
  F(OptText, grid, "", "Grid, x*y*z")                                                                     \
  F(OptText, block, "", "Block, x*y*z")                                                                   \
  F(std::string, reason, "", "What its warps wait for, as Nsight Compute calls it; selected: they issue") \
  F(double, frac, "frac", "Part of the warps' time in that state")
LLMPROF_RECORD(KernelStallRecord, "kernel_stalls", "What the warps of profiled kernels wait for",
               LLMPROF_KERNEL_STALL_FIELDS)

// ---- logs of cuBLAS and cuBLASLt ----

#define LLMPROF_LOGGED_PRODUCT_FIELDS(F)                                                                     \
  F(int64_t, process_id, "", "Operating system process id, -1 if the log does not say")                      \
  F(OptInt, thread_id, "", "POSIX thread handle; cuBLASLt does not log it")                                  \
  F(OptInt, device, "", "CUDA device ordinal; cuBLASLt does not log it")                                     \
  F(std::string, stream, "", "Stream handle; 0x0 is the default stream")                                     \
  F(std::string, function, "", "Function of the library; of a product in both logs that of cuBLAS")          \
  F(std::string, logs, "", "cublas, cublaslt, or both: counted once")                                        \
  F(OptInt, batch, "", "Independent problems")                                                               \
  F(OptInt, m, "", "Rows of the activation (tokens): the library's n where the result is column-major")      \
  F(OptInt, n, "", "Output features: the library's m where the result is column-major")                      \
  F(OptInt, k, "", "Reduction length")                                                                       \
  F(OptText, dtype, "", "Element type of the activation")                                                    \
  F(OptText, weight_dtype, "", "Element type of the second operand")                                         \
  F(OptText, out_dtype, "", "Element type of the result")                                                    \
  F(std::string, layout, "", "Transposes of the library's A and B: TN; row-major where the result is")       \
  F(OptText, compute_type, "", "As the library calls it: COMPUTE_32F")                                       \
  F(OptText, epilogue, "", "What the library fused behind it")                                               \
  F(OptText, algorithm, "", "What cuBLASLt chose; without its log what was asked of cuBLAS")                 \
  F(int64_t, calls, "", "Such products in the logs")                                                         \
  F(OptDouble, flops, "FLOP", "Of one: 2 x batch x m x n x k; none of a grouped product")                    \
  F(OptDouble, total_flops, "FLOP", "Of all of them")                                                        \
  F(OptInt, recorded_calls, "", "Of them those found in the recording beside, by their order on the stream") \
  F(OptDouble, recorded_us, "us", "Mean time of the GEMM kernel of those")                                   \
  F(OptDouble, recorded_tflops, "TFLOP/s", "flops / recorded_us")
LLMPROF_RECORD(LoggedProductRecord, "logged_products", "Matrix products by the logs of cuBLAS and cuBLASLt",
               LLMPROF_LOGGED_PRODUCT_FIELDS)

// ---- servers: what clients and metrics pages say ----

#define LLMPROF_CLIENT_RUN_FIELDS(F)                                                                               \
  F(std::string, source, "", "File, and which of its runs where it has several: sweep.jsonl:2")                    \
  F(std::string, format, "", "vllm, sglang, aiperf, guidellm, or bench where the file does not say")               \
  F(OptText, backend, "", "Kind of server, as the file calls it")                                                  \
  F(OptText, model, "", "Model, as the file calls it")                                                             \
  F(OptDouble, request_rate, "requests/s", "Rate at which requests were sent; none where they were not held back") \
  F(bool, unlimited_rate, "", "All requests were sent at once, as far as max_concurrency let them")                \
  F(OptInt, max_concurrency, "", "Most requests at a time that the client allowed")                                \
  F(OptDouble, duration_s, "s", "Length of the run")                                                               \
  F(OptInt, completed, "", "Requests that were answered")                                                          \
  F(OptInt, failed, "", "Requests that were not")                                                                  \
  F(OptInt, input_tokens, "", "Tokens of all prompts that were answered")                                          \
  F(OptInt, output_tokens, "", "Tokens of all answers")                                                            \
  F(OptDouble, requests_per_s, "requests/s", "Answered requests per second of the run")                            \
  F(OptDouble, output_tokens_per_s, "tokens/s", "Tokens of answers per second of the run")                         \
  F(OptDouble, total_tokens_per_s, "tokens/s", "The same with those of the prompts")                               \
  F(OptDouble, ttft_median_ms, "ms", "From sending a request to the first of its output: median")                  \
  F(OptDouble, ttft_p99_ms, "ms", "99th percentile of it")                                                         \
  F(OptDouble, tpot_median_ms, "ms", "(latency - TTFT) / (tokens - 1) of a request: median over requests")         \
  F(OptDouble, tpot_p99_ms, "ms", "99th percentile of it")                                                         \
  F(OptDouble, itl_median_ms, "ms", "From one piece of an answer to the next: median over all of them")            \
  F(OptDouble, itl_p99_ms, "ms", "99th percentile of it")                                                          \
  F(OptDouble, e2e_median_ms, "ms", "From sending a request to the last of its output: median")                    \
  F(OptDouble, e2e_p99_ms, "ms", "99th percentile of it")                                                          \
  F(int64_t, requests, "", "Requests that the file has one by one, the failed ones too")                           \
  F(int64_t, checked, "", "Figures that the file states and its requests give")                                    \
  F(int64_t, disagreeing, "", "Of those the ones that differ")
LLMPROF_RECORD(ClientRunRecord, "client_runs", "Runs of benchmarks of a server, as their client saw them",
               LLMPROF_CLIENT_RUN_FIELDS)

#define LLMPROF_CLIENT_CLOCK_FIELDS(F)                                                                               \
  F(std::string, source, "", "File and run, as in client_runs")                                                      \
  F(int64_t, requests, "", "Requests that the file has one by one, the failed ones too")                             \
  F(int64_t, timed, "", "Of them with a time on the wall clock")                                                     \
  F(int64_t, waits, "", "Of them those whose time to the first output is split: it lies in recorded time")           \
  F(int64_t, outputs, "", "Of them those whose time from the first output to the last is split")                     \
  F(int64_t, alone, "",                                                                                              \
    "Of `waits` those with no other request of the file in flight: the steps are their own, if "                     \
    "nothing else was served")                                                                                       \
  F(int64_t, outside, "", "With a part before or after the recorded time")                                           \
  F(int64_t, not_recorded, "", "With a part in time that was not recorded, between")                                 \
  F(int64_t, failed, "", "That failed, or lack the time of their first or last output")                              \
  F(OptDouble, ahead_least_ms, "ms", "The client's clock is ahead by no less; none where the steps do not bound it") \
  F(OptDouble, ahead_most_ms, "ms", "And by no more: a part is wrong by no more than the larger of both")            \
  F(OptDouble, apart_ms, "ms", "The clocks differ by at least so much: nothing is split")                            \
  F(OptText, why, "", "Why nothing is split")
LLMPROF_RECORD(ClientClockRecord, "client_clocks", "Clocks of clients against that of the recording beside them",
               LLMPROF_CLIENT_CLOCK_FIELDS)

#define LLMPROF_CLIENT_STAGE_FIELDS(F)                                                        \
  F(std::string, source, "", "File and run, as in client_runs")                               \
  F(std::string, figure, "", "ttft, or tpot: per token behind the first")                     \
  F(std::string, part, "", "all, queue, prefill, mixed, decode, other, host or gap")          \
  F(int64_t, requests, "", "Requests that are split; of tpot those with more than one token") \
  F(double, mean_ms, "ms", "Mean over them: those of the parts add up to that of all")        \
  F(double, median_ms, "ms", "Median over them")                                              \
  F(double, p90_ms, "ms", "90th percentile")                                                  \
  F(OptDouble, frac, "frac", "mean_ms over that of all")
LLMPROF_RECORD(ClientStageRecord, "client_stages", "What the GPU did while requests of a client waited, by time",
               LLMPROF_CLIENT_STAGE_FIELDS)

#define LLMPROF_SERVER_FIGURE_FIELDS(F)                                                                            \
  F(std::string, server, "", "vllm, sglang, triton or dcgm")                                                       \
  F(OptText, model, "", "Model that it serves; of dcgm the name of the GPU")                                       \
  F(std::string, instance, "", "Other labels that tell it from others: engine=0, gpu=1")                           \
  F(std::string, figure, "", "requests, output-tokens, running, kv-cache, power, ...")                             \
  F(std::string, kind, "", "counter, gauge, or ratio: of two counters")                                            \
  F(std::string, unit, "", "requests, tokens, frac, W, ...; empty for a pure number")                              \
  F(std::string, metric, "", "Its family on the page; of a ratio the figures")                                     \
  F(int64_t, pages, "", "Pages that have it")                                                                      \
  F(OptDouble, value, "", "Gauge: on the last page; counter, ratio: between the pages, or since the start if one") \
  F(OptDouble, first, "", "On its first page")                                                                     \
  F(OptDouble, last, "", "On its last page")                                                                       \
  F(OptDouble, least, "", "Of a gauge over the pages")                                                             \
  F(OptDouble, most, "", "Of a gauge over the pages")                                                              \
  F(OptDouble, increase, "", "Of a counter from its first page to its last; none across a restart")                \
  F(OptDouble, seconds, "s", "From its first page to its last, where pages or files say when")                     \
  F(OptDouble, per_s, "1/s", "increase / seconds, in the unit")
LLMPROF_RECORD(ServerFigureRecord, "server_figures", "Counters and gauges of metrics pages of servers",
               LLMPROF_SERVER_FIGURE_FIELDS)

#define LLMPROF_SERVER_DISTRIBUTION_FIELDS(F)                                                             \
  F(std::string, server, "", "vllm, sglang or triton")                                                    \
  F(OptText, model, "", "Model that it serves")                                                           \
  F(std::string, instance, "", "Other labels that tell it from others: engine=0")                         \
  F(std::string, figure, "", "ttft, itl, tpot, e2e, queue, prefill, decode, ...")                         \
  F(std::string, unit, "", "Of what follows: ms, us or tokens")                                           \
  F(std::string, metric, "", "Its family on the page; of Triton's times the figures they are made of")    \
  F(std::string, span, "", "pages: between the first page and the last; start: since the server started") \
  F(OptDouble, count, "", "Observations; none across a restart")                                          \
  F(OptDouble, mean, "", "Sum over count: exact")                                                         \
  F(OptDouble, p50, "", "Between its bounds by linear interpolation, never above the last finite bound")  \
  F(OptDouble, p50_least, "", "Lower bound of its bucket")                                                \
  F(OptDouble, p50_most, "", "Upper bound of its bucket; none where that is infinite")                    \
  F(OptDouble, p99, "", "As p50")                                                                         \
  F(OptDouble, p99_least, "", "Lower bound of its bucket")                                                \
  F(OptDouble, p99_most, "", "Upper bound of its bucket; none where that is infinite")
LLMPROF_RECORD(ServerDistributionRecord, "server_distributions", "Times and lengths by histograms of metrics pages",
               LLMPROF_SERVER_DISTRIBUTION_FIELDS)

#define LLMPROF_METRICS_PAGE_FIELDS(F)                                              \
  F(std::string, source, "", "File that it is from")                                \
  F(OptInt, unix_ns, "ns", "When it was read")                                      \
  F(OptText, clock, "", "What says so: samples, comment, or file: its last change") \
  F(int64_t, samples, "", "On the page")                                            \
  F(int64_t, known_samples, "", "Of metrics that figures are made of; all are in the table scraped_values")
LLMPROF_RECORD(MetricsPageRecord, "metrics_pages", "Metrics pages of servers, in order of time",
               LLMPROF_METRICS_PAGE_FIELDS)

// ---- NCCL, by its log ----

#define LLMPROF_NCCL_RANK_FIELDS(F)                                                                                    \
  F(std::string, communicator, "", "commId of the log; of a split one that of its parent, which split, and its color") \
  F(int64_t, rank, "", "Rank in the communicator")                                                                     \
  F(int64_t, ranks, "", "Ranks of the communicator")                                                                   \
  F(std::string, host, "", "Host, as the log has it")                                                                  \
  F(int64_t, process_id, "", "Operating system process id")                                                            \
  F(int64_t, device, "", "CUDA device ordinal in that process")                                                        \
  F(OptText, bus_id, "", "PCI bus of the GPU, hexadecimal as the log has it")                                          \
  F(OptText, version, "", "Version of NCCL, for example 2.27.5+cuda12.9")                                              \
  F(OptInt, channels, "", "Channels of its collectives")                                                               \
  F(OptInt, p2p_channels, "", "Channels of its sends and receives")
LLMPROF_RECORD(NcclRankRecord, "nccl_ranks", "Ranks of NCCL communicators by NCCL's log", LLMPROF_NCCL_RANK_FIELDS)

#define LLMPROF_NCCL_LINK_FIELDS(F)                                                                 \
  F(std::string, communicator, "", "As in nccl_ranks; empty where the log does not say")            \
  F(int64_t, from_rank, "", "Rank that sends")                                                      \
  F(int64_t, to_rank, "", "Rank that receives")                                                     \
  F(OptText, hosts, "", "one or two: of both ranks; none where the log has but one of them")        \
  F(std::string, transport, "", "P2P, SHM, NET, ...: the first part of the path")                   \
  F(std::string, path, "", "As the log has it: P2P/CUMEM/read, SHM/direct/direct, NET/IB/0/GDRDMA") \
  F(int64_t, channels, "", "Connections that go this way")
LLMPROF_RECORD(NcclLinkRecord, "nccl_links", "How ranks of a communicator are connected, by NCCL's log",
               LLMPROF_NCCL_LINK_FIELDS)

#define LLMPROF_NCCL_COLLECTIVE_FIELDS(F)                                                         \
  F(std::string, communicator, "", "As in nccl_ranks, or its address where the log does not say") \
  F(std::string, operation, "", "AllReduce, AllGather, Send, ...")                                \
  F(std::string, dtype, "", "Element type")                                                       \
  F(int64_t, ranks, "", "Ranks of the communicator")                                              \
  F(int64_t, ranks_logged, "", "Of these, those whose calls are in the log")                      \
  F(int64_t, calls, "", "Of all ranks that logged them; replays of a CUDA graph log none")        \
  F(double, bytes, "bytes", "Count of the call x element size, over all calls")                   \
  F(double, bytes_min, "bytes", "Of the smallest call")                                           \
  F(double, bytes_max, "bytes", "Of the largest call")
LLMPROF_RECORD(NcclCollectiveRecord, "nccl_collectives", "Calls of collectives by NCCL's log, the most bytes first",
               LLMPROF_NCCL_COLLECTIVE_FIELDS)

#define LLMPROF_NCCL_CHOICE_FIELDS(F)                                            \
  F(std::string, operation, "", "AllReduce, AllGather, ...")                     \
  F(std::string, algorithm, "", "RING, TREE, NVLS, ...")                         \
  F(std::string, protocol, "", "LL, LL128 or SIMPLE")                            \
  F(int64_t, calls, "", "Calls that ran so; rank 0 of a communicator logs them") \
  F(double, bytes_min, "bytes", "Of the smallest call")                          \
  F(double, bytes_max, "bytes", "Of the largest call")                           \
  F(OptInt, channels_most, "", "Most channels that one of them took")
LLMPROF_RECORD(NcclChoiceRecord, "nccl_choices", "Algorithms and protocols that NCCL took, by its log",
               LLMPROF_NCCL_CHOICE_FIELDS)

#define LLMPROF_NCCL_WARNING_FIELDS(F)                    \
  F(std::string, host, "", "Host, as the log has it")     \
  F(OptText, place, "", "File and line of NCCL's source") \
  F(std::string, text, "", "What NCCL says")              \
  F(int64_t, count, "", "Times")
LLMPROF_RECORD(NcclWarningRecord, "nccl_warnings", "Warnings in NCCL's log", LLMPROF_NCCL_WARNING_FIELDS)

// ---- PyTorch's caching allocator, by its snapshots and statistics ----

#define LLMPROF_ALLOCATOR_FIELDS(F)                                                                                 \
  F(OptInt, device, "", "CUDA device ordinal; none where a file of statistics does not say")                        \
  F(OptInt, segments, "", "Segments: pieces that it has from the driver")                                           \
  F(OptInt, live_blocks, "", "Blocks that tensors use")                                                             \
  F(OptDouble, reserved_bytes, "bytes", "Held from the driver")                                                     \
  F(OptDouble, active_bytes, "bytes", "In blocks that tensors use, or that wait for another stream")                \
  F(OptDouble, allocated_bytes, "bytes", "In blocks that tensors use")                                              \
  F(OptDouble, requested_bytes, "bytes", "What the program asked for of them")                                      \
  F(OptDouble, fragmentation_bytes, "bytes", "reserved_bytes - allocated_bytes: held and not used")                 \
  F(OptDouble, rounding_bytes, "bytes", "allocated_bytes - requested_bytes: blocks are larger than asked for")      \
  F(OptDouble, largest_free_bytes, "bytes", "Largest block that is free: what fits without the driver")             \
  F(OptDouble, inactive_split_bytes, "bytes", "Free parts of segments that are in use: cannot be given back")       \
  F(OptInt, events, "", "Allocations and frees in the history; none without one")                                   \
  F(OptDouble, history_ms, "ms", "From its first event to its last")                                                \
  F(OptDouble, before_history_bytes, "bytes", "Asked for and in use before its first event: the program is older")  \
  F(OptInt, unmatched_frees, "", "Frees in it of blocks that were allocated before it")                             \
  F(OptDouble, history_peak_bytes, "bytes", "Most that was asked for and in use within it")                         \
  F(OptDouble, history_peak_ms, "ms", "When, since its first event")                                                \
  F(OptText, history_peak_ranges, "", "Ranges of the program around that, outermost first, with > between")         \
  F(OptDouble, peak_allocated_bytes, "bytes", "By the statistics: most in blocks that tensors use, of the process") \
  F(OptDouble, peak_requested_bytes, "bytes", "By the statistics: most that was asked for")                         \
  F(OptDouble, peak_active_bytes, "bytes", "By the statistics: most of active_bytes")                               \
  F(OptDouble, peak_reserved_bytes, "bytes", "By the statistics: most of reserved_bytes")                           \
  F(OptInt, out_of_memory, "", "Allocations that found no memory: by the statistics, else those of the history")    \
  F(OptInt, retries, "", "By the statistics: driver calls that had to be made again after freeing cached blocks")   \
  F(int64_t, checked, "", "Figures that the files state and that follow from blocks as well")                       \
  F(int64_t, disagreeing, "", "Those that differ")
LLMPROF_RECORD(AllocatorRecord, "allocators", "PyTorch's caching allocator of each GPU", LLMPROF_ALLOCATOR_FIELDS)

#define LLMPROF_MEMORY_PLACE_FIELDS(F)                                                    \
  F(int64_t, device, "", "CUDA device ordinal")                                           \
  F(std::string, moment, "", "snapshot, or peak: when the history has the most in use")   \
  F(std::string, place, "", "file:line function; [before the history], [no Python code]") \
  F(int64_t, blocks, "", "Blocks in use that it allocated")                               \
  F(double, bytes, "bytes", "What it asked for of them")                                  \
  F(OptDouble, frac, "frac", "Share of all that is in use then")
LLMPROF_RECORD(MemoryPlaceRecord, "memory_places", "Memory in use by the Python code that allocated it",
               LLMPROF_MEMORY_PLACE_FIELDS)

#define LLMPROF_LARGEST_BLOCK_FIELDS(F)                                                                  \
  F(int64_t, device, "", "CUDA device ordinal")                                                          \
  F(std::string, moment, "", "snapshot, or peak: when the history has the most in use")                  \
  F(double, bytes, "bytes", "What was asked for")                                                        \
  F(OptDouble, allocated_ms, "ms", "When, since the first event of the history; none where it is older") \
  F(std::string, place, "", "file:line function; [before the history], [no Python code]")
LLMPROF_RECORD(LargestBlockRecord, "largest_blocks", "The largest blocks in use", LLMPROF_LARGEST_BLOCK_FIELDS)

#define LLMPROF_MEMORY_RANGE_FIELDS(F)                                                   \
  F(int64_t, device, "", "CUDA device ordinal")                                          \
  F(std::string, name, "", "Name")                                                       \
  F(int64_t, ranges, "", "Times that it was entered within the history")                 \
  F(int64_t, open, "", "Of them those that were open at the snapshot")                   \
  F(OptDouble, total_ms, "ms", "Length of the others")                                   \
  F(OptDouble, peak_bytes, "bytes", "Most that was asked for and in use in one of them") \
  F(OptDouble, change_bytes, "bytes", "In use at their ends less that at their starts, added up")
LLMPROF_RECORD(MemoryRangeRecord, "memory_ranges", "Ranges of the program in a history of PyTorch's allocator",
               LLMPROF_MEMORY_RANGE_FIELDS)

#define LLMPROF_MEMORY_FAILURE_FIELDS(F)                             \
  F(int64_t, device, "", "CUDA device ordinal")                      \
  F(double, time_ms, "ms", "Since the first event of the history")   \
  F(OptDouble, requested_bytes, "bytes", "What was asked for")       \
  F(OptDouble, free_bytes, "bytes", "What the driver had free")      \
  F(OptDouble, in_use_bytes, "bytes", "Asked for and in use then")   \
  F(OptDouble, reserved_bytes, "bytes", "Held from the driver then") \
  F(std::string, place, "", "file:line function; [no Python code]")
LLMPROF_RECORD(MemoryFailureRecord, "out_of_memory", "Allocations that found no memory", LLMPROF_MEMORY_FAILURE_FIELDS)

// ---- NCCL, by its Inspector ----

#define LLMPROF_NCCL_OPERATION_FIELDS(F)                                                      \
  F(std::string, communicator, "", "Its hash")                                                \
  F(OptText, name, "", "Name that the program gave it")                                       \
  F(std::string, operation, "", "AllReduce, Send, ...")                                       \
  F(OptText, algorithm, "", "RING, TREE, ...; none where the file does not say")              \
  F(OptText, protocol, "", "LL, LL128, SIMPLE; none where the file does not say")             \
  F(OptText, timing, "", "How it was timed: kernel_gpu, kernel_cpu, collective_cpu")          \
  F(double, bytes, "bytes", "Size of one")                                                    \
  F(int64_t, ranks, "", "Ranks of the communicator")                                          \
  F(OptInt, nodes, "", "Hosts of the communicator")                                           \
  F(int64_t, ranks_logged, "", "Ranks whose files have it")                                   \
  F(int64_t, operations, "", "How many, of all ranks that were logged")                       \
  F(double, total_ms, "ms", "Sum of their times over those ranks")                            \
  F(double, median_us, "us", "Time of one: median")                                           \
  F(double, p99_us, "us", "99th percentile of it")                                            \
  F(double, most_us, "us", "Most")                                                            \
  F(OptDouble, algorithm_gbs, "GB/s", "Size over time as the file states it: median")         \
  F(OptDouble, bus_gbs, "GB/s", "What a link carries, as the file states it: median")         \
  F(OptDouble, bus_least_gbs, "GB/s", "Least of it")                                          \
  F(int64_t, checked, "", "Those whose stated algorithm_gbs was compared with size and time") \
  F(int64_t, disagreeing, "", "Those that differ")
LLMPROF_RECORD(NcclOperationRecord, "nccl_operations",
               "Operations of one kind and size by NCCL's Inspector, the most time first",
               LLMPROF_NCCL_OPERATION_FIELDS)

// ---- TensorRT's engines, by what trtexec exports ----

#define LLMPROF_ENGINE_PROFILE_FIELDS(F)                                                                               \
  F(OptText, source, "", "File of --exportProfile; none where there are layers and no times of them")                  \
  F(OptText, layers_source, "", "File of --exportLayerInfo that has most of its names; none without one that has any") \
  F(OptInt, iterations, "", "Iterations that were timed")                                                              \
  F(OptDouble, iteration_ms, "ms", "Sum of the times of its layers, by iteration")                                     \
  F(int64_t, timed_layers, "", "Layers with a time")                                                                   \
  F(int64_t, described_layers, "", "Layers of the layer information")                                                  \
  F(int64_t, matched, "", "Layers in both, by name; of equal names the first with the first")                          \
  F(int64_t, times_only, "", "Layers with a time that the layer information lacks")                                    \
  F(int64_t, layers_only, "", "Layers of the layer information without a time")                                        \
  F(OptDouble, unmatched_frac, "frac", "Share of the time in layers that the layer information lacks")                 \
  F(int64_t, checked, "", "Figures that the file states and that follow from its times as well")                       \
  F(int64_t, disagreeing, "", "Those that differ")
LLMPROF_RECORD(EngineProfileRecord, "engine_profiles", "Profiles of TensorRT engines and the layers they belong to",
               LLMPROF_ENGINE_PROFILE_FIELDS)

#define LLMPROF_ENGINE_LAYER_FIELDS(F)                                                                             \
  F(OptText, source, "", "Profile that its time is from")                                                          \
  F(std::string, name, "", "Name")                                                                                 \
  F(std::string, found_in, "", "both, times (of the profile alone) or layers (of the layer information alone)")    \
  F(OptText, type, "", "Type")                                                                                     \
  F(OptDouble, iteration_ms, "ms", "Its time by iteration: total_ms / iterations")                                 \
  F(OptDouble, frac, "frac", "Share of the time of all layers of the profile")                                     \
  F(OptDouble, total_ms, "ms", "Time in all iterations")                                                           \
  F(OptDouble, mean_ms, "ms", "Time of a run of it, as the file states it; a run may not come in every iteration") \
  F(OptDouble, median_ms, "ms", "Median of its runs, as the file states it")                                       \
  F(OptText, tactic, "", "Implementation that TensorRT took: its name, else its number")                           \
  F(OptText, inputs, "", "Dimensions and format of each; -1 is a dimension that is not fixed")                     \
  F(OptText, outputs, "", "The same of its outputs")                                                               \
  F(OptInt, stream, "", "Stream of the engine that it runs on")                                                    \
  F(OptText, metadata, "", "Layers of the network that it was made of")
LLMPROF_RECORD(EngineLayerRecord, "engine_layers", "Layers of TensorRT engines, the most time first",
               LLMPROF_ENGINE_LAYER_FIELDS)

#define LLMPROF_ENGINE_LATENCY_FIELDS(F)                                                                      \
  F(std::string, source, "", "File of --exportTimes")                                                         \
  F(std::string, figure, "", "latency (h2d + gpu-compute + d2h), gpu-compute, h2d, d2h, enqueue, end-to-end") \
  F(int64_t, queries, "", "Queries that have it")                                                             \
  F(double, mean_ms, "ms", "Mean")                                                                            \
  F(double, median_ms, "ms", "Median")                                                                        \
  F(double, p90_ms, "ms", "90th percentile")                                                                  \
  F(double, p95_ms, "ms", "95th percentile")                                                                  \
  F(double, p99_ms, "ms", "99th percentile")                                                                  \
  F(double, least_ms, "ms", "Least")                                                                          \
  F(double, most_ms, "ms", "Most")                                                                            \
  F(int64_t, checked, "", "Of latency: queries that state it beside its parts")                               \
  F(int64_t, disagreeing, "", "Those whose parts have another sum")
LLMPROF_RECORD(EngineLatencyRecord, "engine_latency", "Times of queries of a TensorRT engine",
               LLMPROF_ENGINE_LATENCY_FIELDS)

// ---- Triton's profiler Proton ----

#define LLMPROF_PROTON_PROFILE_FIELDS(F)                                                                     \
  F(std::string, source, "", "File")                                                                         \
  F(int64_t, nodes, "", "Scopes, Python frames and kernels in its tree")                                     \
  F(int64_t, kernels, "", "Kernels by name and GPU")                                                         \
  F(int64_t, launches, "", "Launches of all of them")                                                        \
  F(OptDouble, time_ms, "ms", "Their time; none of a file without times")                                    \
  F(OptDouble, metadata_ms, "ms", "Of it kernels that Proton's hook launched to compute metadata of others") \
  F(OptDouble, flops, "FLOP", "What scopes and kernels state, added up")                                     \
  F(OptDouble, bytes, "bytes", "The same of bytes")                                                          \
  F(OptDouble, flops_time_ms, "ms", "Time of the kernels that stated FLOPs are of")                          \
  F(OptDouble, bytes_time_ms, "ms", "Time of the kernels that stated bytes are of")                          \
  F(OptInt, recorded_kernels, "", "Kernels that the recording beside has, by name; none without one")        \
  F(OptInt, missing_kernels, "", "Kernels that it has not, or that could be one of several")                 \
  F(OptDouble, missing_frac, "frac", "Share of the time in those")
LLMPROF_RECORD(ProtonProfileRecord, "proton_profiles", "Files of Triton's Proton", LLMPROF_PROTON_PROFILE_FIELDS)

#define LLMPROF_PROTON_GPU_FIELDS(F)                                                        \
  F(std::string, source, "", "File")                                                        \
  F(std::string, gpu, "", "Kind and number: CUDA 0")                                        \
  F(OptText, arch, "", "Architecture: 90 for compute capability 9.0")                       \
  F(OptInt, sms, "", "Streaming multiprocessors")                                           \
  F(OptDouble, clock_mhz, "MHz", "Highest clock")                                           \
  F(OptDouble, memory_clock_mhz, "MHz", "Highest clock of the memory")                      \
  F(OptInt, bus_bits, "bits", "Width of the memory's bus")                                  \
  F(OptDouble, peak_gbs, "GB/s", "2 x memory clock x bus width, as proton-viewer takes it") \
  F(int64_t, launches, "", "Launches of kernels on it")                                     \
  F(OptDouble, time_ms, "ms", "Their time")
LLMPROF_RECORD(ProtonGpuRecord, "proton_gpus", "GPUs of Proton's files", LLMPROF_PROTON_GPU_FIELDS)

#define LLMPROF_PROTON_SCOPE_FIELDS(F)                                                                               \
  F(std::string, source, "", "File")                                                                                 \
  F(std::string, path, "", "Scopes or Python frames around it and itself, with > between; cut at the front if long") \
  F(std::string, name, "", "Scope, Python frame, or kernel with others below it")                                    \
  F(int64_t, depth, "", "Scopes around it")                                                                          \
  F(int64_t, launches, "", "Launches of kernels in it and below")                                                    \
  F(OptDouble, time_ms, "ms", "Their time: inclusive")                                                               \
  F(OptDouble, frac, "frac", "Share of the file's time")                                                             \
  F(int64_t, own_launches, "", "Of them those of no scope below")                                                    \
  F(OptDouble, own_ms, "ms", "Their time: exclusive; of all rows of a file it adds up to its time")                  \
  F(OptDouble, flops, "FLOP", "What it and what is below state, added up")                                           \
  F(OptText, flops_of, "", "Widths that they are stated for: 16, or 8+16; empty where none is named")                \
  F(OptDouble, flops_time_ms, "ms", "Time of the kernels that the FLOPs are of")                                     \
  F(OptDouble, tflops, "TFLOP/s", "flops / flops_time_ms")                                                           \
  F(OptDouble, bytes, "bytes", "As flops")                                                                           \
  F(OptDouble, bytes_time_ms, "ms", "Time of the kernels that the bytes are of")                                     \
  F(OptDouble, gbs, "GB/s", "bytes / bytes_time_ms")
LLMPROF_RECORD(ProtonScopeRecord, "proton_scopes", "Scopes of Proton in the order of the tree, the most time first",
               LLMPROF_PROTON_SCOPE_FIELDS)

#define LLMPROF_PROTON_KERNEL_FIELDS(F)                                                           \
  F(std::string, source, "", "File")                                                              \
  F(std::string, name, "", "Kernel")                                                              \
  F(OptText, gpu, "", "Kind and number of the GPU: CUDA 0")                                       \
  F(int64_t, launches, "", "Launches of it in all scopes")                                        \
  F(double, time_ms, "ms", "Their time")                                                          \
  F(OptDouble, frac, "frac", "Share of the file's time")                                          \
  F(OptDouble, mean_us, "us", "time_ms / launches")                                               \
  F(int64_t, places, "", "Places of the tree at which it was launched")                           \
  F(OptText, main_path, "", "Scopes around the place with most of its time, as in proton_scopes") \
  F(OptDouble, flops, "FLOP", "What is stated for it, or for a scope that holds nothing else")    \
  F(OptText, flops_of, "", "Widths that they are stated for, as in proton_scopes")                \
  F(OptDouble, flops_time_ms, "ms", "Time of the launches that the FLOPs are of")                 \
  F(OptDouble, tflops, "TFLOP/s", "flops / flops_time_ms")                                        \
  F(OptDouble, bytes, "bytes", "As flops")                                                        \
  F(OptDouble, bytes_time_ms, "ms", "Time of the launches that the bytes are of")                 \
  F(OptDouble, gbs, "GB/s", "bytes / bytes_time_ms")                                              \
  F(OptInt, recorded_calls, "", "Times that it ran in the recording beside, by name")             \
  F(OptDouble, recorded_us, "us", "Its mean duration there")
LLMPROF_RECORD(ProtonKernelRecord, "proton_kernels", "Kernels by Proton over all scopes, the most time first",
               LLMPROF_PROTON_KERNEL_FIELDS)

#define LLMPROF_PROTON_METRIC_FIELDS(F)                                           \
  F(std::string, source, "", "File")                                              \
  F(std::string, path, "", "Scope or kernel that has it, as in proton_scopes")    \
  F(std::string, metric, "", "As the file has it: num_samples, cycles, a user's") \
  F(double, value, "", "Of it alone, without what is below")
LLMPROF_RECORD(ProtonMetricRecord, "proton_metrics", "Other metrics of Proton's scopes and kernels",
               LLMPROF_PROTON_METRIC_FIELDS)

// ---- what was joined to a recording ----

#define LLMPROF_JOINED_FILE_FIELDS(F)                                                                             \
  F(std::string, file, "", "File beside the recording, or recording of a further rank, as it was named")          \
  F(std::string, format, "", "Its importer, as llmprof list importers has it, or rank")                           \
  F(OptText, joined_by, "", "What finds its records in the recording; none where nothing does")                   \
  F(OptDouble, offset_s, "s", "Added to its times, read as UTC if they name no time zone; none without times")    \
  F(OptDouble, offset_bound_s, "s", "By how much that may be wrong, either way; none where it is not bounded")    \
  F(OptInt, records, "", "Readings, profiled kernels, logged products, kernels or collectives of it")             \
  F(OptInt, matched, "", "Of them those found in the recording; of readings those that surely lie within it")     \
  F(OptInt, not_matched, "", "Of them the others")                                                                \
  F(OptText, why, "", "Why these, or all of it, were not")                                                        \
  F(OptInt, utilisation_readings, "", "Readings of GPU utilisation over time in which the GPU was busy, or idle") \
  F(OptDouble, utilisation_agree_frac, "frac", "Of them those that say the same; none if the load was constant")
LLMPROF_RECORD(JoinedFileRecord, "joined_files", "Files joined to the recording, and what of them was found in it",
               LLMPROF_JOINED_FILE_FIELDS)

}  // namespace llmprof
