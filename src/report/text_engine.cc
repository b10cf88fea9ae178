// Queries and layers of TensorRT's engines, by what trtexec exports.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string ms_text_or_dash(const OptDouble& ms) { return ms ? format_ms(*ms) : std::string("-"); }
std::string words_or_dash(const OptText& text) { return text ? printable(*text) : std::string("-"); }

bool several_sources(const Report& report) {
  return std::any_of(report.engine_latency.begin(), report.engine_latency.end(), [&](const EngineLatencyRecord& row) {
    return row.source != report.engine_latency.front().source;
  });
}

std::string text_engine_latency(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.engine_latency.empty()) return {};
  std::vector<TextTable::Column> columns = {{"figure", kLeft}, {"queries", kRight, 0, 3}, {"median"},
                                            {"p90"},           {"p95", kRight, 0, 2},     {"p99"},
                                            {"mean"},          {"least", kRight, 0, 1},   {"most", kRight, 0, 1}};
  const bool several = several_sources(report);
  if (several) columns.insert(columns.begin(), {"file", kLeft, 28});
  TextTable table(std::move(columns));
  for (const EngineLatencyRecord& row : report.engine_latency) {
    std::vector<std::string> cells = {row.figure,
                                      format_count(static_cast<double>(row.queries)),
                                      format_ms(row.median_ms),
                                      format_ms(row.p90_ms),
                                      format_ms(row.p95_ms),
                                      format_ms(row.p99_ms),
                                      format_ms(row.mean_ms),
                                      format_ms(row.least_ms),
                                      format_ms(row.most_ms)};
    if (several) cells.insert(cells.begin(), printable(row.source));
    table.add_row(std::move(cells));
  }
  return title(ink, "Queries of the engine", "by trtexec; latency is h2d + gpu-compute + d2h") +
         table.render("  ", options) + "\n";
}

// "profile.json: 12 layers, 3.21 ms by iteration over 100; layers.json describes 11 of them and 2 more".
std::string profile_line(const EngineProfileRecord& row, const RenderOptions& options) {
  std::string out;
  const auto layers = [](int64_t count) {
    return fmt::format("{} layer{}", format_count(static_cast<double>(count)), count == 1 ? "" : "s");
  };
  if (row.source) {
    out = fmt::format("{}: {}", printable(*row.source), layers(row.timed_layers));
    if (row.iteration_ms)
      out += fmt::format(", {} by iteration, over {}", format_ms(*row.iteration_ms),
                         format_count(static_cast<double>(row.iterations.value_or(0))));
    if (row.layers_source)
      out += fmt::format("; {} describes {} of them", printable(*row.layers_source),
                         format_count(static_cast<double>(row.matched)));
    if (row.layers_source && row.layers_only > 0)
      out += fmt::format(", and {} without a time", format_count(static_cast<double>(row.layers_only)));
    if (row.times_only > 0)
      out += fmt::format("; {} not described take {} of the time", layers(row.times_only),
                         percent_or_dash(row.unmatched_frac));
  } else {
    out = fmt::format("{}: {}, no times of them", printable(row.layers_source.value_or("-")),
                      layers(row.described_layers));
  }
  return wrap_text(out, options.width, "  ", "      ");
}

std::string text_engine_layers(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.engine_layers.empty()) return {};
  constexpr size_t kLayersOfPage = 20;
  const size_t most = options.one_page ? std::min(kLayersOfPage, options.top) : options.top;
  TextTable table({{"layer", kLeft, options.width > 100 ? size_t{46} : size_t{34}},
                   {"type", kLeft, 18, 1},
                   {"each iteration"},
                   {"share"},
                   {"median", kRight, 0, 5},
                   {"inputs", kLeft, 30, 4},
                   {"outputs", kLeft, 30, 3},
                   {"tactic", kLeft, 34, 2}});
  size_t shown = 0;
  for (const EngineLayerRecord& row : report.engine_layers) {
    if (++shown > most) break;
    table.add_row({printable(row.name), words_or_dash(row.type), ms_text_or_dash(row.iteration_ms),
                   percent_or_dash(row.frac), ms_text_or_dash(row.median_ms), words_or_dash(row.inputs),
                   words_or_dash(row.outputs), words_or_dash(row.tactic)});
  }
  const size_t all = report.engine_layers.size();
  std::string out = title(ink, "Layers of the engine", "by TensorRT's profiler, under which they take longer") +
                    table.render("  ", options);
  if (all > most) out += ink.dim(fmt::format("  {} more: --top 0, --format csv\n", all - most));
  for (const EngineProfileRecord& row : report.engine_profiles) out += profile_line(row, options);
  return out + "\n";
}

}  // namespace

std::string text_engine(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (options.one_page && !profiled_alone(report)) return {};
  return text_engine_latency(report, options, ink) + text_engine_layers(report, options, ink);
}

}  // namespace llmprof
