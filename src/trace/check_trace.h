// What a Trace must satisfy before any pass or analysis indexes with its values, established on data that cannot be
// trusted. Walks the declarations of tables.h: the type of a column says which table it points into.
//
// After check_trace():
//   - every row id is below the size of its table or kNoRow; columns that are never empty (Always) are never kNoRow: a
//     stand-in thread or stream takes the lost ones,
//   - every StringId is below strings.size(); every enumerator is a declared one,
//   - the inputs of a signature keep the bounds of signature.h, or count as unreadable,
//   - parallel tables have the length of their table or are empty,
//   - durations are >= 0 and their sum per table, like every single time, stays below kTimeNsMax in magnitude, so sums
//     and differences of times cannot overflow int64.
// Each repair is counted in trace.diagnostics. A sound trace is left as it is.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// About 73 years: larger than any epoch-based time in ns, small enough that 3 of them add up within int64.
constexpr int64_t kTimeNsMax = int64_t{1} << 61;

void check_trace(Trace& trace);

}  // namespace llmprof
