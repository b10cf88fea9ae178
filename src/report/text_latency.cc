// The first figures of the text report: TTFT, TPOT (ITL where steps serve several requests) and tokens per second.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

// From this share of TTFT on, time before the prompt is worth a word.
constexpr double kBeforePromptMin = 0.2;
constexpr double kIntervalLeast = 0.002;
constexpr int64_t kP99Min = 100;  // of fewer the 99th percentile is next to the largest one

// One typical figure: what it is the median of, how far others lie, and the first one, which has costs of its own.
struct Figure {
  const char* label;
  const char* one;  // "prompt"
  OptDouble typical, low, high, p99, first;
  int64_t n = 0;
  bool others_unseen = false;    // there may be more of them in unrecorded time
  const char* first_since = "";  // what the first one is timed from, where that is not its start
  bool first_cold = false;       // warm-up is in it
  bool in_doubt = false;         // the first of the program is the only one
  std::optional<StepTimeSource> source{};
  OptDouble full_pace{};  // of those whose CPU was at full pace
  int64_t full_pace_n = 0;
};

// Whose times those are: nothing of recordings by other tools, which say it as a whole.
std::string source_label(std::optional<StepTimeSource> source) {
  if (!source) return {};
  switch (*source) {
    case StepTimeSource::kUnrecorded:
      return ", unrecorded";
    case StepTimeSource::kReplayed:
      return ", recorder's cost subtracted";
    case StepTimeSource::kRecorded:
      return ", as recorded";
  }
  return {};
}

bool pace_matters(const OptDouble& typical, const OptDouble& full_pace) {
  constexpr double kMatters = 0.02;
  return typical && full_pace && std::fabs(*full_pace / *typical - 1) > kMatters;
}

// That the CPU was slow, where that shows in a figure, or where no step was without it.
std::string pace_line(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr double kOften = 0.1, kMostly = 0.5;
  const Headline& headline = report.latency->headline;
  if (report.host_pace.empty()) return {};
  const HostPaceRecord& pace =
      *std::max_element(report.host_pace.begin(), report.host_pace.end(),
                        [](const HostPaceRecord& a, const HostPaceRecord& b) { return a.slow_frac < b.slow_frac; });
  if (pace.slow_frac < kOften) return {};
  const bool matters = pace_matters(headline.ttft_ms, headline.ttft_full_pace_ms) ||
                       pace_matters(headline.itl_ms, headline.itl_full_pace_ms);
  const bool none = headline.itl_ms ? !headline.itl_full_pace_ms : headline.ttft_ms && !headline.ttft_full_pace_ms;
  const bool never = none && pace.slow_frac >= kMostly;
  if (!matters && !never) return {};
  constexpr double kWaited = 0.05;
  const std::string waited =
      pace.waited_frac && *pace.waited_frac > kWaited
          ? fmt::format(", and for {:.0f} % of the time it was ready and had no CPU", 100 * *pace.waited_frac)
          : "";
  const std::string text = fmt::format(
      "its CPU was slow in {:.0f} % of probes{}: another program, or another virtual machine of the same host, runs "
      "on the same cores{}",
      100 * pace.slow_frac, waited, never && !matters ? "; no figure is of its full pace" : "");
  std::string out = wrap_text(text, options.width, "  pace  ", "        ");
  return out.replace(0, 6, "  " + ink.bold("pace"));
}

std::string figure_line(const Figure& figure, const std::string& cost, const RenderOptions& options, const Ink& ink) {
  const std::string indent = fmt::format("  {}  ", figure.label);
  const char* const cold = figure.first_cold ? ", cold" : "";
  std::string text = "not in this recording";
  if (!figure.typical && figure.first)
    text = fmt::format("no warm one in this recording; first {} {}{}{}", figure.one, format_ms(*figure.first),
                       figure.first_since, cold);
  if (figure.typical) {
    // The only one there is has nothing beside it.
    const bool only = figure.n == 1 && figure.first == figure.typical;
    text = format_ms(*figure.typical) + "  ";
    // Narrower than the digits that are printed says nothing.
    if (figure.low && figure.high && *figure.high - *figure.low > kIntervalLeast * *figure.typical)
      text += fmt::format("(95 %: {} to {})  ", format_ms(*figure.low), format_ms(*figure.high));
    const bool some = figure.others_unseen && figure.source != StepTimeSource::kUnrecorded;
    const char* const recorded = some ? " recorded" : "";
    text += only && some ? fmt::format("the first {}, and the only one recorded", figure.one)
            : only
                ? fmt::format("the only {}{}", figure.one, figure.in_doubt ? ", the program's first: perhaps cold" : "")
            : figure.n == 1
                ? fmt::format("1 {}{}", figure.one, recorded)
                : fmt::format("median of {} {}s{}", format_count(static_cast<double>(figure.n)), figure.one, recorded);
    if (!some || figure.source != StepTimeSource::kRecorded) text += source_label(figure.source);
    if (figure.p99 && figure.n >= kP99Min) text += ", p99 " + format_ms(*figure.p99);
    if (pace_matters(figure.typical, figure.full_pace))
      text += fmt::format("; {} at the full pace of its CPU ({} {}s)", format_ms(*figure.full_pace), figure.full_pace_n,
                          figure.one);
    if (!only && figure.first)
      text += fmt::format("; first {} {}{}{}", figure.one, format_ms(*figure.first), figure.first_since, cold);
    text += cost;
  }
  std::string out = wrap_text(text, options.width, indent, std::string(indent.size(), ' '));
  return out.replace(0, indent.size(), "  " + ink.bold(figure.label) + "  ");
}

// A prefill may hold the prompts of several requests, and where their number is unknown nobody knows.
bool single_prompts(const Report& report) {
  return std::all_of(report.stages.begin(), report.stages.end(), [](const StageTiming& stage) {
    return stage.kind != StageKind::kPrefill || stage.count == 0 || stage.sequences == 1;
  });
}

// Whether llmprof found the prompts: it knows of them from their first kernel on. Before that of the very first the
// host loads modules for as long as it takes.
bool prompts_found(const Report& report) {
  return std::any_of(report.stages.begin(), report.stages.end(), [](const StageTiming& stage) {
    return stage.kind == StageKind::kPrefill && stage.source == StageSource::kDetected && stage.count > 0;
  });
}

// Steps that the program does not name are known only where kernels were recorded.
bool steps_unseen(const Report& report) {
  bool detected = false, named = false;
  for (const StageTiming& stage : report.stages) {
    detected |= stage.source == StageSource::kDetected && stage.count > 0;
    named |= stage.source != StageSource::kDetected && stage.count > 0;
  }
  constexpr double kWhole = 0.99;
  return detected && !named && report.source.recorded_ms.ms() < kWhole * report.source.duration_ms.ms();
}

// A rate is of all the time, a typical step is a median: where they differ, the page says why.
std::string uneven_steps(const Report& report) {
  constexpr double kUneven = 1.2;
  const OptDouble typical = report.latency->headline.itl_ms;
  // The table's steps are recorded ones, and slower for that.
  if (report.latency->headline.itl_source.value_or(StepTimeSource::kRecorded) != StepTimeSource::kRecorded) return {};
  for (const StageTiming& stage : report.stages) {
    if (!typical || stage.kind != StageKind::kDecode || stage.count == 0 || report.mark_of(stage).is_warm_up())
      continue;
    const double mean = stage.wall_ms.ms() / static_cast<double>(stage.count);
    if (mean > kUneven * *typical || mean * kUneven < *typical)
      return fmt::format(", whose steps are uneven: their mean is {}", format_ms(mean));
    break;
  }
  return {};
}

}  // namespace

std::string text_latency(const Report& report, const RenderOptions& options, const Ink& ink) {
  const Headline& headline = report.latency->headline;
  const bool unseen = steps_unseen(report);
  std::string before;
  if (headline.ttft_ms && headline.before_prompt_ms.value_or(0) >= kBeforePromptMin * *headline.ttft_ms)
    before = fmt::format("; without {} on the host before it (inputs prepared, or no request)",
                         format_ms(*headline.before_prompt_ms));
  if (headline.ttft_ms && headline.ttft_other_model_frac)
    before += fmt::format("; {} of it another model's pass before the prompt (an encoder's, or of the answer before)",
                          format_percent(*headline.ttft_other_model_frac));
  std::string out =
      figure_line({"TTFT", single_prompts(report) ? "prompt" : "sample", headline.ttft_ms, headline.ttft_ci95_low_ms,
                   headline.ttft_ci95_high_ms, headline.ttft_p99_ms, headline.first_ttft_ms, headline.ttft_n, unseen,
                   prompts_found(report) ? " from its first kernel on" : "", headline.first_ttft_cold.value_or(false),
                   headline.ttft_in_doubt.value_or(false), headline.ttft_source, headline.ttft_full_pace_ms,
                   headline.ttft_full_pace_n.value_or(0)},
                  before + (headline.ttft_ms ? distortion_label(report, StageKind::kPrefill) : ""), options, ink);
  const bool per_request = headline.tpot_ms || !headline.itl_ms;
  out += figure_line(
      {per_request ? "TPOT" : "ITL ", "step", headline.itl_ms, headline.itl_ci95_low_ms, headline.itl_ci95_high_ms,
       headline.itl_p99_ms, headline.first_itl_ms, headline.itl_n, unseen, "", headline.first_itl_cold.value_or(false),
       false, headline.itl_source, headline.itl_full_pace_ms, headline.itl_full_pace_n.value_or(0)},
      headline.itl_ms ? distortion_label(report, StageKind::kDecode) : "", options, ink);
  if (headline.output_tokens_per_s)
    out +=
        "  " + ink.bold("rate") + "  " +
        fmt::format("{:.1f} output tokens/s while decoding{}\n", *headline.output_tokens_per_s, uneven_steps(report));
  out += pace_line(report, options, ink);
  return out;
}

std::string text_latency_or_why(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.latency) return text_latency(report, options, ink);
  std::string out;  // the reason is the answer
  for (const std::string& why : report.why_no_latency) out += wrap_text(why, options.width, "  ", "  ");
  return out;
}

}  // namespace llmprof
