// Logs of cuBLAS and cuBLASLt: products of threads that write between each other's lines, cut records, and what is not
// of a product.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "import/cublas.h"

namespace llmprof {
namespace {

const std::string kLtTrace =
    "[2026-11-20 23:33:00][cublasLt][5771][Trace][cublasLtMatmul] A=0X7F51 Adesc=[type=R_16BF rows=2048 cols=256 "
    "ld=2048] B=0X7F9D Bdesc=[type=R_16BF rows=2048 cols=64 ld=2048] C=0X7FCA Cdesc=[type=R_16BF rows=256 cols=64 "
    "ld=256] D=0X7FCB Ddesc=[type=R_16BF rows=256 cols=64 ld=256] computeDesc=[computeType=COMPUTE_32F "
    "scaleType=R_32F transa=OP_T epilogue=EPILOGUE_BIAS] algo=[algoId=66 tile=MATMUL_TILE_64x8] workSpace=0X0 "
    "workSpaceSizeInBytes=0 beta=0 outOfPlace=0 stream=0X5A0";

// A record of cublasSgemm_v2, as lines.
std::vector<std::string> sgemm(int m, const std::string& handle, int64_t thread) {
  return {
      "I! cuBLAS (v13.1.0) function cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, "
      "cublasOperation_t, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, "
      "int) called:",
      "i!  handle: type=cublasHandle_t; val=POINTER (IN HEX:0x" + handle + ")",
      "i!  transa: type=cublasOperation_t; val=CUBLAS_OP_T(1)",
      "i!  transb: type=cublasOperation_t; val=CUBLAS_OP_N(0)",
      "i!  m: type=int; val=" + std::to_string(m),
      "i!  n: type=int; val=32",
      "i!  k: type=int; val=8",
      "i!  alpha: type=float; val=POINTER (IN HEX:0x0x7ffd723e85e4)",
      "i!  A: type=float; val=POINTER (IN HEX:0x0x7f51)",
      "i!  lda: type=int; val=64",
      "i!  B: type=float; val=POINTER (IN HEX:0x0x7f60)",
      "i!  ldb: type=int; val=1",
      "i!  beta: type=float; val=POINTER (IN HEX:0x0x7ffd723e85e0)",
      "i!  C: type=float; val=POINTER (IN HEX:0x0x7f70)",
      "i!  ldc: type=int; val=64",
      "i! Time: 2026-11-20T23:32:59 elapsed from start 0.150000 minutes or 9.000000 seconds",
      "i!Process=5771; Thread=" + std::to_string(thread) + "; GPU=1; Handle=POINTER (IN HEX:0x" + handle +
          "); StreamId=POINTER (IN HEX:0x0x55aa); MathMode=CUBLAS_DEFAULT_MATH",
      "i! COMPILED WITH: GNU GCC/G++ / 8.5.0 20210514 (Red Hat 8.5.0-26)",
  };
}

std::string lines(const std::vector<std::string>& from, size_t begin = 0, size_t end = 1000) {
  std::string out;
  for (size_t i = begin; i < std::min(end, from.size()); ++i) out += from[i] + "\n";
  return out;
}

Trace read_log(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "cublas.log");
  EXPECT_TRUE(input && blas_logs::import(*input, trace));
  return trace;
}

std::string log_error(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "cublas.log");
  const Status status = blas_logs::import(*input, trace);
  return status ? "" : status.error().what;
}

constexpr const char* kHandle = "0x46edc8d0";

TEST(CublasLog, ARecord) {
  const Trace trace = read_log(lines(sgemm(64, kHandle, 140003274924160)));
  const LoggedProducts& rows = trace.logged_products;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.m[0], 32);  // columns of the column-major result
  EXPECT_EQ(rows.n[0], 64);
  EXPECT_EQ(rows.k[0], 8);
  EXPECT_EQ(rows.batch[0], 1);
  EXPECT_EQ(rows.process_id[0], 5771);
  EXPECT_EQ(rows.thread_id[0], 140003274924160);
  EXPECT_EQ(rows.device[0], 1);
  EXPECT_EQ(rows.stream[0], 0x55aau);
  EXPECT_EQ(rows.a[0], 0x7f51u);
  EXPECT_EQ(rows.b[0], 0x7f60u);
  EXPECT_EQ(rows.d[0], 0x7f70u);
  EXPECT_EQ(rows.unix_s[0], 1795217579);  // date -u -d "2026-11-20 23:32:59" +%s
  EXPECT_EQ(rows.dtype[0], DType::kFp32);
  EXPECT_EQ(trace.text(rows.function[0]), "cublasSgemm");
  EXPECT_EQ(trace.text(rows.layout[0]), "TN");
  EXPECT_EQ(trace.text(rows.compute[0]), "COMPUTE_32F");
  EXPECT_EQ(trace.metadata.at("cublas.version"), "13.1.0");
}

TEST(CublasLog, ALineOfCublasLt) {
  const Trace trace = read_log("loading the model\n" + kLtTrace + "\n");
  const LoggedProducts& rows = trace.logged_products;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.m[0], 64);
  EXPECT_EQ(rows.n[0], 256);
  EXPECT_EQ(rows.k[0], 2048);
  EXPECT_EQ(rows.thread_id[0], -1);
  EXPECT_EQ(rows.device[0], -1);
  EXPECT_EQ(rows.stream[0], 0x5a0u);
  EXPECT_EQ(rows.a[0], 0x7f51u);
  EXPECT_EQ(rows.d[0], 0x7fcbu);
  EXPECT_EQ(trace.text(rows.epilogue[0]), "BIAS");
  EXPECT_EQ(trace.text(rows.algorithm[0]), "algoId=66 tile=MATMUL_TILE_64x8");
}

TEST(CublasLog, LinesOfTwoThreadsInTurn) {
  const std::vector<std::string> one = sgemm(64, "0x1000", 1), other = sgemm(128, "0x2000", 2);
  std::string mixed;
  for (size_t i = 0; i < one.size(); ++i) mixed += one[i] + "\n" + other[i] + "\n";
  // What belongs to which cannot be known; the record behind them can.
  const Trace trace = read_log(mixed + lines(sgemm(256, "0x1000", 1)));
  ASSERT_EQ(trace.logged_products.size(), 1u);
  EXPECT_EQ(trace.logged_products.n[0], 256);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kCutRecord), 2u);
}

TEST(CublasLog, ARecordInsideAnother) {
  const std::vector<std::string> outer = sgemm(64, "0x1000", 1), inner = sgemm(128, "0x2000", 2);
  for (const size_t at : {size_t{1}, size_t{4}, size_t{5}, size_t{15}, size_t{16}}) {
    const Trace trace = read_log(lines(outer, 0, at) + lines(inner) + lines(outer, at));
    ASSERT_EQ(trace.logged_products.size(), 1u) << at;
    EXPECT_EQ(trace.logged_products.n[0], 128) << at;
    EXPECT_EQ(trace.logged_products.thread_id[0], 2) << at;
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kCutRecord), 1u) << at;
  }
}

// The end of the outer record comes first: its thread and stream are not those of the inner one.
TEST(CublasLog, TheEndOfAnother) {
  const std::vector<std::string> outer = sgemm(64, "0x1000", 1), inner = sgemm(128, "0x2000", 2);
  const Trace trace =
      read_log(lines(outer, 0, 15) + lines(inner, 0, 15) + lines(outer, 15) + lines(inner, 15) + kLtTrace + "\n");
  EXPECT_EQ(trace.logged_products.size(), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kCutRecord), 2u);
}

TEST(CublasLog, CutAnywhere) {
  const std::string whole = lines(sgemm(64, kHandle, 1)), second = lines(sgemm(96, kHandle, 1));
  const size_t known = second.find("i! COMPILED");  // nothing is missing from here on
  for (size_t size = 0; size <= second.size(); ++size) {
    const Trace trace = read_log(whole + second.substr(0, size));
    EXPECT_EQ(trace.logged_products.size(), size >= known ? 2u : 1u) << size;
    const bool cut = size > 1 && size < second.size() && size != known && size != known + 1;
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), cut ? 1u : 0u) << size;
  }
}

TEST(CublasLog, ARecordThatLostItsEnd) {
  // A process was killed, and another one went on in the same file.
  const Trace trace = read_log(lines(sgemm(64, kHandle, 1), 0, 9) + lines(sgemm(96, "0x77", 9)));
  ASSERT_EQ(trace.logged_products.size(), 1u);
  EXPECT_EQ(trace.logged_products.n[0], 96);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kCutRecord), 1u);
}

TEST(CublasLog, TwoLinesOfCublasLtInOne) {
  const Trace torn = read_log(kLtTrace.substr(0, 100) + kLtTrace + "\n");
  EXPECT_EQ(torn.logged_products.size(), 1u);
  EXPECT_EQ(torn.diagnostics.count(DiagnosticId::kCutRecord), 1u);
  const Trace both = read_log(kLtTrace + kLtTrace + "\n");
  EXPECT_EQ(both.logged_products.size(), 2u);
  const Trace cut = read_log(kLtTrace + "\n" + kLtTrace);
  EXPECT_EQ(cut.logged_products.size(), 1u);
  EXPECT_EQ(cut.diagnostics.count(DiagnosticId::kTruncatedFile), 1u);
}

TEST(CublasLog, NoProducts) {
  const std::string api =
      "[2026-11-20 23:33:00][cublasLt][5771][Api][cublasLtMatmul] A=0X7F51 Adesc=0X7FFD B=0X7F9D stream=0X0\n";
  EXPECT_NE(log_error(api).find("1 calls with addresses only"), std::string::npos) << log_error(api);
  EXPECT_NE(log_error(lines(sgemm(64, kHandle, 1), 0, 9)).find("no complete product"), std::string::npos);
}

TEST(CublasLog, Sniff) {
  EXPECT_GT(blas_logs::sniff("output\n" + kLtTrace + "\n"), 0);
  EXPECT_GT(blas_logs::sniff(lines(sgemm(64, kHandle, 1))), 0);
  for (const char* other : {"", "I! am", "[2026-11-20 10:00:00] hello\n", "{\"traceEvents\": []}",
                            "[2026-11-20 23:33:00][cudnn][5771][Trace][f] A=1\n", "a I! cuBLAS (v13.1.0) function\n"})
    EXPECT_EQ(blas_logs::sniff(other), 0) << other;
}

}  // namespace
}  // namespace llmprof
