#include <gtest/gtest.h>

#include <ctime>

#include "derive/detect_period.h"
#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

// A model of `layers` layers, run eagerly. Kernel names differ between prefill and decode as they do in reality.
class Model {
 public:
  TestTrace b;
  int layers = 4;
  bool operators = true;
  bool sampling = true;
  bool sync = true;
  int64_t time = 1000;  // of the host; every launch takes 100 ns and its kernel starts 20 ns after the call

  void kernel(const std::string& name, std::string_view op = {}, std::string_view dims = {}) {
    uint64_t id = 0;
    if (operators && !op.empty()) id = b.op(op, time, 90, dims);
    b.launch(name, time + 10, time + 30, 60, id);
    time += 100;
  }
  void run(int64_t batch, int64_t tokens) {
    const std::string size = tokens == 1 ? "_small" : "_large";
    const std::string ids = "[" + std::to_string(batch) + ", " + std::to_string(tokens) + "]";
    kernel("gather" + size, "aten::embedding", "[[32000, 64], " + ids + ", [], [], []]");
    kernel("positions", "aten::arange");
    for (int layer = 0; layer < layers; ++layer) {
      kernel("norm", "aten::rms_norm");
      kernel("gemm_qkv" + size, "aten::mm");
      kernel("attn" + size, "aten::scaled_dot_product_attention");
      kernel("gemm_out" + size, "aten::mm");
      kernel("silu", "aten::silu");
      kernel("gemm_down" + size, "aten::mm");
    }
    kernel("last_norm", "aten::rms_norm");
    kernel("gemm_head", "aten::mm");
    if (sampling) kernel("argmax", "aten::argmax", "[[" + std::to_string(batch) + ", 1, 32000], [], []]");
    if (sync) {
      b.api("cudaDeviceSynchronize", time, 50);
      time += 60;
    }
    time += 40;
  }
  // A forward pass as one CUDA graph, then the choice of the token.
  void replay(const std::string& node_prefix = "") {
    const uint64_t call = b.api("cudaGraphLaunch", time, 40);
    gpu_time = std::max(gpu_time, time + 20);
    for (int layer = 0; layer < 40; ++layer) {
      for (const char* name : {"norm", "gemm", "attn", "gemm2", "silu", "gemm3"}) {
        b.gpu(node_prefix + name, gpu_time, 8, call);
        gpu_time += 10;
      }
    }
    time += 50;
    if (!sampling) return;
    b.gpu("argmax", gpu_time, 8, b.api("cudaLaunchKernel", time, 5));
    time += 10;
    b.gpu("Memcpy DtoD (Device -> Device)", gpu_time + 10, 2, b.api("cudaMemcpyAsync", time, 5));
    gpu_time += 20;
    time += 10;
  }
  int64_t gpu_time = 0;
  void wait() {
    b.api("cudaStreamSynchronize", time, 50);
    time += 60;
  }
  // Kernels of which no rule knows what they do.
  std::vector<std::string> own;
  Trace& derive_with_own() {
    b.build();
    for (Row op = 0; op < b.trace.gpu_ops.size(); ++op)
      if (std::find(own.begin(), own.end(), b.trace.text(b.trace.gpu_ops.name[op])) != own.end())
        b.trace.gpu_links.category[op] = Category::kOther;
    EXPECT_TRUE(find_steps(b.trace, {}));
    return b.trace;
  }

  std::vector<StageKind> kinds() const { return b.trace.steps.kind; }
};

using Kinds = std::vector<StageKind>;
constexpr StageKind P = StageKind::kPrefill, D = StageKind::kDecode;

TEST(Detect, EagerOperators) {
  Model m;
  m.run(2, 128);
  for (int i = 0; i < 3; ++i) m.run(2, 1);
  Trace& trace = m.b.derive_all();
  ASSERT_EQ(m.kinds(), (Kinds{P, D, D, D}));
  EXPECT_EQ(broken_invariant(trace), "");
  EXPECT_EQ(trace.steps.source[0], StageSource::kDetected);
  EXPECT_EQ(trace.steps.new_tokens[0], 256);
  EXPECT_EQ(trace.steps.sequences[0], 2);
  EXPECT_EQ(trace.steps.output_tokens[0], 2);
  EXPECT_EQ(trace.steps.new_tokens[1], 2);
  EXPECT_EQ(trace.steps.context[1], -1);  // no attention shapes
  EXPECT_EQ(trace.steps.start_ns[0], 1000);
  EXPECT_EQ(trace.steps.start_ns[1], trace.steps.end_ns[0]);
  EXPECT_EQ(trace.steps.sync_ns[1], trace.steps.end_ns[1]);
  EXPECT_EQ(trace.text(trace.steps.stage[1]), "decode");
  EXPECT_DOUBLE_EQ(step_coverage_frac(trace, 0), 1.0);
}

TEST(Detect, WithoutWaitsTheEmbeddingOpensTheStep) {
  Model m;
  m.sync = false;
  m.run(1, 128);
  m.run(1, 1);
  m.run(1, 1);
  Trace& trace = m.b.derive_all();
  ASSERT_EQ(m.kinds(), (Kinds{P, D, D}));
  const size_t launches = trace.gpu_ops.size() / 3;
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i) ASSERT_EQ(trace.gpu_links.step[i], i / launches);
}

TEST(Detect, AttentionShapesGiveTheContext) {
  Model m;
  m.run(1, 128);
  m.run(1, 1);
  Trace& trace = m.b.build();
  trace.works.resize(2);
  for (const Row w : {0U, 1U}) {
    trace.works.kind[w] = WorkKind::kAttention;
    trace.works.batch[w] = 1;
    trace.works.m[w] = w == 0 ? 128 : 1;
    trace.works.n[w] = w == 0 ? 128 : 129;
  }
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i) {
    const std::string_view name = trace.text(trace.gpu_ops.name[i]);
    if (name.substr(0, 4) == "attn") trace.gpu_links.work[i] = name == "attn_large" ? 0 : 1;
  }
  find_busy(trace);
  ASSERT_TRUE(find_steps(trace, {}));
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps.context[0], 128);
  EXPECT_EQ(trace.steps.context[1], 129);
}

// Four heads share keys, and attention takes them for four queries; the products run on one row.
TEST(Detect, HeadsThatShareKeysAreNoTokens) {
  TestTrace b;
  int64_t time = 1000;
  for (int step = 0; step < 5; ++step) {
    for (int layer = 0; layer < 4; ++layer) {
      for (const char* kernel : {"gemm_qkv", "attn", "gemm_out", "gemm_up"}) {
        if (std::string_view(kernel) != "attn") b.library_call(time, 40, 1, 2048, 1024);
        b.launch(kernel, time + 10, time + 30, 30);
        time += 50;
      }
    }
    b.launch("argmax", time + 10, time + 30, 30);
    time += 50;
  }
  b.level(0, time, RecordingLevel::kDefault);
  Trace& trace = b.build();
  const Row work = static_cast<Row>(trace.works.size());
  trace.works.resize(work + 1);
  trace.works.kind[work] = WorkKind::kAttention;
  trace.works.batch[work] = 1;
  trace.works.m[work] = 4;
  trace.works.n[work] = 65;
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i)
    if (trace.text(trace.gpu_ops.name[i]) == "attn") trace.gpu_links.work[i] = work;
  find_busy(trace);
  ASSERT_TRUE(find_steps(trace, {}));
  ASSERT_EQ(trace.steps.kind, Kinds(5, D));
  EXPECT_EQ(trace.steps.new_tokens[2], 1);
}

// Checks of an answer and the pause before the next request are no part of its prompt; what is copied in for it is.
TEST(Detect, APromptBeginsBehindWhatIsReadBackBeforeIt) {
  Model m;
  std::vector<int64_t> asked;
  for (int request = 0; request < 4; ++request) {
    if (request > 0) {
      m.kernel("isfinite");
      m.kernel("reduce_all");
      m.b.launch("Memcpy DtoH (Device -> Pinned)", m.time + 10, m.time + 30, 20);
      m.b.api("cudaStreamSynchronize", m.time + 20, 60);
      m.time += 40'000;
    }
    asked.push_back(m.time + 10);
    m.b.launch("Memcpy HtoD (Pageable -> Device)", m.time + 10, m.time + 30, 20);
    m.b.api("cudaStreamSynchronize", m.time + 20, 60);
    m.time += 120;
    m.run(1, 64);
    for (int i = 0; i < 6; ++i) m.run(1, 1);
  }
  Trace& trace = m.b.derive_all();
  size_t prompt = 0;
  for (Row s = 0; s < trace.steps.size(); ++s) {
    if (trace.steps.kind[s] != P) continue;
    ASSERT_LT(prompt, asked.size());
    if (prompt > 0) {
      EXPECT_EQ(trace.steps.start_ns[s], asked[prompt]);
    }
    ++prompt;
  }
  EXPECT_EQ(prompt, 4U);
}

TEST(Detect, PositionTableIsNotAStep) {
  Model m;
  m.operators = true;
  for (int i = 0; i < 3; ++i) {
    m.kernel("gather2", "aten::embedding", "[[1024, 64], [1, 1], [], [], []]");
    m.run(1, 1);
  }
  m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{D, D, D}));
}

TEST(Detect, KernelNamesAlone) {
  Model m;
  m.operators = false;
  m.run(1, 128);
  for (int i = 0; i < 4; ++i) m.run(1, 1);
  Trace& trace = m.b.derive_all();
  ASSERT_EQ(trace.steps.size(), 5U);
  EXPECT_EQ(trace.steps.kind[1], D);
  EXPECT_EQ(trace.steps.kind[4], D);
  EXPECT_EQ(broken_invariant(trace), "");
}

// Requests of equal length recur as evenly as their passes do. Where no rule knows the products, the choices of tokens
// tell the passes.
TEST(Detect, PassesOfOwnKernelsEndWithTheChoiceOfAToken) {
  Model m;
  m.operators = false;
  const auto own = [&](const std::string& name) {
    m.kernel(name);
    m.own.push_back(name);
  };
  for (int request = 0; request < 5; ++request) {
    for (int pass = 0; pass < 7; ++pass) {
      own("embed_rows");
      for (int layer = 0; layer < 4; ++layer)
        for (const char* name : {"project", "turn", pass == 0 ? "attend_prompt" : "attend_token", "experts", "combine"})
          own(name);
      own("to_logits");
      m.kernel("softmax");
      m.kernel("argmax");
      m.kernel("scale");
      m.kernel("argmax");
      m.wait();
    }
    m.kernel("check_tokens");
    m.kernel("check_numbers");
  }
  Trace& trace = m.derive_with_own();
  EXPECT_EQ(trace.steps.size(), 35U);
  EXPECT_EQ(std::count(trace.steps.kind.begin(), trace.steps.kind.end(), D) >= 30, true);
}

// Prompts end with an output layer of a library, tokens with one of the program's own: both choose alike. What is drawn
// anew because a check refused it is no token of its own.
TEST(Detect, ChoicesAlikeEndPassesOfBothKinds) {
  for (const bool redraws : {false, true}) {
    Model m;
    m.operators = false;
    const auto choose = [&] {
      m.kernel("softmax");
      m.kernel("argmax");
      m.kernel("scale");
      m.kernel("argmax");
    };
    const auto pass = [&](const char* size) {
      for (int layer = 0; layer < 6; ++layer)
        for (const char* name : {"norm", "gemm_in", "attn", "gemm_out"}) m.kernel(std::string(name) + size);
    };
    for (int request = 0; request < 4; ++request) {
      for (int i = 0; i < 6; ++i) {
        pass(i == 0 ? "_large" : "_small");
        if (i == 0) m.b.library_call(m.time, 90, 3, 32000, 64);
        m.kernel(i == 0 ? "gemm_head" : "gemm_own_head");
        choose();
        if (redraws && i % 2 == 1) {
          m.kernel("gemm_guard");
          choose();
        }
        m.wait();
      }
    }
    EXPECT_EQ(m.b.derive_all().steps.size(), 24U) << redraws;
  }
}

// A frame of sound: a large pass, then eight of a small model, each of which chooses a code, then one wait.
TEST(Detect, PassesOfAModelWithinAStepAreNoSteps) {
  for (const bool drafts : {false, true}) {  // drafts: the large pass runs on several tokens, which it verifies
    Model m;
    m.operators = false;
    const auto pass = [&](int layers, int64_t tokens, const char* size) {
      for (int layer = 0; layer < layers; ++layer) {
        m.b.library_call(m.time, 90, tokens, 256, 256);
        m.kernel(std::string("gemm_") + size);
        m.kernel(std::string("attn_") + size);
      }
    };
    for (int frame = 0; frame < 6; ++frame) {
      pass(12, drafts ? 5 : 1, "large");
      for (int code = 0; code < 8; ++code) {
        pass(3, 1, "small");
        m.kernel("argmax");
      }
      m.wait();
    }
    const Trace& trace = m.b.derive_all();
    EXPECT_EQ(trace.steps.size(), drafts ? 48U : 6U) << drafts;
  }
}

TEST(Detect, OneVectorProductIsNotDecode) {
  Model m;
  m.operators = false;
  for (const bool decode : {false, true}) {
    m.kernel("gemm_a");
    m.kernel(decode ? "attn_splitkv" : "attn");
    m.kernel("gemm_b");
    m.kernel("gemv_gemm_head");  // of the last token only
    m.kernel("argmax");
    m.time += 1000;
  }
  m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{StageKind::kOther, D}));
}

TEST(Detect, PeriodIsTheStepNotTheLayer) {
  Model m;
  m.operators = m.sampling = m.sync = false;
  m.layers = 24;
  for (int i = 0; i < 6; ++i) m.run(1, 1);
  Trace& trace = m.b.build();
  std::vector<GpuOpId> gpu(trace.gpu_ops.size());
  for (Row i = 0; i < gpu.size(); ++i) gpu[i] = i;
  const std::vector<size_t> starts = period_starts(trace, gpu);
  ASSERT_EQ(starts.size(), 6U);
  const size_t step = trace.gpu_ops.size() / 6;
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(starts[i], i * step);
}

TEST(Detect, NameOfEveryThirdStepIsNotThePeriod) {
  Model m;
  m.operators = m.sampling = m.sync = false;
  for (int i = 0; i < 12; ++i) {
    if (i % 3 == 0) m.kernel("new_cache_block");
    m.run(1, 1);
  }
  Trace& trace = m.b.build();
  std::vector<GpuOpId> gpu(trace.gpu_ops.size());
  for (Row i = 0; i < gpu.size(); ++i) gpu[i] = i;
  EXPECT_EQ(period_starts(trace, gpu).size(), 12U);
}

TEST(Detect, NoPeriodNoSteps) {
  TestTrace b;
  for (int i = 0; i < 50; ++i) b.launch("kernel" + std::to_string(i), i * 100, i * 100 + 20, 50);
  Trace& trace = b.derive_all();
  EXPECT_EQ(trace.steps.size(), 0U);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownStage), 50U);
}

TEST(Detect, GraphReplays) {
  Model m;
  for (int i = 0; i < 4; ++i) m.replay();
  m.b.api("cudaDeviceSynchronize", m.time, m.gpu_time + 5 - m.time);
  Trace& trace = m.b.derive_all();
  ASSERT_EQ(m.kinds(), (Kinds{D, D, D, D}));
  EXPECT_EQ(broken_invariant(trace), "");
  EXPECT_EQ(trace.steps.new_tokens[0], -1);
  // The host runs ahead: the first step starts on the GPU, the others where the one before ended.
  EXPECT_EQ(trace.steps.start_ns[0], trace.steps.gpu_start_ns[0]);
  EXPECT_EQ(trace.steps.sync_ns[0], -1);
  EXPECT_EQ(trace.steps.end_ns[0], trace.steps.gpu_end_ns[0]);
  EXPECT_EQ(trace.steps.start_ns[1], trace.steps.end_ns[0]);
  EXPECT_EQ(trace.steps.end_ns[3], m.gpu_time + 5);
  // The copy of the token belongs to the step that chose it.
  EXPECT_EQ(trace.gpu_links.step[241], 0U);
  EXPECT_EQ(trace.gpu_links.step[242], 1U);
}

TEST(Detect, EagerPrefillThenGraphs) {
  Model m;
  m.layers = 40;
  m.run(1, 128);
  m.gpu_time = m.time;
  for (int i = 0; i < 3; ++i) m.replay();
  m.b.derive_all();
  ASSERT_EQ(m.kinds().size(), 4U);
  EXPECT_EQ(m.kinds()[0], P);
  EXPECT_EQ(m.kinds()[1], D);
  EXPECT_EQ(m.kinds()[3], D);
}

TEST(Detect, AnnotationAroundSeveralStepsIsSplit) {
  Model m;
  m.run(1, 128);
  const int64_t start = m.time - 5;
  for (int i = 0; i < 3; ++i) m.run(1, 1);
  m.b.annotation("decode", start, m.time - start);
  Trace& trace = m.b.derive_all();
  ASSERT_EQ(m.kinds(), (Kinds{P, D, D, D}));
  EXPECT_EQ(trace.steps.source[0], StageSource::kDetected);
  EXPECT_EQ(trace.steps.source[1], StageSource::kAnnotation);
  EXPECT_EQ(trace.steps.annotation[3], 0U);
  EXPECT_EQ(broken_invariant(trace), "");
}

// The first range holds the compilation: trial launches of kernels, the last of which choose tokens.
TEST(Detect, ARangeIsSplitOnlyWhereThoseOfItsNameAre) {
  Model m;
  m.run(1, 128);
  for (int i = 0; i < 3; ++i) {
    const int64_t start = m.time - 5;
    if (i == 0) {
      for (int trial = 0; trial < 20; ++trial) m.run(1, 1);
    }
    m.run(1, 1);
    m.b.annotation("decode (compiled)", start, m.time - start - 10);
  }
  m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{P, D, D, D}));
}

// Numbered ranges are of one name; the last is cut off, and says nothing about the others.
TEST(Detect, RangesAroundSeveralStepsAreSplitAlthoughOneIsCutOff) {
  Model m;
  for (int request = 0; request < 2; ++request) {
    const int64_t start = m.time - 5;
    for (int i = 0; i < (request == 0 ? 3 : 1); ++i) m.run(1, 1);
    m.b.annotation("generation " + std::to_string(request), start, m.time - start + (request == 0 ? -10 : 400));
  }
  m.b.level(0, m.time, RecordingLevel::kDefault);
  m.b.level(m.time, m.time + 1000, RecordingLevel::kLight);
  m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{D, D, D, D}));
}

TEST(Detect, ARangeThatCallsItselfAStepIsOne) {
  Model m;
  for (int i = 0; i < 3; ++i) {
    const int64_t start = m.time - 5;
    m.run(1, 1);
    m.run(1, 1);  // a draft model and the one that checks it, for one
    m.b.annotation("decode_step", start, m.time - start - 10);
  }
  m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{D, D, D}));
}

// Library calls tell the sizes of products. Joined gate and up projections have here as many outputs as the vocabulary.
TEST(Detect, AProjectionAsWideAsTheVocabularyEndsNoStep) {
  TestTrace b;
  int64_t time = 1000;
  const auto launch = [&](const char* kernel, int64_t n, int64_t k) {
    if (n > 0) b.library_call(time, 40, 1, n, k);
    b.launch(kernel, time + 10, time + 30, 30);
    time += 50;
  };
  constexpr int kSteps = 5, kLayers = 6;
  for (int step = 0; step < kSteps; ++step) {
    launch("gather", 0, 0);
    for (int layer = 0; layer < kLayers; ++layer) {
      launch("gemm_qkv", 3072, 1024);
      launch("attn", 0, 0);
      launch("gemm_out", 1024, 1024);
      launch("gemm_up", 8192, 1024);
      launch("silu", 0, 0);
      launch("gemm_down", 1024, 4096);
    }
    launch("gemm_head", 8192, 1024);
    launch("argmax", 0, 0);
  }
  b.level(0, time, RecordingLevel::kDefault);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), static_cast<size_t>(kSteps));
  std::vector<int> launches(kSteps);
  for (const Row step : trace.gpu_links.step)
    if (step != kNoRow) ++launches[step];
  for (int step = 1; step < kSteps; ++step)
    EXPECT_GE(launches[static_cast<size_t>(step)], 6 * kLayers + 2) << "step " << step;
}

// A model that writes blocks of 32 tokens, each run through it several times: where a block is done, its keys are made
// and the next one is begun in one step, which is no prompt although it has twice the kernels.
TEST(Detect, AStepOfTwoPassesIsNoPrompt) {
  TestTrace b;
  int64_t time = 1000;
  int length = 0;
  const auto launch = [&](const std::string& kernel, int64_t m = 0, int64_t n = 0, int64_t k = 0) {
    if (m > 0) b.library_call(time, 40, m, n, k);
    b.launch(kernel, time + 10, time + 30, 30);
    time += 50;
  };
  const auto pass = [&](int64_t rows) {
    launch("gather");
    for (int layer = 0; layer < 4; ++layer) {
      launch("gemm_qkv", rows, 3072, 1024);
      launch("attn_" + std::to_string(length));
      launch("gemm_out", rows, 1024, 1024);
    }
  };
  const auto ends = [&] {
    launch("gemm_head", 32, 32000, 1024);
    launch("argmax");
    b.api("cudaStreamSynchronize", time, 40);
    time += 100;
  };
  Kinds expected;
  for (const int64_t prompt : {200, 90, 300}) {
    length += 1000;
    pass(prompt);
    for (int block = 0; block < 3; ++block) {
      if (block > 0) pass(32);
      ++length;
      for (int i = 0; i < 5; ++i) {
        pass(32);
        ends();
        expected.push_back(block == 0 && i == 0 ? P : D);
      }
    }
  }
  b.level(0, time, RecordingLevel::kDefault);
  b.derive_all();
  EXPECT_EQ(b.trace.steps.kind, expected);
}

TEST(Detect, AnnotatedGenerationHoldsThePrompt) {
  Model m;
  const int64_t start = m.time - 5;
  m.run(1, 128);
  m.run(1, 1);
  m.run(1, 1);
  m.b.annotation("generation", start, m.time - start);
  m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{P, D, D}));
}

TEST(Detect, CanBeSwitchedOff) {
  Model m;
  m.run(1, 128);
  m.run(1, 1);
  DeriveOptions options;
  options.detect_stages = false;
  EXPECT_EQ(m.b.derive_all(options).steps.size(), 0U);
}

TEST(Detect, TrainingHasNoStages) {
  Model m;
  m.run(1, 128);
  m.kernel("gemm_backward", "autograd::engine::evaluate_function: MmBackward0");
  m.run(1, 128);
  EXPECT_EQ(m.b.derive_all().steps.size(), 0U);
}

TEST(Detect, CutOffLastStepIsLeftOut) {
  Model m;
  m.run(1, 128);
  m.run(1, 1);
  m.kernel("gather_small", "aten::embedding", "[[32000, 64], [1, 1], [], [], []]");
  m.kernel("gemm_qkv_small", "aten::mm");
  Trace& trace = m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{P, D}));
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownStage), 2U);
}

TEST(Detect, BatchThatGrowsIsMixed) {
  Model m;
  const auto step = [&](const std::string& tokens, const std::string& rows) {
    m.kernel("gather", "aten::embedding", "[[32000, 64], [" + tokens + "], [], [], []]");
    m.kernel("gemm", "aten::mm");
    m.kernel("attn", "vllm::unified_attention");
    m.kernel("argmax", "aten::argmax", "[[" + rows + ", 32000], [], []]");
    m.b.api("cudaStreamSynchronize", m.time, 50);
    m.time += 100;
  };
  step("4", "4");
  step("260", "5");  // four go on, a prompt of 256 joins
  step("5", "5");
  Trace& trace = m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{D, StageKind::kMixed, D}));
  EXPECT_EQ(trace.steps.sequences[1], 5);
  EXPECT_EQ(trace.steps.new_tokens[1], 260);
}

// Runs of a model on one row of tokens; attention sees `context` keys, `rows` of logits are chosen from.
struct Packed {
  int64_t tokens, context, rows;
};
Trace packed_runs(const std::vector<Packed>& runs) {
  Model m;
  for (const Packed& run : runs) {
    const std::string tokens = std::to_string(run.tokens), rows = std::to_string(run.rows);
    m.kernel("gather", "aten::embedding", "[[32000, 64], [1, " + tokens + "], [], [], []]");
    for (int layer = 0; layer < 2; ++layer) {
      m.kernel("gemm", "aten::mm");
      m.kernel("attn", "aten::scaled_dot_product_attention");
    }
    m.kernel("argmax", "aten::argmax", "[[" + rows + ", 32000], [], []]");
    m.b.api("cudaStreamSynchronize", m.time, 50);
    m.time += 100;
  }
  Trace& trace = m.b.build();
  trace.works.resize(runs.size());
  for (Row w = 0; w < runs.size(); ++w) {
    trace.works.kind[w] = WorkKind::kAttention;
    trace.works.batch[w] = 1;
    trace.works.m[w] = runs[w].tokens;
    trace.works.n[w] = runs[w].context;
  }
  Row seen = 0;
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i)
    if (trace.text(trace.gpu_ops.name[i]) == "attn") trace.gpu_links.work[i] = seen++ / 2;
  find_busy(trace);
  EXPECT_TRUE(find_steps(trace, {}));
  return std::move(trace);
}

// transformers' continuous batching: 24 prompts of 5,485 tokens as one row, then 24 requests that go on, as one row.
TEST(Detect, PackedRequestsAreStepsOfUnknownComposition) {
  const Trace trace = packed_runs({{5485, 5485, 24}, {24, 5509, 24}, {24, 5533, 24}, {24, 5557, 24}});
  ASSERT_EQ(trace.steps.size(), 4U);
  for (Row s = 0; s < 4; ++s) {
    EXPECT_EQ(trace.steps.kind[s], StageKind::kOther);
    EXPECT_EQ(trace.text(trace.steps.stage[s]), "steps of several requests");
    EXPECT_EQ(trace.steps.output_tokens[s], -1);
    EXPECT_EQ(trace.steps.sequences[s], -1);
  }
  EXPECT_EQ(trace.steps.new_tokens[0], 5485);
}

TEST(Detect, APromptThatNeverEndsIsSeveralRequests) {
  const Trace trace = packed_runs({{24, 5509, 24}, {24, 5533, 24}, {24, 5557, 24}});
  EXPECT_EQ(trace.text(trace.steps.stage[0]), "steps of several requests");
}

TEST(Detect, OnePromptIsNotSeveralRequests) {
  // The last token's logits, all of them, and a prompt in two chunks.
  for (const std::vector<Packed>& runs :
       {std::vector<Packed>{{512, 512, 1}, {1, 513, 1}}, std::vector<Packed>{{512, 512, 512}, {1, 513, 1}},
        std::vector<Packed>{{256, 256, 256}, {256, 512, 256}, {1, 513, 1}}}) {
    const Trace trace = packed_runs(runs);
    ASSERT_EQ(trace.steps.size(), runs.size());
    EXPECT_EQ(trace.steps.kind.front(), P);
    EXPECT_EQ(trace.steps.kind.back(), D);
  }
}

// A loop of copies and products without attention, tokens or an output layer; the first one takes longer.
TEST(Detect, ALoopThatIsNoLanguageModelHasNoTokens) {
  Model m;
  m.operators = false;
  for (int i = 0; i < 12; ++i) m.kernel("gemm_first");
  m.b.api("cudaStreamSynchronize", m.time, 50);
  m.time += 100;
  for (int i = 0; i < 20; ++i) {
    for (const char* name : {"gemm_a", "gemm_b", "vectorized_elementwise_kernel", "gemm_c", "gemm_d"}) m.kernel(name);
    m.b.api("cudaStreamSynchronize", m.time, 50);
    m.time += 100;
  }
  const Trace& trace = m.b.derive_all();
  ASSERT_FALSE(trace.steps.empty());
  for (Row s = 0; s < trace.steps.size(); ++s) {
    EXPECT_EQ(trace.steps.kind[s], StageKind::kOther);
    EXPECT_EQ(trace.steps.new_tokens[s], -1);
  }
}

TEST(Detect, VisionEncoderBeforeTheLanguageModel) {
  Model m;
  m.kernel("conv_patch", "aten::conv2d");
  m.kernel("gemm_vit", "aten::mm");
  m.kernel("attn_vit", "aten::scaled_dot_product_attention");
  m.run(1, 300);
  m.run(1, 1);
  Trace& trace = m.b.derive_all();
  EXPECT_EQ(m.kinds(), (Kinds{StageKind::kVision, P, D}));
  EXPECT_EQ(trace.gpu_links.step[2], 0U);
  EXPECT_EQ(trace.gpu_links.step[3], 1U);
  EXPECT_EQ(trace.steps.start_ns[1], trace.steps.end_ns[0]);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Detect, OperatorsBeforeTheFirstLaunchCount) {
  Model m;
  m.b.op("TorchDynamo Cache Lookup", m.time - 100, 95);
  m.b.op("aten::old", m.time - 5000, 10);  // long before: something else
  m.run(1, 128);
  m.run(1, 1);
  Trace& trace = m.b.derive_all();
  EXPECT_EQ(trace.steps.start_ns[0], 900);
}

// Twenty times the steps may not take more than about twenty times the CPU time, whatever else the machine does: the
// least of five runs, with room for noise that no quadratic pass would stay within.
TEST(Detect, LinearInTheNumberOfSteps) {
  const auto steps_of = [](int count) {
    Model m;
    m.operators = m.sampling = m.sync = false;
    for (int i = 0; i < count; ++i) m.run(1, 1);
    Trace& trace = m.b.build();
    find_busy(trace);
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) {
      const std::clock_t start = std::clock();
      EXPECT_TRUE(find_steps(trace, {}));
      seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    EXPECT_EQ(trace.steps.size(), static_cast<size_t>(count));
    return *std::min_element(seconds.begin(), seconds.end());
  };
  const double small = steps_of(200);
  EXPECT_LT(steps_of(4000), 20 * 6 * small + 0.01);
}

}  // namespace
}  // namespace llmprof
