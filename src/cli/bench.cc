// `llmprof bench`: times of operations, alone and compared with an earlier run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/terminal.h"
#include "bench/compare.h"
#include "bench/data_sheet.h"
#include "bench/fit.h"
#include "bench/plan.h"
#include "bench/presets.h"
#include "bench/results_file.h"
#include "bench/runner.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/measuring.h"
#include "cli/stored_run.h"
#include "hardware/measured.h"
#include "kernels/op.h"
#include "model/catalogue.h"
#include "report/render.h"

namespace llmprof::cli {
namespace {

constexpr double kSaidBeforeS = 60;  // longer runs say what they will take

struct BenchArguments {
  std::vector<std::string> names, dtypes, variants, sweeps, compare, fail_on;
  std::map<std::string, std::vector<int64_t>> axes;  // several values: a sweep
  std::string model;
  DeviceOptions device;
  std::string regime = "both", resume;
  double min_time_s = 0;
  size_t max_cases = 0;
  uint64_t seed = 1;
  bool quick = false, suite_time = false, no_store = false;
  OutputOptions output;

  bool json_file() const { return !output.path.empty() && output.effective_format() == "json"; }
};

bench::Protocol protocol_of(const BenchArguments& options) {
  const bool together = options.names.empty() || options.suite_time;
  bench::Protocol protocol = together ? bench::suite_protocol() : bench::Protocol{};
  if (options.quick) {
    protocol.cold_min_s = 0.05;
    protocol.sustained_min_s = 0.1;
    protocol.settle_max_s = 0.25;
    protocol.wall_max_s = 0.5;
    protocol.held_down_s = 0.25;
    protocol.choose_s = 0.1;
  }
  if (options.min_time_s > 0) protocol.cold_min_s = protocol.sustained_min_s = options.min_time_s;
  protocol.wall_max_s = std::max(protocol.wall_max_s, 2 * options.min_time_s);
  protocol.cold = options.regime != "sustained";
  protocol.sustained = options.regime != "cold";
  return protocol;
}

Result<bench::Selection> selection_of(const BenchArguments& options) {
  bench::Selection selection;
  selection.names = options.names;
  selection.variants = options.variants;
  selection.seed = options.seed;
  LLMPROF_ASSIGN(selection.dtypes, parse_dtypes(options.dtypes));
  for (const std::string& text : options.sweeps) {
    LLMPROF_ASSIGN(bench::Sweep sweep, bench::parse_sweep(text));
    selection.sweeps.push_back(std::move(sweep));
  }
  for (const auto& [name, values] : options.axes) {
    if (values.size() == 1) selection.axes.emplace_back(name, values[0]);
    if (values.size() > 1) selection.sweeps.push_back({name, values});
  }
  return selection;
}

// Lengths that a model's steps are made of.
constexpr const char* kModelAxes[] = {"batch", "prompt", "context"};

Result<bench::Preset> preset_for(const BenchArguments& options, const device::DeviceIdentity& device) {
  LLMPROF_ASSIGN(const ModelConfig model, load_model(options.model));
  bench::PresetOptions lengths;
  lengths.seed = options.seed;
  const auto values_of = [&](const char* axis, std::vector<int64_t>& to) {
    const auto found = options.axes.find(axis);
    if (found != options.axes.end() && !found->second.empty()) to = found->second;
  };
  values_of("batch", lengths.batches);
  values_of("prompt", lengths.prompts);
  values_of("context", lengths.contexts);
  return bench::preset_of(kernels::operations(), device, model, lengths);
}

Status check_model(const BenchArguments& options) {
  if (!options.names.empty())
    return fail(fmt::format("--model takes every operation of a model, and {} is named too", options.names[0]),
                "--model", "leave one of the two out", ExitCode::kUsage);
  if (!options.sweeps.empty() || !options.variants.empty() || !options.dtypes.empty())
    return fail("a model's shapes and data types follow from its config", "--model",
                "--batch 1,8,32 --prompt 512,2048 --context 8192", ExitCode::kUsage);
  for (const auto& [name, values] : options.axes) {
    const bool known = std::find(std::begin(kModelAxes), std::end(kModelAxes), name) != std::end(kModelAxes);
    if (!values.empty() && !known)
      return fail(fmt::format("{} follows from the model's config", bench::option_of(name)), "--model",
                  "--batch, --prompt or --context", ExitCode::kUsage);
  }
  const Result<ModelConfig> model = load_model(options.model);
  if (!model) return tl::unexpected<Error>(model.error());
  return check_writable(options.output.path);
}

Result<std::vector<bench::CasePlan>> plan(const BenchArguments& options, const bench::Selection& selection,
                                          const device::Device& device, const bench::ResultsFile* before) {
  if (!options.names.empty()) return bench::plan_cases(kernels::operations(), selection, &device.identity());
  if (before != nullptr) return bench::plans_of(kernels::operations(), before->records);
  return bench::default_suite(kernels::operations(), device.identity(), options.quick, options.seed);
}

// What can be wrong with the command line is said before anything is opened.
Status check(const BenchArguments& options) {
  std::vector<std::string> inputs = options.compare;
  if (!options.model.empty()) inputs.push_back(options.model);
  LLMPROF_CHECK(refuse_overwriting("-o", options.output.path, inputs));
  if (!options.model.empty()) return check_model(options);
  LLMPROF_ASSIGN(const bench::Selection selection, selection_of(options));
  const bool shaped =
      !selection.axes.empty() || !selection.sweeps.empty() || !selection.dtypes.empty() || !options.variants.empty();
  if (options.names.empty() && shaped)
    return fail("axes, sweeps, data types and variants belong to a benchmark, and none is named", {},
                "llmprof bench gemm --m 512  (all: llmprof list benchmarks)", ExitCode::kUsage);
  LLMPROF_CHECK(bench::plan_cases(kernels::operations(), selection));
  LLMPROF_CHECK(bench::parse_fail_on(options.fail_on));
  if (!options.fail_on.empty() && options.compare.empty() && options.fail_on != std::vector<std::string>{"failed"})
    return fail("slow and ambiguous are verdicts of a comparison", "--fail-on", "--compare OLD.json", ExitCode::kUsage);
  return check_writable(options.output.path);
}

// ---- the earlier part of an interrupted run

Result<std::vector<bench::CaseRecord>> earlier_records(const BenchArguments& options, const bench::RunFacts& facts) {
  if (options.resume.empty()) return std::vector<bench::CaseRecord>{};
  const std::string journal = bench::journal_path(options.resume);
  LLMPROF_ASSIGN(bench::ResultsFile found,
                 bench::read_results(access(journal.c_str(), F_OK) == 0 ? journal : options.resume));
  std::vector<std::string> changed = bench::changed_facts(found.facts, facts);
  if (found.facts.device_key != facts.device_key)
    changed.push_back(fmt::format("device {} -> {}", found.facts.device_name, facts.device_name));
  if (!changed.empty())
    return fail("the run to resume was made under other conditions: " + changed[0], options.resume,
                "start anew without --resume, or with the same options", ExitCode::kUsage);
  return std::move(found.records);
}

// Rows that the command line leaves out would be lost when the file is written anew.
Status check_resumed(const BenchArguments& options, const std::vector<bench::CasePlan>& plans,
                     const std::vector<bench::CaseRecord>& earlier) {
  const std::vector<std::string> others = bench::rows_of_no_plan(plans, earlier);
  if (others.empty()) return {};
  return fail(fmt::format("{} of the rows to resume {} not of this command: {}{}", others.size(),
                          others.size() == 1 ? "is" : "are", others.front(), others.size() > 1 ? ", ..." : ""),
              options.resume, "the same operations and options as in the run that wrote it, or -o with another file",
              ExitCode::kUsage);
}

// ---- ceilings and notices

bench::Ceilings ceilings_for(const device::DeviceIdentity& device, bool quiet) {
  bench::Ceilings ceilings;
  ceilings.sheet = bench::data_sheet_of(device);
  ceilings.cache_bytes = device.cache_bytes;
  const std::string path = ceilings_path(device.key);
  if (access(path.c_str(), F_OK) != 0) {
    if (!quiet)
      complain(
          "this device has no measured ceilings yet, so there is no share of them and no bound\n"
          "  try:   llmprof peaks");
    return ceilings;
  }
  Result<MeasuredCeilings> found = read_ceilings(path);
  if (found) {
    ceilings.measured = *std::move(found);
  } else if (!quiet) {
    report_error(found.error());
  }
  return ceilings;
}

// What was taken where the device cannot do the usual, once each.
void say_choices(const BenchArguments& options, const std::vector<bench::CasePlan>& plans) {
  std::set<std::string> said;
  for (const bench::CasePlan& plan : plans) {
    if (plan.chosen.empty() || options.output.quiet || !said.insert(plan.chosen).second) continue;
    complain(fmt::format("this device cannot do the usual: {} is measured", plan.chosen));
  }
}

void say_before(const BenchArguments& options, size_t cases, const bench::Protocol& protocol, device::DeviceKind kind) {
  if (options.output.quiet) return;
  const double expected_s = bench::budget_s(protocol, kind) * static_cast<double>(cases);
  if (expected_s > kSaidBeforeS)
    complain(fmt::format("{} cases, about {:.0f} min", cases, std::max(1.0, expected_s / 60)));
}

std::string time_left(double seconds) {
  return seconds < 90 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

// ---- what is printed

bench::BenchResult result_of(const BenchArguments& options, const bench::ResultsFile& results,
                             const std::optional<bench::Preset>& preset, const device::DeviceIdentity& device,
                             const bench::Ceilings& ceilings) {
  bench::BenchResult out = bench::bench_result(results, device);
  if (ceilings.measured) out.ceilings_remark = disturbed_remark(*ceilings.measured);
  if (preset) {
    out.model_steps = bench::model_steps(*preset, results.records);
    out.model = preset->model;
    out.not_in_the_sums = preset->remarks;
    return out;
  }
  if (const Result<bench::Selection> selection = selection_of(options))
    for (const bench::Sweep& sweep : selection->sweeps) out.sweeps.push_back(sweep.axis);
  return out;
}

Status print(const BenchArguments& options, const bench::BenchResult& result) {
  LLMPROF_CHECK(write_result(result, options.output));
  // Where a name alone made a file JSON or HTML, the page of text is printed too.
  if (!options.output.format_by_name() || options.output.quiet) return {};
  OutputOptions page = options.output;
  page.path.clear();
  return write_result(result, page);
}

// Prints the comparison; the exit code of its gate.
Result<int> compare(const BenchArguments& options, const bench::ResultsFile& before, const bench::ResultsFile& now) {
  const bench::ComparisonResult result = {bench::compare_results(before, now),
                                          bench::changed_facts(before.facts, now.facts)};
  const bool alone = options.compare.size() == 2;  // measured results have taken stdout or the file already
  if (alone) {
    LLMPROF_CHECK(write_result(result, options.output));
  } else if (options.output.is_text()) {
    OutputOptions below = options.output;
    below.path.clear();
    LLMPROF_CHECK(write_output("\n", {}));
    LLMPROF_CHECK(write_result(result, below));
  } else {
    print_error(render_text(result, {TextStyle{false, locale_charset()}, SIZE_MAX}));
  }
  LLMPROF_ASSIGN(const bench::FailOn gate, bench::parse_fail_on(options.fail_on));
  const std::string tripped = bench::tripped(gate, result.rows, now.records);
  if (tripped.empty()) return 0;
  complain("--fail-on: " + tripped);
  return static_cast<int>(ExitCode::kGateTripped);
}

// ---- one run

// What a repro line needs beside the case: the device, and whatever changes how long and in which regimes it is
// measured. A row of a suite or a model is measured by their shorter times, which a named case has only if told so.
std::string measuring_options(const BenchArguments& options, const device::DeviceIdentity& device) {
  const std::string& named = options.device.device;
  const bool by_uuid = !named.empty() && !device.uuid.empty() && !named.starts_with("cuda");
  std::string out = device.kind == device::DeviceKind::kCpu ? fmt::format(" --device cpu --threads {}", device.units)
                    : by_uuid                               ? " --device " + named
                                                            : fmt::format(" --device cuda:{}", device.ordinal);
  if (options.regime != "both") out += " --regime " + options.regime;
  if (options.names.empty() || options.suite_time) out += " --suite-time";
  if (options.quick) out += " --quick";
  if (options.min_time_s > 0) out += fmt::format(" --min-time {}", options.min_time_s);
  if (options.device.busy_ok) out += " --busy-ok";
  return out;
}

// Which operation another word was taken for.
void say_aliases(const BenchArguments& options) {
  for (const std::string& name : options.names) {
    const Result<const kernels::Operation*> operation = bench::operation_named(kernels::operations(), name);
    if (operation && (*operation)->name != name && !options.output.quiet)
      complain(fmt::format("{} is measured as {}", name, (*operation)->name));
  }
}

struct Run {
  bench::ResultsFile results;
  std::optional<bench::Preset> preset;
  bench::RunOutcome outcome;
  size_t planned = 0;
  std::optional<bench::BenchResult> result;  // as it was printed
};

Result<Run> measure(const BenchArguments& options, device::Device& device, const bench::ResultsFile* before,
                    const std::atomic<bool>& stop) {
  Run run;
  const bench::Protocol protocol = protocol_of(options);
  run.results.facts = bench::facts_of(device.identity(), protocol, LLMPROF_VERSION);
  std::vector<bench::CasePlan> plans;
  if (options.model.empty()) {
    LLMPROF_ASSIGN(const bench::Selection selection, selection_of(options));
    LLMPROF_ASSIGN(plans, plan(options, selection, device, before));
  } else {
    LLMPROF_ASSIGN(run.preset, preset_for(options, device.identity()));
    plans = run.preset->plans;
  }
  if (options.max_cases > 0 && plans.size() > options.max_cases) plans.resize(options.max_cases);
  run.planned = plans.size();
  LLMPROF_ASSIGN(const std::vector<bench::CaseRecord> earlier, earlier_records(options, run.results.facts));
  LLMPROF_CHECK(check_resumed(options, plans, earlier));
  say_choices(options, plans);
  const bench::Ceilings ceilings = ceilings_for(device.identity(), options.output.quiet);
  say_before(options, plans.size(), protocol, device.identity().kind);
  LLMPROF_ASSIGN(const std::string busy, refuse_if_busy(device, options.device.busy_ok, options.output.quiet));
  std::optional<bench::Journal> journal;
  if (options.json_file()) {
    LLMPROF_ASSIGN(journal, bench::Journal::open(bench::journal_path(options.output.path), run.results.facts, earlier));
  }
  ProgressLine progress(options.output.quiet);
  bench::RunHooks hooks;
  if (!busy.empty()) hooks.note = "measured while " + busy;
  hooks.options = measuring_options(options, device.identity());
  hooks.begin = [&](const bench::RunProgress& at) {
    progress.show(fmt::format("{} of {}  {} {}  {} left", at.done + 1, at.all, at.now->operation->name,
                              bench::shape_text(at.now->params), time_left(at.left_s)));
  };
  hooks.done = [&](const std::vector<bench::CaseRecord>& records) -> Status {
    for (const bench::CaseRecord& record : records)
      if (journal) LLMPROF_CHECK(journal->add(record));
    return {};
  };
  LLMPROF_ASSIGN(run.outcome, bench::run_cases(device, plans, protocol, ceilings, earlier, stop, hooks));
  progress.clear();
  run.results.records = run.outcome.records;
  run.results.interrupted = run.outcome.left > 0;
  run.result = result_of(options, run.results, run.preset, device.identity(), ceilings);
  LLMPROF_CHECK(print(options, *run.result));
  if (journal && !run.results.interrupted) journal->remove();
  return run;
}

// The exit code of what was measured, and the sentences that go with it.
int conclude(const BenchArguments& options, const Run& run) {
  const size_t done = run.planned - run.outcome.left;
  if (!run.outcome.lost.empty()) complain(run.outcome.lost);
  if (run.outcome.left > 0) {
    complain(
        fmt::format("{} after {} of {} cases", run.outcome.interrupted ? "interrupted" : "ended", done, run.planned));
    if (options.json_file()) print_error("  try:   the same command with --resume " + options.output.path + "\n");
  }
  if (run.outcome.interrupted) return kInterruptedExit;
  bool timed = false;
  for (const bench::CaseRecord& record : run.outcome.records) timed |= record.timed();
  if (!timed && !run.outcome.records.empty()) {
    const bench::CaseRow& row = run.outcome.records[0].row;
    complain(fmt::format("{} {}: {}, {}", row.name, row.shape, name_of(row.status), row.note));
  }
  return timed && run.outcome.lost.empty() ? 0 : static_cast<int>(ExitCode::kFailed);
}

// In the run store, under the names of the operations.
void keep(const Run& run, const BenchArguments& options, StoredRun& stored) {
  std::string& name = stored.manifest().name;
  for (const std::string& operation : options.names) name += (name.empty() ? "" : "-") + operation;
  if (name.empty()) name = options.model.empty() ? "suite" : options.model.substr(options.model.rfind('/') + 1);
  if (run.result && !run.results.records.empty()) stored.take(*run.result);
  stored.keep();
}

int run_bench(BenchArguments options) {
  for (std::string& word : options.compare) {
    Result<std::string> path = bench_named(word);
    if (!path) return report_error(path.error());
    word = *std::move(path);
  }
  if (!options.resume.empty() && options.output.path.empty()) options.output.path = options.resume;
  if (const Status status = check(options); !status) return report_error(status.error());
  say_aliases(options);
  std::optional<bench::ResultsFile> before;
  if (!options.compare.empty()) {
    Result<bench::ResultsFile> found = bench::read_results(options.compare[0]);
    if (!found) return report_error(found.error());
    before = *std::move(found);
  }
  if (options.compare.size() == 2) {
    const Result<bench::ResultsFile> now = bench::read_results(options.compare[1]);
    if (!now) return report_error(now.error());
    const Result<int> code = compare(options, *before, *now);
    return code ? *code : report_error(code.error());
  }
  const Result<std::unique_ptr<device::Device>> device = open_measured_device(options.device, options.output.quiet);
  if (!device) return report_error(device.error());
  StoredRun stored(RunKind::kBench, !options.no_store, options.output.quiet);
  const Interrupt interrupt(options.output.quiet);
  const Result<Run> run = measure(options, **device, before ? &*before : nullptr, interrupt.flag());
  if (!run) return report_error(run.error());
  keep(*run, options, stored);
  const int code = conclude(options, *run);
  if (code == kInterruptedExit) return code;
  if (!before) {
    const Result<bench::FailOn> gate = bench::parse_fail_on(options.fail_on);
    return gate && !bench::tripped(*gate, {}, run->results.records).empty() ? static_cast<int>(ExitCode::kGateTripped)
                                                                            : code;
  }
  const Result<int> gate = compare(options, *before, run->results);
  if (!gate) return report_error(gate.error());
  return code != 0 ? code : *gate;
}

// Every axis of every operation is an option.
void add_axis_options(const Command& command, BenchArguments& options) {
  std::map<std::string, std::string> users;
  for (const kernels::Operation& operation : kernels::operations())
    for (const kernels::Axis& axis : operation.axes)
      users[std::string(axis.name)] +=
          (users[std::string(axis.name)].empty() ? "" : ", ") + std::string(operation.name);
  for (const char* axis : kModelAxes) users[axis] += (users[axis].empty() ? "" : ", ") + std::string("--model");
  for (const auto& [axis, names] : users) {
    command.option(bench::option_of(axis), options.axes[axis], "axis of " + names)
        .check(whole_number(1, int64_t{1} << 48))
        .delimiter(',')
        .one_word()
        .type_name("N,...")
        .group("Axes (several values: a sweep)");
  }
}

}  // namespace

void add_bench(Parser& parser) {
  const std::shared_ptr<BenchArguments> options = std::make_shared<BenchArguments>();
  const Command command = parser.add_command(
      "bench", "measure operations: times, FLOP/s, GB/s and what limits them, and compare with an earlier run");
  command.option("NAME", options->names, "operations (llmprof list benchmarks); without any, the default suite")
      .type_name("");
  add_axis_options(command, *options);
  command.option("--sweep", options->sweeps, "an axis through values: m=1,16,512 or m=1:4096:x2; several: product")
      .type_name("AXIS=LIST");
  command.option("--dtype", options->dtypes, "data types").delimiter(',').type_name("LIST");
  command.option("--variant", options->variants, "variants of the operation").delimiter(',').type_name("LIST");
  command
      .option("--model", options->model,
              "every operation of a model (llmprof list models, or a config.json), and the sums of its steps")
      .type_name("ID");
  command.option("--regime", options->regime, "cold, sustained or both")
      .check(one_of({"cold", "sustained", "both"}))
      .capture_default();
  add_device_options(command, options->device);
  command.option("--min-time", options->min_time_s, "seconds per case and regime, at least")
      .check(decimal_number(0.001, 600.0));
  command.option("--max-cases", options->max_cases, "measure only the first N")
      .check(whole_number(1, int64_t{1} << 40));
  command.option("--seed", options->seed, "of the inputs").capture_default();
  command.flag("--quick", options->quick, "shorter, and less exact; a smaller default suite");
  command.flag("--suite-time", options->suite_time, "measure a named case as briefly as the default suite does");
  command.option("--resume", options->resume, "go on with an interrupted run that was writing this file")
      .type_name("FILE");
  command
      .option("--compare", options->compare,
              "an earlier result, or a bench of the run store (12, NAME, last); with a second one nothing is measured")
      .expected(1, 2)
      .type_name("OLD.json [NEW.json]");
  command.option("--fail-on", options->fail_on, "exit code 4 on slow, slow:N%, ambiguous or failed")
      .delimiter(',')
      .type_name("LIST");
  add_store_option(command, options->no_store);
  add_output_options(command, options->output, CsvOutput::kFile);
  command.declared("--output")
      .description("write to this file instead of standard output; FILE.json: as JSON, beside the page");
  command.footer("Example:  llmprof bench gemm --sweep m=1:4096:x2 --n 4096 --k 4096 --dtype bf16 -o gemm.json");
  command.action([options] { return run_bench(*options); });
}

}  // namespace llmprof::cli
