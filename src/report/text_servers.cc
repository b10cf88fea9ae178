// Metrics pages of servers: what each does per second and is like, how long its requests take, and its GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string server_label(const std::string& server, const OptText& model, const std::string& instance) {
  std::string out = server;
  if (model) out += " " + printable(*model);
  if (!instance.empty()) out += " " + printable(instance);
  return out;
}

// The figures of one server, by name.
struct ServerFigures {
  const ServerFigureRecord* row = nullptr;  // any of them
  bool is_gpu = false;
  std::map<std::string, const ServerFigureRecord*> of{};
  const ServerFigureRecord* find(const char* figure) const {
    const auto found = of.find(figure);
    return found == of.end() ? nullptr : found->second;
  }
};

std::vector<ServerFigures> servers_of(const Report& report) {
  std::vector<ServerFigures> out;
  for (const ServerFigureRecord& row : report.server_figures) {
    const auto name = [](const ServerFigureRecord& of) { return std::tie(of.server, of.model, of.instance); };
    if (out.empty() || name(*out.back().row) != name(row)) out.push_back({&row});
    out.back().is_gpu = out.back().is_gpu || row.figure == "power" || row.figure == "gpu-busy" || row.server == "dcgm";
    out.back().of[row.figure] = &row;
  }
  return out;
}

// "4.00/s"; the count where nothing says how long it took.
std::string rate_cell(const ServerFigureRecord* row) {
  if (row == nullptr || !row->value) return "-";
  if (!row->per_s) return format_count(*row->value);
  return (*row->per_s >= 1000 ? format_count(*row->per_s) : format_rate(*row->per_s)) + "/s";
}

std::string count_cell(const ServerFigureRecord* row) {
  return row != nullptr && row->value ? format_count(*row->value) : "-";
}

std::string share_cell(const ServerFigureRecord* row) {
  return row != nullptr && row->value ? format_percent(*row->value) : "-";
}

std::string unit_cell(const ServerFigureRecord* row, const char* unit) {
  return row != nullptr && row->value ? format_count(*row->value) + " " + unit : "-";
}

const ServerFigureRecord* first_known(const ServerFigureRecord* one, const ServerFigureRecord* other) {
  return one != nullptr && one->value ? one : other;
}

// A table without the columns of which no row has anything.
std::string filled_table(std::vector<TextTable::Column> columns, std::vector<std::vector<std::string>> rows,
                         size_t most, const RenderOptions& options, const Ink& ink) {
  if (rows.empty()) return {};
  for (size_t column = columns.size(); column-- > 0;) {
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[column] != "-"; })) continue;
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(column));
    for (std::vector<std::string>& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  TextTable table(std::move(columns));
  const size_t shown = std::min(rows.size(), most);
  for (size_t i = 0; i < shown; ++i) table.add_row(std::move(rows[i]));
  const std::string rest =
      rows.size() > shown ? ink.dim(fmt::format("  {} more: --full, --format csv\n", rows.size() - shown)) : "";
  return table.render("  ", options) + rest + "\n";
}

std::string serving_table(const std::vector<ServerFigures>& servers, size_t most, const RenderOptions& options,
                          const Ink& ink) {
  std::vector<std::vector<std::string>> rows;
  for (const ServerFigures& server : servers)
    rows.push_back({server_label(server.row->server, server.row->model, server.row->instance),
                    rate_cell(server.find("requests")), rate_cell(server.find("input-tokens")),
                    rate_cell(server.find("output-tokens")), count_cell(server.find("running")),
                    count_cell(server.find("waiting")), share_cell(server.find("kv-cache")),
                    share_cell(first_known(server.find("prefix-cache-hit"), server.find("prefix-cache-hit-now"))),
                    count_cell(server.find("preemptions"))});
  return filled_table({{"server", kLeft, 44},
                       {"requests", kRight},
                       {"input tokens", kRight, 0, 1},
                       {"output tokens", kRight},
                       {"running", kRight, 0, 2},
                       {"waiting", kRight, 0, 2},
                       {"KV cache", kRight, 0, 3},
                       {"prefix hits", kRight, 0, 4},
                       {"preempted", kRight, 0, 5}},
                      std::move(rows), most, options, ink);
}

std::string gpu_table(const std::vector<ServerFigures>& gpus, size_t most, const RenderOptions& options,
                      const Ink& ink) {
  std::vector<std::vector<std::string>> rows;
  for (const ServerFigures& gpu : gpus) {
    const ServerFigureRecord* memory = gpu.find("memory-used");
    rows.push_back({printable(gpu.row->instance.empty() ? gpu.row->server : gpu.row->instance),
                    gpu.row->model ? printable(*gpu.row->model) : "-", unit_cell(gpu.find("power"), "W"),
                    unit_cell(gpu.find("sm-clock"), "MHz"), unit_cell(gpu.find("memory-clock"), "MHz"),
                    share_cell(gpu.find("gpu-busy")), share_cell(gpu.find("tensor-active")),
                    share_cell(gpu.find("dram-active")),
                    memory != nullptr && memory->value ? format_bytes(*memory->value) : "-",
                    unit_cell(gpu.find("temperature"), "C")});
  }
  return filled_table({{"GPU", kLeft, 52},
                       {"name", kLeft, 24, 7},
                       {"power", kRight},
                       {"SM clock", kRight, 0, 2},
                       {"memory clock", kRight, 0, 6},
                       {"busy", kRight},
                       {"tensor", kRight, 0, 1},
                       {"DRAM", kRight, 0, 1},
                       {"memory", kRight, 0, 4},
                       {"temperature", kRight, 0, 5}},
                      std::move(rows), most, options, ink);
}

std::string in_unit(double value, const std::string& unit) {
  if (unit == "ms") return format_ms(value);
  if (unit == "us") return format_ms(value / 1e3);
  return value >= 1000 ? format_count(value) : format_rate(value);
}

// Bounds of buckets are round numbers.
std::string bound_in_unit(double value, const std::string& unit) {
  if (unit != "ms" && unit != "us") return fmt::format("{:.6g}", value);
  const double ms = unit == "us" ? value / 1e3 : value;
  if (ms >= 1000) return fmt::format("{:.4g} s", ms / 1e3);
  return ms >= 1 || ms == 0 ? fmt::format("{:.4g} ms", ms) : fmt::format("{:.4g} us", ms * 1e3);
}

// "48.2 ms (40 ms to 60 ms)"; "above 80 s" where the bucket has no end.
std::string quantile_cell(const OptDouble& value, const OptDouble& least, const OptDouble& most,
                          const std::string& unit) {
  if (!value || !least) return "-";
  if (!most) return "above " + bound_in_unit(*least, unit);
  return fmt::format("{} ({} to {})", in_unit(*value, unit), bound_in_unit(*least, unit), bound_in_unit(*most, unit));
}

std::string distribution_table(const Report& report, bool several, size_t most, const RenderOptions& options,
                               const Ink& ink) {
  std::vector<std::vector<std::string>> rows;
  for (const ServerDistributionRecord& row : report.server_distributions)
    rows.push_back({row.unit == "tokens" ? row.figure + " (tokens)" : row.figure,
                    row.count ? format_count(*row.count) : "-", row.mean ? in_unit(*row.mean, row.unit) : "-",
                    quantile_cell(row.p50, row.p50_least, row.p50_most, row.unit),
                    quantile_cell(row.p99, row.p99_least, row.p99_most, row.unit),
                    several ? server_label(row.server, row.model, row.instance) : "-"});
  return filled_table({{"measured", kLeft},
                       {"count", kRight, 0, 2},
                       {"mean", kRight},
                       {"p50 (bounds)", kRight},
                       {"p99 (bounds)", kRight, 0, 1},
                       {"server", kLeft, 44, 3}},
                      std::move(rows), most, options, ink);
}

// What stands in no other table: cumulative times, cache counters, energy, PCIe.
std::string other_figures(const Report& report, const RenderOptions& options, const Ink& ink) {
  static constexpr std::array<std::string_view, 15> kShown = {
      "requests",    "input-tokens",     "output-tokens", "running",      "waiting",
      "kv-cache",    "prefix-cache-hit", "sm-clock",      "memory-clock", "gpu-busy",
      "preemptions", "tensor-active",    "dram-active",   "memory-used",  "temperature"};
  std::vector<std::vector<std::string>> rows;
  for (const ServerFigureRecord& row : report.server_figures) {
    if (row.figure == "power" || std::find(kShown.begin(), kShown.end(), row.figure) != kShown.end()) continue;
    const auto number = [](const OptDouble& value) { return value ? fmt::format("{:.6g}", *value) : std::string("-"); };
    rows.push_back({row.figure, row.kind, number(row.value), row.unit.empty() ? "-" : row.unit, number(row.per_s),
                    server_label(row.server, row.model, row.instance)});
  }
  return filled_table({{"other figure", kLeft},
                       {"kind", kLeft, 0, 2},
                       {"value", kRight},
                       {"unit", kLeft},
                       {"per second", kRight},
                       {"server", kLeft, 60, 1}},
                      std::move(rows), SIZE_MAX, options, ink);
}

// What the figures are of.
std::string span_note(const Report& report) {
  bool pages = false, rates = false;
  double seconds = 0;
  for (const ServerFigureRecord& row : report.server_figures) {
    pages = pages || row.increase.has_value();
    rates = rates || row.per_s.has_value();
    seconds = std::max(seconds, row.seconds.value_or(0));
  }
  const size_t count = report.metrics_pages.size();
  const std::string read = fmt::format("{} metrics page{}", count, count == 1 ? "" : "s");
  if (rates) return fmt::format("{} over {}: rates and times are of that span", read, format_ms(seconds * 1e3));
  if (pages) return read + ", nothing says how long apart: counts and times are of what happened in between";
  return count == 1 ? read + ": counts and times since the server started" : read;
}

}  // namespace

std::string text_servers(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kServersOfPage = 6, kTimesOfPage = 18, kGpusOfPage = 8;
  if (report.metrics_pages.empty()) return {};
  if (options.one_page && !profiled_alone(report))
    return ink.dim(fmt::format("  beside it {}: --full\n\n", span_note(report)));
  std::vector<ServerFigures> serving, gpus;
  for (ServerFigures& server : servers_of(report)) (server.is_gpu ? gpus : serving).push_back(std::move(server));
  const auto most = [&](size_t of_page) { return options.one_page ? of_page : SIZE_MAX; };
  return title(ink, "Servers", span_note(report)) + serving_table(serving, most(kServersOfPage), options, ink) +
         distribution_table(report, serving.size() > 1, most(kTimesOfPage), options, ink) +
         gpu_table(gpus, most(kGpusOfPage), options, ink) +
         (options.one_page ? std::string() : other_figures(report, options, ink));
}

}  // namespace llmprof
