// Output of `nvidia-smi dmon`: a line per GPU and interval, in columns that its header lines name
// (docs/formats/dmon.md). Memory holds one line beside the tables; no line, count or number of the file is believed
// unchecked.
#pragma once

#include <string_view>

#include "import/importer.h"

namespace llmprof::dmon {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::dmon
