// Tokens to experts on the CPU's team.
#include "kernels/reference/routing.h"

#include <cmath>
#include <limits>

#include "device/cpu/cpu_device.h"
#include "device/elements.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_op.h"

namespace llmprof::kernels::cpu {
namespace {

enum : size_t { kIds, kWeights, kOffsets, kOrder, kLogits };

class RoutingOp : public OwnOp {
 public:
  RoutingOp(device::cpu::CpuDevice& device, const OpParams& params)
      : OwnOp(device, params, plan(params)),
        tokens_(params.axis("tokens")),
        experts_(params.axis("experts")),
        k_(params.axis("k")),
        counts_(static_cast<size_t>(device.team().threads()), std::vector<int32_t>(static_cast<size_t>(experts_))) {
    add("own", [this](int set) { run(set); });
  }

 protected:
  Result<Check> compare() override {
    return check_routing(device_, {sets_.at(0, kLogits), sets_.at(0, kIds), sets_.at(0, kWeights),
                                   sets_.at(0, kOffsets), sets_.at(0, kOrder), params_.dtype, tokens_, experts_, k_});
  }

 private:
  static std::vector<BufferPlan> plan(const OpParams& params) {
    const size_t tokens = static_cast<size_t>(params.axis("tokens")),
                 experts = static_cast<size_t>(params.axis("experts")),
                 slots = tokens * static_cast<size_t>(params.axis("k"));
    const size_t logits = tokens * experts * static_cast<size_t>(dtype_bytes(params.dtype));
    return {{4 * slots, DType::kInt32, true, params.seed},
            {4 * slots, DType::kFp32, true, params.seed},
            {4 * (experts + 1), DType::kInt32, true, params.seed},
            {4 * slots, DType::kInt32, true, params.seed},
            {logits, params.dtype, false, params.seed + 1}};
  }

  // The k largest by falling logit, kept in order as they are found: k is small beside the number of experts.
  void choose(const float* logits, int32_t* ids, float* weights) const {
    int64_t kept = 0;
    for (int64_t expert = 0; expert < experts_; ++expert) {
      const float value = logits[expert];
      if (kept == k_ && !(value > weights[k_ - 1])) continue;
      int64_t at = kept < k_ ? kept++ : k_ - 1;
      for (; at > 0 && value > weights[at - 1]; --at) {
        weights[at] = weights[at - 1];
        ids[at] = ids[at - 1];
      }
      weights[at] = value;
      ids[at] = static_cast<int32_t>(expert);
    }
    float sum = 0;
    const float most = weights[0];
    for (int64_t i = 0; i < k_; ++i) sum += weights[i] = std::exp(weights[i] - most);
    for (int64_t i = 0; i < k_; ++i) weights[i] /= sum;
  }

  void run(int set) {
    const int threads = device_.team().threads();
    int32_t* const ids = sets_.data<int32_t>(set, kIds);
    float* const weights = sets_.data<float>(set, kWeights);
    const auto tokens_of = [&](int thread) {
      const auto [first, last] = device::cpu::share_of(static_cast<size_t>(tokens_), 1, thread, threads);
      return std::pair<int64_t, int64_t>(first, last);
    };
    device_.team().run([&](int thread) {
      std::vector<int32_t>& counts = counts_[static_cast<size_t>(thread)];
      std::fill(counts.begin(), counts.end(), 0);
      std::vector<float> row(static_cast<size_t>(experts_));
      const auto [first, last] = tokens_of(thread);
      for (int64_t token = first; token < last; ++token) {
        read_row(set, token, row);
        choose(row.data(), ids + token * k_, weights + token * k_);
        for (int64_t i = 0; i < k_; ++i) ++counts[static_cast<size_t>(ids[token * k_ + i])];
      }
    });
    // Counts become the places where each thread's slots of an expert begin.
    int32_t* const offsets = sets_.data<int32_t>(set, kOffsets);
    int32_t place = 0;
    for (size_t expert = 0; expert < static_cast<size_t>(experts_); ++expert) {
      offsets[expert] = place;
      for (std::vector<int32_t>& counts : counts_) {
        const int32_t count = counts[expert];
        counts[expert] = place;
        place += count;
      }
    }
    offsets[experts_] = place;
    int32_t* const order = sets_.data<int32_t>(set, kOrder);
    device_.team().run([&](int thread) {
      std::vector<int32_t>& places = counts_[static_cast<size_t>(thread)];
      const auto [first, last] = tokens_of(thread);
      for (int64_t slot = first * k_; slot < last * k_; ++slot)
        order[places[static_cast<size_t>(ids[slot])]++] = static_cast<int32_t>(slot);
    });
  }

  void read_row(int set, int64_t token, std::vector<float>& row) const {
    if (params_.dtype == DType::kFp32) {
      const float* const from = sets_.data<float>(set, kLogits) + token * experts_;
      row.assign(from, from + experts_);
      return;
    }
    const uint16_t* const from = sets_.data<uint16_t>(set, kLogits) + token * experts_;
    for (size_t i = 0; i < row.size(); ++i) row[i] = device::from_bf16(from[i]);
  }

  int64_t tokens_, experts_, k_;
  std::vector<std::vector<int32_t>> counts_;  // of each thread
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_moe_routing(Device& device, const OpParams& params) {
  return prepare_own<RoutingOp>(device, params);
}

}  // namespace llmprof::kernels::cpu
