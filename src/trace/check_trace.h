// What a Trace must satisfy before any pass or analysis indexes with its values, established on data that cannot be
// trusted. Walks the declarations of tables.h: a column of type Row says in its sentence which table it points into
// ("row in ops"), a table that is parallel to another says so too ("parallel to ops").
//
// After check_trace():
//   - every Row is below the size of its table or kNoRow; rows of threads and streams are never kNoRow unless the
//     column's sentence allows it: a stand-in thread or stream takes the lost ones,
//   - every StringId is below strings.size(); every enumerator is a declared one,
//   - parallel tables have the length of their table or are empty,
//   - durations are >= 0 and their sum per table, like every single time, stays below kTimeNsMax in magnitude, so sums
//     and differences of times cannot overflow int64.
// Each repair is counted in trace.diagnostics. A sound trace is left as it is.
#pragma once

#include <string_view>

#include "trace/trace.h"

namespace llmprof {

// About 73 years: larger than any epoch-based time in ns, small enough that 3 of them add up within int64.
constexpr int64_t kTimeNsMax = int64_t{1} << 61;

void check_trace(Trace& trace);

// The table that a Row column or a parallel table names in its sentence; empty if it names none.
std::string_view table_named_by(std::string_view doc);

}  // namespace llmprof
