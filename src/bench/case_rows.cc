#include "bench/case_rows.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/data_sheet.h"
#include "bench/fit.h"
#include "bench/peak_rows.h"
#include "hardware/roofline.h"

namespace llmprof::bench {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

std::string_view check_name(kernels::CheckStatus status) {
  switch (status) {
    case kernels::CheckStatus::kPassed:
      return "passed";
    case kernels::CheckStatus::kMistrusted:
      return "mistrusted";
    case kernels::CheckStatus::kFailed:
      return "failed";
    case kernels::CheckStatus::kSkipped:
      break;
  }
  return "skipped";
}

// The type whose arithmetic does the work: the inputs' on matrix units, else FP32, in which row operators compute.
std::string arithmetic_type(const CaseResult& result) {
  const bool own = result.cost.matrix || result.cost.bytes() <= 0 || result.params.dtype == DType::kFp64;
  return std::string(dtype_name(own ? result.params.dtype : DType::kFp32));
}

OptNumber rate_of(const std::map<std::string, MeasuredRate>& rates, const std::string& name) {
  const std::map<std::string, MeasuredRate>::const_iterator found = rates.find(name);
  return found != rates.end() ? OptNumber(found->second.value) : std::nullopt;
}

// TFLOP/s: matrix products are held against the library's best, other arithmetic against the units' own.
OptNumber measured_tflops(const CaseResult& result, const MeasuredCeilings& measured) {
  const std::string type = arithmetic_type(result);
  const OptNumber library = rate_of(measured.library_tflops, type), units = rate_of(measured.unit_tflops, type);
  if (result.cost.matrix) return library;
  return units ? units : library;
}

// Copies over a link are held against the link, where peaks measured it.
void place_copy(const CaseResult& result, const Ceilings& ceilings, CaseRow& row) {
  row.bound = Bound::kCopy;
  if (!ceilings.measured) return;
  const OptNumber link = rate_of(ceilings.measured->bandwidth_gbs, result.params.variant);
  if (!link || !row.gbs) return;
  row.of_ceiling_frac = *row.gbs / *link;
  row.ceiling_kind = result.params.variant;
}

// Whether all sets of operands that executions go round over stay in the cache together: memory is no roof then. Cold
// executions begin without them there.
bool stays_in_cache(const CaseResult& result, const Ceilings& ceilings, const Timing& timing) {
  return timing.regime != Regime::kCold && ceilings.cache_bytes > 0 &&
         result.cost.bytes() * timing.sets <= static_cast<double>(ceilings.cache_bytes);
}

void place(const CaseResult& result, const Ceilings& ceilings, const Timing& timing, CaseRow& row) {
  const auto per_s = [](const OptNumber& rate, double unit) { return rate ? OptNumber(*rate * unit) : std::nullopt; };
  const double median_us = timing.summary.median;
  const bool cached = stays_in_cache(result, ceilings, timing);
  row.bound = Bound::kUnknown;
  if (ceilings.measured) {
    const double writes = result.cost.bytes() > 0 ? result.cost.write_bytes / result.cost.bytes() : 0;
    const OptNumber cache = rate_of(ceilings.measured->bandwidth_gbs, "cache_read");
    const OptNumber memory = cached ? cache : memory_ceiling_for(ceilings.measured->bandwidth_gbs, writes);
    // Products in a cache of unknown rate are held against arithmetic alone.
    const bool arithmetic_only = cached && !cache && result.cost.matrix;
    const RoofPoint point = place_on_roof(result.cost.flops, arithmetic_only ? 0 : result.cost.bytes(), median_us * 1e3,
                                          1, per_s(measured_tflops(result, *ceilings.measured), 1e12),
                                          arithmetic_only ? OptNumber(1.0) : per_s(memory, 1e9));
    if (point.roof_ns && *point.roof_ns > 0) {
      row.of_ceiling_frac = *point.roof_ns / (median_us * 1e3);
      row.ceiling_kind = point.compute_ns && *point.compute_ns > *point.memory_ns ? arithmetic_type(result)
                         : cached                                                 ? "cache"
                                  : fmt::format("memory, {:.0f} % writes", writes * 100);
      row.bound = point.bound;
    }
  }
  if (cached && !result.cost.matrix) return;
  const RoofPoint sheet = place_on_roof(result.cost.flops, cached ? 0 : result.cost.bytes(), median_us * 1e3, 1,
                                        per_s(sheet_tflops(ceilings.sheet, arithmetic_type(result)), 1e12),
                                        per_s(sheet_gbs(ceilings.sheet), 1e9));
  if (sheet.roof_ns && *sheet.roof_ns > 0) row.of_datasheet_frac = *sheet.roof_ns / (median_us * 1e3);
}

void fill_check(const kernels::Check& check, CaseRow& row) {
  row.check_status = check_name(check.status);
  row.check_compared = check.compared;
  if (check.compared == 0) return;
  row.check_worst_over_tolerance = check.worst_over_tolerance;
  row.check_rel_l2 = check.rel_l2;
}

// A share of more than all is one of a ceiling that is none.
void say_above_ceiling(const Ceilings& ceilings, CaseRow& row) {
  if (!row.of_ceiling_frac || std::llround(*row.of_ceiling_frac * 100) <= 100) return;
  row.note += fmt::format("{}{:.0f} % of the measured ceiling ({}), which is too low{}: repeat `llmprof peaks`",
                          row.note.empty() ? "" : "; ", *row.of_ceiling_frac * 100, row.ceiling_kind,
                          disturbed_remark(*ceilings.measured) ? " (measured while disturbed)" : "");
}

void fill_timing(const CaseResult& result, const Timing& timing, const Ceilings& ceilings, CaseRow& row) {
  const SampleSummary& s = timing.summary;
  row.regime = timing.regime;
  row.n = s.n;
  row.mean_us = s.mean;
  if (s.n > 1) row.stddev_us = s.stddev;
  row.median_us = s.median;
  row.min_us = s.min;
  row.q1_us = s.q1;
  row.q3_us = s.q3;
  row.max_us = s.max;
  row.p90_us = s.p90;
  row.p99_us = s.p99;
  row.iqr_frac = s.iqr_frac();
  row.launches_per_sample = timing.launches_per_sample;
  row.spread_frac = timing.spread_frac;
  row.sets = timing.sets;
  row.settled = timing.settled;
  row.backend = timing.backend;
  row.gap_to_first_frac = timing.gap_to_first_frac;
  for (const auto& [backend, us] : timing.compared)
    row.compared.value += fmt::format("{}{}: {:.4g}", row.compared.value.empty() ? "" : "; ", backend, us);
  row.choice_disturbed = timing.choice_disturbed;
  row.disturbed_us = timing.disturbed_us;
  fill_check(timing.check, row);
  row.drifting = timing.drifting;
  row.noise_frac = timing.noise_frac;
  row.wait_ratio = timing.wait_ratio;
  row.waited = timing.waited;
  row.unwaited_us = timing.unwaited_us;
  row.throttled = timing.throttled;
  row.sm_clock_mhz = timing.clock_mhz;
  row.power_w = timing.power_w;
  row.temperature_c = timing.temperature_c;
  row.throttle = throttle_text(timing);
  if (s.median <= 0) return;
  if (result.cost.flops > 0) row.tflops = result.cost.flops / s.median / 1e6;
  if (result.cost.bytes() > 0) row.gbs = result.cost.bytes() / s.median / 1e3;
  if (result.ceiling == kernels::Ceiling::kLink) {
    place_copy(result, ceilings, row);
  } else {
    place(result, ceilings, timing, row);
  }
  say_above_ceiling(ceilings, row);
}

CaseRow common_row(const CaseResult& result) {
  CaseRow row;
  row.name = result.operation;
  row.variant = result.params.variant;
  row.shape = shape_text(result.params);
  row.dtype = dtype_name(result.params.dtype);
  row.status = result.status;
  row.note = result.note;
  row.flops = result.cost.flops;
  row.bytes_read = result.cost.read_bytes;
  row.bytes_written = result.cost.write_bytes;
  row.bytes = result.cost.bytes();
  if (result.cost.bytes() > 0) row.intensity = result.cost.intensity();
  if (result.memory_bytes > 0) row.memory_mib = static_cast<double>(result.memory_bytes) / kMib;
  if (result.peak_memory_bytes > 0) row.peak_memory_mib = static_cast<double>(result.peak_memory_bytes) / kMib;
  fill_check(result.check, row);
  row.bound = Bound::kUnknown;
  if (!result.backend.empty()) {
    row.prepare_s = result.phases.prepare_s;
    row.check_s = result.phases.check_s;
    row.choose_s = result.phases.choose_s;
    row.settle_s = result.phases.settle_s;
    row.timing_s = result.phases.timing_s;
  }
  row.seed = static_cast<int64_t>(result.params.seed);
  row.repro = repro_line(result.operation, result.params);
  return row;
}

}  // namespace

std::vector<CaseRecord> records_of(const CaseResult& result, const Ceilings& ceilings) {
  std::vector<CaseRecord> out;
  for (const Timing& timing : result.timings) {
    out.push_back({common_row(result), timing.samples_us});
    fill_timing(result, timing, ceilings, out.back().row);
  }
  if (out.empty()) out.push_back({common_row(result), {}});
  return out;
}

std::string shape_text(const kernels::OpParams& params) {
  std::string out;
  for (const auto& [name, value] : params.axes) out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, value);
  return out;
}

std::string repro_line(const std::string& operation, const kernels::OpParams& params) {
  std::string out = "llmprof bench " + operation;
  for (const auto& [name, value] : params.axes) out += fmt::format(" {} {}", option_of(name), value);
  if (params.dtype != DType::kUnknown) out += fmt::format(" --dtype {}", dtype_name(params.dtype));
  if (!params.variant.empty()) out += " --variant " + params.variant;
  return out + fmt::format(" --seed {}", params.seed);
}

}  // namespace llmprof::bench
