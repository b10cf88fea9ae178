// Appends the tables of one parsed block to the trace, renumbering strings, threads, streams, launch configurations and
// signatures. Blocks must be merged in file order; then the result does not depend on which thread parsed what.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "import/kineto_block.h"
#include "trace/trace.h"

namespace llmprof::kineto {

class Merger {
 public:
  explicit Merger(Trace& trace) : trace_(trace) {}
  void merge(const Block& block);
  // After the last block: top-level metadata, device properties, thread names.
  void finish();

 private:
  struct Maps {  // handle in the block -> handle in the trace
    std::vector<StringId> strings;
    std::vector<Row> threads, streams, configs, signatures;
    Row gpu_op_base = 0;
  };
  void map_shared_tables(const Block& block);
  template <class Table>
  void append(Table& to, const Table& from);

  Trace& trace_;
  Maps maps_;
  RowIndex thread_index_, stream_index_, config_index_, signature_index_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Block::ThreadName> thread_names_;  // names are handles into the trace
};

// Reserves room in the tables for `factor` times the rows they hold, so that they need not grow step by step.
void reserve_tables(Trace& trace, double factor);

}  // namespace llmprof::kineto
