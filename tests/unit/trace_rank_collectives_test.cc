// Which kernels of several ranks are one collective, and what that says about their clocks, on cases worked out by
// hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trace/rank_collectives.h"

namespace llmprof {
namespace {

struct Job {
  std::vector<CollectiveCall> calls;

  CollectiveCall& add(uint32_t rank, int64_t start_ns, int64_t end_ns, int64_t elements = 8) {
    CollectiveCall call;
    call.rank = rank;
    call.start_ns = start_ns;
    call.end_ns = end_ns;
    call.group = "0";
    call.members = "[0, 1]";
    call.name = "allreduce";
    call.dtype = "Float";
    call.in_elements = call.out_elements = elements;
    call.group_size = 2;
    return calls.emplace_back(call);
  }

  // "0+1 2+3": indices of the calls of each collective.
  std::string joined() const {
    std::string out;
    for (const JoinedCollective& one : join_collectives(calls)) {
      if (!out.empty()) out += " ";
      for (size_t i = 0; i < one.calls.size(); ++i) out += (i == 0 ? "" : "+") + std::to_string(one.calls[i]);
      if (!one.whole()) out += "?";
    }
    return out;
  }
  std::vector<RankClock> clocks(const std::vector<uint32_t>& of_rank) const {
    return rank_clocks(calls, join_collectives(calls), of_rank);
  }
};

TEST(RankCollectives, NumbersDecideBeforeTimes) {
  Job job;
  job.add(0, 100, 200).sequence = 4;
  job.add(0, 300, 400).sequence = 5;
  job.add(1, 5300, 5400).sequence = 5;  // its recording began later, and its clock is 5 us behind
  job.add(1, 5500, 5600).sequence = 6;
  EXPECT_EQ(job.joined(), "1+2");
}

TEST(RankCollectives, ANumberMayHaveSeveralKernels) {
  Job job;
  for (const uint32_t rank : {0U, 1U})
    for (const int64_t start : {100, 300}) job.add(rank, start, start + 50).sequence = 7;
  EXPECT_EQ(job.joined(), "0+2 1+3");
}

TEST(RankCollectives, AnotherCallOfThatNumberIsNotTheSame) {
  Job job;
  job.add(0, 100, 200).sequence = 1;
  CollectiveCall& other = job.add(1, 100, 200);
  other.sequence = 1;
  other.name = "broadcast";
  EXPECT_EQ(job.joined(), "");
}

TEST(RankCollectives, ListsThatBeginElsewhereAreMovedUntilTimesAgree) {
  Job job;
  for (const int64_t start : {1'000'000, 2'000'000, 3'000'000, 4'000'000}) job.add(0, start, start + 100'000);
  for (const int64_t start : {2'050'000, 3'050'000, 4'050'000}) job.add(1, start, start + 50'000);
  EXPECT_EQ(job.joined(), "1+4 2+5 3+6");
}

TEST(RankCollectives, ListsAreMovedUntilSizesAgree) {
  Job job;
  int64_t at = 0;
  for (const int64_t size : {8, 8, 16, 8}) {
    at += 1'000'000;
    job.add(0, at, at + 1000, size);
  }
  at = 500'000'000;  // nothing is known of its clock
  for (const int64_t size : {8, 16, 8}) {
    at += 1'000'000;
    job.add(1, at, at + 1000, size);
  }
  EXPECT_EQ(job.joined(), "1+4 2+5 3+6");
}

TEST(RankCollectives, GroupsOfOneNameAreToldApartByTheirRanks) {
  Job job;
  for (const uint32_t rank : {0U, 1U, 2U, 3U}) {
    CollectiveCall& call = job.add(rank, 100, 200);
    call.sequence = 1;
    call.members = rank < 2 ? "[0, 1]" : "[2, 3]";
  }
  EXPECT_EQ(job.joined(), "0+1 2+3");
  for (CollectiveCall& call : job.calls) call.members = {};
  EXPECT_EQ(job.joined(), "") << "four ranks in a group of two: which are in which is not known";
}

TEST(RankCollectives, ACollectiveIsWholeWithAllRanksThatHaveItsGroup) {
  Job job;
  for (const uint32_t rank : {0U, 1U, 2U}) {
    job.add(rank, 100, 200).sequence = 1;
    if (rank < 2) job.add(rank, 300, 400).sequence = 2;
  }
  for (CollectiveCall& call : job.calls) call.group_size = 4;
  EXPECT_EQ(job.joined(), "0+2+4 1+3?");
}

TEST(RankCollectives, ASendMeetsItsReceive) {
  Job job;
  const auto pair = [&](uint32_t rank, const char* name, int32_t from, int32_t to) {
    CollectiveCall& call = job.add(rank, 100, 200);
    call.name = name;
    call.from_rank = from;
    call.to_rank = to;
  };
  pair(0, "send", 0, 1);
  pair(1, "recv", 0, 1);
  pair(1, "send", 1, 0);  // its receive was not recorded
  EXPECT_EQ(job.joined(), "0+1");
}

TEST(RankCollectives, KernelsWithoutArgumentsMeetByNameInTheOnlyGroup) {
  Job job;
  for (const uint32_t rank : {0U, 1U, 2U, 3U}) {
    CollectiveCall& call = job.add(rank, 100, 200);
    call.described = false;
    call.group = call.members = {};
    call.group_size = -1;
  }
  EXPECT_EQ(job.joined(), "0+1+2+3");
  for (const uint32_t rank : {0U, 1U}) job.add(rank, 300, 400).sequence = 1;
  EXPECT_EQ(job.joined(), "4+5") << "there are smaller groups: the kernel does not say of which it is";
}

TEST(RankCollectives, ClocksAreBoundByEntriesAndEnds) {
  Job job;  // The clock of rank 1 is 1000 ns behind. Rank 1 enters last, then rank 0.
  job.add(0, 10'000, 10'500).sequence = 1;
  job.add(1, 9'300, 9'500).sequence = 1;
  job.add(0, 20'300, 20'600).sequence = 2;
  job.add(1, 19'000, 19'600).sequence = 2;
  const RankClock clock = job.clocks({0, 1})[1];
  ASSERT_TRUE(clock.known);
  EXPECT_EQ(clock.offset_ns, 1000);
  EXPECT_EQ(clock.high_ns, 10'500 - 9'300);  // it entered the first before rank 0 left
  EXPECT_EQ(clock.low_ns, 20'300 - 19'600);  // rank 0 entered the second before it left
  EXPECT_TRUE(clock.excludes_zero());
}

TEST(RankCollectives, ClocksThatMayAgreeAreLeftAlone) {
  Job job;
  job.add(0, 0, 500).sequence = 1;
  job.add(1, 300, 520).sequence = 1;
  const RankClock clock = job.clocks({0, 1})[1];
  EXPECT_EQ(clock.offset_ns, -20);
  EXPECT_LE(clock.low_ns, 0);
  EXPECT_GE(clock.high_ns, 0);
  EXPECT_FALSE(clock.excludes_zero());
}

TEST(RankCollectives, ClocksAreConnectedOverOtherRanks) {
  Job job;
  for (const uint32_t rank : {0U, 1U}) {
    const int64_t behind = rank == 1 ? 5'000 : 0;
    CollectiveCall& call = job.add(rank, 100'000 - behind, 100'400 - behind);
    call.sequence = 1;
    call.group = "a";
  }
  // Rank 2 meets rank 1 alone, whose clock is behind already.
  for (const uint32_t rank : {1U, 2U}) {
    const int64_t behind = rank == 1 ? 5'000 : 7'000;
    CollectiveCall& call = job.add(rank, 200'000 - behind, 200'300 - behind);
    call.sequence = 1;
    call.group = "b";
  }
  const std::vector<RankClock> clocks = job.clocks({0, 1, 2});
  EXPECT_EQ(clocks[2].offset_ns, 7'000);
  EXPECT_EQ(clocks[2].low_ns, 7'000 - 400 - 300);
  EXPECT_EQ(clocks[2].high_ns, 7'000 + 400 + 300);
  // On the host of rank 1 it has its clock, whatever itself has met.
  const std::vector<RankClock> shared = job.clocks({0, 1, 1});
  EXPECT_EQ(shared[2].offset_ns, shared[1].offset_ns);
  EXPECT_FALSE(job.clocks({0, 1, 2})[0].contradicts());
}

TEST(RankCollectives, ARankThatMeetsNobodyHasNoKnownClock) {
  Job job;
  for (const uint32_t rank : {0U, 1U}) job.add(rank, 100, 200).sequence = 1;
  job.add(2, 100, 200).group = "own";
  EXPECT_FALSE(job.clocks({0, 1, 2})[2].known);
}

TEST(RankCollectives, WhatNoClockExplainsContradicts) {
  Job job;  // One says that the clock of rank 1 is 1 ms behind, the other that it is 1 ms ahead.
  job.add(0, 1'000'000, 1'000'100).sequence = 1;
  job.add(1, 0, 100).sequence = 1;
  job.add(0, 5'000'000, 5'000'100).sequence = 2;
  job.add(1, 6'000'000, 6'000'100).sequence = 2;
  EXPECT_TRUE(job.clocks({0, 1})[1].contradicts());
  EXPECT_FALSE(job.clocks({0, 1})[1].excludes_zero());
}

TEST(RankCollectives, AClockThatDriftsIsNotThatOfTheFirst) {
  Job job;  // 1 ms behind, then 1.001 ms: more than a collective of 100 ns allows, and far from 0.
  job.add(0, 1'000'000, 1'000'100).sequence = 1;
  job.add(1, 0, 100).sequence = 1;
  job.add(0, 5'001'000, 5'001'100).sequence = 2;
  job.add(1, 4'000'000, 4'000'100).sequence = 2;
  const RankClock clock = job.clocks({0, 1})[1];
  EXPECT_TRUE(clock.contradicts());
  EXPECT_TRUE(clock.excludes_zero());
  EXPECT_EQ(clock.offset_ns, 1'000'500);
}

}  // namespace
}  // namespace llmprof
