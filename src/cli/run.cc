// `llmprof run [options] -- CMD...`: a program under the collectors, then the report of what was recorded.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "analyze/analysis.h"
#include "base/nearest.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "capture/launch/control_page.h"
#include "capture/launch/environment.h"
#include "capture/launch/launch.h"
#include "capture/launch/session_folder.h"
#include "capture/session/level.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/measuring.h"
#include "cli/pipeline.h"
#include "cli/run_program.h"
#include "cli/run_with.h"
#include "cli/stored_run.h"
#include "hardware/hardware.h"
#include "hardware/measured.h"
#include "model/catalogue.h"

namespace llmprof::cli {
namespace {

struct RunArguments {
  launch::LaunchOptions launch;
  std::string mode = "default", unrecorded = "auto", counters = "auto";
  std::string folder;
  bool no_adapt = false, baseline = false, no_report = false, no_detect = false, no_html = false;
  bool no_store = false;
  bool forgotten = false;  // the session folder is another's and does not stay
  std::vector<std::string> stages;
  AnalyzeOptions analyze;
  CeilingsOption ceilings;
  WithOptions with;
  std::optional<size_t> top;
  double budget = 0;           // percent; 0: not given
  OutputOptions output;        // path is --report
  int baseline_exit_code = 0;  // set if the baseline run is the last one
};

constexpr const char* kExample = "llmprof run -- python3 generate.py";

tl::unexpected<Error> usage(std::string what, std::string advice) {
  return fail(std::move(what), {}, std::move(advice), ExitCode::kUsage);
}

// What stands before the "--" and is no option of ours.
Status check_rest(const Command& command, const ProgramArguments& program) {
  const std::vector<std::string> rest = command.other_words();
  for (const std::string& word : rest) {
    if (!program.separated && !word.starts_with("-")) break;  // the program, and options of its own behind it
    if (!word.starts_with("-") || word == "-") continue;
    std::vector<std::string> names;
    for (const Option& option : command.options()) names.push_back("--" + option.name());
    const std::vector<std::string> near = nearest_names(word, names, 1);
    return usage("no option " + word + " of llmprof run",
                 near.empty() ? "llmprof run --help" : near.front() + "? All of them: llmprof run --help");
  }
  if (!program.separated) {
    std::string line;
    for (const std::string& word : rest) line += " " + word;
    return usage(line.empty() ? "expected a program to run, found none"
                              : "expected -- before the program, found \"" + rest.front() + "\"",
                 line.empty() ? kExample : "llmprof run --" + line);
  }
  if (!rest.empty()) return usage("expected an option before --, found \"" + rest.front() + "\"", kExample);
  if (program.words.empty()) return usage("expected a program behind --, found nothing", kExample);
  return {};
}

Status check_nesting() {
  const char* outer = std::getenv(session::kEnvFolder);
  if (outer == nullptr || !launch::session_is_running(outer)) return {};
  return fail("this is already inside a `llmprof run`: two cannot watch the same program", outer,
              "keep one of the two; to start this one unwatched: env -u " + std::string(session::kEnvFolder) +
                  " -u LD_PRELOAD llmprof run ...",
              ExitCode::kUsage);
}

// Everything that can be wrong with the options must be said now, not when the program has run for an hour.
Status check_options(RunArguments& options, DeriveOptions& derive_options) {
  derive_options.detect_stages = !options.no_detect;
  LLMPROF_CHECK(choose_ceilings(options.ceilings, options.analyze));
  const std::optional<spool::Level> level = session::parse_mode(options.mode);
  if (!level)
    return usage("expected a mode of light, default or deep, found \"" + options.mode + "\"",
                 "--mode " + nearest_or_all(options.mode, {"light", "default", "deep"}));
  options.launch.level = *level;
  options.launch.unrecorded = options.unrecorded == "auto";
  options.launch.counters = options.counters != "off";
  options.launch.counters_judged = options.counters == "auto";
  options.launch.adapt = !options.no_adapt;
  if (options.budget > 0 && !options.launch.unrecorded)
    return usage("--budget bounds what recorded windows cost; with --unrecorded-windows off everything is recorded",
                 "leave one of the two out");
  if (options.budget > 0) options.launch.budget_percent = options.budget;
  if (options.launch.armed && (options.launch.delay_s > 0 || options.launch.duration_s > 0))
    return usage("--armed waits for `llmprof ctl start`; --delay and --duration do not go with it",
                 "llmprof ctl start --duration SECONDS");
  if (options.launch.steps > 0 && options.launch.capture_range.empty())
    return usage("--steps counts closings of an NVTX range: expected --capture-range beside it, found none",
                 "--capture-range decode_step --steps " + std::to_string(options.launch.steps));
  if (!options.no_report)
    LLMPROF_CHECK(
        check_folder(options.output, "llmprof run --format csv --report tables -- python3 generate.py", "--report"));
  if (!options.no_report) LLMPROF_CHECK(check_writable(options.output.path));
  for (const std::string& text : options.stages) {
    LLMPROF_ASSIGN(StageRule rule, parse_stage_rule(text));
    derive_options.stage_rules.push_back(std::move(rule));
  }
  if (!options.analyze.gpu.empty()) LLMPROF_CHECK(find_gpu(options.analyze.gpu));
  if (!options.analyze.model.empty()) LLMPROF_CHECK(load_model(options.analyze.model));
  return {};
}

void say(const RunArguments& options, const std::string& text) {
  if (!options.output.quiet) complain(text);
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// What the recorder met in the watched processes: without a report there is no foot that lists it.
std::string diagnostics_text(const Trace& trace) {
  std::string out;
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const DiagnosticId id = static_cast<DiagnosticId>(i);
    const DiagnosticInfo& info = diagnostic_table()[i];
    if (trace.diagnostics.count(id) == 0 || info.severity < Severity::kNotice) continue;
    const std::vector<std::string>& places = trace.diagnostics.places(id);
    out += fmt::format("\n  - {}{}", info.text, places.empty() ? "" : " " + printable(places.front()));
  }
  return out;
}

// Why nothing was recorded that a report could be about, and what may help.
struct NothingSeen {
  std::string why, advice;
};
NothingSeen nothing_seen(const RunArguments& options, const launch::LaunchOutcome& outcome, const Trace& trace) {
  const launch::LaunchOptions& plan = options.launch;
  if (outcome.never_recorded && plan.armed)
    return {"nothing was recorded: the run was armed and no `llmprof ctl start` came", ""};
  if (outcome.never_recorded)
    return {fmt::format("nothing was recorded: the program ended before the --delay of {} s was over",
                        format_fixed(plan.delay_s, 1)),
            ""};
  if (outcome.watched == 0)
    return {"no GPU work seen: no process of the program started CUDA or used NVTX. If it should have:",
            "\n  - does it find a GPU? `nvidia-smi`, CUDA_VISIBLE_DEVICES\n"
            "  - did it start its work elsewhere (docker, ssh, sudo, env -i, a server that was running before)? Put\n"
            "    `llmprof run --` in front of the process that computes\n"
            "  - is that process static, setuid or built for musl? The injection library cannot get into it"};
  std::string advice = "\n  - did it only ask for the GPU (nvidia-smi, device count), or fork after starting CUDA?";
  if (!plan.capture_range.empty())
    advice += "\n  - --capture-range \"" + plan.capture_range + "\" records only inside a range of that name";
  return {fmt::format("no GPU work seen: {} process{} loaded the recorder, but no kernel, copy or range came.",
                      outcome.watched, outcome.watched == 1 ? "" : "es"),
          advice + diagnostics_text(trace)};
}

// A list for a terminal as one line: "does it find a GPU? ...; did it start its work elsewhere ...".
std::string on_one_line(std::string_view list) {
  std::string out;
  for (const char c : list) {
    const bool blank = c == '\n' || c == ' ';
    if (blank && (out.empty() || out.back() == ' ')) continue;
    out += blank ? ' ' : c;
  }
  if (out.starts_with("- ")) out.erase(0, 2);
  for (size_t at = out.find(" - "); at != std::string::npos; at = out.find(" - ", at)) out.replace(at, 3, "; ");
  return out;
}

// On standard error; whoever asked for JSON or CSV gets that, with the same in it.
void say_nothing_seen(const RunArguments& options, const launch::LaunchOutcome& outcome, Trace& trace) {
  const NothingSeen seen = nothing_seen(options, outcome, trace);
  say(options, seen.why + seen.advice);
  if (options.output.is_text()) return;
  std::string why = seen.why;
  if (const size_t question = why.find(". If it should have:"); question != std::string::npos) why.resize(question);
  print_empty_report(trace, why, on_one_line(seen.advice), options.output);
}

bool saw_anything(const Trace& trace, const launch::LaunchOutcome& outcome) {
  const bool work = !trace.gpu_ops.empty() || !trace.graph_launches.empty() || !trace.recurring_calls.empty() ||
                    !trace.library_calls.empty() || !trace.annotations.empty();
  // In light mode the counters alone tell about a program without ranges; they are device-wide, so that it used the
  // GPU must be known from elsewhere.
  return work || (outcome.watched > 0 && !trace.gpu_samples.empty());
}

// What `llmprof peaks` measured of the recorded GPUs goes with the recording: without it, what recording cost is taken
// out here and stays in wherever else it is read.
void keep_ceilings(const RunArguments& options) {
  const std::vector<std::string> uuids = launch::recorded_uuids(options.launch.folder);
  for (const MeasuredCeilings& one : kept_ceilings()) {
    if (std::find(uuids.begin(), uuids.end(), one.uuid) == uuids.end()) continue;
    const std::string name = std::filesystem::path(ceilings_path(one.device_key)).filename().string();
    const Status kept = write_ceilings(ceilings_folder_of(options.launch.folder) + "/" + name, one);
    if (!kept) say(options, kept.error().text());
  }
}

void report(const RunArguments& options, const DeriveOptions& derive_options, const launch::LaunchOutcome& outcome,
            StoredRun& stored) {
  const std::string& folder = options.launch.folder;
  // Said before the report, which it limits; where there is none it limits nothing.
  const auto say_killed = [&](const char* what) {
    if (outcome.signal) say(options, "the program was killed by " + signal_name(*outcome.signal) + what);
  };
  if (options.no_report) {
    say_killed("; the recording holds what was on the disk by then");
  } else {
    Result<Trace> trace = import_files({folder});
    if (!trace) {
      say_killed("");
      report_error(trace.error());
    } else if (!saw_anything(*trace, outcome)) {
      say_killed("");
      say_nothing_seen(options, outcome, *trace);
    } else {
      say_killed("; the report covers what was on the disk by then");
      AnalyzeOptions analyze_options = options.analyze;
      constexpr size_t kTextRows = 12;  // as `llmprof analyze` does
      analyze_options.top = options.top.value_or(options.output.is_text() ? kTextRows : 0);
      OutputOptions output = options.output;
      output.tables = options.top.has_value();
      if (!options.forgotten && !options.no_html) output.page = folder + "/report.html";
      analyze_and_print(*trace, derive_options, analyze_options, output, &stored);
    }
  }
  if (options.forgotten) return;
  if (access((folder + "/report.html").c_str(), R_OK) == 0)
    say(options, fmt::format("page: {}/report.html", printable(folder)));
  const std::string name = stored.name();
  say(options,
      fmt::format("recording: {}  ({}{})", folder, format_bytes(static_cast<double>(launch::recorded_bytes(folder))),
                  name.empty() ? "" : ", " + name));
}

// The program once without the recording of kernels, in DIR/baseline: what profiling cost is measured against it.
// False if the run must end here.
Result<bool> run_baseline(RunArguments& options) {
  launch::LaunchOptions baseline = options.launch;
  LLMPROF_ASSIGN(baseline.folder, launch::create_session_folder(options.launch.folder + "/baseline", {}, {}));
  baseline.level = spool::Level::kLight;
  baseline.armed = baseline.torch = false;
  baseline.counters = false;
  // The second run must find its input where the first found it; a pipe cannot be read twice.
  const off_t input_at = lseek(STDIN_FILENO, 0, SEEK_CUR);
  if (input_at < 0 && isatty(STDIN_FILENO) == 0)
    say(options, "notice: standard input is a pipe: the baseline run reads it, the recorded run finds it at its end");
  say(options, "baseline: running the program once in light mode");
  LLMPROF_ASSIGN(const launch::LaunchOutcome outcome, launch::launch(baseline));
  if (input_at >= 0) lseek(STDIN_FILENO, input_at, SEEK_SET);
  if (outcome.interrupted || outcome.signal) {
    say(options, "the baseline run was ended by a signal; the recorded run is not started");
    options.baseline_exit_code = outcome.exit_code;
    return false;
  }
  if (outcome.exit_code != 0) say(options, fmt::format("notice: the baseline run ended with {}", outcome.exit_code));
  options.launch.baseline = "baseline";
  say(options, "baseline: done; now the recorded run");
  return true;
}

// Where the recording goes: into the run store, unless -o or its settings say otherwise. A store that cannot be used
// is no reason not to record.
Result<std::string> recording_folder(const RunArguments& options, StoredRun& stored) {
  const launch::LaunchOptions& plan = options.launch;
  stored.manifest().name = plan.name.empty() ? launch::short_name(plan.command) : plan.name;
  if (options.folder.empty() && stored.wanted() && stored.settings().recordings) {
    stored.manifest().recording = "recording";
    if (const std::optional<std::string> folder = stored.begin())
      return launch::create_session_folder(*folder + "/recording", {}, {});
    stored.manifest().recording.reset();
  }
  LLMPROF_ASSIGN(std::string folder,
                 launch::create_session_folder(options.folder, launch::short_name(plan.command), plan.name));
  stored.manifest().recording = folder;
  stored.begin();
  return folder;
}

// All that must be there before the program is started.
Status prepare_launch(RunArguments& options, StoredRun& stored) {
  launch::LaunchOptions& plan = options.launch;
  LLMPROF_CHECK(check_nesting());
  LLMPROF_ASSIGN(plan.program, launch::find_program(plan.command.front(), std::getenv("PATH")));
  LLMPROF_CHECK(launch::injection_library());
  if (plan.torch) LLMPROF_CHECK(launch::torch_hook_folder());
  LLMPROF_ASSIGN(plan.folder, recording_folder(options, stored));
  if (stored.wanted() && stored.manifest().recording == "recording") plan.bytes_most = stored.settings().run_bytes();
  plan.quiet = options.output.quiet;
  // A line that is written over and lines of the program would mix on one terminal, and the program's come first.
  plan.progress = !plan.quiet && can_redraw(STDERR_FILENO) && isatty(STDOUT_FILENO) == 0;
  return {};
}

// Gives the exit code back, which the store has no say in.
int keep(StoredRun& stored, const std::string& recording, int exit_code) {
  RunManifest& manifest = stored.manifest();
  manifest.exit_code = exit_code;
  // Without a report the session says which GPUs there were.
  if (manifest.gpus.empty()) manifest.gpus = launch::recorded_gpus(recording);
  stored.keep();
  return exit_code;
}

// The program as llmprof records it, without a report: for another profiler that runs it after that.
Result<RecordedProgram> record_only(RunArguments options, const DeriveOptions& derive_options,
                                    const std::string& folder) {
  options.no_report = true;
  options.folder = folder;
  StoredRun stored(RunKind::kRun, !options.no_store, options.output.quiet);
  const auto launched = [&]() -> Result<launch::LaunchOutcome> {
    LLMPROF_CHECK(prepare_launch(options, stored));
    return launch::launch(options.launch);
  };
  const Result<launch::LaunchOutcome> outcome = launched();
  if (!outcome) {
    stored.drop();
    return tl::unexpected<Error>(outcome.error());
  }
  keep_ceilings(options);
  report(options, derive_options, *outcome, stored);
  keep(stored, options.launch.folder, outcome->exit_code);
  return RecordedProgram{options.launch.folder, outcome->exit_code, outcome->interrupted};
}

int run_under_another(RunArguments& options, const DeriveOptions& derive_options) {
  const WithRun what{
      options.with,           options.launch.command,
      options.launch.delay_s, options.launch.duration_s,
      options.folder,         options.launch.name,
      options.no_store,       options.no_report,
      derive_options,         options.analyze,
      options.ceilings,       options.top,
      options.output,         [&](const std::string& folder) { return record_only(options, derive_options, folder); }};
  return run_with_tool(what);
}

int run(RunArguments& options, const Command& command, const ProgramArguments& program) {
  DeriveOptions derive_options;
  std::optional<StoredRun> stored;
  const auto failed = [&](const Error& error) {
    if (stored) stored->drop();
    return report_error(error);
  };
  const auto prepare = [&]() -> Status {
    LLMPROF_CHECK(check_rest(command, program));
    LLMPROF_CHECK(check_with_options(command, options.with));
    LLMPROF_CHECK(check_options(options, derive_options));
    options.launch.command = program.words;
    if (!options.with.tool.empty()) return check_nesting();
    stored.emplace(RunKind::kRun, !options.no_store, options.output.quiet);
    return prepare_launch(options, *stored);
  };
  if (const Status prepared = prepare(); !prepared) return failed(prepared.error());
  if (!options.with.tool.empty()) return run_under_another(options, derive_options);
  if (options.baseline) {
    const Result<bool> go_on = run_baseline(options);
    if (!go_on) return failed(go_on.error());
    if (!*go_on) return keep(*stored, options.launch.folder, options.baseline_exit_code);
  }
  const Result<launch::LaunchOutcome> outcome = launch::launch(options.launch);
  if (!outcome) return failed(outcome.error());
  if (!options.forgotten) keep_ceilings(options);
  report(options, derive_options, *outcome, *stored);
  return keep(*stored, options.launch.folder, outcome->exit_code);
}

void add_recording_options(const Command& command, RunArguments& options) {
  launch::LaunchOptions& plan = options.launch;
  const std::string recording = "Recording";
  command.option("--mode", options.mode, "light: ranges and counters; default: kernels too; deep: every CUDA call")
      .type_name("MODE")
      .capture_default()
      .group(recording);
  command.option("--delay", plan.delay_s, "record nothing in the first S seconds")
      .type_name("S")
      .check(decimal_number(0.0, 1e6))
      .group(recording);
  command.option("--duration", plan.duration_s, "record for S seconds; the program runs on")
      .type_name("S")
      .check(decimal_number(0.001, 1e6))
      .group(recording);
  command.option("--capture-range", plan.capture_range, "record only inside NVTX ranges with this text")
      .type_name("TEXT")
      .group(recording);
  command.option("--steps", plan.steps, "stop after N steps: closings of the capture range")
      .type_name("N")
      .check(whole_number(1, int64_t{1} << 40))
      .group(recording);
  command.flag("--armed", plan.armed, "record nothing until `llmprof ctl start`").group(recording);
  command.flag("--torch", plan.torch, "PyTorch's operators with shapes, modules, Python functions").group(recording);
  command.flag("--baseline", options.baseline, "run the program once more, first, to measure what profiling costs")
      .group(recording);
  command
      .option("--unrecorded-windows", options.unrecorded,
              "auto: leave windows unrecorded, to keep the cost low and know it; off")
      .check(one_of({"auto", "off"}))
      .capture_default()
      .group(recording);
  command.option("--budget", options.budget, "percent by which recording may slow the run in the mean (default 2)")
      .type_name("PERCENT")
      .check(decimal_number(0.1, 100.0))
      .group(recording);
  command.flag("--no-adapt", options.no_adapt, "keep the mode even if it costs too much").group(recording);
  command
      .option("--counters", options.counters,
              "auto: sample the GPU's hardware counters, unless that costs too much; on; off")
      .check(one_of({"auto", "on", "off"}))
      .capture_default()
      .group(recording);
  command
      .option("--counter-interval-us", plan.counter_interval_us,
              "microseconds between counter samples (default 200, or a tenth of a step; longer where samples are lost)")
      .type_name("N")
      .check(whole_number(10, int64_t{1000000}))
      .group(recording);
  command.option("--name", plan.name, "a word by which the run is found again, in the folder's name too")
      .group(recording);
  command
      .option("-o,--output", options.folder,
              "session folder, new or empty (default: in the run store, llmprof runs; without one "
              "./llmprof-runs/PROGRAM-TIME[-NAME])")
      .type_name("DIR")
      .group(recording);
  add_store_option(command, options.no_store, recording);
}

void add_report_options(const Command& command, RunArguments& options) {
  const std::string reporting = "Report";
  add_ceilings_option(command, options.ceilings);
  command.option("--gpu", options.analyze.gpu, "GPU of the hardware table to compare with (llmprof list gpus)")
      .type_name("NAME")
      .group(reporting);
  command.option("--model", options.analyze.model, "model of the table or a config.json: FLOPs and bytes by formula")
      .type_name("ID|PATH")
      .group(reporting);
  command
      .option("--batch", options.analyze.batch,
              "sequences per step, for FLOPs by formula; goes before what is recorded")
      .check(whole_number(1, int64_t{1} << 20))
      .group(reporting);
  command.option("--context", options.analyze.context, "tokens a decode step attends to, if it is not recorded")
      .check(whole_number(1, int64_t{1} << 30))
      .group(reporting);
  command.option("--stage", options.stages, "ranges whose text matches REGEX are stage NAME (repeatable)")
      .type_name("NAME=REGEX")
      .group(reporting);
  command
      .option("--top", options.top,
              "rows of long tables, which the page then has; 0 for all (default 12 in text, all elsewhere)")
      .check(whole_number(0, int64_t{1} << 40))
      .group(reporting);
  add_format_option(command, options.output, CsvOutput::kFolder).group(reporting);
  command.flag("--json", options.output.json, "short for --format json").group(reporting);
  command
      .option("--report", options.output.path,
              "write the report to this file (csv: a folder) instead of standard output; FILE.json: as JSON, "
              "FILE.html: for "
              "a browser")
      .type_name("PATH")
      .group(reporting);
  command.flag("--no-detect", options.no_detect, "stages from NVTX ranges only").group(reporting);
  command.flag("--no-html", options.no_html, "no report.html in the session folder").group(reporting);
  command
      .flag(
          "--redact", options.output.redact,
          "leave folders of paths, host names, addresses, UUIDs and arguments out of the report, not of the recording")
      .group(reporting);
  command.flag("--no-report", options.no_report, "only record").group(reporting);
  command.flag("-q,--quiet", options.output.quiet, "no progress and no notices on standard error").group(reporting);
  add_style_options(command, options.output, reporting);
  refuse_contradictions(command, options.output, CsvOutput::kFolder, "--report");
}

}  // namespace

Result<int> record_and_report(const ProgramRun& what) {
  RunArguments options;
  DeriveOptions derive_options;
  options.launch.command = what.words;
  options.folder = what.folder;
  options.forgotten = true;
  options.output = what.output;
  LLMPROF_CHECK(check_options(options, derive_options));
  StoredRun none(RunKind::kRun, false, true);
  LLMPROF_CHECK(prepare_launch(options, none));
  LLMPROF_ASSIGN(const launch::LaunchOutcome outcome, launch::launch(options.launch));
  report(options, derive_options, outcome, none);
  return outcome.exit_code;
}

void add_run(Parser& parser, const ProgramArguments& program) {
  const std::shared_ptr<RunArguments> options = std::make_shared<RunArguments>();
  const Command command = parser.add_command("run", "run a program under the collectors, then report on it");
  command.take_other_words();
  add_recording_options(command, *options);
  add_with_options(command, options->with);
  add_report_options(command, *options);
  command.footer(
      "Usage:    llmprof run [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
      "The program's input, output, terminal, signals and exit code are its own.\n"
      "Counters: llmprof run --with ncu --hot last -- PROGRAM [ARGUMENTS], of the kernels with most GPU time.\n"
      "Example:  llmprof run --model llama-3.1-8b -- python3 generate.py");
  command.action([options, command, &program] { return run(*options, command, program); });
}

}  // namespace llmprof::cli
