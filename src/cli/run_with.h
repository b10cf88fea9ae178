// `llmprof run --with ncu|nsys`: the program under another profiler, whose output is then reported on. The command
// lines are built in drive/; here is what they need from a recording, and what becomes of what they write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "derive/derive.h"

namespace llmprof::cli {

struct WithOptions {
  std::string tool;     // "ncu", "nsys"; empty: none
  std::string hot;      // a recording, as `llmprof analyze` names one; empty: one is made first
  std::string range;    // NVTX ranges of this text
  std::string metrics;  // instead of those that a report is made of
  int64_t kernels = 5;
  double budget_s = 0;  // 0: none
  bool print = false;
};

void add_with_options(const Command& command, WithOptions& options);
// Options that do not go together: those of the two tools, and those of llmprof's own recorder, which is not there.
Status check_with_options(const Command& command, const WithOptions& options);

// What llmprof recorded of the program, for the tool that comes after.
struct RecordedProgram {
  std::string folder;
  int exit_code = 0;
  bool interrupted = false;
};

struct WithRun {
  const WithOptions& with;
  std::vector<std::string> command;
  double delay_s = 0, duration_s = 0;  // of nsys
  std::string folder, name;            // -o, --name
  bool no_store = false, no_report = false;
  const DeriveOptions& derive;
  AnalyzeOptions analyze;
  const CeilingsOption& ceilings;
  std::optional<size_t> top;
  OutputOptions output;
  // Runs the program under llmprof's recorder; the argument is the folder, empty for the usual one.
  std::function<Result<RecordedProgram>(const std::string&)> record;
};
// The exit code: of the program, or of what went wrong.
int run_with_tool(const WithRun& run);

}  // namespace llmprof::cli
