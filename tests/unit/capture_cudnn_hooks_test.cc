// Hooks of cuDNN's backend API, from outside: hook_client builds plans as cudnn-frontend does, against a look-alike.
#include <gtest/gtest.h>

#include <set>

#include "capture_hook_client.h"

namespace llmprof::test {
namespace {

constexpr int32_t kR16F = 2, kR16BF = 14;

class CudnnHooks : public HookClient {
 protected:
  static void SetUpTestSuite() { run_watched("hook_client cudnn"); }
};

void expect_shape(const spool::LibraryDef& def, int kind, int64_t batch, int64_t m, int64_t n, int64_t k) {
  EXPECT_EQ(def.kind, kind);
  EXPECT_EQ(def.batch, batch);
  EXPECT_EQ(def.m, m);
  EXPECT_EQ(def.n, n);
  EXPECT_EQ(def.k, k);
}

TEST_F(CudnnHooks, TheProgramSeesNoDifference) { expect_no_difference("refused 5000 errno 77", "populate 1 #"); }

// A convolution, three times attention, attention as one operation, a product, and nodes added to a graph. Not among
// them: what was refused, sizes that the call overrides, a normalisation, a plan of nothing in place of a destroyed
// one.
TEST_F(CudnnHooks, OneCallForEachExecutionWhoseShapeIsKnown) {
  ASSERT_EQ(spool().calls.size(), 7u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(text(def(i).function), "cudnnBackendExecute");
  EXPECT_EQ(text(def(6).function), "cudnnBackendPopulateCudaGraph");
  EXPECT_EQ(spool().calls[1].def, spool().calls[2].def);
  EXPECT_EQ(spool().calls[1].def, spool().calls[3].def);
  std::set<uint64_t> ids;
  for (const spool::LibraryCall& call : spool().calls) ids.insert(call.call);
  EXPECT_EQ(ids.size(), 7u);
}

TEST_F(CudnnHooks, ConvolutionAsTheProductItIs) {
  expect_shape(def(0), 2, 1, 128, 8 * 28 * 28, 32 * 3 * 3);
  EXPECT_EQ(def(0).type_a, kR16F);
  EXPECT_EQ(def(0).type_b, kR16F);
  EXPECT_EQ(def(0).type_d, kR16F);  // of what the fused ReLU writes, not of the product inside
  EXPECT_EQ(text(def(0).epilogue), "RELU_BIAS");
  EXPECT_EQ(text(def(0).detail),
            "input 8x64x56x56, filter 128x32x3x3, stride 2x2, padding 1x1, dilation 1x1, 2 groups");
}

TEST_F(CudnnHooks, AttentionComposedOfTwoProducts) {
  expect_shape(def(1), 1, 2, 128, 128, 64);
  EXPECT_EQ(def(1).heads, 32);
  EXPECT_EQ(def(1).kv_heads, 8);
  EXPECT_EQ(def(1).value_size, 64);
  EXPECT_EQ(def(1).mask, 1);
  EXPECT_EQ(def(1).type_a, kR16BF);
  EXPECT_EQ(def(1).type_b, kR16BF);
  EXPECT_EQ(def(1).type_d, kR16BF);
  EXPECT_EQ(def(1).detail, 0u);
}

TEST_F(CudnnHooks, AttentionAsOneOperation) {
  expect_shape(def(4), 1, 1, 1, 513, 128);
  EXPECT_EQ(def(4).heads, 32);
  EXPECT_EQ(def(4).kv_heads, 8);
  EXPECT_EQ(def(4).value_size, 96);
  EXPECT_EQ(def(4).mask, 0);
}

TEST_F(CudnnHooks, AProductOfSharedWeightsIsOne) {
  expect_shape(def(5), 0, 1, 4 * 16, 1024, 512);
  EXPECT_EQ(def(5).row_major, 1);
  EXPECT_EQ(def(5).epilogue, 0u);
}

TEST(CudnnHooksThreads, EachThreadItsPlans) {
  ClientRun run = run_client("hook_client cudnn-threads", Watching::kWatched);
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  std::map<int64_t, int> by_queries;
  for (const spool::LibraryCall& call : run.spools[0].calls) ++by_queries[run.spools[0].defs.at(call.def).m];
  EXPECT_EQ(by_queries, (std::map<int64_t, int>{{64, 100}, {128, 25}, {129, 25}, {130, 25}, {131, 25}}));
}

}  // namespace
}  // namespace llmprof::test
