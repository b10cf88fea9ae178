// The numbers of buffers: reproducible, in any order, and rounded as each type rounds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "device/elements.h"
#include "device/fill.h"

namespace llmprof::device {
namespace {

TEST(Fill, HashIsSplitmix) {
  // splitmix64 seeded with 1234567 gives these, in this order; fill_hash_mixed is its step.
  EXPECT_EQ(fill_hash_mixed(1234567, 0), 6457827717110365317U);
  EXPECT_EQ(fill_hash_mixed(1234567, 1), 3203168211198807973U);
  EXPECT_EQ(fill_hash(7, 3), fill_hash_mixed(fill_mix(7), 3));
}

TEST(Fill, AnyPieceIsTheSame) {
  Fill fill;
  fill.seed = 42;
  for (const DType dtype :
       {DType::kFp64, DType::kFp32, DType::kBf16, DType::kFp16, DType::kFp8, DType::kFp4, DType::kInt8}) {
    fill.dtype = dtype;
    const size_t bytes = fill_unit_bytes(dtype);
    std::vector<char> whole(1000 * bytes), piece(10 * bytes);
    fill_elements(fill, 0, 1000, whole.data());
    fill_elements(fill, 500, 10, piece.data());
    EXPECT_EQ(std::memcmp(whole.data() + 500 * bytes, piece.data(), piece.size()), 0) << dtype_name(dtype);
  }
}

TEST(Fill, UniformIsSpreadOverItsRange) {
  Fill fill;
  std::vector<float> values(100'000);
  fill_elements(fill, 0, values.size(), values.data());
  double sum = 0, squares = 0;
  for (const float value : values) {
    ASSERT_GE(value, -1.0F);
    ASSERT_LT(value, 1.0F);
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  // Four standard errors of the mean of 1e5 draws are 0.0073, of the mean square 0.0038.
  EXPECT_NEAR(sum / 1e5, 0, 0.0073);
  EXPECT_NEAR(squares / 1e5, 1.0 / 3, 0.0038);
}

// Each of the sixteen codes as often as the others, in both halves of a byte.
TEST(Fill, Fp4IsTheWholeRange) {
  Fill fill;
  fill.dtype = DType::kFp4;
  constexpr size_t kBytes = 80'000;
  std::vector<uint8_t> bytes(kBytes);
  fill_elements(fill, 0, kBytes, bytes.data());
  std::vector<double> values(2 * kBytes);
  elements_to_double(DType::kFp4, bytes.data(), values);
  std::map<double, int> low, high;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], element_at(DType::kFp4, bytes.data(), i));
    ++(i % 2 == 0 ? low : high)[values[i]];
  }
  // 5,000 of each code, 10,000 of zero, which has two; four standard deviations are 270 and 380.
  for (const std::map<double, int>& seen : {low, high}) {
    ASSERT_EQ(seen.size(), 15U);
    for (const auto& [value, count] : seen) EXPECT_NEAR(count, value == 0 ? 10'000 : 5'000, 400) << value;
    EXPECT_EQ(seen.begin()->first, -6);
  }
}

TEST(Fill, SeedsDiffer) {
  Fill fill;
  std::vector<float> one(100), other(100);
  fill_elements(fill, 0, 100, one.data());
  fill.seed = 2;
  fill_elements(fill, 0, 100, other.data());
  int same = 0;
  for (size_t i = 0; i < 100; ++i) same += one[i] == other[i] ? 1 : 0;
  EXPECT_EQ(same, 0);
}

TEST(Fill, IndicesStayBelow) {
  Fill fill;
  fill.kind = Fill::Kind::kIndex;
  fill.dtype = DType::kInt32;
  fill.below = 7;
  std::vector<int32_t> values(10'000);
  fill_elements(fill, 0, values.size(), values.data());
  std::vector<int> seen(7);
  for (const int32_t value : values) {
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 7);
    ++seen[static_cast<size_t>(value)];
  }
  for (const int count : seen) EXPECT_NEAR(count, 10'000 / 7, 150);
}

TEST(Fill, RefusesWhatHasNoNumbers) {
  Fill fill;
  fill.dtype = DType::kInt4;
  EXPECT_EQ(check_fill(fill).error().what, "there are no uniform random numbers of type int4");
  fill.kind = Fill::Kind::kIndex;
  EXPECT_FALSE(check_fill(fill));
  fill.dtype = DType::kInt32;
  EXPECT_FALSE(check_fill(fill)) << "below 0";
  fill.below = 1;
  EXPECT_TRUE(check_fill(fill));
}

TEST(Elements, RoundToNearestTiesToEven) {
  EXPECT_EQ(to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F), 0x3f80);             // half way, to even
  EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82);         // half way, to even
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);  // more than half
  EXPECT_EQ(to_fp16(1.0F), 0x3c00);
  EXPECT_EQ(to_fp16(65504.0F), 0x7bff);
  EXPECT_EQ(to_fp16(65520.0F), 0x7c00);  // half way to 2^16: infinity
  EXPECT_EQ(to_fp16(0x1p-24F), 0x0001);  // the smallest subnormal
  EXPECT_EQ(to_fp16(0x1p-25F), 0x0000);
  EXPECT_EQ(to_fp16(0x1.ffep-15F), 0x0400);  // rounds up into the normal numbers
  EXPECT_EQ(to_fp8(448.0F), 0x7e);
  EXPECT_EQ(to_fp8(1e9F), 0x7e);
  EXPECT_EQ(to_fp8(-1.0F), 0xb8);
  EXPECT_EQ(to_fp8(1.0625F), 0x38);  // half way between 1 and 1.125
  EXPECT_EQ(to_fp8(0x1p-9F), 0x01);
}

TEST(Elements, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(from_fp16(half))) {
      ASSERT_EQ(to_fp16(from_fp16(half)), half);
    }
    if (!std::isnan(from_bf16(half))) {
      ASSERT_EQ(to_bf16(from_bf16(half)), half);
    }
  }
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    if (!std::isnan(from_fp8(byte))) {
      ASSERT_EQ(to_fp8(from_fp8(byte)), byte);
    }
  }
  EXPECT_EQ(from_fp16(0x3555), 0.333251953125F);
  EXPECT_EQ(from_fp8(0x01), 0x1p-9F);
  EXPECT_TRUE(std::isnan(from_fp16(to_fp16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace llmprof::device
