// The counter sets of every chip, asked of the host half of a real CUPTI, which needs no GPU. Where none is installed
// these tests are skipped; the search itself is tested with the stand-in.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "capture/samplers/find_cupti.h"
#include "capture/samplers/pm_metrics.h"
#include "capture/samplers/pm_session.h"
#include "capture_samplers_support.h"
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
constexpr const char* kCommon[] = {"dram_read_frac",     "dram_write_frac", "sm_active_frac", "warps_active_frac",
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

TEST_P(MetricSets, OnePassWithTheExpectedColumns) {
  if (!kCanLoadCupti) GTEST_SKIP() << "a real libcupti cannot be loaded under the address sanitizer";
  const ChipCase& chip = GetParam();
  for (const std::string& path : cupti_candidates()) {
    const Result<CuptiProfilerLibrary> cupti = CuptiProfilerLibrary::open(path);
    if (!cupti || !cupti->has_host()) continue;
    const Result<PmMetricSet> set = build_pm_metric_set(*cupti, chip.chip);
    ASSERT_TRUE(set) << set.error().text();
    const std::set<std::string> columns = columns_of(*set);
    for (const char* column : kCommon) EXPECT_TRUE(columns.count(column)) << chip.chip << " " << column;
    for (const char* column : chip.with) EXPECT_TRUE(columns.count(column)) << chip.chip << " " << column;
    for (const char* column : chip.without) EXPECT_FALSE(columns.count(column)) << chip.chip << " " << column;
    PmHost host(*cupti, chip.chip, nullptr);
    std::vector<uint8_t> config;
    cupti_profiler::Code error = cupti_profiler::kSuccess;
    EXPECT_EQ(host.passes(set->metrics, config, error), 1U) << path;
    EXPECT_EQ(config.size(), set->config.size());
    return;
  }
  GTEST_SKIP() << "no libcupti of CUDA 12.6 or later on this machine; name one with LLMPROF_CUPTI";
}

INSTANTIATE_TEST_SUITE_P(
    Chips, MetricSets,
    ::testing::Values(
        ChipCase{"GH100",
                 {"dram_read_bytes_per_s", "dram_write_bytes_per_s", "l2_hit_frac", "pcie_read_bytes_per_s",
                  "pcie_write_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "instructions_frac",
                  "tensor_fp_frac", "tensor_int_frac", "copy_engine_frac", "ctas_launched"},
                 {}},
        ChipCase{"GB100",
                 {"dram_read_bytes_per_s", "dram_write_bytes_per_s", "l2_hit_frac", "pcie_read_bytes_per_s",
                  "pcie_write_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "instructions_frac",
                  "tensor_fp_frac", "tensor_int_frac", "copy_engine_frac", "ctas_launched"},
                 {}},
        ChipCase{"GA100",
                 {"dram_read_bytes_per_s", "pcie_read_bytes_per_s", "nvlink_rx_bytes_per_s"},
                 {"l2_hit_frac", "copy_engine_frac"}},
        ChipCase{"GA102", {"dram_read_bytes_per_s", "pcie_read_bytes_per_s", "l2_hit_frac"}, {}},
        ChipCase{"AD102",
                 {"dram_read_bytes_per_s", "pcie_read_bytes_per_s", "l2_hit_frac"},
                 {"nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"}},
        ChipCase{"GB202",
                 {"dram_read_bytes_per_s", "dram_write_bytes_per_s", "pcie_read_bytes_per_s", "l2_hit_frac",
                  "copy_engine_frac", "ctas_launched"},
                 {"tensor_fp_frac", "tensor_int_frac"}}),
    [](const ::testing::TestParamInfo<ChipCase>& chip) { return std::string(chip.param.chip); });

TEST(PmMetrics, ColumnsAreColumnsOfTheTrace) {
  std::set<std::string> columns;
  GpuSamples table;
  table.for_each_column([&](const FieldInfo& info, const auto&) { columns.insert(std::string(info.name)); });
  std::set<std::string> seen;
  for (const PmCandidate& candidate : pm_candidates()) {
    EXPECT_TRUE(columns.count(candidate.column)) << candidate.column;
    EXPECT_TRUE(seen.insert(candidate.column).second) << candidate.column << " twice";
    EXPECT_FALSE(candidate.metrics.empty());
    // A bare name is refused by CUPTI and would poison the object it is asked on.
    for (const char* metric : candidate.metrics) EXPECT_NE(std::string(metric).find('.'), std::string::npos) << metric;
    const bool percent = std::string(candidate.metrics[0]).find("pct") != std::string::npos;
    EXPECT_DOUBLE_EQ(candidate.scale, percent ? 0.01 : 1.0) << candidate.column;
  }
}

TEST(PmMetrics, ARejectedNameMakesWayForTheNext) {
  const Settings settings{{"FAKE_PM_REJECT", "dram__bytes_read"}};
  const Result<CuptiProfilerLibrary> cupti = CuptiProfilerLibrary::open(kFakeCupti);
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
  const Result<CuptiProfilerLibrary> cupti = CuptiProfilerLibrary::open(kFakeCupti);
  ASSERT_TRUE(cupti);
  EXPECT_EQ(build_pm_metric_set(*cupti, "GH100")->metrics.size(), 5U);
  EXPECT_EQ(build_pm_metric_set(*cupti, "GH100", nullptr, 3)->metrics.size(), 3U);
}

TEST(PmMetrics, UnknownChipsAndEmptyDevicesAreErrors) {
  const Settings settings{{"FAKE_PM_METRICS", "0"}};
  const Result<CuptiProfilerLibrary> cupti = CuptiProfilerLibrary::open(kFakeCupti);
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
  EXPECT_EQ(cupti_version_text(130001), "13.0.1");
  EXPECT_EQ(cupti_version_text(130200), "13.2");
  EXPECT_EQ(cupti_version_text(24), "12.6");
  EXPECT_EQ(cupti_version_text(18), "11.8");
  EXPECT_EQ(cupti_version_text(0), "unknown");
}

}  // namespace
}  // namespace llmprof::samplers
