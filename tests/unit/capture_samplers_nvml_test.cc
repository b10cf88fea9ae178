// The NVML sampler against a stand-in NVML: units, what is missing, the spacing of GPM samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "capture/samplers/nvml.h"
#include "capture_samplers_support.h"
#include "nvidia/nvml_reader.h"
#include "trace/tables.h"

namespace llmprof::samplers {
namespace {

using testing::kFakeNvml;
using testing::Settings;
using testing::SpoolContent;

nvidia::NvmlReader first_reader(const nvidia::NvmlLibrary& nvml) {
  return nvidia::NvmlReader(nvml.api(), nvml.gpus().front(), nvml.driver_major());
}

TEST(Nvml, DescribesTheGpus) {
  const Settings settings{{"FAKE_NVML_GPUS", "2"}};
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml) << nvml.error().text();
  EXPECT_EQ(nvml->driver_version(), "580.159.04");
  EXPECT_EQ(nvml->driver_major(), 580);
  EXPECT_EQ(nvml->confidential(), 0);
  const std::vector<nvidia::NvmlGpu> gpus = nvml->gpus();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[1].index, 1);
  EXPECT_EQ(gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(gpus[1].pci_bus, "0000:10:00.0");
  EXPECT_EQ(gpus[1].name, "NVIDIA Fake H200");
  EXPECT_EQ(gpus[1].memory_bytes, 150000000000);
  EXPECT_DOUBLE_EQ(gpus[1].power_limit_w, 700);
  EXPECT_DOUBLE_EQ(gpus[1].sm_clock_max_mhz, 1980);
  EXPECT_EQ(gpus[1].compute_major, 9);
  EXPECT_EQ(gpus[1].mig, 0);
  EXPECT_EQ(gpus[1].gpm, 1);
}

TEST(Nvml, ReadsInTheRecordsUnits) {
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml);
  nvidia::NvmlReader reader = first_reader(*nvml);
  const nvidia::NvmlReading sample = reader.read();
  EXPECT_FLOAT_EQ(sample.gpu_util_frac, 0.9F);
  EXPECT_FLOAT_EQ(sample.memory_util_frac, 0.4F);
  EXPECT_FLOAT_EQ(sample.sm_clock_mhz, 1485);
  EXPECT_FLOAT_EQ(sample.memory_clock_mhz, 3201);
  EXPECT_FLOAT_EQ(sample.power_w, 512.345F) << "the instantaneous field, not the average";
  EXPECT_FLOAT_EQ(sample.temperature_c, 55);
  EXPECT_FLOAT_EQ(sample.memory_temperature_c, 66);
  EXPECT_EQ(sample.memory_used_bytes, 50000000000);
  EXPECT_EQ(sample.throttle_reasons, 4U);
  EXPECT_EQ(sample.throttle_power_ns, 1000);
  EXPECT_EQ(sample.throttle_sync_boost_ns, 3000);
  EXPECT_EQ(sample.throttle_thermal_sw_ns, 4000);
  EXPECT_EQ(sample.throttle_thermal_hw_ns, 5000);
  EXPECT_EQ(sample.throttle_brake_ns, 6000);
  EXPECT_GT(sample.energy_j, 0);
  EXPECT_TRUE(std::isnan(sample.pcie_rx_bytes_per_s)) << "unknown until GPM has been read";
}

// The ids of three throttle counters moved between driver 570 and 575; asked at the wrong place, another field answers.
TEST(Nvml, FindsTheThrottleCountersOfOlderDrivers) {
  Settings settings{{"FAKE_NVML_DRIVER", "570.86.10"}};
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml);
  EXPECT_EQ(first_reader(*nvml).read().throttle_thermal_hw_ns, 5000);
  EXPECT_EQ(first_reader(*nvml).read().throttle_brake_ns, 6000);
  settings.set("FAKE_NVML_DRIVER", "535.54.03");
  const nvidia::NvmlReading sample = first_reader(*nvml).read();
  EXPECT_EQ(sample.throttle_thermal_sw_ns, 2000) << "the thermal policy counter stands in";
  EXPECT_EQ(sample.throttle_thermal_hw_ns, -1);
  EXPECT_EQ(sample.throttle_brake_ns, -1);
}

TEST(Nvml, WhatTheGpuDoesNotTellIsAbsent) {
  const Settings settings{{"FAKE_NVML_MISSING",
                           "nvmlDeviceGetUtilizationRates,nvmlDeviceGetClockInfo,nvmlDeviceGetTemperature,"
                           "nvmlDeviceGetTotalEnergyConsumption,nvmlDeviceGetFieldValues,nvmlDeviceGetMemoryInfo,"
                           "nvmlDeviceGetPowerUsage,nvmlDeviceGetCurrentClocksEventReasons"}};
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml);
  const nvidia::NvmlReading sample = first_reader(*nvml).read();
  EXPECT_TRUE(std::isnan(sample.gpu_util_frac));
  EXPECT_TRUE(std::isnan(sample.sm_clock_mhz));
  EXPECT_TRUE(std::isnan(sample.temperature_c));
  EXPECT_TRUE(std::isnan(sample.memory_temperature_c));
  EXPECT_TRUE(std::isnan(sample.energy_j));
  EXPECT_TRUE(std::isnan(sample.power_w));
  EXPECT_EQ(sample.memory_used_bytes, -1);
  EXPECT_EQ(sample.throttle_power_ns, -1);
  EXPECT_EQ(sample.throttle_thermal_sw_ns, -1);
}

TEST(Nvml, AveragePowerStandsInForInstantaneous) {
  const Settings settings{{"FAKE_NVML_MISSING", "power-instant"}};
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml);
  EXPECT_FLOAT_EQ(first_reader(*nvml).read().power_w, 300);
}

// Each reading of these holds a lock that the program's allocations wait for.
TEST(Nvml, WhatHoldsTheDriversLockIsReadRarely) {
  const Settings settings{{"FAKE_NVML_SLOW_MS", "1"}};
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml);
  nvidia::NvmlReader reader = first_reader(*nvml);
  const auto has_all = [](const nvidia::NvmlReading& sample) {
    EXPECT_EQ(sample.energy_j == sample.energy_j, sample.throttle_power_ns >= 0);
    EXPECT_EQ(sample.throttle_power_ns >= 0, sample.throttle_thermal_sw_ns >= 0);
    EXPECT_FLOAT_EQ(sample.power_w, 512.345F) << "that holds nothing";
    return sample.energy_j == sample.energy_j;
  };
  EXPECT_TRUE(has_all(reader.read())) << "the first has everything";
  EXPECT_FALSE(has_all(reader.read())) << "a second later at the earliest";
  EXPECT_TRUE(has_all(reader.read(true))) << "asked for";
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(has_all(reader.read()));
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_TRUE(has_all(reader.read()));
}

TEST(Nvml, ALockIsSharedByAllGpus) {
  nvidia::LockingReading one, four;
  one.took(0, 1000, 1);
  four.took(0, 1000, 4);
  EXPECT_FALSE(one.due(1'000'999));
  EXPECT_TRUE(one.due(1'001'000));
  EXPECT_FALSE(four.due(4'000'999));
  EXPECT_TRUE(four.due(4'001'000));
  one.took(500'000, 5'000'000, 1);  // it waited
  EXPECT_TRUE(one.due(6'000'000));
}

TEST(Nvml, GpmColumnsAreColumnsOfTheTrace) {
  std::set<std::string> columns;
  GpuSamples table;
  table.for_each_column([&](const FieldInfo& info, const auto&) { columns.insert(std::string(info.name)); });
  for (const nvidia::GpmColumn& column : nvidia::gpm_columns())
    EXPECT_TRUE(columns.count(column.column)) << column.column;
}

TEST(Nvml, GpmNeedsAHundredMilliseconds) {
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_TRUE(nvml);
  nvidia::NvmlReader reader = first_reader(*nvml);
  nvidia::GpmReading sample;
  EXPECT_TRUE(reader.has_gpm());
  EXPECT_FALSE(reader.read_gpm(sample)) << "the first only sets the start";
  EXPECT_FALSE(reader.read_gpm(sample)) << "too early";
  std::this_thread::sleep_for(std::chrono::milliseconds(97));
  ASSERT_TRUE(reader.read_gpm(sample)) << "a little early is waited for";
  EXPECT_GE(sample.end_ns - sample.start_ns, 99000000);
  for (size_t i = 0; i < nvidia::gpm_columns().size(); ++i) {
    const nvidia::GpmColumn& column = nvidia::gpm_columns()[i];
    if (column.metric == nvml::kGpmTensorImma)
      EXPECT_TRUE(std::isnan(sample.values[i])) << "a metric that the GPU lacks";
    else
      EXPECT_FLOAT_EQ(sample.values[i], static_cast<float>(column.metric * column.scale)) << column.column;
  }
  EXPECT_FLOAT_EQ(reader.read().pcie_rx_bytes_per_s, 21.0F * 1048576.0F);
  EXPECT_FLOAT_EQ(reader.read().pcie_tx_bytes_per_s, 20.0F * 1048576.0F);
}

TEST(Nvml, SamplerWritesAllGpus) {
  const Settings settings{{"FAKE_NVML_GPUS", "2"}};
  testing::fake_function<void (*)()>(kFakeNvml, "fake_nvml_forget")();
  const TemporaryFolder folder;
  NvmlSampler sampler;
  NvmlSamplerOptions options;
  options.folder = folder.path();
  options.nvml_path = kFakeNvml;
  ASSERT_TRUE(sampler.start(options));
  EXPECT_EQ(sampler.gpus().size(), 2U);
  std::this_thread::sleep_for(std::chrono::milliseconds(650));
  sampler.stop();
  const SpoolContent spool = testing::read_spool(folder.path() + "/samples/nvml.spool");
  EXPECT_EQ(spool.role, "nvml");
  EXPECT_TRUE(spool.summary.closed);
  EXPECT_EQ(spool.fact("nvidia_driver"), "580.159.04");
  EXPECT_NE(spool.fact("gpu.1").find("\"power_limit_w\":700"), std::string::npos) << spool.fact("gpu.1");
  EXPECT_EQ(spool.nvml.size(), sampler.samples());
  EXPECT_GE(spool.nvml.size(), 2U * 3U);
  EXPECT_LE(spool.nvml.size(), 2U * 9U);
  EXPECT_EQ(spool.text(spool.nvml[1].gpu_uuid), "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(spool.sets.size(), 2U) << "one metric set for each GPU";
  EXPECT_GE(spool.counters.size(), 2U);
  const int column = spool.column("gpm", "dram_active_frac");
  ASSERT_GE(column, 0);
  EXPECT_NEAR(spool.counters.back().values[column], 0.1, 1e-4);
  EXPECT_GE(testing::fake_function<int64_t (*)()>(kFakeNvml, "fake_nvml_gpm_shortest_ns")(), nvidia::kGpmPeriodMinNs);
  for (size_t i = 2; i < spool.nvml.size(); ++i)
    EXPECT_GE(spool.nvml[i].energy_j, spool.nvml[i - 2].energy_j) << "cumulative";
}

TEST(Nvml, WithoutNvmlTheSpoolSaysSo) {
  const TemporaryFolder folder;
  NvmlSampler sampler;
  NvmlSamplerOptions options;
  options.folder = folder.path();
  options.nvml_path = folder.path() + "/libnvidia-ml.so.1";
  ASSERT_TRUE(sampler.start(options));
  EXPECT_TRUE(sampler.gpus().empty());
  EXPECT_FALSE(sampler.why_empty().empty());
  sampler.stop();
  const SpoolContent spool = testing::read_spool(folder.path() + "/samples/nvml.spool");
  EXPECT_NE(spool.note("no-nvml").find("found none"), std::string::npos) << spool.note("no-nvml");
  EXPECT_TRUE(spool.nvml.empty());
}

TEST(Nvml, ADriverThatIsNotLoadedIsNamed) {
  const Settings settings{{"FAKE_NVML_INIT", "9"}};
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open(kFakeNvml);
  ASSERT_FALSE(nvml);
  EXPECT_NE(nvml.error().what.find("Driver Not Loaded"), std::string::npos);
  EXPECT_NE(nvml.error().advice.find("kernel driver"), std::string::npos);
}

TEST(Nvml, AFolderThatCannotBeWrittenIsAnError) {
  NvmlSampler sampler;
  NvmlSamplerOptions options;
  options.folder = "/proc/no-such-session";
  const Status started = sampler.start(options);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().where, "/proc/no-such-session/samples");
  sampler.stop();
}

}  // namespace
}  // namespace llmprof::samplers
