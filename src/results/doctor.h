// What `llmprof doctor` answers: one row per thing that a recording needs, whether it works here, and what to do if
// not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "results/values.h"

namespace llmprof {

enum class CheckState : uint8_t { kWorks, kLimited, kMissing };
std::string_view name_of(CheckState state);  // "works", "limited", "missing"

#define LLMPROF_DOCTOR_CHECK_FIELDS(F)                                     \
  F(std::string, name, "", "driver, gpu 0, cupti, counters of gpu 0, ...") \
  F(CheckState, state, "", "works, limited or missing")                    \
  F(std::string, found, "", "what is so")                                  \
  F(IfAny<std::string>, advice, "", "what to do; left out where nothing is to be done")
LLMPROF_RECORD(DoctorCheck, "checks", "What a recording needs, and whether it is here", LLMPROF_DOCTOR_CHECK_FIELDS)

#define LLMPROF_DOCTOR_FIELDS(F)                                     \
  F(int64_t, gpus, "", "that the driver has")                        \
  F(std::vector<DoctorCheck>, checks, "", "in the order of looking") \
  F(std::string, conclusion, "", "what llmprof can do here")
LLMPROF_RECORD(DoctorResult, "doctor", "What works on a machine", LLMPROF_DOCTOR_FIELDS)

}  // namespace llmprof
