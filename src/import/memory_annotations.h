// Ranges of the program in a snapshot of PyTorch's memory: its list has a START and an END of each, by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/string_pool.h"

namespace llmprof::memory_snapshot {

struct AnnotationMark {
  StringId name = StringId::kEmpty;
  int32_t device = -1;
  int64_t time_us = -1;
};

class AnnotationPairs {
 public:
  struct Range {
    AnnotationMark start{};
    int64_t end_us = -1;  // -1: it was open when the snapshot was made
  };
  static constexpr size_t kRangesMax = 200'000;

  // False: there are too many.
  bool start(const AnnotationMark& mark) {
    if (ranges_.size() == kRangesMax) return false;
    open_[index(mark.name)].push_back(ranges_.size());
    ranges_.push_back({mark, -1});
    return true;
  }
  // Ends the innermost of its name, one of the same GPU before others: the program may have chosen another GPU since.
  // False: none is open, it began before the history.
  bool end(const AnnotationMark& mark) {
    constexpr size_t kSearched = 16;
    const auto found = open_.find(index(mark.name));
    if (found == open_.end() || found->second.empty()) return false;
    std::vector<size_t>& open = found->second;
    size_t at = open.size() - 1;
    for (size_t back = 0; back < std::min(kSearched, open.size()); ++back)
      if (ranges_[open[open.size() - 1 - back]].start.device == mark.device) {
        at = open.size() - 1 - back;
        break;
      }
    Range& range = ranges_[open[at]];
    range.end_us = std::max(mark.time_us, range.start.time_us);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_{};
  std::unordered_map<uint32_t, std::vector<size_t>> open_{};  // by name
};

}  // namespace llmprof::memory_snapshot
