// Runs a profiler with a program under it, within a budget of time and of bytes written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/launch/child.h"

namespace llmprof::drive {

struct ToolRun {
  std::vector<std::string> words;        // the first is the tool's path
  std::vector<std::string> environment;  // NAME=value
  std::string file;             // that it writes; a process with this in its command line is the tool, not the program
  double budget_s = 0;          // 0: none
  int64_t file_bytes_most = 0;  // of `file`; 0: no limit
  // When a budget is spent: from SIGTERM to SIGKILL, and for the tool to write what it has once the program is gone.
  double mercy_s = 10, writing_s = 120;
};

struct ToolOutcome {
  launch::Ending ending;
  bool out_of_time = false, out_of_room = false;  // the program was stopped for it
  bool interrupted = false;                       // SIGINT, SIGTERM ... came while it ran
  std::string errors;  // the end of what the tool and the program wrote to standard error, which was passed on
};

// The tool and the program have this process's standard input and output, its terminal, working folder and signals.
// When a budget is spent, the program's processes get SIGTERM, then SIGKILL, and after its time to write so does the
// tool; nothing of it runs on. Errors come before the tool has started.
Result<ToolOutcome> run_tool(const ToolRun& run);

// What a program prints on standard output, at most 256 KiB, within some seconds; empty where it fails.
std::string output_of(const std::vector<std::string>& words, const std::vector<std::string>& environment);

}  // namespace llmprof::drive
