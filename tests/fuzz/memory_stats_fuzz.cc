// Any bytes as the statistics of PyTorch's allocator, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <string>
#include <string_view>

#include "import/memory_stats.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.json", memory_stats::sniff, memory_stats::import, trace)) return;
  if (more_than_text(bytes, trace.allocator_figures.size(), 4)) broken("reading", "more rows than text");
  for (const double value : trace.allocator_figures.value)
    if (!std::isfinite(value)) broken("reading", "a figure that is none");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
