// Output of `nvidia-smi --query-gpu=... --format=csv`: a line per GPU and reading, in columns that its first line names
// (docs/formats/smi-query.md). Memory holds one line beside the tables; no line, count or number of the file is
// believed unchecked.
#pragma once

#include <string_view>

#include "import/importer.h"

namespace llmprof::smi_query {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::smi_query
