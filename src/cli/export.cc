// `llmprof export RECORDING --to FORMAT -o PATH`: import, derive, and hand the trace over.
#include "export/export.h"

#include "base/nearest.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/other_file.h"
#include "cli/pipeline.h"
#include "cli/stored_run.h"

namespace llmprof::cli {
namespace {

struct ExportArguments {
  std::vector<std::string> paths;
  std::string format, path;
  StageOptions stages;
  bool quiet = false, redact = false;
};

int run_export(ExportArguments& options) {
  const ExportFormat& format = *find_export_format(options.format);  // --to takes no other name
  if (const Status status = resolve_runs(options.paths); !status) return report_error(status.error());
  if (const Status status = refuse_overwriting("-o", options.path, options.paths); !status)
    return report_error(status.error());
  const Result<DeriveOptions> derive_options = derive_options_of(options.stages);
  if (!derive_options) return report_error(derive_options.error());
  // A large recording takes a while: what cannot be written is said before.
  if (const Status status = check_export_path(format, options.path); !status) return report_error(status.error());
  Result<Trace> trace = import_files(options.paths);
  if (!trace) return report_error(name_other_file(options.paths.front(), trace.error()));
  if (const Status status = derive(*trace, *derive_options); !status) return report_error(status.error());
  if (options.redact) redact_trace(*trace);
  if (!options.quiet) warn_of_damage(*trace);
  if (const Status status = format.write(*trace, options.path); !status) return report_error(status.error());
  return static_cast<int>(trace->diagnostics.has(Severity::kError) ? ExitCode::kInputErrors : ExitCode::kOk);
}

}  // namespace

void add_export(Parser& parser) {
  const std::shared_ptr<ExportArguments> options = std::make_shared<ExportArguments>();
  const Command command =
      parser.add_command("export", "hand a recording over to other tools: Perfetto, SQLite, CSV, JSON");
  command.option("RECORDING", options->paths, "what llmprof analyze takes").required().type_name("PATH");
  std::vector<std::string> formats;
  for (const ExportFormat& format : export_formats()) formats.emplace_back(format.name);
  command.option("--to", options->format, join_or(formats)).required().check(one_of(formats)).type_name("FORMAT");
  command.option("-o,--output", options->path, "write to this file; csv: to this folder, which must be new or empty")
      .required()
      .type_name("PATH");
  add_stage_options(command, options->stages);
  add_redact_option(command, options->redact);
  command.flag("-q,--quiet", options->quiet, "no warnings on standard error");
  command.footer("Example:  llmprof export trace.json.gz --to perfetto -o trace.pftrace");
  command.action([options] { return run_export(*options); });
}

}  // namespace llmprof::cli
