// Finds the row of a table that holds given content: open addressing over 64-bit hashes, the caller compares the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fields.h"

namespace llmprof {

inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD1B54A32D192ED03ULL);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

class RowIndex {
 public:
  // The row for which equal(row) holds among those with this hash; otherwise make() appends one and returns its row.
  template <class Equal, class Make>
  Row find_or_add(uint64_t hash, Equal&& equal, Make&& make) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    for (; slots_[at].row != kNoRow; at = (at + 1) & mask)
      if (slots_[at].hash == hash && equal(slots_[at].row)) return slots_[at].row;
    const Row row = make();
    slots_[at] = {hash, row};
    ++used_;
    return row;
  }
  void clear() {
    for (Slot& slot : slots_) slot.row = kNoRow;
    used_ = 0;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    Row row = kNoRow;
  };
  void grow() {
    std::vector<Slot> bigger(slots_.empty() ? 64 : slots_.size() * 2);
    const size_t mask = bigger.size() - 1;
    for (const Slot& slot : slots_) {
      if (slot.row == kNoRow) continue;
      size_t at = slot.hash & mask;
      while (bigger[at].row != kNoRow) at = (at + 1) & mask;
      bigger[at] = slot;
    }
    slots_.swap(bigger);
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace llmprof
