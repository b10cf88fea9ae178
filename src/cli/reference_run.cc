#include "cli/reference_run.h"

#include <fmt/format.h>

#include "base/text_table.h"
#include "workload/cpu_backend.h"
#include "workload/cuda_backend.h"
#include "workload/dump.h"
#include "workload/recording.h"

namespace llmprof::cli {
namespace {

namespace wl = llmprof::workload;

constexpr double kGpuWorkspaceBytes = 300e6;  // of cuBLASLt and cuDNN, slabs that are not full, what sets up products

// Weights, cache and activations, with a fifth for what oneDNN keeps twice, or workspaces of a GPU's libraries.
double bytes_needed(const wl::Size& size, const wl::ModelOptions& options, DType dtype, bool gpu) {
  const double own = gpu ? kGpuWorkspaceBytes : 0, twice = gpu ? 1.02 : 1.2;
  const wl::ParameterCount parameters = wl::count_parameters(size);
  const wl::DecoderConfig& d = size.decoder;
  const double tokens = static_cast<double>(options.sequences * (options.tokens(size) + options.new_tokens));
  const double cache = 2 * static_cast<double>(d.layers * d.kv_width()) * tokens;
  const double activations =
      static_cast<double>(3 * d.hidden + 2 * d.query_width() + 2 * d.kv_width() + 3 * d.intermediate) * tokens;
  return own + twice * dtype_bytes(dtype) *
                   (static_cast<double>(parameters.vision + parameters.decoder) + cache + activations);
}

Status check_memory(const wl::Backend& backend, const wl::Size& size, const wl::ModelOptions& options) {
  const bool gpu = backend.identity().kind == device::DeviceKind::kCuda;
  const double needed = bytes_needed(size, options, backend.dtype(), gpu),
               free = static_cast<double>(backend.free_bytes());
  if (free <= 0 || needed <= free) return {};
  return fail(fmt::format("size {} with {} sequence{} in {} needs about {}{}, and {} are free", size.name,
                          options.sequences, options.sequences == 1 ? "" : "s", dtype_name(backend.dtype()),
                          format_bytes(needed), gpu ? " of GPU memory" : "", format_bytes(free)),
              "--size", "a smaller --size, --batch or --prompt");
}

// The smallest size is for checking, and fp32 tells most about what is computed.
DType usual_dtype(const wl::Size& size, bool gpu) {
  if (size.name == "tiny") return DType::kFp32;
  return gpu ? DType::kBf16 : wl::cpu_dtype();
}
DType chosen_dtype(const ReferenceRunOptions& options, bool gpu) {
  return options.dtype != DType::kUnknown ? options.dtype : usual_dtype(*options.size, gpu);
}

Result<std::unique_ptr<wl::Backend>> open_gpu(const ReferenceRunOptions& options, const std::string& name) {
  LLMPROF_ASSIGN(std::unique_ptr<device::Device> device, device::open_device({name, 0}));
  return wl::open_cuda_backend(std::move(device), chosen_dtype(options, true), !options.eager);
}

Result<std::unique_ptr<wl::Backend>> open_backend(const ReferenceRunOptions& options, ReferenceRun& run) {
  if (options.device != "cpu") {
    Result<std::unique_ptr<wl::Backend>> gpu = open_gpu(options, options.device.empty() ? "cuda:0" : options.device);
    if (gpu || !options.device.empty() || gpu.error().exit_code == ExitCode::kUsage) return gpu;
    run.why_cpu = gpu.error().what;
  }
  return wl::open_cpu_backend(options.threads, chosen_dtype(options, false));
}

std::vector<std::pair<std::string, std::string>> facts_of(const ReferenceRun& run) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"workload", std::string(run.size->name)},
      {"workload_dtype", std::string(dtype_name(run.dtype))},
      {"workload_seed", std::to_string(run.options.seed)},
  };
  for (const LibraryVersion& library : run.device.libraries)
    facts.emplace_back("library_" + library.name, library.version);
  return facts;
}

}  // namespace

bool fits_gpu(const wl::Size& size, int64_t free_bytes) {
  const wl::ModelOptions usual = {1, size.prompt, size.new_tokens, 1};
  return bytes_needed(size, usual, usual_dtype(size, true), true) <= static_cast<double>(free_bytes);
}

Result<ReferenceRun> run_reference(const ReferenceRunOptions& options, const std::vector<wl::StageListener*>& listeners,
                                   const std::atomic<bool>& stop,
                                   const std::function<void(const std::string&)>& begin) {
  ReferenceRun run;
  run.size = options.size;
  run.options = {options.batch, options.prompt > 0 ? options.prompt : options.size->prompt,
                 options.new_tokens > 0 ? options.new_tokens : options.size->new_tokens, options.seed};
  const int64_t start = wl::clock_ns();
  LLMPROF_ASSIGN(const std::unique_ptr<wl::Backend> opened, open_backend(options, run));
  run.dtype = opened->dtype();
  run.device = opened->identity();
  const bool gpu = run.device.kind == device::DeviceKind::kCuda;
  run.graph = opened->records();
  if (options.record && gpu)
    return fail(fmt::format("--record watches operators of a CPU, and this run is on {}", run.device.name), "--record",
                "llmprof run -- llmprof workload --device cuda:0; or --record with --device cpu", ExitCode::kUsage);
  LLMPROF_CHECK(check_memory(*opened, *run.size, run.options));
  begin("weights are made");
  std::optional<wl::Recording> recording;
  std::optional<wl::RecordedBackend> recorded;
  std::vector<wl::StageListener*> all = listeners;
  if (options.record) {
    recording.emplace(run.device);
    recorded.emplace(*opened, *recording);
    all.push_back(&*recording);
  }
  wl::Backend& backend = recorded ? static_cast<wl::Backend&>(*recorded) : *opened;
  std::optional<wl::Dump> dump;
  if (!options.dump_folder.empty()) {
    LLMPROF_ASSIGN(dump, wl::Dump::open(options.dump_folder, backend));
  }
  LLMPROF_ASSIGN(const std::unique_ptr<wl::Model> model,
                 wl::Model::make(backend, *run.size, run.options, dump ? dump->inspector() : wl::Inspector()));
  run.setup_ns = wl::clock_ns() - start;
  run.notes = backend.notes();
  run.device = backend.identity();  // now with all the libraries that are used
  begin("the model runs");
  LLMPROF_ASSIGN(run.result,
                 wl::run_model(*model, *run.size, run.options, all, recording ? &*recording : nullptr, stop));
  if (dump) LLMPROF_CHECK(dump->finish(*run.size, run.options, run.result));
  if (recording) run.trace = recording->take(facts_of(run));
  return run;
}

}  // namespace llmprof::cli
