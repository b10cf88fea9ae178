// Products of the logs of cuBLAS and cuBLASLt: those in both once, and their kernels by shape and order on a stream.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

struct MadeProduct {
  const char* function = "cublasGemmEx";
  int64_t m = 64, n = 128, k = 32;
  uint64_t a = 0x1000;
  uint64_t stream = 0;
  const char* algorithm = "";
  int64_t process = 7;
};

class LoggedTrace {
 public:
  void product(const MadeProduct& made) {
    const bool lt = std::string_view(made.function).starts_with("cublasLt");
    builder_.add<LoggedProducts>({.unix_s = 0,
                                  .process_id = made.process,
                                  .thread_id = lt ? -1 : 99,
                                  .device = lt ? -1 : 0,
                                  .stream = made.stream,
                                  .function = builder_.text(made.function),
                                  .dtype = DType::kBf16,
                                  .weight_dtype = DType::kBf16,
                                  .out_dtype = DType::kBf16,
                                  .batch = 1,
                                  .m = made.m,
                                  .n = made.n,
                                  .k = made.k,
                                  .layout = builder_.text("TN"),
                                  .algorithm = builder_.text(made.algorithm),
                                  .a = made.a,
                                  .b = made.a + 1,
                                  .d = made.a + 2});
  }
  // A kernel of a hooked library call, or of nothing that tells its shape (m: -1); in a graph if `node`.
  void gemm(int64_t m, int64_t n, int64_t k, int64_t dur_ns, int64_t stream = 7, uint64_t node = 0) {
    const ThreadId thread = builder_.thread(7, 99);
    const int64_t start = next_ns_;
    next_ns_ += 1'000'000;
    ++correlation_;
    if (m > 0)
      builder_.add<LibraryCalls>({.start_ns = start - 100,
                                  .dur_ns = 1000,
                                  .thread = thread,
                                  .name = builder_.text("cublasGemmEx"),
                                  .kind = WorkKind::kGemm,
                                  .dtype = DType::kBf16,
                                  .weight_dtype = DType::kBf16,
                                  .out_dtype = DType::kBf16,
                                  .batch = 1,
                                  .m = m,
                                  .n = n,
                                  .k = k});
    builder_.add<ApiCalls>({.start_ns = start,
                            .dur_ns = 10,
                            .thread = thread,
                            .name = builder_.text("cudaLaunchKernel"),
                            .correlation = correlation_});
    builder_.add<GpuOps>({.start_ns = start + 2000,
                          .dur_ns = dur_ns,
                          .stream = builder_.stream(0, 1, stream),
                          .name = builder_.text("nvjet_hsh_64x8_gemm"),
                          .correlation = correlation_,
                          .graph_node = node,
                          .kind = GpuOpKind::kKernel});
  }
  Report report() {
    finish_import(trace);
    derive(trace);
    Result<Report> result = analyze(trace);
    EXPECT_TRUE(result);
    return std::move(*result);
  }
  Trace trace;

 private:
  TraceBuilder builder_{trace};
  int64_t next_ns_ = 1'000'000;
  uint64_t correlation_ = 0;
};

std::string why_of(const Report& report, std::string_view question) {
  for (const CannotTell& row : report.cannot_tell)
    if (row.question.find(question) != std::string::npos) return row.why;
  return {};
}

int64_t calls_of(const Report& report) {
  int64_t calls = 0;
  for (const LoggedProductRecord& row : report.logged_products) calls += row.calls;
  return calls;
}

TEST(LoggedProducts, InBothLogsOnce) {
  LoggedTrace made;
  for (int i = 0; i < 2; ++i) made.product({});  // the same buffers again
  made.product({.a = 0x2000});                   // not in the other log
  for (int i = 0; i < 3; ++i) made.product({.function = "cublasLtTSTMatmul", .algorithm = "algoId=66"});
  made.product({.function = "cublasLtMatmul", .algorithm = "algoId=66"});                   // the program's own
  made.product({.function = "cublasLtTSTMatmul", .algorithm = "algoId=66", .process = 8});  // of another process
  const Report report = made.report();
  EXPECT_EQ(calls_of(report), 6);
  int64_t both = 0;
  for (const LoggedProductRecord& row : report.logged_products) {
    EXPECT_EQ(row.flops, 2.0 * 64 * 128 * 32);
    if (row.logs != "both") continue;
    both += row.calls;
    EXPECT_EQ(row.function, "cublasGemmEx");
    EXPECT_EQ(row.thread_id, 99);
    EXPECT_EQ(row.algorithm, "algoId=66");
  }
  EXPECT_EQ(both, 2);
  EXPECT_TRUE(report.stages.empty());
}

TEST(LoggedProducts, ProductsWithoutAddressesArePairedWithNone) {
  LoggedTrace made;
  made.product({.a = 0});
  made.product({.function = "cublasLtTSTMatmul", .a = 0});
  EXPECT_EQ(calls_of(made.report()), 2);
}

TEST(LoggedProducts, GroupedOnesHaveNoFlops) {
  LoggedTrace made;
  made.product({.function = "cublasGemmGroupedBatchedEx", .m = -1, .n = -1, .k = -1});
  const Report report = made.report();
  ASSERT_EQ(report.logged_products.size(), 1u);
  EXPECT_EQ(report.logged_products[0].flops, std::nullopt);
  EXPECT_EQ(report.logged_products[0].batch, std::nullopt);
  EXPECT_NE(why_of(report, "grouped products"), "");
}

TEST(LoggedProducts, TakeTheTimesOfTheirKernels) {
  LoggedTrace made;
  for (int i = 0; i < 3; ++i) {
    made.product({.m = 64, .n = 128, .k = 32, .stream = 0x55});
    if (i == 1) made.product({.m = 5, .n = 5, .k = 5, .stream = 0x55});  // not in the recording
    made.product({.m = 64, .n = 32, .k = 128, .stream = 0x55});
    made.product({.m = 9, .n = 9, .k = 9, .stream = 0x66});
    made.gemm(64, 128, 32, 1000 * (i + 1));
    made.gemm(32, 64, 128, 500);  // a transposed result
    made.gemm(9, 9, 9, 70, 13);
  }
  made.gemm(3, 3, 3, 100);                // in no log
  made.gemm(64, 128, 32, 100'000, 7, 5);  // of a CUDA graph
  const Report report = made.report();
  ASSERT_EQ(report.logged_products.size(), 4u);
  for (const LoggedProductRecord& row : report.logged_products) {
    if (row.m == 5) {
      EXPECT_EQ(row.recorded_calls, std::nullopt);
      continue;
    }
    EXPECT_EQ(row.recorded_calls, 3);
    EXPECT_EQ(row.recorded_us, row.m == 9 ? 0.07 : row.n == 128 ? 2.0 : 0.5);
    EXPECT_DOUBLE_EQ(*row.recorded_tflops, *row.flops / *row.recorded_us / 1e6);
  }
  const std::string why = why_of(report, "How long did all logged products take");
  EXPECT_NE(why.find("9 of 10 logged products are in the recording, by shape and order"), std::string::npos) << why;
  EXPECT_NE(why.find("1 of its 10 GEMMs are in no log"), std::string::npos) << why;
  EXPECT_NE(why.find("1 GEMMs ran in CUDA graphs"), std::string::npos) << why;
}

TEST(LoggedProducts, WithoutShapesByOrderWhereNumbersAreEqual) {
  for (const int kernels : {2, 3}) {
    LoggedTrace made;
    made.product({.m = 64});
    made.product({.m = 65});
    for (int i = 0; i < kernels; ++i) made.gemm(-1, -1, -1, 100 * (i + 1));
    const Report report = made.report();
    ASSERT_EQ(report.logged_products.size(), 2u);
    for (const LoggedProductRecord& row : report.logged_products) {
      if (kernels == 3) {
        EXPECT_EQ(row.recorded_calls, std::nullopt);
      } else {
        EXPECT_EQ(row.recorded_us, row.m == 64 ? 0.1 : 0.2);
      }
    }
    EXPECT_EQ(why_of(report, "How long did all logged").empty(), kernels == 2);
  }
}

}  // namespace
}  // namespace llmprof
