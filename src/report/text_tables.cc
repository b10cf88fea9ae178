// The tables of the text report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string count_text(KnownCount count) { return count.known ? format_count(static_cast<double>(count.n)) : "-"; }

std::string number(const OptDouble& value, int decimals) { return value ? format_fixed(*value, decimals) : "-"; }

std::string cut_note(size_t shown, size_t all, const Ink& ink) {
  return shown < all ? ink.dim(fmt::format("  ... {} more (--top, or --format csv)\n", all - shown)) : std::string();
}

// "[[1, 512, 4096], [4096, 4096], []]" -> "[1,512,4096] [4096,4096]"
std::string short_shapes(const OptText& shapes) {
  if (!shapes) return "-";
  std::string out;
  std::string_view text = *shapes;
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 2) == "[]") {
      ++i;
      continue;
    }
    if (text[i] == ',' && (out.empty() || out.back() == ']' || out.back() == ' ')) {
      if (!out.empty() && out.back() == ']') out += ' ';
      continue;
    }
    out += text[i];
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out.empty() ? "-" : printable(out);
}

std::string bound_or_dash(const OptBound& bound) { return bound ? std::string(name_of(*bound)) : "-"; }

// What the words in brackets behind the names of stages mean, of those that are there.
std::string suffix_legend(const Report& report, const RenderOptions& options, const Ink& ink) {
  struct Meaning {
    std::string_view word, text;
    bool (*holds)(const StageMark&);
  };
  constexpr Meaning kMeanings[] = {
      {"[window edge]", "recorded in part: its times are in no TTFT, TPOT or finding",
       [](const StageMark& mark) { return mark.state == StepState::kWindowEdge; }},
      {"[warm-up]", "in no other figure of this page; the table below says why",
       [](const StageMark& mark) { return mark.is_warm_up(); }},
      {"[not recorded]", "without its kernels: times by the program's ranges, or by the call that recurs once a step",
       [](const StageMark& mark) { return mark.state == StepState::kNotRecorded; }},
      {"[whole graphs]", "CUDA graphs recorded as one activity each",
       [](const StageMark& mark) { return mark.state == StepState::kWholeGraphs; }}};
  std::string out;
  for (const Meaning& row : kMeanings)
    if (std::any_of(report.stage_marks.begin(), report.stage_marks.end(), row.holds))
      out += ink.dim(wrap_text(fmt::format("{}: {}", row.word, row.text), options.width, "  ", "    "));
  return out;
}

// What the GPU work on the path is for, a line for each stage.
std::string text_path_work(const Report& report, const RenderOptions& options) {
  constexpr double kShareLeast = 0.0005;  // of a step
  TextTable table({{"stage", kLeft, 28}, {"GPU work"}, {"which is, of a step", kLeft, 0, 0, true}});
  for (const CriticalPathRecord& path : report.critical_path) {
    if (path.error_worst_frac.value_or(0) > kPathErrorMost || path.gpu_work_ms.ns <= 0) continue;
    std::string work;
    for (const CriticalPathWorkRecord& row : report.critical_path_work)
      if (row.stage == path.stage && row.device == path.device && row.share >= kShareLeast)
        work += fmt::format("{}{} {}", work.empty() ? "" : ", ", row.category, format_percent(row.share));
    if (!work.empty()) table.add_row({path.stage, format_ns(path.gpu_work_ms.ns), work});
  }
  return table.empty() ? std::string() : table.render("  ", options);
}

}  // namespace

std::string title(const Ink& ink, std::string_view text, std::string_view note) {
  return ink.bold(text) + (note.empty() ? "" : "  " + ink.dim(note)) + "\n";
}

std::vector<const StageTiming*> main_stages(const Report& report) {
  std::vector<const StageTiming*> out;
  for (const StageTiming& stage : report.stages)
    if (stage.kernels > 0 && stage.wall_ms.ns >= report.source.duration_ms.ns / 50 &&
        !report.mark_of(stage).is_warm_up())
      out.push_back(&stage);
  std::stable_sort(out.begin(), out.end(),
                   [](const StageTiming* a, const StageTiming* b) { return a->wall_ms.ns > b->wall_ms.ns; });
  if (out.size() > 4) out.resize(4);
  return out;
}

double per_instance(const StageTiming& stage, double total) {
  return total / static_cast<double>(std::max<int64_t>(1, stage.count));
}

std::string limit_of(const OptBound& bound, const OptDouble& of_roof) {
  if (!bound) return "-";
  if (of_roof && (*bound == Bound::kMemory || *bound == Bound::kCompute || *bound == Bound::kCopy))
    return fmt::format("{}, {} of roof", name_of(*bound), format_percent(*of_roof));
  return std::string(name_of(*bound));
}

std::string text_recorded_steps(const Report& report, std::string_view what, const RenderOptions& options,
                                const Ink& ink) {
  std::string stages;
  for (const StageStepRecord& row : report.stage_steps)
    if (row.recorded_steps > 0 && row.recorded_steps < row.all_steps)
      stages += fmt::format("{}{} {} of {}", stages.empty() ? "" : ", ", printable(row.stage),
                            format_count(static_cast<double>(row.recorded_steps)),
                            format_count(static_cast<double>(row.all_steps)));
  if (stages.empty()) return {};
  return ink.dim(wrap_text(fmt::format("{} {} is of recorded steps: {}", processor(report), what, stages),
                           options.width, "  ", "    "));
}

std::string text_stages(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.stages.empty()) return {};
  std::vector<TextTable::Column> columns{{"stage", kLeft, 28},
                                         {"n", kRight, 0, 3},
                                         {"tokens", kRight, 0, 6},
                                         {"wall"},  // its total is the only figure of the last row
                                         {"mean step"},
                                         {processor(report) + std::string(" busy"), kRight, 0, 1},
                                         {"kernels", kRight, 0, 8},
                                         {"launches", kRight, 0, 9},
                                         {"TFLOP/s", kRight, 0, 5},
                                         {"MFU", kRight, 0, 2},
                                         {"MBU", kRight, 0, 2},
                                         {"FLOP/B", kRight, 0, 7},
                                         {"bound", kLeft}};
  // Of ranges alone only times are known.
  if (!report.device && !gpu_was_seen(report)) columns.resize(5);
  TextTable table(columns);
  int64_t wall = 0;
  std::set<int64_t> devices;
  bool any = false, detected = false, named = false, by_counter = false, own = false;
  for (const StageTiming& stage : report.stages) {
    wall += stage.wall_ms.ns;
    devices.insert(stage.device);
    any |= stage.count > 0;
    const bool counts = stage.count > 0 && !report.mark_of(stage).is_warm_up();
    detected |= counts && stage.source == StageSource::kDetected;
    named |= counts && stage.source != StageSource::kDetected;
    const std::string name = stage_label(report, stage);
    by_counter |= busy_text(stage).starts_with('~');
    own |= stage.own_ms.has_value();
    table.add_row({name, stage.count > 0 ? format_count(static_cast<double>(stage.count)) : "",
                   stage.tokens ? format_count(static_cast<double>(*stage.tokens)) : "-", format_ns(stage.wall_ms.ns),
                   stage.count > 0 ? format_ms(per_instance(stage, stage.wall_ms.ms())) : "", busy_text(stage),
                   count_text(stage.kernels), count_text(stage.launches),
                   stage.tflops ? format_rate(*stage.tflops) : "-", at_least_text(stage.mfu, stage.mfu_at_least),
                   at_least_text(stage.mbu, stage.mbu_at_least), number(stage.intensity, 1),
                   bound_or_dash(stage.bound)});
  }
  table.add_rule();
  table.add_row({devices.size() > 1 ? fmt::format("{} windows", devices.size()) : "window", "", "", format_ns(wall)});
  return title(ink, "Stages",
               !any ? "none was found"
               : detected && named
                   ? "as annotated; what no range names was found from token counts and kernel sequences"
               : detected ? "found by llmprof from token counts and kernel sequences, not annotated"
                          : std::string("as annotated") + (by_counter ? "; ~ by hardware counter" : "")) +
         table.render("  ", options) +
         (own ? ink.dim(
                    wrap_text(fmt::format("{} busy, TFLOP/s, MFU, MBU and bound are of the time without the recorder, "
                                          "per step under \"Steps without the recorder\"; wall is as recorded",
                                          processor(report)),
                              options.width, "  ", "    "))
              : std::string()) +
         text_recorded_steps(report, "busy", options, ink) + suffix_legend(report, options, ink) + "\n";
}

std::string text_stage_steps(const Report& report, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"stage", kLeft, 28},
                   {"recorded", kRight, 0, 2},
                   {"of steps", kRight, 0, 5},
                   {"median step"},
                   {"mean", kRight, 0, 4},
                   {processor(report) + std::string(" busy")},
                   {processor(report) + std::string(" idle"), kRight, 0, 1},
                   {"kernels"},
                   {"copies", kRight, 0, 3}});
  for (const StageStepRecord& row : report.stage_steps) {
    if (row.recorded_steps == 0) continue;
    table.add_row({printable(row.stage), format_count(static_cast<double>(row.recorded_steps)),
                   format_count(static_cast<double>(row.all_steps)), format_ms(row.step_p50_ms),
                   format_ms(row.step_mean_ms), format_ms(*row.gpu_busy_p50_ms), format_ms(*row.gpu_idle_p50_ms),
                   format_ms(*row.kernels_p50_ms), format_ms(*row.copies_p50_ms)});
  }
  if (table.empty()) return {};
  return title(ink, "A step of each stage",
               "medians over recorded steps, with the recorder; kernels and copies: sums of their durations") +
         table.render("  ", options) + "\n";
}

std::string text_warm_up(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.warm_up.empty()) return {};
  TextTable table({{"stage", kLeft, 28},
                   {"steps", kRight, 0, 2},
                   {"time"},
                   {"beyond steady"},
                   {"steady steps", kRight, 0, 1},
                   {"because", kLeft, 60}});
  int64_t steps = 0, wall_ns = 0;
  double excess_ms = 0;
  for (const WarmUpRecord& row : report.warm_up) {
    steps += row.steps;
    wall_ns += row.wall_ms.ns;
    excess_ms += row.excess_ms.value_or(0);
    table.add_row({row.stage, format_count(static_cast<double>(row.steps)), format_ns(row.wall_ms.ns),
                   row.excess_ms ? format_ms(*row.excess_ms) : "-", format_count(static_cast<double>(row.steady_steps)),
                   std::string(in_words(row.cause))});
  }
  if (report.warm_up.size() > 1) {
    table.add_rule();
    table.add_row({"all", format_count(static_cast<double>(steps)), format_ns(wall_ns), format_ms(excess_ms)});
  }
  return title(ink, "Warm-up", "steps that are in no other figure") + table.render("  ", options) + "\n";
}

std::string text_where(const Report& report, const RenderOptions& options, const Ink& ink) {
  std::string out;
  for (const StageTiming* stage : main_stages(report)) {
    if (stage->name == kUnattributed) continue;
    TextTable table({{"operation", kLeft, 34},
                     {"per step"},
                     {"of wall", kRight, 0, 1},
                     {fmt::format("of {}", processor(report)), kRight, 0, 3},
                     {"kernels", kRight, 0, 4},
                     {"mean", kRight, 0, 5},
                     {"bottleneck", kLeft, 40, 2}});
    // A few activities at the edges of unrecorded time say nothing of where it went.
    if (stage->not_recorded_ms.ns * 2 > stage->wall_ms.ns) continue;
    size_t shown = 0, all = 0;
    for (const CategoryRecord& row : report.categories) {
      if (row.stage != stage->name || row.device != stage->device) continue;
      if (++all > options.top) continue;
      ++shown;
      table.add_row({row.category, format_ms(per_instance(*stage, row.time_ms.ms())), percent_or_dash(row.wall_share),
                     format_percent(row.share), format_count(per_instance(*stage, static_cast<double>(row.kernels))),
                     format_ms(row.mean_us / 1e3), limit_of(row.bottleneck, row.of_roof_frac)});
    }
    table.add_rule();
    Milliseconds other{};  // so that the parts add up
    double other_share = 0;
    for (const IdleRecord& row : report.idle) {
      if (row.stage != stage->name || row.device != stage->device) continue;
      if (row.wall_share.value_or(0) < 0.005) {
        other.ns += row.total_ms.ns;
        other_share += row.wall_share.value_or(0);
        continue;
      }
      table.add_row({fmt::format("{} idle: {}", processor(report), row.cause),
                     format_ms(per_instance(*stage, row.total_ms.ms())), percent_or_dash(row.wall_share), "", "", "",
                     ""});
    }
    if (other.ns > 0)
      table.add_row({fmt::format("{} idle: other causes", processor(report)),
                     format_ms(per_instance(*stage, other.ms())), format_percent(other_share), "", "", "", ""});
    const double recorded_ms = stage->wall_ms.ms() - stage->not_recorded_ms.ms();
    const double cost_ms = std::min(stage->gpu_idle_ms.ms(), recorded_ms - stage->own_ms.value_or(recorded_ms));
    if (cost_ms >= 0.005 * recorded_ms)
      table.add_row({"of the idle time, because recorded", format_ms(per_instance(*stage, cost_ms)),
                     format_percent(cost_ms / recorded_ms), "", "", "", ""});
    out += title(ink, "Where the time goes: " + stage_label(report, *stage),
                 fmt::format("{} step{} of {}", stage->count, stage->count == 1 ? "" : "s",
                             format_ms(per_instance(*stage, stage->wall_ms.ms())))) +
           table.render("  ", options) + cut_note(shown, all, ink) + "\n";
  }
  return out;
}

std::string text_idle(const Report& report, const RenderOptions& options, const Ink& ink) {
  std::string out;
  for (const StageTiming* stage : main_stages(report)) {
    TextTable table({{"where the host was", kLeft, options.width > 100 ? size_t{62} : size_t{44}},
                     {"kind", kLeft, 0, 2},
                     {"gaps", kRight, 0, 3},
                     {fmt::format("{} idle", processor(report))},
                     {"of idle", kRight, 0, 1}});
    for (const SiteKind kind : {SiteKind::kPython, SiteKind::kOperator, SiteKind::kApi}) {
      size_t shown = 0;
      for (const IdleSiteRecord& site : report.idle_sites) {
        if (site.stage != stage->name || site.device != stage->device || site.kind != kind || site.share < 0.02 ||
            ++shown > 4)
          continue;
        table.add_row({site.site, std::string(name_of(site.kind)), format_count(static_cast<double>(site.gaps)),
                       format_ns(site.total_ms.ns), format_percent(site.share)});
      }
    }
    if (table.empty() || stage->gpu_idle_ms.ns < stage->wall_ms.ns / 20) continue;
    out += title(ink, fmt::format("Host while the {} idled: {}", processor(report), stage_label(report, *stage)),
                 format_percent(1 - stage->gpu_busy_frac.value_or(0)) +
                     " of the time idle, all its steps; a place may count under several kinds") +
           table.render("  ", options) + "\n";
  }
  return out;
}

std::string text_undisturbed(const Report& report, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"stage", kLeft, 28},
                   {"per step"},
                   {"95 % interval", kRight, 0, 4},
                   {"from", kLeft},
                   {"unrecorded", kRight, 0, 2},
                   {"steps", kRight, 0, 5},
                   {"replayed", kRight, 0, 1},
                   {"recorded", kRight, 0, 3},
                   {"steps", kRight, 0, 6}});
  const auto ms = [](const OptDouble& value) { return value ? format_ns(std::llround(*value * 1e6)) : "-"; };
  bool known = false;
  for (const UndisturbedRecord& row : report.undisturbed) {
    known |= row.source != StepTimeSource::kRecorded;
    table.add_row({row.stage, ms(row.step_ms), ms(row.ci95_low_ms) + " - " + ms(row.ci95_high_ms),
                   std::string(name_of(row.source)), ms(row.unrecorded_ms), std::to_string(row.unrecorded_steps),
                   ms(row.replayed_ms), ms(row.recorded_ms), std::to_string(row.recorded_steps)});
  }
  if (!known) return {};
  return title(ink, "Steps without the recorder",
               "unrecorded ones, else recorded ones replayed without what recording costs on this machine") +
         table.render("  ", options) + "\n";
}

std::string text_critical_path(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kNoInput = 4;  // its column, only of programs that lacked some
  const bool lacks_input = std::any_of(report.critical_path.begin(), report.critical_path.end(),
                                       [](const CriticalPathRecord& row) { return row.no_input_ms.ns > 0; });
  std::vector<TextTable::Column> columns = {{"stage", kLeft, 28},
                                            {"steps", kRight, 0, 5},
                                            {"per step"},
                                            {"host code"},
                                            {"CUDA calls", kRight, 0, 1},
                                            {"launch latency", kRight, 0, 4},
                                            {"GPU work"},
                                            {"GPU gaps", kRight, 0, 2},
                                            {"waking up", kRight, 0, 3},
                                            {"unexplained", kRight, 0, 7},
                                            {"error", kRight, 0, 6}};
  if (lacks_input) columns.insert(columns.begin() + kNoInput, {"no input", kRight, 0, 8});
  TextTable table(std::move(columns));
  std::string guessed;  // the same in every row
  for (const CriticalPathRecord& row : report.critical_path) {
    if (row.error_worst_frac.value_or(0) > kPathErrorMost) continue;
    if (!row.not_recorded.empty())
      guessed = wrap_text(ink.dim("not recorded, so guessed: " + row.not_recorded), options.width, "  ", "    ");
    const auto part = [&](Milliseconds of) {
      return format_percent(static_cast<double>(of.ns) / static_cast<double>(row.step_ms.ns));
    };
    std::vector<std::string> cells = {row.stage,
                                      std::to_string(row.steps),
                                      format_ns(row.step_ms.ns),
                                      part(row.host_code_ms),
                                      part(row.cuda_calls_ms),
                                      part(row.launch_latency_ms),
                                      part(row.gpu_work_ms),
                                      part(row.gpu_gap_ms),
                                      part(row.wake_up_ms),
                                      part(row.unexplained_ms),
                                      row.error_median_frac ? format_percent(*row.error_median_frac) : "-"};
    if (lacks_input) cells.insert(cells.begin() + kNoInput, part(row.no_input_ms));
    table.add_row(std::move(cells));
  }
  if (table.empty()) return {};
  return title(ink, "Critical path",
               "what a step waits for: the chain of dependencies to its end, by replay; work beside it is hidden") +
         table.render("  ", options) + guessed + text_path_work(report, options) + "\n";
}

std::string text_what_ifs(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.what_ifs.empty()) return {};
  // Of changes that make more tokens in a step, what that brings is not the step's time.
  const bool tokens = std::any_of(report.what_ifs.begin(), report.what_ifs.end(),
                                  [](const WhatIfRecord& row) { return row.tokens_factor.has_value(); });
  std::vector<TextTable::Column> columns = {
      {"change", kLeft, 30}, {"stage", kLeft, 24, 1}, {"a step"}, {"then"}, {"gain"}};
  if (tokens) columns.push_back({"tokens/s", kRight, 0, 1});
  columns.push_back({"95 % interval", kRight, 0, 2});
  TextTable table(std::move(columns));
  std::string notes;
  for (const WhatIfRecord& row : report.what_ifs) {
    const bool forbidden = !row.forbidden.empty();
    std::vector<std::string> cells = {row.what_if + (forbidden ? " *" : ""), row.stage, format_ms(row.step_ms),
                                      format_ms(row.then_ms), row.gain_frac ? format_percent(*row.gain_frac) : "-"};
    if (tokens) cells.push_back(row.tokens_factor ? fmt::format("x {:.2f}", *row.tokens_factor) : "-");
    cells.push_back(row.ci95_low_ms && row.ci95_high_ms
                        ? fmt::format("{} to {}", format_ms(*row.ci95_low_ms), format_ms(*row.ci95_high_ms))
                        : "-");
    table.add_row(std::move(cells));
    if (forbidden)
      notes += wrap_text(ink.dim(fmt::format("* {}, {}: {}", row.what_if, row.stage, row.forbidden)), options.width,
                         "  ", "    ");
  }
  return title(ink, "What if", "what steps would take with something changed, by replay; `llmprof list what-ifs`") +
         table.render("  ", options) + notes + "\n";
}

std::string text_launch_places(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfStage = 8;
  if (report.launch_places.empty()) return {};
  TextTable table({{"stage", Align::kLeft, 24},
                   {"GPU ms/step", Align::kRight, 0},
                   {"of GPU work", Align::kRight, 0},
                   {"per step", Align::kRight, 0, 2},
                   {"seen", Align::kRight, 0, 1},
                   {"Python code, innermost first", Align::kLeft, options.width > 100 ? size_t{90} : size_t{60}}});
  const std::string* stage = nullptr;
  size_t of_stage = 0, hidden = 0;
  for (const LaunchPlaceRecord& row : report.launch_places) {
    of_stage = stage != nullptr && *stage == row.stage ? of_stage + 1 : 0;
    stage = &row.stage;
    if (of_stage >= kRowsOfStage) {
      ++hidden;
      continue;
    }
    table.add_row({printable(row.stage), fmt::format("{:.3f}", row.gpu_ms_per_step), format_percent(row.gpu_frac),
                   fmt::format("{:.3g}", row.per_step), format_count(static_cast<double>(row.seen)),
                   printable(row.place)});
  }
  std::string out = title(ink, "Code that launches", "estimated from the launches seen") + table.render("  ", options);
  if (hidden > 0) out += ink.dim(fmt::format("  ... {} more (--format csv)\n", hidden));
  return out + "\n";
}

std::string text_host_places(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfStage = 5;
  if (report.host_places.empty()) return {};
  TextTable table({{"stage", Align::kLeft, 24},
                   {"kind", Align::kLeft, 0},
                   {"per step", Align::kRight, 0},
                   {"host ms/step", Align::kRight, 0, 1},
                   {"Python code, innermost first", Align::kLeft, options.width > 100 ? size_t{90} : size_t{60}}});
  const std::string* stage = nullptr;
  size_t of_stage = 0, hidden = 0;
  for (const HostPlaceRecord& row : report.host_places) {
    of_stage = stage != nullptr && *stage == row.stage ? of_stage + 1 : 0;
    stage = &row.stage;
    if (of_stage >= kRowsOfStage) {
      ++hidden;
      continue;
    }
    table.add_row({printable(row.stage), row.kind, fmt::format("{:.3g}", row.per_step),
                   row.host_ms_per_step ? fmt::format("{:.3f}", *row.host_ms_per_step) : "-", printable(row.place)});
  }
  std::string out = ink.bold("Where the host waits") + "\n" + table.render("  ", options);
  if (hidden > 0) out += ink.dim(fmt::format("  ... {} more (--format csv)\n", hidden));
  return out + "\n";
}

std::string text_host(const Report& report, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"stage", kLeft, 28},
                   {"operators", kRight, 0, 6},
                   {"in operators", kRight, 0, 5},
                   {"launches", kRight, 0, 4},
                   {"in launches", kRight, 0, 3},
                   {"a launch", kRight, 0, 7},
                   {"waits", kRight, 0, 8},
                   {"in waits", kRight, 0, 2},
                   {"GPU busy", kRight, 0, 1},
                   {"host/GPU"}});
  for (const HostRecord& row : report.host) {
    if (is_warm_up(report, row.stage)) continue;
    // Per step where there are steps.
    int64_t steps = 0;
    for (const StageTiming& stage : report.stages)
      if (stage.name == row.stage && stage.device == row.device) steps += stage.count;
    if (steps == 0 || (row.operators == 0 && row.launches == 0)) continue;
    const double n = static_cast<double>(steps);
    const auto count = [n](int64_t total) {
      const double each = static_cast<double>(total) / n;
      return each >= 100 || each == std::floor(each) ? format_count(each) : format_fixed(each, each < 10 ? 2 : 1);
    };
    const auto time = [n](Milliseconds total) { return format_ms(total.ms() / n); };
    table.add_row({row.stage, row.operators.known ? count(row.operators) : "-",
                   row.operators_ms.known ? time({row.operators_ms.ns}) : "-", count(row.launches), time(row.launch_ms),
                   row.launch_mean_us ? format_ms(*row.launch_mean_us / 1e3) : "-", count(row.syncs), time(row.sync_ms),
                   time(row.gpu_busy_ms),
                   row.host_per_gpu ? format_fixed(*row.host_per_gpu, *row.host_per_gpu < 1 ? 2 : 1) + "x" : "-"});
  }
  if (table.empty()) return {};
  return title(ink, "Host against GPU", "per step; above 1x in the last column the host cannot keep the GPU busy") +
         table.render("  ", options) + "\n";
}

std::string text_operators(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.operators.empty()) return {};
  std::vector<TextTable::Column> columns = {{"operator", kLeft, 38},
                                            {"stage", kLeft, 16, 3},
                                            {"calls", kRight, 0, 2},
                                            {"CPU", kRight, 0, 4},
                                            {"CPU self", kRight, 0, 1}};
  // Where the host is the device, an operator and its kernel are one: their times are the same.
  if (!on_cpu(report)) columns.insert(columns.end(), {{"GPU"}, {"GPU self", kRight, 0, 5}});
  columns.push_back({"most frequent shapes", kLeft, options.width > 100 ? size_t{34} : size_t{14}, 6});
  TextTable table(std::move(columns));
  size_t shown = 0;
  std::vector<const OperatorRecord*> taken;
  for (const OperatorRecord& row : report.operators) {
    if (is_warm_up(report, row.stage)) continue;
    // An operator that does nothing but call another says what that one says: linear, matmul, mm are one row, of the
    // outermost.
    const bool said = std::any_of(taken.begin(), taken.end(), [&row](const OperatorRecord* other) {
      return other->stage == row.stage && other->calls == row.calls && row.gpu_total_ms.ns > 0 &&
             other->gpu_total_ms.ns == row.gpu_total_ms.ns;
    });
    if (said) continue;
    if (++shown > options.top) break;
    const OperatorRecord* outermost = &row;
    std::vector<const OperatorRecord*> inside;
    for (const OperatorRecord& other : report.operators)
      if (other.stage == row.stage && other.calls == row.calls && row.gpu_total_ms.ns > 0 &&
          other.gpu_total_ms.ns == row.gpu_total_ms.ns) {
        inside.push_back(&other);
        if (other.cpu_total_ms.ns > outermost->cpu_total_ms.ns) outermost = &other;
      }
    std::string name = outermost->name;
    int64_t cpu_self = outermost->cpu_self_ms.ns, gpu_self = outermost->gpu_self_ms.ns;
    for (const OperatorRecord* other : inside) {
      if (other == outermost) continue;
      const size_t plain = other->name.rfind("::");
      name += " > " + (plain == std::string::npos ? other->name : other->name.substr(plain + 2));
      cpu_self += other->cpu_self_ms.ns;
      gpu_self += other->gpu_self_ms.ns;
    }
    taken.push_back(&row);
    std::vector<std::string> cells = {name, row.stage, format_count(static_cast<double>(row.calls)),
                                      format_ns(outermost->cpu_total_ms.ns), format_ns(cpu_self)};
    if (!on_cpu(report)) cells.insert(cells.end(), {format_ns(row.gpu_total_ms.ns), format_ns(gpu_self)});
    cells.push_back(short_shapes(outermost->shapes));
    table.add_row(std::move(cells));
  }
  if (table.empty()) return {};
  return title(ink, "Operators",
               "all steps together; totals hold enclosed operators, so rows overlap; self times do not") +
         table.render("  ", options) + cut_note(options.top, report.operators.size(), ink) + "\n";
}

std::string text_kernels(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.kernels_topk.empty()) return {};
  TextTable table({{"kernel", kLeft, options.width > 100 ? size_t{46} : size_t{34}},
                   {"stage", kLeft, 12, 3},
                   {"calls", kRight, 0, 4},
                   {"total"},
                   {"share", kRight, 0, 1},
                   {"grid", kRight, 0, 10},
                   {"shape", kLeft, 24, 9},
                   {"FLOP/B", kRight, 0, 8},
                   {"TFLOP/s", kRight, 0, 6},
                   {"GB/s", kRight, 0, 7},
                   {"limit", kLeft, 24, 2},
                   {"could save", kRight, 0, 1}});
  size_t shown = 0;
  for (const KernelRecord& row : report.kernels_topk) {
    if (is_warm_up(report, row.stage)) continue;
    if (++shown > options.top) break;
    table.add_row({short_kernel_name(row.name), row.stage, format_count(static_cast<double>(row.calls)),
                   format_ns(row.total_ms.ns), format_percent(row.share), row.grid.value_or("-"),
                   row.shape.value_or("-"), number(row.intensity, 1), row.tflops ? format_rate(*row.tflops) : "-",
                   row.gbs ? format_rate(*row.gbs) : "-", limit_of(row.bound, row.of_roof_frac),
                   row.of_roof_frac ? format_ms(row.total_ms.ms() * std::max(0.0, 1 - *row.of_roof_frac)) : "-"});
  }
  if (table.empty()) return {};
  std::string note = "all steps together; roof: min(peak, intensity x bandwidth)";
  if (report.device && report.device->arithmetic && report.device->ridge)
    note += fmt::format("; ridge of {} at {:.0f} FLOP/B", *report.device->arithmetic, *report.device->ridge);
  return title(ink, "Kernels", note) + table.render("  ", options) +
         cut_note(options.top, report.kernels_topk.size(), ink) + "\n";
}

std::string text_memory(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (!report.memory) return {};
  const MemoryReport& memory = *report.memory;
  std::string line = "  peak ";
  line += memory.peak_allocated_bytes ? format_bytes(*memory.peak_allocated_bytes) : "unknown";
  line += " in tensors";
  if (memory.peak_stage)
    line += fmt::format(" ({}, at {})", printable(*memory.peak_stage), format_ms(memory.peak_time_ms.value_or(0)));
  else if (memory.peak_time_ms)
    line += fmt::format(" (at {})", format_ms(*memory.peak_time_ms));
  if (memory.peak_reserved_bytes) line += ", " + format_bytes(*memory.peak_reserved_bytes) + " held by the allocator";
  if (memory.capacity_bytes) line += " of " + format_bytes(*memory.capacity_bytes);
  line += "\n";
  TextTable table({{"allocating operator", kLeft, 44}, {"allocations", kRight, 0, 1}, {"bytes"}});
  size_t shown = 0;
  for (const AllocationRecord& row : memory.operators) {
    if (++shown > std::min<size_t>(5, options.top)) break;
    table.add_row({row.name, format_count(static_cast<double>(row.allocations)), format_bytes(row.bytes)});
  }
  return title(ink, "Device memory", fmt::format("{} allocations, {} frees", memory.allocations, memory.frees)) + line +
         table.render("  ", options) + "\n";
}

}  // namespace llmprof
