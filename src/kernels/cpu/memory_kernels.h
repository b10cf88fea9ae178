// Loops that move memory, in each width that the CPU may have. All work on their share of fp32 arrays: `count` elements
// at addresses of 64 bytes' alignment; any count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "device/cpu/facts.h"

namespace llmprof::kernels::cpu {

struct MemoryKernels {
  std::string_view name;  // "own AVX-512 streaming": stores pass the cache by, no line is read before it is written
  uint32_t (*read)(const float* a, size_t count);
  void (*write)(float* out, float value, size_t count);
  void (*copy)(float* out, const float* a, size_t count);
  void (*triad)(float* out, const float* a, const float* b, float value, size_t count);
  bool library = false;  // the C library's, of any number of bytes
};
// Widest first; a kernel without its kind of loop has null there.
std::vector<MemoryKernels> memory_kernels(const device::cpu::Instructions& instructions);

}  // namespace llmprof::kernels::cpu
