// TTFT, ITL, TPOT, tokens/s and warm-up from the steps. The definitions stand at Latency in results/report.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analyze/analysis.h"
#include "analyze/headline_times.h"
#include "analyze/requests.h"
#include "analyze/warm_up.h"
#include "base/statistics.h"
#include "derive/recorded_spans.h"
#include "derive/step_composition.h"
#include "derive/steps.h"

namespace llmprof {

std::optional<Summary> summarize(std::vector<double> samples) {
  const std::optional<SampleSummary> found = summarize_samples(std::move(samples));
  if (!found) return std::nullopt;
  Summary out;
  out.n = found->n;
  out.mean = found->mean;
  if (found->n > 1) out.stddev = found->stddev;
  out.min = found->min;
  out.p50 = found->median;
  out.p90 = found->p90;
  out.p99 = found->p99;
  out.max = found->max;
  return out;
}

namespace {

double window_ms(const Steps& steps, Row s) { return static_cast<double>(steps.end_ns[s] - steps.start_ns[s]) / 1e6; }

// What warm-up cost beyond the steady level of each step. Absent where nothing can be compared.
OptDouble warmup_ms(const Context& context, int32_t device) {
  constexpr size_t kComparableMin = 3;
  OptDouble extra;
  for (const StageGroup& group : context.groups.stages) {
    if (group.unattributed || group.device != device) continue;
    bool found = group.steps.size() >= kComparableMin && group.kind != StageKind::kOther && !group.is_warm_up();
    double extra_ms = 0;
    for (const Row s : group.steps) {
      found |= is_found_warm_up(context.trace.steps, s);
      extra_ms += static_cast<double>(context.trace.steps.warm_up_ns[s]) / 1e6;
    }
    if (found) extra = extra.value_or(0) + extra_ms;
  }
  return extra;
}

// Distributions over requests and steps that are steady.
void fill_distributions(const Steps& steps, const Requests& requests, Latency& latency) {
  std::vector<double> ttft, itl, tpot;
  for (const RequestTimes& request : requests.all) {
    if (request.ttft_ns && !request.cold) ttft.push_back(*request.ttft_ns / 1e6);
    double sum = 0, count = 0;
    for (const Row s : request.making) {
      if (steps.phase[s] == StepPhase::kWarmUp) continue;
      itl.push_back(window_ms(steps, s));
      sum += itl.back();
      ++count;
    }
    if (count > 0) tpot.push_back(sum / count);
  }
  latency.ttft_ms = summarize(ttft);
  latency.itl_ms = summarize(itl);
  if (!requests.interleaved) latency.tpot_ms = summarize(tpot);
}

// Time between the step before a prompt that llmprof found and that prompt, where all of it was recorded: whoever
// prepares inputs there counts it as TTFT, and whoever waits for a request does not.
OptDouble before_prompt_ms(const Trace& trace, const Requests& requests) {
  const Steps& steps = trace.steps;
  const RecordedSpans recorded(trace);
  std::vector<double> before;
  for (const RequestTimes* request : requests.typical_prompts()) {
    const Row first = request->before_token.front();
    Row previous = first;
    while (previous > 0 && (previous == first || steps.device[previous] != steps.device[first])) --previous;
    if (previous == first || steps.device[previous] != steps.device[first]) continue;
    if (steps.source[first] != StageSource::kDetected || steps.missing[previous] != MissingKernels::kNone) continue;
    const int64_t from = steps.end_ns[previous], to = steps.start_ns[first];
    if (!RecordedSpans::touches(recorded.unrecorded(steps.device[first]), from, to))
      before.push_back(static_cast<double>(to - from) / 1e6);
  }
  return before.empty() ? std::nullopt : OptDouble(median_of(before));
}

// Passes of another model at the beginning of prompts that llmprof found: what an encoder gives is needed for the first
// token, what a judge says of the answer before is not, and nothing tells them apart.
IfKnown<double> other_model_frac(const Steps& steps, const Requests& requests) {
  std::vector<double> parts;
  for (const RequestTimes* request : requests.typical_prompts()) {
    double other_ns = 0;
    bool recorded = true;
    for (const Row s : request->before_token) {
      recorded &= steps.missing[s] == MissingKernels::kNone;
      other_ns += static_cast<double>(steps.other_model_ns[s]);
    }
    if (recorded && *request->ttft_ns > 0) parts.push_back(other_ns / *request->ttft_ns);
  }
  if (parts.empty()) return {};
  const double part = median_of(std::move(parts));
  return part > 0 ? IfKnown<double>(part) : IfKnown<double>();
}

constexpr size_t kPromptsEnough = 3, kStepsEnough = 5;

HeadlineTimes prompt_times(const Context& context, const Requests& requests) {
  TimesBySource by_source;
  for (const RequestTimes* request : requests.typical_prompts()) {
    double ns = *request->ttft_ns, unsure_ns = 0;
    bool known = true, full_pace = true;
    StepTimeSource source = StepTimeSource::kUnrecorded;
    for (const Row s : request->before_token) {
      const std::optional<double> alone = context.undisturbed.window_ns(s);
      known &= alone.has_value();
      if (alone) ns -= window_ms(context.trace.steps, s) * 1e6 - *alone;
      source = std::max(source, context.undisturbed.source(s));
      unsure_ns += context.undisturbed.unsure_ns(s);
      full_pace &= context.host_pace.full(context.trace.steps, s);
    }
    if (!known) continue;
    by_source[static_cast<size_t>(source)].add(ns / 1e6, unsure_ns / 1e6, full_pace);
  }
  return choose_times(by_source, kPromptsEnough);
}

HeadlineTimes token_times(const Context& context, const Requests& requests) {
  TimesBySource by_source;
  for (const Row s : requests.typical_steps(context.trace.steps)) {
    const std::optional<double> alone = context.undisturbed.window_ns(s);
    if (!alone) continue;
    HeadlineTimes& times = by_source[static_cast<size_t>(context.undisturbed.source(s))];
    times.add(*alone / 1e6, context.undisturbed.unsure_ns(s) / 1e6, context.host_pace.full(context.trace.steps, s));
    times.steps.push_back(s);
  }
  return choose_times(by_source, kStepsEnough);
}

// The 95 % interval of the median: how far it would move with other steps of the same run, and how far for what is not
// known of the recorder's cost, which is in all of them alike. Fewer than three values say nothing of it.
void fill_interval(const HeadlineTimes& times, OptDouble& low_ms, OptDouble& high_ms) {
  constexpr size_t kValuesLeast = 3;
  if (times.ms.size() < kValuesLeast) return;
  const Interval interval = bootstrap_median(times.ms);
  const double unsure_ms = median_of(times.unsure_ms);
  low_ms = std::max(0.0, interval.low - unsure_ms);
  high_ms = interval.high + unsure_ms;
}

// The median of those at full pace, where there are enough of them, and they are alike: a few of prompts of all lengths
// say nothing of the others.
void fill_full_pace(const HeadlineTimes& times, size_t enough, IfKnown<double>& median_ms, IfKnown<int64_t>& n) {
  constexpr double kAlike = 0.2;
  std::vector<double> full;
  for (size_t i = 0; i < times.ms.size(); ++i)
    if (times.full_pace[i] != 0) full.push_back(times.ms[i]);
  if (full.size() < enough || summarize_samples(full)->iqr_frac() > kAlike) return;
  n = static_cast<int64_t>(full.size());
  median_ms = median_of(std::move(full));
}

// A live recording of one request that no other came before, and no evidence: all of its kernels ran for the first
// time, which may have cost much or little.
bool is_only_one_of_process(const Trace& trace, const Requests& requests) {
  const std::vector<WarmUpCause>& causes = trace.steps.warm_up_cause;
  return is_live_recording(trace) && requests.all.size() == 1 && requests.first_prompt() != nullptr &&
         !requests.first_prompt()->cold && std::find(causes.begin(), causes.end(), WarmUpCause::kNamed) == causes.end();
}

Headline headline_of(const Context& context, const Requests& requests) {
  Headline out;
  const Steps& steps = context.trace.steps;
  const HeadlineTimes ttft = prompt_times(context, requests), itl = token_times(context, requests);
  const bool live = is_live_recording(context.trace);
  bool tokens_known = true;
  double tokens = 0, making_ms = 0;
  for (size_t i = 0; i < itl.ms.size(); ++i) {
    const int64_t made = steps.output_tokens[itl.steps[i]];
    tokens_known &= made > 0;
    tokens += static_cast<double>(made);
    making_ms += itl.ms[i];
  }
  if (const std::optional<Summary> summary = summarize(ttft.ms)) {
    out.ttft_ms = summary->p50;
    if (live) out.ttft_source = ttft.source;
    out.ttft_p99_ms = summary->p99;
    out.ttft_n = summary->n;
    fill_interval(ttft, out.ttft_ci95_low_ms, out.ttft_ci95_high_ms);
    fill_full_pace(ttft, kPromptsEnough, out.ttft_full_pace_ms, out.ttft_full_pace_n);
    out.before_prompt_ms = before_prompt_ms(context.trace, requests);
    out.ttft_other_model_frac = other_model_frac(steps, requests);
  }
  if (const RequestTimes* first = requests.first_prompt(); first != nullptr) {
    out.first_ttft_ms = *first->ttft_ns / 1e6;
    // Of a request without another one nobody knows.
    if (first->cold || ttft.ms.size() > 1) out.first_ttft_cold = first->cold;
    if (is_only_one_of_process(context.trace, requests)) out.ttft_in_doubt = true;
  }
  if (const std::optional<Summary> summary = summarize(itl.ms)) {
    out.itl_ms = summary->p50;
    if (live) out.itl_source = itl.source;
    out.itl_p99_ms = summary->p99;
    out.itl_n = summary->n;
    fill_interval(itl, out.itl_ci95_low_ms, out.itl_ci95_high_ms);
    fill_full_pace(itl, kStepsEnough, out.itl_full_pace_ms, out.itl_full_pace_n);
    if (!requests.interleaved) out.tpot_ms = out.itl_ms;
    if (tokens_known && making_ms > 0 && !requests.stalled) out.output_tokens_per_s = 1e3 * tokens / making_ms;
  }
  if (const Row first = requests.first_step(); first != kNoRow) {
    out.first_itl_ms = window_ms(steps, first);
    const bool cold = steps.phase[first] == StepPhase::kWarmUp;
    if (cold || itl.ms.size() > 1) out.first_itl_cold = cold;
  }
  return out;
}

// Steps whose tokens would make up the rate, and those among them of which nobody knows how many they made.
std::string unknown_token_counts(const Trace& trace, const Requests& requests) {
  const Steps& steps = trace.steps;
  size_t all = 0, unknown = 0, mixed = 0;
  for (const Row s : requests.typical_steps(steps)) {
    ++all;
    if (steps.output_tokens[s] > 0) continue;
    ++unknown;
    mixed += steps.kind[s] == StageKind::kMixed ? 1 : 0;
  }
  std::string why = fmt::format("how many tokens {} of the {} steps made is unknown", unknown, all);
  if (mixed > 0) why += fmt::format("; {} of them run prompts and tokens together", mixed);
  return why;
}

// Steps of warm-up before first tokens, or after them.
std::vector<Row> cold_steps_of(const Steps& steps, const Requests& requests, bool before_token) {
  std::vector<Row> out;
  for (const RequestTimes& request : requests.all)
    for (const Row s : before_token ? request.before_token : request.making)
      if (steps.phase[s] == StepPhase::kWarmUp) out.push_back(s);
  return out;
}

// Times from one verification of drafts to the next, ms, all steady and recorded alike: of unrecorded ones if
// they are enough.
HeadlineTimes round_times(const Steps& steps, int32_t device) {
  HeadlineTimes unrecorded, recorded;
  unrecorded.source = StepTimeSource::kUnrecorded;
  Row last = kNoRow;  // verification before
  bool alike = false;
  for (Row s = 0; s < steps.size(); ++s) {
    if (steps.device[s] != device) continue;
    const bool fits = steps.kind[s] == StageKind::kSpeculative && steps.state[s] != StepState::kWindowEdge &&
                      steps.phase[s] == StepPhase::kServing;
    alike &= fits && last != kNoRow && steps.missing[s] == steps.missing[last];
    if (steps.kind[s] != StageKind::kSpeculative || steps.output_tokens[s] == 0) continue;
    HeadlineTimes& times = steps.missing[s] == MissingKernels::kNone ? recorded : unrecorded;
    if (alike) times.ms.push_back(static_cast<double>(steps.end_ns[s] - steps.end_ns[last]) / 1e6);
    last = s;
    alike = fits;
  }
  return unrecorded.ms.size() >= kStepsEnough ? unrecorded : recorded;
}

// What a verification takes by itself, of steps as they were recorded. Nothing where drafts and verification are one.
OptDouble verification_ms(const Steps& steps, int32_t device) {
  std::vector<double> ms;
  bool drafts = false;
  for (Row s = 0; s < steps.size(); ++s) {
    if (steps.device[s] != device || steps.kind[s] != StageKind::kSpeculative) continue;
    drafts |= steps.output_tokens[s] == 0;
    if (steps.output_tokens[s] != 0 && steps.state[s] != StepState::kWindowEdge &&
        steps.phase[s] == StepPhase::kServing)
      ms.push_back(window_ms(steps, s));
  }
  return drafts && !ms.empty() ? OptDouble(median_of(std::move(ms))) : OptDouble();
}

// Of tokens that are drafted and verified nobody knows how many a step makes.
CannotTell explain_speculation(const Trace& trace, int32_t device) {
  const Steps& steps = trace.steps;
  size_t verifications = 0;
  for (Row s = 0; s < steps.size(); ++s)
    verifications +=
        steps.device[s] == device && steps.kind[s] == StageKind::kSpeculative && steps.output_tokens[s] != 0 ? 1 : 0;
  std::string why = fmt::format(
      "{} steps verify tokens that others drafted, and how many were accepted is not in the recording", verifications);
  const HeadlineTimes rounds = round_times(steps, device);
  std::string action = "divide the time of a round by the tokens that the program says it yields";
  if (const std::optional<Summary> summary = summarize(rounds.ms)) {
    why +=
        fmt::format("; a round of drafts and verification takes {:.4g} ms (median of {}, {})", summary->p50, summary->n,
                    rounds.source == StepTimeSource::kUnrecorded ? "without the recorder" : "as recorded");
    // One token alone reads the same weights as several do.
    if (const OptDouble alone_ms = verification_ms(steps, device); alone_ms && *alone_ms < summary->p50)
      action += fmt::format(
          "; without drafts a token takes about a verification's {:.4g} ms, so they pay where a round "
          "yields more than {:.2g} tokens of a sequence",
          *alone_ms, summary->p50 / *alone_ms);
  }
  return {"What is TPOT, and how many tokens per second come out?", why, action};
}

void explain_missing(const Trace& trace, int32_t device, const Requests& requests, const Latency& latency, bool live,
                     std::vector<CannotTell>& cannot_tell) {
  const std::vector<Row> cold_prompts = cold_steps_of(trace.steps, requests, true);
  const std::vector<Row> cold_tokens = cold_steps_of(trace.steps, requests, false);
  if (!latency.ttft_ms && !cold_prompts.empty() && !requests.interleaved)
    cannot_tell.push_back({"What is TTFT of a warm request?", no_steady(trace.steps, cold_prompts, "prompt"),
                           "send requests of the same shape until their times no longer fall, in the same run"});
  else if (!latency.ttft_ms)
    cannot_tell.push_back(
        {"What is TTFT?",
         requests.interleaved
             ? "prompts are processed in mixed steps; the recording does not say which request is whose"
         : requests.at_edges   ? "in every prompt of the recording a recorded window begins or ends"
         : requests.chunk_only ? "the recording holds only parts of a prompt (chunks without a first token)"
                               : "no prefill lies inside the recording",
         requests.interleaved ? "take TTFT from the server's request metrics"
                              : "record from before the first prompt is submitted"});
  if (latency.headline.ttft_in_doubt && !trace.gpu_ops.empty())
    cannot_tell.push_back({"Is TTFT that of a warm request?",
                           "the recording holds one request, the first of the program, and nothing to compare it with",
                           "send a second request of the same shape in the same run"});
  if (requests.speculates) {
    cannot_tell.push_back(explain_speculation(trace, device));
    return;
  }
  if (!latency.itl_ms && !cold_tokens.empty())
    cannot_tell.push_back({"What are TPOT and ITL of a warm program?", no_steady(trace.steps, cold_tokens, "step"),
                           "generate more tokens, until steps no longer become faster"});
  else if (!latency.itl_ms)
    cannot_tell.push_back({"What are TPOT and ITL?", "no decode step lies inside the recording",
                           "record long enough to include several generated tokens"});
  if (requests.interleaved)
    cannot_tell.push_back({"What is TPOT of each request?",
                           "steps serve several requests and the recording does not say which",
                           "use ITL per step, or the server's request metrics"});
  if (!latency.headline.output_tokens_per_s && latency.itl_ms && requests.stalled)
    cannot_tell.push_back({"How many tokens per second come out?",
                           "prompts run between the steps of other requests, which wait for them: tokens of these "
                           "steps over the time of these steps would be too many",
                           "take the rate from the server's own metrics"});
  else if (!latency.headline.output_tokens_per_s && latency.itl_ms)
    cannot_tell.push_back({"How many tokens per second come out?", unknown_token_counts(trace, requests),
                           live ? "name the composition of steps in NVTX ranges (\"decode[bs=4]\"), or take the rate "
                                  "from the program itself"
                                : "record shapes (record_shapes=True) if they are not, or take the rate from the "
                                  "program itself"});
}

// TTFT of prompts that were seen only while they were recorded, of a program whose other steps kept another pace then.
void explain_other_pace(const Context& context, int32_t device, const Headline& headline,
                        std::vector<CannotTell>& cannot_tell) {
  constexpr double kSamePace = 0.1;
  if (!headline.ttft_source || *headline.ttft_source == StepTimeSource::kUnrecorded ||
      headline.itl_source != StepTimeSource::kUnrecorded)
    return;
  const bool replayed = *headline.ttft_source == StepTimeSource::kReplayed;
  const auto then_ms = [&](const UndisturbedRecord& row) { return replayed ? row.replayed_ms : row.recorded_ms; };
  const UndisturbedRecord* pace = nullptr;
  for (const UndisturbedRecord& row : context.undisturbed.rows())
    if (row.device == device && then_ms(row) && row.unrecorded_ms &&
        (pace == nullptr || row.unrecorded_steps > pace->unrecorded_steps))
      pace = &row;
  if (pace == nullptr || std::fabs(*then_ms(*pace) / *pace->unrecorded_ms - 1) <= kSamePace) return;
  cannot_tell.push_back(
      {"Is TTFT that of the whole run?",
       fmt::format("{} prompts are known, all recorded; at that time a step of {} took {:.3g} ms{}, in the unrecorded "
                   "part of the run {:.3g} ms",
                   headline.ttft_n, pace->stage, *then_ms(*pace), replayed ? " without the recorder's cost" : "",
                   *pace->unrecorded_ms),
       "name the prompts by NVTX ranges (torch.cuda.nvtx.range(\"prefill\")): then they are known unrecorded too"});
}

}  // namespace

void analyze_latency(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Steps& steps = context.trace.steps;
  if (const TrainingEvidence training = training_evidence(context.trace); steps.empty() && training.found()) {
    cannot_tell.push_back(
        {"What are TTFT and TPOT?",
         fmt::format(
             "this is a recording of training ({} backward operators, {} optimizer steps, first: {}); prefill and "
             "decode have no meaning in it",
             training.backward_ops, training.optimizer_steps, training.first_name),
         "record inference, under torch.inference_mode(); the tables of operators and kernels hold for training too"});
    return;
  }
  if (steps.empty()) {
    cannot_tell.push_back({"What are TTFT and TPOT?", "no prefill or decode step was found in the recording",
                           is_live_recording(context.trace)
                               ? "annotate the stages (torch.cuda.nvtx.range(\"prefill\") and (\"decode_step\")), or "
                                 "name your own ranges "
                                 "with --stage prefill=REGEX and --stage decode=REGEX"
                               : "annotate the stages (torch.profiler.record_function(\"prefill\") and (\"decode\")), "
                                 "or name your own ranges "
                                 "with --stage prefill=REGEX and --stage decode=REGEX"});
    return;
  }
  if (latency_is_unknown(context.trace, cannot_tell)) return;
  const int32_t device = main_device(steps);
  const Requests requests = find_requests(context.trace, device);
  Latency latency;
  fill_distributions(steps, requests, latency);
  latency.headline = headline_of(context, requests);
  latency.output_tokens_per_s = latency.headline.output_tokens_per_s;
  latency.warmup_ms = warmup_ms(context, device);
  explain_missing(context.trace, device, requests, latency, is_live_recording(context.trace), cannot_tell);
  explain_other_pace(context, device, latency.headline, cannot_tell);
  report.latency = latency;
}

}  // namespace llmprof
