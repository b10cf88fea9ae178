// Recordings that do not tell which steps are prompts and which make a token, and so have no TTFT and TPOT.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/host_places.h"
#include "analyze/output_layers.h"
#include "base/statistics.h"
#include "derive/recorded_spans.h"
#include "derive/step_composition.h"
#include "derive/step_names.h"

namespace llmprof {
namespace {

// Steps of which none is a prompt or makes tokens, as far as the recording tells: why.
bool of_unknown_composition(const Trace& trace, std::vector<CannotTell>& cannot_tell) {
  const Steps& steps = trace.steps;
  int64_t several = 0, least = 0, most = 0;
  bool known = false;
  for (Row s = 0; s < steps.size(); ++s) {
    const bool named = steps.warm_up_cause[s] == WarmUpCause::kNamed;
    known |= steps.kind[s] != StageKind::kOther && !named;
    if (trace.text(steps.stage[s]) != kSeveralRequests) continue;
    const int64_t tokens = std::max<int64_t>(0, steps.new_tokens[s]);
    least = several == 0 ? tokens : std::min(least, tokens);
    most = std::max(most, tokens);
    ++several;
  }
  const char* const how =
      is_live_recording(trace)
          ? "name the steps by NVTX ranges as servers do (\"execute_context_1(512)_generation_8(8)\"), "
            "or take them from the server's own metrics"
          : "name the steps with torch.profiler.record_function as servers do "
            "(\"execute_context_1(512)_generation_8(8)\"), or take them from the server's own metrics";
  if (several > 0) {
    cannot_tell.push_back(
        {known ? "Which requests do the steps that nobody named serve?"
               : "What are TTFT and TPOT, and how many tokens per second come out?",
         fmt::format("{} found steps run on tokens of several requests at once ({} to {} tokens each), and the "
                     "recording does not say which token is whose",
                     several, least, most),
         how});
    return !known;
  }
  if (known) return false;
  cannot_tell.push_back(
      {"What are TTFT and TPOT?", "the steps of the recording are not known to be prompts or to make tokens",
       "name your own ranges with --stage prefill=REGEX and --stage decode=REGEX, if a language model runs in them"});
  return true;
}

// Whether the words of the program's range say what the step is.
bool named_by_words(const Trace& trace, Row s) {
  return trace.steps.source[s] != StageSource::kDetected &&
         stage_kind_of(trace.text(trace.steps.stage[s])) != StageKind::kOther;
}

// Passes over many tokens that nobody names and that no step follows which makes tokens: prompts of a model that is
// asked for nothing else, whole texts without a cache, drafts, embeddings.
bool prompts_of_nothing(const Trace& trace, std::vector<CannotTell>& cannot_tell) {
  const Steps& steps = trace.steps;
  if (!is_live_recording(trace)) return false;
  int64_t passes = 0;
  for (Row s = 0; s < steps.size(); ++s) {
    const StageKind kind = steps.kind[s];
    if (kind == StageKind::kDecode || kind == StageKind::kMixed || kind == StageKind::kSpeculative) return false;
    if (kind != StageKind::kPrefill) continue;
    if (named_by_words(trace, s)) return false;
    ++passes;
  }
  if (passes == 0) return false;
  cannot_tell.push_back(
      {"What are TTFT and TPOT?",
       fmt::format("no decode steps: {} passes of the model run on many tokens each, and none makes a token at a time; "
                   "they may be "
                   "prompts, whole texts without a cache, drafts or embeddings",
                   passes),
       "name the prompts and the steps by NVTX ranges (torch.cuda.nvtx.range(\"prefill\") and (\"decode_step\"))"});
  return true;
}

// Passes of another kind before most steps that make tokens (an encoder of the next frame): whether a token waits for
// them, or for them alone every so often, is not known, and its steps alone are not its time.
bool others_between(const Trace& trace, std::vector<CannotTell>& cannot_tell) {
  constexpr double kPart = 0.05;  // of the steps' time
  const Steps& steps = trace.steps;
  if (!is_live_recording(trace)) return false;
  int64_t tokens = 0, behind = 0, tokens_ns = 0, others_ns = 0;
  std::map<int32_t, Row> before;
  for (Row s = 0; s < steps.size(); ++s) {
    if (steps.missing[s] != MissingKernels::kNone || steps.phase[s] == StepPhase::kWarmUp) continue;
    const auto known = before.find(steps.device[s]);
    if (steps.kind[s] == StageKind::kDecode && !named_by_words(trace, s)) {
      ++tokens;
      tokens_ns += steps.end_ns[s] - steps.start_ns[s];
      if (known != before.end() && steps.kind[known->second] == StageKind::kOther) {
        ++behind;
        others_ns += steps.end_ns[known->second] - steps.start_ns[known->second];
      }
    }
    before[steps.device[s]] = s;
  }
  if (behind * 2 <= tokens || static_cast<double>(others_ns) < kPart * static_cast<double>(tokens_ns)) return false;
  cannot_tell.push_back(
      {"What are TTFT and TPOT?",
       fmt::format(
           "other passes run before {} of {} steps that make tokens, {:.3g} ms each; whether a token's time holds "
           "them is not known",
           behind, tokens, static_cast<double>(others_ns) / static_cast<double>(behind) / 1e6),
       "name the prompts and the steps by NVTX ranges (torch.cuda.nvtx.range(\"prefill\") and (\"decode_step\"))"});
  return true;
}

// Steps that nobody names and that fetch results several times by the same code outside the model, each time behind a
// good part of their products and attention, and behind an output layer and a copy to the host where any are known: a
// token needs a pass of the model and its logits, so what was found as one step is several.
bool fetches_several_times(const Trace& trace, std::vector<CannotTell>& cannot_tell) {
  constexpr double kPart = 0.1;  // a guard or a draft between two waits of a sampler has a few percent of them
  constexpr std::string_view kInModule = "[nn.Module]";
  const Steps& steps = trace.steps;
  const HostPlaces& places = trace.host_places;
  struct Launches {
    std::vector<int64_t> times, logits, copies;  // of products and attention; of output layers; to the host
  };
  bool any = false;
  for (size_t row = 0; row < places.size() && !any; ++row)
    any = places.kind[row] == PlaceKind::kWait && places.stack[row] != StringId::kEmpty;
  if (!any) return false;
  std::map<Row, Launches> launches;
  const OutputLayers outputs(trace);
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    const StepId step = trace.gpu_links.step[gpu];
    const ApiCallId api = trace.gpu_links.api[gpu];
    if (step == kNoRow || api == kNoRow || steps.kind[step] != StageKind::kDecode || named_by_words(trace, step) ||
        steps.missing[step] != MissingKernels::kNone || steps.phase[step] == StepPhase::kWarmUp)
      continue;
    const bool copies = trace.gpu_ops.path[gpu] == CopyPath::kDeviceToHost;
    if (!copies && !is_arithmetic(trace.gpu_links.category[gpu])) continue;
    Launches& mine = launches[step];
    (copies ? mine.copies : mine.times).push_back(trace.api_calls.start_ns[api]);
    const WorkId work = trace.gpu_links.work[gpu];
    if (outputs.has(work)) mine.logits.push_back(trace.api_calls.start_ns[api]);
  }
  std::vector<double> fetches;
  StringId code = StringId::kEmpty;
  for (auto& [step, mine] : launches) {
    std::vector<int64_t>& times = mine.times;
    if (times.empty()) continue;
    for (std::vector<int64_t>* all : {&times, &mine.logits, &mine.copies}) std::sort(all->begin(), all->end());
    std::map<StringId, int64_t> counts;
    size_t before = 0, logits_before = 0, copies_before = 0;
    const auto launched_by = [](const std::vector<int64_t>& sorted, int64_t time) {
      return static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), time) - sorted.begin());
    };
    const auto first = std::lower_bound(places.start_ns.begin(), places.start_ns.end(), times.front());
    for (size_t row = static_cast<size_t>(first - places.start_ns.begin());
         row < places.size() && places.start_ns[row] < steps.end_ns[step]; ++row) {
      if (places.kind[row] != PlaceKind::kWait || places.stack[row] == StringId::kEmpty) continue;
      const size_t launched = launched_by(times, places.start_ns[row]);
      const size_t logits = launched_by(mine.logits, places.start_ns[row]);
      const double part = static_cast<double>(launched - before) / static_cast<double>(times.size());
      // A blocking copy is its own wait.
      const size_t copies = launched_by(mine.copies, places.start_ns[row] + places.dur_ns[row]);
      const bool may_be_token =
          (mine.logits.empty() || logits > logits_before) && (mine.copies.empty() || copies > copies_before);
      before = launched, logits_before = logits, copies_before = copies;
      if (part >= kPart && may_be_token && trace.text(places.stack[row]).find(kInModule) == std::string_view::npos)
        ++counts[places.stack[row]];
    }
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    fetches.push_back(most == counts.end() ? 0 : static_cast<double>(most->second));
    if (most != counts.end() && most->second > 1) code = most->first;
  }
  if (fetches.empty() || median_of(fetches) < 2) return false;
  cannot_tell.push_back(
      {"What are TTFT and TPOT?",
       fmt::format("what was found as a step fetches results {:.3g} times by the same code, {}: each may be a token",
                   median_of(fetches), python_place(trace.text(code))),
       "name the prompts and the steps by NVTX ranges (torch.cuda.nvtx.range(\"prefill\") and (\"decode_step\"))"});
  return true;
}

// Most of what the program does is in no step that is known: a call that recurs far more often than there are steps, as
// a CUDA graph that was made after recording had stopped. The steps that were recorded, of a warm-up, say nothing of
// it. What was recorded and is in no step is something else, as the passes before a graph is captured.
bool runs_unseen(const Trace& trace, std::vector<CannotTell>& cannot_tell) {
  constexpr int64_t kCallsMin = 20, kPerStepMin = 2;
  if (trace.recurring_calls.empty()) return false;
  const Steps& steps = trace.steps;
  std::vector<std::pair<int64_t, int64_t>> known;  // of the host; steps may overlap
  int64_t serving = 0;
  for (Row s = 0; s < steps.size(); ++s) {
    known.emplace_back(std::min(steps.host_start_ns[s], steps.start_ns[s]), steps.end_ns[s]);
    serving += steps.phase[s] == StepPhase::kServing ? 1 : 0;
  }
  std::sort(known.begin(), known.end());
  int64_t end_ns = INT64_MIN;                          // the latest of the steps that begin before
  std::map<uint64_t, std::pair<int64_t, bool>> calls;  // how many are in no step, and whether any is in one
  size_t next = 0;
  const RecordedSpans recorded(trace);
  const auto is_recorded = [&](Row row) {
    const ThreadId thread = trace.recurring_calls.thread[row];
    const int64_t process = thread < trace.threads.size() ? trace.threads.process_id[thread] : -1;
    const int64_t time_ns = trace.recurring_calls.time_ns[row];
    return !RecordedSpans::touches(recorded.unrecorded_process(process), time_ns, time_ns + 1);
  };
  const RecurringCalls& recurring = trace.recurring_calls;
  for (Row row = 0; row < recurring.size(); ++row) {
    for (; next < known.size() && known[next].first <= recurring.time_ns[row]; ++next)
      end_ns = std::max(end_ns, known[next].second);
    auto& [outside, seen] = calls[recurring.key[row]];
    const bool inside = recurring.time_ns[row] <= end_ns;
    seen = seen || inside;
    outside += inside || is_recorded(row) ? 0 : 1;
  }
  int64_t most = 0;
  for (const auto& [key, call] : calls)
    if (!call.second) most = std::max(most, call.first);
  if (most < kCallsMin || most < kPerStepMin * serving) return false;
  cannot_tell.push_back(
      {"What are TTFT and TPOT?",
       fmt::format(
           "most of what the program did was not recorded: a call that recurs {} times (a CUDA graph, or a matrix "
           "product) is in none of the {} steps that are known",
           most, serving),
       "record all of it: `llmprof run --unrecorded-windows off`, or run more requests"});
  return true;
}

}  // namespace

bool latency_is_unknown(const Trace& trace, std::vector<CannotTell>& cannot_tell) {
  return of_unknown_composition(trace, cannot_tell) || prompts_of_nothing(trace, cannot_tell) ||
         fetches_several_times(trace, cannot_tell) || others_between(trace, cannot_tell) ||
         runs_unseen(trace, cannot_tell);
}

}  // namespace llmprof
