#include "derive/grid_kinds.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace llmprof {
namespace {

constexpr int64_t kTokenBytesMax = 1024;  // token ids of 128 sequences; one row of logits is more
constexpr size_t kSmallerMin = 3;

struct PassKernel {
  StringId name = StringId::kEmpty;
  int64_t blocks = 0;
  Category category = Category::kOther;
};

struct Pass {
  size_t step = 0;
  std::vector<PassKernel> kernels;
  int64_t back_bytes = 0;   // of the copy to the host behind its last kernel
  int64_t back_ns = 0;      // when it was called
  int64_t input_bytes = 0;  // of the largest copy from the host before it
};

// A pass that runs `smaller`'s kernels on more rows, and on as many where its logits are made.
bool is_larger(const Pass& larger, const Pass& smaller) {
  size_t end = smaller.kernels.size();  // of what grows
  while (end > 0 && larger.kernels[end - 1].blocks == smaller.kernels[end - 1].blocks) --end;
  size_t attentions = 0;
  for (size_t i = 0; i < end; ++i) {
    const Category category = smaller.kernels[i].category;
    const bool grows = larger.kernels[i].blocks > smaller.kernels[i].blocks;
    const bool heavy = category == Category::kGemm || category == Category::kAttention;
    if (larger.kernels[i].blocks < smaller.kernels[i].blocks || (heavy && !grows)) return false;
    attentions += category == Category::kAttention ? 1 : 0;
  }
  size_t products = 0;
  for (size_t i = end; i < smaller.kernels.size(); ++i) {
    if (smaller.kernels[i].category == Category::kAttention) return false;
    products += smaller.kernels[i].category == Category::kGemm ? 1 : 0;
  }
  return attentions > 0 && products == 1;
}

// A pass of `smaller`'s kernels at least twice over, some of which may come once, with two others each time at most.
bool is_repeated(const Pass& larger, const Pass& smaller) {
  if (larger.kernels.size() * 2 < smaller.kernels.size() * 3) return false;
  std::map<StringId, std::pair<size_t, size_t>> counts;  // in the smaller, in the larger
  for (const PassKernel& kernel : smaller.kernels) ++counts[kernel.name].first;
  for (const PassKernel& kernel : larger.kernels) ++counts[kernel.name].second;
  size_t times = 0, others = 0;
  for (const auto& [name, count] : counts) {
    if (count.second < count.first) return false;
    if (count.first == 0) others += count.second;
    if (count.first > 0) times = std::max(times, count.second / count.first);
  }
  size_t recurring = 0;  // kernels of the smaller that come as often as any, but for one time
  for (const auto& [name, count] : counts)
    if (count.second + count.first > times * count.first) recurring += count.first;
  return times >= 2 && others <= 2 * times && 2 * recurring > smaller.kernels.size();
}

bool is_unknown(const StepDraft& step) {
  return step.kind == StageKind::kOther && !step.kind_known && !step.unseen && !step.host_only && step.new_tokens < 0;
}

// The passes of one device whose kind is unknown.
class PassesOfDevice {
 public:
  PassesOfDevice(const Trace& trace, const LaunchOrder& order, const HostCalls& calls, std::vector<StepDraft>& steps)
      : calls_(calls), steps_(steps) {
    int64_t given = 0;  // to the next pass
    Row at = kNoRow;
    for (size_t i = 0; i < order.size(); ++i) {
      const GpuOpId gpu = order.gpu[i];
      const Row step = trace.gpu_links.step[gpu];
      if (step == kNoRow || !is_unknown(steps[step]) || order.thread[i] != steps[step].thread) continue;
      if (step != at) passes_.push_back({step, {}, 0, 0, given});
      if (step != at) given = 0;
      at = step;
      Pass& pass = passes_.back();
      if (trace.gpu_ops.kind[gpu] == GpuOpKind::kKernel) {
        const LaunchConfigId config = trace.gpu_ops.config[gpu];
        pass.kernels.push_back({trace.gpu_ops.name[gpu], blocks_of(trace, config), trace.gpu_links.category[gpu]});
        pass.input_bytes = std::max(pass.input_bytes, given);
        pass.back_bytes = given = 0;
      } else if (trace.gpu_ops.path[gpu] == CopyPath::kHostToDevice) {
        given = std::max(given, trace.gpu_ops.bytes[gpu]);
      } else if (trace.gpu_ops.path[gpu] == CopyPath::kDeviceToHost && pass.back_bytes == 0) {
        pass.back_bytes = trace.gpu_ops.bytes[gpu];
        pass.back_ns = order.time_ns[i];
      }
    }
  }

  void settle() {
    std::map<std::vector<StringId>, std::vector<size_t>> by_kernels;  // passes
    for (size_t p = 0; p < passes_.size(); ++p) {
      std::vector<StringId> names;
      for (const PassKernel& kernel : passes_[p].kernels) names.push_back(kernel.name);
      by_kernels[std::move(names)].push_back(p);
    }
    for (const auto& [names, alike] : by_kernels) {
      if (alike.size() > kSmallerMin) settle_alike(alike);
    }
    const auto most = std::max_element(by_kernels.begin(), by_kernels.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (most != by_kernels.end() && most->second.size() >= kSmallerMin) {
      settle_token_by_token(most->second);
      settle_behind_prompts(most->second);
    }
  }

 private:
  static int64_t blocks_of(const Trace& trace, LaunchConfigId config) {
    if (config == kNoRow) return -1;
    const LaunchConfigs& table = trace.launch_configs;
    return int64_t{table.grid_x[config]} * table.grid_y[config] * table.grid_z[config];
  }

  // Passes that run the same kernels in the same order.
  void settle_alike(const std::vector<size_t>& alike) {
    std::map<std::vector<int64_t>, std::vector<size_t>> by_grids;
    for (const size_t p : alike) {
      std::vector<int64_t> grids;
      for (const PassKernel& kernel : passes_[p].kernels) grids.push_back(kernel.blocks);
      by_grids[std::move(grids)].push_back(p);
    }
    const auto most = std::max_element(by_grids.begin(), by_grids.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const std::vector<size_t>& smaller = most->second;
    if (smaller.size() < kSmallerMin || !go_on_by_themselves(smaller)) return;
    std::vector<size_t> prompts;
    bool followed = false;
    for (const auto& [grids, passes] : by_grids) {
      if (!is_larger(passes_[passes.front()], passes_[smaller.front()])) continue;
      prompts.insert(prompts.end(), passes.begin(), passes.end());
      for (const size_t p : passes) followed |= holds(smaller, p, p + 1) && holds(smaller, p, p + 2);
    }
    if (!followed) return;
    for (const size_t p : smaller) steps_[passes_[p].step].kind = StageKind::kDecode;
    for (const size_t p : prompts) steps_[passes_[p].step].kind = StageKind::kPrefill;
  }

  void settle_token_by_token(const std::vector<size_t>& smaller) {
    if (!is_unknown(steps_[passes_[smaller.front()].step]) || !go_on_by_themselves(smaller)) return;
    std::vector<size_t> prompts;
    bool followed = false;
    for (size_t p = 0; p < passes_.size(); ++p) {
      if (!is_repeated(passes_[p], passes_[smaller.front()])) continue;
      prompts.push_back(p);
      followed |= holds(smaller, p, p + 1) && holds(smaller, p, p + 2);
    }
    if (!followed) return;
    for (const size_t p : smaller) steps_[passes_[p].step].kind = StageKind::kDecode;
    for (const size_t p : prompts) steps_[passes_[p].step].kind = StageKind::kPrefill;
  }

  // Behind a prompt that is known by a library's kernels.
  void settle_behind_prompts(const std::vector<size_t>& alike) {
    if (!is_unknown(steps_[passes_[alike.front()].step]) || !go_on_by_themselves(alike)) return;
    const bool follow = std::any_of(alike.begin(), alike.end(), [&](size_t p) {
      const size_t step = passes_[p].step;
      return step > 0 && steps_[step - 1].device == steps_[step].device &&
             steps_[step - 1].kind == StageKind::kPrefill && holds(alike, p, p + 1) && holds(alike, p, p + 2);
    });
    if (!follow) return;
    for (const size_t p : alike) steps_[passes_[p].step].kind = StageKind::kDecode;
  }

  // Whether `next` is one of the passes, and no other step lies between it and `from`.
  bool holds(const std::vector<size_t>& passes, size_t from, size_t next) const {
    return std::binary_search(passes.begin(), passes.end(), next) &&
           passes_[next].step - passes_[from].step == next - from;
  }

  // Whether the host waits for a few bytes at the end of most of the passes, and gives them no more.
  bool go_on_by_themselves(const std::vector<size_t>& passes) const {
    size_t count = 0;
    for (const size_t p : passes) {
      const Pass& pass = passes_[p];
      const StepDraft& step = steps_[pass.step];
      if (pass.back_bytes <= 0 || pass.back_bytes > kTokenBytesMax || pass.input_bytes > pass.back_bytes) continue;
      const size_t next = pass.step + 1;
      const bool last = next >= steps_.size() || steps_[next].device != step.device;
      const int64_t until = last ? std::numeric_limits<int64_t>::max() : std::max(step.end_ns, steps_[next].begin_ns);
      count += calls_.first_blocking(step.thread, pass.back_ns, until) != nullptr ? 1 : 0;
    }
    return count * 2 > passes.size();
  }

  const HostCalls& calls_;
  std::vector<StepDraft>& steps_;
  std::vector<Pass> passes_;  // by step
};

}  // namespace

void settle_by_grids(const Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                     std::vector<StepDraft>& steps) {
  if (std::none_of(steps.begin(), steps.end(), is_unknown)) return;
  for (const LaunchOrder& order : orders) PassesOfDevice(trace, order, calls, steps).settle();
}

}  // namespace llmprof
