// Which products of the logs of cuBLAS and cuBLASLt are in the recording beside them.
#pragma once

#include <vector>

#include "trace/trace.h"

namespace llmprof {

// By row of logged_products. A product of both logs is in two rows.
std::vector<bool> products_found(const Trace& trace);

}  // namespace llmprof
