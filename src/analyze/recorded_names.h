// Kernels of another tool's file found again in the recording beside it, whose recorder writes names in its own way.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "derive/kernel_function.h"
#include "trace/trace.h"

namespace llmprof {

// By the whole name, by what is in the name, by the function: the first that is known.
constexpr int kNamings = 3;
inline std::string named(int naming, std::string_view kernel) {
  return naming == 0 ? std::string(kernel) : naming == 1 ? kernel_words(kernel) : kernel_function(kernel);
}

// x*y*z as reports have it.
inline std::string launched_grid(const LaunchConfigs& table, Row config) {
  return fmt::format("{}x{}x{}", table.grid_x[config], table.grid_y[config], table.grid_z[config]);
}
inline std::string launched_block(const LaunchConfigs& table, Row config) {
  return fmt::format("{}x{}x{}", table.block_x[config], table.block_y[config], table.block_z[config]);
}

}  // namespace llmprof
