#include "import/dcgm_dmon.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "import/bounded_lines.h"
#include "import/smi_log.h"
#include "trace/throttle_known.h"

namespace llmprof::dcgm_dmon {
namespace {

using namespace smi;

constexpr std::string_view kDcgmBlanks = " \t\r";
constexpr std::string_view kDcgmAbsent = "N/A";
// What DCGM writes where it has no value, as numbers that reach the file where dcgmi does not know them
// (dcgm_structs.h).
constexpr double kDcgmBlankDouble = 140737488355328.0;
constexpr uint64_t kDcgmReasonsKnown = 0x1FF;  // the bits that DCGM defines are NVML's

// A column of nvml_samples or of gpu_samples, and what a number of the file is multiplied by.
struct DcgmColumn {
  std::string_view name;
  double factor = 0;  // 0: known and not kept
  float NvmlSamples::Values::*reading = nullptr;
  float GpuSamples::Values::*counter = nullptr;
  bool share = false;  // of the peak: 0 to 1
};

DcgmColumn reading(std::string_view name, double factor, float NvmlSamples::Values::*to) {
  return {name, factor, to, nullptr, false};
}
DcgmColumn share(std::string_view name, float GpuSamples::Values::*to) { return {name, 1, nullptr, to, true}; }
DcgmColumn rate(std::string_view name, float GpuSamples::Values::*to) { return {name, 1, nullptr, to, false}; }

// Short names of dcgmlib/src/dcgm_fields.cpp. TOTEC, FBUSD and DVCCTR are whole numbers, and read apart.
std::optional<DcgmColumn> dcgm_column(std::string_view name) {
  using Nvml = NvmlSamples::Values;
  using Gpu = GpuSamples::Values;
  static const std::array kColumns = {
      reading("GPUTL", 0.01, &Nvml::gpu_util_frac),
      reading("MCUTL", 0.01, &Nvml::memory_util_frac),
      reading("SMCLK", 1, &Nvml::sm_clock_mhz),
      reading("MMCLK", 1, &Nvml::memory_clock_mhz),
      reading("POWER", 1, &Nvml::power_w),
      reading("TMPTR", 1, &Nvml::temperature_c),
      reading("MMTMP", 1, &Nvml::memory_temperature_c),
      share("GRACT", &Gpu::gr_active_frac),
      share("SMACT", &Gpu::sm_active_frac),
      share("SMOCC", &Gpu::warps_active_frac),
      share("TENSO", &Gpu::tensor_active_frac),
      share("DRAMA", &Gpu::dram_active_frac),
      rate("PCITX", &Gpu::pcie_write_bytes_per_s),
      rate("PCIRX", &Gpu::pcie_read_bytes_per_s),
      rate("NVLTX", &Gpu::nvlink_tx_bytes_per_s),
      rate("NVLRX", &Gpu::nvlink_rx_bytes_per_s),
  };
  for (const DcgmColumn& column : kColumns)
    if (column.name == name) return column;
  constexpr std::array<std::string_view, 23> kWithoutPlace = {
      "TOTEC", "FBUSD", "DVCCTR", "FP64A", "FP32A", "FP16A", "TIMMA", "THMMA", "TDFMA", "INTAC", "FBTTL", "FBFRE",
      "FBRSV", "FBUSP", "XIDER",  "PMLMT", "EPLMT", "PSTAT", "ECUTL", "DCUTL", "PVIOL", "TVIOL", "SACLK"};
  for (const std::string_view known : kWithoutPlace)
    if (known == name) return DcgmColumn{name};
  return std::nullopt;
}

// The words of a line, with up to three of them for the entity ("GPU 0", "CPU Core 3"). A cell of text may hold single
// blanks: cells lie two blanks apart then, and words are joined.
struct DcgmWords {
  std::array<std::string_view, kCellsMax> word;
  size_t count = 0;
  bool more = false;  // than kCellsMax; those are left out

  // `wide`: a single blank does not part.
  explicit DcgmWords(std::string_view line, bool wide = false) {
    for (size_t at = 0;;) {
      at = line.find_first_not_of(kDcgmBlanks, at);
      if (at == std::string_view::npos) return;
      size_t end = std::min(line.find_first_of(kDcgmBlanks, at), line.size());
      while (wide && end + 1 < line.size() && line[end] == ' ' &&
             kDcgmBlanks.find(line[end + 1]) == std::string_view::npos)
        end = std::min(line.find_first_of(kDcgmBlanks, end + 1), line.size());
      if (count == kCellsMax) {
        more = true;
        return;
      }
      word[count++] = line.substr(at, end - at);
      at = end;
    }
  }
};

// "#Entity NAME ...", or "# Entity NAME ..." of DCGM 2.0: how many words stand before the names; 0 for other lines.
size_t words_before_names(const DcgmWords& words) {
  if (words.count >= 2 && words.word[0] == "#Entity") return 1;
  if (words.count >= 3 && words.word[0] == "#" && words.word[1] == "Entity") return 2;
  return 0;
}

// What else dcgmi prints: the line of units, and its last words.
bool is_other_text(const DcgmWords& words) {
  return words.word[0] == "ID" || words.word[0] == "Id" || (words.word[0] == "dmon" && words.count > 1);
}

class DcgmReader {
 public:
  explicit DcgmReader(Trace& trace) : log_(trace) {}

  // `cut`: the file ends within this line.
  void line(std::string_view text, bool cut) {
    log_.next_line();
    const DcgmWords words(text);
    if (words.count == 0) return;
    if (words.more) log_.count(DiagnosticId::kLimitReached, fmt::format("more than {} cells", kCellsMax));
    if (cut) log_.count(DiagnosticId::kTruncatedFile, "no end of line");
    if (const size_t before = words_before_names(words); before > 0)
      names(words, before);
    else if (columns_ > 0 && !words.more && !is_other_text(words))
      sample(text, words, cut);
  }

  void too_long() {
    log_.next_line();
    log_.count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kLineBytesMax));
  }

  bool finish() {
    if (!log_.any()) return false;
    if (reasons_) set_throttle_reasons_known(log_.trace(), kDcgmReasonsKnown);
    log_.finish("dcgmi dmon");
    return true;
  }
  const std::set<std::string>& other_entities() const { return others_; }

 private:
  // dcgmi repeats its header; what is not known counts once per name.
  void names(const DcgmWords& words, size_t before) {
    columns_ = words.count - before;
    for (size_t i = 0; i < columns_; ++i) {
      const std::string_view name = words.word[before + i];
      const std::optional<DcgmColumn> known = dcgm_column(name);
      if (!known) log_.unknown_column(name);
      column_[i] = known.value_or(DcgmColumn{});
      energy_[i] = name == "TOTEC";
      memory_[i] = name == "FBUSD";
      reason_[i] = name == "DVCCTR";
    }
  }

  // The last cell of a cut line may lack its end, and those behind it are missing: what stands before is kept.
  void sample(std::string_view text, const DcgmWords& words, bool cut) {
    size_t number = 1;  // of the word that numbers the entity
    while (number < std::min<size_t>(words.count, 3) && !parse_digits(words.word[number])) ++number;
    if (number >= words.count || number > 2 || (words.word[0] == "GPU" && number > 1)) {
      log_.count(DiagnosticId::kMalformedEvent, "no entity");
      return;
    }
    const char* const behind = words.word[number].data() + words.word[number].size();
    const std::string_view rest = text.substr(static_cast<size_t>(behind - text.data()));
    DcgmWords cells(rest);
    if (cells.count > columns_) cells = DcgmWords(rest, true);
    const size_t whole = cut && cells.count > 0 ? cells.count - 1 : cells.count;
    if (whole > columns_ || (whole < columns_ && !cut)) {
      log_.count(DiagnosticId::kMalformedEvent, fmt::format("{} cells under {} columns", whole, columns_));
      return;
    }
    const std::optional<int32_t> device = parse_digits(words.word[number]);
    if (words.word[0] != "GPU")
      other_entity(words.word[0]);
    else if (!device || *device >= kDevicesMax)
      log_.count(DiagnosticId::kMissingField, "number of the GPU");
    else
      gpu(*device, cells, whole);
  }

  // No table has a place for parts of a GPU, switches and CPUs: once per kind.
  void other_entity(std::string_view kind) {
    constexpr size_t kKindsMax = 16;
    const std::string kept(kind.substr(0, kNameBytesMax));
    if (others_.size() >= kKindsMax || !others_.insert(kept).second) return;
    log_.count(DiagnosticId::kUnknownCategory, fmt::format("entity \"{}\"", kept));
  }

  void gpu(int32_t device, const DcgmWords& cells, size_t whole) {
    NvmlSamples::Values row;
    row.throttle_reasons = kThrottleReasonsUnknown;
    GpuSamples::Values counters;
    bool counted = false;
    for (size_t i = 0; i < whole; ++i) {
      const std::string_view cell = cells.word[i];
      if (cell == kDcgmAbsent) continue;
      bool good = true;
      if (energy_[i] || memory_[i] || reason_[i])
        good = integer(i, cell, row);
      else if (column_[i].factor != 0)
        good = value(column_[i], cell, row, counters, counted);
      if (!good) log_.count(DiagnosticId::kBadNumber, fmt::format("column {}", i + 1));
    }
    row.time_ns = log_.clock().assumed(device);
    row.device = device;
    log_.add(row, false);
    if (!counted) return;
    counters.device = device;
    counters.source = CounterSource::kDcgm;
    log_.add_counters(counters, row.time_ns);
  }

  // Counts of energy, memory and bits, which DCGM prints as whole numbers.
  bool integer(size_t column, std::string_view cell, NvmlSamples::Values& row) {
    constexpr uint64_t kBlankMin = 0x7FFF'FFFF'FFFF'FFF0, kMemoryMibMax = uint64_t{1} << 40;
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error != std::errc() || end != cell.data() + cell.size()) return false;
    if (number >= kBlankMin) return true;
    if (energy_[column]) {
      row.energy_j = static_cast<double>(number) / 1000;
    } else if (memory_[column]) {
      if (number > kMemoryMibMax) return false;
      row.memory_used_bytes = static_cast<int64_t>(number) * (int64_t{1} << 20);
    } else {
      row.throttle_reasons = number;
      reasons_ = true;
    }
    return true;
  }

  static bool value(const DcgmColumn& column, std::string_view cell, NvmlSamples::Values& row,
                    GpuSamples::Values& counters, bool& counted) {
    double number = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(number)) return false;
    if (number >= kDcgmBlankDouble) return true;  // no rate or reading comes near
    if (number < 0 && column.counter != nullptr) return false;
    if (column.share && number > 1.5) return false;  // shares may pass 1 by rounding; percent they are not
    const float kept = static_cast<float>(number * column.factor);
    if (column.reading != nullptr) {
      row.*column.reading = kept;
    } else {
      counters.*column.counter = kept;
      counted = true;
    }
    return true;
  }

  SmiLog log_;
  std::array<DcgmColumn, kCellsMax> column_{};  // of the last line of names
  std::array<bool, kCellsMax> energy_{}, memory_{}, reason_{};
  size_t columns_ = 0;
  bool reasons_ = false;
  std::set<std::string> others_;
};

}  // namespace

int sniff(std::string_view head) {
  // Messages of the host engine may stand before the header.
  for (std::string_view rest = head.substr(0, kLineBytesMax); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const DcgmWords words(line);
    const size_t before = words_before_names(words);
    for (size_t i = before; before > 0 && i < words.count; ++i)
      if (dcgm_column(words.word[i])) return 90;
  }
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  DcgmReader reader(trace);
  smi::read_lines(input, trace, reader);
  if (reader.finish()) return {};
  if (!reader.other_entities().empty())
    return fail("expected lines of whole GPUs (\"GPU 0\") in the output of `dcgmi dmon`, found only those of \"" +
                    *reader.other_entities().begin() + "\"",
                input.name(), "name GPUs: dcgmi dmon -i 0 -e 155,203,1001,1002,1004,1005 > FILE");
  return fail("expected a line of values under the header of `dcgmi dmon`, found none", input.name(),
              "let it run for some intervals, and see the file for its error: dcgmi dmon -e 155,203,1002,1005 -c 60 > "
              "FILE");
}

}  // namespace llmprof::dcgm_dmon
