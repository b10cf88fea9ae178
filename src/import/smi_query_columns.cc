#include "import/smi_query_columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "import/smi_log.h"
#include "trace/throttle_known.h"

namespace llmprof::smi_query {
namespace {

struct NamedColumn {
  std::string_view name;
  Column column;
};

// As headers print them; the shorter names of --help-query-gpu stand in headers that were written by hand.
constexpr std::array kQueryColumns = {
    NamedColumn{"timestamp", {QueryColumn::kTimestamp, ""}},
    NamedColumn{"index", {QueryColumn::kIndex, ""}},
    NamedColumn{"name", {QueryColumn::kName, ""}},
    NamedColumn{"gpu_name", {QueryColumn::kName, ""}},
    NamedColumn{"uuid", {QueryColumn::kUuid, ""}},
    NamedColumn{"gpu_uuid", {QueryColumn::kUuid, ""}},
    NamedColumn{"pci.bus_id", {QueryColumn::kBusId, ""}},
    NamedColumn{"gpu_bus_id", {QueryColumn::kBusId, ""}},
    NamedColumn{"memory.total", {QueryColumn::kMemoryTotal, "MiB MB"}},
    NamedColumn{"power.draw", {QueryColumn::kPower, "W"}},
    NamedColumn{"power.draw.average", {QueryColumn::kPowerAverage, "W"}},
    NamedColumn{"power.draw.instant", {QueryColumn::kPowerInstant, "W"}},
    NamedColumn{"clocks.current.sm", {QueryColumn::kSmClock, "MHz"}},
    NamedColumn{"clocks.sm", {QueryColumn::kSmClock, "MHz"}},
    NamedColumn{"clocks.current.graphics", {QueryColumn::kGraphicsClock, "MHz"}},
    NamedColumn{"clocks.gr", {QueryColumn::kGraphicsClock, "MHz"}},
    NamedColumn{"clocks.current.memory", {QueryColumn::kMemoryClock, "MHz"}},
    NamedColumn{"clocks.mem", {QueryColumn::kMemoryClock, "MHz"}},
    NamedColumn{"temperature.gpu", {QueryColumn::kTemperature, "C"}},
    NamedColumn{"temperature.memory", {QueryColumn::kMemoryTemperature, "C"}},
    NamedColumn{"utilization.gpu", {QueryColumn::kGpuUtil, "%"}},
    NamedColumn{"utilization.memory", {QueryColumn::kMemoryUtil, "%"}},
    NamedColumn{"memory.used", {QueryColumn::kMemoryUsed, "MiB MB"}},
    NamedColumn{"pid", {QueryColumn::kProcess, ""}},
    NamedColumn{"process_name", {QueryColumn::kProcess, ""}},
    NamedColumn{"used_gpu_memory", {QueryColumn::kProcess, "MiB MB"}},
    NamedColumn{"used_memory", {QueryColumn::kProcess, "MiB MB"}},
    NamedColumn{"pstate", {QueryColumn::kIgnored, ""}},
    NamedColumn{"count", {QueryColumn::kIgnored, ""}},
    NamedColumn{"serial", {QueryColumn::kIgnored, ""}},
    NamedColumn{"driver_version", {QueryColumn::kIgnored, ""}},
    NamedColumn{"vbios_version", {QueryColumn::kIgnored, ""}},
    NamedColumn{"compute_mode", {QueryColumn::kIgnored, ""}},
    NamedColumn{"compute_cap", {QueryColumn::kIgnored, ""}},
    NamedColumn{"persistence_mode", {QueryColumn::kIgnored, ""}},
    NamedColumn{"display_mode", {QueryColumn::kIgnored, ""}},
    NamedColumn{"display_active", {QueryColumn::kIgnored, ""}},
    NamedColumn{"memory.free", {QueryColumn::kIgnored, "MiB MB"}},
    NamedColumn{"memory.reserved", {QueryColumn::kIgnored, "MiB MB"}},
    NamedColumn{"temperature.gpu.tlimit", {QueryColumn::kIgnored, "C"}},
    NamedColumn{"enforced.power.limit", {QueryColumn::kIgnored, "W"}},
    NamedColumn{"utilization.encoder", {QueryColumn::kIgnored, "%"}},
    NamedColumn{"utilization.decoder", {QueryColumn::kIgnored, "%"}},
    NamedColumn{"utilization.jpeg", {QueryColumn::kIgnored, "%"}},
    NamedColumn{"utilization.ofa", {QueryColumn::kIgnored, "%"}},
    NamedColumn{"clocks.current.video", {QueryColumn::kIgnored, "MHz"}},
    NamedColumn{"clocks.video", {QueryColumn::kIgnored, "MHz"}},
};

// Families for which no table has a column.
constexpr std::array<std::string_view, 17> kIgnoredFamilies = {"pci.",
                                                               "pcie.",
                                                               "ecc.",
                                                               "retired_pages.",
                                                               "remapped_rows.",
                                                               "fan.",
                                                               "clocks.max.",
                                                               "clocks.applications.",
                                                               "power.",
                                                               "mig.",
                                                               "inforom.",
                                                               "driver_model.",
                                                               "accounting.",
                                                               "encoder.",
                                                               "gom.",
                                                               "fabric.",
                                                               "clocks.default_applications."};

// Behind clocks_throttle_reasons. or, since driver 535, clocks_event_reasons.; the bits are those of NVML.
constexpr std::array kReasonNames = {
    NamedColumn{"active", {QueryColumn::kReasons, ""}},
    NamedColumn{"supported", {QueryColumn::kIgnored, ""}},
    NamedColumn{"gpu_idle", {QueryColumn::kReason, "", 0x1}},
    NamedColumn{"applications_clocks_setting", {QueryColumn::kReason, "", 0x2}},
    NamedColumn{"sw_power_cap", {QueryColumn::kReason, "", 0x4}},
    NamedColumn{"hw_slowdown", {QueryColumn::kReason, "", 0x8}},
    NamedColumn{"sync_boost", {QueryColumn::kReason, "", 0x10}},
    NamedColumn{"sw_thermal_slowdown", {QueryColumn::kReason, "", 0x20}},
    NamedColumn{"hw_thermal_slowdown", {QueryColumn::kReason, "", 0x40}},
    NamedColumn{"hw_power_brake_slowdown", {QueryColumn::kReason, "", 0x80}},
};
constexpr std::array kReasonTimes = {
    NamedColumn{"sw_power_cap", {QueryColumn::kPowerCapTime, "us"}},
    NamedColumn{"sw_thermal_slowdown", {QueryColumn::kThermalSwTime, "us"}},
    NamedColumn{"hw_thermal_slowdown", {QueryColumn::kThermalHwTime, "us"}},
    NamedColumn{"hw_power_brake_slowdown", {QueryColumn::kBrakeTime, "us"}},
    NamedColumn{"hw_power_brake", {QueryColumn::kBrakeTime, "us"}},
    NamedColumn{"sync_boost", {QueryColumn::kSyncBoostTime, "us"}},
};

template <size_t N>
Column named(const std::array<NamedColumn, N>& columns, std::string_view name) {
  for (const NamedColumn& known : columns)
    if (known.name == name) return known.column;
  return {};
}

bool is_unit(std::string_view units, std::string_view unit) {
  for (size_t at = 0; at < units.size();) {
    const size_t end = std::min(units.find(' ', at), units.size());
    if (units.substr(at, end - at) == unit) return true;
    at = end + 1;
  }
  return false;
}

Column column_of_base(std::string_view base) {
  if (const Column column = named(kQueryColumns, base); column.kind != QueryColumn::kUnknown) return column;
  for (const std::string_view family : {"clocks_throttle_reasons.", "clocks_event_reasons."})
    if (base.starts_with(family)) return named(kReasonNames, base.substr(family.size()));
  constexpr std::string_view kTimes = "clocks_event_reasons_counters.";
  if (base.starts_with(kTimes)) return named(kReasonTimes, base.substr(kTimes.size()));
  for (const std::string_view family : kIgnoredFamilies)
    if (base.starts_with(family)) return {QueryColumn::kIgnored, ""};
  return {};
}

}  // namespace

Column column_of(std::string_view name) {
  const size_t open = name.find(" [");
  const Column column = column_of_base(name.substr(0, open));
  if (open == std::string_view::npos || !name.ends_with(']') || column.kind == QueryColumn::kIgnored) return column;
  const std::string_view unit = name.substr(open + 2, name.size() - open - 3);
  return is_unit(column.units, unit) ? column : Column{};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t from = text.find_first_not_of(kSpace);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kSpace) + 1 - from);
}

std::optional<int64_t> parse_timestamp(std::string_view text) {
  constexpr size_t kDate = 10, kTime = 19, kMost = 29;
  if (text.size() < kTime || text.size() > kMost || text[4] != '/' || text[7] != '/' || text[kDate] != ' ')
    return std::nullopt;
  const std::string date =
      std::string(text.substr(0, 4)) + std::string(text.substr(5, 2)) + std::string(text.substr(8, 2));
  const std::optional<int64_t> day_ns = smi::parse_date(date);
  const std::optional<int64_t> of_day_ns = smi::parse_time_of_day(text.substr(kDate + 1, 8));
  if (!day_ns || !of_day_ns) return std::nullopt;
  int64_t fraction_ns = 0;
  if (text.size() > kTime) {
    const std::string_view digits = text.substr(kTime + 1);
    const std::optional<int32_t> value = smi::parse_digits(digits);
    if (text[kTime] != '.' || !value) return std::nullopt;
    fraction_ns = *value;
    for (size_t i = digits.size(); i < 9; ++i) fraction_ns *= 10;
  }
  return *day_ns + *of_day_ns + fraction_ns;
}

bool is_absent(std::string_view cell) {
  constexpr std::array<std::string_view, 6> kWords = {"N/A",  "Not Supported", "Unknown Error",
                                                      "ERR!", "Not Found",     "-"};
  return cell.empty() || (cell.front() == '[' && cell.back() == ']') ||
         std::find(kWords.begin(), kWords.end(), cell) != kWords.end();
}

std::optional<double> parse_with_unit(std::string_view cell, std::string_view units) {
  const size_t blank = cell.find(' ');
  if (blank != std::string_view::npos && !is_unit(units, trimmed(cell.substr(blank)))) return std::nullopt;
  return smi::parse_value(cell.substr(0, blank));
}

std::optional<uint64_t> parse_mask(std::string_view cell) {
  if (!cell.starts_with("0x")) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data() + 2, cell.data() + cell.size(), value, 16);
  const bool whole = error == std::errc() && end == cell.data() + cell.size();
  return whole && value != kThrottleReasonsUnknown ? std::optional<uint64_t>(value) : std::nullopt;
}

}  // namespace llmprof::smi_query
