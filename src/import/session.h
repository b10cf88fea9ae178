// What `llmprof run` recorded: a session folder (contents: capture/session/control.h) or one spool file of it
// (docs/formats/spool.md). Times become relative to the start of the session.
//
// Identifiers that are unique within a process only are qualified: process number i (in order of start; 0 is the first)
// stands in the upper 16 bits of correlations, and is mixed into graph nodes, graphs and keys of recurring calls.
// Correlations, 32 bits wide in CUPTI, are carried on past their wrap in bits 32 to 47. CUDA ordinals of the processes
// are made one numbering by the GPUs' uuids.
#pragma once

#include <string>
#include <string_view>

#include "base/input_file.h"
#include "base/result.h"
#include "trace/trace.h"

namespace llmprof::session_importer {

int sniff(std::string_view head);
// One spool file as a session of its own.
Status import(InputFile& input, Trace& trace);

// True for a folder with session.json or spool/ in it, or of which that cannot be told: import_session() says why.
bool is_session(const std::string& path);
// Every spool of the folder. An error means that there was none to read; what may not be read beside others is counted
// (unreadable-file).
Status import_session(const std::string& folder, Trace& trace);

}  // namespace llmprof::session_importer
