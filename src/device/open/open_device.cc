#include <fmt/format.h>

#include <charconv>

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

}  // namespace

Result<std::unique_ptr<Device>> open_device(const OpenOptions& options) {
  if (options.name == "cpu") return cpu::open_cpu(options.threads);
  if (options.name.empty()) {
    Result<std::unique_ptr<Device>> gpu = cuda::open_cuda(0);
    return gpu ? std::move(gpu) : cpu::open_cpu(options.threads);
  }
  const int ordinal = cuda_ordinal(options.name);
  if (ordinal < 0)
    return fail(fmt::format("no device \"{}\"", options.name), {}, "--device cpu, or cuda:0 for the first GPU",
                ExitCode::kUsage);
  Result<std::unique_ptr<Device>> gpu = cuda::open_cuda(ordinal);
  if (!gpu && gpu.error().advice.empty()) gpu.error().advice = "--device cpu";
  return gpu;
}

}  // namespace llmprof::device
