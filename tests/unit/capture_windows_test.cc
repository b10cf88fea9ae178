// When kernels are recorded, over programs that are played: no thread, no clock, no CUPTI.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "capture/inject/windows/plan.h"
#include "capture/inject/windows/step_keys.h"

namespace llmprof::inject {
namespace {

constexpr int64_t kMs = 1'000'000, kS = 1'000'000'000;

// A program and the recorder in it, as recording.cc drives the plan.
class Played {
 public:
  struct Costs {
    double recorded = 0.15;         // of a recorded second
    int64_t attach_ns = 120 * kMs;  // and as much to leave; 0: CUPTI stays
    double budget = 0.02;
    bool waits = true;  // at the end of each range and step
  };
  Played() : Played(Costs{}) {}
  explicit Played(const Costs& costs) : costs_(costs) { plan_.begin(costs.budget); }

  struct Seen {
    int times = 0, whole = 0, whole_steady = 0;  // steady: as the caller says
    int held_up = 0;                             // in which CUPTI came or left
    int alone = 0;                               // with CUPTI as far away as it goes
  };

  // A range of the program that takes `dur_ns` by itself.
  void range(const std::string& text, int64_t dur_ns, bool warm = false, bool disturbs = false) {
    if (outer_ != nullptr && !StepKeys::looks_within(*outer_)) {
      const int64_t begin = now_;
      const int switched = switches_;
      work(dur_ns);
      if (costs_.waits) waits(false);
      return count(text, begin, switched, warm);
    }
    const KeyText of_text = key_of_text(text);
    StepKey* const key = keys_->find(KeyKind::kRange, of_text.stage, of_text.shape);
    ASSERT_NE(key, nullptr);
    if (plan_.waits_for_place()) ask(WindowPlan::Place::kBetweenSteps);
    const bool rare_wanted = attached_ && leaves_ns_ == 0 ? !key->enough() : key->seen == 0;
    bool rare = !records_ && rare_wanted && plan_.open_for_rare(now_);
    if (rare) ask(WindowPlan::Place::kAnywhere);
    start_clock();
    const int64_t begin = now_;
    const int switched = switches_;
    keys_->begins(*key, begin);
    if (outer_ != nullptr) StepKeys::begins_within(*key, *outer_, outer_begin_ns_);
    work(dur_ns);
    if (costs_.waits) waits(false);
    if (disturbs) disturbed_ns_ = begin;
    keys_->ends(*key, begin, now_, conditions());
    count(text, begin, switched, warm);
    if (rare) plan_.rare_ended(now_);
    if (rare || keys_->take_grown() || plan_.waits_for_place()) ask(WindowPlan::Place::kBetweenSteps);
  }
  // What ends with a wait of the host, without a range around it.
  template <class Work>
  void step(const std::string& name, const Work& work) {
    const int64_t begin = now_;
    const int switched = switches_;
    work();
    count(name, begin, switched, false);
    if (costs_.waits) waits(true);
  }
  // A range around steps that have none.
  template <class Work>
  void around(const std::string& text, const Work& work) {
    const KeyText of_text = key_of_text(text);
    StepKey* const key = keys_->find(KeyKind::kRange, of_text.stage, of_text.shape);
    ASSERT_NE(key, nullptr);
    start_clock();
    const int64_t begin = outer_begin_ns_ = now_;
    outer_ = key;
    keys_->begins(*key, begin);
    work();
    keys_->ends(*key, begin, now_, conditions());
    outer_ = nullptr;
    if (keys_->take_grown() || plan_.waits_for_place()) ask(WindowPlan::Place::kBetweenSteps);
  }
  // An event that recurs, and what the program does until the next one.
  void event(KeyKind kind, uint64_t hash, int64_t dur_ns) {
    start_clock();
    if (kind == KeyKind::kKernel && !records_ && !attached_) return work(dur_ns);  // not seen then
    if (StepKey* const key = keys_->find(kind, hash)) keys_->recurs(*key, now_, conditions(), outer_ == nullptr);
    work(dur_ns);
  }
  // The same call in each of so many layers.
  void layers(KeyKind kind, uint64_t hash, int count, int64_t dur_ns) {
    for (int i = 0; i < count; ++i) event(kind, hash, dur_ns);
  }
  void idle(int64_t dur_ns) { pass(dur_ns); }
  void disturb() { disturbed_ns_ = now_; }
  void make_graph() {
    disturbed_ns_ = graph_made_ns_ = now_;
    if (!records_) ask(WindowPlan::Place::kAnywhere);
  }
  void wait() { waits(false); }
  void start_clock() {
    if (!plan_.is_started()) plan_.started(now_);
  }

  const Seen& seen(const std::string& text) { return seen_[text]; }
  const WindowPlan& plan() const { return plan_; }
  StepKeys& keys() { return *keys_; }
  int64_t now() const { return now_; }
  int windows() const { return windows_; }
  int64_t recorded_ns() const { return recorded_ns_ + (records_ ? now_ - since_ : 0); }
  bool records() const { return records_; }
  double slowed() const { return static_cast<double>(cost_ns_) / static_cast<double>(now_ - cost_ns_); }

 private:
  void waits(bool ends_step) {
    if (attached_) keys_->waited(now_);  // it is a callback of CUPTI's that tells
    leave(0);
    if (attached_ && ends_step && (keys_->take_grown() || plan_.waits_for_place()))
      ask(WindowPlan::Place::kBetweenSteps);
  }
  void leave(int64_t patience_ns) {
    if (leaves_ns_ == 0 || now_ < leaves_ns_ + patience_ns) return;
    leaves_ns_ = 0;
    attached_ = false;
    switch_takes(costs_.attach_ns);
    unrecorded_since_ = now_;
  }
  void count(const std::string& name, int64_t begin, int switched, bool warm) {
    Seen& seen = seen_[name];
    ++seen.times;
    const bool whole = recorded_since_ != 0 && recorded_since_ <= begin;
    seen.whole += whole;
    seen.whole_steady += whole && !warm;
    seen.held_up += switches_ != switched;
    seen.alone += unrecorded_since_ != 0 && unrecorded_since_ <= begin && (!attached_ || costs_.attach_ns == 0);
  }
  Conditions conditions() const { return {recorded_since_, unrecorded_since_, counters_since_, disturbed_ns_}; }

  void work(int64_t dur_ns) {
    // In pieces, as the drain thread looks while a step goes on.
    for (int64_t left = dur_ns; left > 0;) {
      const int64_t piece = std::min(left, 10 * kMs);
      const int64_t cost = records_ ? static_cast<int64_t>(static_cast<double>(piece) * costs_.recorded) : 0;
      cost_ns_ += cost;
      pass(piece + cost);
      left -= piece;
    }
  }
  void pass(int64_t dur_ns) {
    const int64_t until = now_ + dur_ns;
    while (asked_ns_ <= until) {
      now_ = std::max(now_, asked_ns_);
      const int64_t before = now_;
      ask(WindowPlan::Place::kAnywhere);
      if (now_ != before) return pass(until - before);  // held up
    }
    now_ = until;
    // At the end of a call that waits, or of any other if none came for long.
    leave(300 * kMs);
  }
  void switch_takes(int64_t took_ns) {
    now_ += took_ns;
    cost_ns_ += took_ns;
    ++switches_;
    plan_.switched(took_ns);
  }
  void ask(WindowPlan::Place place) {
    if (plan_.is_started()) {
      StepKeys::Summary steps = keys_->summary(now_);
      steps.disturbed_ns = disturbed_ns_;
      steps.graph_made_ns = graph_made_ns_;
      const bool record = plan_.decide(now_, steps, place, attached_);
      if (record != records_) turn(record);
    }
    asked_ns_ = now_ + std::clamp<int64_t>(plan_.is_started() ? plan_.next_ns() - now_ : 100 * kMs, kMs, 400 * kMs);
  }
  void turn(bool record) {
    if (record && !attached_) switch_takes(costs_.attach_ns);
    if (record) leaves_ns_ = 0;
    records_ = record;
    windows_ += record;
    if (!record) recorded_ns_ += now_ - since_;
    since_ = now_;
    recorded_since_ = record ? now_ : 0;
    unrecorded_since_ = record ? 0 : now_;
    if (record) attached_ = true;
    if (!record && costs_.attach_ns != 0) leaves_ns_ = now_ + 5 * kMs;
  }

  Costs costs_;
  std::unique_ptr<StepKeys> keys_ = std::make_unique<StepKeys>();
  StepKey* outer_ = nullptr;
  int64_t outer_begin_ns_ = 0;
  WindowPlan plan_;
  std::map<std::string, Seen> seen_;
  int64_t now_ = 1000 * kS, asked_ns_ = 1000 * kS, since_ = 1000 * kS;
  int64_t recorded_since_ = 1000 * kS, unrecorded_since_ = 0, disturbed_ns_ = 0, graph_made_ns_ = 0, leaves_ns_ = 0;
  int64_t cost_ns_ = 0, recorded_ns_ = 0, counters_since_ = 0;
  bool records_ = true, attached_ = true;
  int windows_ = 0, switches_ = 0;
};

// ---- texts -------------------------------------------------------------------------------------------------------

bool same(const char* a, const char* b) {
  const KeyText first = key_of_text(a), second = key_of_text(b);
  return first.stage == second.stage && first.shape == second.shape;
}

TEST(WindowKeys, NumbersThatCountAreNotPartOfAKey) {
  EXPECT_TRUE(same("step 17", "step 18"));
  EXPECT_TRUE(same("step 0", "step 1000"));
  EXPECT_TRUE(same("decode#3", "decode#41"));
  EXPECT_TRUE(same("decode_step_9", "decode_step_10"));
  EXPECT_TRUE(same("decode[step=17]", "decode[step=1800]"));
  EXPECT_TRUE(same("decode[global_step=17]", "decode[global_step=1800]"));
  EXPECT_FALSE(same("decode 1", "prefill 1"));
}

TEST(WindowKeys, NumbersThatGiveAShapeAreInPowersOfTwo) {
  EXPECT_FALSE(same("prefill[bs=2 tok=512]", "prefill[bs=2 tok=4096]"));
  EXPECT_FALSE(same("prefill[bs=2 tok=512]", "prefill[bs=8 tok=512]"));
  EXPECT_TRUE(same("prefill[bs=2 tok=513]", "prefill[bs=2 tok=801]"));
  EXPECT_TRUE(same("decode[bs=8]", "decode[bs=15]"));
  EXPECT_EQ(key_of_text("prefill[bs=2 tok=512]").stage, key_of_text("prefill[bs=8 tok=4096]").stage);
}

TEST(WindowKeys, WhetherAServersStepHasPromptsAndDecodesIsPartOfTheStage) {
  EXPECT_TRUE(same("execute_context_0(0)_generation_8(8)", "execute_context_0(0)_generation_37(37)"));
  EXPECT_TRUE(same("execute_context_9(8192)_generation_0(0)", "execute_context_2(31)_generation_0(0)"));
  EXPECT_FALSE(same("execute_context_0(0)_generation_8(8)", "execute_context_9(8192)_generation_0(0)"));
  EXPECT_FALSE(same("execute_context_9(8192)_generation_8(8)", "execute_context_9(8192)_generation_0(0)"));
}

TEST(WindowKeys, AStageOfTooManyShapesIsOneKey) {
  const auto keys = std::make_unique<StepKeys>();
  for (uint64_t shape = 1; shape <= 40; ++shape) keys->find(KeyKind::kRange, 77, shape);
  StepKey* const last = keys->find(KeyKind::kRange, 77, 41);
  EXPECT_EQ(last, keys->find(KeyKind::kRange, 77, 42));
  EXPECT_EQ(last, keys->find(KeyKind::kRange, 77));
  EXPECT_NE(last, keys->find(KeyKind::kRange, 77, 1)) << "the first ones have places of their own";
}

TEST(WindowKeys, AFullTableLeavesTheRestToChance) {
  const auto keys = std::make_unique<StepKeys>();
  size_t without = 0;
  for (uint64_t stage = 1; stage <= 1000; ++stage)
    without += keys->find(KeyKind::kKernel, stage * 0x9E3779B97F4A7C15ULL) == nullptr;
  EXPECT_GE(without, 1000 - StepKeys::kKeys);
}

// ---- what is steady ----------------------------------------------------------------------------------------------

struct Timed {
  std::unique_ptr<StepKeys> keys = std::make_unique<StepKeys>();
  StepKey* key = keys->find(KeyKind::kRange, 5);
  int64_t now = kS;
  void step(int64_t dur_ns, bool disturbed = false) {
    keys->begins(*key, now);
    const int64_t begin = now;
    now += dur_ns;
    keys->ends(*key, begin, now, {1, 0, 0, disturbed ? begin + 1 : 0});
  }
};

TEST(WindowKeys, ColdStepsAreNotSteady) {
  Timed timed;
  timed.step(2 * kS);
  timed.step(500 * kMs);
  timed.step(90 * kMs);
  for (int i = 0; i < 20; ++i) timed.step(14 * kMs + i % 3 * 100'000);
  EXPECT_LE(timed.key->steady, 20U);
  EXPECT_GE(timed.key->steady, 12U);
}

// What is usual is known from the fourth on; those before it took as long.
TEST(WindowKeys, StepsBeforeItIsKnownWhatIsUsualCountOnceItIs) {
  Timed timed;
  timed.step(400 * kMs, true);
  for (int i = 0; i < 2; ++i) timed.step(20 * kMs);
  EXPECT_EQ(timed.key->steady, 0U);
  timed.step(21 * kMs);
  EXPECT_EQ(timed.key->steady, 3U);
  Timed falling;
  for (const int64_t ms : {90, 60, 30, 30}) falling.step(ms * kMs);
  EXPECT_EQ(falling.key->steady, 2U) << "of those before it, one took as long";
}

TEST(WindowKeys, OutliersAndDisturbedStepsAreNotSteady) {
  Timed timed;
  for (int i = 0; i < 8; ++i) timed.step(10 * kMs);
  const uint32_t before = timed.key->steady;
  timed.step(40 * kMs);
  timed.step(10 * kMs, true);
  EXPECT_EQ(timed.key->steady, before);
  timed.step(10 * kMs);
  EXPECT_EQ(timed.key->steady, before + 1);
}

TEST(WindowKeys, WhatEveryStepAllocatesDisturbsNone) {
  Timed timed;
  for (int i = 0; i < 30; ++i) timed.step(10 * kMs, true);
  EXPECT_GE(timed.key->steady, 20U);
}

TEST(WindowKeys, ALowerLevelBeginsTheCountAnew) {
  Timed timed;
  for (int i = 0; i < 30; ++i) timed.step(60 * kMs);
  EXPECT_TRUE(timed.key->enough());
  for (int i = 0; i < 24; ++i) timed.step(14 * kMs);
  EXPECT_EQ(timed.key->restarts, 1U);
  EXPECT_LE(timed.key->steady, 24U) << "those of the slow first request do not count";
}

TEST(WindowKeys, AGrowingContextIsNoNewLevel) {
  Timed timed;
  for (int i = 0; i < 60; ++i) timed.step(10 * kMs + i * 200'000);
  EXPECT_EQ(timed.key->restarts, 0U);
  EXPECT_TRUE(timed.key->enough());
}

// ---- programs ----------------------------------------------------------------------------------------------------

TEST(Windows, AShortProgramEndsWithItsSteadyStepsRecorded) {
  for (const int steps : {5, 20, 40}) {
    Played program;
    program.range("warmup", 3 * kS, true, true);
    for (int i = 0; i < steps; ++i) program.range("decode " + std::to_string(i), 15 * kMs);
    int whole = 0;
    for (int i = 0; i < steps; ++i) whole += program.seen("decode " + std::to_string(i)).whole;
    EXPECT_GE(whole, std::min(steps, 20)) << steps;
  }
}

TEST(Windows, AShortProgramHasStepsRecordedAndStepsAlone) {
  for (const int64_t step_ns : {3 * kMs, 8 * kMs, 30 * kMs}) {
    for (const int steps : {20, 40, 60}) {
      Played program({.attach_ns = 10 * kMs});
      program.range("prompt", 400 * kMs, true, true);
      for (int i = 0; i < steps; ++i) program.range("decode", i == 0 ? 5 * step_ns : step_ns, i == 0, i == 0);
      EXPECT_GE(program.seen("decode").whole_steady, std::min(steps - 1, 20)) << step_ns;
      EXPECT_GE(program.seen("decode").alone, steps - 20 - 4 - 6) << step_ns << ": CUPTI leaves within some steps";
      EXPECT_EQ(program.windows(), 0);
    }
  }
}

TEST(Windows, APromptThatCameTwiceHoldsNothingOpen) {
  Played program({.attach_ns = 10 * kMs});
  for (int request = 0; request < 3; ++request) {
    program.range("prompt", request == 0 ? 400 * kMs : 10 * kMs, request == 0, request == 0);
    for (int i = 0; i < 20; ++i) program.range("decode", request + i == 0 ? 44 * kMs : 8 * kMs);
  }
  EXPECT_GE(program.seen("decode").whole, 20);
  EXPECT_LE(program.seen("decode").whole, 30);
  EXPECT_GE(program.seen("decode").alone, 20);
}

TEST(Windows, OfAStageThatComesOnceInSomeStepsFewerAreWanted) {
  Played program({.attach_ns = 3 * kMs});
  for (int batch = 0; batch < 15; ++batch) {
    program.range("encode", 6 * kMs);
    for (int i = 0; i < 4; ++i) program.range("decode", 2'400'000);
  }
  EXPECT_GE(program.seen("encode").whole, 5);
  EXPECT_GE(program.seen("decode").whole, 20);
  EXPECT_GE(program.seen("encode").alone, 3);
  EXPECT_GE(program.seen("decode").alone, 15);
}

// Prompts every ten steps: most steps of a run of sixty would be recorded until five of them have come.
TEST(Windows, PromptsBetweenTenStepsLeaveStepsAlone) {
  Played program({.attach_ns = 3 * kMs});
  for (int batch = 0; batch < 7; ++batch) {
    program.range("prompt", batch == 0 ? 500 * kMs : 28 * kMs, batch == 0, batch == 0);
    for (int i = 0; i < (batch == 0 ? 3 : 10); ++i)
      program.range("decode", batch == 0 ? 40 * kMs : 12 * kMs, batch == 0);
  }
  EXPECT_GE(program.seen("prompt").whole_steady, 3);
  EXPECT_GE(program.seen("decode").whole_steady, 20);
  EXPECT_GE(program.seen("decode").alone, 15);
}

// A range around each request, of a third of a second or less, with its prompt and its answers in ranges of their own:
// five requests would be half of a short program.
TEST(Windows, RangesAroundRequestsLeaveMostRequestsAlone) {
  Played program({.attach_ns = 3 * kMs});
  for (int request = 0; request < 9; ++request)
    program.around("trial", [&] {
      program.range("context", request == 0 ? 280 * kMs : 25 * kMs, request == 0, request == 0);
      for (int i = 0; i < 8; ++i) program.range("answer", request + i == 0 ? 35 * kMs : 14 * kMs, request + i == 0);
    });
  EXPECT_GE(program.seen("context").whole_steady, 3);
  EXPECT_GE(program.seen("answer").whole_steady, 20);
  EXPECT_GE(program.seen("context").alone, 3);
  EXPECT_GE(program.seen("answer").alone, 30);
  EXPECT_EQ(program.windows(), 0);
}

// Prompts of ever new lengths load code until the program is over.
TEST(Windows, PromptsThatNeverBecomeSteadyLeaveStepsAlone) {
  for (const bool around : {false, true}) {
    Played program({.attach_ns = 3 * kMs});
    for (int request = 0; request < 8; ++request) {
      const auto work = [&] {
        program.range("opening", request == 0 ? 450 * kMs : (40 + request % 3 * 10) * kMs, request == 0, true);
        for (int i = 0; i < 9; ++i) program.range("line", request + i == 0 ? 45 * kMs : 28 * kMs, request + i == 0);
      };
      around ? program.around("letter", work) : work();
    }
    EXPECT_GE(program.seen("opening").whole_steady, 3);
    EXPECT_GE(program.seen("line").whole_steady, 20);
    EXPECT_GE(program.seen("opening").alone, 3);
    EXPECT_GE(program.seen("line").alone, 27);
    EXPECT_LE(program.windows(), 1);
  }
}

// Likewise without ranges: prompts are known by their products, steps by their graph.
TEST(Windows, ProductsOfPromptsThatLoadCodeLeaveGraphsAlone) {
  Played program({.attach_ns = 3 * kMs});
  for (int question = 0; question < 9; ++question) {
    program.step("prompt", [&] {
      program.disturb();
      for (const uint64_t product : {10U + static_cast<unsigned>(question), 2U})
        program.layers(KeyKind::kRecurring, product, 12, 1'500'000);
      program.event(KeyKind::kRecurring, 3, kMs);
    });
    for (int i = 0; i < 8; ++i) program.step("token", [&] { program.event(KeyKind::kRecurring, 1, 5 * kMs); });
  }
  EXPECT_GE(program.seen("prompt").whole, 4);
  EXPECT_GE(program.seen("token").whole, 20);
  EXPECT_GE(program.seen("prompt").alone, 3);
  EXPECT_GE(program.seen("token").alone, 27);
}

// Layers in ranges are not steps, whatever waits between them.
TEST(Windows, RangesAroundStepsThatHoldLayersAreTheSteps) {
  Played program({.attach_ns = 3 * kMs});
  for (int step = 0; step < 80; ++step) {
    program.around("decode", [&] {
      for (int layer = 0; layer < 16; ++layer) program.range("layer", step == 0 ? 20 * kMs : kMs, step == 0, step == 0);
    });
  }
  EXPECT_GE(program.seen("layer").whole_steady, 16 * 20);
  EXPECT_GE(program.seen("layer").alone, 16 * 40);
}

// Nor where nothing is around them: the host reads in each which experts are chosen, and the output layer follows.
TEST(Windows, WhatFollowsLayersInRangesTellsTheSteps) {
  Played program({.attach_ns = 3 * kMs});
  program.start_clock();
  program.idle(700 * kMs);  // weights are made
  for (int step = 0; step < 80; ++step)
    program.step("token", [&] {
      for (int layer = 0; layer < 18; ++layer) program.range("layer", step == 0 ? 20 * kMs : kMs, step == 0, step == 0);
      program.event(KeyKind::kRecurring, 7, kMs / 2);
    });
  EXPECT_GE(program.seen("token").whole, 20);
  EXPECT_GE(program.seen("token").alone, 30);
}

// Prompts without ranges, each of a new length and so with products of its own, follow steps in ranges as well.
TEST(Windows, ProductsThatComeOnceEachOutsideOfRangesHoldNothingOpen) {
  Played program({.attach_ns = 3 * kMs});
  for (uint64_t request = 0; request < 30; ++request) {
    program.event(KeyKind::kRecurring, 101 + 2 * request, 40 * kMs);
    program.wait();
    for (int i = 0; i < 20; ++i) program.range("decode", 10 * kMs, request == 0 && i == 0);
  }
  EXPECT_GE(program.seen("decode").whole_steady, 20);
  EXPECT_GE(program.seen("decode").alone, 400);
}

TEST(Windows, AServersFirstRequestIsFollowedByWindowsForItsPrompts) {
  Played program;
  const auto request = [&](bool first) {
    const int64_t begin = program.now();
    program.range("prefill", 60 * kMs, first);
    for (int i = 0; i < 40; ++i) program.range("decode", 10 * kMs);
    EXPECT_TRUE(!first || !program.records());
    program.idle(std::max<int64_t>(2500 * kMs - (program.now() - begin), 0));
  };
  request(true);
  EXPECT_GE(program.seen("decode").whole, 20);
  EXPECT_LE(program.recorded_ns(), 600 * kMs) << "what has come once is not waited for";
  for (int i = 0; i < 12; ++i) request(false);
  EXPECT_GE(program.seen("prefill").whole_steady, 5);
  EXPECT_LE(program.seen("prefill").held_up, 1);
}

TEST(Windows, ColdStepsDoNotEndTheFirstWindow) {
  Played program;
  for (const int64_t cold_ns : {700 * kMs, 200 * kMs, 80 * kMs}) program.range("decode", cold_ns, true, true);
  for (int i = 0; i < 60; ++i) program.range("decode", 8 * kMs, false, i < 5);
  EXPECT_GE(program.seen("decode").whole_steady, 20);
  EXPECT_LE(program.seen("decode").whole_steady, 36);
}

// One graph or thirty to a step: twenty steps are recorded, not twenty launches.
TEST(Windows, PiecewiseGraphsAreNoStepsOfTheirOwn) {
  for (const uint64_t graphs : {1, 30}) {
    for (const bool waits : {true, false}) {
      Played::Costs costs;
      costs.attach_ns = 0;
      costs.waits = waits;
      Played program(costs);
      for (int i = 0; i < 60; ++i)
        program.step("step", [&] {
          for (uint64_t piece = 0; piece < 30; ++piece)
            program.event(KeyKind::kRecurring, 100 + 2 * (piece % graphs), 266'666);
        });
      EXPECT_GE(program.seen("step").whole, 20) << graphs;
      if (waits) {
        EXPECT_LE(program.seen("step").whole, 30) << graphs;
        EXPECT_GE(program.seen("step").alone, 25) << graphs;
      } else {
        EXPECT_EQ(program.seen("step").alone, 0) << "nothing tells one step from the next: a second is recorded";
      }
    }
  }
}

// As eager PyTorch without ranges: calls of some shapes in each layer, one at the end; a cache that grows has its own.
TEST(Windows, CallsInEachLayerAreNoSteps) {
  Played program({.attach_ns = 10 * kMs});
  const auto forward = [&](uint64_t tokens, uint64_t length, int64_t layer_ns) {
    for (int layer = 0; layer < 32; ++layer) {
      for (uint64_t call = 1; call <= 4; ++call)
        program.event(KeyKind::kRecurring, tokens * 32 + 2 * call, layer_ns / 5);
      program.event(KeyKind::kRecurring, 1000 + 2 * length, layer_ns / 5);
    }
    program.event(KeyKind::kRecurring, 2, kMs);
  };
  program.step("prefill", [&] { forward(7, 160, 3 * kMs); });
  EXPECT_TRUE(program.records()) << "although each of its calls came 32 times";
  for (uint64_t i = 1; i <= 60; ++i) {
    if (i == 31) program.step("prefill", [&] { forward(7, 160, kMs / 2); });
    program.step("decode", [&] { forward(1, 160 + i, i < 3 ? kMs : kMs / 4); });
  }
  EXPECT_GE(program.seen("decode").whole, 20);
  EXPECT_LE(program.seen("decode").whole, 30);
  EXPECT_GE(program.seen("decode").alone, 25);
  EXPECT_EQ(program.windows(), 0) << "nor is one opened for a prompt that is over";
}

// A cold program: code is loaded between the products of the one step before the graph is captured, and each takes
// longer for it than CUPTI takes to come and go. On a slow host the whole of the run that followed was in the first
// pause.
TEST(Windows, ProductsOfAColdStepDoNotEndTheWindow) {
  for (const bool late_wait : {false, true}) {
    Played program({.attach_ns = 10 * kMs});
    program.start_clock();
    program.idle(1300 * kMs);  // weights are made
    for (int pass = 0; pass < 2; ++pass)
      for (int layer = 0; layer < 12; ++layer)
        for (uint64_t call = 1; call <= 3; ++call) {
          if (pass == 0 && layer == 0) program.idle(300 * kMs), program.disturb();
          program.event(KeyKind::kRecurring, 2 * (call % 2 + 1), kMs / 2);
        }
    if (late_wait) program.idle(200 * kMs);
    program.wait();
    program.idle(200 * kMs);
    EXPECT_TRUE(program.records());
    program.make_graph();
    for (int i = 0; i < 360; ++i) program.step("decode", [&] { program.event(KeyKind::kRecurring, 100, 1800'000); });
    EXPECT_GE(program.seen("decode").whole, 20);
    EXPECT_GE(program.seen("decode").alone, 200);
  }
}

// Whose eager steps were recorded before it made a graph of one.
TEST(Windows, AGraphThatIsMadeInAPauseOpensAWindow) {
  Played program({.attach_ns = 10 * kMs});
  const auto eager = [&] { program.layers(KeyKind::kRecurring, 8, 24, kMs / 2); };
  for (int i = 0; i < 30; ++i) program.step("eager", eager);
  program.idle(100 * kMs);
  ASSERT_FALSE(program.records());
  program.make_graph();
  program.idle(150 * kMs);
  for (int i = 0; i < 300; ++i) program.step("decode", [&] { program.event(KeyKind::kRecurring, 100, 1800'000); });
  EXPECT_GE(program.seen("decode").whole, 20);
}

// Whose products of few eager steps have come often enough already when it does, some of them while it still records.
TEST(Windows, AGraphThatIsMadeWhileRecordingIsWaitedFor) {
  for (const int64_t upload_ns : {20 * kMs, 150 * kMs, 900 * kMs}) {
    Played program({.attach_ns = 10 * kMs});
    program.start_clock();
    program.idle(1300 * kMs);  // weights are made
    for (int step = 0; step < 3; ++step)
      program.step("eager", [&] { program.layers(KeyKind::kRecurring, 8, 24, kMs / 2); });
    ASSERT_TRUE(program.records());
    program.make_graph();
    program.idle(upload_ns);
    EXPECT_TRUE(program.records()) << upload_ns;
    for (int i = 0; i < 360; ++i) program.step("decode", [&] { program.event(KeyKind::kRecurring, 100, 1800'000); });
    EXPECT_GE(program.seen("decode").whole, 20) << upload_ns;
    EXPECT_LE(program.seen("decode").whole, 120) << upload_ns;
    EXPECT_GE(program.seen("decode").alone, 200) << upload_ns;
  }
}

// That is never launched, or never often.
TEST(Windows, AGraphThatIsNotLaunchedDoesNotKeepRecordingOn) {
  Played program;
  for (int i = 0; i < 10; ++i) program.range("decode", 14 * kMs);
  const int64_t before_ns = program.now();
  program.make_graph();
  for (int i = 0; i < 600; ++i) program.range("decode", 14 * kMs);
  EXPECT_LT(program.recorded_ns(), (program.now() - before_ns) / 3 + 3 * kS);
  EXPECT_GE(program.seen("decode").alone, 100);
}

// A server makes thirty of them, one after the other.
TEST(Windows, GraphsThatAreMadeAllTheTimeStayWithinTheBudget) {
  Played program;
  for (int i = 0; i < 60; ++i) program.range("decode", 14 * kMs);
  const int64_t before_ns = program.now();
  const int windows = program.windows();
  for (int i = 0; i < 30; ++i) {
    program.make_graph();
    program.idle(600 * kMs);
  }
  EXPECT_LE(program.windows() - windows, 8);
  EXPECT_LT(program.recorded_ns(), (program.now() - before_ns) / 3 + 3 * kS);
}

TEST(Windows, EveryGraphThatIsInUseIsRecorded) {
  Played program({.attach_ns = 0});
  // Two sizes of batch in turns, three to one, in ranges of one text.
  for (int i = 0; i < 120; ++i) {
    program.event(KeyKind::kRecurring, i % 4 == 0 ? 52 : 50, 0);
    program.range("decode", 3 * kMs);
  }
  EXPECT_GE(program.keys().find(KeyKind::kRecurring, 52)->steady_rounds, 20U);
  EXPECT_FALSE(program.records());
}

TEST(Windows, AColdStartIsRecordedUntilEnoughOfWhatFollowsIs) {
  Played program;
  program.range("decode", 2 * kS, true, true);
  program.range("decode", 400 * kMs, true, true);
  for (int i = 0; i < 400; ++i) program.range("decode", 14 * kMs);
  EXPECT_GE(program.seen("decode").whole_steady, 20);
  EXPECT_LT(program.recorded_ns(), program.now() - 1000 * kS - 2 * kS) << "and the rest is not";
}

TEST(Windows, ASlowFirstRequestIsFollowedByAWindowForTheNext) {
  Played program;
  for (int i = 0; i < 60; ++i) program.range("decode", 60 * kMs, true);
  const int before = program.seen("decode").whole_steady;
  for (int i = 0; i < 200; ++i) program.range("decode", 14 * kMs);
  EXPECT_EQ(before, 0);
  EXPECT_GE(program.seen("decode").whole_steady, 20);
}

TEST(Windows, ASeldomPrefillIsWaitedForAndNotHeldUp) {
  Played program;
  for (int request = 0; request < 12; ++request) {
    const int64_t begin = program.now();
    program.range("prefill", 60 * kMs, request == 0);
    for (int i = 0; i < 60; ++i) program.range("decode", 20 * kMs);
    program.idle(std::max<int64_t>(3 * kS - (program.now() - begin), 0));
  }
  EXPECT_GE(program.seen("prefill").whole_steady, 5);
  EXPECT_LE(program.seen("prefill").held_up, 1);
  EXPECT_LE(program.seen("decode").held_up, 14) << "CUPTI leaves at the end of a call, which stands in some step";
}

// Products of an encoder come by the dozen in the first pass, and loading goes on behind them for over a second: they
// are no steps, however many.
TEST(Windows, CallsOfTheFirstPassDoNotEndTheWindow) {
  Played program;
  program.step("load", [&] { program.event(KeyKind::kRecurring, 40, 20 * kMs); });
  program.step("prompt", [&] {
    for (int layer = 0; layer < 40; ++layer) program.event(KeyKind::kRecurring, 50, 3 * kMs);
    for (int load = 0; load < 12; ++load) program.idle(90 * kMs);
  });
  program.step("token", [&] { program.event(KeyKind::kRecurring, 52, 150 * kMs); });
  for (int i = 0; i < 60; ++i) program.step("token", [&] { program.event(KeyKind::kRecurring, 52, 6 * kMs); });
  EXPECT_GE(program.seen("token").whole, 20);
}

TEST(Windows, OneIntervalBetweenPromptsIsNoPromise) {
  Played program({.attach_ns = 10 * kMs});
  program.range("prompt", 300 * kMs, true, true);
  for (int i = 0; i < 4; ++i) program.range("decode", 20 * kMs, true, i < 2);
  program.idle(40 * kMs);
  program.range("prompt", 45 * kMs);
  for (int i = 0; i < 200; ++i) program.range("decode", 11 * kMs);
  EXPECT_LE(program.recorded_ns(), 1200 * kMs);
  EXPECT_GE(program.seen("decode").whole_steady, 20);
}

// As those of a graph: CUPTI stays, and a change costs nothing. The third of the time holds for the window that is
// about to open as well.
TEST(Windows, WaitingForPromptsOfAGraphLeavesMostStepsAloneToo) {
  Played::Costs costs;
  costs.recorded = 0.3;
  costs.attach_ns = 0;
  Played program(costs);
  program.event(KeyKind::kRecurring, 5, 700 * kMs);
  for (int batch = 0; batch < 8; ++batch) {
    program.step("prompt", [&] { program.event(KeyKind::kRecurring, 7, 75 * kMs); });
    for (int i = 0; i < 83; ++i) program.step("decode", [&] { program.event(KeyKind::kRecurring, 9, 3'400'000); });
  }
  EXPECT_GE(program.seen("decode").whole, 20);
  EXPECT_LE(program.seen("decode").whole, program.seen("decode").times / 4);
}

// What a median of all of its steps says would otherwise be the recorder's.
TEST(Windows, WaitingForPromptsLeavesMostStepsOfAProgramAlone) {
  for (const int requests : {3, 4, 6}) {
    Played::Costs costs;
    costs.recorded = 0.37;
    costs.attach_ns = 10 * kMs;
    Played program(costs);
    for (int request = 0; request < requests; ++request) {
      program.range("prompt", request == 0 ? 400 * kMs : 12 * kMs, request == 0, request == 0);
      for (int i = 0; i < 500 / requests; ++i) program.range("decode", request + i == 0 ? 50 * kMs : 7 * kMs);
    }
    EXPECT_GE(program.seen("decode").whole_steady, 20);
    EXPECT_LE(program.seen("decode").whole, program.seen("decode").times * 2 / 5) << requests;
    EXPECT_GE(program.seen("decode").alone, program.seen("decode").times / 2) << requests;
  }
}

TEST(Windows, PrefillsOfManyShapesDoNotRecordForEver) {
  Played program;
  for (int request = 0; request < 200; ++request) {
    program.range("prefill[bs=1 tok=" + std::to_string(17 + request * 37) + "]", (30 + request % 50) * kMs);
    for (int i = 0; i < 20; ++i) program.range("decode[bs=1]", 10 * kMs);
  }
  EXPECT_GE(program.seen("decode[bs=1]").whole, 20);
  EXPECT_LT(program.recorded_ns(), (program.now() - 1000 * kS) / 2);
}

TEST(Windows, KernelsTellTheStepsWhereNothingElseDoes) {
  Played program;
  for (int i = 0; i < 30; ++i) {
    for (uint64_t layer = 0; layer < 4; ++layer) {
      program.event(KeyKind::kKernel, 11, 3 * kMs);
      program.event(KeyKind::kKernel, 12, 3 * kMs);
    }
    program.event(KeyKind::kKernel, 13, 26 * kMs);
  }
  EXPECT_TRUE(program.keys().find(KeyKind::kKernel, 13)->enough());
  for (int i = 0; i < 100; ++i) program.event(KeyKind::kKernel, 13, 50 * kMs);
  EXPECT_LT(program.recorded_ns(), (program.now() - 1000 * kS) * 3 / 4);
}

TEST(Windows, KernelsThatLoadAModelAreNoSteps) {
  for (const int64_t loads_ns : {5 * kS, 90 * kS}) {
    Played program;
    // Hundreds of equal kernels that fill the weights, and memory for each; then a long compilation.
    for (const int64_t until = program.now() + loads_ns; program.now() < until;) {
      program.disturb();
      for (int i = 0; i < 50; ++i) program.event(KeyKind::kKernel, 7, 2 * kMs);
    }
    program.idle(15 * kS);
    ASSERT_TRUE(program.records()) << "its steps are still to come";
    for (int i = 0; i < 30; ++i) {
      program.event(KeyKind::kKernel, 11, 20 * kMs);
      program.event(KeyKind::kKernel, 12, 20 * kMs);
      EXPECT_TRUE(program.records() || i >= 20) << i;
    }
  }
}

TEST(Windows, AProgramWithoutKeysIsRecordedInPart) {
  Played program;
  program.start_clock();
  program.idle(600 * kS);
  EXPECT_LT(program.recorded_ns(), 90 * kS);
  EXPECT_GE(program.windows(), 2);
}

TEST(Windows, AServerOfEightHoursStaysWithinItsBudget) {
  Played::Costs costs;
  for (const double budget : {0.02, 0.005}) {
    costs.budget = budget;
    Played program(costs);
    while (program.now() < (1000 + 8 * 3600) * kS) {
      program.range("prefill", 200 * kMs);
      for (int i = 0; i < 100; ++i) program.range("decode", 20 * kMs);
      program.idle(kS);
    }
    EXPECT_LT(program.slowed(), budget * 1.25) << budget;
    EXPECT_GT(program.slowed(), budget * 0.1) << "and what the budget allows is recorded";
    EXPECT_LE(program.plan().spent_frac(program.now()), budget * 1.1);
    EXPECT_GE(program.seen("prefill").whole, 5);
  }
}

TEST(Windows, TheCostIsMeasuredWhileItRuns) {
  Played::Costs costs;
  costs.recorded = 0.4;
  Played program(costs);
  for (int i = 0; i < 3000; ++i) program.range("decode", 20 * kMs);
  ASSERT_TRUE(program.plan().measured());
  EXPECT_NEAR(program.plan().cost(), 0.4, 0.02);
}

TEST(Windows, WhatCountersCostIsKnownFromStepsWithAndWithout) {
  const auto keys = std::make_unique<StepKeys>();
  StepKey* const key = keys->find(KeyKind::kRange, 5);
  int64_t now = kS;
  for (int round = 0; round < 4; ++round) {
    const bool counted = round % 2 == 0;
    const int64_t since = counted ? now : -now;
    for (int i = 0; i < 12; ++i) {
      const int64_t begin = now;
      keys->begins(*key, begin);
      now += (counted ? 13 : 10) * kMs + i % 3 * 50'000;
      keys->ends(*key, begin, now, {0, 1, since, 0});
    }
  }
  const StepKeys::CountersCost cost = keys->counters_cost();
  EXPECT_GE(cost.with, 16U);
  EXPECT_GE(cost.without, 16U);
  EXPECT_NEAR(cost.cost, 0.3, 0.02);
  EXPECT_GE(cost.error, 0);
  EXPECT_LT(cost.error, 0.02);
}

TEST(Windows, GraphProgramsChangeAtTheEndsOfSteps) {
  Played::Costs costs;
  costs.attach_ns = 0;
  costs.recorded = 0.006;
  Played program(costs);
  for (int i = 0; i < 4000; ++i) program.range("decode", 8 * kMs);
  EXPECT_GE(program.windows(), 3);
  // At most a fifth, the first window aside, however little it costs.
  EXPECT_LT(program.recorded_ns(), 2 * kS + (program.now() - 1000 * kS) / 4);
}

// One range holds the whole answer, so its end is no place that could be waited for.
TEST(Windows, ARangeAroundAllTokensHoldsNothingOpen) {
  Played program;
  program.range("prompt", 20 * kMs);
  program.around("answer", [&] {
    for (int i = 0; i < 400; ++i) program.step("token", [&] { program.event(KeyKind::kRecurring, 1, 3'500'000); });
  });
  EXPECT_GE(program.seen("token").whole, 20);
  EXPECT_LE(program.seen("token").whole, 100);
  EXPECT_GE(program.seen("token").alone, 250);
}

TEST(Windows, AStageThatWasNeverSeenIsRecordedWhenItComes) {
  Played program({.attach_ns = 0});
  for (int i = 0; i < 110; ++i) program.range("decode", 20 * kMs);
  ASSERT_FALSE(program.records());
  program.range("evaluate", 100 * kMs);
  EXPECT_EQ(program.seen("evaluate").whole, 1);
}

TEST(Windows, APauseOfThePlanIsPartOfNoWindow) {
  WindowPlan plan;
  plan.started(kS);
  StepKeys::Summary steps;
  steps.satisfied = 1;
  EXPECT_TRUE(plan.decide(kS + 500 * kMs, steps, WindowPlan::Place::kAnywhere, true));
  plan.paused(100 * kS);
  EXPECT_TRUE(plan.decide(101 * kS + 900 * kMs, steps, WindowPlan::Place::kAnywhere, true));
  EXPECT_FALSE(plan.decide(102 * kS + 100 * kMs, steps, WindowPlan::Place::kAnywhere, true));
}

}  // namespace
}  // namespace llmprof::inject
