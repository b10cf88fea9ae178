// What of one run belongs to what of another: groups of steps by kind and shape, kernels by role and name.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "diff/run.h"

namespace llmprof::diff {

struct GroupPairs {
  std::vector<std::pair<size_t, size_t>> pairs;  // places in both lists, in the order of the first
  std::vector<size_t> only_a, only_b;
};
// Of one kind (of other stages one name) and device. Those of equal sequences and tokens; then those of which one side
// does not know one of these and the other number is the same; then those of a kind that
// has one stage in one of the runs. Contexts need not agree: they grow from step to step.
GroupPairs match_groups(const std::vector<StepGroup>& a, const std::vector<StepGroup>& b);

// Steps of both whose contexts lie in the range that both have, where their medians lie more than a tenth apart and
// three steps or more of each do; else all.
void keep_common_contexts(const Run& run_a, StepGroup& a, const Run& run_b, StepGroup& b);

// Figures of a step of one stage, medians over the runs of each side; places in the result for the changes to be
// largest first. `a` and `b`: one group of each run; empty pointers are runs without it.
struct GroupOfRun {
  const Run* run = nullptr;
  const StepGroup* group = nullptr;
};
using GroupsOfSide = std::vector<GroupOfRun>;

// The run whose figure is nearest to that of its side; an empty one where none has it.
GroupOfRun nearest_run(const GroupsOfSide& runs, double figure_ms);

// Of runs of both sides near to the figures of their sides, the two whose recorded steps differ by what these figures
// differ by. Figures are of unrecorded steps where there are such, and what recording costs is another in every
// process: up to 0.2 ms a launch of a graph on slow memory. Without recorded steps the nearest.
std::pair<GroupOfRun, GroupOfRun> pair_to_attribute(const GroupsOfSide& a, double a_ms, const GroupsOfSide& b,
                                                    double b_ms);

void add_operations(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffOperation>& out);
void add_kernels(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffKernel>& out);
void add_operators(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffOperator>& out);

}  // namespace llmprof::diff
