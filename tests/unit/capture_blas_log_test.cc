// Logs of cuBLAS and cuBLASLt 13.1 as they really are, whole, in pieces and damaged.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "capture/blas_log/blas_log.h"
#include "capture/blas_log/names.h"
#include "nvidia/cublas_abi.h"

#if __has_include(<cublasLt.h>)
#define LLMPROF_HAS_CUBLAS 1
#include <cublasLt.h>
#include <cublas_v2.h>
#endif

namespace llmprof::blas_log {
namespace {

using Event = CublasRecord::Event;

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream file(std::string(LLMPROF_TEST_DATA) + "/unit/data/blas_log/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<Gemm> products_of_lt_log() {
  std::vector<Gemm> found;
  for (const std::string& line : lines_of("cublaslt.log")) {
    LtLine parts;
    Gemm gemm;
    if (split_lt_line(line, parts) && parse_matmul(parts.function, parts.message, gemm)) found.push_back(gemm);
  }
  return found;
}

std::vector<Gemm> products_of_cublas_log(const std::string& name) {
  CublasRecord record;
  std::vector<Gemm> found;
  for (const std::string& line : lines_of(name))
    if (record.feed(line + "\n") == Event::kGemm) found.push_back(record.gemm());
  return found;
}

void expect_shape(const Gemm& gemm, int64_t m, int64_t n, int64_t k, int64_t batch) {
  EXPECT_EQ(gemm.m, m);
  EXPECT_EQ(gemm.n, n);
  EXPECT_EQ(gemm.k, k);
  EXPECT_EQ(gemm.batch, batch);
}

TEST(BlasLog, LineOfCublasLt) {
  LtLine parts;
  const std::string line = lines_of("cublaslt.log").at(0);
  ASSERT_TRUE(split_lt_line(line, parts));
  EXPECT_EQ(parts.time, "2026-11-20 23:32:59");
  EXPECT_EQ(parts.process, 5771);
  EXPECT_EQ(parts.level, "Api");
  EXPECT_EQ(parts.function, "cublasLtCtxInit");
  EXPECT_EQ(parts.message, "ctx=0X46EDC8D0");
  EXPECT_FALSE(split_lt_line("[2026-11-20 23:32:59][cusparseLt][5771][Api][x] y", parts));
  EXPECT_FALSE(split_lt_line("", parts));
}

// The whole recording: 76 lines, 18 products, each with an API line and a heuristics line that are none.
TEST(BlasLog, EveryProductOfCublasLtOnce) {
  const std::vector<Gemm> products = products_of_lt_log();
  ASSERT_EQ(products.size(), 18U);
  EXPECT_STREQ(products[0].function, "cublasLtSSSMatmul");
  expect_shape(products[0], 64, 32, 1, 1);
  EXPECT_EQ(products[0].type_a, cublas::kR32F);
  EXPECT_EQ(products[0].transpose_a, cublas::kOpN);
  EXPECT_STREQ(products[1].function, "cublasLtTSTMatmul");
  expect_shape(products[1], 2048, 64, 2048, 1);
  EXPECT_EQ(products[1].type_a, cublas::kR16BF);
  EXPECT_EQ(products[1].type_d, cublas::kR16BF);
  EXPECT_EQ(products[1].compute_type, cublas::kCompute32F);
  EXPECT_EQ(products[1].transpose_a, cublas::kOpT);
  EXPECT_EQ(products[1].transpose_b, cublas::kOpN);
  expect_shape(products[2], 256, 64, 2048, 1);
  expect_shape(products[5], 5632, 64, 2048, 1);
}

// The same products, told twice by the same process.
TEST(BlasLog, BothLibrariesTellTheSame) {
  const std::vector<Gemm> lt = products_of_lt_log();
  const std::vector<Gemm> cublas = products_of_cublas_log("cublas.log");
  ASSERT_EQ(cublas.size(), 3U);
  EXPECT_STREQ(cublas[0].function, "cublasSgemm");
  EXPECT_STREQ(cublas[1].function, "cublasGemmEx");
  for (size_t i = 0; i < cublas.size(); ++i) {
    expect_shape(cublas[i], lt[i].m, lt[i].n, lt[i].k, lt[i].batch);
    EXPECT_EQ(cublas[i].type_a, lt[i].type_a);
    EXPECT_EQ(cublas[i].type_d, lt[i].type_d);
    EXPECT_EQ(cublas[i].compute_type, lt[i].compute_type);
    EXPECT_EQ(cublas[i].transpose_a, lt[i].transpose_a);
  }
}

TEST(BlasLog, AttributesOfDescriptors) {
  // What the real library prints of descriptors with everything set, from its heuristics line, in a trace line's place.
  const char* line =
      "A=0X1 Adesc=[type=R_8F_E4M3 rows=1024 cols=4096 ld=1024 order=ORDER_ROW batchCount=3 stridedBatchOffset=77] "
      "B=0X2 Bdesc=[type=R_8F_E4M3 rows=1024 cols=16 ld=1024 order=ORDER_ROW batchCount=3 stridedBatchOffset=77] "
      "C=0X3 Cdesc=[type=R_16BF rows=4096 cols=16 ld=4096] D=0X3 "
      "Ddesc=[type=R_16BF rows=4096 cols=16 ld=4096 order=ORDER_ROW batchCount=3 stridedBatchOffset=77] "
      "computeDesc=[computeType=COMPUTE_32F_FAST_TF32 scaleType=R_32F transa=OP_T epilogue=EPILOGUE_GELU_AUX_BIAS "
      "aScaleMode=VEC32_UE8M0 bScaleMode=BLK128x128_32F] algo=[algoId=66] workSpace=0X0";
  Gemm gemm;
  ASSERT_TRUE(parse_matmul("cublasLtMatmul", line, gemm));
  EXPECT_STREQ(gemm.function, "cublasLtMatmul");
  expect_shape(gemm, 4096, 16, 1024, 3);
  EXPECT_EQ(gemm.row_major, 1);
  EXPECT_EQ(gemm.type_a, cublas::kR8FE4M3);
  EXPECT_EQ(gemm.compute_type, cublas::kCompute32FFastTf32);
  EXPECT_EQ(gemm.epilogue, 164);
  EXPECT_EQ(gemm.scale_a, cublas::kScaleVec32Ue8m0);
  EXPECT_EQ(gemm.scale_b, cublas::kScaleBlock128x128);
  EXPECT_FALSE(parse_matmul("cublasLtMatrixTransform", line, gemm));
  EXPECT_FALSE(parse_matmul("cublasLtMatmulAlgoGetHeuristic", line, gemm));
}

TEST(BlasLog, EveryFormOfCublas) {
  const std::vector<Gemm> found = products_of_cublas_log("cublas_functions.log");
  const std::vector<std::string> names = {"cublasSgemm",
                                          "cublasSgemm",
                                          "cublasHgemm",
                                          "cublasSgemmBatched",
                                          "cublasSgemmStridedBatched",
                                          "cublasGemmBatchedEx",
                                          "cublasGemmStridedBatchedEx",
                                          "cublasGemmStridedBatchedEx",
                                          "cublasGemmGroupedBatchedEx",
                                          "cublasSgemmGroupedBatched",
                                          "cublasSgemmEx",
                                          "cublasSgemv"};  // and no dot product
  ASSERT_EQ(found.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(found[i].function, names[i]);
  expect_shape(found[0], 1, 2, 3, 1);
  EXPECT_EQ(found[0].transpose_a, cublas::kOpC);
  expect_shape(found[1], 5000000000, 2, 3, 1);
  EXPECT_EQ(found[2].compute_type, cublas::kCompute16F);
  expect_shape(found[3], 1, 2, 3, 9);
  expect_shape(found[4], 1, 2, 3, 9);
  expect_shape(found[7], 1, 2, 3, 9);
  EXPECT_EQ(found[7].type_a, cublas::kR16F);
  EXPECT_EQ(found[7].type_d, cublas::kR32F);
  expect_shape(found[8], -1, -1, -1, 1);  // addresses of arrays
  EXPECT_EQ(found[8].groups, 3);
  EXPECT_EQ(found[8].type_a, cublas::kR16BF);
  EXPECT_EQ(found[10].compute_type, cublas::kCompute32F);
  EXPECT_EQ(found[10].type_d, cublas::kR32F);
  expect_shape(found[11], 200, 1, 300, 1);
  EXPECT_EQ(found[11].gemv, 1);
}

TEST(BlasLog, Tf32IsAStateOfTheHandle) {
  CublasRecord record;
  EXPECT_EQ(record.feed("I! cuBLAS (v12.1) function cublasStatus_t cublasSgemm_v2(cublasHandle_t) called:\n"),
            Event::kCall);
  EXPECT_TRUE(record.inside_gemm());
  EXPECT_EQ(record.feed("i!  m: type=int; val=64\ni!  n: type=int; val=32\ni!  k: type=int; val=16\n"), Event::kNone);
  EXPECT_EQ(record.feed("i! Time: x\ni!Process=1; MathMode=CUBLAS_TF32_TENSOR_OP_MATH\ni! COMPILED WITH: x\n"),
            Event::kGemm);
  EXPECT_EQ(record.gemm().compute_type, cublas::kCompute32FFastTf32);
  EXPECT_EQ(record.feed("i!Process=1\n"), Event::kNone) << "a record ends once";
}

TEST(BlasLog, ARecordThatIsCutIsNoProduct) {
  CublasRecord record;
  record.feed("I! cuBLAS (v13.1.0) function cublasStatus_t cublasGemmEx(cublasHandle_t) called:\n");
  record.feed("i!  m: type=int; val=64\ni!  n: type=int; val=32\n");
  EXPECT_EQ(record.feed("i!Process=1;"), Event::kNone) << "k is missing";
  record.feed("I! cuBLAS (v13.1.0) function cublasStatus_t cublasGemmEx(cublasHandle_t) called:\n");
  record.feed("i!  m: type=int; val=64\ni!  n: type=int; val=32\ni!  k: type=int; val=99999999999999999999\n");
  EXPECT_EQ(record.feed("i!Process=1;"), Event::kNone) << "k is no number";
}

#ifdef LLMPROF_HAS_CUBLAS
TEST(BlasLog, NamesMeanWhatTheHeadersSay) {
  static_assert(std::is_same_v<cublasLtLoggerCallback_t, void (*)(int, const char*, const char*)>);
  static_assert(std::is_same_v<cublasLogCallback, void (*)(const char*)>);
#define LLMPROF_TYPE(name) EXPECT_EQ(data_type(#name), CUDA_##name) << #name
  LLMPROF_TYPE(R_16F);
  LLMPROF_TYPE(R_16BF);
  LLMPROF_TYPE(R_32F);
  LLMPROF_TYPE(R_64F);
  LLMPROF_TYPE(R_8F_E4M3);
  LLMPROF_TYPE(R_8F_E5M2);
  LLMPROF_TYPE(R_8I);
  LLMPROF_TYPE(R_8U);
  LLMPROF_TYPE(R_32I);
  LLMPROF_TYPE(C_32F);
  LLMPROF_TYPE(C_64F);
  LLMPROF_TYPE(C_16F);
  LLMPROF_TYPE(C_16BF);
  LLMPROF_TYPE(R_4I);
  LLMPROF_TYPE(R_4U);
  LLMPROF_TYPE(R_16I);
  LLMPROF_TYPE(C_8I);
#if CUBLAS_VERSION >= 120800
  LLMPROF_TYPE(R_4F_E2M1);
  LLMPROF_TYPE(R_6F_E2M3);
  LLMPROF_TYPE(R_6F_E3M2);
  LLMPROF_TYPE(R_8F_UE8M0);
#endif
#undef LLMPROF_TYPE
#define LLMPROF_COMPUTE(name) EXPECT_EQ(compute_type(#name), CUBLAS_##name) << #name
  LLMPROF_COMPUTE(COMPUTE_16F);
  LLMPROF_COMPUTE(COMPUTE_16F_PEDANTIC);
  LLMPROF_COMPUTE(COMPUTE_32F);
  LLMPROF_COMPUTE(COMPUTE_32F_PEDANTIC);
  LLMPROF_COMPUTE(COMPUTE_32F_FAST_16F);
  LLMPROF_COMPUTE(COMPUTE_32F_FAST_16BF);
  LLMPROF_COMPUTE(COMPUTE_32F_FAST_TF32);
  LLMPROF_COMPUTE(COMPUTE_64F);
  LLMPROF_COMPUTE(COMPUTE_64F_PEDANTIC);
  LLMPROF_COMPUTE(COMPUTE_32I);
  LLMPROF_COMPUTE(COMPUTE_32I_PEDANTIC);
#if CUBLAS_VERSION >= 130100
  LLMPROF_COMPUTE(COMPUTE_32F_EMULATED_16BFX9);
  LLMPROF_COMPUTE(COMPUTE_64F_EMULATED_FIXEDPOINT);
#endif
#undef LLMPROF_COMPUTE
}
#endif

// Feeds a text in a block of its own size, so that a sanitizer sees a read beyond its end.
void feed_anything(const std::string& text, CublasRecord& record, int& products) {
  const std::unique_ptr<char[]> copy(new char[text.size() + 1]);
  text.copy(copy.get(), text.size());
  const std::string_view view(copy.get(), text.size());
  LtLine parts;
  Gemm gemm;
  std::string_view function = "cublasLtMatmul", message = view;
  if (split_lt_line(view, parts)) {
    function = parts.function;
    message = parts.message;
  }
  const auto check = [](const Gemm& found) {
    ASSERT_NE(found.function, nullptr);
    if (found.groups == 0) {
      EXPECT_GT(found.m, 0);
      EXPECT_GT(found.n, 0);
      EXPECT_GT(found.k, 0);
    }
    EXPECT_GT(found.batch, 0);
    EXPECT_LE(found.transpose_a, 2);
    EXPECT_LE(found.transpose_b, 2);
  };
  if (parse_matmul(function, message, gemm)) {
    check(gemm);
    ++products;
  }
  if (record.feed(view) == Event::kGemm) {
    check(record.gemm());
    ++products;
  }
}

TEST(BlasLog, EveryLineCutAtEveryPlace) {
  CublasRecord record;
  int products = 0;
  for (const char* name : {"cublaslt.log", "cublas.log", "cublas_functions.log"})
    for (const std::string& line : lines_of(name))
      for (size_t size = 0; size < line.size(); ++size) feed_anything(line.substr(0, size), record, products);
  // A trace line says all before its algorithm: 18 of them, whole up to every place behind that.
  EXPECT_GT(products, 18 * 100);
}

TEST(BlasLog, EveryLineChangedAtRandom) {
  std::mt19937 random(7);
  CublasRecord record;
  int products = 0;
  const std::string odd = "[]=();,: \n\r0919\x80\xff";
  for (const char* name : {"cublaslt.log", "cublas.log", "cublas_functions.log"}) {
    const std::vector<std::string> lines = lines_of(name);
    for (int round = 0; round < 40; ++round) {
      for (std::string line : lines) {
        for (int change = 0; change < 1 + round % 4 && !line.empty(); ++change) {
          const size_t at = random() % line.size();
          switch (random() % 4) {
            case 0:
              line[at] = odd[random() % odd.size()];
              break;
            case 1:
              line.erase(at, 1 + random() % 20);
              break;
            case 2:
              line.insert(at, line.substr(random() % line.size(), random() % 60));
              break;
            default:
              line[at] = static_cast<char>(random());
          }
        }
        feed_anything(line, record, products);
      }
    }
  }
  EXPECT_GT(products, 100) << "most changes leave the shape readable";
}

}  // namespace
}  // namespace llmprof::blas_log
