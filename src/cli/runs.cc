// `llmprof runs list|show|open|pin|unpin|prune|verify`: the run store.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/nearest.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "store/manifest.h"
#include "store/retention.h"
#include "store/settings.h"
#include "store/store.h"
#include "store/verify.h"

namespace llmprof::cli {
namespace {

struct RunsArguments {
  std::string what;
  std::vector<std::string> runs;
  std::string kind;
  std::optional<size_t> top;
  bool dry_run = false;
  OutputOptions output;
};

struct RunsAction {
  const char* name;
  size_t least, most;  // runs behind it
  Result<int> (*act)(const RunsArguments&, const std::string& store, const std::vector<RunRow>& runs);
};

Result<std::vector<RunRow>> chosen(const RunsArguments& options, const std::vector<RunRow>& runs) {
  std::vector<RunRow> out;
  for (const std::string& word : options.runs) {
    LLMPROF_ASSIGN(RunRow row, store::find_run(runs, word));
    out.push_back(std::move(row));
  }
  return out;
}

Result<int> list(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs) {
  RunList result;
  result.folder = store;
  for (const RunRow& row : runs) {
    result.stored_bytes += row.stored_bytes;
    if (options.kind.empty() || (name_of(row.kind) == options.kind && row.state != RunState::kDamaged))
      result.runs.push_back(row);
  }
  if (options.top && *options.top > 0 && result.runs.size() > *options.top) result.runs.resize(*options.top);
  LLMPROF_CHECK(write_result(result, options.output));
  return 0;
}

Result<int> show(const RunsArguments& options, const std::string&, const std::vector<RunRow>& runs) {
  LLMPROF_ASSIGN(const RunRow row, store::find_run(runs, options.runs.empty() ? "last" : options.runs.front()));
  LLMPROF_ASSIGN(RunManifest manifest, store::read_manifest(row.folder));
  LLMPROF_CHECK(write_result(RunShown{std::move(manifest), row.folder}, options.output));
  return 0;
}

// Runs that something was done with, for programs: as `list` has them.
Status write_rows(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& rows) {
  RunList result;
  result.folder = store;
  for (const RunRow& row : rows) result.stored_bytes += row.stored_bytes;
  result.runs = rows;
  return write_result(result, options.output);
}

Result<int> open_path(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs) {
  LLMPROF_ASSIGN(const RunRow row, store::find_run(runs, options.runs.empty() ? "last" : options.runs.front()));
  LLMPROF_CHECK(options.output.is_text() ? write_output(row.folder + "\n", options.output.path)
                                         : write_rows(options, store, {row}));
  return 0;
}

Result<int> set_pin(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs,
                    bool pinned) {
  LLMPROF_ASSIGN(std::vector<RunRow> rows, chosen(options, runs));
  std::string page;
  for (RunRow& row : rows) {
    LLMPROF_CHECK(store::pin_run(row, pinned));
    row.pinned = pinned;
    page += fmt::format("run {} is {}\n", row.number, pinned ? "pinned" : "not pinned");
  }
  LLMPROF_CHECK(options.output.is_text() ? write_page(page, options.output.style(), options.output.path)
                                         : write_rows(options, store, rows));
  return 0;
}
Result<int> pin(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs) {
  return set_pin(options, store, runs, true);
}
Result<int> unpin(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs) {
  return set_pin(options, store, runs, false);
}

// Those that were named, whatever retention says of them.
Result<PrunedRuns> remove_named(const RunsArguments& options, const std::string& store,
                                const std::vector<RunRow>& runs) {
  LLMPROF_ASSIGN(const std::vector<RunRow> rows, chosen(options, runs));
  PrunedRuns result;
  result.dry_run = options.dry_run;
  for (const RunRow& row : runs) result.before_bytes += row.stored_bytes;
  int64_t left = result.before_bytes;
  for (const RunRow& row : rows)
    if (row.pinned || row.state == RunState::kRunning)
      return fail(fmt::format("expected runs that may be removed, found one that is {}",
                              row.pinned ? "pinned" : "still going on"),
                  fmt::format("run {}", row.number),
                  row.pinned ? fmt::format("llmprof runs unpin {}", row.number) : "wait for its end", ExitCode::kUsage);
  for (const RunRow& row : rows) {
    RetentionStep& step = result.steps.emplace_back();
    step = {row.number, row.kind, row.name, RetentionAction::kRemove, "named", row.stored_bytes, {}};
    if (options.dry_run) continue;
    if (const Status removed = store::remove_run(store, row); !removed)
      step.failed = removed.error().what;
    else
      left -= row.stored_bytes;
  }
  if (!options.dry_run) result.after_bytes = left;
  return result;
}

Result<int> prune(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs) {
  LLMPROF_ASSIGN(const store::Settings settings, store::read_settings(store));
  PrunedRuns result;
  if (options.runs.empty()) {
    if (!runs.empty()) {
      LLMPROF_ASSIGN(result, store::apply_retention(store, settings, options.dry_run));
    }
    result.dry_run = options.dry_run;
  } else {
    LLMPROF_ASSIGN(result, remove_named(options, store, runs));
  }
  LLMPROF_CHECK(write_result(result, options.output));
  const bool failed = std::any_of(result.steps.begin(), result.steps.end(),
                                  [](const RetentionStep& step) { return !step.failed.empty(); });
  return static_cast<int>(failed ? ExitCode::kFailed : ExitCode::kOk);
}

Result<int> verify(const RunsArguments& options, const std::string& store, const std::vector<RunRow>& runs) {
  LLMPROF_ASSIGN(const std::vector<RunRow> rows, chosen(options, runs));
  std::vector<int64_t> numbers;
  for (const RunRow& row : rows) numbers.push_back(row.number);
  LLMPROF_ASSIGN(const VerifiedRuns result, store::verify_runs(store, numbers));
  LLMPROF_CHECK(write_result(result, options.output));
  const bool damage = !result.problems.empty() && result.problems.front().damage;
  return static_cast<int>(damage ? ExitCode::kFailed : ExitCode::kOk);
}

constexpr RunsAction kActions[] = {
    {"list", 0, 0, list},
    {"show", 0, 1, show},
    {"open", 0, 1, open_path},
    {"pin", 1, SIZE_MAX, pin},
    {"unpin", 1, SIZE_MAX, unpin},
    {"prune", 0, SIZE_MAX, prune},
    {"verify", 0, SIZE_MAX, verify},
};

Result<int> act(const RunsArguments& options) {
  std::vector<std::string> names;
  const RunsAction* action = nullptr;
  for (const RunsAction& one : kActions) {
    names.emplace_back(one.name);
    if (options.what == one.name) action = &one;
  }
  if (action == nullptr)
    return fail("expected " + join_or(names) + ", found \"" + options.what + "\"", {},
                "llmprof runs " + nearest_or_all(options.what, names), ExitCode::kUsage);
  if (options.runs.size() < action->least)
    return fail(fmt::format("expected a run behind {}, found nothing", options.what), {},
                fmt::format("llmprof runs {} last", options.what), ExitCode::kUsage);
  if (options.runs.size() > action->most)
    return fail(fmt::format("expected {} behind {}, found \"{}\"", action->most == 0 ? "nothing" : "one run",
                            options.what, options.runs.back()),
                {}, fmt::format("llmprof runs {}", options.what), ExitCode::kUsage);
  if (options.dry_run && options.what != "prune")
    return fail("--dry-run goes with `llmprof runs prune` only", {}, "llmprof runs prune --dry-run", ExitCode::kUsage);
  if ((!options.kind.empty() || options.top) && options.what != "list")
    return fail("--kind and --top go with `llmprof runs list` only", {}, "llmprof runs list", ExitCode::kUsage);
  const std::string store = store::store_folder();
  if (store.empty())
    return fail("expected a run store, found none: LLMPROF_STORE is off, or neither it nor HOME is set", {},
                "LLMPROF_STORE=FOLDER llmprof runs " + options.what, ExitCode::kUsage);
  LLMPROF_ASSIGN(const std::vector<RunRow> runs, store::list_runs(store));
  return action->act(options, store, runs);
}

}  // namespace

void add_runs(Parser& parser) {
  const std::shared_ptr<RunsArguments> options = std::make_shared<RunsArguments>();
  const Command command = parser.add_command("runs", "what is kept of earlier runs: list, show, pin, prune, verify");
  command.option("WHAT", options->what, "list, show, open (prints the folder), pin, unpin, prune, or verify")
      .required()
      .type_name("");
  command.option("RUN", options->runs, "a number, a name or `last`; prune: removes these").type_name("");
  command.option("--kind", options->kind, "list: only these").check(one_of({"run", "bench", "peaks", "analysis"}));
  command.option("--top", options->top, "list: only the newest N")
      .check(whole_number(0, int64_t{1} << 40))
      .type_name("N");
  command.flag("--dry-run", options->dry_run, "prune: say what would be compressed and removed, and change nothing");
  add_output_options(command, options->output, CsvOutput::kFile);
  command.footer(
      "The store is $LLMPROF_STORE (off: none), else ~/.local/state/llmprof/runs. Its settings.json, or variables, "
      "say\n"
      "what is kept:  keep (LLMPROF_STORE_KEEP) 5 runs of each kind as they are, keep_compressed 15 more compressed,\n"
      "total_gb 20 in all; run_gb 2 of one recording; compress_from_kb 64; recordings: store, or here "
      "(./llmprof-runs).\n"
      "Example:  llmprof runs list");
  command.action([options] {
    const Result<int> code = act(*options);
    return code ? *code : report_error(code.error());
  });
}

}  // namespace llmprof::cli
