// Two lookup structures for the hot passes: an open-addressing map from 64-bit keys to rows, and an index of a column
// of identifiers that may repeat. Neither allocates per row. Key 0 and identifier 0 mean "absent" and are never stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/fields.h"

namespace llmprof {

// 64-bit key (not 0) -> u32. Linear probing in a power of two of slots, at most half full; amortised O(1).
class FlatMap {
 public:
  explicit FlatMap(size_t expected = 16) { slots_.resize(size_for(expected)); }

  // Value of `key`, inserted as `fresh` if it is new.
  uint32_t& find_or_insert(uint64_t key, uint32_t fresh) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == 0) {
      slot = {key, fresh};
      ++used_;
    }
    return slot.value;
  }
  // kNoRow if the key is not there.
  uint32_t find(uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == 0 ? kNoRow : slot.value;
  }
  size_t size() const { return used_; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = kNoRow;
  };
  static size_t size_for(size_t expected) {
    size_t size = 16;
    while (size < expected * 2 + 2) size *= 2;
    return size;
  }
  // First slot that holds `key` or is free. The finaliser of MurmurHash3 spreads consecutive identifiers.
  size_t place(uint64_t key) const {
    uint64_t h = key;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    h ^= h >> 33;
    size_t i = h & (slots_.size() - 1);
    while (slots_[i].key != 0 && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != 0) slots_[place(slot.key)] = slot;
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// Rows by identifier: first(id), then next(row), in row order. A plain array where the identifiers are dense (they
// count up in every known recorder), else a FlatMap.
class IdIndex {
 public:
  // Dense up to this many identifiers per row. Recorders count every call, also those they drop, so that about every
  // tenth correlation id occurs; neighbours in the table are neighbours in time, which a hash would scatter.
  static constexpr uint64_t kDenseSpan = 24;

  explicit IdIndex(const std::vector<uint64_t>& ids) {
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
