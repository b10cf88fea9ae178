#include "trace/trace_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "trace/check_trace.h"

namespace llmprof {
namespace {

// The row of one table cannot stand where that of another is meant.
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};
static_assert(!std::is_convertible_v<ThreadId, StreamId> && !std::is_constructible_v<ThreadId, StreamId>);
static_assert(!std::is_assignable_v<ThreadId&, StreamId> && !Comparable<ThreadId, StreamId>);
static_assert(std::is_convertible_v<ThreadId, Row> && std::is_convertible_v<NoRow, ThreadId>);
static_assert(Comparable<ThreadId, ThreadId> && Comparable<ThreadId, NoRow>);
static_assert(sizeof(ThreadId) == sizeof(uint32_t) && std::is_trivially_copyable_v<ThreadId>);

// One row in every imported table, each pointing at the row before itself in its target where that has two.
void fill(TraceBuilder& builder, int32_t device, int64_t process) {
  const ThreadId thread = builder.thread(process, 11);
  const StreamId stream = builder.stream(device, 1, 7);
  const LaunchConfigId config = builder.launch_config({.grid_x = 8, .block_x = 128});
  const SignatureId signature = builder.signature({.dims = "[[2]]"});
  builder.add<Devices>({.device = device, .name = builder.text("NVIDIA H200")});
  builder.add<Ops>({.start_ns = 10, .dur_ns = 5, .thread = thread, .name = builder.text("op"), .signature = signature});
  builder.add<Annotations>({.start_ns = 9, .dur_ns = 9, .name = builder.text("range")});
  const GpuOpId gpu = builder.add<GpuOps>(
      {.start_ns = 20, .dur_ns = 5, .stream = stream, .name = builder.text("kernel"), .config = config});
  builder.add<Collectives>({.gpu_op = gpu, .name = builder.text("allreduce")});
  const LibraryCallId call = builder.add<LibraryCalls>({.start_ns = 11, .dur_ns = 1, .thread = thread});
  builder.add<GraphNodes>({.node = 3, .library_call = call});
  builder.add<Recorded>({.start_ns = 0, .dur_ns = 100, .process_id = process, .cut_ns = 6});
  builder.add<NvmlSamples>({.time_ns = 15, .device = -1, .throttle_power_ns = 4});
}

TEST(TraceBuilder, WhatIsSharedIsMadeOnce) {
  Trace trace;
  TraceBuilder builder(trace);
  EXPECT_EQ(builder.thread(1, 2), builder.thread(1, 2));
  EXPECT_NE(builder.thread(1, 2), builder.thread(1, 3));
  EXPECT_NE(builder.thread(1, 2), builder.thread(2, 2));
  EXPECT_EQ(builder.stream(0, 1, 7), builder.stream(0, 1, 7));
  EXPECT_NE(builder.stream(0, 1, 7), builder.stream(1, 1, 7));
  EXPECT_EQ(builder.launch_config({.grid_x = 2}), builder.launch_config({.grid_x = 2}));  // NaN and NaN are equal
  EXPECT_NE(builder.launch_config({.grid_x = 2}), builder.launch_config({.grid_x = 2, .shared_bytes = 1}));
  const SignatureText dims{.dims = "[[1]]"}, typed{.dims = "[[1]]", .types = "[\"float\"]"};
  EXPECT_EQ(builder.signature(dims), builder.signature(dims));
  EXPECT_NE(builder.signature(dims), builder.signature(typed));
  EXPECT_EQ(trace.threads.size(), 3U);
  EXPECT_EQ(trace.signatures.size(), 2U);
  EXPECT_EQ(trace.inputs.size(), 2U);
}

TEST(TraceBuilder, AThreadWithoutAnIdIsKnownByItsName) {
  Trace trace;
  TraceBuilder builder(trace);
  const ThreadId named = builder.thread(1, 2, builder.text("loader"));
  EXPECT_EQ(builder.thread(1, 2), named);
  EXPECT_EQ(trace.text(trace.threads.name[named]), "loader");
  EXPECT_EQ(builder.thread(1, 2, builder.text("main")), named);
  EXPECT_EQ(trace.text(trace.threads.name[named]), "main");
  EXPECT_NE(builder.thread(1, -1, builder.text("a")), builder.thread(1, -1, builder.text("b")));
}

TEST(TraceBuilder, ColumnsThatAreNotGivenAreAbsent) {
  Trace trace;
  const GpuOpId row = TraceBuilder(trace).add<GpuOps>({.start_ns = 1});
  EXPECT_EQ(trace.gpu_ops.config[row], kNoRow);
  EXPECT_EQ(trace.gpu_ops.bytes[row], -1);
  EXPECT_EQ(trace.gpu_ops.correlation[row], 0U);
  EXPECT_TRUE(std::isnan(trace.ops.recorded_flops.emplace_back(absent_value<double>())));
}

TEST(TraceBuilder, AnAppendedTraceKeepsItsRowsStringsDevicesAndTime) {
  Trace part;
  TraceBuilder of_part(part);
  of_part.text("only in the part");
  fill(of_part, 1, 200);
  Trace trace;
  TraceBuilder builder(trace);
  fill(builder, 0, 100);
  builder.append(part,
                 {.share = false, .clock_offset_ns = 1000, .device = [](int32_t ordinal) { return ordinal + 4; }});

  EXPECT_EQ(trace.devices.device, (std::vector<int32_t>{0, 5}));
  EXPECT_EQ(trace.threads.process_id, (std::vector<int64_t>{100, 200}));
  EXPECT_EQ(trace.streams.device, (std::vector<int32_t>{0, 5}));
  EXPECT_EQ(trace.text(trace.gpu_ops.name[1]), "kernel");
  EXPECT_EQ(trace.gpu_ops.start_ns, (std::vector<int64_t>{20, 1020}));
  EXPECT_EQ(trace.gpu_ops.dur_ns, (std::vector<int64_t>{5, 5}));
  EXPECT_EQ(trace.recorded.cut_ns, (std::vector<int64_t>{6, 6}));                 // a length of time
  EXPECT_EQ(trace.nvml_samples.throttle_power_ns, (std::vector<int64_t>{4, 4}));  // and another
  EXPECT_EQ(trace.nvml_samples.device, (std::vector<int32_t>{-1, -1}));
  // Every row id of the part moved with its table, whichever it is.
  trace.for_each_table([&](const auto& table) {
    table.for_each_column([&]<class Column>(const FieldInfo& field, const Column& column) {
      if constexpr (is_row_id<typename Column::value_type>) {
        if (column.empty()) return;
        ASSERT_EQ(column.size(), 2U) << table.info().name;
        EXPECT_EQ(column[1], column[0] == kNoRow ? Row{kNoRow} : Row{1}) << table.info().name << '.' << field.name;
      }
    });
  });
  check_trace(trace);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadMetadata), 0U);
}

TEST(TraceBuilder, PartsOfOneProcessShareTheirThreadsAndStreams) {
  Trace trace;
  TraceBuilder builder(trace);
  for (int i = 0; i < 3; ++i) {
    Trace part;
    TraceBuilder of_part(part);
    of_part.text("part " + std::to_string(i));
    of_part.thread(100, i + 20);
    fill(of_part, 0, 100);
    builder.append(std::move(part));
  }
  EXPECT_EQ(trace.threads.thread_id, (std::vector<int64_t>{20, 11, 21, 22}));
  EXPECT_EQ(trace.streams.size(), 1U);
  EXPECT_EQ(trace.launch_configs.size(), 1U);
  EXPECT_EQ(trace.signatures.size(), 1U);
  EXPECT_EQ(trace.inputs.size(), 1U);
  EXPECT_EQ(trace.devices.size(), 1U);
  EXPECT_EQ(trace.ops.thread, (std::vector<ThreadId>{1, 1, 1}));
  EXPECT_EQ(trace.collectives.gpu_op, (std::vector<GpuOpId>{0, 1, 2}));
  EXPECT_EQ(trace.graph_nodes.library_call, (std::vector<LibraryCallId>{0, 1, 2}));
}

}  // namespace
}  // namespace llmprof
