// Any bytes as the output of `dcgmi dmon`, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/dcgm_dmon.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.txt", dcgm_dmon::sniff, dcgm_dmon::import, trace)) return;
  if (trace.nvml_samples.size() > bytes.size() / 2) broken("reading", "more samples than lines");
  finish_and_report(trace, false);
}

}  // namespace llmprof::fuzz
