#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/csv.h"
#include "hardware/gpu_fields.h"
#include "hardware/hardware.h"
#include "text_contains.h"

namespace llmprof {
namespace {

std::string data_file(const std::string& name) {
  std::ifstream in(std::string(LLMPROF_DATA) + "/hardware/" + name, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

CsvTable data_table(const std::string& name) {
  Result<CsvTable> table = read_csv(data_file(name), name);
  EXPECT_TRUE(table) << (table ? "" : table.error().text());
  return table ? *std::move(table) : CsvTable();
}

Gpu gpu(const std::string& name) {
  Result<Gpu> found = find_gpu(name);
  EXPECT_TRUE(found) << (found ? "" : found.error().text());
  return found ? *std::move(found) : Gpu();
}

TEST(GpuTable, EveryCellOfTheDataFileIsInTheTable) {
  const CsvTable table = data_table("gpus.csv");
  ASSERT_EQ(gpu_table().size(), table.rows.size());
  EXPECT_EQ(gpu_table().size(), 39U);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Gpu& row = gpu_table()[i];
    for (const NumberColumn& column : kNumberColumns) {
      const std::string& cell = table.rows[i][*table.column(column.name)];
      const MaybeSourced& value = row.*column.member;
      ASSERT_EQ(value.has_value(), !cell.empty()) << row.sku << " " << column.name;
      if (value) {
        EXPECT_EQ(value->value, std::stod(cell)) << row.sku << " " << column.name;
      }
    }
    for (const TextColumn& column : kTextColumns)
      EXPECT_EQ(row.*column.member, table.rows[i][*table.column(column.name)]) << row.sku;
  }
}

TEST(GpuTable, EveryDoubtfulFieldIsFlaggedAndNoOther) {
  size_t values = 0, doubtful = 0;
  for (const Gpu& row : gpu_table())
    for (const NumberColumn& column : kNumberColumns) {
      const MaybeSourced& value = row.*column.member;
      if (!value) continue;
      ++values;
      const bool listed =
          std::find(row.doubtful_fields.begin(), row.doubtful_fields.end(), column.name) != row.doubtful_fields.end();
      EXPECT_EQ(value->doubtful, listed) << row.sku << " " << column.name;
      EXPECT_EQ(value->provenance.rfind("doubtful: ", 0) == 0, listed) << value->provenance;
      EXPECT_GT(value->provenance.size(), 15U);
      doubtful += listed ? 1 : 0;
    }
  EXPECT_GT(values, 550U);
  EXPECT_GT(doubtful, 70U);
}

// FP16 peak = SMs x FLOP per SM and clock x clock, with the rate of each generation's tensor cores (FP32 accumulate).
TEST(GpuTable, TheImpliedClockFollowsFromPeakSmsAndRate) {
  const std::map<std::string, double> per_capability = {
      {"7.0", 1024},  {"7.5", 1024},  {"8.0", 2048},  {"8.6", 1024},    {"8.9", 1024},   {"9.0", 4096},
      {"10.0", 8192}, {"10.3", 8192}, {"12.0", 1024}, {"gfx942", 2048}, {"gfx950", 4096}};
  // GeForce halves FP32 accumulation, the A10G has half the A10's tensor rate.
  const std::vector<std::string> halved = {"RTX-3090", "RTX-4090", "RTX-5090", "A10G"};
  size_t checked = 0;
  for (const Gpu& row : gpu_table()) {
    if (!row.fp16_peak_clock_mhz) continue;
    double rate = per_capability.at(row.compute_capability);
    if (std::find(halved.begin(), halved.end(), row.sku) != halved.end()) rate /= 2;
    const double mhz = row.fp16_tflops->value * 1e6 / (row.sm_count->value * rate);
    EXPECT_NEAR(mhz, row.fp16_peak_clock_mhz->value, 1) << row.sku;
    ++checked;
  }
  EXPECT_EQ(checked, 34U);
}

TEST(GpuTable, RatiosBetweenTypesHold) {
  for (const Gpu& row : gpu_table()) {
    if (row.bf16_tflops) {
      EXPECT_EQ(row.bf16_tflops->value, row.fp16_tflops->value) << row.sku;
    }
    if (row.fp8_tflops) {
      EXPECT_NEAR(row.fp8_tflops->value / row.bf16_tflops->value, 2, 0.03) << row.sku;
    }
    if (row.mem_bytes_visible) {
      EXPECT_NEAR(row.mem_bytes_visible->value / (row.mem_gb->value * 1e9), 1, 0.08) << row.sku;
    }
  }
}

struct Detection {
  DeviceFacts facts;
  std::string sku;
};

TEST(DetectGpu, FindsWhatRecordingsReport) {
  const std::vector<Detection> cases = {
      {{"NVIDIA H200", 132, 150109880320, 9, 0}, "H200-SXM-141GB"},
      {{"NVIDIA H200", 132, 150754820096, 9, 0}, "H200-SXM-141GB"},
      {{"NVIDIA H200 NVL", 132, 150109880320, 9, 0}, "H200-NVL-141GB"},
      {{"NVIDIA H100 80GB HBM3", 132, 84942979072, 9, 0}, "H100-SXM5-80GB"},
      {{"NVIDIA H100 PCIe", 114, 85029158912, 9, 0}, "H100-PCIe-80GB"},
      {{"NVIDIA H100 NVL", 132, 100000000000, 9, 0}, "H100-NVL-94GB"},
      {{"NVIDIA A100-SXM4-80GB", 108, 85198045184, 8, 0}, "A100-SXM4-80GB"},
      {{"NVIDIA A100-SXM4-40GB", 108, 42405855232, 8, 0}, "A100-SXM4-40GB"},
      {{"A100-SXM4-40GB", 108, 42405855232, 8, 0}, "A100-SXM4-40GB"},
      {{"NVIDIA A100 80GB PCIe", 108, 85100000000, 8, 0}, "A100-PCIe-80GB"},
      {{"NVIDIA A100-PCIE-40GB", 108, 42405855232, 8, 0}, "A100-PCIe-40GB"},
      {{"NVIDIA L40S", 142, 48305799168, 8, 9}, "L40S"},
      {{"NVIDIA L4", 58, 23600000000, 8, 9}, "L4"},
      {{"NVIDIA GeForce RTX 4090", 128, 25393692672, 8, 9}, "RTX-4090"},
      {{"NVIDIA B200", 148, 191501854310, 10, 0}, "B200-SXM-180GB"},
      {{"NVIDIA GB200", 152, 198674743296, 10, 0}, "GB200-186GB"},
      {{"Tesla V100-SXM2-16GB", 80, 16945512448, 7, 0}, "V100-SXM2-16GB"},
      {{"Tesla V100-SXM2-32GB", 80, 34089730048, 7, 0}, "V100-SXM2-32GB"},
      {{"Tesla T4", 40, 15843721216, 7, 5}, "T4"},
      {{"NVIDIA A10G", 80, 23800000000, 8, 6}, "A10G"},
      {{"NVIDIA A10", 72, 23800000000, 8, 6}, "A10"},
      {{"NVIDIA GH200 480GB", 132, 102005473280, 9, 0}, "GH200-96GB"},
      {{"NVIDIA GH200 480GB", 132, 150754820096, 9, 0}, "GH200-144GB"},
      {{"AMD Instinct MI300X", 304, 206141652992, 9, 4}, "MI300X"},
      {{"NVIDIA H200", 0, 0, 0, 0}, "H200-SXM-141GB"},
  };
  for (const Detection& c : cases) {
    const Result<Gpu> found = detect_gpu(c.facts);
    ASSERT_TRUE(found) << c.facts.name << ": " << found.error().text();
    EXPECT_EQ(found->sku, c.sku) << c.facts.name;
  }
}

TEST(DetectGpu, AmbiguousUnknownAndContradictingDevicesAreErrors) {
  const Result<Gpu> ambiguous = detect_gpu({"NVIDIA GH200 480GB", 132, 0, 9, 0});
  ASSERT_FALSE(ambiguous);
  EXPECT_TRUE(contains(ambiguous.error().text(), "GH200-96GB or GH200-144GB"));
  const Result<Gpu> unknown = detect_gpu({"NVIDIA H300 80GB HBM5", 200, 0, 11, 0});
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(contains(unknown.error().text(), "H100"));
  const Result<Gpu> slice = detect_gpu({"NVIDIA H200", 16, 18'000'000'000, 9, 0});
  ASSERT_FALSE(slice);
  EXPECT_TRUE(contains(slice.error().text(), "132 SMs, the device 16"));
  EXPECT_FALSE(detect_gpu({"NVIDIA H200", 132, 84'942'979'072, 9, 0})) << "memory of an H100";
  EXPECT_FALSE(detect_gpu({"NVIDIA H200", 132, 150'109'880'320, 8, 0})) << "capability of an A100";
  EXPECT_FALSE(detect_gpu({"Tesla V100-PCIE-16GB", 80, 16'945'512'448, 7, 0})) << "not in the table, no default";
  EXPECT_FALSE(detect_gpu({"", 132, 0, 9, 0}));
  EXPECT_FALSE(detect_gpu({std::string(100'000, 'H'), 132, 0, 9, 0}));
  for (const Result<Gpu>& result : {ambiguous, unknown, slice}) EXPECT_TRUE(contains(result.error().text(), "--gpu"));
}

// Figures of whole GPUs are those of their data sheets; SMs, memory and L2 of parts those that CUDA gave on an A100 of
// 80 GB (14, 28 and 42 SMs; 10.2, 20.9 and 42.4 GB), and the profiles those of NVIDIA's MIG User Guide.
TEST(DetectGpu, APartOfADividedGpuHasItsShare) {
  struct Part {
    DeviceFacts facts;
    const char* whole;
    double eighths;
  };
  const Part parts[] = {
      {{"NVIDIA A100-SXM4-80GB MIG 1g.10gb", 14, 10'200'547'328, 8, 0}, "A100-SXM4-80GB", 1},
      {{"NVIDIA A100-SXM4-80GB MIG 2g.20gb", 28, 20'937'965'568, 8, 0}, "A100-SXM4-80GB", 2},
      {{"NVIDIA A100-SXM4-80GB MIG 3g.40gb", 42, 42'412'802'048, 8, 0}, "A100-SXM4-80GB", 4},
      {{"NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 5'099'814'912, 8, 0}, "A100-SXM4-40GB", 1},
      {{"NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", 14, 0, 8, 0}, "A100-SXM4-40GB", 1},
      {{"NVIDIA H100 80GB HBM3 MIG 1g.20gb", 26, 0, 9, 0}, "H100-SXM5-80GB", 2},
      {{"NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", 16, 0, 9, 0}, "H100-SXM5-80GB", 4},
      {{"NVIDIA H200 MIG 1g.18gb", 16, 17'716'740'096, 9, 0}, "H200-SXM-141GB", 1},
      {{"NVIDIA H200 MIG 3g.71gb", 60, 0, 9, 0}, "H200-SXM-141GB", 4},
      {{"NVIDIA H200 MIG 7g.141gb", 132, 150'000'000'000, 9, 0}, "H200-SXM-141GB", 8},
      {{"NVIDIA A30 MIG 2g.12gb", 28, 0, 8, 0}, "A30", 4},
  };
  for (const Part& c : parts) {
    const Result<Gpu> part = detect_gpu(c.facts);
    ASSERT_TRUE(part) << c.facts.name << ": " << part.error().text();
    const Gpu whole = gpu(c.whole);
    EXPECT_EQ(part->sku, whole.sku + c.facts.name.substr(c.facts.name.find(" MIG "))) << c.facts.name;
    EXPECT_DOUBLE_EQ(part->mem_bw_gbs->value, whole.mem_bw_gbs->value * c.eighths / 8) << c.facts.name;
    EXPECT_EQ(part->l2_mb.has_value(), whole.l2_mb.has_value());
    if (whole.l2_mb) {
      EXPECT_DOUBLE_EQ(part->l2_mb->value, whole.l2_mb->value * c.eighths / 8) << c.facts.name;
    }
    EXPECT_DOUBLE_EQ(part->bf16_tflops->value,
                     whole.bf16_tflops->value * static_cast<double>(c.facts.sm_count) / whole.sm_count->value);
    EXPECT_TRUE(contains(part->bf16_tflops->provenance, "derived: ")) << part->bf16_tflops->provenance;
    EXPECT_EQ(part->sm_count->value, static_cast<double>(c.facts.sm_count));
    EXPECT_EQ(part->boost_mhz->value, whole.boost_mhz->value);
    EXPECT_FALSE(part->tdp_w || part->gpu_link_gbs_bidir) << "of the whole GPU, and none";
    EXPECT_TRUE(may_call_itself(part->sku, c.facts.name));
    EXPECT_FALSE(may_call_itself(whole.sku, c.facts.name));
    EXPECT_FALSE(may_call_itself(part->sku, c.facts.name.substr(0, c.facts.name.find(" MIG "))));
  }
  for (const DeviceFacts& wrong :
       {DeviceFacts{"NVIDIA H200 MIG 1g.18gb", 140, 0, 9, 0},
        DeviceFacts{"NVIDIA H200 MIG 1g.18gb", 16, 35'000'000'000, 9, 0},
        DeviceFacts{"NVIDIA H200 MIG 1g.18gb", 16, 0, 8, 0}, DeviceFacts{"NVIDIA H200 MIG 1g.25gb", 16, 0, 9, 0},
        DeviceFacts{"NVIDIA H200 MIG ", 16, 0, 9, 0}, DeviceFacts{"NVIDIA H200 MIG 1g.", 16, 0, 9, 0},
        DeviceFacts{"NVIDIA H200 MIG 1g.0gb", 16, 0, 9, 0},
        DeviceFacts{"NVIDIA H200 MIG 1g.99999999999gb", 16, 0, 9, 0},
        DeviceFacts{"NVIDIA H900 MIG 1g.18gb", 16, 0, 9, 0}})
    EXPECT_FALSE(detect_gpu(wrong)) << wrong.name;
  const Result<Gpu> counted = detect_gpu({"NVIDIA H200 MIG 1g.18gb", 0, 0, 0, 0});
  ASSERT_TRUE(counted);
  EXPECT_FALSE(counted->bf16_tflops) << "without SMs nobody knows its share";
}

TEST(FindGpu, SpellingDoesNotMatterAndUniquePartsAreEnough) {
  for (const std::string name : {"H100-SXM5-80GB", "h100 sxm5 80gb", "H100_SXM5_80GB", "h100sxm5", "H100-SXM"})
    EXPECT_EQ(gpu(name).sku, "H100-SXM5-80GB");
  EXPECT_EQ(gpu("NVIDIA GeForce RTX 4090").sku, "RTX-4090");
  EXPECT_EQ(gpu("4090").sku, "RTX-4090");
  EXPECT_EQ(gpu("l4").sku, "L4");
  EXPECT_EQ(gpu("H200").sku, "H200-SXM-141GB") << "the device name of the SXM part";
  EXPECT_EQ(gpu("h100").sku, "H100-SXM5-80GB") << "the only SXM part of that name, as with the H200";
}

TEST(FindGpu, UnknownAndAmbiguousNamesListTheNearest) {
  EXPECT_EQ(other_parts_called("h200"), std::vector<std::string>{"H200-NVL-141GB"});
  for (const char* name :
       {"NVIDIA H200", "h200-sxm-141gb", "h200-nvl", "a10", "l40s", "h20", "b200", "a100", "none", ""})
    EXPECT_TRUE(other_parts_called(name).empty()) << name;
  EXPECT_EQ(other_parts_called("h100"), (std::vector<std::string>{"H100-PCIe-80GB", "H100-NVL-94GB"}));
  const Result<Gpu> several = find_gpu("a100");
  ASSERT_FALSE(several);
  for (const std::string sku : {"A100-PCIe-40GB", "A100-PCIe-80GB", "A100-SXM4-40GB", "A100-SXM4-80GB"})
    EXPECT_TRUE(contains(several.error().text(), sku));
  const Result<Gpu> unknown = find_gpu("h1000-sxm");
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(contains(unknown.error().text(), "H100-"));
  EXPECT_EQ(unknown.error().exit_code, ExitCode::kUsage);
  EXPECT_FALSE(find_gpu(""));
  EXPECT_FALSE(find_gpu("nvidia"));
  EXPECT_FALSE(find_gpu("--"));
  EXPECT_FALSE(find_gpu("gb"));
}

TEST(FindGpu, EveryNameOfTheTableFindsItsRow) {
  for (const Gpu& row : gpu_table()) EXPECT_EQ(gpu(row.sku).sku, row.sku);
  for (const DeviceName& known : shipped_hardware().device_names) {
    const Result<Gpu> found = find_gpu(known.device_name);
    if (known.device_name == "NVIDIA GH200 480GB") {
      EXPECT_FALSE(found) << "two GPUs carry this name";
    } else {
      ASSERT_TRUE(found) << found.error().text();
      EXPECT_EQ(found->sku, known.sku) << known.device_name;
    }
  }
}

TEST(Peaks, DataSheetAndAtTheClockSeen) {
  const Gpu h200 = gpu("H200-SXM-141GB");
  EXPECT_EQ(peak_tflops(h200, PeakType::kBf16)->value, 989.4);
  EXPECT_TRUE(contains(peak_tflops(h200, PeakType::kBf16)->provenance, "data sheet"));
  EXPECT_EQ(peak_clock_mhz(h200, PeakType::kBf16)->value, 1830) << "not the boost clock";
  EXPECT_EQ(peak_clock_mhz(h200, PeakType::kFp32)->value, 1980);
  const Known faster = peak_tflops_at_clock(h200, PeakType::kBf16, 1980);
  ASSERT_TRUE(faster);
  EXPECT_DOUBLE_EQ(faster->value, 989.4 * 1980 / 1830);
  EXPECT_TRUE(contains(faster->provenance, "derived"));
  EXPECT_EQ(peak_tflops_at_clock(h200, PeakType::kBf16, 1830)->value, 989.4);
  EXPECT_NEAR(ridge_flop_per_byte(h200, PeakType::kBf16)->value, 206.1, 0.05);
  EXPECT_EQ(memory_bandwidth_gbs(h200)->value, 4800);
}

TEST(Peaks, RidgePointsMatchTheTable) {
  const CsvTable table = data_table("gpus.csv");
  const size_t ridge = *table.column("ridge_bf16_flop_per_byte");
  size_t checked = 0;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i][ridge].empty()) continue;
    const Gpu& row = gpu_table()[i];
    // Parts without BF16 are listed by their FP16 rate.
    const Known value = ridge_flop_per_byte(row, row.bf16_tflops ? PeakType::kBf16 : PeakType::kFp16);
    ASSERT_TRUE(value) << row.sku;
    EXPECT_NEAR(value->value, std::stod(table.rows[i][ridge]), 0.051) << row.sku;
    ++checked;
  }
  EXPECT_EQ(checked, 37U);
}

TEST(Peaks, WhatIsNotThereIsAbsentWithAReason) {
  const Known fp8 = peak_tflops(gpu("A100-SXM4-80GB"), PeakType::kFp8);
  ASSERT_FALSE(fp8);
  EXPECT_TRUE(contains(fp8.error(), "has no fp8 matrix units; they come with 8.9"));
  const Known int4 = peak_tflops(gpu("H100-SXM5-80GB"), PeakType::kInt4);
  ASSERT_FALSE(int4);
  EXPECT_TRUE(contains(int4.error(), "8.9 was the last"));
  EXPECT_TRUE(contains(peak_tflops(gpu("V100-SXM2-16GB"), PeakType::kBf16).error(), "8.0"));
  EXPECT_FALSE(peak_tflops_at_clock(gpu("H200"), PeakType::kBf16, 0));
  EXPECT_FALSE(peak_tflops_at_clock(gpu("H200"), PeakType::kBf16, std::nan("")));
  const Known capped = peak_tflops_at_clock(gpu("H20-96GB"), PeakType::kBf16, 1980);
  ASSERT_FALSE(capped);
  EXPECT_TRUE(contains(capped.error(), "capped"));
  EXPECT_FALSE(peak_tflops_at_clock(gpu("Apple-M4-Max-40c"), PeakType::kFp16, 1000)) << "no clock for its peak";
  EXPECT_FALSE(ridge_flop_per_byte(gpu("Snapdragon-X-Elite"), PeakType::kBf16));
}

TEST(Peaks, DoubtIsHandedDown) {
  const Gpu b200 = gpu("B200-SXM-180GB");
  EXPECT_TRUE(peak_tflops(b200, PeakType::kFp32)->doubtful);
  EXPECT_FALSE(peak_tflops(b200, PeakType::kBf16)->doubtful);
  const Gpu pcie = gpu("H100-PCIe-80GB");  // its bandwidth is doubtful
  const Known ridge = ridge_flop_per_byte(pcie, PeakType::kBf16);
  ASSERT_TRUE(ridge);
  EXPECT_TRUE(ridge->doubtful);
  EXPECT_EQ(ridge->provenance.rfind("doubtful: ", 0), 0U);
  EXPECT_EQ(peak_tflops(gpu("H100-SXM5-80GB"), PeakType::kFp64)->value, 66.9) << "tensor cores";
}

TEST(Peaks, TypesHaveNames) {
  for (const PeakType type : kPeakTypes) EXPECT_EQ(parse_peak_type(name_of(type)), type);
  EXPECT_EQ(parse_peak_type("fp8-block"), PeakType::kFp8);
  EXPECT_EQ(parse_peak_type("nvfp4"), PeakType::kFp4);
  EXPECT_EQ(parse_peak_type("int4-g128"), PeakType::kInt4);
  EXPECT_FALSE(parse_peak_type("fp128"));
}

TEST(GpuTable, DamagedDataFilesAreErrorsThatSayWhere) {
  const std::string gpus = data_file("gpus.csv"), sources = data_file("sources.csv"),
                    keys = data_file("source_keys.csv"), names = data_file("device_names.csv");
  EXPECT_TRUE(read_hardware(gpus, sources, keys, names));
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const auto error = [&](const std::string& g, const std::string& s, const std::string& k, const std::string& n) {
    const Result<HardwareTables> read = read_hardware(g, s, k, n);
    return read ? std::string() : read.error().text();
  };
  EXPECT_TRUE(contains(error(with(gpus, ",1530,", ",fast,"), sources, keys, names), "found \"fast\""));
  EXPECT_TRUE(contains(error(with(gpus, ",1530,", ",0,"), sources, keys, names), "expected a positive number"));
  EXPECT_TRUE(contains(error(with(gpus, "V100-SXM2-32GB", "V100-SXM2-16GB"), sources, keys, names), "appears twice"));
  EXPECT_TRUE(
      contains(error(gpus, with(sources, "V100-SXM2-16GB,sm_or_cu", "V100,sm_or_cu"), keys, names), "sm_or_cu"));
  EXPECT_TRUE(contains(error(gpus, with(sources, ",PL,ok", ",XX,ok"), keys, names), "XX"));
  EXPECT_TRUE(contains(error(gpus, sources, keys, with(names, ",H20-96GB", ",H20")), "is no SKU"));
  EXPECT_TRUE(contains(error(with(gpus, "boost_mhz", "boost"), sources, keys, names), "boost_mhz"));
}

TEST(GpuTable, RowsForTheListing) {
  const std::vector<GpuRow> rows = gpu_rows();
  ASSERT_EQ(rows.size(), gpu_table().size());
  for (const GpuRow& row : rows) EXPECT_FALSE(row.sku.empty());
  EXPECT_FALSE(rows[0].bf16_tflops) << "V100 has none";
}

}  // namespace
}  // namespace llmprof
