#include "cli/run_with.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/printable.h"
#include "base/shell_word.h"
#include "base/text_table.h"
#include "capture/launch/environment.h"
#include "capture/launch/program.h"
#include "cli/checks.h"
#include "cli/stored_run.h"
#include "drive/command_line.h"
#include "drive/failure.h"
#include "drive/find_tool.h"
#include "drive/hot_kernels.h"
#include "drive/run_tool.h"
#include "hardware/ncu_metrics.h"

namespace llmprof::cli {
namespace {

namespace files = std::filesystem;

constexpr const char* kNcu = "ncu";
constexpr const char* kNsys = "nsys";
constexpr int64_t kTableBytesMost = int64_t{512} << 20;  // of ncu's table: a few hundred launches have some megabytes
constexpr int64_t kReportBytesMost = int64_t{16} << 30;
constexpr size_t kLinesShown = 8;

tl::unexpected<Error> with_usage(std::string what, std::string advice) {
  return fail(std::move(what), {}, std::move(advice), ExitCode::kUsage);
}

void say_with(const WithRun& run, const std::string& text) {
  if (!run.output.quiet) complain(text);
}

std::string text_of_file(const std::string& path) {
  constexpr std::streamsize kHeadAndTail = 1 << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamsize size = file ? static_cast<std::streamsize>(file.tellg()) : 0;
  if (size <= 0) return {};
  const std::streamsize from = std::max<std::streamsize>(0, size - kHeadAndTail);
  std::string out(static_cast<size_t>(size - from), '\0');
  file.seekg(from);
  file.read(out.data(), size - from);
  return out;
}

std::string product_of(const std::string& tool) { return tool == kNcu ? "Nsight Compute" : "Nsight Systems"; }

// ---- where the tool writes -----------------------------------------------------------------------------------------

// A new folder, or the empty one that was named.
Result<std::string> folder_for(const WithRun& run) {
  std::error_code error;
  files::path folder = run.folder;
  if (folder.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    std::array<char, 32> stamp{};
    std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &local);
    const std::string name =
        fmt::format("llmprof-runs/{}-{}-{}", launch::short_name(run.command), stamp.data(), run.with.tool);
    folder = name;
    for (int i = 2; files::exists(folder, error); ++i) folder = fmt::format("{}-{}", name, i);
  }
  const std::string path = files::absolute(folder, error).lexically_normal().string();
  files::create_directories(path, error);
  if (error) return fail("cannot create the folder: " + error.message(), path, "name another with -o");
  if (!files::is_empty(path, error) || error)
    return fail("expected a new or empty folder, found one with files in it", path, "name another with -o");
  return path;
}

// The run's folder of the store, or one of the file system where nothing is kept there.
Result<std::string> begin_folder(const WithRun& run, StoredRun& stored) {
  RunManifest& manifest = stored.manifest();
  manifest.name = run.name.empty() ? launch::short_name(run.command) : run.name;
  if (run.folder.empty() && stored.wanted() && stored.settings().recordings)
    if (const std::optional<std::string> folder = stored.begin()) return *folder;
  LLMPROF_ASSIGN(std::string folder, folder_for(run));
  stored.begin();
  return folder;
}

// ---- the tool ------------------------------------------------------------------------------------------------------

// The line, and how its output is read: for machines where llmprof does not run the tool itself.
std::string by_hand(const std::vector<std::string>& words, const std::vector<std::string>& read) {
  std::vector<std::string> line = {"llmprof", "analyze"};
  line.insert(line.end(), read.begin(), read.end());
  return shell_line(words) + "\nthen\n" + shell_line(line);
}

Error missing_tool(const WithRun& run, const drive::FoundTool& found, const std::string& line) {
  std::string where;
  for (const std::string& place : found.looked_in) where += (where.empty() ? "" : ", ") + place;
  return {fmt::format("expected {} ({}), found none", run.with.tool, product_of(run.with.tool)), where,
          fmt::format("install {} or put it on PATH; or on a machine that has it, run\n{}", product_of(run.with.tool),
                      line),
          ExitCode::kFailed};
}

Result<launch::TargetEnvironment> environment_for(const WithRun& run) {
  launch::TargetEnvironment environment = launch::plain_environment(environ);
  for (const std::string& text : environment.notices) say_with(run, "notice: " + text);
  return environment;
}

void say_stopped(const WithRun& run, const drive::ToolOutcome& outcome, const std::string& file) {
  if (outcome.out_of_time)
    say_with(run, fmt::format("notice: the {} s of --budget-s are over: the program was stopped; what {} had until "
                              "then is read",
                              run.with.budget_s, run.with.tool));
  if (outcome.out_of_room)
    say_with(run, fmt::format("notice: {} has grown beyond {}: the program was stopped", file,
                              format_bytes(static_cast<double>(
                                  std::string_view(run.with.tool) == kNcu ? kTableBytesMost : kReportBytesMost))));
}

void say_kept(const WithRun& run, const char* what, const std::string& path, const StoredRun& stored) {
  const std::string name = stored.name();
  say_with(run, fmt::format("{}: {}{}", what, printable(path), name.empty() ? "" : "  (" + name + ")"));
}

// Why there is nothing to read, by what the tool wrote.
Error failed_tool(const WithRun& run, const drive::ToolOutcome& outcome, const std::string& written,
                  const std::string& line) {
  const std::string output = outcome.errors + "\n" + written;
  const drive::FailureText why = drive::explain_failure(drive::failure_of(output));
  const launch::Ending& ending = outcome.ending;
  std::string what = fmt::format("expected {} of {}, found none: {} ended with {} {}",
                                 run.with.tool == kNcu ? "counters" : "a recording", run.with.tool, run.with.tool,
                                 ending.signal ? "signal" : "exit code",
                                 ending.signal ? *ending.signal : ending.exit_status.value_or(0));
  if (!why.what.empty()) what += "\n" + why.what;
  const std::string last = drive::last_lines(output, kLinesShown);
  if (!last.empty()) what += fmt::format("\nits last lines:\n{}", printable_lines(last, Charset::kUtf8));
  const std::string advice = why.advice.empty() ? "`llmprof doctor` says what works on this machine" : why.advice;
  return {what, "", advice + "\nthe line by hand:\n" + line, ExitCode::kFailed};
}

// The exit code of a run that gave a report: of the analysis, else of the program, unless it was stopped here.
int exit_code_of(const drive::ToolOutcome& outcome, int analysis) {
  if (analysis != 0) return analysis;
  return outcome.out_of_time || outcome.out_of_room ? 0 : outcome.ending.exit_code();
}

// ---- Nsight Compute ------------------------------------------------------------------------------------------------

struct NcuPlan {
  std::vector<std::string> recording;  // to join with
  std::optional<drive::HotKernels> hot;
  drive::NcuLine line;
};

// Of an analysis that was made this way, what was recorded: its counters are not those of this run.
std::vector<std::string> without_tables(std::vector<std::string> paths) {
  if (paths.size() > 1)
    std::erase_if(paths, [](const std::string& path) { return files::path(path).filename() == "ncu.csv"; });
  return paths;
}

Status choose_kernels(const WithRun& run, NcuPlan& plan) {
  LLMPROF_ASSIGN(Trace trace, import_files(plan.recording));
  LLMPROF_CHECK(derive(trace, run.derive));
  LLMPROF_ASSIGN(plan.hot, drive::find_hot_kernels(trace, {static_cast<size_t>(run.with.kernels), run.with.range}));
  return {};
}

Status complete_line(const WithRun& run, NcuPlan& plan) {
  const int32_t major = plan.hot ? plan.hot->compute_major : -1;
  drive::NcuLine& line = plan.line;
  line.command = run.command;
  line.range = run.with.range;
  if (plan.hot) {
    for (const drive::HotKernel& kernel : plan.hot->kernels) line.functions.push_back(kernel.function);
    line.launch_skip = plan.hot->launch_skip;
    line.launch_count = plan.hot->launch_count;
    for (const std::string& text : plan.hot->remarks) say_with(run, "notice: " + printable(text));
  } else {
    line.launch_count = drive::kLaunchesMost;
  }
  if (run.with.metrics.empty()) {
    line.metrics = ncu_report_metrics(major);
    return {};
  }
  LLMPROF_ASSIGN(ChosenMetrics chosen, choose_ncu_metrics(run.with.metrics, major));
  for (const std::string& text : chosen.replaced) say_with(run, "notice: " + text);
  const std::string duration = "gpu__time_duration.sum";  // without it nothing has a rate
  if (std::find(chosen.names.begin(), chosen.names.end(), duration) == chosen.names.end())
    chosen.names.insert(chosen.names.begin(), duration);
  line.metrics = std::move(chosen.names);
  return {};
}

void say_plan(const WithRun& run, const NcuPlan& plan) {
  if (!plan.hot) return;
  double share = 0;
  for (const drive::HotKernel& kernel : plan.hot->kernels) share += kernel.share;
  say_with(run,
           fmt::format("ncu: {} kernels with {:.1f} % of the kernels' time, {} launches of them after the first {}",
                       plan.hot->kernels.size(), 100 * share, plan.hot->launch_count, plan.hot->launch_skip));
  for (const drive::HotKernel& kernel : plan.hot->kernels)
    say_with(run, fmt::format("  {:5.1f} %  {}  (x{})", 100 * kernel.share, printable(kernel.function), kernel.caught));
}

int report_counters(const WithRun& run, const NcuPlan& plan, StoredRun& stored) {
  std::vector<std::string> paths = plan.recording;
  paths.push_back(plan.line.log);
  for (const std::string& path : paths) {
    std::error_code failed;
    stored.manifest().inputs.push_back(files::absolute(path, failed).lexically_normal().string());
  }
  Result<Trace> trace = import_files(paths);
  if (!trace) return report_error(trace.error());
  AnalyzeOptions analyze = run.analyze;
  add_ceilings_of(run.ceilings, plan.recording, analyze);
  constexpr size_t kTextRows = 12;  // as `llmprof analyze` does
  analyze.top = run.top.value_or(run.output.is_text() ? kTextRows : 0);
  OutputOptions output = run.output;
  output.tables = run.top.has_value();
  output.profiled = true;
  return analyze_and_print(*trace, run.derive, analyze, output, &stored);
}

void keep_line(const std::string& folder, const std::vector<std::string>& words) {
  std::ofstream(folder + "/command.txt") << shell_line(words) << "\n";
}

// The line where nothing is run: for a machine that has the tool, or with --print.
std::string ncu_by_hand(const NcuPlan& plan, bool own_log = false) {
  std::vector<std::string> read = plan.recording;
  drive::NcuLine line = plan.line;
  if (!own_log) line.log = "ncu.csv";
  read.push_back(line.log);
  return by_hand(drive::ncu_words(line), read);
}

// The program under llmprof's own recorder, to know its kernels: the plan's recording, or the exit code that it failed
// with.
Result<int> record_first(const WithRun& run, const std::string& folder, NcuPlan& plan) {
  say_with(run, "ncu: recording the program first, to know its kernels; --hot RECORDING takes an earlier one");
  // Both runs must find the same input; a pipe cannot be read twice.
  const off_t input_at = lseek(STDIN_FILENO, 0, SEEK_CUR);
  if (input_at < 0 && isatty(STDIN_FILENO) == 0)
    say_with(run, "notice: standard input is a pipe: the recorded run reads it, that under ncu finds it at its end");
  LLMPROF_ASSIGN(const RecordedProgram recorded, run.record(folder));
  if (input_at >= 0) lseek(STDIN_FILENO, input_at, SEEK_SET);
  if (recorded.interrupted || recorded.exit_code != 0) {
    say_with(run, fmt::format("the recorded run ended with {}: ncu is not started", recorded.exit_code));
    return recorded.exit_code;
  }
  plan.recording = {recorded.folder};
  return 0;
}

Result<int> run_ncu(const WithRun& run, StoredRun& stored) {
  NcuPlan plan;
  if (!run.with.metrics.empty()) LLMPROF_CHECK(choose_ncu_metrics(run.with.metrics, -1));  // before anything is run
  const drive::FoundTool found = drive::find_tool(kNcu);
  plan.line.tool = found.path.empty() ? kNcu : found.path;
  if (!run.with.hot.empty()) {
    LLMPROF_ASSIGN(std::vector<std::string> paths, recordings_named(run.with.hot));
    plan.recording = without_tables(std::move(paths));
    LLMPROF_CHECK(choose_kernels(run, plan));
  }
  const bool records = plan.recording.empty() && !run.with.print && !found.path.empty();
  if (run.with.print && plan.recording.empty())
    say_with(run, "notice: without --hot RECORDING the line names no kernels: it takes the first launches of all");
  if (!records) LLMPROF_CHECK(complete_line(run, plan));
  if (run.with.print) {
    if (!run.folder.empty()) plan.line.log = run.folder + "/ncu.csv";
    LLMPROF_CHECK(write_output(ncu_by_hand(plan, !run.folder.empty()) + "\n", {}));
    return 0;
  }
  if (found.path.empty()) return tl::unexpected<Error>(missing_tool(run, found, ncu_by_hand(plan)));
  LLMPROF_CHECK(launch::find_program(run.command.front(), std::getenv("PATH")));
  std::string folder;
  if (records) {
    // Its folder comes first where -o names one: what is wrong with that must be said before the program has run.
    if (!run.folder.empty()) {
      LLMPROF_ASSIGN(folder, folder_for(run));
    }
    LLMPROF_ASSIGN(const int failed, record_first(run, folder.empty() ? "" : folder + "/recording", plan));
    if (plan.recording.empty()) return failed;
    LLMPROF_CHECK(choose_kernels(run, plan));
    LLMPROF_CHECK(complete_line(run, plan));
  }
  if (folder.empty()) {
    LLMPROF_ASSIGN(folder, begin_folder(run, stored));
  } else {
    stored.manifest().name = run.name.empty() ? launch::short_name(run.command) : run.name;
    stored.begin();
  }
  plan.line.log = folder + "/ncu.csv";
  const std::vector<std::string> words = drive::ncu_words(plan.line);
  say_plan(run, plan);
  say_with(run, "ncu: " + shell_line(words));
  keep_line(folder, words);
  LLMPROF_ASSIGN(const launch::TargetEnvironment environment, environment_for(run));
  LLMPROF_ASSIGN(const drive::ToolOutcome outcome,
                 drive::run_tool({words, environment.entries, plan.line.log, run.with.budget_s, kTableBytesMost}));
  say_stopped(run, outcome, plan.line.log);
  stored.manifest().exit_code = outcome.ending.exit_code();
  if (!import_files({plan.line.log}))
    return tl::unexpected<Error>(failed_tool(run, outcome, text_of_file(plan.line.log), ncu_by_hand(plan)));
  int code = 0;
  if (!run.no_report) code = report_counters(run, plan, stored);
  say_kept(run, "counters", plan.line.log, stored);
  return exit_code_of(outcome, code);
}

// ---- Nsight Systems ------------------------------------------------------------------------------------------------

int report_nsys(const WithRun& run, const std::string& path, StoredRun& stored) {
  Result<Trace> trace = import_files({path});
  if (!trace) return report_error(trace.error());
  AnalyzeOptions analyze = run.analyze;
  add_ceilings_of(run.ceilings, {path}, analyze);
  constexpr size_t kTextRows = 12;
  analyze.top = run.top.value_or(run.output.is_text() ? kTextRows : 0);
  OutputOptions output = run.output;
  output.tables = run.top.has_value();
  return analyze_and_print(*trace, run.derive, analyze, output, &stored);
}

Result<int> run_nsys(const WithRun& run, StoredRun& stored) {
  const drive::FoundTool found = drive::find_tool(kNsys);
  drive::NsysLine line;
  line.tool = found.path.empty() ? kNsys : found.path;
  line.delay_s = run.delay_s;
  line.duration_s = run.duration_s;
  line.command = run.command;
  line.output = run.folder.empty() ? "nsys" : run.folder + "/nsys";
  LLMPROF_ASSIGN(const launch::TargetEnvironment environment, environment_for(run));
  if (!found.path.empty() && !run.with.print) {
    line.abilities = drive::nsys_abilities(drive::output_of({found.path, "profile", "--help"}, environment.entries));
    if (!line.abilities.read)
      say_with(run, "notice: what this nsys can do could not be read off `nsys profile --help`: it is taken to be new");
  }
  const auto line_by_hand = [&] { return by_hand(drive::nsys_words(line), {line.output + ".sqlite"}); };
  if (run.with.print) {
    LLMPROF_CHECK(write_output(line_by_hand() + "\n", {}));
    return 0;
  }
  if (found.path.empty()) return tl::unexpected<Error>(missing_tool(run, found, line_by_hand()));
  LLMPROF_CHECK(launch::find_program(run.command.front(), std::getenv("PATH")));
  LLMPROF_ASSIGN(const std::string folder, begin_folder(run, stored));
  line.output = folder + "/nsys";
  const std::string recording = line.output + ".sqlite";
  const bool inside = run.folder.empty() && stored.wanted() && stored.settings().recordings;
  stored.manifest().recording = inside ? "nsys.sqlite" : recording;
  const std::vector<std::string> words = drive::nsys_words(line);
  say_with(run, "nsys: " + shell_line(words));
  keep_line(folder, words);
  LLMPROF_ASSIGN(const drive::ToolOutcome outcome,
                 drive::run_tool({words, environment.entries, line.output, run.with.budget_s, 0}));
  say_stopped(run, outcome, line.output);
  stored.manifest().exit_code = outcome.ending.exit_code();
  if (access(recording.c_str(), R_OK) != 0) {
    line.output = "nsys";  // the run's folder goes
    return tl::unexpected<Error>(failed_tool(run, outcome, {}, line_by_hand()));
  }
  int code = 0;
  if (!run.no_report) code = report_nsys(run, recording, stored);
  say_kept(run, "recording", recording, stored);
  return exit_code_of(outcome, code);
}

}  // namespace

void add_with_options(const Command& command, WithOptions& options) {
  const std::string group = "Other profilers";
  command
      .option("--with", options.tool,
              "run the program under ncu (Nsight Compute: hardware counters of its hot kernels) or nsys (Nsight "
              "Systems), and report on what that gives")
      .type_name("TOOL")
      .check(one_of({kNcu, kNsys}))
      .group(group);
  command
      .option("--hot", options.hot,
              "with ncu: the recording whose kernels with most GPU time are profiled: last, a number or a name of "
              "llmprof runs, a folder or a file (default: one is made first)")
      .type_name("RUN|PATH")
      .group(group);
  command.option("--kernels", options.kernels, "with ncu: how many kernels")
      .type_name("N")
      .check(whole_number(1, 100))
      .capture_default()
      .group(group);
  command.option("--range", options.range, "with ncu: only launches inside NVTX ranges with this text")
      .type_name("TEXT")
      .group(group);
  command
      .option("--metrics", options.metrics,
              "with ncu: these instead of those that the report is made of; names of nvprof and older ones are known")
      .type_name("NAME[,NAME]")
      .group(group);
  command
      .option("--budget-s", options.budget_s,
              "stop the program under the other profiler after S seconds, and read what there is")
      .type_name("S")
      .check(decimal_number(0.1, 1e6))
      .group(group);
  command.flag("--print", options.print, "print the other profiler's command line and run nothing").group(group);
}

Status check_with_options(const Command& command, const WithOptions& options) {
  const auto given = [&](const char* name) { return command.declared(name).count() > 0; };
  if (options.tool.empty()) {
    for (const char* name : {"--hot", "--kernels", "--range", "--metrics", "--budget-s", "--print"})
      if (given(name))
        return with_usage(std::string(name) + " is about another profiler: expected --with beside it, found none",
                          std::string("llmprof run --with ncu ") + name + " ... -- COMMAND");
    return {};
  }
  const bool ncu = options.tool == kNcu;
  for (const char* name : {"--mode", "--capture-range", "--steps", "--armed", "--torch", "--baseline",
                           "--unrecorded-windows", "--budget", "--no-adapt", "--counters", "--counter-interval-us"})
    if (given(name))
      return with_usage(
          fmt::format("{} is about llmprof's own recorder, which is not in a program under {}", name, options.tool),
          ncu ? "record first:  llmprof run " + std::string(name) +
                    " ... -- COMMAND,  then  llmprof run --with ncu --hot last -- COMMAND"
              : "leave it out");
  for (const char* name : {"--hot", "--kernels", "--range", "--metrics"})
    if (!ncu && given(name))
      return with_usage(std::string(name) + " is about single kernels, which nsys does not profile",
                        std::string("llmprof run --with ncu ") + name + " ... -- COMMAND, or leave it out");
  for (const char* name : {"--delay", "--duration"})
    if (ncu && given(name))
      return with_usage(std::string(name) + " is about time, and ncu counts launches",
                        "--budget-s S stops the program after S seconds; --range TEXT profiles inside NVTX ranges");
  return {};
}

int run_with_tool(const WithRun& run) {
  const bool ncu = run.with.tool == kNcu;
  StoredRun stored(ncu ? RunKind::kAnalysis : RunKind::kRun, !run.no_store && !run.with.print, run.output.quiet);
  const Result<int> done = ncu ? run_ncu(run, stored) : run_nsys(run, stored);
  if (!done) {
    stored.drop();
    return report_error(done.error());
  }
  if (stored.manifest().number > 0) stored.keep();
  return *done;
}

}  // namespace llmprof::cli
