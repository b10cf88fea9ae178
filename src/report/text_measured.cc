// What was measured beside the program: counters, clock, power and energy per stage, throttling, and the cost of
// recording.
#include <fmt/format.h>

#include <algorithm>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string gigabytes(const OptDouble& bytes, double count) {
  return bytes ? format_bytes(*bytes / std::max(1.0, count)) : "-";
}

std::string stage_rows(const Report& report, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"stage", Align::kLeft, 28},
                   {"DRAM/step", kRight, 0, 5},
                   {"of formula", kRight, 0, 6},
                   {"DRAM"},
                   {"tensor", kRight, 0, 1},
                   {"SM", kRight, 0, 8},
                   {"L2 hit", kRight, 0, 7},
                   {"clock", kRight, 0, 2},
                   {"MFU at it", kRight, 0, 4},
                   {"power", kRight, 0, 2},
                   {"J/token", kRight, 0, 3},
                   {"samples", kRight, 0, 9}});
  bool any = false;
  for (const StageTiming& stage : report.stages) {
    if (stage.count == 0 || (!stage.counter_samples && !stage.energy_j && !stage.sm_clock_mhz)) continue;
    any = true;
    table.add_row({stage_label(report, stage), gigabytes(stage.dram_bytes_measured, static_cast<double>(stage.count)),
                   percent_or_dash(stage.dram_measured_over_model), percent_or_dash(stage.dram_frac),
                   percent_or_dash(stage.tensor_active_frac), percent_or_dash(stage.sm_active_frac),
                   percent_or_dash(stage.l2_hit_frac),
                   stage.sm_clock_mhz ? fmt::format("{:.0f} MHz", *stage.sm_clock_mhz) : "-",
                   percent_or_dash(stage.mfu_at_clock), stage.power_w ? fmt::format("{:.0f} W", *stage.power_w) : "-",
                   stage.energy_per_token_j ? fmt::format("{:.3g}", *stage.energy_per_token_j) : "-",
                   stage.counter_samples ? format_count(static_cast<double>(*stage.counter_samples)) : "-"});
  }
  if (!any) return {};
  std::string note = "by hardware counter";
  const TelemetryReport& telemetry = *report.telemetry;
  if (telemetry.counter_source && telemetry.counter_interval_us)
    note += fmt::format(", {} every {}", *telemetry.counter_source, format_ms(*telemetry.counter_interval_us / 1e3));
  if (telemetry.counter_clock_offset_us)
    note += fmt::format(", clocks aligned by {:+.1f} us", *telemetry.counter_clock_offset_us);
  note += "; they see every process on the GPU";
  return ink.bold("Measured") + "  " + ink.dim(note) + "\n" + table.render("  ", options);
}

// What was executed at most, beside what the shapes ask for: only where the recording holds the counters of deep mode.
std::string arithmetic_rows(const Report& report, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"stage", Align::kLeft, 28},
                   {"tensor/step", kRight, 0, 1},
                   {"FMA pipes/step", kRight, 0, 2},
                   {"together", kRight, 0, 3},
                   {"of shapes or formula"}});
  bool any = false;
  for (const StageTiming& stage : report.stages) {
    if (stage.count == 0 || !stage.fma_flops_measured) continue;
    any = true;
    const auto per_step = [&stage](const OptDouble& flops) {
      return flops ? format_si(*flops / static_cast<double>(stage.count), "FLOP") : "-";
    };
    table.add_row({stage_label(report, stage), per_step(stage.tensor_flops_measured),
                   per_step(stage.fma_flops_measured), per_step(stage.flops_measured),
                   stage.flops_measured_over_flops ? fmt::format("{:.2f}x", *stage.flops_measured_over_flops) : "-"});
  }
  if (!any) return {};
  return "  " +
         ink.dim("FLOP executed at most: active cycles and instructions at their full rate, tile padding included") +
         "\n" + table.render("  ", options);
}

// A recorder may log some of the reasons only.
std::string throttle_in_words(const std::vector<ThrottleRecord>& rows) {
  constexpr size_t kReasons = static_cast<size_t>(ThrottleReason::kHardware) + 1;
  std::string held, names;
  for (const ThrottleRecord& row : rows) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(row.reason));
    if (row.frac > 0)
      held += fmt::format("{}{} {}", held.empty() ? "" : ", ", name_of(row.reason), format_percent(row.frac));
  }
  if (!held.empty()) return "clock held down: " + held + " of the window";
  return rows.size() == kReasons ? "never throttled" : "never throttled by " + names + " (the only reasons recorded)";
}

// Means over the whole window, where no stage has a row that could hold them.
std::string counters_in_words(const TelemetryReport& telemetry) {
  std::string out;
  const auto add = [&](std::string_view name, const OptDouble& frac) {
    if (frac) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, format_percent(*frac));
  };
  add("compute engine", telemetry.gr_active_frac);
  add("SMs", telemetry.sm_active_frac);
  add("tensor pipe", telemetry.tensor_active_frac);
  add("memory", telemetry.dram_frac);
  return out.empty() ? out : "active by " + telemetry.counter_source.value_or("counter") + ": " + out;
}

std::string window_lines(const TelemetryReport& telemetry, const RenderOptions& options) {
  std::string line;
  const auto add = [&](const std::string& part) { line += (line.empty() ? "" : ", ") + part; };
  if (telemetry.power_w)
    add(fmt::format("power {:.0f} W ({:.0f} to {:.0f}{})", telemetry.power_w->mean, telemetry.power_w->min,
                    telemetry.power_w->max,
                    telemetry.power_limit_w ? fmt::format(", of at most {:.0f}", *telemetry.power_limit_w) : ""));
  if (telemetry.energy_j) add(fmt::format("energy {:.4g} J", *telemetry.energy_j));
  if (telemetry.energy_per_token_j) add(fmt::format("{:.3g} J per token", *telemetry.energy_per_token_j));
  if (telemetry.sm_clock_mhz)
    add(fmt::format("SM clock {:.0f} MHz ({:.0f} to {:.0f}, {})", telemetry.sm_clock_mhz->p50,
                    telemetry.sm_clock_mhz->min, telemetry.sm_clock_mhz->max,
                    telemetry.sm_clock_source.value_or("unknown")));
  if (telemetry.temperature_c) add(fmt::format("{:.0f} C at most", telemetry.temperature_c->max));
  if (telemetry.memory_used_peak_bytes)
    add(format_bytes(*telemetry.memory_used_peak_bytes) + " of device memory in use at most");
  if (!telemetry.throttle.empty()) add(throttle_in_words(telemetry.throttle));
  if (telemetry.counter_source == "dcgm") add(counters_in_words(telemetry));
  return line.empty() ? std::string() : wrap_text(line, options.width, "  ", "    ");
}

// How the cost of recording was found (DistortionRecord::method).
std::string_view method_in_words(DistortionMethod method) {
  switch (method) {
    case DistortionMethod::kWithinRun:
      return "against unrecorded steps";
    case DistortionMethod::kWithinRunAttached:
      return "against unrecorded steps, CUPTI attached";
    case DistortionMethod::kRecurringHostEvent:
      return "by what recurs on the host";
    case DistortionMethod::kBaseline:
      break;
  }
  return "against a run without";
}

}  // namespace

std::string distortion_label(const Report& report, StageKind stage_kind) {
  if (!report.overhead || !report.overhead->distortion_frac || !report.overhead->ci95) return {};
  const OverheadReport& overhead = *report.overhead;
  for (const DistortionRecord& row : overhead.stages) {
    bool mine = false;
    for (const StageTiming& stage : report.stages) mine |= stage.name == row.stage && stage.kind == stage_kind;
    if (!mine && !(stage_kind == StageKind::kDecode && row.method == DistortionMethod::kRecurringHostEvent)) continue;
    // Wider than the step itself, it says nothing of the step.
    if (row.ci95_high_frac - row.ci95_low_frac > 1)
      return fmt::format(" (recording costs {:+.0f} to {:+.0f} %: too few steps to tell)", 100 * row.ci95_low_frac,
                         100 * row.ci95_high_frac);
    return fmt::format(" (recording costs {:+.1f} % [{:.1f}, {:.1f}] {})", 100 * row.distortion_frac,
                       100 * row.ci95_low_frac, 100 * row.ci95_high_frac, method_in_words(row.method));
  }
  return {};
}

std::string text_measured(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (!report.telemetry) return {};
  const std::string rows = stage_rows(report, options, ink);
  const std::string window = window_lines(*report.telemetry, options);
  if (rows.empty() && window.empty()) return {};
  return (rows.empty() ? ink.bold("Measured") + "\n" : rows) + arithmetic_rows(report, options, ink) + window + "\n";
}

}  // namespace llmprof
