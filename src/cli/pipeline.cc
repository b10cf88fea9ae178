#include "cli/pipeline.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "base/text_table.h"
#include "report/render.h"

namespace llmprof::cli {
namespace {

// Columns of the terminal, 110 where there is none.
size_t terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return RenderOptions().width;
}

Error no_gpu_activity(const Trace& trace) {
  const std::string found = format_count(static_cast<double>(trace.ops.size())) + " operators, " +
                            format_count(static_cast<double>(trace.api_calls.size())) +
                            " CUDA calls and no GPU activity";
  return {
      "expected a recording with GPU activity, found " + found,
      trace.source.files.empty() ? "" : trace.source.files.front(),
      "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a machine with a GPU; if that was done, "
      "another profiler held CUPTI",
      ExitCode::kFailed};
}

// What was wrong with the input, on stderr; the report's foot lists everything.
void warn(const Trace& trace) {
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const DiagnosticId id = static_cast<DiagnosticId>(i);
    const DiagnosticInfo& info = diagnostic_table()[i];
    if (trace.diagnostics.count(id) == 0 || info.severity < Severity::kDataLoss) continue;
    const std::vector<std::string>& places = trace.diagnostics.places(id);
    const uint64_t count = trace.diagnostics.count(id);
    const std::string text =
        fmt::format("llmprof: {}: {} ({} time{}{}{})\n", name_of(info.severity), info.text,
                    format_count(static_cast<double>(count)), count == 1 ? "" : "s",
                    places.empty() ? "" : ", first at ", places.empty() ? "" : printable(places.front()));
    std::fputs(text.c_str(), stderr);
  }
}

}  // namespace

int analyze_and_print(Trace& trace, const DeriveOptions& derive_options, const AnalyzeOptions& analyze_options,
                      const OutputOptions& output) {
  if (trace.gpu_ops.empty()) {
    if (!output.quiet) warn(trace);
    return report_error(no_gpu_activity(trace));
  }
  if (Status status = derive(trace, derive_options); !status) return report_error(status.error());
  const Result<Report> report = analyze(trace, analyze_options);
  if (!report) return report_error(report.error());
  if (!output.quiet) warn(trace);
  const Renderer* renderer = find_renderer(output.effective_format());
  if (renderer == nullptr)
    return report_error({"no such format: " + output.effective_format(), "", "", ExitCode::kUsage});
  RenderOptions options;
  options.color = output.color();
  options.width = terminal_width();
  options.top = analyze_options.top == 0 ? SIZE_MAX : analyze_options.top;
  const std::vector<RenderedFile> files = renderer->render(*report, options);
  const Status written =
      renderer->folder ? write_files(output.path, files) : write_output(files.front().content, output.path);
  if (!written) return report_error(written.error());
  return static_cast<int>(trace.diagnostics.has(Severity::kError) ? ExitCode::kInputErrors : ExitCode::kOk);
}

}  // namespace llmprof::cli
