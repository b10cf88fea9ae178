// What `llmprof doctor` finds out: one line per thing that a recording needs, whether it works here, and what to do if
// not. Everything that touches a driver or a foreign library is tried in a child process (isolated.h), so the doctor
// always ends with an answer.
#pragma once

#include <string>
#include <vector>

namespace llmprof::samplers {

enum class CheckState { kWorks, kLimited, kMissing };
const char* check_state_name(CheckState state);  // "works", "limited", "missing"

struct Check {
  std::string name;  // "driver", "gpu 0", "cupti", "counters of gpu 0", ...
  CheckState state = CheckState::kMissing;
  std::string found;   // what is so
  std::string advice;  // what to do, empty where nothing is to be done
};

struct DoctorReport {
  std::vector<Check> checks;
  int gpus = 0;
};

struct DoctorOptions {
  std::string program;         // whose Python environment is searched for CUPTI; empty: the one of this shell
  std::string injection_path;  // libllmprof_inject.so as the launcher would load it
  int probe_timeout_s = 30;    // per GPU, for the attempt to sample counters
};

DoctorReport examine(const DoctorOptions& options);

}  // namespace llmprof::samplers
