// Reads the shipped tables once.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <unordered_map>

#include "base/csv.h"
#include "base/embedded.h"
#include "hardware/gpu_fields.h"

namespace llmprof {

std::span<const EmbeddedFile> embedded_hardware();  // written at build time from data/hardware

namespace {

struct Source {
  std::string text;  // "data sheet: ...", "derived: ...", "measured by others: ...", "doubtful: ..."
  bool doubtful = false;
};
using SourceMap = std::unordered_map<std::string, Source>;  // by "sku field"

Result<double> parse_number(const std::string& text, std::string_view column, const std::string& where) {
  double value = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    return fail(fmt::format("column {}: expected a positive number, found \"{}\"", column, text), where,
                "leave the cell empty if the value is not known");
  return value;
}

Result<size_t> need_column(const CsvTable& table, std::string_view name, const std::string& origin) {
  if (const std::optional<size_t> at = table.column(name)) return *at;
  return fail(fmt::format("expected a column \"{}\"", name), origin);
}

// The source of every value as a sentence.
Result<SourceMap> read_sources(std::string_view sources_csv, std::string_view keys_csv) {
  LLMPROF_ASSIGN(const CsvTable keys, read_csv(keys_csv, "source_keys.csv"));
  std::unordered_map<std::string, std::string> sentence;
  if (keys.header.size() != 2) return fail("expected the columns source_key and what", "source_keys.csv");
  for (const std::vector<std::string>& row : keys.rows) sentence[row[0]] = row[1];

  LLMPROF_ASSIGN(const CsvTable table, read_csv(sources_csv, "sources.csv"));
  LLMPROF_ASSIGN(const size_t sku, need_column(table, "sku", "sources.csv"));
  LLMPROF_ASSIGN(const size_t field, need_column(table, "field", "sources.csv"));
  LLMPROF_ASSIGN(const size_t key, need_column(table, "source_key", "sources.csv"));
  LLMPROF_ASSIGN(const size_t confidence, need_column(table, "confidence", "sources.csv"));
  SourceMap sources;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const std::vector<std::string>& row = table.rows[i];
    const std::string where = fmt::format("sources.csv, line {}", table.lines[i]);
    std::string text;
    for (size_t start = 0; start <= row[key].size();) {  // "MLE+CALC": several
      const size_t end = std::min(row[key].find('+', start), row[key].size());
      const std::string one = row[key].substr(start, end - start);
      if (sentence.count(one) == 0) return fail(fmt::format("the source key \"{}\" is not explained", one), where);
      text += (text.empty() ? "" : "; ") + sentence[one];
      start = end + 1;
    }
    if (row[confidence] != "ok" && row[confidence] != "doubtful")
      return fail(fmt::format("confidence: expected ok or doubtful, found \"{}\"", row[confidence]), where);
    std::string_view kind = row[key] == "CALC" ? "derived: " : "data sheet: ";
    if (row[field].rfind("measured", 0) == 0) kind = "measured by others: ";
    const bool doubtful = row[confidence] == "doubtful";
    if (doubtful) kind = "doubtful: ";
    sources[row[sku] + " " + row[field]] = {std::string(kind) + text, doubtful};
  }
  return sources;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    if (end > start) words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

Result<Gpu> read_row(const CsvTable& table, size_t index, const SourceMap& sources) {
  const std::vector<std::string>& row = table.rows[index];
  const std::string where = fmt::format("gpus.csv, line {}", table.lines[index]);
  Gpu gpu;
  for (const TextColumn& column : kTextColumns) {
    LLMPROF_ASSIGN(const size_t at, need_column(table, column.name, "gpus.csv"));
    gpu.*column.member = row[at];
  }
  for (const NumberColumn& column : kNumberColumns) {
    LLMPROF_ASSIGN(const size_t at, need_column(table, column.name, "gpus.csv"));
    if (row[at].empty()) continue;
    LLMPROF_ASSIGN(const double value, parse_number(row[at], column.name, where));
    const SourceMap::const_iterator source = sources.find(gpu.sku + " " + std::string(column.name));
    if (source == sources.end())
      return fail(fmt::format("the value of {} has no row in sources.csv", column.name), where);
    gpu.*column.member = Sourced{value, source->second.text, source->second.doubtful};
  }
  LLMPROF_ASSIGN(const size_t doubtful, need_column(table, "doubtful_fields", "gpus.csv"));
  gpu.doubtful_fields = split_words(row[doubtful]);
  LLMPROF_ASSIGN(const size_t clock, need_column(table, "clock_mhz_implied_by_fp16_peak", "gpus.csv"));
  if (!row[clock].empty()) {
    LLMPROF_ASSIGN(const double mhz, parse_number(row[clock], "clock_mhz_implied_by_fp16_peak", where));
    const bool unsure = (gpu.fp16_tflops && gpu.fp16_tflops->doubtful) || (gpu.sm_count && gpu.sm_count->doubtful);
    gpu.fp16_peak_clock_mhz = Sourced{
        mhz, std::string(unsure ? "doubtful: " : "") + "derived: FP16 peak / (SMs x FLOP per SM and clock)", unsure};
  }
  return gpu;
}

}  // namespace

Result<HardwareTables> read_hardware(std::string_view gpus_csv, std::string_view sources_csv,
                                     std::string_view source_keys_csv, std::string_view device_names_csv) {
  LLMPROF_ASSIGN(const SourceMap sources, read_sources(sources_csv, source_keys_csv));
  LLMPROF_ASSIGN(const CsvTable table, read_csv(gpus_csv, "gpus.csv"));
  HardwareTables tables;
  std::unordered_map<std::string, size_t> by_sku;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    LLMPROF_ASSIGN(Gpu gpu, read_row(table, i, sources));
    if (!by_sku.emplace(gpu.sku, i).second)
      return fail(fmt::format("the SKU {} appears twice", gpu.sku), fmt::format("gpus.csv, line {}", table.lines[i]));
    tables.gpus.push_back(std::move(gpu));
  }
  LLMPROF_ASSIGN(const CsvTable names, read_csv(device_names_csv, "device_names.csv"));
  LLMPROF_ASSIGN(const size_t name, need_column(names, "device_name", "device_names.csv"));
  LLMPROF_ASSIGN(const size_t sku, need_column(names, "sku", "device_names.csv"));
  for (size_t i = 0; i < names.rows.size(); ++i) {
    if (by_sku.count(names.rows[i][sku]) == 0)
      return fail(fmt::format("\"{}\" is no SKU of gpus.csv", names.rows[i][sku]),
                  fmt::format("device_names.csv, line {}", names.lines[i]));
    tables.device_names.push_back({names.rows[i][name], names.rows[i][sku]});
  }
  return tables;
}

const HardwareTables& shipped_hardware() {
  static const HardwareTables tables = [] {
    const std::span<const EmbeddedFile> files = embedded_hardware();
    Result<HardwareTables> read = read_hardware(files[0].text, files[1].text, files[2].text, files[3].text);
    if (!read) {  // only a broken build gets here; going on without hardware would mean guessing
      std::fprintf(stderr, "llmprof: the built-in hardware table is damaged: %s\n", read.error().text().c_str());
      std::abort();
    }
    return *std::move(read);
  }();
  return tables;
}

const std::vector<Gpu>& gpu_table() { return shipped_hardware().gpus; }

std::vector<GpuRow> gpu_rows() {
  const auto value = [](const MaybeSourced& sourced) {
    return sourced ? std::optional<double>(sourced->value) : std::nullopt;
  };
  std::vector<GpuRow> rows;
  for (const Gpu& gpu : gpu_table())
    rows.push_back({gpu.sku, gpu.architecture, gpu.compute_capability, value(gpu.sm_count), value(gpu.bf16_tflops),
                    value(gpu.fp8_tflops), value(gpu.mem_gb), value(gpu.mem_bw_gbs), value(gpu.tdp_w),
                    static_cast<int64_t>(gpu.doubtful_fields.size())});
  return rows;
}

}  // namespace llmprof
