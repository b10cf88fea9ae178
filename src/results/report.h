// Report: what `llmprof analyze` and `llmprof run` answer. Plain rows of plain values; nothing here refers to the
// Trace, so a Report outlives it. Every record is declared once (base/fields.h) with the name, unit and sentence of
// every field: JSON, CSV, the text tables and docs/metrics.md walk those declarations.
//
// What always holds: a value that is not known is an empty optional, never 0, and Report::cannot_tell or
// Report::diagnostics says why. Times of tables are totals over their instances. In every StageTiming busy + idle + not
// recorded is wall to the nanosecond, and the stages of a device, [unattributed] included, fill its window
// (check_conservation).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"
#include "base/dtype.h"
#include "base/stage.h"
#include "results/bound.h"
#include "results/ceilings.h"
#include "results/finding.h"
#include "results/latency.h"
#include "results/rank_records.h"
#include "results/recording.h"
#include "results/step_records.h"
#include "results/tool_records.h"
#include "results/values.h"

namespace llmprof {

enum class ThrottleReason : uint8_t {
  kPowerCap,
  kThermalSoftware,
  kThermalHardware,
  kPowerBrake,
  kSyncBoost,
  kHardware
};
std::string_view name_of(ThrottleReason reason);

enum class ModelOrigin : uint8_t { kGiven, kRecognised };
std::string_view name_of(ModelOrigin origin);

inline std::string_view name_of(DiagnosticId id) { return diagnostic_table()[static_cast<size_t>(id)].key; }

using OptBound = std::optional<Bound>;

// How rows of `coverage` that hold counted FLOPs against the formula's begin; the stage's name follows.
inline constexpr std::string_view kCrossCheck = "counted-over-formula: ";
inline constexpr const char* kUnattributed = "[unattributed]";

// What the words in brackets behind the name of a stage say, for code.
struct StageMark {
  StepState state = StepState::kUsual;
  StepPhase phase = StepPhase::kServing;
  bool is_warm_up() const { return phase == StepPhase::kWarmUp; }  // shown, and not judged
};

// ---- rows --------------------------------------------------------------------------------------------------------

#define LLMPROF_STAGE_TIMING_FIELDS(F)                                                                                 \
  F(std::string, name, "", "Stage name: the annotation's text or the kind; [unattributed] is time outside every step") \
  F(StageKind, kind, "", "prefill, decode, mixed, vision, speculative or other")                                       \
  F(StageSource, source, "", "Who says so: annotation, nvtx or detected")                                              \
  F(int64_t, device, "", "CUDA device ordinal")                                                                        \
  F(int64_t, count, "", "Instances (steps)")                                                                           \
  F(OptInt, tokens, "", "Tokens that the model ran on, all instances together")                                        \
  F(OptInt, output_tokens, "", "Tokens produced, all instances together")                                              \
  F(OptInt, sequences, "", "Most sequences in one instance")                                                           \
  F(OptInt, context, "", "Longest context attended, new tokens included")                                              \
  F(Milliseconds, wall_ms, "ms", "Sum of the windows of the instances")                                                \
  F(KnownMilliseconds, gpu_busy_ms, "ms", "Part of wall in which any stream of the device was busy, overlap once")     \
  F(KnownMilliseconds, gpu_idle_ms, "ms", "Idle part of wall, from the table of idle gaps")                            \
  F(Milliseconds, not_recorded_ms, "ms", "Part of wall in which kernels were not recorded: neither busy nor idle")     \
  F(OptDouble, own_ms, "ms",                                                                                           \
    "wall_ms - not_recorded_ms without the recorder (table undisturbed), where that is known")                         \
  F(OptDouble, gpu_busy_frac, "frac", "gpu_busy_ms / own_ms, where that is not known / (wall_ms - not_recorded_ms)")   \
  F(KnownCount, kernels, "", "Kernels, copies and memsets")                                                            \
  F(KnownCount, launches, "", "Distinct API calls that launched them; one graph launch starts many kernels")           \
  F(OptDouble, flops, "FLOP", "Arithmetic of GEMMs, convolutions and attention; causal attention counted causally")    \
  F(OptDouble, flops_full_attention, "FLOP", "The same with attention counted without its causal mask")                \
  F(std::optional<Provenance>, flops_provenance, "", "counted (from recorded shapes) or formula (from the model)")     \
  F(OptDouble, flop_coverage_frac, "frac", "Share of GEMM, convolution and attention time whose shapes are recorded")  \
  F(OptDouble, gemm_flops, "FLOP", "Part of the arithmetic that GEMMs with recorded shapes do")                        \
  F(OptDouble, gemm_mfu, "frac", "Those GEMMs at data sheet peak, as a share of that time: MFU is at least this")      \
  F(OptDouble, gemm_coverage_frac, "frac", "Share of GEMM time whose shapes are recorded")                             \
  F(OptText, dtype, "", "Element type of most of the arithmetic")                                                      \
  F(OptDouble, dram_bytes_model, "bytes", "Least traffic: operands of GEMMs, attention and gathers once per call")     \
  F(OptDouble, weight_bytes, "bytes", "Part of dram_bytes_model that is weights")                                      \
  F(OptDouble, kv_bytes, "bytes", "Part of dram_bytes_model that is keys and values")                                  \
  F(OptDouble, dram_bytes_measured, "bytes", "Memory traffic by hardware counter, where it covers 90 % of wall")       \
  F(OptDouble, dram_measured_over_model, "", "dram_bytes_measured / dram_bytes_model")                                 \
  F(OptDouble, tensor_cycles, "cycles", "Cycles in which the tensor pipe was active, all SMs, by hardware counter")    \
  F(OptDouble, fma_instructions, "", "Warp instructions of the FMA pipes, by hardware counter (deep mode)")            \
  F(OptDouble, tensor_flops_measured, "FLOP", "At most: tensor_cycles at the full rate of the fastest element type")   \
  F(OptDouble, fma_flops_measured, "FLOP", "At most: 32 multiply-adds an FMA instruction, 64 on packed halves")        \
  F(OptDouble, flops_measured, "FLOP", "At most executed, tile padding included: tensor_flops + fma_flops_measured")   \
  F(OptDouble, flops_measured_over_flops, "", "flops_measured / flops: at least 1 if the shapes are right")            \
  F(OptDouble, tflops, "TFLOP/s", "flops / own_ms, else / wall_ms")                                                    \
  F(OptDouble, mfu, "frac", "Arithmetic at data sheet peak of its type, as a share of own_ms, else of wall_ms")        \
  F(OptDouble, mfu_at_clock, "frac", "The same at the peak of the SM clock seen")                                      \
  F(OptDouble, mfu_at_least, "frac", "Where mfu is unknown: that of flop_coverage_frac of the arithmetic alone")       \
  F(OptDouble, mbu, "frac", "Weights touched and KV read at data sheet bandwidth, as a share of own_ms, else wall_ms") \
  F(OptDouble, mbu_at_least, "frac", "Where mbu is unknown: that of the operands with recorded shapes alone")          \
  F(OptDouble, intensity, "FLOP/byte", "flops / dram_bytes_model")                                                     \
  F(OptDouble, roof_tflops, "TFLOP/s", "Attainable: min(peak, intensity x bandwidth)")                                 \
  F(OptDouble, of_roof_frac, "frac", "tflops / roof_tflops")                                                           \
  F(OptDouble, tensor_active_frac, "frac", "Tensor pipe active, by hardware counter")                                  \
  F(OptDouble, sm_active_frac, "frac", "SMs active, by hardware counter")                                              \
  F(OptDouble, dram_frac, "frac", "Memory interface active, by hardware counter")                                      \
  F(OptDouble, l2_hit_frac, "frac", "L2 hit rate while SMs were active, by hardware counter")                          \
  F(OptDouble, gr_active_frac, "frac", "Compute engine active, by hardware counter")                                   \
  F(OptText, counter_source, "", "pm-sampling, gpm or dcgm")                                                           \
  F(OptInt, counter_samples, "", "Counter samples that overlap the instances")                                         \
  F(OptDouble, counter_coverage_frac, "frac", "Share of wall that those samples cover")                                \
  F(OptDouble, sm_clock_mhz, "MHz", "Median SM clock in the instances")                                                \
  F(OptDouble, power_w, "W", "Mean board power in the instances")                                                      \
  F(OptBound, bound, "",                                                                                               \
    "compute, memory, overhead, sync, copy, comm, mixed: what most of that time goes to, if known")                    \
  F(OptDouble, bound_frac, "frac", "Share of that time that the bound explains")                                       \
  F(OptText, bound_detail, "", "The bound in words")                                                                   \
  F(OptDouble, energy_j, "J", "Energy of the instances, where they last 2 s or more: the sensor is slow")              \
  F(OptDouble, energy_per_token_j, "J", "energy_j / output_tokens, or / tokens where none is known")
LLMPROF_RECORD(StageTiming, "stages", "Time, work and distance from the hardware's limit per stage",
               LLMPROF_STAGE_TIMING_FIELDS)

#define LLMPROF_STAGE_STEP_FIELDS(F)                                                                               \
  F(std::string, stage, "", "Stage, as its row of `stages` is named")                                              \
  F(int64_t, device, "", "CUDA device ordinal")                                                                    \
  F(int64_t, steps, "", "Steps of that row")                                                                       \
  F(int64_t, recorded_steps, "",                                                                                   \
    "Of them, recorded from begin to end: what the figures below, GPU busy and idle of `stages` are of")           \
  F(int64_t, all_steps, "", "Steps of the stage in the run, recorded or not, without warm-up")                     \
  F(double, step_p50_ms, "ms", "Median of the steps' lengths, as recorded; of all `steps` where none is recorded") \
  F(double, step_mean_ms, "ms", "Their mean")                                                                      \
  F(OptDouble, gpu_busy_p50_ms, "ms", "Median of the time of a step in which a stream was busy, overlap once")     \
  F(OptDouble, gpu_busy_mean_ms, "ms", "Its mean")                                                                 \
  F(OptDouble, gpu_idle_p50_ms, "ms", "Median of the idle time of a step")                                         \
  F(OptDouble, gpu_idle_mean_ms, "ms", "Its mean")                                                                 \
  F(OptDouble, kernels_p50_ms, "ms", "Median over steps of the sum of kernel durations, overlap counted twice")    \
  F(OptDouble, kernels_mean_ms, "ms", "Its mean")                                                                  \
  F(OptDouble, copies_p50_ms, "ms", "The same of copies and memsets")                                              \
  F(OptDouble, copies_mean_ms, "ms", "Its mean")
LLMPROF_RECORD(StageStepRecord, "stage_steps", "A step of each stage: medians and means over its recorded steps",
               LLMPROF_STAGE_STEP_FIELDS)

#define LLMPROF_OPERATOR_FIELDS(F)                                                                                    \
  F(std::string, name, "", "Operator")                                                                                \
  F(std::string, stage, "", "Stage in whose host interval the calls started")                                         \
  F(int64_t, calls, "", "Calls")                                                                                      \
  F(int64_t, top_level_calls, "", "Calls not made by another operator")                                               \
  F(Milliseconds, cpu_total_ms, "ms", "Host time, enclosed operators included; a call inside itself is counted once") \
  F(Milliseconds, cpu_self_ms, "ms", "Host time without enclosed operators")                                          \
  F(Milliseconds, gpu_total_ms, "ms", "GPU time of everything launched inside")                                       \
  F(Milliseconds, gpu_self_ms, "ms", "GPU time launched by the operator itself, not by enclosed ones")                \
  F(OptDouble, gpu_mean_ms, "ms", "gpu_total_ms / calls")                                                             \
  F(OptText, shapes, "", "Input dimensions of the most frequent call")                                                \
  F(int64_t, shape_count, "", "Distinct input descriptions among the calls")                                          \
  F(OptDouble, flops, "FLOP", "Arithmetic launched by the operator itself")                                           \
  F(OptDouble, memory_bytes, "bytes", "Least traffic of that arithmetic")
LLMPROF_RECORD(OperatorRecord, "operators", "Framework operators by name and stage", LLMPROF_OPERATOR_FIELDS)

#define LLMPROF_KERNEL_FIELDS(F)                                                                                       \
  F(std::string, name, "", "Kernel, or kind of copy")                                                                  \
  F(std::string, category, "", "What it is for")                                                                       \
  F(std::string, stage, "", "Stage")                                                                                   \
  F(int64_t, device, "", "CUDA device ordinal")                                                                        \
  F(int64_t, calls, "", "Times it ran")                                                                                \
  F(Milliseconds, total_ms, "ms", "Sum of durations")                                                                  \
  F(double, mean_ms, "ms", "total_ms / calls")                                                                         \
  F(Milliseconds, min_ms, "ms", "Shortest")                                                                            \
  F(double, p50_ms, "ms", "Median")                                                                                    \
  F(Milliseconds, max_ms, "ms", "Longest")                                                                             \
  F(double, share, "frac", "Part of the GPU time of the whole recording")                                              \
  F(OptText, grid, "", "Grid, x*y*z")                                                                                  \
  F(OptText, block, "", "Block, x*y*z")                                                                                \
  F(OptText, shape, "", "Arithmetic shape from the operator that launched it")                                         \
  F(OptText, dtype, "", "Element type of the arithmetic")                                                              \
  F(OptDouble, flops, "FLOP", "Arithmetic of all calls")                                                               \
  F(OptDouble, bytes, "bytes", "Least traffic of all calls: operands read, results written; copies: docs/formulas.md") \
  F(OptDouble, tflops, "TFLOP/s", "flops / total_ms")                                                                  \
  F(OptDouble, gbs, "GB/s", "bytes / total_ms")                                                                        \
  F(OptDouble, intensity, "FLOP/byte", "flops / bytes")                                                                \
  F(OptBound, bound, "", "compute or memory by intensity; latency if far from either roof")                            \
  F(OptDouble, of_roof_frac, "frac", "Least time (arithmetic, memory, cache, or a copy's link) over time taken")       \
  F(OptDouble, occupancy_frac, "frac", "Warps that fit on an SM or that the grid has for it, over the most it holds")  \
  F(std::optional<Provenance>, occupancy_provenance, "",                                                               \
    "recorded, or computed from registers, shared memory, block and grid; never measured")                             \
  F(OptDouble, theoretical_occupancy_frac, "frac", "The same for a grid of any size: CUDA's occupancy calculation")    \
  F(OptInt, registers_per_thread, "", "Registers per thread")                                                          \
  F(OptInt, shared_bytes, "bytes", "Shared memory per block")                                                          \
  F(OptDouble, dram_bytes_per_s_measured, "bytes/s", "Memory traffic by hardware counter, over many instances")        \
  F(OptDouble, tensor_active_frac, "frac", "Tensor pipe active by hardware counter, over many instances")              \
  F(OptInt, counter_samples, "", "Counter samples that lie in instances of this kernel alone; at least 5")             \
  F(Provenance, provenance, "", "measured times; counted if shapes give the arithmetic as well")
LLMPROF_RECORD(KernelRecord, "kernels", "GPU activities grouped by name, launch, shape and stage",
               LLMPROF_KERNEL_FIELDS)

#define LLMPROF_CATEGORY_FIELDS(F)                                                                    \
  F(std::string, category, "", "What the GPU time was for")                                           \
  F(std::string, stage, "", "Stage")                                                                  \
  F(int64_t, device, "", "CUDA device ordinal")                                                       \
  F(int64_t, kernels, "", "Kernels, copies and memsets")                                              \
  F(Milliseconds, time_ms, "ms", "Sum of durations")                                                  \
  F(double, share, "frac", "Part of the GPU time of the stage")                                       \
  F(OptDouble, wall_share, "frac", "Part of the stage's recorded wall time")                          \
  F(double, mean_us, "us", "Mean duration")                                                           \
  F(OptDouble, flops, "FLOP", "Arithmetic, where recorded shapes give it")                            \
  F(OptDouble, bytes, "bytes", "Least traffic, where recorded shapes give it")                        \
  F(OptDouble, of_roof_frac, "frac", "Time at the roof over time taken, of kernels with known shape") \
  F(OptBound, bottleneck, "", "compute, memory, latency (short kernels, or far from every roof), copy or comm")
LLMPROF_RECORD(CategoryRecord, "categories", "Where the GPU time goes: operation, time, share, bottleneck",
               LLMPROF_CATEGORY_FIELDS)

#define LLMPROF_ROOFLINE_FIELDS(F)                                                                            \
  F(std::string, name, "", "Kernel")                                                                          \
  F(std::string, category, "", "What it is for")                                                              \
  F(std::string, stage, "", "Stage")                                                                          \
  F(std::string, shape, "", "Arithmetic shape")                                                               \
  F(std::string, dtype, "", "Element type of the arithmetic")                                                 \
  F(int64_t, calls, "", "Times it ran")                                                                       \
  F(Milliseconds, total_ms, "ms", "Sum of durations")                                                         \
  F(double, flops, "FLOP", "Arithmetic of one call")                                                          \
  F(double, bytes, "bytes", "Least traffic of one call; of Nsight Compute: counted")                          \
  F(double, intensity, "FLOP/byte", "flops / bytes")                                                          \
  F(double, tflops, "TFLOP/s", "Reached")                                                                     \
  F(double, gbs, "GB/s", "Reached; above the memory's bandwidth where operands come from L2")                 \
  F(OptDouble, peak_tflops, "TFLOP/s", "Peak of the type: measured where known, else the data sheet's")       \
  F(OptDouble, peak_gbs, "GB/s", "Bandwidth of what the operands come from: memory, cache, or a copy's link") \
  F(OptDouble, ridge, "FLOP/byte", "peak_tflops / peak_gbs: above it arithmetic limits, below it memory")     \
  F(OptDouble, attainable_tflops, "TFLOP/s", "flops over the least time: min(peak, intensity x bandwidth)")   \
  F(OptDouble, of_roof_frac, "frac", "tflops / attainable_tflops (for gathers: of the bandwidth)")            \
  F(OptBound, bound, "", "compute or memory by intensity; latency if far from either roof")                   \
  F(OptDouble, gain_ms, "ms", "Time that would be saved at the roof: an upper bound for tuning this kernel")
LLMPROF_RECORD(RooflineRecord, "roofline", "Kernels with known arithmetic against the roofline",
               LLMPROF_ROOFLINE_FIELDS)

#define LLMPROF_ALLOCATION_FIELDS(F)                                                   \
  F(std::string, name, "", "Innermost operator; of a snapshot Python code; or [none]") \
  F(int64_t, allocations, "", "Blocks allocated")                                      \
  F(double, bytes, "bytes", "Bytes allocated, reused ones counted every time")
LLMPROF_RECORD(AllocationRecord, "memory_operators", "Operators by device memory allocated", LLMPROF_ALLOCATION_FIELDS)

#define LLMPROF_MEMORY_POINT_FIELDS(F)                           \
  F(double, time_ms, "ms", "Since the start of the recording")   \
  F(OptDouble, allocated_bytes, "bytes", "In use by tensors")    \
  F(OptDouble, reserved_bytes, "bytes", "Held by the allocator") \
  F(std::string, stage, "", "Stage on the host at that time")
LLMPROF_RECORD(MemoryPoint, "memory", "Device memory over time, thinned out; extremes kept",
               LLMPROF_MEMORY_POINT_FIELDS)

#define LLMPROF_CANNOT_TELL_FIELDS(F)                     \
  F(std::string, question, "", "What cannot be answered") \
  F(std::string, why, "", "Which data is missing")        \
  F(std::string, how_to_find_out, "", "What to record or to pass")
LLMPROF_RECORD(CannotTell, "cannot_tell", "What this recording does not answer", LLMPROF_CANNOT_TELL_FIELDS)

#define LLMPROF_DIAGNOSTIC_FIELDS(F)                                     \
  F(DiagnosticId, key, "", "Stable key, see `llmprof list diagnostics`") \
  F(Severity, severity, "", "info, notice, data-loss or error")          \
  F(int64_t, count, "", "Times it happened")                             \
  F(std::string, text, "", "What it means, with the first places it was seen")
LLMPROF_RECORD(DiagnosticRecord, "diagnostics", "Anomalies met while reading", LLMPROF_DIAGNOSTIC_FIELDS)

#define LLMPROF_CHECK_FIELDS(F)                \
  F(std::string, name, "", "What must add up") \
  F(double, expected, "", "One side, in unit") \
  F(double, actual, "", "The other side")      \
  F(std::string, unit, "", "ns or rows")       \
  F(bool, ok, "", "Equal, exactly")
LLMPROF_RECORD(ConservationCheck, "conservation", "Totals that must add up exactly", LLMPROF_CHECK_FIELDS)

#define LLMPROF_COVERAGE_FIELDS(F)            \
  F(std::string, name, "", "What is covered") \
  F(OptDouble, frac, "frac", "Share covered") \
  F(std::string, text, "", "Share of what, and what lies outside")
LLMPROF_RECORD(CoverageRecord, "coverage", "How much of the recording the answers rest on", LLMPROF_COVERAGE_FIELDS)

#define LLMPROF_THROTTLE_FIELDS(F)                                                                                    \
  F(ThrottleReason, reason, "", "power-cap, thermal-software, thermal-hardware, power-brake, sync-boost or hardware") \
  F(double, frac, "frac", "Share of the window in which it held the clock down")                                      \
  F(std::string, source, "", "counter: from the driver's cumulative time; samples: share of readings that showed it")
LLMPROF_RECORD(ThrottleRecord, "throttle", "Why the GPU's clock was held down, and for how long",
               LLMPROF_THROTTLE_FIELDS)

#define LLMPROF_TELEMETRY_POINT_FIELDS(F)                                              \
  F(double, time_ms, "ms", "Since the start of the recording, middle of the interval") \
  F(OptDouble, power_w, "W", "Board power")                                            \
  F(OptDouble, sm_clock_mhz, "MHz", "SM clock")                                        \
  F(OptDouble, temperature_c, "C", "GPU temperature")                                  \
  F(OptDouble, memory_used_bytes, "bytes", "Device memory in use, all processes")      \
  F(OptDouble, gr_active_frac, "frac", "Compute engine active")                        \
  F(OptDouble, sm_active_frac, "frac", "SMs active")                                   \
  F(OptDouble, tensor_active_frac, "frac", "Tensor pipe active")                       \
  F(OptDouble, dram_frac, "frac", "Memory interface active")
LLMPROF_RECORD(TelemetryPoint, "telemetry",
               "Power, clock, temperature and counters over time, means of equal intervals",
               LLMPROF_TELEMETRY_POINT_FIELDS)

// ---- single objects ------------------------------------------------------------------------------------------------

// One ceiling of the device. measured: what `llmprof peaks` reached. Where there is no data sheet, value is the
// measured one too, and its provenance says so.
#define LLMPROF_PEAK_FIELDS(F)                                                      \
  F(double, value, "", "In the unit that its name ends with")                       \
  F(std::string, provenance, "", "Where in the data sheet, or that it is measured") \
  F(OptDouble, at_clock, "", "Scaled to the SM clock seen")                         \
  F(IfKnown<double>, measured, "", "What llmprof peaks reached, in the same unit")  \
  F(IfKnown<std::string>, how, "", "With what and when")
LLMPROF_RECORD(PeakFields, "peaks", "Ceilings of the device: bf16_tflops, dram_gbs, ...", LLMPROF_PEAK_FIELDS)

struct Peak : PeakFields {
  enum class Of : uint8_t { kArithmetic, kMemory, kLink } of = Of::kArithmetic;
  std::string type;       // of arithmetic
  bool integers = false;  // TOP/s
};

#define LLMPROF_CLOCK_RANGE_FIELDS(F) \
  F(double, min, "MHz", "Lowest")     \
  F(double, median, "MHz", "Median")  \
  F(double, max, "MHz", "Highest")
LLMPROF_RECORD(ClockRange, "clock", "The SM clock over the recorded window", LLMPROF_CLOCK_RANGE_FIELDS)

// What a link gives one way: measured where known, else the data sheet's.
struct LinkRate {
  OptDouble bytes_per_s;
  Provenance provenance = Provenance::kDatasheet;
};

#define LLMPROF_DEVICE_FIELDS(F)                                                                               \
  F(int64_t, device, "", "CUDA device ordinal")                                                                \
  F(std::string, name, "", "As recorded")                                                                      \
  F(OptText, sku, "", "Row of the hardware table; of a part of a GPU its profile stands behind it")            \
  F(IfKnown<std::string>, part_of, "", "Of a part of a divided GPU (MIG): uuid of the whole one")              \
  F(OptText, compute_capability, "", "Of a GPU")                                                               \
  F(OptInt, sm_count, "", "SMs; of a CPU threads")                                                             \
  F(OptDouble, memory_bytes, "bytes", "Device memory")                                                         \
  F(std::optional<ClockRange>, sm_clock_mhz, "MHz", "SM clock by hardware counter, else as NVML read it")      \
  F(Named<Peak>, peaks, "", "Ceilings by name, their unit last")                                               \
  F(OptText, arithmetic, "", "Element type that has half of the time of matrix products; unknown if none has") \
  F(OptDouble, ridge, "FLOP/byte", "Intensity from which arithmetic of that type is the roof")                 \
  F(IfKnown<std::string>, measured_by, "", "Whose measured ceilings are used: llmprof peaks, day and driver")  \
  F(std::vector<std::string>, remarks, "", "Doubtful values and the like")
LLMPROF_RECORD(DeviceFields, "device", "The device with most of the work", LLMPROF_DEVICE_FIELDS)

struct DeviceReport : DeviceFields {
  bool cpu = false;  // the program ran its model on the CPU: host and device are one, and SMs are threads
  // The ceilings for look-up: FLOP/s per element type and bytes/s; empty where unknown.
  std::array<OptDouble, static_cast<size_t>(DType::kCount)> flops_per_s;
  OptDouble bytes_per_s;
  // What was measured (hardware/measured.h): library products per element type, the best of the memory kernels.
  std::array<OptDouble, static_cast<size_t>(DType::kCount)> measured_flops_per_s;
  OptDouble measured_bytes_per_s;
  bool measured_disturbed = false;                // some of it while other programs had cores: perhaps too low
  MeasuredRates measured_bandwidths;              // MeasuredCeilings::bandwidth_gbs
  RecorderCosts recorder_ns;                      // MeasuredCeilings::recorder_ns
  LinkRate host_to_device, device_to_host, peer;  // of copies; peer: to another GPU
  OptDouble cache_bytes;                          // of the last-level cache
  bool other_part = false;                        // --gpu: what was recorded ran on something else
  OptDouble clock_scale;                          // SM clock seen over the clock of the data sheet's peaks
  OptDouble peak_clock_mhz;                       // the latter
  OptDouble boost_mhz, tdp_w;                     // data sheet
  // What our own words call it. Names of the recording are never changed.
  const char* processor() const { return cpu ? "CPU" : "GPU"; }
  const char* units() const { return cpu ? "threads" : "SMs"; }
  // MFU and MBU are shares of these: the data sheet's where there is one.
  OptDouble peak_of(DType dtype) const { return flops_per_s[static_cast<size_t>(dtype)]; }
  // The roof that kernels are held against: measured where known.
  OptDouble roof_of(DType dtype) const {
    const OptDouble& most = measured_flops_per_s[static_cast<size_t>(dtype)];
    return most ? most : peak_of(dtype);
  }
  OptDouble roof_bytes_per_s() const { return measured_bytes_per_s ? measured_bytes_per_s : bytes_per_s; }
  Provenance roof_provenance() const { return measured_by ? Provenance::kMeasured : Provenance::kDatasheet; }
  // Of the bandwidth that kernels are held against.
  Provenance bandwidth_provenance() const {
    return measured_bytes_per_s ? Provenance::kMeasured : Provenance::kDatasheet;
  }
  // Whose peaks MFU and MBU are shares of, to say "of the data sheet's peak".
  const char* peak_source() const { return sku ? "data sheet's" : "measured"; }
};

#define LLMPROF_MODEL_SUMMARY_FIELDS(F)                          \
  F(std::string, id, "", "Of the model table, or of its config") \
  F(ModelOrigin, origin, "", "given or recognised")              \
  F(std::string, evidence, "", "Why it is taken to be this one") \
  F(OptDouble, params, "", "Parameters")                         \
  F(OptText, dtype, "", "Number format of the weights")          \
  F(OptDouble, weight_bytes, "bytes", "All weights")             \
  F(OptDouble, kv_bytes_per_token, "bytes", "Keys and values of one token, all layers")
LLMPROF_RECORD(ModelSummary, "model", "The model that the recording shows", LLMPROF_MODEL_SUMMARY_FIELDS)

#define LLMPROF_MEMORY_FIELDS(F)                                                                \
  F(OptDouble, peak_allocated_bytes, "bytes", "Most that tensors used")                         \
  F(OptDouble, peak_reserved_bytes, "bytes", "Most that the allocator held")                    \
  F(OptDouble, capacity_bytes, "bytes", "Of the device")                                        \
  F(OptDouble, peak_time_ms, "ms", "When most was allocated, since the start of the recording") \
  F(OptText, peak_stage, "", "Stage on the host at that time")                                  \
  F(int64_t, events, "", "Allocations and frees recorded")                                      \
  F(int64_t, allocations, "", "Blocks allocated")                                               \
  F(int64_t, frees, "", "Blocks freed")                                                         \
  F(std::vector<AllocationRecord>, operators, "", "Who allocated most")                         \
  F(std::vector<MemoryPoint>, series, "", "Over time")
LLMPROF_RECORD(MemoryReport, "device_memory", "Device memory by recorded allocations", LLMPROF_MEMORY_FIELDS)

using OptSummary = std::optional<Summary>;

#define LLMPROF_TELEMETRY_FIELDS(F)                                                                     \
  F(int64_t, device, "", "CUDA device ordinal")                                                         \
  F(Milliseconds, window_ms, "ms", "The recorded window of that device")                                \
  F(int64_t, nvml_samples, "", "Readings of the driver")                                                \
  F(int64_t, counter_samples, "", "Samples of hardware counters")                                       \
  F(OptText, counter_source, "", "pm-sampling, gpm or dcgm")                                            \
  F(OptDouble, counter_interval_us, "us", "Between two samples")                                        \
  F(OptDouble, counter_coverage_frac, "frac", "Share of the window that they cover")                    \
  F(OptDouble, gr_active_frac, "frac", "Mean over the window: compute engine active, by counter")       \
  F(OptDouble, sm_active_frac, "frac", "The same of SMs with work")                                     \
  F(OptDouble, tensor_active_frac, "frac", "The same of the tensor pipe")                               \
  F(OptDouble, dram_frac, "frac", "The same of the memory interface")                                   \
  F(OptDouble, counter_clock_offset_us, "us", "Kernel times minus counter times where they agree best") \
  F(OptSummary, power_w, "W", "Board power")                                                            \
  F(OptDouble, power_limit_w, "W", "Its limit, as the driver said it when recording began")             \
  F(OptSummary, sm_clock_mhz, "MHz", "SM clock")                                                        \
  F(OptText, sm_clock_source, "", "pm-sampling or nvml")                                                \
  F(OptSummary, memory_clock_mhz, "MHz", "Memory clock")                                                \
  F(OptSummary, temperature_c, "C", "GPU temperature")                                                  \
  F(OptSummary, memory_temperature_c, "C", "Memory temperature")                                        \
  F(OptDouble, gpu_util_frac, "frac", "Mean of the driver's figure: any kernel ran")                    \
  F(OptDouble, energy_j, "J", "Over the window")                                                        \
  F(OptDouble, energy_per_token_j, "J", "energy_j / tokens produced")                                   \
  F(OptDouble, memory_used_peak_bytes, "bytes", "Most device memory in use, all processes")             \
  F(OptDouble, pcie_rx_bytes_per_s, "bytes/s", "Mean")                                                  \
  F(OptDouble, pcie_tx_bytes_per_s, "bytes/s", "Mean")                                                  \
  F(OptDouble, nvlink_rx_bytes_per_s, "bytes/s", "Mean")                                                \
  F(OptDouble, nvlink_tx_bytes_per_s, "bytes/s", "Mean")                                                \
  F(std::vector<ThrottleRecord>, throttle, "", "Why the clock was held down")                           \
  F(std::vector<TelemetryPoint>, series, "", "Over time")
LLMPROF_RECORD(TelemetryReport, "readings", "Readings beside the program, over the window of one device",
               LLMPROF_TELEMETRY_FIELDS)

#define LLMPROF_SOURCE_FIELDS(F)                                                                                     \
  F(std::string, kind, "", "kineto, capture, llmprof, ...")                                                          \
  F(std::vector<std::string>, files, "", "As they were named")                                                       \
  F(OptText, recording, "", "Of them that on whose clock all times are, of ranks the first; none without a program") \
  F(OptInt, start_unix_ns, "ns", "Start of the recorded windows")                                                    \
  F(Milliseconds, duration_ms, "ms", "From the first to the last recorded event of the windows")                     \
  F(Milliseconds, recorded_ms, "ms", "Part of it in which the kernels of the reported device were recorded")
LLMPROF_RECORD(SourceReport, "source", "The recording", LLMPROF_SOURCE_FIELDS)

#define LLMPROF_REPORT_FIELDS(F)                                                                                \
  F(std::string, tool_version, "", "Version of llmprof")                                                        \
  F(SourceReport, source, "", "The recording")                                                                  \
  F(std::optional<DeviceReport>, device, "", "The one with most GPU time; rows of stages have the ordinal")     \
  F(std::optional<ModelSummary>, model, "", "Given or recognised")                                              \
  F(std::optional<Latency>, latency, "", "TTFT, TPOT and ITL")                                                  \
  F(std::vector<StageTiming>, stages, "", "Per stage")                                                          \
  F(IfAny<std::vector<RankRecord>>, ranks, "", "Of recordings of several ranks; left out without")              \
  F(IfAny<std::vector<JoinedCollectiveRecord>>, joined_collectives, "", "Of the same; left out without")        \
  F(std::vector<StageStepRecord>, stage_steps, "", "A step of each stage: medians and means")                   \
  F(IfAny<std::vector<WarmUpRecord>>, warm_up, "", "Steps that are in no other figure; left out without")       \
  F(std::vector<OperatorRecord>, operators, "", "Per framework operator")                                       \
  F(std::vector<KernelRecord>, kernels_topk, "", "The most expensive kernels")                                  \
  F(std::vector<CategoryRecord>, categories, "", "Where the GPU time goes")                                     \
  F(std::vector<RooflineRecord>, roofline, "", "Kernels against the roofline")                                  \
  F(IfAny<std::vector<ProfiledKernelRecord>>, profiled_kernels, "", "Of Nsight Compute; left out without it")   \
  F(IfAny<std::vector<KernelStallRecord>>, kernel_stalls, "", "Of the same; left out without it")               \
  F(IfAny<std::vector<LoggedProductRecord>>, logged_products, "", "Of cuBLAS's logs; left out without them")    \
  F(IfAny<std::vector<ClientRunRecord>>, client_runs, "", "Of benchmarks of a server; left out without them")   \
  F(IfAny<std::vector<ClientClockRecord>>, client_clocks, "", "Beside a recording; left out without one")       \
  F(IfAny<std::vector<ClientStageRecord>>, client_stages, "", "Of the same; left out where nothing is split")   \
  F(IfAny<std::vector<ServerFigureRecord>>, server_figures, "", "Of metrics pages; left out without them")      \
  F(IfAny<std::vector<ServerDistributionRecord>>, server_distributions, "", "Of the same; left out without")    \
  F(IfAny<std::vector<MetricsPageRecord>>, metrics_pages, "", "Of the same; left out without")                  \
  F(IfAny<std::vector<NcclRankRecord>>, nccl_ranks, "", "Of NCCL's log; left out without it")                   \
  F(IfAny<std::vector<NcclLinkRecord>>, nccl_links, "", "Of the same; left out without it")                     \
  F(IfAny<std::vector<NcclCollectiveRecord>>, nccl_collectives, "", "Of the same; left out without it")         \
  F(IfAny<std::vector<NcclChoiceRecord>>, nccl_choices, "", "Of the same; left out without it")                 \
  F(IfAny<std::vector<NcclWarningRecord>>, nccl_warnings, "", "Of the same; left out without it")               \
  F(IfAny<std::vector<NcclOperationRecord>>, nccl_operations, "", "Of NCCL's Inspector; left out without it")   \
  F(IfAny<std::vector<EngineLatencyRecord>>, engine_latency, "", "Of TensorRT's trtexec; left out without it")  \
  F(IfAny<std::vector<EngineProfileRecord>>, engine_profiles, "", "Of the same; left out without it")           \
  F(IfAny<std::vector<EngineLayerRecord>>, engine_layers, "", "Of the same; left out without it")               \
  F(IfAny<std::vector<ProtonProfileRecord>>, proton_profiles, "", "Of Triton's Proton; left out without it")    \
  F(IfAny<std::vector<ProtonGpuRecord>>, proton_gpus, "", "Of the same; left out without it")                   \
  F(IfAny<std::vector<ProtonScopeRecord>>, proton_scopes, "", "Of the same; left out without it")               \
  F(IfAny<std::vector<ProtonKernelRecord>>, proton_kernels, "", "Of the same; left out without it")             \
  F(IfAny<std::vector<ProtonMetricRecord>>, proton_metrics, "", "Of the same; left out without it")             \
  F(IfAny<std::vector<JoinedFileRecord>>, joined_files, "", "Left out where nothing was joined")                \
  F(std::vector<LaunchSiteRecord>, launch_sites, "", "Empty but for deep recordings")                           \
  F(std::vector<IdleRecord>, idle, "", "GPU idle time by cause")                                                \
  F(std::vector<IdleSiteRecord>, idle_sites, "", "Where the host was meanwhile")                                \
  F(std::vector<RecordedWindowRecord>, recorded, "", "How much was recorded, over time")                        \
  F(std::vector<UndisturbedRecord>, undisturbed, "", "Step times without the recorder")                         \
  F(std::vector<StepRecord>, steps, "", "Every step")                                                           \
  F(std::vector<CriticalPathRecord>, critical_path, "", "What a step's time consists of")                       \
  F(std::vector<CriticalPathWorkRecord>, critical_path_work, "", "Its GPU work by category")                    \
  F(IfAny<std::vector<WhatIfRecord>>, what_ifs, "", "Of --what-if; left out without it")                        \
  F(std::vector<HostRecord>, host, "", "Host time against GPU time")                                            \
  F(IfAny<std::vector<HostPlaceRecord>>, host_places, "", "Python code; left out where none was seen")          \
  F(IfAny<std::vector<LaunchPlaceRecord>>, launch_places, "", "GPU time by code; left out where none was seen") \
  F(IfAny<std::vector<HostPaceRecord>>, host_pace, "", "How fast its CPU was; left out where nothing tells")    \
  F(std::optional<TelemetryReport>, telemetry, "", "Readings beside the program")                               \
  F(std::optional<MemoryReport>, memory, "", "Device memory")                                                   \
  F(IfAny<std::vector<AllocatorRecord>>, allocators, "", "Of snapshots of PyTorch's memory; left out without")  \
  F(IfAny<std::vector<MemoryPlaceRecord>>, memory_places, "", "Of the same; left out without")                  \
  F(IfAny<std::vector<LargestBlockRecord>>, largest_blocks, "", "Of the same; left out without")                \
  F(IfAny<std::vector<MemoryRangeRecord>>, memory_ranges, "", "Of the same; left out without")                  \
  F(IfAny<std::vector<MemoryFailureRecord>>, out_of_memory, "", "Of the same; left out without")                \
  F(std::optional<OverheadReport>, overhead, "", "What recording cost")                                         \
  F(std::vector<Finding>, findings, "", "The most important first")                                             \
  F(std::vector<CannotTell>, cannot_tell, "", "What this recording does not answer")                            \
  F(std::vector<DiagnosticRecord>, diagnostics, "", "Anomalies met while reading")                              \
  F(std::vector<ConservationCheck>, conservation, "", "Totals that must add up")                                \
  F(std::vector<CoverageRecord>, coverage, "", "What the answers rest on")
LLMPROF_RECORD(ReportFields, "report", "What a recording shows", LLMPROF_REPORT_FIELDS)

struct Report : ReportFields {
  // Made, copied and destroyed in report.cc, not in every file that holds one.
  Report();
  Report(const Report& other);
  Report(Report&& other) noexcept;
  Report& operator=(const Report& other);
  Report& operator=(Report&& other) noexcept;
  ~Report();

  std::vector<std::string> why_no_latency;  // of cannot_tell, what stands in the place of latency
  std::vector<StageMark> stage_marks;       // parallel to stages

  // Of an element of `stages`.
  StageMark mark_of(const StageTiming& stage) const {
    const size_t row = static_cast<size_t>(&stage - stages.data());
    return row < stage_marks.size() ? stage_marks[row] : StageMark();
  }
};

}  // namespace llmprof
