// What NCCL's Inspector, a plugin of NCCL, writes: an object a line for each collective and each send or receive, with
// its size, time and bandwidth. docs/formats/nccl-inspector.md.
#pragma once

#include "import/importer.h"

namespace llmprof::nccl_inspector {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::nccl_inspector
