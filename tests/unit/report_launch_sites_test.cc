// The launch sites of a deep recording in the renderers; nothing of them in the text of other recordings.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>

#include "report/render.h"

namespace llmprof {
namespace {

Report report_with_sites() {
  Report report;
  report.source.kind = "session";
  for (const char* site : {"at::native::silu_kernel < at::_ops::silu", "my::activate"}) {
    LaunchSiteRecord& row = report.launch_sites.emplace_back();
    row.kernel = "silu_kernel_gpu";
    row.site = site;
    row.stacks = 3;
    row.kernel_stacks = 6;
    row.kernel_calls = 40;
    row.kernel_ms.ns = 1'500'000;
    row.share = 0.25;
    row.stack = "libx.so!a\n[python]";
  }
  return report;
}

TEST(LaunchSiteReport, TextNamesSitesAndSaysThatTheyAreASample) {
  const std::string text = render_text(report_with_sites(), {});
  EXPECT_NE(text.find("Launch sites"), std::string::npos) << text;
  EXPECT_NE(text.find("1st, 2nd, 4th, 8th"), std::string::npos) << text;
  EXPECT_NE(text.find("3 of 6"), std::string::npos) << text;
  EXPECT_NE(text.find("at::native::silu_kernel < at::_ops::silu"), std::string::npos) << text;
  EXPECT_NE(text.find("my::activate"), std::string::npos) << text;
  const size_t first = text.find("silu_kernel_gpu");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("silu_kernel_gpu", first + 1), std::string::npos) << "a kernel is named once";
  EXPECT_EQ(render_text(Report{}, {}).find("Launch sites"), std::string::npos);
}

TEST(LaunchSiteReport, TextTellsHowManyKernelsItLeavesOut) {
  Report report = report_with_sites();
  report.launch_sites[1].kernel = "other";
  RenderOptions options;
  options.top = 1;
  const std::string text = render_text(report, options);
  EXPECT_NE(text.find("... 1 more ("), std::string::npos) << text;
  EXPECT_EQ(text.find("my::activate"), std::string::npos) << text;
}

TEST(LaunchSiteReport, JsonAndCsvHaveWholeStacks) {
  simdjson::dom::parser parser;
  const std::string text = render_json(report_with_sites());
  simdjson::dom::element root;
  ASSERT_FALSE(parser.parse(text).get(root)) << text;
  const simdjson::dom::element row = root["launch_sites"].at(0);
  EXPECT_EQ(std::string_view(row["kernel"]), "silu_kernel_gpu");
  EXPECT_EQ(int64_t(row["stacks"]), 3);
  EXPECT_EQ(int64_t(row["kernel_stacks"]), 6);
  EXPECT_EQ(double(row["kernel_ms"]), 1.5);
  EXPECT_EQ(std::string_view(row["stack"]), "libx.so!a\n[python]");
  const std::vector<RenderedFile> files = render_csv(report_with_sites());
  const auto file =
      std::find_if(files.begin(), files.end(), [](const RenderedFile& f) { return f.name == "launch_sites.csv"; });
  ASSERT_NE(file, files.end());
  EXPECT_NE(file->content.find("\"libx.so!a\n[python]\""), std::string::npos) << file->content;
}

}  // namespace
}  // namespace llmprof
