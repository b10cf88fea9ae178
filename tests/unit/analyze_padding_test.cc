// What decode steps compute and nobody needs, in programs made with it and in others that only look alike.
#include <gtest/gtest.h>

#include "analyze_recording.h"

namespace llmprof {
namespace {

// A prompt of some sequences and ten decode steps on some rows, 4 ms each: products with weights, attention with a
// block for each head of each row, and a copy of some bytes to the host.
struct Ferry {
  int64_t prompts = 6, rows = 64, attended = 64, read_bytes = 48, prompt_read_bytes = 48;
  int64_t warm_up_prompts = 6;
  std::string_view kernel = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80";
  bool steps_named = false;  // by the program, with its tokens

  AnalyzedRecording recording() const {
    AnalyzedRecording run;
    int64_t at = 0;
    const auto kernel_of = [&](StepId step, Category category, int64_t ns, AnalyzedRecording::Kernel links,
                               std::string_view name) {
      links.step = step;
      const GpuOpId op = run.gpu(name, category, at, ns, links);
      run.busy(at, at + ns);
      at += ns;
      return op;
    };
    const auto read = [&](StepId step, int64_t bytes) {
      if (bytes == 0) return;
      const GpuOpId copy =
          kernel_of(step, Category::kCopy, 2 * kUs, {.kind = GpuOpKind::kMemcpy}, "Memcpy DtoH (Device -> Pageable)");
      run.trace.gpu_ops.bytes[copy] = bytes;
    };
    const auto prompt = [&](int64_t sequences, StepPhase phase) {
      if (sequences == 0) return;
      const StepId step = run.step(StageKind::kPrefill, at, at + 4 * kMs, 448 * std::max<int64_t>(sequences, 1), 448);
      run.trace.steps.sequences[step] = sequences;
      run.trace.steps.phase[step] = phase;
      const int64_t end = at + 4 * kMs;
      kernel_of(step, Category::kGemm, 3 * kMs, {.work = run.gemm(DType::kBf16, 448, 4096, 4096)}, "gemm");
      read(step, prompt_read_bytes);
      run.gap(IdleCause::kNoWork, at, end - at, step);
      at = end;
    };
    prompt(warm_up_prompts, StepPhase::kWarmUp);
    prompt(prompts, StepPhase::kServing);
    const WorkId product = run.gemm(DType::kBf16, rows, 4096, 4096);
    const LaunchConfigId grid = run.config(1, 256);
    run.trace.launch_configs.grid_y[grid] = 16;
    run.trace.launch_configs.grid_z[grid] = static_cast<int32_t>(attended);
    run.trace.launch_configs.registers_per_thread[grid] = 128;  // two blocks an SM
    for (int64_t i = 0; i < 10; ++i) {
      const StepId step = run.step(StageKind::kDecode, at, at + 4 * kMs, rows, -1);
      const int64_t end = at + 4 * kMs;
      run.trace.steps.sequences[step] = rows;
      run.trace.steps.gemm_rows[step] = rows;
      if (steps_named) {
        run.trace.steps.annotation[step] = 0;
        run.trace.steps.new_tokens[step] = prompts;
      }
      kernel_of(step, Category::kGemm, 20 * kUs, {.work = product}, "gemm");
      kernel_of(step, Category::kAttention, 3 * kMs, {.config = grid}, kernel);
      read(step, read_bytes);
      run.gap(IdleCause::kNoWork, at, end - at, step);
      at = end;
    }
    run.window(0, at);
    return run;
  }
  const Finding* found() {
    report = report_of(recording());
    return finding_of(report, "padded-batch", "decode");
  }
  Report report{};
};

TEST(PaddedBatch, RowsThatNoSequenceIsIn) {
  Ferry ferry;
  const Finding* finding = ferry.found();
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title, "decode: each step computes 64 rows for 6 sequences");
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  ASSERT_TRUE(finding->bound);
  // Four waves of 264 blocks, of which one stays: 1,024 blocks, two at a time on each of 132 SMs.
  EXPECT_NEAR(finding->bound->to, 4 - 3 * 0.75, 0.02);
  EXPECT_DOUBLE_EQ(*finding->evidence[4].value, 8);
}

TEST(PaddedBatch, NothingWhereMostRowsAreInUse) {
  EXPECT_EQ((Ferry{.prompts = 40, .read_bytes = 320}).found(), nullptr);
  EXPECT_EQ((Ferry{.prompts = 32, .read_bytes = 256}).found(), nullptr) << "as guidance computes them";
  EXPECT_NE((Ferry{.prompts = 31, .read_bytes = 248}).found(), nullptr);
}

// One prompt may have many continuations: what it is read for tells.
TEST(PaddedBatch, NothingWhereAllRowsAreRead) {
  EXPECT_EQ((Ferry{.read_bytes = 512}).found(), nullptr) << "a token of each row";
  EXPECT_EQ((Ferry{.read_bytes = 256}).found(), nullptr) << "one of 4 bytes";
  EXPECT_EQ((Ferry{.read_bytes = 0}).found(), nullptr) << "nothing is read";
  EXPECT_EQ((Ferry{.read_bytes = 1}).found(), nullptr) << "whether all are done";
  EXPECT_EQ((Ferry{.read_bytes = 40}).found(), nullptr) << "numbers of something else";
}

TEST(PaddedBatch, OneNumberMayBeACount) {
  const Ferry one{.prompts = 1, .read_bytes = 8, .prompt_read_bytes = 8, .warm_up_prompts = 0};
  Ferry token = one, count = one;
  EXPECT_NE(token.found(), nullptr);
  count.prompt_read_bytes = 0;
  EXPECT_EQ(count.found(), nullptr);
}

TEST(PaddedBatch, NothingOfPromptsThatAreNotKnown) {
  EXPECT_EQ((Ferry{.prompts = 0, .warm_up_prompts = 0}).found(), nullptr);
  EXPECT_EQ((Ferry{.prompts = -1, .warm_up_prompts = 0}).found(), nullptr);
}

TEST(PaddedBatch, RowsOfOneSequenceAreDrafts) {
  EXPECT_EQ((Ferry{.attended = 6}).found(), nullptr);
  EXPECT_EQ((Ferry{.kernel = "attention_of_their_own"}).found(), nullptr) << "whose grid says nothing";
}

TEST(PaddedBatch, StepsThatTheProgramNames) { EXPECT_EQ((Ferry{.steps_named = true}).found(), nullptr); }

// Two layers of a model 2,048 wide with 16 heads and 4 of keys, 16 sequences with prompts of 224 tokens and ten decode
// steps after them, of which attention takes 2 x 1 ms of 3 ms.
struct Notary {
  double read_places = 8192;  // of each sequence by each layer, as the counters saw it
  int64_t prompts = 16, sequences = 16, prompt_tokens = 224 * 16;
  int64_t key_value_width = 1024;
  bool written_out = false;  // with `read_places` in its shapes
  RecordingLevel first_level = RecordingLevel::kDefault;
  std::string_view first_reason = "start";
  bool own_keys = true;       // else its keys are those of something else
  int64_t pass_ns = 2 * kUs;  // of a pass before each attention

  AnalyzedRecording recording() const {
    AnalyzedRecording run;
    TraceBuilder rows(run.trace);
    int64_t at = 10 * kUs, host = 0;
    const auto level = [&](int64_t start, int64_t end, RecordingLevel value, std::string_view reason) {
      rows.add<Recorded>({.start_ns = start,
                          .dur_ns = end - start,
                          .process_id = 0,
                          .level = value,
                          .reason = rows.text(reason),
                          .cut_ns = 0});
    };
    level(-20 * kMs, -10 * kMs, first_level, first_reason);
    level(-10 * kMs, 1000 * kMs, RecordingLevel::kDefault, "start");
    StepId step;
    const auto kernel = [&](Category category, int64_t ns, WorkId work = kNoRow) {
      run.gpu(category == Category::kAttention ? "fmha_cutlassF" : "kernel", category, at, ns,
              {.step = step, .api = run.api("cudaLaunchKernel", host, kUs), .work = work});
      host += 2 * kUs;
      run.busy(at, at + ns);
      at += ns;
    };
    const auto batched = [&](int64_t n, int64_t k) {
      const WorkId work = run.gemm(DType::kBf16, 4, n, k);
      run.trace.works.batch[work] = sequences * 4;
      run.trace.works.weight_bytes[work] = 0;
      return work;
    };
    step = run.step(StageKind::kPrefill, 0, 4 * kMs, prompt_tokens, 224);
    run.trace.steps.sequences[step] = prompts;
    kernel(Category::kGemm, 4 * kMs, run.gemm(DType::kBf16, prompt_tokens, 4096, 4096));
    const auto product = [&](int64_t n, int64_t k) { return run.gemm(DType::kBf16, sequences, n, k); };
    const WorkId qkv = product(own_keys ? 2048 + key_value_width : 2048, 2048), out = product(2048, 2048),
                 up = product(11264, 2048), down = product(2048, 5632);
    const int64_t places = static_cast<int64_t>(read_places);
    const WorkId scores = batched(places, 128), result = batched(128, places);
    const double weights = 2.0 * 2 * (2048.0 * (2048 + 1024 + 2048 + 11264) + 2048.0 * 5632);
    const double keys = 2.0 * 2 * 1024 * static_cast<double>(sequences) * read_places;
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t begin = at;
      host = begin;
      at += 10 * kUs;
      step = run.step(StageKind::kDecode, begin, begin + 3 * kMs, sequences, 225 + i);
      run.trace.steps.sequences[step] = sequences;
      run.trace.steps.gemm_rows[step] = sequences;
      for (int layer = 0; layer < 2; ++layer) {
        kernel(Category::kGemm, 20 * kUs, qkv);
        kernel(Category::kElementwise, pass_ns);
        if (written_out) {
          kernel(Category::kGemm, 500 * kUs, scores);
          kernel(Category::kSoftmax, 100 * kUs);
          kernel(Category::kGemm, 400 * kUs, result);
        } else {
          kernel(Category::kAttention, kMs);
        }
        for (const WorkId work : {out, up, down}) kernel(Category::kGemm, 20 * kUs, work);
      }
      run.api("cudaStreamSynchronize", host, at + 5 * kUs - host);
      run.gap(IdleCause::kNoWork, at, begin + 3 * kMs - at, step);
      at = begin + 3 * kMs;
      for (int64_t time = begin; time < at && !written_out; time += 100 * kUs)
        rows.add<GpuSamples>({.start_ns = time,
                              .dur_ns = 100 * kUs,
                              .device = 0,
                              .source = CounterSource::kPmSampling,
                              .dram_read_bytes_per_s = static_cast<float>((weights + keys) / 3e-3),
                              .dram_write_bytes_per_s = 0});
    }
    run.window(0, at);
    return run;
  }
  const Finding* found() {
    report = report_of(recording());
    return finding_of(report, "padded-attention", "decode");
  }
  Report report{};
};

TEST(PaddedAttention, PlacesThatHoldNoKeyByTraffic) {
  Notary notary;
  const Finding* finding = notary.found();
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NEAR(*finding->evidence[0].value, 8192, 0.1 * 8192) << "less what products may have read twice";
  EXPECT_LE(*finding->evidence[0].value, 8192);
  EXPECT_DOUBLE_EQ(*finding->evidence[1].value, 224 + 10);
  EXPECT_DOUBLE_EQ(*finding->evidence[2].value, 256);
  ASSERT_TRUE(finding->bound);
  EXPECT_NEAR(finding->bound->to, 3 - 2 * (1 - 256.0 / 8192), 0.02);
}

TEST(PaddedAttention, PlacesThatHoldNoKeyByShapes) {
  Notary notary{.written_out = true};
  const Finding* finding = notary.found();
  ASSERT_NE(finding, nullptr);
  EXPECT_DOUBLE_EQ(*finding->evidence[0].value, 8192);
  EXPECT_EQ(finding->evidence[0].provenance, Provenance::kCounted);
}

TEST(PaddedAttention, NothingOfACacheThatIsCutToItsLength) {
  EXPECT_EQ((Notary{.read_places = 256}).found(), nullptr);
  EXPECT_EQ((Notary{.read_places = 256, .written_out = true}).found(), nullptr);
}

// Keys may be as many as all tokens of the program's life.
TEST(PaddedAttention, NothingWhereTheTokensMayBeInTheCache) {
  EXPECT_EQ((Notary{.prompt_tokens = 4096 * 16}).found(), nullptr);
  EXPECT_EQ((Notary{.first_level = RecordingLevel::kLight, .first_reason = "delay"}).found(), nullptr);
  EXPECT_NE((Notary{.first_level = RecordingLevel::kLight}).found(), nullptr) << "while CUDA starts";
  EXPECT_EQ((Notary{.prompt_tokens = -1}).found(), nullptr);
}

TEST(PaddedAttention, NothingWhereManyGoOnFromOnePrompt) {
  EXPECT_EQ((Notary{.prompts = 1}).found(), nullptr);
  EXPECT_EQ((Notary{.prompts = -1}).found(), nullptr);
}

TEST(PaddedAttention, NothingOfKeysThatTheStepDoesNotMake) {
  EXPECT_EQ((Notary{.own_keys = false}).found(), nullptr);
  EXPECT_EQ((Notary{.written_out = true, .own_keys = false}).found(), nullptr);
}

// A pass that is long enough may have made wider keys for each head, which attention reads then.
TEST(PaddedAttention, TrafficThatPassesMayHaveMade) { EXPECT_EQ((Notary{.pass_ns = 100 * kUs}).found(), nullptr); }

}  // namespace
}  // namespace llmprof
