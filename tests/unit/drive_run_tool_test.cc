// A tool and its program as processes: what is passed on, and how they end when a budget is spent. The tool is a shell
// that has the name of its file among its words, the program what it starts.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "drive/run_tool.h"
#include "temporary_folder.h"

namespace llmprof::drive {
namespace {

class RunTool : public testing::Test {
 protected:
  ToolRun shell(const std::string& script) const {
    ToolRun run;
    run.file = folder_.path() + "/table.csv";
    run.words = {"/bin/sh", "-c", script, run.file};
    run.environment = {"PATH=/usr/bin:/bin"};
    run.mercy_s = 0.3;
    run.writing_s = 0.6;
    return run;
  }
  std::string content() const {
    std::ifstream file(folder_.path() + "/table.csv");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Whether the process that a script left in the file "pid" is still there.
  bool is_left() const {
    std::ifstream file(folder_.path() + "/table.csv.pid");
    pid_t process = 0;
    return file >> process && process > 0 && kill(process, 0) == 0;
  }
  const TemporaryFolder folder_;
};

TEST_F(RunTool, ExitCodeAndErrorsComeThrough) {
  const Result<ToolOutcome> outcome = run_tool(shell("echo said >&2; exit 3"));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->ending.exit_code(), 3);
  EXPECT_EQ(outcome->errors, "said\n");
  EXPECT_FALSE(outcome->out_of_time || outcome->out_of_room || outcome->interrupted);
}

TEST_F(RunTool, AToolThatIsNotThere) {
  ToolRun run = shell("true");
  run.words.front() = "/no/such/tool";
  const Result<ToolOutcome> outcome = run_tool(run);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().where.find("/no/such/tool"), std::string::npos);
}

TEST_F(RunTool, TheBudgetEndsTheProgramAndTheToolWritesStill) {
  ToolRun run = shell("sleep 600; sleep 0.1; echo written > \"$0\"; exit 0");
  run.budget_s = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  const Result<ToolOutcome> outcome = run_tool(run);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->out_of_time);
  EXPECT_EQ(outcome->ending.exit_code(), 0);
  EXPECT_EQ(content(), "written\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST_F(RunTool, WhatIgnoresSignalsIsKilled) {
  // The program and the tool ignore SIGTERM, and the tool goes on when the program is dead.
  ToolRun run = shell("trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 5; done'; while :; do sleep 0.05; done");
  run.budget_s = 0.2;
  const Result<ToolOutcome> outcome = run_tool(run);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->out_of_time);
  EXPECT_EQ(outcome->ending.signal.value_or(0), SIGKILL);
}

TEST_F(RunTool, ProcessesThatLostTheirParentsEndToo) {
  ToolRun run = shell("(setsid sleep 600 & echo $! > \"$0.pid\"); sleep 600");
  run.budget_s = 0.3;
  ASSERT_TRUE(run_tool(run));
  for (int i = 0; i < 100 && is_left(); ++i) usleep(20'000);  // a zombie until it is collected
  std::ifstream stat("/proc/" + [&] {
    std::ifstream file(folder_.path() + "/table.csv.pid");
    std::string text;
    file >> text;
    return text;
  }() + "/stat");
  std::string number, name, state = "gone";
  stat >> number >> name >> state;
  EXPECT_TRUE(state == "gone" || state == "Z") << state;
}

TEST_F(RunTool, AFileThatGrowsTooLargeEndsTheProgram) {
  ToolRun run =
      shell("while :; do echo 0123456789012345678901234567890123456789 >> \"$0\"; sleep 0.01 || exit 0; done");
  run.file_bytes_most = 200;
  const Result<ToolOutcome> outcome = run_tool(run);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->out_of_room);
  EXPECT_FALSE(outcome->out_of_time);
}

TEST_F(RunTool, OutputOfAProgram) {
  const std::vector<std::string> environment = {"PATH=/usr/bin:/bin"};
  EXPECT_EQ(output_of({"/bin/sh", "-c", "echo help; echo more >&2"}, environment), "help\nmore\n");
  EXPECT_EQ(output_of({"/bin/sh", "-c", "echo help; exit 1"}, environment), "");
  EXPECT_EQ(output_of({"/no/such/tool"}, environment), "");
}

}  // namespace
}  // namespace llmprof::drive
