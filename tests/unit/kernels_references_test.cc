// What is measured on GPUs only is held against references on the host: a wrong result is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/cpu_device.h"
#include "device/elements.h"
#include "device/fill.h"
#include "kernels/op.h"
#include "kernels/reference/conv.h"
#include "kernels/reference/lstm.h"
#include "kernels/reference/moves.h"
#include "kernels/reference/sampling.h"

namespace llmprof::kernels {
namespace {

class WrongResults : public testing::Test {
 protected:
  std::unique_ptr<Buffer> buffer_of(const std::vector<float>& values) {
    std::unique_ptr<Buffer> buffer = std::move(*device_->allocate(values.size() * 4));
    std::memcpy(buffer->address(), values.data(), values.size() * 4);
    return buffer;
  }
  std::unique_ptr<Buffer> numbers(size_t count, uint64_t seed) {
    std::unique_ptr<Buffer> buffer = std::move(*device_->allocate(count * 4));
    Fill fill;
    fill.seed = seed;
    EXPECT_TRUE(device_->fill(*buffer, fill));
    return buffer;
  }
  std::unique_ptr<Device> device_ = std::move(*device::cpu::open_cpu(1));
};

// One tap of a filter is left out.
TEST_F(WrongResults, ConvolutionWithoutATap) {
  constexpr int64_t kSide = 6, kChannels = 3, kFilters = 4;
  const std::unique_ptr<Buffer> x = numbers(kSide * kSide * kChannels, 1), w = numbers(kFilters * 9 * kChannels, 2);
  const auto* const image = static_cast<const float*>(x->address());
  const auto* const filters = static_cast<const float*>(w->address());
  for (const int64_t left_out : {int64_t{-1}, int64_t{26}}) {
    std::vector<float> out;
    for (int64_t place = 0; place < 16; ++place) {
      for (int64_t filter = 0; filter < kFilters; ++filter) {
        float sum = 0;
        for (int64_t tap = 0; tap < 27; ++tap) {
          const int64_t row = place / 4 + tap / 9, column = place % 4 + tap / 3 % 3;
          if (tap != left_out) sum += image[(row * kSide + column) * kChannels + tap % 3] * filters[filter * 27 + tap];
        }
        out.push_back(sum);
      }
    }
    const std::unique_ptr<Buffer> result = buffer_of(out);
    const ConvOperands operands{*x, *w, *result, 1, kChannels, kSide, kSide, kFilters, 3, 1, 0, DType::kFp32};
    const Result<Check> check = check_conv(*device_, operands, *expect_conv(*device_, operands, 1));
    EXPECT_EQ(check->status, left_out < 0 ? CheckStatus::kPassed : CheckStatus::kFailed) << check->note;
  }
}

// Gates in another order than that of the reference; and a state that is not fed back.
TEST_F(WrongResults, LstmOfOtherGates) {
  constexpr int64_t kSteps = 5, kInput = 6, kHidden = 8;
  const std::unique_ptr<Buffer> x = numbers(kSteps * kInput, 3);
  const RowReader rows = rows_of(*device_, *x, DType::kFp32, kInput);
  std::vector<Row> inputs;
  for (int64_t step = 0; step < kSteps; ++step) inputs.push_back(*rows(step));
  const std::vector<LstmLayer> layers = lstm_layers(DType::kFp32, kInput, kHidden, 1, 4);
  const auto status_of = [&](const std::vector<LstmLayer>& used) {
    std::vector<float> out;
    for (const Row& row : lstm_outputs(used, inputs, DType::kFp32))
      for (const double value : row) out.push_back(static_cast<float>(value));
    const std::unique_ptr<Buffer> result = buffer_of(out);
    return check_lstm(*device_, {*x, *result, kSteps, 1, kInput, kHidden, DType::kFp32}, layers, 1)->status;
  };
  EXPECT_EQ(status_of(layers), CheckStatus::kPassed);
  std::vector<LstmLayer> wrong = layers;
  for (const size_t first : {size_t{0}, size_t{4}}) {
    std::swap(wrong[0].matrices[first], wrong[0].matrices[first + 1]);
    std::swap(wrong[0].biases[first], wrong[0].biases[first + 1]);
  }
  EXPECT_EQ(status_of(wrong), CheckStatus::kFailed);
  wrong = layers;
  for (size_t gate = 4; gate < 8; ++gate) std::fill(wrong[0].matrices[gate].begin(), wrong[0].matrices[gate].end(), 0);
  EXPECT_EQ(status_of(wrong), CheckStatus::kFailed);
}

TEST_F(WrongResults, AScaleOfAnotherRow) {
  constexpr int64_t kRows = 9, kColumns = 64;
  const std::unique_ptr<Buffer> x = numbers(kRows * kColumns, 1), out = numbers(kRows * kColumns, 2),
                                codes = numbers(kRows * kColumns / 4, 3), scales = numbers(kRows, 4);
  auto* const scale = static_cast<float*>(scales->address());
  for (int64_t row = 0; row < kRows; ++row) {
    const float* const from = static_cast<const float*>(x->address()) + row * kColumns;
    float largest = 0;
    for (int64_t i = 0; i < kColumns; ++i) largest = std::max(largest, std::abs(from[i]));
    scale[row] = largest / 448;
    for (int64_t i = 0; i < kColumns; ++i) {
      const uint8_t code = device::to_fp8(from[i] / scale[row]);
      static_cast<uint8_t*>(codes->address())[row * kColumns + i] = code;
      static_cast<float*>(out->address())[row * kColumns + i] = device::from_fp8(code) * scale[row];
    }
  }
  const QuantisedRows rows{*codes, *scales, kRows, kColumns};
  EXPECT_EQ(check_quantised(*device_, *x, DType::kFp32, rows, 1)->status, CheckStatus::kPassed);
  EXPECT_EQ(check_dequantised(*device_, *out, DType::kFp32, rows, 1)->status, CheckStatus::kPassed);
  scale[3] *= 1.01F;
  EXPECT_EQ(check_quantised(*device_, *x, DType::kFp32, rows, 1)->status, CheckStatus::kFailed);
  EXPECT_EQ(check_dequantised(*device_, *out, DType::kFp32, rows, 1)->status, CheckStatus::kFailed);
}

// The second most likely instead of the most likely.
TEST_F(WrongResults, AnotherToken) {
  constexpr int64_t kVocabulary = 100;
  const std::unique_ptr<Buffer> token = numbers(1, 1), probability = numbers(1, 1), logits = numbers(kVocabulary, 2),
                                draw = numbers(1, 3);
  const Drawn drawn{*token, *probability, *logits, *draw, 1, kVocabulary, DType::kFp32};
  auto* const chosen = static_cast<int32_t*>(token->address());
  const auto* const values = static_cast<const float*>(logits->address());
  const auto largest = static_cast<int32_t>(std::max_element(values, values + kVocabulary) - values);
  *chosen = largest;
  EXPECT_EQ(check_drawn(*device_, drawn, nullptr, 1)->status, CheckStatus::kPassed);
  *chosen = (*chosen + 1) % kVocabulary;
  EXPECT_EQ(check_drawn(*device_, drawn, nullptr, 1)->status, CheckStatus::kFailed);
  const SamplingRule one{1, 0.9, 0.8};
  *static_cast<float*>(probability->address()) = 1;
  EXPECT_EQ(check_drawn(*device_, drawn, &one, 1)->status, CheckStatus::kFailed);
  *chosen = largest;
  EXPECT_EQ(check_drawn(*device_, drawn, &one, 1)->status, CheckStatus::kPassed);
}

}  // namespace
}  // namespace llmprof::kernels
