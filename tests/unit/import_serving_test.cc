// Results of server benchmarks: each program's names and units, what a failed request has, and wrong input.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "import/json_stream.h"
#include "import/serving.h"
#include "trace/client_runs.h"

namespace llmprof {
namespace {

struct Read {
  Trace trace;
  Status status;
};

Read read(const std::string& text) {
  Result<InputFile> input = InputFile::from_memory(text, "folder/bench.json");
  EXPECT_TRUE(input);
  Read out;
  out.status = serving::import(*input, out.trace);
  return out;
}

// The only figure of that name; NaN without one.
double figure(const Trace& trace, const std::string& name, const std::string& statistic = "",
              const std::string& source = "bench.json") {
  const ClientFigures& rows = trace.client_figures;
  for (Row row = 0; row < rows.size(); ++row)
    if (trace.text(rows.name[row]) == name && trace.text(rows.statistic[row]) == statistic &&
        trace.text(rows.source[row]) == source)
      return rows.value[row];
  return NAN;
}

std::string text_of(const Trace& trace, const char* what, const std::string& source = "bench.json") {
  const auto found = trace.metadata.find(client_text_key(what, source));
  return found == trace.metadata.end() ? "" : found->second;
}

uint64_t counted(const Trace& trace, DiagnosticId id) { return trace.diagnostics.count(id); }

const std::string kTotals = R"("backend": "vllm", "duration": 2.0, "completed": 2, "total_input_tokens": 30)";

TEST(Serving, VllmHasSecondsInArraysAndMillisecondsInSummaries) {
  const Read got = read("{" + kTotals + R"(, "model_id": "m", "burstiness": 1.0, "request_rate": "inf", "failed": 1,
      "input_lens": [10, 20, 30], "output_lens": [3, 1, 0], "ttfts": [0.25, 0.5, 0.0], "itls": [[0.125, 0.25], [], []],
      "latencies": [0.75, 0.5, 0.0], "start_times": [100.5, 100.0, 101.0], "errors": ["", "", "timeout"],
      "median_ttft_ms": 375.0, "p99.9_e2el_ms": 749.75})");
  ASSERT_TRUE(got.status);
  const Trace& trace = got.trace;
  EXPECT_EQ(text_of(trace, "format"), "vllm");
  EXPECT_EQ(text_of(trace, "model"), "m");
  EXPECT_DOUBLE_EQ(figure(trace, "ttft", "median"), 0.375);
  EXPECT_DOUBLE_EQ(figure(trace, "e2e", "p99.9"), 0.74975);
  EXPECT_TRUE(std::isinf(figure(trace, "request-rate")));
  const ClientRequests& rows = trace.client_requests;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows.start_ns, (std::vector<int64_t>{500'000'000, 0, 1'000'000'000}));
  EXPECT_TRUE(trace.client_moments.empty());  // start_times are of a clock that starts anywhere
  EXPECT_EQ(rows.latency_ns, (std::vector<int64_t>{750'000'000, 500'000'000, -1}));
  EXPECT_EQ(rows.ttft_ns, (std::vector<int64_t>{250'000'000, 500'000'000, -1}));
  EXPECT_EQ(rows.output_tokens, (std::vector<int64_t>{3, 1, 0}));
  EXPECT_EQ(trace.text(rows.error[0]), "");
  EXPECT_EQ(trace.text(rows.error[2]), "timeout");
  EXPECT_EQ(trace.client_intervals.length_ns, (std::vector<int64_t>{125'000'000, 250'000'000}));
  EXPECT_EQ(trace.diagnostics.total(), 0U);
}

TEST(Serving, LatencyIsTtftAndPiecesWhereTheFileHasNoLatencies) {
  const Read got =
      read("{" + kTotals + R"(, "ttfts": [0.25, 0.5], "itls": [[0.125, 0.25], []], "output_lens": [3, 1]})");
  ASSERT_TRUE(got.status);
  EXPECT_EQ(got.trace.client_requests.latency_ns, (std::vector<int64_t>{625'000'000, 500'000'000}));
  // A piece that is none is not 0: the latency is not known.
  const Read bad =
      read("{" + kTotals + R"(, "ttfts": [0.25, 0.5], "itls": [[0.125, -0.25], null], "output_lens": [3, 2]})");
  EXPECT_EQ(bad.trace.client_requests.latency_ns, (std::vector<int64_t>{-1, -1}));
  const Read without = read("{" + kTotals + R"(, "ttfts": [0.25, 0.5], "output_lens": [3, 1]})");
  EXPECT_EQ(without.trace.client_requests.latency_ns, (std::vector<int64_t>{-1, -1}));
}

TEST(Serving, RunsOfSglangAreLines) {
  const std::string line = R"({"backend": "sglang", "dataset_name": "random", "request_rate": Infinity, )"
                           R"("max_concurrency": null, "mean_e2e_latency_ms": 20.5, "duration": 1.5, "completed": 4})";
  const Read one = read(line + "\n");
  EXPECT_DOUBLE_EQ(figure(one.trace, "e2e", "mean"), 0.0205);
  const Read got = read(line + "\n" + line + "\n\n" + line);
  ASSERT_TRUE(got.status);
  for (const char* source : {"bench.json:1", "bench.json:2", "bench.json:3"}) {
    EXPECT_DOUBLE_EQ(figure(got.trace, "completed", "", source), 4) << source;
    EXPECT_TRUE(std::isinf(figure(got.trace, "request-rate", "", source)));
    EXPECT_EQ(text_of(got.trace, "format", source), "sglang");
  }
  EXPECT_TRUE(std::isnan(figure(got.trace, "completed")));
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
  const Read list = read("[" + line + ",\n" + line + "]");
  EXPECT_DOUBLE_EQ(figure(list.trace, "completed", "", "bench.json:2"), 4);
}

TEST(Serving, ABrokenLineCostsThatRun) {
  const std::string line = R"({"duration": 1.5, "completed": 4, "request_throughput": 2.5})";
  const Read got = read(line + "\n{\"duration\": 1.5, oops}\n" + line + "\n");
  ASSERT_TRUE(got.status);
  EXPECT_EQ(counted(got.trace, DiagnosticId::kMalformedEvent), 1U);
  EXPECT_DOUBLE_EQ(figure(got.trace, "completed", "", "bench.json:1"), 4);
  EXPECT_DOUBLE_EQ(figure(got.trace, "duration", "", "bench.json:2"), 1.5);  // what came before the damage
  EXPECT_DOUBLE_EQ(figure(got.trace, "completed", "", "bench.json:3"), 4);
}

TEST(Serving, AiperfRecordsHaveUnits) {
  const Read got = read(
      R"({"metadata": {"request_start_ns": 1759813207532900363, "benchmark_phase": "profiling"}, "metrics": {)"
      R"("input_sequence_length": {"value": 550, "unit": "tokens"}, "time_to_first_token": {"value": 4.5, "unit": "ms"}, )"
      R"("request_latency": {"value": 0.025, "unit": "sec"}, "output_sequence_length": {"value": 3, "unit": "tokens"}, )"
      R"("inter_chunk_latency": {"value": [10.0, 10.5], "unit": "ms"}}, "error": null})"
      "\n"
      R"({"metadata": {"request_start_ns": 1759813207532900364, "benchmark_phase": "warmup"}, "metrics": {}})"
      "\n"
      R"({"metadata": {"request_start_ns": 1759813208532900363}, "metrics": {"error_isl": {"value": 1, "unit": "tokens"}},)"
      R"( "error": {"code": 499, "type": "Cancelled", "message": "after 0 s"}})"
      "\n"
      R"({"metadata": {"request_start_ns": 1759813209532900363}, "metrics": {"request_latency": {"value": 4, "unit": "parsec"}}})"
      "\n");
  ASSERT_TRUE(got.status);
  const ClientRequests& rows = got.trace.client_requests;
  EXPECT_EQ(rows.start_ns, (std::vector<int64_t>{0, 1'000'000'000, 2'000'000'000}));
  EXPECT_EQ(rows.latency_ns, (std::vector<int64_t>{25'000'000, -1, -1}));
  EXPECT_EQ(rows.ttft_ns[0], 4'500'000);
  EXPECT_EQ(rows.input_tokens[0], 550);
  EXPECT_EQ(rows.output_tokens[0], 3);
  EXPECT_EQ(got.trace.text(rows.error[1]), "Cancelled: after 0 s");
  const ClientMoments& moments = got.trace.client_moments;
  EXPECT_EQ(moments.sent_unix_ns,
            (std::vector<int64_t>{1759813207532900363, 1759813208532900363, 1759813209532900363}));
  EXPECT_EQ(moments.first_unix_ns, (std::vector<int64_t>{1759813207537400363, -1, -1}));
  EXPECT_EQ(moments.end_unix_ns, (std::vector<int64_t>{1759813207557900363, -1, -1}));
  EXPECT_EQ(moments.request[2], 2U);
  EXPECT_EQ(got.trace.client_intervals.length_ns, (std::vector<int64_t>{10'000'000, 10'500'000}));
  EXPECT_EQ(counted(got.trace, DiagnosticId::kUnknownCategory), 1U);  // the unit
  EXPECT_EQ(got.trace.diagnostics.total(), 1U);
}

TEST(Serving, AiperfCallsTpotInterTokenLatency) {
  const Read got = read(
      R"({"request_throughput": {"unit": "requests/sec", "avg": 2.5}, "inter_token_latency": {"unit": "us", "avg": 9000.0,
      "p50": 8500.0, "p99": 9900.0}, "inter_chunk_latency": {"unit": "ms", "p50": 8.25}, "time_to_first_token": {"unit": "ms",
      "p50": "31.5"}, "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 50.0}, "request_count":
      {"unit": "requests", "avg": 20.0}, "input_config": {"model_names": ["a", "b"], "perf_analyzer": {"stimulus":
      {"concurrency": 4}}}})");
  ASSERT_TRUE(got.status);
  EXPECT_DOUBLE_EQ(figure(got.trace, "tpot", "median"), 0.0085);
  EXPECT_DOUBLE_EQ(figure(got.trace, "tpot", "p99"), 0.0099);
  EXPECT_DOUBLE_EQ(figure(got.trace, "itl", "median"), 0.00825);
  EXPECT_DOUBLE_EQ(figure(got.trace, "requests-per-s"), 2.5);
  EXPECT_DOUBLE_EQ(figure(got.trace, "completed"), 20);
  EXPECT_DOUBLE_EQ(figure(got.trace, "max-concurrency"), 4);
  EXPECT_EQ(text_of(got.trace, "model"), "a");
  EXPECT_EQ(counted(got.trace, DiagnosticId::kBadNumber), 1U);  // "31.5"
  EXPECT_TRUE(std::isnan(figure(got.trace, "ttft", "median")));
}

TEST(Serving, GuidellmCountsTheFirstTokenInTimePerOutputToken) {
  const Read got = read(
      R"({"args": {"model": "q"}, "benchmarks": [{"type_": "generative_benchmark", "duration": 10.0, "config": {"strategy":
      {"type_": "constant", "rate": 4.0}}, "metrics": {"request_totals": {"successful": 2, "errored": 1, "incomplete": 3,
      "total": 6}, "time_per_output_token_ms": {"successful": {"median": 12.0}}, "time_to_first_token_ms": {"successful":
      {"median": 31.0, "percentiles": {"p50": 31.0, "p99": 40.0, "p999": 41.0}}, "errored": {"median": 1.0}}}, "requests":
      {"successful": [{"request_start_time": 1764180000.5, "request_latency": 0.5, "time_to_first_token_ms": 31.0,
      "prompt_tokens": 7, "output_tokens": 9}], "incomplete": [], "errored": [{"info": {"error": "refused"},
      "request_latency": null}], "total": null}}]})");
  ASSERT_TRUE(got.status);
  const Trace& trace = got.trace;
  EXPECT_EQ(text_of(trace, "format"), "guidellm");
  EXPECT_EQ(text_of(trace, "model"), "q");
  EXPECT_DOUBLE_EQ(figure(trace, "request-rate"), 4);
  EXPECT_DOUBLE_EQ(figure(trace, "failed"), 1);
  EXPECT_DOUBLE_EQ(figure(trace, "incomplete"), 3);
  EXPECT_DOUBLE_EQ(figure(trace, "ttft", "p99"), 0.04);
  EXPECT_DOUBLE_EQ(figure(trace, "ttft", "p99.9"), 0.041);
  EXPECT_TRUE(std::isnan(figure(trace, "tpot", "median")));
  EXPECT_DOUBLE_EQ(figure(trace, "latency-per-token", "median"), 0.012);
  ASSERT_EQ(trace.client_requests.size(), 2U);
  EXPECT_EQ(trace.client_requests.latency_ns[0], 500'000'000);
  EXPECT_EQ(trace.client_requests.ttft_ns[0], 31'000'000);
  EXPECT_EQ(trace.text(trace.client_requests.error[1]), "refused");
  ASSERT_EQ(trace.client_moments.size(), 1U);  // the other has no time
  EXPECT_EQ(trace.client_moments.sent_unix_ns[0], 1764180000500000000);
  EXPECT_EQ(trace.client_moments.first_unix_ns[0], 1764180000531000000);
  EXPECT_EQ(trace.client_moments.end_unix_ns[0], 1764180001000000000);
  EXPECT_EQ(trace.diagnostics.total(), 0U);
}

TEST(Serving, ArraysOfDifferentLengthsGiveNoRequest) {
  const Read got = read("{" + kTotals + R"(, "ttfts": [0.25, 0.5], "output_lens": [3]})");
  ASSERT_TRUE(got.status);
  EXPECT_EQ(got.trace.client_requests.size(), 0U);
  ASSERT_EQ(counted(got.trace, DiagnosticId::kMalformedEvent), 1U);
  EXPECT_EQ(got.trace.diagnostics.places(DiagnosticId::kMalformedEvent)[0],
            "line 1 (ttfts has 2 entries and output_lens has 1: no request was kept)");
}

TEST(Serving, WrongValuesCostThatValue) {
  const Read got = read("{" + kTotals + R"(, "output_throughput": "12", "median_ttft_ms": NaN, "mean_ttft_ms": -3.0,
      "ttfts": ["0.25", 0.5, -1, 1e300], "output_lens": [3, 2.5, 4, 5], "itls": [[0.5], 7, null, [NaN]]})");
  ASSERT_TRUE(got.status);
  const ClientRequests& rows = got.trace.client_requests;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows.ttft_ns, (std::vector<int64_t>{-1, 500'000'000, -1, -1}));
  EXPECT_EQ(rows.output_tokens, (std::vector<int64_t>{3, -1, 4, 5}));
  EXPECT_EQ(got.trace.client_intervals.size(), 1U);
  EXPECT_EQ(counted(got.trace, DiagnosticId::kNegativeDuration), 1U);
  // The text, NaN, the negative figure, "0.25", 1e300 s, 2.5 tokens, 7 as a list, NaN as an interval.
  EXPECT_EQ(counted(got.trace, DiagnosticId::kBadNumber), 8U);
  EXPECT_TRUE(std::isnan(figure(got.trace, "output-tokens-per-s")));
  EXPECT_TRUE(std::isnan(figure(got.trace, "ttft", "median")));
}

TEST(Serving, ACutFileKeepsWhatCameBefore) {
  const Read got = read("{" + kTotals + R"(, "ttfts": [0.25, 0.)");
  ASSERT_TRUE(got.status);
  EXPECT_EQ(counted(got.trace, DiagnosticId::kTruncatedFile), 1U);
  EXPECT_DOUBLE_EQ(figure(got.trace, "completed"), 2);
  EXPECT_EQ(got.trace.client_requests.size(), 0U);
  EXPECT_EQ(got.trace.diagnostics.total(), 1U);
}

TEST(Serving, WithoutAFigureItIsAnError) {
  for (const char* text :
       {"{}", R"({"backend": "vllm", "request_rate": 4.0})", "[]", "[1, 2]", R"({"benchmarks": []})", "{"}) {
    const Read got = read(text);
    EXPECT_FALSE(got.status) << text;
  }
  EXPECT_NE(read("{}").status.error().what.find("found 1 JSON document without"), std::string::npos);
}

TEST(Serving, OnlyBenchmarksAreItsOwn) {
  EXPECT_GT(serving::sniff("{" + kTotals + "}"), 0);
  EXPECT_EQ(serving::sniff(R"({"traceEvents": [], "completed": 1, "duration": 2, "total_input_tokens": 3})"), 0);
  EXPECT_EQ(serving::sniff(R"({"duration": 1, "completed": true})"), 0);
  EXPECT_EQ(serving::sniff(""), 0);
  EXPECT_EQ(serving::sniff("completed duration total_input_tokens"), 0);
}

TEST(JsonStream, KeepsTheBeginningOfLongTextsAndBoundsNesting) {
  using json::JsonStream;
  const std::string text = R"(["a\"b)" + std::string(600'000, 'x') + "\", -1.5e3, -Infinity, true]";
  Result<InputFile> input = InputFile::from_memory(text, "x");
  JsonStream stream(*input);
  EXPECT_EQ(stream.next(), JsonStream::Token::kArray);
  ASSERT_EQ(stream.next(), JsonStream::Token::kText);
  EXPECT_TRUE(stream.text_was_cut());
  EXPECT_EQ(stream.text().substr(0, 4), "a\"bx");
  EXPECT_LE(stream.text().size(), JsonStream::kTextMax);
  ASSERT_EQ(stream.next(), JsonStream::Token::kNumber);
  EXPECT_EQ(stream.text(), "-1.5e3");
  EXPECT_EQ(stream.next(), JsonStream::Token::kNumber);
  EXPECT_EQ(stream.next(), JsonStream::Token::kWord);
  EXPECT_EQ(stream.next(), JsonStream::Token::kArrayEnd);
  EXPECT_EQ(stream.next(), JsonStream::Token::kEnd);

  const std::string deep(JsonStream::kNestingMax + 1, '[');
  Result<InputFile> nested = InputFile::from_memory(deep, "x");
  JsonStream levels(*nested);
  for (size_t i = 0; i < JsonStream::kNestingMax; ++i) ASSERT_EQ(levels.next(), JsonStream::Token::kArray);
  EXPECT_EQ(levels.next(), JsonStream::Token::kBad);
}

TEST(JsonStream, SaysWhatIsNoJson) {
  using json::JsonStream;
  for (const char* text :
       {"{1: 2}", "{\"a\" 1}", "[1 2]", "[1,]", "{\"a\": 1,}", "[nul]", "[.5]", "]", "[}", "[\"a\nb\"]"}) {
    Result<InputFile> input = InputFile::from_memory(text, "x");
    JsonStream stream(*input);
    JsonStream::Token token = stream.next();
    for (int i = 0; i < 9 && token != JsonStream::Token::kBad; ++i) token = stream.next();
    EXPECT_EQ(token, JsonStream::Token::kBad) << text;
  }
}

}  // namespace
}  // namespace llmprof
