#include "import/dmon.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <string>

#include "import/bounded_lines.h"
#include "trace/trace_builder.h"

namespace llmprof::dmon {
namespace {

constexpr size_t kLineBytesMax = 16 * 1024;  // dmon's widest lines have some hundred bytes
constexpr size_t kCellsMax = 256;
constexpr size_t kNameBytesMax = 64;   // of a column, as it is quoted
constexpr int32_t kDevicesMax = 1024;  // ordinals below this; a host has 16
constexpr double kValueMax = 1e12;     // no quantity of dmon comes near; its bytes fit an int64_t
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kDayNs = 86'400 * kSecondNs;
constexpr int32_t kMidnightsMax = 1000;  // of times without a date: with kYearMax keeps sums within an int64_t
constexpr int kYearMin = 1970, kYearMax = 2100;
constexpr int64_t kIntervalNs = kSecondNs;  // without -d
constexpr double kBytesPerMib = 1024.0 * 1024.0;
constexpr double kBytesPerMb = 1e6;

enum class DmonColumn : uint8_t {
  kUnknown,
  kIgnored,
  kDate,
  kTime,
  kGpu,
  kPower,
  kTemperature,
  kMemoryTemperature,
  kSm,
  kMemory,
  kMemoryClock,
  kSmClock,
  kMemoryUsed,
  kPcieRx,
  kPcieTx,
};

struct NamedColumn {
  std::string_view name;
  DmonColumn column;
};

// What -s pucvmet prints. Ignored are those for which no table has a column.
constexpr std::array kDmonColumns = {
    NamedColumn{"Date", DmonColumn::kDate},
    NamedColumn{"Time", DmonColumn::kTime},
    NamedColumn{"gpu", DmonColumn::kGpu},
    NamedColumn{"pwr", DmonColumn::kPower},
    NamedColumn{"temp", DmonColumn::kTemperature},
    NamedColumn{"gtemp", DmonColumn::kTemperature},
    NamedColumn{"sm", DmonColumn::kSm},
    NamedColumn{"mtemp", DmonColumn::kMemoryTemperature},
    NamedColumn{"mem", DmonColumn::kMemory},
    NamedColumn{"mclk", DmonColumn::kMemoryClock},
    NamedColumn{"pclk", DmonColumn::kSmClock},
    NamedColumn{"fb", DmonColumn::kMemoryUsed},
    NamedColumn{"rxpci", DmonColumn::kPcieRx},
    NamedColumn{"txpci", DmonColumn::kPcieTx},
    NamedColumn{"enc", DmonColumn::kIgnored},
    NamedColumn{"dec", DmonColumn::kIgnored},
    NamedColumn{"jpg", DmonColumn::kIgnored},
    NamedColumn{"ofa", DmonColumn::kIgnored},
    NamedColumn{"pviol", DmonColumn::kIgnored},
    NamedColumn{"tviol", DmonColumn::kIgnored},
    NamedColumn{"bar1", DmonColumn::kIgnored},
    NamedColumn{"ccpm", DmonColumn::kIgnored},
    NamedColumn{"sbecc", DmonColumn::kIgnored},
    NamedColumn{"dbecc", DmonColumn::kIgnored},
    NamedColumn{"pci", DmonColumn::kIgnored},
};

DmonColumn column_of(std::string_view name) {
  for (const NamedColumn& known : kDmonColumns)
    if (known.name == name) return known.column;
  return DmonColumn::kUnknown;
}

// The cells of one line: between blanks, or commas (--format csv).
struct Cells {
  std::array<std::string_view, kCellsMax> cell;
  size_t count = 0;
  bool more = false;  // than kCellsMax; those are left out

  explicit Cells(std::string_view line) {
    for (size_t at = 0;;) {
      at = line.find_first_not_of(kBlanks, at);
      if (at == std::string_view::npos) return;
      const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
      if (count == kCellsMax) {
        more = true;
        return;
      }
      cell[count++] = line.substr(at, end - at);
      at = end;
    }
  }
  static constexpr std::string_view kBlanks = " \t\r,";
};

// Of a line that starts with '#', what follows it; nothing for other lines.
std::optional<std::string_view> behind_hash(std::string_view line) {
  const size_t at = line.find_first_not_of(Cells::kBlanks);
  if (at == std::string_view::npos || line[at] != '#') return std::nullopt;
  return line.substr(at + 1);
}

bool is_names_line(const Cells& cells) {
  bool gpu = false, value = false;
  for (size_t i = 0; i < cells.count; ++i) {
    const DmonColumn column = column_of(cells.cell[i]);
    gpu = gpu || column == DmonColumn::kGpu;
    value = value || (column != DmonColumn::kUnknown && column != DmonColumn::kDate && column != DmonColumn::kTime &&
                      column != DmonColumn::kGpu);
  }
  return gpu && value;
}

std::optional<double> parse_value(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) || std::abs(value) > kValueMax) return std::nullopt;
  return value;
}

// Digits only, so at most 10^9 - 1 for the widths asked for here.
std::optional<int32_t> parse_digits(std::string_view text) {
  if (text.empty() || text.size() > 9) return std::nullopt;
  int32_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// YYYYMMDD as Unix time of its midnight.
std::optional<int64_t> parse_date(std::string_view text) {
  const std::optional<int32_t> digits = text.size() == 8 ? parse_digits(text) : std::nullopt;
  if (!digits) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*digits / 10000),
                                         std::chrono::month(static_cast<unsigned>(*digits / 100 % 100)),
                                         std::chrono::day(static_cast<unsigned>(*digits % 100))};
  if (!date.ok() || date.year() < std::chrono::year(kYearMin) || date.year() > std::chrono::year(kYearMax))
    return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count() * kDayNs;
}

// HH:MM:SS since midnight.
std::optional<int64_t> parse_time_of_day(std::string_view text) {
  if (text.size() != 8 || text[2] != ':' || text[5] != ':') return std::nullopt;
  const std::optional<int32_t> hours = parse_digits(text.substr(0, 2));
  const std::optional<int32_t> minutes = parse_digits(text.substr(3, 2));
  const std::optional<int32_t> seconds = parse_digits(text.substr(6, 2));
  if (!hours || !minutes || !seconds || *hours > 23 || *minutes > 59 || *seconds > 60) return std::nullopt;
  return (*hours * 3600 + *minutes * 60 + *seconds) * kSecondNs;
}

// When each line was printed, on an epoch of the file: its first line is 0. Lines with a date, with the time of day
// only and without either may follow one another where outputs were appended to one file: the first line of another
// kind is then taken to be one interval after the line before.
class DmonClock {
 public:
  explicit DmonClock(Trace& trace) : trace_(trace) {}

  int64_t dated(int64_t unix_ns) {
    if (!epoch_unix_ns_) {
      epoch_unix_ns_ = unix_ns - next();
      trace_.base_unix_ns = *epoch_unix_ns_;
    }
    return set(unix_ns - *epoch_unix_ns_);
  }

  // Less than half a day back is a clock that was set; more is midnight.
  int64_t timed(int64_t of_day_ns) {
    if (!midnight_ns_) midnight_ns_ = next() - of_day_ns;
    if (of_day_ns < last_of_day_ns_ - kDayNs / 2 && midnights_ < kMidnightsMax) {
      *midnight_ns_ += kDayNs;
      ++midnights_;
    }
    last_of_day_ns_ = of_day_ns;
    return set(*midnight_ns_ + of_day_ns);
  }

  // A GPU that was seen since the last interval begins the next one.
  int64_t assumed(int32_t device) {
    if (!started_ || !seen_.insert(device).second) {
      set(next());
      seen_ = {device};
    }
    return now_ns_;
  }

 private:
  int64_t next() const { return started_ ? now_ns_ + kIntervalNs : 0; }
  int64_t set(int64_t now_ns) {
    started_ = true;
    return now_ns_ = now_ns;
  }

  Trace& trace_;
  bool started_ = false;
  int64_t now_ns_ = 0;
  int64_t last_of_day_ns_ = 0;
  int32_t midnights_ = 0;
  std::optional<int64_t> epoch_unix_ns_, midnight_ns_;
  std::set<int32_t> seen_;
};

class DmonReader {
 public:
  explicit DmonReader(Trace& trace) : trace_(trace), builder_(trace), clock_(trace) {}

  // `cut`: the file ends within this line.
  void line(std::string_view text, bool cut) {
    ++line_;
    const std::optional<std::string_view> header = behind_hash(text);
    const Cells cells(header ? *header : text);
    if (cells.count == 0) return;
    if (cells.more) count(DiagnosticId::kLimitReached, fmt::format("more than {} cells", kCellsMax));
    if (cut) count(DiagnosticId::kTruncatedFile, "no end of line");
    if (!header)
      sample(cells, cut);
    else if (is_names_line(cells))
      names(cells);
    // Else the line of units, which are those of docs/formats/dmon.md.
  }

  void too_long() {
    ++line_;
    count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kLineBytesMax));
  }

  bool finish() {
    if (samples_ == 0) return false;
    for (int32_t device : devices_) builder_.add<Devices>({.device = device, .name = builder_.text("")});
    // To the last line, so that its energy is known to the end; one line stands for an interval.
    builder_.add<Recorded>({.start_ns = first_ns_,
                            .dur_ns = last_ns_ > first_ns_ ? last_ns_ - first_ns_ : kIntervalNs,
                            .process_id = 0,
                            .level = RecordingLevel::kLight,
                            .reason = builder_.text("nvidia-smi dmon"),
                            .cut_ns = 0});
    if (assumed_ > 0)
      trace_.diagnostics.add(DiagnosticId::kAssumedTimes, "one second between samples, as without -d", assumed_);
    return true;
  }

 private:
  // Built for the first places only: a damaged file may have one per cell.
  void count(DiagnosticId id, std::string_view what) {
    const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
    trace_.diagnostics.add(id, kept ? fmt::format("line {} ({})", line_, what) : std::string());
  }

  // dmon repeats its header; what it does not know counts once per name.
  void names(const Cells& cells) {
    columns_ = cells.count;
    for (size_t i = 0; i < cells.count; ++i) {
      column_[i] = column_of(cells.cell[i]);
      if (column_[i] != DmonColumn::kUnknown || unknown_.size() >= kCellsMax) continue;
      const std::string name(cells.cell[i].substr(0, kNameBytesMax));
      if (unknown_.insert(name).second) count(DiagnosticId::kUnknownCategory, fmt::format("column \"{}\"", name));
    }
  }

  // The last cell of a cut line may lack its end, and those behind it are missing: what stands before is kept.
  void sample(const Cells& cells, bool cut) {
    const size_t whole = cut ? cells.count - 1 : cells.count;
    if (cells.more || whole > columns_ || (whole < columns_ && !cut)) {
      count(DiagnosticId::kMalformedEvent, fmt::format("{} cells under {} columns", whole, columns_));
      return;
    }
    NvmlSamples::Values row;
    row.throttle_reasons = kThrottleReasonsUnknown;  // dmon prints none of the bits
    std::optional<int64_t> date_ns, of_day_ns;
    std::optional<int32_t> device;
    for (size_t i = 0; i < whole; ++i) {
      const std::string_view cell = cells.cell[i];
      if (cell == "-") continue;
      bool good = true;
      if (column_[i] == DmonColumn::kDate)
        good = (date_ns = parse_date(cell)).has_value();
      else if (column_[i] == DmonColumn::kTime)
        good = (of_day_ns = parse_time_of_day(cell)).has_value();
      else if (column_[i] == DmonColumn::kGpu)
        good = (device = parse_digits(cell)).has_value() && *device < kDevicesMax;
      else if (column_[i] != DmonColumn::kUnknown && column_[i] != DmonColumn::kIgnored)
        good = value(column_[i], cell, row);
      if (!good) count(DiagnosticId::kBadNumber, fmt::format("column {}", i + 1));
    }
    add(row, device, date_ns, of_day_ns);
  }

  static bool value(DmonColumn column, std::string_view cell, NvmlSamples::Values& row) {
    const std::optional<double> number = parse_value(cell);
    if (!number) return false;
    const float narrow = static_cast<float>(*number);
    switch (column) {
      case DmonColumn::kPower:
        row.power_w = narrow;
        break;
      case DmonColumn::kTemperature:
        row.temperature_c = narrow;
        break;
      case DmonColumn::kMemoryTemperature:
        row.memory_temperature_c = narrow;
        break;
      case DmonColumn::kSm:
        row.gpu_util_frac = static_cast<float>(*number / 100);
        break;
      case DmonColumn::kMemory:
        row.memory_util_frac = static_cast<float>(*number / 100);
        break;
      case DmonColumn::kMemoryClock:
        row.memory_clock_mhz = narrow;
        break;
      case DmonColumn::kSmClock:
        row.sm_clock_mhz = narrow;
        break;
      case DmonColumn::kMemoryUsed:
        if (*number < 0) return false;  // -1 would read as absent
        row.memory_used_bytes = static_cast<int64_t>(*number * kBytesPerMib);
        break;
      case DmonColumn::kPcieRx:
        row.pcie_rx_bytes_per_s = static_cast<float>(*number * kBytesPerMb);
        break;
      case DmonColumn::kPcieTx:
        row.pcie_tx_bytes_per_s = static_cast<float>(*number * kBytesPerMb);
        break;
      default:
        break;
    }
    return true;
  }

  bool has(DmonColumn column) const {
    return std::find(column_.begin(), column_.begin() + columns_, column) != column_.begin() + columns_;
  }

  void add(NvmlSamples::Values& row, std::optional<int32_t> device, std::optional<int64_t> date_ns,
           std::optional<int64_t> of_day_ns) {
    const bool timed = has(DmonColumn::kTime), dated = timed && has(DmonColumn::kDate);
    if (!device || *device >= kDevicesMax || (timed && !of_day_ns) || (dated && !date_ns)) {
      count(DiagnosticId::kMissingField, "gpu or time");
      return;
    }
    row.time_ns = dated   ? clock_.dated(*date_ns + *of_day_ns)
                  : timed ? clock_.timed(*of_day_ns)
                          : clock_.assumed(*device);
    row.device = *device;
    builder_.add<NvmlSamples>(row);
    first_ns_ = samples_ == 0 ? row.time_ns : std::min(first_ns_, row.time_ns);
    last_ns_ = samples_ == 0 ? row.time_ns : std::max(last_ns_, row.time_ns);
    devices_.insert(*device);
    assumed_ += timed ? 0 : 1;
    ++samples_;
  }

  Trace& trace_;
  TraceBuilder builder_;
  DmonClock clock_;
  std::array<DmonColumn, kCellsMax> column_{};  // of the last line of names
  size_t columns_ = 0;
  std::set<std::string> unknown_;
  std::set<int32_t> devices_;
  uint64_t line_ = 0, samples_ = 0, assumed_ = 0;
  int64_t first_ns_ = 0, last_ns_ = 0;
};

}  // namespace

int sniff(std::string_view head) {
  for (std::string_view rest = head.substr(0, kLineBytesMax); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(Cells::kBlanks) == std::string_view::npos) continue;
    const std::optional<std::string_view> header = behind_hash(line);
    return header && is_names_line(Cells(*header)) ? 90 : 0;
  }
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  DmonReader reader(trace);
  read_bounded_lines(input, kLineBytesMax, [&](const BoundedLine& line) {
    if (line.too_long)
      reader.too_long();
    else
      reader.line(line.text, line.cut);
  });
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (reader.finish()) return {};
  return fail("expected a line of samples under the header of `nvidia-smi dmon`, found none", input.name(),
              "let dmon run for some intervals: nvidia-smi dmon -s pucm -o DT > FILE");
}

}  // namespace llmprof::dmon
