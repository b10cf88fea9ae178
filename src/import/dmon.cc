#include "import/dmon.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "import/bounded_lines.h"
#include "import/smi_log.h"

namespace llmprof::dmon {
namespace {

using namespace smi;

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

class DmonReader {
 public:
  explicit DmonReader(Trace& trace) : log_(trace) {}

  // `cut`: the file ends within this line.
  void line(std::string_view text, bool cut) {
    log_.next_line();
    const std::optional<std::string_view> header = behind_hash(text);
    const Cells cells(header ? *header : text);
    if (cells.count == 0) return;
    if (cells.more) log_.count(DiagnosticId::kLimitReached, fmt::format("more than {} cells", kCellsMax));
    if (cut) log_.count(DiagnosticId::kTruncatedFile, "no end of line");
    if (!header)
      sample(cells, cut);
    else if (is_names_line(cells))
      names(cells);
    // Else the line of units, which are those of docs/formats/dmon.md.
  }

  void too_long() {
    log_.next_line();
    log_.count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kLineBytesMax));
  }

  bool finish() {
    if (log_.any()) log_.finish("nvidia-smi dmon");
    return log_.any();
  }

 private:
  // dmon repeats its header; what it does not know counts once per name.
  void names(const Cells& cells) {
    columns_ = cells.count;
    for (size_t i = 0; i < cells.count; ++i) {
      column_[i] = column_of(cells.cell[i]);
      if (column_[i] == DmonColumn::kUnknown) log_.unknown_column(cells.cell[i]);
    }
  }

  // The last cell of a cut line may lack its end, and those behind it are missing: what stands before is kept.
  void sample(const Cells& cells, bool cut) {
    const size_t whole = cut ? cells.count - 1 : cells.count;
    if (cells.more || whole > columns_ || (whole < columns_ && !cut)) {
      log_.count(DiagnosticId::kMalformedEvent, fmt::format("{} cells under {} columns", whole, columns_));
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
      if (!good) log_.count(DiagnosticId::kBadNumber, fmt::format("column {}", i + 1));
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
      log_.count(DiagnosticId::kMissingField, "gpu or time");
      return;
    }
    row.time_ns = dated   ? log_.clock().dated(*date_ns + *of_day_ns)
                  : timed ? log_.clock().timed(*of_day_ns)
                          : log_.clock().assumed(*device);
    row.device = *device;
    log_.add(row, timed);
  }

  SmiLog log_;
  std::array<DmonColumn, kCellsMax> column_{};  // of the last line of names
  size_t columns_ = 0;
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
  smi::read_lines(input, trace, reader);
  if (reader.finish()) return {};
  return fail("expected a line of samples under the header of `nvidia-smi dmon`, found none", input.name(),
              "let dmon run for some intervals: nvidia-smi dmon -s pucm -o DT > FILE");
}

}  // namespace llmprof::dmon
