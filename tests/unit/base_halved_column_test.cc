#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/halved_column.h"

namespace llmprof {
namespace {

template <class T>
std::vector<T> edges() {
  std::vector<T> out = {T{0},
                        T{1},
                        static_cast<T>(-1),
                        static_cast<T>(-2),
                        static_cast<T>((uint64_t{1} << 31) - 1),
                        static_cast<T>(uint64_t{1} << 31),
                        static_cast<T>((uint64_t{1} << 32) - 1),
                        static_cast<T>(uint64_t{1} << 32),
                        std::numeric_limits<T>::min(),
                        std::numeric_limits<T>::max()};
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) out.push_back(static_cast<T>(random() >> (i % 64)));
  return out;
}

// Does to a column what is done to a vector.
template <class Column>
void holds_what_a_vector_holds() {
  using T = typename Column::value_type;
  const std::vector<T> values = edges<T>();
  Column column;
  for (const T value : values) column.push_back(value);
  EXPECT_TRUE(column == values);
  EXPECT_TRUE(std::equal(values.rbegin(), values.rend(), std::make_reverse_iterator(column.end())));
  EXPECT_EQ(std::as_const(column).back(), values.back());

  std::vector<T> changed = values;
  for (size_t i = 0; i < changed.size(); i += 3) {
    changed[i] = static_cast<T>(static_cast<uint64_t>(changed[i]) / 3);
    column[i] = static_cast<T>(static_cast<uint64_t>(T{column[i]}) / 3);
  }
  changed[1] = changed[2];
  column[1] = column[2];  // the value, not which row it is in
  EXPECT_TRUE(column == changed);
  EXPECT_FALSE(column == values);

  changed.resize(changed.size() + 2);
  column.resize(column.size() + 2);
  EXPECT_TRUE(column == changed) << "new rows are 0";
  Column twice = column;
  twice.append(column);
  changed.insert(changed.end(), changed.begin(), changed.begin() + static_cast<std::ptrdiff_t>(changed.size()));
  EXPECT_TRUE(twice == changed);
}

TEST(HalvedColumn, HoldsWhatAVectorHolds) {
  holds_what_a_vector_holds<HalvedColumn<int64_t>>();
  holds_what_a_vector_holds<HalvedColumn<int64_t, -1>>();
  holds_what_a_vector_holds<HalvedColumn<uint64_t>>();
}

TEST(HalvedColumn, IsSearchedLikeAVector) {
  std::vector<int64_t> values = edges<int64_t>();
  std::sort(values.begin(), values.end());
  HalvedColumn<int64_t> column;
  for (const int64_t value : values) column.push_back(value);
  for (const int64_t wanted : values)
    EXPECT_EQ(std::lower_bound(column.begin(), column.end(), wanted) - column.begin(),
              std::lower_bound(values.begin(), values.end(), wanted) - values.begin());
}

// What memory is saved with.
TEST(HalvedColumn, HoldsZerosWhereANumberIsSmallOrTheUsualOne) {
  HalvedColumn<int64_t, -1> bytes;
  for (const int64_t value : {-1, 0, 4096}) bytes.push_back(value);
  std::vector<std::vector<uint32_t>> halves;
  bytes.for_each_half([&](const std::vector<uint32_t>& half) { halves.push_back(half); });
  ASSERT_EQ(halves.size(), 2U);
  EXPECT_EQ(halves[0][0], 0U);
  EXPECT_EQ(halves[1], (std::vector<uint32_t>{0, 0, 0}));
  HalvedColumn<int64_t> durations;
  for (const int64_t value : {int64_t{0}, (int64_t{1} << 32) - 1, int64_t{1} << 32}) durations.push_back(value);
  halves.clear();
  durations.for_each_half([&](const std::vector<uint32_t>& half) { halves.push_back(half); });
  EXPECT_EQ(halves[1], (std::vector<uint32_t>{0, 0, 1}));
}

}  // namespace
}  // namespace llmprof
