// Importer for the tables of Nsight Compute (`ncu --csv`): its raw page, its details page and the long form of
// `--metrics`, with the output of the program before and between the lines. docs/formats/ncu.md describes the format
// and what is kept.
#pragma once

#include "import/importer.h"

namespace llmprof::ncu {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::ncu
