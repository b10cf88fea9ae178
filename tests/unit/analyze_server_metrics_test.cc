// Servers by their metrics pages: rates, quantiles with bounds, restarts, and what some pages lack.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/server_metric_table.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "import/prometheus.h"

namespace llmprof {
namespace {

Report report_of_pages(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "no such folder/page.prom");
  EXPECT_TRUE(input && metrics_pages::import(*input, trace));
  finish_import(trace);
  EXPECT_TRUE(derive(trace));
  Result<Report> report = analyze(trace);
  EXPECT_TRUE(report);
  return report ? std::move(*report) : Report();
}

const ServerFigureRecord* figure_of(const Report& report, const std::string& name, const std::string& instance = "") {
  for (const ServerFigureRecord& row : report.server_figures)
    if (row.figure == name && row.instance == instance) return &row;
  return nullptr;
}

const ServerDistributionRecord* distribution_of(const Report& report, const std::string& name) {
  for (const ServerDistributionRecord& row : report.server_distributions)
    if (row.figure == name) return &row;
  return nullptr;
}

bool says(const Report& report, const std::string& why) {
  for (const CannotTell& row : report.cannot_tell)
    if (row.why.find(why) != std::string::npos || row.question.find(why) != std::string::npos) return true;
  return false;
}

// A histogram of TTFT with three buckets.
std::string ttft(int to_100ms, int to_200ms, int all, double sum) {
  const std::string name = "vllm:time_to_first_token_seconds";
  return name + "_bucket{le=\"0.1\"} " + std::to_string(to_100ms) + "\n" + name + "_bucket{le=\"0.2\"} " +
         std::to_string(to_200ms) + "\n" + name + "_bucket{le=\"+Inf\"} " + std::to_string(all) + "\n" + name +
         "_count " + std::to_string(all) + "\n" + name + "_sum " + std::to_string(sum) + "\n";
}

TEST(ServerMetrics, Rates) {
  const Report report = report_of_pages(
      "# time: 1000\nvllm:request_success_total{finished_reason=\"stop\"} "
      "10\nvllm:request_success_total{finished_reason=\"length\"} 1\n"
      "# time: 1020\nvllm:request_success_total{finished_reason=\"stop\"} "
      "45\nvllm:request_success_total{finished_reason=\"length\"} 6\n");
  const ServerFigureRecord* row = figure_of(report, "requests");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->first, 11);
  EXPECT_EQ(row->last, 51);
  EXPECT_EQ(row->increase, 40);
  EXPECT_EQ(row->seconds, 20);
  EXPECT_EQ(row->per_s, 2);
  EXPECT_EQ(report.metrics_pages.size(), 2u);
  EXPECT_TRUE(report.cannot_tell.empty());
}

TEST(ServerMetrics, QuantilesHaveBounds) {
  const Report report =
      report_of_pages("# time: 1000\n" + ttft(5, 5, 5, 0.25) + "# time: 1010\n" + ttft(9, 15, 15, 1.75));
  const ServerDistributionRecord* row = distribution_of(report, "ttft");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->span, "pages");
  EXPECT_EQ(row->count, 10);
  EXPECT_DOUBLE_EQ(*row->mean, 150);
  // 4 up to 100 ms and 6 up to 200 ms: the fifth is a sixth of the way.
  EXPECT_DOUBLE_EQ(*row->p50, 100 + 100 / 6.0);
  EXPECT_EQ(row->p50_least, 100);
  EXPECT_EQ(row->p50_most, 200);
  EXPECT_DOUBLE_EQ(*row->p99, 100 + 100 * 5.9 / 6);
}

TEST(ServerMetrics, NothingIsKnownAboveTheLastBound) {
  const Report report = report_of_pages(ttft(1, 2, 100, 90));
  const ServerDistributionRecord* row = distribution_of(report, "ttft");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->span, "start");
  EXPECT_EQ(row->p50, 200);
  EXPECT_EQ(row->p50_least, 200);
  EXPECT_FALSE(row->p50_most.has_value());
  EXPECT_TRUE(says(report, "one page of a server"));
}

TEST(ServerMetrics, NoRequestsInBetween) {
  const Report report =
      report_of_pages("# time: 1000\n" + ttft(5, 5, 5, 0.25) + "# time: 1010\n" + ttft(5, 5, 5, 0.25));
  const ServerDistributionRecord* row = distribution_of(report, "ttft");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->count, 0);
  EXPECT_FALSE(row->mean || row->p50 || row->p99);
}

TEST(ServerMetrics, ARestart) {
  const std::string before =
      "# time: 1000\nvllm:prompt_tokens_total 900\nvllm:num_requests_running 4\n" + ttft(5, 5, 5, 1);
  for (const std::string& after :
       {"# time: 1010\nvllm:prompt_tokens_total 20\nvllm:num_requests_running 2\n" + ttft(6, 6, 6, 1),
        "# time: 1010\nvllm:prompt_tokens_total 1000\nvllm:num_requests_running 2\n" + ttft(4, 6, 6, 1)}) {
    const Report report = report_of_pages(before + after);
    EXPECT_FALSE(figure_of(report, "input-tokens")->increase.has_value());
    EXPECT_FALSE(distribution_of(report, "ttft")->count.has_value());
    EXPECT_EQ(figure_of(report, "running")->value, 2);
    EXPECT_TRUE(says(report, "restarted"));
  }
  const Report started = report_of_pages(
      "process_start_time_seconds 5\nvllm:prompt_tokens_total 1\n"
      "process_start_time_seconds 6\nvllm:prompt_tokens_total 2\n");
  EXPECT_FALSE(figure_of(started, "input-tokens")->increase.has_value());
  EXPECT_TRUE(says(started, "restarted"));
}

TEST(ServerMetrics, ARestartOnTheWay) {
  const Report report = report_of_pages(
      "# time: 1\nvllm:prompt_tokens_total 9\n# time: 2\nvllm:prompt_tokens_total 1\n"
      "# time: 3\nvllm:prompt_tokens_total 12\n");
  EXPECT_FALSE(figure_of(report, "input-tokens")->increase.has_value());
  EXPECT_TRUE(says(report, "restarted"));
}

TEST(ServerMetrics, LabelsThatOnlyOnePageHas) {
  const Report report = report_of_pages(
      "# time: 1000\nvllm:request_success_total{finished_reason=\"stop\"} 10\nvllm:prompt_tokens_total 1\n"
      "# time: 1010\nvllm:request_success_total{finished_reason=\"stop\"} "
      "12\nvllm:request_success_total{finished_reason=\"abort\"} 3\n"
      "vllm:prompt_tokens_total 11\n");
  EXPECT_FALSE(figure_of(report, "requests")->increase.has_value());
  EXPECT_EQ(figure_of(report, "input-tokens")->per_s, 1);
  EXPECT_TRUE(says(report, "vllm:request_success"));
}

TEST(ServerMetrics, SeveralServersAreToldApart) {
  const std::string page =
      "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} "
      "1\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2\n"
      "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\",engine_type=\"unified\"} "
      "5\nsglang:token_usage{model_name=\"m\"} 0.5\n";
  const Report report = report_of_pages(page);
  EXPECT_EQ(figure_of(report, "running", "engine=0")->value, 1);
  EXPECT_EQ(figure_of(report, "running", "engine=1")->value, 2);
  // Its ranks of what is not parallel do not make it another server.
  EXPECT_EQ(figure_of(report, "running")->value, 5);
  EXPECT_EQ(figure_of(report, "kv-cache")->value, 0.5);
}

TEST(ServerMetrics, TwoNamesOfOneFigureCountOnce) {
  const Report report = report_of_pages("vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\n");
  ASSERT_EQ(report.server_figures.size(), 1u);
  EXPECT_EQ(report.server_figures[0].value, 0.5);
  EXPECT_EQ(report.server_figures[0].metric, "vllm:kv_cache_usage_perc");
}

TEST(ServerMetrics, WithoutTimesThereAreCountsAndNoRates) {
  const Report report = report_of_pages("vllm:prompt_tokens_total 9\n" + ttft(5, 5, 5, 0.25) +
                                        "vllm:prompt_tokens_total 19\n" + ttft(9, 15, 15, 1.75));
  EXPECT_EQ(figure_of(report, "input-tokens")->increase, 10);
  EXPECT_FALSE(figure_of(report, "input-tokens")->per_s.has_value());
  EXPECT_DOUBLE_EQ(*distribution_of(report, "ttft")->mean, 150);
  EXPECT_TRUE(says(report, "nothing says when"));
}

TEST(ServerMetrics, PagesOfOtherServers) {
  const Report report = report_of_pages("# TYPE up gauge\nup 1\n# TYPE go_goroutines gauge\ngo_goroutines 9\n");
  EXPECT_TRUE(report.server_figures.empty());
  ASSERT_EQ(report.metrics_pages.size(), 1u);
  EXPECT_EQ(report.metrics_pages[0].samples, 2);
  EXPECT_EQ(report.metrics_pages[0].known_samples, 0);
  EXPECT_TRUE(says(report, "none of the 2 metrics"));
}

TEST(ServerMetrics, ValuesThatCannotBe) {
  const Report report = report_of_pages(
      "vllm:prompt_tokens_total -4\nvllm:num_requests_running +Inf\nvllm:kv_cache_usage_perc NaN\n"
      "vllm:time_to_first_token_seconds_bucket{le=\"x\"} 1\nvllm:generation_tokens_total 3\n");
  EXPECT_EQ(report.server_figures.size(), 1u);
  EXPECT_TRUE(report.server_distributions.empty());
}

TEST(ServerMetricTable, NamesAreUnique) {
  const std::span<const servers::KnownMetric> metrics = servers::known_metrics();
  for (size_t i = 0; i < metrics.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(metrics[i].name, metrics[k].name);
  // Both parts of a ratio are figures of its server.
  for (const servers::KnownRatio& ratio : servers::known_ratios())
    for (const std::string_view part : {ratio.numerator, ratio.denominator}) {
      bool found = false;
      for (const servers::KnownMetric& metric : metrics)
        found = found || (metric.server == ratio.server && metric.figure == part);
      EXPECT_TRUE(found) << part;
    }
}

}  // namespace
}  // namespace llmprof
