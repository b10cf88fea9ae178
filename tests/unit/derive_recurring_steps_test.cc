// Steps that nobody names, in time of which nothing was recorded: found by the product of the output layer.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "derive/recorded_spans.h"
#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

constexpr int64_t kStep = 10'000'000, kFasterStep = 8'000'000;
constexpr uint64_t kOutputLayer = 77;

// A decode loop: some products, the output layer 0.6 of the step after its beginning, a choice, a copy that waits.
class Loop {
 public:
  TestTrace built;

  void recorded_step(int64_t length = kStep, bool says = true) {
    for (int i = 0; i < 5; ++i) launch("gemm", at_ + length / 10 * i);
    if (says) built.recurring_call(at_ + length * 6 / 10, kOutputLayer, thread_);
    launch("gemm_output", at_ + length * 6 / 10 + 1'000);
    launch("argmax", at_ + length * 7 / 10);
    built.gpu("Memcpy DtoH (Device -> Pageable)", at_ + length - 100'000, 2'000,
              built.api("cudaMemcpyAsync", at_ + length * 8 / 10, length * 2 / 10 - 1'000, 0, thread_));
    at_ += length;
  }
  void on(ThreadId thread) { thread_ = thread; }
  // The same products over more tokens; its last one is as wide as that of a step, and so is what follows.
  void recorded_prompt(int64_t length, uint64_t head = kOutputLayer) {
    const uint64_t id = built.op("aten::embedding", at_, 1'000, "[[32000, 64], [1, 96], [], [], []]");
    built.launch("gather", at_ + 100, at_ + 20'000, 50'000, id);
    for (int i = 1; i < 5; ++i)
      built.launch("gemm_prompt", at_ + length / 10 * i, at_ + length / 10 * i + 20'000, 900'000);
    const int64_t end = at_ + length;
    built.recurring_call(end - kStep * 4 / 10, head);
    built.launch("gemm_output", end - kStep * 4 / 10 + 1'000, end - kStep * 4 / 10 + 20'000, 50'000);
    built.launch("argmax", end - kStep * 3 / 10, end - kStep * 3 / 10 + 20'000, 50'000);
    built.gpu("Memcpy DtoH (Device -> Pageable)", end - 100'000, 2'000,
              built.api("cudaMemcpyAsync", end - kStep * 2 / 10, kStep * 2 / 10 - 1'000));
    at_ = end;
  }
  void unrecorded_prompt(int64_t length) {
    at_ += length;
    built.recurring_call(at_ - kFasterStep * 4 / 10, kOutputLayer);
  }
  void unrecorded_step(int64_t length = kFasterStep) {
    built.recurring_call(at_ + length * 6 / 10, kOutputLayer, thread_);
    at_ += length;
  }
  void pause(int64_t length) { at_ += length; }
  void level_since(RecordingLevel level, std::string_view reason) {
    if (at_ > since_) built.level(since_, at_, level, 1, reason);
    since_ = at_;
  }
  int64_t at() const { return at_; }
  // Windows in ms of the steps of which nothing was recorded.
  std::vector<double> unseen() {
    Trace& trace = built.build();
    EXPECT_TRUE(find_steps(trace, {}));
    std::vector<double> out;
    for (Row s = 0; s < trace.steps.size(); ++s) {
      if (trace.steps.missing[s] != MissingKernels::kAll) continue;
      EXPECT_EQ(trace.steps.kind[s], StageKind::kDecode);
      EXPECT_EQ(trace.steps.state[s], StepState::kNotRecorded);
      out.push_back(static_cast<double>(trace.steps.end_ns[s] - trace.steps.start_ns[s]) / 1e6);
    }
    return out;
  }
  std::map<std::string, std::vector<double>> unseen_by_stage() {
    Trace& trace = built.build();
    EXPECT_TRUE(find_steps(trace, {}));
    std::map<std::string, std::vector<double>> out;
    for (Row s = 0; s < trace.steps.size(); ++s)
      if (trace.steps.missing[s] == MissingKernels::kAll)
        out[std::string(trace.text(trace.steps.stage[s]))].push_back(
            static_cast<double>(trace.steps.end_ns[s] - trace.steps.start_ns[s]) / 1e6);
    return out;
  }

 private:
  void launch(std::string_view kernel, int64_t at) {
    built.gpu(kernel, at + 20'000, 50'000, built.api("cudaLaunchKernel", at, 5, 0, thread_));
  }
  int64_t at_ = 1'000'000, since_ = 0;
  ThreadId thread_ = 0;
};

TEST(RecurringSteps, ADecodeLoopGoesOnUnrecorded) {
  Loop loop;
  for (int i = 0; i < 8; ++i) loop.recorded_step();
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 10; ++i) loop.unrecorded_step();
  loop.level_since(RecordingLevel::kLight, "detached");
  const std::vector<double> found = loop.unseen();
  // The last one's end is not seen.
  ASSERT_GE(found.size(), 8U);
  for (const double ms : found) EXPECT_NEAR(ms, 8, 0.001);
}

// A thread for each request: recorded ones have steps, and what follows on others is unrecorded.
TEST(RecurringSteps, OfAThreadForEachRequestGoOnUnrecorded) {
  for (const bool by_turns : {true, false}) {
    Loop loop;
    for (int request = 0; request < 3; ++request) {
      if (request > 0) loop.on(loop.built.thread());
      for (int i = 0; i < 8; ++i) loop.recorded_step();
    }
    loop.level_since(RecordingLevel::kDefault, "start");
    for (int request = 0; request < 3; ++request) {
      const ThreadId thread = loop.built.thread();
      // One that lives as long as the program is another host.
      if (!by_turns) loop.built.recurring_call(500'000, kOutputLayer + 1, thread);
      loop.on(thread);
      for (int i = 0; i < 5; ++i) loop.unrecorded_step();
    }
    loop.level_since(RecordingLevel::kLight, "detached");
    const std::vector<double> found = loop.unseen();
    EXPECT_EQ(std::count(loop.built.trace.steps.state.begin(), loop.built.trace.steps.state.end(), StepState::kUsual),
              24);
    EXPECT_GE(found.size(), by_turns ? 12U : 0U);
    EXPECT_LE(found.size(), by_turns ? 15U : 0U);
    for (const double ms : found) EXPECT_NEAR(ms, 8, 0.001);
  }
}

TEST(RecurringSteps, APauseIsNoStep) {
  Loop loop;
  for (int i = 0; i < 8; ++i) loop.recorded_step();
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 5; ++i) loop.unrecorded_step();
  loop.pause(900'000'000);
  for (int i = 0; i < 5; ++i) loop.unrecorded_step();
  loop.level_since(RecordingLevel::kLight, "detached");
  const std::vector<double> found = loop.unseen();
  ASSERT_GE(found.size(), 6U);
  for (const double ms : found) EXPECT_NEAR(ms, 8, 0.001);
}

// It ends with the same product as a step.
TEST(RecurringSteps, WhatMayBeAPromptIsNoStep) {
  Loop loop;
  for (int request = 0; request < 3; ++request) {
    loop.recorded_prompt(3 * kStep);
    for (int i = 0; i < 8; ++i) loop.recorded_step();
  }
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int request = 0; request < 3; ++request) {
    loop.unrecorded_prompt(3 * kFasterStep);
    for (int i = 0; i < 8; ++i) loop.unrecorded_step(i == 3 ? kStep : kFasterStep);
  }
  loop.level_since(RecordingLevel::kLight, "detached");
  const std::vector<double> found = loop.unseen();
  ASSERT_GE(found.size(), 20U);
  for (const double ms : found) EXPECT_LE(ms, 10.001);
}

// First products have more rows in prompts than in steps: both are found, whatever the pace.
class LoopWithProductRows : public Loop {
 public:
  explicit LoopWithProductRows(bool all_logits) : all_logits_(all_logits) {}
  void recorded_request(int64_t tokens, int64_t prompt, int64_t step) {
    built.product_rows(at() + prompt / 10, tokens);
    recorded_prompt(prompt, head_of(tokens));
    for (int i = 0; i < 8; ++i) {
      built.product_rows(at() + step / 10, 1);
      recorded_step(step);
    }
  }
  void unrecorded_request(int64_t tokens, int64_t prompt, int64_t step) {
    pause(5 * kFasterStep);  // for a request
    built.product_rows(at() + kStep * 3 / 10, tokens);
    pause(prompt);
    built.recurring_call(at() - kStep * 4 / 10, head_of(tokens));
    for (int i = 0; i < 8; ++i) {
      built.product_rows(at() + step / 10, 1);
      built.recurring_call(at() + step - kStep * 4 / 10, kOutputLayer);
      pause(step);
    }
  }

 private:
  uint64_t head_of(int64_t tokens) const { return all_logits_ ? 1000 + static_cast<uint64_t>(tokens) : kOutputLayer; }
  bool all_logits_;
};

TEST(RecurringSteps, PromptsAreToldByTheRowsOfProductRows) {
  for (const bool all_logits : {false, true}) {
    LoopWithProductRows loop(all_logits);
    for (const int64_t tokens : {96, 90, 99}) loop.recorded_request(tokens, 3 * kStep, kStep);
    loop.level_since(RecordingLevel::kDefault, "start");
    // Steps as long as recorded prompts, and prompts as short as recorded steps.
    loop.unrecorded_request(96, 5 * kStep, 3 * kStep);
    loop.unrecorded_request(95, 5 * kStep, 3 * kStep);
    loop.unrecorded_request(91, kStep, kStep / 2);
    loop.level_since(RecordingLevel::kLight, "detached");
    Trace& trace = loop.built.build();
    ASSERT_TRUE(find_steps(trace, {}));
    std::map<StageKind, std::vector<double>> found;
    for (Row s = 0; s < trace.steps.size(); ++s)
      if (trace.steps.missing[s] == MissingKernels::kAll)
        found[trace.steps.kind[s]].push_back(static_cast<double>(trace.steps.end_ns[s] - trace.steps.start_ns[s]) /
                                             1e6);
    EXPECT_EQ(found.size(), 2U);
    const std::vector<double>& prompts = found[StageKind::kPrefill];
    ASSERT_EQ(prompts.size(), 3U) << all_logits;
    EXPECT_NEAR(prompts[0], 50, 0.001);
    EXPECT_NEAR(prompts[1], 50, 0.001);
    EXPECT_NEAR(prompts[2], 10, 0.001);
    const std::vector<double>& steps = found[StageKind::kDecode];
    EXPECT_EQ(std::count_if(steps.begin(), steps.end(), [](double ms) { return std::abs(ms - 30) < 0.001; }), 16);
    EXPECT_GE(std::count_if(steps.begin(), steps.end(), [](double ms) { return std::abs(ms - 5) < 0.001; }), 7);
    EXPECT_LE(steps.size(), 24U);
  }
}

// A host that queues several steps and waits for all of them: its calls do not tell when a step ends.
TEST(RecurringSteps, EventsThatDoNotKeepThePaceTellNothing) {
  Loop loop;
  for (int i = 0; i < 8; ++i) loop.recorded_step(kStep, false);
  for (int i = 0; i < 8; ++i)
    loop.built.recurring_call(1'000'000 + i * kStep + (i % 2 == 0 ? 100'000 : 8'900'000), kOutputLayer);
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 10; ++i) loop.unrecorded_step();
  loop.level_since(RecordingLevel::kLight, "detached");
  EXPECT_TRUE(loop.unseen().empty());
}

TEST(RecurringSteps, AnUnknownCallBetweenIsAnUnknownStep) {
  Loop loop;
  for (int i = 0; i < 8; ++i) loop.recorded_step();
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 5; ++i) loop.unrecorded_step();
  loop.built.recurring_call(1'000'000 + 8 * kStep + 5 * kFasterStep + 1'000'000, 1234);  // a prompt of 20 ms
  loop.pause(20'000'000);
  for (int i = 0; i < 5; ++i) loop.unrecorded_step();
  loop.level_since(RecordingLevel::kLight, "detached");
  for (const double ms : loop.unseen()) EXPECT_NEAR(ms, 8, 0.001);
}

TEST(RecurringSteps, StepsThatTheProgramNamesAreItsOwn) {
  Loop loop;
  for (int i = 0; i < 8; ++i) {
    loop.built.annotation("decode", 1'000'000 + i * kStep - 1'000, kStep - 2'000);
    loop.recorded_step();
  }
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 10; ++i) loop.unrecorded_step();
  loop.level_since(RecordingLevel::kLight, "detached");
  EXPECT_TRUE(loop.unseen().empty());
}

// Where the host waits says when steps end, whatever they do behind their last product.
class LoopWithWaits : public Loop {
 public:
  void recorded_token(bool product = true) {
    recorded_step(kStep, product);
    built.host_wait(at() - kStep * 2 / 10, at() - 1'000, "generate (serve.py:40)");
  }
  // The output layer comes at the same time in each, the tokens do not.
  void unrecorded_token(int64_t length, bool product = true) {
    const int64_t from = at();
    if (product) built.recurring_call(from + kStep / 10, kOutputLayer);
    built.host_wait(from + kStep / 5, from + kStep / 4, "guard (serve.py:12) < generate (serve.py:39)");
    pause(length);
    built.host_wait(at() - 200'000, at(), "generate (serve.py:40)");
  }
};

TEST(RecurringSteps, EndWithTheWaitThatFetchesTheToken) {
  for (const bool product : {true, false}) {
    LoopWithWaits loop;
    for (int i = 0; i < 8; ++i) loop.recorded_token(product);
    loop.level_since(RecordingLevel::kDefault, "start");
    for (int i = 0; i < 12; ++i) loop.unrecorded_token(i % 2 == 0 ? kFasterStep : kStep / 2, product);
    loop.level_since(RecordingLevel::kLight, "detached");
    const std::vector<double> found = loop.unseen();
    ASSERT_GE(found.size(), 10U) << product;
    EXPECT_GE(std::count_if(found.begin(), found.end(), [](double ms) { return std::abs(ms - 8) < 0.001; }), 5);
    EXPECT_GE(std::count_if(found.begin(), found.end(), [](double ms) { return std::abs(ms - 5) < 0.001; }), 5);
  }
}

// A step that begins with the call itself, the launch of its graph: that is noted before CUPTI has it begin, and
// belongs to no step before. Behind a pause in recording neither do the calls that came in it.
TEST(RecurringSteps, BeginWithACallThatIsNotedBefore) {
  constexpr int64_t kNotedBefore = 700;
  for (const bool again : {false, true}) {
    LoopWithWaits loop;
    const auto token = [&loop](bool recorded) {
      loop.built.recurring_call(recorded ? loop.at() - kNotedBefore : loop.at() + 1, kOutputLayer);
      recorded ? loop.recorded_token(false) : loop.unrecorded_token(kFasterStep, false);
    };
    for (int i = 0; i < 12; ++i) token(true);
    loop.level_since(RecordingLevel::kDefault, "start");
    for (int i = 0; i < 6; ++i) token(false);
    loop.level_since(RecordingLevel::kLight, "detached");
    if (again) {
      for (int i = 0; i < 3; ++i) token(true);
      loop.level_since(RecordingLevel::kDefault, "rate");
    }
    const std::vector<double> found = loop.unseen();
    EXPECT_GE(found.size(), 5U) << again;
    for (const double ms : found) EXPECT_NEAR(ms, 8, 0.001) << again;
  }
}

// CUPTI comes at the end of a wait, and this program waits in the middle of a step as well: the step has called a
// product since the last token was fetched, and what is left of it is no step.
TEST(RecordedSteps, ThatRecordingBeganInTheMiddleOfAreNone) {
  for (const bool cut : {true, false}) {
    LoopWithWaits loop;
    for (int i = 0; i < 8; ++i) loop.recorded_token();
    loop.level_since(RecordingLevel::kDefault, "start");
    for (int i = 0; i < 6; ++i) loop.unrecorded_token(kStep);
    if (cut) {
      loop.built.recurring_call(loop.at() + kStep / 10, kOutputLayer + 1);
      loop.built.host_wait(loop.at() + kStep / 5, loop.at() + kStep / 4,
                           "guard (serve.py:12) < generate (serve.py:39)");
      loop.pause(kStep / 4);
    }
    loop.level_since(RecordingLevel::kLight, "detached");
    for (int i = 0; i < 9; ++i) loop.recorded_token();
    loop.level_since(RecordingLevel::kDefault, "start");
    Trace& trace = loop.built.build();
    ASSERT_TRUE(find_steps(trace, {}));
    const auto recorded = std::count(trace.steps.missing.begin(), trace.steps.missing.end(), MissingKernels::kNone);
    EXPECT_EQ(recorded, cut ? 16 : 17) << cut;
  }
}

// What waits elsewhere ends no step: nothing is said of a pass whose token nobody fetched.
TEST(RecurringSteps, WithoutTheWaitAreNotKnown) {
  LoopWithWaits loop;
  for (int i = 0; i < 8; ++i) loop.recorded_token();
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 8; ++i) {
    loop.built.recurring_call(loop.at() + kStep / 10, kOutputLayer);
    loop.built.host_wait(loop.at() + kStep / 5, loop.at() + kStep, "evaluate (serve.py:90)");
    loop.pause(kStep);
  }
  loop.level_since(RecordingLevel::kLight, "detached");
  EXPECT_TRUE(loop.unseen().empty());
}

// A recurrent network multiplies as many rows in a prompt as in a step: other code fetches its token. `late_ns`: how
// long behind the step the wait ends; `first`: what calls that code for the first request.
void expect_prompts_told_by_waits(int64_t late_ns, const std::string& first) {
  Loop loop;
  const auto wait = [&](int64_t length, std::string_view code, std::string_view from) {
    loop.built.host_wait(loop.at() - length * 2 / 10, loop.at() + late_ns, std::string(code).append(from));
  };
  const auto request = [&](bool recorded, int64_t prompt, int64_t step, std::string_view caller) {
    const int64_t from = loop.at();
    loop.built.product_rows(from + 100'000, 8);
    if (recorded)
      for (int i = 0; i < 40; ++i) loop.built.launch("gemm", from + 200'000 * i, from + 200'000 * i + 20'000, 190'000);
    if (recorded) {
      loop.recorded_step(prompt);
    } else {
      loop.built.recurring_call(from + prompt * 6 / 10, kOutputLayer);
      loop.pause(prompt);
    }
    wait(prompt, "prefill (serve.py:30) < ", caller);
    for (int i = 0; i < 5; ++i) {
      loop.built.product_rows(loop.at() + 100'000, 8);
      if (recorded) {
        loop.recorded_step(step);
      } else {
        loop.built.recurring_call(loop.at() + step * 6 / 10, kOutputLayer);
        loop.pause(step);
      }
      wait(step, "decode (serve.py:40) < ", caller);
    }
  };
  for (int i = 0; i < 4; ++i) request(true, 3 * kStep, kStep, i == 0 ? first : "main (serve.py:70)");
  loop.level_since(RecordingLevel::kDefault, "start");
  for (int i = 0; i < 3; ++i) request(false, 2 * kStep, 2 * kStep, "main (serve.py:70)");
  loop.level_since(RecordingLevel::kLight, "detached");
  Trace& trace = loop.built.build();
  ASSERT_TRUE(find_steps(trace, {}));
  std::map<std::pair<StageKind, bool>, size_t> counts;
  for (Row s = 0; s < trace.steps.size(); ++s)
    ++counts[{trace.steps.kind[s], trace.steps.missing[s] == MissingKernels::kAll}];
  EXPECT_EQ((counts[{StageKind::kPrefill, false}]), 4U);
  EXPECT_EQ((counts[{StageKind::kDecode, false}]), 20U);
  EXPECT_EQ((counts[{StageKind::kPrefill, true}]), 3U);
  EXPECT_GE((counts[{StageKind::kDecode, true}]), 14U);
}

TEST(RecurringSteps, PromptsAreToldByTheCodeThatFetchesTheirToken) {
  expect_prompts_told_by_waits(-1'000, "main (serve.py:70)");
}

// On a slow host the wait ends some microseconds behind the copy that ended the step.
TEST(RecurringSteps, PromptsAreToldByAWaitBehindTheCopy) { expect_prompts_told_by_waits(30'000, "main (serve.py:70)"); }

// The first requests of a server are often a warm-up: what fetches their tokens is called from elsewhere, `lines`, and
// the first may call other products. Found all the same, by the innermost frames of that code.
void expect_prompts_end_with_the_wait(std::array<int, 4> lines, uint64_t first_head) {
  LoopWithProductRows loop(false);
  const auto fetched = [&](int line) {
    loop.built.host_wait(loop.at() - 900'000, loop.at() - 1'000,
                         "fetch (serve.py:20) < prefill (serve.py:30) < main (serve.py:" + std::to_string(line) + ")");
  };
  for (size_t request = 0; request < 4; ++request) {
    loop.built.product_rows(loop.at() + kStep * 3 / 10, 96);
    loop.recorded_prompt(3 * kStep, request == 0 ? first_head : kOutputLayer);
    fetched(lines[request]);
    for (int i = 0; i < 8; ++i) {
      loop.built.product_rows(loop.at() + kStep / 10, 1);
      loop.recorded_step();
    }
  }
  loop.level_since(RecordingLevel::kDefault, "start");
  for (const int64_t steps : {2, 4, 6}) {  // the output layer is launched early, whatever the prompt takes
    loop.pause(5 * kStep);
    loop.built.product_rows(loop.at() + kStep * 3 / 10, 96);
    loop.built.recurring_call(loop.at() + kStep, kOutputLayer);
    loop.pause(steps * kStep);
    fetched(70);
  }
  loop.pause(kStep);
  loop.level_since(RecordingLevel::kLight, "detached");
  Trace& trace = loop.built.build();
  ASSERT_TRUE(find_steps(trace, {}));
  std::vector<double> prompts;
  for (Row s = 0; s < trace.steps.size(); ++s)
    if (trace.steps.missing[s] == MissingKernels::kAll && trace.steps.kind[s] == StageKind::kPrefill)
      prompts.push_back(static_cast<double>(trace.steps.end_ns[s] - trace.steps.start_ns[s]) / kStep);
  ASSERT_EQ(prompts.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(prompts[i], 2.0 * static_cast<double>(i + 1), 0.01) << i;
}

TEST(RecurringSteps, PromptsEndWithTheWaitOfAllButTheFirst) {
  expect_prompts_end_with_the_wait({60, 70, 70, 70}, kOutputLayer);
}

TEST(RecurringSteps, PromptsEndWithTheWaitOfOneCodeCalledFromSeveralLines) {
  expect_prompts_end_with_the_wait({60, 65, 70, 70}, kOutputLayer);
}

TEST(RecurringSteps, TheFirstPromptMayCallOtherProducts) {
  expect_prompts_end_with_the_wait({60, 70, 70, 70}, kOutputLayer + 5);
}

// A range around each answer says where steps begin and end, but not how many there are: they are found as without
// it, each in its own kind of range, though the code that fetches their tokens is the same.
TEST(RecurringSteps, OfRangesThatHoldSeveralAreThoseThatEndInThem) {
  LoopWithWaits loop;
  const auto answer = [&](std::string_view name, int tokens, const std::function<void()>& token) {
    loop.pause(kStep / 2);
    const int64_t from = loop.at();
    for (int i = 0; i < tokens; ++i) token();
    loop.built.annotation(name, from, loop.at() - from);
  };
  for (const int tokens : {6, 5, 7, 6}) {
    answer("brief", tokens, [&] { loop.recorded_token(false); });
    answer("long", tokens + 1, [&] { loop.recorded_token(false); });
  }
  loop.level_since(RecordingLevel::kDefault, "start");
  for (const int tokens : {4, 6, 8, 5}) {
    answer("brief", tokens, [&] { loop.unrecorded_token(kFasterStep, false); });
    answer("long", tokens + 1, [&] { loop.unrecorded_token(kStep / 2, false); });
  }
  loop.level_since(RecordingLevel::kLight, "detached");
  std::map<std::string, std::vector<double>> unseen = loop.unseen_by_stage();
  ASSERT_EQ(unseen.size(), 2U);
  EXPECT_GE(unseen["brief"].size(), 22U);
  EXPECT_GE(unseen["long"].size(), 26U);
  for (const double ms : unseen["brief"]) EXPECT_NEAR(ms, 8, 0.001);
  for (const double ms : unseen["long"]) EXPECT_NEAR(ms, 5, 0.001);
}

// Ranges of another model, an encoder here, are steps of their own: none is looked for in them, and the step behind one
// begins where it ends.
TEST(RecurringSteps, AreFoundBesideRangesOfAnotherModel) {
  LoopWithWaits loop;
  const auto rank = [&](bool recorded) {
    const int64_t from = loop.at();
    if (recorded)
      for (int i = 0; i < 10; ++i)
        loop.built.launch("gemm_rank", from + 100'000 * i, from + 100'000 * i + 20'000, 60'000);
    loop.built.recurring_call(from + 1'000'000, kOutputLayer + 9);
    loop.pause(3'000'000);
    loop.built.host_wait(loop.at() - 500'000, loop.at() - 1'000, "rank (serve.py:80)");
    loop.built.annotation("vision tower", from, loop.at() - from);
  };
  const auto answer = [&](bool recorded, int tokens) {
    for (int i = 0; i < tokens; ++i) {
      if (i == 3) rank(recorded);
      recorded ? loop.recorded_token() : loop.unrecorded_token(kFasterStep);
    }
  };
  for (const int tokens : {6, 5, 7, 6}) answer(true, tokens);
  loop.level_since(RecordingLevel::kDefault, "start");
  for (const int tokens : {4, 6, 8, 5}) answer(false, tokens);
  loop.level_since(RecordingLevel::kLight, "detached");
  std::map<std::string, std::vector<double>> unseen = loop.unseen_by_stage();
  EXPECT_GE(unseen["decode"].size(), 20U);
  for (const double ms : unseen["decode"]) EXPECT_NEAR(ms, 8, 0.001);
  EXPECT_EQ(unseen["vision tower"].size(), 4U);
}

}  // namespace
}  // namespace llmprof
