// Operators over rows on the CPU, of every width that this one has: right, and a wrong one is seen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/reference/rows.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

using Prepare = Result<std::unique_ptr<PreparedOp>> (*)(Device&, const OpParams&);

class CpuRows : public testing::TestWithParam<DType> {
 protected:
  void expect_right(Prepare prepare, std::string_view rows_axis, std::string_view columns_axis, std::string variant) {
    Result<std::unique_ptr<Device>> device = device::cpu::open_cpu(0);
    ASSERT_TRUE(device);
    // Less than a vector, one that ends inside a vector, and whole ones.
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 7}, {65, 1003}, {130, 4096}}) {
      Result<std::unique_ptr<PreparedOp>> op =
          prepare(**device, ops::params_of({{rows_axis, rows}, {columns_axis, columns}}, GetParam(), variant));
      ASSERT_TRUE(op) << op.error().text();
      for (size_t i = 0; i < (*op)->candidates().size(); ++i) {
        // Twice: what the work changes in place is as it was for each check.
        for (int turn = 0; turn < 2; ++turn) {
          const Result<Check> check = (*op)->check(i);
          ASSERT_TRUE(check) << check.error().text();
          EXPECT_EQ(check->status, CheckStatus::kPassed)
              << (*op)->candidates()[i].backend << " " << rows << " x " << columns << ": " << check->note;
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CpuRows, testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& of) { return std::string(dtype_name(of.param)); });

TEST_P(CpuRows, Rmsnorm) {
  expect_right(cpu::prepare_rmsnorm, "tokens", "hidden", "plain");
  expect_right(cpu::prepare_rmsnorm, "tokens", "hidden", "residual");
}
TEST_P(CpuRows, LayernormGelu) { expect_right(cpu::prepare_layernorm_gelu, "tokens", "hidden", ""); }
TEST_P(CpuRows, Softmax) { expect_right(cpu::prepare_softmax, "rows", "columns", ""); }
TEST_P(CpuRows, Swiglu) { expect_right(cpu::prepare_swiglu, "tokens", "ffn", ""); }

TEST(CpuRowKernels, SoftmaxOfLargeScores) {
  std::vector<cpu::RowKernels> all = cpu::row_kernels(device::cpu::cpu_instructions(), DType::kFp32);
  all.push_back(cpu::row_kernels({}, DType::kFp32)[0]);  // of a CPU that has none of them
  for (const cpu::RowKernels& kernels : all) {
    const float x[] = {1000, 1000, -1000, 999};
    float out[4] = {};
    cpu::RowArrays arrays;
    arrays.x = x;
    arrays.out = out;
    arrays.columns = 4;
    kernels.softmax(arrays, 0, 1);
    const double sum = 2 + std::exp(-1.0);
    EXPECT_NEAR(static_cast<double>(out[0]), 1 / sum, 1e-6) << kernels.name;
    EXPECT_NEAR(static_cast<double>(out[1]), 1 / sum, 1e-6);
    EXPECT_LT(out[2], 1e-30F);
    EXPECT_NEAR(static_cast<double>(out[3]), std::exp(-1.0) / sum, 1e-6);
  }
}

TEST(CpuRowKernels, WritesNothingBeyondARow) {
  for (const cpu::RowKernels& kernels : cpu::row_kernels(device::cpu::cpu_instructions(), DType::kBf16)) {
    uint16_t x[40], gain[40], out[40];
    for (uint16_t* array : {x, gain, out}) std::fill(array, array + 40, uint16_t{0x3f80});
    cpu::RowArrays arrays;
    arrays.x = x;
    arrays.gain = gain;
    arrays.bias = gain;
    arrays.out = out;
    arrays.columns = 19;
    for (const cpu::RowKernel kernel : {kernels.rmsnorm, kernels.layernorm_gelu, kernels.softmax}) {
      out[19] = 0x1234;
      kernel(arrays, 0, 1);
      EXPECT_EQ(out[19], 0x1234);
    }
    arrays.columns = 18;
    out[18] = 0x1234;
    kernels.swiglu(arrays, 0, 1);
    EXPECT_EQ(out[18], 0x1234);
  }
}

// A statistic that leaves out one element of a row.
TEST(WrongRows, OneTermLeftOut) {
  const Result<std::unique_ptr<Device>> device = device::cpu::open_cpu(1);
  constexpr int64_t kRows = 8, kColumns = 1024;
  const Fill fill;
  const Result<std::unique_ptr<Buffer>> out = (*device)->allocate(kRows * kColumns * 4);
  const RowReader x = rows_as_filled(fill, kColumns);
  const Row gain(kColumns, 0.75);
  for (const int64_t left_out : {int64_t{0}, int64_t{1}}) {
    for (int64_t row = 0; row < kRows; ++row) {
      const Result<Row> values = x(row);
      double squares = 0;
      for (size_t i = static_cast<size_t>(left_out); i < values->size(); ++i) squares += (*values)[i] * (*values)[i];
      for (size_t i = 0; i < values->size(); ++i) {
        const float value = static_cast<float>((*values)[i] / std::sqrt(squares / kColumns + 1e-5) * 0.75);
        std::memcpy(static_cast<char*>((*out)->address()) + (static_cast<size_t>(row) * kColumns + i) * 4, &value, 4);
      }
    }
    const Result<Check> check =
        check_rows(**device, **out, DType::kFp32, kColumns, kRows, 1,
                   [&](int64_t row) -> Result<RowResult> { return rmsnorm_row(*x(row), gain, 1e-5); });
    EXPECT_EQ(check->status, left_out == 0 ? CheckStatus::kPassed : CheckStatus::kFailed) << check->note;
  }
}

}  // namespace
}  // namespace llmprof::kernels
