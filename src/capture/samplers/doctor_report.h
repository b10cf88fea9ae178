// What `llmprof doctor` finds out. Everything that touches a driver or a foreign library is tried in a child process
// (isolated.h), so the doctor always ends with an answer.
#pragma once

#include <string>

#include "results/doctor.h"

namespace llmprof::samplers {

struct DoctorOptions {
  std::string program;         // whose Python environment is searched for CUPTI; empty: the one of this shell
  std::string injection_path;  // libllmprof_inject.so as the launcher would load it
  int probe_timeout_s = 30;    // per GPU, for the attempt to sample counters
};

DoctorResult examine(const DoctorOptions& options);

}  // namespace llmprof::samplers
