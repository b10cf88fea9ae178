// Columns of rows that lie near their own: whatever is set is read, however far away and however many.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "replay/timeline.h"

namespace llmprof::replay {
namespace {

constexpr size_t kRows = 3000;

// Against a plain column, with `far_of` of 1000 ids anywhere and the others up to 200 rows away.
void expect_kept(uint32_t far_of) {
  std::mt19937 random(7 + far_of);
  NearRows<GpuOpId> near(kRows);
  std::vector<GpuOpId> plain(kRows, kNoRow);
  for (size_t i = 0; i < 4 * kRows; ++i) {
    const Row row = static_cast<Row>(random() % kRows);
    Row id = kNoRow;
    if (random() % 1000 < far_of)
      id = static_cast<Row>(random());
    else if (random() % 8 != 0)
      id = row + 200 - static_cast<Row>(std::min<size_t>(random() % 400, row + 200));
    near.set(row, id);
    plain[row] = id;
  }
  ASSERT_EQ(near.size(), kRows);
  for (size_t row = 0; row < kRows; ++row) ASSERT_EQ(near[row], plain[row]) << row << " with " << far_of;
}

TEST(NearRows, KeepWhatIsSet) {
  const NearRows<GpuOpId> none(3);
  EXPECT_EQ(none[2], kNoRow);
  EXPECT_TRUE(NearRows<GpuOpId>().empty());
  for (const uint32_t far_of : {0U, 5U, 500U, 1000U}) expect_kept(far_of);
}

TEST(NearRows, KeepEveryDistance) {
  NearRows<GpuOpId> near(600);
  for (Row id = 0; id < 600; ++id) {
    near.set(300, id);
    ASSERT_EQ(near[300], id);
  }
  near.set(300, kNoRow);
  EXPECT_EQ(near[300], kNoRow);
  near.set(300, 300);
  EXPECT_EQ(near[300], 300U);
}

TEST(NearRows, RangesAreOfTheirRows) {
  NearRows<GpuOpId> near(10);
  for (Row row = 0; row < 10; ++row) near.set(row, 9 - row);
  const NearRange<GpuOpId> range(near, 2, 5);
  std::vector<Row> found;
  for (const GpuOpId id : range) found.push_back(id);
  EXPECT_EQ(found, (std::vector<Row>{7, 6, 5}));
  EXPECT_EQ(range.size(), 3U);
  EXPECT_EQ(range.front(), 7U);
  EXPECT_EQ(range[2], 5U);
  EXPECT_TRUE(NearRange<GpuOpId>(near, 4, 4).empty());
}

std::vector<Row> listed(const ActivityLists& lists, Row row) {
  std::vector<Row> out;
  for (const GpuOpId op : lists.of(row)) out.push_back(op);
  EXPECT_EQ(lists.of(row).size(), out.size());
  EXPECT_EQ(lists.of(row).empty(), out.empty());
  return out;
}

TEST(ActivityLists, OfFewAndOfManyRowsAreAsGiven) {
  const std::vector<std::pair<Row, GpuOpId>> pairs = {{7, 3}, {2, 9}, {7, 1}, {9, 0}};
  for (const size_t rows : {size_t{10}, size_t{1000}}) {
    ActivityLists lists;
    EXPECT_TRUE(lists.of(4).empty());
    lists.take(pairs, rows);
    EXPECT_EQ(listed(lists, 7), (std::vector<Row>{3, 1})) << rows;
    EXPECT_EQ(listed(lists, 2), (std::vector<Row>{9})) << rows;
    EXPECT_EQ(listed(lists, 9), (std::vector<Row>{0})) << rows;
    for (const Row row : {0U, 3U, 8U}) EXPECT_TRUE(lists.of(row).empty()) << rows;
    EXPECT_TRUE(lists.of(static_cast<Row>(rows - 2)).empty());
    NearRows<GpuOpId> single(rows);
    single.set(3, 2);
    lists.take_single(std::move(single));
    EXPECT_EQ(listed(lists, 3), (std::vector<Row>{2})) << rows;
    EXPECT_EQ(listed(lists, 7), (std::vector<Row>{3, 1})) << rows;
    EXPECT_TRUE(lists.of(4).empty()) << rows;
  }
}

}  // namespace
}  // namespace llmprof::replay
