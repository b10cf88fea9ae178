// Any bytes as the log of NCCL, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/nccl_log.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.log", nccl_log::sniff, nccl_log::import, trace)) return;
  const size_t facts = trace.logged_ranks.size() + trace.logged_links.size() + trace.logged_collectives.size() +
                       trace.logged_choices.size() + trace.logged_warnings.size();
  if (facts == 0) broken("reading", "neither an error nor a fact");
  if (more_than_text(bytes, facts, 16)) broken("reading", "more facts than lines");  // of one each
  finish_and_report(trace, false);
}

}  // namespace llmprof::fuzz
