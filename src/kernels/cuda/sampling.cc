// Drawing tokens from logits, by own kernels.
#include "kernels/reference/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr unsigned kSamplingThreads = 1024;
constexpr int64_t kMostKept = 1024, kVocabularyMax = 1 << 24;

// token, probability, logits, draw
class SamplingOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

  Status prepare() {
    batch_ = params_.axis("batch");
    vocabulary_ = params_.axis("vocab");
    rule_.k = params_.axis("k");
    const int64_t element = static_cast<int64_t>(dtype_bytes(params_.dtype)), pack = 16 / element;
    if (vocabulary_ % pack != 0 || vocabulary_ >= kVocabularyMax)
      return fail(
          fmt::format("the vocabulary must be a multiple of {} below {}, found {}", pack, kVocabularyMax, vocabulary_),
          {}, {}, ExitCode::kUsage);
    if (rule_.k > std::min(kMostKept, vocabulary_))
      return fail(fmt::format("k can be at most {}, found {}", std::min(kMostKept, vocabulary_), rule_.k), {},
                  "top-p over a whole vocabulary needs a sort of it, which is not offered", ExitCode::kUsage);
    const size_t rows = static_cast<size_t>(batch_);
    LLMPROF_CHECK(begin({{"token", 4 * rows, Role::kOutput, {}},
                         {"probability", 4 * rows, Role::kOutput, {}},
                         {"logits",
                          rows * static_cast<size_t>(vocabulary_ * element),
                          Role::kInput,
                          {Fill::Kind::kUniform, params_.dtype, 1, 0}},
                         {"draw", 4 * rows, Role::kInput, {Fill::Kind::kUniform, DType::kFp32, 1, 0}}}));
    const char* const type = params_.dtype == DType::kFp32   ? "T=Fp32"
                             : params_.dtype == DType::kFp16 ? "T=Fp16"
                                                             : "T=Bf16";
    const unsigned grid = static_cast<unsigned>(batch_);
    const uint32_t packs = static_cast<uint32_t>(vocabulary_ / pack);
    greedy_ = params_.variant == "greedy";
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel,
                   context_.kernel({"sampling.cu", {type}}, greedy_ ? "sample_greedy" : "sample_top"));
    if (greedy_) {
      for (const unsigned threads : {256U, kSamplingThreads})
        add(fmt::format("own, {} threads a row", threads), [this, kernel, grid, threads, packs](int set) {
          return context_.launch(kernel, grid, threads, at(set, 2), at(set, 0), packs);
        });
      return {};
    }
    const uint32_t k = static_cast<uint32_t>(rule_.k);
    const float factor = static_cast<float>(1 / (rule_.temperature * std::log(2.0)));
    const float top_p = static_cast<float>(rule_.top_p);
    add(fmt::format("own, {} threads a row", kSamplingThreads), [=, this](int set) {
      return context_.launch(kernel, grid, kSamplingThreads, at(set, 2), at(set, 3), at(set, 0), at(set, 1), packs, k,
                             factor, top_p);
    });
    return {};
  }

 protected:
  Result<Check> compare(size_t) override {
    const Drawn drawn{array(0, 0), array(0, 1), array(0, 2), array(0, 3), batch_, vocabulary_, params_.dtype};
    return check_drawn(device_, drawn, greedy_ ? nullptr : &rule_, params_.seed);
  }

 private:
  int64_t batch_ = 0, vocabulary_ = 0;
  bool greedy_ = false;
  SamplingRule rule_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_sampling(Device& device, const OpParams& params) {
  return prepare_as<SamplingOp>(device, params);
}

}  // namespace llmprof::kernels::cuda
