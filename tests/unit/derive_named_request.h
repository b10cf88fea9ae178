// A request to a vision-language model as `llmprof run` records it, whose program names its stages and waits in each:
// products are tuned first, then an image is prepared on the CPU, encoded, and tokens are made. Times in ns; the first
// stage begins at 0.
#pragma once

#include <string>

#include "derive_trace_builder.h"

namespace llmprof {

struct NamedRequest {
  enum class Copies { kNone, kCallsUnknown, kRecorded };
  Copies copies = Copies::kNone;  // of the prepared image, the prompt and the tokens
  int64_t tuning_ns = 430'000'000;
  int64_t decode_steps = 63;
  int64_t sequences = 1;

  static constexpr int64_t kUs = 1000, kMs = 1'000'000;
  static constexpr int64_t kPrepareNs = 8 * kMs, kEncodeNs = kMs, kPromptNs = 4 * kMs, kStepNs = 1600 * kUs;
  static constexpr int64_t kTtftNs = kPrepareNs + kEncodeNs + kPromptNs;
  static constexpr int64_t kTokens = 512;

  TestTrace build() const {
    TestTrace b;
    tune(b);
    stage(b, "preprocess", 0, kPrepareNs);
    if (copies != Copies::kNone) copy(b, kPrepareNs - 100 * kUs, 20 * kUs);
    wait(b, kPrepareNs - 90 * kUs, 60 * kUs);
    stage(b, "vision encoder", kPrepareNs, kEncodeNs);
    for (int64_t i = 0; i < 8; ++i) gemm(b, kPrepareNs + (50 + i * 100) * kUs, 256, 1024, 1024, 90 * kUs);
    wait(b, kPrepareNs + 880 * kUs, 100 * kUs);
    const int64_t prompt = kPrepareNs + kEncodeNs, all = sequences * kTokens;
    const std::string bs = "[bs=" + std::to_string(sequences);
    stage(b, "prefill" + bs + " tok=" + std::to_string(all) + " c_sk=" + std::to_string(all) + "]", prompt, kPromptNs);
    if (copies != Copies::kNone) copy(b, prompt + 40 * kUs, 5 * kUs);
    pass(b, prompt + 50 * kUs, all, kPromptNs - 50 * kUs);
    for (int64_t step = 0; step < decode_steps; ++step) {
      const int64_t start = kTtftNs + step * kStepNs;
      stage(b, "decode" + bs + " g_sk=" + std::to_string(sequences * (kTokens + step + 1)) + "]", start, kStepNs);
      pass(b, start, sequences, kStepNs);
    }
    b.level(-tuning_ns - kMs, kTtftNs + decode_steps * kStepNs + kMs, RecordingLevel::kDefault);
    return b;
  }

 private:
  static void stage(TestTrace& b, const std::string& name, int64_t start, int64_t dur) {
    b.annotation(name, start + kUs, dur - 2 * kUs, AnnotationKind::kNvtx);
  }
  static void wait(TestTrace& b, int64_t start, int64_t dur) { b.api("cuStreamSynchronize", start, dur); }
  static void gemm(TestTrace& b, int64_t at, int64_t m, int64_t n, int64_t k, int64_t dur) {
    b.library_call(at, 8 * kUs, m, n, k);
    b.launch(m == 1 ? "gemm_row" : "gemm_rows", at + 2 * kUs, at + 10 * kUs, dur);
  }
  void copy(TestTrace& b, int64_t start, int64_t dur) const {
    const uint64_t call = copies == Copies::kRecorded ? b.api("cuMemcpyHtoDAsync", start - 8 * kUs, 4 * kUs) : 0;
    b.gpu("Memcpy HtoD (Pinned -> Device)", start, dur, call);
  }
  // Candidates for each product, the output layer's last.
  void tune(TestTrace& b) const {
    for (int64_t i = 0; i < 6; ++i) gemm(b, -tuning_ns + i * tuning_ns / 6, sequences * kTokens, 1024, 1024, kMs);
    gemm(b, -20 * kMs, sequences, 32000, 1024, kMs);
    wait(b, -20 * kMs + 20 * kUs, 2 * kMs);
  }
  // One run of the decoder that ends, token back on the host, `dur` after `start`.
  void pass(TestTrace& b, int64_t start, int64_t tokens, int64_t dur) const {
    const int64_t each = (dur - 200 * kUs) / 9;
    for (int64_t i = 0; i < 8; ++i) gemm(b, start + 20 * kUs + i * each, tokens, 1024, 1024, each - 12 * kUs);
    gemm(b, start + 20 * kUs + 8 * each, sequences, 32000, 1024, each - 12 * kUs);
    b.launch("argmax", start + dur - 120 * kUs, start + dur - 100 * kUs, 10 * kUs);
    if (copies != Copies::kNone) copy(b, start + dur - 88 * kUs, 2 * kUs);
    wait(b, start + dur - 80 * kUs, 70 * kUs);
  }
};

}  // namespace llmprof
