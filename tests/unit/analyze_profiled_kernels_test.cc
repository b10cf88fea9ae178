// FLOPs, traffic, shares and stalls of kernels that Nsight Compute profiled, from tables made by hand.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

struct NamedValue {
  std::string name, unit;
  double value;
};

class ProfiledTrace {
 public:
  ProfiledKernelId kernel(const char* name, int64_t dur_ns, const std::vector<NamedValue>& values) {
    const ProfiledKernelId id = builder_.add<ProfiledKernels>(
        {.stream = builder_.stream(0, 1, 7), .name = builder_.text(name), .dur_ns = dur_ns});
    for (const NamedValue& value : values)
      builder_.add<KernelCounters>(
          {.kernel = id, .name = builder_.text(value.name), .value = value.value, .unit = builder_.text(value.unit)});
    return id;
  }
  Report report() {
    finish_import(trace);
    EXPECT_TRUE(derive(trace));
    Result<Report> out = analyze(trace);
    EXPECT_TRUE(out);
    return out ? std::move(*out) : Report();
  }
  Trace trace;

 private:
  TraceBuilder builder_{trace};
};

std::string op(const std::string& name, const std::string& suffix = ".sum") {
  return "sm__sass_thread_inst_executed_op_" + name + "_pred_on" + suffix;
}
std::vector<NamedValue> fp32(double add, double mul, double fma) {
  return {{op("fadd"), "inst", add}, {op("fmul"), "inst", mul}, {op("ffma"), "inst", fma}};
}
std::vector<NamedValue> operator+(std::vector<NamedValue> a, const std::vector<NamedValue>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
const NamedValue kNoTensor{"sm__inst_executed_pipe_tensor.sum", "inst", 0};

TEST(ProfiledKernels, FlopsNeedThirtyTwoBitsAndTheTensorPipe) {
  ProfiledTrace made;
  made.kernel("all", 40'000, fp32(1, 2, 3) + std::vector<NamedValue>{kNoTensor});
  made.kernel("no tensor", 30'000, fp32(1, 2, 3));
  made.kernel("no ffma", 20'000, {{op("fadd"), "inst", 1}, {op("fmul"), "inst", 2}, kNoTensor});
  // The pipe ran, and the type that is counted did not.
  made.kernel("other type", 10'000,
              fp32(1, 2, 3) + std::vector<NamedValue>{{"sm__inst_executed_pipe_tensor.sum", "inst", 5},
                                                      {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "", 0}});
  const Report report = made.report();
  ASSERT_EQ(report.profiled_kernels.size(), 4u);
  EXPECT_EQ(report.profiled_kernels[0].flops, 9);
  EXPECT_EQ(report.profiled_kernels[0].not_counted, "fp16, fp64");
  EXPECT_EQ(report.profiled_kernels[0].dtype, "fp32");
  EXPECT_EQ(report.profiled_kernels[1].flops, std::nullopt);
  EXPECT_EQ(report.profiled_kernels[1].not_counted, "fp16, fp64, tensor");
  EXPECT_EQ(report.profiled_kernels[2].flops, std::nullopt);
  EXPECT_EQ(report.profiled_kernels[3].flops, std::nullopt);
  bool said = false;
  for (const CannotTell& row : report.cannot_tell)
    said = said || (row.question.find("FLOPs") != std::string::npos && row.why.find("3 of 4") != std::string::npos &&
                    row.how_to_find_out.find(op("ffma")) != std::string::npos);
  EXPECT_TRUE(said);
}

TEST(ProfiledKernels, TensorOperationsCountOnce) {
  ProfiledTrace made;
  made.kernel(
      "gemm", 1000,
      fp32(0, 0, 0) + std::vector<NamedValue>{{"sm__ops_path_tensor_src_fp16.sum", "", 100},
                                              {"sm__ops_path_tensor_src_fp16_dst_fp32.sum", "", 60},
                                              {"sm__ops_path_tensor_src_fp16_dst_fp16.sum", "", 40},
                                              {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "", 1000},
                                              {"sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_on.sum", "", 500},
                                              {"sm__ops_path_tensor_src_int8.sum", "", 7}});
  const Report report = made.report();
  EXPECT_EQ(report.profiled_kernels[0].tensor_flops, 1100);
  EXPECT_EQ(report.profiled_kernels[0].flops, 1100);
  EXPECT_EQ(report.profiled_kernels[0].dtype, "bf16");
}

TEST(ProfiledKernels, RatesOfTheRooflineSections) {
  ProfiledTrace made;
  const std::string rate = ".sum.per_cycle_elapsed";
  made.kernel("k", 2'000'000,
              {{op("fadd", rate), "inst/cycle", 10},
               {op("fmul", rate), "inst/cycle", 0},
               {op("ffma", rate), "inst/cycle", 20},
               {"sm__ops_path_tensor_src_bf16_dst_fp32" + rate, "1/cycle", 1000},
               {"smsp__cycles_elapsed.avg.per_second", "cycle/s", 1.5e9},
               {"dram__bytes.sum.per_second", "byte/s", 1e12}});
  const Report report = made.report();
  const ProfiledKernelRecord& row = report.profiled_kernels[0];
  EXPECT_EQ(row.fp32_flops, 50 * 3e6);  // 3,000,000 cycles
  EXPECT_EQ(row.tensor_flops, 1000 * 3e6);
  EXPECT_EQ(row.dram_bytes, 2e9);
  ASSERT_EQ(report.roofline.size(), 1u);
  EXPECT_DOUBLE_EQ(report.roofline[0].intensity, 1050 * 3e6 / 2e9);
}

TEST(ProfiledKernels, CallsOfOneKernelAreOneRow) {
  ProfiledTrace made;
  const auto call = [&](int64_t dur_ns, double read, double occupancy) {
    made.kernel("k", dur_ns,
                {{"dram__bytes_read.sum", "byte", read},
                 {"dram__bytes_write.sum", "byte", 0},
                 {"sm__warps_active.avg.pct_of_peak_sustained_active", "%", occupancy},
                 {"lts__t_sector_hit_rate.pct", "%", occupancy > 50 ? 180.0 : 40.0}});
  };
  call(1000, 100, 20);
  call(3000, 300, 60);
  made.kernel("other", 9000, {{"dram__bytes_read.sum", "byte", 5}});
  const Report report = made.report();
  ASSERT_EQ(report.profiled_kernels.size(), 2u);
  EXPECT_EQ(report.profiled_kernels[0].name, "other");  // longest first
  EXPECT_EQ(report.profiled_kernels[0].dram_bytes, std::nullopt);
  const ProfiledKernelRecord& row = report.profiled_kernels[1];
  EXPECT_EQ(row.calls, 2);
  EXPECT_EQ(row.duration_us, 2);
  EXPECT_EQ(row.dram_bytes, 200);
  EXPECT_DOUBLE_EQ(*row.occupancy_frac, (0.2 * 1000 + 0.6 * 3000) / 4000);
  EXPECT_DOUBLE_EQ(*row.l2_hit_frac, 0.4);  // 180 % cannot be
}

TEST(ProfiledKernels, Stalls) {
  ProfiledTrace made;
  made.kernel("share", 2000,
              {{"smsp__warp_issue_stalled_wait_per_warp_active.pct", "%", 12.5},
               {"smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct", "%", 60},
               {"smsp__warp_issue_stalled_selected_per_warp_active.pct", "%", 70}});
  made.kernel("cycles", 1000,
              {{"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "", 3},
               {"smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", "", 1}});
  const Report report = made.report();
  EXPECT_EQ(report.profiled_kernels[0].stall, "long_scoreboard");
  EXPECT_EQ(report.profiled_kernels[0].stall_frac, 0.6);
  EXPECT_EQ(report.profiled_kernels[1].stall, "barrier");
  EXPECT_EQ(report.profiled_kernels[1].stall_frac, 0.75);
  EXPECT_EQ(report.kernel_stalls.size(), 5u);
}

TEST(ProfiledKernels, TheRecordingBesideTellsDurations) {
  ProfiledTrace made;
  TraceBuilder builder(made.trace);
  const auto config = [&](int32_t grid) {
    return builder.launch_config(
        {.grid_x = grid, .grid_y = 1, .grid_z = 1, .block_x = 128, .block_y = 1, .block_z = 1});
  };
  int64_t now = 0;
  const auto ran = [&](const char* name, int32_t grid, int64_t dur_ns) {
    builder.add<GpuOps>({.start_ns = now += 10'000,
                         .dur_ns = dur_ns,
                         .stream = builder.stream(0, 1, 7),
                         .name = builder.text(name),
                         .config = config(grid),
                         .kind = GpuOpKind::kKernel});
  };
  ran("gemm", 4, 1000);
  ran("gemm", 4, 3000);
  ran("gemm", 5, 9000);
  ran("void at::native::(anonymous namespace)::copy<4>(int)", 1, 700);
  ran("void at::native::twice<1>()", 1, 500);
  ran("void at::native::twice<2>()", 1, 500);
  const auto profiled = [&](const char* name, int32_t grid) {
    const ProfiledKernelId id =
        made.kernel(name, 5000, {{"dram__bytes_read.sum", "byte", 4000}, {"dram__bytes_write.sum", "byte", 0}});
    made.trace.profiled_kernels.config[id] = config(grid);
  };
  profiled("gemm", 4);
  profiled("gemm", 6);
  profiled("void at::<unnamed>::copy<(int)4>(int)", 1);
  profiled("void at::twice<(int)1>()", 1);
  const Report report = made.report();
  const auto row = [&](size_t i) { return report.profiled_kernels[i]; };
  ASSERT_EQ(report.profiled_kernels.size(), 4u);
  EXPECT_EQ(row(0).recorded_calls, 2);
  EXPECT_EQ(row(0).recorded_us, 2);
  EXPECT_EQ(row(0).recorded_gbs, 2);
  EXPECT_EQ(row(0).duration_us, 5);
  EXPECT_EQ(row(1).recorded_calls, std::nullopt);
  EXPECT_EQ(row(2).recorded_us, 0.7);
  EXPECT_EQ(row(3).recorded_calls, std::nullopt);  // either of two
  EXPECT_EQ(report.kernels_topk.size(), 5u);
  bool said = false;
  for (const CannotTell& note : report.cannot_tell)
    said = said ||
           note.why.find("of 4 profiled kernels, by name, grid and block, 1 are not in the recording, and 1 could") !=
               std::string::npos;
  EXPECT_TRUE(said);
}

TEST(ProfiledKernels, NothingOfTime) {
  ProfiledTrace made;
  made.kernel("k", 1000, {});
  const Report report = made.report();
  EXPECT_FALSE(report.latency);
  EXPECT_TRUE(report.stages.empty());
  EXPECT_TRUE(report.kernels_topk.empty());
  ASSERT_FALSE(report.cannot_tell.empty());
  EXPECT_NE(report.cannot_tell[0].why.find("locked to base"), std::string::npos);
  made.trace.metadata["ncu.clocks"] = "unmodified";
  EXPECT_EQ(analyze(made.trace)->cannot_tell[0].why.find("locked to base"), std::string::npos);
}

}  // namespace
}  // namespace llmprof
