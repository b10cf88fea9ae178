// Kernels that are made for the length of a row, on the stand-in: every form of them against the reference, whatever
// the rows, gains and biases are. The tolerance is the reference's, by which `bench` judges them too.
#include <fmt/format.h>

#include <algorithm>

#include "device/elements.h"
#include "device/fill.h"
#include "device_cuda_support.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/compare.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr float kEpsilon = 1e-5F;

struct Form {
  int items, threads, rows, shared, blocks;
};
constexpr Form kForms[] = {{8, 128, 1, 0, 5}, {8, 128, 1, 1, 5}, {8, 128, 2, 0, 4}, {8, 96, 1, 0, 6},
                           {8, 96, 2, 0, 5},  {8, 32, 1, 0, 20}, {8, 32, 2, 0, 16}, {4, 256, 1, 0, 4},
                           {4, 192, 1, 0, 5}, {4, 32, 1, 0, 32}, {2, 96, 1, 0, 13}};

// Uniform numbers: rows of so much about so much (rows in turn), gains and biases up to so much.
struct Numbers {
  const char* name;
  float spread, center, other_center, weight;
};
constexpr Numbers kNumbers[] = {{"about 0", 1, 0, 0, 1},
                                {"far from 0, one row of two", 0.5F, 0, 100, 1},
                                {"far below 0, all rows", 0.25F, -40, -40, 1},
                                {"of a spread near epsilon", 0.004F, 0, 0.02F, 1},
                                {"with large gains and biases", 1, 0, 0, 20},
                                {"with both", 0.01F, 0, 3, 20}};

class KernelsCudaExactRows : public device::cuda::FakeGpuOps {
 protected:
  Result<device::cuda::Kernel> kernel_of(DType dtype, const Form& form) {
    return device_->context().kernel(
        {"rows_exact.cu",
         {dtype == DType::kFp16 ? "T=Fp16" : "T=Bf16", fmt::format("ITEMS={}", form.items),
          fmt::format("THREADS={}", form.threads), fmt::format("ROWS={}", form.rows),
          fmt::format("SHARED={}", form.shared), fmt::format("MIN_BLOCKS={}", form.blocks)}},
        "layernorm_gelu_exact");
  }
  // What the reference says of `rows` rows by the kernel.
  Check check_of(DType dtype, const Form& form, const Numbers& numbers, int64_t rows) {
    const Result<device::cuda::Kernel> kernel = kernel_of(dtype, form);
    EXPECT_TRUE(kernel) << kernel.error().text();
    const size_t columns = static_cast<size_t>(form.items * form.threads) * 8;
    const size_t elements = static_cast<size_t>(rows) * columns;
    std::vector<float> uniform(elements + 2 * columns);
    device::fill_elements({Fill::Kind::kUniform, DType::kFp32, 5, 0}, 0, uniform.size(), uniform.data());
    std::vector<uint16_t> bits;
    for (size_t i = 0; i < uniform.size(); ++i) {
      const float center = i / columns % 2 == 0 ? numbers.center : numbers.other_center;
      const float value = i < elements ? center + numbers.spread * uniform[i] : numbers.weight * uniform[i];
      bits.push_back(dtype == DType::kFp16 ? device::to_fp16(value) : device::to_bf16(value));
    }
    const std::unique_ptr<Buffer> in = *device_->allocate(bits.size() * 2), out = *device_->allocate(elements * 2);
    const std::vector<uint16_t> poison(elements, 0xffff);
    EXPECT_TRUE(device_->upload(*in, 0, bits.data(), bits.size() * 2));
    EXPECT_TRUE(device_->upload(*out, 0, poison.data(), elements * 2));
    const cuda_abi::DevicePtr x = device::cuda::pointer_of(*in), gain = x + elements * 2, bias = gain + columns * 2;
    EXPECT_TRUE(device_->context().launch(*kernel, static_cast<unsigned>((rows + form.rows - 1) / form.rows),
                                          static_cast<unsigned>(form.threads), x, gain, bias,
                                          device::cuda::pointer_of(*out), static_cast<uint32_t>(rows), kEpsilon));
    EXPECT_TRUE(device_->context().synchronize());
    EXPECT_TRUE(device_->check_guards(*out)) << "written beyond the rows";
    const int64_t width = static_cast<int64_t>(columns);
    const RowReader all = rows_of(*device_, *in, dtype, width);
    const Row g = *all(rows), b = *all(rows + 1);
    const Result<Check> check =
        check_rows(*device_, *out, dtype, width, rows, 1, [&](int64_t row) -> Result<RowResult> {
          return layernorm_gelu_row(*all(row), g, b, static_cast<double>(kEpsilon));
        });
    EXPECT_TRUE(check);
    return check ? *check : Check{};
  }
};

TEST_F(KernelsCudaExactRows, EveryFormIsRight) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (const Form& form : kForms) {
      for (const Numbers& numbers : kNumbers) {
        const Check check = check_of(dtype, form, numbers, 3);  // the last block of two rows has one
        EXPECT_EQ(check.status, CheckStatus::kPassed)
            << dtype_name(dtype) << " " << form.threads << " x " << form.items << ", " << form.rows
            << " rows at once, rows " << numbers.name << ": " << check.note << ", " << check.worst_over_tolerance;
      }
    }
  }
}

// A pair of which each row in turn, none or both need the second pass about the mean.
TEST_F(KernelsCudaExactRows, RowsOfAPairAreNotMixedUp) {
  open();
  for (const Numbers& numbers : {Numbers{"first", 0.5F, 100, 0, 1}, Numbers{"second", 0.5F, 0, 100, 1},
                                 Numbers{"both", 0.5F, 100, -60, 1}, Numbers{"none", 0.5F, 0.25F, -0.25F, 1}}) {
    const Check check = check_of(DType::kFp16, {8, 96, 2, 0, 5}, numbers, 4);
    EXPECT_EQ(check.status, CheckStatus::kPassed) << numbers.name << ": " << check.note;
  }
}

TEST_F(KernelsCudaExactRows, AreOfferedWhereTheyFit) {
  open();
  const auto tight = [&](DType dtype, int64_t tokens, int64_t hidden) {
    const Result<std::unique_ptr<PreparedOp>> op =
        prepare_layernorm_gelu(*device_, ops::params_of({{"tokens", tokens}, {"hidden", hidden}}, dtype));
    std::string names;
    if (!op) return op.error().text();
    for (const Candidate& candidate : (*op)->candidates())
      if (device::cuda::holds(candidate.backend, "tight")) names += candidate.backend + "; ";
    return names;
  };
  EXPECT_EQ(tight(DType::kBf16, 3, 8192),
            "own 8 x 16 B, 128 threads a row, tight, 5 blocks; own 8 x 16 B, 128 threads a row, tight, 7 blocks; "
            "own 8 x 16 B, 128 threads a row, tight, 5 blocks, shared reciprocals; "
            "own 8 x 16 B, 128 threads a row, tight, 4 blocks of two rows; "
            "own 4 x 16 B, 256 threads a row, tight, 4 blocks; ");
  EXPECT_EQ(tight(DType::kFp16, 3, 1024), "own 4 x 16 B, 32 threads a row, tight, 32 blocks; ");
  EXPECT_EQ(tight(DType::kBf16, 3, 1536), "own 2 x 16 B, 96 threads a row, tight, 13 blocks; ");
  EXPECT_EQ(tight(DType::kBf16, 3, 1600), "") << "200 packs are no whole warps";
  EXPECT_EQ(tight(DType::kFp32, 3, 8192), "") << "made for 16 bits";
  for (const int64_t hidden : {1024, 1536, 2048, 6144}) {
    for (const DType dtype : {DType::kBf16, DType::kFp16})
      EXPECT_GE(all_pass(prepare_layernorm_gelu, ops::params_of({{"tokens", 7}, {"hidden", hidden}}, dtype)), 3U)
          << hidden;
  }
}

}  // namespace
}  // namespace llmprof::kernels::cuda
