// Forms, numbers and damage of what NCCL's Inspector writes.
#include <gtest/gtest.h>

#include <string>

#include "import/nccl_inspector.h"

namespace llmprof {
namespace {

struct ReadInspector {
  Trace trace{};
  bool fine = false;
};

ReadInspector read_inspector(const std::string& text) {
  ReadInspector out;
  Result<InputFile> input = InputFile::from_memory(text, "dir/x.json");
  EXPECT_TRUE(input);
  out.fine = static_cast<bool>(nccl_inspector::import(*input, out.trace));
  return out;
}

const std::string kStatistics =
    R"({"header":{"id":"0x1","rank":1,"n_ranks":8,"nnodes":2},"metadata":{"hostname":"h","pid":7},)"
    R"("dump_stats":{"coll_dropped_total":3,"p2p_dropped_total":0}})"
    "\n";
const std::string kOperation =
    R"({"coll_perf":{"coll":"AllReduce","coll_algo":"RING","coll_proto":"unknown",)"
    R"("coll_msg_size_bytes":1024,"coll_exec_time_us":20,"coll_algobw_gbs":2.5,"coll_busbw_gbs":4}})"
    "\n";

TEST(NcclInspector, TakesTheContextFromTheStatisticsBefore) {
  const ReadInspector got = read_inspector(kStatistics + kOperation + kOperation);
  ASSERT_TRUE(got.fine);
  const InspectedOperations& rows = got.trace.inspected_operations;
  ASSERT_EQ(rows.size(), 2U);
  const auto text = [&got](StringId id) { return got.trace.text(id); };
  for (Row row = 0; row < 2; ++row) {
    EXPECT_EQ(text(rows.communicator[row]), "0x1");
    EXPECT_EQ(text(rows.host[row]), "h");
    EXPECT_EQ(text(rows.operation[row]), "AllReduce");
    EXPECT_EQ(text(rows.algorithm[row]), "RING");
    EXPECT_EQ(text(rows.protocol[row]), "");  // unknown
    EXPECT_EQ(rows.process_id[row], 7);
    EXPECT_EQ(rows.rank[row], 1);
    EXPECT_EQ(rows.ranks[row], 8);
    EXPECT_EQ(rows.nodes[row], 2);
    EXPECT_EQ(rows.bytes[row], 1024);
    EXPECT_EQ(rows.time_us[row], 20);
    EXPECT_EQ(rows.algorithm_gbs[row], 2.5);
    EXPECT_EQ(rows.bus_gbs[row], 4);
  }
  ASSERT_EQ(got.trace.inspected_losses.size(), 1U);
  EXPECT_EQ(got.trace.inspected_losses.operations[0], 3);
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
}

TEST(NcclInspector, KeepsOperationsThatAreEqual) {
  ReadInspector got = read_inspector(kStatistics + kOperation + kOperation);
  finish_import(got.trace);
  EXPECT_EQ(got.trace.inspected_operations.size(), 2U);
}

TEST(NcclInspector, AHeaderOfItsOwnComesFirst) {
  const ReadInspector got = read_inspector(
      kStatistics + R"({"header":{"id":"0x2","rank":0,"n_ranks":2},"p2p_perf":{"p2p":"Send","p2p_peer":1,)"
                    R"("p2p_msg_size_bytes":9000,"p2p_exec_time_us":3}})");
  ASSERT_TRUE(got.fine);
  ASSERT_EQ(got.trace.inspected_operations.size(), 1U);
  EXPECT_EQ(got.trace.text(got.trace.inspected_operations.communicator[0]), "0x2");
  EXPECT_EQ(got.trace.inspected_operations.nodes[0], -1);
}

TEST(NcclInspector, RefusesWhatHasNoOperation) {
  for (const std::string& text : {std::string("{}"), kOperation, std::string("no JSON"),
                                  std::string(R"({"header":{"id":"0x1"},"dump_stats":{}})")})
    EXPECT_FALSE(read_inspector(text).fine) << text;
}

TEST(NcclInspector, SniffsItsLines) {
  EXPECT_GT(nccl_inspector::sniff(kOperation), 0);
  EXPECT_GT(nccl_inspector::sniff(R"({"metadata":{"inspector_output_format_version":"v4.3"}})"), 0);
  for (const char* other : {"", "{}", "[{\"coll_perf\": {}}]", "{\"coll_perf\": {}}"})
    EXPECT_EQ(nccl_inspector::sniff(other), 0) << other;
}

}  // namespace
}  // namespace llmprof
