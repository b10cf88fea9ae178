// `llmprof run` for other commands: a program under the collectors, then the report.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace llmprof::cli {

struct ProgramRun {
  std::vector<std::string> words;
  std::string folder;  // of the session, new or empty; the caller's
  OutputOptions output;
};
// The program's exit code. Errors come before it has started.
Result<int> record_and_report(const ProgramRun& what);

}  // namespace llmprof::cli
