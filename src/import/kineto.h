// Importer for Kineto Chrome traces (torch.profiler). docs/formats/kineto.md describes the format and what is kept.
#pragma once

#include "import/importer.h"

namespace llmprof::kineto {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

// The same with blocks of another size and another number of threads. The result must not depend on either.
constexpr size_t kBlockBytes = 4 * 1024 * 1024;
Status import_in_blocks(InputFile& input, Trace& trace, size_t block_bytes, unsigned workers);

}  // namespace llmprof::kineto
