// What TensorRT's trtexec exports as JSON: times of queries (--exportTimes), times of layers (--exportProfile) and what
// the engine inspector says of layers (--exportLayerInfo). docs/formats/trtexec.md.
#pragma once

#include "import/importer.h"

namespace llmprof::trtexec {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::trtexec
