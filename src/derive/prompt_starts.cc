#include "derive/prompt_starts.h"

#include <algorithm>
#include <limits>

namespace llmprof {
namespace {

bool may_begin_later(const StepDraft& step) {
  return step.kind == StageKind::kPrefill && step.source == StageSource::kDetected && !step.unseen && !step.host_only &&
         !step.continues;
}

// One activity goes, the first of those that the step still has.
void leave_out(const Trace& trace, GpuOpId gpu, StepDraft& step) {
  --step.launches;
  step.gpu_ns -= trace.gpu_ops.dur_ns[gpu];
  step.gpu_start_ns = std::numeric_limits<int64_t>::max();  // of what is left
}

}  // namespace

void begin_prompts_behind_results(Trace& trace, const std::vector<LaunchOrder>& orders, std::vector<StepDraft>& steps) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  for (const LaunchOrder& order : orders) {
    // By step, on its own thread: the last copy back before the first product, and whether that has come.
    std::vector<size_t> result(steps.size(), kNone);
    std::vector<uint8_t> computes(steps.size(), 0);
    for (size_t i = 0; i < order.size(); ++i) {
      const GpuOpId gpu = order.gpu[i];
      const Row row = trace.gpu_links.step[gpu];
      if (row == kNoRow || computes[row] != 0 || !may_begin_later(steps[row]) || order.thread[i] != steps[row].thread)
        continue;
      const Category category = trace.gpu_links.category[gpu];
      computes[row] = category == Category::kGemm || category == Category::kAttention ? 1 : 0;
      if (trace.gpu_ops.path[gpu] == CopyPath::kDeviceToHost) result[row] = i;
    }
    for (size_t i = 0; i < order.size(); ++i) {
      const GpuOpId gpu = order.gpu[i];
      const Row row = trace.gpu_links.step[gpu];
      // Without products it is not known where the pass begins.
      if (row == kNoRow || computes[row] == 0 || result[row] == kNone) continue;
      StepDraft& step = steps[row];
      if (i <= result[row]) {
        trace.gpu_links.step[gpu] = kNoRow;
        leave_out(trace, gpu, step);
        continue;
      }
      if (!says_what_runs(step, order.thread[i])) continue;
      if (step.gpu_start_ns == std::numeric_limits<int64_t>::max()) {
        step.begin_ns = step.host_start_ns = order.time_ns[i];
        step.window_start_ns = std::max(step.window_start_ns, step.begin_ns);
      }
      step.gpu_start_ns = std::min(step.gpu_start_ns, trace.gpu_ops.start_ns[gpu]);
    }
  }
}

}  // namespace llmprof
