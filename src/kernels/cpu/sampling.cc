// Drawing tokens from logits, by own kernels: rows shared out over the team, and parts of rows if there are fewer rows
// than threads.
#include "kernels/reference/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_op.h"
#include "kernels/cpu/sampling_kernels.h"

namespace llmprof::kernels::cpu {
namespace {

enum : size_t { kToken, kProbability, kLogits, kDraw };  // buffers of a set

std::vector<BufferPlan> buffers_of(const OpParams& params) {
  const auto rows = static_cast<size_t>(params.axis("batch"));
  const size_t row = static_cast<size_t>(params.axis("vocab")) * static_cast<size_t>(dtype_bytes(params.dtype));
  return {{4 * rows, DType::kInt32, true, 1},
          {4 * rows, DType::kFp32, true, 1},
          {rows * row, params.dtype, false, params.seed},
          {4 * rows, DType::kFp32, false, params.seed + 1}};
}

class SamplingOp : public OwnOp {
 public:
  SamplingOp(device::cpu::CpuDevice& device, const OpParams& params)
      : OwnOp(device, params, buffers_of(params)),
        batch_(params.axis("batch")),
        vocabulary_(params.axis("vocab")),
        greedy_(params.variant == "greedy") {
    rule_.k = params.axis("k");
    const int64_t threads = device.team().threads();
    parts_ = batch_ >= threads ? 1 : std::min((threads + batch_ - 1) / batch_, vocabulary_ / kPart + 1);
    found_.resize(static_cast<size_t>(batch_ * parts_));
    for (std::vector<Logit>& found : found_) found.reserve(static_cast<size_t>((2 * rule_.k + 16) * parts_));
    for (const SamplingKernels& kernels : sampling_kernels(device.instructions(), params.dtype))
      add(kernels.name, [this, kernels](int set) { run(kernels, set); });
  }

 protected:
  Result<Check> compare() override {
    const Drawn drawn{
        sets_.at(0, kToken), sets_.at(0, kProbability), sets_.at(0, kLogits), sets_.at(0, kDraw), batch_, vocabulary_,
        params_.dtype};
    return check_drawn(device_, drawn, greedy_ ? nullptr : &rule_, params_.seed);
  }

 private:
  static constexpr int64_t kPart = 8192;  // fewer logits are not worth a thread

  void run(const SamplingKernels& kernels, int set) {
    const char* const logits = sets_.data<char>(set, kLogits);
    const size_t row_bytes = static_cast<size_t>(vocabulary_) * static_cast<size_t>(dtype_bytes(params_.dtype));
    share(batch_ * parts_, [&](int64_t first, int64_t last) {
      for (int64_t unit = first; unit < last; ++unit) {
        const int64_t row = unit / parts_, part = unit % parts_;
        const char* const from = logits + static_cast<size_t>(row) * row_bytes;
        const int64_t begin = vocabulary_ * part / parts_, end = vocabulary_ * (part + 1) / parts_;
        std::vector<Logit>& found = found_[static_cast<size_t>(unit)];
        if (greedy_)
          found.assign(1, kernels.largest(from, begin, end));
        else
          kernels.top(from, begin, end, rule_.k, found);
        if (parts_ == 1) choose(row, set);
      }
    });
    if (parts_ == 1) return;
    for (int64_t row = 0; row < batch_; ++row) choose(row, set);
  }

  // From what was found in the parts of a row.
  void choose(int64_t row, int set) {
    std::vector<Logit>& top = found_[static_cast<size_t>(row * parts_)];
    for (int64_t part = 1; part < parts_; ++part) {
      const std::vector<Logit>& more = found_[static_cast<size_t>(row * parts_ + part)];
      top.insert(top.end(), more.begin(), more.end());
    }
    int32_t* const token = sets_.data<int32_t>(set, kToken) + row;
    if (greedy_) {
      *token = std::min_element(top.begin(), top.end(), is_before)->token;
      return;
    }
    const size_t k = std::min(top.size(), static_cast<size_t>(rule_.k));
    std::partial_sort(top.begin(), top.begin() + static_cast<int64_t>(k), top.end(), is_before);
    const float factor = static_cast<float>(1 / rule_.temperature);
    const float largest = top[0].value;
    float all = 0;
    for (size_t i = 0; i < k; ++i) all += top[i].value = std::exp((top[i].value - largest) * factor);
    // The fewest of them that have the share.
    float kept = 0;
    size_t count = 0;
    while (count < k && kept < static_cast<float>(rule_.top_p) * all) kept += top[count++].value;
    const float draw = 0.5F * sets_.data<float>(set, kDraw)[row] + 0.5F;
    float below = 0;
    size_t chosen = 0;
    while (chosen + 1 < count && below + top[chosen].value <= draw * kept) below += top[chosen++].value;
    *token = top[chosen].token;
    sets_.data<float>(set, kProbability)[row] = top[chosen].value / kept;
  }

  int64_t batch_, vocabulary_, parts_ = 1;
  bool greedy_;
  SamplingRule rule_;
  std::vector<std::vector<Logit>> found_;  // of each part of each row
};

}  // namespace

std::optional<std::string> sampling_unsupported(const OpParams& params) {
  if (std::optional<std::string> why = rows_unsupported(params)) return why;
  const int64_t vocabulary = params.axis("vocab"), k = params.axis("k");
  if (vocabulary > std::numeric_limits<int32_t>::max()) return "tokens are numbered below 2^31";
  if (params.variant != "greedy" && k > vocabulary)
    return fmt::format("k can be at most the vocabulary, {}, found {}", vocabulary, k);
  return std::nullopt;
}

Result<std::unique_ptr<PreparedOp>> prepare_sampling(Device& device, const OpParams& params) {
  if (const std::optional<std::string> why = sampling_unsupported(params)) return fail(*why, {}, {}, ExitCode::kUsage);
  return prepare_own<SamplingOp>(device, params);
}

}  // namespace llmprof::kernels::cpu
