// Matrix products by the logs of cuBLAS and cuBLASLt, the most arithmetic first.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string product_shape(const LoggedProductRecord& row) {
  if (!row.m || !row.n || !row.k || !row.batch) return "grouped";
  const std::string batch = *row.batch != 1 ? fmt::format("B{} ", *row.batch) : std::string();
  return fmt::format("{}M{} N{} K{}", batch, *row.m, *row.n, *row.k);
}

std::string product_types(const LoggedProductRecord& row) {
  const std::string first = row.dtype.value_or("-"), second = row.weight_dtype.value_or("-"),
                    result = row.out_dtype.value_or("-");
  return first == second && second == result ? first : fmt::format("{} {} {}", first, second, result);
}

// "66 64x8 64xAUTO 2x4x1" of "algoId=66 tile=MATMUL_TILE_64x8 stages=MATMUL_STAGES_64xAUTO ..".
std::string short_algorithm(const std::string& algorithm) {
  std::string out;
  for (const std::string_view key :
       {"algoId=", "tile=MATMUL_TILE_", "stages=MATMUL_STAGES_", "clusterShape=CLUSTER_SHAPE_"}) {
    const size_t at = algorithm.find(key);
    if (at == std::string::npos) continue;
    const size_t begin = at + key.size();
    out += (out.empty() ? "" : " ") + algorithm.substr(begin, algorithm.find(' ', begin) - begin);
  }
  return out.empty() ? algorithm : out;
}

}  // namespace

std::string text_logged_products(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfPage = 25;
  const bool alone = profiled_alone(report);
  if (report.logged_products.empty() || (options.one_page && !alone)) return {};
  const size_t most = options.one_page ? std::min(kRowsOfPage, options.top) : options.top;
  std::vector<TextTable::Column> columns = {
      {"function", kLeft, 30, 4}, {"shape", kLeft, 34},        {"type", kLeft, 20, 2},
      {"layout", kLeft, 0, 6},    {"calls", kRight, 0, 1},     {"FLOP each", kRight, 0, 3},
      {"FLOP", kRight, 0, 1},     {"algorithm", kLeft, 34, 5}, {"log", kLeft, 0, 7}};
  if (!alone)
    for (const char* name : {"recorded", "TFLOP/s"}) columns.push_back({name, kRight, 0, 2});
  TextTable table(std::move(columns));
  size_t shown = 0;
  for (const LoggedProductRecord& row : report.logged_products) {
    if (++shown > most) break;
    const auto flops = [](const OptDouble& value) { return value ? format_si(*value, "FLOP") : std::string("-"); };
    std::vector<std::string> cells = {printable(row.function),
                                      product_shape(row),
                                      product_types(row),
                                      row.layout,
                                      format_count(static_cast<double>(row.calls)),
                                      flops(row.flops),
                                      flops(row.total_flops),
                                      row.algorithm ? printable(short_algorithm(*row.algorithm)) : "-",
                                      row.logs};
    if (!alone) {
      cells.push_back(row.recorded_us ? fmt::format("{} x {}", format_count(static_cast<double>(*row.recorded_calls)),
                                                    format_ms(*row.recorded_us / 1e3))
                                      : "-");
      cells.push_back(row.recorded_tflops ? format_rate(*row.recorded_tflops) : "-");
    }
    table.add_row(std::move(cells));
  }
  const size_t all = report.logged_products.size();
  const std::string rest = all > most ? ink.dim(fmt::format("  {} more: --full, --format csv\n", all - most)) : "";
  return title(ink, "Logged matrix products", "by cuBLAS and cuBLASLt; one that is in both logs counts once") +
         table.render("  ", options) + rest + "\n";
}

}  // namespace llmprof
