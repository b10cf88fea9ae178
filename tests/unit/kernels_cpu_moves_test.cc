// Rotary positions, gather and append on the CPU, of every width that this one has: right, and a wrong one
// is seen.
#include <cmath>
#include <cstring>
#include <limits>

#include "device/fill.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/reference/moves.h"
#include "kernels_cpu_support.h"
#include "ops/rows.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

std::vector<cpu::RowKernels> row_kernels_of_every_width(DType dtype) {
  std::vector<cpu::RowKernels> all = cpu::row_kernels(device::cpu::cpu_instructions(), dtype);
  all.push_back(cpu::row_kernels({}, dtype)[0]);  // of a CPU that has none of them
  return all;
}

class CpuMoves : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = std::move(*device::cpu::open_cpu(0));
};
INSTANTIATE_TEST_SUITE_P(Types, CpuMoves, testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& of) { return std::string(dtype_name(of.param)); });

TEST_P(CpuMoves, Rope) {
  for (const int64_t head : {2, 42, 64, 128})
    expect_all_right(*device_, cpu::prepare_rope,
                     ops::params_of({{"tokens", 67}, {"heads", 5}, {"kv_heads", 2}, {"head_dim", head}}, GetParam()));
}
TEST_P(CpuMoves, Embedding) {
  for (const int64_t hidden : {7, 100, 1024}) {
    const size_t ways =
        expect_all_right(*device_, cpu::prepare_embedding,
                         ops::params_of({{"tokens", 33}, {"vocab", 257}, {"hidden", hidden}}, GetParam()));
    // Whole lines are copied by own kernels too.
    if (hidden == 7) {
      EXPECT_EQ(ways, 1U);
    }
  }
}
TEST_P(CpuMoves, KvAppend) {
  for (const int64_t head : {3, 64})
    expect_all_right(*device_, cpu::prepare_kv_append,
                     ops::params_of({{"tokens", 41}, {"kv_heads", 3}, {"head_dim", head}}, GetParam()));
}
TEST(CpuMovesRefused, AnOddHead) {
  const OpParams params = ops::params_of({{"tokens", 4}, {"heads", 1}, {"kv_heads", 1}, {"head_dim", 5}}, DType::kFp32);
  EXPECT_NE(cpu::rope_unsupported(params).value_or("").find("found 5"), std::string::npos);
}

TEST(CpuMoveKernels, RopeByPositions) {
  const std::vector<float> table = rope_table(10, 4);
  for (const cpu::RowKernels& kernels : row_kernels_of_every_width(DType::kFp32)) {
    // A head of 4, and an element behind it that stays.
    std::vector<float> x = {1, 2, 3, 4, 9, 1, 2, 3, 4, 9};
    const int32_t positions[] = {7, 0};
    kernels.rope({x.data(), table.data(), positions, 5, 1, 4}, 0, 2);
    EXPECT_NEAR(x[0], std::cos(7.0) - 3 * std::sin(7.0), 1e-6);
    EXPECT_NEAR(x[2], 3 * std::cos(7.0) + std::sin(7.0), 1e-6);
    EXPECT_NEAR(x[1], 2 * std::cos(0.07) - 4 * std::sin(0.07), 1e-6);
    EXPECT_EQ(x[4], 9);
    EXPECT_EQ(x[5], 1);  // angle 0
  }
}

class WrongMoves : public testing::Test {
 protected:
  std::unique_ptr<Buffer> filled(size_t count, DType dtype, uint64_t seed) {
    std::unique_ptr<Buffer> buffer = std::move(*device_->allocate(count * static_cast<size_t>(dtype_bytes(dtype))));
    EXPECT_TRUE(device_->fill(*buffer, {Fill::Kind::kUniform, dtype, seed, 0}));
    return buffer;
  }
  std::unique_ptr<Device> device_ = std::move(*device::cpu::open_cpu(1));
};

// Neighbours rotated instead of halves.
TEST_F(WrongMoves, RotatedAsPairs) {
  constexpr int64_t kTokens = 8, kHead = 16;
  const std::unique_ptr<Buffer> x = filled(kTokens * kHead, DType::kFp32, 1),
                                table = filled(kTokens * kHead, DType::kFp32, 2);
  const std::vector<float> angles = rope_table(kTokens, kHead);
  std::memcpy(table->address(), angles.data(), angles.size() * 4);
  const Fill before{Fill::Kind::kUniform, DType::kFp32, 1, 0};
  auto* const values = static_cast<float*>(x->address());
  const auto status = [&] { return check_rope(*device_, *x, before, *table, kTokens, 1, kHead, 1)->status; };
  row_kernels_of_every_width(DType::kFp32)[0].rope({values, angles.data(), nullptr, kHead, 1, kHead}, 0, kTokens);
  EXPECT_EQ(status(), CheckStatus::kPassed);
  EXPECT_TRUE(device_->fill(*x, before));
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t i = 0; i < kHead / 2; ++i) {
      const size_t at = static_cast<size_t>(token * kHead + 2 * i), angle = static_cast<size_t>(token * kHead + i);
      const float a = values[at], b = values[at + 1];
      values[at] = a * angles[angle] - b * angles[angle + kHead / 2];
      values[at + 1] = b * angles[angle] + a * angles[angle + kHead / 2];
    }
  EXPECT_EQ(status(), CheckStatus::kFailed);
}

// One row too far in the table, and one token in its neighbour's slot.
TEST_F(WrongMoves, AnotherRowAndAnotherSlot) {
  constexpr int64_t kRows = 12, kColumns = 8;
  const std::unique_ptr<Buffer> table = filled(20 * kColumns, DType::kFp32, 1), index = filled(kRows, DType::kFp32, 1);
  const std::unique_ptr<Buffer> out = filled(kSlotsPerToken * kRows * kColumns, DType::kFp32, 2);
  auto* const chosen = static_cast<int32_t*>(index->address());
  auto* const to = static_cast<float*>(out->address());
  const auto* const from = static_cast<const float*>(table->address());
  for (int64_t row = 0; row < kRows; ++row) {
    chosen[row] = static_cast<int32_t>(row * 7 % 20);
    std::memcpy(to + row * kColumns, from + chosen[row] * kColumns, kColumns * 4);
  }
  const auto gathered = [&] {
    return check_gathered(*device_, *out, *table, *index, DType::kFp32, kColumns, kRows, 1)->status;
  };
  EXPECT_EQ(gathered(), CheckStatus::kPassed);
  chosen[5] += 1;
  EXPECT_EQ(gathered(), CheckStatus::kFailed);

  std::vector<int32_t> slots = append_slots(kRows, 0);
  for (int64_t row = 0; row < kRows; ++row)
    std::memcpy(to + slots[static_cast<size_t>(row)] * kColumns, from + row * kColumns, kColumns * 4);
  const auto appended = [&] { return check_appended(*device_, *out, *table, slots, DType::kFp32, kColumns)->status; };
  EXPECT_EQ(appended(), CheckStatus::kPassed);
  std::swap(slots[2], slots[3]);
  EXPECT_EQ(appended(), CheckStatus::kFailed);
}

TEST(AppendSlots, EachAtMostOnce) {
  for (const int64_t tokens : {1, 2, 5, 64, 1000}) {
    std::vector<int32_t> slots = append_slots(tokens, 1);
    std::sort(slots.begin(), slots.end());
    EXPECT_EQ(std::adjacent_find(slots.begin(), slots.end()), slots.end());
    EXPECT_GE(slots.front(), 0);
    EXPECT_LT(slots.back(), kSlotsPerToken * tokens);
  }
}

}  // namespace
}  // namespace llmprof::kernels
