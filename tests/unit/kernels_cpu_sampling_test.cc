// Drawing tokens on the CPU, of every width that this one has: right, ties and ends of rows included, and a wrong one
// is seen.
#include <cmath>
#include <cstring>

#include "device/fill.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/sampling_kernels.h"
#include "kernels/reference/sampling.h"
#include "kernels_cpu_support.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

std::vector<cpu::SamplingKernels> sampling_kernels_of_every_width(DType dtype) {
  std::vector<cpu::SamplingKernels> all = cpu::sampling_kernels(device::cpu::cpu_instructions(), dtype);
  all.push_back(cpu::sampling_kernels({}, dtype)[0]);  // of a CPU that has none of them
  return all;
}

class CpuSampling : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, CpuSampling, testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& of) { return std::string(dtype_name(of.param)); });

TEST_P(CpuSampling, Tokens) {
  const std::unique_ptr<Device> device = std::move(*device::cpu::open_cpu(0));
  for (const std::string variant : {"top_k_top_p", "greedy"}) {
    // Rows that are shared out, and rows in parts.
    for (const auto& [batch, vocabulary, k] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {5, 17, 17}, {7, 1003, 50}, {1, 40000, 1000}}) {
      const OpParams params = ops::params_of({{"batch", batch}, {"vocab", vocabulary}, {"k", k}}, GetParam(), variant);
      expect_all_right(*device, cpu::prepare_sampling, params);
    }
  }
}

TEST(CpuSamplingRefused, MoreThanTheVocabulary) {
  OpParams params = ops::params_of({{"batch", 1}, {"vocab", 20}, {"k", 21}}, DType::kFp32, "top_k_top_p");
  EXPECT_NE(cpu::sampling_unsupported(params).value_or("").find("20, found 21"), std::string::npos);
  params.variant = "greedy";
  EXPECT_FALSE(cpu::sampling_unsupported(params));
}

TEST(CpuSamplingKernels, TheFirstOfTheLargest) {
  for (const cpu::SamplingKernels& kernels : sampling_kernels_of_every_width(DType::kFp32)) {
    for (const size_t size : {size_t{1}, size_t{16}, size_t{37}, size_t{5000}}) {
      std::vector<float> row(size, -3);
      row.back() = -2;
      EXPECT_EQ(kernels.largest(row.data(), 0, static_cast<int64_t>(size)).token, static_cast<int32_t>(size) - 1)
          << kernels.name;
      row[size / 2] = row.back();
      EXPECT_EQ(kernels.largest(row.data(), 0, static_cast<int64_t>(size)).token, static_cast<int32_t>(size / 2));
      // Only what lies in the part.
      if (size == 5000) {
        EXPECT_EQ(kernels.largest(row.data(), 2501, 4999).token, 2501);
      }
    }
  }
}

TEST(CpuSamplingKernels, TheLargestInAnyOrder) {
  std::vector<float> rising(3000);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
  std::vector<float> falling(rising.rbegin(), rising.rend());
  std::vector<float> alike(3000, 1);
  for (const cpu::SamplingKernels& kernels : sampling_kernels_of_every_width(DType::kFp32)) {
    for (const int64_t k : {1, 7, 1024}) {
      std::vector<cpu::Logit> found;
      for (const std::vector<float>* row : {&rising, &falling}) {
        kernels.top(row->data(), 0, 3000, k, found);
        ASSERT_EQ(static_cast<int64_t>(found.size()), k);
        std::sort(found.begin(), found.end(), cpu::is_before);
        for (int64_t i = 0; i < k; ++i) {
          EXPECT_EQ(found[static_cast<size_t>(i)].value, static_cast<float>(2999 - i)) << kernels.name;
          EXPECT_EQ((*row)[static_cast<size_t>(found[static_cast<size_t>(i)].token)], static_cast<float>(2999 - i));
        }
      }
      kernels.top(alike.data(), 0, 3000, k, found);
      EXPECT_EQ(static_cast<int64_t>(found.size()), k);
    }
  }
}

// The second most likely instead of the most likely.
TEST(WrongSampling, AnotherToken) {
  const std::unique_ptr<Device> device = std::move(*device::cpu::open_cpu(1));
  constexpr int64_t kVocabulary = 100;
  const auto filled = [&](size_t count, uint64_t seed) {
    std::unique_ptr<Buffer> buffer = std::move(*device->allocate(4 * count));
    EXPECT_TRUE(device->fill(*buffer, {Fill::Kind::kUniform, DType::kFp32, seed, 0}));
    return buffer;
  };
  const std::unique_ptr<Buffer> token = filled(1, 1), probability = filled(1, 1), logits = filled(kVocabulary, 2),
                                draw = filled(1, 3);
  const Drawn drawn{*token, *probability, *logits, *draw, 1, kVocabulary, DType::kFp32};
  auto* const chosen = static_cast<int32_t*>(token->address());
  const auto* const values = static_cast<const float*>(logits->address());
  const cpu::SamplingKernels kernels = sampling_kernels_of_every_width(DType::kFp32)[0];
  *chosen = kernels.largest(values, 0, kVocabulary).token;
  EXPECT_EQ(check_drawn(*device, drawn, nullptr, 1)->status, CheckStatus::kPassed);
  *chosen = (*chosen + 1) % kVocabulary;
  EXPECT_EQ(check_drawn(*device, drawn, nullptr, 1)->status, CheckStatus::kFailed);
  const SamplingRule one{1, 0.9, 0.8};
  *static_cast<float*>(probability->address()) = 1;
  EXPECT_EQ(check_drawn(*device, drawn, &one, 1)->status, CheckStatus::kFailed);
  *chosen = kernels.largest(values, 0, kVocabulary).token;
  EXPECT_EQ(check_drawn(*device, drawn, &one, 1)->status, CheckStatus::kPassed);
}

}  // namespace
}  // namespace llmprof::kernels
