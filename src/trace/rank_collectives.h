// Collectives that the ranks of one job took part in together, found in their recordings: which kernel of one rank
// belongs to which of another, and what that says about their clocks. Importing joins recordings by it
// (import/ranks.h), analyses find who waited for whom (analyze/ranks.cc).
//
// Calls of one process group are matched by their numbers where the recorder wrote them, else by their order in the
// group; where recordings do not begin with the same call, the lists are moved against each other until names and sizes
// agree and no rank leaves a call before another enters it. What has no partner stays alone, and is counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// What one rank ran of a collective. Texts are those of its trace.
struct CollectiveCall {
  uint32_t rank = 0;  // place among the ranks, counted from 0: not its number in the job
  GpuOpId op;
  int64_t start_ns = 0, end_ns = 0;  // of all ranks on one epoch
  std::string_view group, members, name, dtype;
  int64_t in_elements = -1, out_elements = -1;
  int64_t sequence = -1;
  int32_t group_size = -1;
  int32_t from_rank = -1, to_rank = -1;  // of a send or receive, numbers in the job
  // From the arguments of a collective; else from nothing but the name of its kernel, as in CUDA graphs.
  bool described = true;
  bool is_between_two() const { return from_rank >= 0 && to_rank >= 0; }
  // Whether no rank leaves before all have entered, as each needs something of every other. The root of a broadcast, or
  // what gives its part to a root, does not wait: it may leave early, and where the root is unknown nobody waits for
  // sure.
  bool keeps_all() const;
  // Whether this one cannot end before `other`, of the same collective, has begun.
  bool needs(const CollectiveCall& other) const {
    return is_between_two() ? name == "recv" && other.name == "send" : keeps_all();
  }
};

struct JoinedCollective {
  std::vector<uint32_t> calls;  // indices of calls, by rank; at least two
  uint32_t ranks = 0;           // recordings that know its group
  // Whether all of them are in it. Who waited for whom is known only then.
  bool whole() const { return calls.size() == ranks; }
};

// Adds the calls of a trace, of devices that belong to a rank, by ordinal; `numbers` has the rank's number in the job.
// All times are moved by shift_ns.
void add_collective_calls(const Trace& trace, const std::map<int32_t, uint32_t>& rank_of_device,
                          const std::vector<int32_t>& numbers, int64_t shift_ns, std::vector<CollectiveCall>& calls);

// In order of the first start.
std::vector<JoinedCollective> join_collectives(const std::vector<CollectiveCall>& calls);

// Of a joined collective, ns: when its last rank began, and when its first rank was done.
int64_t last_start_ns(const std::vector<CollectiveCall>& calls, const JoinedCollective& joined);
int64_t first_end_ns(const std::vector<CollectiveCall>& calls, const JoinedCollective& joined);

// What has to be added to the times of a rank to have them on the clock of the first one.
struct RankClock {
  bool known = false;    // connected to the first by common collectives
  double offset_ns = 0;  // by the ends of common collectives, within the bounds
  double low_ns = 0;     // no rank leaves a collective before those enter it that it needs:
  double high_ns = 0;    // so it lies between these; low above high: no constant does, as where clocks drift;
                         // infinite where nothing bounds it
  bool contradicts() const { return known && low_ns > high_ns; }
  bool excludes_zero() const { return known && (std::min(low_ns, high_ns) > 0 || std::max(low_ns, high_ns) < 0); }
};
// By rank; the first is known, with an offset of 0. `clock_of_rank`: ranks of one host share a clock.
std::vector<RankClock> rank_clocks(const std::vector<CollectiveCall>& calls,
                                   const std::vector<JoinedCollective>& joined,
                                   const std::vector<uint32_t>& clock_of_rank);

// The same of a trace of joined ranks (table ranks_joined); empty where it is of one.
struct RankCollectives {
  std::vector<int32_t> numbers;  // of the ranks in the job
  std::vector<CollectiveCall> calls;
  std::vector<JoinedCollective> joined;
  // Whether all of its ranks are here and were in it at one time.
  bool overlapped(const JoinedCollective& one) const;
  // Whether those also had to be: who waited for whom is known of these.
  bool met(const JoinedCollective& one) const;
};
RankCollectives rank_collectives(const Trace& trace);

}  // namespace llmprof
