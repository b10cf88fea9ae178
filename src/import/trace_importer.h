// Importer for llmprof's own trace files (src/trace/trace_file.h). Takes the imported tables only: the derived ones are
// made again by derive(), so a file from an older llmprof gets the passes of this one.
#pragma once

#include "import/importer.h"

namespace llmprof::trace_importer {

int sniff(std::string_view head);
// Fails on a damaged directory, and when `trace` already holds another recording: rows cannot be joined yet.
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::trace_importer
