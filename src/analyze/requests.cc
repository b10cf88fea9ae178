#include "analyze/requests.h"

#include <algorithm>
#include <map>

#include "base/statistics.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

double window_ns(const Steps& steps, Row s) { return static_cast<double>(steps.end_ns[s] - steps.start_ns[s]); }

// Takes the steps of a device in order of time.
class Collector {
 public:
  // `mixed`: the program runs prompts in pieces beside tokens of others.
  Collector(const Steps& steps, Requests& out, bool mixed) : steps_(steps), out_(out), mixed_(mixed) {}

  void vision(Row s) { add_before_token(s); }
  void prefill(Row s) {
    const bool gives_token = steps_.output_tokens[s] != 0;
    add_before_token(s);
    out_.chunk_only |= !gives_token;
    if (!gives_token) return;
    const double ttft_ns = static_cast<double>(steps_.end_ns[s] - prompt_start_);
    // Where prompts run in pieces, a step on a prompt alone is all of it if no other is before it and tokens follow.
    if (mixed_)
      awaited_ = ++prompts_ == 1 && !prompt_disturbed_ ? OptDouble(ttft_ns) : std::nullopt;
    else if (!prompt_disturbed_)
      out_.all.back().ttft_ns = ttft_ns;
    prompt_start_ = -1;
    prompt_disturbed_ = false;
  }
  // A step before a first token that cannot be timed: neither can that token.
  void disturbed_prompt(bool gives_token) {
    out_.at_edges = true;
    prompt_disturbed_ = !gives_token;
    prompt_start_ = -1;
    out_.all.emplace_back();
  }
  void disturbed_step() {
    if (out_.all.empty()) out_.all.emplace_back();
    out_.all.back().begin_unseen |= out_.all.back().making.empty();
  }
  void decode(Row s, bool mixed) {
    // A decode step between the chunks of a prompt belongs to another request, and is part of this one's TTFT.
    const bool between_chunks = prompt_start_ >= 0 || prompt_disturbed_;
    out_.stalled |= (between_chunks && !mixed) || serves_others(s);
    out_.interleaved |= mixed || out_.stalled;
    if (mixed) prompt_start_ = -1, prompt_disturbed_ = false;  // the prompt may end in here; its TTFT cannot be told
    if (out_.all.empty()) out_.all.emplace_back();
    if (awaited_ && !mixed) out_.all.back().ttft_ns = awaited_;
    awaited_.reset();
    prompts_ = 0;
    out_.all.back().making.push_back(s);
  }

 private:
  // Whether the step runs on more sequences than the prompts before it have: the rest are other requests' (continuous
  // batching), and waited while those prompts ran.
  bool serves_others(Row s) const {
    if (out_.all.empty() || !out_.all.back().making.empty()) return false;
    int64_t of_prompts = -1;
    for (const Row prompt : out_.all.back().before_token)
      if (steps_.kind[prompt] == StageKind::kPrefill) of_prompts = std::max(of_prompts, steps_.sequences[prompt]);
    return of_prompts > 0 && steps_.sequences[s] > of_prompts;
  }
  void add_before_token(Row s) {
    if (prompt_start_ < 0) {
      prompt_start_ = steps_.start_ns[s];
      out_.all.emplace_back();
    }
    RequestTimes& request = out_.all.back();
    request.before_token.push_back(s);
    request.cold |= steps_.phase[s] == StepPhase::kWarmUp;
  }
  const Steps& steps_;
  Requests& out_;
  bool mixed_;
  size_t prompts_ = 0;             // steps on prompts since the last one that made tokens
  OptDouble awaited_;              // TTFT of the last of them, if the next step makes tokens of it
  int64_t prompt_start_ = -1;      // of the request whose first token is still to come
  bool prompt_disturbed_ = false;  // a part of that request is at a window edge
};

}  // namespace

int32_t main_device(const Steps& steps) {
  std::map<int32_t, size_t> counts;
  for (const int32_t device : steps.device) ++counts[device];
  int32_t best = 0;
  size_t most = 0;
  for (const auto& [device, count] : counts)
    if (count > most) best = device, most = count;
  return best;
}

Requests find_requests(const Trace& trace, int32_t device) {
  Requests out;
  const Steps& steps = trace.steps;
  bool mixed = false;
  for (Row s = 0; s < steps.size(); ++s) {
    mixed |= steps.device[s] == device && steps.kind[s] == StageKind::kMixed;
    out.speculates |= steps.device[s] == device && steps.kind[s] == StageKind::kSpeculative;
  }
  Collector collector(steps, out, mixed);
  for (Row s = 0; s < steps.size(); ++s) {
    const StageKind kind = steps.kind[s];
    if (steps.device[s] != device || kind == StageKind::kOther || kind == StageKind::kSpeculative ||
        steps.warm_up_cause[s] == WarmUpCause::kNamed)
      continue;
    // The recorder's coming and going falls into these: their times are not the program's.
    if (steps.state[s] == StepState::kWindowEdge) {
      if (kind == StageKind::kVision) collector.disturbed_prompt(false);
      if (kind == StageKind::kPrefill) collector.disturbed_prompt(steps.output_tokens[s] != 0);
      if (kind == StageKind::kDecode || kind == StageKind::kMixed) collector.disturbed_step();
      continue;
    }
    if (kind == StageKind::kVision) {
      collector.vision(s);
    } else if (kind == StageKind::kPrefill) {
      collector.prefill(s);
    } else if (!out.speculates) {
      collector.decode(s, kind == StageKind::kMixed);
    }
  }
  return out;
}

const RequestTimes* Requests::first_prompt() const {
  return !all.empty() && all.front().ttft_ns ? &all.front() : nullptr;
}

Row Requests::first_step() const {
  return !all.empty() && !all.front().making.empty() && !all.front().begin_unseen ? all.front().making.front() : kNoRow;
}

std::vector<const RequestTimes*> Requests::typical_prompts() const {
  std::vector<const RequestTimes*> out;
  for (const RequestTimes& request : all)
    if (request.ttft_ns && !request.cold) out.push_back(&request);
  return out;
}

std::vector<Row> Requests::typical_steps(const Steps& steps) const {
  std::vector<Row> out;
  for (const RequestTimes& request : all)
    for (const Row s : request.making)
      if (steps.phase[s] == StepPhase::kServing) out.push_back(s);
  return out;
}

TypicalTimes typical_times(const Trace& trace, const Requests& requests) {
  TypicalTimes out;
  std::vector<double> ttft, step, count;
  for (const RequestTimes* request : requests.typical_prompts()) ttft.push_back(*request->ttft_ns / 1e6);
  for (const Row s : requests.typical_steps(trace.steps)) step.push_back(window_ns(trace.steps, s) / 1e6);
  // A warm-up makes fewer tokens than what is served, and steps without a prompt before them may be a capture's: they
  // count where there is nothing else.
  const auto count_steps = [&](bool with_prompt, bool cold) {
    if (!count.empty()) return;
    for (const RequestTimes& request : requests.all)
      if (request.cold == cold && request.ttft_ns.has_value() >= with_prompt && !request.making.empty())
        count.push_back(static_cast<double>(request.making.size()));
  };
  count_steps(true, false);
  count_steps(false, false);
  count_steps(false, true);
  if (!ttft.empty()) out.ttft_ms = median_of(ttft);
  if (!step.empty()) out.step_ms = median_of(step);
  if (out.ttft_ms && out.step_ms && !requests.interleaved)
    out.ttft_frac = *out.ttft_ms / (*out.ttft_ms + median_of(count) * *out.step_ms);
  return out;
}

}  // namespace llmprof
