#include "import/ncu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "import/ncu_lines.h"
#include "import/ncu_values.h"
#include "trace/trace_builder.h"

namespace llmprof::ncu {
namespace {

constexpr size_t kKernelNameBytesMax = 64 * 1024;
constexpr size_t kTextBytesMax = 4096;       // of a value that is no number
constexpr size_t kRemarkBytesMax = 300;      // of ncu, as it is quoted
constexpr size_t kKernelsMax = 200'000;      // of which Nsight Compute takes hours to run
constexpr size_t kCountersMax = 20'000'000;  // 10,000 kernels with 2,000 metrics
constexpr size_t kNcuDevicesMax = 1024;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// ---- the header ----------------------------------------------------------------------------------------------------

// What a column says of the kernel. All others of a wide table are metrics.
enum class NcuColumn : uint8_t {
  kNumber,
  kProcess,
  kRanges,
  kName,
  kContext,
  kStream,
  kBlock,
  kGrid,
  kDevice,
  kCapability,
  kSection,
  kMetric,
  kUnit,
  kValue,
  kCount,
  kIgnored = kCount,
  kCounter,  // one metric of a wide table
};

struct NcuName {
  std::string_view name;
  NcuColumn column;
};
constexpr std::array kNcuNames = {
    NcuName{"ID", NcuColumn::kNumber},
    NcuName{"Process ID", NcuColumn::kProcess},
    NcuName{"Process Name", NcuColumn::kIgnored},
    NcuName{"Host Name", NcuColumn::kIgnored},
    NcuName{"Kernel Name", NcuColumn::kName},
    NcuName{"Kernel Time", NcuColumn::kIgnored},
    NcuName{"Context", NcuColumn::kContext},
    NcuName{"Stream", NcuColumn::kStream},
    NcuName{"Block Size", NcuColumn::kBlock},
    NcuName{"Grid Size", NcuColumn::kGrid},
    NcuName{"Device", NcuColumn::kDevice},
    NcuName{"CC", NcuColumn::kCapability},
    NcuName{"Section Name", NcuColumn::kSection},
    NcuName{"Metric Name", NcuColumn::kMetric},
    NcuName{"Metric Unit", NcuColumn::kUnit},
    NcuName{"Metric Value", NcuColumn::kValue},
    NcuName{"Rule Name", NcuColumn::kIgnored},
    NcuName{"Rule Type", NcuColumn::kIgnored},
    NcuName{"Rule Description", NcuColumn::kIgnored},
    NcuName{"Estimated Speedup Type", NcuColumn::kIgnored},
    NcuName{"Estimated Speedup", NcuColumn::kIgnored},
};

NcuColumn ncu_column(std::string_view name) {
  for (const NcuName& known : kNcuNames)
    if (known.name == name) return known.column;
  if (name.starts_with("thread Domain:")) return NcuColumn::kRanges;
  if (name.starts_with("Id:Domain:")) return NcuColumn::kIgnored;
  return NcuColumn::kCounter;
}

// A table of the file: what its columns are.
struct Header {
  static constexpr size_t kAbsent = std::numeric_limits<size_t>::max();
  size_t columns = 0;
  std::array<size_t, static_cast<size_t>(NcuColumn::kCount)> place{};
  struct Metric {
    size_t place;
    StringId name;
    StringId unit = StringId::kEmpty;
    int exponent = 0;
  };
  std::vector<Metric> metrics{};  // of a wide table
  bool units = false;             // of a wide table: their line was read

  size_t at(NcuColumn column) const { return place[static_cast<size_t>(column)]; }
  bool has(NcuColumn column) const { return at(column) != kAbsent; }
  bool is_long() const { return has(NcuColumn::kMetric) && has(NcuColumn::kValue); }
  // Metric rows of a long table end early; these cells they have.
  size_t least() const { return is_long() ? std::max(at(NcuColumn::kMetric), at(NcuColumn::kValue)) + 1 : columns; }
};

// ---- what the program needs of the metrics -----------------------------------------------------------------------

// Facts of kernels and GPUs that stand among the metrics, by the names of the raw page and the labels of the details.
enum class Fact : uint8_t {
  kNone,
  kDuration,
  kRegisters,
  kSharedStatic,
  kSharedDynamic,
  kOccupancy,
  kDeviceName,
  kSms,
  kMemory,
  kThreadsPerSm,
  kRegistersPerSm,
  kSharedPerSm,
};
struct NamedFact {
  std::string_view name;
  Fact fact;
};
constexpr std::array kFacts = {
    NamedFact{"gpu__time_duration.sum", Fact::kDuration},
    NamedFact{"gpu__time_duration.avg", Fact::kDuration},
    NamedFact{"Duration", Fact::kDuration},
    NamedFact{"launch__registers_per_thread", Fact::kRegisters},
    NamedFact{"Registers Per Thread", Fact::kRegisters},
    NamedFact{"launch__shared_mem_per_block_static", Fact::kSharedStatic},
    NamedFact{"Static Shared Memory Per Block", Fact::kSharedStatic},
    NamedFact{"launch__shared_mem_per_block_dynamic", Fact::kSharedDynamic},
    NamedFact{"Dynamic Shared Memory Per Block", Fact::kSharedDynamic},
    NamedFact{"sm__maximum_warps_per_active_cycle_pct", Fact::kOccupancy},
    NamedFact{"Theoretical Occupancy", Fact::kOccupancy},
    NamedFact{"device__attribute_display_name", Fact::kDeviceName},
    NamedFact{"device__attribute_multiprocessor_count", Fact::kSms},
    NamedFact{"launch__sm_count", Fact::kSms},
    NamedFact{"# SMs", Fact::kSms},
    NamedFact{"device__attribute_total_memory", Fact::kMemory},
    NamedFact{"device__attribute_max_threads_per_multiprocessor", Fact::kThreadsPerSm},
    NamedFact{"device__attribute_max_registers_per_multiprocessor", Fact::kRegistersPerSm},
    NamedFact{"device__attribute_max_shared_memory_per_multiprocessor", Fact::kSharedPerSm},
};

Fact fact_of(std::string_view name) {
  for (const NamedFact& known : kFacts)
    if (known.name == name) return known.fact;
  return Fact::kNone;
}

// The nearest whole number, from 0 to `most`; -1 if it is none.
template <class T>
T whole(double value, T most = std::numeric_limits<T>::max()) {
  if (!(value >= 0) || value >= static_cast<double>(most)) return T{-1};
  return static_cast<T>(std::llround(value));
}

// ---- reading -------------------------------------------------------------------------------------------------------

class NcuReader {
 public:
  explicit NcuReader(Trace& trace) : trace_(trace), builder_(trace) {}

  void line(const Line& line) {
    number_ = line.number;
    if (line.too_long) {
      if (begins_as_row(line.text) || is_names_row(line.text))
        count(DiagnosticId::kLimitReached, fmt::format("a row of more than {} bytes", kRowBytesMax));
      return;
    }
    if (is_names_row(line.text)) return names(line);
    if (line.text.starts_with("==")) return remark(line.text);
    if (header_ && begins_as_row(line.text)) row(line);
    // Else output of the program.
  }

  // Whether anything was read.
  bool finish() {
    choose_notation();
    take_facts();
    for (size_t kernel = 0; kernel < kernels_.size(); ++kernel) {
      const Facts& facts = kernels_[kernel];
      trace_.profiled_kernels.dur_ns[kernel] = facts.dur_ns;
      if (facts.config) trace_.profiled_kernels.config[kernel] = builder_.launch_config(*facts.config);
    }
    for (const auto& [device, facts] : devices_) {
      Devices::Values row = facts;
      row.device = device;
      builder_.add<Devices>(row);
    }
    return !trace_.profiled_kernels.empty();
  }

  bool header_seen() const { return header_.has_value(); }
  bool summary_seen() const { return summary_seen_; }

 private:
  struct Facts {  // of a kernel, until the notation of numbers is known
    std::optional<LaunchConfigs::Values> config{};
    int64_t dur_ns = -1;
    int32_t device = 0;
    int64_t shared_static = -1, shared_dynamic = -1;
  };

  void count(DiagnosticId id, std::string_view what) {
    const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
    trace_.diagnostics.add(id, kept ? fmt::format("line {} ({})", number_, what) : std::string());
  }

  StringId text_of(std::string_view text, size_t most) {
    if (text.size() > most) {
      count(DiagnosticId::kLimitReached, fmt::format("a text of more than {} bytes", most));
      text = text.substr(0, most);
    }
    return builder_.text(text);
  }

  // Warnings and errors of ncu itself; "==PROF==" lines are progress.
  void remark(std::string_view text) {
    if (!text.starts_with("==WARNING==") && !text.starts_with("==ERROR==")) return;
    if (text.find("unmodified GPU clocks") != std::string_view::npos) {
      trace_.metadata["ncu.clocks"] = "unmodified";
      return;
    }
    count(DiagnosticId::kRecorderNote, text.substr(text.find("== ") + 3).substr(0, kRemarkBytesMax));
  }

  void names(const Line& line) {
    cells_.split(line.text);
    Header header;
    header.place.fill(Header::kAbsent);
    header.columns = line.cut ? cells_.size() - 1 : cells_.size();
    if (line.cut) count(DiagnosticId::kTruncatedFile, "no end of line");
    for (size_t i = 0; i < header.columns; ++i) {
      const NcuColumn column = ncu_column(cells_[i]);
      if (column < NcuColumn::kCount && header.place[static_cast<size_t>(column)] == Header::kAbsent)
        header.place[static_cast<size_t>(column)] = i;
      else if (column == NcuColumn::kCounter)
        header.metrics.push_back({i, text_of(cells_[i], kTextBytesMax)});
    }
    summary_seen_ = summary_seen_ || (header.has(NcuColumn::kMetric) && !header.has(NcuColumn::kValue));
    if (header.is_long()) header.metrics.clear();
    known_.clear();
    header_ = std::move(header);
  }

  void row(const Line& line) {
    const bool closed = cells_.split(line.text);
    const Header& header = *header_;
    // The last cell of a cut line may lack its end.
    const size_t size = line.cut || !closed ? cells_.size() - 1 : cells_.size();
    if (line.cut || !closed) count(DiagnosticId::kTruncatedFile, closed ? "no end of line" : "an open quote");
    const bool quoted = line.text.starts_with('"');
    if (header.has(NcuColumn::kMetric) && !header.is_long()) return;  // a summary
    const bool partial = !header.is_long() && (line.cut || !closed);  // what stands before the cut is kept
    if ((size < header.least() && !partial) || size > header.columns + 1) {
      // Lists of numbers may be the program's; ncu quotes.
      if (quoted && !line.cut && closed)
        count(DiagnosticId::kMalformedEvent, fmt::format("{} cells under {} columns", size, header.columns));
      return;
    }
    if (size <= header.at(NcuColumn::kNumber)) return;
    const std::string_view id = cells_[header.at(NcuColumn::kNumber)];
    if (id.empty() && !header.is_long()) return units(size);
    const std::optional<int64_t> number = parse_whole(id);
    if (!number) {
      if (quoted) count(DiagnosticId::kMissingField, "ID");
      return;
    }
    if (header.is_long())
      metric_row(*number, size);
    else
      wide_row(*number, size);
  }

  std::string_view cell(NcuColumn column, size_t size) const {
    const size_t at = header_->at(column);
    return at < size ? cells_[at] : std::string_view();
  }

  void units(size_t size) {
    if (header_->units) return;
    header_->units = true;
    for (Header::Metric& metric : header_->metrics) {
      if (metric.place >= size) continue;
      const Unit unit = plain_unit(cells_[metric.place]);
      metric.unit = text_of(unit.name, kTextBytesMax);
      metric.exponent = unit.exponent;
    }
  }

  void metric_row(int64_t number, size_t size) {
    const std::string_view metric = cell(NcuColumn::kMetric, size);
    if (metric.empty()) return;  // of a rule
    if (full()) return;
    const std::optional<ProfiledKernelId> kernel = kernel_of(number, size);
    if (!kernel) return;
    const Unit unit = plain_unit(cell(NcuColumn::kUnit, size));
    counter(*kernel, text_of(cell(NcuColumn::kSection, size), kTextBytesMax), text_of(metric, kTextBytesMax),
            text_of(unit.name, kTextBytesMax), unit.exponent, cell(NcuColumn::kValue, size));
  }

  void wide_row(int64_t number, size_t size) {
    const std::optional<ProfiledKernelId> kernel = new_kernel(number, size);
    if (!kernel) return;
    for (const Header::Metric& metric : header_->metrics)
      if (metric.place < size)
        counter(*kernel, StringId::kEmpty, metric.name, metric.unit, metric.exponent, cells_[metric.place]);
  }

  // Rows of a long table that have the same number, process and name are of one kernel.
  std::optional<ProfiledKernelId> kernel_of(int64_t number, size_t size) {
    const int64_t process = parse_whole(cell(NcuColumn::kProcess, size)).value_or(-1);
    const size_t name = std::hash<std::string_view>()(cell(NcuColumn::kName, size));
    const auto [at, added] = known_.try_emplace({number, process, name});
    if (added) {
      const std::optional<ProfiledKernelId> kernel = new_kernel(number, size);
      if (!kernel) {
        known_.erase(at);
        return std::nullopt;
      }
      at->second = *kernel;
    }
    return at->second;
  }

  std::optional<ProfiledKernelId> new_kernel(int64_t number, size_t size) {
    const std::string_view name = cell(NcuColumn::kName, size);
    if (name.empty()) {
      count(DiagnosticId::kMissingField, "Kernel Name");
      return std::nullopt;
    }
    if (kernels_.size() >= kKernelsMax) {
      count(DiagnosticId::kLimitReached, fmt::format("more than {} kernels", kKernelsMax));
      return std::nullopt;
    }
    Facts facts;
    facts.device = device_of(size);
    if (facts.device < 0) return std::nullopt;
    const std::string_view grid = cell(NcuColumn::kGrid, size), block = cell(NcuColumn::kBlock, size);
    if (!grid.empty() || !block.empty()) {
      const std::optional<std::array<int32_t, 3>> blocks = parse_size(grid), threads = parse_size(block);
      if (blocks && threads)
        facts.config = LaunchConfigs::Values{.grid_x = (*blocks)[0],
                                             .grid_y = (*blocks)[1],
                                             .grid_z = (*blocks)[2],
                                             .block_x = (*threads)[0],
                                             .block_y = (*threads)[1],
                                             .block_z = (*threads)[2]};
      else
        count(DiagnosticId::kBadNumber, "Grid Size, Block Size");
    }
    kernels_.push_back(facts);
    return builder_.add<ProfiledKernels>(
        {.stream = builder_.stream(facts.device, parse_whole(cell(NcuColumn::kContext, size)).value_or(-1),
                                   parse_whole(cell(NcuColumn::kStream, size)).value_or(-1)),
         .name = text_of(name, kKernelNameBytesMax),
         .process_id = parse_whole(cell(NcuColumn::kProcess, size)).value_or(-1),
         .number = number,
         .ranges = text_of(range_texts(cell(NcuColumn::kRanges, size)), kTextBytesMax)});
  }

  // The device of a row; old versions do not name it, and profile one. Negative if it makes no sense.
  int32_t device_of(size_t size) {
    int32_t device = 0;
    if (const std::string_view text = cell(NcuColumn::kDevice, size); !text.empty()) {
      const std::optional<int64_t> value = parse_whole(text);
      if (!value || *value >= static_cast<int64_t>(kNcuDevicesMax)) {
        count(DiagnosticId::kBadNumber, "Device");
        return -1;
      }
      device = static_cast<int32_t>(*value);
    }
    const auto [at, added] = devices_.try_emplace(device);
    if (added) {
      at->second.name = StringId::kEmpty;
      if (const auto capability = parse_capability(cell(NcuColumn::kCapability, size))) {
        at->second.compute_major = (*capability)[0];
        at->second.compute_minor = (*capability)[1];
      }
    }
    return device;
  }

  bool full() {
    if (trace_.kernel_counters.size() < kCountersMax) return false;
    count(DiagnosticId::kLimitReached, fmt::format("more than {} values", kCountersMax));
    return true;
  }

  // A value is kept in both notations, until the whole file has shown which it uses.
  void counter(ProfiledKernelId kernel, StringId section, StringId name, StringId unit, int exponent,
               std::string_view value) {
    if (value.empty() || full()) return;  // empty: not collected for this kernel
    const double point = parse_grouped(value, '.', exponent).value_or(kNoNumber);
    const double comma = parse_grouped(value, ',', exponent).value_or(kNoNumber);
    const bool is_point = std::isfinite(point), is_comma = std::isfinite(comma);
    points_ += is_point && !is_comma ? 1 : 0;
    commas_ += is_comma && !is_point ? 1 : 0;
    if (is_point && is_comma && point != comma && ambiguous_++ == 0) ambiguous_line_ = number_;
    with_comma_.push_back(comma);
    // Of a number that only one notation knows, the text stays until it is known to be the file's.
    builder_.add<KernelCounters>({.kernel = kernel,
                                  .section = section,
                                  .name = name,
                                  .value = point,
                                  .unit = unit,
                                  .text = is_point ? StringId::kEmpty : text_of(value, kTextBytesMax)});
  }

  // A decimal point, or a comma: whichever the file has more numbers of that the other cannot be.
  void choose_notation() {
    KernelCounters& counters = trace_.kernel_counters;
    const bool comma = commas_ > points_;
    if (ambiguous_ > 0 && points_ == commas_)
      trace_.diagnostics.add(DiagnosticId::kAmbiguousNumber, fmt::format("line {}", ambiguous_line_), ambiguous_);
    const uint64_t other = comma ? points_ : commas_;
    if (other > 0)
      trace_.diagnostics.add(DiagnosticId::kBadNumber,
                             fmt::format("numbers with a decimal {}, where most have a {}", comma ? "point" : "comma",
                                         comma ? "comma" : "point"),
                             other);
    if (!comma) return;
    for (size_t i = 0; i < counters.size(); ++i) {
      if (std::isfinite(with_comma_[i])) counters.text[i] = StringId::kEmpty;
      counters.value[i] = with_comma_[i];
    }
  }

  void take_facts() {
    const KernelCounters& counters = trace_.kernel_counters;
    std::unordered_map<uint32_t, Fact> facts;
    for (size_t i = 0; i < counters.size(); ++i) {
      const auto [at, added] = facts.try_emplace(index(counters.name[i]), Fact::kNone);
      if (added) at->second = fact_of(trace_.text(counters.name[i]));
      if (at->second != Fact::kNone) take_fact(at->second, i);
    }
    for (Facts& kernel : kernels_)
      if (kernel.config && kernel.shared_static >= 0 && kernel.shared_dynamic >= 0)
        kernel.config->shared_bytes = kernel.shared_static + kernel.shared_dynamic;
  }

  void take_fact(Fact fact, size_t row) {
    const KernelCounters& counters = trace_.kernel_counters;
    Facts& kernel = kernels_[counters.kernel[row]];
    Devices::Values& device = devices_[kernel.device];
    const double value = counters.value[row];
    constexpr int64_t kBytesMost = int64_t{1} << 50;
    switch (fact) {
      case Fact::kNone:
        break;
      case Fact::kDuration:
        if (kernel.dur_ns < 0 && trace_.text(counters.unit[row]) == "ns") kernel.dur_ns = whole(value, kDurationMost);
        break;
      case Fact::kRegisters:
        if (kernel.config) kernel.config->registers_per_thread = whole<int32_t>(value);
        break;
      case Fact::kSharedStatic:
        kernel.shared_static = whole(value, kBytesMost);
        break;
      case Fact::kSharedDynamic:
        kernel.shared_dynamic = whole(value, kBytesMost);
        break;
      case Fact::kOccupancy:
        if (kernel.config) kernel.config->occupancy_frac = static_cast<float>(value / 100);
        break;
      case Fact::kDeviceName:
        if (device.name == StringId::kEmpty) device.name = counters.text[row];
        break;
      case Fact::kSms:
        if (device.sm_count < 0) device.sm_count = whole<int32_t>(value);
        break;
      case Fact::kMemory:
        if (device.memory_bytes < 0) device.memory_bytes = whole(value, kBytesMost);
        break;
      case Fact::kThreadsPerSm:
        if (device.threads_per_sm_max < 0) device.threads_per_sm_max = whole<int32_t>(value);
        break;
      case Fact::kRegistersPerSm:
        if (device.registers_per_sm < 0) device.registers_per_sm = whole<int32_t>(value);
        break;
      case Fact::kSharedPerSm:
        if (device.shared_bytes_per_sm < 0) device.shared_bytes_per_sm = whole(value, kBytesMost);
        break;
    }
  }
  static constexpr int64_t kDurationMost = int64_t{1} << 60;

  Trace& trace_;
  TraceBuilder builder_;
  CsvRow cells_;
  std::optional<Header> header_;
  std::map<std::tuple<int64_t, int64_t, size_t>, ProfiledKernelId> known_;  // of a long table
  std::vector<Facts> kernels_;                                              // parallel to profiled_kernels
  std::map<int32_t, Devices::Values> devices_;
  std::vector<double> with_comma_;  // parallel to kernel_counters
  uint64_t number_ = 0, points_ = 0, commas_ = 0, ambiguous_ = 0, ambiguous_line_ = 0;
  bool summary_seen_ = false;
};

}  // namespace

int sniff(std::string_view head) {
  bool connected = false;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find('\n'));
    head.remove_prefix(std::min(line.size() + 1, head.size()));
    if (is_names_row(line)) return 95;
    connected = connected || line.starts_with("==PROF== Connected to process");
  }
  return connected ? 60 : 0;  // the program printed so much that the table lies behind
}

Status import(InputFile& input, Trace& trace) {
  NcuReader reader(trace);
  read_lines(input, [&](const Line& line) { reader.line(line); });
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (reader.finish()) return {};
  if (reader.summary_seen())
    return fail("expected a table of kernels as `ncu --csv` prints, found a summary over kernels", input.name(),
                "print each kernel: without --print-summary");
  if (reader.header_seen())
    return fail("expected a table of kernels as `ncu --csv` prints, found its header and no kernel below", input.name(),
                "no kernel was profiled: look for ==ERROR== and ==WARNING== in it, and at --kernel-name, --launch-skip "
                "and --nvtx-include");
  return fail(
      "expected a table of kernels as `ncu --csv` prints, found none", input.name(),
      "let ncu print one: ncu --csv --page raw --print-units base --metrics ... COMMAND > FILE, or of a report: "
      "ncu --import FILE.ncu-rep --csv --page raw");
}

}  // namespace llmprof::ncu
