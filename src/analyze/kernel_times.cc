#include "analyze/kernel_times.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analyze/converted_weights.h"
#include "analyze/dense_experts.h"
#include "analyze/double_precision.h"
#include "analyze/gathered_weights.h"
#include "analyze/layout_conversions.h"
#include "analyze/moved_data.h"
#include "analyze/output_layers.h"
#include "analyze/oversized_tensors.h"
#include "analyze/padding.h"
#include "analyze/processor.h"
#include "analyze/products_in_pieces.h"
#include "analyze/recomputed_products.h"
#include "analyze/repeated_reads.h"
#include "analyze/rewritten_weights.h"
#include "analyze/roof.h"
#include "analyze/separate_adapters.h"
#include "analyze/sorted_chances.h"
#include "analyze/uncached_text.h"
#include "analyze/unfused_norms.h"

namespace llmprof {
namespace {

using replay::KernelChange;
using replay::kStays;

int64_t rounded(double ns) { return std::max<int64_t>(kLeastKernelNs, std::llround(ns)); }

struct Rates {
  double bytes_per_ns = 0, halves_per_ns = 0;  // reached; 0: not known
};
Rates rates_of(const DeviceReport* device) {
  Rates out;
  if (device == nullptr) return out;
  out.bytes_per_ns = reached_bytes_per_ns(*device).value_or(0);
  out.halves_per_ns = reached_flops_per_ns(*device, DType::kBf16).value_or(0);
  return out;
}

// A time for each kernel group, ns of one call.
class GroupTimes {
 public:
  GroupTimes(const Context& context, const Rates& rates)
      : context_(context),
        rates_(rates),
        works_(context.trace.works),
        wide_stages_(context.groups.stages.size(), false) {
    std::vector<int64_t> products(wide_stages_.size()), wide(wide_stages_.size());
    for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
      if (!is_gemm(key(k).work)) continue;
      // Counted, not timed: what lies between two products is as wide as they are, however long one of them takes.
      const int64_t calls = context.groups.kernels[k].calls;
      products[key(k).stage] += calls;
      if (is_wide(k)) wide[key(k).stage] += calls;
    }
    for (size_t s = 0; s < wide_stages_.size(); ++s) wide_stages_[s] = wide[s] * 2 > products[s];
  }

  // At the roof: min(arithmetic, traffic) of what its shape asks for.
  int64_t at_roof(uint32_t k) const {
    const KernelSums& sums = context_.groups.kernels[k];
    const KernelRoof roof = kernel_roof(context_, k);
    if (sums.kind != GpuOpKind::kKernel || !roof.point.roof_ns || sums.calls == 0) return kStays;
    return rounded(*roof.point.roof_ns / static_cast<double>(sums.calls));
  }
  int64_t in_bf16(uint32_t k) const {
    const KernelSums& sums = context_.groups.kernels[k];
    if (!is_wide(k) || sums.calls == 0) return kStays;
    return rounded(narrow_product_ns(k, static_cast<double>(sums.total_ns) / static_cast<double>(sums.calls)));
  }
  // Where most products of a stage are of 4-byte weights, what works on their results is so too: half as many bytes.
  bool works_on_wide(uint32_t k) const {
    const Category category = key(k).category;
    return context_.groups.kernels[k].kind == GpuOpKind::kKernel && wide_stages_[key(k).stage] &&
           (is_pass_over_memory(category) || category == Category::kAttention);
  }
  // As near to the roof as products of sizes that suit come.
  int64_t aligned(uint32_t k) const {
    const WorkId work = key(k).work;
    if (work == kNoRow || !is_misaligned_product(works_, work)) return kStays;
    const int64_t roof = at_roof(k);
    if (roof == kStays) return kStays;
    const RoofPoint point = kernel_roof(context_, k).point;
    const bool compute = point.compute_ns.value_or(0) > point.memory_ns.value_or(0);
    return rounded(static_cast<double>(roof) / (compute ? kReachedOfPeak : kReachedOfBandwidth));
  }
  // Part of its time that a product limited by memory keeps with weights of two bytes in one.
  double with_fp8_weights(uint32_t k) const {
    const WorkId work = key(k).work;
    if (!is_gemm(work) || dtype_bytes(works_.weight_dtype[work]) != 2 || works_.bytes[work] <= 0) return 1;
    const KernelRoof roof = kernel_roof(context_, k);
    if (kernel_bound(context_, k, roof) != Bound::kMemory) return 1;
    return 1 - works_.weight_bytes[work] / works_.bytes[work] / 2;
  }

 private:
  const KernelKey& key(uint32_t k) const { return context_.groups.kernel_keys.key(k); }
  double narrow_product_ns(uint32_t k, double each_ns) const {
    const KernelRoof roof = kernel_roof(context_, k);
    if (rates_.halves_per_ns <= 0 || rates_.bytes_per_ns <= 0 || !roof.known) return each_ns / 2;
    const double calls = static_cast<double>(context_.groups.kernels[k].calls);
    return std::min(each_ns / 2,
                    std::max(roof.flops / rates_.halves_per_ns, roof.bytes / 2 / rates_.bytes_per_ns) / calls);
  }
  bool is_wide(uint32_t k) const { return is_gemm(key(k).work) && dtype_bytes(works_.weight_dtype[key(k).work]) >= 4; }
  bool is_gemm(WorkId work) const { return work != kNoRow && works_.kind[work] == WorkKind::kGemm; }

  const Context& context_;
  Rates rates_;
  const Works& works_;
  std::vector<bool> wide_stages_;  // most products are of 4-byte weights
};

// Attention that is written out: between two products with weights, products of many small matrices with a softmax
// among them. As one kernel it reads queries, keys and values and writes its result, and scores never leave the SM.
// Passes beside it that take as long as a pass over all keys make its input: wider copies of the cache, heads repeated.
class WrittenOutAttention {
 public:
  WrittenOutAttention(const Context& context, const Rates& rates, std::vector<int64_t>& times)
      : context_(context), rates_(rates), trace_(context.trace), times_(times) {}

  void find() {
    if (rates_.bytes_per_ns <= 0) return;
    std::map<StreamId, std::vector<GpuOpId>> runs;
    for (GpuOpId op = 0; op < trace_.gpu_ops.size(); ++op) {
      std::vector<GpuOpId>& run = runs[trace_.gpu_ops.stream[op]];
      if (!run.empty() && trace_.gpu_links.step[run.front()] != trace_.gpu_links.step[op]) judge(run);
      if (trace_.gpu_ops.kind[op] == GpuOpKind::kMemset) continue;  // of a product's counters, before it
      if (trace_.gpu_links.step[op] == kNoRow || !is_pass(op) || is_plain(op)) {
        judge(run);
        continue;
      }
      run.push_back(op);
    }
    for (auto& [stream, run] : runs) judge(run);
  }

 private:
  WorkId work(GpuOpId op) const { return context_.groups.work_of(op); }
  // A kernel, or a copy within the device: of scores that are masked out of place, before the mask.
  bool is_pass(GpuOpId op) const {
    return trace_.gpu_ops.kind[op] == GpuOpKind::kKernel || trace_.gpu_ops.path[op] == CopyPath::kOnDevice;
  }
  bool is_product(GpuOpId op) const { return work(op) != kNoRow && trace_.works.kind[work(op)] == WorkKind::kGemm; }
  bool is_batched(GpuOpId op) const { return is_product(op) && trace_.works.batch[work(op)] > 1; }
  // A product with weights, or one that nothing is known of.
  bool is_plain(GpuOpId op) const { return trace_.gpu_links.category[op] == Category::kGemm && !is_batched(op); }

  void judge(std::vector<GpuOpId>& run) {
    size_t first = SIZE_MAX, last = 0, softmax = SIZE_MAX;
    for (size_t i = 0; i < run.size(); ++i) {
      if (is_batched(run[i])) first = std::min(first, i), last = i;
      if (trace_.gpu_links.category[run[i]] == Category::kSoftmax && first < i) softmax = i;
    }
    if (first < softmax && softmax < last) fuse(run, first, last);
    run.clear();
  }

  void fuse(const std::vector<GpuOpId>& run, size_t first, size_t last) {
    const Works& works = trace_.works;
    const WorkId scores = work(run[first]), result = work(run[last]);
    const auto numbers = [&](WorkId w, int64_t a, int64_t b) {
      return static_cast<double>(works.batch[w]) * static_cast<double>(a) * static_cast<double>(b);
    };
    constexpr double kBytes = 2;
    // The one of the two operands of each product that the other product does not share, at two bytes a number: scores
    // are as many as the smaller product of sizes.
    const double score = std::min(numbers(scores, works.m[scores], works.n[scores]),
                                  numbers(result, works.m[result], std::max(works.k[result], works.n[result])));
    const auto bytes_of = [&](WorkId w) {
      const double all =
          numbers(w, works.m[w], works.k[w]) + numbers(w, works.k[w], works.n[w]) + numbers(w, works.m[w], works.n[w]);
      return kBytes * std::max(0.0, all - score);
    };
    const double bytes = bytes_of(scores) + bytes_of(result);
    double ns = bytes / rates_.bytes_per_ns;
    if (rates_.halves_per_ns > 0) ns = std::max(ns, (works.flops[scores] + works.flops[result]) / rates_.halves_per_ns);
    times_[run[first]] = rounded(std::max(ns, static_cast<double>(2 * kLeastKernelNs)));
    for (size_t i = first + 1; i <= last; ++i) times_[run[i]] = 0;
    const double keys_ns = bytes / 2 / rates_.bytes_per_ns;  // about what a pass over keys or values takes
    constexpr double kPassLeastNs = 3000;
    if (keys_ns < kPassLeastNs) return;
    for (size_t i = 0; i < run.size(); ++i)
      if ((i < first || i > last) && is_pass_over_memory(trace_.gpu_links.category[run[i]]) &&
          static_cast<double>(trace_.gpu_ops.dur_ns[run[i]]) >= 0.7 * keys_ns)
        times_[run[i]] = 0;
  }

  const Context& context_;
  const Rates& rates_;
  const Trace& trace_;
  std::vector<int64_t>& times_;
};

// One product in the place of its pieces.
void add_joined_products(const Context& context, const Rates& rates, std::vector<int64_t>& times) {
  if (rates.bytes_per_ns <= 0) return;
  const Works& works = context.trace.works;
  for (const ProductsInPieces& one : products_in_pieces(context)) {
    double weights = 0, flops = 0;
    int64_t longest = 0;
    for (const GpuOpId op : one.pieces) {
      const WorkId work = context.groups.work_of(op);
      weights += works.weight_bytes[work];
      flops += works.flops[work];
      longest = std::max(longest, context.trace.gpu_ops.dur_ns[op]);
    }
    double ns = weights / rates.bytes_per_ns;
    if (rates.halves_per_ns > 0) ns = std::max(ns, flops / rates.halves_per_ns);
    times[one.pieces.front()] = std::max(longest, rounded(ns));
    for (size_t i = 1; i < one.pieces.size(); ++i) times[one.pieces[i]] = 0;
    for (const GpuOpId op : one.around) times[op] = 0;
  }
}

// The newest tokens alone, where a step ran on all of the text.
void add_cached_keys(const Context& context, const Rates& rates, std::vector<int64_t>& times) {
  const Trace& trace = context.trace;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    const double part =
        step == kNoRow || trace.gpu_ops.kind[op] != GpuOpKind::kKernel ? 1 : needed_part(trace.steps, step);
    if (part == 1 || trace.gpu_ops.dur_ns[op] <= kLeastKernelNs) continue;
    double ns = part * static_cast<double>(trace.gpu_ops.dur_ns[op]);
    const WorkId work = context.groups.work_of(op);
    if (work != kNoRow && trace.works.kind[work] == WorkKind::kGemm) {
      if (trace.works.batch[work] == 1 && trace.works.m[work] != trace.steps.gemm_rows[step]) continue;
      if (rates.bytes_per_ns > 0) ns = std::max(ns, trace.works.weight_bytes[work] / rates.bytes_per_ns);
    }
    times[op] = rounded(ns);
  }
}

// A prompt's output layer over its last places alone, with what follows it over all of them.
void add_last_logits(const Context& context, const Rates& rates, std::vector<int64_t>& times) {
  const Trace& trace = context.trace;
  const Works& works = trace.works;
  const OutputLayers outputs(trace);
  struct Open {
    StepId step = kNoRow;
    double part = 1, pass_ns = 0;
  };
  std::map<StreamId, Open> streams;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    Open& open = streams[trace.gpu_ops.stream[op]];
    if (step == kNoRow || trace.steps.kind[step] != StageKind::kPrefill) {
      open = {};
      continue;
    }
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[op]);
    const WorkId work = context.groups.work_of(op);
    if (work != kNoRow && works.kind[work] == WorkKind::kGemm) {
      open = {};
      const int64_t sequences = trace.steps.sequences[step];
      if (sequences < 1 || !outputs.has(work) || works.m[work] <= sequences) continue;
      open.step = step;
      open.part = static_cast<double>(sequences) / static_cast<double>(works.m[work]);
      const double logits = static_cast<double>(works.m[work]) * static_cast<double>(works.n[work]);
      if (rates.bytes_per_ns > 0) open.pass_ns = 2 * logits / rates.bytes_per_ns;
      const double weights_ns = rates.bytes_per_ns > 0 ? works.weight_bytes[work] / rates.bytes_per_ns : ns / 2;
      times[op] = rounded(std::max(ns * open.part, std::min(ns, weights_ns)));
    } else if (open.step == step && open.pass_ns > 0 && ns >= open.pass_ns / 2) {
      times[op] = rounded(ns * open.part);
    }
  }
}

}  // namespace

double half_precision_part(const Steps& steps, StepId step) {
  constexpr int64_t kQueriesMin = 64;  // a block of queries: its arithmetic is what takes the time
  const bool many =
      step != kNoRow && steps.sequences[step] > 0 && steps.gemm_rows[step] >= kQueriesMin * steps.sequences[step];
  return many ? 1.0 / 6 : 0.5;
}

OptDouble reached_bytes_per_ns(const DeviceReport& device) {
  const OptDouble rate = device.roof_bytes_per_s();
  if (!rate) return {};
  return *rate / 1e9 * (device.measured_bytes_per_s ? 1 : kReachedOfBandwidth);
}

OptDouble reached_flops_per_ns(const DeviceReport& device, DType dtype) {
  const OptDouble rate = device.roof_of(dtype);
  if (!rate) return {};
  return *rate / 1e9 * (rate == device.peak_of(dtype) ? kReachedOfPeak : 1);
}

bool is_misaligned_product(const Works& works, WorkId work) {
  constexpr int64_t kRowsMin = 16;
  if (work == kNoRow || works.kind[work] != WorkKind::kGemm || works.m[work] < kRowsMin) return false;
  const double width = dtype_bytes(works.dtype[work]);
  if (width <= 0 || width > 2) return false;
  const int64_t multiple = static_cast<int64_t>(16 / width);
  return works.n[work] % multiple != 0 || works.k[work] % multiple != 0;
}

replay::KernelTimes kernel_times(const Context& context) {
  replay::KernelTimes out;
  if (on_cpu(context)) return out;
  const GpuOps& ops = context.trace.gpu_ops;
  const Rates rates = rates_of(context.device);
  const GroupTimes group_times(context, rates);
  for (std::vector<int64_t>& times : out) times.assign(ops.size(), kStays);
  const auto of = [&](KernelChange change) -> std::vector<int64_t>& { return out[static_cast<size_t>(change)]; };
  struct Times {
    int64_t roof = kStays, bf16 = kStays, aligned = kStays;
    bool halved = false;
    double fp8 = 1;
  };
  std::vector<Times> groups(context.groups.kernels.size());
  for (uint32_t k = 0; k < groups.size(); ++k)
    groups[k] = {group_times.at_roof(k), group_times.in_bf16(k), group_times.aligned(k), group_times.works_on_wide(k),
                 group_times.with_fp8_weights(k)};
  enum class NameKind : uint8_t { kUnseen, kOther, kConcatenates, kWideAttention };
  std::vector<NameKind> names(context.trace.strings.size(), NameKind::kUnseen);
  for (GpuOpId op = 0; op < ops.size(); ++op) {
    const Times& times = groups[context.groups.kernel_of[op]];
    const double ns = static_cast<double>(ops.dur_ns[op]);
    of(KernelChange::kRoofline)[op] = times.roof;
    of(KernelChange::kHalfPrecision)[op] = times.halved && ns >= kShortKernelNs ? rounded(ns / 2) : times.bf16;
    of(KernelChange::kAligned)[op] = times.aligned;
    if (times.fp8 < 1) of(KernelChange::kFp8Weights)[op] = rounded(ns * times.fp8);
    NameKind& name = names[index(ops.name[op])];
    if (name == NameKind::kUnseen) {
      const std::string_view text = context.trace.text(ops.name[op]);
      name = concatenates(text)        ? NameKind::kConcatenates
             : is_wide_attention(text) ? NameKind::kWideAttention
                                       : NameKind::kOther;
    }
    const StepId step = context.trace.gpu_links.step[op];
    if (name == NameKind::kConcatenates && step != kNoRow && context.trace.steps.kind[step] == StageKind::kDecode)
      of(KernelChange::kCacheInPlace)[op] = kLeastKernelNs;
    if (name == NameKind::kWideAttention)
      of(KernelChange::kHalfPrecision)[op] = rounded(ns * half_precision_part(context.trace.steps, step));
  }
  WrittenOutAttention(context, rates, of(KernelChange::kFusedAttention)).find();
  add_last_logits(context, rates, of(KernelChange::kLastLogits));
  for (const UnfusedNorm& norm : unfused_norms(context)) {
    for (const GpuOpId op : norm.passes) of(KernelChange::kFusedNorms)[op] = 0;
    of(KernelChange::kFusedNorms)[norm.stays] = ops.dur_ns[norm.stays];
  }
  for (const DenseExperts& layer : dense_experts(context))
    for (const auto& [op, then_ns] : layer.then) of(KernelChange::kRoutedExperts)[op] = then_ns;
  for (const ConvertedWeights& one : converted_weights(context))
    for (const GpuOpId op : one.passes) of(KernelChange::kReadyWeights)[op] = 0;
  for (const GpuOpId op : recomputed_products(context)) of(KernelChange::kProductsKept)[op] = 0;
  for (const SeparateAdapter& one : separate_adapters(context))
    for (const GpuOpId op : one.gone) of(KernelChange::kMergedAdapters)[op] = 0;
  for (const RewrittenWeights& one : rewritten_weights(context))
    for (const GpuOpId op : one.gone) of(KernelChange::kWeightsKept)[op] = 0;
  for (const RepeatedReads& one : repeated_reads(context)) {
    for (const auto& [op, then_ns] : one.joined) of(KernelChange::kOnePass)[op] = then_ns;
    for (const GpuOpId op : one.gone) of(KernelChange::kOnePass)[op] = 0;
  }
  for (const OversizedPass& one : oversized_passes(context)) of(KernelChange::kSmallTensors)[one.op] = one.needed_ns;
  for (const GatheredWeights& one : gathered_weights(context)) of(KernelChange::kWeightsInPlace)[one.gather] = 0;
  for (const auto& [op, then_ns] : double_precision(context)) of(KernelChange::kSinglePrecision)[op] = then_ns;
  for (const GpuOpId op : layout_conversions(context)) of(KernelChange::kChannelsLast)[op] = 0;
  const MovedData moved = moved_data(context);
  for (const std::vector<GpuOpId>* gone : {&moved.moves, &moved.beside})
    for (const GpuOpId op : *gone) of(KernelChange::kNoMoves)[op] = 0;
  for (const SortedChances& one : sorted_chances(context)) {
    for (const GpuOpId op : one.gone) of(KernelChange::kLargestOnly)[op] = 0;
    for (const GpuOpId op : one.narrowed) of(KernelChange::kLargestOnly)[op] = kLeastKernelNs;
  }
  add_joined_products(context, rates, of(KernelChange::kJoinedProducts));
  add_cached_keys(context, rates, of(KernelChange::kCachedKeys));
  add_needed_rows(context, of(KernelChange::kNeededRows));
  add_needed_keys(context, of(KernelChange::kNeededKeys));
  return out;
}

}  // namespace llmprof
