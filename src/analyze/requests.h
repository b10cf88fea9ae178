// The requests of one device, as far as its steps tell them apart: which steps led to a first token, and which made the
// tokens after it. Steps at window edges and those before the first that the program names (derive/steps.h) are in none
// of them.
//
// What is typical is asked of steady steps alone (Steps::phase, derive/steady.h): a request is cold if a step before
// its first token is warm-up.
#pragma once

#include <vector>

#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

struct RequestTimes {
  OptDouble ttft_ns;              // absent: it was not seen whole, or cannot be told from others
  std::vector<Row> before_token;  // vision and prefill steps up to the first token
  std::vector<Row> making;        // decode and mixed steps after it, warm-up included
  bool cold = false;              // a step of before_token is warm-up
  bool begin_unseen = false;      // a window edge lies before the first of `making`
};

struct Requests {
  std::vector<RequestTimes> all;  // in order of time
  bool interleaved = false;       // steps that serve a prompt and other requests: requests cannot be told apart
  bool stalled = false;     // prompts in steps of their own between the steps of other requests, which wait for them
  bool speculates = false;  // tokens are drafted and verified: which step made how many is not recorded
  bool chunk_only = false;  // a chunk that did not finish its prompt
  bool at_edges = false;    // a part of some prompt is at a window edge: its time is not the program's

  // Those with a TTFT that are not cold.
  std::vector<const RequestTimes*> typical_prompts() const;
  // Steady decode and mixed steps.
  std::vector<Row> typical_steps(const Steps& steps) const;
  // The first request, and its first step after the first token; null and kNoRow where a window edge hides its time: a
  // later one is no first one.
  const RequestTimes* first_prompt() const;
  Row first_step() const;
};

// The device with the most steps stands for the run: ranks of one process run the same steps on several devices.
int32_t main_device(const Steps& steps);

Requests find_requests(const Trace& trace, int32_t device);

// What requests typically take, where it is known; medians.
struct TypicalTimes {
  OptDouble ttft_ms, step_ms;
  OptDouble ttft_frac;  // of a typical request: TTFT over TTFT and the steps after it
};
TypicalTimes typical_times(const Trace& trace, const Requests& requests);

}  // namespace llmprof
