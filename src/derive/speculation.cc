#include "derive/speculation.h"

#include <algorithm>
#include <map>
#include <set>

#include "derive/step_kinds.h"

namespace llmprof {
namespace {

constexpr size_t kRoundsMin = 3;
constexpr size_t kOwnRoundsMin = 4;

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
    if (verifications_.size() < kRoundsMin) return settle_own_guesses();
    const StepDraft* before = nullptr;
    for (const size_t i : passes_) {
      StepDraft& step = steps_[i];
      const StepDraft* previous = before;
      before = &step;
      if (step.kind_known && !step.split) continue;
      const bool drafts = draft_weights_.count(step.weights) > 0;
      const int64_t sequences = sequences_behind(step, sequences_), tokens = per_sequence(step, sequences);
      if (verifications_.count(i) > 0 || (verifying_weights_.count(step.weights) > 0 && checks_tokens(step, tokens))) {
        step.sequences = sequences;
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
  // Heads of the model itself, or words of the text so far, give guesses as well: then every pass behind the prompt
  // checks as many guesses as the one before, by the same kernels, and the model is not run for one token of a
  // sequence.
  void settle_own_guesses() {
    struct Alike {
      size_t count = 0, in_turn = 0;  // of them directly behind another one
      bool after_prompt = false;
    };
    std::map<uint64_t, Alike> passes;
    const StepDraft* before = nullptr;
    double single_weights = 0;  // of passes over one token; a head alone, until a graph holds it, has few
    const auto tokens_of = [](const StepDraft& step) {
      return per_sequence(step, std::max<int64_t>(step.sequences, 1));
    };
    for (const size_t i : passes_) {
      const StepDraft& step = steps_[i];
      const int64_t tokens = tokens_of(step);
      if (tokens == 1) single_weights = std::max(single_weights, step.weights);
      if (step.kind == StageKind::kPrefill && is_few(tokens) && !named(step)) {
        Alike& alike = passes[step.names_hash];
        ++alike.count;
        if (before != nullptr && before->names_hash == step.names_hash) ++alike.in_turn;
        alike.after_prompt |= before != nullptr && tokens_of(*before) > kDraftTokensMax;
      }
      before = &step;
    }
    for (const size_t i : passes_) {
      StepDraft& step = steps_[i];
      const std::map<uint64_t, Alike>::const_iterator found = passes.find(step.names_hash);
      if (found == passes.end() || named(step) || !is_few(tokens_of(step)) || step.weights < 2 * single_weights)
        continue;
      const auto& [count, in_turn, after_prompt] = found->second;
      if (after_prompt && count >= kOwnRoundsMin && 2 * in_turn >= count) mark(step, "verification of drafts", -1);
    }
  }

  static bool named(const StepDraft& step) { return step.kind_known && !step.split; }

  // A pass that gives logits at each of its places looks like one over a token of as many sequences. Behind drafts of
  // fewer it is over several tokens of theirs, if it has as many places for each.
  static int64_t sequences_behind(const StepDraft& step, int64_t drafted_for) {
    const bool places = std::max(step.chosen_rows, step.logit_rows) == step.new_tokens && step.new_tokens > 0;
    if (step.sequences > 0 && !(places && step.sequences == step.new_tokens)) return step.sequences;
    if (drafted_for > 0 && (!places || step.new_tokens % drafted_for == 0)) return drafted_for;
    return places ? step.new_tokens : -1;
  }

  void find() {
    std::vector<size_t> drafts;
    int64_t drafted_for = -1;  // sequences of the last of them
    for (const size_t i : passes_) {
      const StepDraft& step = steps_[i];
      const int64_t sequences = sequences_behind(step, drafts.empty() ? -1 : drafted_for);
      const int64_t tokens = per_sequence(step, sequences);
      const int64_t drafted = static_cast<int64_t>(drafts.size());
      if (named(step) || !is_few(tokens) || step.weights <= 0) {
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
      drafted_for = sequences;
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
