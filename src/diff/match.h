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

void add_operations(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffOperation>& out);
void add_kernels(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffKernel>& out);
void add_operators(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffOperator>& out);

}  // namespace llmprof::diff
