#include <gtest/gtest.h>

#include "derive/step_names.h"
#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

// ---- names ---------------------------------------------------------------------------------------------------------

TEST(StepNames, VllmOldForm) {
  const std::optional<StepName> step = parse_step_name("execute_context_9(8192)_generation_37(37)");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->kind, StageKind::kMixed);
  EXPECT_TRUE(step->one_step);
  EXPECT_EQ(step->new_tokens, 8229);
  EXPECT_EQ(step->context_tokens, 8192);
  EXPECT_EQ(step->sequences, 46);
  EXPECT_EQ(step->context, -1);        // the sum over 46 sequences says nothing of the longest
  EXPECT_EQ(step->output_tokens, -1);  // which prompts end here is not in the name
  EXPECT_EQ(step->stage, "mixed");
}

TEST(StepNames, VllmNewForm) {
  const std::optional<StepName> step = parse_step_name(
      "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->kind, StageKind::kMixed);
  EXPECT_EQ(step->new_tokens, 8192);
  EXPECT_EQ(step->sequences, 46);
  const std::optional<StepName> one =
      parse_step_name("execute_512_context_1(sq512sk2048sqsq262144sqsk1048576)_generation_0(sq0sk0sqsq0sqsk0)");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->kind, StageKind::kPrefill);
  EXPECT_EQ(one->context, 2048);
}

TEST(StepNames, VllmPureSteps) {
  const std::optional<StepName> decode = parse_step_name("execute_context_0(0)_generation_37(37)");
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->kind, StageKind::kDecode);
  EXPECT_EQ(decode->output_tokens, 37);
  const std::optional<StepName> speculative = parse_step_name("execute_context_0(0)_generation_4(20)");
  ASSERT_TRUE(speculative);
  EXPECT_EQ(speculative->new_tokens, 20);
  EXPECT_EQ(speculative->output_tokens, -1);
  const std::optional<StepName> idle = parse_step_name("execute_context_0(0)_generation_0(0)");
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->kind, StageKind::kOther);
  // Damaged texts are judged by their words.
  EXPECT_FALSE(parse_server_step("execute_context_9(8192)_generation_37(37"));
  EXPECT_FALSE(parse_server_step("execute_context_9(-1)_generation_37(37)"));
  EXPECT_FALSE(parse_server_step("execute_context_99999999999999999999(1)_generation_1(1)"));
}

TEST(StepNames, Sglang) {
  const std::optional<StepName> extend = parse_step_name("step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]");
  ASSERT_TRUE(extend);
  EXPECT_EQ(extend->kind, StageKind::kPrefill);
  EXPECT_EQ(extend->new_tokens, 12);
  EXPECT_EQ(extend->sequences, 2);
  EXPECT_EQ(extend->context, -1);
  const std::optional<StepName> decode = parse_step_name("step[DECODE bs=1 g_sqsq=1 g_sqsk=30 g_sk=30]");
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->kind, StageKind::kDecode);
  EXPECT_EQ(decode->new_tokens, 1);
  EXPECT_EQ(decode->context, 30);
  EXPECT_EQ(decode->output_tokens, 1);
  const std::optional<StepName> mixed =
      parse_step_name("step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]");
  ASSERT_TRUE(mixed);
  EXPECT_EQ(mixed->kind, StageKind::kMixed);
  EXPECT_EQ(mixed->new_tokens, 6);
  const std::optional<StepName> all_context = parse_step_name("step[MIXED bs=1 c=1 g=0 c_sq=3 c_sk=3 g_sq=0 g_sk=0]");
  ASSERT_TRUE(all_context);
  EXPECT_EQ(all_context->kind, StageKind::kPrefill);
  EXPECT_EQ(parse_step_name("step[MIXED bs=7]")->kind, StageKind::kMixed);
  const std::optional<StepName> verify = parse_step_name("step[TARGET_VERIFY bs=4]");
  ASSERT_TRUE(verify);
  EXPECT_EQ(verify->kind, StageKind::kOther);
  EXPECT_EQ(verify->stage, "target_verify");
  EXPECT_EQ(verify->sequences, 4);
  EXPECT_FALSE(parse_server_step("step[3] of the recipe"));
}

TEST(StepNames, OtherServers) {
  EXPECT_EQ(parse_step_name("prefill[bs=2 tok=16384]")->new_tokens, 16384);
  EXPECT_EQ(parse_step_name("decode[bs=64]")->sequences, 64);
  const std::optional<StepName> tensorrt =
      parse_step_name("[Executor] _forward_step 12: 3 ctx reqs, 512 ctx tokens, 5 gen reqs");
  ASSERT_TRUE(tensorrt);
  EXPECT_EQ(tensorrt->kind, StageKind::kMixed);
  EXPECT_EQ(tensorrt->sequences, 8);
  EXPECT_EQ(parse_step_name("executeStep: 0 ctx reqs, 64 gen reqs")->kind, StageKind::kDecode);
}

TEST(StepNames, Words) {
  EXPECT_EQ(stage_kind_of("tokenize"), StageKind::kVision) << "prepares a prompt";
  EXPECT_EQ(stage_kind_of("detokenize"), StageKind::kOther);
  EXPECT_EQ(stage_kind_of("tokenizer.decode"), StageKind::kOther);
  const auto kind = [](std::string_view text) {
    const std::optional<StepName> step = parse_step_name(text);
    return step ? static_cast<int>(step->kind) : -1;
  };
  for (const char* text : {"prefill", "Prefill #3", "prefilling", "first token", "context phase", "EXTEND"}) {
    EXPECT_EQ(kind(text), static_cast<int>(StageKind::kPrefill)) << text;
  }
  for (const char* text : {"decode", "Decode_Step 7", "decoding", "generation", "token_step_3"}) {
    EXPECT_EQ(kind(text), static_cast<int>(StageKind::kDecode)) << text;
  }
  for (const char* text : {"vision tower", "encode_image", "ViT", "preprocess", "decode image"}) {
    EXPECT_EQ(kind(text), static_cast<int>(StageKind::kVision)) << text;
  }
  EXPECT_EQ(kind("mixed batch"), static_cast<int>(StageKind::kMixed));
  for (const char* text :
       {"LlamaDecoderLayer", "decoder_layer.3", "activity", "dispatch", "ProfilerStep#2", "Optimizer.step#AdamW.step",
        "nccl:all_reduce", "gpu_model_runner: preprocess", "forward", "mixed precision", "extended", ""}) {
    EXPECT_EQ(kind(text), -1) << text;
  }
  EXPECT_EQ(parse_step_name("decode_step #17")->stage, "decode_step");
  for (const char* text : {"decode_step #17", "step 3: decode", "token step", "prefill step 2"})
    EXPECT_TRUE(parse_step_name(text)->says_step) << text;
  for (const char* text : {"decode_steps", "is there more context for the step from 2019"})
    EXPECT_FALSE(parse_step_name(text)->says_step) << text;
}

TEST(StepNames, Rules) {
  const Result<StageRule> rule = parse_stage_rule("decode=one_.*token");
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->name, "decode");
  EXPECT_EQ(rule->regex, "one_.*token");
  EXPECT_FALSE(parse_stage_rule("decode"));
  EXPECT_FALSE(parse_stage_rule("=x"));
  EXPECT_FALSE(parse_stage_rule("decode="));
  const Result<StageRule> broken = parse_stage_rule("decode=(unclosed");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().what.find("(unclosed"), std::string::npos);
}

// ---- annotated steps -----------------------------------------------------------------------------------------------

TEST(Steps, AnnotationsAndWindows) {
  TestTrace b;
  b.annotation("prefill", 100, 400);
  b.launch("gemm", 150, 200, 250);
  b.api("cudaDeviceSynchronize", 200, 280);  // until 480
  b.annotation("decode", 520, 180);
  b.launch("gemm", 550, 560, 100);
  b.api("cudaDeviceSynchronize", 570, 110);  // until 680
  b.annotation("decode", 720, 180);
  b.launch("gemm", 750, 760, 100);
  b.api("cudaDeviceSynchronize", 770, 110);  // until 880
  b.annotation("prefill", 150, 300, AnnotationKind::kGpuUser);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 3U);
  EXPECT_EQ(broken_invariant(trace), "");
  EXPECT_EQ(trace.steps.kind[0], StageKind::kPrefill);
  EXPECT_EQ(trace.steps.source[0], StageSource::kAnnotation);
  EXPECT_EQ(trace.steps.start_ns[0], 100);  // first host activity
  EXPECT_EQ(trace.steps.end_ns[0], 480);    // end of the wait
  EXPECT_EQ(trace.steps.sync_ns[0], 480);
  EXPECT_EQ(trace.steps.start_ns[1], 480);  // token to token
  EXPECT_EQ(trace.steps.end_ns[1], 680);
  EXPECT_EQ(trace.steps.host_start_ns[1], 520);
  EXPECT_EQ(trace.steps.gpu_start_ns[1], 560);
  EXPECT_EQ(trace.steps.gpu_end_ns[1], 660);
  EXPECT_EQ(trace.steps.end_ns[2], 880);
  EXPECT_EQ(trace.windows[0].start_ns, 100);
  EXPECT_EQ(trace.windows[0].end_ns, 880);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownStage), 0U);
  EXPECT_DOUBLE_EQ(step_coverage_frac(trace, 0), 1.0);
}

TEST(Steps, InnermostWins) {
  TestTrace b;
  b.annotation("decode", 0, 1000);
  b.annotation("decode_step", 10, 200);
  b.launch("gemm", 20, 30, 50);
  b.annotation("decode_step", 300, 200);
  b.launch("gemm", 310, 320, 50);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.text(trace.steps.stage[0]), "decode_step");
  EXPECT_EQ(trace.steps.annotation[0], 1U);
}

TEST(Steps, VisionInsidePrefillLeavesThePrefill) {
  TestTrace b;
  b.annotation("prefill", 0, 1000);
  b.annotation("vision encoder", 50, 300);
  b.launch("conv", 60, 70, 50);
  b.launch("gemm", 400, 410, 200);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps.kind[0], StageKind::kVision);
  EXPECT_EQ(trace.steps.kind[1], StageKind::kPrefill);
  EXPECT_EQ(trace.gpu_links.step[1], 1U);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Steps, UserRuleComesFirst) {
  TestTrace b;
  b.annotation("My_Forward", 0, 100);
  b.launch("gemm", 10, 20, 50);
  b.annotation("decode", 200, 100);
  b.launch("gemm", 210, 220, 50);
  DeriveOptions options;
  options.stage_rules.push_back({"prefill", "my_.*"});
  options.stage_rules.push_back({"draft", "^decode$"});
  Trace& trace = b.derive_all(options);
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps.kind[0], StageKind::kPrefill);
  EXPECT_EQ(trace.text(trace.steps.stage[0]), "prefill");
  EXPECT_EQ(trace.steps.kind[1], StageKind::kOther);
  EXPECT_EQ(trace.text(trace.steps.stage[1]), "draft");
  options.stage_rules[0].regex = "([";
  EXPECT_FALSE(find_steps(trace, options));
}

TEST(Steps, NvtxAndServerCounts) {
  TestTrace b;
  b.annotation("execute_context_1(512)_generation_3(3)", 0, 100, AnnotationKind::kNvtx);
  b.launch("gemm", 10, 20, 50);
  b.launch("argmax", 120, 130, 5);  // sampling, after the range
  b.api("cudaStreamSynchronize", 140, 20);
  b.launch("elsewhere", 170, 180, 5);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.steps.source[0], StageSource::kNvtx);
  EXPECT_EQ(trace.steps.kind[0], StageKind::kMixed);
  EXPECT_EQ(trace.steps.new_tokens[0], 515);
  EXPECT_EQ(trace.steps.sequences[0], 4);
  EXPECT_EQ(trace.gpu_links.step[1], 0U);
  EXPECT_EQ(trace.gpu_links.step[2], kNoRow);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownStage), 1U);
}

TEST(Steps, LaunchTimeDecidesNotExecution) {
  TestTrace b;
  b.annotation("decode", 0, 100);
  b.launch("gemm", 50, 60, 10);
  b.launch("late", 90, 400, 10);  // runs during the next step
  b.annotation("decode", 100, 100);
  b.launch("gemm", 150, 410, 10);
  Trace& trace = b.derive_all();
  EXPECT_EQ(trace.gpu_links.step[0], 0U);
  EXPECT_EQ(trace.gpu_links.step[1], 0U);
  EXPECT_EQ(trace.gpu_links.step[2], 1U);
  EXPECT_EQ(trace.steps.end_ns[0], 410);
  EXPECT_EQ(trace.steps.start_ns[1], 410);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Steps, HelperThreadBelongsToTheStepRunningThen) {
  TestTrace b;
  const Row helper = b.thread();
  b.annotation("decode", 0, 100);
  b.launch("gemm", 50, 60, 10);
  b.gpu("copy", 75, 10, b.api("cudaLaunchKernel", 70, 5, 0, helper));
  Trace& trace = b.derive_all();
  EXPECT_EQ(trace.gpu_links.step[1], 0U);
}

TEST(Steps, RangesWithoutActivityAreNoSteps) {
  TestTrace b;
  b.annotation("decode", 0, 100);
  b.annotation("decode", 200, 100);
  b.launch("gemm", 250, 260, 10);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.steps.annotation[0], 1U);
}

// The end of a cut file is no end of a step: its time would be taken for that of a fast one.
TEST(Steps, TheLastStepOfACutFileIsNotTimed) {
  for (const bool cut : {false, true}) {
    TestTrace b;
    for (int64_t begin = 0; begin < 3'000; begin += 1'000) {
      b.annotation("decode", begin, 900);
      b.launch("gemm", begin + 10, begin + 20, 100);
      if (begin < 2'000) b.launch("gemm", begin + 700, begin + 710, 100);
    }
    if (cut) b.trace.diagnostics.add(DiagnosticId::kTruncatedFile, "byte 1");
    Trace& trace = b.derive_all();
    ASSERT_EQ(trace.steps.size(), 3U);
    EXPECT_NE(trace.steps.state[1], StepState::kWindowEdge);
    EXPECT_EQ(trace.steps.state[2] == StepState::kWindowEdge, cut);
    EXPECT_EQ(broken_invariant(trace), "");
  }
}

TEST(Steps, LongPauseBelongsToNoStep) {
  constexpr int64_t ms = 1'000'000;
  TestTrace b;
  int64_t time = 0;
  for (int i = 0; i < 5; ++i) {
    if (i == 3) time += 500 * ms;
    b.annotation("decode", time, 9 * ms);
    b.launch("gemm", time + ms, time + 2 * ms, 6 * ms);
    b.api("cudaDeviceSynchronize", time + 3 * ms, 5 * ms + 10);
    time += 10 * ms;
  }
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 5U);
  EXPECT_EQ(trace.steps.start_ns[2], trace.steps.end_ns[1]);
  EXPECT_EQ(trace.steps.start_ns[3], 530 * ms);
  EXPECT_EQ(trace.steps.start_ns[4], trace.steps.end_ns[3]);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Steps, EachDeviceHasItsOwn) {
  TestTrace b;
  const Row other = b.stream(1, 7);
  b.annotation("decode", 0, 100);
  b.launch("gemm", 10, 20, 50);
  b.gpu("gemm", 35, 70, b.api("cudaLaunchKernel", 30, 5), other);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_NE(trace.steps.device[0], trace.steps.device[1]);
  EXPECT_NE(trace.gpu_links.step[0], trace.gpu_links.step[1]);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Steps, TrainingIsRecognised) {
  TestTrace plain;
  plain.op("aten::mm", 0, 10);
  EXPECT_FALSE(looks_like_training(plain.build()));
  TestTrace backward;
  backward.op("autograd::engine::evaluate_function: MmBackward0", 0, 10);
  EXPECT_TRUE(looks_like_training(backward.build()));
  TestTrace kernel;
  kernel.op("aten::_flash_attention_backward", 0, 10);
  EXPECT_TRUE(looks_like_training(kernel.build()));
  TestTrace optimizer;
  optimizer.annotation("Optimizer.step#AdamW.step", 0, 10);
  optimizer.annotation("Optimizer.step#AdamW.step", 20, 10, AnnotationKind::kGpuUser);  // the same, on the GPU
  optimizer.annotation("Optimizer.zero_grad#AdamW.zero_grad", 40, 10);
  const TrainingEvidence evidence = training_evidence(optimizer.build());
  EXPECT_EQ(evidence.optimizer_steps, 1U);
  EXPECT_EQ(evidence.first_name, "Optimizer.step#AdamW.step");
}

}  // namespace
}  // namespace llmprof
