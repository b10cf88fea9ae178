// Own kernels: text inside the program (src/kernels/cuda/source/*.cu), compiled by NVRTC for one architecture when
// first needed, and kept in ${XDG_CACHE_HOME:-~/.cache}/llmprof/kernels. A cache that cannot be written is no error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "nvidia/libraries.h"

namespace llmprof::device::cuda {

// What NVRTC is told to compile for.
struct Architecture {
  std::string option;  // "sm_90a", or "compute_90" where the chip is newer than the compiler
  bool cubin = true;   // false: PTX, which the driver compiles
};
// The chip's own code with all its instructions ("a" from 9.0 on); for a chip that this NVRTC does not know, PTX of the
// highest that it does. Error: a chip under 8.0, or one that this NVRTC has left behind.
Result<Architecture> architecture_for(const nvidia::NvrtcLibrary& nvrtc, int cc_major, int cc_minor);

struct KernelSource {
  std::string name;                  // "memory.cu"
  std::vector<std::string> defines;  // "UNROLL=4"
};
// Names of all sources, without the preludes.
std::vector<std::string> kernel_source_names();
// prelude.cuh, common.cuh and the source as one text; empty if there is none of that name.
std::string kernel_text(std::string_view name);

// A cubin or PTX (ended by a zero). The error carries the compiler's first words.
Result<std::string> compile_kernel(const nvidia::NvrtcLibrary& nvrtc, const Architecture& architecture,
                                   const KernelSource& source);
// The same through the cache.
Result<std::string> compile_kernel_cached(const nvidia::NvrtcLibrary& nvrtc, const Architecture& architecture,
                                          const KernelSource& source);
// The folder of the cache; empty if there is no home.
std::string kernel_cache_folder();

}  // namespace llmprof::device::cuda
