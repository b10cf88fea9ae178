#include <fmt/format.h>

#include <charconv>

#include "hardware/hardware.h"

namespace llmprof {
namespace {

// A data sheet peak this far below what boost clock and SMs give is a cap, not a clock (H20: 0.23; H100 NVL: 0.87).
constexpr double kCapped = 0.75;

struct TypeInfo {
  PeakType type;
  std::string_view name;
  MaybeSourced Gpu::*member;
  double first_capability;  // NVIDIA: tensor cores have the type from here on
  double last_capability;
  bool tensor;  // tensor cores, whose peak has a clock of its own
};
constexpr double kNever = 1e9;
constexpr std::array<TypeInfo, 10> kTypes = {{
    {PeakType::kFp64, "fp64", &Gpu::fp64_tflops, 0, kNever, false},
    {PeakType::kFp32, "fp32", &Gpu::fp32_tflops, 0, kNever, false},
    {PeakType::kTf32, "tf32", &Gpu::tf32_tflops, 8.0, kNever, true},
    {PeakType::kFp16, "fp16", &Gpu::fp16_tflops, 7.0, kNever, true},
    {PeakType::kBf16, "bf16", &Gpu::bf16_tflops, 8.0, kNever, true},
    {PeakType::kFp8, "fp8", &Gpu::fp8_tflops, 8.9, kNever, true},
    {PeakType::kInt8, "int8", &Gpu::int8_tops, 6.1, kNever, true},
    {PeakType::kInt4, "int4", &Gpu::int4_tops, 7.5, 8.9, true},
    {PeakType::kFp6, "fp6", &Gpu::fp6_tflops, 10.0, kNever, true},
    {PeakType::kFp4, "fp4", &Gpu::fp4_tflops, 10.0, kNever, true},
}};

const TypeInfo& info_of(PeakType type) { return kTypes[static_cast<size_t>(type)]; }

double capability_of(const Gpu& gpu) {
  double value = 0;
  const std::string& text = gpu.compute_capability;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && gpu.vendor == "NVIDIA" ? value : 0;
}

std::string why_absent(const Gpu& gpu, const TypeInfo& info) {
  const double capability = capability_of(gpu);
  if (capability > 0 && capability < info.first_capability)
    return fmt::format("{} (compute capability {}) has no {} matrix units; they come with {:.1f}", gpu.sku,
                       gpu.compute_capability, info.name, info.first_capability);
  if (capability > info.last_capability)
    return fmt::format("{} (compute capability {}) has no {} matrix units; {:.1f} was the last with them", gpu.sku,
                       gpu.compute_capability, info.name, info.last_capability);
  return fmt::format("the table has no {} peak for {}", info.name, gpu.sku);
}

std::string derived(const std::string& how, bool doubtful) {
  return (doubtful ? "doubtful: derived: " : "derived: ") + how;
}

}  // namespace

std::string_view name_of(PeakType type) { return info_of(type).name; }

std::optional<PeakType> parse_peak_type(std::string_view name) {
  for (const TypeInfo& info : kTypes)
    if (name == info.name) return info.type;
  if (name == "fp8-block") return PeakType::kFp8;
  if (name == "mxfp4" || name == "nvfp4") return PeakType::kFp4;
  if (name.substr(0, 5) == "int4-") return PeakType::kInt4;
  return std::nullopt;
}

Known peak_tflops(const Gpu& gpu, PeakType type) {
  const TypeInfo& info = info_of(type);
  if (type == PeakType::kFp64 && gpu.fp64_tensor_tflops) return *gpu.fp64_tensor_tflops;
  if (gpu.*info.member) return *(gpu.*info.member);
  return tl::unexpected<std::string>(why_absent(gpu, info));
}

Known peak_clock_mhz(const Gpu& gpu, PeakType type) {
  const MaybeSourced& clock = info_of(type).tensor ? gpu.fp16_peak_clock_mhz : gpu.boost_mhz;
  if (clock) return *clock;
  return tl::unexpected<std::string>(
      fmt::format("the table does not say at which clock {} reaches its {} peak", gpu.sku, name_of(type)));
}

Known peak_tflops_at_clock(const Gpu& gpu, PeakType type, double observed_mhz) {
  if (!(observed_mhz > 0)) return tl::unexpected<std::string>("the clock was not observed");
  const Known peak = peak_tflops(gpu, type);
  if (!peak) return peak;
  const Known clock = peak_clock_mhz(gpu, type);
  if (!clock) return clock;
  if (info_of(type).tensor && gpu.boost_mhz && clock->value < kCapped * gpu.boost_mhz->value)
    return tl::unexpected<std::string>(fmt::format(
        "the peak of {} is capped below what its clock allows, so it does not scale with the clock", gpu.sku));
  const bool doubtful = peak->doubtful || clock->doubtful;
  return Sourced{peak->value * observed_mhz / clock->value,
                 derived(fmt::format("data sheet peak {} x {:.0f} MHz seen / {:.0f} MHz at which it is reached",
                                     peak->value, observed_mhz, clock->value),
                         doubtful),
                 doubtful};
}

Known memory_bandwidth_gbs(const Gpu& gpu) {
  if (gpu.mem_bw_gbs) return *gpu.mem_bw_gbs;
  return tl::unexpected<std::string>(fmt::format("the table has no memory bandwidth for {}", gpu.sku));
}

namespace {

Known one_way(const Sourced& both, const std::string& name) {
  return Sourced{both.value / 2, derived(fmt::format("{}: half of {} GB/s both ways", name, both.value), both.doubtful),
                 both.doubtful};
}

}  // namespace

Known host_link_gbs(const Gpu& gpu) {
  if (!gpu.pcie_gbs_bidir)
    return tl::unexpected<std::string>(fmt::format("the table has no link between host and {}", gpu.sku));
  const bool pcie = !gpu.pcie.empty() && gpu.pcie[0] >= '0' && gpu.pcie[0] <= '9';
  return one_way(*gpu.pcie_gbs_bidir, pcie ? "PCIe " + gpu.pcie : gpu.pcie);
}

Known peer_link_gbs(const Gpu& gpu) {
  if (!gpu.gpu_link_gbs_bidir || gpu.gpu_link.find("bridge") != std::string::npos)
    return tl::unexpected<std::string>(fmt::format("the table has no link that every {} has to others", gpu.sku));
  return one_way(*gpu.gpu_link_gbs_bidir, gpu.gpu_link);
}

Known ridge_flop_per_byte(const Gpu& gpu, PeakType type) {
  const Known peak = peak_tflops(gpu, type);
  if (!peak) return peak;
  const Known bandwidth = memory_bandwidth_gbs(gpu);
  if (!bandwidth) return bandwidth;
  const bool doubtful = peak->doubtful || bandwidth->doubtful;
  return Sourced{
      peak->value * 1e3 / bandwidth->value,
      derived(fmt::format("{} peak {} TFLOPS / {} GB/s", name_of(type), peak->value, bandwidth->value), doubtful),
      doubtful};
}

}  // namespace llmprof
