#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"

namespace llmprof::device {
namespace {

// "cuda:1" -> 1, "cuda" -> 0; -1: no name of a GPU.
int cuda_ordinal(std::string_view name) {
  if (name == "cuda") return 0;
  if (name.substr(0, 5) != "cuda:") return -1;
  const std::string_view digits = name.substr(5);
  int ordinal = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  return error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0 ? ordinal : -1;
}

// "GPU-...", "MIG-...", as nvidia-smi -L lists them.
bool is_uuid(std::string_view name) { return name.starts_with("GPU-") || name.starts_with("MIG-"); }

// The driver reads which GPUs it may see when it starts, which nothing in this process has let it do yet; a part of a
// divided GPU can be had in no other way. Processes that this one starts see the same one as their first.
Result<std::unique_ptr<Device>> open_by_uuid(const std::string& uuid) {
  setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
  Result<std::unique_ptr<Device>> gpu = cuda::open_cuda(0);
  if (gpu) return gpu;
  Error& error = gpu.error();
  error.what = fmt::format("the GPU {} cannot be opened: {}", uuid, error.what);
  error.advice += (error.advice.empty() ? "" : "; ") +
                  std::string("nvidia-smi -L lists the uuids of GPUs and of their parts (MIG)");
  return gpu;
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const OpenOptions& options) {
  if (options.name == "cpu") return cpu::open_cpu(options.threads);
  if (options.name.empty()) {
    Result<std::unique_ptr<Device>> gpu = cuda::open_cuda(0);
    return gpu ? std::move(gpu) : cpu::open_cpu(options.threads);
  }
  if (is_uuid(options.name)) return open_by_uuid(options.name);
  const int ordinal = cuda_ordinal(options.name);
  if (ordinal < 0)
    return fail(fmt::format("no device \"{}\"", options.name), {},
                "--device cpu, cuda:0 for the first GPU, or a uuid of nvidia-smi -L (GPU-..., MIG-...)",
                ExitCode::kUsage);
  Result<std::unique_ptr<Device>> gpu = cuda::open_cuda(ordinal);
  if (!gpu && gpu.error().advice.empty()) gpu.error().advice = "--device cpu";
  return gpu;
}

}  // namespace llmprof::device
