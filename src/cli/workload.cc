// `llmprof workload`: the reference workload, run and timed by its own clock.
#include <fmt/format.h>

#include <algorithm>

#include "base/json_writer.h"
#include "base/nearest.h"
#include "base/text_table.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/measuring.h"
#include "cli/reference_run.h"
#include "trace/trace_file.h"
#include "workload/nvtx_client.h"

namespace llmprof::cli {
namespace {

namespace wl = llmprof::workload;

struct WorkloadArguments {
  std::string dtype = "auto", decode, record, dump;
  ReferenceRunOptions run;
  OutputOptions output;
};

std::string tokens_text(const std::vector<int32_t>& tokens) {
  constexpr size_t kShown = 12;
  std::string text = fmt::format(
      "{}", fmt::join(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(std::min(kShown, tokens.size())), " "));
  return tokens.size() > kShown ? text + " ..." : text;
}

bool on_gpu(const ReferenceRun& run) { return run.device.kind == device::DeviceKind::kCuda; }

// "AMD EPYC 9554 (16 threads)", "NVIDIA H200 (cuda:0; decode steps as a CUDA graph)".
std::string device_text(const ReferenceRun& run) {
  if (!on_gpu(run))
    return fmt::format("{} ({} thread{})", run.device.name, run.device.units, run.device.units == 1 ? "" : "s");
  return fmt::format("{} (cuda:{}; decode steps {})", run.device.name, run.device.ordinal,
                     run.graph ? "as a CUDA graph" : "eager");
}

// In the words of a report, which leaves the same steps out.
std::string decoding_text(const wl::RunResult::Steady& steady) {
  std::string out = fmt::format("TPOT {}  {}", format_ms(steady.median_ms),
                                steady.steps == 1 ? "1 step" : fmt::format("median of {} steps", steady.steps));
  out += fmt::format("; first step {}\n", format_ms(steady.first_ms));
  if (steady.cold > 0)
    out += fmt::format("cold {} in each of {} first step{}, in neither TPOT nor rate\n", format_ms(steady.cold_ms),
                       steady.cold, steady.cold == 1 ? "" : "s");
  return out + fmt::format("rate {} output tokens/s while decoding\n", format_fixed(steady.tokens_per_s, 1));
}

std::string to_text(const ReferenceRun& run, const TextStyle& style) {
  const wl::RunResult& result = run.result;
  const wl::ParameterCount parameters = wl::count_parameters(*run.size);
  std::string out = fmt::format("reference workload, size {}: {} parameters in {}, on {}\n", run.size->name,
                                format_si(static_cast<double>(parameters.vision + parameters.decoder), ""),
                                dtype_name(run.dtype), device_text(run));
  out += fmt::format("{} sequence{} of {} image and {} text tokens, {} new, seed {}; ready after {}\n\n",
                     run.options.sequences, run.options.sequences == 1 ? "" : "s", run.size->vision.tokens(),
                     run.options.prompt, result.token_ns.size(), run.options.seed, format_ns(run.setup_ns));
  TextTable table({{"stage", TextTable::Align::kLeft},
                   {"tokens", TextTable::Align::kRight, 0, 2},
                   {"time"},
                   {"tokens/s", TextTable::Align::kRight, 0, 1}});
  const auto row = [&](std::string_view stage, int64_t tokens) {
    const int64_t ns = result.stage_ns(stage);
    if (ns == 0) return;
    table.add_row({std::string(stage), tokens > 0 ? format_count(static_cast<double>(tokens)) : "-", format_ns(ns),
                   tokens > 0 ? format_count(static_cast<double>(tokens) * 1e9 / static_cast<double>(ns)) : "-"});
  };
  row(wl::kPreprocess, 0);
  row(wl::kEncoder, run.size->vision.patches());
  row(wl::kProjector, run.size->vision.tokens());
  row(wl::kPrefill, run.options.sequences * run.options.tokens(*run.size));
  row(wl::kDecode, run.options.sequences * static_cast<int64_t>(result.token_ns.size() - 1));
  out += table.render("  ", style);
  out += fmt::format("\nTTFT {}  (preprocessing included)\n", format_ms(result.ttft_ms()));
  if (const std::optional<wl::RunResult::Steady> steady = result.steady()) out += decoding_text(*steady);
  out += fmt::format("tokens  {}\n", tokens_text(result.tokens.front()));
  for (const std::string& note : run.notes) out += "note: " + note + "\n";
  if (result.interrupted) out += "interrupted: what was finished by then is above\n";
  return finish_page(out, style);
}

std::string to_json(const ReferenceRun& run) {
  const wl::RunResult& result = run.result;
  const wl::ParameterCount parameters = wl::count_parameters(*run.size);
  JsonWriter json;
  json.begin_object().field("tool", "llmprof " LLMPROF_VERSION).field("size", run.size->name);
  json.field("device", run.device.name).field("device_key", run.device.key);
  if (on_gpu(run))
    json.field("ordinal", run.device.ordinal).field("decode", run.graph ? "graph" : "eager");
  else
    json.field("threads", run.device.units);
  json.field("dtype", dtype_name(run.dtype)).field("seed", run.options.seed);
  json.field("vision_parameters", parameters.vision).field("decoder_parameters", parameters.decoder);
  json.field("batch", run.options.sequences).field("image_tokens", run.size->vision.tokens());
  json.field("prompt_tokens", run.options.prompt).field("new_tokens", static_cast<int64_t>(result.token_ns.size()));
  json.field("setup_ms", static_cast<double>(run.setup_ns) / 1e6).field("ttft_ms", result.ttft_ms());
  const bool decoded = result.token_ns.size() > 1;
  json.field("tpot_ms", decoded ? std::optional<double>(result.tpot_ms()) : std::nullopt);
  const std::optional<wl::RunResult::Steady> steady = result.steady();
  json.field("steady_tpot_ms", steady ? std::optional<double>(steady->median_ms) : std::nullopt);
  json.field("cold_steps", static_cast<int64_t>(steady ? steady->cold : 0));
  json.field("tokens_per_s", decoded ? std::optional<double>(result.tokens_per_s()) : std::nullopt);
  json.key("stages").begin_array();
  for (const wl::RunResult::Stage& stage : result.stages)
    json.begin_object()
        .field("stage", stage.name)
        .field("start_ms", static_cast<double>(stage.start_ns - result.stages.front().start_ns) / 1e6)
        .field("ms", static_cast<double>(stage.end_ns - stage.start_ns) / 1e6)
        .end_object();
  json.end_array().key("tokens").begin_array();
  for (const std::vector<int32_t>& sequence : result.tokens) {
    json.begin_array();
    for (const int32_t token : sequence) json.value(token);
    json.end_array();
  }
  json.end_array().key("libraries").begin_object();
  for (const LibraryVersion& library : run.device.libraries) json.field(library.name, library.version);
  json.end_object().key("notes").begin_array();
  for (const std::string& note : run.notes) json.value(note);
  json.end_array().field("interrupted", result.interrupted).end_object();
  return json.take() + "\n";
}

Status settle(WorkloadArguments& options) {
  options.run.size = wl::find_size(options.run.size_name);
  std::vector<std::string> names;
  for (const wl::Size& size : wl::sizes()) names.emplace_back(size.name);
  if (options.run.size == nullptr)
    return fail(fmt::format("expected a size, found \"{}\"", options.run.size_name), "--size",
                "--size " + nearest_or_all(options.run.size_name, names), ExitCode::kUsage);
  if (!options.record.empty() && options.run.device.empty()) options.run.device = "cpu";
  options.run.eager = options.decode == "eager";
  if (options.decode == "graph" && options.run.device == "cpu")
    return fail("a CPU has no graphs: its decode steps are eager", "--decode", "--device cuda:0, or no --decode",
                ExitCode::kUsage);
  if (options.dtype != "auto") {
    LLMPROF_ASSIGN(const std::vector<DType> dtypes, parse_dtypes({options.dtype}));
    options.run.dtype = dtypes.front();
  }
  for (const std::string* const path : {&options.record, &options.output.path}) LLMPROF_CHECK(check_writable(*path));
  return {};
}

int run(WorkloadArguments& options) {
  if (const Status status = settle(options); !status) return report_error(status.error());
  options.run.record = !options.record.empty();
  options.run.dump_folder = options.dump;
  const Interrupt interrupt(options.output.quiet);
  ProgressLine progress(options.output.quiet);
  wl::NvtxStages nvtx;
  const Result<ReferenceRun> done =
      run_reference(options.run, {&nvtx}, interrupt.flag(), [&](const std::string& what) { progress.show(what); });
  progress.clear();
  if (!done) return report_error(done.error());
  if (!done->why_cpu.empty() && !options.output.quiet)
    complain("no GPU can be used here, the CPU is: " + printable(done->why_cpu));
  if (done->trace) {
    if (const Status status = save_trace(*done->trace, options.record); !status) return report_error(status.error());
  }
  const bool json = options.output.effective_format() == "json";
  if (const Status written =
          write_output(json ? to_json(*done) : to_text(*done, options.output.style()), options.output.path);
      !written)
    return report_error(written.error());
  if (done->trace && !options.output.quiet)
    complain(fmt::format("recorded in {0}; see it with  llmprof analyze {0}", options.record));
  return done->result.interrupted ? kInterruptedExit : 0;
}

}  // namespace

void add_workload(Parser& parser) {
  const std::shared_ptr<WorkloadArguments> options = std::make_shared<WorkloadArguments>();
  const Command command = parser.add_command(
      "workload", "run the reference workload: a picture and a prompt through a small model with random weights");
  std::string list;
  for (const wl::Size& size : wl::sizes()) list += fmt::format("{}{}", list.empty() ? "" : ", ", size.name);
  command.option("--size", options->run.size_name, "model and how much of it: " + list)
      .type_name("NAME")
      .capture_default();
  command
      .option("--device", options->run.device,
              "cpu, cuda:N, or a uuid: GPU-..., MIG-... (default: the first GPU, else the CPU; with --record the CPU)")
      .type_name("NAME");
  command.option("--threads", options->run.threads, "threads of a CPU (default: all that the process may use)")
      .check(whole_number(1, 4096))
      .type_name("N");
  command
      .option("--decode", options->decode,
              "decode steps on a GPU: graph, recorded once and replayed (default), or eager, launch by launch")
      .check(one_of({"graph", "eager"}))
      .type_name("HOW");
  command
      .option("--dtype", options->dtype,
              "fp32 or bf16; auto: bf16 on GPUs and on CPUs that have instructions for it (tiny: fp32)")
      .type_name("TYPE")
      .capture_default();
  command.option("--batch", options->run.batch, "sequences").check(whole_number(1, 1024)).capture_default();
  command.option("--prompt", options->run.prompt, "text tokens of each sequence (default: as the size has it)")
      .check(whole_number(1, 131072));
  command.option("--new", options->run.new_tokens, "tokens to make (default: as the size has it)")
      .check(whole_number(1, 131072));
  command.option("--seed", options->run.seed, "of the weights").capture_default();
  command.option("--record", options->record, "on a CPU, keep a recording of the run, for `llmprof analyze`")
      .type_name("FILE");
  command.option("--dump", options->dump, "write weights and results, to check them by another program")
      .type_name("FOLDER");
  add_output_options(command, options->output, CsvOutput::kNone);
  command.footer(
      "Examples:  llmprof workload --device cpu --size small --record run.llmprof\n"
      "           llmprof run -- llmprof workload --device cuda:0 --size base");
  command.action([options] { return run(*options); });
}

}  // namespace llmprof::cli
