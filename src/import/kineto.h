// Importer for Kineto Chrome traces (torch.profiler). docs/formats/kineto.md describes the format and what is kept.
#pragma once

#include "import/importer.h"

namespace llmprof::kineto {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::kineto
