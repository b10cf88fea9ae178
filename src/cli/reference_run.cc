#include "cli/reference_run.h"

#include <fmt/format.h>

#include "base/text_table.h"
#include "workload/cpu_backend.h"
#include "workload/dump.h"
#include "workload/recording.h"

namespace llmprof::cli {
namespace {

namespace wl = llmprof::workload;

// Weights, cache and activations, with a fifth for what oneDNN keeps twice.
double bytes_needed(const wl::Size& size, const wl::ModelOptions& options, DType dtype) {
  const wl::ParameterCount parameters = wl::count_parameters(size);
  const wl::DecoderConfig& d = size.decoder;
  const double tokens = static_cast<double>(options.sequences * (options.tokens(size) + options.new_tokens));
  const double cache = 2 * static_cast<double>(d.layers * d.kv_width()) * tokens;
  const double activations =
      static_cast<double>(3 * d.hidden + 2 * d.query_width() + 2 * d.kv_width() + 3 * d.intermediate) * tokens;
  return 1.2 * dtype_bytes(dtype) * (static_cast<double>(parameters.vision + parameters.decoder) + cache + activations);
}

Status check_memory(const wl::Backend& backend, const wl::Size& size, const wl::ModelOptions& options, int64_t free) {
  const double needed = bytes_needed(size, options, backend.dtype());
  if (free <= 0 || needed <= static_cast<double>(free)) return {};
  return fail(
      fmt::format("size {} with {} sequence{} needs about {}, and {} are free", size.name, options.sequences,
                  options.sequences == 1 ? "" : "s", format_bytes(needed), format_bytes(static_cast<double>(free))),
      "--size", "a smaller --size, --batch or --prompt");
}

std::vector<std::pair<std::string, std::string>> facts_of(const ReferenceRun& run) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"workload", std::string(run.size->name)},
      {"workload_dtype", std::string(dtype_name(run.dtype))},
      {"workload_seed", std::to_string(run.options.seed)},
  };
  for (const device::LibraryVersion& library : run.device.libraries)
    facts.emplace_back("library_" + library.name, library.version);
  return facts;
}

}  // namespace

Result<ReferenceRun> run_reference(const ReferenceRunOptions& options, const std::vector<wl::StageListener*>& listeners,
                                   const std::atomic<bool>& stop,
                                   const std::function<void(const std::string&)>& begin) {
  ReferenceRun run;
  run.size = options.size;
  run.options = {options.batch, options.prompt > 0 ? options.prompt : options.size->prompt,
                 options.new_tokens > 0 ? options.new_tokens : options.size->new_tokens, options.seed};
  run.dtype = options.dtype != DType::kUnknown ? options.dtype
              : options.size->name == "tiny"   ? DType::kFp32
                                               : wl::cpu_dtype();
  const int64_t start = wl::clock_ns();
  LLMPROF_ASSIGN(const std::unique_ptr<wl::Backend> cpu, wl::open_cpu_backend(options.threads, run.dtype));
  run.device = cpu->identity();
  LLMPROF_CHECK(check_memory(*cpu, *run.size, run.options, cpu->free_bytes()));
  begin("weights are made");
  std::optional<wl::Recording> recording;
  std::optional<wl::RecordedBackend> recorded;
  std::vector<wl::StageListener*> all = listeners;
  if (options.record) {
    recording.emplace(run.device);
    recorded.emplace(*cpu, *recording);
    all.push_back(&*recording);
  }
  wl::Backend& backend = recorded ? static_cast<wl::Backend&>(*recorded) : *cpu;
  std::optional<wl::Dump> dump;
  if (!options.dump_folder.empty()) {
    LLMPROF_ASSIGN(dump, wl::Dump::open(options.dump_folder, backend));
  }
  LLMPROF_ASSIGN(const std::unique_ptr<wl::Model> model,
                 wl::Model::make(backend, *run.size, run.options, dump ? dump->inspector() : wl::Inspector()));
  run.setup_ns = wl::clock_ns() - start;
  begin("the model runs");
  LLMPROF_ASSIGN(run.result,
                 wl::run_model(*model, *run.size, run.options, all, recording ? &*recording : nullptr, stop));
  if (dump) LLMPROF_CHECK(dump->finish(*run.size, run.options, run.result));
  if (recording) run.trace = recording->take(facts_of(run));
  return run;
}

}  // namespace llmprof::cli
