// The counter sets of every chip, asked of the host half of a real CUPTI, which needs no GPU. Where none is installed
// these tests are skipped; the search itself is tested with the stand-in.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "capture/samplers/pm_metrics.h"
#include "capture/samplers/pm_session.h"
#include "capture_samplers_support.h"
#include "nvidia/find_cupti.h"
#include "trace/tables.h"

namespace llmprof::samplers {
namespace {

using testing::kFakeCupti;
using testing::Settings;

std::set<std::string> columns_of(const PmMetricSet& set) {
  std::set<std::string> columns;
  for (const PmMetric& metric : set.metrics) columns.insert(metric.column);
  return columns;
}

struct ChipCase {
  const char* chip;
  std::vector<const char*> with;
  std::vector<const char*> without;
};

// What every chip since Ampere has, in one pass together with the rest.
constexpr const char* kCommon[] = {"dram_read_frac",     "dram_write_frac", "sm_active_frac",
                                   "tensor_active_frac", "gr_active_frac",  "sm_clock_hz"};

class MetricSets : public ::testing::TestWithParam<ChipCase> {};

// CUPTI opens its own libraries with RTLD_DEEPBIND, which the address sanitizer refuses.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCanLoadCupti = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kCanLoadCupti = false;
#else
constexpr bool kCanLoadCupti = true;
#endif
#else
constexpr bool kCanLoadCupti = true;
#endif

// The first real copy of CUPTI that can schedule counters.
std::optional<nvidia::CuptiProfilerLibrary> real_cupti() {
  if (!kCanLoadCupti) return std::nullopt;
  for (const std::string& path : nvidia::cupti_candidates()) {
    Result<nvidia::CuptiProfilerLibrary> cupti = nvidia::CuptiProfilerLibrary::open(path);
    if (cupti && cupti->has_host()) return std::move(*cupti);
  }
  return std::nullopt;
}
constexpr const char* kNoCupti =
    "no libcupti of CUDA 12.6 or later that can be loaded here; name one with LLMPROF_CUPTI, without the address "
    "sanitizer";

size_t passes_of(const nvidia::CuptiProfilerLibrary& cupti, const char* chip, const std::vector<PmMetric>& metrics,
                 size_t* config_bytes = nullptr) {
  PmHost host(cupti, chip, nullptr);
  std::vector<uint8_t> config;
  cupti_profiler::Code error = cupti_profiler::kSuccess;
  const size_t passes = host.passes(metrics, config, error);
  if (config_bytes != nullptr) *config_bytes = config.size();
  return passes;
}

void expect_one_pass(const nvidia::CuptiProfilerLibrary& cupti, const ChipCase& chip, PmFocus focus) {
  const Result<PmMetricSet> set = build_pm_metric_set(cupti, chip.chip, nullptr, 0, focus);
  ASSERT_TRUE(set) << set.error().text();
  const std::set<std::string> columns = columns_of(*set);
  for (const char* column : kCommon) EXPECT_TRUE(columns.count(column)) << chip.chip << " " << column;
  for (const char* column : chip.with) EXPECT_TRUE(columns.count(column)) << chip.chip << " " << column;
  for (const char* column : chip.without) EXPECT_FALSE(columns.count(column)) << chip.chip << " " << column;
  size_t config_bytes = 0;
  EXPECT_EQ(passes_of(cupti, chip.chip, set->metrics, &config_bytes), 1U);
  EXPECT_EQ(config_bytes, set->config.size());
}

TEST_P(MetricSets, OnePassWithTheExpectedColumns) {
  const std::optional<nvidia::CuptiProfilerLibrary> cupti = real_cupti();
  if (!cupti) GTEST_SKIP() << kNoCupti;
  expect_one_pass(*cupti, GetParam(), PmFocus::kBroad);
}

// Those of deep mode.
class OperationSets : public ::testing::TestWithParam<ChipCase> {};

TEST_P(OperationSets, OnePassWithTheExpectedColumns) {
  const std::optional<nvidia::CuptiProfilerLibrary> cupti = real_cupti();
  if (!cupti) GTEST_SKIP() << kNoCupti;
  expect_one_pass(*cupti, GetParam(), PmFocus::kOperations);
}

// Why deep mode gives bounds: counts of operations cannot be sampled. If a newer CUPTI can, this says so.
TEST_P(OperationSets, OperationsThemselvesCannotBeSampled) {
  const std::optional<nvidia::CuptiProfilerLibrary> cupti = real_cupti();
  if (!cupti) GTEST_SKIP() << kNoCupti;
  for (const char* metric :
       {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__sass_thread_inst_executed_op_ffma_pred_on.sum",
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "sm__inst_executed_pipe_tensor_op_hmma.sum"})
    EXPECT_NE(passes_of(*cupti, GetParam().chip, {{"tensor_active_frac", metric, 1}}), 1U) << metric;
}

INSTANTIATE_TEST_SUITE_P(
    Chips, MetricSets,
    ::testing::Values(
        ChipCase{"GH100",
                 {"warps_active_frac", "dram_read_bytes_per_s", "dram_write_bytes_per_s", "l2_hit_frac",
                  "pcie_read_bytes_per_s", "pcie_write_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s",
                  "instructions_frac", "tensor_fp_frac", "tensor_int_frac", "copy_engine_frac", "ctas_launched"},
                 {}},
        ChipCase{"GB100",
                 {"warps_active_frac", "dram_read_bytes_per_s", "dram_write_bytes_per_s", "l2_hit_frac",
                  "pcie_read_bytes_per_s", "pcie_write_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s",
                  "instructions_frac", "tensor_fp_frac", "tensor_int_frac", "copy_engine_frac", "ctas_launched"},
                 {}},
        ChipCase{"GA100",
                 {"warps_active_frac", "dram_read_bytes_per_s", "pcie_read_bytes_per_s", "nvlink_rx_bytes_per_s"},
                 {"l2_hit_frac", "copy_engine_frac"}},
        ChipCase{"GA102", {"warps_active_frac", "dram_read_bytes_per_s", "pcie_read_bytes_per_s", "l2_hit_frac"}, {}},
        ChipCase{"AD102",
                 {"warps_active_frac", "dram_read_bytes_per_s", "pcie_read_bytes_per_s", "l2_hit_frac"},
                 {"nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"}},
        ChipCase{"GB202",
                 {"warps_active_frac", "dram_read_bytes_per_s", "dram_write_bytes_per_s", "pcie_read_bytes_per_s",
                  "l2_hit_frac", "copy_engine_frac", "ctas_launched"},
                 {"tensor_fp_frac", "tensor_int_frac"}}),
    [](const ::testing::TestParamInfo<ChipCase>& chip) { return std::string(chip.param.chip); });

INSTANTIATE_TEST_SUITE_P(
    Chips, OperationSets,
    ::testing::Values(
        ChipCase{"GH100",
                 {"fma_instructions_per_s", "fma_half_instructions_per_s", "dram_read_bytes_per_s", "tensor_fp_frac",
                  "tensor_int_frac", "l2_hit_frac", "ctas_launched", "warps_active_frac"},
                 {"fma_heavy_instructions_per_s", "fma_lite_instructions_per_s"}},
        ChipCase{"GB100",
                 {"fma_heavy_instructions_per_s", "fma_lite_instructions_per_s", "fma_half_instructions_per_s",
                  "dram_read_bytes_per_s", "l2_hit_frac", "warps_active_frac"},
                 {"fma_instructions_per_s", "tensor_fp_frac", "tensor_int_frac"}},
        ChipCase{"GA100",
                 {"fma_instructions_per_s", "dram_read_bytes_per_s"},
                 {"fma_half_instructions_per_s", "warps_active_frac"}},
        ChipCase{"GA102",
                 {"fma_heavy_instructions_per_s", "fma_lite_instructions_per_s", "fma_half_instructions_per_s",
                  "dram_read_bytes_per_s", "l2_hit_frac"},
                 {"warps_active_frac"}},
        ChipCase{"AD102",
                 {"fma_heavy_instructions_per_s", "fma_lite_instructions_per_s", "fma_half_instructions_per_s",
                  "dram_read_bytes_per_s", "l2_hit_frac"},
                 {"warps_active_frac"}},
        ChipCase{"GB202",
                 {"fma_heavy_instructions_per_s", "fma_lite_instructions_per_s", "tensor_fp_frac", "tensor_int_frac",
                  "dram_read_bytes_per_s", "l2_hit_frac"},
                 {"fma_half_instructions_per_s", "warps_active_frac"}}),
    [](const ::testing::TestParamInfo<ChipCase>& chip) { return std::string(chip.param.chip); });

TEST(PmMetrics, ColumnsAreColumnsOfTheTrace) {
  std::set<std::string> columns;
  GpuSamples table;
  table.for_each_column([&](const FieldInfo& info, const auto&) { columns.insert(std::string(info.name)); });
  for (const PmFocus focus : {PmFocus::kBroad, PmFocus::kOperations}) {
    std::set<std::string> seen;
    for (const PmCandidate& candidate : pm_candidates(focus)) {
      EXPECT_TRUE(columns.count(candidate.column)) << candidate.column;
      EXPECT_TRUE(seen.insert(candidate.column).second) << candidate.column << " twice";
      EXPECT_FALSE(candidate.metrics.empty());
      if (candidate.unless != nullptr) {
        EXPECT_TRUE(seen.count(candidate.unless)) << candidate.unless << " is tried before " << candidate.column;
      }
      // A bare name is refused by CUPTI and would poison the object it is asked on.
      for (const char* metric : candidate.metrics)
        EXPECT_NE(std::string(metric).find('.'), std::string::npos) << metric;
      const bool percent = std::string(candidate.metrics[0]).find("pct") != std::string::npos;
      EXPECT_DOUBLE_EQ(candidate.scale, percent ? 0.01 : 1.0) << candidate.column;
    }
    EXPECT_EQ(seen.count("fma_instructions_per_s"), focus == PmFocus::kOperations ? 1U : 0U);
  }
}

TEST(PmMetrics, TheFmaPipesAreCountedTogetherOrEachAlone) {
  Settings settings{{"FAKE_PM_METRICS", "48"}};
  const Result<nvidia::CuptiProfilerLibrary> cupti = nvidia::CuptiProfilerLibrary::open(kFakeCupti);
  ASSERT_TRUE(cupti);
  const auto columns = [&cupti] {
    const Result<PmMetricSet> set = build_pm_metric_set(*cupti, "GH100", nullptr, 0, PmFocus::kOperations);
    return set ? columns_of(*set) : std::set<std::string>();
  };
  EXPECT_EQ(columns().size(), pm_candidates(PmFocus::kOperations).size() - 2);
  EXPECT_EQ(columns().count("fma_heavy_instructions_per_s"), 0U);
  settings.set("FAKE_PM_REJECT", "pipe_fma_realtime");
  EXPECT_EQ(columns().size(), pm_candidates(PmFocus::kOperations).size() - 1);
  EXPECT_EQ(columns().count("fma_instructions_per_s"), 0U);
  EXPECT_EQ(columns().count("fma_lite_instructions_per_s"), 1U);
}

TEST(PmMetrics, ARejectedNameMakesWayForTheNext) {
  const Settings settings{{"FAKE_PM_REJECT", "dram__bytes_read"}};
  const Result<nvidia::CuptiProfilerLibrary> cupti = nvidia::CuptiProfilerLibrary::open(kFakeCupti);
  ASSERT_TRUE(cupti);
  const Result<PmMetricSet> set = build_pm_metric_set(*cupti, "GB202");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->metrics.size(), pm_candidates().size()) << "nothing after the rejected name is lost";
  for (const PmMetric& metric : set->metrics) {
    if (std::string(metric.column) != "dram_read_bytes_per_s") continue;
    EXPECT_STREQ(metric.metric, "dram__bytes_op_read.sum.per_second");
  }
}

TEST(PmMetrics, StopsBeforeASecondPass) {
  const Settings settings{{"FAKE_PM_METRICS", "5"}};
  const Result<nvidia::CuptiProfilerLibrary> cupti = nvidia::CuptiProfilerLibrary::open(kFakeCupti);
  ASSERT_TRUE(cupti);
  EXPECT_EQ(build_pm_metric_set(*cupti, "GH100")->metrics.size(), 5U);
  EXPECT_EQ(build_pm_metric_set(*cupti, "GH100", nullptr, 3)->metrics.size(), 3U);
}

TEST(PmMetrics, UnknownChipsAndEmptyDevicesAreErrors) {
  const Settings settings{{"FAKE_PM_METRICS", "0"}};
  const Result<nvidia::CuptiProfilerLibrary> cupti = nvidia::CuptiProfilerLibrary::open(kFakeCupti);
  ASSERT_TRUE(cupti);
  const Result<PmMetricSet> unknown = build_pm_metric_set(*cupti, "GX");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().what.find("GX"), std::string::npos);
  const Result<PmMetricSet> empty = build_pm_metric_set(*cupti, "GH100");
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().advice.find("MIG"), std::string::npos);
}

TEST(PmMetrics, TriggerByChip) {
  EXPECT_TRUE(samples_by_cycles("GA100"));
  EXPECT_TRUE(samples_by_cycles("TU102"));
  EXPECT_FALSE(samples_by_cycles("GA102"));
  EXPECT_FALSE(samples_by_cycles("GH100"));
}

TEST(CuptiVersion, IsToldAsTheToolkits) {
  EXPECT_EQ(nvidia::cupti_version_text(130001), "13.0.1");
  EXPECT_EQ(nvidia::cupti_version_text(130200), "13.2");
  EXPECT_EQ(nvidia::cupti_version_text(24), "12.6");
  EXPECT_EQ(nvidia::cupti_version_text(18), "11.8");
  EXPECT_EQ(nvidia::cupti_version_text(0), "unknown");
}

}  // namespace
}  // namespace llmprof::samplers
