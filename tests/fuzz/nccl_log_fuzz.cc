// Any bytes as the log of NCCL, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/nccl_log.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.log", nccl_log::sniff, nccl_log::import, trace)) return;
  // A line makes one fact at most, of at most four values.
  if (more_than_text(bytes, trace.scraped_values.size(), 4)) broken("reading", "more facts than lines");
  finish_and_report(trace, false);
}

}  // namespace llmprof::fuzz
