// The text report: the answer first, then the tables it rests on, findings, limits, and the foot.
#include <fmt/format.h>

#include <algorithm>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

// "989 TFLOP/s (measured 724)"; "0.53 TFLOP/s measured" where there is no data sheet.
std::string ceiling_text(const Peak& peak, const char* unit) {
  const auto figure = [](double value) { return format_fixed(value, value >= 10 ? 0 : 2); };
  std::string text = figure(peak.value) + " " + unit;
  if (!peak.measured) return text;
  if (peak.value == *peak.measured) return text + " measured";
  return text + fmt::format(" (measured {})", figure(*peak.measured));
}

// What was asked for and does not fit: the reader must know it before any number.
std::string warnings(const Report& report, const RenderOptions& options, const Ink& ink) {
  std::string out;
  for (const DiagnosticRecord& row : report.diagnostics)
    if (is_about_options(row.key))
      out += wrap_text(ink.accent("warning:") + " " + printable(row.text), options.width, "  ", "      ");
  // What is lost may have been anything; the foot has all of it.
  if (!report.diagnostics.empty() && report.diagnostics.front().severity >= Severity::kDataLoss)
    out += wrap_text(ink.accent("warning:") + " the recording is not whole, and figures are of what could be read: " +
                         printable(report.diagnostics.front().text),
                     options.width, "  ", "      ");
  for (const DiagnosticRecord& row : report.diagnostics)
    if (row.key == DiagnosticId::kUnfinishedSpool)
      out += wrap_text("note: " + printable(row.text), options.width, "  ", "      ");
  if (report.device)
    for (const std::string& remark : report.device->remarks)
      out += wrap_text("note: " + printable(remark) + ".", options.width, "  ", "      ");
  return out.empty() ? out : out + "\n";
}

// What the recorded device is compared with, where that is another part: "NVIDIA H200, 132 SMs, compared with A100".
std::string held_against(const Report& report) {
  const bool other = std::any_of(report.diagnostics.begin(), report.diagnostics.end(),
                                 [](const DiagnosticRecord& row) { return row.key == DiagnosticId::kOtherGpu; });
  return other && report.device->sku ? ", compared with " + printable(*report.device->sku) + " (--gpu):"
                                     : std::string();
}

// "104.9 ms recorded"; "600.1 s, kernels recorded in 12.3 s of it" where recording paused or was lighter.
std::string recorded_time(const SourceReport& source) {
  const std::string all = format_ms(source.duration_ms.ms());
  if (source.recorded_ms == source.duration_ms) return all + " recorded";
  if (source.recorded_ms.ns <= 0) return all + ", no kernels recorded";
  return fmt::format("{}, kernels recorded in {} of it", all, format_ms(source.recorded_ms.ms()));
}

std::string headline(const Report& report, const Ink& ink) {
  std::string files;
  for (const std::string& file : report.source.files) files += (files.empty() ? "" : ", ") + file_name(file);
  std::string out = ink.bold(fmt::format("llmprof {}", report.tool_version)) + "  " + files + "\n";
  // A client alone does not see whether there is one.
  std::string device = gpu_was_seen(report)                                    ? "unknown GPU"
                       : profiled_alone(report) && !report.client_runs.empty() ? "no GPU recorded"
                                                                               : "no GPU work seen";
  if (report.device) {
    device = printable(report.device->name);
    if (report.device->sm_count) device += fmt::format(", {} {}", *report.device->sm_count, report.device->units());
    const std::string other = held_against(report);
    device += other;
    bool first = !other.empty();
    const std::string arithmetic = report.device->arithmetic.value_or("");
    for (const auto& [name, peak] : report.device->peaks) {
      const bool memory = peak.of == Peak::Of::kMemory;
      if (!memory && (peak.of != Peak::Of::kArithmetic || arithmetic.empty() || peak.type != arithmetic)) continue;
      device += first ? " " : ", ";
      first = false;
      device += memory ? ceiling_text(peak, "GB/s")
                       : arithmetic + " " + ceiling_text(peak, peak.integers ? "TOP/s" : "TFLOP/s");
    }
  }
  // Metrics pages are of servers, of whose GPUs a page may say something itself.
  const bool pages_alone = profiled_alone(report) && report.profiled_kernels.empty() && report.logged_products.empty();
  if (pages_alone) return out + ink.dim(alone_text(report)) + "\n\n";
  out += ink.dim(device);
  if (report.model)
    out += ink.dim((report.model->origin == ModelOrigin::kGiven ? " · model " : " · probably ") +
                   printable(report.model->id));
  out += ink.dim(" · " + (profiled_alone(report) ? alone_text(report) : recorded_time(report.source)));
  return out + "\n\n";
}

}  // namespace

std::string file_name(std::string_view path) {
  // Recordings in the run store are all called the same: the run's folder above says which.
  constexpr std::string_view kStored = "/recording";
  if (path.ends_with(kStored) && path.size() > kStored.size()) path.remove_suffix(kStored.size());
  const size_t slash = path.rfind('/');
  return printable(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

bool gpu_was_seen(const Report& report) {
  return report.telemetry || !report.profiled_kernels.empty() || !report.logged_products.empty() ||
         std::any_of(report.stages.begin(), report.stages.end(),
                     [](const StageTiming& stage) { return stage.kernels > 0; });
}

bool on_cpu(const Report& report) { return report.device && report.device->cpu; }

const char* processor(const Report& report) { return report.device ? report.device->processor() : "GPU"; }

std::string stage_label(const Report& report, const StageTiming& stage) {
  for (const StageTiming& other : report.stages)
    if (other.device != stage.device) return fmt::format("{} gpu{}", printable(stage.name), stage.device);
  return printable(stage.name);
}

bool is_warm_up(const Report& report, std::string_view stage) {
  return std::any_of(report.stages.begin(), report.stages.end(),
                     [&](const StageTiming& row) { return row.name == stage && report.mark_of(row).is_warm_up(); });
}

std::string busy_text(const StageTiming& stage) {
  if (!stage.gpu_busy_frac && stage.gr_active_frac) return "~" + format_percent(*stage.gr_active_frac);
  return percent_or_dash(stage.gpu_busy_frac);
}

std::string percent_or_dash(const OptDouble& frac) { return frac ? format_percent(*frac) : "-"; }

std::string at_least_text(const OptDouble& frac, const OptDouble& at_least) {
  return !frac && at_least ? "≥ " + format_percent(*at_least) : percent_or_dash(frac);
}

std::string bound_text(const GainBound& bound) {
  const std::string_view name = name_of(bound.metric);
  return fmt::format("{} {} -> {}", name.substr(0, name.find(" (")), format_ms(bound.from), format_ms(bound.to));
}

std::string gain_text(const FindingGain& gain) {
  const std::string moves = bound_text({gain.metric, gain.from, gain.to});
  if (gain.method != "replay") return "At best, by formula: " + moves;
  std::string out = "Simulated: " + moves;
  if (gain.ci95 && format_ms((*gain.ci95)[0]) != format_ms((*gain.ci95)[1]))
    out += fmt::format(" (95 %: {} to {})", format_ms((*gain.ci95)[0]), format_ms((*gain.ci95)[1]));
  if (gain.at && gain.at_to && format_ms(*gain.at_to) != format_ms(gain.to))
    out += fmt::format(", at {} alone {}", printable(*gain.at), format_ms(*gain.at_to));
  if (gain.on_top_of) out += ", after fixing " + *gain.on_top_of;
  return out;
}

std::string text_verdict(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (profiled_alone(report)) return {};
  std::string out = text_latency_or_why(report, options, ink);
  for (const StageTiming& stage : report.stages) {
    if (stage.name == kUnattributed || !stage.bound || stage.count == 0 || report.mark_of(stage).is_warm_up()) continue;
    if (stage.wall_ms.ns < report.source.duration_ms.ns / 50) continue;  // under 2 % of the recording
    // "overhead" is the schema's word for every bound that is neither arithmetic nor traffic; say which where it is
    // known.
    const bool launch = *stage.bound == Bound::kOverhead &&
                        std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
                          return finding.id == kLaunchBound && finding.stage == stage.name;
                        });
    std::string line =
        fmt::format("{}: {}-bound", stage_label(report, stage), launch ? "launch" : name_of(*stage.bound));
    if (*stage.bound == Bound::kMixed) line = stage_label(report, stage) + ": mixed";
    if (stage.bound_detail) line += ", " + *stage.bound_detail;
    line += fmt::format("; {} busy {}", processor(report), busy_text(stage));
    if (stage.mfu || stage.mfu_at_least) line += ", MFU " + at_least_text(stage.mfu, stage.mfu_at_least);
    if (!stage.mfu && stage.mfu_at_least && stage.flop_coverage_frac)
      line += fmt::format(" (by {} of its arithmetic's time)", format_percent(*stage.flop_coverage_frac));
    if (stage.mbu || stage.mbu_at_least) line += ", MBU " + at_least_text(stage.mbu, stage.mbu_at_least);
    out += wrap_text(line, options.width, "  ", "      ");
  }
  for (const Finding& finding : report.findings) {
    if (finding.severity < FindingSeverity::kMinor || finding.advice.empty()) continue;
    std::string line = finding.advice.front();
    if (finding.gain) line += " " + gain_text(*finding.gain) + ".";
    out += "  " + ink.accent("change first") + "\n" + wrap_text(line, options.width, "      ", "      ");
    break;
  }
  return out.empty() ? out : out + "\n";
}

std::string render_text(const Report& report, const RenderOptions& given) {
  RenderOptions options = given;
  options.width = std::max(kLeastWidth, options.width);
  const Ink ink(options.color);
  std::string out = headline(report, ink) + warnings(report, options, ink);
  if (options.one_page) return finish_page(text_page(report, out, options, ink), options);
  const bool cpu = on_cpu(report);
  for (const auto part : {text_verdict,
                          text_stages,
                          text_ranks,
                          text_stage_steps,
                          text_warm_up,
                          text_measured,
                          text_where,
                          text_undisturbed,
                          text_critical_path,
                          text_what_ifs,
                          text_launch_places,
                          text_host,
                          text_host_places,
                          text_idle,
                          text_operators,
                          text_kernels,
                          text_profiled_kernels,
                          text_logged_products,
                          text_client_runs,
                          text_servers,
                          text_nccl,
                          text_engine,
                          text_proton,
                          text_joined_files,
                          text_launch_sites,
                          text_memory,
                          text_allocators,
                          text_findings,
                          text_cannot_tell,
                          text_foot})
    if (!cpu || part != text_host) out += part(report, options, ink);  // the host is the device there
  return finish_page(out, options);
}

}  // namespace llmprof
