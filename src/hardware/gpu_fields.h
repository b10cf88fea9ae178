// The columns of data/hardware/gpus.csv and the members of Gpu they fill. Inside the hardware room only.
#pragma once

#include <array>
#include <string_view>

#include "hardware/hardware.h"

namespace llmprof {

struct NumberColumn {
  std::string_view name;
  MaybeSourced Gpu::*member;
};
inline constexpr std::array<NumberColumn, 25> kNumberColumns = {{
    {"sm_or_cu", &Gpu::sm_count},
    {"boost_mhz", &Gpu::boost_mhz},
    {"fp64_tflops", &Gpu::fp64_tflops},
    {"fp64_tensor_tflops", &Gpu::fp64_tensor_tflops},
    {"fp32_tflops", &Gpu::fp32_tflops},
    {"tf32_tflops", &Gpu::tf32_tflops},
    {"fp16_tflops", &Gpu::fp16_tflops},
    {"bf16_tflops", &Gpu::bf16_tflops},
    {"fp16_fp16acc_tflops", &Gpu::fp16_fp16acc_tflops},
    {"fp8_tflops", &Gpu::fp8_tflops},
    {"fp8_fp16acc_tflops", &Gpu::fp8_fp16acc_tflops},
    {"int8_tops", &Gpu::int8_tops},
    {"int4_tops", &Gpu::int4_tops},
    {"fp6_tflops", &Gpu::fp6_tflops},
    {"fp4_tflops", &Gpu::fp4_tflops},
    {"mem_gb", &Gpu::mem_gb},
    {"mem_bytes_visible", &Gpu::mem_bytes_visible},
    {"mem_bw_gbs", &Gpu::mem_bw_gbs},
    {"l2_mb", &Gpu::l2_mb},
    {"extra_cache_mb", &Gpu::extra_cache_mb},
    {"gpu_link_gbs_bidir", &Gpu::gpu_link_gbs_bidir},
    {"pcie_gbs_bidir", &Gpu::pcie_gbs_bidir},
    {"tdp_w", &Gpu::tdp_w},
    {"measured_bf16_tflops", &Gpu::measured_bf16_tflops},
    {"measured_fp8_tflops", &Gpu::measured_fp8_tflops},
}};

struct TextColumn {
  std::string_view name;
  std::string Gpu::*member;
};
inline constexpr std::array<TextColumn, 9> kTextColumns = {{
    {"sku", &Gpu::sku},
    {"vendor", &Gpu::vendor},
    {"arch", &Gpu::architecture},
    {"form_factor", &Gpu::form_factor},
    {"compute_capability", &Gpu::compute_capability},
    {"mem_type", &Gpu::mem_type},
    {"gpu_link", &Gpu::gpu_link},
    {"pcie", &Gpu::pcie},
    {"notes", &Gpu::notes},
}};

// A device name as drivers report it, and a GPU that reports it. One name may stand for several GPUs.
struct DeviceName {
  std::string device_name, sku;
};

// The tables as they were read. Errors only if a data file is damaged, which the tests exclude for the shipped ones.
struct HardwareTables {
  std::vector<Gpu> gpus;
  std::vector<DeviceName> device_names;
};
Result<HardwareTables> read_hardware(std::string_view gpus_csv, std::string_view sources_csv,
                                     std::string_view source_keys_csv, std::string_view device_names_csv);
// The shipped ones, read once.
const HardwareTables& shipped_hardware();

}  // namespace llmprof
