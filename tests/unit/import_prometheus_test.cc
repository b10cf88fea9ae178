// Metrics pages: escapes, numbers and times of both formats, where a page ends, and lines that are none.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "import/prometheus.h"
#include "trace/sample_labels.h"

namespace llmprof {
namespace {

constexpr int64_t kPageSecond = 1'000'000'000;

Trace read_pages(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "no such folder/page.prom");
  EXPECT_TRUE(input && metrics_pages::import(*input, trace));
  return trace;
}

std::string page_error(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "no such folder/page.prom");
  const Status status = metrics_pages::import(*input, trace);
  return status ? "" : status.error().what;
}

std::string label_text(const Trace& trace, Row row) {
  return std::string(trace.text(trace.scraped_values.labels[row]));
}

TEST(MetricsPage, ASample) {
  const Trace trace =
      read_pages("# HELP a:b_total Things.\n# TYPE a:b_total counter\na:b_total{z=\"1\", b=\"2\",} 1.5e+06\n");
  const ScrapedValues& rows = trace.scraped_values;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(trace.text(rows.name[0]), "a:b_total");
  EXPECT_EQ(label_text(trace, 0), "b=\"2\",z=\"1\"");
  EXPECT_EQ(trace.text(rows.type[0]), "counter");
  EXPECT_EQ(trace.text(rows.source[0]), "no such folder/page.prom");
  EXPECT_EQ(rows.value[0], 1.5e6);
  EXPECT_EQ(rows.time_ns[0], 0);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(MetricsPage, EscapesInLabels) {
  const Trace trace = read_pages("a{p=\"C:\\\\x\",q=\"say \\\"hi\\\"\",r=\"two\\nlines, } and =\"} 1\n");
  ASSERT_EQ(trace.scraped_values.size(), 1u);
  EXPECT_EQ(label_text(trace, 0), "p=\"C:\\\\x\",q=\"say \\\"hi\\\"\",r=\"two\\nlines, } and =\"");
  const std::vector<SampleLabel> labels = labels_of(label_text(trace, 0));
  ASSERT_EQ(labels.size(), 3u);
  EXPECT_EQ(labels[0].value, "C:\\x");
  EXPECT_EQ(labels[1].value, "say \"hi\"");
  EXPECT_EQ(labels[2].value, "two\nlines, } and =");
}

TEST(MetricsPage, NamesInQuotes) {
  const Trace trace = read_pages("{\"http.requests\",\"a key\"=\"b\",c=\"d\"} 4\n");
  ASSERT_EQ(trace.scraped_values.size(), 1u);
  EXPECT_EQ(trace.text(trace.scraped_values.name[0]), "http.requests");
  EXPECT_EQ(label_text(trace, 0), "\"a key\"=\"b\",c=\"d\"");
  EXPECT_EQ(labels_text(labels_of(label_text(trace, 0))), label_text(trace, 0));
}

TEST(MetricsPage, Numbers) {
  const Trace trace = read_pages("a +Inf\nb -Inf\nc NaN\nd 1e-3\ne +4\nf .5\n");
  const std::vector<double>& values = trace.scraped_values.value;
  ASSERT_EQ(values.size(), 6u);
  EXPECT_TRUE(std::isinf(values[0]) && values[0] > 0);
  EXPECT_TRUE(std::isinf(values[1]) && values[1] < 0);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], 1e-3);
  EXPECT_EQ(values[4], 4);
  EXPECT_EQ(values[5], 0.5);
  for (const char* wrong : {"a one\n", "a 1e999\n", "a 0x10\n", "a +-1\n", "a 1,5\n"}) {
    const Trace bad = read_pages(std::string("x 1\n") + wrong);
    EXPECT_EQ(bad.scraped_values.size(), 1u) << wrong;
    EXPECT_EQ(bad.diagnostics.count(DiagnosticId::kBadNumber), 1u) << wrong;
  }
}

// Milliseconds in one format, seconds in the other.
TEST(MetricsPage, TimesOfSamples) {
  const Trace trace = read_pages(
      "a 1 1795773600123\nb 1 1795773600.125\nc 1 1795773600\nd 1 # {t=\"x\"} 1 5\ne 1 1795773601 # {t=\"x\"} 2\n");
  ASSERT_EQ(trace.scraped_values.size(), 5u);
  const std::vector<int64_t>& times = trace.scraped_values.time_ns;
  EXPECT_EQ(times[0], 1795773600 * kPageSecond + 123'000'000);
  EXPECT_EQ(times[1], 1795773600 * kPageSecond + 125'000'000);
  EXPECT_EQ(times[2], 1795773600 * kPageSecond);
  EXPECT_EQ(times[3], 0);
  EXPECT_EQ(times[4], 1795773601 * kPageSecond);
  const Trace bad = read_pages("a 1 soon\nb 1 -5\n");
  EXPECT_EQ(bad.scraped_values.size(), 2u);
  EXPECT_EQ(bad.diagnostics.count(DiagnosticId::kBadNumber), 2u);
}

TEST(MetricsPage, TimesOfComments) {
  // date -u -d 2026-11-27T10:00:00Z +%s
  const int64_t ten = 1795773600 * kPageSecond;
  for (const auto& [text, ns] :
       std::vector<std::pair<std::string, int64_t>>{{"2026-11-27T10:00:00Z", ten},
                                                    {"2026-11-27 10:00:00.25Z", ten + kPageSecond / 4},
                                                    {"2026-11-27T11:30:00+01:30", ten},
                                                    {"2026-11-27T05:00:00-0500", ten},
                                                    {"1795773600", ten},
                                                    {"1795773600.000000001", ten + 1}}) {
    const Trace trace = read_pages("# time: " + text + "\na 1\n");
    EXPECT_EQ(trace.scraped_values.time_ns.at(0), ns) << text;
    EXPECT_EQ(trace.metadata.at("metrics_page.clock.page.prom"), "comment");
  }
  for (const char* wrong : {"2026-11-27T10:00:00", "2026-13-27T10:00:00Z", "noon", "", "99999999999999999999", "1 2"}) {
    const Trace trace = read_pages(std::string("# time: ") + wrong + "\na 1\n");
    EXPECT_EQ(trace.scraped_values.time_ns.at(0), 0) << wrong;
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadNumber), 1u) << wrong;
  }
}

TEST(MetricsPage, TypesOfFamilies) {
  const Trace trace = read_pages(
      "# TYPE a counter\n# TYPE h histogram\n# TYPE s_total histogram\n# TYPE u untyped\n"
      "a_total 1\na_created 2\nh_bucket{le=\"1\"} 1\nh_sum 1\ns_total_count 1\nu 1\nother 1\n");
  std::string types;
  for (const StringId type : trace.scraped_values.type) types += std::string(trace.text(type)) + ",";
  EXPECT_EQ(types, "counter,counter,histogram,histogram,histogram,,,");
}

TEST(MetricsPage, WhereAPageEnds) {
  // Metadata comes again.
  const std::string page = "# TYPE a counter\na 1\n# TYPE b gauge\nb 2\n";
  const Trace twice = read_pages(page + page);
  EXPECT_EQ(twice.scraped_values.size(), 4u);
  EXPECT_EQ(twice.diagnostics.total(), 0u);
  // Its end is marked.
  EXPECT_EQ(read_pages("a 1\nb 2\n# EOF\nb 2\na 1\n# EOF\n").scraped_values.size(), 4u);
  // The first sample comes again.
  EXPECT_EQ(read_pages("a 1\nb 2\na 1\nb 2\n").scraped_values.size(), 4u);
  // Each with its own time.
  const Trace timed = read_pages("# time: 100\n" + page + "# time: 160\n" + page);
  EXPECT_EQ(timed.scraped_values.time_ns,
            (std::vector<int64_t>{100 * kPageSecond, 100 * kPageSecond, 160 * kPageSecond, 160 * kPageSecond}));
}

TEST(MetricsPage, SamplesThatComeTwice) {
  const Trace trace = read_pages("# TYPE a counter\na{x=\"1\",y=\"2\"} 1\nb 1\na{y=\"2\",x=\"1\"} 7\n");
  ASSERT_EQ(trace.scraped_values.size(), 2u);
  EXPECT_EQ(trace.scraped_values.value[0], 1);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kDuplicateEvent), 1u);
}

TEST(MetricsPage, BlankValuesOfDcgm) {
  const Trace trace = read_pages(
      "DCGM_FI_A 9223372036854775794\nDCGM_FI_B 9223372036854775792\nDCGM_FI_C 2147483634\n"
      "DCGM_FI_D 140737488355329\nDCGM_FI_E 2147483636\nother 9223372036854775794\n");
  const std::vector<double>& values = trace.scraped_values.value;
  ASSERT_EQ(values.size(), 6u);
  for (size_t row = 0; row < 4; ++row) EXPECT_TRUE(std::isnan(values[row])) << row;
  EXPECT_EQ(values[4], 2147483636);
  EXPECT_EQ(values[5], 9223372036854775808.0);
}

TEST(MetricsPage, LinesThatAreNone) {
  for (const char* wrong :
       {"a{b=\"\\q\"} 1\n", "a{b=\"c} 1\n", "a{b=c} 1\n", "a{b=\"c\" d=\"e\"} 1\n", "a{1b=\"c\"} 1\n",
        "a{b=\"c\",b=\"d\"} 1\n", "a 1 2 3\n", "a\n", "a{b=\"c\"}\n", "<html>\n", "{\"a\",\"b\"} 1\n"}) {
    const Trace trace = read_pages(std::string("x 1\n") + wrong);
    EXPECT_EQ(trace.scraped_values.size(), 1u) << wrong;
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMalformedEvent), 1u) << wrong;
  }
}

TEST(MetricsPage, CutAnywhere) {
  const std::string page = "# TYPE a counter\na{b=\"c\"} 123\n# HELP d Things.\nd 45\n";
  for (size_t size = page.find('\n', 20) + 1; size < page.size(); ++size) {
    const Trace trace = read_pages(page.substr(0, size));
    EXPECT_EQ(trace.scraped_values.size(), 1u) << size;
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), page[size - 1] == '\n' ? 0u : 1u) << size;
  }
}

TEST(MetricsPage, LongLines) {
  const Trace trace = read_pages("a 1\nb{c=\"" + std::string(70'000, 'x') + "\"} 1\nd 1\n");
  EXPECT_EQ(trace.scraped_values.size(), 2u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kLimitReached), 1u);
}

TEST(MetricsPage, NoSamples) {
  EXPECT_NE(page_error("# HELP a Things.\n# TYPE a counter\n").find("found none"), std::string::npos);
  EXPECT_NE(page_error("# time: 1795773600\n<html>404</html>\n").find("found none"), std::string::npos);
}

TEST(MetricsPage, Sniff) {
  for (const char* page :
       {"# HELP a Things.\n", "# TYPE a counter\n", "#TYPE nv_a counter\n", "# time: 1795773600\na 1\n",
        "\n# a remark\n# TYPE a counter\n", "vllm:a{b=\"c\"} 1\n", "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 71.2\n",
        "nv_inference_count{model=\"m\"} 4 1795773600123\r\n"})
    EXPECT_GT(metrics_pages::sniff(page), 0) << page;
  for (const char* other :
       {"", "#", "# gpu pwr\n", "<html>\n# TYPE a counter\n", "{\"traceEvents\": []}", "# TYPE\n", "# time: noon\n",
        "vllm:a\n", "a 1\n", "nv_a is good\n", "import os\n# HELP a b\n", "I! cuBLAS (v13.1.0) function\n"})
    EXPECT_EQ(metrics_pages::sniff(other), 0) << other;
}

}  // namespace
}  // namespace llmprof
