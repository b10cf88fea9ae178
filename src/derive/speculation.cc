#include "derive/speculation.h"

#include <algorithm>
#include <set>

#include "derive/step_shapes.h"

namespace llmprof {
namespace {

constexpr size_t kRoundsMin = 3;

int64_t per_sequence(const StepDraft& step, int64_t sequences) {
  if (step.new_tokens <= 0 || sequences <= 0 || step.new_tokens % sequences != 0) return -1;
  return step.new_tokens / sequences;
}

bool is_few(int64_t tokens) { return tokens > 0 && tokens <= kDraftTokensMax; }

// Attends to earlier tokens and gives logits for all of its own.
bool checks_tokens(const StepDraft& step, int64_t tokens) {
  const int64_t rows = std::max(step.chosen_rows, step.logit_rows);
  if (tokens < 2 || !is_few(tokens) || (step.context < 0 && rows <= 0)) return false;
  return (step.context < 0 || step.context > tokens) && (rows <= 0 || rows == step.new_tokens);
}

// The passes of one device.
class Speculation {
 public:
  Speculation(std::vector<StepDraft>& steps, size_t first, size_t last) : steps_(steps) {
    for (size_t i = first; i < last; ++i) {
      if (!steps[i].unseen && !steps[i].host_only && steps[i].kind != StageKind::kVision) passes_.push_back(i);
    }
    find();
  }

  void settle() {
    if (verifications_.size() < kRoundsMin) return;
    const StepDraft* before = nullptr;
    for (const size_t i : passes_) {
      StepDraft& step = steps_[i];
      const StepDraft* previous = before;
      before = &step;
      if (step.kind_known && !step.split) continue;
      const bool drafts = draft_weights_.count(step.weights) > 0;
      const int64_t tokens = per_sequence(step, step.sequences > 0 ? step.sequences : sequences_);
      if (verifications_.count(i) > 0 || (verifying_weights_.count(step.weights) > 0 && checks_tokens(step, tokens))) {
        mark(step, "verification of drafts", -1);
      } else if (drafts && !is_few(tokens) && previous != nullptr && previous->kind == StageKind::kPrefill &&
                 step.annotation != kNoRow && previous->annotation == step.annotation) {
        continue;  // both read the prompt of the range
      } else if (drafts) {
        mark(step, "drafts", 0);
      }
    }
  }

 private:
  void find() {
    std::vector<size_t> drafts;
    for (const size_t i : passes_) {
      const StepDraft& step = steps_[i];
      const int64_t sequences = step.sequences > 0 ? step.sequences
                                : !drafts.empty()  ? steps_[drafts.back()].sequences
                                                   : -1;
      const int64_t tokens = per_sequence(step, sequences);
      const int64_t drafted = static_cast<int64_t>(drafts.size());
      const bool named = step.kind_known && !step.split;
      if (named || !is_few(tokens) || step.weights <= 0) {
        drafts.clear();
        continue;
      }
      const double weights = drafts.empty() ? 0 : steps_[drafts.back()].weights;
      if (drafted > 0 && (tokens == drafted || tokens == drafted + 1) && checks_tokens(step, tokens) &&
          step.weights > weights) {
        verifications_.insert(i);
        verifying_weights_.insert(step.weights);
        draft_weights_.insert(weights);
        sequences_ = sequences;
        drafts.clear();
        continue;
      }
      if (step.weights != weights) drafts.clear();
      drafts.push_back(i);
    }
  }

  static void mark(StepDraft& step, std::string_view stage, int64_t output_tokens) {
    step.kind = StageKind::kSpeculative;
    step.kind_known = true;
    step.output_tokens = output_tokens;
    if (step.stage.empty()) step.stage = stage;
  }

  std::vector<StepDraft>& steps_;
  std::vector<size_t> passes_;
  std::set<size_t> verifications_;
  std::set<double> verifying_weights_, draft_weights_;
  int64_t sequences_ = -1;
};

}  // namespace

void settle_speculation(std::vector<StepDraft>& steps) {
  for (size_t first = 0, last = 0; first < steps.size(); first = last) {
    while (last < steps.size() && steps[last].device == steps[first].device) ++last;
    Speculation(steps, first, last).settle();
  }
}

}  // namespace llmprof
