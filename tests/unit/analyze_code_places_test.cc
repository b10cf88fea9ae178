// Which functions long host code is said to be in, by samples of its stacks.
#include <gtest/gtest.h>

#include <string>

#include "analyze/code_places.h"
#include "analyze/host_places.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

constexpr const char* kCallBehind = "launch (/app/serve.py:80) < main (/app/serve.py:90)";
constexpr int64_t kOneMs = 1'000'000;

class SampledCode {
 public:
  SampledCode() : builder_(trace_) {}
  ThreadId thread(int64_t number) { return builder_.thread(1, number); }
  void place(PlaceKind kind, int64_t start_ns, int64_t dur_ns, const std::string& stack, int64_t thread_number = 1) {
    builder_.add<HostPlaces>({.start_ns = start_ns,
                              .dur_ns = dur_ns,
                              .thread = thread(thread_number),
                              .kind = kind,
                              .stack = builder_.text(stack)});
  }
  void code(int64_t start_ns, int64_t dur_ns, const std::string& behind = kCallBehind, int64_t thread_number = 1) {
    place(PlaceKind::kHostCode, start_ns, dur_ns, behind, thread_number);
  }
  void sample(int64_t time_ns, const std::string& stack, int64_t thread_number = 1) {
    place(PlaceKind::kCodeSample, time_ns, 0, stack, thread_number);
  }
  // Of the n-th row of host code.
  std::string place_of(int n) {
    Row row = 0;
    for (;; ++row)
      if (trace_.host_places.kind[row] == PlaceKind::kHostCode && n-- == 0) break;
    const CodePlace place = CodePlaces(trace_).of(row);
    return (place.sampled ? "" : "before ") + std::string(place.text(trace_));
  }

 private:
  Trace trace_;
  TraceBuilder builder_;
};

const std::string kCalledByMain = " < main (/app/serve.py:70)";

TEST(AnalyzeCodePlaces, WithoutSamplesTheCallBehindStands) {
  SampledCode of;
  of.code(0, 3 * kOneMs);
  EXPECT_EQ(of.place_of(0), std::string("before ") + kCallBehind);
}

TEST(AnalyzeCodePlaces, TheInnermostFunctionsThatMostTimeSharesAreNamed) {
  SampledCode of;
  of.code(0, 10 * kOneMs);
  // Seven tenths in split, three quarters of that at line 12; three tenths in pad.
  of.sample(1 * kOneMs, "split (/app/text.py:12) < prepare (/app/text.py:40)" + kCalledByMain);
  of.sample(3 * kOneMs, "split (/app/text.py:12) < prepare (/app/text.py:40)" + kCalledByMain);
  of.sample(6 * kOneMs, "split (/app/text.py:13) < prepare (/app/text.py:40)" + kCalledByMain);
  of.sample(8 * kOneMs, "pad (/app/text.py:20) < prepare (/app/text.py:41)" + kCalledByMain);
  EXPECT_EQ(of.place_of(0), "split (/app/text.py:12) < prepare (/app/text.py:40)" + kCalledByMain);
}

TEST(AnalyzeCodePlaces, WhereNoFunctionHasHalfItsCallerIsNamed) {
  SampledCode of;
  of.code(0, 9 * kOneMs);
  of.sample(1 * kOneMs, "a (/app/text.py:1) < prepare (/app/text.py:40)" + kCalledByMain);
  of.sample(4 * kOneMs, "b (/app/text.py:2) < prepare (/app/text.py:41)" + kCalledByMain);
  of.sample(8 * kOneMs, "c (/app/text.py:3) < prepare (/app/text.py:42)" + kCalledByMain);
  EXPECT_EQ(of.place_of(0), "prepare (/app/text.py:41)" + kCalledByMain) << "with the line at which most of it was";
}

// Samples are closer to each other at the beginning, where they stand for less.
TEST(AnalyzeCodePlaces, SamplesWeighAsMuchTimeAsTheyStandFor) {
  SampledCode of;
  of.code(0, 10 * kOneMs);
  for (int i = 1; i <= 10; ++i) of.sample(i * kOneMs / 5, "early (/app/text.py:1)" + kCalledByMain);
  of.sample(6 * kOneMs, "late (/app/text.py:2)" + kCalledByMain);
  EXPECT_EQ(of.place_of(0), "late (/app/text.py:2)" + kCalledByMain);
}

TEST(AnalyzeCodePlaces, OnlySamplesOfItsThreadAndTimeCount) {
  SampledCode of;
  of.sample(1 * kOneMs, "before (/app/text.py:1)");
  of.code(2 * kOneMs, 2 * kOneMs);
  of.sample(3 * kOneMs, "other (/app/text.py:1)", 2);
  of.sample(5 * kOneMs, "behind (/app/text.py:1)");
  EXPECT_EQ(of.place_of(0), std::string("before ") + kCallBehind);
}

TEST(AnalyzeCodePlaces, CodeWithoutSamplesIsWhatMostBeforeTheSameCallIs) {
  SampledCode of;
  for (int step = 0; step < 3; ++step) {
    of.code(10 * step * kOneMs, 2 * kOneMs);
    of.sample((10 * step + 1) * kOneMs,
              (step == 0 ? "once (/app/text.py:1)" : "often (/app/text.py:2)") + kCalledByMain);
  }
  of.code(30 * kOneMs, 2 * kOneMs);
  of.code(40 * kOneMs, 2 * kOneMs, "copy (/app/serve.py:81)");
  EXPECT_EQ(of.place_of(0), "once (/app/text.py:1)" + kCalledByMain);
  EXPECT_EQ(of.place_of(3), "often (/app/text.py:2)" + kCalledByMain);
  EXPECT_EQ(of.place_of(4), "before copy (/app/serve.py:81)");
}

TEST(AnalyzeCodePlaces, TheLinesOfAFunctionAreOnePlace) {
  SampledCode of;
  for (int step = 0; step < 5; ++step) {
    of.code(10 * step * kOneMs, 2 * kOneMs);
    of.sample((10 * step + 1) * kOneMs,
              (step % 2 == 0 ? "split (/app/text.py:12)" : "split (/app/text.py:13)") + kCalledByMain);
  }
  for (int step = 0; step < 5; ++step) EXPECT_EQ(of.place_of(step), "split (/app/text.py:12)" + kCalledByMain);
}

TEST(AnalyzeCodePlaces, TextsOfAnyFormAreTaken) {
  SampledCode of;
  of.code(0, 3 * kOneMs);
  of.sample(1 * kOneMs, " < ");
  of.sample(2 * kOneMs, "no place < [nn.Module] <  < x (:1)");
  EXPECT_EQ(of.place_of(0).rfind("before ", 0), std::string::npos);
}

}  // namespace
}  // namespace llmprof
