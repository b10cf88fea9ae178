// Why counters cannot be sampled here and what to do about it, as rows of data: a situation, how it is recognised, and
// what is said. explain() is a pure function of what was observed, so every row is unit-tested without a GPU.
#pragma once

#include <string>
#include <vector>

#include "nvidia/cupti_profiler_abi.h"

namespace llmprof::samplers {

// What was found out. -1 stands for unknown; counters_code for "not tried" is kNotTried.
struct Observations {
  static constexpr int kNotTried = -1;

  // This machine and process.
  int admin_only = -1;     // RmProfilingAdminOnly of /proc/driver/nvidia/params
  int cap_sys_admin = -1;  // of this process (CapEff)
  int cap_perfmon = -1;
  bool root = false;
  bool container = false;
  bool wsl = false;
  bool gvisor = false;

  // The GPU, by NVML.
  int mig = -1;
  int virtualization = -1;  // nvml::kVirtualization...
  int confidential = -1;
  int gpm = -1;

  // The attempt to sample, by CUPTI.
  int counters_code = kNotTried;  // cupti_profiler::Code of the first call that failed, 0 if sampling works
  std::string counters_call;      // name of that call
  bool cupti_found = true;
  bool cupti_samples = true;  // this CUPTI has PM sampling (12.6 and later)
  int support_vgpu = 0, support_confidential = 0, support_wsl = 0,
      support_architecture = 0;  // cupti_profiler::SupportLevel
};

struct Explanation {
  const char* situation;  // stable name: "admin-only", "mig", ...
  const char* key;        // diagnostic of base/diagnostics.h
  std::string message;    // what is so, in one or two sentences
  std::string advice;     // what the user can do; empty if nothing
};

// The rows that apply, the most specific first. Empty if nothing stands in the way.
std::vector<Explanation> explain(const Observations& seen);

// Names of all rows, in order.
std::vector<const char*> situations();

// Fills the part of Observations that this machine and process tell. `root` is prefixed to every path, for tests.
void observe_machine(Observations& seen, const std::string& root = {});

}  // namespace llmprof::samplers
