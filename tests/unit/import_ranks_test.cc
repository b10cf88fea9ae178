// Joining recordings of ranks that were made up as tables: what is kept apart, and what is refused.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "import/ranks.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

constexpr const char* kKernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

// One launch of a collective by one process on one GPU, as a session of llmprof has it.
struct Recording {
  std::map<std::string, std::string> facts{};
  int32_t device = 0;
  int64_t base_unix_ns = 1'790'000'000'000'000'000;
  int64_t start_ns = 1'000'000;
  int32_t second_device = -1;
  bool collective = true;
};

void fill(const Recording& from, Trace& trace) {
  TraceBuilder builder(trace);
  trace.metadata = from.facts;
  trace.base_unix_ns = from.base_unix_ns;
  trace.source = {"session", {"a"}, 100};
  for (const int32_t device : {0, 1, 2, 3}) builder.add<Devices>({.device = device, .name = builder.text("H200")});
  const ThreadId thread = builder.thread(7, 7, builder.text("main"));
  for (const int32_t device : {from.device, from.second_device}) {
    if (device < 0) continue;
    builder.add<ApiCalls>({.start_ns = from.start_ns - 9'000,
                           .dur_ns = 5'000,
                           .thread = thread,
                           .name = builder.text("cudaLaunchKernel"),
                           .correlation = 11,
                           .event = 0x7f00});
    // A sampler sees all GPUs of the machine.
    for (const int32_t seen : {0, 1, 2, 3}) builder.add<NvmlSamples>({.time_ns = from.start_ns, .device = seen});
    builder.add<GpuOps>({.start_ns = from.start_ns,
                         .dur_ns = 50'000,
                         .stream = builder.stream(device, 1, 7),
                         .name = builder.text(from.collective ? kKernel : "gemm"),
                         .correlation = 11,
                         .graph_node = 5,
                         .kind = GpuOpKind::kKernel});
  }
}

Result<Trace> join(const std::map<std::string, Recording>& recordings) {
  std::vector<std::string> paths;
  for (const auto& [path, recording] : recordings) paths.push_back(path);
  return import_ranks(paths, [&](const std::string& path, Trace& trace) -> Status {
    fill(recordings.at(path), trace);
    trace.source.files = {path};
    return {};
  });
}

std::string error_of(const std::map<std::string, Recording>& recordings) {
  const Result<Trace> joined = join(recordings);
  return joined ? "joined" : joined.error().text();
}

Recording of_rank(const char* rank, const char* world, Recording rest = {}) {
  rest.facts["RANK"] = rank;
  rest.facts["WORLD_SIZE"] = world;
  return rest;
}

TEST(JoinRanks, SessionsOfTorchrunAreInOrderOfTheirRanks) {
  // Each process sees one GPU, as device 0. Both name their process, calls and nodes alike.
  const Result<Trace> joined = join({{"a", of_rank("1", "2")}, {"b", of_rank("0", "2")}});
  ASSERT_TRUE(joined) << joined.error().text();
  const Trace& trace = *joined;
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.text(trace.ranks.file[0]), "b");
  EXPECT_EQ(trace.ranks.rank, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(trace.ranks.device, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(trace.ranks.recorded_device, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(trace.ranks.world_size, (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(trace.devices.device, (std::vector<int32_t>{0, 1})) << "GPUs that no rank uses are left out";
  EXPECT_EQ(trace.nvml_samples.device, (std::vector<int32_t>{0, 1})) << "and so are their readings";
  EXPECT_EQ(trace.source.files, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(trace.source.bytes, 200U);
  ASSERT_EQ(trace.gpu_ops.size(), 2U);
  EXPECT_EQ(trace.device_of(0U), 0);
  EXPECT_EQ(trace.device_of(1U), 1);
  for (const Row row : {0U, 1U}) EXPECT_EQ(trace.api_calls.correlation[row], trace.gpu_ops.correlation[row]);
  EXPECT_NE(trace.gpu_ops.correlation[0], trace.gpu_ops.correlation[1]);
  EXPECT_NE(trace.gpu_ops.graph_node[0], trace.gpu_ops.graph_node[1]);
  EXPECT_NE(trace.api_calls.event[0], trace.api_calls.event[1]);
  ASSERT_EQ(trace.threads.size(), 2U);
  EXPECT_EQ(trace.threads.process_id[0], 7);
  EXPECT_NE(trace.threads.process_id[1], 7);
}

TEST(JoinRanks, EpochsAndClocksBecomeOne) {
  // The second began 5 ms later by its own epoch, and its clock is 1 ms behind.
  Recording later = of_rank("1", "2");
  later.base_unix_ns += 5'000'000;
  later.start_ns = 1'000'000 - 5'000'000 - 1'000'000;
  const Result<Trace> joined = join({{"a", of_rank("0", "2")}, {"b", later}});
  ASSERT_TRUE(joined) << joined.error().text();
  EXPECT_EQ(joined->gpu_ops.start_ns[0], joined->gpu_ops.start_ns[1]);
  EXPECT_EQ(joined->ranks.shift_ns, (std::vector<int64_t>{0, 1'000'000}));
  EXPECT_EQ(joined->ranks.offset_low_ns[1], 950'000);
  EXPECT_EQ(joined->ranks.offset_high_ns[1], 1'050'000);
  EXPECT_EQ(joined->base_unix_ns + joined->gpu_ops.start_ns[0], Recording().base_unix_ns + 1'000'000);
}

TEST(JoinRanks, AnEpochBeforeTheFirstRanksKeepsTimesAboveZero) {
  Recording earlier = of_rank("1", "2");
  earlier.base_unix_ns -= 3'000'000;
  earlier.start_ns += 3'000'000;
  const Result<Trace> joined = join({{"a", of_rank("0", "2")}, {"b", earlier}});
  ASSERT_TRUE(joined) << joined.error().text();
  EXPECT_EQ(joined->base_unix_ns, Recording().base_unix_ns - 3'000'000);
  EXPECT_EQ(joined->gpu_ops.start_ns, (std::vector<int64_t>{4'000'000, 4'000'000}));
}

TEST(JoinRanks, WithoutRanksTheirOrderCountsIfTheyCommunicate) {
  const Result<Trace> joined = join({{"a", {}}, {"b", {}}});
  ASSERT_TRUE(joined) << joined.error().text();
  EXPECT_EQ(joined->ranks.rank, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(joined->ranks.world_size, (std::vector<int32_t>{-1, -1}));
  Recording silent;
  silent.collective = false;
  EXPECT_NE(error_of({{"a", {}}, {"b", silent}}).find("nothing shows that they are of one job"), std::string::npos);
}

TEST(JoinRanks, WhatIsNoSetOfRanksIsRefused) {
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", of_rank("0", "2")}}).find("found rank 0 twice"),
            std::string::npos);
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", of_rank("1", "4")}}).find("rank 1 of 4"), std::string::npos);
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", of_rank("2", "2")}}).find("found rank 2 of 2"),
            std::string::npos);
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", {}}}).find("1 of 2 have one"), std::string::npos);
  Recording both = of_rank("1", "2");
  both.second_device = 1;
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", both}}).find("2 GPUs run collectives"), std::string::npos);
  Recording other_day = of_rank("1", "2");
  other_day.base_unix_ns += int64_t{86'400} * 3 * 1'000'000'000;
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", other_day}}).find("3 days"), std::string::npos);
  Recording other_age = of_rank("1", "2");
  other_age.base_unix_ns = 1'000;
  EXPECT_NE(error_of({{"a", of_rank("0", "2")}, {"b", other_age}}).find("one time"), std::string::npos);
}

TEST(JoinRanks, DisorderAmongRanksIsNoRemark) {
  Result<Trace> joined = join({{"a", of_rank("0", "2")}, {"b", of_rank("1", "2")}});
  ASSERT_TRUE(joined);
  finish_joined(*joined);
  EXPECT_EQ(joined->diagnostics.total(), 0U);
}

}  // namespace
}  // namespace llmprof
