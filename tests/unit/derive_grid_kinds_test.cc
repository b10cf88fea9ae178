#include <gtest/gtest.h>

#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

// A program whose kernels are all its own: of them names, grids and copies are known.
class OwnKernels {
 public:
  TestTrace b;
  int64_t time = 1000;

  void kernel(std::string_view name, int64_t blocks) {
    b.launch(name, time, time + 20, 60);
    b.trace.gpu_ops.config.back() = TraceBuilder(b.trace).launch_config(
        {.grid_x = static_cast<int32_t>(blocks), .grid_y = 1, .grid_z = 1, .block_x = 128, .block_y = 1, .block_z = 1});
    time += 100;
  }
  void copy(std::string_view name, int64_t bytes) {
    b.gpu(name, time + 20, 20, b.api("cudaMemcpyAsync", time, 5));
    b.trace.gpu_ops.bytes.back() = bytes;
    time += 50;
  }
  void give(int64_t bytes) { copy("Memcpy HtoD (Pinned -> Device)", bytes); }
  void read(int64_t bytes, bool waits = true) {
    copy("Memcpy DtoH (Device -> Pinned)", bytes);
    if (waits) b.api("cudaStreamSynchronize", time, 40);
    time += 200;
  }
  // Products of 16 rows a block; the norm and the product at the end are of `last` rows.
  void pass(int64_t rows, int64_t last) {
    kernel("embed", rows);
    for (int layer = 0; layer < 3; ++layer) {
      kernel("norm", rows);
      kernel("gemm", (rows + 15) / 16 * 8);
      kernel("attn", rows * 8);
      kernel("gemm", (rows + 15) / 16 * 4);
      kernel("gate", rows);
    }
    kernel("norm", last);
    kernel("gemm", (last + 15) / 16 * 500);
    kernel("choose", 1);
  }
  // Forward and back, ending with the optimizer, whose kernels are as large as the weights.
  void train(int64_t rows) {
    pass(rows, rows);
    for (int layer = 0; layer < 3; ++layer) {
      kernel("attn_back", rows * 8);
      kernel("gemm_back", (rows + 15) / 16 * 8);
      kernel("gemm_of_weights", 64);
      kernel("norm_back", rows);
    }
    for (int weight = 0; weight < 4; ++weight) kernel("update", 128);
  }
  bool makes_tokens() {
    const std::vector<StageKind>& kinds = b.derive_all().steps.kind;
    EXPECT_GE(kinds.size(), 8U);
    return std::any_of(kinds.begin(), kinds.end(), [](StageKind kind) { return kind != StageKind::kOther; });
  }
};

TEST(GridKinds, PassesThatGoOnFromALargerOneMakeTokens) {
  for (const bool waits : {true, false}) {
    OwnKernels m;
    std::vector<StageKind> expected;
    for (int request = 0; request < 3; ++request) {
      m.give(512);
      m.pass(64, 1);
      m.read(8, waits);
      expected.push_back(waits ? StageKind::kPrefill : StageKind::kOther);
      for (int step = 0; step < 5; ++step) {
        m.pass(1, 1);
        m.read(8, waits);
        expected.push_back(waits ? StageKind::kDecode : StageKind::kOther);
      }
    }
    Trace& trace = m.b.derive_all();
    EXPECT_EQ(trace.steps.kind, expected) << waits;
    EXPECT_EQ(broken_invariant(trace), "");
  }
}

// A loop that reads its loss after each batch; now and then one is larger.
// No rule knows these names; the layers of passes that choose nothing recur as evenly as passes do.
void unknown_pass(OwnKernels& program, bool chooses) {
  program.kernel("look_up", 1);
  for (int layer = 0; layer < 20; ++layer)
    for (const char* name : {"unknown_a", "unknown_b", "unknown_c", "unknown_d"}) program.kernel(name, 8);
  if (!chooses) return program.kernel("go_on", 1);
  program.kernel("widen", 500);
  program.kernel("best", 1);
}

// Of six requests, which make more tokens from one to the next.
template <class Prompt>
void expect_tokens_behind(OwnKernels& program, Prompt&& prompt) {
  std::vector<bool> tokens;
  for (int request = 0; request < 6; ++request) {
    prompt();
    tokens.push_back(false);
    for (int token = 0; token < 5 + 3 * request; ++token) {
      unknown_pass(program, true);
      program.read(4);
      tokens.push_back(true);
    }
  }
  const std::vector<StageKind>& kinds = program.b.derive_all().steps.kind;
  ASSERT_EQ(kinds.size(), tokens.size());
  for (size_t i = 0; i < kinds.size(); ++i)
    EXPECT_EQ(kinds[i], tokens[i] ? StageKind::kDecode : StageKind::kPrefill) << i;
}

TEST(GridKinds, PromptsReadTokenByToken) {
  OwnKernels program;
  expect_tokens_behind(program, [&] {
    program.give(40);
    for (int token = 0; token < 29; ++token) unknown_pass(program, false);
    unknown_pass(program, true);
    program.read(4);
  });
}

// A loop that works on new input each time makes no tokens.
TEST(GridKinds, UnknownPassesOverNewInputMakeNone) {
  OwnKernels program;
  for (int batch = 0; batch < 12; ++batch) {
    program.give(4096);
    for (int part = batch % 4; part < 4; ++part) unknown_pass(program, part == 3);
    program.read(4);
  }
  for (const StageKind kind : program.b.derive_all().steps.kind) EXPECT_EQ(kind, StageKind::kOther);
}

// Tokens by the program's own kernels behind a prompt that a library ran.
TEST(GridKinds, TokensBehindAKnownPrompt) {
  OwnKernels program;
  expect_tokens_behind(program, [&] {
    program.give(400);
    const auto product = [&](int64_t rows, int64_t columns) {
      program.b.library_call(program.time - 1, 20, rows, columns, 2048);
      program.kernel("gemm", 64);
    };
    for (int layer = 0; layer < 12; ++layer) {
      product(100, 6144);
      program.kernel("attn", 64);
      product(100, 2048);
    }
    product(1, 32000);
    program.kernel("argmax", 1);
    program.read(8);
  });
}

TEST(GridKinds, TrainingMakesNone) {
  OwnKernels m;
  for (int i = 0; i < 12; ++i) {
    m.train(i % 4 == 0 ? 64 : 32);
    m.read(4);
  }
  EXPECT_FALSE(m.makes_tokens());
}

// Batches of several sizes: each needs its input, and the last product is of all of it.
TEST(GridKinds, AClassifierMakesNone) {
  for (const bool given : {true, false}) {
    OwnKernels m;
    for (int i = 0; i < 12; ++i) {
      const int64_t rows = i % 4 == 0 ? 512 : 64;
      if (given) m.give(rows * 8);
      m.pass(rows, given ? 1 : rows);
      m.read(8);
    }
    EXPECT_FALSE(m.makes_tokens()) << given;
  }
}

// Neither do passes that read back more than tokens, or iterations of a solver until a flag says stop.
TEST(GridKinds, OtherLoopsMakeNone) {
  OwnKernels logits;
  for (int i = 0; i < 12; ++i) {
    logits.pass(i % 4 == 0 ? 64 : 1, 1);
    logits.read(64000);
  }
  EXPECT_FALSE(logits.makes_tokens());

  OwnKernels solver;
  for (int i = 0; i < 12; ++i) {
    const int64_t blocks = i % 4 == 0 ? 64 : 8;
    for (const char* name : {"restrict", "smooth", "gemm", "residual"}) solver.kernel(name, blocks);
    solver.kernel("gemm", 4);
    solver.kernel("norm", 1);
    solver.read(4);
  }
  EXPECT_FALSE(solver.makes_tokens());
}

}  // namespace
}  // namespace llmprof
