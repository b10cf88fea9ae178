// The hook module of --torch in a Python program with a stand-in for torch: which functions and modules are seen.
#include <gtest/gtest.h>

#include <algorithm>

#include "capture_client.h"

namespace llmprof {
namespace {

using test::ClientRun;
using test::ClientSpool;

ClientRun run_python(const std::string& how, const std::string& environment = "") {
  const std::string clients = LLMPROF_PYTHON_CLIENTS;
  return test::run_client("/usr/bin/env python3 " + clients + "/frames_client.py " + how, test::Watching::kWatched,
                          environment + " PYTHONDONTWRITEBYTECODE=1 LLMPROF_TORCH=1 PYTHONPATH=" +
                              (test::build_folder() / "share/llmprof/python").string() + ":" + clients);
}

// Ranges whose text ends so.
size_t seen(const ClientSpool& spool, const std::string& end) {
  return static_cast<size_t>(std::count_if(spool.ranges.begin(), spool.ranges.end(), [&](const spool::Range& range) {
    return spool.texts.at(range.name).ends_with(end);
  }));
}

class PythonFrames : public testing::TestWithParam<const char*> {};

TEST_P(PythonFrames, FunctionsOfTheProgramAndItsModulesAreSeen) {
  const ClientRun run = run_python(GetParam());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(run.output, "done\n");
  ASSERT_EQ(run.spools.size(), 1U);
  const ClientSpool& spool = run.spools[0];
  EXPECT_EQ(seen(spool, "[module] Layer"), 6U) << "three in each thread";
  EXPECT_EQ(seen(spool, "): Layer.forward") + seen(spool, "): forward"), 6U) << "the name is qualified from 3.11 on";
  EXPECT_EQ(seen(spool, "): helper"), 6U);
  EXPECT_EQ(seen(spool, "): work"), 2U);
  EXPECT_EQ(seen(spool, "): fails"), 2U) << "left by an exception, and closed";
  EXPECT_EQ(seen(spool, "): numbers"), 0U) << "a generator is entered and left in the middle";
  EXPECT_EQ(seen(spool, "): dumps"), 0U) << "the standard library";
  EXPECT_EQ(seen(spool, "__call__"), 0U) << "torch";
  EXPECT_TRUE(spool.open.empty());
  for (const spool::Note& note : spool.notes) ADD_FAILURE() << spool.texts.at(note.text);
  // Nested as they were called: helper lies inside its forward, forward inside its module.
  for (const spool::Range& inner : spool.ranges) {
    if (!spool.texts.at(inner.name).ends_with("): helper")) continue;
    EXPECT_TRUE(std::any_of(spool.ranges.begin(), spool.ranges.end(), [&](const spool::Range& outer) {
      return spool.texts.at(outer.name) == "[module] Layer" && outer.thread == inner.thread &&
             outer.start_ns <= inner.start_ns && inner.end_ns <= outer.end_ns;
    }));
  }
  const auto text = std::find_if(spool.texts.begin(), spool.texts.end(),
                                 [](const auto& entry) { return entry.second.ends_with("): helper"); });
  ASSERT_NE(text, spool.texts.end());
  EXPECT_EQ(text->second.rfind("[python] frames_client.py(", 0), 0U) << text->second;
}

INSTANTIATE_TEST_SUITE_P(Ways, PythonFrames, testing::Values("profile", "monitoring"));

TEST(PythonNames, OperatorsAreNotNamedWhereNothingIsRecorded) {
  // The range never comes, so nothing is to be recorded; then the client itself asks for names.
  const ClientRun run = run_python("windows", "LLMPROF_CAPTURE_RANGE=never");
  EXPECT_EQ(run.output, "done on off on\n");
}

TEST(PythonNames, AnOldTorchIsSwitchedOnOnceAThread) {
  const ClientRun run = run_python("old");
  EXPECT_EQ(run.output, "done entered entered\n");
}

}  // namespace
}  // namespace llmprof
