// Convolutions and LSTM layers by oneDNN: right on odd shapes, refused in words, and a wrong result is seen.
#include <cmath>
#include <cstring>

#include "device/cpu/math_libraries.h"
#include "kernels/cpu/ops.h"
#include "kernels/reference/conv.h"
#include "kernels/reference/lstm.h"
#include "kernels_cpu_support.h"
#include "ops/layers.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

OpParams conv(int64_t height, int64_t in, int64_t out, int64_t kernel, int64_t stride, DType dtype,
              std::string variant) {
  return ops::params_of({{"batch", 2},
                         {"height", height},
                         {"width", 11},
                         {"in", in},
                         {"out", out},
                         {"kernel", kernel},
                         {"stride", stride}},
                        dtype, std::move(variant));
}
OpParams lstm(int64_t batch, int64_t steps, int64_t input, int64_t hidden, int64_t layers, DType dtype) {
  return ops::params_of({{"batch", batch}, {"tokens", steps}, {"input", input}, {"hidden", hidden}, {"layers", layers}},
                        dtype);
}

class CpuLibraries : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const auto why = cpu::library_unsupported(lstm(1, 1, 1, 1, 1, GetParam()))) GTEST_SKIP() << *why;
    device_ = std::move(*device::cpu::open_cpu(0));
  }
  std::unique_ptr<Device> device_;
};
INSTANTIATE_TEST_SUITE_P(Types, CpuLibraries, testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& of) { return std::string(dtype_name(of.param)); });

TEST_P(CpuLibraries, Convolutions) {
  for (const std::string variant : {"same", "valid"}) {
    EXPECT_GE(expect_all_right(*device_, cpu::prepare_conv2d, conv(9, 5, 7, 3, 1, GetParam(), variant)), 1U);
    EXPECT_GE(expect_all_right(*device_, cpu::prepare_conv2d, conv(14, 64, 96, 3, 2, GetParam(), variant)), 1U);
    EXPECT_GE(expect_all_right(*device_, cpu::prepare_conv2d, conv(12, 32, 16, 1, 1, GetParam(), variant)), 1U);
  }
}

TEST_P(CpuLibraries, LstmLayers) {
  EXPECT_EQ(expect_all_right(*device_, cpu::prepare_lstm, lstm(1, 1, 3, 5, 1, GetParam())), 1U);
  EXPECT_EQ(expect_all_right(*device_, cpu::prepare_lstm, lstm(3, 7, 24, 40, 1, GetParam())), 1U);
  // The first layer has another input than the others; and all of one size in one primitive.
  EXPECT_EQ(expect_all_right(*device_, cpu::prepare_lstm, lstm(4, 6, 24, 40, 3, GetParam())), 1U);
  EXPECT_EQ(expect_all_right(*device_, cpu::prepare_lstm, lstm(4, 6, 48, 48, 2, GetParam())), 1U);
}

TEST(CpuLibrariesRefused, InWords) {
  const auto text_of = [](const std::optional<std::string>& why) { return why.value_or(""); };
  EXPECT_NE(text_of(cpu::conv2d_unsupported(conv(2, 4, 4, 5, 1, DType::kFp32, "valid"))).find("5 x 5 does not fit"),
            std::string::npos);
  for (const DType dtype : {DType::kFp16, DType::kTf32})
    EXPECT_NE(text_of(cpu::library_unsupported(lstm(1, 1, 1, 1, 1, dtype))).find("fp32 and bf16"), std::string::npos);
  const std::unique_ptr<Device> device = std::move(*device::cpu::open_cpu(1));
  const Result<std::unique_ptr<PreparedOp>> op = cpu::prepare_lstm(*device, lstm(1, 1, 1, 1, 1, DType::kFp16));
  ASSERT_FALSE(op);
  EXPECT_EQ(op.error().exit_code, ExitCode::kUsage);
}

class WrongLibraries : public testing::Test {
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
TEST_F(WrongLibraries, ConvolutionWithoutATap) {
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
TEST_F(WrongLibraries, LstmOfOtherGates) {
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

}  // namespace
}  // namespace llmprof::kernels
