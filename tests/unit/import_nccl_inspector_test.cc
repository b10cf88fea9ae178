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

// "name value", one a line.
std::string figures_of(const Trace& trace) {
  std::string out;
  for (Row row = 0; row < trace.scraped_values.size(); ++row)
    out += std::string(trace.text(trace.scraped_values.name[row])) + " " +
           std::to_string(static_cast<int64_t>(trace.scraped_values.value[row])) + "\n";
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
  const std::string one = "nccl_operation_us 20\nnccl_operation_algorithm_gbs 2\nnccl_operation_bus_gbs 4\n";
  EXPECT_EQ(figures_of(got.trace), one + one + "nccl_operations_dropped 3\n");
  EXPECT_EQ(
      got.trace.text(got.trace.scraped_values.labels[0]),
      "algorithm=\"RING\",bytes=\"1024\",communicator=\"0x1\",host=\"h\",name=\"\",nodes=\"2\",operation=\"AllReduce\","
      "process=\"7\",protocol=\"\",rank=\"1\",ranks=\"8\",timing=\"\"");
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
}

TEST(NcclInspector, KeepsOperationsThatAreEqual) {
  ReadInspector got = read_inspector(kStatistics + kOperation + kOperation);
  finish_import(got.trace);
  EXPECT_EQ(got.trace.scraped_values.size(), 7U);
}

TEST(NcclInspector, AHeaderOfItsOwnComesFirst) {
  const ReadInspector got = read_inspector(
      kStatistics + R"({"header":{"id":"0x2","rank":0,"n_ranks":2},"p2p_perf":{"p2p":"Send","p2p_peer":1,)"
                    R"("p2p_msg_size_bytes":9000,"p2p_exec_time_us":3}})");
  ASSERT_TRUE(got.fine);
  EXPECT_NE(got.trace.text(got.trace.scraped_values.labels[0]).find("communicator=\"0x2\""), std::string_view::npos);
  EXPECT_NE(got.trace.text(got.trace.scraped_values.labels[0]).find("nodes=\"-1\""), std::string_view::npos);
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
