// The store by itself: runs made, listed, found by name, compressed and verified. What faults do to it is tested from
// outside (tests/store).
#include "store/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "import/importer.h"
#include "store/manifest.h"
#include "store/settings.h"
#include "store/surroundings.h"
#include "store/verify.h"
#include "temporary_folder.h"

namespace llmprof::store {
namespace {

RunManifest manifest_of(RunKind kind, const std::string& name) {
  RunManifest out;
  out.kind = kind;
  out.name = name;
  out.result = std::string("result.json");
  out.start_unix_ns = 1795217989886984162;
  return out;
}

void put(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

std::string damage_of(const std::string& store) {
  const Result<VerifiedRuns> verified = verify_runs(store);
  if (!verified) return verified.error().text();
  std::string out;
  for (const RunProblem& problem : verified->problems)
    out += (out.empty() ? "" : "; ") + std::string(problem.damage ? "damage: " : "note: ") + problem.what;
  return out;
}

TEST(Store, an_empty_one_has_no_runs_and_is_not_made_by_looking) {
  const TemporaryFolder folder;
  const std::string store = folder.path() + "/a/runs";
  const Result<std::vector<RunRow>> rows = list_runs(store);
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->empty());
  EXPECT_EQ(access(store.c_str(), F_OK), -1);
}

TEST(Store, a_run_is_incomplete_until_it_is_finished) {
  const TemporaryFolder folder;
  const std::string store = folder.path() + "/runs";
  Result<OpenRun> run = begin_run(store, manifest_of(RunKind::kRun, "my run/1"));
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->folder(), store + "/0001-run-my-run-1");
  EXPECT_EQ(list_runs(store)->front().state, RunState::kRunning);
  ASSERT_EQ(mkdir((run->folder() + "/recording").c_str(), 0700), 0);
  put(run->folder() + "/recording/a.spool", std::string(1000, 'a'));
  ASSERT_TRUE(run->finish());
  const std::vector<RunRow> rows = *list_runs(store);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].state, RunState::kWhole);
  EXPECT_EQ(rows[0].name, "my run/1");
  EXPECT_EQ(rows[0].stored_bytes, 1000);
  EXPECT_EQ(damage_of(store), "");
}

TEST(Store, a_run_that_nobody_finishes_stays_incomplete) {
  const TemporaryFolder folder;
  {
    Result<OpenRun> run = begin_run(folder.path(), manifest_of(RunKind::kRun, "x"));
    ASSERT_TRUE(run);
    put(run->folder() + "/half", "12345");
  }
  const std::vector<RunRow> rows = *list_runs(folder.path());
  EXPECT_EQ(rows.at(0).state, RunState::kIncomplete);
  EXPECT_NE(damage_of(folder.path()).find("note: incomplete"), std::string::npos);
  EXPECT_EQ(add_run(folder.path(), manifest_of(RunKind::kBench, "y"), "{}")->number, 2);
}

TEST(Store, numbers_are_not_given_again) {
  const TemporaryFolder folder;
  EXPECT_EQ(add_run(folder.path(), manifest_of(RunKind::kBench, "a"), "{}")->number, 1);
  EXPECT_EQ(add_run(folder.path(), manifest_of(RunKind::kBench, "b"), "{}")->number, 2);
  ASSERT_TRUE(remove_run(folder.path(), list_runs(folder.path())->front()));
  EXPECT_EQ(add_run(folder.path(), manifest_of(RunKind::kBench, "c"), "{}")->number, 3);
  put(folder.path() + "/.number", "noise");  // the folders tell, too
  EXPECT_EQ(add_run(folder.path(), manifest_of(RunKind::kBench, "d"), "{}")->number, 4);
}

TEST(Store, damage_is_found_and_nothing_else) {
  const TemporaryFolder folder;
  ASSERT_TRUE(add_run(folder.path(), manifest_of(RunKind::kBench, "a"), "{\"a\": 1}"));
  const std::string run = list_runs(folder.path())->front().folder;
  EXPECT_EQ(damage_of(folder.path()), "");
  put(run + "/result.json", "{\"a\": 2}");
  EXPECT_NE(damage_of(folder.path()).find("damage: expected the checksum"), std::string::npos);
  put(run + "/result.json", "{\"a\"");
  EXPECT_NE(damage_of(folder.path()).find("damage: expected 8 bytes, found 4"), std::string::npos);
  unlink((run + "/result.json").c_str());
  EXPECT_NE(damage_of(folder.path()).find("damage: expected a file of the run, found none"), std::string::npos);
  put(run + "/manifest.json", "{");
  EXPECT_NE(damage_of(folder.path()).find("damage: expected the manifest of a run"), std::string::npos);
  EXPECT_EQ(list_runs(folder.path())->front().state, RunState::kDamaged);
}

TEST(Store, pins_survive_what_else_changes) {
  const TemporaryFolder folder;
  ASSERT_TRUE(add_run(folder.path(), manifest_of(RunKind::kBench, "a"), std::string(100000, 'x')));
  ASSERT_TRUE(pin_run(list_runs(folder.path())->front(), true));
  ASSERT_TRUE(compress_run(folder.path(), list_runs(folder.path())->front(), 1000));
  const RunRow row = list_runs(folder.path())->front();
  EXPECT_TRUE(row.pinned);
  EXPECT_TRUE(row.compressed);
  EXPECT_LT(row.stored_bytes, 1000);
  EXPECT_EQ(damage_of(folder.path()), "");
  ASSERT_TRUE(compress_run(folder.path(), row, 1000));  // twice is once
  EXPECT_EQ(list_runs(folder.path())->front().stored_bytes, row.stored_bytes);
}

TEST(Store, what_does_not_get_smaller_stays) {
  const TemporaryFolder folder;
  std::string noise;
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) noise += static_cast<char>((state = state * 6364136223846793005ULL + 1) >> 56);
  ASSERT_TRUE(add_run(folder.path(), manifest_of(RunKind::kBench, "a"), noise));
  ASSERT_TRUE(compress_run(folder.path(), list_runs(folder.path())->front(), 1000));
  EXPECT_EQ(list_runs(folder.path())->front().stored_bytes, 20000);
  EXPECT_EQ(damage_of(folder.path()), "");
}

// A session whose spools were compressed is read as it was.
TEST(Store, a_compressed_recording_is_read_as_before) {
  const TemporaryFolder folder;
  Result<OpenRun> run = begin_run(folder.path(), manifest_of(RunKind::kRun, "x"));
  ASSERT_TRUE(run);
  const std::string spools = run->folder() + "/recording/spool";
  ASSERT_TRUE(make_folders(spools));
  std::ifstream source(std::string(LLMPROF_TEST_DATA) + "/golden/inputs/streams.spool", std::ios::binary);
  put(spools + "/1-1.spool", std::string(std::istreambuf_iterator<char>(source), {}));
  ASSERT_TRUE(run->finish());
  const Result<Trace> before = import_files({run->folder() + "/recording"});
  ASSERT_TRUE(before) << before.error().text();
  ASSERT_GT(before->gpu_ops.size(), 0U);
  ASSERT_TRUE(compress_run(folder.path(), list_runs(folder.path())->front(), 1));
  EXPECT_TRUE(is_compressed(spools + "/1-1.spool"));
  const Result<Trace> after = import_files({run->folder() + "/recording"});
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(after->gpu_ops.size(), before->gpu_ops.size());
  EXPECT_EQ(after->gpu_ops.start_ns, before->gpu_ops.start_ns);
  EXPECT_EQ(damage_of(folder.path()), "");
}

TEST(Store, links_in_a_run_are_not_followed) {
  const TemporaryFolder folder;
  put(folder.path() + "/mine", "mine");
  const std::string store = folder.path() + "/runs";
  Result<OpenRun> run = begin_run(store, manifest_of(RunKind::kRun, "x"));
  ASSERT_TRUE(run);
  ASSERT_EQ(symlink("../../mine", (run->folder() + "/link").c_str()), 0);
  ASSERT_TRUE(run->finish());
  EXPECT_TRUE(run->manifest().files.empty());
  ASSERT_TRUE(remove_run(store, list_runs(store)->front()));
  EXPECT_EQ(access((folder.path() + "/mine").c_str(), F_OK), 0);
}

TEST(Store, an_index_of_another_version_is_made_anew) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(add_run(folder.path(), manifest_of(RunKind::kPeaks, "a"), "{}"));
  ASSERT_EQ(list_runs(folder.path())->size(), 3U);
  put(folder.path() + "/index.sqlite", "another program's file, which is long enough to be looked at by somebody");
  ASSERT_EQ(list_runs(folder.path())->size(), 3U);
  ASSERT_EQ(list_runs(folder.path())->size(), 3U);
  std::ifstream index(folder.path() + "/index.sqlite", std::ios::binary);
  std::string head(15, '\0');
  index.read(head.data(), 15);
  EXPECT_EQ(head, "SQLite format 3");
}

// ---- names

std::vector<RunRow> named_runs() {
  std::vector<RunRow> rows(4);
  const char* names[] = {"gen", "suite", "gen", "old"};
  const RunKind kinds[] = {RunKind::kRun, RunKind::kBench, RunKind::kRun, RunKind::kAnalysis};
  for (size_t i = 0; i < 4; ++i) {
    rows[i].number = static_cast<int64_t>(12 - i);
    rows[i].name = names[i];
    rows[i].kind = kinds[i];
    rows[i].folder = "/s/" + std::to_string(rows[i].number) + "-" + names[i];
  }
  return rows;
}

TEST(StoreNames, number_name_and_last) {
  std::vector<RunRow> rows = named_runs();
  EXPECT_EQ(find_run(rows, "last")->number, 12);
  EXPECT_EQ(find_run(rows, "last", RunKind::kBench)->number, 11);
  EXPECT_EQ(find_run(rows, "10")->number, 10);
  EXPECT_EQ(find_run(rows, "#9")->number, 9);
  EXPECT_EQ(find_run(rows, "gen")->number, 12);
  EXPECT_EQ(find_run(rows, "10-gen")->number, 10);
  rows[0].state = RunState::kRunning;
  EXPECT_EQ(find_run(rows, "last", RunKind::kRun)->number, 10);
  EXPECT_EQ(find_run(rows, "12")->number, 12);
}

TEST(StoreNames, errors_say_what_is_near) {
  const std::vector<RunRow> rows = named_runs();
  EXPECT_NE(find_run(rows, "99").error().advice.find("9 to 12"), std::string::npos);
  EXPECT_NE(find_run(rows, "suit").error().advice.find("did you mean suite?"), std::string::npos);
  EXPECT_NE(find_run(rows, "9", RunKind::kRun).error().what.find("found an analysis"), std::string::npos);
  EXPECT_NE(find_run(rows, "last", RunKind::kPeaks).error().what.find("found none"), std::string::npos);
  EXPECT_EQ(find_run({}, "3").error().exit_code, ExitCode::kUsage);
}

TEST(StoreNames, which_words_can_only_be_runs) {
  for (const char* word : {"last", "1", "#1", "0012", "#123456"}) EXPECT_TRUE(names_a_run(word)) << word;
  for (const char* word : {"", "#", "0", "-1", "1.5", "12a", "lasts", "99999999999999999999"})
    EXPECT_FALSE(names_a_run(word)) << word;
  EXPECT_EQ(number_of_folder("0012-run-x"), 12);
  for (const char* name : {"12", "-run", "x-run", ".new-0003", ""}) EXPECT_FALSE(number_of_folder(name)) << name;
}

// ---- settings and surroundings

class StoreSettings : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"LLMPROF_STORE", "LLMPROF_HOME", "XDG_STATE_HOME", "LLMPROF_STORE_KEEP",
                             "LLMPROF_STORE_TOTAL_GB", "LLMPROF_STORE_RECORDINGS"})
      unsetenv(name);
  }
  TemporaryFolder folder_;
};

TEST_F(StoreSettings, variables_go_before_the_file) {
  EXPECT_EQ(read_settings(folder_.path())->keep, 5);
  put(folder_.path() + "/settings.json", R"({"keep": 7, "total_gb": 1.5, "recordings": "here"})");
  EXPECT_EQ(read_settings(folder_.path())->keep, 7);
  EXPECT_EQ(read_settings(folder_.path())->total_bytes(), 1500000000);
  EXPECT_FALSE(read_settings(folder_.path())->recordings);
  setenv("LLMPROF_STORE_KEEP", "2", 1);
  setenv("LLMPROF_STORE_RECORDINGS", "store", 1);
  EXPECT_EQ(read_settings(folder_.path())->keep, 2);
  EXPECT_TRUE(read_settings(folder_.path())->recordings);
}

TEST_F(StoreSettings, what_cannot_be_read_is_an_error_and_not_a_default) {
  for (const char* text : {"{", "[]", R"({"keep": 0})", R"({"keep": 2.5})", R"({"keep": "5"})", R"({"kep": 5})",
                           R"({"total_gb": -1})", R"({"recordings": "there"})", R"({"keep": 1e300})"}) {
    put(folder_.path() + "/settings.json", text);
    EXPECT_FALSE(read_settings(folder_.path())) << text;
  }
  put(folder_.path() + "/settings.json", "{}");
  for (const char* value : {"x", "0", "1.5", "-1", "5 "}) {
    setenv("LLMPROF_STORE_KEEP", value, 1);
    EXPECT_FALSE(read_settings(folder_.path())) << value;
  }
}

TEST_F(StoreSettings, where_the_store_is) {
  setenv("XDG_STATE_HOME", "/x", 1);
  EXPECT_EQ(store_folder(), "/x/llmprof/runs");
  setenv("LLMPROF_HOME", "/h", 1);
  EXPECT_EQ(store_folder(), "/h/runs");
  setenv("LLMPROF_STORE", "/s//t/", 1);
  EXPECT_EQ(store_folder(), "/s/t");
  setenv("LLMPROF_STORE", "off", 1);
  EXPECT_EQ(store_folder(), "");
}

TEST(StoreSurroundings, variables_that_matter_and_no_secrets) {
  const char* environment[] = {"PATH=/bin",
                               "CUDA_VISIBLE_DEVICES=1",
                               "NCCL_DEBUG=",
                               "TORCH_HUB_TOKEN=x",
                               "LLMPROF_API_KEY=y",
                               "OMP_NUM_THREADS=4",
                               "PYTORCH_CUDA_ALLOC_CONF=a=b",
                               "NOEQUALS",
                               nullptr};
  std::string found;
  for (const RunVariable& variable : variables_that_matter(environment))
    found += variable.name + "=" + variable.value + " ";
  EXPECT_EQ(found, "CUDA_VISIBLE_DEVICES=1 NCCL_DEBUG= OMP_NUM_THREADS=4 PYTORCH_CUDA_ALLOC_CONF=a=b ");
}

TEST(StoreSurroundings, the_driver_s_version) {
  EXPECT_EQ(
      driver_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06  Wed Jun 26 06:46:07 UTC 2024\nGCC 12.2"),
      "535.183.06");
  EXPECT_EQ(driver_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"),
            "580.159.04");
  for (const char* text : {"", "NVRM version: none", "..", "\n580.1", "NVIDIA 580"})
    EXPECT_FALSE(driver_in(text)) << text;
}

TEST(StoreSurroundings, the_commit_by_git_s_own_files) {
  const TemporaryFolder folder;
  const std::string commit(40, 'a'), packed(40, 'b');
  EXPECT_FALSE(git_state(folder.path(), 500));
  ASSERT_TRUE(make_folders(folder.path() + "/.git/refs/heads"));
  ASSERT_TRUE(make_folders(folder.path() + "/src/deep"));
  put(folder.path() + "/.git/HEAD", "ref: refs/heads/main\n");
  EXPECT_FALSE(git_state(folder.path() + "/src/deep", 500));  // nothing committed yet
  put(folder.path() + "/.git/packed-refs", "# pack-refs\n" + packed + " refs/heads/main\n");
  EXPECT_EQ(git_state(folder.path(), 500)->commit, packed);
  put(folder.path() + "/.git/refs/heads/main", commit + "\n");
  const std::optional<RunGit> state = git_state(folder.path() + "/src/deep", 500);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->commit, commit);
  EXPECT_EQ(state->branch, "main");
  EXPECT_FALSE(state->dirty);  // git itself cannot say: there is no such commit
  put(folder.path() + "/.git/HEAD", packed + "\n");
  EXPECT_EQ(git_state(folder.path(), 500)->commit, packed);
  EXPECT_FALSE(git_state(folder.path(), 500)->branch);
  put(folder.path() + "/.git/HEAD", "ref: ../../../etc/passwd\n");
  EXPECT_FALSE(git_state(folder.path(), 500));
}

}  // namespace
}  // namespace llmprof::store
