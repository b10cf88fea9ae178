// What the system says of the CPU: /proc, sysfs and the control group, read once.
#pragma once

#include <cstdint>
#include <string>

namespace llmprof::device::cpu {

// Instructions that kernels and libraries use; what the operating system does not save counts as absent.
struct Instructions {
  bool avx2 = false;  // with FMA
  bool avx512 = false;
  bool avx512_vnni = false, avx_vnni = false;  // products of 8-bit integers
  bool avx512_bf16 = false, amx_bf16 = false, amx_int8 = false;

  bool bf16() const { return avx512_bf16 || amx_bf16; }
  bool int8() const { return avx512_vnni || avx_vnni || amx_int8; }
};
Instructions cpu_instructions();

struct Facts {
  std::string name;          // "AMD EPYC"; the architecture if /proc/cpuinfo names none
  std::string key;           // "amd-epyc-family26-model2": virtual machines give all generations one name
  int threads = 1;           // the affinity mask, and not more than the control group's quota of CPU time
  int64_t cache_bytes = 0;   // caches of the highest level of the CPUs in the affinity mask; 0: unknown
  int64_t memory_bytes = 0;  // of the machine, or the control group's limit
  double clock_max_mhz = 0;  // 0: unknown, as in most virtual machines
};
// `root` stands in for "/" in tests.
Facts read_facts(const std::string& root = "");
// Memory that can be had now without swapping: MemAvailable, and what the control group has left. 0: unknown.
int64_t available_memory(const std::string& root = "");

}  // namespace llmprof::device::cpu
