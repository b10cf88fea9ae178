// How much of the unnamed GPU time comes from the beginning of recorded windows, before --torch named anything.
#include <gtest/gtest.h>

#include "analyze_live_copy.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

class LateNames : public testing::Test {
 protected:
  LateNames() {
    run_.trace.threads.resize(2);
    run_.trace.threads.process_id = {1, 2};
    run_.window(0, 10000 * kMs);
    run_.op("aten::mm", 1 * kMs, kMs);
  }
  void level(int64_t start_ms, int64_t end_ms, RecordingLevel level) {
    add_level(run_.trace, start_ms * kMs, end_ms * kMs, level);
  }
  // A kernel that no operator launched.
  Row unnamed(int64_t launch_ms, int64_t dur_ms, Row thread = 0) {
    const Row call = run_.api("cudaGraphLaunch", launch_ms * kMs, 1000);
    run_.trace.api_calls.thread[call] = thread;
    return run_.gpu("k", Category::kOther, (launch_ms + 1) * kMs, dur_ms * kMs, {kNoRow, kNoRow, call});
  }
  AnalyzedRecording run_;
};

TEST_F(LateNames, CountFromTheStartOfAWindowToTheFirstName) {
  level(0, 1000, RecordingLevel::kDefault);
  unnamed(10, 1);  // not behind an unrecorded window: names were on
  level(1000, 3000, RecordingLevel::kLight);
  level(3000, 4000, RecordingLevel::kDeep);
  const Row early = unnamed(3005, 2);
  unnamed(3006, 128, 1);  // of a process without windows
  run_.op("aten::mm", 3020 * kMs, kMs);
  unnamed(3025, 4);  // names are on by now
  level(4000, 6000, RecordingLevel::kLight);
  run_.op("aten::mm", 5980 * kMs, kMs);  // a planned window: names came before it
  level(6000, 7000, RecordingLevel::kDefault);
  unnamed(6001, 64);
  level(7000, 8000, RecordingLevel::kOff);
  level(8000, 9000, RecordingLevel::kDefault);
  unnamed(8049, 16);
  unnamed(8050, 32);  // without a name for so long that there is another reason
  const PythonCallId python = run_.python("f", 0, kMs);
  for (const auto& [cause, in] :
       {std::pair(IdleCause::kHostWork, PythonCallId()), std::pair(IdleCause::kHostWork, python),
        std::pair(IdleCause::kNotRecorded, PythonCallId())}) {
    const Row gap = run_.gap(cause, 3000 * kMs, kMs / 2, kNoRow, kNoRow, in);
    run_.trace.gaps.next_gpu_op[gap] = early;
  }
  run_.gap(IdleCause::kHostWork, 3500 * kMs, kMs, kNoRow);  // before nothing
  const std::string text =
      " Of their 247.0 ms, 18.00 ms were launched in the first 50 ms of a recorded window, before --torch named "
      "operators there; idle time without a function before them: 500.0 us.";
  EXPECT_EQ(unnamed_before_names(run_.trace), text);

  run_.trace.diagnostics.add(DiagnosticId::kNoOperatorForKernel, "k at 11 ns", 8);
  const Result<Report> report = analyze(run_.trace);
  ASSERT_TRUE(report) << report.error().text();
  ASSERT_EQ(name_of(report->diagnostics.front().key), "no-operator-for-kernel");
  EXPECT_EQ(report->diagnostics.front().text,
            "GPU activities were not launched from a recorded operator." + text + " First seen: k at 11 ns");
}

TEST_F(LateNames, NothingIsSaidWithoutUnrecordedWindows) {
  unnamed(5, 1);
  EXPECT_EQ(unnamed_before_names(run_.trace), "") << "another recorder";
  level(0, 1000, RecordingLevel::kDefault);
  EXPECT_EQ(unnamed_before_names(run_.trace), "");
}

}  // namespace
}  // namespace llmprof
