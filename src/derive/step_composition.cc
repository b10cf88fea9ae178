#include "derive/step_composition.h"

#include <algorithm>
#include <map>

namespace llmprof {
namespace {

constexpr size_t kContinuedMin = 3;

int64_t rows_chosen(const StepDraft& step) { return std::max(step.chosen_rows, step.logit_rows); }

bool detected(const StepDraft& step) {
  return (step.source == StageSource::kDetected || step.recurs) && step.kind != StageKind::kVision && !step.host_only;
}

// More rows of logits than one prompt gives, fewer than tokens, and no equal parts.
bool packs_requests(const StepDraft& step) {
  const int64_t rows = rows_chosen(step);
  // A mixed step was found by the sequences that go on in it: its composition is known.
  if (!detected(step) || step.kind == StageKind::kMixed || !step.tokens_sure) return false;
  if (rows <= 1 || step.new_tokens <= rows) return false;
  const bool other_sequences = step.attention_sequences > 0 && step.attention_sequences != rows;
  return other_sequences || step.new_tokens % rows != 0;
}

// A step that looks like a part of a prompt which chooses a token for each of its rows.
bool chooses_for_all(const StepDraft& step) {
  return detected(step) && step.attention_sequences == 1 && step.new_tokens > 1 && step.context > step.new_tokens &&
         rows_chosen(step) == step.new_tokens;
}

// Devices whose steps hold several requests.
std::map<int32_t, bool> serving_devices(const std::vector<StepDraft>& steps) {
  std::map<int32_t, bool> devices;
  size_t continued = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepDraft& step = steps[i];
    const bool goes_on = i > 0 && steps[i - 1].device == step.device && chooses_for_all(step) &&
                         steps[i - 1].context + step.new_tokens == step.context;
    continued = goes_on ? continued + 1 : chooses_for_all(step) ? 1 : 0;
    if (packs_requests(step) || continued >= kContinuedMin) devices[step.device] = true;
  }
  return devices;
}

bool of_language_model(Category category) {
  return category == Category::kAttention || category == Category::kSampling || category == Category::kEmbedding ||
         category == Category::kRope || category == Category::kKvCache;
}

bool has_language_model(const Trace& trace) {
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu)
    if (of_language_model(trace.gpu_links.category[gpu]) || gives_logits(trace.works, trace.gpu_links.work[gpu]))
      return true;
  return false;
}

void forget(StepDraft& step) {
  step.kind = StageKind::kOther;
  step.kind_known = true;
  step.sequences = step.context = step.output_tokens = -1;
}

}  // namespace

void forget_unknown_compositions(const Trace& trace, std::vector<StepDraft>& steps) {
  const std::map<int32_t, bool> serving = serving_devices(steps);
  const bool by_period =
      std::any_of(steps.begin(), steps.end(), [](const StepDraft& step) { return step.by_period && detected(step); });
  const bool no_model = by_period && !has_language_model(trace);
  for (StepDraft& step : steps) {
    if (!detected(step)) continue;
    if (serving.count(step.device) > 0) {
      forget(step);
      step.stage = kSeveralRequests;
    } else if (no_model && step.by_period) {
      forget(step);
      step.new_tokens = -1;
    }
  }
}

}  // namespace llmprof
