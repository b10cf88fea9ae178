// Findings about how kernels use the GPU: arithmetic, tensor cores, shapes, grids, fusion.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "analyze/output_layers.h"
#include "analyze/processor.h"
#include "base/text_table.h"
#include "trace/signature.h"

namespace llmprof {
namespace {

// Below these shares of a stage's GPU time a change would not be noticed.
constexpr double kShareMin = 0.05;
constexpr double kSmallKernelShareMin = 0.15;
constexpr double kWaveShareMin = 0.10;
// Kernels shorter than this are dominated by their fixed cost whatever their grid is.
constexpr double kGridKernelNsMin = 10'000;
// Fewer thread blocks than this share of the SMs leave most of the GPU without work.
constexpr double kGridShareMin = 0.5;
constexpr double kWaveEfficiencyMax = 0.75;
constexpr int64_t kLogitRowsPerSequence = 8;
constexpr double kLogitShareMin = 0.01;

const DeviceReport* device_of(const FindingContext& finding) { return finding.context.device; }

const OperatorRecord* find_operator(const FindingContext& finding, const StageView& stage, std::string_view name) {
  for (const OperatorRecord& row : finding.report.operators)
    if (row.stage == stage.timing->name && row.name == name) return &row;
  return nullptr;
}

// Thread blocks that fit on one SM at once, from the resources of the launch; 0 if the device's limits are unknown.
int64_t blocks_per_sm(const Trace& trace, int32_t device, LaunchConfigId config) {
  const LaunchConfigs& launch = trace.launch_configs;
  for (Row d = 0; d < trace.devices.size(); ++d) {
    if (trace.devices.device[d] != device) continue;
    const int64_t threads = int64_t{launch.block_x[config]} * launch.block_y[config] * launch.block_z[config];
    const int64_t registers = launch.registers_per_thread[config], shared = launch.shared_bytes[config];
    if (threads <= 0 || trace.devices.threads_per_sm_max[d] <= 0 || registers < 0 || shared < 0) return 0;
    int64_t fit = std::min<int64_t>(32, trace.devices.threads_per_sm_max[d] / threads);
    // Registers are given to warps in units of 256 (8 per thread).
    const int64_t rounded = (registers + 7) / 8 * 8;
    if (rounded > 0 && trace.devices.registers_per_sm[d] > 0)
      fit = std::min(fit, int64_t{trace.devices.registers_per_sm[d]} / (rounded * ((threads + 31) / 32 * 32)));
    if (shared > 0 && trace.devices.shared_bytes_per_sm[d] > 0)
      fit = std::min(fit, trace.devices.shared_bytes_per_sm[d] / (shared + 1024));  // 1 KiB per block is the system's
    return fit;
  }
  return 0;
}

struct Grid {
  double blocks = 0;
  int64_t sms = 0;
};
Grid grid_of(const FindingContext& finding, const KernelKey& key) {
  Grid grid;
  if (key.config == kNoRow) return grid;
  const LaunchConfigs& c = finding.trace().launch_configs;
  grid.blocks = static_cast<double>(c.grid_x[key.config]) * c.grid_y[key.config] * c.grid_z[key.config];
  const DeviceReport* device = device_of(finding);
  if (device != nullptr && device->sm_count) grid.sms = *device->sm_count;
  return grid;
}

}  // namespace

namespace {

double misaligned_ns(const FindingContext& finding, const StageView& stage) {
  double time_ns = 0;
  for (const uint32_t k : stage.kernels)
    if (is_misaligned_product(finding.trace().works, finding.key(k).work))
      time_ns += static_cast<double>(finding.sums(k).total_ns);
  return time_ns;
}

// The narrower type that products of `dtype` could be computed in, by the peaks that the device has: FP8 before INT8,
// which quantises worse. Unknown where none is faster.
DType faster_type(const DeviceReport& device, DType dtype) {
  std::span<const DType> narrower;
  constexpr std::array<DType, 2> kHalves = {DType::kBf16, DType::kFp16}, kBytes = {DType::kFp8, DType::kInt8};
  if (dtype == DType::kFp32 || dtype == DType::kTf32) narrower = kHalves;
  if (dtype == DType::kBf16 || dtype == DType::kFp16) narrower = kBytes;
  const OptDouble now = device.peak_of(dtype);
  for (const DType type : narrower)
    if (now && device.peak_of(type).value_or(0) > *now) return type;
  return DType::kUnknown;
}

// Element type of the stage's products, of which MFU is a share of the peak.
DType type_of_arithmetic(const DeviceReport& device, const StageTiming& timing) {
  const OptText& name = timing.dtype ? timing.dtype : device.arithmetic;
  return name ? parse_dtype(*name).value_or(DType::kUnknown) : DType::kUnknown;
}

// What a stage limited by arithmetic takes at least, with its products in the type they have, and in a narrower one.
struct LeastTimes {
  double now_ns = 0;
  DType now = DType::kUnknown, narrow = DType::kUnknown;
  double narrow_ns = 0;  // only where narrow is known
  double ratio = 1;      // of the two peaks
};
LeastTimes least_times(const DeviceReport& device, const StageView& stage, double mfu) {
  LeastTimes out;
  out.now_ns = stage.wall_ns() * std::min(1.0, mfu);
  out.now = type_of_arithmetic(device, *stage.timing);
  out.narrow = faster_type(device, out.now);
  if (out.narrow == DType::kUnknown) return out;
  out.ratio = *device.peak_of(out.narrow) / *device.peak_of(out.now);
  // Attention and the like stay in the type they have.
  const double products = std::min(mfu, stage.timing->gemm_mfu.value_or(mfu));
  out.narrow_ns = stage.wall_ns() * std::min(1.0, mfu - products + products / out.ratio);
  // What is so much faster may come to be limited by reading its weights.
  if (const StageTiming& timing = *stage.timing; timing.weight_bytes && device.bytes_per_s && timing.count > 0) {
    const double bytes =
        *timing.weight_bytes / static_cast<double>(timing.count) * dtype_bytes(out.narrow) / dtype_bytes(out.now);
    out.narrow_ns = std::max(out.narrow_ns, stage.count() * bytes / *device.bytes_per_s * 1e9);
  }
  return out;
}

// "fp8 (peak 1,979 TFLOP/s, 2.0 times that of bf16)": as the device's table has it.
std::string in_narrower_type(const DeviceReport& device, const LeastTimes& least) {
  return fmt::format("{} (peak {} {}, {:.1f} times that of {})", dtype_name(least.narrow),
                     format_count(*device.peak_of(least.narrow) / 1e12),
                     least.narrow == DType::kInt8 ? "TOP/s" : "TFLOP/s", least.ratio, dtype_name(least.now));
}

}  // namespace

void find_compute_bound(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    if (stage.timing->bound != Bound::kCompute || (!stage.timing->mfu && !stage.timing->gemm_mfu)) continue;
    // Slow forms of products are their shapes' matter: no peak is the limit there.
    if (2 * misaligned_ns(finding, stage) > stage.busy_ns()) continue;
    // Attention without recorded shapes would add to it.
    const bool whole = stage.timing->mfu.has_value();
    const double mfu = whole ? *stage.timing->mfu : *stage.timing->gemm_mfu;
    // So far from the peak something else holds the kernels back, on whichever side of the ridge they lie.
    constexpr double kMfuMin = 0.10;
    if (mfu < kMfuMin || mfu >= 1) continue;  // a peak that is exceeded limits nothing
    const DeviceReport& device = *finding.context.device;
    // Severity and order go by what the type it has would allow: a narrower one changes the model's answers.
    Finding& out = finding.add("compute-bound", &stage,
                               fmt::format("{}arithmetic limits it, at {}{} of the {} peak", stage.label(),
                                           whole ? "" : "no less than ", format_percent(mfu), device.peak_source()),
                               stage.wall_ns() * std::max(0.0, 1 - mfu));
    // Far from the peak, a higher one brings little: getting nearer comes first. The bound is that of the first advice.
    constexpr double kFarFromPeak = 0.5;
    const LeastTimes least = least_times(device, stage, mfu);
    const bool narrow_known = least.narrow != DType::kUnknown, narrow_first = narrow_known && mfu >= kFarFromPeak;
    out.evidence = {
        {whole ? "MFU" : "MFU of the GEMMs alone", mfu, Unit::kFrac,
         stage.timing->flops_provenance.value_or(Provenance::kCounted)},
        counted(whole ? "arithmetic per step" : "arithmetic of the GEMMs per step",
                stage.timing->flops.value_or(stage.timing->gemm_flops.value_or(0)) /
                    static_cast<double>(stage.timing->count),
                Unit::kFlop),
        measured("share of wall time in compute-bound kernels", stage.timing->bound_frac.value_or(0), Unit::kFrac)};
    const auto add_least = [&](const std::string& what, double ns, bool is_bound) {
      out.evidence.push_back({fmt::format("least time per step {}{}", what, is_bound ? ": the bound" : ""),
                              stage.per_step_ms(ns), Unit::kMs, Provenance::kFormula});
    };
    add_least(
        least.now == DType::kUnknown ? "at the present peak" : fmt::format("at the {} peak", dtype_name(least.now)),
        least.now_ns, !narrow_first);
    if (narrow_known)
      add_least(fmt::format("with the products in {}, by peak and bandwidth", dtype_name(least.narrow)),
                least.narrow_ns, narrow_first);
    if (stage.timing->tensor_active_frac)
      out.evidence.push_back(
          measured("tensor pipe active, by hardware counter", *stage.timing->tensor_active_frac, Unit::kFrac));
    if (stage.timing->mfu_at_clock)
      out.evidence.push_back(measured("MFU at the clock it ran at", *stage.timing->mfu_at_clock, Unit::kFrac));
    if (mfu < kFarFromPeak)
      out.advice.push_back("The GEMMs stay far from the peak: longer or batched prompts give them larger matrices.");
    if (narrow_known)
      out.advice.push_back(fmt::format("Compute its products in {}: {} weights and inputs.",
                                       in_narrower_type(device, least),
                                       dtype_bytes(least.narrow) < 2 ? "quantise" : "cast"));
    out.advice.push_back(on_cpu(finding.context)
                             ? "Do less: reuse cached prefixes, shorten prompts; or use more cores."
                             : "Do less: reuse cached prefixes, shorten prompts; or split the work over more GPUs "
                               "(tensor parallelism).");
    out.bound = stage.bound(stage.wall_ns() - (narrow_first ? least.narrow_ns : least.now_ns));
  }
}

void find_logits_all_tokens(const FindingContext& finding) {
  const Works& works = finding.trace().works;
  const OutputLayers outputs(finding.trace());
  for (const StageView& stage : finding.stages) {
    const OptInt sequences = stage.timing->sequences;
    if (stage.group->kind != StageKind::kPrefill || !sequences || *sequences < 1) continue;
    double time_ns = 0, rows = 0, flops = 0;
    int64_t calls = 0, width = 0;
    for (const uint32_t k : stage.kernels) {
      const WorkId work = finding.key(k).work;
      if (!outputs.has(work)) continue;
      if (works.m[work] < kLogitRowsPerSequence * *sequences) continue;
      const KernelSums& sums = finding.sums(k);
      time_ns += static_cast<double>(sums.total_ns);
      rows += static_cast<double>(works.m[work] * sums.calls);
      flops += works.flops[work] * static_cast<double>(sums.calls);
      calls += sums.calls;
      width = works.n[work];
    }
    if (calls == 0 || time_ns < kLogitShareMin * stage.busy_ns()) continue;
    const double needed = static_cast<double>(*sequences * calls);
    Finding& out = finding.add(
        "logits-all-tokens", &stage,
        fmt::format("{}the output layer runs for every prompt token, one per sequence is used", stage.label()),
        time_ns * (1 - needed / rows));
    out.evidence = {counted("tokens per step that get logits", rows / static_cast<double>(calls), Unit::kOne),
                    counted("sequences per step", static_cast<double>(*sequences), Unit::kOne),
                    counted("vocabulary", static_cast<double>(width), Unit::kOne),
                    counted("arithmetic of it per step", flops / stage.count(), Unit::kFlop),
                    measured("its time per step", stage.per_step_ms(time_ns), Unit::kMs),
                    measured(fmt::format("share of the stage's {} time", processor(finding.context)),
                             time_ns / stage.busy_ns(), Unit::kFrac)};
    out.advice = {
        "Ask for the logits of the last token only (logits_to_keep=1 in Hugging Face transformers; inference servers "
        "do "
        "so). It also saves the memory of tokens x vocabulary logits."};
    out.bound = stage.bound(time_ns * (1 - needed / rows));
  }
}

namespace {

// Without operators: several softmax kernels a step, with two batched products each.
void find_attention_unfused_kernels(const FindingContext& finding, const StageView& stage) {
  const Works& works = finding.trace().works;
  double softmax_ns = 0, product_ns = 0, softmaxes = 0, products = 0;
  for (const uint32_t k : stage.kernels) {
    const KernelKey& key = finding.key(k);
    const KernelSums& sums = finding.sums(k);
    if (key.category == Category::kSoftmax) {
      softmax_ns += static_cast<double>(sums.total_ns);
      softmaxes += static_cast<double>(sums.calls);
    } else if (key.work != kNoRow && works.kind[key.work] == WorkKind::kGemm && works.batch[key.work] > 1) {
      product_ns += static_cast<double>(sums.total_ns);
      products += static_cast<double>(sums.calls);
    }
  }
  const double time_ns = softmax_ns + product_ns;
  // One softmax a step may be that of sampling, which has no products of its own.
  const double of_attention = softmaxes - stage.count();
  const bool each = softmaxes >= 2 * stage.count() && products >= 1.8 * of_attention;
  if (!each || products < stage.count() || time_ns < kShareMin * stage.busy_ns()) return;
  Finding& out =
      finding.add("attention-unfused", &stage,
                  fmt::format("{}attention runs as separate products and softmax", stage.label()), time_ns / 2);
  out.evidence = {measured("softmax kernels per step", softmaxes / stage.count(), Unit::kOne),
                  counted("batched products per step", products / stage.count(), Unit::kOne),
                  measured("their GPU time per step", stage.per_step_ms(time_ns), Unit::kMs),
                  measured("share of the stage's GPU time", time_ns / stage.busy_ns(), Unit::kFrac)};
  out.advice = {
      "Use a fused attention kernel (attn_implementation=\"sdpa\" or \"flash_attention_2\"): the score matrix is never "
      "written to memory, so both time and memory stop growing with its square."};
}

}  // namespace

void find_attention_unfused(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    if (finding.trace().ops.empty()) {
      find_attention_unfused_kernels(finding, stage);
      continue;
    }
    // Attention written out is two batched products and a softmax per layer. Sampling runs a softmax too, one a step
    // over [sequences, vocabulary]; that of attention runs several times a step, or over [sequences, heads, queries,
    // keys].
    const OperatorRecord* softmax = find_operator(finding, stage, "aten::_softmax");
    const OperatorRecord* bmm = find_operator(finding, stage, "aten::bmm");
    const OperatorRecord* baddbmm = find_operator(finding, stage, "aten::baddbmm");
    if (softmax == nullptr || (bmm == nullptr && baddbmm == nullptr)) continue;
    const double products =
        static_cast<double>((bmm != nullptr ? bmm->calls : 0) + (baddbmm != nullptr ? baddbmm->calls : 0));
    const double softmaxes = static_cast<double>(softmax->calls);
    const std::vector<StringId>& described = finding.trace().signatures.dims;
    const auto usual =
        std::find(described.begin(), described.end(), finding.trace().strings.find(softmax->shapes.value_or("")));
    const std::optional<Shape> scores =
        SignatureShapes(finding.trace(), static_cast<Row>(usual - described.begin())).tensor(0);
    const bool of_scores = scores && scores->rank == 4;
    const double steps = stage.count();
    if ((!of_scores && softmaxes < 4 * steps) || products < 1.8 * softmaxes) continue;
    double time_ns = static_cast<double>(softmax->gpu_self_ms.ns);
    if (bmm != nullptr) time_ns += static_cast<double>(bmm->gpu_self_ms.ns);
    if (baddbmm != nullptr) time_ns += static_cast<double>(baddbmm->gpu_self_ms.ns);
    if (time_ns < kShareMin * stage.busy_ns()) continue;
    Finding& out =
        finding.add("attention-unfused", &stage,
                    fmt::format("{}attention runs as separate products and softmax", stage.label()), time_ns / 2);
    out.evidence = {measured("softmax calls per step", softmaxes / steps, Unit::kOne),
                    measured("batched products per step", products / steps, Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(time_ns), Unit::kMs),
                    measured("share of the stage's GPU time", time_ns / stage.busy_ns(), Unit::kFrac)};
    out.advice = {
        "Use a fused attention kernel (attn_implementation=\"sdpa\" or \"flash_attention_2\"): the score matrix is "
        "never written to memory, so both time and memory stop growing with its square."};
  }
}

namespace {

constexpr int64_t kTensorRowsMin = 64;  // below, products are bound by memory and may go without tensor instructions

// Time of GEMMs of many rows; the longest one.
double wide_gemm_ns(const FindingContext& finding, const StageView& stage, StringId& worst, double& worst_ns) {
  const Works& works = finding.trace().works;
  double time_ns = 0;
  for (const uint32_t k : stage.kernels) {
    const KernelKey& key = finding.key(k);
    if (key.work == kNoRow || works.kind[key.work] != WorkKind::kGemm || works.m[key.work] < kTensorRowsMin) continue;
    const double total_ns = static_cast<double>(finding.sums(k).total_ns);
    time_ns += total_ns;
    if (total_ns > worst_ns) {
      worst_ns = total_ns;
      worst = key.name;
    }
  }
  return time_ns;
}

// The counter is over wall time; while the GPU works the pipe is active that much more often.
OptDouble tensor_active_while_busy(const StageView& stage) {
  const StageTiming& timing = *stage.timing;
  if (!timing.tensor_active_frac || timing.gpu_busy_frac.value_or(0) <= 0) return std::nullopt;
  return *timing.tensor_active_frac / *timing.gpu_busy_frac;
}

// Whether the counter says that tensor cores did nothing although GEMMs of many rows take a third of the GPU time.
bool tensor_pipe_rests(const FindingContext& finding, const StageView& stage) {
  constexpr double kTensorActiveMax = 0.01, kGemmShareMin = 0.3;
  if (tensor_active_while_busy(stage).value_or(1) > kTensorActiveMax) return false;
  StringId worst = StringId::kEmpty;
  double worst_ns = 0;
  return wide_gemm_ns(finding, stage, worst, worst_ns) >= kGemmShareMin * stage.busy_ns();
}

}  // namespace

void find_tensor_cores_idle(const FindingContext& finding) {
  const Works& works = finding.trace().works;
  for (const StageView& stage : finding.stages) {
    double time_ns = 0, worst_ns = 0;
    StringId worst = StringId::kEmpty;
    for (const uint32_t k : stage.kernels) {
      const KernelKey& key = finding.key(k);
      if (key.category != Category::kGemm && key.category != Category::kConvolution) continue;
      const std::string_view name = finding.trace().text(key.name);
      // simt, ffma and the classic sgemm/dgemm names are kernels without tensor instructions. tf32 in a name is one
      // with.
      const bool plain = name.find("simt") != std::string_view::npos || name.find("sgemm") != std::string_view::npos ||
                         name.find("_ffma_") != std::string_view::npos;
      const bool tf32 = name.find("tf32") != std::string_view::npos || name.find("tensorop") != std::string_view::npos;
      const bool wide = key.work == kNoRow || works.dtype[key.work] == DType::kFp32;
      if (!plain || tf32 || !wide) continue;
      const double total_ns = static_cast<double>(finding.sums(k).total_ns);
      time_ns += total_ns;
      if (total_ns > worst_ns) worst_ns = total_ns, worst = key.name;
    }
    // Products of many rows in a narrow type that leave the tensor pipe at rest, as the counter saw it.
    const bool by_counter = tensor_pipe_rests(finding, stage);
    if (by_counter) time_ns = std::max(time_ns, wide_gemm_ns(finding, stage, worst, worst_ns));
    if (time_ns < kShareMin * stage.busy_ns() || time_ns == 0) continue;
    Finding& out = finding.add("tensor-cores-idle", &stage,
                               fmt::format("{}GEMMs run without tensor cores", stage.label()), time_ns / 2);
    out.evidence = {measured(by_counter ? "time of such GEMMs per step" : "time of FP32 GEMMs per step",
                             stage.per_step_ms(time_ns), Unit::kMs),
                    measured("share of the stage's GPU time", time_ns / stage.busy_ns(), Unit::kFrac),
                    measured("of it in " + ellipsize(finding.trace().text(worst), 60), worst_ns / 1e6, Unit::kMs)};
    out.advice = {
        "Cast weights and activations to bf16 or fp16; where FP32 must stay, allow TF32 "
        "(torch.set_float32_matmul_precision(\"high\"))."};
    if (const OptDouble active = tensor_active_while_busy(stage))
      out.evidence.push_back(
          measured("tensor pipe active while the GPU works, by hardware counter", *active, Unit::kFrac));
  }
}

// A replayed graph computes as many rows as it was captured with. Only ranges that name the composition of each step
// tell how many of them are real.
void find_graph_padding(const FindingContext& finding) {
  constexpr double kPaddedMin = 0.10;  // servers capture sizes in steps of 8 and accept this much
  const Steps& steps = finding.trace().steps;
  for (const StageView& stage : finding.stages) {
    if (!stage.graph_replay() || stage.group->kind != StageKind::kDecode) continue;
    double rows = 0, tokens = 0, counted_steps = 0;
    for (const Row s : stage.group->steps) {
      if (steps.annotation[s] == kNoRow || steps.gemm_rows[s] <= 0 || steps.new_tokens[s] <= 0) continue;
      rows += static_cast<double>(steps.gemm_rows[s]);
      tokens += static_cast<double>(std::min(steps.new_tokens[s], steps.gemm_rows[s]));
      ++counted_steps;
    }
    if (counted_steps == 0 || rows - tokens < kPaddedMin * rows) continue;
    const double padded = (rows - tokens) / rows;
    Finding& out = finding.add(
        "graph-padding", &stage,
        fmt::format("{}{} of the rows that its graphs compute are padding", stage.label(), format_percent(padded)),
        stage.busy_ns() * padded);
    out.evidence = {counted("rows computed per step", rows / counted_steps, Unit::kOne),
                    measured("tokens that the program names per step", tokens / counted_steps, Unit::kOne),
                    counted("share of padding", padded, Unit::kFrac)};
    out.advice = {
        "Capture graphs for more batch sizes (cuda_graph_sizes of an inference server), so that running batches are "
        "rounded up less; or let the scheduler fill the batch."};
    out.bound = stage.bound(stage.busy_ns() * padded);
  }
}

void find_gemm_shape_misaligned(const FindingContext& finding) {
  const Works& works = finding.trace().works;
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    double time_ns = 0, worst_ns = 0;
    Row worst = kNoRow;
    for (const uint32_t k : stage.kernels) {
      const WorkId work = finding.key(k).work;
      if (!is_misaligned_product(works, work)) continue;
      const double total_ns = static_cast<double>(finding.sums(k).total_ns);
      time_ns += total_ns;
      if (total_ns > worst_ns) worst_ns = total_ns, worst = work;
    }
    if (worst == kNoRow || time_ns < kShareMin * stage.busy_ns()) continue;
    Finding& out = finding.add("gemm-shape-misaligned", &stage,
                               fmt::format("{}matrix sizes are no multiples of 16 bytes", stage.label()), time_ns / 4);
    out.evidence = {
        measured(stage.each("time of such GEMMs"), stage.per_step_ms(time_ns), Unit::kMs),
        measured("share of the stage's GPU time", time_ns / stage.busy_ns(), Unit::kFrac),
        measured("of it for " + std::string(finding.trace().text(works.shape[worst])), worst_ns / 1e6, Unit::kMs)};
    out.advice = {
        "Pad vocabulary, hidden and head sizes to a multiple of 8 elements for 16-bit types (64 is better still)."};
  }
}

void find_wave_quantization(const FindingContext& finding) {
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    double lost_ns = 0, time_ns = 0, worst_lost = 0;
    Evidence worst_blocks, worst_waves;
    for (const uint32_t k : stage.kernels) {
      const KernelKey& key = finding.key(k);
      const KernelSums& sums = finding.sums(k);
      const Grid grid = grid_of(finding, key);
      if (key.category != Category::kGemm && key.category != Category::kAttention) continue;
      if (grid.sms <= 0 || static_cast<double>(sums.total_ns) < kGridKernelNsMin * static_cast<double>(sums.calls))
        continue;
      const int64_t resident = blocks_per_sm(finding.trace(), stage.group->device, key.config);
      if (resident <= 0) continue;
      const double waves = grid.blocks / static_cast<double>(grid.sms * resident);
      if (waves <= 1 || waves > 8) continue;  // one wave is the best there is; after eight the last one hardly counts
      const double efficiency = waves / std::ceil(waves);
      if (efficiency > kWaveEfficiencyMax) continue;
      const double total_ns = static_cast<double>(sums.total_ns), lost = total_ns * (1 - efficiency);
      time_ns += total_ns;
      lost_ns += lost;
      if (lost > worst_lost) {
        worst_lost = lost;
        worst_blocks =
            measured("thread blocks of " + ellipsize(finding.trace().text(key.name), 60), grid.blocks, Unit::kOne);
        worst_waves = {"waves they make on the GPU's SMs", waves, Unit::kOne, Provenance::kFormula};
      }
    }
    if (time_ns < kWaveShareMin * stage.busy_ns() || time_ns == 0) continue;
    Finding& out =
        finding.add("wave-quantization", &stage,
                    fmt::format("{}the last wave of thread blocks leaves SMs empty", stage.label()), lost_ns);
    out.evidence = {measured(stage.each("time of such kernels"), stage.per_step_ms(time_ns), Unit::kMs),
                    measured("share of the stage's GPU time", time_ns / stage.busy_ns(), Unit::kFrac), worst_blocks,
                    worst_waves};
    out.advice = {
        "Choose token counts per step (chunk size, batch) whose tiles fill whole waves, or a library version "
        "with stream-K or split-K kernels for these shapes."};
    out.bound = stage.bound(lost_ns);
  }
}

void find_low_occupancy(const FindingContext& finding) {
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    double time_ns = 0, worst_ns = 0, worst_blocks = 0;
    int64_t sms = 0;
    StringId worst = StringId::kEmpty;
    for (const uint32_t k : stage.kernels) {
      const KernelKey& key = finding.key(k);
      const Grid grid = grid_of(finding, key);
      const double total_ns = static_cast<double>(finding.sums(k).total_ns);
      if (grid.sms <= 0 || grid.blocks <= 0 || grid.blocks >= kGridShareMin * static_cast<double>(grid.sms)) continue;
      if (total_ns < kGridKernelNsMin * static_cast<double>(finding.sums(k).calls)) continue;
      if (key.category == Category::kCommunication) continue;  // uses few SMs on purpose
      time_ns += total_ns;
      if (total_ns > worst_ns) worst_ns = total_ns, worst = key.name, worst_blocks = grid.blocks, sms = grid.sms;
    }
    if (time_ns < kShareMin * stage.busy_ns() || time_ns == 0) continue;
    Finding& out =
        finding.add("low-occupancy", &stage,
                    fmt::format("{}kernels start too few thread blocks to fill the GPU", stage.label()), time_ns / 2);
    out.evidence = {
        measured(stage.each("time of such kernels"), stage.per_step_ms(time_ns), Unit::kMs),
        measured("share of the stage's GPU time", time_ns / stage.busy_ns(), Unit::kFrac),
        measured("thread blocks of " + ellipsize(finding.trace().text(worst), 60), worst_blocks, Unit::kOne),
        measured("SMs of the GPU", static_cast<double>(sms), Unit::kOne)};
    out.advice = {
        "Give these kernels more parallel work: larger batch, split-KV attention (flash-decoding) for long "
        "contexts, split-K GEMMs for few tokens."};
  }
}

namespace {

bool is_pass(const FindingContext& finding, uint32_t kernel) {
  return is_pass_over_memory(finding.key(kernel).category) && finding.sums(kernel).kind == GpuOpKind::kKernel;
}

// A kernel that passes over its operands, and so short that its fixed cost is most of it.
bool is_small_pass(const FindingContext& finding, uint32_t kernel) {
  const KernelSums& sums = finding.sums(kernel);
  return is_pass_over_memory(finding.key(kernel).category) && sums.kind == GpuOpKind::kKernel &&
         static_cast<double>(sums.total_ns) < kShortKernelNs * static_cast<double>(sums.calls);
}

// Idle time that ends with such a kernel, because the host had not launched it before: what others wait for stays.
double launches_of_small_passes(const FindingContext& finding, const StageView& stage) {
  const Gaps& gaps = finding.trace().gaps;
  double out = 0;
  for (Row gap = 0; gap < gaps.size(); ++gap)
    if (gaps.next_gpu_op[gap] != kNoRow && finding.of_stage(gap, stage) && finding.is_launch(gap, stage) &&
        is_small_pass(finding, finding.context.groups.kernel_of[gaps.next_gpu_op[gap]]))
      out += static_cast<double>(gaps.dur_ns[gap]);
  return out;
}

}  // namespace

void find_small_kernels_unfused(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    double time_ns = 0, calls = 0, gemms = 0;
    const bool simulated = finding.simulated(stage, {"fused"}).has_value();
    for (const uint32_t k : stage.kernels) {
      const KernelSums& sums = finding.sums(k);
      if (finding.key(k).category == Category::kGemm) gemms += static_cast<double>(sums.calls);
      if (simulated ? !is_pass(finding, k) : !is_small_pass(finding, k)) continue;
      time_ns += static_cast<double>(sums.total_ns);
      calls += static_cast<double>(sums.calls);
    }
    // With fused norm, rotary and activation kernels a layer has about one such kernel per GEMM.
    const bool by_sums =
        time_ns >= kSmallKernelShareMin * stage.busy_ns() && calls >= 1.5 * gemms && calls >= 20 * stage.count();
    if (calls == 0 || !finding.worth(stage, "fused", by_sums)) continue;
    const double graph_ns = stage.idle_ns(IdleCause::kGraphInternal);
    // What would stay: one fused kernel per GEMM. The rest goes, with its part of the pauses between graph nodes.
    const double removed = calls - std::min(calls, gemms);
    const double work_ns =
        time_ns * removed / calls + graph_ns * removed / std::max(1.0, static_cast<double>(stage.gpu_ops));
    // Kernels that are gone need not be launched either, where the GPU waits for that.
    const double launch_ns = stage.graph_replay() ? 0 : launches_of_small_passes(finding, stage) * removed / calls;
    const bool waits = launch_ns > 0 && launch_ns >= work_ns;
    const double gain_ns = waits ? std::min(work_ns + launch_ns, stage.wall_ns() - stage.least_gpu_ns()) : work_ns;
    Finding& out = finding.add("small-kernels-unfused", &stage,
                               fmt::format("{}{} {}elementwise and norm kernels per step take {} of the GPU time",
                                           stage.label(), format_count(calls / stage.count()),
                                           simulated ? "" : "short ", format_percent(time_ns / stage.busy_ns())),
                               gain_ns);
    out.evidence = {
        measured(simulated ? "kernels for norms, rotary, activation, copies, elementwise, per step"
                           : "kernels under 6 us for norms, rotary, activation, copies, elementwise, per step",
                 calls / stage.count(), Unit::kOne),
        measured("their GPU time per step", stage.per_step_ms(time_ns), Unit::kMs),
        measured("mean duration", time_ns / calls / 1e3, Unit::kUs),
        measured("GEMM kernels per step", gemms / stage.count(), Unit::kOne)};
    if (!simulated)
      out.evidence.push_back({"bound assumes fused kernels per step instead", std::min(calls, gemms) / stage.count(),
                              Unit::kOne, Provenance::kFormula});
    if (graph_ns > 0)
      out.evidence.push_back(
          measured("pauses between the nodes of the graph per step", stage.per_step_ms(graph_ns), Unit::kMs));
    out.advice = {
        "Fuse them: torch.compile, or fused RMSNorm (with the residual add), rotary embedding, SiLU-and-multiply "
        "and cache-write kernels as inference servers have them. Each kernel costs 1 to 3 us however little "
        "it does."};
    if (waits) {
      out.evidence.push_back(
          measured("idle time per step before those that would go", stage.per_step_ms(launch_ns), Unit::kMs));
      out.bound = stage.bound_of_waiting(gain_ns);
    } else {
      finding.bound_work(stage, gain_ns, out);
    }
  }
}

}  // namespace llmprof
