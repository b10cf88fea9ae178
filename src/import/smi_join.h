// Logs of nvidia-smi beside a recording: their local times, in a zone that they do not name, placed on its epoch.
#pragma once

#include <string>

#include "trace/trace.h"

namespace llmprof {

// Appends the readings of `part`, one such log, whose GPUs are in `whole`. What was done, or why nothing could be, is a
// sentence in whole.metadata (kReadingsPlaced and the file's name, or kReadingsNotPlaced).
void join_readings(const std::string& name, Trace part, Trace& whole);

}  // namespace llmprof
