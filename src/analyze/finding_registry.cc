#include <algorithm>

#include "analyze/finding.h"

namespace llmprof {
namespace {

constexpr bool kOnCpu = true, kGpuOnly = false;

// What limits a healthy step too.
constexpr std::string_view kChangesAnswers = "narrower numbers change the model's answers, and other models are others";

constexpr FindingRule kRules[] = {
    {"launches-block",
     "nine in ten of the launches of kernels of 10 us or more end behind their kernel, and returning when it begins "
     "brings "
     "5 % of the step",
     "API calls and kernels", "unset CUDA_LAUNCH_BLOCKING", find_launches_block},
    {kLaunchBound,
     "idle time behind launches and dispatch is at least 25 % of the stage's time without the profiler's own, and at "
     "most 60 us per launch call (more is other host code)",
     "GPU activities, launching calls and host operators", "CUDA graphs, fused operators, larger batches",
     find_launch_bound},
    {"cpu-contention",
     "a CPU of its own for the thread that launches brings 5 % of the step, by what the operating system counts as its "
     "waiting for one",
     "the recorder's readings of /proc/PID/task/TID/schedstat", "CPUs of its own, a higher CPU limit",
     find_cpu_contention},
    {"python-traced",
     "in half of the stacks of a stage's calls or more, Python has a function that it calls for each line or function, "
     "and the GPU is idle for 10 % of the stage",
     "Python stacks of the recorder, which end with what sys.settrace or sys.setprofile was given",
     "no debugger, coverage or profiler around what is measured", find_python_traced},
    {"cpu-bound-gap",
     "single host gaps of 200 us or more, or more than 60 us of idle time per launch, are at least 10 % of the stage",
     "GPU activities, host operators; Python stacks to name the code", "move host work off the launching thread",
     find_cpu_bound_gap},
    {"sync-bound",
     "idle time behind blocking synchronisation is at least 10 % of the stage; in live recordings with the short gaps "
     "after it, where those are most of what the host costs",
     "GPU activities and API calls", "keep results on the GPU, read back asynchronously", find_sync_bound},
    {"memory-bound-weights",
     "memory-limited GEMMs that read weights take at least 40 % of the stage's GPU time and reach at least 30 % of the "
     "bandwidth (below, fixed costs are the reason)",
     "recorded shapes and the GPU's bandwidth", "narrower weights, larger batches, speculative decoding",
     find_memory_bound_weights, kOnCpu, FindingSeverity::kMinor, kChangesAnswers},
    {"memory-bound-kv",
     "memory-limited attention takes at least 25 % of a decode stage's GPU time and reaches at least 30 % of the "
     "bandwidth",
     "recorded shapes and the GPU's bandwidth", "FP8 cache, fewer KV heads, latent attention", find_memory_bound_kv,
     kOnCpu, FindingSeverity::kMinor, kChangesAnswers},
    {"compute-bound",
     "kernels limited by arithmetic explain at least half of the stage's time, at 10 % of the peak or more, and "
     "products "
     "of misaligned shapes take less than half of it",
     "recorded shapes and the GPU's peaks",
     "narrower types where the device has a higher peak for them, less work, more GPUs", find_compute_bound, kOnCpu,
     FindingSeverity::kMinor,
     "its bound is a peak, which no program reaches, or that of a narrower type, which changes the answers"},
    {"logits-all-tokens",
     "a prefill multiplies at least 8 tokens per sequence with the output layer, taking at least 1 % of its GPU time",
     "recorded shapes", "logits of the last token only", find_logits_all_tokens, kOnCpu},
    {"attention-unfused",
     "softmax over [sequences, heads, queries, keys], or at least 4 a step, with two batched products each, taking at "
     "least 5 % of the GPU time",
     "host operators, or softmax kernels and shapes of library calls", "a fused attention kernel",
     find_attention_unfused, kGpuOnly, FindingSeverity::kMajor,
     "it assumes that half of their time goes; no figure of the recording says so; where replay says what goes, it is "
     "at most critical"},
    {"tensor-cores-idle",
     "FP32 GEMM kernels without tensor instructions take at least 5 % of the stage's GPU time, or the tensor pipe is "
     "active under 1 % of the GPU's busy time in a stage of which GEMMs of 64 rows or more are 30 %",
     "kernel names, or counters and shapes", "16-bit types or TF32", find_tensor_cores_idle},
    {"dtype-wide",
     "GEMMs with weights of 4 bytes or more, or attention kernels on 4-byte numbers, take at least 10 % of the stage's "
     "GPU time",
     "recorded types, kernel names", "load the model in 16 bits", find_dtype_wide},
    {"gemm-shape-misaligned",
     "GEMMs of 16 rows or more whose n or k is no multiple of 16 bytes take at least 5 % of the stage's GPU time",
     "recorded shapes", "pad dimensions", find_gemm_shape_misaligned, kGpuOnly, FindingSeverity::kMinor,
     "it assumes that a quarter of their time goes; no figure of the recording says so; where replay says what goes, "
     "it is at most critical"},
    {"wave-quantization",
     "GEMM and attention kernels of 10 us or more, 1 to 8 waves and under 75 % wave efficiency take at least 10 % of "
     "the "
     "stage's GPU time",
     "grids, resources of launches and the GPU's SM count", "token counts that fill waves", find_wave_quantization,
     kGpuOnly, FindingSeverity::kMinor, "it assumes full waves, which no choice of sizes gives to every kernel"},
    {"low-occupancy",
     "kernels of 10 us or more with fewer thread blocks than half the SMs take at least 5 % of the stage's GPU time",
     "grids and the GPU's SM count", "more parallel work: batch, split-KV, split-K", find_low_occupancy, kGpuOnly,
     FindingSeverity::kMinor, "it assumes that half of their time goes; no figure of the recording says so"},
    {"uncoalesced-access", "not decided", "memory counters per kernel (Nsight Compute)", "contiguous layouts", nullptr},
    {"l2-thrash", "not decided", "L2 counters per kernel (Nsight Compute)", "smaller working sets, tile order",
     nullptr},
    {"norm-unfused",
     "norms that are chains of PyTorch's kernels (square, mean, root, product) and whose fusion is simulated to bring "
     "5 "
     "% of a step; before small-kernels-unfused where it is most of what fusing all brings",
     "steps of a live recording that replay gives back", "rms_norm, torch.compile, fused kernels", find_norm_unfused},
    {"small-kernels-unfused",
     "norm, rotary, activation, copy and elementwise kernels under 6 us on average take at least 15 % of the stage's "
     "GPU "
     "time, at 1.5 or more per GEMM and 20 or more a step",
     "GPU activities", "torch.compile, fused kernels", find_small_kernels_unfused},
    {"kv-cache-copy",
     "concatenations that append few tokens to something at least 8 times longer take at least 1 % of the GPU time; "
     "without operators, kernels that concatenate and whose grid, or time by 10 % or more, grows over at least 8 steps",
     "recorded shapes, or decode steps that show growth", "a static or paged cache", find_kv_cache_copy, kOnCpu},
    {"pageable-copy", "copies from or to pageable host memory take at least 2 % of the window", "GPU activities",
     "pinned memory, non_blocking copies", find_pageable_copy},
    {"copy-bound",
     "copies and idle time behind them are at least 20 % of the stage, or of the recording where most work is in none",
     "GPU activities and API calls", "keep data on the device, overlap copies", find_copy_bound},
    {"allocator-churn", "idle time behind cudaMalloc, cudaFree and the like is at least 1 % of the stage", "API calls",
     "warm up, keep the allocator's cache", find_allocator_churn},
    {"power-throttled",
     "the clock was held down by the power cap in at least 20 % of the window; info where the board runs at its data "
     "sheet power, which is normal under heavy arithmetic",
     "NVML readings", "power limit, cooling", find_power_throttled},
    {"thermal-throttled", "the clock was held down by temperature or the power brake in at least 1 % of the window",
     "NVML readings", "cooling", find_thermal_throttled},
    {"clock-drop",
     "the median SM clock of a stage is under 85 % of the boost clock, and power and temperature held it down in less "
     "than 5 % of the window",
     "clock samples", "lock clocks to measure", find_clock_drop},
    {"comm-bound", "communication kernels take at least 20 % of the stage", "GPU activities",
     "fewer GPUs, fused all-reduce, overlap", find_comm_bound},
    {"rank-skew",
     "what a GPU waits in collectives for another one to begin brings its step at least 5 %, or is at least 10 % of it "
     "where that cannot be simulated; minor where a finding of the GPU that is late brings most of it, which is the "
     "cause",
     "all GPUs of a group in one recording, or the recordings of all ranks", "balance the ranks", find_rank_skew},
    {"uneven-gpus",
     "passes of the model run on several GPUs of one process, one of which has a quarter more work than another, and "
     "equal parts bring 5 % of the step",
     "kernels of all GPUs of the process", "divide the layers by their time", find_uneven_gpus},
    {"streams-taking-turns",
     "two streams with at least 10 % of the kernels' time each have kernels at once in under 5 % of it, and wait for "
     "each other's events twice a step or more, which brings a step at least 5 %; whether they need what the other one "
     "computes is not recorded",
     "API calls with their streams and events", "wait only for what is read", find_streams_taking_turns},
    {"copies-one-stream",
     "a stream that runs no kernels holds copies to the GPU and to the host, and a stream for each brings 5 % of the "
     "step",
     "copies with their streams", "a stream for each direction", find_copies_one_stream},
    {"graphs-made-anew",
     "every second step or more captures a CUDA graph, and having made it before brings 5 % of the step", "API calls",
     "capture once for each shape", find_graphs_made_anew},
    {"graphs-in-pieces", "steps launch eight CUDA graphs or more, and one graph instead brings 5 % of the step",
     "graph nodes and API calls", "one graph for the whole step", find_graphs_in_pieces},
    {"host-preprocessing",
     "a stage of the program before a prompt that runs no part of the model (preprocess, tokenize) is at least 10 % of "
     "TTFT; idle time in tokenising or image-processing Python code is at least 5 % of the window; without Python "
     "stacks, idle time of 200 us or more before the first activity of steps and between steps is at least 10 % of "
     "the window, or of TTFT or TPOT",
     "ranges that name stages, Python stacks, or a live recording", "prepare inputs elsewhere", find_host_preprocessing,
     kOnCpu},
    {"no-input",
     "for 10 % of a stage's time or more the program uses no CPU in code between two CUDA calls, and the GPU waits",
     "API calls, and readings of the program's CPU time", "sleeps, timeouts, locks; or more requests", find_no_input,
     kGpuOnly, FindingSeverity::kMinor, "whether there was work to do is not recorded"},
    {"python-gc", "idle time inside gc.collect is at least 1 % of the window", "Python stacks",
     "gc.freeze, collect between requests", find_python_gc},
    {"first-call-cost",
     "steps of warm-up (docs/formulas.md) take 0.5 ms or more beyond the steady level of their shape, together",
     "steps", "warm up", find_first_call_cost, kOnCpu, FindingSeverity::kMinor,
     "what comes once a start is no part of what requests wait for after it"},
    {"graph-padding", "graph replays compute at least 10 % more rows than the names of the steps say",
     "ranges that name the composition of steps, shapes under graph replay", "more capture sizes", find_graph_padding},
    {"dense-experts",
     "behind a router with n outputs and the choice of the largest, products of the same shapes on all of its rows n "
     "times one behind the other, or one of n matrices, of 4 experts or more, and at least 5 % of the GPU time would "
     "go",
     "recorded shapes; operators to know how many experts a token has chosen, else two are assumed",
     "tokens sorted by expert, grouped products", find_dense_experts},
    {"padded-batch",
     "products and attention of decode steps run on more than twice as many rows as sequences are in use: of that many "
     "a step reads back one number each, and so many had the prompts before it; fewer rows bring 5 % of the step",
     "shapes under graph replay, copies to the host, prompts", "graphs for more batch sizes", find_padded_batch},
    {"padded-attention",
     "attention of decode steps reads at least twice as many keys as all tokens that the program ran its model on "
     "until "
     "then, and reading no more than are in use brings 5 % of the step",
     "a recording from the program's start, prompts, and shapes of attention that is written out or memory traffic by "
     "hardware counter",
     "attention over the places in use", find_padded_attention},
    {"converted-weights",
     "kernels pass over as many numbers as the weights of the product behind them have, or say that they dequantise, "
     "which brings 5 % of the step",
     "grids of elementwise kernels and shapes of products", "products that read the stored type",
     find_converted_weights},
    {"recomputation",
     "decode steps run products of one inner width on at least 16 times as many rows as tokens are new, which brings "
     "5 % of the step",
     "shapes of products", "keep what does not depend on the new token", find_recomputation},
    {"separate-adapters",
     "products go through an inner width of at most 256, an eighth of both outer ones, beside one of the same outer "
     "widths, or kernels say that they compute adapters, and merging them brings 5 % of the step",
     "shapes of products", "adapters merged into the weights", find_separate_adapters},
    {"rewritten-weights",
     "products through an inner width of at most 256, an eighth of both outer ones, whose result has the sizes of "
     "another product's weights and whose rows are none of the step's, and going without them brings 5 % of the step",
     "shapes of products", "weights kept for each adapter, or adapters beside the matrix", find_rewritten_weights},
    {"repeated-weight-reads",
     "on several streams of a step products read the same weights in the same order, and one pass for all of them "
     "brings "
     "5 % of the step",
     "addresses of weights, from the hooks of cuBLAS", "one batch for all parts", find_repeated_reads},
    {"no-kv-cache",
     "most decode steps run their products on all tokens of the text, 16 times as many as are new or more, and a cache "
     "brings 5 % of the step",
     "shapes of products and of attention", "keys and values kept", find_no_kv_cache},
    {"products-in-pieces",
     "four or more products of the same rows and inner width one behind the other, none wider than half of that width, "
     "and computing them as one brings 5 % of the step",
     "shapes of products", "weights side by side, one product", find_products_in_pieces},
    {"full-sort",
     "sorting kernels, and passes of 5 us or more behind them, take at least 5 % of the stage's GPU time, and going "
     "without brings 5 % of the step",
     "kernel names", "the largest first, then sort and draw among them", find_full_sort},
    {"gathered-weights",
     "gathers right before products of 4 or more matrices with 16 rows at most each write those matrices, and going "
     "without brings 5 % of the step",
     "shapes of products, kernel names", "grouped products, or kernels that read through an index",
     find_gathered_weights},
    {"oversized-tensors",
     "elementwise kernels, reductions and fills that fill the GPU take longer than four passes over the largest matrix "
     "of their step's products, and passes over its largest result instead bring 5 % of the step",
     "shapes of products", "compute on what is there instead of on all that could be", find_oversized_tensors},
    {"layout-conversion",
     "cuDNN's conversions between NCHW and NHWC take so long that going without brings 5 % of the step", "kernel names",
     "channels_last", find_layout_conversion},
    {"double-precision",
     "kernels whose names say that their elements are doubles, which in single precision bring 5 % of the step",
     "kernel names", "float32, or the model's type", find_double_precision},
    {"data-movement",
     "copies on the device, gathers, casts and writes of a cache of 10 us or more take at least 10 % of the stage's "
     "GPU "
     "time, and going without brings 5 % of the step",
     "kernel names", "tables of places, layouts that kernels read, writing in place", find_data_movement},
    {"moe-imbalance", "not decided", "token counts per expert", "balance experts", nullptr},
    {"no-single-cause",
     "in a stage that makes up at least half of a request no simulated change brings 10 %, and two or more that bring "
     "1 % "
     "each bring at least 5 % together, of which the largest is at most 60 %",
     "steps of a live recording that replay gives back", "several small changes",
     [](const FindingContext&) {},  // by simulate_findings(), from what every change brings
     kGpuOnly, FindingSeverity::kMinor, "nothing by itself is worth much"},
    {"batch-too-small",
     "decode GEMMs limited by memory take at least 40 % of the GPU time with under an eighth of the sequences at which "
     "they become compute-bound",
     "recorded shapes and the GPU's peaks", "continuous batching", find_batch_too_small, kGpuOnly,
     FindingSeverity::kInfo, "requests wait no longer for it; it is about tokens per second of a server"},
    {"profiler-distortion",
     "an eager decode stage waits for the host at least 25 % of the time; the GPU waits for the profiler's own work at "
     "least 5 % of a stage; in live recordings, the 95 % interval of the measured distortion lies above 5 %, or the "
     "recorder's own overhead records do; not where steps are known to take less than 5 % longer",
     "host operators, or steps without recording", "compare with an unprofiled run", find_profiler_distortion, kGpuOnly,
     FindingSeverity::kMinor, "it is about the recording, not about the program"},
};

}  // namespace

std::span<const FindingRule> finding_rules() { return kRules; }

const FindingRule& finding_rule(std::string_view id) {
  return *std::find_if(std::begin(kRules), std::end(kRules), [&](const FindingRule& rule) { return rule.id == id; });
}

std::string severity_rule() {
  return "Severity: by the share of TTFT (stages before a first token), TPOT (decode) or the time in steps (others) "
         "that could go, times the part of a typical request that TTFT or the steps behind it make up, or of the time "
         "in steps where requests cannot be told apart; of the recording where a finding is about all of it: critical "
         "from 30 %, major from 10 %, minor from 3 %, info below; and no higher than a rule says of itself. In "
         "recordings of llmprof run, what waits, launches, host code, allocations, copies, communication and kernels "
         "that pass over memory cost is simulated: such a finding is one where its change brings 5 % of a step or "
         "more, and its severity is by that.";
}

}  // namespace llmprof
