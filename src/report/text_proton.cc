// Scopes and kernels by Triton's Proton.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string proton_ms(const OptDouble& ms) { return ms ? format_ms(*ms) : std::string("-"); }
std::string proton_rate(const OptDouble& rate) { return rate ? format_rate(*rate) : std::string("-"); }
std::string launches_text(int64_t launches) { return format_count(static_cast<double>(launches)); }

std::string proton_rest(size_t all, size_t most, const Ink& ink) {
  return all > most ? ink.dim(fmt::format("  {} more: --top 0, --format csv\n", all - most)) : std::string();
}

// Indented by depth, and by no more than leaves room for the name.
std::string indented(const ProtonScopeRecord& row) {
  constexpr int64_t kDeepest = 8;
  const auto blanks = static_cast<size_t>(2 * std::min(row.depth, kDeepest));
  return std::string(blanks, ' ') + printable(row.name);
}

// The scopes with most time, in the order of the tree: those around one of them have no less, and stand before it.
std::vector<const ProtonScopeRecord*> main_scopes(const Report& report, size_t most) {
  std::vector<const ProtonScopeRecord*> out;
  for (const ProtonScopeRecord& row : report.proton_scopes) out.push_back(&row);
  if (out.size() <= most) return out;
  std::stable_sort(out.begin(), out.end(), [](const ProtonScopeRecord* a, const ProtonScopeRecord* b) {
    return a->time_ms.value_or(-1) > b->time_ms.value_or(-1);
  });
  out.resize(most);
  std::sort(out.begin(), out.end());
  return out;
}

// The innermost two of "a > b > c".
std::string innermost(std::string_view path) {
  const size_t last = path.rfind(" > ");
  if (last == std::string_view::npos || last == 0) return printable(path);
  const size_t before = path.rfind(" > ", last - 1);
  return printable(before == std::string_view::npos ? path : path.substr(before + 3));
}

std::string text_proton_scopes(const Report& report, const RenderOptions& options, const Ink& ink, size_t most) {
  if (report.proton_scopes.empty()) return {};
  std::vector<TextTable::Column> columns = {{"scope", kLeft, options.width > 100 ? size_t{56} : size_t{36}},
                                            {"launches", kRight, 0, 1},
                                            {"time"},
                                            {"share"},
                                            {"own", kRight, 0, 2},
                                            {"TFLOP/s", kRight, 0, 4},
                                            {"GB/s", kRight, 0, 3}};
  const bool several = report.proton_profiles.size() > 1;
  if (several) columns.insert(columns.begin(), {"file", kLeft, 28});
  TextTable table(std::move(columns));
  for (const ProtonScopeRecord* const scope : main_scopes(report, most)) {
    const ProtonScopeRecord& row = *scope;
    std::vector<std::string> cells = {
        indented(row),         launches_text(row.launches), proton_ms(row.time_ms), percent_or_dash(row.frac),
        proton_ms(row.own_ms), proton_rate(row.tflops),     proton_rate(row.gbs)};
    if (several) cells.insert(cells.begin(), printable(row.source));
    table.add_row(std::move(cells));
  }
  return title(ink, "Scopes by Proton", "own: of kernels in no scope below; rates are of kernels with stated work") +
         table.render("  ", options) + proton_rest(report.proton_scopes.size(), most, ink) + "\n";
}

// "profile.hatchet: 12 kernels, 340 launches, 3.21 ms; FLOPs are stated for 2.9 ms of it, bytes for 3 ms".
std::string proton_line(const ProtonProfileRecord& row, const RenderOptions& options) {
  std::string out =
      fmt::format("{}: {} kernel{}, {} launches", printable(row.source), format_count(static_cast<double>(row.kernels)),
                  row.kernels == 1 ? "" : "s", launches_text(row.launches));
  if (row.time_ms) out += ", " + format_ms(*row.time_ms);
  if (row.flops_time_ms) out += "; FLOPs are stated for " + format_ms(*row.flops_time_ms);
  if (row.bytes_time_ms)
    out +=
        fmt::format("{} for {}", row.flops_time_ms ? ", bytes" : "; bytes are stated", format_ms(*row.bytes_time_ms));
  if (row.metadata_ms) out += fmt::format("; {} in kernels of Proton's own hook", format_ms(*row.metadata_ms));
  if (row.recorded_kernels)
    out += fmt::format("; {} kernels are in the recording, {} are not", *row.recorded_kernels,
                       row.missing_kernels.value_or(0));
  return wrap_text(out, options.width, "  ", "      ");
}

std::string text_proton_kernels(const Report& report, const RenderOptions& options, const Ink& ink, size_t most) {
  std::vector<TextTable::Column> columns = {{"kernel", kLeft, options.width > 100 ? size_t{46} : size_t{34}},
                                            {"launches", kRight, 0, 1},
                                            {"time"},
                                            {"share"},
                                            {"each", kRight, 0, 2},
                                            {"TFLOP/s", kRight, 0, 4},
                                            {"GB/s", kRight, 0, 4},
                                            {"mostly in", kLeft, 34, 6}};
  const bool several = report.proton_profiles.size() > 1, beside = !profiled_alone(report);
  constexpr std::ptrdiff_t kBesideColumn = 5;
  if (beside) columns.insert(columns.begin() + kBesideColumn, {"recorded", kRight, 0, 2});
  if (several) columns.insert(columns.begin(), {"file", kLeft, 28});
  TextTable table(std::move(columns));
  size_t shown = 0;
  for (const ProtonKernelRecord& row : report.proton_kernels) {
    if (++shown > most) break;
    const auto us = [](const OptDouble& each) { return each ? format_ms(*each / 1e3) : std::string("-"); };
    std::vector<std::string> cells = {short_kernel_name(row.name),
                                      launches_text(row.launches),
                                      format_ms(row.time_ms),
                                      percent_or_dash(row.frac),
                                      us(row.mean_us),
                                      proton_rate(row.tflops),
                                      proton_rate(row.gbs),
                                      row.main_path ? innermost(*row.main_path) : "-"};
    if (beside) cells.insert(cells.begin() + kBesideColumn, us(row.recorded_us));
    if (several) cells.insert(cells.begin(), printable(row.source));
    table.add_row(std::move(cells));
  }
  std::string out = title(ink, "Kernels by Proton", "over all scopes");
  if (!report.proton_kernels.empty())
    out += table.render("  ", options) + proton_rest(report.proton_kernels.size(), most, ink);
  for (const ProtonProfileRecord& row : report.proton_profiles) out += proton_line(row, options);
  return out + "\n";
}

}  // namespace

std::string text_proton(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfPage = 12;
  if (report.proton_profiles.empty() || (options.one_page && !profiled_alone(report))) return {};
  const size_t most = options.one_page ? std::min(kRowsOfPage, options.top) : options.top;
  return text_proton_scopes(report, options, ink, most) + text_proton_kernels(report, options, ink, most);
}

}  // namespace llmprof
