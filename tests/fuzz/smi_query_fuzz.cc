// Any bytes as a log of `nvidia-smi --query-gpu`, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/smi_query.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.csv", smi_query::sniff, smi_query::import, trace)) return;
  if (more_than_text(bytes, trace.nvml_samples.size(), 2)) broken("reading", "more samples than lines");
  finish_and_report(trace, false);
}

}  // namespace llmprof::fuzz
