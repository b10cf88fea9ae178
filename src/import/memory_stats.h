// What torch.cuda.memory_stats() returns, written as JSON; memory_stats_as_nested_dict() as well. Format:
// docs/formats/memory-snapshots.md.
#pragma once

#include "import/importer.h"

namespace llmprof::memory_stats {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::memory_stats
