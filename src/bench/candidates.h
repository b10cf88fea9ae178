// Which of the ways to do an operation is timed: only those whose results are right, and of these the fastest.
#pragma once

#include <atomic>
#include <cstddef>

#include "bench/power_control.h"
#include "bench/protocol.h"

namespace llmprof::bench {

// A check of every candidate that is worth one; those that may be timed, in the library's order.
struct RightCandidates {
  std::vector<size_t> index;
  std::vector<kernels::Check> checks;  // of these
  CaseStatus status = CaseStatus::kError;
  std::string note;  // the candidates that were left out, and why
};
RightCandidates check_candidates(device::Device& device, kernels::PreparedOp& op, const std::atomic<bool>& stop);

struct Finalist {
  size_t position = 0;   // in RightCandidates::index
  double us = 0;         // of one execution, roughly
  double least_us = 0;   // the same where threads waited for a core in all that was seen of it: without that waiting
  bool compared = true;  // at last; not where it was too far behind before
};
struct Choice {
  size_t position = 0;  // in RightCandidates::index
  double us = 0;        // of one execution, roughly
  double gap_frac = 0;  // how much slower the first of them was
  // Threads of a CPU waited for a core whenever this or another one was timed, which may be the faster one then.
  bool disturbed = false;
  std::vector<Finalist> finalists;  // the fastest first; the first of all candidates is among them
  std::vector<Finalist> screened;   // those that did not get so far, with the times of a quick round
};
// A quick round over all, a longer one over the best four and the first, within `budget_s` where candidates are fast
// enough for it. Needs at least one.
Result<Choice> choose_candidate(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index,
                                int sets, double budget_s, const std::atomic<bool>& stop);
// All that were near again, now that the device is warm: where it is held to a power limit, an algorithm that needs
// less power for the same product runs at a higher clock, and another one wins. With a `held_down_s` of less than a
// period it is a short timing of the finalists.
Result<Choice> choose_again(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index, int sets,
                            const Choice& before, const Protocol& protocol, const PowerControl& control,
                            const std::atomic<bool>& stop);

// The finalists again, isolated: an algorithm that wins in a loop, where power is short, may lose on an idle device.
Result<Choice> choose_cold(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index, int sets,
                           const Choice& warm, const Protocol& protocol, const std::atomic<bool>& stop);

}  // namespace llmprof::bench
