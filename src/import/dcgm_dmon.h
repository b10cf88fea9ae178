// Output of `dcgmi dmon`, of NVIDIA's DCGM: a line per entity and interval, in columns that its header lines name
// (docs/formats/dcgm-dmon.md). Memory holds one line beside the tables; no line, count or number of the file is
// believed unchecked.
#pragma once

#include <string_view>

#include "import/importer.h"

namespace llmprof::dcgm_dmon {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::dcgm_dmon
