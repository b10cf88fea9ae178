// Look-up for hot passes: open addressing in a power of two of slots, linear probing, at most half full, no deletion,
// one allocation per doubling, amortised O(1).
//   FlatIndex<Key>  numbers distinct keys 0, 1, 2, ... in order of first sight: group-by
//   FlatMap         64-bit key -> u32
//   RowIndex        finds the row of a table that holds given content; the caller hashes and compares
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fields.h"

namespace llmprof {

// Finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Two words into one, for hashes that are built up column by column.
inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD1B54A32D192ED03ULL);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Key needs operator== and a member `uint64_t hash() const` that mixes well.
template <class Key>
class FlatIndex {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFU;

  uint32_t add(const Key& key) {
    if ((keys_.size() + 1) * 2 > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t i = key.hash() & mask;; i = (i + 1) & mask) {
      if (slots_[i] == kNone) {
        slots_[i] = static_cast<uint32_t>(keys_.size());
        keys_.push_back(key);
        return slots_[i];
      }
      if (keys_[slots_[i]] == key) return slots_[i];
    }
  }
  const Key& key(uint32_t index) const { return keys_[index]; }
  const std::vector<Key>& keys() const { return keys_; }
  size_t size() const { return keys_.size(); }

 private:
  void grow() {
    const size_t size = slots_.empty() ? 64 : slots_.size() * 2;
    slots_.assign(size, kNone);
    for (uint32_t k = 0; k < keys_.size(); ++k) {
      size_t i = keys_[k].hash() & (size - 1);
      while (slots_[i] != kNone) i = (i + 1) & (size - 1);
      slots_[i] = k;
    }
  }
  std::vector<Key> keys_;
  std::vector<uint32_t> slots_;  // size is a power of two, at most half full
};

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
  // First slot that holds `key` or is free.
  size_t place(uint64_t key) const {
    size_t i = mix_bits(key) & (slots_.size() - 1);
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

// The rows themselves lie in a table of the caller.
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
  // The row of equal content, appended if there is none.
  template <class Table>
  Row find_or_append(Table& table, const typename Table::Values& row) {
    const auto content = row.content();
    uint64_t hash = 0;
    for (size_t i = 0; i < content.size(); i += 2)
      hash = mix_hash(hash ^ content[i], i + 1 < content.size() ? content[i + 1] : 0);
    return find_or_add(
        hash, [&](Row other) { return table.row(other).content() == content; },
        [&] {
          table.append(row);
          return static_cast<Row>(table.size() - 1);
        });
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
