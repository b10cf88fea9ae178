// The names that recorders on top of CUPTI give to copies: "Memcpy HtoD (Pageable -> Device)". For importers of formats
// that say no more; everybody else asks gpu_ops.path and gpu_ops.host_memory.
#pragma once

#include <string_view>

#include "trace/tables.h"

namespace llmprof {

// kUnknown for other names, and for copies within the host.
CopyPath copy_path_of_name(std::string_view name);
HostMemory host_memory_of_name(std::string_view name);

}  // namespace llmprof
