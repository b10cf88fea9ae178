// TTFT, ITL, TPOT, tokens/s and warm-up from the steps. The definitions stand at Latency in report_data.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/analysis.h"
#include "base/statistics.h"
#include "derive/recorded_spans.h"
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

constexpr double kFirstCallFactor = 1.5;  // below, a first step is within what steps vary anyway

// Ranks of one process run the same steps on several devices; the device with the most steps stands for the run.
int32_t main_device(const Steps& steps) {
  std::map<int32_t, size_t> counts;
  for (const int32_t device : steps.device) ++counts[device];
  int32_t best = 0;
  size_t most = 0;
  for (const auto& [device, count] : counts)
    if (count > most) best = device, most = count;
  return best;
}

// Extra time of the first instance of each stage over the median of the others; absent if nothing can be compared.
OptDouble warmup_ns(const Context& context, int32_t device) {
  const Steps& steps = context.trace.steps;
  OptDouble extra;
  for (const StageGroup& group : context.groups.stages) {
    // Prefills differ by prompt, so only decode and vision steps of equal token counts are comparable.
    const bool comparable = group.kind == StageKind::kDecode || group.kind == StageKind::kVision;
    if (group.unattributed || group.device != device || !comparable || group.steps.size() < 3) continue;
    std::vector<double> rest;
    const Row first = group.steps.front();
    for (size_t i = 1; i < group.steps.size(); ++i) {
      const Row s = group.steps[i];
      if (steps.new_tokens[s] == steps.new_tokens[first])
        rest.push_back(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]));
    }
    if (rest.size() < 2) continue;
    const double median = summarize(rest)->p50, own = static_cast<double>(steps.end_ns[first] - steps.start_ns[first]);
    if (!extra) extra = 0;
    if (own > kFirstCallFactor * median) *extra += own - median;
  }
  return extra;
}

// Samples of one device's steps, collected in time order.
struct Samples {
  std::vector<double> ttft, itl, tpot;
  int64_t output_tokens = 0, model_ns = 0;
  bool tokens_known = true;
  bool interleaved = false;          // steps that serve a prompt and other requests: requests cannot be told apart
  bool chunk_only = false;           // a chunk that did not finish its prompt
  int64_t prompt_start = -1;         // of the request whose first token is still to come
  bool prompt_disturbed = false;     // a part of that request is at a window edge: its time is not the program's
  bool at_edges = false;             // so it was of some prompt
  bool first_token_unknown = false;  // of a prompt whose sequences are known: did it end?
  double request_ms = 0;
  int64_t request_steps = 0;

  void close_request() {
    if (request_steps > 0) tpot.push_back(request_ms / static_cast<double>(request_steps));
    request_ms = 0;
    request_steps = 0;
  }
  void prefill(int64_t start, int64_t end, bool gives_token) {
    close_request();
    if (prompt_start < 0) prompt_start = start;
    chunk_only |= !gives_token;
    if (!gives_token) return;
    if (!prompt_disturbed) ttft.push_back(static_cast<double>(end - prompt_start) / 1e6);
    prompt_start = -1;
    prompt_disturbed = false;
  }
  // A step before a first token that cannot be timed: neither can that token.
  void disturbed_prompt(bool gives_token) {
    close_request();
    at_edges = true;
    prompt_disturbed = !gives_token;
    prompt_start = -1;
  }
  void decode(int64_t start, int64_t end, bool mixed) {
    // A decode step between the chunks of a prompt belongs to another request, and is part of this one's TTFT.
    interleaved |= mixed || prompt_start >= 0 || prompt_disturbed;
    if (mixed) prompt_start = -1, prompt_disturbed = false;  // the prompt may end in here; its TTFT cannot be told
    const double wall_ms = static_cast<double>(end - start) / 1e6;
    itl.push_back(wall_ms);
    request_ms += wall_ms;
    ++request_steps;
  }
};

Samples collect(const Trace& trace, int32_t device) {
  Samples out;
  const Steps& steps = trace.steps;
  for (Row s = 0; s < steps.size(); ++s) {
    const StageKind kind = steps.kind[s];
    const std::string_view stage = trace.text(steps.stage[s]);
    if (steps.device[s] != device || kind == StageKind::kOther || is_warm_up(stage)) continue;
    // The recorder's coming and going falls into these: their times are not the program's.
    if (is_window_edge(stage)) {
      if (kind == StageKind::kVision) out.disturbed_prompt(false);
      if (kind == StageKind::kPrefill) out.disturbed_prompt(steps.output_tokens[s] != 0);
      continue;
    }
    const int64_t start = steps.start_ns[s], end = steps.end_ns[s];
    if (kind == StageKind::kVision) {
      if (out.prompt_start < 0) out.prompt_start = start;
      continue;
    }
    out.model_ns += end - start;
    out.tokens_known &= steps.output_tokens[s] >= 0;
    out.first_token_unknown |= kind == StageKind::kPrefill && steps.output_tokens[s] < 0 && steps.sequences[s] > 0;
    out.output_tokens += std::max<int64_t>(0, steps.output_tokens[s]);
    if (kind == StageKind::kPrefill) {
      out.prefill(start, end, steps.output_tokens[s] != 0);
    } else {
      out.decode(start, end, kind == StageKind::kMixed);
    }
  }
  out.close_request();
  return out;
}

void explain_missing(const Samples& samples, const Latency& latency, bool live, std::vector<CannotTell>& cannot_tell) {
  if (samples.ttft.empty())
    cannot_tell.push_back(
        {"What is TTFT?",
         samples.interleaved ? "prompts are processed in mixed steps; the recording does not say which request is whose"
         : samples.at_edges  ? "in every prompt of the recording a recorded window begins or ends"
         : samples.chunk_only ? "the recording holds only parts of a prompt (chunks without a first token)"
                              : "no prefill lies inside the recording",
         samples.interleaved ? "take TTFT from the server's request metrics"
                             : "record from before the first prompt is submitted"});
  if (samples.itl.empty())
    cannot_tell.push_back({"What are TPOT and ITL?", "no decode step lies inside the recording",
                           "record long enough to include several generated tokens"});
  if (samples.interleaved)
    cannot_tell.push_back({"What is TPOT of each request?",
                           "steps serve several requests and the recording does not say which",
                           "use ITL per step, or the server's request metrics"});
  if (!latency.output_tokens_per_s && !samples.itl.empty())
    cannot_tell.push_back({"How many tokens per second come out?",
                           samples.first_token_unknown
                               ? "the recording does not say whether the steps of prompts ended them"
                               : "the number of sequences in the steps is unknown",
                           live ? "pass --batch, or name the composition of steps in NVTX ranges"
                                : "record shapes (record_shapes=True)"});
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
  const int32_t device = main_device(steps);
  const Samples samples = collect(context.trace, device);
  Latency latency;
  latency.ttft_ms = summarize(samples.ttft);
  latency.itl_ms = summarize(samples.itl);
  if (!samples.interleaved) latency.tpot_ms = summarize(samples.tpot);
  if (samples.tokens_known && samples.model_ns > 0 && samples.output_tokens > 0)
    latency.output_tokens_per_s =
        static_cast<double>(samples.output_tokens) / (static_cast<double>(samples.model_ns) / 1e9);
  if (const OptDouble warmup = warmup_ns(context, device)) latency.warmup_ms = *warmup / 1e6;
  explain_missing(samples, latency, is_live_recording(context.trace), cannot_tell);
  report.latency = latency;
}

}  // namespace llmprof
