// Findings from readings beside the program: power, temperature, clocks.
#include <fmt/format.h>

#include <algorithm>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr double kPowerShareMin = 0.20;    // short excursions to the cap cost next to nothing
constexpr double kThermalShareMin = 0.01;  // a cooled GPU never gets there
constexpr double kClockMin = 0.85;         // of the boost clock; ordinary boost behaviour stays above
constexpr double kOtherReasonMax = 0.05;
constexpr double kBoardPowerMin = 0.93;  // of the data sheet's power: the cap is the board's own

double held_frac(const TelemetryReport& telemetry, ThrottleReason reason) {
  for (const ThrottleRecord& row : telemetry.throttle)
    if (row.reason == reason) return row.frac;
  return 0;
}

double thermal_frac(const TelemetryReport& telemetry) {
  return std::max({held_frac(telemetry, ThrottleReason::kThermalSoftware),
                   held_frac(telemetry, ThrottleReason::kThermalHardware),
                   held_frac(telemetry, ThrottleReason::kPowerBrake), held_frac(telemetry, ThrottleReason::kHardware)});
}

// Time that the boost clock would save: only time in which the SMs work scales with it.
double clock_gain_ns(const FindingContext& finding, double frac) {
  const DeviceReport* device = finding.context.device;
  const TelemetryReport& telemetry = *finding.report.telemetry;
  if (device == nullptr || !device->boost_mhz || !telemetry.sm_clock_mhz) return 0;
  const double lost = std::max(0.0, 1 - telemetry.sm_clock_mhz->p50 / *device->boost_mhz);
  double busy_ns = 0;
  const std::vector<StageGroup>& groups = finding.context.groups.stages;
  for (uint32_t s = 0; s < groups.size(); ++s)
    if (groups[s].device == telemetry.device && !groups[s].is_warm_up() && groups[s].missing != MissingKernels::kAll)
      busy_ns += finding.whole_ns(s, static_cast<double>(groups[s].busy_ns));
  return busy_ns * lost * frac;
}

void add_clock(const FindingContext& finding, Finding& out) {
  const TelemetryReport& telemetry = *finding.report.telemetry;
  if (telemetry.sm_clock_mhz) {
    out.evidence.push_back(measured("median SM clock", telemetry.sm_clock_mhz->p50, Unit::kMhz));
    out.evidence.push_back(measured("lowest SM clock", telemetry.sm_clock_mhz->min, Unit::kMhz));
  }
  const DeviceReport* device = finding.context.device;
  if (device != nullptr && device->boost_mhz)
    out.evidence.push_back({"boost clock", *device->boost_mhz, Unit::kMhz, Provenance::kDatasheet});
}

}  // namespace

void find_power_throttled(const FindingContext& finding) {
  if (!finding.report.telemetry) return;
  const TelemetryReport& telemetry = *finding.report.telemetry;
  const double frac = held_frac(telemetry, ThrottleReason::kPowerCap);
  if (frac < kPowerShareMin) return;
  const DeviceReport* device = finding.context.device;
  const bool at_board_power = device != nullptr && device->tdp_w && telemetry.power_w &&
                              telemetry.power_w->p90 >= kBoardPowerMin * *device->tdp_w;
  Finding& out = finding.add("power-throttled", nullptr,
                             fmt::format("the power cap holds the clock down {} of the time", format_percent(frac)),
                             clock_gain_ns(finding, frac));
  if (at_board_power) out.severity = FindingSeverity::kInfo;
  out.evidence = {measured("share of the window at the power cap", frac, Unit::kFrac)};
  if (telemetry.power_w) out.evidence.push_back(measured("mean power", telemetry.power_w->mean, Unit::kWatt));
  if (device != nullptr && device->tdp_w)
    out.evidence.push_back({"board power", *device->tdp_w, Unit::kWatt, Provenance::kDatasheet});
  add_clock(finding, out);
  if (at_board_power) {
    out.advice = {
        "The board runs at its full power: that is normal under heavy arithmetic, and MFU at the clock seen is the "
        "figure to compare. Narrower types do more per joule."};
  } else {
    out.advice = {
        "The limit is set below what the board may draw: raise it (nvidia-smi -pl, or the data centre's power policy), "
        "or count with the lower clock.",
        "Fewer bytes and narrower arithmetic per token need less power at the same speed."};
  }
}

void find_thermal_throttled(const FindingContext& finding) {
  if (!finding.report.telemetry) return;
  const TelemetryReport& telemetry = *finding.report.telemetry;
  const double frac = thermal_frac(telemetry);
  if (frac < kThermalShareMin) return;
  Finding& out = finding.add("thermal-throttled", nullptr,
                             fmt::format("temperature holds the clock down {} of the time", format_percent(frac)),
                             clock_gain_ns(finding, frac));
  for (const ThrottleRecord& row : telemetry.throttle)
    if (row.reason != ThrottleReason::kPowerCap && row.reason != ThrottleReason::kSyncBoost && row.frac > 0)
      out.evidence.push_back(
          measured(fmt::format("share of the window held down: {}", name_of(row.reason)), row.frac, Unit::kFrac));
  if (telemetry.temperature_c)
    out.evidence.push_back(measured("highest temperature", telemetry.temperature_c->max, Unit::kCelsius));
  if (telemetry.memory_temperature_c)
    out.evidence.push_back(measured("highest memory temperature", telemetry.memory_temperature_c->max, Unit::kCelsius));
  add_clock(finding, out);
  out.advice = {"Improve cooling: airflow, inlet temperature, fan policy; a neighbouring GPU may heat this one."};
}

void find_clock_drop(const FindingContext& finding) {
  if (!finding.report.telemetry) return;
  const TelemetryReport& telemetry = *finding.report.telemetry;
  const DeviceReport* device = finding.context.device;
  if (device == nullptr || !device->boost_mhz) return;
  if (held_frac(telemetry, ThrottleReason::kPowerCap) >= kOtherReasonMax || thermal_frac(telemetry) >= kOtherReasonMax)
    return;
  for (const StageView& stage : finding.stages) {
    if (!stage.timing->sm_clock_mhz || stage.timing->device != telemetry.device) continue;
    const double clock = *stage.timing->sm_clock_mhz;
    if (clock >= kClockMin * *device->boost_mhz) continue;
    Finding& out = finding.add("clock-drop", &stage,
                               fmt::format("{}the GPU runs at {:.0f} MHz, its boost clock is {:.0f} MHz", stage.label(),
                                           clock, *device->boost_mhz),
                               stage.busy_ns() * (1 - clock / *device->boost_mhz));
    out.evidence = {
        measured("median SM clock of the stage", clock, Unit::kMhz),
        {"boost clock", *device->boost_mhz, Unit::kMhz, Provenance::kDatasheet},
        measured("share of the window at the power cap", held_frac(telemetry, ThrottleReason::kPowerCap), Unit::kFrac),
        measured("share of the window held down by temperature", thermal_frac(telemetry), Unit::kFrac)};
    out.advice = {
        "Neither power nor temperature explains it: look for locked or application clocks (nvidia-smi -q -d CLOCK; "
        "-rgc and -rac reset them). A mostly idle GPU may also lower its clock by itself."};
    out.bound = stage.bound(stage.busy_ns() * (1 - clock / *device->boost_mhz));
  }
}

}  // namespace llmprof
