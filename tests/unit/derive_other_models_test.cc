// Programs with a second model that makes no tokens: one that judges questions and answers, or ranks passages.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

using KindsOf = std::vector<StageKind>;
constexpr StageKind kPrompt = StageKind::kPrefill, kToken = StageKind::kDecode, kLook = StageKind::kOther;

// As `llmprof run` records it: products with their shapes, the host waits after each pass.
class TwoModels {
 public:
  TestTrace b;
  int64_t time = 1000;
  bool recorded = true;

  void gemm(int64_t m, int64_t n, int64_t k) {
    if (recorded) {
      b.library_call(time, 40, m, n, k);
      b.launch(m == 1 ? "gemm_row" : "gemm_rows", time + 10, time + 60, 60);
    }
    if (n >= 8192) b.recurring_call(time, 7);
    time += 100;
  }
  // Which says how many sequences there are.
  void attention(int64_t tokens) {
    if (recorded) {
      const LibraryCallId call = b.library_call(time, 40, tokens, tokens, 64);
      b.trace.library_calls.kind[call] = WorkKind::kAttention;
      b.trace.library_calls.heads[call] = b.trace.library_calls.kv_heads[call] = 8;
      b.trace.library_calls.value_size[call] = 64;
      b.launch("attn", time + 10, time + 60, 60);
    }
    time += 100;
  }
  void wait() {
    if (recorded) b.api("cudaStreamSynchronize", time, 50);
    time += 60;
  }
  // A token from so many.
  void pass(int64_t tokens) {
    b.product_rows(time, tokens);
    for (int layer = 0; layer < 12; ++layer) gemm(tokens, 2048, 2048);
    gemm(1, 32000, 2048);
    if (recorded) b.launch("argmax", time + 10, time + 30, 20);
    time += 100;
    wait();
  }
  // A number from so many tokens.
  void look(int64_t tokens) {
    b.product_rows(time, tokens);
    for (int layer = 0; layer < 10; ++layer) gemm(tokens, 512, 512);
    attention(tokens);
    gemm(1, 1, 512);
    wait();
  }
  void in(const std::string& text, const std::function<void()>& body) {
    const int64_t start = time - 5;
    body();
    b.annotation(text, start, time - start - 10, AnnotationKind::kNvtx);
    time += 40;
  }
  KindsOf kinds() {
    b.level(0, until_ns < 0 ? time : until_ns, RecordingLevel::kDefault);
    if (until_ns >= 0) b.level(until_ns, time, RecordingLevel::kLight);
    b.derive_all();
    return b.trace.steps.kind;
  }
  void stop_recording() { recorded = false, until_ns = time - 10; }
  int64_t until_ns = -1;
};

// A text for all passes: those that multiply with other weights and give no logits are no prompts, unless nearly all of
// them lead to one, and no tokens either.
TEST(OtherModels, OfWhichNothingMakesTokensAreNoPrompts) {
  for (const bool answers_too : {true, false}) {
    TwoModels r;
    KindsOf expected;
    for (int turn = 0; turn < 6; ++turn) {
      r.in("forward", [&] { r.look(40); });
      r.in("forward", [&] { r.pass(41); });
      expected.insert(expected.end(), {answers_too ? kLook : kPrompt, kPrompt});
      for (int token = 0; token < 8; ++token) r.in("forward", [&] { r.pass(1); });
      expected.insert(expected.end(), 8, kToken);
      if (!answers_too) continue;
      r.in("forward", [&] { r.look(50); });
      expected.push_back(kLook);
    }
    EXPECT_EQ(r.kinds(), expected) << answers_too;
  }
}

TEST(OtherModels, InUnrecordedTimeHaveNoOutputLayer) {
  TwoModels r;
  KindsOf expected;
  for (int turn = 0; turn < 12; ++turn) {
    if (turn == 6) r.stop_recording();
    r.in("forward", [&] { r.look(40); });
    r.in("forward", [&] { r.pass(41); });
    for (int token = 0; token < 8; ++token) r.in("forward", [&] { r.pass(1); });
    r.in("forward", [&] { r.look(50); });
    expected.insert(expected.end(),
                    {kLook, kPrompt, kToken, kToken, kToken, kToken, kToken, kToken, kToken, kToken, kLook});
  }
  EXPECT_EQ(r.kinds(), expected);
}

// Without ranges a step ends with its logits: what the judge does before it is no part of it. An encoder is, whose
// passes all lead to prompts.
TEST(OtherModels, WithoutRangesAreTakenOffTheNextStep) {
  for (const bool before_prompts : {false, true}) {
    TwoModels r;
    KindsOf expected;
    for (int step = 0; step < 24; ++step) {
      const bool prompt = step % 8 == 0, judged = before_prompts ? prompt : step % 4 == 3;
      if (judged) r.look(40 + step);
      if (judged && !before_prompts) expected.push_back(kLook);
      r.pass(prompt ? 30 : 1);
      expected.push_back(prompt ? kPrompt : kToken);
    }
    EXPECT_EQ(r.kinds(), expected) << before_prompts;
    // Where a prompt keeps it, the step says how long it takes, from its first launch until the wait ends.
    const Steps& steps = r.b.trace.steps;
    for (Row s = 0; s < steps.size(); ++s)
      EXPECT_EQ(steps.other_model_ns[s], before_prompts && steps.kind[s] == kPrompt ? 1240 : 0) << s;
  }
}

// What a thread without steps of its own launches meanwhile is GPU time of the step, and says nothing of its tokens.
TEST(OtherModels, OfAnotherThreadLeaveTheStepsShapesAlone) {
  for (const bool own_products : {true, false}) {
    TwoModels r;
    const ThreadId embedder = r.b.thread();
    const auto embed = [&](int64_t tokens) {
      for (int layer = 0; layer < 20; ++layer, r.time += 20) {
        r.b.library_call(r.time, 8, tokens, 512, 512, 1, DType::kBf16, embedder);
        r.b.gpu("gemm_embed", r.time + 2, 15, r.b.api("cudaLaunchKernel", r.time + 1, 5, 0, embedder));
      }
    };
    KindsOf expected;
    for (int step = 0; step < 36; ++step) {
      const bool prompt = step % 9 == 0;
      // A range that names itself may hold what other threads launch alone.
      r.in(own_products ? "forward" : "prefill", [&] {
        if (!own_products || step % 3 == 2) embed(300);
        if (own_products) r.pass(prompt ? 41 : 1);
        if (!own_products) r.b.launch("argmax", r.time, r.time + 10, 5), r.time += 60;
      });
      expected.push_back(prompt || !own_products ? kPrompt : kToken);
    }
    EXPECT_EQ(r.kinds(), expected) << own_products;
    const std::vector<int64_t>& tokens = r.b.trace.steps.new_tokens;
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 300), own_products ? 0 : 36);
  }
}

// A file may be called after a stage: what reads it gives no logits, and multiplies with other weights.
TEST(OtherModels, InRangesWhoseWordsNameTokensMakeNone) {
  for (const bool other : {true, false}) {
    TwoModels r;
    for (int turn = 0; turn < 4; ++turn) {
      r.in("decode_plan_v2.txt", [&] { other ? r.look(40) : r.pass(1); });
      for (int token = 0; token < 6; ++token) r.in("decode", [&] { r.pass(1); });
    }
    KindsOf expected;
    for (int turn = 0; turn < 4; ++turn) {
      expected.push_back(other ? kLook : kToken);
      expected.insert(expected.end(), 6, kToken);
    }
    EXPECT_EQ(r.kinds(), expected) << other;
  }
}

// A range of its own around it: a stage of its own, whose time is in no token's.
TEST(OtherModels, InRangesOfTheirOwnAreStages) {
  for (const bool every_step : {false, true}) {
    TwoModels r;
    for (int step = 0; step < 24; ++step) {
      const bool judged = every_step || step % 4 == 0;
      if (judged) r.in("/rerank " + std::to_string(step), [&] { r.look(40 + step); });
      r.in("/chat", [&] { r.pass(step % 8 == 0 ? 30 : 1); });
    }
    r.kinds();
    const Steps& steps = r.b.trace.steps;
    size_t ranked = 0;
    for (Row s = 0; s < steps.size(); ++s) ranked += r.b.trace.text(steps.stage[s]) == "/rerank" ? 1 : 0;
    EXPECT_EQ(ranked, every_step ? 0U : 6U) << "what comes with each step is a part of it";
    for (Row s = 0; s < steps.size() && !every_step; ++s) {
      if (steps.kind[s] != kToken) continue;
      EXPECT_LT(steps.end_ns[s] - steps.start_ns[s], 1700) << s;
    }
  }
}

// Within another range whose words name the same stage, it ends with itself, recorded or not: the host waits for it,
// and is not ahead as in a loop around steps.
TEST(OtherModels, InRangesThatWaitEndWithThemselves) {
  TwoModels r;
  std::vector<int64_t> lasted;
  for (int turn = 0; turn < 12; ++turn) {
    if (turn == 6) r.stop_recording();
    r.in("decode the letters", [&] {
      const int64_t start = r.time;
      r.in("look in decode_plan.txt", [&] { r.look(40); });
      lasted.push_back(r.time - start);
      r.pass(41);
      for (int token = 0; token < 8; ++token) r.pass(1);
    });
  }
  r.kinds();
  const Steps& steps = r.b.trace.steps;
  size_t looks = 0;
  for (Row s = 0; s < steps.size(); ++s) {
    if (r.b.trace.text(steps.stage[s]) != "look in decode_plan.txt") continue;
    EXPECT_NEAR(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]), static_cast<double>(lasted.at(looks)), 60)
        << s;
    ++looks;
  }
  EXPECT_EQ(looks, 12U);
}

}  // namespace
}  // namespace llmprof
