// Kernels that Nsight Compute profiled: what was counted of each, the longest first.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {

namespace {

bool nccl_lines(const Report& report) {
  return !report.nccl_ranks.empty() || !report.nccl_links.empty() || !report.nccl_collectives.empty() ||
         !report.nccl_operations.empty() || !report.nccl_choices.empty() || !report.nccl_warnings.empty();
}

bool engine_lines(const Report& report) { return !report.engine_profiles.empty() || !report.engine_latency.empty(); }

// The layers of the table, and the queries of the largest count of a figure of each file.
std::string engine_in_words(const Report& report) {
  std::map<std::string, int64_t> queries;
  for (const EngineLatencyRecord& row : report.engine_latency)
    queries[row.source] = std::max(queries[row.source], row.queries);
  int64_t all = 0;
  for (const auto& [source, count] : queries) all += count;
  std::string out;
  if (all > 0) out = fmt::format("{} queries", format_count(static_cast<double>(all)));
  if (const size_t layers = report.engine_layers.size(); layers > 0)
    out += fmt::format("{}{} layers", out.empty() ? "" : " and ", format_count(static_cast<double>(layers)));
  return out + " of an engine of TensorRT";
}

std::string proton_in_words(const Report& report) {
  int64_t launches = 0;
  for (const ProtonProfileRecord& row : report.proton_profiles) launches += row.launches;
  const auto number = [](size_t n, std::string_view of) {
    return fmt::format("{} {}{}", format_count(static_cast<double>(n)), of, n == 1 ? "" : "s");
  };
  return fmt::format("{} launch{} of {} in {} by Proton", format_count(static_cast<double>(launches)),
                     launches == 1 ? "" : "es", number(report.proton_kernels.size(), "kernel"),
                     number(report.proton_scopes.size(), "scope"));
}

}  // namespace

bool profiled_alone(const Report& report) {
  return (!report.profiled_kernels.empty() || !report.logged_products.empty() || !report.client_runs.empty() ||
          !report.metrics_pages.empty() || nccl_lines(report) || !report.allocators.empty() || engine_lines(report) ||
          !report.proton_profiles.empty()) &&
         report.stages.empty();
}

std::string alone_text(const Report& report) {
  const int64_t kernels = profiled_calls(report);
  int64_t products = 0;
  for (const LoggedProductRecord& row : report.logged_products) products += row.calls;
  std::string out;
  if (kernels > 0) out = format_count(static_cast<double>(kernels)) + " kernels profiled";
  if (products > 0)
    out += (out.empty() ? "" : ", ") + format_count(static_cast<double>(products)) + " matrix products logged";
  if (const size_t runs = report.client_runs.size(); runs > 0)
    out += fmt::format("{}{} run{} of a benchmark", out.empty() ? "" : ", ", format_count(static_cast<double>(runs)),
                       runs == 1 ? "" : "s");
  const size_t pages = report.metrics_pages.size();
  if (pages > 0) out += fmt::format("{}{} metrics page{}", out.empty() ? "" : ", ", pages, pages == 1 ? "" : "s");
  if (nccl_lines(report)) {
    std::set<std::string> communicators;
    for (const NcclRankRecord& row : report.nccl_ranks) communicators.insert(row.communicator);
    for (const NcclOperationRecord& row : report.nccl_operations) communicators.insert(row.communicator);
    out += fmt::format("{}{} communicator{} of NCCL logged", out.empty() ? "" : ", ", communicators.size(),
                       communicators.size() == 1 ? "" : "s");
  }
  if (engine_lines(report)) out += (out.empty() ? "" : ", ") + engine_in_words(report);
  if (!report.proton_profiles.empty()) out += (out.empty() ? "" : ", ") + proton_in_words(report);
  const size_t allocators = report.allocators.size();
  if (allocators > 0)
    out +=
        fmt::format("{}PyTorch's memory on {} GPU{}", out.empty() ? "" : ", ", allocators, allocators == 1 ? "" : "s");
  return out;
}

int64_t profiled_calls(const Report& report) {
  int64_t calls = 0;
  for (const ProfiledKernelRecord& row : report.profiled_kernels) calls += row.calls;
  return calls;
}

std::string text_profiled_kernels(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfPage = 25;
  constexpr std::ptrdiff_t kRecordedColumn = 4;  // behind the duration under the profiler
  const bool alone = profiled_alone(report);
  if (report.profiled_kernels.empty() || (options.one_page && !alone && !options.profiled)) return {};
  const size_t most = options.one_page ? std::min(kRowsOfPage, options.top) : options.top;
  const auto or_dash = [](const OptDouble& value, auto&& format) { return value ? format(*value) : std::string("-"); };
  std::vector<TextTable::Column> columns = {{"kernel", kLeft, options.width > 100 ? size_t{46} : size_t{34}},
                                            {"in", kLeft, 20, 5},
                                            {"calls", kRight, 0, 4},
                                            {"each"},
                                            {"grid", kRight, 0, 9},
                                            {"DRAM", kRight, 0, 1},
                                            {"FLOP", kRight, 0, 3},
                                            {"FLOP/B", kRight, 0, 2},
                                            {"TFLOP/s", kRight, 0, 6},
                                            {"GB/s", kRight, 0, 6},
                                            {"occupancy", kRight, 0, 1},
                                            {"SM", kRight, 0, 2},
                                            {"memory", kRight, 0, 2},
                                            {"tensor", kRight, 0, 4},
                                            {"L2 hit", kRight, 0, 7},
                                            {"waits for", kLeft, 26, 3}};
  if (!alone) columns.insert(columns.begin() + kRecordedColumn, {"recorded", kRight, 0, 2});
  TextTable table(std::move(columns));
  size_t shown = 0;
  for (const ProfiledKernelRecord& row : report.profiled_kernels) {
    if (++shown > most) break;
    const std::string stall = row.stall ? fmt::format("{} {}", *row.stall, percent_or_dash(row.stall_frac)) : "-";
    std::vector<std::string> cells = {short_kernel_name(row.name),
                                      row.ranges.empty() ? "-" : row.ranges,
                                      format_count(static_cast<double>(row.calls)),
                                      or_dash(row.duration_us, [](double us) { return format_ms(us / 1e3); }),
                                      row.grid.value_or("-"),
                                      or_dash(row.dram_bytes, format_bytes),
                                      or_dash(row.flops, [](double flops) { return format_si(flops, "FLOP"); }),
                                      or_dash(row.intensity, [](double value) { return format_fixed(value, 2); }),
                                      or_dash(row.tflops, format_rate),
                                      or_dash(row.gbs, format_rate),
                                      percent_or_dash(row.occupancy_frac),
                                      percent_or_dash(row.sm_frac),
                                      percent_or_dash(row.memory_frac ? row.memory_frac : row.dram_frac),
                                      percent_or_dash(row.tensor_active_frac),
                                      percent_or_dash(row.l2_hit_frac),
                                      stall};
    if (!alone)
      cells.insert(cells.begin() + kRecordedColumn, or_dash(row.recorded_us, [&](double us) {
                     return fmt::format("{} x {}", format_count(static_cast<double>(*row.recorded_calls)),
                                        format_ms(us / 1e3));
                   }));
    table.add_row(std::move(cells));
  }
  const size_t all = report.profiled_kernels.size();
  const std::string rest = all > most ? ink.dim(fmt::format("  {} more: --full, --format csv\n", all - most)) : "";
  return title(ink, "Profiled kernels", "a call's mean, by Nsight Compute; times are not those of production") +
         table.render("  ", options) + rest + "\n";
}

}  // namespace llmprof
