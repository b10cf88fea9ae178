// `llmprof analyze PATH...`: import, derive, analyse, render.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "analyze/analysis.h"
#include "base/nearest.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/measuring.h"
#include "cli/other_file.h"
#include "cli/pipeline.h"
#include "cli/stored_run.h"
#include "hardware/hardware.h"
#include "replay/what_if.h"
#include "trace/trace_file.h"

namespace llmprof::cli {
namespace {

struct AnalyzeArguments {
  std::vector<std::string> paths;
  StageOptions stages;
  std::vector<std::string> what_ifs;
  AnalyzeOptions analyze;
  CeilingsOption ceilings;
  std::optional<size_t> top;
  std::string sort;  // empty: not given
  std::string save;
  OutputOptions output;
  bool no_store = false;
};

// "graph", or "gpu:H200"; `word` is what was typed, for errors.
Result<Change> parse_change(const std::string& text, const std::string& word) {
  const size_t colon = text.find(':');
  Change out{replay::find_what_if(text.substr(0, colon))};
  if (out.what_if == nullptr || out.what_if->names_gpu != (colon != std::string::npos)) {
    std::vector<std::string> known = {"all"};
    for (const replay::WhatIf& one : replay::what_ifs())
      known.push_back(std::string(one.id) + (one.names_gpu ? ":NAME" : ""));
    return fail("expected changes that `llmprof list what-ifs` names, joined by commas, found '" + text + "'",
                "--what-if " + word, "did you mean " + nearest_or_all(text, known) + "?", ExitCode::kUsage);
  }
  if (!out.what_if->names_gpu) return out;
  const Result<Gpu> gpu = find_gpu(text.substr(colon + 1));
  if (!gpu) return fail(gpu.error().what, "--what-if " + word, gpu.error().advice, ExitCode::kUsage);
  out.gpu = gpu->sku;
  return out;
}

// Each word is changes made together, joined by commas; "all" stands for every one by itself, but those that need a
// name.
Status choose_what_ifs(const std::vector<std::string>& words, AnalyzeOptions& options) {
  for (const std::string& word : words) {
    if (word == "all") {
      for (const replay::WhatIf& one : replay::what_ifs())
        if (!one.names_gpu) options.what_ifs.push_back({Change{&one}});
      continue;
    }
    Combination& together = options.what_ifs.emplace_back();
    for (size_t from = 0; from <= word.size();) {
      const size_t comma = std::min(word.find(',', from), word.size());
      const std::string id = word.substr(from, comma - from);
      if (id == "all")
        return fail("expected 'all' by itself, found it among others", "--what-if " + word,
                    "--what-if all --what-if " + (from == 0 ? word.substr(std::min(comma + 1, word.size())) : "graph"),
                    ExitCode::kUsage);
      LLMPROF_ASSIGN(Change one, parse_change(id, word));
      const auto other = std::find_if(together.begin(), together.end(), [](const Change& c) { return !c.gpu.empty(); });
      if (other != together.end() && !one.gpu.empty())
        return fail("expected one GPU among changes made together, found two", "--what-if " + word,
                    "--what-if gpu:" + other->gpu + " --what-if gpu:" + one.gpu, ExitCode::kUsage);
      together.push_back(std::move(one));
      from = comma + 1;
    }
  }
  return {};
}

// A recording may be all that is left of a run: nothing is written over what is read.
Status check_outputs(const AnalyzeArguments& options) {
  std::vector<std::string> inputs = options.paths;
  for (const std::string& named : {options.ceilings.choice, options.analyze.model})
    if (!named.empty()) inputs.push_back(named);
  LLMPROF_CHECK(refuse_overwriting("-o", options.output.path, inputs));
  LLMPROF_CHECK(refuse_overwriting("--save", options.save, inputs));
  if (!options.save.empty() && options.output.redact)
    return fail("expected --save or --redact, found both: the saved recording would hold what the report leaves out",
                "--save " + options.save, "leave one out; llmprof export --redact hands a recording over",
                ExitCode::kUsage);
  if (!options.save.empty() && options.save == options.output.path)
    return fail("expected two files, found one for the report and the recording", "--save " + options.save,
                "name another file for one of them", ExitCode::kUsage);
  return {};
}

// The name of an analysis: of the file, without its endings.
void name_inputs(const std::vector<std::string>& paths, RunManifest& manifest) {
  for (const std::string& path : paths) {
    std::error_code failed;
    const std::filesystem::path whole = std::filesystem::absolute(path, failed);
    manifest.inputs.push_back(failed || path == "-" ? path : whole.lexically_normal().string());
  }
  // Recordings in the run store are all called the same: the run's folder above says which.
  const std::filesystem::path first = manifest.inputs.front();
  std::string name = first == "-" ? "standard-input" : first.filename().string();
  if (name == "recording" && first.has_parent_path()) name = first.parent_path().filename().string();
  for (const char* ending : {".gz", ".zst", ".json"})
    if (name.ends_with(ending)) name.resize(name.size() - std::string_view(ending).size());
  manifest.name = name;
}

int run(AnalyzeArguments& options) {
  if (const Status status = resolve_runs(options.paths); !status) return report_error(status.error());
  if (const Status status = check_outputs(options); !status) return report_error(status.error());
  const Result<DeriveOptions> derive_options = derive_options_of(options.stages);
  if (!derive_options) return report_error(derive_options.error());
  if (const Status status = choose_what_ifs(options.what_ifs, options.analyze); !status)
    return report_error(status.error());
  if (const Status status = choose_ceilings(options.ceilings, options.analyze); !status)
    return report_error(status.error());
  add_ceilings_of(options.ceilings, options.paths, options.analyze);
  // A page to read is shorter than a file to process.
  constexpr size_t kTextRows = 12;
  options.analyze.top = options.top.value_or(options.output.is_text() ? kTextRows : 0);
  options.output.tables = options.top.has_value() || !options.sort.empty();
  if (options.sort == "mean") options.analyze.sort = SortKey::kMean;
  if (options.sort == "calls") options.analyze.sort = SortKey::kCalls;
  if (options.sort == "name") options.analyze.sort = SortKey::kName;
  if (const Status folder =
          check_folder(options.output, "llmprof analyze " + options.paths.front() + " --format csv -o report");
      !folder)
    return report_error(folder.error());
  // A large recording takes a while: what cannot be written is said before.
  for (const std::string* const path : {&options.output.path, &options.save})
    if (const Status status = check_writable(*path); !status) return report_error(status.error());
  Result<Trace> trace = import_files(options.paths);
  if (!trace) return report_error(name_other_file(options.paths.front(), trace.error()));
  if (!options.save.empty())
    if (Status status = save_trace(*trace, options.save); !status) return report_error(status.error());
  StoredRun stored(RunKind::kAnalysis, !options.no_store, options.output.quiet);
  name_inputs(options.paths, stored.manifest());
  const int code = analyze_and_print(*trace, *derive_options, options.analyze, options.output, &stored);
  stored.keep();
  return code;
}

}  // namespace

void add_analyze(Parser& parser) {
  const std::shared_ptr<AnalyzeArguments> options = std::make_shared<AnalyzeArguments>();
  const Command command =
      parser.add_command("analyze", "report on a recording: where the time went, why, and what to change");
  command
      .option("PATH", options->paths,
              "recording: torch.profiler .json, .json.gz or .json.zst, a session folder of llmprof run (or its "
              ".spool files), a llmprof trace file, .sqlite of nsys export, output of ncu --csv, logs of cuBLAS and "
              "cuBLASLt, results of server benchmarks, metrics pages of servers, logs of NCCL, what its Inspector or "
              "TensorRT's trtexec "
              "exports or .hatchet or .hatchet_msgpack files of Triton's Proton, alone or beside "
              "another recording, "
              "output of nvidia-smi dmon, nvidia-smi --query-gpu or dcgmi dmon, snapshot of PyTorch's memory, or - for "
              "standard input; or several of the ranks of one job; or a "
              "run of the store: its number, its name, "
              "last")
      .required()
      .type_name("");
  add_ceilings_option(command, options->ceilings);
  command.option("--gpu", options->analyze.gpu, "GPU of the hardware table to compare with (llmprof list gpus)")
      .type_name("NAME");
  command.option("--model", options->analyze.model, "model of the table or a config.json: FLOPs and bytes by formula")
      .type_name("ID|PATH");
  command
      .option("--batch", options->analyze.batch,
              "sequences per step, for FLOPs by formula; goes before what is recorded")
      .check(whole_number(1, int64_t{1} << 20));
  command.option("--context", options->analyze.context, "tokens a decode step attends to, if it is not recorded")
      .check(whole_number(1, int64_t{1} << 30));
  add_stage_options(command, options->stages);
  command
      .option("--what-if", options->what_ifs,
              "what steps would take with these changes made together (llmprof list what-ifs), or all of them one by "
              "one (repeatable)")
      .type_name("ID[,ID]")
      .one_word();
  command
      .option("--top", options->top,
              "rows of long tables, which the page then has; 0 for all (default 12 in text, all elsewhere)")
      .check(whole_number(0, int64_t{1} << 40));
  command.option("--sort", options->sort, "operators and kernels by total, mean, calls or name")
      .check(one_of({"total", "mean", "calls", "name"}))
      .shown_default("total");
  command.option("--save", options->save, "also keep the recording in llmprof's own compact file").type_name("PATH");
  add_redact_option(command, options->output.redact);
  add_store_option(command, options->no_store);
  add_output_options(command, options->output);
  command.footer("Example:  llmprof analyze trace.json.gz --model llama-3.1-8b");
  command.action([options] { return run(*options); });
}

}  // namespace llmprof::cli
