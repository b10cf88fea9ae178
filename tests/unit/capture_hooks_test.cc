// Library hooks, from outside: hook_client calls look-alikes of the CUDA libraries under the built injection library.
#include <gtest/gtest.h>

#include <set>

#include "capture_hook_client.h"

namespace llmprof::test {
namespace {

constexpr int32_t kR32F = 0, kHalfType = 2, kBfloatType = 14, kE4M3 = 28;

class Hooks : public HookClient {
 protected:
  static void SetUpTestSuite() { run_watched("hook_client gemm"); }
};

void expect_shape(const spool::LibraryDef& def, int64_t m, int64_t n, int64_t k, int64_t batch) {
  EXPECT_EQ(def.m, m);
  EXPECT_EQ(def.n, n);
  EXPECT_EQ(def.k, k);
  EXPECT_EQ(def.batch, batch);
}

void expect_types(const spool::LibraryDef& def, int32_t a, int32_t b, int32_t d, int32_t compute) {
  EXPECT_EQ(def.type_a, a);
  EXPECT_EQ(def.type_b, b);
  EXPECT_EQ(def.type_d, d);
  EXPECT_EQ(def.compute_type, compute);
}

TEST_F(Hooks, TheProgramSeesNoDifference) { expect_no_difference("refused 7 errno 77", "cublasSgemm_v2_64 "); }

TEST_F(Hooks, EveryCallOnceAndNestedOnesNot) {
  EXPECT_EQ(spool().calls.size(), 13u);
  EXPECT_EQ(defs_of("cublasGemmEx").size(), 3u);
  EXPECT_EQ(defs_of("cublasLtMatmul").size(), 2u);  // cublasGemmEx's own calls of it are not among them
  std::set<uint64_t> ids;
  std::set<spool::Id> threads;
  for (const spool::LibraryCall& call : spool().calls) {
    ids.insert(call.call);
    threads.insert(call.thread);
    EXPECT_GT(call.start_ns, 1'500'000'000'000'000'000);
    EXPECT_GE(call.end_ns, call.start_ns);
  }
  EXPECT_EQ(ids.size(), 13u);
  EXPECT_EQ(ids.count(0), 0u);
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_TRUE(spool().threads.contains(*threads.begin()));
}

TEST_F(Hooks, ShapesOfPlainProducts) {
  // The refused call of 13 rows launched nothing.
  std::vector<spool::LibraryDef> sgemm = defs_of("cublasSgemm");
  ASSERT_EQ(sgemm.size(), 3u);
  expect_shape(sgemm[0], 100, 20, 30, 1);
  expect_types(sgemm[0], kR32F, kR32F, kR32F, 68);
  EXPECT_EQ(sgemm[0].transpose_a, 1);
  EXPECT_EQ(sgemm[0].transpose_b, 0);
  expect_types(sgemm[1], kR32F, kR32F, kR32F, 77);  // the handle allows TF32
  expect_shape(sgemm[2], 5000000000, 2, 3, 1);

  std::vector<spool::LibraryDef> ex = defs_of("cublasGemmEx");
  expect_shape(ex[0], 4096, 7, 2048, 1);
  expect_types(ex[0], kBfloatType, kBfloatType, kBfloatType, 68);
  EXPECT_EQ(ex[0].id, ex[1].id);
}

TEST_F(Hooks, ShapesOfBatchedGroupedAndVectorProducts) {
  std::vector<spool::LibraryDef> strided = defs_of("cublasGemmStridedBatchedEx");
  ASSERT_EQ(strided.size(), 1u);
  expect_shape(strided[0], 64, 65, 66, 12);
  expect_types(strided[0], kHalfType, kHalfType, kR32F, 68);
  EXPECT_EQ(strided[0].transpose_b, 2);

  // 1 group of 3 tokens, 2 of 5, 1 of 8 through the same weights: 21 tokens.
  std::vector<spool::LibraryDef> grouped = defs_of("cublasGemmGroupedBatchedEx");
  ASSERT_EQ(grouped.size(), 1u);
  expect_shape(grouped[0], 512, 21, 256, 1);
  EXPECT_EQ(spool().texts.at(grouped[0].detail), "3 groups");

  std::vector<spool::LibraryDef> gemv = defs_of("cublasSgemv");
  ASSERT_EQ(gemv.size(), 1u);
  expect_shape(gemv[0], 200, 1, 300, 1);
  EXPECT_EQ(spool().texts.at(gemv[0].detail), "gemv");
  std::vector<spool::LibraryDef> batch = defs_of("cublasTSTgemvStridedBatched");
  ASSERT_EQ(batch.size(), 1u);
  expect_shape(batch[0], 300, 1, 200, 9);
  expect_types(batch[0], kBfloatType, kBfloatType, kBfloatType, 68);
}

TEST_F(Hooks, DescriptorsOfCublasLtAreRead) {
  std::vector<spool::LibraryDef> lt = defs_of("cublasLtMatmul");
  expect_shape(lt[0], 4096, 16, 1024, 1);
  expect_types(lt[0], kE4M3, kE4M3, kBfloatType, 68);
  EXPECT_EQ(lt[0].transpose_a, 1);
  EXPECT_EQ(lt[0].row_major, 0);
  EXPECT_EQ(spool().texts.at(lt[0].epilogue), "GELU_BIAS");
  EXPECT_EQ(spool().texts.at(lt[0].detail), "A scale VEC128_32F, B scale VEC128_32F");
  expect_shape(lt[1], 4096, 16, 1024, 3);
  EXPECT_EQ(lt[1].row_major, 1);
  EXPECT_EQ(lt[1].epilogue, 0u);
  EXPECT_EQ(lt[1].detail, 0u);  // bf16 has no scales, whatever the descriptor says
}

// As hook_client passes them; what lies in an array of pointers, or is no product, has none.
TEST_F(Hooks, ProductsHaveTheAddressesOfTheirMatrices) {
  size_t known = 0;
  for (const spool::LibraryCall& call : spool().calls) {
    const std::string& function = text(spool().defs.at(call.def).function);
    const auto found = spool().operands.find(call.call);
    const bool none = function == "cublasGemmGroupedBatchedEx" || function == "cudnnConvolutionForward";
    ASSERT_EQ(found == spool().operands.end(), none) << function;
    if (none) continue;
    ++known;
    const bool lt = function == "cublasLtMatmul";
    EXPECT_EQ(found->second.a, lt ? 3U : 2U) << function;
    EXPECT_EQ(found->second.b, lt ? 4U : 3U) << function;
    EXPECT_EQ(found->second.d, lt ? 7U : 5U) << function;
  }
  EXPECT_EQ(known, 11U);
}

TEST_F(Hooks, ConvolutionAsTheProductItIs) {
  std::vector<spool::LibraryDef> conv = defs_of("cudnnConvolutionForward");
  ASSERT_EQ(conv.size(), 1u);
  EXPECT_EQ(conv[0].kind, 2);  // WorkKind::kConvolution
  expect_shape(conv[0], 128, 8 * 28 * 28, 32 * 3 * 3, 1);
  EXPECT_EQ(spool().texts.at(conv[0].detail),
            "input 8x64x56x56, filter 128x32x3x3, stride 2x2, padding 1x1, dilation 1x1, 2 groups");
}

TEST_F(Hooks, GraphLaunchesAndTheWidestProductAreRecurringCalls) {
  std::map<uint64_t, int> counts;
  for (const spool::RecurringCall& call : spool().recurring_calls) ++counts[call.key];
  // Three launches of a graph, one of another; the failed launch of none is no call. The products that were the widest
  // so far when they came: three.
  std::vector<int> sizes;
  for (const auto& [key, count] : counts) sizes.push_back(count);
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int>{1, 1, 1, 1, 3}));
}

TEST_F(Hooks, ProductRowsHaveTheRowsThatAreNotOfWeights) {
  std::vector<int64_t> rows;
  for (const spool::ProductRows& product : spool().product_rows) rows.push_back(product.rows);
  // Column-major callers have the tokens in n. The products behind the widest are of one pass, in which only other rows
  // count.
  EXPECT_EQ(rows, (std::vector<int64_t>{20, 20, 2, 7, 1, 16}));
}

TEST(HooksPrivate, LibrariesLoadedPrivatelyAreFound) {
  const std::string command = "private_client " + (build_folder() / "fakes/libhook_plugin.so").string();
  ClientRun run = run_client(command, Watching::kWatched);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "0 7\n");
  ASSERT_EQ(run.spools.size(), 1u);
  ASSERT_EQ(run.spools[0].calls.size(), 1u);
  EXPECT_EQ(run.spools[0].defs.at(run.spools[0].calls[0].def).m, 1);
}

}  // namespace
}  // namespace llmprof::test
