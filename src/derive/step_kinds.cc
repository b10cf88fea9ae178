#include "derive/step_kinds.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "derive/speculation.h"

namespace llmprof {
namespace {

// GPU time that a step without shapes usually takes: the median over those that repeat the kernels of another one.
int64_t usual_gpu_ns(const std::vector<StepDraft>& steps, const std::unordered_map<uint64_t, uint32_t>& repeats) {
  std::vector<int64_t> times;
  for (const StepDraft& step : steps) {
    if (!step.unseen && repeats.at(step.names_hash) >= 2) times.push_back(step.gpu_ns);
  }
  if (times.empty()) return -1;
  const std::vector<int64_t>::iterator middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The most rows that a product of the steps that repeat each other has; -1 where they differ or are not known.
int64_t rows_of_repeats(const std::vector<StepDraft>& steps, const std::unordered_map<uint64_t, uint32_t>& repeats) {
  std::map<int64_t, size_t> rows;
  size_t repeated = 0;
  for (const StepDraft& step : steps) {
    if (step.unseen || repeats.at(step.names_hash) < 2) continue;
    ++rows[step.most_gemm_rows];
    ++repeated;
  }
  const auto most =
      std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != rows.end() && most->second * 2 > repeated && most->first > 0 ? most->first : -1;
}

// Kernels for one query per sequence. A single matrix-vector product proves nothing: a prompt's last token alone goes
// through the output layer.
bool one_query(const StepDraft& step) {
  return step.decode_attentions > 0 || (step.vector_gemms > 1 && step.vector_gemms >= step.heavy / 2);
}

// Kind by shapes.
StageKind shaped_kind(const StepDraft& step, const StepDraft* before) {
  if (step.new_tokens == step.sequences) return StageKind::kDecode;
  const bool goes_on = before != nullptr && before->kind != StageKind::kPrefill && before->output_tokens > 0 &&
                       step.output_tokens > before->output_tokens && step.new_tokens > step.output_tokens;
  return goes_on ? StageKind::kMixed : StageKind::kPrefill;
}

// A longer step with other kernels, straight before steps that repeat each other: a prompt and the tokens after it.
bool opens_repeats(const std::vector<StepDraft>& steps, size_t i, int64_t usual_ns,
                   const std::unordered_map<uint64_t, uint32_t>& repeats) {
  if (usual_ns < 0 || i + 1 >= steps.size() || steps[i + 1].device != steps[i].device) return false;
  const StepDraft& next = steps[i + 1];
  return repeats.at(steps[i].names_hash) == 1 && repeats.at(next.names_hash) >= 2 && steps[i].gpu_ns > usual_ns &&
         steps[i].heavy > 1 && steps[i].heavy * 2 >= next.heavy;
}

// Replays that were recorded as a whole are decode steps where replays that take about as long are.
void settle_whole_graphs(std::vector<StepDraft>& steps) {
  constexpr double kAlike = 0.25;
  std::map<int32_t, std::vector<int64_t>> replays;  // GPU times of decode steps by graph, per device
  for (const StepDraft& step : steps) {
    if (step.kind == StageKind::kDecode && step.graph_nodes > 0) replays[step.device].push_back(step.gpu_ns);
  }
  for (std::pair<const int32_t, std::vector<int64_t>>& entry : replays) {
    std::sort(entry.second.begin(), entry.second.end());
  }
  for (StepDraft& step : steps) {
    const std::map<int32_t, std::vector<int64_t>>::const_iterator times = replays.find(step.device);
    if (!step.whole_graph || step.kind_known || step.kind != StageKind::kOther || times == replays.end()) continue;
    const int64_t slack = static_cast<int64_t>(kAlike * static_cast<double>(step.gpu_ns));
    const std::vector<int64_t>::const_iterator at =
        std::lower_bound(times->second.begin(), times->second.end(), step.gpu_ns - slack);
    if (at != times->second.end() && *at <= step.gpu_ns + slack) step.kind = StageKind::kDecode;
  }
}

// Whether passes with so many weights are of two models: one has half as many as the other. Which experts a pass
// chooses changes them too. 0: not known.
bool of_two_models(double weights, double others) {
  return weights > 0 && others > 0 && (2 * weights < others || 2 * others < weights);
}

// A pass without logits has those of the output layer less.
bool of_one_model(const StepDraft& pass, const StepDraft& with_logits) {
  return !of_two_models(pass.weights, with_logits.weights - with_logits.logit_weights);
}

// A prompt ends with logits, and so does the last piece of one. Passes behind which no such piece comes are an
// encoder's (of the next frame, in each step), where prompts of the recording are known to have logits. Those of
// another model lead to a prompt where nearly all of them stand directly before one; else they are a judge's, say, that
// reads answers too.
void settle_encoders(std::vector<StepDraft>& steps) {
  struct OtherModel {
    std::vector<size_t> at;
    size_t to_prompts = 0;
  };
  const auto is_prompt = [](const StepDraft& step) {
    return step.kind == StageKind::kPrefill && !step.kind_known && !step.unseen;
  };
  std::map<int32_t, const StepDraft*> ends;  // by device: the prompt that ends with logits and lies behind
  std::map<int32_t, bool> known;
  std::map<std::pair<int32_t, double>, OtherModel> others;  // by their weights
  for (const StepDraft& step : steps) known[step.device] |= is_prompt(step) && step.logit_rows > 0;
  for (size_t i = steps.size(); i-- > 0;) {
    StepDraft& step = steps[i];
    if (!is_prompt(step) || !known[step.device]) continue;
    const StepDraft*& end = ends[step.device];
    if (step.logit_rows > 0 || step.samples) end = &step;
    if (end == nullptr) step.kind = StageKind::kOther;
    if (end == nullptr || end == &step || of_one_model(step, *end)) continue;
    OtherModel& other = others[{step.device, step.weights}];
    other.at.push_back(i);
    const bool leads =
        steps[i + 1].device == step.device && is_prompt(steps[i + 1]) && of_one_model(steps[i + 1], *end);
    other.to_prompts += leads || &steps[i + 1] == end ? 1 : 0;
  }
  for (const auto& [weights, other] : others) {
    if (other.to_prompts * 10 >= other.at.size() * 9) continue;
    for (const size_t i : other.at) steps[i].kind = StageKind::kOther, steps[i].kind_known = true;
  }
}

// Ranges whose words name tokens, with passes of another model in all of them that give no logits: a name of a file, or
// what a user wrote ("look in decode_plan_v2.txt").
void settle_words(std::vector<StepDraft>& steps) {
  std::map<int32_t, const StepDraft*> model;  // the largest pass that ends with logits
  for (const StepDraft& step : steps) {
    const StepDraft*& most = model[step.device];
    if (step.logit_rows > 0 && (most == nullptr || step.weights > most->weights)) most = &step;
  }
  std::map<std::string, bool> stages;
  for (const StepDraft& step : steps) {
    if (step.unseen || !step.kind_known || step.kind != StageKind::kDecode || step.annotation == kNoRow) continue;
    const StepDraft* const most = model[step.device];
    const bool other = most != nullptr && step.weights > 0 && step.logit_rows <= 0 && !of_one_model(step, *most);
    const auto [stage, is_first] = stages.try_emplace(step.stage, other);
    if (!is_first) stage->second = stage->second && other;
  }
  for (StepDraft& step : steps) {
    const std::map<std::string, bool>::const_iterator stage = stages.find(step.stage);
    if (stage != stages.end() && stage->second && step.kind == StageKind::kDecode && step.annotation != kNoRow)
      step.kind = StageKind::kOther;
  }
}

// Passes each of which runs on one token of each sequence more than the one before, and attends to no other: decoding
// without a cache of keys and values, which reads the whole text for each token.
void settle_whole_texts(std::vector<StepDraft>& steps) {
  constexpr size_t kGrowsMin = 4;
  const auto grows = [&](size_t i) {
    const StepDraft &before = steps[i - 1], &step = steps[i];
    return step.device == before.device && step.kind == StageKind::kPrefill && before.kind == StageKind::kPrefill &&
           !step.kind_known && !step.unseen && step.sequences > 0 && step.sequences == before.sequences &&
           step.new_tokens == before.new_tokens + step.sequences && step.gemm_rows == step.new_tokens &&
           (step.context < 0 || step.context * step.sequences == step.new_tokens);
  };
  for (size_t i = 1, last = 0; i < steps.size(); i = last + 1) {
    for (last = i; last < steps.size() && grows(last); ++last) {
    }
    if (last - i < kGrowsMin) continue;
    for (size_t at = i; at < last; ++at) {
      StepDraft& step = steps[at];
      step.kind = StageKind::kDecode;
      step.context = step.new_tokens / step.sequences;
      step.new_tokens = step.output_tokens = step.sequences;
    }
  }
}

// An encoder that runs again for each token of its decoder: where keys and values are made of what it gives, as with
// the prompt, products on its rows are among the decoder's; where these are kept, there are none, and nothing reads
// what it gives. A decoder that gives logits at all of its places, fewer than in the prompt, makes a token at each.
void settle_idle_encoders(std::vector<StepDraft>& steps) {
  constexpr int64_t kProductsMin = 8, kTimesAsMany = 16;
  const StepDraft* prompt = nullptr;
  for (StepDraft& step : steps) {
    if (prompt != nullptr && prompt->device != step.device) prompt = nullptr;
    if (step.unseen || step.kind_known || step.kind != StageKind::kPrefill || step.leading < kProductsMin) continue;
    if (step.rows_return) {
      prompt = &step;
      continue;
    }
    const bool idle = prompt != nullptr && step.leading_rows == prompt->leading_rows &&
                      step.leading == prompt->leading && step.following_rows <= prompt->following_rows &&
                      step.following >= kProductsMin && step.leading_rows >= kTimesAsMany * step.following_rows &&
                      step.logit_rows == step.following_rows;
    if (!idle) continue;
    step.kind = StageKind::kDecode;
    step.new_tokens = step.sequences = step.output_tokens = step.following_rows;
    step.context = -1;
  }
}

// Ranges of a text that says nothing, of passes that nothing is known of, nearly all of them directly before a prompt:
// what comes before its first token.
void settle_leading(std::vector<StepDraft>& steps) {
  constexpr size_t kLeadingStepsMin = 3;
  struct Leading {
    std::vector<size_t> at;
    size_t to_prompts = 0;
  };
  std::map<std::pair<int32_t, std::string>, Leading> stages;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].recurs || steps[i].unseen) continue;
    Leading& leading = stages[{steps[i].device, steps[i].stage}];
    leading.at.push_back(i);
    const bool unknown = steps[i].kind == StageKind::kOther && !steps[i].kind_known;
    const bool before =
        i + 1 < steps.size() && steps[i + 1].device == steps[i].device && steps[i + 1].kind == StageKind::kPrefill;
    leading.to_prompts += unknown && before ? 1 : 0;
  }
  for (const auto& [stage, leading] : stages) {
    if (leading.at.size() < kLeadingStepsMin || leading.to_prompts * 10 < leading.at.size() * 9) continue;
    for (const size_t i : leading.at)
      if (steps[i].kind == StageKind::kOther) steps[i].kind = StageKind::kVision;
  }
}

}  // namespace

void settle_kinds(const HostCalls& calls, std::vector<StepDraft>& steps) {
  std::unordered_map<uint64_t, uint32_t> repeats;
  for (const StepDraft& step : steps) repeats[step.names_hash] += step.unseen ? 0 : 1;
  const int64_t usual_ns = usual_gpu_ns(steps, repeats), rows = rows_of_repeats(steps, repeats);
  bool generates = false;  // a prompt was seen before the steps that repeat
  int64_t prompted = -1;   // sequences of the latest prompt
  for (size_t i = 0; i < steps.size(); ++i) {
    StepDraft& step = steps[i];
    const StepDraft* before = i > 0 && steps[i - 1].device == step.device ? &steps[i - 1] : nullptr;
    if (before == nullptr) generates = false, prompted = -1;
    // Logits of every row are those of a text's tokens, or of one token each of so many sequences: of those, where the
    // prompt before gave as many first tokens, and the host waits for each. One of two models that run for a token has
    // no wait behind it, and a range of any words may be a part of a step.
    const bool last = i + 1 == steps.size() || steps[i + 1].device != step.device;
    const int64_t next_ns = last ? std::numeric_limits<int64_t>::max() : steps[i + 1].begin_ns;
    if (step.source == StageSource::kDetected && step.sequences < 0 && step.new_tokens > 0 &&
        step.logit_rows == step.new_tokens && prompted == step.new_tokens && repeats[step.names_hash] >= 2 &&
        calls.first_blocking(step.thread, step.last_launch_ns, next_ns) != nullptr)
      step.sequences = prompted;
    const bool shaped = step.new_tokens > 0 && step.sequences > 0;
    const bool repeated = repeats[step.names_hash] >= 2;
    if (step.kind_known) {
      // A range called "generation" may hold the prompt as well.
      const bool prompt = step.split && shaped && step.new_tokens / step.sequences > kDraftTokensMax;
      if (prompt && step.kind == StageKind::kDecode) step.kind = StageKind::kPrefill;
      // Nor is all that a range holds a prompt whose words say so.
      const bool token = step.split && shaped && step.new_tokens == step.sequences && repeated;
      if (token && step.kind == StageKind::kPrefill) step.kind = StageKind::kDecode;
    } else if (shaped) {
      step.kind = shaped_kind(step, before);
    } else if (!repeated && step.samples && rows > 0 && step.most_gemm_rows == rows) {
      step.kind = StageKind::kDecode;  // longer or not, no more tokens at a time run through it than through the others
    } else if (opens_repeats(steps, i, usual_ns, repeats) && (!step.recurs || step.samples)) {
      step.kind = StageKind::kPrefill;
      generates = true;
    } else if (one_query(step) || (repeated && (step.samples || (generates && !step.recurs)))) {
      step.kind = StageKind::kDecode;
    } else if (step.samples && step.heavy > 1 && usual_ns > 0 && step.gpu_ns > usual_ns) {
      step.kind = StageKind::kPrefill;
    }
    if (step.kind == StageKind::kDecode && step.new_tokens < 0 && step.source == StageSource::kDetected) {
      step.new_tokens = step.sequences;  // what makes it a decode step: one token per sequence
    }
    if (step.kind == StageKind::kPrefill && step.sequences > 0 && step.new_tokens > step.sequences)
      prompted = step.sequences;
  }
  settle_speculation(steps);
  settle_whole_graphs(steps);
  settle_encoders(steps);
  settle_words(steps);
  settle_idle_encoders(steps);
  settle_leading(steps);
  settle_whole_texts(steps);
}

void settle_recurring(std::vector<StepDraft>& steps) {
  struct Seen {
    size_t count = 0;
    int64_t longest_ns = 0;
    double weights = 0;  // the most of one
  };
  struct Kinds {
    std::map<StageKind, Seen> known;
    size_t recorded = 0;
    bool drafts = true;
    size_t sum() const {
      return std::accumulate(known.begin(), known.end(), size_t{0},
                             [](size_t sum, const auto& one) { return sum + one.second.count; });
    }
  };
  std::map<std::string, Kinds> stages;
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepDraft& step = steps[i];
    if (!step.recurs || step.unseen) continue;
    // A range that holds an encoder and the prompt behind it is a prompt where nothing in it is seen.
    const bool leads = step.kind == StageKind::kVision && i + 1 < steps.size() && step.annotation != kNoRow &&
                       steps[i + 1].annotation == step.annotation;
    if (leads) continue;
    Kinds& kinds = stages[step.stage];
    ++kinds.recorded;
    if (step.kind == StageKind::kOther) continue;
    Seen& seen = kinds.known[step.kind];
    ++seen.count;
    seen.longest_ns = std::max(seen.longest_ns, step.end_ns - step.begin_ns);
    seen.weights = std::max(seen.weights, step.weights);
    kinds.drafts &= step.kind == StageKind::kSpeculative && step.output_tokens == 0;
  }
  // What all of the recorded ones are; or nine of ten, if it takes no longer than those. So few tokens of a sequence
  // may be drafts that are checked, as well as a prompt.
  constexpr size_t kMany = 10;
  for (StepDraft& step : steps) {
    const bool few_tokens = step.kind == StageKind::kPrefill && step.new_tokens > 0 &&
                            step.new_tokens / std::max<int64_t>(step.sequences, 1) <= kDraftTokensMax;
    if (!step.recurs || step.kind_known || (step.kind != StageKind::kOther && !few_tokens)) continue;
    const Kinds& kinds = stages[step.stage];
    const size_t known = kinds.sum();
    if (known * 2 <= kinds.recorded) continue;
    for (const auto& [kind, seen] : kinds.known) {
      const bool nearly =
          known >= kMany && seen.count * 10 >= known * 9 && step.end_ns - step.begin_ns <= seen.longest_ns;
      if ((seen.count == known || nearly) && !of_two_models(step.weights, seen.weights)) step.kind = kind;
    }
    if (kinds.drafts && step.kind == StageKind::kSpeculative) step.output_tokens = 0;
  }
}

void settle_sequences(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps) {
  if (!is_live_recording(trace)) return;
  int64_t after = -1;  // sequences of the decode step that follows on the device
  for (size_t i = steps.size(); i-- > 0;) {
    StepDraft& step = steps[i];
    if (i + 1 < steps.size() && steps[i + 1].device != step.device) after = -1;
    if (step.kind == StageKind::kDecode) {
      if (step.sequences < 0 && step.new_tokens > 0) step.sequences = step.new_tokens;
      if (step.sequences > 0) after = step.sequences;
    } else if (step.kind == StageKind::kPrefill && step.sequences < 0 && after > 0 && step.new_tokens % after == 0) {
      step.sequences = after;
    }
    const bool by_logits = step.kind != StageKind::kSpeculative && step.logit_rows > 0;
    if (step.output_tokens < 0 && by_logits) step.output_tokens = step.sequences;
  }

  int64_t context = -1, sequences = -1;
  for (size_t i = 0; i < steps.size(); ++i) {
    StepDraft& step = steps[i];
    const StepDraft* before = i > 0 && steps[i - 1].device == step.device ? &steps[i - 1] : nullptr;
    if (before == nullptr) context = -1;
    const bool hidden = before != nullptr && step.source == StageSource::kDetected &&
                        RecordedSpans::touches(recorded.unrecorded(step.device), before->begin_ns, step.begin_ns);
    if (hidden) context = -1;
    if (step.kind == StageKind::kPrefill) {
      // A prompt whose part before produced nothing may be the rest of a longer one.
      const bool rest = before != nullptr && before->kind == StageKind::kPrefill && before->output_tokens <= 0;
      const bool whole = step.sequences > 0 && step.new_tokens > 0 && step.new_tokens % step.sequences == 0;
      sequences = step.sequences;
      context = whole && !rest && step.context <= 0 ? step.new_tokens / step.sequences : step.context;
    } else if (step.kind == StageKind::kDecode) {
      const bool goes_on = step.sequences < 0 || step.sequences == sequences;
      context = context > 0 && goes_on ? context + 1 : -1;
    } else if (step.kind != StageKind::kVision) {
      context = -1;
    }
    if (step.context < 0 && step.kind != StageKind::kVision) step.context = context;
  }
}

void settle_prompts(const HostCalls& calls, std::vector<StepDraft>& steps) {
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    StepDraft& prompt = steps[i];
    const StepDraft& next = steps[i + 1];
    if (prompt.kind != StageKind::kPrefill || prompt.output_tokens >= 0) continue;
    if (next.kind != StageKind::kDecode || next.device != prompt.device || prompt.sequences <= 0) continue;
    const bool same = next.sequences == prompt.sequences && next.attended == prompt.attended + prompt.sequences;
    if (same && prompt.attended > 0) prompt.output_tokens = prompt.sequences;
  }
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    StepDraft& prompt = steps[i];
    const StepDraft& next = steps[i + 1];
    const bool together = prompt.split && next.split && prompt.annotation == next.annotation &&
                          prompt.kind == StageKind::kPrefill && next.kind == StageKind::kPrefill;
    if (together && calls.first_blocking(prompt.thread, prompt.last_launch_ns, next.begin_ns) == nullptr)
      prompt.output_tokens = 0;
  }
}

}  // namespace llmprof
