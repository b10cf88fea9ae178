#include "hardware/gpu_parts.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace llmprof {
namespace {

constexpr std::string_view kBetween = " MIG ";
constexpr int kMemorySlices = 8;
// Labels of profiles are whole GB: 18 of 141 GB is an eighth.
constexpr double kSliceTolerance = 0.15;
// What a program sees of a part's memory over its label.
constexpr double kPartVisibleMin = 0.85, kPartVisibleMax = 1.12;

constexpr MaybeSourced Gpu::*kByArithmetic[] = {
    &Gpu::fp64_tflops, &Gpu::fp64_tensor_tflops,  &Gpu::fp32_tflops, &Gpu::tf32_tflops,        &Gpu::fp16_tflops,
    &Gpu::bf16_tflops, &Gpu::fp16_fp16acc_tflops, &Gpu::fp8_tflops,  &Gpu::fp8_fp16acc_tflops, &Gpu::int8_tops,
    &Gpu::int4_tops,   &Gpu::fp6_tflops,          &Gpu::fp4_tflops};
constexpr MaybeSourced Gpu::*kByMemory[] = {&Gpu::mem_gb, &Gpu::mem_bw_gbs, &Gpu::l2_mb, &Gpu::extra_cache_mb};
constexpr MaybeSourced Gpu::*kOfWhole[] = {&Gpu::mem_bytes_visible, &Gpu::gpu_link_gbs_bidir, &Gpu::tdp_w,
                                           &Gpu::measured_bf16_tflops, &Gpu::measured_fp8_tflops};

// The GB of "3g.40gb" and of "1g.10gb+me"; 0: there are none.
double label_gb(std::string_view profile) {
  profile = profile.substr(0, profile.find('+'));
  if (!profile.ends_with("gb")) return 0;
  profile.remove_suffix(2);
  profile.remove_prefix(profile.rfind('.') == std::string_view::npos ? profile.size() : profile.rfind('.') + 1);
  int gb = 0;
  const auto [end, error] = std::from_chars(profile.data(), profile.data() + profile.size(), gb);
  return error == std::errc() && end == profile.data() + profile.size() && gb > 0 ? gb : 0;
}

// How many of the eight slices of memory that is; 0: no whole number of them.
int memory_slices(const Gpu& whole, double gb) {
  if (!whole.mem_gb) return 0;
  const double slices = kMemorySlices * gb / whole.mem_gb->value;
  const int near = static_cast<int>(std::lround(slices));
  return near >= 1 && near <= kMemorySlices && std::fabs(slices - near) <= kSliceTolerance ? near : 0;
}

void scale(MaybeSourced& value, double by, const std::string& how) {
  if (!value) return;
  value->provenance =
      fmt::format("{}derived: {} x {} of the whole GPU", value->doubtful ? "doubtful: " : "", how, value->value);
  value->value *= by;
}

}  // namespace

PartName part_name(std::string_view device_name) {
  const size_t at = device_name.find(kBetween);
  if (at == std::string_view::npos) return {device_name, {}};
  return {device_name.substr(0, at), device_name.substr(at + kBetween.size())};
}

Result<Gpu> part_of(const Gpu& whole, std::string_view profile, const DeviceFacts& facts) {
  const auto contradicts = [&](const std::string& what) {
    return fail(fmt::format("the part of a GPU \"{}\" does not fit {}: {}", facts.name.substr(0, 256), whole.sku, what),
                "", "name the nearest whole GPU with --gpu, or measure the part: llmprof peaks");
  };
  const double gb = label_gb(profile);
  const int slices = memory_slices(whole, gb);
  if (slices == 0)
    return contradicts(fmt::format("its name says {} GB, which is no number of eighths of the GPU's memory", gb));
  if (const double share = static_cast<double>(facts.total_memory_bytes) / (gb * 1e9);
      facts.total_memory_bytes > 0 && (share < kPartVisibleMin || share > kPartVisibleMax))
    return contradicts(
        fmt::format("its name says {} GB, it has {:.1f}", gb, static_cast<double>(facts.total_memory_bytes) / 1e9));
  const double all_sms = whole.sm_count ? whole.sm_count->value : 0;
  const double sms = static_cast<double>(facts.sm_count);
  if (sms > all_sms && all_sms > 0) return contradicts(fmt::format("it has {} SMs, the GPU {}", sms, all_sms));
  Gpu part = whole;
  part.sku = fmt::format("{} MIG {}", whole.sku, profile);
  const std::string of_memory = fmt::format("{} of {} slices of memory", slices, kMemorySlices);
  for (const auto member : kByMemory) scale(part.*member, static_cast<double>(slices) / kMemorySlices, of_memory);
  const std::string of_sms = fmt::format("{} of {} SMs", sms, all_sms);
  for (const auto member : kByArithmetic) {
    if (sms > 0 && all_sms > 0)
      scale(part.*member, sms / all_sms, of_sms);
    else
      (part.*member).reset();
  }
  if (sms > 0)
    part.sm_count = Sourced{sms, "as the device says", false};
  else
    part.sm_count.reset();
  for (const auto member : kOfWhole) (part.*member).reset();
  part.gpu_link.clear();
  return part;
}

}  // namespace llmprof
