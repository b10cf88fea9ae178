// Joins the spools of a session into one Trace.
#pragma once

#include <string_view>
#include <vector>

#include "import/session_spool.h"

namespace llmprof::session_importer {

// Top-level facts of session.json as metadata: scalars as they are, lists of scalars joined by spaces, objects inside
// as "gpus.0.name". Sets trace.base_unix_ns from start_unix_ns.
void read_session_facts(std::string_view json, Trace& trace);

// Reads the files side by side and appends them to `trace`. Chooses trace.base_unix_ns if it is 0: the start of the
// earliest process. Each file comes with its name, bytes and head.
void read_spools(std::vector<SpoolTables> files, Trace& trace);

}  // namespace llmprof::session_importer
