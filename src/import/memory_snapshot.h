// Snapshots of PyTorch's CUDA memory: torch.cuda.memory._dump_snapshot(), or _snapshot() pickled. Blocks of the
// caching allocator, and the history of allocations and frees. Format: docs/formats/memory-snapshots.md.
#pragma once

#include "import/importer.h"

namespace llmprof::memory_snapshot {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::memory_snapshot
