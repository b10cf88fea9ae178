// What one host thread was doing, moment by moment: nested ranges of one table (operators, API calls, Python calls,
// overhead), swept once from left to right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "trace/tables.h"

namespace llmprof {

// Rows of a table by thread, each in the table's order. Rows without a thread go to every thread.
class RowsByThread {
 public:
  // `keep(row)` chooses the rows.
  template <class Keep>
  RowsByThread(const std::vector<ThreadId>& threads, size_t thread_count, Keep&& keep) : begins_(thread_count + 1, 0) {
    for (Row i = 0; i < threads.size(); ++i) {
      if (!keep(i)) continue;
      if (threads[i] < thread_count) {
        ++begins_[threads[i] + 1];
      } else {
        everywhere_.push_back(i);
      }
    }
    for (size_t t = 1; t < begins_.size(); ++t) begins_[t] += begins_[t - 1];
    std::vector<uint32_t> next(begins_.begin(), begins_.end() - 1);
    rows_.resize(begins_.back());
    for (Row i = 0; i < threads.size(); ++i) {
      if (threads[i] < thread_count && keep(i)) rows_[next[threads[i]]++] = i;
    }
  }
  RowsByThread(const std::vector<ThreadId>& threads, size_t thread_count)
      : RowsByThread(threads, thread_count, [](Row) { return true; }) {}

  const Row* begin(ThreadId thread) const { return rows_.data() + begins_[thread]; }
  const Row* end(ThreadId thread) const { return rows_.data() + begins_[thread + 1]; }
  const std::vector<Row>& everywhere() const { return everywhere_; }

 private:
  std::vector<uint32_t> begins_;
  std::vector<Row> rows_;
  std::vector<Row> everywhere_;
};

// Moves through nested ranges in start order. Ranges that overlap without nesting are cut to the one they start in.
class RangeCursor {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  RangeCursor() = default;
  RangeCursor(const int64_t* starts, const int64_t* durations, const Row* first, const Row* last)
      : starts_(starts), durations_(durations), next_(first), last_(last) {}

  // To the state at `time`, which never decreases.
  void advance(int64_t time) {
    while (next_ != last_ && starts_[*next_] <= time) {
      const int64_t start = starts_[*next_];
      int64_t end = start + durations_[*next_];
      if (end > time) {
        while (!open_.empty() && open_.back().end_ns <= start) open_.pop_back();
        if (!open_.empty()) end = std::min(end, open_.back().end_ns);
        if (end > time) open_.push_back({end, *next_});
      }
      ++next_;
    }
    while (!open_.empty() && open_.back().end_ns <= time) open_.pop_back();
  }
  // Innermost range at the time of the last advance().
  Row innermost() const { return open_.empty() ? kNoRow : open_.back().row; }
  // Innermost range that fills more than half of [start, end); start: the time of the last advance().
  Row innermost_of_most(int64_t start, int64_t end) const {
    const int64_t half = (end - start) / 2;
    Row found = kNoRow;
    for (size_t i = open_.size(); i-- > 0 && found == kNoRow;)
      if (std::min(open_[i].end_ns, end) - start > half) found = open_[i].row;
    // Of ranges that begin later and are that long, each lies inside the one before.
    for (const Row* row = next_; row != last_ && starts_[*row] < end - half; ++row)
      if (std::min(starts_[*row] + durations_[*row], end) - starts_[*row] > half) found = *row;
    return found;
  }
  // When innermost() changes next.
  int64_t next_change() const {
    const int64_t closes = open_.empty() ? kNever : open_.back().end_ns;
    const int64_t opens = next_ == last_ ? kNever : starts_[*next_];
    return std::min(closes, opens);
  }

 private:
  struct Open {
    int64_t end_ns;
    Row row;
  };
  const int64_t* starts_ = nullptr;
  const int64_t* durations_ = nullptr;
  const Row* next_ = nullptr;
  const Row* last_ = nullptr;
  std::vector<Open> open_;
};

}  // namespace llmprof
