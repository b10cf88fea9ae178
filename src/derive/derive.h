// derive(): from what a recording says to what the analyses need. Adds the derived tables of trace/tables.h and
// Trace::windows; changes no imported row, but for one move: graph launches recorded as a whole become GPU activities.
// The passes run in this order, each in a file of its own:
//
//   graphs     graph launches without recorded nodes join the GPU activities, one each              whole_graphs.cc
//   link       operators nest; API calls find their operator, GPU activities their call and operator   link.cc
//   classify   GPU activities get a category by the rules in kernel_rules.cc                           classify.cc
//   library    GPU activities find the cuBLAS, cuBLASLt or cuDNN call that launched them         link_library.cc
//   work       operators and library calls with known arithmetic give it to one GPU activity each      work.cc
//   busy       when each device was busy, overlap counted once; the window of each device              busy.cc
//   steps      annotations and detection cut the recording into prefills, decode steps, ...            steps.cc
//   steady     which steps are warm-up, by their times and by what they did for the first time      steady.cc
//   idle       every idle nanosecond gets one cause                                                    idle.cc
//   clients    what the GPU did while requests of a client beside the recording waited       client_splits.cc
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace llmprof {

// NAME=REGEX: ranges whose text matches are stages called NAME. The kind follows from the name (prefill, decode,
// mixed, vision; anything else is other).
struct StageRule {
  std::string name;
  std::string regex;  // ECMAScript, searched anywhere in the text, case-insensitive
};

struct DeriveOptions {
  std::vector<StageRule> stage_rules;  // tried before the built-in ones
  bool detect_stages = true;           // false: annotations only
};

// Parses "NAME=REGEX" as given on the command line; an invalid expression is an error that quotes it.
Result<StageRule> parse_stage_rule(std::string_view text);

// Runs every pass. Fails only on invalid options (a regex that does not compile).
Status derive(Trace& trace, const DeriveOptions& options = {});

// The passes, in order; public so that each can be tested and timed by itself.
void fold_whole_graphs(Trace& trace);
void link_launches(Trace& trace);
void classify_gpu_ops(Trace& trace);
void link_library_calls(Trace& trace);
void attach_work(Trace& trace);
void find_busy(Trace& trace);
Status find_steps(Trace& trace, const DeriveOptions& options);
void attribute_idle(Trace& trace);
void split_client_times(Trace& trace);

}  // namespace llmprof
