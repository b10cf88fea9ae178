// Rows that most often lie a short way before or behind the row that they are kept for, as what ran before on a stream
// does: of a recording of millions of kernels, such columns would be a good part of what replay needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/flat_index.h"

namespace llmprof::replay {

// By row: an id, kNoRow at first. A byte tells one that is near; the others stand apart, and once these are many, all
// take their four bytes.
template <class Id>
class NearRows {
 public:
  explicit NearRows(size_t rows = 0) : near_(rows, kNone) {}

  size_t size() const { return wide_.empty() ? near_.size() : wide_.size(); }
  bool empty() const { return size() == 0; }
  Id operator[](size_t row) const {
    if (!wide_.empty()) return wide_[row];
    const int8_t by = near_[row];
    if (by == kNone) return kNoRow;
    if (by != kFar) return Id(static_cast<Row>(static_cast<int64_t>(row) - by));
    return Id(Row{far_.find(row + 1)});
  }
  void set(size_t row, Id id) {
    if (!wide_.empty()) {
      wide_[row] = id;
      return;
    }
    const int64_t by = static_cast<int64_t>(row) - static_cast<int64_t>(Row(id));
    if (id == kNoRow) {
      near_[row] = kNone;
    } else if (by > kFar && by == static_cast<int8_t>(by)) {
      near_[row] = static_cast<int8_t>(by);
    } else {
      near_[row] = kFar;
      far_.find_or_insert(row + 1, id) = id;
      if (far_.size() > kFarLeast && far_.size() > near_.size() / kFarPart) widen();
    }
  }

 private:
  static constexpr int8_t kNone = INT8_MIN, kFar = INT8_MIN + 1;
  // An id that stands apart takes up to 64 bytes, with the empty places of the map.
  static constexpr size_t kFarPart = 16, kFarLeast = 64;

  void widen() {
    std::vector<Id> all(near_.size());
    for (size_t row = 0; row < all.size(); ++row) all[row] = (*this)[row];
    wide_ = std::move(all);
    near_ = {};
    far_ = FlatMap();
  }

  std::vector<int8_t> near_;  // how far before its row
  FlatMap far_;               // by row + 1
  std::vector<Id> wide_;
};

// The ids of some rows in a row.
template <class Id>
class NearRange {
 public:
  NearRange(const NearRows<Id>& rows, size_t begin, size_t end) : rows_(&rows), begin_(begin), end_(end) {}

  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  Id operator[](size_t i) const { return (*rows_)[begin_ + i]; }
  Id front() const { return (*this)[0]; }
  Id back() const { return (*rows_)[end_ - 1]; }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Id;
    using difference_type = std::ptrdiff_t;
    using pointer = const Id*;
    using reference = Id;
    Iterator(const NearRows<Id>& rows, size_t at) : rows_(&rows), at_(at) {}
    Id operator*() const { return (*rows_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const NearRows<Id>* rows_;
    size_t at_;
  };
  Iterator begin() const { return {*rows_, begin_}; }
  Iterator end() const { return {*rows_, end_}; }

 private:
  const NearRows<Id>* rows_;
  size_t begin_, end_;
};

// By row: an id that few rows have; kNoRow for the others.
template <class Id>
class FewRows {
 public:
  Id operator[](size_t row) const { return Id(Row{ids_.find(row + 1)}); }
  void set(size_t row, Id id) { ids_.find_or_insert(row + 1, id) = id; }

 private:
  FlatMap ids_;
};

}  // namespace llmprof::replay
