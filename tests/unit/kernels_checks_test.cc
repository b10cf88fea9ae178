// Checks of outputs too large to be compared as a whole: what is sampled reaches everywhere that a kernel can go wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "device/device.h"
#include "device/elements.h"
#include "device/fill.h"
#include "kernels/reference/compare.h"
#include "kernels/reference/gemm.h"
#include "kernels/reference/memory.h"

namespace llmprof::kernels {
namespace {

TEST(Elements, PoisonIsFoundWhereverItIs) {
  for (const DType dtype : {DType::kInt8, DType::kBf16, DType::kFp32, DType::kFp64}) {
    const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
    constexpr size_t kCount = 3000;
    std::vector<unsigned char> data(kCount * bytes, 0x11);
    EXPECT_EQ(device::next_poison(dtype, data.data(), 0, kCount), kCount);
    for (const size_t at : {size_t{0}, size_t{1023}, size_t{1024}, size_t{2047}, kCount - 1}) {
      std::memset(data.data() + at * bytes, 0xff, bytes);
      EXPECT_EQ(device::next_poison(dtype, data.data(), 0, kCount), at);
      EXPECT_EQ(device::next_poison(dtype, data.data(), at + 1, kCount), kCount);
      std::memset(data.data() + at * bytes, 0x11, bytes);
    }
    // All bytes but one.
    std::memset(data.data() + 5 * bytes, 0xff, bytes);
    data[5 * bytes] = 0xfe;
    EXPECT_EQ(device::next_poison(dtype, data.data(), 0, kCount), kCount);
  }
}

TEST(Elements, RowsAreTheSameAsElements) {
  std::vector<unsigned char> data(0x20000);
  for (size_t i = 0; i < data.size() / 2; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(data.data() + 2 * i, &bits, 2);
  }
  for (const DType dtype : {DType::kFp16, DType::kBf16, DType::kFp8, DType::kInt8, DType::kFp32, DType::kFp64}) {
    std::vector<double> values(data.size() / static_cast<size_t>(dtype_bytes(dtype)));
    device::elements_to_double(dtype, data.data(), values);
    for (size_t i = 0; i < values.size(); ++i) {
      const double one = device::element_at(dtype, data.data(), i);
      ASSERT_TRUE(values[i] == one || (std::isnan(values[i]) && std::isnan(one))) << dtype_name(dtype) << " " << i;
    }
  }
}

TEST(Elements, RoundingOfEveryFormatMeetsItsNeighbours) {
  // Between two neighbours the nearer one is taken, at the middle the even one: over all of fp16 and fp8, subnormals
  // included.
  const auto check = [](uint32_t last, auto from, auto to) {
    for (uint32_t bits = 0; bits < last; ++bits) {
      const float low = from(bits), high = from(bits + 1), middle = low + (high - low) / 2;
      ASSERT_EQ(to(low), bits);
      ASSERT_EQ(to(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
      ASSERT_EQ(to(std::nextafter(middle, low)), bits) << bits;
      ASSERT_EQ(to(std::nextafter(middle, high)), bits + 1) << bits;
      ASSERT_EQ(to(-high), (bits + 1) | (last == 0x7bff ? 0x8000U : 0x80U)) << bits;
    }
  };
  check(
      0x7bff, [](uint32_t bits) { return device::from_fp16(static_cast<uint16_t>(bits)); },
      [](float value) -> uint32_t { return device::to_fp16(value); });
  check(
      0x7e, [](uint32_t bits) { return device::from_fp8(static_cast<uint8_t>(bits)); },
      [](float value) -> uint32_t { return device::to_fp8(value); });
  EXPECT_EQ(device::to_fp16(65520), 0x7c00) << "the first that rounds to infinity";
  EXPECT_EQ(device::to_fp16(65519), 0x7bff);
  EXPECT_EQ(device::to_fp8(1e9F), 0x7e);
}

TEST(Windows, CoverSmallArraysAndReachTheEndsOfLargeOnes) {
  ASSERT_EQ(compared_windows(kWindowed).size(), 1U);
  EXPECT_EQ(compared_windows(kWindowed)[0].count, kWindowed);
  for (const int64_t size : {kWindowed + 1, 3 * kWindowed + 7, int64_t{1} << 31}) {
    const std::vector<Window> windows = compared_windows(size);
    EXPECT_EQ(windows.front().first, 0);
    EXPECT_EQ(windows.back().first + windows.back().count, size);
    int64_t total = 0;
    for (size_t i = 0; i < windows.size(); ++i) {
      total += windows[i].count;
      if (i == 0) continue;
      EXPECT_GE(windows[i].first, windows[i - 1].first + windows[i - 1].count) << i;
      EXPECT_LT(windows[i].first - windows[i - 1].first, 3 * (size / 63)) << "no large gap";
    }
    EXPECT_EQ(total, kWindowed);
  }
}

class LargeChecks : public testing::Test {
 protected:
  void SetUp() override { device_ = *device::open_device({"cpu", 1}); }
  std::unique_ptr<Buffer> filled(size_t bytes, uint64_t seed) {
    std::unique_ptr<Buffer> buffer = *device_->allocate(bytes);
    Fill fill;
    fill.seed = seed;
    EXPECT_TRUE(device_->fill(*buffer, fill));
    return buffer;
  }
  std::unique_ptr<Device> device_;
};

TEST_F(LargeChecks, ATailThatWasLeftOutOfACopyIsSeen) {
  constexpr int64_t kCount = 3 * kWindowed;
  const std::unique_ptr<Buffer> a = filled(kCount * 4, 1), out = filled(kCount * 4, 1);
  Result<Check> check = check_copy(*device_, *a, *out, kCount);
  EXPECT_EQ(check->status, CheckStatus::kPassed) << check->note;
  EXPECT_EQ(check->compared, kWindowed);
  auto* values = static_cast<float*>(out->address());
  std::memset(values + kCount - 1, 0xff, 4);
  EXPECT_NE(check_copy(*device_, *a, *out, kCount)->note.find("never written"), std::string::npos);
  values[kCount - 1] = static_cast<float*>(a->address())[kCount - 1];
  // A block in the middle: larger than what lies between two windows.
  std::memset(values + kCount / 2, 0, (kCount / 32) * 4);
  EXPECT_EQ(check_copy(*device_, *a, *out, kCount)->status, CheckStatus::kFailed);
}

TEST_F(LargeChecks, TheSumIsThatOfTheBuffer) {
  constexpr int64_t kCount = 300'001;
  const std::unique_ptr<Buffer> a = filled(kCount * 4, 7);
  uint32_t sum = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>(a->address()) + i * 4, 4);
    sum += word;
  }
  Fill fill;
  fill.seed = 7;
  EXPECT_EQ(sum_of_words(fill, kCount), sum);
  EXPECT_NE(sum_of_words(fill, kCount - 1), sum);
}

// More than 8 MB of outputs, of which whole rows are looked at.
TEST_F(LargeChecks, ATileThatWasLeftOutOfAProductIsSeen) {
  constexpr int64_t kM = 2048, kN = 2048, kK = 8;
  const std::unique_ptr<Buffer> a = filled(kM * kK * 4, 1), w = filled(kN * kK * 4, 2), out = filled(kM * kN * 4, 3);
  const auto* left = static_cast<const float*>(a->address());
  const auto* right = static_cast<const float*>(w->address());
  auto* values = static_cast<float*>(out->address());
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t j = 0; j < kN; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < kK; ++k) sum += left[i * kK + k] * right[j * kK + k];
      values[i * kN + j] = sum;
    }
  const ops::Product product{{0, kM}, kN, kK};
  const GemmOperands operands{*a, *w, *out, product};
  const Result<GemmExpected> expected = expect_gemm(*device_, operands, 5);
  ASSERT_TRUE(expected.has_value());
  Result<Check> check = check_gemm(*device_, operands, *expected);
  EXPECT_EQ(check->status, CheckStatus::kPassed) << check->note;
  EXPECT_EQ(check->compared, 64 * 64);
  const float kept = values[kM * kN - 1];
  std::memset(values + kM * kN - 1, 0xff, 4);
  EXPECT_EQ(check_gemm(*device_, operands, *expected)->status, CheckStatus::kFailed) << "the last element";
  values[kM * kN - 1] = kept;
  for (int64_t i = 960; i < 1024; ++i) std::memset(values + i * kN + 1088, 0xff, 64 * 4);
  check = check_gemm(*device_, operands, *expected);
  EXPECT_EQ(check->status, CheckStatus::kFailed) << "a tile of 64 x 64";
  EXPECT_NE(check->note.find("never written"), std::string::npos);
}

}  // namespace
}  // namespace llmprof::kernels
