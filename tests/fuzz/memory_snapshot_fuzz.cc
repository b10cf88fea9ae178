// Any bytes as a snapshot of PyTorch's memory, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/memory_snapshot.h"
#include "one_format.h"

namespace llmprof::fuzz {

static void check_rows(const Trace& trace) {
  const MemoryBlocks& blocks = trace.memory_blocks;
  for (size_t row = 0; row < blocks.size(); ++row)
    if (blocks.bytes[row] < 0 || blocks.requested_bytes[row] < -1) broken("reading", "a block of negative size");
  const MemoryEvents& events = trace.memory_events;
  for (size_t row = 0; row < events.size(); ++row)
    if (events.allocated_bytes[row] < -1 || events.reserved_bytes[row] < -1) broken("reading", "a negative level");
}

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.pickle", memory_snapshot::sniff, memory_snapshot::import, trace)) return;
  // An entry is a dict with its keys and values, each of a byte at least.
  const size_t rows = trace.memory_blocks.size() + trace.memory_events.size() + trace.memory_failures.size();
  if (more_than_text(bytes, rows, 4)) broken("reading", "more rows than bytes");
  check_rows(trace);
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
