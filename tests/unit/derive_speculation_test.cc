#include <gtest/gtest.h>

#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

// Passes of models of several depths as `llmprof run` records them: sizes of products, no operators, one sequence.
class Speculator {
 public:
  TestTrace b;
  int64_t time = 1000;

  void product(int64_t m, int64_t n, int64_t k) {
    b.library_call(time, 40, m, n, k);
    b.launch(m == 1 ? "gemm_row" : "gemm_rows", time + 10, time + 30, 30);
    time += 50;
  }
  // Gives logits for the last `logits` of the tokens.
  void pass(int layers, int64_t tokens, int64_t logits) {
    for (int layer = 0; layer < layers; ++layer) {
      product(tokens, 3072, 1024);
      b.launch("attn", time + 10, time + 30, 15);
      time += 50;
      product(tokens, 1024, 1024);
    }
    product(logits, 32000, 1024);
    b.launch("argmax", time + 10, time + 30, 15);
    time += 50;
  }
  void wait() {
    b.api("cudaStreamSynchronize", time, 50);
    time += 100;
  }
  StageKind kind(Row step) const { return b.trace.steps.kind[step]; }
  std::string stage(Row step) const { return std::string(b.trace.text(b.trace.steps.stage[step])); }
  Trace& derive() {
    b.level(0, time, RecordingLevel::kDefault);
    return b.derive_all();
  }
  size_t count(StageKind kind) const {
    const std::vector<StageKind>& kinds = b.trace.steps.kind;
    return static_cast<size_t>(std::count(kinds.begin(), kinds.end(), kind));
  }
};

constexpr int kDraftLayers = 1, kLayers = 6;

// Four drafts and their verification, after the prompt that both models read.
TEST(Speculation, DraftsAndTheirVerificationAreNeitherTokensNorPrompts) {
  Speculator s;
  s.pass(kLayers, 200, 1);
  s.pass(kDraftLayers, 200, 1);
  s.wait();
  for (int round = 0; round < 4; ++round) {
    // Where all were accepted, the draft model has not seen the last one yet.
    for (int draft = 0; draft < 4; ++draft) s.pass(kDraftLayers, round > 1 && draft == 0 ? 2 : 1, 1);
    s.pass(kLayers, 5, 5);
    s.wait();
  }
  Trace& trace = s.derive();
  ASSERT_EQ(trace.steps.size(), 22U);
  EXPECT_EQ(s.kind(0), StageKind::kPrefill);
  EXPECT_EQ(s.count(StageKind::kSpeculative), 21U);
  EXPECT_EQ(s.stage(1), "drafts");
  EXPECT_EQ(s.stage(2), "drafts");
  EXPECT_EQ(s.stage(6), "verification of drafts");
  EXPECT_EQ(trace.steps.output_tokens[2], 0);
  EXPECT_EQ(trace.steps.output_tokens[6], -1);
  EXPECT_EQ(trace.steps.start_ns[6], trace.steps.end_ns[5]);
  EXPECT_EQ(broken_invariant(trace), "");
}

// Of four sequences whose number nothing says: a pass over sixteen places, all of which give logits, looks like one of
// sixteen sequences; behind four passes over four it verifies their drafts.
TEST(Speculation, OfSeveralSequencesWithoutTheirNumber) {
  for (const int drafts : {4, 2}) {
    Speculator s;
    s.pass(kLayers, 256, 4);
    s.wait();
    for (int round = 0; round < 5; ++round) {
      for (int draft = 0; draft < drafts; ++draft) s.pass(kDraftLayers, 4, 4);
      s.pass(kLayers, 16, 16);
      s.wait();
    }
    s.derive();
    EXPECT_EQ(s.count(StageKind::kSpeculative), drafts == 4 ? 25U : 0U);
    if (drafts != 4) continue;
    EXPECT_EQ(s.b.trace.steps.sequences[5], 4);
    EXPECT_EQ(s.b.trace.steps.output_tokens[5], -1);
  }
}

// The program's words for it stay, and its range for the prompt ends where the prompt does.
TEST(Speculation, OfRangesThatSayNoStage) {
  Speculator s;
  const auto in = [&](const char* text, auto body) {
    const int64_t start = s.time - 5;
    body();
    s.b.annotation(text, start, s.time - start - 10, AnnotationKind::kNvtx);
  };
  for (int request = 0; request < 2; ++request) {
    in("prompt", [&] {
      s.pass(kLayers, 200, 1);
      s.pass(kDraftLayers, 200, 1);
      s.wait();
    });
    for (int round = 0; round < 3; ++round) {
      in("draft", [&] {
        for (int draft = 0; draft < 4; ++draft) s.pass(kDraftLayers, 1, 1);
      });
      in("verify", [&] {
        s.pass(kLayers, 5, 5);
        s.wait();
      });
    }
  }
  Trace& trace = s.derive();
  ASSERT_EQ(trace.steps.size(), 34U);
  EXPECT_EQ(s.count(StageKind::kPrefill), 4U);
  EXPECT_EQ(s.stage(0), "prompt");
  EXPECT_EQ(trace.steps.output_tokens[0], 0);  // TTFT goes on
  EXPECT_NE(trace.steps.output_tokens[1], 0);
  EXPECT_EQ(s.stage(2), "draft");
  EXPECT_EQ(s.kind(2), StageKind::kSpeculative);
  EXPECT_EQ(s.stage(6), "verify");
  EXPECT_EQ(s.kind(6), StageKind::kSpeculative);
}

// Between decode steps of other requests; the last piece is short, and the model is that of the steps.
TEST(Speculation, PiecesOfPromptsAreNone) {
  for (const int64_t logits : {1, 5}) {
    Speculator s;
    for (int prompt = 0; prompt < 4; ++prompt) {
      for (const int64_t piece : {128, 5}) {
        for (int step = 0; step < 4; ++step) {
          s.pass(kLayers, 1, 1);
          s.wait();
        }
        s.pass(kLayers, piece, piece == 5 ? logits : 1);
        s.wait();
      }
    }
    s.derive();
    EXPECT_EQ(s.count(StageKind::kSpeculative), 0U);
    EXPECT_GE(s.count(StageKind::kDecode), 32U);
  }
}

// A small model that reads what a larger one made, as of the codes of speech, verifies nothing; nor does a larger one
// that gives logits for its last token alone.
TEST(Speculation, TwoModelsInTurnAreNone) {
  for (const bool larger : {false, true}) {
    Speculator s;
    for (int round = 0; round < 5; ++round) {
      for (int step = 0; step < 2; ++step) s.pass(larger ? kDraftLayers : kLayers, 1, 1);
      s.pass(larger ? kLayers : kDraftLayers, 3, larger ? 1 : 3);
      s.wait();
    }
    s.derive();
    EXPECT_EQ(s.count(StageKind::kSpeculative), 0U) << larger;
  }
}

// Further heads of the model guess: no draft model runs, and no pass over one token.
TEST(Speculation, AModelThatChecksItsOwnGuesses) {
  for (const bool also_single : {false, true}) {
    Speculator s;
    for (const int64_t prompt : {200, 120}) {
      s.pass(kLayers, prompt, 1);
      s.wait();
      for (int round = 0; round < 4; ++round) {
        s.pass(kLayers, 9, 1);
        s.wait();
      }
      if (!also_single) continue;
      s.pass(kLayers, 1, 1);
      s.wait();
    }
    Trace& trace = s.derive();
    EXPECT_EQ(s.count(StageKind::kSpeculative), also_single ? 0U : 8U);
    EXPECT_EQ(s.kind(0), StageKind::kPrefill);
    if (also_single) continue;
    EXPECT_EQ(s.stage(1), "verification of drafts");
    EXPECT_EQ(trace.steps.output_tokens[1], -1);
    EXPECT_EQ(s.kind(5), StageKind::kPrefill);
  }
}

// The output layer once more, on the states of six earlier layers, which the host waits for: no pass, and no rows of
// other requests.
TEST(Speculation, AFurtherOutputIsPartOfItsStep) {
  Speculator s;
  for (const int64_t prompt : {200, 120, 96}) {
    for (const int64_t tokens : {prompt, int64_t{1}, int64_t{1}, int64_t{1}}) {
      s.pass(kLayers, tokens, 1);
      s.product(6, 32000, 1024);
      s.b.launch("argmax", s.time + 10, s.time + 30, 15);
      s.time += 50;
      s.wait();
    }
  }
  Trace& trace = s.derive();
  ASSERT_EQ(trace.steps.size(), 12U);
  EXPECT_EQ(s.count(StageKind::kPrefill), 3U);
  EXPECT_EQ(s.count(StageKind::kDecode), 9U);
  EXPECT_EQ(trace.steps.new_tokens[0], 200);
  EXPECT_EQ(trace.steps.new_tokens[1], 1);
}

// A text that is read again for each token, one longer every time; prompts of other lengths are prompts.
TEST(Speculation, WholeTextsForEachTokenAreDecodeSteps) {
  for (const int64_t further : {1, 7}) {
    Speculator s;
    for (int64_t step = 0; step < 8; ++step) {
      s.pass(kLayers, 64 + further * step, 1);
      s.wait();
    }
    Trace& trace = s.derive();
    ASSERT_EQ(trace.steps.size(), 8U);
    EXPECT_EQ(s.count(StageKind::kDecode), further == 1 ? 7U : 0U);
    EXPECT_EQ(s.kind(0), StageKind::kPrefill);
    if (further != 1) continue;
    EXPECT_EQ(trace.steps.new_tokens[7], 1);
    EXPECT_EQ(trace.steps.context[7], 71);
    EXPECT_EQ(trace.steps.gemm_rows[7], 71);
  }
}

// An encoder that runs with each step of its decoder: products on its rows among the decoder's make keys and values of
// what it gives, as with the prompt. Steps without them decode; where all make them, each may be a request.
TEST(Speculation, AnEncoderThatNothingReadsMakesNoPrompt) {
  for (const bool kept : {true, false}) {
    Speculator s;
    const auto step = [&](int64_t tokens, bool makes_keys) {
      for (int layer = 0; layer < 8; ++layer) s.product(6000, 1280, 1280);
      for (int layer = 0; layer < 4; ++layer) {
        s.product(tokens, 5120, 1280);
        if (makes_keys) s.product(6000, 1280, 1280);
        s.product(tokens, 1280, 5120);
      }
      s.product(tokens, 51865, 1280);
      s.b.launch("argmax", s.time + 10, s.time + 30, 15);
      s.time += 50;
      s.wait();
    };
    step(16, true);
    for (int token = 0; token < 6; ++token) step(4, !kept);
    Trace& trace = s.derive();
    ASSERT_EQ(trace.steps.size(), 7U);
    EXPECT_EQ(s.kind(0), StageKind::kPrefill);
    EXPECT_EQ(s.count(StageKind::kDecode), kept ? 6U : 0U);
    if (!kept) continue;
    EXPECT_EQ(trace.steps.new_tokens[3], 4);
  }
}

TEST(Speculation, ShortPromptsAreNoGuesses) {
  Speculator s;
  for (int prompt = 0; prompt < 8; ++prompt) {
    s.pass(kLayers, 9, 1);
    s.wait();
  }
  s.derive();
  EXPECT_EQ(s.count(StageKind::kSpeculative), 0U);
}

}  // namespace
}  // namespace llmprof
