// Ranges that the program named itself, as candidates for steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "derive/derive.h"
#include "derive/step_names.h"

namespace llmprof {

// A range on one host thread whose text names a stage. Ranges of one thread are disjoint and in time order: the
// innermost match wins; a range around others of its kind is only their container; a range around others of another
// kind (a prefill around its vision encoder) begins where the last of them ends.
struct StageRange {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  ThreadId thread = kNoRow;
  AnnotationId annotation = kNoRow;
  uint32_t name = 0;  // index into StageRanges::names
  // The innermost range of the same kind around it (a loop around its steps); equal where there is none.
  int64_t outer_start_ns = 0;
  int64_t outer_end_ns = 0;
};

struct StageRanges {
  std::vector<StepName> names;     // one per distinct text that names a stage
  std::vector<StageRange> ranges;  // by thread, then by start
  std::vector<size_t> matched;     // distinct texts of each rule of the user
};

// What the program calls its ranges, for a person: "its ranges are "prefill", "decode #"".
std::string range_texts(const Trace& trace);

// Domains in which libraries name their own calls; their words do not name a stage of the program.
bool is_library_domain(std::string_view domain);

// The first 60 bytes with a # for each number: "decode step 17" and "decode step 18" are one text.
std::string without_counters(std::string_view text);

// Reads each distinct text once. Fails if a rule's regular expression does not compile.
Result<StageRanges> find_stage_ranges(const Trace& trace, const std::vector<StageRule>& rules);

}  // namespace llmprof
