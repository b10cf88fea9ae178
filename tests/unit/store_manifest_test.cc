// The manifest of a run: written and read again, and what is refused.
#include <gtest/gtest.h>

#include "store/manifest.h"
#include "temporary_folder.h"

namespace llmprof::store {
namespace {

RunManifest some_manifest() {
  RunManifest out;
  out.number = 12;
  out.kind = RunKind::kAnalysis;
  out.name = "größe \"x\"";
  out.state = RunState::kWhole;
  out.pinned = true;
  out.command = {"llmprof", "analyze", "a b\n"};
  out.git = RunGit{"0123456789012345678901234567890123456789", "main", true};
  out.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
  out.start_unix_ns = 1795217989886984162;
  out.ttft_ms = 26.93;
  out.result = "report.json";
  out.files = {{"report.json", 10, 5, "00ff"}, {"recording/spool/1.spool", 7, 7, "11"}};
  return out;
}

TEST(StoreManifest, is_read_as_it_was_written) {
  const TemporaryFolder folder;
  const RunManifest manifest = some_manifest();
  ASSERT_TRUE(write_manifest(folder.path(), manifest));
  const Result<RunManifest> read = read_manifest(folder.path());
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(manifest_text(*read), manifest_text(manifest));
  EXPECT_EQ(read->name, manifest.name);
  EXPECT_EQ(read->git->dirty, std::optional(true));
  EXPECT_EQ(read->files[1].path, "recording/spool/1.spool");
  EXPECT_FALSE(read->tpot_ms);
}

TEST(StoreManifest, without_git_and_without_lists) {
  RunManifest manifest = some_manifest();
  manifest.git.reset();
  manifest.files.clear();
  manifest.command.clear();
  const Result<RunManifest> read = parse_manifest(manifest_text(manifest), "m");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_FALSE(read->git);
  EXPECT_EQ(manifest_text(*read), manifest_text(manifest));
}

TEST(StoreManifest, a_file_outside_of_its_folder_is_refused) {
  for (const char* path : {"", "/etc/passwd", "..", "../0011/report.json", "a/../../b", "a//b", "a/.", "./a", "a/"}) {
    RunManifest manifest = some_manifest();
    manifest.files[0].path = path;
    EXPECT_FALSE(parse_manifest(manifest_text(manifest), "m")) << path;
  }
}

TEST(StoreManifest, says_what_is_wrong) {
  const auto error_of = [](std::string_view text) {
    const Result<RunManifest> read = parse_manifest(text, "m");
    return read ? std::string("none") : read.error().what;
  };
  EXPECT_NE(error_of("").find("no JSON"), std::string::npos);
  EXPECT_NE(error_of("{}").find("without a schema"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema": "llmprof.report/1"})").find("llmprof.report/1"), std::string::npos);
  std::string text = manifest_text(some_manifest());
  text.replace(text.find("\"analysis\""), 10, "\"analyses\"");
  EXPECT_NE(error_of(text).find("\"kind\""), std::string::npos);
  text = manifest_text(some_manifest());
  text.replace(text.find("\"state\": \"whole\""), 16, "\"state\": \"running\"");
  EXPECT_NE(error_of(text).find("state"), std::string::npos);
  RunManifest manifest = some_manifest();
  manifest.number = 0;
  EXPECT_FALSE(parse_manifest(manifest_text(manifest), "m"));
  manifest = some_manifest();
  manifest.files[0].bytes = -1;
  EXPECT_FALSE(parse_manifest(manifest_text(manifest), "m"));
}

}  // namespace
}  // namespace llmprof::store
