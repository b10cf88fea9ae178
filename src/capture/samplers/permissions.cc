#include "capture/samplers/permissions.h"

#include <sys/klog.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "nvidia/nvml_abi.h"

namespace llmprof::samplers {
namespace {

using namespace cupti_profiler;

struct Row {
  const char* situation;
  bool (*applies)(const Observations&);
  const char* key;
  const char* message;
  const char* advice;
  bool general = false;  // only where no other row says more
};

bool denied(const Observations& seen) { return seen.counters_code == kInsufficientPrivileges; }
bool failed(const Observations& seen) {
  return seen.counters_code != kSuccess && seen.counters_code != Observations::kNotTried;
}

// Specific rows first: the same code has a different cure in a container, on a virtual machine and on bare metal.
constexpr Row kRows[] = {
    {"wsl",
     [](const Observations& seen) {
       return seen.counters_code == kWslDevice || seen.support_wsl == kUnsupported || (seen.wsl && failed(seen));
     },
     "no-counters", "Windows Subsystem for Linux has no sampling of hardware counters.",
     "use Linux on the machine itself for counters; what WSL does support needs 'Manage GPU Performance Counters: "
     "allow "
     "access to all users' in the developer settings of the NVIDIA panel in Windows"},
    {"confidential-computing",
     [](const Observations& seen) {
       return seen.counters_code == kConfidentialComputing || seen.support_confidential == kUnsupported ||
              (seen.confidential == 1 && failed(seen));
     },
     "no-counters", "The GPU runs in confidential computing mode, which hides its hardware counters.",
     "measure on a machine without confidential computing; power, clocks and memory from NVML work here"},
    {"vgpu-disabled",
     [](const Observations& seen) {
       return seen.counters_code == kVirtualizedInsufficientPrivileges || seen.support_vgpu == kSupportDisabled;
     },
     "no-counter-permission", "This virtual GPU may not read hardware counters: its host has not allowed profiling.",
     "ask the administrator of the host to set enable_profiling=1 in the vGPU plugin parameters of this machine"},
    {"vgpu",
     [](const Observations& seen) {
       return seen.counters_code == kVirtualizedNotSupported || seen.support_vgpu == kUnsupported ||
              (seen.virtualization == nvml::kVirtualizationVgpu && failed(seen) && !denied(seen));
     },
     "no-counters", "This is a virtual GPU without hardware counters.",
     "measure on a machine that has the whole GPU (bare metal or passed through)"},
    {"mig",
     [](const Observations& seen) { return seen.counters_code == kMigDevice || (seen.mig == 1 && failed(seen)); },
     "no-counters", "The GPU is divided (MIG): counters of the whole device are not visible in a slice.",
     "switch MIG off for the measurement (nvidia-smi -mig 0, needs the administrator)"},
    {"admin-only-container", [](const Observations& seen) { return denied(seen) && seen.container; },
     "no-counter-permission",
     "GPU counters are limited to administrators here (ERR_NVGPUCTRPERM) and this container does not have that right. "
     "The timeline of kernels is not affected.",
     "start the container with --cap-add=SYS_ADMIN, or set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module "
     "on "
     "the host; on a rented machine only the provider can do either"},
    {"admin-only", [](const Observations& seen) { return denied(seen) && !seen.container; }, "no-counter-permission",
     "GPU counters are limited to administrators here (ERR_NVGPUCTRPERM). The timeline of kernels is not affected.",
     "run as root, or allow every user: 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in a file under "
     "/etc/modprobe.d, then update the initramfs and restart"},
    {"busy", [](const Observations& seen) { return seen.counters_code == kHardwareBusy; }, "counters-busy",
     "Another profiler holds the GPU's counters (DCGM's profiling fields 1001 to 1014, Nsight Compute, Nsight Systems, "
     "or a second llmprof).",
     "stop it for the measurement; for DCGM: dcgmi profile --pause, afterwards --resume"},
    {"gvisor", [](const Observations& seen) { return seen.gvisor && failed(seen); }, "no-counters",
     "This sandbox (gVisor) passes only some of the driver's calls, and counters are not among them.",
     "run outside the sandbox for counters"},
    {"mining-gpu", [](const Observations& seen) { return seen.counters_code == kCmpDevice; }, "no-counters",
     "A mining GPU (CMP) has no hardware counters for profilers.", ""},
    {"sli", [](const Observations& seen) { return seen.counters_code == kSliDevice; }, "no-counters",
     "GPUs joined by SLI have no hardware counters for profilers.", "switch SLI off"},
    {"no-cupti", [](const Observations& seen) { return !seen.cupti_found; }, "no-counters",
     "No CUPTI library was found, so hardware counters cannot be sampled.",
     "install the nvidia-cuda-cupti package that belongs to your PyTorch, or the CUDA toolkit; or name the file: "
     "LLMPROF_CUPTI=/path/to/libcupti.so"},
    {"old-cupti", [](const Observations& seen) { return seen.cupti_found && !seen.cupti_samples; }, "no-counters",
     "The CUPTI found is older than CUDA 12.6 and cannot sample hardware counters.",
     "install a newer CUPTI beside it and name it: LLMPROF_CUPTI=/path/to/libcupti.so"},
    {"old-driver", [](const Observations& seen) { return seen.counters_code == kNotInitialized; }, "no-counters",
     "The NVIDIA driver is older than the CUPTI found, which therefore does not start.",
     "update the driver, or name a CUPTI that is not newer than it: LLMPROF_CUPTI=/path/to/libcupti.so"},
    {"unknown-chip", [](const Observations& seen) { return seen.counters_code == kInvalidChipName; }, "no-counters",
     "The CUPTI found does not know this GPU.",
     "install a CUPTI as new as the GPU and name it: LLMPROF_CUPTI=/path/to/libcupti.so"},
    {"old-gpu",
     [](const Observations& seen) {
       return seen.support_architecture == kUnsupported || (failed(seen) && seen.counters_code == kNotSupported);
     },
     "no-counters", "This GPU cannot sample hardware counters (Turing, compute capability 7.5, is the first that can).",
     "", true},
    {"refused", failed, "no-counters", "Hardware counters could not be sampled.", "llmprof doctor shows what was tried",
     true},
};

std::string first_line_with(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.find(word) != std::string::npos) return line;
  return {};
}

bool readable(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool log_says_gvisor() {
  constexpr int kReadAll = 3;
  std::string log(16384, '\0');
  const int got = klogctl(kReadAll, log.data(), static_cast<int>(log.size()));
  return got > 0 && log.substr(0, static_cast<size_t>(got)).find("gVisor") != std::string::npos;
}

}  // namespace

std::vector<const char*> situations() {
  std::vector<const char*> names;
  for (const Row& row : kRows) names.push_back(row.situation);
  return names;
}

std::vector<Explanation> explain(const Observations& seen) {
  std::vector<Explanation> found;
  for (const Row& row : kRows) {
    if (!row.applies(seen) || (row.general && !found.empty())) continue;
    Explanation explanation{row.situation, row.key, row.message, row.advice};
    if (std::string(row.situation) == "refused") {
      explanation.message += " CUPTI error " + std::to_string(seen.counters_code);
      if (!seen.counters_call.empty()) explanation.message += " from " + seen.counters_call;
      explanation.message += ".";
    }
    found.push_back(explanation);
  }
  const bool stands_in = seen.gpm == 1 && seen.mig != 1;  // GPM of a divided GPU is of all parts together
  for (Explanation& explanation : found) {
    explanation.message += stands_in ? " NVML's own counters (GPM, every 100 ms) stand in."
                                     : " Memory traffic and activity come from formulas instead.";
  }
  return found;
}

void observe_machine(Observations& seen, const std::string& root) {
  const std::string params = first_line_with(root + "/proc/driver/nvidia/params", "RmProfilingAdminOnly");
  if (const size_t colon = params.find(':'); colon != std::string::npos)
    seen.admin_only = std::atoi(params.c_str() + colon + 1);
  const std::string caps = first_line_with(root + "/proc/self/status", "CapEff");
  if (const size_t colon = caps.find(':'); colon != std::string::npos) {
    constexpr int kSysAdmin = 21, kPerfmon = 38;
    const unsigned long long bits = std::strtoull(caps.c_str() + colon + 1, nullptr, 16);
    seen.cap_sys_admin = static_cast<int>(bits >> kSysAdmin & 1U);
    seen.cap_perfmon = static_cast<int>(bits >> kPerfmon & 1U);
  }
  seen.root = geteuid() == 0;
  seen.container = readable(root + "/.dockerenv") || readable(root + "/run/.containerenv");
  for (const char* word : {"docker", "kubepods", "containerd", "lxc", "libpod"})
    seen.container = seen.container || !first_line_with(root + "/proc/1/cgroup", word).empty();
  const std::string version = root + "/proc/version";
  seen.wsl = !first_line_with(version, "microsoft").empty() || !first_line_with(version, "Microsoft").empty();
  seen.gvisor = !first_line_with(version, "gVisor").empty() || (root.empty() && log_says_gvisor());
}

}  // namespace llmprof::samplers
