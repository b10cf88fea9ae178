// From what a user typed or a device reported to one row of the table.
#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "hardware/gpu_fields.h"
#include "hardware/gpu_parts.h"

namespace llmprof {
namespace {

constexpr size_t kMaxName = 256;
constexpr size_t kNearest = 3;
constexpr size_t kMinPart = 3;  // a part of a name must say something
// Visible memory over the label in 1e9 bytes. Labels are nearer to GiB than to GB, ECC and firmware take some.
constexpr double kMinVisible = 0.92, kMaxVisible = 1.09;
constexpr std::string_view kNameTheGpu = "name the GPU with --gpu; `llmprof list gpus` shows the table";

// Drivers before and after 2021 differ in these words.
std::string fold_device(std::string_view name) {
  std::string folded = fold_name(name.substr(0, kMaxName));
  for (const std::string_view word : {"nvidia", "tesla", "geforce", "amd", "instinct"})
    if (folded.rfind(word, 0) == 0) folded.erase(0, word.size());
  return folded;
}

const Gpu* by_sku(std::string_view sku) {
  for (const Gpu& gpu : gpu_table())
    if (gpu.sku == sku) return &gpu;
  return nullptr;
}

// GPUs whose devices report this name.
std::vector<const Gpu*> by_device_name(const std::string& folded) {
  std::vector<const Gpu*> found;
  for (const DeviceName& known : shipped_hardware().device_names)
    if (fold_device(known.device_name) == folded) found.push_back(by_sku(known.sku));
  return found;
}

std::vector<std::string> skus_of(const std::vector<const Gpu*>& gpus) {
  std::vector<std::string> skus;
  for (const Gpu* gpu : gpus) skus.push_back(gpu->sku);
  return skus;
}

std::vector<std::string> nearest_skus(std::string_view name) {
  std::vector<std::string> names, skus;
  for (const Gpu& gpu : gpu_table()) {
    names.push_back(fold_device(gpu.sku));
    skus.push_back(gpu.sku);
  }
  for (const DeviceName& known : shipped_hardware().device_names) {
    names.push_back(fold_device(known.device_name));
    skus.push_back(known.sku);
  }
  std::vector<std::string> nearest;
  for (const std::string& found : nearest_names(fold_device(name), names, names.size())) {
    const std::string& sku = skus[static_cast<size_t>(std::find(names.begin(), names.end(), found) - names.begin())];
    if (std::find(nearest.begin(), nearest.end(), sku) == nearest.end()) nearest.push_back(sku);
    if (nearest.size() == kNearest) break;
  }
  return nearest;
}

bool memory_fits(const Gpu& gpu, int64_t bytes) {
  if (bytes <= 0 || !gpu.mem_gb) return true;
  const double share = static_cast<double>(bytes) / (gpu.mem_gb->value * 1e9);
  return share >= kMinVisible && share <= kMaxVisible;
}

// Why a GPU cannot be the device, or nothing.
std::string contradiction(const Gpu& gpu, const DeviceFacts& facts) {
  // A doubtful count of SMs (L4, GB200) excludes nobody.
  if (facts.sm_count > 0 && gpu.sm_count && !gpu.sm_count->doubtful &&
      static_cast<double>(facts.sm_count) != gpu.sm_count->value)
    return fmt::format("{} has {} SMs, the device {}", gpu.sku, gpu.sm_count->value, facts.sm_count);
  if (!memory_fits(gpu, facts.total_memory_bytes))
    return fmt::format("{} has {} GB, the device {:.1f}", gpu.sku, gpu.mem_gb->value,
                       static_cast<double>(facts.total_memory_bytes) / 1e9);
  const std::string capability = fmt::format("{}.{}", facts.cc_major, facts.cc_minor);
  if (facts.cc_major > 0 && gpu.vendor == "NVIDIA" && gpu.compute_capability != capability)
    return fmt::format("{} has compute capability {}, the device {}", gpu.sku, gpu.compute_capability, capability);
  return {};
}

// Whether a name, folded, is the start of a SKU up to a dash: "h100" of H100-PCIe-80GB.
bool begins(const std::string& sku, const std::string& wanted) {
  for (size_t dash = sku.find('-'); dash != std::string::npos; dash = sku.find('-', dash + 1))
    if (fold_device(std::string_view(sku).substr(0, dash)) == wanted) return true;
  return false;
}

// Of parts of one name the SXM part, where there is one: it is what calls itself by that name alone ("NVIDIA H200"),
// and what servers of LLMs have. Null where there are two, as with the memories of an A100.
const Gpu* only_sxm(const std::vector<const Gpu*>& parts, const std::string& wanted) {
  const Gpu* sxm = nullptr;
  for (const Gpu* gpu : parts) {
    if (!begins(gpu->sku, wanted)) return nullptr;
    if (gpu->sku.find("-SXM") == std::string::npos) continue;
    if (sxm != nullptr) return nullptr;
    sxm = gpu;
  }
  return sxm;
}

}  // namespace

Result<Gpu> find_gpu(std::string_view name) {
  const std::string wanted = fold_device(name);
  std::vector<const Gpu*> found;
  for (const Gpu& gpu : gpu_table())
    if (fold_device(gpu.sku) == wanted) return gpu;
  if (!wanted.empty()) found = by_device_name(wanted);
  if (found.empty() && wanted.size() >= kMinPart)
    for (const Gpu& gpu : gpu_table())
      if (fold_name(gpu.sku).find(wanted) != std::string::npos) found.push_back(&gpu);
  if (found.size() == 1) return *found[0];
  if (const Gpu* sxm = only_sxm(found, wanted); sxm != nullptr) return *sxm;
  if (found.size() > 1)
    return fail(fmt::format("\"{}\" fits several GPUs", name.substr(0, kMaxName)), "--gpu",
                "use " + join_or(skus_of(found)), ExitCode::kUsage);
  return fail(fmt::format("no GPU called \"{}\" in the table", name.substr(0, kMaxName)), "--gpu",
              did_you_mean(nearest_skus(name)) + "`llmprof list gpus` shows the table", ExitCode::kUsage);
}

std::vector<std::string> other_parts_called(std::string_view name) {
  const std::string wanted = fold_device(name);
  const Result<Gpu> taken = find_gpu(name);
  std::vector<std::string> others;
  if (!taken || fold_device(taken->sku) == wanted) return others;
  // In full ("NVIDIA H200") it is what the driver says, and that says which.
  const std::string full = fold_name(name.substr(0, kMaxName));
  for (const DeviceName& known : shipped_hardware().device_names)
    if (full != wanted && fold_name(known.device_name) == full) return others;
  for (const Gpu& gpu : gpu_table()) {
    if (gpu.sku != taken->sku && begins(gpu.sku, wanted)) others.push_back(gpu.sku);
  }
  return others;
}

bool may_call_itself(std::string_view sku, std::string_view device_name) {
  const PartName device = part_name(device_name), listed = part_name(sku);
  if (device.profile != listed.profile) return false;
  const std::vector<const Gpu*> named = by_device_name(fold_device(device.gpu));
  return std::any_of(named.begin(), named.end(), [&](const Gpu* gpu) { return gpu->sku == listed.gpu; });
}

namespace {

// Of GPUs that call themselves so, the one of which the device may be a part.
Result<Gpu> detect_part(const PartName& name, const DeviceFacts& facts) {
  std::vector<Gpu> fitting;
  Error why{fmt::format("the GPU \"{}\" is not in the table", name.gpu.substr(0, kMaxName)), "",
            std::string(kNameTheGpu)};
  const DeviceFacts capability{{}, 0, 0, facts.cc_major, facts.cc_minor};
  for (const Gpu* whole : by_device_name(fold_device(name.gpu))) {
    Result<Gpu> part = part_of(*whole, name.profile, facts);
    if (const std::string reason = contradiction(*whole, capability); !reason.empty())
      part = fail(reason, "", std::string(kNameTheGpu));
    if (part)
      fitting.push_back(*std::move(part));
    else
      why = part.error();
  }
  if (fitting.empty()) return tl::unexpected<Error>(why);
  if (fitting.size() == 1) return fitting[0];
  std::vector<std::string> skus;
  for (const Gpu& gpu : fitting) skus.push_back(gpu.sku);
  return fail(fmt::format("the GPU \"{}\" may be {}", facts.name.substr(0, kMaxName), join_or(skus)), "",
              std::string(kNameTheGpu));
}

}  // namespace

Result<Gpu> detect_gpu(const DeviceFacts& facts) {
  if (facts.name.empty()) return fail("the recording does not name its GPU", "", std::string(kNameTheGpu));
  if (const PartName name = part_name(facts.name); !name.profile.empty()) return detect_part(name, facts);
  const std::vector<const Gpu*> named = by_device_name(fold_device(facts.name));
  if (named.empty()) {
    const std::vector<std::string> near = nearest_skus(facts.name);
    return fail(fmt::format("the GPU \"{}\" is not in the table{}", facts.name.substr(0, kMaxName),
                            near.empty() ? std::string() : "; nearest are " + join_or(near)),
                "", std::string(kNameTheGpu));
  }
  std::vector<const Gpu*> fitting;
  std::string why;
  for (const Gpu* gpu : named) {
    const std::string reason = contradiction(*gpu, facts);
    if (reason.empty())
      fitting.push_back(gpu);
    else
      why += (why.empty() ? "" : "; ") + reason;
  }
  if (fitting.size() == 1) return *fitting[0];
  if (fitting.size() > 1)
    return fail(fmt::format("the GPU \"{}\" may be {}", facts.name.substr(0, kMaxName), join_or(skus_of(fitting))), "",
                std::string(kNameTheGpu));
  return fail(
      fmt::format("the GPU calls itself \"{}\" but differs from the table: {}", facts.name.substr(0, kMaxName), why),
      "", "it may be a slice (MIG) or a variant of that GPU; name the nearest one with --gpu");
}

}  // namespace llmprof
