// Command lines of ncu and nsys, names of metrics, and what the tools say when they fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/shell_word.h"
#include "drive/command_line.h"
#include "drive/failure.h"
#include "drive/find_tool.h"
#include "hardware/ncu_metrics.h"
#include "temporary_folder.h"

namespace llmprof::drive {
namespace {

using Words = std::vector<std::string>;

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
std::string value_of(const Words& words, const std::string& option) {
  const auto at = std::find(words.begin(), words.end(), option);
  return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

TEST(CommandLine, NcuOfHotKernels) {
  NcuLine line;
  line.log = "/tmp/a b/ncu.csv";
  line.metrics = {"gpu__time_duration.sum", "dram__bytes_read.sum"};
  line.functions = {"gemm", "operator+"};
  line.launch_skip = 12;
  line.launch_count = 6;
  line.command = {"python3", "x.py", "--csv"};
  const Words words = ncu_words(line);
  const Words wanted = {"ncu",
                        "--target-processes",
                        "all",
                        "--clock-control",
                        "none",
                        "--cache-control",
                        "none",
                        "--csv",
                        "--page",
                        "raw",
                        "--print-units",
                        "base",
                        "--log-file",
                        "/tmp/a b/ncu.csv",
                        "--metrics",
                        "gpu__time_duration.sum,dram__bytes_read.sum",
                        "--kernel-name-base",
                        "function",
                        "--kernel-name",
                        "regex:^(gemm|operator\\+)$",
                        "--launch-skip",
                        "12",
                        "--launch-count",
                        "6",
                        "python3",
                        "x.py",
                        "--csv"};
  EXPECT_EQ(words, wanted);
}

TEST(CommandLine, NcuAsksForNvtxOnlyWhereARangeIsNamed) {
  NcuLine line;
  line.metrics = {"a.sum"};
  line.command = {"x"};
  EXPECT_FALSE(has(ncu_words(line), "--nvtx"));
  EXPECT_FALSE(has(ncu_words(line), "--kernel-name"));
  EXPECT_FALSE(has(ncu_words(line), "--launch-skip"));
  line.range = "step, 1/2";
  EXPECT_TRUE(has(ncu_words(line), "--nvtx"));
  EXPECT_EQ(value_of(ncu_words(line), "--nvtx-include"), "step\\, 1\\/2/");
}

TEST(CommandLine, AnEscapedNameMatchesItselfAndNothingElse) {
  for (const std::string name : {"a.b", "x^2$", "f(int)[4]{}", "p|q", "a\\b", "operator*", "w?"}) {
    const std::regex expression("^(" + escape_regex(name) + ")$");
    EXPECT_TRUE(std::regex_match(name, expression)) << name;
    std::string other = name;
    for (char& c : other)
      if (c == '.' || c == '|' || c == '?' || c == '*') c = 'Z';
    EXPECT_TRUE(other == name || !std::regex_match(other, expression)) << name;
  }
}

// As `nsys profile --help` is laid out, shortened.
constexpr const char* kOldHelp =
    "usage: nsys profile [<args>] [application] [<application args>]\n"
    "\t-d, --duration=\n\t   Collection duration in seconds.\n"
    "\t-e, --env-var=\n\t   Not needed with '--trace=cuda'.\n"
    "\t-s, --sample=\n\t   Possible values are 'cpu' or 'none'.\n"
    "\t-t, --trace=\n\t   Possible values are 'cuda', 'nvtx', 'cublas-verbose', 'osrt' or 'none'.\n"
    "\t-w, --show-output=\n\t   'cublas' stands here in another option.\n";

TEST(CommandLine, NsysHasOnlyWhatItsVersionHas) {
  NsysLine line;
  line.output = "/r/nsys";
  line.duration_s = 2.5;
  line.command = {"./serve"};
  line.abilities = nsys_abilities(kOldHelp);
  EXPECT_TRUE(line.abilities.read);
  const Words old = {"nsys",           "profile",         "--trace=cuda,nvtx,osrt", "--sample=none",
                     "--duration=2.5", "--export=sqlite", "--force-overwrite=true", "--output=/r/nsys",
                     "./serve"};
  EXPECT_EQ(nsys_words(line), old);
  line.abilities = nsys_abilities("no help at all");
  EXPECT_FALSE(line.abilities.read);
  line.delay_s = 1;
  const Words all = {"nsys",
                     "profile",
                     "--trace=cuda,nvtx,cublas,osrt",
                     "--cuda-graph-trace=node",
                     "--sample=none",
                     "--cpuctxsw=none",
                     "--delay=1",
                     "--duration=2.5",
                     "--kill=none",
                     "--export=sqlite",
                     "--force-overwrite=true",
                     "--output=/r/nsys",
                     "./serve"};
  EXPECT_EQ(nsys_words(line), all);
}

TEST(CommandLine, WordsForAShell) {
  EXPECT_EQ(shell_line({"a", "", "b c", "it's", "x=1,2"}), "a '' 'b c' 'it'\\''s' x=1,2");
}

TEST(NcuMetrics, NamesDifferBetweenChips) {
  const auto asks = [](int32_t major, const char* name) { return has(ncu_report_metrics(major), name); };
  EXPECT_TRUE(asks(9, "sm__ops_path_tensor_src_fp16.sum"));
  EXPECT_FALSE(asks(9, "sm__ops_path_tensor_src_fp16_dst_fp32.sum"));
  EXPECT_TRUE(asks(8, "sm__ops_path_tensor_src_fp16_dst_fp32.sum"));
  EXPECT_TRUE(asks(12, "dram__bytes_op_read.sum"));
  EXPECT_FALSE(asks(12, "dram__bytes_read.sum"));
  EXPECT_TRUE(asks(9, "smsp__warp_issue_stalled_gmma_per_warp_active.pct"));
  EXPECT_FALSE(asks(10, "smsp__warp_issue_stalled_imc_miss_per_warp_active.pct"));
  EXPECT_FALSE(asks(7, "sm__ops_path_tensor_src_bf16_dst_fp32.sum"));
  // Of an unknown chip nothing is asked that one of those above lacks.
  for (const std::string& name : ncu_report_metrics(-1)) {
    if (name.starts_with("regex:") || name.starts_with("dram__")) continue;
    for (const int32_t major : {8, 9, 10, 12}) EXPECT_TRUE(asks(major, name.c_str())) << name << " on " << major;
  }
}

TEST(NcuMetrics, OldNamesAreReplacedAndSaid) {
  const Result<ChosenMetrics> chosen =
      choose_ncu_metrics("dram_read_bytes, stall_sync,dram__bytes_read.sum,sm__warps_active.avg", 9);
  ASSERT_TRUE(chosen) << chosen.error().text();
  const Words wanted = {"dram__bytes_read.sum", "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
                        "smsp__warp_issue_stalled_membar_per_warp_active.pct", "sm__warps_active.avg"};
  EXPECT_EQ(chosen->names, wanted);
  ASSERT_EQ(chosen->replaced.size(), 2U);
  EXPECT_NE(chosen->replaced[0].find("dram_read_bytes is dram__bytes_read.sum today"), std::string::npos);
  const Result<ChosenMetrics> newest = choose_ncu_metrics("dram_read_bytes", 12);
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->names, Words{"dram__bytes_op_read.sum"});
  EXPECT_FALSE(choose_ncu_metrics("a,,b", 9));
  EXPECT_FALSE(choose_ncu_metrics("a b", 9));
  EXPECT_FALSE(choose_ncu_metrics("", 9));
}

TEST(NcuMetrics, TheTableLeadsNowhereButToday) {
  for (const RenamedMetric& one : renamed_metrics()) {
    EXPECT_FALSE(one.source.empty());
    for (const RenamedMetric& other : renamed_metrics())
      EXPECT_EQ(std::string(one.today).find(std::string(other.given) + ","), std::string::npos);
    EXPECT_NE(one.today.find("__"), std::string_view::npos) << one.given;
  }
}

TEST(ToolFailures, SaidAsTheDoctorSaysThem) {
  const char* permission =
      "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
      "NVIDIA GPU Performance Counters on the target device 0.\n\"ID\",\"x\"\n";
  EXPECT_EQ(failure_of(permission), ToolFailure::kNoPermission);
  EXPECT_NE(explain_failure(ToolFailure::kNoPermission).what.find("ERR_NVGPUCTRPERM"), std::string::npos);
  EXPECT_NE(explain_failure(ToolFailure::kBusy).advice.find("dcgmi"), std::string::npos);
  EXPECT_EQ(failure_of("all well"), ToolFailure::kUnknown);
  EXPECT_EQ(last_lines(permission, 3),
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
            "on the target device 0.");
  EXPECT_EQ(last_lines("a\nb\nc\n", 2), "b\nc");
}

TEST(FindTool, OnPathThenInToolkitsThenTheNewestPackage) {
  namespace fs = std::filesystem;
  const TemporaryFolder root;
  const auto tool = [&](const std::string& folder) {
    fs::create_directories(root.path() + folder);
    const std::string path = root.path() + folder + "/ncu";
    std::ofstream(path) << "#!/bin/sh\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  };
  const ToolSearch search{"ncu", root.path() + "/bin", {root.path() + "/kit"}, root.path()};
  const FoundTool none = find_tool(search);
  EXPECT_TRUE(none.path.empty());
  EXPECT_EQ(none.looked_in.front(), "the folders of PATH");
  tool("/opt/nvidia/nsight-compute/2024.3");
  const std::string newest = tool("/opt/nvidia/nsight-compute/2024.10");
  EXPECT_EQ(find_tool(search).path, newest);
  const std::string toolkit = tool("/kit/bin");
  EXPECT_EQ(find_tool(search).path, toolkit);
  const std::string on_path = tool("/bin");
  EXPECT_EQ(find_tool(search).path, on_path);
}

}  // namespace
}  // namespace llmprof::drive
