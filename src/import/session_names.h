// Numbers of CUDA's libraries in the words of a Trace. Copies and synchronisations are named as torch.profiler names
// them, so that rules and reports need not know which recorder was at work.
#pragma once

#include <string>
#include <string_view>

#include "capture/spool/records.h"
#include "trace/tables.h"

namespace llmprof::session_importer {

DType dtype_of_cuda(int32_t cuda_data_type);
// The type in which an operand of type `operand` is multiplied: fp32 may be allowed to be cut to tf32.
DType operand_dtype(int32_t cuda_data_type, int32_t compute_type);

std::string memcpy_name(const spool::Memcpy& copy);  // "Memcpy HtoD (Pageable -> Device)"
std::string_view sync_name(uint8_t kind);            // "Stream Sync"

// The name as in the source if `name` is mangled, otherwise `name`.
std::string demangled(std::string_view name);

}  // namespace llmprof::session_importer
