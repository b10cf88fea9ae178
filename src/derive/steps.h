// Steps: the runs of the model in a recording, from annotations and from detection, and small queries over the result.
//
// Always holds after find_steps: every GPU activity has at most one step (gpu_links.step), the one whose host range
// launched it; windows of one device do not overlap; Steps is sorted by start, and every step has GPU activity, or lies
// where kernels were not recorded (Steps::missing, a range of the program then says when it ran), or is a stage of the
// program before a prompt in which nothing was launched (host_stages.h; its gpu_start_ns and gpu_end_ns are its end).
//
// Steps with missing kernels stand apart (Steps::state) wherever others of their name are complete. Steps::phase is
// warm-up for what was detected before the first step that the program names: that is loading, warm-up and capture, and
// says nothing about serving, where most of the time since then is in named steps, and
//   - the time in which the program names steps is longer than the steps before, or
//   - it names more steps than there are before, and of the kinds that those have: prompts, if they hold prompts.
// Where it names tokens and no prompts, the detected prompt directly before the first named step is that of these
// tokens: serving begins with it, or with the vision encoder directly before it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "derive/derive.h"

namespace llmprof {

// How reports call such a step: "NAME [window edge]", "NAME [warm-up]". For people: code asks the columns.
std::string step_label(std::string_view name, StepState state, StepPhase phase);
// When the host began with the first step of serving per device, a pause before it aside, where there is a warm-up in
// that sense to tell from serving.
std::map<int32_t, int64_t> serving_starts(const Steps& steps);

// Signs that a recording is of training, where prefill and decode have no meaning.
struct TrainingEvidence {
  uint64_t backward_ops = 0;     // operators of the autograd engine, and *_backward
  uint64_t optimizer_steps = 0;  // ranges Optimizer.step of the host
  std::string first_name;        // the first of them
  bool found() const { return !first_name.empty(); }
};
TrainingEvidence training_evidence(const Trace& trace);
bool looks_like_training(const Trace& trace);

// Busy time of a device within any interval, ns; O(log n) a query after one pass over busy_intervals. Holds a
// reference to the trace.
class BusyIndex {
 public:
  explicit BusyIndex(const Trace& trace);
  int64_t busy_in(int32_t device, int64_t start_ns, int64_t end_ns) const;

 private:
  struct Device {
    int32_t device = 0;
    size_t first = 0;                // row in busy_intervals
    std::vector<int64_t> before_ns;  // busy time before interval i
  };
  int64_t busy_before(const Device& device, int64_t time) const;
  const Trace* trace_ = nullptr;
  std::vector<Device> devices_;
};

// The same for a single question; linear in the busy intervals inside it.
int64_t busy_in(const Trace& trace, int32_t device, int64_t start_ns, int64_t end_ns);

// Share of the GPU time of a device that lies in steps, 0 to 1; NaN without GPU activity.
double step_coverage_frac(const Trace& trace, int32_t device);

}  // namespace llmprof
