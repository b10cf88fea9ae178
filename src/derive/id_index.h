// An index of a column of identifiers that may repeat, such as correlation ids. Does not allocate per row. Identifier 0
// means "absent" and is never stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/flat_index.h"

namespace llmprof {

// Rows by identifier: first(id), then next(row), in row order. A plain array where the identifiers are dense (they
// count up in every known recorder), else a FlatMap.
class IdIndex {
 public:
  // Dense up to this many identifiers per row. Recorders count every call, also those they drop, so that about every
  // tenth correlation id occurs; neighbours in the table are neighbours in time, which a hash would scatter.
  static constexpr uint64_t kDenseSpan = 24;

  template <class Column>
  explicit IdIndex(const Column& ids) {
    uint64_t low = std::numeric_limits<uint64_t>::max();
    uint64_t high = 0;
    size_t present = 0;
    for (const uint64_t id : ids) {
      if (id == 0) continue;
      low = std::min(low, id);
      high = std::max(high, id);
      ++present;
    }
    if (present == 0) return;
    low_ = low;
    dense_ = high - low < kDenseSpan * static_cast<uint64_t>(present);
    if (dense_) {
      heads_.assign(high - low + 1, kNoRow);
    } else {
      sparse_ = FlatMap(present);
    }
    // Backwards, so that the chain of one identifier runs forwards.
    for (size_t i = ids.size(); i-- > 0;) {
      if (ids[i] == 0) continue;
      uint32_t& head = dense_ ? heads_[ids[i] - low] : sparse_.find_or_insert(ids[i], kNoRow);
      if (head != kNoRow) {
        if (next_.empty()) next_.assign(ids.size(), kNoRow);
        next_[i] = head;
      }
      head = static_cast<Row>(i);
    }
  }

  Row first(uint64_t id) const {
    if (id == 0) return kNoRow;
    if (!dense_) return sparse_.find(id);
    return id >= low_ && id - low_ < heads_.size() ? heads_[id - low_] : kNoRow;
  }
  Row next(Row row) const { return next_.empty() ? kNoRow : next_[row]; }
  bool repeats() const { return !next_.empty(); }

 private:
  bool dense_ = false;
  uint64_t low_ = 0;
  std::vector<Row> heads_;
  std::vector<Row> next_;
  FlatMap sparse_;
};

}  // namespace llmprof
