// What was in use at the peak and at the snapshot, by which code, and what stays unknown.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

struct Snapshot {
  Trace trace;
  TraceBuilder builder{trace};

  void block(uint64_t address, int64_t bytes, int64_t requested, const char* state = "active_allocated",
             const char* place = "", uint64_t segment = 1) {
    builder.add<MemoryBlocks>({.source = builder.text("s"),
                               .device = 0,
                               .segment = segment,
                               .address = address,
                               .bytes = bytes,
                               .requested_bytes = requested,
                               .state = builder.text(state),
                               .pool = builder.text("large"),
                               .stream = 0,
                               .place = builder.text(place)});
  }
  // `level`: in use behind it.
  void event(int64_t time_ns, uint64_t address, int64_t bytes, int64_t level, const char* place = "") {
    builder.add<MemoryEvents>({.time_ns = time_ns,
                               .thread = builder.thread(0, -1, builder.text("PyTorch memory")),
                               .device = 0,
                               .address = address,
                               .bytes = bytes,
                               .allocated_bytes = level,
                               .reserved_bytes = -1,
                               .place = builder.text(place)});
  }
  void figure(const char* name, double value, int32_t device = -1) {
    builder.add<AllocatorFigures>(
        {.source = builder.text("f"), .device = device, .name = builder.text(name), .value = value});
  }
  Report report() {
    finish_import(trace);
    EXPECT_TRUE(derive(trace, {}));
    Result<Report> out = analyze(trace);
    EXPECT_TRUE(out);
    return std::move(*out);
  }
};

double bytes_at(const Report& report, const std::string& moment, const std::string& place) {
  for (const MemoryPlaceRecord& row : report.memory_places)
    if (row.moment == moment && row.place == place) return row.bytes;
  return -1;
}

bool cannot_tell(const Report& report, const std::string& part) {
  for (const CannotTell& row : report.cannot_tell)
    if (row.why.find(part) != std::string::npos) return true;
  return false;
}

TEST(MemorySnapshotAnalysis, WhatIsHeldAndUsed) {
  Snapshot of;
  of.block(100, 1024, 1000);
  of.block(2000, 3072, 0, "inactive");
  of.block(6000, 512, 400, "active_pending_free");
  of.block(9000, 8192, 0, "inactive", "", 2);  // a segment of its own, which could be given back
  const Report report = of.report();
  ASSERT_EQ(report.allocators.size(), 1U);
  const AllocatorRecord& row = report.allocators[0];
  EXPECT_EQ(row.segments, OptInt(2));
  EXPECT_EQ(row.live_blocks, OptInt(1));
  EXPECT_EQ(row.reserved_bytes, OptDouble(12800));
  EXPECT_EQ(row.active_bytes, OptDouble(1536));
  EXPECT_EQ(row.allocated_bytes, OptDouble(1024));
  EXPECT_EQ(row.requested_bytes, OptDouble(1000));
  EXPECT_EQ(row.fragmentation_bytes, OptDouble(11776));
  EXPECT_EQ(row.rounding_bytes, OptDouble(24));
  EXPECT_EQ(row.largest_free_bytes, OptDouble(8192));
  EXPECT_EQ(row.inactive_split_bytes, OptDouble(3072));
  EXPECT_EQ(row.events, OptInt());
  EXPECT_EQ(bytes_at(report, "snapshot", "[no history]"), 1000);
  EXPECT_TRUE(cannot_tell(report, "no history"));
}

// 1: 700 bytes, older, there to the end. 2: 50, older, freed at 30. 3: 400, comes at 10 and goes at 40. 4: 300, comes
// at 20 and stays. 5: 10, comes at 50 where 3 was. The most in use is behind 20: 700 + 50 + 400 + 300.
TEST(MemorySnapshotAnalysis, WhatWasInUseAtThePeak) {
  Snapshot of;
  of.block(1, 1024, 700);
  of.block(4, 512, 300);
  of.block(3, 512, 10, "active_allocated", "own frames");
  of.event(10, 3, 400, 1150, "a.py:1 f");
  of.event(20, 4, 300, 1450, "b.py:2 g");
  of.event(30, 2, -50, 1400);
  of.event(40, 3, -400, 1000);
  of.event(50, 3, 10, 1010, "c.py:3 h");
  const Report report = of.report();
  const AllocatorRecord& row = report.allocators.at(0);
  EXPECT_EQ(row.events, OptInt(5));
  EXPECT_EQ(row.before_history_bytes, OptDouble(750));
  EXPECT_EQ(row.unmatched_frees, OptInt(1));
  EXPECT_EQ(row.history_peak_bytes, OptDouble(1450));
  EXPECT_NEAR(row.history_peak_ms.value(), 1e-5, 1e-12);
  EXPECT_EQ(row.disagreeing, 0);
  EXPECT_EQ(bytes_at(report, "peak", "[before the history]"), 750);
  EXPECT_EQ(bytes_at(report, "peak", "a.py:1 f"), 400);
  EXPECT_EQ(bytes_at(report, "peak", "b.py:2 g"), 300);
  EXPECT_EQ(bytes_at(report, "snapshot", "[before the history]"), 700);
  EXPECT_EQ(bytes_at(report, "snapshot", "b.py:2 g"), 300);
  EXPECT_EQ(bytes_at(report, "snapshot", "own frames"), 10);  // what the block says itself goes first
  EXPECT_EQ(bytes_at(report, "snapshot", "a.py:1 f"), -1);
  ASSERT_EQ(report.largest_blocks.size(), 4U + 3U);
  EXPECT_EQ(report.largest_blocks[0].bytes, 700);
  EXPECT_EQ(report.largest_blocks[0].allocated_ms, OptDouble());
  EXPECT_EQ(report.largest_blocks[1].allocated_ms, OptDouble(0));
  ASSERT_TRUE(report.memory);
  EXPECT_EQ(report.memory->peak_allocated_bytes, OptDouble(1450));
  EXPECT_EQ(report.memory->operators.at(0).name, "a.py:1 f");
  EXPECT_TRUE(cannot_tell(report, "end of the program's"));
}

TEST(MemorySnapshotAnalysis, ThePeakMayLieBeforeTheFirstEvent) {
  Snapshot of;
  of.block(1, 512, 500);
  of.event(10, 2, -900, 500);
  const Report report = of.report();
  EXPECT_EQ(report.allocators.at(0).history_peak_bytes, OptDouble(1400));
  EXPECT_EQ(bytes_at(report, "peak", "[before the history]"), 1400);
  EXPECT_EQ(report.allocators.at(0).disagreeing, 0);
}

TEST(MemorySnapshotAnalysis, UnknownLevelsGiveNoPeak) {
  Snapshot of;
  of.block(1, 512, 500);
  of.event(10, 2, 900, -1);
  const Report report = of.report();
  EXPECT_EQ(report.allocators.at(0).history_peak_bytes, OptDouble());
  EXPECT_EQ(bytes_at(report, "peak", "[before the history]"), -1);
  EXPECT_TRUE(cannot_tell(report, "does not lead to the blocks"));
}

TEST(MemorySnapshotAnalysis, FailuresHaveTheLevelsOfTheirMoment) {
  Snapshot of;
  of.block(1, 512, 500);
  of.event(10, 1, 500, 500);
  of.event(30, 2, 60, 560);
  of.event(40, 2, -60, 500);
  of.builder.add<MemoryFailures>(
      {.time_ns = 35, .device = 0, .requested_bytes = 9000, .free_bytes = 7, .place = of.builder.text("x.py:1 f")});
  const Report report = of.report();
  ASSERT_EQ(report.out_of_memory.size(), 1U);
  EXPECT_EQ(report.out_of_memory[0].requested_bytes, OptDouble(9000));
  EXPECT_EQ(report.out_of_memory[0].free_bytes, OptDouble(7));
  EXPECT_EQ(report.out_of_memory[0].in_use_bytes, OptDouble(560));
  EXPECT_EQ(report.allocators.at(0).out_of_memory, OptInt(1));
}

TEST(MemorySnapshotAnalysis, StatisticsJoinTheirGpuOrStandAlone) {
  const auto add = [](Snapshot& of) {
    of.figure("allocated_bytes.all.peak", 3000);
    of.figure("reserved_bytes.all.current", 99);
    of.figure("num_ooms", 2);
    of.figure("num_alloc_retries", 5);
  };
  Snapshot joined;
  joined.block(1, 512, 500);
  add(joined);
  const Report one = joined.report();
  ASSERT_EQ(one.allocators.size(), 1U);
  EXPECT_EQ(one.allocators[0].reserved_bytes, OptDouble(512));  // what the blocks say
  EXPECT_EQ(one.allocators[0].peak_allocated_bytes, OptDouble(3000));
  EXPECT_EQ(one.allocators[0].out_of_memory, OptInt(2));
  EXPECT_EQ(one.allocators[0].retries, OptInt(5));
  Snapshot alone;
  add(alone);
  const Report other = alone.report();
  ASSERT_EQ(other.allocators.size(), 1U);
  EXPECT_EQ(other.allocators[0].device, OptInt());
  EXPECT_EQ(other.allocators[0].reserved_bytes, OptDouble(99));
  EXPECT_TRUE(cannot_tell(other, "sums only"));
}

// Events of a recording that the statistics stand beside are no history of a snapshot.
TEST(MemorySnapshotAnalysis, StatisticsBesideARecording) {
  Snapshot of;
  of.event(10, 1, 500, 500);
  of.figure("reserved_bytes.all.current", 99);
  const Report report = of.report();
  ASSERT_EQ(report.allocators.size(), 1U);
  EXPECT_EQ(report.allocators[0].events, OptInt());
  EXPECT_TRUE(report.memory_places.empty());
  EXPECT_FALSE(cannot_tell(report, "no history"));
  EXPECT_FALSE(cannot_tell(report, "sums only"));
}

TEST(MemorySnapshotAnalysis, AStatedSumThatTheBlocksDoNotGiveIsCounted) {
  Snapshot of;
  of.block(1, 512, 500);
  of.figure("snapshot.total_size", 512, 0);
  of.figure("snapshot.allocated_size", 513, 0);
  const Report report = of.report();
  EXPECT_EQ(report.allocators.at(0).checked, 2);
  EXPECT_EQ(report.allocators.at(0).disagreeing, 1);
}

}  // namespace
}  // namespace llmprof
