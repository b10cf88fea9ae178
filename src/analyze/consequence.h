// What a change in a stage means to those who wait for the program: which figure of the report it moves (TTFT, TPOT,
// the time per step), from what to what, and what share of that figure it is. Severity, order and bounds of findings
// follow from here, so a finding starts from the same TTFT and TPOT as the headline of the report.
//
//   - Stages before a first token (prefill, vision, preprocessing) move TTFT: a change that takes x of the stage's time
//     takes x * part of TTFT, where part is the stage's share of the typical requests' TTFT.
//   - Decode stages move TPOT likewise.
//   - Any other stage moves its own time per step; so do decode and mixed stages where steps serve several requests
//   that
//     the recording does not tell apart. It weighs as much as its share: of the time between tokens, or else of the
//     time in steps of its device.
//   - What lies outside every step moves the recorded time.
//
// However long a program took to start, it does not enter here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct StageConsequence {
  GainMetric metric = GainMetric::kNone;
  double now_ms = 0;      // as in the headline
  double part = 1;        // of the figure that is spent in the stage
  double weight = 1;      // of what is waited for that the figure stands for
  double of_request = 1;  // of a typical request's time that the figure makes up; 1 where that is not known

  // Share of what is waited for that goes if `gain_ns` of the stage's `wall_ns` go; 0 to 1.
  double share(double gain_ns, double wall_ns) const;
  GainBound bound(double gain_ns, double wall_ns) const;
};

// By row of Groups::stages.
std::vector<StageConsequence> stage_consequences(const Context& context, const Report& report);

}  // namespace llmprof
