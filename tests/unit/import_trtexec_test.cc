// Forms, numbers and damage of what trtexec exports.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "import/trtexec.h"

namespace llmprof {
namespace {

struct ReadTrtexec {
  Trace trace{};
  bool fine = false;
  std::string problem{};
};

ReadTrtexec read_trtexec(const std::string& text) {
  ReadTrtexec out;
  Result<InputFile> input = InputFile::from_memory(text, "dir/x.json");
  EXPECT_TRUE(input);
  const Status status = trtexec::import(*input, out.trace);
  out.fine = static_cast<bool>(status);
  if (!status) out.problem = status.error().text();
  return out;
}

TEST(Trtexec, SniffsItsThreeKinds) {
  EXPECT_GT(
      trtexec::sniff(
          "[\n  { \"count\" : 3 }\n, { \"name\" : \"a\", \"timeMs\" : 1, \"averageMs\" : 1, \"percentage\" : 100 }"),
      90);
  EXPECT_GT(trtexec::sniff("[\n  { \"count\" : 3 }\n]\n"), 0);
  EXPECT_GT(trtexec::sniff("[\n  { \"startEnqMs\" : 1, \"startComputeMs\" : 1, \"computeMs\" : 1 }\n]"), 90);
  EXPECT_GT(trtexec::sniff("{\"Layers\": [\"a + b\"\n,\"c\"]"), 0);
  EXPECT_GT(trtexec::sniff("{\"Layers\": [{\n  \"Name\": \"a\",\n  \"LayerType\": \"gemm\""), 0);
  EXPECT_GT(trtexec::sniff("{\"I/O Tensors\": [], \"Layers\": [{\"Name\": \"a\", \"LayerType\": \"gemm\"}]}"), 0);
  for (const char* other : {"", "[", "{", "[]", "{}", "[{}]", "[{\"ph\": \"X\", \"count\": 1}]", "{\"Layers\": 3}",
                            "{\"Layers\": [{\"Id\": 1}]}", "{\"name\": \"computeMs\"}", "[{\"computeMs\": 1}]"})
    EXPECT_EQ(trtexec::sniff(other), 0) << other;
}

TEST(Trtexec, ReadsLayerTimes) {
  const ReadTrtexec got = read_trtexec(
      "[\n  { \"count\" : 4 }\n"
      ", { \"name\" : \"a + b\", \"timeMs\" : 1160.78, \"averageMs\" : 0.0280382, \"medianMs\" : 0.027872, "
      "\"percentage\" : 99 }\n"
      ", { \"name\" : \"never\", \"timeMs\" : 0, \"averageMs\" : -nan, \"medianMs\" : 0, \"percentage\" : 0 }\n]\n");
  ASSERT_TRUE(got.fine);
  const LayerTimes& rows = got.trace.layer_times;
  EXPECT_EQ(got.trace.text(rows.source[0]), "x.json");
  EXPECT_EQ(got.trace.text(rows.name[0]), "a + b");
  EXPECT_EQ(rows.iterations, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(rows.total_ns, (std::vector<int64_t>{1'160'780'000, 0}));
  EXPECT_EQ(rows.mean_ns, (std::vector<int64_t>{28'038, -1}));
  EXPECT_EQ(rows.median_ns, (std::vector<int64_t>{27'872, 0}));
  EXPECT_DOUBLE_EQ(rows.stated_frac[0], 0.99);
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
}

TEST(Trtexec, ReadsQueriesOfAllAges) {
  const ReadTrtexec got = read_trtexec(
      R"([{"startEnqMs": 1, "endEnqMs": 1.5, "startComputeMs": 2, "h2dMs": 0.01, "computeMs": 0.5, "d2hMs": 0.02, "latencyMs": 0.53},
          {"startInMs": 1, "inMs": 0.01, "startComputeMs": 3, "computeMs": 0.25, "outMs": 0.02, "endToEndMs": 0.75}])");
  ASSERT_TRUE(got.fine);
  const EngineQueries& rows = got.trace.engine_queries;
  EXPECT_EQ(rows.compute_start_ns, (std::vector<int64_t>{2'000'000, 3'000'000}));
  EXPECT_EQ(rows.enqueue_ns, (std::vector<int64_t>{500'000, -1}));
  EXPECT_EQ(rows.h2d_ns, (std::vector<int64_t>{10'000, 10'000}));
  EXPECT_EQ(rows.compute_ns, (std::vector<int64_t>{500'000, 250'000}));
  EXPECT_EQ(rows.d2h_ns, (std::vector<int64_t>{20'000, 20'000}));
  EXPECT_EQ(rows.latency_ns, (std::vector<int64_t>{530'000, -1}));
  EXPECT_EQ(rows.end_to_end_ns, (std::vector<int64_t>{-1, 750'000}));
}

TEST(Trtexec, ReadsLayersOfAllAges) {
  const ReadTrtexec got = read_trtexec(
      R"({"I/O Tensors": [{"Name": "x", "Dimensions": [1]}], "Layers": ["named",
          {"Name": "a", "LayerType": "gemm", "Inputs": [{"Name": "x", "Dimensions": [-1, 128, 768], "Format/Datatype": "Half"}, {"Dimensions": []}],
           "Outputs": [{"Dimensions": [2], "Format": "Row major linear", "DataType": "Half"}], "TacticName": "sm90", "TacticValue": "0x1",
           "StreamId": 2, "Metadata": "[ONNX Layer: a]", "Weights": {"Type": "Half", "Count": 3}},
          {"Name": "b", "LayerType": null, "TacticValue": "0x2", "Inputs": []}]})");
  ASSERT_TRUE(got.fine);
  const InspectedLayers& rows = got.trace.inspected_layers;
  ASSERT_EQ(rows.size(), 3U);
  const auto text = [&](const std::vector<StringId>& column, Row row) {
    return std::string(got.trace.text(column[row]));
  };
  EXPECT_EQ(text(rows.name, 0), "named");
  EXPECT_EQ(text(rows.inputs, 1), "[-1,128,768] Half; []");
  EXPECT_EQ(text(rows.outputs, 1), "[2] Half Row major linear");
  EXPECT_EQ(text(rows.tactic, 1), "sm90");
  EXPECT_EQ(text(rows.tactic, 2), "0x2");
  EXPECT_EQ(text(rows.metadata, 1), "[ONNX Layer: a]");
  EXPECT_EQ(rows.stream, (std::vector<int64_t>{-1, 2, -1}));
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
}

TEST(Trtexec, CountsWhatIsWrong) {
  const ReadTrtexec got = read_trtexec(
      R"([{"count": 2.5}, {"name": 3, "timeMs": 1}, {"name": "a", "timeMs": 1e300}, {"name": "b", "timeMs": -1}, 7,
          {"name": "c", "timeMs": 1, "averageMs": {"x": [1]}, "medianMs": "2"}, {"computeMs": null}, {"other": 1},
          {"computeMs": 1, "startEnqMs": 2, "endEnqMs": 1}])");
  ASSERT_TRUE(got.fine);
  EXPECT_EQ(got.trace.layer_times.size(), 1U);
  EXPECT_EQ(got.trace.layer_times.iterations[0], -1);
  EXPECT_EQ(got.trace.layer_times.mean_ns[0], -1);
  EXPECT_EQ(got.trace.engine_queries.size(), 1U);
  const Diagnostics& found = got.trace.diagnostics;
  EXPECT_EQ(found.count(DiagnosticId::kBadNumber), 4U);         // count, 1e300, an object, a text
  EXPECT_EQ(found.count(DiagnosticId::kMissingField), 5U);      // a name, two times, computeMs, anything
  EXPECT_EQ(found.count(DiagnosticId::kNegativeDuration), 2U);  // -1, enqueueing
  EXPECT_EQ(found.count(DiagnosticId::kMalformedEvent), 1U);
}

TEST(Trtexec, KeepsWhatStandsBeforeDamage) {
  const std::string row = R"({"name": "a", "timeMs": 1, "averageMs": 1, "percentage": 50})";
  const ReadTrtexec cut = read_trtexec("[{\"count\": 1}, " + row + ", {\"name\": \"b\", \"ti");
  EXPECT_TRUE(cut.fine);
  EXPECT_EQ(cut.trace.layer_times.iterations, (std::vector<int64_t>{1}));
  EXPECT_EQ(cut.trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1U);
  const ReadTrtexec quoted = read_trtexec("[{\"count\": 1}, " + row + ", {\"name\": \"b\"c\", \"timeMs\": 1}]");
  EXPECT_EQ(quoted.trace.layer_times.size(), 1U);
  EXPECT_EQ(quoted.trace.diagnostics.count(DiagnosticId::kMalformedEvent), 1U);
  const ReadTrtexec two = read_trtexec("[" + row + "]\n[" + row + "]");
  EXPECT_EQ(two.trace.layer_times.size(), 1U);
  EXPECT_EQ(two.trace.diagnostics.count(DiagnosticId::kTrailingData), 1U);
  for (const char* nothing : {"[]", "[{\"count\": 5}]", "{\"Layers\": []}", "{\"Layers\": {}}", "7", "\"x\"", "["}) {
    const ReadTrtexec none = read_trtexec(nothing);
    EXPECT_FALSE(none.fine) << nothing;
    EXPECT_NE(none.problem.find("trtexec"), std::string::npos) << none.problem;
  }
}

TEST(Trtexec, BoundsWhatALayerHolds) {
  std::string inputs, dimensions;
  for (int i = 0; i < 40; ++i) {
    inputs += std::string(i > 0 ? "," : "") + R"({"Dimensions": [1]})";
    dimensions += std::string(i > 0 ? "," : "") + "1e30";
  }
  const ReadTrtexec got = read_trtexec("{\"Layers\": [{\"Name\": \"" + std::string(9000, 'n') + "\", \"Inputs\": [" +
                                       inputs + "], \"Outputs\": [{\"Dimensions\": [" + dimensions + "]}]}]}");
  ASSERT_TRUE(got.fine);
  const InspectedLayers& rows = got.trace.inspected_layers;
  EXPECT_EQ(got.trace.text(rows.name[0]).size(), 4096U);
  EXPECT_TRUE(got.trace.text(rows.inputs[0]).ends_with("[1]; 8 more"));
  EXPECT_EQ(got.trace.text(rows.outputs[0]), "[?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?]");
}

}  // namespace
}  // namespace llmprof
