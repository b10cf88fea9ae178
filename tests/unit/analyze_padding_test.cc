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

}  // namespace
}  // namespace llmprof
