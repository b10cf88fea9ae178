// What NCCL prints with NCCL_DEBUG=INFO, alone or among the output of a program: ranks and communicators, how they are
// connected, collectives and warnings (docs/formats/nccl-log.md). Memory holds one line and what was counted; no line
// or number of the file is believed unchecked.
#pragma once

#include <string_view>

#include "import/importer.h"

namespace llmprof::nccl_log {

int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

}  // namespace llmprof::nccl_log
