// Runs a program under the collectors, from the empty session folder to the program's end: starts the samplers, starts
// the program with the injection library in it, passes signals on, keeps the recording windows, shows progress.
//
// What always holds: the program's input, output, terminal, working folder, limits and signals are those that llmprof
// itself was given; a collector that fails is a notice, never a failed run; the session folder is complete when
// launch() returns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "capture/launch/program.h"
#include "capture/spool/records.h"

namespace llmprof::launch {

struct LaunchOptions {
  std::vector<std::string> command;
  Program program;     // command.front(), found
  std::string folder;  // made by create_session_folder()
  std::string name;    // --name
  spool::Level level = spool::Level::kDefault;
  bool armed = false;         // nothing is recorded until `llmprof ctl start`
  double delay_s = 0;         // nothing is recorded before
  double duration_s = 0;      // recording ends so long after it began; 0: with the program
  std::string capture_range;  // record only inside ranges with this text; empty: everywhere
  int64_t steps = 0;          // end after so many steps; 0: no limit
  bool unrecorded = true, adapt = true, torch = false;
  double budget_percent = 2;  // by which recording in windows may slow the run, in the mean
  bool counters = true;
  bool counters_judged = true;      // switched off where they cost more than the budget
  int64_t counter_interval_us = 0;  // 0: by samplers::default_interval_ns()
  int64_t bytes_most = 0;           // of the recording: it ends there; 0: no limit
  std::string baseline;   // relative path of the baseline's session folder, written to session.json; empty for none
  bool progress = false;  // a line on standard error, twice a second
  bool quiet = false;     // no notices on standard error
};

struct LaunchOutcome {
  std::optional<int> exit_status, signal;
  int exit_code = 0;            // of the program, as shells give it
  bool interrupted = false;     // SIGINT, SIGTERM ... came while it ran
  uint32_t watched = 0;         // processes that reported to the control page
  bool never_recorded = false;  // the window never opened: armed, or shorter than the delay
};

// Errors come before the program has started: the injection library or the PyTorch hook is missing, the folder cannot
// be written, exec failed (exit codes 126 and 127).
Result<LaunchOutcome> launch(const LaunchOptions& options);

// Where the parts that lie beside the llmprof binary must be. Errors say where they were looked for.
Result<std::string> injection_library();
Result<std::string> torch_hook_folder();

}  // namespace llmprof::launch
