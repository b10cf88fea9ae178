#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "derive/step_names.h"
#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

using StageKinds = std::vector<StageKind>;
constexpr StageKind kAsk = StageKind::kPrefill, kSay = StageKind::kDecode;

// Passes of a model that waits for the GPU after each, in ranges of any text. Every launch takes 100 ns.
class RangesOfProgram {
 public:
  TestTrace b;
  int64_t time = 1000;

  void kernel(const std::string& name, std::string_view op = {}, std::string_view dims = {}) {
    const uint64_t id = op.empty() ? 0 : b.op(op, time, 90, dims);
    b.launch(name, time + 10, time + 30, 60, id);
    time += 100;
  }
  void wait() {
    b.api("cudaStreamSynchronize", time, 50);
    time += 60;
  }
  // With operators that show the tokens.
  void pass(int64_t tokens, int layers = 3, bool waits = true) {
    kernel("gather", "aten::embedding", "[[32000, 64], [1, " + std::to_string(tokens) + "], [], [], []]");
    for (int layer = 0; layer < layers; ++layer) {
      for (const char* name : {"norm", "gemm_in", "attn", "gemm_out"}) kernel(name);
    }
    kernel("gemm_head");
    kernel("argmax", "aten::argmax", "[[1, 1, 32000], [], []]");
    if (waits) wait();
  }
  // An encoder of which nothing but kernel names is known; layers repeat them.
  void encode(int layers = 6) {
    for (int layer = 0; layer < layers; ++layer) {
      for (const char* name : {"norm", "gemm_a", "attn", "gemm_b", "gelu", "gemm_c"}) kernel(name);
    }
    wait();
  }
  void in(const std::string& text, const std::function<void()>& body) {
    const int64_t start = time - 5;
    body();
    b.annotation(text, start, time - start - 10, AnnotationKind::kNvtx);
    time += 40;
  }
  std::vector<std::string> stages() const {
    std::vector<std::string> out;
    for (const StringId stage : b.trace.steps.stage) out.emplace_back(b.trace.text(stage));
    return out;
  }
  const StageKinds& kinds() const { return b.trace.steps.kind; }
};
using Names = std::vector<std::string>;

TEST(RecurringRanges, AreStepsWhateverTheirWords) {
  RangesOfProgram r;
  const ThreadId worker = r.b.thread();
  for (int i = 0; i < 5; ++i) {
    r.b.annotation("prepare a batch", r.time, 500, AnnotationKind::kNvtx, worker);
    r.in("embed " + std::to_string(3 + i) + " x " + std::to_string(64 * i), [&] { r.encode(); });
  }
  Trace& trace = r.b.derive_all();
  EXPECT_EQ(r.stages(), Names(5, "embed"));
  EXPECT_EQ(r.kinds(), StageKinds(5, StageKind::kOther));  // nothing says that it makes tokens
  EXPECT_EQ(trace.steps.source[0], StageSource::kNvtx);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(RecurringRanges, TheShapesInsideSayTheirKind) {
  RangesOfProgram r;
  for (int request = 0; request < 2; ++request) {
    r.in("ingest", [&] { r.pass(100); });
    for (int i = 0; i < 4; ++i) r.in("emit", [&] { r.pass(1); });
  }
  r.b.derive_all();
  EXPECT_EQ(r.kinds(), (StageKinds{kAsk, kSay, kSay, kSay, kSay, kAsk, kSay, kSay, kSay, kSay}));
  EXPECT_EQ(r.stages()[0], "ingest");
  EXPECT_EQ(r.stages()[1], "emit");
}

TEST(RecurringRanges, BesideThoseThatNameAStage) {
  RangesOfProgram r;
  for (int i = 0; i < 3; ++i) {
    r.in("admit " + std::to_string(90 + i) + " tokens", [&] { r.pass(90 + i); });
    r.in("decode batch", [&] { r.pass(1); });
  }
  r.b.derive_all();
  EXPECT_EQ(r.kinds(), (StageKinds{kAsk, kSay, kAsk, kSay, kAsk, kSay}));
  EXPECT_EQ(r.stages()[2], "admit # tokens");
}

TEST(RecurringRanges, OfARequestAreSplit) {
  RangesOfProgram r;
  for (int request = 0; request < 3; ++request) {
    r.in("request " + std::to_string(request), [&] {
      r.pass(100);
      for (int i = 0; i < 3; ++i) r.pass(1);
    });
  }
  r.b.derive_all();
  EXPECT_EQ(r.kinds(), (StageKinds{kAsk, kSay, kSay, kSay, kAsk, kSay, kSay, kSay, kAsk, kSay, kSay, kSay}));
  // Each kind is a stage of its own.
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(r.stages()[i], i % 4 == 0 ? "request prefill" : "request decode") << i;
}

TEST(RecurringRanges, OfARequestGiveWayToThoseInside) {
  RangesOfProgram r;
  for (int request = 0; request < 3; ++request) {
    r.in("request " + std::to_string(request), [&] {
      r.in("ask", [&] { r.pass(100); });
      for (int i = 0; i < 3; ++i) r.in("say", [&] { r.pass(1); });
    });
  }
  r.b.derive_all();
  EXPECT_EQ(r.kinds(), (StageKinds{kAsk, kSay, kSay, kSay, kAsk, kSay, kSay, kSay, kAsk, kSay, kSay, kSay}));
  EXPECT_EQ(r.stages()[0], "ask");
  EXPECT_EQ(r.stages()[11], "say");
}

// An encoder whose output nothing chooses from, in a range of its own: the first token waits for it too.
TEST(RecurringRanges, BeforePromptsLeadToThem) {
  for (const bool before_tokens : {false, true}) {
    RangesOfProgram r;
    for (int request = 0; request < 4; ++request) {
      r.in("album " + std::to_string(request), [&] {
        if (!before_tokens) r.in("see", [&] { r.encode(); });
        r.in("ask", [&] { r.pass(100); });
        for (int i = 0; i < 3; ++i) {
          if (before_tokens) r.in("see", [&] { r.encode(); });
          r.in("say", [&] { r.pass(1); });
        }
      });
    }
    r.b.derive_all();
    const StageKinds& kinds = r.kinds();
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), StageKind::kVision), before_tokens ? 0 : 4);
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kAsk), 4);
    if (before_tokens) continue;
    EXPECT_EQ(r.stages()[0], "see");
  }
}

TEST(RecurringRanges, BeforePromptsLeadToThemInUnrecordedTimeToo) {
  RangesOfProgram r;
  int64_t until = 0;
  for (int request = 0; request < 8; ++request) {
    const auto launches = [&](int64_t time) { request < 4 ? r.encode() : void(r.time += time); };
    r.in("album " + std::to_string(request), [&] {
      // Detection finds no step in it: it chooses nothing, and the prompt behind it begins it.
      r.in("see", [&] { launches(4'000); });
      r.in("ask", [&] { request < 4 ? r.pass(100) : void(r.time += 1'500); });
      for (int i = 0; i < 3; ++i) r.in("say", [&] { request < 4 ? r.pass(1) : void(r.time += 1'500); });
    });
    if (request == 3) until = r.time - 20;
  }
  r.b.level(0, until, RecordingLevel::kDefault);
  r.b.level(until, r.time, RecordingLevel::kLight);
  r.b.derive_all();
  const StageKinds& kinds = r.kinds();
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), StageKind::kVision), 8);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kAsk), 8);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kSay), 24);
}

// Two models read a prompt, and the host waits for both: its first token is there at the end of the range.
TEST(RecurringRanges, PromptsThatAreWaitedForTogetherGiveOneFirstToken) {
  for (const bool waits : {false, true}) {
    RangesOfProgram r;
    for (int request = 0; request < 3; ++request) {
      r.in("prompt", [&] {
        r.pass(100, 3, waits);
        r.pass(100, 1);
      });
      for (int i = 0; i < 3; ++i) r.in("say", [&] { r.pass(1); });
    }
    Trace& trace = r.b.derive_all();
    ASSERT_EQ(r.kinds().size(), 15U);
    EXPECT_EQ(r.kinds()[0], kAsk);
    EXPECT_EQ(r.kinds()[1], kAsk);
    EXPECT_EQ(trace.steps.output_tokens[0], waits ? 1 : 0);
    EXPECT_EQ(trace.steps.output_tokens[1], 1);
  }
}

// The parts of a pass recur as well, and hold as much of what is launched.
TEST(RecurringRanges, PartsOfAPassAreNoSteps) {
  RangesOfProgram r;
  for (int i = 0; i < 4; ++i) {
    r.in("look up", [&] { r.kernel("gather", "aten::embedding", "[[32000, 64], [1, 1], [], [], []]"); });
    for (int layer = 0; layer < 6; ++layer) {
      r.in("layer " + std::to_string(layer), [&] {
        for (const char* name : {"norm", "gemm_in", "attn", "gemm_out"}) r.kernel(name);
      });
    }
    r.in("head", [&] {
      r.kernel("gemm_head");
      r.kernel("argmax", "aten::argmax", "[[1, 1, 32000], [], []]");
      r.wait();
    });
  }
  Trace& trace = r.b.derive_all();
  EXPECT_EQ(trace.steps.source, std::vector<StageSource>(4, StageSource::kDetected));

  // Where nothing is known of the pass, layers do not wait for the GPU.
  RangesOfProgram unknown;
  for (int i = 0; i < 40; ++i) {
    unknown.in("layer " + std::to_string(i % 10), [&] {
      for (const char* name : {"norm", "gemm_in", "attn", "gemm_out"}) unknown.kernel(name);
    });
    if (i % 10 == 9) unknown.wait();
  }
  for (const StageSource source : unknown.b.derive_all().steps.source) EXPECT_EQ(source, StageSource::kDetected);
}

TEST(RecurringRanges, OfFrameworksAndOperatorsAreNoSteps) {
  for (const char* text : {"aten::linear, seq = 3", "ProfilerStep#3", "## Call CompiledFxGraph abc ##"}) {
    RangesOfProgram r;
    for (int i = 0; i < 4; ++i) r.in(text, [&] { r.pass(1); });
    EXPECT_EQ(r.b.derive_all().steps.source, std::vector<StageSource>(4, StageSource::kDetected)) << text;
  }
}

// A range around work of another kind elsewhere says nothing about the steps.
TEST(RecurringRanges, MustHoldNearlyAllThatIsLaunched) {
  RangesOfProgram r;
  for (int i = 0; i < 6; ++i) {
    if (i % 2 == 0) r.in("check", [&] { r.pass(1); });
    if (i % 2 != 0) r.pass(1);
  }
  EXPECT_EQ(r.b.derive_all().steps.source, std::vector<StageSource>(6, StageSource::kDetected));
}

TEST(RecurringRanges, InUnrecordedTimeAreStepsOfTheirKind) {
  RangesOfProgram r;
  for (int i = 0; i < 4; ++i) r.in("emit", [&] { r.pass(1); });
  const int64_t until = r.time - 10;
  for (int i = 0; i < 3; ++i) {
    r.b.annotation("emit", r.time, 1500, AnnotationKind::kNvtx);
    r.time += 1600;
  }
  r.b.level(0, until, RecordingLevel::kDefault);
  r.b.level(until, r.time, RecordingLevel::kLight);
  Trace& trace = r.b.derive_all();
  ASSERT_EQ(r.kinds(), StageKinds(7, kSay));
  EXPECT_EQ(trace.steps.state[6], StepState::kNotRecorded);
  EXPECT_EQ(trace.steps.sequences[6], trace.steps.sequences[1]);
}

// One that its kernels make look like a prompt leaves the unrecorded ones theirs, if they take no longer.
TEST(RecurringRanges, InUnrecordedTimeAreOfTheKindOfNearlyAll) {
  RangesOfProgram r;
  for (int i = 0; i < 20; ++i) r.in("emit", [&] { r.pass(i == 12 ? 40 : 1); });
  const int64_t until = r.time - 10;
  for (const int64_t length : {1500, 1500, 9000}) {
    r.b.annotation("emit", r.time, length, AnnotationKind::kNvtx);
    r.time += length + 100;
  }
  r.b.level(0, until, RecordingLevel::kDefault);
  r.b.level(until, r.time, RecordingLevel::kLight);
  r.b.derive_all();
  StageKinds kinds(23, kSay);
  kinds[12] = kAsk;
  kinds[22] = StageKind::kOther;
  EXPECT_EQ(r.kinds(), kinds);
}

// So few tokens in a range of such a text may be drafts that are checked: no prompt.
TEST(RecurringRanges, OfAFewTokensAmongSuchOfOneAreNoPrompts) {
  RangesOfProgram r;
  for (int i = 0; i < 20; ++i) r.in("round", [&] { r.pass(i == 12 ? 6 : i == 5 ? 40 : 1); });
  r.b.derive_all();
  StageKinds kinds(20, kSay);
  kinds[5] = kAsk;
  EXPECT_EQ(r.kinds(), kinds);
}

// Several passes for one fetch: where nothing was recorded, the call that comes once a pass says how many there were.
class RangesOfSeveralPasses : public RangesOfProgram {
 public:
  void passes(int count, bool says, int64_t prompt = 0) {
    in("turn", [&] {
      if (prompt > 0) pass(prompt);
      for (int i = 0; i < count; ++i) {
        if (says) b.recurring_call(time, kGraph);
        b.recurring_call(time, kOther + i % 2);
        pass(1, 3, i + 1 == count);
      }
    });
  }
  void unrecorded(int count, bool says, int64_t length) {
    for (int i = 0; says && i < count; ++i) b.recurring_call(time + 10 + length / count * i, kGraph);
    b.annotation("turn", time, length, AnnotationKind::kNvtx);
    time += length + 100;
  }
  // Lengths of the steps of which nothing was recorded.
  std::vector<int64_t> unseen(int64_t until) {
    b.level(0, until, RecordingLevel::kDefault);
    b.level(until, time, RecordingLevel::kLight);
    const Trace& trace = b.derive_all();
    std::vector<int64_t> out;
    for (Row s = 0; s < trace.steps.size(); ++s) {
      if (trace.steps.state[s] != StepState::kNotRecorded) continue;
      EXPECT_EQ(trace.steps.kind[s], kSay);
      out.push_back(trace.steps.end_ns[s] - trace.steps.start_ns[s]);
    }
    return out;
  }

 private:
  static constexpr uint64_t kGraph = 5, kOther = 6;
};

TEST(RecurringRanges, OfSeveralStepsAreDividedWhereNothingIsRecorded) {
  for (const bool says : {true, false}) {
    for (const int last : {4, 3}) {
      RangesOfSeveralPasses r;
      for (int i = 0; i < 4; ++i) r.passes(i == 3 ? last : 4, says);
      const int64_t until = r.time - 10;
      r.unrecorded(4, says, 8000);
      r.unrecorded(2, says, 4000);
      std::vector<int64_t> expected;  // ranges of 4 and of 3 and no call that tells: nobody knows
      if (says) expected = std::vector<int64_t>(6, 2000);
      if (!says && last == 4) expected = {2000, 2000, 2000, 2000, 1000, 1000, 1000, 1000};
      const std::vector<int64_t> found = r.unseen(until);
      ASSERT_EQ(found.size(), expected.size()) << says << last;
      // The first of a range begins where the range before it ended.
      for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(std::abs(found[i] - expected[i]), 100) << says << last;
    }
  }
}

// When the first token behind a prompt began nobody knows, nor without a call for each how many there were.
TEST(RecurringRanges, OfPromptAndTokensHaveTheTokensBehindTheFirstWhereNothingIsRecorded) {
  for (const bool says : {true, false}) {
    RangesOfSeveralPasses r;
    for (int i = 0; i < 4; ++i) r.passes(4, says, 100);
    const int64_t until = r.time - 10;
    r.unrecorded(4, says, 8000);
    r.unrecorded(4, says, 8000);
    EXPECT_EQ(r.unseen(until), std::vector<int64_t>(says ? 6 : 0, 2000)) << says;
  }
}

// One text for prompts and tokens: the first product inside tells them apart, as it does where they are recorded.
TEST(RecurringRanges, InUnrecordedTimeAreToldByTheirProductRows) {
  for (const bool seen : {true, false}) {
    RangesOfProgram r;
    StageKinds expected;
    const auto product = [&](int64_t tokens) {
      if (seen) r.b.product_rows(r.time, 2 * tokens);
    };
    for (int i = 0; i < 12; ++i) {
      const int64_t tokens = i % 4 == 0 ? 40 + i : 1;
      expected.push_back(tokens > 1 ? kAsk : kSay);
      r.in("pass", [&] {
        product(tokens);
        r.pass(tokens);
      });
    }
    const int64_t until = r.time - 10;
    for (const int64_t tokens : {1, 33, 1}) {
      product(tokens);
      r.b.annotation("pass", r.time - 5, 1500, AnnotationKind::kNvtx);
      r.time += 1600;
      expected.push_back(!seen ? StageKind::kOther : tokens > 1 ? kAsk : kSay);
    }
    r.b.level(0, until, RecordingLevel::kDefault);
    r.b.level(until, r.time, RecordingLevel::kLight);
    r.b.derive_all();
    EXPECT_EQ(r.kinds(), expected) << seen;
  }
}

// Words that a user wrote are in the ranges of requests: they come once each, and hold several steps.
TEST(RecurringRanges, WhoseWordsNameAStageByChanceAreNone) {
  const std::vector<std::string> users = {"prefill my form with", "write me a poem,", "decode this image:", "encode"};
  RangesOfProgram r;
  StageKinds expected;
  for (int turn = 0; turn < 12; ++turn)
    r.in("turn " + std::to_string(turn) + ": " + users[static_cast<size_t>(turn) % 4] + " " + "abcdefghijkl"[turn],
         [&] {
           for (const int tokens : {100 + turn, 1, 1, 1}) {
             r.in("forward", [&] { r.pass(tokens); });
             expected.push_back(tokens > 1 ? kAsk : kSay);
           }
         });
  r.b.derive_all();
  EXPECT_EQ(r.kinds(), expected);
  EXPECT_EQ(r.stages(), Names(48, "forward"));
}

// Two of them may be names: what they hold is of the kinds that shapes say.
TEST(RecurringRanges, WhoseWordsNameAPromptMayHoldTokens) {
  RangesOfProgram r;
  for (const char* text : {"prefill my form", "prefill yours"})
    r.in(text, [&] {
      for (const int tokens : {100, 1, 1, 1}) r.pass(tokens);
    });
  r.b.derive_all();
  EXPECT_EQ(r.kinds(), (StageKinds{kAsk, kSay, kSay, kSay, kAsk, kSay, kSay, kSay}));
}

// As names that come once each do not: a loop around tokens, or a prompt.
TEST(RecurringRanges, WhoseNamesComeOnceMayNameAStage) {
  RangesOfProgram r;
  for (const char* text : {"short", "long", "huge"}) {
    r.in(std::string("prefill ") + text, [&] { r.pass(100); });
    r.in(std::string("decode ") + text, [&] {
      for (int i = 0; i < 3; ++i) r.pass(1);
    });
  }
  r.b.derive_all();
  EXPECT_EQ(r.stages()[0], "prefill short");
  EXPECT_EQ(r.stages()[1], "decode short");
  EXPECT_EQ(r.stages()[8], "prefill huge");
}

// An image that is prepared within the range of a request takes no longer than it does; one that another thread
// prepares for the queue is of no step.
TEST(RecurringRanges, AroundRequestsAreNotWhatIsPreparedInThem) {
  for (const bool other_thread : {false, true}) {
    RangesOfProgram r;
    const ThreadId worker = r.b.thread();
    const auto request = [&](bool recorded) {
      const int64_t start = r.time - 5;
      r.b.annotation("tokenize", r.time, 80, AnnotationKind::kNvtx, other_thread ? worker : ThreadId(0));
      r.time += 100;
      for (int i = 0; i < 4; ++i) {
        if (recorded) r.in("forward", [&] { r.pass(i == 0 ? 100 : 1); });
        if (recorded) continue;
        r.b.annotation("forward", r.time, 1500, AnnotationKind::kNvtx);
        r.time += 1600;
      }
      r.b.annotation("image", start, r.time - start - 10, AnnotationKind::kNvtx);
      r.time += 40;
    };
    for (int i = 0; i < 4; ++i) request(true);
    const int64_t until = r.time - 10;
    for (int i = 0; i < 3; ++i) request(false);
    r.b.level(0, until, RecordingLevel::kDefault);
    r.b.level(until, r.time, RecordingLevel::kLight);
    Trace& trace = r.b.derive_all();
    size_t prepared = 0;
    for (Row s = 0; s < trace.steps.size(); ++s) {
      if (r.stages()[s] != "tokenize" || trace.steps.start_ns[s] < until) continue;
      ++prepared;
      EXPECT_LE(trace.steps.end_ns[s] - trace.steps.start_ns[s], 80);
    }
    EXPECT_EQ(prepared, other_thread ? 0U : 3U);
  }
}

// Nor are those of a stage that launched nothing where it was recorded, whatever numbers are in its name.
TEST(RecurringRanges, ThatLaunchNothingWhereRecordedAreNoSteps) {
  for (const bool numbered : {false, true}) {
    RangesOfProgram r;
    int files = 0;
    const auto open_file = [&] {
      const std::string text = numbered ? "context_" + std::to_string(++files) + "a.png" : "open generation 7.csv";
      r.b.annotation(text, r.time, 40, AnnotationKind::kNvtx);
      r.time += 60;
    };
    for (int i = 0; i < 4; ++i) {
      open_file();
      r.in("decode", [&] { r.pass(1); });
    }
    const int64_t until = r.time - 10;
    for (int i = 0; i < 3; ++i) {
      open_file();
      r.b.annotation("decode", r.time, 1500, AnnotationKind::kNvtx);
      r.time += 1600;
    }
    r.b.level(0, until, RecordingLevel::kDefault);
    r.b.level(until, r.time, RecordingLevel::kLight);
    r.b.derive_all();
    EXPECT_EQ(r.stages(), Names(7, "decode"));
  }
}

// A thread that shows what was generated runs no model: another one calls what each run calls.
TEST(RecurringRanges, OfAThreadThatRunsNoModelAreNoSteps) {
  for (const bool calls_known : {true, false}) {
    RangesOfProgram r;
    const ThreadId loop = r.b.thread();
    for (int i = 0; i < 4; ++i) r.in("decode", [&] { r.pass(1); });
    const int64_t until = r.time - 10;
    for (int i = 0; i < 3; ++i) {
      if (calls_known) r.b.recurring_call(r.time + 5, 7);
      r.b.annotation("decode", r.time, 1500, AnnotationKind::kNvtx);
      r.b.annotation("open generation 7.csv", r.time + 200, 40, AnnotationKind::kNvtx, loop);
      r.time += 1600;
    }
    r.b.level(0, until, RecordingLevel::kDefault);
    r.b.level(until, r.time, RecordingLevel::kLight);
    r.b.derive_all();
    EXPECT_EQ(r.stages().size(), calls_known ? 7U : 10U);
  }
}

TEST(RecurringRanges, AreCalledByTheirTextWithoutNumbers) {
  for (const auto& [text, stage] :
       std::vector<std::pair<std::string, std::string>>{{"embed 12 x 64", "embed"},
                                                        {"step#17", "step"},
                                                        {"ask", "ask"},
                                                        {"admit 90 tokens", "admit # tokens"},
                                                        {"17", "#"},
                                                        {"batch 3/20k", "batch"}})
    EXPECT_EQ(stage_of_text(text), stage);
}

}  // namespace
}  // namespace llmprof
