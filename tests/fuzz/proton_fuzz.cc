// Any bytes as a tree of Triton's Proton, JSON or MessagePack, through the whole program: read, import, derive,
// analyze, render.
#include <string>
#include <string_view>

#include "import/msgpack_stream.h"
#include "import/proton.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.hatchet", proton::sniff, proton::import, trace)) return;
  const ProtonNodes& nodes = trace.proton_nodes;
  if (nodes.empty()) broken("reading", "neither an error nor a node");
  const size_t least = msgpack::begins_array(bytes) ? 1 : 2;  // bytes of a node without anything
  if (more_than_text(bytes, nodes.size() + trace.proton_metrics.size(), least))
    broken("reading", "more rows than text");
  for (Row row = 0; row < nodes.size(); ++row)
    if (nodes.parent[row] != kNoRow && nodes.parent[row] >= row) broken("reading", "a node before the one around it");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
