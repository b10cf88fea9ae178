// A column of 64-bit numbers most of which fit into 32 bits, as durations, sizes and identifiers that count up do. The
// lower and the upper halves stand apart: those of the upper ones that are zeros are pages of zeros, which are given
// back once the column is complete (base/zero_pages.h). Any number can be held; none takes more than in a vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace llmprof {

// `kZero` is the number whose two halves are zeros, and the least of those whose upper half is: 0, or -1 where that
// stands for "absent". Rows may be written side by side.
template <class T, T kZero = T{}>
class HalvedColumn {
  static_assert(sizeof(T) == 2 * sizeof(uint32_t));

 public:
  using value_type = T;

  // A number that may be changed.
  class Reference {
   public:
    Reference(HalvedColumn& column, size_t row) : column_(column), row_(row) {}
    Reference(const Reference&) = default;
    operator T() const { return column_.get(row_); }  // NOLINT: stands wherever a T does
    Reference& operator=(T value) {
      column_.set(row_, value);
      return *this;
    }
    Reference& operator=(const Reference& other) { return *this = T{other}; }
    Reference& operator+=(T value) { return *this = T{*this} + value; }

   private:
    HalvedColumn& column_;
    size_t row_;
  };

  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    Iterator() = default;
    Iterator(const HalvedColumn& column, size_t row) : column_(&column), row_(static_cast<difference_type>(row)) {}
    T operator*() const { return column_->get(static_cast<size_t>(row_)); }
    T operator[](difference_type by) const { return *(*this + by); }
    Iterator& operator+=(difference_type by) {
      row_ += by;
      return *this;
    }
    Iterator& operator-=(difference_type by) { return *this += -by; }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this += -1; }
    Iterator operator++(int) { return std::exchange(*this, *this + 1); }
    Iterator operator--(int) { return std::exchange(*this, *this - 1); }
    friend Iterator operator+(Iterator at, difference_type by) { return at += by; }
    friend Iterator operator+(difference_type by, Iterator at) { return at += by; }
    friend Iterator operator-(Iterator at, difference_type by) { return at -= by; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.row_ - b.row_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.row_ == b.row_; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.row_ <=> b.row_; }

   private:
    const HalvedColumn* column_ = nullptr;
    difference_type row_ = 0;
  };

  size_t size() const { return low_.size(); }
  bool empty() const { return low_.empty(); }
  T operator[](size_t row) const { return get(row); }
  Reference operator[](size_t row) { return {*this, row}; }
  T front() const { return get(0); }
  T back() const { return get(size() - 1); }
  Reference back() { return {*this, size() - 1}; }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

  void push_back(T value) {
    low_.push_back(low_of(value));
    high_.push_back(high_of(value));
  }
  void append(const HalvedColumn& other) {
    low_.insert(low_.end(), other.low_.begin(), other.low_.end());
    high_.insert(high_.end(), other.high_.begin(), other.high_.end());
  }
  void assign(size_t rows, T value) {
    low_.assign(rows, low_of(value));
    high_.assign(rows, high_of(value));
  }
  void resize(size_t rows, T value = T{}) {
    low_.resize(rows, low_of(value));
    high_.resize(rows, high_of(value));
  }
  void reserve(size_t rows) {
    low_.reserve(rows);
    high_.reserve(rows);
  }
  bool operator==(const std::vector<T>& values) const {
    return size() == values.size() && std::equal(values.begin(), values.end(), begin());
  }
  bool operator==(const HalvedColumn& other) const { return low_ == other.low_ && high_ == other.high_; }

  // visitor(vector of 32-bit numbers): for what treats each row alike, whatever it holds.
  template <class V>
  void for_each_half(V&& visitor) {
    visitor(low_);
    visitor(high_);
  }

 private:
  // How far it lies above kZero, around the end of the range where it lies below.
  static uint64_t coded(T value) { return static_cast<uint64_t>(value) - static_cast<uint64_t>(kZero); }
  static uint32_t low_of(T value) { return static_cast<uint32_t>(coded(value)); }
  static uint32_t high_of(T value) { return static_cast<uint32_t>(coded(value) >> 32); }
  T get(size_t row) const {
    return static_cast<T>((uint64_t{high_[row]} << 32 | low_[row]) + static_cast<uint64_t>(kZero));
  }
  void set(size_t row, T value) {
    low_[row] = low_of(value);
    high_[row] = high_of(value);
  }

  std::vector<uint32_t> low_, high_;
};

}  // namespace llmprof
