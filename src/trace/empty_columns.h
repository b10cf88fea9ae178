// Most recorders leave some columns of calls and kernels empty, and most recordings some of what is derived for them.
#pragma once

#include <vector>

#include "base/zero_pages.h"
#include "trace/trace.h"

namespace llmprof {

// Gives the memory back that holds nothing but zeros of a large column (base/zero_pages.h); ids of no row are zeros.
template <class T>
void give_back_empty(std::vector<T>& column) {
  constexpr size_t kBytesMin = size_t{1} << 20;
  if (column.size() * sizeof(T) >= kBytesMin) give_back_zero_pages(column.data(), column.size() * sizeof(T));
}

template <class T, T kZero>
void give_back_empty(HalvedColumn<T, kZero>& column) {
  column.for_each_half([](std::vector<uint32_t>& half) { give_back_empty(half); });
}

// Of all tables. finish_import() does so; an importer may before it, when its rows are complete.
void give_back_empty_columns(Trace& trace);

// Makes a column that has an id of no row everywhere: it takes memory where one is written.
template <class Table>
void make_empty(std::vector<RowId<Table>>& column, size_t rows) {
  column.assign(rows, kNoRow);
  give_back_empty(column);
}

}  // namespace llmprof
