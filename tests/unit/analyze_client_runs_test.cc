// What a benchmark's file states against what its requests give, and what stays unknown.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "import/serving.h"

namespace llmprof {
namespace {

Report report_of(const std::string& text) {
  Result<InputFile> input = InputFile::from_memory(text, "bench.json");
  EXPECT_TRUE(input);
  Trace trace;
  EXPECT_TRUE(serving::import(*input, trace));
  finish_import(trace);
  EXPECT_TRUE(derive(trace, {}));
  Result<Report> report = analyze(trace);
  EXPECT_TRUE(report);
  return std::move(*report);
}

const DiagnosticRecord* disagreement(const Report& report) {
  for (const DiagnosticRecord& row : report.diagnostics)
    if (row.key == DiagnosticId::kOtherFigure) return &row;
  return nullptr;
}

// Three requests: TTFT 0.1, 0.2, 0.3 s; 5 tokens in 0.4 s behind it, 3 in 0.4 s, 1 in none.
const std::string kRequests =
    R"("duration": 2.0, "completed": 3, "total_input_tokens": 60, "total_output_tokens": 9, "input_lens": [10, 20, 30],
       "output_lens": [5, 3, 1], "ttfts": [0.1, 0.2, 0.3], "latencies": [0.5, 0.6, 0.3],
       "itls": [[0.1, 0.1, 0.1, 0.1], [0.3, 0.1], []], "errors": ["", "", ""])";

TEST(ClientRuns, FiguresOfTheRequests) {
  const Report report = report_of("{" + kRequests + "}");
  ASSERT_EQ(report.client_runs.size(), 1U);
  const ClientRunRecord& run = report.client_runs[0];
  EXPECT_EQ(run.requests, 3);
  EXPECT_EQ(run.completed, OptInt(3));
  EXPECT_EQ(run.failed, OptInt(0));
  EXPECT_NEAR(run.ttft_median_ms.value(), 200, 1e-6);
  EXPECT_NEAR(run.ttft_p99_ms.value(), 298, 1e-6);
  EXPECT_NEAR(run.tpot_median_ms.value(), 150, 1e-6);  // 100 and 200; one token has none
  EXPECT_NEAR(run.tpot_p99_ms.value(), 199, 1e-6);
  EXPECT_NEAR(run.itl_median_ms.value(), 100, 1e-6);
  EXPECT_NEAR(run.itl_p99_ms.value(), 290, 1e-6);
  EXPECT_NEAR(run.e2e_median_ms.value(), 500, 1e-6);
  EXPECT_NEAR(run.requests_per_s.value(), 1.5, 1e-12);
  EXPECT_NEAR(run.output_tokens_per_s.value(), 4.5, 1e-12);
  EXPECT_NEAR(run.total_tokens_per_s.value(), 34.5, 1e-12);
  EXPECT_FALSE(run.request_rate.has_value());
  EXPECT_FALSE(run.max_concurrency.has_value());
  EXPECT_EQ(run.checked, 3);  // completed, tokens in and out
  EXPECT_EQ(run.disagreeing, 0);
  EXPECT_EQ(disagreement(report), nullptr);
}

TEST(ClientRuns, StatedFiguresAreChecked) {
  const Report same =
      report_of("{" + kRequests + R"(, "median_ttft_ms": 200.0, "p99_tpot_ms": 199.0, "mean_itl_ms": 133.33})");
  EXPECT_EQ(same.client_runs[0].checked, 6);
  EXPECT_EQ(same.client_runs[0].disagreeing, 0);
  const Report other =
      report_of("{" + kRequests + R"(, "median_ttft_ms": 0.2, "p99_tpot_ms": 197.0, "mean_itl_ms": 133.33})");
  EXPECT_EQ(other.client_runs[0].disagreeing, 2);
  EXPECT_NEAR(other.client_runs[0].ttft_median_ms.value(), 200, 1e-6);  // the requests count
  const DiagnosticRecord* row = disagreement(other);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->count, 2);
  EXPECT_NE(row->text.find("bench.json: 2 of 6"), std::string::npos) << row->text;
}

TEST(ClientRuns, FewerRequestsThanStatedDoNotReplaceTheFigures) {
  std::string text = "{" + kRequests + R"(, "median_ttft_ms": 260.0})";
  text.replace(text.find("\"completed\": 3"), 14, "\"completed\": 9");
  const ClientRunRecord run = report_of(text).client_runs[0];
  EXPECT_EQ(run.completed, OptInt(9));
  EXPECT_NEAR(run.ttft_median_ms.value(), 260, 1e-9);
  EXPECT_FALSE(run.tpot_median_ms.has_value());
  EXPECT_FALSE(run.failed.has_value());
  EXPECT_EQ(run.disagreeing, 1);  // completed
}

TEST(ClientRuns, AValueThatCannotBeReadTakesItsDistribution) {
  std::string text = "{" + kRequests + "}";
  text.replace(text.find("\"ttfts\": [0.1"), 13, "\"ttfts\": [null");
  const ClientRunRecord run = report_of(text).client_runs[0];
  EXPECT_FALSE(run.ttft_median_ms.has_value());
  EXPECT_FALSE(run.tpot_median_ms.has_value());
  EXPECT_NEAR(run.e2e_median_ms.value(), 500, 1e-6);
  EXPECT_NEAR(run.itl_median_ms.value(), 100, 1e-6);
}

TEST(ClientRuns, WhatAFileLacksIsUnknown) {
  const Report report = report_of(R"({"duration": 2.0, "completed": 4, "request_rate": "inf", "mean_ttft_ms": 5.0})");
  const ClientRunRecord& run = report.client_runs[0];
  EXPECT_TRUE(run.unlimited_rate);
  EXPECT_FALSE(run.request_rate.has_value());
  EXPECT_FALSE(run.failed.has_value());
  EXPECT_FALSE(run.ttft_median_ms.has_value());
  EXPECT_FALSE(run.output_tokens_per_s.has_value());
  EXPECT_NEAR(run.requests_per_s.value(), 2, 1e-12);
  bool asked = false;
  for (const CannotTell& row : report.cannot_tell)
    asked = asked || row.question.find("median TTFT") != std::string::npos;
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace llmprof
