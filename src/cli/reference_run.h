// The reference workload from options to result, as `workload` and `demo` run it.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "trace/trace.h"
#include "workload/run.h"

namespace llmprof::cli {

struct ReferenceRunOptions {
  std::string size_name = "small";
  const workload::Size* size = nullptr;  // of that name; must be set
  std::string device;                    // "cpu", "cuda:1"; empty: the first GPU that can be used, else the CPU
  int threads = 0;                       // of a CPU; 0: all that the process may use
  bool eager = false;                    // decode steps on a GPU: launched one by one, not as a graph
  DType dtype = DType::kUnknown;         // unknown: what the device is fastest in
  int64_t batch = 1, prompt = 0, new_tokens = 0;  // 0: as the size has it
  uint64_t seed = 1;
  bool record = false;
  std::string dump_folder;
};

struct ReferenceRun {
  const workload::Size* size = nullptr;
  workload::ModelOptions options;
  device::DeviceIdentity device;
  std::string why_cpu;             // why the CPU was taken where none was named
  bool graph = false;              // decode steps were replayed
  std::vector<std::string> notes;  // of the backend
  DType dtype = DType::kUnknown;
  int64_t setup_ns = 0;  // weights and compiled products
  workload::RunResult result;
  std::optional<Trace> trace;
};

// Whether a size, as it is run by default, fits a GPU with so many bytes free.
bool fits_gpu(const workload::Size& size, int64_t free_bytes);

// `begin` is told what is done next.
Result<ReferenceRun> run_reference(const ReferenceRunOptions& options,
                                   const std::vector<workload::StageListener*>& listeners,
                                   const std::atomic<bool>& stop, const std::function<void(const std::string&)>& begin);

}  // namespace llmprof::cli
