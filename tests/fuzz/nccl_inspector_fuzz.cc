// Any bytes as what NCCL's Inspector writes, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <string>
#include <string_view>

#include "import/nccl_inspector.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.json", nccl_inspector::sniff, nccl_inspector::import, trace)) return;
  const InspectedOperations& rows = trace.inspected_operations;
  const size_t all = rows.size() + trace.inspected_losses.size();
  if (all == 0) broken("reading", "neither an error nor a row");
  if (more_than_text(bytes, all, 16)) broken("reading", "more rows than text");
  const auto wrong = [](double value) { return !std::isfinite(value) || value < 0; };
  for (Row row = 0; row < rows.size(); ++row)
    if (wrong(rows.bytes[row]) || wrong(rows.time_us[row]) || rows.algorithm_gbs[row] < 0 || rows.bus_gbs[row] < 0)
      broken("reading", "a figure that is none");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
