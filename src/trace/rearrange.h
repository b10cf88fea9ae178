// Rows of a table in another order, or some of them.
#pragma once

#include <vector>

#include "base/halved_column.h"
#include "trace/trace.h"

namespace llmprof {

// New row i is old row order[i].
template <class T>
void rearrange(std::vector<T>& column, const std::vector<Row>& order) {
  std::vector<T> sorted(order.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[i] = column[order[i]];
  column.swap(sorted);
}
template <class T, T kZero>
void rearrange(HalvedColumn<T, kZero>& column, const std::vector<Row>& order) {
  column.for_each_half([&](std::vector<uint32_t>& half) { rearrange(half, order); });
}

// Every column.
template <class Table>
void rearrange_rows(Table& table, const std::vector<Row>& order) {
  table.for_each_column([&](const FieldInfo&, auto& column) { rearrange(column, order); });
}

}  // namespace llmprof
