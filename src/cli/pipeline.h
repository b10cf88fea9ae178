// The one path from an imported Trace to printed output, shared by analyze and demo.
#pragma once

#include "analyze/analysis.h"
#include "cli/command.h"
#include "cli/stored_run.h"
#include "derive/derive.h"
#include "import/importer.h"

namespace llmprof::cli {

// --stage NAME=REGEX and --no-detect: what derive() is asked for.
struct StageOptions {
  std::vector<std::string> rules;
  bool no_detect = false;
};
void add_stage_options(const Command& command, StageOptions& options);
Result<DeriveOptions> derive_options_of(const StageOptions& options);

// --ceilings auto|datasheet|FILE.
struct CeilingsOption {
  std::string choice = "auto";
};
void add_ceilings_option(const Command& command, CeilingsOption& option);
// auto: all that are kept here, of which analyze() takes those of the recorded device. The error names a FILE that
// cannot be read.
Status choose_ceilings(const CeilingsOption& option, AnalyzeOptions& options);
// auto: with them what recordings hold of devices of which less is kept here.
void add_ceilings_of(const CeilingsOption& option, const std::vector<std::string>& recordings, AnalyzeOptions& options);

// --redact.
void add_redact_option(const Command& command, bool& redact);
// Takes out of a trace what --redact promises, this machine's name included.
void redact_trace(Trace& trace);

// What was wrong with the input, on standard error: data loss and errors.
void warn_of_damage(const Trace& trace);

// The report of a recording in which there is nothing to report on, for programs that read it: every key is there, and
// `cannot_tell` begins with why. Text has its own words for that (on standard error).
int print_empty_report(Trace& trace, const std::string& why, const std::string& advice, const OutputOptions& output);

// Why there is nothing to report on: no GPU work, and not a run that was watched without kernels.
Status check_reportable(const Trace& trace);

// Derives, analyses and prints. Exit code 3 when the input had error-level diagnostics, even though a report was
// printed. `stored` takes the whole report, whatever of it is printed.
int analyze_and_print(Trace& trace, const DeriveOptions& derive_options, const AnalyzeOptions& analyze_options,
                      const OutputOptions& output, StoredRun* stored = nullptr);

}  // namespace llmprof::cli
