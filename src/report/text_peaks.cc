// The page of `llmprof peaks`.
#include <fmt/format.h>

#include <algorithm>

#include "report/text_measuring.h"

namespace llmprof {
namespace bench {
namespace {

// What a CPU does is better read in thousandths.
template <class Row>
bool are_small(const std::vector<Row>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.tflops.value_or(0) < 1; });
}

std::string flops_text(const PeaksResult& result, const RenderOptions& style) {
  std::vector<std::vector<std::string>> rows;
  const bool small = are_small(result.flops);
  for (const PeakFlopsRow& row : result.flops)
    rows.push_back({row.dtype, std::string(name_of(row.path)), rate_text(row.tflops.value_or(0) * (small ? 1e3 : 1)),
                    percent_text(row.of_datasheet_frac), percent_text(row.of_clock_frac), percent_text(row.iqr_frac),
                    fixed_text(row.sm_clock_mhz, 0), fixed_text(row.power_w, 0), row.throttle, row.shape, row.backend});
  if (rows.empty()) return "";
  return "\nArithmetic (a multiply-add is two FLOPs)\n" +
         filled_columns({{"dtype", Align::kLeft},
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

std::string bandwidth_text(const PeaksResult& result, const RenderOptions& style) {
  std::vector<std::vector<std::string>> rows;
  for (const PeakBandwidthRow& row : result.bandwidth)
    rows.push_back({row.kind, rate_text(row.gbs), percent_text(row.of_datasheet_frac), percent_text(row.iqr_frac),
                    fixed_text(row.sm_clock_mhz, 0), fixed_text(row.power_w, 0),
                    row.bytes ? format_bytes(*row.bytes) : "", row.backend});
  if (rows.empty()) return "";
  return "\nMemory (bytes read plus written, 1 GB = 1e9 bytes)\n" + filled_columns({{"kind", Align::kLeft},
                                                                                    {"GB/s", Align::kRight},
                                                                                    {"of sheet", Align::kRight, 0, 2},
                                                                                    {"IQR", Align::kRight, 0, 4},
                                                                                    {"MHz", Align::kRight, 0, 6},
                                                                                    {"W", Align::kRight, 0, 5},
                                                                                    {"moved", Align::kRight, 0, 7},
                                                                                    {"backend", Align::kLeft, 0, 7}},
                                                                                   rows, style);
}

std::string latency_text(const PeaksResult& result, const RenderOptions& style) {
  std::vector<std::vector<std::string>> rows;
  for (const PeakLatencyRow& row : result.latency)
    rows.push_back({row.kind, fixed_text(row.us, 2), percent_text(row.iqr_frac)});
  if (rows.empty()) return "";
  return "\nFixed costs\n" +
         filled_columns({{"kind", Align::kLeft}, {"us", Align::kRight}, {"IQR", Align::kRight, 0, 4}}, rows, style);
}

std::string recorder_text(const PeaksResult& result, const RenderOptions& style) {
  std::vector<std::vector<std::string>> rows;
  for (const PeakRecorderRow& row : result.recorder)
    rows.push_back({row.kind, fixed_text(row.plain_us, 2), fixed_text(row.recorded_us, 2), fixed_text(row.cost_us, 2),
                    fixed_text(row.spread_us, 2)});
  if (rows.empty()) return "";
  return "\nWhat `llmprof run` costs here (us of one)\n" + filled_columns({{"kind", Align::kLeft},
                                                                           {"alone", Align::kRight},
                                                                           {"recorded", Align::kRight},
                                                                           {"cost", Align::kRight},
                                                                           {"spread", Align::kRight, 0, 4}},
                                                                          rows, style);
}

std::string ridge_text(const PeaksResult& result) {
  if (result.ridge.empty()) return "";
  std::string out = "\nRidge point (from here on arithmetic is the limit, below it memory)\n";
  // As in the table of arithmetic.
  const bool small = are_small(result.ridge);
  for (const RidgeRow& row : result.ridge)
    out += fmt::format("  {:<6} {:>6} FLOP/B = {} {}FLOP/s / {} GB/s  {}\n", row.dtype, rate_text(row.flop_per_byte),
                       rate_text(*row.tflops * (small ? 1e3 : 1)), small ? "G" : "T", rate_text(row.gbs),
                       row.provenance == PeakSource::kDatasheet ? "data sheet" : "measured");
  return out;
}

}  // namespace
}  // namespace bench

std::string render_text(const bench::PeaksResult& peaks, const RenderOptions& options) {
  std::string out = bench::device_line(peaks.device) + "\n";
  out += bench::flops_text(peaks, options) + bench::bandwidth_text(peaks, options) +
         bench::latency_text(peaks, options) + bench::recorder_text(peaks, options) + bench::ridge_text(peaks);
  if (!peaks.diagnostics.empty()) out += "\nRemarks\n";
  for (const std::string& remark : peaks.diagnostics) out += "  " + remark + "\n";
  if (peaks.interrupted) out += "\nInterrupted: what was measured until then.\n";
  return finish_page(out + (peaks.kept.empty() ? "" : "\n" + peaks.kept + "\n"), options);
}

}  // namespace llmprof
