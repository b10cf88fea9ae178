// The GEMM family and what routes tokens to it: costs by hand, and on the CPU against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/ops.h"
#include "kernels/reference/gemm.h"
#include "kernels/reference/routing.h"
#include "ops/product.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

using Axes = std::vector<std::pair<std::string_view, int64_t>>;

class CpuProducts : public testing::Test {
 protected:
  using Prepare = Result<std::unique_ptr<PreparedOp>> (*)(Device&, const OpParams&);
  void SetUp() override { device_ = std::move(*device::cpu::open_cpu(0)); }

  // Every candidate is right; how many there were.
  size_t all_pass(Prepare prepare, const OpParams& params) {
    Result<std::unique_ptr<PreparedOp>> op = prepare(*device_, params);
    EXPECT_TRUE(op) << op.error().text();
    if (!op) return 0;
    for (size_t i = 0; i < (*op)->candidates().size(); ++i) {
      const Result<Check> check = (*op)->check(i);
      EXPECT_TRUE(check) << check.error().text();
      if (!check) continue;
      EXPECT_EQ(check->status, CheckStatus::kPassed)
          << (*op)->candidates()[i].backend << ": " << check->note << ", " << check->worst_over_tolerance;
    }
    // Other sets have weights and outputs of their own.
    EXPECT_TRUE((*op)->prepare_sets(3));
    for (const Candidate& candidate : (*op)->candidates()) EXPECT_TRUE(candidate.enqueue(2));
    return (*op)->candidates().size();
  }
  static bool can(DType dtype) {
    return !cpu::gemm_unsupported(ops::params_of({{"m", 1}, {"n", 1}, {"k", 1}}, dtype, "plain"));
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CpuProducts, EveryEpilogue) {
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    if (!can(dtype)) continue;
    for (const char* variant : {"plain", "bias", "bias_gelu", "residual"})
      EXPECT_GE(all_pass(cpu::prepare_gemm, ops::params_of({{"m", 33}, {"n", 70}, {"k", 129}}, dtype, variant)), 1U)
          << dtype_name(dtype) << " " << variant;
  }
}

TEST_F(CpuProducts, Batches) {
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    if (!can(dtype)) continue;
    EXPECT_GE(
        all_pass(cpu::prepare_gemm_batched, ops::params_of({{"batch", 5}, {"m", 17}, {"n", 24}, {"k", 40}}, dtype)),
        1U);
  }
}

TEST_F(CpuProducts, Groups) {
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    if (!can(dtype)) continue;
    for (const char* variant : {"even", "skewed"})
      EXPECT_GE(all_pass(cpu::prepare_gemm_grouped,
                         ops::params_of({{"rows", 41}, {"groups", 6}, {"n", 24}, {"k", 40}}, dtype, variant)),
                1U)
          << variant;
    // More groups than rows.
    EXPECT_GE(all_pass(cpu::prepare_gemm_grouped,
                       ops::params_of({{"rows", 3}, {"groups", 8}, {"n", 24}, {"k", 40}}, dtype, "even")),
              1U);
  }
}

// A routing that is right, and each of its outputs made wrong.
TEST_F(CpuProducts, WrongRoutingIsSeen) {
  constexpr int64_t kTokens = 40, kExperts = 16, kK = 4;
  const auto filled = [&](int64_t count, Fill::Kind kind) {
    std::unique_ptr<Buffer> buffer = std::move(*device_->allocate(static_cast<size_t>(count) * 4));
    EXPECT_TRUE(device_->fill(*buffer, {kind, DType::kFp32, 3, 0}));
    return buffer;
  };
  const auto logits = filled(kTokens * kExperts, Fill::Kind::kUniform), ids = filled(kTokens * kK, Fill::Kind::kPoison),
             weights = filled(kTokens * kK, Fill::Kind::kPoison), offsets = filled(kExperts + 1, Fill::Kind::kPoison),
             order = filled(kTokens * kK, Fill::Kind::kPoison);
  const Routing routing{*logits, *ids, *weights, *offsets, *order, DType::kFp32, kTokens, kExperts, kK};
  const auto integers = [](const std::unique_ptr<Buffer>& of) { return static_cast<int32_t*>(of->address()); };
  const auto status = [&] { return check_routing(*device_, routing)->status; };
  EXPECT_EQ(status(), CheckStatus::kFailed) << "nothing is written";
  std::vector<std::vector<int32_t>> slots(kExperts);
  for (int64_t token = 0; token < kTokens; ++token) {
    const float* const row = static_cast<const float*>(logits->address()) + token * kExperts;
    std::vector<int32_t> sorted(kExperts);
    std::iota(sorted.begin(), sorted.end(), 0);
    std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
    double sum = 0;
    for (int64_t i = 0; i < kK; ++i) sum += std::exp(static_cast<double>(row[sorted[static_cast<size_t>(i)]]));
    for (int64_t i = 0; i < kK; ++i) {
      const int32_t expert = sorted[static_cast<size_t>(i)];
      integers(ids)[token * kK + i] = expert;
      static_cast<float*>(weights->address())[token * kK + i] =
          static_cast<float>(std::exp(static_cast<double>(row[expert])) / sum);
      slots[static_cast<size_t>(expert)].push_back(static_cast<int32_t>(token * kK + i));
    }
  }
  int32_t place = 0;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    integers(offsets)[expert] = place;
    for (const int32_t slot : slots[static_cast<size_t>(expert)]) integers(order)[place++] = slot;
  }
  integers(offsets)[kExperts] = place;
  EXPECT_EQ(status(), CheckStatus::kPassed) << check_routing(*device_, routing)->note;
  const auto broken_by = [&](auto change) {
    change();
    const CheckStatus broken = status();
    change();
    return broken;
  };
  EXPECT_EQ(broken_by([&] { std::swap(integers(ids)[4], integers(ids)[5]); }), CheckStatus::kFailed);
  EXPECT_EQ(broken_by([&] { integers(offsets)[3] ^= 1; }), CheckStatus::kFailed);
  EXPECT_EQ(broken_by([&] { std::swap(integers(order)[0], integers(order)[place - 1]); }), CheckStatus::kFailed);
  float* const weight = static_cast<float*>(weights->address()) + 7;
  EXPECT_EQ(broken_by([&] { *weight = -*weight; }), CheckStatus::kFailed);
  EXPECT_EQ(status(), CheckStatus::kPassed);
}

// Each part of a product left out is seen.
class WrongProduct : public testing::Test {
 protected:
  static constexpr int64_t kM = 24, kN = 20, kK = 32;

  void SetUp() override {
    device_ = std::move(*device::cpu::open_cpu(0));
    a_ = filled(kM * kK, 1);
    w_ = filled(2 * kN * kK, 2);
    bias_ = filled(kN, 3);
    residual_ = filled(kM * kN, 4);
    row_scales_ = filled(kM, 5);
    column_scales_ = filled(kN, 6);
    out_ = filled(kM * kN, 7);
  }
  std::unique_ptr<Buffer> filled(int64_t elements, uint64_t seed) {
    std::unique_ptr<Buffer> buffer = std::move(*device_->allocate(static_cast<size_t>(elements) * 4));
    EXPECT_TRUE(device_->fill(*buffer, {Fill::Kind::kUniform, DType::kFp32, seed, 0}));
    return buffer;
  }
  static const float* data(const std::unique_ptr<Buffer>& of) { return static_cast<const float*>(of->address()); }

  // What of the product is computed; all of it is asked for.
  struct Does {
    bool scales = true, bias = true, gelu = true, residual = true, group = true;
  };
  CheckStatus status_of(const ops::Product& product, const Does& does) {
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        const bool second = does.group && product.groups() == 2 && i >= product.first_row[1];
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k)
          sum += static_cast<double>(data(a_)[i * kK + k]) *
                 static_cast<double>(data(w_)[((second ? kN : 0) + j) * kK + k]);
        if (product.scales && does.scales)
          sum *= static_cast<double>(data(row_scales_)[i]) * static_cast<double>(data(column_scales_)[j]);
        if (product.bias && does.bias) sum += static_cast<double>(data(bias_)[j]);
        if (product.gelu && does.gelu)
          sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
        if (product.residual && does.residual) sum += static_cast<double>(data(residual_)[i * kN + j]);
        static_cast<float*>(out_->address())[i * kN + j] = static_cast<float>(sum);
      }
    GemmOperands operands{*a_, *w_, *out_, product};
    if (product.bias) operands.bias = bias_.get();
    if (product.residual) operands.residual = residual_.get();
    if (product.scales) operands.row_scales = row_scales_.get(), operands.column_scales = column_scales_.get();
    const Result<Check> check = check_gemm(*device_, operands, 5);
    EXPECT_TRUE(check);
    return check->status;
  }
  static ops::Product product() { return {{0, kM}, kN, kK}; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Buffer> a_, w_, bias_, residual_, row_scales_, column_scales_, out_;
};

TEST_F(WrongProduct, Bias) {
  ops::Product of = product();
  of.bias = true;
  EXPECT_EQ(status_of(of, {}), CheckStatus::kPassed);
  EXPECT_EQ(status_of(of, {.bias = false}), CheckStatus::kFailed);
  of.gelu = true;
  EXPECT_EQ(status_of(of, {}), CheckStatus::kPassed);
  EXPECT_EQ(status_of(of, {.gelu = false}), CheckStatus::kFailed);
}

TEST_F(WrongProduct, Residual) {
  ops::Product of = product();
  of.residual = true;
  EXPECT_EQ(status_of(of, {}), CheckStatus::kPassed);
  EXPECT_EQ(status_of(of, {.residual = false}), CheckStatus::kFailed);
}

TEST_F(WrongProduct, Scales) {
  ops::Product of = product();
  of.scales = true;
  EXPECT_EQ(status_of(of, {}), CheckStatus::kPassed);
  EXPECT_EQ(status_of(of, {.scales = false}), CheckStatus::kFailed);
}

TEST_F(WrongProduct, WeightsOfAnotherGroup) {
  ops::Product of = product();
  of.first_row = {0, 9, kM};
  EXPECT_EQ(status_of(of, {}), CheckStatus::kPassed);
  EXPECT_EQ(status_of(of, {.group = false}), CheckStatus::kFailed);
}

}  // namespace
}  // namespace llmprof::kernels
