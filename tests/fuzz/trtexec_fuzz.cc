// Any bytes as what trtexec exports, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/trtexec.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.json", trtexec::sniff, trtexec::import, trace)) return;
  const size_t rows = trace.inspected_layers.size() + trace.layer_times.size() + trace.engine_queries.size();
  if (rows == 0) broken("reading", "neither an error nor a row");
  if (more_than_text(bytes, rows, 2)) broken("reading", "more rows than text");
  for (const int64_t total : trace.layer_times.total_ns)
    if (total < 0) broken("reading", "a layer without a time");
  for (const int64_t compute : trace.engine_queries.compute_ns)
    if (compute < 0) broken("reading", "a query without a time");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
