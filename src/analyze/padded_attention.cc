// Attention over places of a cache that hold no key.
#include <algorithm>
#include <cmath>
#include <map>

#include "analyze/counters.h"
#include "analyze/kernel_times.h"
#include "analyze/padding.h"
#include "derive/kernel_rules.h"

namespace llmprof {
namespace {

// Fewer times as many keys as tokens are no proof: what counters and shapes say is not exact.
constexpr double kFactorMin = 2;
// Products read no more than this of their operands' bytes, once each: what they keep in part is read again.
constexpr double kProductBytesMost = 1.1;
constexpr double kCoverageMin = 0.9;
constexpr int64_t kSamplesMin = 20;
// The recorder is attached while CUDA starts, which takes longer than this before anything runs.
constexpr int64_t kStartNsMost = 100'000'000;

// What is known of a step: tokens that the model ran on in the program's life so far, this step's included; 0: not.
// Only where the step's sequences are those of the prompts before it: a text that many go on from is read by each.
std::vector<double> tokens_until(const Trace& trace, int32_t device) {
  const Steps& steps = trace.steps;
  std::vector<double> out(steps.size(), 0);
  if (trace.recorded.empty()) return out;  // it may have begun in the middle
  int64_t known_until_ns = INT64_MAX;
  const Recorded& levels = trace.recorded;
  for (Row row = 0; row < levels.size(); ++row) {
    const bool start = trace.text(levels.reason[row]) == "start" && levels.dur_ns[row] < kStartNsMost;
    if (levels.level[row] < RecordingLevel::kDefault && !start)
      known_until_ns = std::min(known_until_ns, levels.start_ns[row] - levels.cut_ns[row]);
  }
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op)
    if (trace.gpu_links.step[op] == kNoRow && trace.gpu_links.category[op] == Category::kAttention &&
        trace.device_of(op) == device)
      known_until_ns = std::min(known_until_ns, trace.gpu_ops.start_ns[op]);
  double tokens = 0;
  int64_t prompts = 0;  // sequences of those since the last decode step
  bool decoding = false;
  for (StepId s = 0; s < steps.size(); ++s) {
    if (steps.device[s] != device) continue;
    if (steps.new_tokens[s] < 0 || steps.end_ns[s] > known_until_ns) break;
    tokens += static_cast<double>(steps.new_tokens[s]);
    if (steps.kind[s] == StageKind::kDecode) {
      decoding = true;
      if (prompts > 0 && prompts == steps.sequences[s]) out[s] = tokens;
      continue;
    }
    if (decoding) prompts = 0;
    decoding = false;
    const bool prompt = steps.kind[s] == StageKind::kPrefill && steps.sequences[s] > 0;
    prompts = prompt && prompts >= 0 ? prompts + steps.sequences[s] : -1;
  }
  return out;
}

// The kernels of attention in the steps of a stage, and what lies between them.
class AttentionOps {
 public:
  AttentionOps(const Context& context, uint32_t stage) : context_(context), trace_(context.trace) {
    std::map<StreamId, std::vector<GpuOpId>> runs;
    for (GpuOpId op = 0; op < trace_.gpu_ops.size(); ++op) {
      const StepId step = trace_.gpu_links.step[op];
      if (step == kNoRow || context.groups.stage_of_step[step] != stage) continue;
      std::vector<GpuOpId>& run = runs[trace_.gpu_ops.stream[op]];
      if (!run.empty() && trace_.gpu_links.step[run.front()] != step) judge(run);
      if (trace_.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
      if (trace_.gpu_links.category[op] == Category::kAttention) fused.push_back(op);
      if (trace_.gpu_links.category[op] == Category::kGemm && batch(op) <= 1)
        judge(run);
      else
        run.push_back(op);
    }
    for (auto& [stream, run] : runs) judge(run);
  }

  struct Written {  // as two products with a softmax between them
    StepId step;
    int64_t keys;
    std::vector<GpuOpId> ops;
  };
  std::vector<GpuOpId> fused;
  std::vector<Written> written;

 private:
  WorkId work(GpuOpId op) const { return context_.groups.work_of(op); }
  int64_t batch(GpuOpId op) const {
    const WorkId w = work(op);
    return w != kNoRow && trace_.works.kind[w] == WorkKind::kGemm ? trace_.works.batch[w] : 0;
  }
  void judge(std::vector<GpuOpId>& run) {
    size_t first = SIZE_MAX, last = 0, softmax = SIZE_MAX;
    for (size_t i = 0; i < run.size(); ++i) {
      if (batch(run[i]) > 1) first = std::min(first, i), last = i;
      if (trace_.gpu_links.category[run[i]] == Category::kSoftmax && first < i) softmax = i;
    }
    if (first < softmax && softmax < last) {
      // The number that the result is summed over is that of scores of a query.
      const WorkId scores = work(run[first]), result = work(run[last]);
      const Works& works = trace_.works;
      const int64_t keys = works.k[result];
      if (keys == works.n[scores] || keys == works.m[scores])
        written.push_back(
            {trace_.gpu_links.step[run[first]],
             keys,
             {run.begin() + static_cast<ptrdiff_t>(first), run.begin() + static_cast<ptrdiff_t>(last) + 1}});
    }
    run.clear();
  }

  const Context& context_;
  const Trace& trace_;
};

// Bytes of keys and values that a step makes for each token, all layers together, from the products on both sides of
// each attention: behind it the one that brings heads of all queries back to the model's width; before it, from that
// width, those of queries, keys and values. 0 where that is not what is there.
double bytes_of_a_token(const Context& context, StepId step) {
  const Trace& trace = context.trace;
  const Works& works = trace.works;
  std::vector<WorkId> before;
  bool attention = false;
  double bytes = 0;
  StreamId stream;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    if (trace.gpu_links.step[op] != step || trace.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
    const Category category = trace.gpu_links.category[op];
    if (category != Category::kAttention && category != Category::kGemm) continue;
    if (stream != kNoRow && trace.gpu_ops.stream[op] != stream) return 0;
    stream = trace.gpu_ops.stream[op];
    const WorkId work = trace.gpu_links.work[op];
    if (category == Category::kAttention ||
        (work != kNoRow && works.kind[work] == WorkKind::kGemm && works.batch[work] > 1)) {
      attention = true;
      continue;
    }
    if (work == kNoRow && is_auxiliary_kernel(trace.text(trace.gpu_ops.name[op]))) continue;
    if (work == kNoRow || works.kind[work] != WorkKind::kGemm) return 0;
    if (attention) {
      const int64_t width = works.n[work], queries = works.k[work];
      int64_t made = 0;
      for (size_t i = before.size(); i-- > 0 && works.k[before[i]] == width;) made += works.n[before[i]];
      if (made <= queries) return 0;  // keys of something else
      bytes += static_cast<double>(std::min(made - queries, 2 * queries)) * dtype_bytes(works.dtype[work]);
      before.clear();
      attention = false;
      continue;
    }
    before.push_back(work);
  }
  return attention ? 0 : bytes;
}

// Traffic that attention alone can have made in the steps, at least: what the counter saw less the operands of
// products, less what passes over memory can have moved, and that once more, which attention may read of it.
double least_attention_bytes(const Context& context, const std::vector<uint8_t>& judged, double dram_bytes) {
  const Trace& trace = context.trace;
  const double bytes_per_ns = *context.device->bytes_per_s / 1e9;
  double products = 0, passes = 0, attention_ns = 0;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || judged[step] == 0) continue;
    const WorkId work = trace.gpu_links.work[op];
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[op]);
    if (trace.gpu_ops.kind[op] != GpuOpKind::kKernel)
      passes += 2 * static_cast<double>(std::max<int64_t>(0, trace.gpu_ops.bytes[op]));
    else if (trace.gpu_links.category[op] == Category::kAttention)
      attention_ns += ns;
    else if (trace.gpu_links.category[op] == Category::kGemm && work != kNoRow)
      products += trace.works.bytes[work];
    else
      passes += std::max(0.0, ns - static_cast<double>(kLeastKernelNs)) * bytes_per_ns;
  }
  return std::min(dram_bytes - kProductBytesMost * products - 2 * passes, attention_ns * bytes_per_ns);
}

// Memory traffic of the steps by hardware counter; 0 where most of it was not sampled.
double measured_bytes(const Context& context, const StageGroup& group, const std::vector<uint8_t>& judged) {
  const CounterSamples counters(context.trace, group.device, context.device->bytes_per_s);
  if (counters.empty() || counters.gpm()) return 0;
  CounterSums sums;
  double wall_ns = 0;
  const Steps& steps = context.trace.steps;
  for (const Row s : group.steps) {
    if (judged[s] == 0) continue;
    counters.add(steps.start_ns[s], steps.end_ns[s], sums);
    wall_ns += static_cast<double>(steps.end_ns[s] - steps.start_ns[s]);
  }
  const OptDouble rate = sums.dram_bytes_per_s.mean();
  if (!rate || sums.samples < kSamplesMin || sums.dram_bytes_per_s.weight_ns < kCoverageMin * wall_ns) return 0;
  return *rate * wall_ns / 1e9;
}

}  // namespace

std::optional<PaddedAttention> padded_attention(const Context& context, uint32_t stage) {
  const Trace& trace = context.trace;
  const Steps& steps = trace.steps;
  const StageGroup& group = context.groups.stages[stage];
  if (!is_decode_to_judge(group) || context.device == nullptr || !context.device->bytes_per_s) return {};
  const std::vector<double> tokens = tokens_until(trace, group.device);
  std::vector<uint8_t> judged(steps.size(), 0);
  PaddedAttention out;
  double count = 0;
  StepId first = kNoRow;
  for (const Row s : group.steps) {
    if (tokens[s] <= 0) continue;
    if (first == kNoRow) first = s;
    if (steps.sequences[s] != steps.sequences[first]) return {};
    judged[s] = 1;
    out.tokens = std::max(out.tokens, tokens[s]);
    ++count;
  }
  if (first == kNoRow) return {};
  out.sequences = static_cast<double>(steps.sequences[first]);
  const double token_bytes = bytes_of_a_token(context, first);
  if (token_bytes <= 0) return {};
  const AttentionOps attention(context, stage);
  if (!attention.written.empty() && attention.fused.empty()) {
    double keys = 0, calls = 0;
    for (const AttentionOps::Written& one : attention.written) {
      if (judged[one.step] == 0) continue;
      keys += static_cast<double>(one.keys);
      ++calls;
    }
    out.read = calls > 0 ? keys / calls * out.sequences : 0;
  } else if (!attention.fused.empty() && attention.written.empty()) {
    const double dram_bytes = measured_bytes(context, group, judged);
    out.by_counter = true;
    out.dram_bytes = dram_bytes / count;
    out.read = least_attention_bytes(context, judged, dram_bytes) / count / token_bytes;
  }
  if (out.read < kFactorMin * out.tokens) return {};
  for (const Row s : group.steps) {
    double needed = tokens[s] > 0 ? tokens[s] : out.read;
    if (steps.context[s] > 0 && steps.sequences[s] == steps.sequences[first])
      needed = static_cast<double>((steps.context[s] + kPlaces - 1) / kPlaces * kPlaces) * out.sequences;
    out.kept[s] = std::min(1.0, needed / out.read);
    if (judged[s] != 0) out.in_use += std::min(needed, out.read) / count;
  }
  return out;
}

void add_needed_keys(const Context& context, std::vector<int64_t>& times) {
  const Trace& trace = context.trace;
  for (uint32_t stage = 0; stage < context.groups.stages.size(); ++stage) {
    const std::optional<PaddedAttention> padded = padded_attention(context, stage);
    if (!padded) continue;
    const auto shorten = [&](GpuOpId op) {
      const double ns = padded->kept.at(trace.gpu_links.step[op]) * static_cast<double>(trace.gpu_ops.dur_ns[op]);
      times[op] = std::max<int64_t>(kLeastKernelNs, std::llround(ns));
    };
    const AttentionOps attention(context, stage);
    for (const GpuOpId op : attention.fused) shorten(op);
    for (const AttentionOps::Written& one : attention.written)
      for (const GpuOpId op : one.ops) shorten(op);
  }
}

}  // namespace llmprof
