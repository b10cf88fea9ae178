#include "import/smi_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "import/bounded_lines.h"
#include "import/smi_log.h"
#include "import/smi_query_columns.h"
#include "trace/throttle_known.h"

namespace llmprof::smi_query {
namespace {

using namespace smi;

constexpr std::string_view kRecordQuery =
    "nvidia-smi --query-gpu=timestamp,index,name,uuid,power.draw,clocks.sm,clocks.mem,temperature.gpu,utilization.gpu,"
    "utilization.memory,memory.used,memory.total,clocks_event_reasons.active --format=csv -lms 100 > FILE";
constexpr int64_t kNsPerUs = 1000;
constexpr size_t kSniffedLines = 8;    // noise of a shell may stand before the header
constexpr size_t kTextBytesMax = 256;  // of a name or a uuid

// The cells of one line. nvidia-smi quotes none: no name or value of a GPU holds a comma.
struct CommaCells {
  std::array<std::string_view, kCellsMax> cell;
  size_t count = 0;
  bool more = false;  // than kCellsMax; those are left out

  explicit CommaCells(std::string_view line) {
    if (trimmed(line).empty()) return;
    for (size_t at = 0;; ++at) {
      if (count == kCellsMax) {
        more = true;
        return;
      }
      const size_t end = std::min(line.find(',', at), line.size());
      cell[count++] = trimmed(line.substr(at, end - at));
      at = end;
      if (at == line.size()) return;
    }
  }
};

enum class LineKind : uint8_t { kOther, kNames, kProcesses };

// A line of names has one that only nvidia-smi writes, with a dot in it.
LineKind kind_of(const CommaCells& cells) {
  size_t process = 0;
  for (size_t i = 0; i < cells.count; ++i) {
    const QueryColumn kind = column_of(cells.cell[i]).kind;
    if (is_reading(kind) || kind == QueryColumn::kBusId || kind == QueryColumn::kMemoryTotal) return LineKind::kNames;
    process += kind == QueryColumn::kProcess ? 1 : 0;
  }
  return process >= 2 ? LineKind::kProcesses : LineKind::kOther;
}

// Whether values stand here that nvidia-smi has printed: behind a time, or with a unit each.
bool is_bare_reading(const CommaCells& cells) {
  if (cells.count < 2) return false;
  if (parse_timestamp(cells.cell[0])) return true;
  size_t with_unit = 0;
  for (size_t i = 0; i < cells.count; ++i)
    with_unit +=
        cells.cell[i].find(' ') != std::string_view::npos && parse_with_unit(cells.cell[i], "W MiB MHz %") ? 1 : 0;
  return with_unit >= 2;
}

// Whether the lines of what is taken for one GPU come in bursts, as those of several do that are asked in one round.
class Bursts {
 public:
  void gap(int64_t ns) {
    if (gaps_.size() < kGapsMax) gaps_.push_back(ns);
  }
  bool found() {
    constexpr size_t kGapsMin = 8, kPercentHigh = 95, kPercentShort = 45;
    constexpr int64_t kShorter = 4;
    if (gaps_.size() < kGapsMin) return false;
    std::sort(gaps_.begin(), gaps_.end());
    const int64_t high = gaps_[(gaps_.size() - 1) * kPercentHigh / 100];
    const auto low = std::lower_bound(gaps_.begin(), gaps_.end(), high / kShorter);
    return static_cast<size_t>(low - gaps_.begin()) * 100 >= gaps_.size() * kPercentShort;
  }

 private:
  static constexpr size_t kGapsMax = 4096;
  std::vector<int64_t> gaps_;
};

// What one line says.
struct Reading {
  NvmlSamples::Values row;
  std::optional<int64_t> unix_ns;
  std::optional<int32_t> index;
  std::string_view name, uuid, bus_id;
  std::optional<int64_t> memory_total_bytes;
  std::optional<double> power_average_w, power_instant_w, graphics_clock_mhz;
  uint64_t reasons = 0, reasons_known = 0;
  bool reasons_damaged = false;
};

class QueryReader {
 public:
  explicit QueryReader(Trace& trace) : log_(trace) {}

  // `cut`: the file ends within this line.
  void line(std::string_view text, bool cut) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    log_.next_line();
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const CommaCells cells(text);
    if (cells.count == 0) return;
    if (cells.more) log_.count(DiagnosticId::kLimitReached, fmt::format("more than {} cells", kCellsMax));
    if (cut) log_.count(DiagnosticId::kTruncatedFile, "no end of line");
    const LineKind kind = kind_of(cells);
    if (kind == LineKind::kNames) {
      names(cells);
    } else if (kind == LineKind::kProcesses) {
      processes_ = true;
      columns_ = 0;
      log_.count(DiagnosticId::kUnknownCategory, "a table of processes");
    } else {
      sample(cells, cut);
    }
  }

  void too_long() {
    log_.next_line();
    log_.count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kLineBytesMax));
  }

  Status finish(const std::string& file) {
    if (!log_.any()) return nothing(file);
    if (bursts_.found())
      return fail(
          "expected a column that says which GPU a line is of (index, uuid or pci.bus_id), found lines of "
          "several GPUs without one",
          file, "record one GPU (-i 0), or with index: " + std::string(kRecordQuery));
    log_.finish("nvidia-smi --query-gpu");
    set_throttle_reasons_known(log_.trace(), reasons_known_);
    return {};
  }

 private:
  Status nothing(const std::string& file) const {
    const std::string record = "record with  " + std::string(kRecordQuery);
    if (named_ && !readings_)
      return fail(
          "expected a column of readings (power.draw, clocks.sm, utilization.gpu ...), found only what the GPUs "
          "are",
          file, record);
    if (named_)
      return fail("expected a line of readings under the header of nvidia-smi --query-gpu, found none", file,
                  "let nvidia-smi run for some intervals: " + std::string(kRecordQuery));
    if (processes_)
      return fail(
          "expected readings of GPUs (nvidia-smi --query-gpu), found a table of processes "
          "(--query-compute-apps)",
          file, record);
    return fail(
        "expected a header that names the columns, found lines of nvidia-smi without one (noheader), of which "
        "nothing says what they are",
        file,
        "write what --query-gpu= was given as the first line of the file, or record without noheader: " +
            std::string(kRecordQuery));
  }

  // It comes again where a log was restarted, and may change; what it does not know counts once per name.
  void names(const CommaCells& cells) {
    named_ = true;
    columns_ = cells.count;
    has_readings_ = false;
    for (size_t i = 0; i < cells.count; ++i) {
      column_[i] = column_of(cells.cell[i]);
      has_readings_ = has_readings_ || is_reading(column_[i].kind);
      if (column_[i].kind == QueryColumn::kUnknown) log_.unknown_column(cells.cell[i]);
    }
    readings_ = readings_ || has_readings_;
  }

  bool has(QueryColumn kind) const {
    return std::any_of(column_.begin(), column_.begin() + columns_,
                       [&](const Column& column) { return column.kind == kind; });
  }

  // The last cell of a cut line may lack its end, and those behind it are missing: what stands before is kept.
  void sample(const CommaCells& cells, bool cut) {
    const size_t whole = cut ? cells.count - 1 : cells.count;
    if (columns_ == 0 && !named_ && !processes_ && is_bare_reading(cells)) return;  // nothing() says so, once
    if (columns_ == 0 && processes_) return;
    if (cells.more || whole > columns_ || (whole < columns_ && !cut)) {
      log_.count(DiagnosticId::kMalformedEvent, fmt::format("{} cells under {} columns", whole, columns_));
      return;
    }
    if (!has_readings_) return;
    Reading reading;
    for (size_t i = 0; i < whole; ++i) {
      if (is_absent(cells.cell[i]) || value(column_[i], cells.cell[i], reading)) continue;
      log_.count(DiagnosticId::kBadNumber, fmt::format("column {}", i + 1));
      reading.reasons_damaged = reading.reasons_damaged || column_[i].kind == QueryColumn::kReason ||
                                column_[i].kind == QueryColumn::kReasons;
    }
    settle(reading);
    add(reading);
  }

  // Where columns overlap, the first of them that the line has a value for.
  void settle(Reading& reading) {
    NvmlSamples::Values& row = reading.row;
    const std::optional<double> power = reading.power_average_w ? reading.power_average_w : reading.power_instant_w;
    if (!(row.power_w >= 0) && power) row.power_w = static_cast<float>(*power);
    if (!(row.sm_clock_mhz >= 0) && reading.graphics_clock_mhz)
      row.sm_clock_mhz = static_cast<float>(*reading.graphics_clock_mhz);
    row.throttle_reasons = kThrottleReasonsUnknown;
    if (reading.reasons_known == 0 || reading.reasons_damaged) return;
    row.throttle_reasons = reading.reasons;
    reasons_known_ &= reading.reasons_known;
  }

  static bool value(const Column& column, std::string_view cell, Reading& reading) {
    switch (column.kind) {
      case QueryColumn::kUnknown:
      case QueryColumn::kIgnored:
      case QueryColumn::kProcess:
        return true;
      case QueryColumn::kTimestamp:
        return (reading.unix_ns = parse_timestamp(cell)).has_value();
      case QueryColumn::kIndex:
        reading.index = parse_digits(cell);
        if (reading.index && *reading.index >= kDevicesMax) reading.index.reset();
        return reading.index.has_value();
      case QueryColumn::kName:
        reading.name = cell.substr(0, kTextBytesMax);
        return true;
      case QueryColumn::kUuid:
        reading.uuid = cell.substr(0, kTextBytesMax);
        return true;
      case QueryColumn::kBusId:
        reading.bus_id = cell.substr(0, kTextBytesMax);
        return true;
      case QueryColumn::kReasons: {
        const std::optional<uint64_t> mask = parse_mask(cell);
        if (!mask) return false;
        reading.reasons = *mask;
        reading.reasons_known = kAllThrottleReasons;
        return true;
      }
      case QueryColumn::kReason:
        if (cell != "Active" && cell != "Not Active") return false;
        if (reading.reasons_known == kAllThrottleReasons) return true;  // the mask has it
        reading.reasons_known |= column.bit;
        reading.reasons |= cell == "Active" ? column.bit : 0;
        return true;
      default:
        return number(column, cell, reading);
    }
  }

  static bool number(const Column& column, std::string_view cell, Reading& reading) {
    const std::optional<double> parsed = parse_with_unit(cell, column.units);
    if (!parsed || *parsed < 0) return false;  // -1 would read as absent
    const double value = *parsed;
    const float narrow = static_cast<float>(value);
    const int64_t whole = static_cast<int64_t>(value);
    NvmlSamples::Values& row = reading.row;
    switch (column.kind) {
      case QueryColumn::kMemoryTotal:
        reading.memory_total_bytes = static_cast<int64_t>(value * kBytesPerMib);
        break;
      case QueryColumn::kMemoryUsed:
        row.memory_used_bytes = static_cast<int64_t>(value * kBytesPerMib);
        break;
      case QueryColumn::kPower:
        row.power_w = narrow;
        break;
      case QueryColumn::kPowerAverage:
        reading.power_average_w = value;
        break;
      case QueryColumn::kPowerInstant:
        reading.power_instant_w = value;
        break;
      case QueryColumn::kSmClock:
        row.sm_clock_mhz = narrow;
        break;
      case QueryColumn::kGraphicsClock:
        reading.graphics_clock_mhz = value;
        break;
      case QueryColumn::kMemoryClock:
        row.memory_clock_mhz = narrow;
        break;
      case QueryColumn::kTemperature:
        row.temperature_c = narrow;
        break;
      case QueryColumn::kMemoryTemperature:
        row.memory_temperature_c = narrow;
        break;
      case QueryColumn::kGpuUtil:
        row.gpu_util_frac = static_cast<float>(value / 100);
        break;
      case QueryColumn::kMemoryUtil:
        row.memory_util_frac = static_cast<float>(value / 100);
        break;
      case QueryColumn::kPowerCapTime:
        row.throttle_power_ns = whole * kNsPerUs;
        break;
      case QueryColumn::kThermalSwTime:
        row.throttle_thermal_sw_ns = whole * kNsPerUs;
        break;
      case QueryColumn::kThermalHwTime:
        row.throttle_thermal_hw_ns = whole * kNsPerUs;
        break;
      case QueryColumn::kBrakeTime:
        row.throttle_brake_ns = whole * kNsPerUs;
        break;
      case QueryColumn::kSyncBoostTime:
        row.throttle_sync_boost_ns = whole * kNsPerUs;
        break;
      default:
        break;
    }
    return true;
  }

  // NVML's index; without it, numbers in the order in which nvidia-smi names the GPUs, which is that of the index.
  std::optional<int32_t> device_of(const Reading& reading) {
    if (has(QueryColumn::kIndex)) return reading.index;
    const std::string_view key = has(QueryColumn::kUuid)    ? reading.uuid
                                 : has(QueryColumn::kBusId) ? reading.bus_id
                                                            : reading.name;
    const bool needed = has(QueryColumn::kUuid) || has(QueryColumn::kBusId);
    if (key.empty() && needed) return std::nullopt;
    const auto [at, added] = numbers_.try_emplace(std::string(key), static_cast<int32_t>(numbers_.size()));
    if (added && at->second >= kDevicesMax) {
      numbers_.erase(at);
      return std::nullopt;
    }
    return at->second;
  }

  void add(Reading& reading) {
    const bool timed = has(QueryColumn::kTimestamp);
    const std::optional<int32_t> device = device_of(reading);
    if (!device || (timed && !reading.unix_ns)) {
      log_.count(DiagnosticId::kMissingField, "GPU or time");
      return;
    }
    NvmlSamples::Values& row = reading.row;
    row.device = *device;
    row.time_ns = timed ? log_.clock().dated(*reading.unix_ns) : log_.clock().assumed(*device);
    follow(row, timed);
    log_.add(row, timed);
    describe(*device, reading);
  }

  // Against the line before of the same GPU.
  void follow(const NvmlSamples::Values& row, bool timed) {
    const auto [at, added] = last_ns_.try_emplace(row.device, row.time_ns);
    const int64_t gap = row.time_ns - at->second;
    at->second = row.time_ns;
    if (added || !timed) return;
    if (gap < 0) log_.count(DiagnosticId::kUnsortedEvents, "the clock was set back");
    if (!has(QueryColumn::kIndex) && !has(QueryColumn::kUuid) && !has(QueryColumn::kBusId) && gap >= 0)
      bursts_.gap(gap);
  }

  void describe(int32_t ordinal, const Reading& reading) {
    Devices::Values& device = log_.device(ordinal);
    const StringId none = log_.builder().text("");
    if (device.name == none && !reading.name.empty()) device.name = log_.builder().text(reading.name);
    if (device.uuid == none && !reading.uuid.empty()) device.uuid = log_.builder().text(reading.uuid);
    if (reading.memory_total_bytes) device.memory_bytes = *reading.memory_total_bytes;
  }

  SmiLog log_;
  std::array<Column, kCellsMax> column_{};  // of the last line of names
  size_t columns_ = 0;
  bool has_readings_ = false;                                  // among the columns
  bool named_ = false, readings_ = false, processes_ = false;  // anywhere in the file
  uint64_t reasons_known_ = kAllThrottleReasons;               // on every line that has some
  std::map<std::string, int32_t, std::less<>> numbers_;        // of GPUs without an index
  std::map<int32_t, int64_t> last_ns_;
  Bursts bursts_;
};

}  // namespace

int sniff(std::string_view head) {
  constexpr int kSure = 90, kBehindNoise = 40, kBare = 30;
  size_t lines = 0;
  for (std::string_view rest = head.substr(0, 2 * kLineBytesMax); !rest.empty() && lines < kSniffedLines;) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    const CommaCells cells(line);
    if (cells.count == 0) continue;
    if (kind_of(cells) != LineKind::kOther) return lines == 0 ? kSure : kBehindNoise;
    if (lines == 0 && is_bare_reading(cells)) return kBare;
    ++lines;
  }
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  QueryReader reader(trace);
  smi::read_lines(input, trace, reader);
  return reader.finish(input.name());
}

}  // namespace llmprof::smi_query
