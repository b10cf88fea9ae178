// Findings, limits and the foot of the text report.
#include <fmt/format.h>

#include <cmath>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

constexpr size_t kDiagnosticWidth = 240;  // places may quote long kernel names; JSON has them whole

std::string value_text(const Evidence& e) {
  if (!e.value) return "unknown";
  if (e.unit == Unit::kFrac) return format_percent(*e.value);
  if (e.unit == Unit::kMs) return format_ms(*e.value);
  if (e.unit == Unit::kUs) return format_ms(*e.value / 1e3);
  if (e.unit == Unit::kBytes) return format_bytes(*e.value);
  if (e.unit == Unit::kFlop) return format_si(*e.value, "FLOP");
  const std::string number = std::fabs(*e.value) >= 1000 || *e.value == std::floor(*e.value)
                                 ? format_count(*e.value)
                                 : fmt::format("{:.3g}", *e.value);
  return e.unit == Unit::kOne || e.unit == Unit::kNone ? number : fmt::format("{} {}", number, name_of(e.unit));
}

}  // namespace

std::string place_text(const FindingPlace& place) {
  const std::string name = place.kind == "kernel" ? short_kernel_name(place.name) : place.name;
  return (place.kind == kBeforePython ? "before " : "at ") + printable(name);
}

std::string text_findings(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.findings.empty() && profiled_alone(report)) return {};
  std::string out = ink.bold("Findings") + "\n";
  if (report.findings.empty())
    out +=
        wrap_text("none: no rule found anything; `llmprof list findings` names the rules", options.width, "  ", "  ");
  for (const Finding& finding : report.findings) {
    out += wrap_text(fmt::format("[{}] {}", name_of(finding.severity), printable(finding.title)), options.width, "  ",
                     "      ");
    std::string evidence;
    for (const Evidence& e : finding.evidence)
      evidence += (evidence.empty() ? "" : "; ") + printable(e.metric) + " " + value_text(e) +
                  (e.provenance == Provenance::kMeasured ? "" : fmt::format(" ({})", name_of(e.provenance)));
    const std::string id = finding.id + ": ";
    out += ink.dim(wrap_text(id + evidence, options.width, "      ", "      "));
    if (finding.gain) out += wrap_text(gain_text(*finding.gain), options.width, "      ", "      ");
    for (const FindingPlace& place : finding.where) {
      const std::string times = place.per_step ? fmt::format(", {:.3g} times a step", *place.per_step) : "";
      out += wrap_text(place_text(place) + times, options.width, "      ", "        ");
    }
    if (finding.forbidden_by)
      out +=
          wrap_text("not as the program is: " + printable(*finding.forbidden_by), options.width, "      ", "        ");
    for (const std::string& symptom : finding.symptoms)
      out += wrap_text("goes with it: " + printable(symptom), options.width, "      ", "        ");
    for (const std::string& advice : finding.advice) out += wrap_text(advice, options.width, "      > ", "        ");
  }
  return out + "\n";
}

std::string text_cannot_tell(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.cannot_tell.empty()) return {};
  std::string out = ink.bold("Not known from this recording") + "\n";
  for (const CannotTell& row : report.cannot_tell) {
    out += wrap_text(printable(row.question), options.width, "  ", "      ");
    out += ink.dim(wrap_text(printable(row.why + "; " + row.how_to_find_out), options.width, "      ", "      "));
  }
  return out + "\n";
}

namespace {

// What recording cost the run as a whole, where the recorder measured that or came and went.
std::string recording_line(const Report& report, const RenderOptions& options) {
  if (!report.overhead) return {};
  const OverheadReport& overhead = *report.overhead;
  std::string line;
  if (overhead.run_frac) {
    line = fmt::format("recording slowed the run by {} in the mean", format_percent(*overhead.run_frac));
    if (overhead.budget_frac) line += fmt::format(" (budget {})", format_percent(*overhead.budget_frac));
  }
  if (overhead.switching_ms && overhead.switching_steps.value_or(0) > 0)
    line += fmt::format("{}its coming and going held up {} {} for {} in all", line.empty() ? "" : "; ",
                        *overhead.switching_steps, *overhead.switching_steps == 1 ? "step" : "steps",
                        format_ms(*overhead.switching_ms));
  if (overhead.windows_p99_ms && overhead.pauses_p99_ms)
    line += fmt::format("{}p99 of {} {} while windows were open, {} while not", line.empty() ? "" : "; ",
                        overhead.stage, format_ms(*overhead.windows_p99_ms), format_ms(*overhead.pauses_p99_ms));
  if (overhead.calls_factor)
    line += fmt::format("{}a recorded call costs {:.2f} (+/- {:.2f}) times here what `llmprof peaks` measured",
                        line.empty() ? "" : "; ", *overhead.calls_factor, overhead.calls_factor_error.value_or(0));
  return line.empty() ? std::string() : wrap_text(line, options.width, "  ", "    ");
}

}  // namespace

std::string text_foot(const Report& report, const RenderOptions& options, const Ink& ink) {
  std::string out;
  if (const std::string line = recording_line(report, options); !line.empty()) out += ink.dim(line);
  std::string coverage;
  for (const CoverageRecord& row : report.coverage)
    if (row.frac && !row.name.starts_with(kCrossCheck))
      coverage += (coverage.empty() ? "" : ", ") + row.name + " " + format_percent(*row.frac);
  if (!coverage.empty()) out += ink.dim(wrap_text("coverage: " + printable(coverage), options.width, "  ", "    "));
  for (const CoverageRecord& row : report.coverage)
    if (row.frac && row.name.starts_with(kCrossCheck))
      out += ink.dim(wrap_text(fmt::format("{}: {:.4f}, {}", printable(row.name), *row.frac, printable(row.text)),
                               options.width, "  ", "    "));
  size_t failed = 0;
  for (const ConservationCheck& check : report.conservation) failed += !check.ok;
  if (failed == 0) {
    out += ink.dim(fmt::format("  conservation: {} of {} totals add up to the nanosecond\n", report.conservation.size(),
                               report.conservation.size()));
  } else {
    for (const ConservationCheck& check : report.conservation)
      if (!check.ok)
        out += wrap_text(fmt::format("conservation: {} should be {:.0f} {}, is {:.0f}", printable(check.name),
                                     check.expected, check.unit, check.actual),
                         options.width, "  ", "    ");
  }
  if (report.diagnostics.empty()) {
    out += ink.dim("  diagnostics: none\n");
    return out;
  }
  for (const DiagnosticRecord& row : report.diagnostics)
    if (!is_about_options(row.key))  // said at the top, in full
      out += ink.dim(wrap_text(fmt::format("{} {} x{}: {}", name_of(row.severity), name_of(row.key), row.count,
                                           ellipsize(printable(row.text), kDiagnosticWidth)),
                               options.width, "  ", "    "));
  return out;
}

}  // namespace llmprof
