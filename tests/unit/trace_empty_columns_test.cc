// A column of ids without an entry takes no memory, and one that is written then holds what was written.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trace/empty_columns.h"

namespace llmprof {
namespace {

// Pages of the column that are there, by the operating system; from here on small ones.
size_t resident_pages_of(const std::vector<OpId>& column) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(column.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(column.data() + column.size()) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_NOHUGEPAGE);
  std::vector<unsigned char> there((end - begin) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, there.data()), 0);
  return static_cast<size_t>(std::count_if(there.begin(), there.end(), [](unsigned char one) { return one & 1; }));
}

TEST(EmptyColumns, TakeMemoryWhereTheyAreWritten) {
  constexpr size_t kRows = size_t{1} << 20;
  std::vector<OpId> column;
  make_empty(column, kRows);
  ASSERT_EQ(column.size(), kRows);
  EXPECT_EQ(resident_pages_of(column), 0U);
  column[kRows / 2] = Row{0};
  column[kRows / 2 + 1] = Row{5};
  EXPECT_EQ(resident_pages_of(column), 1U);
  EXPECT_EQ(column[kRows / 2], 0U);
  EXPECT_EQ(column[kRows / 2 + 1], 5U);
  EXPECT_EQ(std::count(column.begin(), column.end(), OpId(kNoRow)), ptrdiff_t{kRows} - 2);
  make_empty(column, kRows);
  EXPECT_EQ(resident_pages_of(column), 0U);
  EXPECT_EQ(column[kRows / 2], kNoRow);
}

}  // namespace
}  // namespace llmprof
