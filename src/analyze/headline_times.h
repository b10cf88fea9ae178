// Which times of prompts and steps a figure of the headline is the median of.
#pragma once

#include <array>
#include <vector>

#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

struct HeadlineTimes {
  std::vector<double> ms;
  std::vector<double> unsure_ms;   // one for each: how much it may be off for what is not known of the recorder's cost
  std::vector<uint8_t> full_pace;  // one for each: the CPU is known to have been at full pace
  std::vector<Row> steps;          // one for each, of ITL
  StepTimeSource source = StepTimeSource::kRecorded;

  void add(double time_ms, double unsure, bool full) {
    ms.push_back(time_ms);
    unsure_ms.push_back(unsure);
    full_pace.push_back(full ? 1 : 0);
  }
};
using TimesBySource = std::array<HeadlineTimes, 3>;  // by StepTimeSource

// Times without the recorder where there are some: the unrecorded ones if they are enough, else all that are without
// the recorder, else, and where those are the lesser part, as where replay gives back a few of many, those as recorded.
HeadlineTimes choose_times(const TimesBySource& by_source, size_t enough);

}  // namespace llmprof
