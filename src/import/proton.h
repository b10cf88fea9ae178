// Trees of Triton's profiler Proton: .hatchet (JSON) and .hatchet_msgpack files, with scopes or Python frames, kernels
// and their metrics. docs/formats/proton.md.
#pragma once
#include "import/importer.h"

namespace llmprof::proton {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::proton
