#include "replay/what_if.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/statistics.h"

namespace llmprof::replay {
namespace {

constexpr WhatIf kWhatIfs[] = {
    {"no-waits", "no wait for the GPU at all",
     "waiting calls return at once, those that end a step too; copies to the host that they wait for go with them. The "
     "program is taken not to need what it reads",
     without_waits, nullptr},
    {"last-wait-only", "no wait for the GPU but the one that ends a step",
     "every other waiting call goes, with the copy to the host that it waits for; those for copies of pageable memory "
     "to the GPU stay. Where one process has several GPUs, waits that end a step go too if nothing was copied to the "
     "host since the wait before",
     with_last_wait_only, nullptr},
    {"reads-at-once", "one reading of what is read time and again within a step",
     "as last-wait-only, and what lies between two such waits goes, with its calls, its kernels and the code between "
     "them, "
     "where the step had the same before and no part of the model runs in it",
     with_reads_at_once, nullptr},
    {"no-copies", "no copies between host and GPU", "copies and the calls that make them go, but those that end a step",
     without_copies, nullptr},
    {"pinned-copies", "copies from and to pinned host memory",
     "copies of pageable memory take what the link allows (25 GB/s where that is not known), and the host does not "
     "wait "
     "for those to the GPU",
     with_pinned_copies, nullptr},
    {"no-allocations", "no allocation of device or pinned memory",
     "cudaMalloc, cudaFree and their like take no time and wait for nothing", without_allocations, nullptr},
    {"no-host-gaps", "no long stretches of host code between CUDA calls",
     "200 us or more between two calls of a thread become what is usual between them", without_host_gaps, nullptr},
    {"no-communication", "communication hidden behind other work",
     "communication kernels take no time; what a GPU waits in them for another one to begin stays, where the recording "
     "holds both",
     without_communication, nullptr},
    {"even-ranks", "collectives that all GPUs begin at once",
     "what a GPU waits in a collective for the last one to begin goes, and each GPU goes on at its own pace; where the "
     "recording holds all of them",
     with_even_ranks, nullptr},
    {"fused", "kernels that pass over memory one behind the other as one kernel",
     "of norms, activations, elementwise kernels and the like between two products the longest stays; the others go "
     "with "
     "their launches. Attention that is written out is left alone",
     with_fused_passes, nullptr},
    {"fused-norms", "norms that are written out as one kernel each",
     "of the passes that square, average, take the root and multiply, one stays: the mean where the norm widens 16-bit "
     "numbers, else squaring, which move as many bytes as a fused norm does; the others go with their launches",
     with_fused_norms, nullptr},
    {"fused-attention", "attention as one kernel",
     "products of many matrices with a softmax among them become one kernel that reads queries, keys and values once, "
     "in "
     "16 bits; passes beside it that are as long as one over all keys, which make its input, go",
     with_fused_attention, nullptr},
    {"in-place-cache", "a KV cache that is written in place",
     "concatenations in decode steps take as long as the shortest kernel", with_cache_in_place, nullptr},
    {"last-logits", "logits of a prompt's last place alone",
     "its output layer takes as long as reading its weights, and passes over the logits of all places shrink with "
     "their "
     "number",
     with_last_logits, nullptr},
    {"routed-experts", "experts that work on the tokens that chose them alone",
     "where each expert of a layer works on all tokens, products and passes of the experts take the part of their time "
     "that a token's choice is of the experts (two where the recording does not say), products no less than reading "
     "their weights, and gathering the tokens is added; deciding who has which costs nothing",
     with_routed_experts, nullptr},
    {"needed-rows", "no more rows in a decode step than the next power of two above its sequences",
     "where the recording tells how many are in use: attention and sampling take as much less, but what a wave of "
     "their "
     "blocks takes, and products what their arithmetic, or weights and the rows left, ask for",
     with_needed_rows, nullptr},
    {"needed-keys", "no keys in a decode step's attention but those in use",
     "where the recording proves that it reads at least twice as many: its kernels take as much less as there are "
     "fewer "
     "keys, each text's rounded up to 256",
     with_needed_keys, nullptr},
    {"ready-weights", "weights that are ready for their products",
     "passes over as many numbers as the weights of the product behind them are gone; the product reads what it reads",
     with_ready_weights, nullptr},
    {"products-kept", "results of the step before for products of a decode step on rows that are no new tokens",
     "such products are gone", with_products_kept, nullptr},
    {"merged-adapters", "adapters (LoRA) that are part of the weights",
     "two products through a narrow inner width beside one of the same outer widths, what scales and adds their "
     "result, "
     "and kernels that say that they compute adapters are gone",
     with_merged_adapters, nullptr},
    {"weights-kept", "weights that stay as they are from step to step",
     "products of low rank whose result has the sizes of another product's weights, and passes over it behind them, "
     "are "
     "gone",
     with_weights_kept, nullptr},
    {"one-pass", "one pass over the weights for all parts of a batch that go through the model on streams of their own",
     "where passes on several streams read the same weights in the same order, all but one are gone with what their "
     "streams do alike; products of the one that stays take as much longer as their roof says for the rows of all, "
     "attention and passes of 10 us or more as long as all of theirs, and nothing shares the GPU with it",
     with_one_pass, one_pass_forbidden},
    {"no-moves", "no large kernels that only move data",
     "copies on the device, gathers, casts and writes of a cache that take 10 us or more are gone, but for weights "
     "that "
     "are converted (ready-weights) and concatenations in decode steps (in-place-cache)",
     without_moves, nullptr},
    {"largest-only", "the largest chances chosen instead of all of them sorted",
     "of a sort one kernel stays, its longest, and passes of 5 us or more behind it, until a product or the end of the "
     "step, take as long as the shortest kernel",
     with_largest_only, nullptr},
    {"joined-products", "one product for those that stand one behind the other with the same rows and inner width",
     "of four or more of them, none wider than half of the inner width, the first takes what reading all of their "
     "weights does at the bandwidth that kernels reach, or their arithmetic; the others go, with the concatenation "
     "behind them",
     with_joined_products, nullptr},
    {"cached-keys", "keys and values of earlier tokens that are kept",
     "in decode steps that run the model on the whole text, kernels take the part that the newest tokens are of it, "
     "products no less than reading their weights, and every kernel as long as the shortest one; 200 us or more of "
     "host code before a launch, which choose kernels for the new length, become what is usual",
     with_cached_keys, nullptr},
    {"small-tensors", "no passes over tensors larger than the model's",
     "elementwise kernels, reductions and fills that move more than four times the largest matrix of the step's "
     "products "
     "take what a pass over the largest result of a product does",
     with_small_tensors, nullptr},
    {"weights-in-place", "products that read their weights where they lie",
     "a gather of each row's weights before a batched product is gone; the product takes what it takes",
     with_weights_in_place, nullptr},
    {"returning-launches", "launches that return before their kernel has ended",
     "where nearly all of them end behind it, each takes as long as until its kernel begins", with_returning_launches,
     nullptr},
    {"own-cpu", "a CPU for each thread that issues CUDA calls whenever it is ready to run",
     "what the operating system counts as waiting for a CPU is taken out of the longest stretches of host code and "
     "calls "
     "since the reading before; of waits for the GPU nothing is taken",
     with_own_cpu, nullptr},
    {"channels-last", "convolutions on tensors in NHWC",
     "cuDNN's conversions between NCHW and NHWC are gone; the convolutions and what lies between them take what they "
     "take",
     with_channels_last, nullptr},
    {"single-precision", "no double precision",
     "kernels whose names say that their elements are doubles take half as long, conversions of them 63 %",
     in_single_precision, nullptr},
    {"half-precision", "products and attention of 4-byte types in bf16",
     "products take half their bytes at 80 % of the bandwidth or their arithmetic at 70 % of the peak of bf16, half of "
     "their time at most; where most products of a stage are such, by number, passes over their results take half as "
     "long. "
     "Attention kernels that compute in single precision by three products of TF32 take a sixth where a sequence has "
     "64 queries or more, else half",
     in_half_precision, nullptr},
    {"fp8-weights", "weights of two bytes in one",
     "products limited by reading their weights take that much less; scales and conversions cost nothing",
     with_fp8_weights, nullptr},
    {"aligned", "matrix sizes that are multiples of 16 bytes",
     "such products reach 70 % of the arithmetic's roof or 80 % of memory's", with_aligned_sizes, nullptr},
    {"roofline", "kernels of known shapes at their roof",
     "they take as long as their arithmetic or their least traffic does, whichever is longer", at_roofline, nullptr},
    {"graph", "each step's launches as one CUDA graph",
     "launches behind the first of a step take no host time, and kernels lie as far apart as nodes of a graph do where "
     "`llmprof peaks` measured it; waits, copies to the host and the code around them stay",
     with_graph, graph_forbidden},
    {"batch-doubled", "twice as many sequences in each step",
     "products take twice their arithmetic, or as long as their weights once and all else twice, whichever is longer; "
     "attention, passes over memory, products of unknown shape and copies take twice as long, those under 6 us as long "
     "as before. The host's work stays; memory is taken to suffice",
     with_doubled_batch, nullptr, Scale::kBatch, 2},
    {"clock", "the GPU's highest clock throughout",
     "kernels limited by arithmetic and short ones take less by the median SM clock of the recording over the data "
     "sheet's highest; power and temperature are taken to allow it",
     at_full_clock, clock_unknown, Scale::kClock},
    {"gpu", "another GPU of the hardware table, as in gpu:H200",
     "by data sheets: kernels limited by memory take as its bandwidth has it, those limited by arithmetic as the peak "
     "of their type, short ones as the highest clock, those of unknown shape as is less favourable; the host, copies "
     "between host and GPU and communication stay",
     on_another_gpu, gpu_unknown, Scale::kGpu, 1, true},
    {"even-gpus", "as much work on each GPU that a pass of the model runs on",
     "where one thread drives several GPUs and a pass has kernels on each, those of a GPU take as much more or less as "
     "makes the GPUs' sums equal; memory is taken to suffice",
     with_even_gpus, nullptr, Scale::kEvenGpus},
    {"streams-apart", "streams that do not wait for each other time and again",
     "kernels of two streams that wait for each other's twice a step or more in both directions wait no more; kernels "
     "that then run at once are taken not to slow each other, and to need nothing of each other",
     with_streams_apart, nullptr},
    {"copies-apart", "a stream for copies to the GPU and one for those to the host",
     "in streams that hold both and no kernels, copies of one way no longer follow those of the other; what their "
     "stream "
     "has to wait for holds for both, and both ways at once are taken not to slow each other",
     with_copies_apart, nullptr},
    {"graphs-kept", "CUDA graphs that were made before they are needed",
     "from the start of a capture to the graph's instantiation calls and host code take no time, and so do calls right "
     "before it that launch nothing; the first launch of such a graph takes what one of as many nodes does",
     with_graphs_kept, nullptr},
    {"fast-host", "a host that takes no time",
     "calls that do not wait and the code between them take no time: what is left is the GPU's, and waiting for it",
     with_fast_host, nullptr},
    {"fast-gpu", "a GPU that takes no time", "kernels and copies take no time: what is left is the host's",
     with_fast_gpu, nullptr},
};

}  // namespace

std::span<const WhatIf> what_ifs() { return kWhatIfs; }

const WhatIf* find_what_if(std::string_view id) {
  const auto found =
      std::find_if(std::begin(kWhatIfs), std::end(kWhatIfs), [&](const WhatIf& w) { return w.id == id; });
  return found == std::end(kWhatIfs) ? nullptr : &*found;
}

// A call belongs to the step of what it launches, else to that of the call before it on its thread: what a step ends
// with comes behind its launches, and what leads to the next one's first launch takes as long in any of the two. What
// comes behind the end of a step whose last kernels were not recorded is no part of it.
Recording::Recording(const StepReplay& replay, const RecorderCostModel& costs, LinkRates rates, KernelTimes times)
    : replay_(replay), costs_(costs), rates_(rates), kernel_times_(std::move(times)) {
  const Timeline& all = timeline();
  const size_t calls = all.trace.api_calls.size();
  step_of_.assign(calls, kNoRow);
  ends_step_.assign(calls, 0);
  for (const StepEnd& end : replay.ends())
    if (end.call != kNoRow) ends_step_[end.call] = 1;
  std::map<ThreadId, StepId> current;
  for (ApiCallId call = 0; call < calls; ++call) {
    StepId& step = current.try_emplace(all.trace.api_calls.thread[call], kNoRow).first->second;
    if (step != kNoRow && all.trace.api_calls.start_ns[call] >= all.trace.steps.end_ns[step]) step = kNoRow;
    for (const GpuOpId op : launched(call))
      if (all.trace.gpu_links.step[op] != kNoRow) step = all.trace.gpu_links.step[op];
    step_of_[call] = step;
    if (ends_step_[call] != 0) step = kNoRow;
  }
  find_waits_in_vain();
  std::vector<double> before;
  const Durations durations(all);
  for (ApiCallId call = 0; call < calls; ++call)
    if (kind(call) == ApiKind::kLaunch && all.before[call] != kNoRow)
      before.push_back(static_cast<double>(durations.before_ns[call]));
  if (!before.empty()) dispatch_ns_ = static_cast<int64_t>(median_of(std::move(before)));
}

void Recording::find_waits_in_vain() {
  const Timeline& all = timeline();
  struct Process {
    std::set<int32_t> devices;
    bool copies = false;  // to the host, since the last wait
  };
  std::vector<Process> processes(all.process.size());
  const auto process_of = [&](ApiCallId call) -> Process& {
    return processes[all.process[all.trace.api_calls.thread[call]]];
  };
  if (all.trace.windows.size() < 2) return;
  for (ApiCallId call = 0; call < step_of_.size(); ++call)
    for (const GpuOpId op : launched(call)) process_of(call).devices.insert(all.trace.device_of(op));
  in_vain_.assign(step_of_.size(), 0);
  for (ApiCallId call = 0; call < step_of_.size(); ++call) {
    Process& process = process_of(call);
    for (const GpuOpId op : launched(call)) process.copies |= all.trace.gpu_ops.path[op] == CopyPath::kDeviceToHost;
    if (!waits(call)) continue;
    in_vain_[call] = ends_step_[call] != 0 && !process.copies && process.devices.size() > 1 ? 1 : 0;
    process.copies = false;
  }
}

bool Recording::waits(ApiCallId call) const {
  const Awaited awaited = timeline().awaited[call];
  return awaited != Awaited::kNothing && awaited != Awaited::kFree;
}

LaunchedOps Recording::launched(ApiCallId call) const {
  const Timeline& all = timeline();
  return {all.launched, all.launched_begin[call], all.launched_begin[call + 1]};
}

void assume_unseen(const RecorderCostModel& costs, Latencies& latencies) {
  Latency& behind = latencies.behind[static_cast<size_t>(StartKind::kKernel)][static_cast<size_t>(StartKind::kKernel)];
  if (behind.samples == 0) behind.ns = costs.kernels_apart_ns() > 0 ? costs.kernels_apart_ns() : kApartNs;
  for (size_t kind = 0; kind < kAwaitedCount; ++kind)
    if (latencies.woken[kind].samples == 0) latencies.woken[kind].ns = latencies.unblocked[kind].ns;
}

bool copies_pageable_in(const Recording& recording, ApiCallId call) {
  const GpuOps& ops = recording.trace().gpu_ops;
  const LaunchedOps launched = recording.launched(call);
  return launched.size() == 1 && ops.host_memory[launched[0]] == HostMemory::kPageable &&
         ops.path[launched[0]] == CopyPath::kHostToDevice;
}

void take_away(const Recording& recording, ApiCallId call, Durations& durations) {
  durations.call_ns[call] = 0;
  durations.before_ns[call] = std::max<int64_t>(0, durations.before_ns[call] - recording.dispatch_ns());
  durations.no_wait[call] = 1;
  for (const GpuOpId op : recording.launched(call)) durations.gone[op] = 1;
}

}  // namespace llmprof::replay
