// The columns of `nvidia-smi --query-gpu=... --format=csv`, by the names that its header gives them, and what stands in
// their cells (docs/formats/smi-query.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmprof::smi_query {

enum class QueryColumn : uint8_t {
  kUnknown,
  kIgnored,
  kProcess,  // of --query-compute-apps
  kTimestamp,
  kIndex,
  kName,
  kUuid,
  kBusId,
  kMemoryTotal,
  // Readings from here on.
  kPower,
  kPowerAverage,
  kPowerInstant,
  kSmClock,
  kGraphicsClock,
  kMemoryClock,
  kTemperature,
  kMemoryTemperature,
  kGpuUtil,
  kMemoryUtil,
  kMemoryUsed,
  kReasons,
  kReason,
  kPowerCapTime,
  kThermalSwTime,
  kThermalHwTime,
  kBrakeTime,
  kSyncBoostTime,
};

struct Column {
  QueryColumn kind = QueryColumn::kUnknown;
  std::string_view units;  // what its name or its cells may say, between blanks; all mean the same
  uint64_t bit = 0;        // of kReason
};

inline bool is_reading(QueryColumn kind) { return kind >= QueryColumn::kPower; }

// As a header names it; "power.draw [W]": a unit that is not the column's makes it another one.
Column column_of(std::string_view name);

// Without the blanks around it.
std::string_view trimmed(std::string_view text);
// [N/A], [Not Supported], [Unknown Error], [GPU is lost] and their like, with or without brackets.
bool is_absent(std::string_view cell);
// 2026/11/20 23:58:31.863 as Unix time, read as UTC.
std::optional<int64_t> parse_timestamp(std::string_view text);
// "123.45 W", or without its unit (nounits).
std::optional<double> parse_with_unit(std::string_view cell, std::string_view units);
// Reasons of throttling: 0x0000000000000004.
std::optional<uint64_t> parse_mask(std::string_view cell);

}  // namespace llmprof::smi_query
