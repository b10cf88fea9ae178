// Real Kineto recordings with everything taken away that a live recording does not have: the answers must stay. And
// planted causes that only API calls, kernels and library calls show, each with a healthy twin.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "analyze_live_copy.h"
#include "analyze_recording.h"
#include "derive_named_request.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

struct Both {
  Report full, live;
};
Both both(const std::string& name) {
  Trace trace = import_golden(name);
  EXPECT_TRUE(derive(trace).has_value());
  Both out;
  out.full = report_of(trace);
  make_live(trace);
  EXPECT_TRUE(derive(trace).has_value());
  out.live = report_of(trace);
  for (const ConservationCheck& check : out.live.conservation) EXPECT_TRUE(check.ok) << name << ": " << check.name;
  return out;
}

class SameAnswers : public testing::TestWithParam<const char*> {};

TEST_P(SameAnswers, WithoutOperators) {
  const Both reports = both(GetParam());
  const StageTiming *full = stage_of(reports.full, "decode"), *live = stage_of(reports.live, "decode");
  ASSERT_NE(full, nullptr);
  ASSERT_NE(live, nullptr);
  EXPECT_EQ(live->count, full->count);
  EXPECT_EQ(live->tokens, full->tokens);
  EXPECT_EQ(live->sequences, full->sequences);
  EXPECT_EQ(live->output_tokens, full->output_tokens);
  EXPECT_EQ(live->kernels, full->kernels);
  EXPECT_NEAR(live->wall_ms.ms(), full->wall_ms.ms(), 0.01 * full->wall_ms.ms());
  ASSERT_TRUE(live->gemm_flops && full->gemm_flops);
  EXPECT_NEAR(*live->gemm_flops / *full->gemm_flops, 1, 1e-9) << "every product once";
  EXPECT_GE(*live->gemm_coverage_frac, 0.99);
  const StageTiming *prompt = stage_of(reports.full, "prefill"), *live_prompt = stage_of(reports.live, "prefill");
  ASSERT_NE(live_prompt, nullptr);
  EXPECT_EQ(live_prompt->tokens, prompt->tokens);
  EXPECT_EQ(live_prompt->sequences, prompt->sequences);
  EXPECT_NE(finding_of(reports.live, "launch-bound", "decode"), nullptr);
}
INSTANTIATE_TEST_SUITE_P(Golden, SameAnswers,
                         testing::Values("kineto_llama-3.1-8b_unlabelled.json.gz", "batched.json.gz",
                                         "fp32_weights.json.gz", "item_per_step.json.gz", "unfused_attention.json.gz",
                                         "kineto_qwen2.5-0.5b_annotated.json.gz", "mixture_of_experts.json.gz"));

TEST(LiveGolden, TheModelIsRecognisedAndTheContextCounted) {
  const Both reports = both("kineto_llama-3.1-8b_unlabelled.json.gz");
  ASSERT_TRUE(reports.live.model.has_value());
  EXPECT_EQ(reports.live.model->id, reports.full.model->id);
  EXPECT_EQ(stage_of(reports.live, "decode")->context, 515);
  EXPECT_EQ(stage_of(reports.live, "decode")->flops_provenance, Provenance::kFormula);
  EXPECT_NEAR(*stage_of(reports.live, "decode")->flops / *stage_of(reports.full, "decode")->flops, 1, 1e-3);
}

TEST(LiveGolden, WideWeightsAndUnfusedAttentionAreFoundFromLibraryCalls) {
  EXPECT_NE(finding_of(both("fp32_weights.json.gz").live, "dtype-wide", "prefill"), nullptr);
  EXPECT_NE(finding_of(both("unfused_attention.json.gz").live, "attention-unfused", "prefill"), nullptr);
  EXPECT_EQ(finding_of(both("item_per_step.json.gz").live, "attention-unfused"), nullptr);
  EXPECT_EQ(finding_of(both("item_per_step.json.gz").live, "dtype-wide"), nullptr);
}

// ---- planted causes ------------------------------------------------------------------------------------------------

// Decode steps of `kernels` launches; the GPU is busy `busy_us` per kernel, the host takes `host_us` per launch.
struct Loop {
  int steps = 10, kernels = 20;
  int64_t busy = 100 * kUs, host = 10 * kUs;
  bool sync_each = false;   // wait after every kernel
  int64_t before_step = 0;  // host code before the first launch of a step
  int64_t pause = 0;        // once, between two steps
  bool blocks = false;      // launches return behind their kernel
  std::string kernel = "gemm_layer";
  std::string name = "decode_step";
  int64_t rows = 1;
};

Trace run_loop(const Loop& loop, bool graph = false) {
  TestTrace b;
  const Row call = graph ? b.library_call(0, 10, loop.rows, 4096, 4096) : kNoRow;
  if (graph) b.graph_node(1, call);
  int64_t host = 10 * kUs, gpu = 0;
  for (int s = 0; s < loop.steps; ++s) {
    if (s == loop.steps / 2) host += loop.pause;
    const int64_t start = host;
    host += loop.before_step;
    uint64_t replay = graph ? b.api("cudaGraphLaunch", host, 8 * kUs) : 0;
    for (int k = 0; k < loop.kernels; ++k) {
      gpu = std::max(gpu, host + 8 * kUs);
      if (graph) {
        b.node_kernel(loop.kernel, gpu, loop.busy, replay, 1);
      } else {
        b.library_call(host, 6 * kUs, loop.rows, 4096, 4096);
        const int64_t returned = loop.blocks ? gpu + loop.busy + 2 * kUs : host + 5 * kUs;
        b.gpu(loop.kernel, gpu, loop.busy, b.api("cudaLaunchKernel", host + kUs, returned - host - kUs));
        if (loop.blocks) host = returned - 5 * kUs;
      }
      gpu += loop.busy;
      host += graph ? kUs : loop.host;
      if (loop.sync_each) {
        b.api("cudaStreamSynchronize", host, std::max<int64_t>(kUs, gpu + 2 * kUs - host));
        host = std::max(host + kUs, gpu + 2 * kUs) + 2 * kUs;
      }
    }
    b.api("cudaStreamSynchronize", host, std::max<int64_t>(kUs, gpu + 2 * kUs - host));
    host = std::max(host + kUs, gpu + 2 * kUs) + 2 * kUs;
    b.annotation(loop.name, start, host - start - kUs, AnnotationKind::kNvtx);
  }
  b.level(-kMs, host + kMs, RecordingLevel::kDefault);
  b.trace.devices = AnalyzedRecording().trace.devices;
  b.trace.devices.name[0] = b.trace.strings.intern("NVIDIA H200");
  b.derive_all();
  return std::move(b.trace);
}

// Steps of products, each with a norm that is written out behind it and `others` passes that are none.
Trace run_norms(int others, int64_t product = 100 * kUs) {
  TestTrace b;
  int64_t host = 10 * kUs, gpu = 0;
  const auto launch = [&](std::string_view name, int64_t busy) {
    gpu = std::max(gpu, host + 8 * kUs);
    if (name == "gemm_layer") b.library_call(host, 3 * kUs, 1, 4096, 4096);
    b.gpu(name, gpu, busy, b.api("cudaLaunchKernel", host + kUs, kUs));
    gpu += busy + kUs;
    host += 5 * kUs;
  };
  for (int s = 0; s < 10; ++s) {
    const int64_t start = host;
    for (int layer = 0; layer < 10; ++layer) {
      launch("gemm_layer", product);
      launch("vectorized_elementwise_kernel<pow_tensor_scalar>", 40 * kUs);
      launch("reduce_kernel<MeanOps<float>>", 30 * kUs);
      launch("vectorized_elementwise_kernel<rsqrt_kernel_cuda>", 2 * kUs);
      launch("elementwise_kernel<BinaryFunctor<MulFunctor<float>>>", 40 * kUs);
      launch("elementwise_kernel<BinaryFunctor<MulFunctor<float>>>", 40 * kUs);
      launch("gemm_layer", product);
      for (int i = 0; i < others; ++i) launch("vectorized_elementwise_kernel<sigmoid>", 40 * kUs);
    }
    b.api("cudaStreamSynchronize", host, std::max<int64_t>(kUs, gpu + 2 * kUs - host));
    host = std::max(host + kUs, gpu + 2 * kUs) + 2 * kUs;
    b.annotation("decode_step", start, host - start - kUs, AnnotationKind::kNvtx);
  }
  b.level(-kMs, host + kMs, RecordingLevel::kDefault);
  b.trace.devices = AnalyzedRecording().trace.devices;
  b.trace.devices.name[0] = b.trace.strings.intern("NVIDIA H200");
  b.derive_all();
  return std::move(b.trace);
}

std::string first_finding(const Report& report) { return report.findings.empty() ? "" : report.findings[0].id; }

void expect_whole(const Report& report) {
  for (const ConservationCheck& check : report.conservation) EXPECT_TRUE(check.ok) << check.name;
}

TEST(LivePlanted, AHealthyLoopHasNoHostFinding) {
  const Report report = report_of(run_loop({}));
  expect_whole(report);
  for (const char* id : {"launch-bound", "sync-bound", "cpu-bound-gap", "host-preprocessing", "graph-padding"})
    EXPECT_EQ(finding_of(report, id), nullptr) << id;
}

TEST(LivePlanted, LaunchBound) {
  Loop loop;
  loop.busy = 4 * kUs;
  loop.host = 12 * kUs;
  const Report report = report_of(run_loop(loop));
  expect_whole(report);
  EXPECT_EQ(first_finding(report), "launch-bound");
  EXPECT_EQ(finding_of(report, "sync-bound"), nullptr);
}

// Norms are the finding where they are most of what fusing brings, and what other passes bring is on top; else they are
// a symptom of those.
TEST(LivePlanted, NormsComeBeforeOtherPassesWhereTheyAreMostOfThem) {
  const Report alone = report_of(run_norms(0)), most = report_of(run_norms(2)), few = report_of(run_norms(6));
  const Finding* norms = finding_of(alone, "norm-unfused");
  ASSERT_TRUE(norms != nullptr && norms->gain);
  EXPECT_EQ(first_finding(alone), "norm-unfused");
  EXPECT_EQ(finding_of(alone, "small-kernels-unfused"), nullptr) << "the same kernels";
  EXPECT_EQ(norms->symptoms.size(), 1U);
  const double step_ms = (10 * (200 + 152 + 7) + 10) / 1e3, gain_ms = 10 * (112 + 4) / 1e3;
  EXPECT_NEAR(1 - norms->gain->to / norms->gain->from, gain_ms / step_ms, 0.02);
  EXPECT_EQ(first_finding(most), "norm-unfused");
  const Finding* others = finding_of(most, "small-kernels-unfused");
  ASSERT_TRUE(others != nullptr && others->gain && others->gain->on_top_of);
  EXPECT_EQ(*others->gain->on_top_of, "norm-unfused");
  EXPECT_LT(others->share, finding_of(most, "norm-unfused")->share) << "behind what it is on top of";
  EXPECT_EQ(first_finding(few), "small-kernels-unfused");
  EXPECT_EQ(finding_of(few, "norm-unfused"), nullptr);
}

// One launch of seven is placed, as the recorder does with launches that it draws; seven divides no step's launches.
Trace placed(Trace trace) {
  const StringId linear = trace.strings.intern("linear (/srv/app/model.py:10) < layer (/srv/app/model.py:50)");
  const StringId norm = trace.strings.intern("norm (/srv/app/model.py:20) < layer (/srv/app/model.py:51)");
  const StringId gate = trace.strings.intern("gate (/srv/app/model.py:30) < layer (/srv/app/model.py:52)");
  for (Row row = 0; row < trace.gpu_ops.size(); row += 7) {
    const GpuOpId op = row;
    const std::string_view name = trace.text(trace.gpu_ops.name[op]);
    const ApiCallId call = trace.gpu_links.api[op];
    TraceBuilder(trace).add<HostPlaces>({.start_ns = trace.api_calls.start_ns[call],
                                         .dur_ns = trace.api_calls.dur_ns[call],
                                         .thread = 0,
                                         .kind = PlaceKind::kLaunch,
                                         .stack = name == "gemm_layer"                             ? linear
                                                  : name.find("sigmoid") != std::string_view::npos ? gate
                                                                                                   : norm});
  }
  return trace;
}

TEST(LivePlanted, CodeThatLaunchesTheWorkIsEstimatedFromSomeLaunches) {
  const Report report = report_of(placed(run_norms(2)));
  ASSERT_EQ(report.launch_places.size(), 3U);
  const double linear_ms = 2, norm_ms = 10 * 0.152, gate_ms = 20 * 0.04, all_ms = linear_ms + norm_ms + gate_ms;
  const std::array names{"linear (model.py:10)", "norm (model.py:20)", "gate (model.py:30)"};
  const std::array want_ms{linear_ms, norm_ms, gate_ms};
  const std::array want_ops{20.0, 50.0, 20.0};
  for (size_t i = 0; i < names.size(); ++i) {
    const LaunchPlaceRecord& row = report.launch_places[i];
    EXPECT_EQ(row.place.substr(0, row.place.find(" < ")), names[i]);
    // Kernels of equal name and shape take equally long here, so that what is estimated is exact.
    EXPECT_NEAR(row.gpu_ms_per_step, want_ms[i], 1e-9) << names[i];
    EXPECT_NEAR(row.gpu_frac, want_ms[i] / all_ms, 1e-9);
    EXPECT_NEAR(row.per_step, want_ops[i], 1e-9);
    EXPECT_NEAR(static_cast<double>(row.seen), 10 * want_ops[i] / 7, 8);
  }
  const Finding* const norms = finding_of(report, "norm-unfused");
  ASSERT_TRUE(norms != nullptr && !norms->where.empty());
  EXPECT_EQ(norms->where[0].name, "norm (model.py:20) < layer (model.py:51)");
  EXPECT_EQ(norms->where.size(), 1U) << "products and gates stay as they are";
  const Finding* const gates = finding_of(report, "small-kernels-unfused");
  ASSERT_TRUE(gates != nullptr && !gates->where.empty());
  EXPECT_TRUE(report.host_places.empty()) << "a sample is no count of launches";
  EXPECT_TRUE(report_of(run_norms(2)).launch_places.empty());
}

TEST(LivePlanted, CodeThatMadeANodeIsThatOfEveryLaunchOfIt) {
  Loop loop;
  Trace trace = run_loop(loop, true);
  const StringId code = trace.strings.intern("layer (/srv/app/model.py:50)");
  TraceBuilder(trace).add<NodePlaces>({.node = 1, .stack = code});
  const Report report = report_of(trace);
  ASSERT_EQ(report.launch_places.size(), 1U);
  EXPECT_EQ(report.launch_places[0].place, "layer (model.py:50)");
  EXPECT_NEAR(report.launch_places[0].gpu_frac, 1, 1e-9);
  EXPECT_EQ(report.launch_places[0].seen, loop.steps * loop.kernels);
}

TEST(LivePlanted, AWaitAfterEveryKernel) {
  Loop loop;
  loop.busy = 30 * kUs;
  loop.sync_each = true;
  const Report report = report_of(run_loop(loop));
  expect_whole(report);
  EXPECT_EQ(first_finding(report), "sync-bound");
  EXPECT_EQ(finding_of(report, "launch-bound"), nullptr) << "the gaps are those after the waits";
}

double step_ms_of(const Report& report) {
  const StageTiming* const stage = stage_of(report, "decode_step");
  return stage == nullptr ? 0 : stage->wall_ms.ms() / static_cast<double>(stage->count);
}

// What a finding's gain promises is what the program takes that is made without its cause.
TEST(LivePlanted, TheGainIsWhatTheHealthyProgramTakes) {
  Loop waits;
  waits.busy = 30 * kUs;
  Loop healthy = waits;
  waits.sync_each = true;
  const Report with = report_of(run_loop(waits)), without = report_of(run_loop(healthy));
  const Finding* found = finding_of(with, "sync-bound");
  ASSERT_TRUE(found != nullptr && found->gain);
  EXPECT_EQ(found->gain->method, "replay");
  EXPECT_FALSE(found->gain->on_top_of);
  EXPECT_NEAR(found->gain->to / found->gain->from, step_ms_of(without) / step_ms_of(with), 0.03);
  ASSERT_TRUE(found->gain->ci95);
  EXPECT_LE((*found->gain->ci95)[0], found->gain->to);
  EXPECT_GE((*found->gain->ci95)[1], found->gain->to);

  Loop launches;
  launches.busy = 4 * kUs;
  launches.host = 12 * kUs;
  const Report eager = report_of(run_loop(launches));
  found = finding_of(eager, "launch-bound");
  ASSERT_TRUE(found != nullptr && found->gain);
  EXPECT_EQ(found->gain->method, "replay");
  // Kernels behind each other, as far apart as nodes are where nothing was measured, one launch and one wait.
  const double least_us = 20 * 4 + 19 * 0.8, most_us = least_us + 25;
  EXPECT_GE(found->gain->to / found->gain->from * step_ms_of(eager) * 1e3, least_us);
  EXPECT_LE(found->gain->to / found->gain->from * step_ms_of(eager) * 1e3, most_us);
}

TEST(LivePlanted, LaunchesThatReturnBehindTheirKernel) {
  Loop loop;
  loop.busy = 30 * kUs;
  const Report healthy = report_of(run_loop(loop));
  loop.blocks = true;
  const Report report = report_of(run_loop(loop));
  EXPECT_EQ(finding_of(healthy, "launches-block"), nullptr);
  EXPECT_EQ(first_finding(report), "launches-block") << "what launches cost is not known before that";
  const Finding& found = report.findings.front();
  ASSERT_TRUE(found.gain);
  EXPECT_NEAR(found.gain->to / found.gain->from, step_ms_of(healthy) / step_ms_of(report), 0.05);
  EXPECT_DOUBLE_EQ(found.evidence[0].value.value_or(0), 20);
}

// Code before each step, in which the thread was ready to run and another program had its CPU, or the program's own.
TEST(LivePlanted, AThreadThatWaitsForACpuIsNoHostCode) {
  Loop loop;
  loop.before_step = 4 * kMs;
  const auto read = [](Trace trace, int64_t waited_ns) {
    for (Row row = 0; row < trace.api_calls.size(); ++row)
      if (trace.text(trace.api_calls.name[row]) == "cudaStreamSynchronize")
        TraceBuilder(trace).add<HostPaces>({.start_ns = trace.api_calls.start_ns[row] + trace.api_calls.dur_ns[row],
                                            .dur_ns = 1 * kUs,
                                            .thread = trace.api_calls.thread[row],
                                            .waited_ns = waited_ns});
    return trace;
  };
  const Report report = report_of(read(run_loop(loop), 4 * kMs)), own = report_of(read(run_loop(loop), 0));
  loop.before_step = 0;
  const Report alone = report_of(read(run_loop(loop), 0));
  ASSERT_EQ(first_finding(report), "cpu-contention");
  const Finding& found = report.findings.front();
  ASSERT_TRUE(found.gain);
  EXPECT_NEAR(found.gain->to / found.gain->from, step_ms_of(alone) / step_ms_of(report), 0.05);
  EXPECT_NEAR(found.evidence[0].value.value_or(0), 4, 0.5) << "the first step has no reading before it";
  EXPECT_EQ(finding_of(own, "cpu-contention"), nullptr);
  EXPECT_EQ(first_finding(own), "host-preprocessing");
}

// Launches of code under sys.settrace: nobody knows what they cost without it.
TEST(LivePlanted, ATracerComesBeforeWhatItSlowsDown) {
  Loop loop;
  loop.busy = 4 * kUs;
  loop.host = 30 * kUs;
  const auto place = [](Trace trace, std::string_view stack) {
    TraceBuilder builder(trace);
    for (Row row = 0; row < trace.api_calls.size(); ++row)
      builder.add<HostPlaces>({.start_ns = trace.api_calls.start_ns[row],
                               .dur_ns = 0,
                               .thread = trace.api_calls.thread[row],
                               .kind = PlaceKind::kLaunch,
                               .stack = builder.text(stack)});
    return trace;
  };
  const std::string plain = "step (/app/serve.py:9) < main (/app/serve.py:30)";
  const Report report = report_of(place(run_loop(loop), plain + " < [sys.settrace Audit.line (/app/audit.py:7)]"));
  const Report own = report_of(place(run_loop(loop), plain));
  ASSERT_EQ(first_finding(report), "python-traced");
  const Finding& found = report.findings.front();
  ASSERT_FALSE(found.where.empty());
  EXPECT_EQ(found.where[0].name, "Audit.line (audit.py:7)");
  ASSERT_TRUE(found.gain);
  EXPECT_EQ(found.gain->method, "formula");
  ASSERT_NE(finding_of(report, "launch-bound"), nullptr);
  EXPECT_EQ(finding_of(own, "python-traced"), nullptr);
  EXPECT_EQ(first_finding(own), "launch-bound");
  // The GPU does not wait: then it costs nothing.
  loop.busy = 60 * kUs;
  EXPECT_EQ(finding_of(report_of(place(run_loop(loop), plain + " < [sys.setprofile Profile]")), "python-traced"),
            nullptr);
}

// Launches of a CPU at half its pace: once they are a graph, the CPU may be at full pace, or as slow. What a program
// whose launches take half as long saves lies in the interval, though far from the gain.
TEST(LivePlanted, AnIntervalHoldsTheGainAtFullPace) {
  Loop loop;
  loop.busy = 10 * kUs;
  loop.host = 60 * kUs;
  const auto probed = [](Trace trace, int64_t took_ns) {
    for (int64_t i = 0; i < 10; ++i)  // long before the steps, so near none of them
      TraceBuilder(trace).add<HostPaces>({.start_ns = -kMs * (100 + i), .dur_ns = 4 * kUs, .thread = 0});
    for (Row row = 0; row < trace.api_calls.size(); ++row)
      if (trace.text(trace.api_calls.name[row]) == "cudaStreamSynchronize")
        TraceBuilder(trace).add<HostPaces>({.start_ns = trace.api_calls.start_ns[row] + trace.api_calls.dur_ns[row],
                                            .dur_ns = took_ns,
                                            .thread = trace.api_calls.thread[row]});
    return trace;
  };
  const Report slow = report_of(probed(run_loop(loop), 8 * kUs)), unknown = report_of(run_loop(loop));
  loop.host = 30 * kUs;
  const Report quick = report_of(run_loop(loop));
  const auto gain = [](const Report& report) {
    const Finding* const found = finding_of(report, "launch-bound");
    EXPECT_TRUE(found != nullptr && found->gain && found->gain->ci95);
    return *found->gain;
  };
  const FindingGain of_slow = gain(slow), of_unknown = gain(unknown), of_quick = gain(quick);
  const double left_frac = of_quick.to / of_quick.from;  // of the step, at full pace
  EXPECT_LT((*of_unknown.ci95)[1] / of_unknown.from, left_frac) << "nothing says that the CPU was slow";
  EXPECT_GE((*of_slow.ci95)[1] / of_slow.from, left_frac - 0.01);
  EXPECT_LT((*of_slow.ci95)[1] / of_slow.from, left_frac + 0.05);
  EXPECT_DOUBLE_EQ(of_slow.to, of_unknown.to) << "the gain is that of the pace it was recorded at";
}

// Copies of pageable memory in each step: to pin the memory is what to do first, and most of what no copies would save.
TEST(LivePlanted, PageableMemoryIsPinnedBeforeItsCopiesGo) {
  const auto copying = [](bool pinned) {
    constexpr int64_t kBytes = 25'200'000;  // 400 us at the 63 GB/s of the data sheet
    TestTrace b;
    int64_t host = 10 * kUs, gpu = 0;
    for (int s = 0; s < 10; ++s) {
      const int64_t start = host;
      const int64_t copy_ns = pinned ? 400 * kUs : 2000 * kUs;
      gpu = std::max(gpu, host + 8 * kUs);
      const GpuOpId op = static_cast<GpuOpId>(b.trace.gpu_ops.size());
      const int64_t in_call_ns = pinned ? 5 * kUs : gpu + copy_ns - host;
      b.gpu(pinned ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)", gpu, copy_ns,
            b.api("cudaMemcpyAsync", host, in_call_ns));
      b.trace.gpu_ops.bytes[op] = kBytes;
      gpu += copy_ns;
      host += in_call_ns + 5 * kUs;
      for (int k = 0; k < 20; ++k) {
        gpu = std::max(gpu, host + 8 * kUs);
        b.library_call(host, 6 * kUs, 1, 4096, 4096);
        b.gpu("gemm_layer", gpu, 30 * kUs, b.api("cudaLaunchKernel", host + kUs, 4 * kUs));
        gpu += 30 * kUs;
        host += 10 * kUs;
      }
      b.api("cudaStreamSynchronize", host, std::max<int64_t>(kUs, gpu + 2 * kUs - host));
      host = std::max(host + kUs, gpu + 2 * kUs) + 2 * kUs;
      b.annotation("decode_step", start, host - start - kUs, AnnotationKind::kNvtx);
    }
    b.level(-kMs, host + kMs, RecordingLevel::kDefault);
    b.trace.devices = AnalyzedRecording().trace.devices;
    b.trace.devices.name[0] = b.trace.strings.intern("NVIDIA H200");
    b.derive_all();
    return report_of(std::move(b.trace));
  };
  const Report pageable = copying(false), pinned = copying(true);
  ASSERT_EQ(first_finding(pageable), "pageable-copy");
  const Finding& found = pageable.findings.front();
  ASSERT_TRUE(found.gain);
  EXPECT_NEAR(found.gain->to / found.gain->from, step_ms_of(pinned) / step_ms_of(pageable), 0.03);
  const Finding* const rest = finding_of(pageable, "copy-bound");
  ASSERT_TRUE(rest != nullptr && rest->gain && rest->gain->on_top_of) << "what hiding them brings as well";
  EXPECT_EQ(*rest->gain->on_top_of, "pageable-copy");
  EXPECT_EQ(finding_of(pinned, "pageable-copy"), nullptr);
  EXPECT_EQ(first_finding(pinned), "copy-bound");
}

// What has its cause in one function, and what every model has everywhere. Of what goes, the gates have 160 of 272 us a
// layer, or 400 of 512; of the step, 0.1, 0.2 and 0.5.
TEST(LivePlanted, PassesOfOneFunctionAreACauseThoseOfAllAreNone) {
  struct Case {
    int others;
    int64_t product;
    bool one;
  };
  for (const Case& of : {Case{4, 600 * kUs, false}, Case{4, 200 * kUs, true}, Case{10, 100 * kUs, true}}) {
    const Report unplaced = report_of(run_norms(of.others, of.product));
    const Report report = report_of(placed(run_norms(of.others, of.product)));
    const Finding* const found = finding_of(report, "small-kernels-unfused");
    ASSERT_NE(found, nullptr);
    const Finding* const somewhere = finding_of(unplaced, "small-kernels-unfused");
    ASSERT_NE(somewhere, nullptr);
    EXPECT_GE(somewhere->severity, FindingSeverity::kMajor) << "where nothing is known of places";
    EXPECT_EQ(found->severity, of.one ? somewhere->severity : FindingSeverity::kMinor);
    ASSERT_TRUE(found->gain && somewhere->gain);
    EXPECT_FALSE(somewhere->gain->at || somewhere->gain->at_to);
    ASSERT_EQ(found->gain->at.has_value(), of.one);
    if (of.one) {
      const FindingGain& gain = *found->gain;
      const double part = of.others == 4 ? 160.0 / 272 : 400.0 / 512;
      EXPECT_EQ(*gain.at, "gate");
      EXPECT_NEAR(gain.at_to.value_or(0), gain.from - part * (gain.from - gain.to), 0.03 * gain.from)
          << "by one launch of seven";
      EXPECT_GE(gain.ci95.value()[1], gain.at_to.value_or(1e9)) << "nobody knows whether the others go";
    }
    const bool said = std::any_of(found->evidence.begin(), found->evidence.end(), [](const Evidence& evidence) {
      return evidence.metric.find("launched by gate") != std::string::npos;
    });
    EXPECT_EQ(said, !of.one);
  }
}

TEST(LivePlanted, AWaitIsNamedByItsLine) {
  Loop loop;
  loop.busy = 30 * kUs;
  loop.sync_each = true;
  Trace trace = run_loop(loop);
  const char* const code = "pick (/srv/app/serve.py:12) < decode (/srv/app/serve.py:30) < main (/srv/app/serve.py:44)";
  for (Row call = 0; call < trace.api_calls.size(); ++call)
    if (trace.text(trace.api_calls.name[call]) == "cudaStreamSynchronize")
      TraceBuilder(trace).add<HostPlaces>({.start_ns = trace.api_calls.start_ns[call],
                                           .dur_ns = trace.api_calls.dur_ns[call],
                                           .thread = 0,
                                           .kind = PlaceKind::kWait,
                                           .stack = trace.strings.intern(code)});
  const Report report = report_of(trace);
  const Finding* const found = finding_of(report, "sync-bound");
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->where.size(), 1U);
  EXPECT_EQ(found->where[0].name, "pick (serve.py:12) < decode (serve.py:30)");
  // One behind each kernel; the one that ends a step may count for the host's time behind it.
  EXPECT_GE(found->where[0].per_step.value_or(0), 20);
  EXPECT_LE(found->where[0].per_step.value_or(0), 21);
  ASSERT_FALSE(report.host_places.empty());
  EXPECT_EQ(report.host_places[0].stack, code);
}

// A server whose requests come seldom looks as one that prepares them for long; its CPUs tell.
TEST(LivePlanted, AProgramThatWaitsForItsInputPreparesNothing) {
  for (const bool works : {true, false}) {
    Loop loop;
    loop.before_step = 2 * kMs;
    Trace trace = run_loop(loop);
    int64_t cpu_ns = 1;
    for (Row row = 0; row < trace.annotations.size(); ++row) {
      cpu_ns += works ? 2 * kMs : 30 * kUs;
      TraceBuilder(trace).add<CpuReadings>({.start_ns = trace.annotations.start_ns[row] - 2 * kUs,
                                            .dur_ns = 2 * kMs + 3 * kUs,
                                            .thread = 0,
                                            .cpu_ns = cpu_ns});
      TraceBuilder(trace).add<HostPlaces>({.start_ns = trace.annotations.start_ns[row] - 2 * kUs,
                                           .dur_ns = 2 * kMs + 3 * kUs,
                                           .thread = 0,
                                           .kind = PlaceKind::kHostCode,
                                           .stack = trace.strings.intern("step (/srv/app/serve.py:30)")});
    }
    ASSERT_TRUE(derive(trace).has_value());
    const Report report = report_of(trace);
    expect_whole(report);
    const bool blamed =
        finding_of(report, "host-preprocessing") != nullptr || finding_of(report, "cpu-bound-gap") != nullptr;
    EXPECT_EQ(blamed, works);
    const Finding* const waits = finding_of(report, "no-input");
    ASSERT_EQ(waits != nullptr, !works);
    if (waits != nullptr) {
      EXPECT_EQ(waits->severity, FindingSeverity::kMinor) << "nobody knows whether there was work";
      EXPECT_NEAR(waits->evidence[0].value.value_or(0), 2 * 0.9, 0.25) << "of the first step nothing is known";
      ASSERT_FALSE(waits->where.empty());
      EXPECT_EQ(waits->where[0].name, "step (serve.py:30)");
    }
    ASSERT_FALSE(report.critical_path.empty());
    EXPECT_NEAR(report.critical_path[0].no_input_ms.ms(), works ? 0 : 2, 0.3);
    EXPECT_NEAR(report.critical_path[0].host_code_ms.ms(), works ? 2 : 0.2, 0.3);
  }
}

TEST(LivePlanted, HostCodeBeforeEveryStep) {
  Loop loop;
  loop.before_step = kMs;
  const Report report = report_of(run_loop(loop));
  expect_whole(report);
  EXPECT_EQ(first_finding(report), "host-preprocessing");
  EXPECT_EQ(finding_of(report, "cpu-bound-gap"), nullptr) << "told once";
}

// A host that was held up once for long: what each step waits for is what most of them wait for.
TEST(LivePlanted, OnePauseIsNotBeforeEachStep) {
  Loop loop;
  loop.before_step = kMs;
  const Report without = report_of(run_loop(loop));
  loop.pause = 200 * kMs;
  const Report with = report_of(run_loop(loop));
  expect_whole(with);
  const Finding* const found = finding_of(with, "host-preprocessing", "decode_step");
  const Finding* const expected = finding_of(without, "host-preprocessing", "decode_step");
  ASSERT_TRUE(found != nullptr && expected != nullptr);
  EXPECT_EQ(found->title, expected->title);
  ASSERT_TRUE(found->gain && expected->gain);
  EXPECT_EQ(found->gain->method, "replay");
  EXPECT_NEAR(found->gain->to, expected->gain->to, 0.01 * expected->gain->to);
}

TEST(LivePlanted, HostCodeBeforeEveryStepAfterALongStart) {
  Loop loop;
  loop.before_step = kMs;
  TestTrace b;
  b.trace = run_loop(loop);
  // A minute of loading: one copy, long before.
  b.gpu("Memcpy HtoD (Pinned -> Device)", -60'000 * kMs, kMs, b.api("cudaMemcpyAsync", -60'000 * kMs - 10 * kUs, kUs));
  b.trace.recorded = Recorded();
  b.level(-61'000 * kMs, 1000 * kMs, RecordingLevel::kDefault);
  b.derive_all();
  const Report report = report_of(b.trace);
  expect_whole(report);
  const Finding* finding = finding_of(report, "host-preprocessing");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->stage, "decode_step");
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical) << "1 of 3 ms of TPOT";
  EXPECT_EQ(first_finding(report), "host-preprocessing");
}

// Warm-up that detection takes for a prompt: slow, and before the program's own ranges begin, which are most of its
// time.
Trace with_warm_up(bool named) {
  Loop loop;
  loop.steps = 500;
  Trace trace = run_loop(loop);
  const int64_t begin = -1500 * kMs;
  TestTrace b;
  b.trace = std::move(trace);
  if (named) b.annotation("prefill", begin, 800 * kMs, AnnotationKind::kNvtx);
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t at = begin + i * 300 * kMs;
    b.library_call(at, 6 * kUs, 512, 4096, 4096);
    b.gpu("embedding", at + 8 * kUs, 10 * kUs, b.api("cudaLaunchKernel", at + kUs, 4 * kUs));
    b.gpu("gemm_layer", at + 100 * kMs, 100 * kUs, b.api("cudaLaunchKernel", at + 100 * kMs - 9 * kUs, 4 * kUs));
    b.gpu("argmax", at + 200 * kMs, 10 * kUs, b.api("cudaLaunchKernel", at + 200 * kMs - 9 * kUs, 4 * kUs));
  }
  b.trace.recorded = Recorded();
  b.level(begin - kMs, 2000 * kMs, RecordingLevel::kDefault);
  b.derive_all();
  return std::move(b.trace);
}

TEST(LivePlanted, WarmUpBeforeTheFirstNamedStageIsNotJudged) {
  const Report named = report_of(with_warm_up(true));
  EXPECT_NE(finding_of(named, "host-preprocessing"), nullptr) << "a stage of the program";
  const Report report = report_of(with_warm_up(false));
  expect_whole(report);
  EXPECT_TRUE(std::any_of(report.stages.begin(), report.stages.end(),
                          [](const StageTiming& stage) { return stage.name.ends_with(" [warm-up]"); }));
  ASSERT_TRUE(report.latency.has_value());
  EXPECT_FALSE(report.latency->ttft_ms.has_value()) << "no prompt was served";
  for (const char* id : {"cpu-bound-gap", "host-preprocessing", "launch-bound"})
    EXPECT_EQ(finding_of(report, id), nullptr) << id;
}

TEST(LiveRequest, ItsTimesAreThoseOfTheProgramsOwnClock) {
  for (const NamedRequest::Copies copies :
       {NamedRequest::Copies::kNone, NamedRequest::Copies::kCallsUnknown, NamedRequest::Copies::kRecorded}) {
    SCOPED_TRACE(static_cast<int>(copies));
    NamedRequest request;
    request.copies = copies;
    TestTrace b = request.build();
    b.derive_all();
    const Report report = report_of(b.trace);
    expect_whole(report);
    ASSERT_TRUE(report.latency && report.latency->ttft_ms && report.latency->tpot_ms);
    EXPECT_EQ(report.latency->ttft_ms->n, 1) << "tuning is no request";
    const double ttft_ms = static_cast<double>(NamedRequest::kTtftNs) / 1e6;
    EXPECT_NEAR(report.latency->ttft_ms->p50, ttft_ms, 0.01 * ttft_ms);
    const double tpot_ms = static_cast<double>(NamedRequest::kStepNs) / 1e6;
    EXPECT_NEAR(report.latency->tpot_ms->mean, tpot_ms, 0.01 * tpot_ms);
    ASSERT_TRUE(report.latency->headline.output_tokens_per_s);
    const double rate = 1e9 / static_cast<double>(NamedRequest::kStepNs);
    EXPECT_NEAR(*report.latency->headline.output_tokens_per_s, rate, 0.01 * rate);
    const StageTiming* prepare = stage_of(report, "preprocess");
    ASSERT_NE(prepare, nullptr);
    EXPECT_NEAR(prepare->wall_ms.ms(), static_cast<double>(NamedRequest::kPrepareNs) / 1e6, 0.05);
    EXPECT_EQ(prepare->bound, copies == NamedRequest::Copies::kNone ? Bound::kOverhead : prepare->bound);
  }
}

TEST(LiveRequest, WhatTheCpuPreparesAloneIsToldAsWaiting) {
  NamedRequest request;
  request.decode_steps = 3;
  request.tuning_ns = 30 * kMs;
  TestTrace b = request.build();
  b.derive_all();
  const Report report = report_of(b.trace);
  expect_whole(report);
  const StageTiming* prepare = stage_of(report, "preprocess");
  ASSERT_NE(prepare, nullptr);
  EXPECT_EQ(prepare->kernels, 0);
  EXPECT_EQ(prepare->gpu_busy_frac, 0.0);
  EXPECT_EQ(prepare->bound_detail, "nothing runs on the GPU meanwhile");
  const Finding* finding = finding_of(report, "host-preprocessing", "preprocess");
  ASSERT_NE(finding, nullptr);
  EXPECT_GE(finding->gain_ns, 0.95 * static_cast<double>(NamedRequest::kPrepareNs));
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical) << "8 of 13 ms of TTFT";
  EXPECT_EQ(finding_of(report, "host-preprocessing", "all"), nullptr) << "told once";
  for (const CannotTell& row : report.cannot_tell)
    EXPECT_EQ(row.question.find("FLOPs does preprocess"), std::string::npos);
  for (const CannotTell& row : report.cannot_tell)
    EXPECT_EQ(row.how_to_find_out.find("`llmprof run -- COMMAND`"), std::string::npos) << "this was one";
}

TEST(LivePlanted, ReplaysOfPaddedBatches) {
  Loop loop;
  loop.rows = 8;
  loop.name = "step[DECODE bs=5 toks=5]";
  Report report = report_of(run_loop(loop, true));
  expect_whole(report);
  const Finding* finding = finding_of(report, "graph-padding");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(*finding->evidence[2].value, 3.0 / 8, 1e-9);
  loop.rows = 5;
  EXPECT_EQ(finding_of(report_of(run_loop(loop, true)), "graph-padding"), nullptr);
}

// Concatenations of a growing cache, next to ones of constant size.
Trace cache_loop(bool grows) {
  TestTrace b;
  int64_t at = 10 * kUs;
  for (int s = 0; s < 20; ++s) {
    const int64_t start = at;
    b.library_call(at, 6 * kUs, 1, 4096, 4096);
    b.gpu("gemm_layer", at + 8 * kUs, 100 * kUs, b.api("cudaLaunchKernel", at + kUs, 4 * kUs));
    const int64_t cat = 20 * kUs + (grows ? s * kUs : s % 3 * 100);
    // The rotary embedding's, beside it, are as long in every step.
    for (int64_t half = 0; half < 2; ++half)
      b.gpu("CatArrayBatchedCopy<rotate_half>", at + (108 + half) * kUs, 1000,
            b.api("cudaLaunchKernel", at + 10 * kUs, 4 * kUs));
    b.gpu("CatArrayBatchedCopy", at + 110 * kUs, cat, b.api("cudaLaunchKernel", at + 10 * kUs, 4 * kUs));
    at += 120 * kUs + cat;
    b.api("cudaStreamSynchronize", start + 20 * kUs, at - start - 25 * kUs);
    b.annotation("decode_step", start, at - start - kUs, AnnotationKind::kNvtx);
  }
  b.level(-kMs, at + kMs, RecordingLevel::kDefault);
  b.derive_all();
  return std::move(b.trace);
}

TEST(LivePlanted, ConcatenationsThatGrowCopyACache) {
  const Report report = report_of(cache_loop(true));
  const Finding* finding = finding_of(report, "kv-cache-copy", "decode_step");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence[2].metric, "copies per step");
  EXPECT_DOUBLE_EQ(*finding->evidence[2].value, 1) << "two of three are those of the rotary embedding";
  EXPECT_EQ(finding_of(report_of(cache_loop(false)), "kv-cache-copy"), nullptr);
}

TEST(LivePlanted, FindingsCountForStepsWhoseKernelsAreMissing) {
  Loop loop;
  loop.busy = 4 * kUs;
  loop.host = 12 * kUs;
  Trace trace = run_loop(loop);
  const double all = finding_of(report_of(trace), "launch-bound")->gain_ns;
  // The same steps, half of them not recorded.
  for (Row s = 5; s < 10; ++s) {
    trace.steps.missing[s] = MissingKernels::kAll;
    trace.steps.state[s] = StepState::kNotRecorded;
  }
  EXPECT_NEAR(finding_of(report_of(trace), "launch-bound")->gain_ns / all, 1, 0.1);
}

// ---- windows -------------------------------------------------------------------------------------------------------

// A program that the recorder watches a fifth of the time. `request` runs one request at a time of the host and returns
// when it ended; its launches are kept where kernels are recorded, its ranges always.
class Watched {
 public:
  TestTrace b;
  bool windows = true;
  int64_t time = 0;
  static constexpr int64_t kPeriod = 160 * kMs, kOn = 32 * kMs;  // gaps longer than any step
  static constexpr int64_t kEnd = 6 * kPeriod;

  bool recorded(int64_t at) const { return !windows || at % kPeriod < kOn; }
  void launch(const char* kernel, int64_t call, int64_t start, int64_t dur, int64_t n = 4096, int64_t k = 4096) {
    // What is in flight when recording ends is cut.
    if (!recorded(call) || !recorded(start + dur) || call / kPeriod != (start + dur) / kPeriod) return;
    if (n > 0) b.library_call(call - kUs, 6 * kUs, 1, n, k);
    b.gpu(kernel, start, dur, b.api("cudaLaunchKernel", call, 4 * kUs));
  }
  void wait(int64_t from, int64_t until) {
    if (recorded(from) && recorded(until) && from / kPeriod == until / kPeriod)
      b.api("cudaStreamSynchronize", from, until - from);
  }
  Report report() {
    for (int64_t at = -3 * kPeriod; at < time + kPeriod; at += kPeriod) {
      const bool all = !windows || at < 0;
      b.level(at, at + (all ? kPeriod : kOn), RecordingLevel::kDefault);
      if (!all) b.level(at + kOn, at + kPeriod, RecordingLevel::kLight);
    }
    b.trace.devices = AnalyzedRecording().trace.devices;
    b.trace.devices.name[0] = b.trace.strings.intern("NVIDIA H200");
    b.derive_all();
    Report out = report_of(b.trace);
    expect_whole(out);
    return out;
  }
};

// Slow first calls without ranges, all of them recorded; then steps that nothing waits for, limited by their launches.
Report unwaited_steps(bool windows) {
  Watched w;
  w.windows = windows;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t at = (-345 + i * 115) * kMs;
    int64_t call = at;
    for (const char* kernel : {"gather", "gemm_up", "gemm_down", "argmax"}) {
      if (std::string_view(kernel).substr(0, 4) == "gemm") w.b.library_call(call - kUs, 6 * kUs, 1, 4096, 4096);
      w.b.gpu(kernel, call + 8 * kUs, 4 * kUs, w.b.api("cudaLaunchKernel", call, 4 * kUs));
      call += 38 * kMs;
    }
  }
  w.time = 100 * kUs;
  while (w.time < Watched::kEnd) {
    for (int step = 0; step < 16; ++step) {
      const int64_t start = w.time;
      for (int k = 0; k < 20; ++k, w.time += 12 * kUs) w.launch("gemm_layer", w.time + kUs, w.time + 8 * kUs, 4 * kUs);
      w.b.annotation("decode_step", start, w.time - start - kUs, AnnotationKind::kNvtx);
    }
    w.wait(w.time, w.time + 10 * kUs);
    w.time += 60 * kUs;
  }
  return w.report();
}

TEST(LiveWindows, StepsThatNothingIsKnownOfCountLikeTheRecordedOnes) {
  const Report whole = unwaited_steps(false), windows = unwaited_steps(true);
  const StageTiming* stage = stage_of(windows, "decode_step");
  ASSERT_NE(stage, nullptr);
  ASSERT_EQ(stage_of(windows, "decode_step [not recorded]"), nullptr) << "nothing waits: their times are not the GPU's";
  EXPECT_LT(stage->count * 4, stage_of(whole, "decode_step")->count);
  for (const Report* report : {&whole, &windows}) {
    EXPECT_EQ(first_finding(*report), "launch-bound");
    EXPECT_EQ(finding_of(*report, "host-preprocessing"), nullptr) << "a program starts once";
    const Finding* finding = finding_of(*report, "launch-bound", "decode_step");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
    EXPECT_NEAR(*finding->evidence[1].value, 20 * 0.004, 0.003) << finding->evidence[1].metric;
    EXPECT_NEAR(*finding->evidence[2].value, 20 * 0.008, 0.01) << finding->evidence[2].metric;
    EXPECT_NEAR(*finding->evidence[3].value, 20, 0.1) << finding->evidence[3].metric;
  }
  const double expected = finding_of(whole, "launch-bound", "decode_step")->gain_ns;
  EXPECT_NEAR(finding_of(windows, "launch-bound", "decode_step")->gain_ns / expected, 1, 0.1);
}

// Waited steps, with host code between them that is in no range.
Report pauses_between_steps(bool windows) {
  Watched w;
  w.windows = windows;
  w.time = 100 * kUs;
  while (w.time < Watched::kEnd) {
    w.time += 400 * kUs;
    const int64_t start = w.time;
    for (int k = 0; k < 4; ++k)
      w.launch("gemm_layer", start + (10 * k + 1) * kUs, start + (8 + 150 * k) * kUs, 150 * kUs);
    w.wait(start + 50 * kUs, start + 610 * kUs);
    w.time = start + 620 * kUs;
    w.b.annotation("decode_step", start, w.time - start - kUs, AnnotationKind::kNvtx);
  }
  return w.report();
}

TEST(LiveWindows, PausesBetweenStepsCountTheSameWhateverIsRecorded) {
  const Report whole = pauses_between_steps(false), windows = pauses_between_steps(true);
  ASSERT_NE(stage_of(windows, "decode_step [not recorded]"), nullptr);
  EXPECT_EQ(first_finding(whole), "host-preprocessing");
  EXPECT_EQ(first_finding(windows), "host-preprocessing");
  EXPECT_NEAR(windows.findings[0].gain_ns / whole.findings[0].gain_ns, 1, 0.1);
  EXPECT_EQ(windows.findings[0].severity, FindingSeverity::kCritical) << "0.4 of 1.0 ms";
  ASSERT_TRUE(whole.findings[0].gain);
  EXPECT_EQ(whole.findings[0].gain->method, "replay");
  EXPECT_NEAR(whole.findings[0].gain->from - whole.findings[0].gain->to, 0.4, 0.02);
  EXPECT_NEAR(whole.findings[0].gain->to, 0.62, 0.03);
}

// Prompts that are tokenised inside their range, under --torch.
Report tokenised_prompts(bool windows) {
  Watched w;
  w.windows = windows;
  w.time = 100 * kUs;
  while (w.time < Watched::kEnd) {
    const int64_t start = w.time, ready = start + 600 * kUs;
    if (w.recorded(start) && w.recorded(ready)) w.b.python("text.py(14): tokenize", start + kUs, 590 * kUs);
    w.launch("embedding", start + kUs / 2, start + 5 * kUs, 2 * kUs, 0);
    for (int k = 0; k < 4; ++k)
      w.launch("gemm_layer", ready + (10 * k + 1) * kUs, ready + (8 + 80 * k) * kUs, 80 * kUs);
    w.wait(ready + 50 * kUs, ready + 330 * kUs);
    w.time = ready + 340 * kUs;
    w.b.annotation("prefill", start, w.time - start - kUs, AnnotationKind::kNvtx);
  }
  return w.report();
}

TEST(LiveWindows, TokenisingIsNamedOnceAndFirst) {
  for (const bool windows : {false, true}) {
    const Report report = tokenised_prompts(windows);
    EXPECT_EQ(first_finding(report), "host-preprocessing") << windows;
    EXPECT_EQ(finding_of(report, "cpu-bound-gap"), nullptr) << "told once";
    ASSERT_FALSE(report.findings.empty());
    EXPECT_NEAR(report.findings[0].gain_ns / Watched::kEnd, 0.62, 0.08);
  }
}

// Steps that the GPU needs most of: host code before them and an allocation in them cost some percent each.
Report several_small_causes(int64_t code_ns, int64_t malloc_ns) {
  Watched w;
  w.windows = false;
  w.time = 100 * kUs;
  while (w.time < Watched::kEnd) {
    const int64_t start = w.time;
    w.b.annotation("decode_step", start, 3160 * kUs + code_ns + malloc_ns - kUs, AnnotationKind::kNvtx);
    w.time += code_ns;
    for (int half = 0; half < 2; ++half) {
      if (half == 1) {
        w.b.api("cudaMalloc", w.time, malloc_ns);
        w.time += malloc_ns;
      }
      for (int k = 0; k < 15; ++k)
        w.launch("gemm_layer", w.time + 10 * k * kUs, w.time + (15 + 103 * k) * kUs, 100 * kUs);
      w.wait(w.time + 160 * kUs, w.time + 1570 * kUs);
      w.time += 1580 * kUs;
    }
  }
  return w.report();
}

TEST(LiveWhole, SeveralSmallCausesAreNoSingleOne) {
  const Report small = several_small_causes(260 * kUs, 200 * kUs);
  ASSERT_FALSE(small.findings.empty());
  EXPECT_EQ(first_finding(small), "no-single-cause");
  ASSERT_TRUE(small.findings[0].gain);
  EXPECT_NEAR(1 - small.findings[0].gain->to / small.findings[0].gain->from, 0.13, 0.03);
  EXPECT_GE(small.findings[0].evidence.size(), 2U);
  EXPECT_EQ(finding_of(several_small_causes(260 * kUs, 5 * kUs), "no-single-cause"), nullptr) << "one cause alone";
  EXPECT_EQ(finding_of(several_small_causes(1500 * kUs, 200 * kUs), "no-single-cause"), nullptr) << "a large one";
}

TEST(LiveLight, StepsAndLatencyFromRangesAlone) {
  TestTrace b;
  b.annotation("prefill", 0, 20 * kMs, AnnotationKind::kNvtx);
  for (int64_t i = 0; i < 5; ++i) b.annotation("decode_step", (20 + 8 * i) * kMs, 8 * kMs - 100, AnnotationKind::kNvtx);
  b.level(-kMs, 100 * kMs, RecordingLevel::kLight);
  b.derive_all();
  const Report report = report_of(b.trace);
  expect_whole(report);
  ASSERT_TRUE(report.latency && report.latency->ttft_ms && report.latency->tpot_ms);
  EXPECT_NEAR(report.latency->ttft_ms->mean, 20, 1e-9);
  EXPECT_NEAR(report.latency->tpot_ms->mean, 8, 1e-3);
  const StageTiming* decode = stage_of(report, "decode_step");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->source, StageSource::kNvtx);
  EXPECT_FALSE(decode->gpu_busy_ms.known || decode->gpu_busy_frac || decode->tokens);
  EXPECT_TRUE(report.findings.empty());
}

}  // namespace
}  // namespace llmprof
