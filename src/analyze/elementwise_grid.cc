#include "analyze/elementwise_grid.h"

#include <array>
#include <string_view>

namespace llmprof {
namespace {

// How many numbers a thread block of the kernel takes, of which it may be one: that of vectorised ones depends on the
// version of PyTorch and on the type.
std::array<int64_t, 2> numbers_per_block(std::string_view name) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (has("vectorized_elementwise_kernel")) return {512, 1024};
  if (has("elementwise_kernel<128, 2")) return {256, 256};
  if (has("elementwise_kernel")) return {512, 512};
  return {0, 0};
}

}  // namespace

bool passes_over(const Trace& trace, GpuOpId op, int64_t numbers) {
  const LaunchConfigId config = trace.gpu_ops.config[op];
  if (config == kNoRow) return false;
  const LaunchConfigs& configs = trace.launch_configs;
  const int64_t blocks = int64_t{configs.grid_x[config]} * configs.grid_y[config] * configs.grid_z[config];
  for (const int64_t each : numbers_per_block(trace.text(trace.gpu_ops.name[op])))
    if (each > 0 && blocks == (numbers + each - 1) / each) return true;
  return false;
}

}  // namespace llmprof
