// From parts to one recording: rows in the order of the parts, then what only the whole can tell: how many processes
// there are, names of domains, ends of open ranges, which call recorded the event that another waits for, which samples
// belong together.
#pragma once

#include "import/nsys_tables.h"

namespace llmprof::nsys {

class Joiner {
 public:
  Joiner(Trace& trace, const Gpus& gpus) : trace_(trace), builder_(trace), gpus_(gpus) {}

  void add(const Part& part);
  void finish();
  // Ids of the processes that did something; known behind finish().
  const std::vector<int64_t>& processes() const { return processes_; }

 private:
  void sort_gpu_ops();
  void end_open_ranges();
  void name_domains();
  void find_calls();
  void link_events();
  void join_samples();
  void number_processes();
  uint64_t qualified_by(uint64_t with_process, uint64_t id) const;

  Trace& trace_;
  TraceBuilder builder_;
  const Gpus& gpus_;
  std::vector<Part::Domain> domains_;
  std::vector<Part::InDomain> in_domains_;
  std::vector<Row> open_ranges_;
  std::vector<Part::EventRecord> event_records_;
  std::vector<Part::EventWait> event_waits_;
  std::vector<uint64_t> memory_correlations_;
  std::map<std::pair<std::string, int64_t>, uint64_t> failures_;
  std::map<int64_t, uint64_t> other_ranges_;
  std::vector<int64_t> processes_;  // by number, once they are known
  int64_t last_ns_ = INT64_MIN;
};

}  // namespace llmprof::nsys
