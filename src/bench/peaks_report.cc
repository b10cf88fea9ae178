#include "bench/peaks_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/record_writer.h"
#include "base/text_table.h"
#include "bench/data_sheet.h"

namespace llmprof::bench {
namespace {

using Align = TextTable::Align;

template <class Row>
void fill_common(const Peaks& peaks, const PeakRow& of, Row& row) {
  const CaseResult& result = of.result;
  row.disturbed = is_disturbed(peaks, of);
  row.backend = result.backend;
  row.status = case_status_name(result.status);
  if (result.timings.empty()) return;
  const Timing& timing = result.timings[0];
  row.n = timing.summary.n;
  row.iqr_frac = timing.summary.iqr_frac();
  row.sm_clock_mhz = timing.clock_mhz;
  row.power_w = timing.power_w;
  row.temperature_c = timing.temperature_c;
  row.throttle = throttle_text(timing);
  row.wait_frac = timing.wait_frac;
  row.checked = result.check.compared;
  row.prepare_s = result.phases.prepare_s;
  row.check_s = result.phases.check_s;
  row.choose_s = result.phases.choose_s;
  row.settle_s = result.phases.settle_s;
  row.timing_s = result.phases.timing_s;
}

void add_flops(const Peaks& peaks, const PeakRow& row, const std::optional<Gpu>& gpu, PeakTables& tables) {
  PeakFlopsRow out;
  fill_common(peaks, row, out);
  out.dtype = row.name;
  out.path = row.path;
  out.tflops = row.value;
  out.shape = row.shape;
  if (row.below_library) out.backend += ", not the unit's limit";
  if (const OptNumber sheet = sheet_tflops(gpu, row.name)) out.of_datasheet_frac = row.value / *sheet;
  out.of_clock_frac = of_sheet_at_clock(peaks.device, row);
  if (row.path == "library") out.gap_to_first_frac = row.result.gap_to_first_frac;
  tables.flops.push_back(std::move(out));
}

void add_bandwidth(const Peaks& peaks, const PeakRow& row, PeakTables& tables) {
  PeakBandwidthRow out;
  fill_common(peaks, row, out);
  out.kind = row.name;
  out.gbs = row.value;
  out.bytes = row.result.cost.bytes();
  out.of_datasheet_frac = of_sheet_at_clock(peaks.device, row);
  tables.bandwidth.push_back(std::move(out));
}

void add_ridges(const Peaks& peaks, const std::optional<Gpu>& gpu, PeakTables& tables) {
  const MeasuredCeilings ceilings = ceilings_of(peaks);
  const std::optional<MeasuredRate> memory = memory_ceiling(ceilings);
  std::set<std::string> seen;
  for (const PeakRow& row : peaks.rows) {
    if (row.group != "flops" || !seen.insert(row.name).second) continue;
    const std::map<std::string, MeasuredRate>::const_iterator peak = ceilings.library_tflops.find(row.name);
    if (const OptNumber ridge = measured_ridge(ceilings, row.name); ridge && memory)
      tables.ridge.push_back({row.name, ridge, peak->second.value, memory->value, "measured"});
    const OptNumber tflops = sheet_tflops(gpu, row.name), gbs = sheet_gbs(gpu);
    if (tflops && gbs) tables.ridge.push_back({row.name, *tflops * 1e3 / *gbs, tflops, gbs, "datasheet"});
  }
}

std::string cell(const OptNumber& value, int decimals) { return value ? format_fixed(*value, decimals) : ""; }
std::string percent(const OptNumber& fraction) { return fraction ? format_percent(*fraction) : ""; }
std::string rate(const OptNumber& value) { return value ? format_rate(*value) : ""; }

// Columns that no row fills are left out: a CPU has no data sheet and no power.
std::string table_text(const std::vector<TextTable::Column>& columns, const std::vector<std::vector<std::string>>& rows,
                       const TextStyle& style) {
  std::vector<TextTable::Column> shown;
  std::vector<size_t> index;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (c > 0 && std::all_of(rows.begin(), rows.end(), [c](const auto& row) { return row[c].empty(); })) continue;
    shown.push_back(columns[c]);
    index.push_back(c);
  }
  TextTable table(shown);
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string> cells;
    for (const size_t c : index) cells.push_back(row[c]);
    table.add_row(std::move(cells));
  }
  return table.render("  ", style);
}

// What a CPU does is better read in thousandths.
template <class Row>
bool are_small(const std::vector<Row>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.tflops.value_or(0) < 1; });
}

std::string flops_text(const PeakTables& tables, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows;
  const bool small = are_small(tables.flops);
  for (const PeakFlopsRow& row : tables.flops)
    rows.push_back({row.dtype, row.path, rate(row.tflops.value_or(0) * (small ? 1e3 : 1)),
                    percent(row.of_datasheet_frac), percent(row.of_clock_frac), percent(row.iqr_frac),
                    cell(row.sm_clock_mhz, 0), cell(row.power_w, 0), row.throttle, row.shape, row.backend});
  if (rows.empty()) return "";
  return "\nArithmetic (a multiply-add is two FLOPs)\n" + table_text({{"dtype", Align::kLeft},
                                                                      {"by", Align::kLeft, 0, 1},
                                                                      {small ? "GFLOP/s" : "TFLOP/s", Align::kRight},
                                                                      {"of sheet", Align::kRight, 0, 2},
                                                                      {"of clock", Align::kRight, 0, 3},
                                                                      {"IQR", Align::kRight, 0, 4},
                                                                      {"MHz", Align::kRight, 0, 6},
                                                                      {"W", Align::kRight, 0, 5},
                                                                      {"limited by", Align::kLeft, 0, 3},
                                                                      {"shape", Align::kLeft, 0, 8},
                                                                      {"backend", Align::kLeft, 0, 7}},
                                                                     rows, style);
}

std::string bandwidth_text(const PeakTables& tables, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows;
  for (const PeakBandwidthRow& row : tables.bandwidth)
    rows.push_back({row.kind, rate(row.gbs), percent(row.of_datasheet_frac), percent(row.iqr_frac),
                    cell(row.sm_clock_mhz, 0), cell(row.power_w, 0), row.bytes ? format_bytes(*row.bytes) : "",
                    row.backend});
  if (rows.empty()) return "";
  return "\nMemory (bytes read plus written, 1 GB = 1e9 bytes)\n" + table_text({{"kind", Align::kLeft},
                                                                                {"GB/s", Align::kRight},
                                                                                {"of sheet", Align::kRight, 0, 2},
                                                                                {"IQR", Align::kRight, 0, 4},
                                                                                {"MHz", Align::kRight, 0, 6},
                                                                                {"W", Align::kRight, 0, 5},
                                                                                {"moved", Align::kRight, 0, 7},
                                                                                {"backend", Align::kLeft, 0, 7}},
                                                                               rows, style);
}

std::string latency_text(const PeakTables& tables, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows;
  for (const PeakLatencyRow& row : tables.latency) rows.push_back({row.kind, cell(row.us, 2), percent(row.iqr_frac)});
  if (rows.empty()) return "";
  return "\nFixed costs\n" +
         table_text({{"kind", Align::kLeft}, {"us", Align::kRight}, {"IQR", Align::kRight, 0, 4}}, rows, style);
}

std::string ridge_text(const PeakTables& tables) {
  if (tables.ridge.empty()) return "";
  std::string out = "\nRidge point (from here on arithmetic is the limit, below it memory)\n";
  // As in the table of arithmetic.
  const bool small = are_small(tables.ridge);
  for (const RidgeRow& row : tables.ridge)
    out += fmt::format("  {:<6} {:>6} FLOP/B = {} {}FLOP/s / {} GB/s  {}\n", row.dtype, rate(row.flop_per_byte),
                       rate(*row.tflops * (small ? 1e3 : 1)), small ? "G" : "T", rate(row.gbs),
                       row.provenance == "datasheet" ? "data sheet" : row.provenance.c_str());
  return out;
}

}  // namespace

std::string throttle_text(const Timing& timing) {
  std::string out;
  for (const auto& [reason, share] : timing.throttle_fracs)
    if (share > 0) out += fmt::format("{}{} {:.0f} %", out.empty() ? "" : ", ", reason, share * 100);
  return out;
}

PeakTables tables_of(const Peaks& peaks) {
  PeakTables tables;
  const std::optional<Gpu> gpu = data_sheet_of(peaks.device);
  for (const PeakRow& row : peaks.rows) {
    if (row.group == "flops") {
      add_flops(peaks, row, gpu, tables);
    } else if (row.group == "bandwidth") {
      add_bandwidth(peaks, row, tables);
    } else {
      PeakLatencyRow out;
      fill_common(peaks, row, out);
      out.kind = row.name;
      out.us = row.value;
      tables.latency.push_back(std::move(out));
    }
  }
  add_ridges(peaks, gpu, tables);
  return tables;
}

std::string device_line(const device::DeviceIdentity& device) {
  const bool cpu = device.kind == device::DeviceKind::kCpu;
  std::string out = device.name;
  if (!cpu) out += fmt::format(" ({}, driver {})", device.uuid, device.driver);
  out += fmt::format(", {} {}{}", device.units, cpu ? "thread" : "SM", device.units == 1 ? "" : "s");
  for (size_t i = 0; i < device.libraries.size(); ++i)
    out += fmt::format("{}{} {}", i == 0 ? "; " : ", ", device.libraries[i].name, device.libraries[i].version);
  return out;
}

std::string peaks_text(const Peaks& peaks, const std::string& kept, const TextStyle& style) {
  const PeakTables tables = tables_of(peaks);
  std::string out = device_line(peaks.device) + "\n";
  out += flops_text(tables, style) + bandwidth_text(tables, style) + latency_text(tables, style) + ridge_text(tables);
  if (!peaks.remarks.empty()) out += "\nRemarks\n";
  for (const std::string& remark : peaks.remarks) out += "  " + remark + "\n";
  if (peaks.interrupted) out += "\nInterrupted: what was measured until then.\n";
  return out + (kept.empty() ? "" : "\n" + kept + "\n");
}

void write_device(JsonWriter& json, const device::DeviceIdentity& device) {
  const auto text = [](const std::string& value) {
    return value.empty() ? std::nullopt : std::optional<std::string>(value);
  };
  const bool cpu = device.kind == device::DeviceKind::kCpu;
  json.begin_object();
  json.field("kind", cpu ? "cpu" : "cuda").field("key", device.key).field("name", device.name);
  json.field("uuid", text(device.uuid)).field("driver", text(device.driver));
  json.field("compute_capability", cpu ? std::nullopt : text(fmt::format("{}.{}", device.cc_major, device.cc_minor)));
  json.field("units", device.units).field("memory_bytes", device.memory_bytes);
  json.field("cache_bytes", device.cache_bytes);
  json.field("clock_max_mhz", device.clock_max_mhz > 0 ? OptNumber(device.clock_max_mhz) : std::nullopt);
  json.key("libraries").begin_array();
  for (const LibraryVersion& library : device.libraries) {
    json.begin_object().field("name", library.name).field("version", library.version).field("path", library.path);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

std::string peaks_json(const Peaks& peaks, const std::string& tool_version) {
  const PeakTables tables = tables_of(peaks);
  JsonWriter json;
  json.begin_object().field("schema", "llmprof.peaks/1").field("tool_version", tool_version);
  json.key("device");
  write_device(json, peaks.device);
  write_records(json, "flops", tables.flops);
  write_records(json, "bandwidth", tables.bandwidth);
  write_records(json, "latency", tables.latency);
  write_records(json, "ridge", tables.ridge);
  json.field("interrupted", peaks.interrupted);
  json.key("diagnostics").begin_array();
  for (const std::string& remark : peaks.remarks) json.value(remark);
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

std::vector<std::pair<std::string, std::string>> peaks_csv(const Peaks& peaks) {
  const PeakTables tables = tables_of(peaks);
  return {{"flops", records_csv(tables.flops)},
          {"bandwidth", records_csv(tables.bandwidth)},
          {"latency", records_csv(tables.latency)},
          {"ridge", records_csv(tables.ridge)}};
}

}  // namespace llmprof::bench
