// Any bytes as what `ncu --csv` prints, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/ncu.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.csv", ncu::sniff, ncu::import, trace)) return;
  // A kernel has a name, a value at least one character; compressed bytes stand for more.
  if (more_than_text(bytes, trace.profiled_kernels.size(), 2)) broken("reading", "more kernels than names");
  if (more_than_text(bytes, trace.kernel_counters.size(), 2)) broken("reading", "more values than cells");
  for (const StringId name : trace.profiled_kernels.name)
    if (name == StringId::kEmpty) broken("reading", "a kernel without a name");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
