#include "bench/peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/text_table.h"
#include "bench/data_sheet.h"
#include "bench/plan.h"

namespace llmprof::bench {
namespace {

using device::Device;
using kernels::Operation;
using kernels::OpParams;

struct GemmShape {
  int64_t m, n, k;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};
// In growing order. The first ones tell how long the next will take.
constexpr GemmShape kCudaShapes[] = {{2048, 2048, 13312}, {8192, 8192, 8192}, {16384, 8192, 8192}};
constexpr GemmShape kCpuShapes[] = {{1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}};
constexpr double kLaunchMaxS = 0.5, kQuickLaunchMaxS = 0.15;  // of one product: ten are needed

constexpr int64_t kCudaArrayBytes = int64_t{4} << 30, kCudaQuickArrayBytes = int64_t{1} << 30;
constexpr int64_t kCpuArrayBytesMin = int64_t{256} << 20, kCpuQuickArrayBytesMin = int64_t{64} << 20;
constexpr int64_t kCachesPerArray = 4;  // STREAM's rule: arrays of four times the last cache
// Of all arrays of a quick run together: what was read is gone from the cache before it is read again. Where a virtual
// machine of two cores sees 480 MB of cache, STREAM's rule is 12 GB, and the run is spent on page faults.
constexpr int64_t kCachesPerQuickSet = 4;
constexpr int64_t kFreePerArray = 8;  // three arrays, twice, and room
struct MemoryKind {
  std::string_view name;
  int64_t arrays;
};
constexpr MemoryKind kMemoryKinds[] = {{"read", 1}, {"write", 1}, {"copy", 2}, {"triad", 3}};
constexpr std::string_view kCacheKind = "cache_read", kReading = kMemoryKinds[0].name;
constexpr int64_t kCopyBytes = int64_t{256} << 20, kQuickCopyBytes = int64_t{64} << 20;
constexpr double kAboveSheet = 1.02;  // a rate that cannot be: the clock or the sheet is not what we think
constexpr int kCpuRounds = 4, kCpuQuickRounds = 2;
constexpr double kAsFast = 0.98;  // of the short timing; and what waiting for a core may have left of a time
constexpr double kScreenS = 0.15, kQuickScreenS = 0.05;
// Parts of the cache that hold the working set of its bandwidth: more than the caches before it, less than all of it.
constexpr std::pair<int64_t, int64_t> kCacheParts[] = {{1, 4}, {3, 8}, {1, 2}, {5, 8}};

const Operation* find(std::span<const Operation> operations, kernels::Ceiling ceiling) {
  for (const Operation& operation : operations)
    if (operation.ceiling == ceiling) return &operation;
  return nullptr;
}

bool has_way(const Device& device, const Operation& operation) {
  return (device.identity().kind == device::DeviceKind::kCpu ? operation.prepare_cpu : operation.prepare_cuda) !=
         nullptr;
}

double median_us(const CaseResult& result) { return result.timings.empty() ? 0 : result.timings[0].summary.median; }
double tflops_of(const CaseResult& result) {
  const double us = median_us(result);
  return us > 0 ? result.cost.flops / us / 1e6 : 0;
}
double gbs_of(const CaseResult& result) {
  const double us = median_us(result);
  return us > 0 ? result.cost.bytes() / us / 1e3 : 0;
}

// Its threads waited for a core in most samples: what it would have been without is not known.
bool waited(const CaseResult& result) {
  if (result.timings.empty()) return false;
  const Timing& timing = result.timings[0];
  return timing.unwaited_us && *timing.unwaited_us < kAsFast * timing.summary.median;
}

void add_phases(const Phases& from, Phases& to) {
  to.prepare_s += from.prepare_s;
  to.check_s += from.check_s;
  to.choose_s += from.choose_s;
  to.settle_s += from.settle_s;
  to.timing_s += from.timing_s;
}

// Files keep the costs of launches under names of their own.
struct FixedCost {
  std::string_view variant, name;
};
constexpr FixedCost kFixedCosts[] = {{"eager", "launch_eager"}, {"graph_node", "launch_graph_node"}};

std::string_view fixed_cost_named(std::string_view variant) {
  for (const FixedCost& cost : kFixedCosts)
    if (cost.variant == variant) return cost.name;
  return variant;
}

std::string gemm_text(const GemmShape& shape) { return fmt::format("{}x{}x{}", shape.m, shape.n, shape.k); }

class PeaksRun {
 public:
  PeaksRun(Device& device, const PeaksOptions& options, const std::atomic<bool>& stop,
           const std::function<void(const PeakRow&)>& done)
      : device_(device), options_(options), stop_(stop), done_(done) {
    peaks_.device = device.identity();
    peaks_.quick = options.quick;
    full_.cold = false;
    full_.sustained_min_s = options.quick ? 0.1 : 0.5;
    full_.settle_max_s = options.quick ? 0.1 : 1.0;
    full_.wall_max_s = options.quick ? 0.25 : 1.2;
    full_.choose_s = options.quick ? 0.1 : 0.3;
    full_.held_down_s = options.quick ? 0.1 : Protocol{}.held_down_s;
    full_.sets_max = options.quick ? 1 : 2;  // operands of peaks exceed the cache by far: more sets show nothing new
    screen_ = full_;
    screen_.sustained_min_s = options.quick ? kQuickScreenS : kScreenS;
    screen_.settle_max_s = 0;
    screen_.wall_max_s = 2 * kLaunchMaxS;
    screen_.held_down_s = 0;
    screen_.samples_min = 3;
    screen_.choose_s = 0.1;
    small_ = full_;
    small_.settle_max_s = options.quick ? 0 : 0.2;
    small_.sustained_min_s = std::min(full_.sustained_min_s, 0.25);
    small_.wall_max_s = std::min(full_.wall_max_s, 0.5);
    small_.held_down_s = 0;
    for (Protocol* protocol : {&full_, &screen_, &small_}) {
      protocol->sustained_min_s *= options.time_factor;
      protocol->settle_max_s *= options.time_factor;
      protocol->wall_max_s *= options.time_factor;
      protocol->held_down_s *= options.time_factor;
    }
  }

  Peaks take() && {
    peaks_.interrupted = stop_;
    return std::move(peaks_);
  }
  bool cpu() const { return device_.identity().kind == device::DeviceKind::kCpu; }

  void flops(const Operation& gemm, const Operation* registers) {
    std::vector<DType> dtypes = options_.dtypes;
    if (dtypes.empty()) dtypes.assign(gemm.dtypes.begin(), gemm.dtypes.end());
    for (const DType dtype : dtypes) {
      if (stop_) return;
      gemm_peak(gemm, dtype);
      if (registers != nullptr && !stop_) register_peak(*registers, dtype);
    }
  }

  void bandwidth(const Operation& memory) {
    for (const MemoryKind& kind : kMemoryKinds) {
      if (stop_) return;
      options_.begin(fmt::format("memory {}", kind.name));
      bandwidth_row(PeakGroup::kMemory, kind.name, memory, kind.name, array_bytes(kind.arrays), full_);
    }
    if (!stop_ && device_.identity().cache_bytes > 0) cache(memory);
  }

  void copies(const Operation& memcpy) {
    const int64_t copy_bytes = options_.quick ? kQuickCopyBytes : kCopyBytes;
    for (const std::string_view variant : memcpy.variants) {
      if (stop_) return;
      options_.begin(fmt::format("copy {}", variant));
      bandwidth_row(PeakGroup::kLink, variant, memcpy, variant, std::min(copy_bytes, array_bytes(1)), small_);
    }
  }

  void latencies(const Operation& launch) {
    for (const std::string_view variant : launch.variants) {
      if (stop_) return;
      options_.begin(fmt::format("latency {}", variant));
      const Result<OpParams> params = make_params(launch, DType::kUnknown, variant, {});
      if (!params) continue;
      CaseResult result = measure(device_, launch, *params, small_, stop_);
      const double us = median_us(result);
      add({PeakGroup::kLatency, std::string(fixed_cost_named(variant)), {}, std::move(result), us, "", false});
    }
  }

  // Why the ridge is not that of the highest row. On registers alone nothing is loaded: a roof of products that no
  // library reaches would blame every one of them for it.
  void remark_registers() {
    std::string types;
    for (size_t i = 1; i < peaks_.rows.size(); ++i) {
      const PeakRow &library = peaks_.rows[i - 1], &row = peaks_.rows[i];
      if (row.path != PeakPath::kRegisters || library.path != PeakPath::kLibrary || row.name != library.name) continue;
      if (row.group != PeakGroup::kFlops || library.group != PeakGroup::kFlops || row.value <= library.value) continue;
      types += fmt::format("{}{} {:.2f} times", types.empty() ? "" : ", ", row.name, row.value / library.value);
    }
    if (!types.empty())
      remark("registers reach more than the library's best product (" + types +
             "): ridge points and the roofs of products are of what products reach, that of other arithmetic is of "
             "registers");
  }
  // What others took from the ceilings.
  void remark_waiting() {
    int rows = 0;
    double most = 0;
    for (const PeakRow& row : peaks_.rows) {
      if (!waited(row.result)) continue;
      ++rows;
      most = std::max(most, row.result.timings[0].wait_ratio.value_or(0));
    }
    if (rows == 0) return;
    remark(fmt::format(
        "disturbed: in {} of {} rows threads waited for a core that other programs had, for up to {:.0f} % of "
        "the time: so much can be reached, and perhaps more. What a later run does better replaces them",
        rows, peaks_.rows.size(), std::min(most, 1.0) * 100));
  }
  void remark(std::string text) { peaks_.remarks.push_back(std::move(text)); }

 private:
  // Of one of so many arrays that are read and written in turn.
  int64_t array_bytes(int64_t arrays) const {
    const int64_t cache = device_.identity().cache_bytes;
    const int64_t wanted = !cpu()           ? (options_.quick ? kCudaQuickArrayBytes : kCudaArrayBytes)
                           : options_.quick ? std::max(kCpuQuickArrayBytesMin, kCachesPerQuickSet * cache / arrays)
                                            : std::max(kCpuArrayBytesMin, kCachesPerArray * cache);
    const int64_t bytes = std::min(wanted, device_.free_bytes() / kFreePerArray);
    return std::max<int64_t>(bytes / 4096 * 4096, 4096);
  }

  // Interrupted rows are dropped, unsupported ones said only to those who asked for them.
  void add(PeakRow row) {
    if (row.result.status == CaseStatus::kInterrupted || stop_) return;
    const std::string what =
        row.group == PeakGroup::kFlops ? fmt::format("{} {}", row.name, name_of(row.path)) : row.name;
    if (row.result.status == CaseStatus::kUnsupported) {
      if (!options_.dtypes.empty() && row.group == PeakGroup::kFlops)
        remark(fmt::format("{}: {}", what, row.result.note));
      return;
    }
    if (row.value <= 0 || !std::isfinite(row.value)) {
      remark(fmt::format("{}: {}, {}", what, name_of(row.result.status), row.result.note));
      return;
    }
    if (!row.result.note.empty()) remark(fmt::format("{}: {}", what, row.result.note));
    if (const std::optional<double> share = of_sheet_at_clock(peaks_.device, row); share && *share > kAboveSheet)
      remark(fmt::format("above-datasheet: {} reached {:.0f} % of the data sheet at the clock it ran at; not kept",
                         what, *share * 100));
    peaks_.rows.push_back(std::move(row));
    done_(peaks_.rows.back());
  }

  CaseResult gemm_case(const Operation& gemm, DType dtype, const GemmShape& shape, const Protocol& protocol) {
    const Result<OpParams> params = make_params(gemm, dtype, {}, {{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
    if (params) return measure(device_, gemm, *params, protocol, stop_);
    CaseResult result;
    result.status = CaseStatus::kUnsupported;
    result.note = params.error().what;
    return result;
  }

  // The shapes to time. A quick run on a GPU takes one: large where arithmetic is fast.
  std::span<const GemmShape> shapes_for(DType dtype) const {
    if (cpu()) return kCpuShapes;
    if (!options_.quick) return kCudaShapes;
    static constexpr GemmShape kSlow[] = {{4096, 4096, 4096}}, kFast[] = {{8192, 8192, 8192}};
    const bool fast = dtype_bytes(dtype) <= 2 || dtype == DType::kTf32;
    return fast ? std::span<const GemmShape>(kFast) : kSlow;
  }

  // A short timing of every shape, and then the best one again under the whole protocol.
  void gemm_peak(const Operation& gemm, DType dtype) {
    options_.begin(fmt::format("{} matrix products", dtype_name(dtype)));
    const std::span<const GemmShape> shapes = shapes_for(dtype);
    const double launch_max_s = options_.quick ? kQuickLaunchMaxS : kLaunchMaxS;
    std::optional<GemmShape> best;
    double best_tflops = 0;
    CaseResult last, screened;
    spent_ = {};
    for (const GemmShape& shape : shapes) {
      if (shapes.size() == 1) {
        best = shape;
        break;
      }
      if (best && shape.flops() / (best_tflops * 1e12) > launch_max_s) break;
      last = gemm_case(gemm, dtype, shape, screen_);
      if (stop_) return;
      if (last.status == CaseStatus::kUnsupported) break;
      add_phases(last.phases, spent_);
      if (tflops_of(last) <= best_tflops) continue;
      best = shape;
      best_tflops = tflops_of(last);
      screened = last;
    }
    if (!best)
      return add(
          {PeakGroup::kFlops, std::string(dtype_name(dtype)), PeakPath::kLibrary, std::move(last), 0, "", false});
    CaseResult result = gemm_case(gemm, dtype, *best, full_);
    result = fastest(std::move(result), std::move(screened), [&] { return gemm_case(gemm, dtype, *best, full_); });
    add_phases(spent_, result.phases);
    const double tflops = tflops_of(result);
    add({PeakGroup::kFlops, std::string(dtype_name(dtype)), PeakPath::kLibrary, std::move(result), tflops,
         gemm_text(*best), false});
  }

  // A ceiling is the most that can be reached. A CPU shares its caches, and often its cores, with programs that are not
  // seen here, and that can only slow it down: where the whole protocol is behind the short timing, or threads waited
  // for a core in it, it has some more rounds, and the fastest of all counts. What a GPU does in a short timing is not
  // what it keeps up under its power limit. `screened` may be nothing.
  CaseResult fastest(CaseResult result, CaseResult screened, const std::function<CaseResult()>& again) {
    const auto rate = [](const CaseResult& of) { return median_us(of) > 0 ? 1 / median_us(of) : 0; };
    if (!cpu() || result.timings.empty()) return result;
    const int rounds = options_.quick ? kCpuQuickRounds : kCpuRounds;
    for (int round = 1; round < rounds && !stop_; ++round) {
      if (!waited(result) && rate(result) >= kAsFast * rate(screened)) break;
      CaseResult next = again();
      add_phases(rate(next) > rate(result) ? result.phases : next.phases, spent_);
      if (rate(next) > rate(result)) result = std::move(next);
    }
    if (rate(screened) <= rate(result) || stop_) return result;
    add_phases(result.phases, spent_);
    screened.phases = {};  // counted with the short timings
    return screened;
  }

  void register_peak(const Operation& registers, DType dtype) {
    if (std::find(registers.dtypes.begin(), registers.dtypes.end(), dtype) == registers.dtypes.end()) return;
    options_.begin(fmt::format("{} in registers", dtype_name(dtype)));
    const Result<CasePlan> plan = plan_case(registers, device_.identity(), dtype, {}, {});
    if (!plan) return;
    spent_ = {};
    const auto take = [&] { return measure(device_, registers, plan->params, full_, stop_); };
    CaseResult result = fastest(take(), {}, take);
    add_phases(spent_, result.phases);
    const double tflops = tflops_of(result);
    const PeakRow* const library = peaks_.rows.empty() ? nullptr : &peaks_.rows.back();
    const bool below = library != nullptr && library->name == dtype_name(dtype) &&
                       library->path == PeakPath::kLibrary && tflops < library->value;
    add({PeakGroup::kFlops, std::string(dtype_name(dtype)), PeakPath::kRegisters, std::move(result), tflops, "",
         below});
  }

  void bandwidth_row(PeakGroup group, std::string_view name, const Operation& operation, std::string_view variant,
                     int64_t bytes, const Protocol& protocol) {
    const Result<OpParams> params = make_params(operation, DType::kUnknown, variant, {{"bytes", bytes}});
    if (!params) return remark(fmt::format("{}: {}", name, params.error().what));
    spent_ = {};
    const auto take = [&] { return measure(device_, operation, *params, protocol, stop_); };
    CaseResult result = fastest(take(), {}, take);
    add_phases(spent_, result.phases);
    const double gbs = gbs_of(result);
    const std::string moved = format_bytes(result.cost.bytes());
    add({group, std::string(name), {}, std::move(result), gbs, moved, false});
  }

  // Reads of a working set that stays in the last level of the cache: the best of a few sizes.
  void cache(const Operation& memory) {
    if (std::find(memory.variants.begin(), memory.variants.end(), kReading) == memory.variants.end()) return;
    options_.begin("cache");
    Protocol screen = screen_;
    screen.sets_max = 1;
    int64_t best_bytes = 0;
    double best_gbs = 0;
    for (const auto& [part, of] : kCacheParts) {
      const int64_t bytes = device_.identity().cache_bytes * part / of / 4096 * 4096;
      const Result<OpParams> params = make_params(memory, DType::kUnknown, kReading, {{"bytes", bytes}});
      if (!params) continue;
      const double gbs = gbs_of(measure(device_, memory, *params, screen, stop_));
      if (stop_) return;
      if (gbs > best_gbs) best_gbs = gbs, best_bytes = bytes;
    }
    Protocol protocol = full_;
    protocol.sets_max = 1;
    if (best_bytes > 0) bandwidth_row(PeakGroup::kCache, kCacheKind, memory, kReading, best_bytes, protocol);
  }

  Device& device_;
  const PeaksOptions& options_;
  const std::atomic<bool>& stop_;
  const std::function<void(const PeakRow&)>& done_;
  Protocol full_, screen_, small_;  // small: what takes no power
  Phases spent_;                    // by the screens of the row in hand
  Peaks peaks_;
};

std::string backend_and(const std::string& shape, const std::string& backend) {
  return shape.empty() ? backend : fmt::format("{}, {}", shape, backend);
}

}  // namespace

std::vector<DType> peak_dtypes(std::span<const Operation> operations) {
  std::vector<DType> out;
  for (const kernels::Ceiling ceiling : {kernels::Ceiling::kProducts, kernels::Ceiling::kRegisters}) {
    const Operation* const operation = find(operations, ceiling);
    for (const DType dtype : operation != nullptr ? operation->dtypes : std::span<const DType>())
      if (std::find(out.begin(), out.end(), dtype) == out.end()) out.push_back(dtype);
  }
  return out;
}

std::optional<std::string> why_no_arithmetic(const Device& device, std::span<const Operation> operations, DType dtype) {
  const auto takes = [dtype](const Operation& operation) {
    return std::find(operation.dtypes.begin(), operation.dtypes.end(), dtype) != operation.dtypes.end();
  };
  const Operation* const registers = find(operations, kernels::Ceiling::kRegisters);
  if (registers != nullptr && has_way(device, *registers) && takes(*registers)) {
    const Result<CasePlan> plan = plan_case(*registers, device.identity(), dtype, {}, {});
    if (plan && (registers->unsupported == nullptr || !registers->unsupported(device.identity(), plan->params)))
      return std::nullopt;
  }
  const Operation* const gemm = find(operations, kernels::Ceiling::kProducts);
  if (gemm == nullptr) return std::nullopt;
  const GemmShape shape = kCpuShapes[0];
  const Result<OpParams> params = make_params(*gemm, dtype, {}, {{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
  if (!params) return params.error().what;
  return gemm->unsupported == nullptr ? std::nullopt : gemm->unsupported(device.identity(), *params);
}

Result<Peaks> measure_peaks(Device& device, const PeaksOptions& options, const std::atomic<bool>& stop,
                            const std::function<void(const PeakRow&)>& done) {
  const Operation* const gemm = find(options.operations, kernels::Ceiling::kProducts);
  const Operation* const memory = find(options.operations, kernels::Ceiling::kMemory);
  if (gemm == nullptr || memory == nullptr)
    return fail("expected operations of products and of memory, found neither or one");
  PeaksRun run(device, options, stop, done);
  const auto usable = [&](kernels::Ceiling ceiling) -> const Operation* {
    const Operation* operation = find(options.operations, ceiling);
    return operation != nullptr && has_way(device, *operation) ? operation : nullptr;
  };
  run.flops(*gemm, usable(kernels::Ceiling::kRegisters));
  run.bandwidth(*memory);
  if (const Operation* memcpy = usable(kernels::Ceiling::kLink)) run.copies(*memcpy);
  if (const Operation* launch = usable(kernels::Ceiling::kFixedCosts)) run.latencies(*launch);
  run.remark_registers();
  run.remark_waiting();
  if (run.cpu()) run.remark("data sheet: llmprof has none of CPUs, so there are no shares of it");
  return std::move(run).take();
}

bool is_disturbed(const Peaks& peaks, const PeakRow& row) {
  if (peaks.device.kind != device::DeviceKind::kCpu) return false;
  return peaks.busy || waited(row.result) || (!row.result.timings.empty() && row.result.timings[0].choice_disturbed);
}

MeasuredCeilings ceilings_of(const Peaks& peaks) {
  MeasuredCeilings out;
  out.device_key = peaks.device.key;
  out.name = peaks.device.name;
  out.uuid = peaks.device.uuid;
  out.driver = peaks.device.driver;
  out.recorder_ns = peaks.recorder_ns;
  if (peaks.device.cache_bytes > 0) out.cache_bytes = peaks.device.cache_bytes;
  out.unix_s =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const PeakRow& row : peaks.rows) {
    if (row.result.timings.empty() || row.below_library) continue;
    if (const std::optional<double> share = of_sheet_at_clock(peaks.device, row); share && *share > kAboveSheet)
      continue;
    const Timing& timing = row.result.timings[0];
    const MeasuredRate rate = {row.value,
                               backend_and(row.shape, row.result.backend),
                               timing.summary.iqr_frac(),
                               timing.clock_mhz,
                               timing.power_w,
                               peaks.quick,
                               is_disturbed(peaks, row)};
    if (row.group == PeakGroup::kFlops) {
      (row.path == PeakPath::kLibrary ? out.library_tflops : out.unit_tflops)[row.name] = rate;
    } else {
      (row.group == PeakGroup::kLatency ? out.latency_us : out.bandwidth_gbs)[row.name] = rate;
    }
  }
  return out;
}

}  // namespace llmprof::bench
