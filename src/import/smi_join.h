// Logs of nvidia-smi beside a recording: their local times, in a zone that they do not name, placed on its epoch.
#pragma once

#include <string>

#include "trace/trace.h"

namespace llmprof {

// Appends the readings of `part`, one such log, whose GPUs are in `whole`. What was done is a diagnostic, and with why
// the rest was not the row of files_joined, but for its file and format, which are the caller's.
JoinedFiles::Values join_readings(const std::string& name, Trace part, Trace& whole);

}  // namespace llmprof
