// The names of enums, each in one place: JSON, CSV and pages print them, and files are read by them.
#include <array>

#include "results/bench.h"
#include "results/diff.h"
#include "results/doctor.h"
#include "results/model.h"
#include "results/peaks.h"
#include "results/report.h"
#include "results/runs.h"

namespace llmprof {
namespace {

template <class Enum, size_t n>
std::string_view entry(const std::array<std::string_view, n>& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

}  // namespace

std::string_view name_of(Bound bound) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Bound::kCount)> kNames = {
      "unknown", "compute", "memory", "latency", "copy", "comm", "overhead", "sync", "mixed"};
  return entry(kNames, bound);
}

std::string_view name_of(CheckState state) {
  static constexpr std::array<std::string_view, 3> kNames = {"works", "limited", "missing"};
  return entry(kNames, state);
}

std::string_view name_of(ModelStage stage) {
  static constexpr std::array<std::string_view, 3> kNames = {"prefill", "decode", "vision"};
  return entry(kNames, stage);
}

std::string_view name_of(StageLimit limit) {
  static constexpr std::array<std::string_view, 3> kNames = {"unknown", "arithmetic", "memory"};
  return entry(kNames, limit);
}

std::string_view name_of(Unit unit) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Unit::kCount)> kNames = {
      "", "1", "frac", "ms", "us", "bytes", "FLOP", "FLOP/byte", "GB/s", "MHz", "W", "C", "tokens"};
  return entry(kNames, unit);
}

std::string_view name_of(DistortionMethod method) {
  static constexpr std::array<std::string_view, 4> kNames = {"within-run", "within-run, CUPTI attached",
                                                             "recurring host event", "baseline"};
  return entry(kNames, method);
}

std::string_view name_of(StepTimeSource source) {
  static constexpr std::array<std::string_view, 3> kNames = {"unrecorded", "replayed", "recorded"};
  return entry(kNames, source);
}

std::string_view name_of(ThrottleReason reason) {
  static constexpr std::array<std::string_view, 6> kNames = {"power-cap",   "thermal-software", "thermal-hardware",
                                                             "power-brake", "sync-boost",       "hardware"};
  return entry(kNames, reason);
}

std::string_view name_of(ModelOrigin origin) { return origin == ModelOrigin::kGiven ? "given" : "recognised"; }

std::string_view name_of(SiteKind kind) {
  static constexpr std::array<std::string_view, 3> kNames = {"operator", "api", "python"};
  return entry(kNames, kind);
}

std::string_view name_of(GainMetric metric) {
  static constexpr std::array<std::string_view, 5> kNames = {"", "TTFT (ms)", "TPOT (ms)", "time per step (ms)",
                                                             "recorded time (ms)"};
  return entry(kNames, metric);
}

std::string_view name_of(RunKind kind) {
  static constexpr std::array<std::string_view, static_cast<size_t>(RunKind::kCount)> kNames = {"run", "bench", "peaks",
                                                                                                "analysis"};
  return entry(kNames, kind);
}

std::string_view name_of(RunState state) {
  static constexpr std::array<std::string_view, static_cast<size_t>(RunState::kCount)> kNames = {"whole", "incomplete",
                                                                                                 "running", "damaged"};
  return entry(kNames, state);
}

std::string_view name_of(RetentionAction action) {
  return action == RetentionAction::kCompress ? "compress" : "remove";
}

std::string_view name_of(DiffVerdict verdict) {
  static constexpr std::array<std::string_view, static_cast<size_t>(DiffVerdict::kCount)> kNames = {
      "FASTER", "SLOWER", "SAME", "AMBIGUOUS"};
  return entry(kNames, verdict);
}

std::string_view name_of(DiffMetric metric) {
  static constexpr std::array<std::string_view, static_cast<size_t>(DiffMetric::kCount)> kNames = {
      "ttft", "tpot", "rate", "step", "step-at-pace"};
  return entry(kNames, metric);
}

std::string_view name_of(DiffPart part) {
  static constexpr std::array<std::string_view, kDiffParts> kNames = {
      "kernel-replaced", "kernel-slower", "clock", "launch", "wait", "copy", "host", "count", "pace", "other"};
  return entry(kNames, part);
}

std::string_view name_of(DiffPresence presence) {
  static constexpr std::array<std::string_view, 4> kNames = {"both", "replaced", "gone", "new"};
  return entry(kNames, presence);
}

std::string_view name_of(GateState state) {
  static constexpr std::array<std::string_view, 3> kNames = {"holds", "broken", "ambiguous"};
  return entry(kNames, state);
}

namespace bench {

std::string_view name_of(Processor processor) { return processor == Processor::kCpu ? "cpu" : "cuda"; }

std::string_view name_of(CaseStatus status) {
  static constexpr std::array<std::string_view, static_cast<size_t>(CaseStatus::kCount)> kNames = {
      "passed", "mistrusted", "failed", "unsupported", "out-of-memory", "interrupted", "error"};
  return entry(kNames, status);
}

std::string_view name_of(Regime regime) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Regime::kCount)> kNames = {"", "cold", "sustained"};
  return entry(kNames, regime);
}

std::string_view name_of(Verdict verdict) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Verdict::kCount)> kNames = {
      "SAME", "FAST", "SLOW", "AMBIGUOUS", "CANNOT-COMPARE"};
  return entry(kNames, verdict);
}

std::string_view name_of(Drifting runs) {
  static constexpr std::array<std::string_view, 4> kNames = {"", "before", "now", "both"};
  return entry(kNames, runs);
}

std::string_view name_of(PeakPath path) { return path == PeakPath::kLibrary ? "library" : "registers"; }
std::string_view name_of(PeakSource source) { return source == PeakSource::kMeasured ? "measured" : "datasheet"; }

}  // namespace bench
}  // namespace llmprof
