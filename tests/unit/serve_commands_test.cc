// Commands as processes: what they print, why they fail, their limits, and that none is left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "serve/commands.h"
#include "temporary_folder.h"
#include "text_contains.h"

namespace llmprof::serve {
namespace {

const Unwanted kWanted = [] { return false; };

class CommandProcesses : public testing::Test {
 protected:
  ProcessCommands shell(CommandLimits limits = {}) const { return ProcessCommands("/bin/sh", folder_.path(), limits); }
  Result<std::string> run(const std::string& script, CommandLimits limits = {}) const {
    return shell(limits).output_of({"-c", script}, kWanted);
  }
  std::string error_of(const std::string& script, CommandLimits limits = {}) const {
    const Result<std::string> output = run(script, limits);
    return output ? "it worked: " + *output : output.error().what;
  }
  TemporaryFolder folder_;
};

TEST_F(CommandProcesses, their_output_is_the_answer) {
  EXPECT_EQ(*run("printf 'a\\nb'"), "a\nb");
  EXPECT_EQ(*run("cat; echo $0; pwd -P"), "llmprof\n" + folder_.path() + "\n") << "no input, in that folder";
  EXPECT_EQ(*run("echo said >&2; echo out; exit 3"), "out\n") << "3: the input has errors, and there is an answer";
  EXPECT_EQ(
      run("i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done")->size(),
      size_t{20000} * 41);
}

TEST_F(CommandProcesses, why_they_fail_is_said_in_a_sentence_without_places) {
  EXPECT_EQ(error_of("echo 'llmprof: expected a, found b' >&2; echo '  where: /home/x' >&2; exit 1"),
            "Expected a, found b.");
  EXPECT_EQ(error_of("printf 'llmprof: a \\033[31m' >&2; exit 2"), "A \\x1b[31m.");
  EXPECT_EQ(error_of("echo 'bash: /home/x: no' >&2; exit 1"), "The process that was to answer this failed.");
  EXPECT_TRUE(contains(error_of("kill -KILL $$"), "was ended"));
  EXPECT_EQ(ProcessCommands("/nowhere", folder_.path()).output_of({"x"}, kWanted).error().what,
            "The process that was to answer this failed.");
}

TEST_F(CommandProcesses, time_and_output_are_bounded) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(contains(error_of("sleep 60", {1000, 1 << 20, 1 << 20}), "more than 1 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_TRUE(
      contains(error_of("while :; do echo 012345678901234567890123456789; done", {60'000, 1 << 16, 0}), "too large"));
  EXPECT_TRUE(contains(error_of("while :; do echo x >&2; done", {500, 1 << 16, 0}), "more than")) << "nor what it says";
}

TEST_F(CommandProcesses, what_nobody_waits_for_ends) {
  std::atomic<bool> gone{false};
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    gone = true;
  });
  const std::string id = folder_.path() + "/id";
  const Result<std::string> output =
      shell().output_of({"-c", "echo $$ > " + id + "; exec sleep 60"}, [&] { return gone.load(); });
  leaves.join();
  ASSERT_FALSE(output);
  pid_t process = 0;
  std::ifstream(id) >> process;
  ASSERT_GT(process, 0);
  EXPECT_NE(kill(process, 0), 0) << "it still runs";
}

TEST_F(CommandProcesses, the_same_words_are_answered_from_what_is_kept) {
  const std::vector<std::string> words = {"-c", "echo x >> count; wc -l < count"};
  const ProcessCommands keeps = shell();
  EXPECT_EQ(*keeps.output_of(words, kWanted), "1\n");
  EXPECT_EQ(*keeps.output_of(words, kWanted), "1\n");
  const std::vector<std::string> fails = {"-c", "echo x >> fails; exit 1"};
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(keeps.output_of(fails, kWanted));
  EXPECT_EQ(*keeps.output_of({"-c", "wc -l < fails"}, kWanted), "2\n") << "a failure may pass";
  // With room for one of them the older one goes.
  const ProcessCommands small = shell({60'000, 1 << 20, 3});
  EXPECT_EQ(*small.output_of(words, kWanted), "2\n");
  EXPECT_EQ(*small.output_of({"-c", "echo y"}, kWanted), "y\n");
  EXPECT_EQ(*small.output_of(words, kWanted), "3\n");
}

}  // namespace
}  // namespace llmprof::serve
