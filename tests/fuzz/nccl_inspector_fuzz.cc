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
  if (trace.scraped_values.empty()) broken("reading", "neither an error nor a row");
  if (more_than_text(bytes, trace.scraped_values.size(), 4)) broken("reading", "more rows than text");
  for (const double value : trace.scraped_values.value)
    if (!std::isfinite(value) || value < 0) broken("reading", "a figure that is none");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
