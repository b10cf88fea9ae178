#include "report/read_report.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/json_document.h"
#include "base/printable.h"
#include "results/record_fill.h"
#include "results/results.h"

namespace llmprof {

template <>
struct EnumEnd<StageKind> {
  static constexpr size_t kValue = static_cast<size_t>(StageKind::kSpeculative) + 1;
};
template <>
struct EnumEnd<StageSource> {
  static constexpr size_t kValue = static_cast<size_t>(StageSource::kNvtx) + 1;
};
template <>
struct EnumEnd<Severity> {
  static constexpr size_t kValue = static_cast<size_t>(Severity::kError) + 1;
};
template <>
struct EnumEnd<Provenance> {
  static constexpr size_t kValue = static_cast<size_t>(Provenance::kComputed) + 1;
};
template <>
struct EnumEnd<ThrottleReason> {
  static constexpr size_t kValue = static_cast<size_t>(ThrottleReason::kHardware) + 1;
};
template <>
struct EnumEnd<ModelOrigin> {
  static constexpr size_t kValue = static_cast<size_t>(ModelOrigin::kRecognised) + 1;
};
template <>
struct EnumEnd<SiteKind> {
  static constexpr size_t kValue = static_cast<size_t>(SiteKind::kPython) + 1;
};
template <>
struct EnumEnd<GainMetric> {
  static constexpr size_t kValue = static_cast<size_t>(GainMetric::kRecorded) + 1;
};
template <>
struct EnumEnd<FindingSeverity> {
  static constexpr size_t kValue = static_cast<size_t>(FindingSeverity::kCritical) + 1;
};
template <>
struct EnumEnd<DistortionMethod> {
  static constexpr size_t kValue = static_cast<size_t>(DistortionMethod::kBaseline) + 1;
};
template <>
struct EnumEnd<StepTimeSource> {
  static constexpr size_t kValue = static_cast<size_t>(StepTimeSource::kRecorded) + 1;
};

namespace {

// The words in brackets behind a stage's name (derive/steps.h).
StageMark mark_in(std::string_view name) {
  constexpr std::pair<std::string_view, StepState> kStates[] = {{" [whole graphs]", StepState::kWholeGraphs},
                                                                {" [not recorded]", StepState::kNotRecorded},
                                                                {" [window edge]", StepState::kWindowEdge}};
  constexpr std::string_view kWarmUp = " [warm-up]";
  StageMark out;
  if (name.ends_with(kWarmUp)) {
    out.phase = StepPhase::kWarmUp;
    name.remove_suffix(kWarmUp.size());
  }
  for (const auto& [ending, state] : kStates)
    if (name.ends_with(ending)) out.state = state;
  return out;
}

// "bf16_tflops", "int8_tops", "dram_gbs", and rates of links, which end likewise.
void describe_stored_peak(std::string_view name, Peak& peak) {
  constexpr std::string_view kNumbers = "_tflops", kIntegers = "_tops";
  peak.of = name == "dram_gbs" ? Peak::Of::kMemory : Peak::Of::kLink;
  for (const std::string_view ending : {kNumbers, kIntegers}) {
    if (!name.ends_with(ending)) continue;
    peak.of = Peak::Of::kArithmetic;
    peak.type = name.substr(0, name.size() - ending.size());
    peak.integers = ending == kIntegers;
  }
}

// Whether a question is one of analyze/latency.cc: where there is no latency, these say why.
bool is_about_latency(std::string_view question) {
  constexpr std::string_view kWords[] = {"TTFT", "TPOT", "ITL", "tokens per second",
                                         "Which requests do the steps that nobody named serve?"};
  for (const std::string_view word : kWords)
    if (question.find(word) != std::string_view::npos) return true;
  return false;
}

void find_what_is_beside(Report& report) {
  for (const StageTiming& stage : report.stages) report.stage_marks.push_back(mark_in(stage.name));
  if (!report.latency)
    for (const CannotTell& row : report.cannot_tell)
      if (is_about_latency(row.question)) report.why_no_latency.push_back(row.why);
  if (!report.device) return;
  // As the page for a browser has it: a CPU is in no table of GPUs, and has no compute capability.
  report.device->cpu = !report.device->sku && !report.device->compute_capability;
  for (auto& [name, peak] : report.device->peaks) describe_stored_peak(name, peak);
}

}  // namespace

Result<Report> read_report(std::string_view json) {
  LLMPROF_ASSIGN(const JsonDocument document, JsonDocument::parse(json));
  const JsonValue root = document.root();
  const std::string_view schema = result_info(Report()).schema;
  if (root["schema"].text() != schema)
    return fail(fmt::format("expected a report of schema {}, found {}", schema,
                            printable(root["schema"].text().value_or("none"))));
  Report report;
  RecordFiller filler;
  filler.fill(root, report);
  if (!filler.wrong().empty())
    return fail(fmt::format("expected a report with the fields of llmprof {}, found one of {} without a valid \"{}\"",
                            LLMPROF_VERSION, printable(root["tool_version"].text().value_or("another version")),
                            filler.wrong()));
  find_what_is_beside(report);
  return report;
}

}  // namespace llmprof
