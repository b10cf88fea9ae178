// Appends parsed blocks to the trace, and at the end what the file says outside its events. Blocks must be merged in
// file order; then the result does not depend on which thread parsed what.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "import/kineto_block.h"
#include "trace/trace.h"

namespace llmprof::kineto {

class Merger {
 public:
  explicit Merger(Trace& trace) : trace_(trace), builder_(trace) {}
  void merge(const Block& block);
  // After the last block: top-level metadata, device properties, thread names.
  void finish();

 private:
  Trace& trace_;
  TraceBuilder builder_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Block::ThreadName> thread_names_;  // names are handles into the trace
};

// Reserves room in the tables for `factor` times the rows they hold, so that they need not grow step by step.
void reserve_tables(Trace& trace, double factor);

}  // namespace llmprof::kineto
