// Suites whose tests all look at one watched run of hook_client, which calls look-alikes of NVIDIA's libraries.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "capture_client.h"

namespace llmprof::test {

// A suite derives from it and runs the client in its SetUpTestSuite().
class HookClient : public testing::Test {
 protected:
  static void run_watched(const std::string& command) {
    command_ = command;
    run_ = std::make_unique<ClientRun>(run_client(command, Watching::kWatched));
  }
  static void TearDownTestSuite() { run_.reset(); }
  void SetUp() override {
    ASSERT_EQ(run_->exit_code, 0);
    ASSERT_EQ(run_->spools.size(), 1u);
  }

  static const ClientRun& run() { return *run_; }
  static const ClientSpool& spool() { return run_->spools[0]; }
  static const std::string& text(spool::Id id) { return spool().texts.at(id); }
  static const spool::LibraryDef& def(size_t call) { return spool().defs.at(spool().calls.at(call).def); }

  // Definitions of the calls of one function, in the order of the calls.
  static std::vector<spool::LibraryDef> defs_of(const std::string& function) {
    std::vector<spool::LibraryDef> found;
    for (size_t call = 0; call < spool().calls.size(); ++call) {
      if (text(def(call).function) == function) found.push_back(def(call));
    }
    return found;
  }

  // Watched, not watched and without the library, the program prints the same and the real functions get the same
  // arguments. `said` and `called` are what it must have printed and called, so that there is something to compare.
  static void expect_no_difference(const std::string& said, const std::string& called) {
    const ClientRun bare = run_client(command_, Watching::kNotLoaded);
    const ClientRun loaded = run_client(command_, Watching::kLoaded);
    ASSERT_EQ(bare.exit_code, 0);
    EXPECT_NE(bare.output.find(said), std::string::npos) << bare.output;
    EXPECT_NE(bare.fake_log.find(called), std::string::npos) << bare.fake_log;
    EXPECT_EQ(run_->output, bare.output);
    EXPECT_EQ(run_->fake_log, bare.fake_log);
    EXPECT_EQ(loaded.output, bare.output);
    EXPECT_EQ(loaded.fake_log, bare.fake_log);
    EXPECT_TRUE(loaded.spools.empty());
  }

 private:
  static inline std::string command_;
  static inline std::unique_ptr<ClientRun> run_;
};

}  // namespace llmprof::test
