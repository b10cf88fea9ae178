// The graph launches and products as wide as the output layer that the host called, at every recording level: each run
// of a model has one or a few of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

class CallCounts {
 public:
  explicit CallCounts(const RecurringCalls& calls) : calls_(calls) {
    for (Row row = 0; row < calls_.size(); ++row) of_thread_[calls_.thread[row]].push_back(row);
    for (auto& [thread, rows] : of_thread_)
      std::stable_sort(rows.begin(), rows.end(), [&](Row a, Row b) { return calls_.time_ns[a] < calls_.time_ns[b]; });
  }
  // By key, within [start_ns, end_ns).
  std::map<uint64_t, size_t> within(ThreadId thread, int64_t start_ns, int64_t end_ns) const {
    std::map<uint64_t, size_t> out;
    const std::unordered_map<Row, std::vector<Row>>::const_iterator rows = of_thread_.find(thread);
    if (rows == of_thread_.end()) return out;
    const auto before = [&](Row row, int64_t time) { return calls_.time_ns[row] < time; };
    for (auto row = std::lower_bound(rows->second.begin(), rows->second.end(), start_ns, before);
         row != rows->second.end() && calls_.time_ns[*row] < end_ns; ++row)
      ++out[calls_.key[*row]];
    return out;
  }

 private:
  const RecurringCalls& calls_;
  std::unordered_map<Row, std::vector<Row>> of_thread_;  // by time
};

}  // namespace llmprof
