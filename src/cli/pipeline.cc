#include "cli/pipeline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>

#include "analyze/timeline_choice.h"
#include "analyze/without_program.h"
#include "base/text_table.h"
#include "derive/recorded_spans.h"
#include "report/timeline_data.h"
#include "trace/redact.h"

namespace llmprof::cli {
namespace {

// A program watched by `llmprof run` in light mode has ranges, counters and power to report on, and no kernels.
bool can_report(const Trace& trace) {
  // Launches of CUDA graphs that were recorded as a whole are GPU activities to come.
  if (!trace.gpu_ops.empty() || !trace.graph_launches.empty()) return true;
  if (!trace.profiled_kernels.empty() || !trace.logged_products.empty() || !trace.scraped_values.empty()) return true;
  if (!trace.client_figures.empty() || !trace.client_requests.empty()) return true;
  if (of_allocator(trace) || of_engine(trace) || of_proton(trace)) return true;
  if (of_nccl_log(trace) || of_nccl_inspector(trace)) return true;
  const bool watched = trace.source.kind == kSessionImporter || is_live_recording(trace);  // the latter was saved
  return watched && (!trace.annotations.empty() || !trace.recurring_calls.empty() || !trace.graph_launches.empty() ||
                     !trace.gpu_samples.empty() || !trace.nvml_samples.empty());
}

// Which copy of a damaged recording may be whole.
std::string advice_for_damaged(const std::string& kind) {
  for (const Importer& importer : importers())
    if (importer.name == kind) return std::string(importer.if_damaged);
  return {};
}

Error no_gpu_activity(const Trace& trace) {
  const std::map<std::string, std::string>::const_iterator before = trace.metadata.find("recorded_kind");
  const bool watched = trace.source.kind == kSessionImporter ||
                       (before != trace.metadata.end() && before->second == kSessionImporter);  // the latter was saved
  if (watched && !trace.diagnostics.has(Severity::kDataLoss))
    return {"expected a session with GPU work, found no kernel, range or sample in it",
            trace.source.files.empty() ? "" : trace.source.files.front(),
            "`llmprof doctor` says what works on this machine", ExitCode::kFailed};
  const std::string found = format_count(static_cast<double>(trace.ops.size())) + " operators, " +
                            format_count(static_cast<double>(trace.api_calls.size())) +
                            " CUDA calls and no GPU activity";
  const std::string where = trace.source.files.empty() ? "" : trace.source.files.front();
  // What is missing may just be the part that held it.
  if (trace.diagnostics.has(Severity::kDataLoss))
    return {"expected a recording with GPU activity, found " + found + " in what could be read of it", where,
            advice_for_damaged(trace.source.kind), ExitCode::kFailed};
  if (trace.source.kind == kNsysImporter)
    return {"expected a recording with GPU activity, found " + found, where,
            "record with  nsys profile --trace=cuda,nvtx  on a machine with a GPU; if that was done, another profiler "
            "held CUPTI",
            ExitCode::kFailed};
  return {
      "expected a recording with GPU activity, found " + found, where,
      "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a machine with a GPU; if that was done, "
      "another profiler held CUPTI",
      ExitCode::kFailed};
}

// Options that do not fit stand at the top of a page; whoever reads a file or a pipe is told here.
void warn_of_options(const Report& report) {
  for (const DiagnosticRecord& row : report.diagnostics)
    if (is_about_options(row.key)) complain(fmt::format("{}: {}", name_of(row.severity), printable(row.text)));
}

// The run without kernel records that `llmprof run --baseline` left in the session folder: what profiling cost is
// measured against it. None is no error: the report then says that the distortion is not known.
std::optional<Trace> baseline_of(const Trace& trace, const DeriveOptions& options) {
  if (trace.source.kind != kSessionImporter || trace.source.files.empty()) return std::nullopt;
  const std::string folder = trace.source.files.front() + "/baseline";
  if (access((folder + "/session.json").c_str(), R_OK) != 0) return std::nullopt;
  Result<Trace> baseline = import_files({folder});
  if (!baseline || !derive(*baseline, options)) return std::nullopt;
  return std::move(*baseline);
}

// Only pages for a browser show one.
Status write_with_timeline(const Trace& trace, const Report& report, const OutputOptions& output, size_t top) {
  std::string timeline;
  if (output.effective_format() == "html") timeline = pack_timeline(trace, choose_timeline(trace));
  return write_result(report, output, top, timeline.empty() ? nullptr : &timeline);
}

// The page for a browser beside what was printed, if one is wanted.
Status write_html(const Trace& trace, const Report& report, const std::string& path) {
  if (path.empty()) return {};
  OutputOptions page;
  page.format = "html";
  page.path = path;
  return write_with_timeline(trace, report, page, SIZE_MAX);
}

}  // namespace

void add_redact_option(const Command& command, bool& redact) {
  command.flag("--redact", redact,
               "leave folders of paths, host names, addresses, UUIDs and arguments out of what is written");
}

void redact_trace(Trace& trace) {
  std::vector<std::string> hosts;
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0 && name[0] != '\0') {
    hosts.emplace_back(name);
    if (const size_t dot = hosts.front().find('.'); dot != std::string::npos) hosts.push_back(hosts[0].substr(0, dot));
  }
  redact(trace, hosts);
}

// The report's foot lists everything.
void warn_of_damage(const Trace& trace) {
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const DiagnosticId id = static_cast<DiagnosticId>(i);
    const DiagnosticInfo& info = diagnostic_table()[i];
    if (trace.diagnostics.count(id) == 0 || info.severity < Severity::kDataLoss) continue;
    const std::vector<std::string>& places = trace.diagnostics.places(id);
    const uint64_t count = trace.diagnostics.count(id);
    complain(fmt::format("{}: {} ({} time{}{}{})", name_of(info.severity), info.text,
                         format_count(static_cast<double>(count)), count == 1 ? "" : "s",
                         places.empty() ? "" : ", first at ", places.empty() ? "" : printable(places.front())));
  }
}

void add_stage_options(const Command& command, StageOptions& options) {
  command.option("--stage", options.rules, "ranges whose text matches REGEX are stage NAME (repeatable)")
      .type_name("NAME=REGEX");
  command.flag("--no-detect", options.no_detect, "stages from annotations only");
}

Result<DeriveOptions> derive_options_of(const StageOptions& options) {
  DeriveOptions out;
  out.detect_stages = !options.no_detect;
  for (const std::string& text : options.rules) {
    LLMPROF_ASSIGN(StageRule rule, parse_stage_rule(text));
    out.stage_rules.push_back(std::move(rule));
  }
  return out;
}

void add_ceilings_option(const Command& command, CeilingsOption& option) {
  command
      .option("--ceilings", option.choice,
              "what kernels are compared with: auto (measured by llmprof peaks, else the data sheet), datasheet, or "
              "a file of llmprof peaks")
      .type_name("auto|datasheet|FILE")
      .capture_default();
}

Status choose_ceilings(const CeilingsOption& option, AnalyzeOptions& options) {
  if (option.choice == "datasheet") return {};
  if (option.choice == "auto") {
    options.measured = kept_ceilings();
    return {};
  }
  LLMPROF_ASSIGN(MeasuredCeilings given, read_ceilings(option.choice));
  options.measured = {std::move(given)};
  options.measured_given = true;
  return {};
}

void add_ceilings_of(const CeilingsOption& option, const std::vector<std::string>& recordings,
                     AnalyzeOptions& options) {
  if (option.choice != "auto") return;
  for (const std::string& recording : recordings)
    for (MeasuredCeilings& one : ceilings_in(ceilings_folder_of(recording))) {
      const bool known =
          std::any_of(options.measured.begin(), options.measured.end(), [&](const MeasuredCeilings& kept) {
            return kept.device_key == one.device_key && (has_rates(kept) || !has_rates(one)) &&
                   (!kept.recorder_ns.empty() || one.recorder_ns.empty());
          });
      // The first of a device is taken: those with rates before those that only say what recording costs.
      if (!known)
        options.measured.insert(has_rates(one) ? options.measured.begin() : options.measured.end(), std::move(one));
    }
}

Status check_reportable(const Trace& trace) {
  if (!can_report(trace)) return tl::unexpected<Error>(no_gpu_activity(trace));
  return {};
}

int print_empty_report(Trace& trace, const std::string& why, const std::string& advice, const OutputOptions& output) {
  if (const Status status = derive(trace); !status) return report_error(status.error());
  Result<Report> report = analyze(trace);
  if (!report) return report_error(report.error());
  report->cannot_tell.insert(report->cannot_tell.begin(), {"Where did the time go?", why, advice});
  const Status written = write_result(*report, output);
  return written ? 0 : report_error(written.error());
}

int analyze_and_print(Trace& trace, const DeriveOptions& derive_options, const AnalyzeOptions& analyze_options,
                      const OutputOptions& output, StoredRun* stored) {
  if (!can_report(trace)) {
    if (!output.quiet) warn_of_damage(trace);
    return report_error(no_gpu_activity(trace));
  }
  if (Status status = derive(trace, derive_options); !status) return report_error(status.error());
  const std::optional<Trace> baseline = baseline_of(trace, derive_options);
  AnalyzeOptions with_baseline = analyze_options;
  if (baseline) with_baseline.baseline = &*baseline;
  if (output.redact) redact_trace(trace);  // its files have been read
  with_baseline.top = 0;                   // what is kept and the page have every row
  const Result<Report> whole = analyze(trace, with_baseline);
  if (!whole) return report_error(whole.error());
  if (stored != nullptr && stored->wanted()) stored->take(*whole);
  Report report = *whole;
  keep_top(report, analyze_options.top);
  if (!output.quiet) warn_of_damage(trace);
  if (!output.quiet && (!output.is_text() || !output.path.empty())) warn_of_options(report);
  const size_t rows = analyze_options.top == 0 ? SIZE_MAX : analyze_options.top;
  if (const Status written = write_with_timeline(trace, report, output, rows); !written)
    return report_error(written.error());
  if (const Status written = write_html(trace, *whole, output.page); !written)
    report_error(written.error());  // the report was printed
  return static_cast<int>(trace.diagnostics.has(Severity::kError) ? ExitCode::kInputErrors : ExitCode::kOk);
}

}  // namespace llmprof::cli
