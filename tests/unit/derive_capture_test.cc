// Live recordings: library calls give kernels their shapes, levels say what was recorded when, steps without operators.
#include <gtest/gtest.h>

#include "derive/launch_order.h"
#include "derive/recorded_spans.h"
#include "derive/step_kinds.h"
#include "derive/steps.h"
#include "derive/whole_graphs.h"
#include "derive_named_request.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

const WorkId* work_of(const Trace& trace, std::string_view kernel, size_t nth = 0) {
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    if (trace.text(trace.gpu_ops.name[g]) != kernel) continue;
    if (nth-- == 0) return &trace.gpu_links.work[g];
  }
  return nullptr;
}

TEST(LibraryWork, TheKernelOfTheCallCarriesItAndItsPartsAreLinked) {
  TestTrace b;
  b.library_call(0, 100, 4, 4096, 1024);
  b.launch("gemm_main", 10, 1000, 50);
  b.launch("splitKreduce_kernel", 20, 1100, 500);  // longer, but only a part of it
  b.launch("copy", 150, 1700, 10);                 // after the call
  const Trace& trace = b.build();
  ASSERT_NE(*work_of(trace, "gemm_main"), kNoRow);
  EXPECT_EQ(*work_of(trace, "splitKreduce_kernel"), kNoRow);
  EXPECT_EQ(*work_of(trace, "copy"), kNoRow);
  EXPECT_EQ(trace.gpu_links.library_call, (std::vector<LibraryCallId>{0, 0, kNoRow}));
  const Row work = *work_of(trace, "gemm_main");
  EXPECT_EQ(trace.works.flops[work], 2.0 * 4 * 4096 * 1024);
  EXPECT_EQ(trace.works.weight_bytes[work], 2.0 * 4096 * 1024);
  EXPECT_EQ(trace.works.bytes[work], 2.0 * (4096 * 1024 + 4 * 1024 + 4 * 4096));
  EXPECT_EQ(trace.text(trace.works.shape[work]), "M4 N4096 K1024");
}

TEST(LibraryWork, BatchedProductsHaveNoWeightsAndAnotherThreadIsNotMeant) {
  TestTrace b;
  const Row other = b.thread();
  b.library_call(0, 100, 16, 128, 64, 8);
  b.library_call(0, 100, 1, 1, 1, 1, DType::kBf16, other);
  b.launch("gemm_a", 10, 1000, 50);
  const Trace& trace = b.build();
  EXPECT_EQ(trace.works.weight_bytes[*work_of(trace, "gemm_a")], 0);
  EXPECT_EQ(trace.works.flops[*work_of(trace, "gemm_a")], 2.0 * 8 * 16 * 128 * 64);
}

TEST(LibraryWork, OfNestedCallsTheInnermostCounts) {
  TestTrace b;
  b.library_call(0, 200, 1, 10, 10);
  b.library_call(50, 50, 2, 20, 20);
  b.launch("gemm_inner", 60, 1000, 50);
  b.launch("gemm_outer", 120, 1100, 50);
  const Trace& trace = b.build();
  EXPECT_EQ(trace.works.m[*work_of(trace, "gemm_inner")], 2);
  EXPECT_EQ(trace.works.m[*work_of(trace, "gemm_outer")], 1);
}

TEST(LibraryWork, UnknownSizesGiveNothing) {
  TestTrace b;
  b.library_call(0, 100, -1, 4096, 1024);
  b.launch("gemm_main", 10, 1000, 50);
  const Trace& trace = b.build();
  EXPECT_EQ(*work_of(trace, "gemm_main"), kNoRow);
  EXPECT_EQ(trace.gpu_links.library_call[0], 0U);
}

// Attention of 2 sequences, 32 heads over 8, through a library call; sizes as given.
Row attention_call(TestTrace& b, int64_t m, int64_t n, int64_t k, int32_t value_size, AttentionMask mask) {
  const Row call = b.library_call(0, 100, m, n, k, 2);
  b.trace.library_calls.kind[call] = WorkKind::kAttention;
  b.trace.library_calls.heads[call] = 32;
  b.trace.library_calls.kv_heads[call] = 8;
  b.trace.library_calls.value_size[call] = value_size;
  b.trace.library_calls.mask[call] = mask;
  return call;
}

struct AttentionCase {
  int64_t queries, keys;
  AttentionMask mask;
  double pairs, keys_read;
  const char* shape;
};

TEST(LibraryWork, AttentionCountsThePairsThatItsMaskKeeps) {
  const AttentionCase cases[] = {
      {128, 128, AttentionMask::kNone, 128 * 128, 128, "B2 H32/8 Q128 KV128 D64"},
      {128, 128, AttentionMask::kCausal, 128 * 129 / 2, 128, "B2 H32/8 Q128 KV128 D64 causal"},
      {1, 513, AttentionMask::kNone, 513, 513, "B2 H32/8 Q1 KV513 D64"},
      {4, 6, AttentionMask::kCausal, 1 + 2 + 3 + 4, 4,
       "B2 H32/8 Q4 KV6 D64 causal"},  // the last two keys are never seen
      {6, 4, AttentionMask::kCausal, 1 + 2 + 3 + 4 * 3, 4,
       "B2 H32/8 Q6 KV4 D64 causal"},                                                  // the last three queries see all
      {128, 128, AttentionMask::kUnknown, 128 * 128, 128, "B2 H32/8 Q128 KV128 D64"},  // not known: an upper bound
  };
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.shape);
    TestTrace b;
    attention_call(b, c.queries, c.keys, 64, 96, c.mask);
    b.launch("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", 10, 1000, 50);
    b.launch("void cudnn::fusion::lean_reduction_kernel<false>", 20, 1100, 500);
    const Trace& trace = b.build();
    EXPECT_EQ(trace.gpu_links.work[1], kNoRow);
    const Row work = trace.gpu_links.work[0];
    ASSERT_NE(work, kNoRow);
    EXPECT_EQ(trace.works.kind[work], WorkKind::kAttention);
    EXPECT_EQ(trace.text(trace.works.shape[work]), c.shape);
    EXPECT_EQ(trace.works.flops[work], 2 * 2 * 32 * (64 + 96) * c.pairs);
    EXPECT_EQ(trace.works.flops_full[work], 2.0 * 2 * 32 * (64 + 96) * static_cast<double>(c.queries * c.keys));
    EXPECT_EQ(trace.works.kv_bytes[work], 2.0 * 2 * 8 * c.keys_read * (64 + 96));
    EXPECT_EQ(trace.works.bytes[work],
              trace.works.kv_bytes[work] + 2.0 * 2 * 32 * static_cast<double>(c.queries) * (64 + 96));
  }
}

TEST(LibraryWork, AttentionOfUnknownLengthsGivesNothing) {
  struct Case {
    int64_t m, n, k;
    int32_t value_size;
  };
  for (const Case& c :
       {Case{-1, -1, 64, 64}, {4, -1, 64, 64}, {4, 6, 64, 0}, {4, 6, INT64_MAX, 64}, {4, 6, -64, 128}}) {
    TestTrace b;
    attention_call(b, c.m, c.n, c.k, c.value_size, AttentionMask::kNone);
    b.launch("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", 10, 1000, 50);
    const Trace& trace = b.build();
    EXPECT_EQ(trace.gpu_links.work[0], kNoRow);
    EXPECT_EQ(trace.gpu_links.library_call[0], 0U);
  }
}

TEST(LibraryWork, AnOperatorThatTellsWins) {
  TestTrace b;
  const uint64_t mm = b.op("aten::mm", 0, 200, "[[4, 8], [8, 16]]");
  for (DType& dtype : b.trace.inputs.dtype) dtype = DType::kBf16;
  b.library_call(20, 100, 999, 999, 999);
  b.launch("gemm_main", 30, 1000, 50, mm);
  b.launch("splitKreduce_kernel", 40, 1100, 50, mm);
  const Trace& trace = b.build();
  ASSERT_NE(*work_of(trace, "gemm_main"), kNoRow);
  EXPECT_EQ(trace.works.m[*work_of(trace, "gemm_main")], 4);
  EXPECT_EQ(*work_of(trace, "splitKreduce_kernel"), kNoRow);
  EXPECT_EQ(trace.works.size(), 1U);
}

TEST(LibraryWork, AnOperatorWithoutShapesLeavesItToTheCall) {
  TestTrace b;
  const uint64_t mm = b.op("aten::mm", 0, 200);
  b.library_call(20, 100, 4, 16, 8);
  b.launch("gemm_main", 30, 1000, 50, mm);
  const Trace& trace = b.build();
  ASSERT_NE(*work_of(trace, "gemm_main"), kNoRow);
  EXPECT_EQ(trace.works.n[*work_of(trace, "gemm_main")], 16);
}

TEST(LibraryWork, EveryReplayOfAGraphCarriesTheShapesOfItsCapture) {
  TestTrace b;
  const Row call = b.library_call(0, 100, 1, 4096, 4096);  // at capture: launched nothing that ran
  b.graph_node(501, call);
  b.graph_node(502, call);
  for (int64_t replay = 0; replay < 3; ++replay) {
    const uint64_t launch = b.api("cudaGraphLaunch", 1000 + replay * 1000, 10);
    b.node_kernel("gemm_node", 1100 + replay * 1000, 100, launch, 501);
    b.node_kernel("splitKreduce_kernel", 1300 + replay * 1000, 20, launch, 502);
    b.node_kernel("other", 1400 + replay * 1000, 20, launch, 503);
  }
  const Trace& trace = b.build();
  double flops = 0;
  for (const Row work : trace.gpu_links.work) flops += work == kNoRow ? 0 : trace.works.flops[work];
  EXPECT_EQ(flops, 3 * 2.0 * 4096 * 4096);
  for (size_t replay = 0; replay < 3; ++replay) EXPECT_NE(*work_of(trace, "gemm_node", replay), kNoRow);
  EXPECT_EQ(*work_of(trace, "splitKreduce_kernel"), kNoRow);
  EXPECT_EQ(*work_of(trace, "other"), kNoRow);
}

TEST(WholeGraphs, BecomeGpuTimeOnceAndInOrder) {
  TestTrace b;
  b.gpu("first", 100, 50, b.api("cudaLaunchKernel", 10, 5));
  b.graph_launch(200, 1000, b.api("cudaGraphLaunch", 20, 5));
  b.gpu("last", 1300, 50, b.api("cudaLaunchKernel", 30, 5));
  const uint64_t nodes = b.api("cudaGraphLaunch", 40, 5);
  b.node_kernel("node", 1400, 50, nodes, 7);
  b.graph_launch(1400, 60, nodes);  // its nodes are known
  Trace& trace = b.build();
  find_busy(trace);
  ASSERT_EQ(trace.gpu_ops.size(), 4U);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[1]), kWholeGraphName);
  EXPECT_EQ(trace.gpu_links.api[1], 1U);
  EXPECT_TRUE(trace.graph_launches.empty());
  int64_t busy = 0;
  for (Row i = 0; i < trace.busy_intervals.size(); ++i) {
    busy += trace.busy_intervals.end_ns[i] - trace.busy_intervals.start_ns[i];
  }
  EXPECT_EQ(busy, 50 + 1000 + 50 + 50);
  fold_whole_graphs(trace);
  EXPECT_EQ(trace.gpu_ops.size(), 4U);
}

// A server that names its decode steps and not the prompts between them. Where kernels are not recorded its prompts are
// not seen, but its products are: the step behind one begins with its own range, and does not last as long as both.
TEST(LiveSteps, AnUnseenStepDoesNotHoldOneThatTheProgramDoesNotName) {
  for (const bool prompts : {true, false}) {
    TestTrace b;
    const int64_t step = kMs, between = 4 * kMs;
    int64_t at = 0, dark_from = 0;
    for (int i = 0; i < 16; ++i) {
      const bool dark = i >= 8;
      if (i == 8) dark_from = at - 5 * kUs;
      b.annotation("decode_step", at, step - 10 * kUs, AnnotationKind::kNvtx);
      if (!dark) {
        b.launch("gemm_layer", at + 10 * kUs, at + 30 * kUs, 800 * kUs);
        b.api("cudaStreamSynchronize", at + 50 * kUs, step - 80 * kUs);
      }
      b.recurring_call(at + 10 * kUs, 7);
      at += step;
      if (dark && prompts) b.recurring_call(at + kMs, 8);
      if (dark) at += between;
    }
    b.level(-kMs, dark_from, RecordingLevel::kDefault);
    b.level(dark_from, at + kMs, RecordingLevel::kLight);
    const Trace& trace = b.derive_all();
    EXPECT_EQ(broken_invariant(trace), "");
    ASSERT_EQ(trace.steps.size(), 16U);
    const int64_t length = trace.steps.end_ns[12] - trace.steps.start_ns[12];
    EXPECT_EQ(length, prompts ? step - 10 * kUs : step + between) << "without a product in it, that time is the host's";
  }
}

// A decode loop with an NVTX range and a wait per step; steps in [dark_from, dark_to) are not recorded.
TestTrace annotated_loop(int steps, int dark_from, int dark_to, int64_t recorded_step = 1000 * kUs) {
  TestTrace b;
  const int64_t dark_step = 900 * kUs;
  int64_t at = 0, dark_start = -1, dark_end = -1;
  b.annotation("decode", 0, int64_t{100} * kMs, AnnotationKind::kNvtx);
  for (int i = 0; i < steps; ++i) {
    const bool dark = i >= dark_from && i < dark_to;
    const int64_t length = dark ? dark_step : recorded_step;
    b.annotation("decode_step", at, length - 10 * kUs, AnnotationKind::kNvtx);
    if (i == dark_from) dark_start = at - 5 * kUs;
    if (i == dark_to) dark_end = at - 5 * kUs;
    if (!dark) {
      b.library_call(at + 5 * kUs, 10 * kUs, 1, 4096, 4096);
      b.launch("gemm_layer", at + 10 * kUs, at + 30 * kUs, 300 * kUs);
      b.library_call(at + 25 * kUs, 10 * kUs, 1, 32000, 4096);
      b.launch("gemm_head", at + 30 * kUs, at + 400 * kUs, 500 * kUs);
      b.api("cudaStreamSynchronize", at + 50 * kUs, length - 80 * kUs);
    }
    at += length;
  }
  if (dark_start >= 0) {
    b.level(-kMs, dark_start, RecordingLevel::kDefault);
    b.level(dark_start, dark_end >= 0 ? dark_end : at, RecordingLevel::kLight);
    if (dark_end >= 0) b.level(dark_end, at + kMs, RecordingLevel::kDefault);
  } else {
    b.level(-kMs, at + kMs, RecordingLevel::kDefault);
  }
  return b;
}

TEST(LiveSteps, InnerNvtxRangesAreTheSteps) {
  TestTrace b = annotated_loop(4, -1, -1);
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 4U);
  for (Row s = 0; s < 4; ++s) {
    EXPECT_EQ(trace.text(trace.steps.stage[s]), "decode_step");
    EXPECT_EQ(trace.steps.source[s], StageSource::kNvtx);
    EXPECT_EQ(trace.steps.kind[s], StageKind::kDecode);
    EXPECT_EQ(trace.steps.new_tokens[s], 1);
    EXPECT_EQ(trace.steps.sequences[s], 1);
    EXPECT_EQ(trace.steps.output_tokens[s], 1);
    EXPECT_EQ(trace.steps.missing[s], MissingKernels::kNone);
    EXPECT_EQ(trace.steps.context[s], -1) << "no prompt lies in the recording";
  }
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(LiveSteps, UnrecordedTimeIsNotIdleAndItsStepsStandApart) {
  TestTrace b = annotated_loop(12, 4, 8);
  const Trace& trace = b.derive_all();
  EXPECT_EQ(broken_invariant(trace), "");
  size_t complete = 0, missing = 0, edge = 0;
  for (Row s = 0; s < trace.steps.size(); ++s) {
    const std::string_view name = trace.text(trace.steps.stage[s]);
    if (trace.steps.missing[s] == MissingKernels::kNone) {
      EXPECT_EQ(name, "decode_step");
      ++complete;
    } else {
      const bool at_edge = trace.steps.state[s] == StepState::kWindowEdge;
      edge += at_edge;
      if (!at_edge) {
        EXPECT_EQ(trace.steps.state[s], StepState::kNotRecorded);
      }
      EXPECT_EQ(name, "decode_step");
      EXPECT_EQ(trace.steps.new_tokens[s], 1) << "as every complete step of the stage";
      ++missing;
    }
  }
  EXPECT_EQ(complete + missing, 12U);
  EXPECT_GE(missing, 4U);
  EXPECT_LE(missing, 6U) << "a step at either edge may touch the window";
  EXPECT_GE(edge, 1U);
  EXPECT_LE(edge, 2U);
  const RecordedSpans recorded(trace);
  ASSERT_EQ(recorded.unrecorded(0).size(), 1U);
  const TimeSpan dark = recorded.unrecorded(0)[0];
  for (Row g = 0; g < trace.gaps.size(); ++g) {
    const bool inside = trace.gaps.start_ns[g] >= dark.start_ns && trace.gaps.start_ns[g] < dark.end_ns;
    EXPECT_EQ(trace.gaps.cause[g] == IdleCause::kNotRecorded, inside);
    if (inside) {
      EXPECT_LE(trace.gaps.start_ns[g] + trace.gaps.dur_ns[g], dark.end_ns);
    }
  }
}

// CUPTI's coming and going holds a step up by a hundred milliseconds, whether the step is recorded or not.
TEST(LiveSteps, WhatTheRecorderHeldUpIsAWindowEdge) {
  TestTrace b = annotated_loop(12, 4, 8);
  const auto state_at = [](const Trace& trace, int64_t time_ns) {
    for (Row s = 0; s < trace.steps.size(); ++s)
      if (trace.steps.host_start_ns[s] <= time_ns && time_ns < trace.steps.end_ns[s]) return trace.steps.state[s];
    return StepState::kWholeGraphs;
  };
  const int64_t unrecorded = 6000 * kUs, recorded = 10'000 * kUs;
  b.level(unrecorded, unrecorded + 100 * kUs, RecordingLevel::kLight, 1, "detaching");
  b.level(recorded, recorded + 100 * kUs, RecordingLevel::kDefault, 1, "attaching");
  const Trace& trace = b.derive_all();
  EXPECT_EQ(state_at(trace, 2500 * kUs), StepState::kUsual);
  EXPECT_EQ(state_at(trace, unrecorded), StepState::kWindowEdge) << "CUPTI left in it";
  EXPECT_EQ(state_at(trace, recorded), StepState::kWindowEdge) << "it made the first call after an attaching";
  for (Row s = 0; s < trace.steps.size(); ++s)
    EXPECT_EQ(trace.steps.state[s] == StepState::kUsual, trace.steps.missing[s] == MissingKernels::kNone)
        << "no finding may be about it";
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(LiveSteps, AStepThatGoesOnWhereNothingIsRecordedIsNotComplete) {
  TestTrace b;
  for (int64_t i = 0; i < 6; ++i) {
    b.annotation("prefill", i * 10 * kMs, 9 * kMs, AnnotationKind::kNvtx);
    // Of the fourth, the second half ran into the window without kernels and is lost.
    b.launch("gemm_layer", i * 10 * kMs + 10 * kUs, i * 10 * kMs + 20 * kUs, 4 * kMs);
    if (i < 3) b.launch("gemm_layer", i * 10 * kMs + 30 * kUs, (i * 10 + 5) * kMs, 3 * kMs);
    if (i < 3) b.api("cudaStreamSynchronize", i * 10 * kMs + 50 * kUs, 8 * kMs);
    if (i == 3) break;
  }
  b.annotation("prefill", 40 * kMs, 9 * kMs, AnnotationKind::kNvtx);
  b.level(-kMs, 35 * kMs, RecordingLevel::kDefault);
  b.level(35 * kMs, 60 * kMs, RecordingLevel::kLight);
  const Trace& trace = b.derive_all();
  constexpr MissingKernels kNone = MissingKernels::kNone, kAll = MissingKernels::kAll;
  EXPECT_EQ(trace.steps.missing, (std::vector<MissingKernels>{kNone, kNone, kNone, kAll, kAll}));
}

TEST(LiveSteps, AStepWhoseLaunchesWereCutIsNotComplete) {
  // The host runs ahead: the range ends long before the window without kernels, into which its kernels ran.
  TestTrace b;
  for (int64_t i = 0; i < 4; ++i) {
    b.annotation("prefill", i * 10 * kMs, 9 * kMs, AnnotationKind::kNvtx);
    b.launch("gemm_layer", i * 10 * kMs + 10 * kUs, i * 10 * kMs + 20 * kUs, 4 * kMs);
  }
  b.level(-kMs, 60 * kMs, RecordingLevel::kDefault);
  b.level(60 * kMs, 90 * kMs, RecordingLevel::kLight);
  b.trace.recorded.cut_ns[1] = 60 * kMs - 30 * kMs - 100 * kUs;
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 4U);
  EXPECT_EQ(trace.steps.missing[2], MissingKernels::kNone);
  EXPECT_EQ(trace.steps.missing[3], MissingKernels::kAll) << "launches from 30.1 ms on lost their kernels";
}

TEST(LiveSteps, LightModeHasStepsWithoutAnyKernel) {
  TestTrace b;
  b.annotation("prefill", 0, 20 * kMs, AnnotationKind::kNvtx);
  for (int64_t i = 0; i < 5; ++i) {
    b.annotation("decode_step", (20 + 8 * i) * kMs, 8 * kMs - 100, AnnotationKind::kNvtx);
  }
  b.level(-kMs, 100 * kMs, RecordingLevel::kLight);
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 6U);
  EXPECT_EQ(trace.text(trace.steps.stage[0]), "prefill");
  EXPECT_EQ(trace.steps.state[0], StepState::kUsual) << "not apart where nothing is complete";
  EXPECT_EQ(trace.steps.end_ns[0], 20 * kMs);
  EXPECT_EQ(trace.steps.end_ns[3] - trace.steps.start_ns[3], 8 * kMs);
  ASSERT_EQ(trace.windows.size(), 1U);
  EXPECT_EQ(trace.windows[0].end_ns, 60 * kMs - 100);
  EXPECT_EQ(broken_invariant(trace), "");
  for (const IdleCause cause : trace.gaps.cause) EXPECT_EQ(cause, IdleCause::kNotRecorded);
}

TEST(LiveSteps, WithoutRangesTheWindowIsTheRecording) {
  TestTrace b;
  b.level(5 * kMs, 100 * kMs, RecordingLevel::kLight);
  const Trace& trace = b.derive_all();
  EXPECT_TRUE(trace.steps.empty());
  ASSERT_EQ(trace.windows.size(), 1U);
  EXPECT_EQ(trace.windows[0].start_ns, 5 * kMs);
  EXPECT_EQ(trace.windows[0].end_ns, 100 * kMs);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(LiveSteps, AHostThatRanAheadGivesTheTimeOfTheLoopEvenly) {
  TestTrace b;
  b.annotation("decode", 0, 80 * kMs, AnnotationKind::kNvtx);  // waits at its end
  for (int64_t i = 0; i < 10; ++i) b.annotation("decode_step", i * kMs, 900 * kUs, AnnotationKind::kNvtx);
  b.level(-kMs, 100 * kMs, RecordingLevel::kLight);
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 10U);
  for (Row s = 0; s < 10; ++s) EXPECT_EQ(trace.steps.end_ns[s] - trace.steps.start_ns[s], 8 * kMs);
}

TEST(LiveSteps, RangesOfAHostThatRunsAheadAreLeftOut) {
  TestTrace b;
  for (int64_t i = 0; i < 12; ++i) {
    b.annotation("decode_step", i * 100 * kUs, 90 * kUs, AnnotationKind::kNvtx);
    if (i < 6) b.launch("gemm_layer", i * 100 * kUs + 10 * kUs, (i * 8 + 1) * kMs, 7 * kMs);
  }
  b.level(-kMs, 600 * kUs, RecordingLevel::kDefault);
  b.level(600 * kUs, 100 * kMs, RecordingLevel::kLight);
  const Trace& trace = b.derive_all();
  size_t unseen = 0;
  for (Row s = 0; s < trace.steps.size(); ++s) {
    unseen += trace.steps.gpu_start_ns[s] == trace.steps.host_start_ns[s] ? 1 : 0;
  }
  EXPECT_EQ(unseen, 0U);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(LiveSteps, RangesOfLibrariesAreNoStages) {
  TestTrace b = annotated_loop(2, -1, -1);
  b.annotation("decode image", 0, 500 * kUs, AnnotationKind::kNvtx);
  b.trace.annotations.domain.back() = b.trace.strings.intern("nvJPEG");
  const Trace& trace = b.derive_all();
  for (Row s = 0; s < trace.steps.size(); ++s) EXPECT_EQ(trace.text(trace.steps.stage[s]), "decode_step");
}

// Unlabelled: a prompt of 64 tokens for 2 sequences and 4 decode steps, all by library calls, the output layer last.
TestTrace unlabelled(bool with_head = true, std::string_view attention = "attn_decode") {
  TestTrace b;
  int64_t host = 0, gpu = 1000 * kUs;
  const auto gemm = [&](int64_t m, int64_t n, int64_t k, std::string_view name, int64_t dur) {
    b.library_call(host, 8 * kUs, m, n, k);
    gpu = std::max(gpu, host + 10 * kUs);
    b.launch(name, host + 2 * kUs, gpu, dur);
    host += 10 * kUs;
    gpu += dur + kUs;
  };
  for (int step = 0; step < 5; ++step) {
    const int64_t m = step == 0 ? 128 : 2;
    for (int layer = 0; layer < 4; ++layer) {
      gemm(m, 3072, 1024, step == 0 ? "gemm_big" : "gemm_small", 50 * kUs);
      b.launch(step == 0 ? "attn_prompt" : attention, host, gpu, 20 * kUs);
      gpu += 21 * kUs;
      host += 10 * kUs;
      gemm(m, 1024, 4096, step == 0 ? "gemm_big2" : "gemm_small2", 50 * kUs);
    }
    if (with_head) gemm(2, 32000, 1024, "gemm_head", 60 * kUs);
    b.api("cudaStreamSynchronize", host, gpu - host + 5 * kUs);
    host = gpu + 10 * kUs;
  }
  b.level(-kMs, host + kMs, RecordingLevel::kDefault);
  return b;
}

TEST(LiveSteps, AreFoundFromLibraryCallsAlone) {
  TestTrace b = unlabelled();
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 5U);
  EXPECT_EQ(trace.steps.kind[0], StageKind::kPrefill);
  EXPECT_EQ(trace.steps.new_tokens[0], 128);
  EXPECT_EQ(trace.steps.sequences[0], 2);
  EXPECT_EQ(trace.steps.context[0], 64);
  EXPECT_EQ(trace.steps.output_tokens[0], 2);
  for (Row s = 1; s < 5; ++s) {
    EXPECT_EQ(trace.steps.kind[s], StageKind::kDecode);
    EXPECT_EQ(trace.steps.new_tokens[s], 2);
    EXPECT_EQ(trace.steps.sequences[s], 2);
    EXPECT_EQ(trace.steps.context[s], 64 + static_cast<int64_t>(s));
  }
  EXPECT_EQ(broken_invariant(trace), "");
}

// Neither a kernel for one query nor a choice of a token says so: as many rows with logits as the prompt has texts.
TEST(LiveSteps, OnAsManyRowsAsThePromptHasTextsMakeTokens) {
  TestTrace b = unlabelled(true, "attn_any");
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 5U);
  EXPECT_EQ(trace.steps.kind[0], StageKind::kPrefill);
  for (Row s = 1; s < 5; ++s) {
    EXPECT_EQ(trace.steps.kind[s], StageKind::kDecode);
    EXPECT_EQ(trace.steps.sequences[s], 2);
  }
}

StepDraft pass_of(int64_t tokens, int64_t sequences, int64_t logit_rows) {
  StepDraft draft;
  draft.new_tokens = tokens;
  draft.sequences = sequences;
  draft.logit_rows = logit_rows;
  draft.names_hash = static_cast<uint64_t>(tokens * 1000 + logit_rows);
  draft.gpu_ns = tokens;
  return draft;
}

// A frame's encoder before each token, without logits; pieces of a prompt, of which the last has them.
TEST(LiveSteps, PassesWithoutLogitsThatNoPromptEndsAreNoPrompts) {
  std::vector<StepDraft> steps{pass_of(64, 1, -1), pass_of(64, 1, -1), pass_of(40, 1, 1), pass_of(1, 1, 1)};
  for (int i = 0; i < 4; ++i) {
    steps.push_back(pass_of(256, 1, -1));
    steps.push_back(pass_of(1, 1, 1));
  }
  const TestTrace nothing;
  settle_kinds(HostCalls(nothing.trace), steps);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(steps[i].kind, StageKind::kPrefill) << i;
  for (size_t i = 3; i < steps.size(); ++i)
    EXPECT_EQ(steps[i].kind, i % 2 == 1 ? StageKind::kDecode : StageKind::kOther) << i;
}

// The same pass over 1,024 tokens time and again, with logits of all of them and a choice among each: 1,024 sequences
// of one token, or two texts. Where the grid of attention counts tiles of queries, that tells.
TestTrace repeated_passes(std::string_view attention, int32_t grid_x, int32_t grid_y, int32_t grid_z) {
  TestTrace b;
  TraceBuilder rows(b.trace);
  const LaunchConfigId config = rows.add<LaunchConfigs>(
      {.grid_x = grid_x, .grid_y = grid_y, .grid_z = grid_z, .block_x = 128, .block_y = 1, .block_z = 1});
  int64_t host = 0, gpu = 1000 * kUs;
  const auto gemm = [&](int64_t n, int64_t k) {
    b.library_call(host, 8 * kUs, 1024, n, k);
    gpu = std::max(gpu, host + 10 * kUs);
    b.launch("gemm", host + 2 * kUs, gpu, 50 * kUs);
    host += 10 * kUs;
    gpu += 51 * kUs;
  };
  for (int step = 0; step < 6; ++step) {
    for (int layer = 0; layer < 4; ++layer) {
      gemm(3072, 1024);
      b.launch(attention, host, gpu, 20 * kUs);
      b.trace.gpu_ops.config.back() = config;
      gpu += 21 * kUs;
      host += 10 * kUs;
      gemm(1024, 4096);
    }
    gemm(32000, 1024);
    b.launch("argmax", host, gpu, 5 * kUs);
    gpu += 6 * kUs;
    host += 10 * kUs;
    b.api("cudaStreamSynchronize", host, gpu - host + 5 * kUs);
    host = gpu + 10 * kUs;
  }
  b.level(-kMs, host + kMs, RecordingLevel::kDefault);
  return b;
}

TEST(LiveSteps, TilesOfQueriesTellAPassOverTextsFromOneOverTokens) {
  struct Case {
    const char* attention;
    int32_t x, y, z;
    StageKind kind;
  };
  const Case cases[] = {{"flash_fwd_kernel<attn>", 8, 2, 16, StageKind::kPrefill},  // 512 queries in tiles of 64
                        {"flash_fwd_kernel<attn>", 4, 2, 16, StageKind::kPrefill},  // of 128
                        {"fmha_cutlassF_bf16_64x128_attn", 8, 16, 2, StageKind::kPrefill},  // sequences are the last
                        {"flash_fwd_kernel<attn>", 1, 1024, 16, StageKind::kDecode},        // a token of each
                        {"flash_fwd_splitkv_kernel<attn>", 8, 2, 16, StageKind::kDecode},   // parts of the keys
                        {"flash_fwd_kernel<attn>", 5, 2, 16, StageKind::kDecode}};          // of no such tokens
  for (const Case& one : cases) {
    TestTrace b = repeated_passes(one.attention, one.x, one.y, one.z);
    const Trace& trace = b.derive_all();
    ASSERT_GE(trace.steps.size(), 5U) << one.attention << one.x;
    EXPECT_EQ(trace.steps.kind[3], one.kind) << one.attention << " " << one.x;
    if (one.kind == StageKind::kPrefill) {
      EXPECT_EQ(trace.steps.sequences[3], 2);
      EXPECT_EQ(trace.steps.new_tokens[3], 1024);
    }
    EXPECT_EQ(broken_invariant(trace), "");
  }
}

TEST(LiveSteps, ADetectedStepThatMayBeHalfIsDropped) {
  TestTrace b = unlabelled();
  b.trace.recorded.clear();
  const int64_t step_ns = 700 * kUs;  // about; the window cuts into a step whatever its exact length
  b.level(-kMs, 3 * step_ns, RecordingLevel::kDefault);
  b.level(3 * step_ns, 3 * step_ns + 100 * kUs, RecordingLevel::kLight);
  b.level(3 * step_ns + 100 * kUs, 100 * kMs, RecordingLevel::kDefault);
  const Trace& trace = b.derive_all();
  const RecordedSpans recorded(trace);
  ASSERT_FALSE(trace.steps.empty());
  EXPECT_LT(trace.steps.size(), 5U);
  for (Row s = 0; s < trace.steps.size(); ++s) {
    EXPECT_EQ(trace.steps.missing[s], MissingKernels::kNone);
    EXPECT_FALSE(RecordedSpans::touches(recorded.unrecorded(0), trace.steps.start_ns[s], trace.steps.end_ns[s]));
  }
  EXPECT_EQ(trace.steps.context[trace.steps.size() - 1], -1) << "steps may be missing in between";
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(LiveSteps, ReplaysThatAreRecordedAsAWholeAreStepsOfTheirOwn) {
  TestTrace b;
  const Row layer = b.library_call(0, 10, 1, 4096, 4096), head = b.library_call(20, 10, 1, 32000, 4096);
  b.graph_node(1, layer);
  b.graph_node(2, head);
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t at = (i + 1) * 10 * kMs;
    const uint64_t launch = b.api("cudaGraphLaunch", at, 20 * kUs);
    if (i % 2 == 0) {
      for (int64_t k = 0; k < 10; ++k) b.node_kernel("gemm_layer", at + (100 + k * 700) * kUs, 600 * kUs, launch, 1);
      b.node_kernel("attn_a", at + 7200 * kUs, 10 * kUs, launch, 3);
      b.node_kernel("attn_b", at + 7300 * kUs, 10 * kUs, launch, 4);
      b.node_kernel("gemm_head", at + 7400 * kUs, 100 * kUs, launch, 2);
    } else {
      b.graph_launch(at + 100 * kUs, 7200 * kUs, launch);
    }
    b.api("cudaStreamSynchronize", at + 50 * kUs, 8 * kMs);
  }
  b.level(-kMs, 200 * kMs, RecordingLevel::kDefault);
  const Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 8U);
  for (Row s = 0; s < 8; ++s) {
    EXPECT_EQ(trace.steps.missing[s], s % 2 == 0 ? MissingKernels::kNone : MissingKernels::kGraphNodes);
    EXPECT_EQ(trace.steps.state[s], s % 2 == 0 ? StepState::kUsual : StepState::kWholeGraphs);
    EXPECT_EQ(trace.text(trace.steps.stage[s]), "decode");
    EXPECT_EQ(trace.steps.new_tokens[s], 1);
  }
  EXPECT_EQ(broken_invariant(trace), "");
}

std::vector<std::string> stage_names(const Trace& trace) {
  std::vector<std::string> names;
  for (Row s = 0; s < trace.steps.size(); ++s)
    if (const std::string name =
            step_label(trace.text(trace.steps.stage[s]), trace.steps.state[s], trace.steps.phase[s]);
        names.empty() || names.back() != name)
      names.push_back(name);
  return names;
}

TEST(NamedRequest, BeginsWithWhatTheCpuPreparesWhateverIsCopied) {
  for (const NamedRequest::Copies copies :
       {NamedRequest::Copies::kNone, NamedRequest::Copies::kCallsUnknown, NamedRequest::Copies::kRecorded}) {
    SCOPED_TRACE(static_cast<int>(copies));
    NamedRequest request;
    request.copies = copies;
    TestTrace b = request.build();
    const Trace& trace = b.derive_all();
    EXPECT_EQ(broken_invariant(trace), "");
    ASSERT_EQ(stage_names(trace),
              (std::vector<std::string>{"prefill [warm-up]", "preprocess", "vision encoder", "prefill", "decode"}));
    EXPECT_EQ(trace.steps.kind[1], StageKind::kVision);
    EXPECT_EQ(trace.steps.source[1], StageSource::kNvtx);
    EXPECT_EQ(trace.steps.missing[1], MissingKernels::kNone);
    EXPECT_NEAR(static_cast<double>(trace.steps.start_ns[1]), 0, 2 * kUs);
    EXPECT_LE(trace.steps.end_ns[0], -15 * kMs) << "a copy of the request is none of the tuning before it";
    EXPECT_EQ(trace.windows[0].start_ns, trace.steps.start_ns[0]);
  }
}

TEST(NamedRequest, WithoutLaunchesBeforeItTheWindowBeginsWithIt) {
  NamedRequest request;
  TestTrace b = request.build();
  b.trace.gpu_ops.clear();
  b.trace.library_calls.clear();
  b.trace.api_calls.clear();
  b.launch("gemm_rows", NamedRequest::kTtftNs - kMs, NamedRequest::kTtftNs - kMs + 10 * kUs, 500 * kUs);
  const Trace& trace = b.derive_all();
  EXPECT_EQ(broken_invariant(trace), "");
  // The vision encoder launched nothing either.
  ASSERT_EQ(stage_names(trace), (std::vector<std::string>{"preprocess", "vision encoder", "prefill"}));
  EXPECT_EQ(trace.windows[0].start_ns, trace.steps.start_ns[0]);
  EXPECT_EQ(trace.steps.end_ns[0] - trace.steps.start_ns[0], NamedRequest::kPrepareNs - 2 * kUs);
}

TEST(NamedRequest, WarmUpMayTakeLongerIfTheProgramNamesPromptsAndTokens) {
  NamedRequest request;
  request.tuning_ns = 4000 * kMs;
  request.decode_steps = 3;
  TestTrace b = request.build();
  EXPECT_EQ(stage_names(b.derive_all()).front(), "prefill [warm-up]");
  // Named tokens alone: the prompt before them may well be theirs.
  TestTrace tokens = request.build();
  for (StringId& name : tokens.trace.annotations.name)
    if (!tokens.trace.text(name).starts_with("decode")) name = tokens.trace.strings.intern("part of it");
  EXPECT_EQ(stage_names(tokens.derive_all()).front(), "prefill");
}

TEST(NamedRequest, TokensWithoutNamedPromptsHaveThePromptBeforeThem) {
  NamedRequest request;
  request.tuning_ns = 60 * kMs;
  TestTrace b = request.build();
  for (StringId& name : b.trace.annotations.name)
    if (!b.trace.text(name).starts_with("decode")) name = b.trace.strings.intern("part of it");
  EXPECT_EQ(stage_names(b.derive_all()), (std::vector<std::string>{"other [warm-up]", "prefill", "decode"}));
}

// Of which only the ranges tell how many tokens they are over, and `prefill` is the name of the prompt's.
std::vector<int64_t> outputs_of_prompts(int64_t sequences, std::string_view prefill) {
  NamedRequest request;
  request.sequences = sequences;
  TestTrace b = request.build();
  b.trace.library_calls.clear();
  for (StringId& name : b.trace.gpu_ops.name)
    if (b.trace.text(name) == "argmax") name = b.trace.strings.intern("pick");
  for (StringId& name : b.trace.annotations.name)
    if (!prefill.empty() && b.trace.text(name).starts_with("prefill")) name = b.trace.strings.intern(prefill);
  const Trace& trace = b.derive_all();
  std::vector<int64_t> outputs;
  for (Row s = 0; s < trace.steps.size(); ++s)
    if (trace.steps.annotation[s] != kNoRow && trace.steps.kind[s] == StageKind::kPrefill)
      outputs.push_back(trace.steps.output_tokens[s]);
  return outputs;
}

TEST(NamedRequest, PromptsThatGoOnAsTokensHaveGivenTheirFirst) {
  EXPECT_EQ(outputs_of_prompts(1, {}), (std::vector<int64_t>{1}));
  EXPECT_EQ(outputs_of_prompts(4, {}), (std::vector<int64_t>{4}));
  for (const char* another :
       {"prefill[bs=4 tok=9 c_sk=9]", "prefill[bs=3 tok=2048 c_sk=2048]", "prefill[bs=4 tok=2048]"})
    EXPECT_EQ(outputs_of_prompts(4, another), (std::vector<int64_t>{-1})) << another;
}

TEST(HostStages, ARangeBeforeADecodeStepOrOfAnotherThreadIsNone) {
  for (const bool other_thread : {false, true}) {
    TestTrace b = annotated_loop(4, -1, -1);
    const ThreadId thread = other_thread ? b.thread() : ThreadId(0);
    b.annotation("preprocess", -10 * kMs, 5 * kMs, AnnotationKind::kNvtx, thread);
    const Trace& trace = b.derive_all();
    EXPECT_EQ(stage_names(trace), (std::vector<std::string>{"decode_step"}));
  }
}

TEST(HostStages, WhereRecordingStoppedNothingIsKnownOfLaunches) {
  NamedRequest request;
  TestTrace b = request.build();
  b.trace.recorded.clear();
  b.level(-1000 * kMs, 2 * kMs, RecordingLevel::kDefault);
  b.level(2 * kMs, 3 * kMs, RecordingLevel::kLight);
  b.level(3 * kMs, 1000 * kMs, RecordingLevel::kDefault);
  const Trace& trace = b.derive_all();
  EXPECT_EQ(broken_invariant(trace), "");
  ASSERT_EQ(stage_names(trace)[1], "preprocess");
  EXPECT_EQ(trace.steps.missing[1], MissingKernels::kAll);
}

TEST(LaunchOrder, AnActivityOfUnknownCallOnAnIdleStreamWasLaunchedWhenItBegan) {
  TestTrace b;
  b.launch("gemm", 0, 10 * kUs, 100 * kUs);
  b.gpu("Memcpy queued", 112 * kUs, 5 * kUs);  // right behind the kernel
  b.gpu("Memcpy later", 900 * kUs, 5 * kUs);   // the stream had nothing to do
  b.gpu("Memcpy behind it", 906 * kUs, 5 * kUs);
  b.launch("gemm", 1000 * kUs, 1010 * kUs, 100 * kUs);
  b.gpu("Memcpy late", 1500 * kUs, 5 * kUs);  // launched before the next, which waited for something else
  b.launch("gemm", 1200 * kUs, 1600 * kUs, 100 * kUs);
  const std::vector<LaunchOrder> orders = order_launches(b.build());
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].time_ns, (std::vector<int64_t>{0, 0, 900 * kUs, 900 * kUs, 1000 * kUs, 1200 * kUs, 1200 * kUs}));
}

TEST(RecordedSpans, BelongToTheProcessThatUsesTheDevice) {
  TestTrace b;
  const Row other = b.thread();
  b.trace.threads.process_id[other] = 2;
  const Row second = b.stream(1, 7);
  b.gpu("gemm", 100, 50, b.api("cudaLaunchKernel", 10, 5));
  b.gpu("gemm", 100, 50, b.api("cudaLaunchKernel", 10, 5, 0, other), second);
  b.level(0, 1000, RecordingLevel::kDefault, 1);
  b.level(0, 500, RecordingLevel::kOff, 2);
  b.level(500, 700, RecordingLevel::kLight, 2);
  b.level(700, 1000, RecordingLevel::kDeep, 2);
  const Trace& trace = b.build();
  const RecordedSpans recorded(trace);
  EXPECT_TRUE(recorded.unrecorded(0).empty());
  ASSERT_EQ(recorded.unrecorded(1).size(), 1U);
  EXPECT_EQ(recorded.unrecorded(1)[0].end_ns, 700);
  EXPECT_TRUE(RecordedSpans::touches(recorded.unrecorded(1), 699, 800));
  EXPECT_FALSE(RecordedSpans::touches(recorded.unrecorded(1), 700, 800));
}

// Records are off for a moment while the recorder brings a new graph to the GPU: of a program that launches from one
// thread nothing is missing. CUPTI that came for a graph in an unrecorded window is another matter.
TEST(RecordedSpans, ANewGraphIsNoPause) {
  for (const bool several_threads : {false, true}) {
    TestTrace b;
    b.gpu("gemm", 100, 50, b.api("cudaLaunchKernel", 10, 5));
    if (several_threads) b.gpu("gemm", 200, 50, b.api("cudaLaunchKernel", 20, 5, 0, b.thread()));
    b.level(0, 400, RecordingLevel::kDefault, 1, "start");
    b.level(400, 450, RecordingLevel::kLight, 1, "graph");
    b.level(450, 800, RecordingLevel::kDefault, 1, "graph");
    b.level(800, 900, RecordingLevel::kLight, 1, "graph");
    b.level(900, 1000, RecordingLevel::kDefault, 1, "start");
    const RecordedSpans recorded(b.build());
    EXPECT_EQ(RecordedSpans::touches(recorded.unrecorded(0), 400, 450), several_threads);
    EXPECT_TRUE(RecordedSpans::touches(recorded.unrecorded(0), 800, 900));
  }
}

}  // namespace
}  // namespace llmprof
