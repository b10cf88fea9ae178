// What is known of each GPU: the shipped table (data/hardware), found by name or by what a recording says of its
// device.
//
// A value that is not known is absent, never 0, and every value says where it is from and whether it is doubtful. An
// unknown or ambiguous device is an error with the nearest names; there is no default GPU. All rates are dense, in
// TFLOPS (1e12) or TOPS; bandwidth is in GB/s (1e9); 16-bit and 8-bit float rates accumulate in FP32.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llmprof {

struct Sourced {
  double value = 0;
  std::string provenance;  // "data sheet: ...", "doubtful: ...", "derived: ..."
  bool doubtful = false;
};
using MaybeSourced = std::optional<Sourced>;

struct Gpu {
  std::string sku;  // "H100-SXM5-80GB", the name for --gpu
  std::string vendor, architecture, form_factor;
  std::string compute_capability;  // "9.0", "gfx942"; empty if there is none
  MaybeSourced sm_count;           // compute units on AMD, cores on Apple
  MaybeSourced boost_mhz;
  MaybeSourced fp64_tflops, fp64_tensor_tflops, fp32_tflops, tf32_tflops, fp16_tflops, bf16_tflops;
  MaybeSourced fp16_fp16acc_tflops;  // where accumulating in FP16 is faster (GeForce)
  MaybeSourced fp8_tflops, fp8_fp16acc_tflops, int8_tops, int4_tops, fp6_tflops, fp4_tflops;
  MaybeSourced mem_gb;             // the label
  MaybeSourced mem_bytes_visible;  // what programs see
  std::string mem_type;
  MaybeSourced mem_bw_gbs, l2_mb, extra_cache_mb;
  std::string gpu_link, pcie;
  MaybeSourced gpu_link_gbs_bidir, pcie_gbs_bidir, tdp_w;
  MaybeSourced measured_bf16_tflops, measured_fp8_tflops;  // published best of matrix products
  MaybeSourced fp16_peak_clock_mhz;                        // at which the data sheet's tensor peak is reached
  std::vector<std::string> doubtful_fields;                // column names, text columns included
  std::string notes;
};

// In the order of the data file.
const std::vector<Gpu>& gpu_table();

// By the user: a SKU or a device name; case, spaces and dashes do not matter, and a part that fits one GPU only is
// enough; of several parts of one name the only SXM part.
Result<Gpu> find_gpu(std::string_view name);
// What else that name may mean: "h200" is what an H200-SXM-141GB calls itself, and an H200-NVL-141GB is one too. Empty
// where the name says it all, or is none.
std::vector<std::string> other_parts_called(std::string_view name);

// Whether devices of that GPU report this name ("NVIDIA H200" for "H200-SXM-141GB").
bool may_call_itself(std::string_view sku, std::string_view device_name);

// What a recording or the driver says of a device. 0 or empty: not said.
struct DeviceFacts {
  std::string name;  // "NVIDIA H200"
  int64_t sm_count = 0;
  int64_t total_memory_bytes = 0;
  int cc_major = 0, cc_minor = 0;
};
// The one GPU that carries this name and does not contradict the other facts; of a part of a divided GPU ("NVIDIA A100
// 80GB PCIe MIG 3g.40gb") what the part has: "A100-PCIe-80GB MIG 3g.40gb" (gpu_parts.h).
Result<Gpu> detect_gpu(const DeviceFacts& facts);

enum class PeakType : uint8_t { kFp64, kFp32, kTf32, kFp16, kBf16, kFp8, kInt8, kInt4, kFp6, kFp4 };
constexpr std::array<PeakType, 10> kPeakTypes = {PeakType::kFp64, PeakType::kFp32, PeakType::kTf32, PeakType::kFp16,
                                                 PeakType::kBf16, PeakType::kFp8,  PeakType::kInt8, PeakType::kInt4,
                                                 PeakType::kFp6,  PeakType::kFp4};
std::string_view name_of(PeakType type);
// "bf16", "fp8", ...; also the names of model weights' formats: "fp8-block", "mxfp4", "nvfp4", "int4-g128".
std::optional<PeakType> parse_peak_type(std::string_view name);

// A value, or the sentence that says why there is none.
using Known = tl::expected<Sourced, std::string>;

// Peak rate of matrix products at the data sheet's clock. FP64 is that of the tensor cores where there are any; FP32
// that of the ordinary cores.
Known peak_tflops(const Gpu& gpu, PeakType type);
// The clock at which peak_tflops is reached: for tensor types the one the data sheet's FP16 peak implies (H100 SXM:
// 1830, though it boosts to 1980), for FP32 and FP64 the boost clock.
Known peak_clock_mhz(const Gpu& gpu, PeakType type);
// The data sheet's peak scaled to the clock that was seen: peak * observed / peak_clock_mhz. Absent for parts whose
// peak is capped below what their clock allows (H20).
Known peak_tflops_at_clock(const Gpu& gpu, PeakType type, double observed_mhz);
Known memory_bandwidth_gbs(const Gpu& gpu);
// One way, half of what data sheets give for both together: between host and GPU (PCIe, NVLink-C2C), and between GPUs.
// Parts whose GPUs are joined by a bridge have none unless it is plugged in: nothing is said of those.
Known host_link_gbs(const Gpu& gpu);
Known peer_link_gbs(const Gpu& gpu);
// FLOP/B above which a kernel of that type is bound by arithmetic: peak / bandwidth, at the data sheet's clock.
Known ridge_flop_per_byte(const Gpu& gpu, PeakType type);

// One line per GPU for `llmprof list gpus`.
struct GpuRow {
  std::string sku, architecture, compute_capability;
  std::optional<double> sm_count, bf16_tflops, fp8_tflops, mem_gb, mem_bw_gbs, tdp_w;
  int64_t doubtful_values = 0;
};
std::vector<GpuRow> gpu_rows();

}  // namespace llmprof
