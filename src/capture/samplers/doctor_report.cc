#include "capture/samplers/doctor_report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/text_table.h"
#include "capture/samplers/isolated.h"
#include "capture/samplers/permissions.h"
#include "capture/samplers/pm_sampler.h"
#include "nvidia/cupti_profiler_library.h"
#include "nvidia/find_cupti.h"
#include "nvidia/libraries.h"
#include "nvidia/nvml_library.h"

namespace llmprof::samplers {
namespace {

constexpr int kShortTimeoutS = 20;

// Answers of child processes travel as lines of fields; the first says whether there is one.
constexpr char kField = '\x1f';
constexpr const char *kYes = "yes", *kNo = "no";

std::string line_of(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += field + kField;
  return line + "\n";
}

std::vector<std::vector<std::string>> lines_of(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, kField);) fields.push_back(field);
    lines.push_back(fields);
  }
  return lines;
}

std::string at(const std::vector<std::string>& fields, size_t index) {
  return index < fields.size() ? fields[index] : std::string();
}
int number_at(const std::vector<std::string>& fields, size_t index) { return std::atoi(at(fields, index).c_str()); }

struct Gpu {
  int index = -1;
  std::string uuid, name;
  Observations seen;
};

// NVML: the driver's version and the GPUs, in a child. First line: state, then one line per GPU.
std::string ask_nvml() {
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open();
  if (!nvml) return line_of({kNo, nvml.error().what, nvml.error().advice});
  std::string text = line_of({kYes, nvml->driver_version(), std::to_string(nvml->confidential())});
  for (const nvidia::NvmlGpu& gpu : nvml->gpus()) {
    text +=
        line_of({std::to_string(gpu.index), gpu.uuid, gpu.name, gpu.pci_bus,
                 gpu.memory_bytes >= 0 ? format_bytes(static_cast<double>(gpu.memory_bytes)) : "",
                 std::to_string(gpu.mig), std::to_string(gpu.virtualization), std::to_string(gpu.gpm),
                 gpu.compute_major >= 0 ? std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor)
                                        : std::string()});
  }
  return text;
}

void examine_nvml(DoctorResult& report, const Observations& machine, std::vector<Gpu>& gpus) {
  const IsolatedResult asked = run_isolated(ask_nvml, kShortTimeoutS);
  const std::vector<std::vector<std::string>> lines = lines_of(asked.text);
  if (!asked.finished || lines.empty()) {
    report.checks.push_back(
        {"nvml", CheckState::kMissing, "NVML " + asked.trouble, "run nvidia-smi: it must work first"});
    return;
  }
  if (at(lines[0], 0) != kYes) {
    report.checks.push_back({"nvml", CheckState::kMissing, at(lines[0], 1), at(lines[0], 2)});
    return;
  }
  report.checks.push_back({"nvml", CheckState::kWorks,
                           "driver " + at(lines[0], 1) + ": power, clocks, temperature, throttling every 100 ms", ""});
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string>& fields = lines[i];
    Gpu gpu;
    gpu.index = number_at(fields, 0);
    gpu.uuid = at(fields, 1);
    gpu.name = at(fields, 2);
    gpu.seen = machine;
    gpu.seen.confidential = number_at(lines[0], 2);
    gpu.seen.mig = number_at(fields, 5);
    gpu.seen.virtualization = number_at(fields, 6);
    gpu.seen.gpm = number_at(fields, 7);
    const std::string label = "gpu " + std::to_string(gpu.index);
    std::string text = gpu.name + ", " + at(fields, 4) + ", bus " + at(fields, 3);
    if (!at(fields, 8).empty()) text += ", compute capability " + at(fields, 8);
    report.checks.push_back({label, gpu.seen.mig == 1 ? CheckState::kLimited : CheckState::kWorks,
                             text + (gpu.seen.mig == 1 ? ", divided into slices (MIG)" : ""),
                             gpu.seen.mig == 1 ? "a part of it gets the GPU's clock and temperature; power, memory and "
                                                 "counters are of all parts together and are left out"
                                               : ""});
    const bool gpm = gpu.seen.gpm == 1;
    report.checks.push_back({"gpm of " + label, gpm ? CheckState::kWorks : CheckState::kMissing,
                             gpm ? "activity and traffic every 100 ms without any permission"
                                 : "not on this GPU or driver (Hopper and later, driver 525 and later)",
                             ""});
    gpus.push_back(gpu);
  }
  report.gpus = static_cast<int>(gpus.size());
}

std::string ask_cuda() {
  const Result<nvidia::CudaDevices> devices = nvidia::list_cuda_devices();
  if (!devices) return line_of({kNo, devices.error().what, devices.error().advice});
  return line_of({kYes, std::to_string(devices->driver_version), std::to_string(devices->devices.size())});
}

void examine_cuda(DoctorResult& report) {
  const IsolatedResult asked = run_isolated(ask_cuda, kShortTimeoutS);
  const std::vector<std::vector<std::string>> lines = lines_of(asked.text);
  if (!asked.finished || lines.empty()) {
    report.checks.push_back({"cuda", CheckState::kMissing, "the CUDA driver " + asked.trouble,
                             "see the kernel log (dmesg) for NVRM messages"});
  } else if (at(lines[0], 0) != kYes) {
    report.checks.push_back({"cuda", CheckState::kMissing, at(lines[0], 1), at(lines[0], 2)});
  } else {
    const int version = number_at(lines[0], 1);
    const std::string text = "the driver runs programs of CUDA " + std::to_string(version / 1000) + "." +
                             std::to_string(version % 1000 / 10) + " and earlier on " + at(lines[0], 2) + " GPU(s)";
    report.checks.push_back({"cuda", CheckState::kWorks, text, ""});
  }
}

// Each copy of CUPTI in the order in which the launcher would take it. Returns the ones that can sample.
std::vector<std::string> examine_cupti(DoctorResult& report, const std::string& program, Observations& machine) {
  std::vector<std::string> sampling;
  const std::vector<std::string> paths = nvidia::cupti_candidates(program);
  for (const std::string& path : paths) {
    const IsolatedResult asked = run_isolated(
        [&path] {
          const Result<nvidia::CuptiProfilerLibrary> cupti = nvidia::CuptiProfilerLibrary::open(path);
          if (!cupti) return line_of({kNo, cupti.error().what});
          return line_of({kYes, nvidia::cupti_version_text(cupti->version()), cupti->has_pm_sampling() ? kYes : kNo});
        },
        kShortTimeoutS);
    const std::vector<std::vector<std::string>> lines = lines_of(asked.text);
    const std::string name = report.checks.empty() || sampling.empty() ? "cupti" : "cupti, another";
    if (!asked.finished || lines.empty()) {
      report.checks.push_back({name, CheckState::kMissing, path + " " + asked.trouble, ""});
    } else if (at(lines[0], 0) != kYes) {
      report.checks.push_back({name, CheckState::kMissing, at(lines[0], 1), ""});
    } else {
      const bool samples = at(lines[0], 2) == kYes;
      report.checks.push_back(
          {name, samples ? CheckState::kWorks : CheckState::kLimited, "CUDA " + at(lines[0], 1) + ", " + path,
           samples ? "" : "kernels are recorded with it; hardware counters need CUDA 12.6 or later"});
      machine.cupti_found = true;
      machine.cupti_samples = machine.cupti_samples || samples;
      if (samples) sampling.push_back(path);
    }
  }
  if (paths.empty()) {
    report.checks.push_back(
        {"cupti", CheckState::kMissing,
         "no libcupti in this Python environment, LD_LIBRARY_PATH or /usr/local/cuda*: kernels of a "
         "program that brings none cannot be recorded",
         "install PyTorch with CUDA, the package nvidia-cuda-cupti or the CUDA toolkit; or name the "
         "file: LLMPROF_CUPTI=/path/to/libcupti.so"});
  }
  return sampling;
}

std::string probe_line(const std::vector<std::string>& paths, const Gpu& gpu) {
  const CounterProbe probe = probe_counters(paths, gpu.uuid, gpu.index);
  return line_of({std::to_string(probe.code), probe.call, probe.text, probe.chip, std::to_string(probe.metrics),
                  std::to_string(probe.samples), std::to_string(probe.support_vgpu),
                  std::to_string(probe.support_confidential), std::to_string(probe.support_wsl),
                  std::to_string(probe.support_architecture)});
}

DoctorCheck explain_counters(const std::string& name, const Observations& seen, const std::string& text) {
  DoctorCheck check{name, CheckState::kMissing, text, ""};
  const std::vector<Explanation> why = explain(seen);
  if (why.empty()) return check;
  check.found = why.front().message + (text.empty() ? "" : " [" + text + "]");
  check.advice = why.front().advice;
  for (size_t i = 1; i < why.size(); ++i) check.found += " " + why[i].message;
  if (seen.gpm == 1 && seen.mig != 1) check.state = CheckState::kLimited;
  return check;
}

// Whether there are samples.
bool examine_counters(DoctorResult& report, const std::vector<std::string>& paths, Gpu& gpu, int timeout_s) {
  const std::string name = "counters of gpu " + std::to_string(gpu.index);
  if (paths.empty()) {
    report.checks.push_back(explain_counters(name, gpu.seen, ""));
    return false;
  }
  const IsolatedResult asked = run_isolated([&] { return probe_line(paths, gpu); }, timeout_s);
  const std::vector<std::vector<std::string>> lines = lines_of(asked.text);
  if (!asked.finished || lines.empty()) {
    gpu.seen.counters_code = cupti_profiler::kUnknown;
    DoctorCheck check = explain_counters(name, gpu.seen, "the attempt " + asked.trouble);
    report.checks.push_back(check);
    return false;
  }
  const std::vector<std::string>& fields = lines[0];
  gpu.seen.counters_code = number_at(fields, 0);
  gpu.seen.counters_call = at(fields, 1);
  gpu.seen.support_vgpu = number_at(fields, 6);
  gpu.seen.support_confidential = number_at(fields, 7);
  gpu.seen.support_wsl = number_at(fields, 8);
  gpu.seen.support_architecture = number_at(fields, 9);
  if (gpu.seen.counters_code != cupti_profiler::kSuccess) {
    report.checks.push_back(explain_counters(name, gpu.seen, at(fields, 2)));
    return false;
  }
  const bool any = number_at(fields, 5) > 0;
  report.checks.push_back({name, any ? CheckState::kWorks : CheckState::kLimited,
                           at(fields, 3) + ": " + at(fields, 4) + " counters in one pass, " + at(fields, 5) +
                               " samples in a trial of 50 ms",
                           any ? "" : "the trial gave no samples: is another profiler running?"});
  return any;
}

void examine_machine(DoctorResult& report, const Observations& seen) {
  if (seen.admin_only >= 0) {
    const bool open = seen.admin_only == 0 || seen.root || seen.cap_sys_admin == 1 || seen.cap_perfmon == 1;
    report.checks.push_back(
        {"permission", open ? CheckState::kWorks : CheckState::kLimited,
         seen.admin_only == 0 ? "the driver lets every user read counters (RmProfilingAdminOnly 0)"
                              : std::string("the driver lets only administrators read counters "
                                            "(RmProfilingAdminOnly 1); this process is ") +
                                    (open ? "one" : "none"),
         open ? ""
              : "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' below /etc/modprobe.d, or --cap-add=SYS_ADMIN "
                "for a container"});
  }
  std::string place;
  if (seen.container) place += "in a container";
  if (seen.wsl) place += (place.empty() ? "" : ", ") + std::string("in WSL");
  if (seen.gvisor) place += (place.empty() ? "" : ", ") + std::string("in a gVisor sandbox");
  if (!place.empty()) {
    report.checks.push_back({"machine", seen.wsl || seen.gvisor ? CheckState::kLimited : CheckState::kWorks, place,
                             seen.wsl      ? "hardware counters cannot be sampled in WSL"
                             : seen.gvisor ? "run outside the sandbox for hardware counters"
                                           : ""});
  }
}

std::string on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return folder + "/" + program;
  return {};
}

// Whose environment is searched: of a program that is not there, what is found for CUPTI says nothing.
void examine_program(DoctorResult& report, const std::string& program) {
  if (program.empty()) return;
  const bool named = program.find('/') == std::string::npos;
  const std::string path = named ? on_path(program) : program;
  struct stat info {};
  const bool there = !path.empty() && stat(path.c_str(), &info) == 0;
  if (there && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0) {
    report.checks.push_back({"program", CheckState::kWorks, path, ""});
    return;
  }
  const std::string found = named    ? "there is no program " + program + " on PATH"
                            : !there ? "there is no such program: " + program
                                     : program + " is no file that can be run";
  report.checks.push_back({"program", CheckState::kMissing, found, "name the interpreter or script that will be run"});
}

// Whether the recorder is there.
bool examine_tools(DoctorResult& report, const std::string& injection_path) {
  const bool injects = !injection_path.empty() && access(injection_path.c_str(), R_OK) == 0;
  report.checks.push_back(
      {"recorder", injects ? CheckState::kWorks : CheckState::kMissing,
       injects ? injection_path : "libllmprof_inject.so is not next to this program (" + injection_path + ")",
       injects ? "" : "install llmprof whole: bin/llmprof and lib/libllmprof_inject.so belong together"});
  for (const char* tool : {"ncu", "nsys"}) {
    const std::string path = on_path(tool);
    report.checks.push_back({tool, path.empty() ? CheckState::kMissing : CheckState::kWorks,
                             path.empty() ? std::string("not on PATH; llmprof does not need it") : path, ""});
  }
  return injects;
}

const char* conclusion(int64_t gpus, bool recorder, bool cupti, bool counters) {
  if (gpus == 0)
    return "No GPU can be used here, so no GPU work can be recorded; llmprof workload --device cpu --record FILE "
           "records a "
           "model on the CPU. Recordings made elsewhere are analysed all the same "
           "(llmprof analyze FILE), and models are computed from their configuration (llmprof model).";
  if (!recorder) return "llmprof run cannot work here: this installation lacks its recorder.";
  if (!cupti)
    return "llmprof run can measure power and clocks here; kernels only of programs that bring CUPTI with them.";
  return counters ? "llmprof run works here, with hardware counters."
                  : "llmprof run works here, without hardware counters.";
}

}  // namespace

DoctorResult examine(const DoctorOptions& options) {
  DoctorResult report;
  Observations machine;
  observe_machine(machine);
  machine.cupti_found = machine.cupti_samples = false;
  std::vector<Gpu> gpus;
  examine_program(report, options.program);
  examine_nvml(report, machine, gpus);
  examine_cuda(report);
  const std::vector<std::string> cupti = examine_cupti(report, options.program, machine);
  bool counters = false;
  for (Gpu& gpu : gpus) {
    gpu.seen.cupti_found = machine.cupti_found;
    gpu.seen.cupti_samples = machine.cupti_samples;
    counters |= examine_counters(report, cupti, gpu, options.probe_timeout_s);
  }
  examine_machine(report, machine);
  const bool recorder = examine_tools(report, options.injection_path);
  report.conclusion = conclusion(report.gpus, recorder, machine.cupti_found, counters);
  return report;
}

}  // namespace llmprof::samplers
