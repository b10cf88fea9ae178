// Most recorders leave some columns of calls and kernels empty.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Gives the memory back that holds nothing but zeros of large tables (base/zero_pages.h). finish_import() does so; an
// importer may before it, when its rows are complete.
void give_back_empty_columns(Trace& trace);

}  // namespace llmprof
