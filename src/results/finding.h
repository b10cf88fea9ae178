// What is wrong, the numbers behind it, where it is, what to change and what that brings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "results/values.h"

namespace llmprof {

// Where a number comes from. "measured" by the recorder; "counted" from recorded shapes; "formula" from the model's
// configuration; "datasheet". Of occupancy: "recorded" by the recorder, or "computed" from the kernel's resources.
enum class Provenance : uint8_t { kMeasured, kCounted, kFormula, kDatasheet, kRecorded, kComputed };
const char* name_of(Provenance provenance);

// Units of evidence.
enum class Unit : uint8_t {
  kNone,
  kOne,
  kFrac,
  kMs,
  kUs,
  kBytes,
  kFlop,
  kFlopPerByte,
  kGbs,
  kMhz,
  kWatt,
  kCelsius,
  kTokens,
  kCount
};
std::string_view name_of(Unit unit);  // "1", "frac", "ms"

// What a change moves; all of them are times in ms.
enum class GainMetric : uint8_t { kNone, kTtft, kTpot, kStep, kRecorded };
std::string_view name_of(GainMetric metric);  // "TTFT (ms)"

// The finding that says that a stage waits for launches.
inline constexpr std::string_view kLaunchBound = "launch-bound";

#define LLMPROF_EVIDENCE_FIELDS(F)                 \
  F(std::string, metric, "", "What was looked at") \
  F(OptDouble, value, "", "Its value in this run") \
  F(Unit, unit, "", "Unit of the value")           \
  F(Provenance, provenance, "", "measured, counted, formula, datasheet")
LLMPROF_RECORD(Evidence, "evidence", "Numbers of this run behind a finding", LLMPROF_EVIDENCE_FIELDS)

#define LLMPROF_BOUND_FIELDS(F)                                          \
  F(GainMetric, metric, "", "Metric that the change could move at most") \
  F(double, from, "", "Its value now")                                   \
  F(double, to, "", "Best value that the change can reach")
LLMPROF_RECORD(GainBound, "bound", "Upper bound of the gain", LLMPROF_BOUND_FIELDS)

// What a finding's change brings. By replay: the recorded steps run again with it (replay/what_if.h); by formula: what
// sums of the recording allow at most.
#define LLMPROF_GAIN_FIELDS(F)                                                                                  \
  F(GainMetric, metric, "", "Metric that the change moves")                                                     \
  F(double, from, "", "Its value now, or with the finding of on_top_of mended")                                 \
  F(double, to, "", "With the change")                                                                          \
  F(Interval95, ci95, "", "95 % interval of `to`; of replay, with three steps or more")                         \
  F(std::string, method, "", "replay or formula")                                                               \
  F(OptText, on_top_of, "", "Finding that is taken to be mended before")                                        \
  F(IfKnown<double>, full_pace_frac, "frac",                                                                    \
    "Of replay: share of a step at the full pace of its CPU (host_pace) that goes; of five such steps or more") \
  F(OptText, at, "", "Function that launches most of what goes, of what is all over a model")                   \
  F(IfKnown<double>, at_to, "", "With the change at that function alone, by its part of all that goes; within ci95")
LLMPROF_RECORD(FindingGain, "gain", "What a change brings", LLMPROF_GAIN_FIELDS)

inline constexpr std::string_view kBeforePython = "before-python";
#define LLMPROF_FINDING_PLACE_FIELDS(F)                                           \
  F(std::string, kind, "", "python; before-python: host code ends there; kernel") \
  F(std::string, name, "", "Functions with file and line, innermost first")       \
  F(OptDouble, per_step, "", "Times per step")
LLMPROF_RECORD(FindingPlace, "where", "Where in the program", LLMPROF_FINDING_PLACE_FIELDS)

enum class FindingSeverity : uint8_t { kInfo, kMinor, kMajor, kCritical };
const char* name_of(FindingSeverity severity);

#define LLMPROF_FINDING_FIELDS(F)                                                  \
  F(KeyText, id, "", "Stable, see `llmprof list findings`")                        \
  F(FindingSeverity, severity, "", "info, minor, major or critical")               \
  F(KeyText, stage, "", "Stage, or all")                                           \
  F(std::string, title, "", "What is so")                                          \
  F(std::vector<Evidence>, evidence, "", "The numbers behind it")                  \
  F(std::vector<std::string>, advice, "", "What to change, the first thing first") \
  F(std::optional<GainBound>, bound, "", "What that can bring at most")            \
  F(std::optional<FindingGain>, gain, "", "What it brings")                        \
  F(std::vector<std::string>, symptoms, "", "Other findings that go with it")      \
  F(std::vector<FindingPlace>, where, "", "Where in the program")                  \
  F(OptText, forbidden_by, "", "Why the program cannot be changed so as it is")
LLMPROF_RECORD(FindingFields, "findings", "What is wrong, why, and what to change", LLMPROF_FINDING_FIELDS)

struct Finding : FindingFields {
  int64_t device = -1;  // ordinal of the stage's GPU
  double gain_ns = 0;   // expected gain over the recording; an upper bound
  double share = 0;     // of a typical request (of the window, where it is about that) that could go: for the order
  int32_t late_device = -1;   // the GPU that this one waits for, where the finding is such a wait
  bool beyond_steps = false;  // what could go lies before the steps, where no replay of them sees it
};

}  // namespace llmprof
