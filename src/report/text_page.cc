// The report on one page, of at most kPageLines lines: the answer, what to change first, the stages, the operations
// that take most, further findings and what is not known. Everything else is in the tables of --full.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

// Lines that the parts get, of those that the page has.
constexpr size_t kFewestUnknown = 4;  // of what is not known, before further findings take the room
constexpr size_t kOperations = 10;

size_t lines_of(std::string_view text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

// One line however long the text is.
std::string one_line(std::string_view text, const RenderOptions& options, size_t indent) {
  const size_t room = options.width > indent + 10 ? options.width - indent : 10;
  return std::string(indent, ' ') + ellipsize(printable(text), room, options.charset) + "\n";
}

// " (gemm 80 %, norm 6 %)": what GPU work on the path of a stage is for, of the step; at most so many, none of them
// small.
std::string path_work(const Report& report, const CriticalPathRecord& path, size_t most) {
  constexpr double kShareLeast = 0.10;
  std::string out;
  for (const CriticalPathWorkRecord& row : report.critical_path_work) {
    if (row.stage != path.stage || row.device != path.device || row.share < kShareLeast) continue;
    if (most-- == 0) break;
    out += fmt::format("{}{} {:.0f} %", out.empty() ? " (" : ", ", row.category, 100 * row.share);
  }
  return out.empty() ? out : out + ")";
}

constexpr size_t kPathWidth = 60;

// "GPU work 92 % (gemm 80 %), host code 6 %": what a step waits for, the most first.
std::string path_of(const Report& report, const StageTiming& stage) {
  for (const CriticalPathRecord& row : report.critical_path) {
    if (row.stage != stage.name || row.device != stage.device || row.step_ms.ns <= 0) continue;
    if (row.error_worst_frac.value_or(0) > kPathErrorMost) return "-";
    using Part = std::pair<int64_t, std::string_view>;
    constexpr std::string_view kGpuWork = "GPU work";
    std::array parts{Part{row.host_code_ms.ns, "host code"},   Part{row.no_input_ms.ns, "no input"},
                     Part{row.cuda_calls_ms.ns, "CUDA calls"}, Part{row.launch_latency_ms.ns, "launch latency"},
                     Part{row.gpu_work_ms.ns, kGpuWork},       Part{row.gpu_gap_ms.ns, "GPU gaps"},
                     Part{row.wake_up_ms.ns, "waking up"},     Part{row.unexplained_ms.ns, "unexplained"}};
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto with_work = [&](size_t most) {
      std::string out;
      for (const auto& [ns, name] : parts) {
        const double share = static_cast<double>(ns) / static_cast<double>(row.step_ms.ns);
        if (share < 0.015) break;
        out += fmt::format("{}{} {:.0f} %", out.empty() ? "" : ", ", name, 100 * share);
        if (name == kGpuWork) out += path_work(report, row, most);
      }
      return out;
    };
    for (const size_t most : {size_t{2}, size_t{1}})  // as many as there is room for
      if (std::string out = with_work(most); out.size() <= kPathWidth) return out;
    return with_work(0);
  }
  return "-";
}

// The median step: without the recorder where that is known, else as recorded.
double step_ms(const Report& report, const StageTiming& stage) {
  for (const UndisturbedRecord& row : report.undisturbed)
    if (row.stage == stage.name && row.device == stage.device && row.source != StepTimeSource::kRecorded)
      return row.step_ms;
  for (const StageStepRecord& row : report.stage_steps)
    if (row.stage == stage.name && row.device == stage.device) return row.step_p50_ms;
  return per_instance(stage, stage.wall_ms.ms());  // of time outside steps there is no median
}

// What of the window is in none of the rows above: steps of warm-up, smaller stages, time between steps.
std::string rest_of_window(const Report& report, const std::vector<const StageTiming*>& shown) {
  constexpr size_t kNamesMost = 4;
  int64_t warm_ns = 0, warm_steps = 0, none_ns = 0, other_ns = 0;
  std::vector<std::string> others;
  for (const StageTiming& stage : report.stages) {
    if (stage.name == kUnattributed) {
      none_ns += stage.wall_ms.ns;
    } else if (report.mark_of(stage).is_warm_up()) {
      warm_ns += stage.wall_ms.ns;
      warm_steps += stage.count;
    } else if (std::find(shown.begin(), shown.end(), &stage) == shown.end() && stage.count > 0) {
      other_ns += stage.wall_ms.ns;
      others.push_back(stage_label(report, stage));
    }
  }
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : "; ") + part; };
  if (warm_ns > 0) {
    std::string why;
    for (const WarmUpRecord& row : report.warm_up)
      if (const std::string cause(in_words(row.cause)); why.find(cause) == std::string::npos)
        why += (why.empty() ? ": " : ", ") + cause;
    add(fmt::format("excluded: warm-up, {} in {} step{}{}", format_ns(warm_ns), warm_steps, warm_steps == 1 ? "" : "s",
                    why));
  }
  if (!others.empty()) {
    std::string names;
    for (size_t i = 0; i < std::min(kNamesMost, others.size()); ++i) names += (i > 0 ? ", " : "") + others[i];
    if (others.size() > kNamesMost) names += fmt::format(" and {} more", others.size() - kNamesMost);
    add(names + ": " + format_ns(other_ns));
  }
  if (none_ns > 0) add("in no stage: " + format_ns(none_ns));
  return out;
}

// "decode, GPU work by code: sample (serve.py:40) 31 %, forward (model.py:88) 20 %": of the function that launches it
// alone.
std::string code_line(const Report& report, const StageTiming& stage) {
  constexpr size_t kPlacesMost = 3;
  constexpr double kShareLeast = 0.05;
  std::string out;
  size_t count = 0;
  for (const LaunchPlaceRecord& row : report.launch_places) {
    if (row.stage != stage.name || row.device != stage.device || row.gpu_frac < kShareLeast) continue;
    if (count++ == kPlacesMost) break;
    out += fmt::format("{}{} {:.0f} %", out.empty() ? "" : ", ", row.place.substr(0, row.place.find(" < ")),
                       100 * row.gpu_frac);
  }
  return out.empty() ? out : fmt::format("{}, {} work by code: {}", stage_label(report, stage), processor(report), out);
}

std::string stage_lines(const Report& report, const RenderOptions& options, const Ink& ink) {
  std::vector<const StageTiming*> stages;
  for (const StageTiming* stage : main_stages(report))
    if (stage->name != kUnattributed && stage->count > 0) stages.push_back(stage);
  const char* const gpu = processor(report);
  TextTable table({{"stage", kLeft, 24},
                   {"n", kRight, 0, 5},
                   {"of window", kRight, 0, 3},
                   {"median step"},
                   {gpu + std::string(" idle"), kRight, 0, 1},
                   {"MFU", kRight, 0, 2},
                   {"MBU", kRight, 0, 2},
                   {"bound", kLeft, 28},
                   {"on the critical path of a step", kLeft, kPathWidth, 4}});
  for (const StageTiming* stage : stages) {
    std::string bound = stage->bound ? std::string(name_of(*stage->bound)) : "-";
    if (stage->bound && stage->bound_detail) bound += ", " + *stage->bound_detail;
    const std::string busy = stage->gpu_busy_frac    ? format_percent(1 - *stage->gpu_busy_frac)
                             : stage->gr_active_frac ? "~" + format_percent(1 - *stage->gr_active_frac)
                                                     : "-";
    table.add_row({stage_label(report, *stage), format_count(static_cast<double>(stage->count)),
                   format_percent(static_cast<double>(stage->wall_ms.ns) /
                                  static_cast<double>(std::max<int64_t>(1, report.source.duration_ms.ns))),
                   format_ms(step_ms(report, *stage)), busy, at_least_text(stage->mfu, stage->mfu_at_least),
                   at_least_text(stage->mbu, stage->mbu_at_least), bound, path_of(report, *stage)});
  }
  std::string code;
  for (const StageTiming* stage : stages)
    if (const std::string line = code_line(report, *stage); !line.empty()) code += one_line(line, options, 2);
  const std::string rest = rest_of_window(report, stages);
  if (table.empty() && rest.empty()) return {};
  return title(ink, "Stages") +
         (table.empty() ? std::string()
                        : table.render("  ", options) + text_recorded_steps(report, "idle", options, ink)) +
         code + (rest.empty() ? std::string() : ink.dim(wrap_text(rest, options.width, "  ", "    "))) + "\n";
}

// The kernel that takes most of an operation, of those that the report lists.
std::string largest_kernel(const Report& report, const CategoryRecord& row) {
  const KernelRecord* largest = nullptr;
  for (const KernelRecord& kernel : report.kernels_topk)
    if (kernel.stage == row.stage && kernel.category == row.category &&
        (largest == nullptr || kernel.total_ms.ns > largest->total_ms.ns))
      largest = &kernel;
  if (largest == nullptr || row.time_ms.ns <= 0) return "-";
  const double share = static_cast<double>(largest->total_ms.ns) / static_cast<double>(row.time_ms.ns);
  return fmt::format("{:.0f} % {}", 100 * std::min(1.0, share), short_kernel_name(largest->name));
}

// Of passes over memory only some have known shapes: a share that these few reach says nothing of the row.
std::string bottleneck_of(const CategoryRecord& row) {
  constexpr double kShareLeast = 0.1;
  const bool little = row.bottleneck == Bound::kMemory && row.of_roof_frac && *row.of_roof_frac < kShareLeast;
  return limit_of(row.bottleneck, little ? OptDouble() : row.of_roof_frac);
}

// GPU work by operation and idle time by cause, of all main stages: the rows that take most, stage by stage.
std::string operation_lines(const Report& report, const RenderOptions& options, const Ink& ink) {
  struct Row {
    const StageTiming* stage;
    int64_t ns;
    std::string name;
    const CategoryRecord* category;  // none: idle time
    OptDouble wall_share;
  };
  std::vector<Row> rows;
  const std::vector<const StageTiming*> stages = main_stages(report);
  for (const StageTiming* stage : stages) {
    // A few activities at the edges of unrecorded time say nothing of where it went.
    if (stage->name == kUnattributed || stage->not_recorded_ms.ns * 2 > stage->wall_ms.ns) continue;
    for (const CategoryRecord& row : report.categories)
      if (row.stage == stage->name && row.device == stage->device)
        rows.push_back({stage, row.time_ms.ns, row.category, &row, row.wall_share});
    for (const IdleRecord& row : report.idle)
      if (row.stage == stage->name && row.device == stage->device)
        rows.push_back({stage, row.total_ms.ns, fmt::format("{} idle: {}", processor(report), row.cause), nullptr,
                        row.wall_share});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ns > b.ns; });
  size_t kept = std::min(kOperations, rows.size());
  while (kept > 0 && rows[kept - 1].wall_share.value_or(1) < 0.01) --kept;
  const size_t hidden = rows.size() - kept;
  rows.resize(kept);
  if (rows.empty()) return {};
  TextTable table({{"stage", kLeft, 24},
                   {"operation", kLeft, 34},
                   {"per step"},
                   {"of wall", kRight, 0, 1},
                   {"kernels", kRight, 0, 4},
                   {"bottleneck", kLeft, 26, 2},
                   {"largest kernel", kLeft, 44, 3}});
  for (const StageTiming* stage : stages) {
    for (const Row& row : rows) {
      if (row.stage != stage) continue;
      const CategoryRecord* category = row.category;
      table.add_row({stage_label(report, *stage), row.name,
                     format_ms(per_instance(*stage, static_cast<double>(row.ns) / 1e6)),
                     percent_or_dash(row.wall_share),
                     category ? format_count(per_instance(*stage, static_cast<double>(category->kernels))) : "",
                     category ? bottleneck_of(*category) : "", category ? largest_kernel(report, *category) : ""});
    }
  }
  return title(ink, "Where the time goes", hidden > 0 ? fmt::format("{} smaller rows: --full", hidden) : "") +
         table.render("  ", options) + "\n";
}

// What a finding brings, and where it is.
std::string gain_and_place(const Finding& finding, bool whole, const RenderOptions& options) {
  const std::string gain = finding.gain ? gain_text(*finding.gain) : std::string();
  const std::string place = finding.where.empty() ? std::string() : place_text(finding.where.front());
  if (!whole) {
    const std::string line = gain + (gain.empty() || place.empty() ? "" : "; ") + place;
    return line.empty() ? line : one_line(line, options, 6);
  }
  std::string out;
  for (const std::string& line : {gain, place})
    if (!line.empty()) out += wrap_text(printable(line), options.width, "      ", "        ");
  return out;
}

std::string finding_lines(const Finding& finding, bool whole, const RenderOptions& options, const Ink& ink) {
  std::string out;
  if (whole) {
    out = "  " + ink.accent("change first") + "  " +
          wrap_text(printable(finding.title), options.width, std::string(16, ' '), "      ").substr(16);
  } else {
    out = one_line(fmt::format("[{} {}] {}", name_of(finding.severity), finding.id, finding.title), options, 2);
  }
  out += gain_and_place(finding, whole, options);
  if (finding.forbidden_by) out += one_line("not as the program is: " + *finding.forbidden_by, options, 6);
  if (finding.advice.empty()) return out;
  const std::string& advice = finding.advice.front();
  return out + (whole ? wrap_text(printable(advice), options.width, "      > ", "        ")
                      : one_line("> " + advice, options, 6));
}

bool is_first(const Finding& finding) { return finding.severity >= FindingSeverity::kMinor; }

// Findings behind the first, as many as fit.
std::string further_findings(const Report& report, size_t shown_above, size_t room, const RenderOptions& options,
                             const Ink& ink) {
  std::string out;
  size_t left = report.findings.size() - shown_above;
  for (size_t i = shown_above; i < report.findings.size(); ++i) {
    const std::string lines = finding_lines(report.findings[i], false, options, ink);
    // The title of the section, the line that counts the rest, and the blank line behind it.
    if (lines_of(out) + lines_of(lines) + 3 > room) break;
    out += lines;
    --left;
  }
  if (left > 0) out += ink.dim(fmt::format("  {} more: --full\n", left));
  return out.empty() ? out : title(ink, shown_above > 0 ? "Further findings" : "Findings") + out + "\n";
}

std::string unknown_lines(const Report& report, size_t room, const RenderOptions& options, const Ink& ink) {
  if (report.cannot_tell.empty()) return {};
  std::string out = title(ink, "Not known", "what to do about it: --full");
  size_t left = report.cannot_tell.size();
  for (const CannotTell& row : report.cannot_tell) {
    if (lines_of(out) + (left > 1 ? 3 : 2) > room) break;  // the row, the line that counts the rest, a blank one
    out += one_line(row.question + " " + row.why, options, 2);
    --left;
  }
  if (left > 0) out += ink.dim(fmt::format("  {} more: --full\n", left));
  return out + "\n";
}

std::string page_foot(const Report& report, const RenderOptions& options, const Ink& ink) {
  size_t failed = 0, remarks = 0;
  for (const ConservationCheck& check : report.conservation) failed += !check.ok;
  for (const DiagnosticRecord& row : report.diagnostics) remarks += !is_about_options(row.key);
  const size_t checks = report.conservation.size();
  std::string out = failed > 0 ? fmt::format("conservation: {} of {} totals do not add up", failed, checks)
                               : fmt::format("conservation: {} of {} totals add up to the nanosecond", checks, checks);
  if (remarks > 0) out += fmt::format("; {} remark{} on the recording", remarks, remarks == 1 ? "" : "s");
  out += "; --full: all of it, by stage, kernel, operator and line";
  return ink.dim(wrap_text(out, options.width, "  ", "    "));
}

// A log of sensors, beside which no program was recorded: its readings are the answer, and asking for stages is idle.
bool readings_alone(const Report& report) {
  const auto is_seen = [](const StageTiming& stage) { return stage.kernels > 0 || stage.count > 0; };
  return report.telemetry && report.source.recorded_ms.ns <= 0 &&
         std::none_of(report.findings.begin(), report.findings.end(), is_first) &&
         std::none_of(report.stages.begin(), report.stages.end(), is_seen);
}

}  // namespace

std::string text_page(const Report& report, std::string_view head, const RenderOptions& options, const Ink& ink) {
  std::string out(head);
  const bool readings = readings_alone(report), profiled = profiled_alone(report) || readings;
  if (!profiled) out += text_latency_or_why(report, options, ink);
  const size_t first = !report.findings.empty() && is_first(report.findings.front()) ? 1 : 0;
  if (first > 0) {
    out += finding_lines(report.findings.front(), true, options, ink);
  } else if (!profiled && (!report.findings.empty() || gpu_was_seen(report))) {
    out += wrap_text("change first: nothing that was looked for is worth a change (llmprof list findings)",
                     options.width, "  ", "      ");
  }
  if (!profiled) out += "\n";
  out += text_profiled_kernels(report, options, ink) + text_logged_products(report, options, ink) +
         text_client_runs(report, options, ink) + text_servers(report, options, ink) + text_nccl(report, options, ink) +
         text_engine(report, options, ink) + text_proton(report, options, ink) + text_allocators(report, options, ink) +
         text_what_ifs(report, options, ink);
  out += readings ? text_measured(report, options, ink)
                  : stage_lines(report, options, ink) + text_ranks(report, options, ink) +
                        operation_lines(report, options, ink);
  const std::string foot = page_foot(report, options, ink);
  const size_t taken = lines_of(finish_page(out, options)) + lines_of(foot);  // as broken for a narrow terminal
  const size_t room = kPageLines > taken ? kPageLines - taken : 0;
  const size_t unknown_least = std::min(report.cannot_tell.size(), kFewestUnknown) + 3;
  const std::string findings =
      further_findings(report, first, room > unknown_least ? room - unknown_least : 0, options, ink);
  const size_t left = room > lines_of(findings) ? room - lines_of(findings) : 0;
  return out + findings + unknown_lines(report, left, options, ink) + foot;
}

}  // namespace llmprof
