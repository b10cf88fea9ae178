// `llmprof diff A B [C...]`: what differs between runs, whether that is more than runs differ by anyway, and why.
#include "diff/diff.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "bench/compare.h"
#include "bench/results_file.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/measuring.h"
#include "cli/other_file.h"
#include "cli/pipeline.h"
#include "cli/stored_run.h"

namespace llmprof::cli {
namespace {

// What --fail-on asks for is neither kept nor broken: repeats would tell.
constexpr int kAmbiguousExit = 5;

struct DiffArguments {
  std::vector<std::string> sides;
  std::vector<std::string> fail_on;
  StageOptions stages;
  CeilingsOption ceilings;
  OutputOptions output;
};

// The words of a side: a file that exists is itself, else commas part repeats.
std::vector<std::string> words_of(const std::string& side) {
  std::error_code failed;
  if (std::filesystem::exists(side, failed)) return {side};
  std::vector<std::string> out;
  for (size_t from = 0; from <= side.size();) {
    const size_t comma = std::min(side.find(',', from), side.size());
    out.push_back(side.substr(from, comma - from));
    from = comma + 1;
  }
  return out;
}

bool is_bench(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed) && bench::read_results(path).has_value();
}

// What is made first where tables go into the folder `path`, whose folders are made with it.
std::string first_made(const std::string& path) {
  std::error_code failed;
  std::filesystem::path first = path;
  while (first.has_parent_path() && first != first.parent_path() &&
         !std::filesystem::exists(first.parent_path(), failed))
    first = first.parent_path();
  return first.string();
}

// The same file twice compares nothing; by what it is, not by how it is named.
Status refuse_twice(const std::vector<std::vector<std::string>>& sides) {
  std::set<std::string> seen;
  for (const std::vector<std::string>& side : sides)
    for (const std::string& path : side) {
      std::error_code failed;
      const std::filesystem::path whole = std::filesystem::weakly_canonical(path, failed);
      if (!failed && !seen.insert(whole.string()).second)
        return fail("expected different recordings, found one of them twice", path, "name another run",
                    ExitCode::kUsage);
    }
  return {};
}

// Two results of `llmprof bench`: that command's own comparison.
Result<int> compare_bench(const DiffArguments& options, const std::vector<std::string>& paths) {
  if (paths.size() != 2)
    return fail(fmt::format("expected two results of llmprof bench, found {}", paths.size()), paths.back(),
                "llmprof diff OLD.json NEW.json", ExitCode::kUsage);
  LLMPROF_ASSIGN(const bench::ResultsFile before, bench::read_results(paths[0]));
  LLMPROF_ASSIGN(const bench::ResultsFile now, bench::read_results(paths[1]));
  Result<bench::FailOn> gate = bench::parse_fail_on(options.fail_on);
  if (!gate) {
    gate.error().advice += "; these are results of llmprof bench, which have no TTFT and no TPOT";
    return tl::unexpected<Error>(gate.error());
  }
  const bench::ComparisonResult result{bench::compare_results(before, now),
                                       bench::changed_facts(before.facts, now.facts)};
  LLMPROF_CHECK(write_result(result, options.output));
  const std::string why = bench::tripped(*gate, result.rows, now.records);
  if (why.empty()) return 0;
  if (!options.output.quiet) complain(why);
  return static_cast<int>(ExitCode::kGateTripped);
}

class SideReader {
 public:
  SideReader(const DiffArguments& options, DeriveOptions derive) : options_(options), derive_(std::move(derive)) {}

  Status prepare() { return choose_ceilings(options_.ceilings, analyze_); }

  Result<diff::Run> read(const std::string& word) {
    LLMPROF_ASSIGN(const std::vector<std::string> paths, recordings_named(word));
    add_ceilings_of(options_.ceilings, paths, analyze_);
    Result<Trace> trace = import_files(paths);
    if (!trace) return tl::unexpected<Error>(name_other_file(paths.front(), trace.error()));
    LLMPROF_CHECK(check_reportable(*trace));
    LLMPROF_CHECK(derive(*trace, derive_));
    if (!options_.output.quiet) warn_of_damage(*trace);
    damaged_ |= trace->diagnostics.has(Severity::kError);
    diff::Run run;
    run.name = word;
    run.trace = *std::move(trace);
    LLMPROF_ASSIGN(run.report, analyze(run.trace, analyze_));
    return run;
  }
  bool damaged() const { return damaged_; }

 private:
  const DiffArguments& options_;
  DeriveOptions derive_;
  AnalyzeOptions analyze_;
  bool damaged_ = false;
};

int exit_code_of(const DiffResult& result, bool damaged) {
  bool ambiguous = false;
  for (const DiffGate& gate : result.gates) {
    if (gate.state == GateState::kBroken) return static_cast<int>(ExitCode::kGateTripped);
    ambiguous |= gate.state == GateState::kAmbiguous;
  }
  if (ambiguous) return kAmbiguousExit;
  return static_cast<int>(damaged ? ExitCode::kInputErrors : ExitCode::kOk);
}

// On standard error, so that a log of CI says it whatever becomes of the page.
void say_gates(const DiffResult& result) {
  for (const DiffGate& gate : result.gates)
    if (gate.state != GateState::kHolds)
      complain(fmt::format("--fail-on {}: {}: {}", gate.expression, name_of(gate.state), gate.reason));
}

Result<int> run_recordings(const DiffArguments& options, const std::vector<std::vector<std::string>>& words) {
  LLMPROF_ASSIGN(const std::vector<diff::Gate> gates, diff::parse_gates(options.fail_on));
  LLMPROF_ASSIGN(DeriveOptions derive, derive_options_of(options.stages));
  SideReader reader(options, std::move(derive));
  LLMPROF_CHECK(reader.prepare());
  std::vector<diff::Side> sides;
  for (const std::vector<std::string>& side : words) {
    diff::Side& runs = sides.emplace_back();
    for (const std::string& word : side) {
      LLMPROF_ASSIGN(diff::Run run, reader.read(word));
      runs.push_back(std::move(run));
    }
  }
  const DiffResult result = diff::diff(sides, gates);
  LLMPROF_CHECK(write_result(result, options.output));
  if (!options.output.quiet) say_gates(result);
  return exit_code_of(result, reader.damaged());
}

Result<int> run_diff(const DiffArguments& options) {
  if (options.sides.size() < 2)
    return fail(fmt::format("expected two sides or more, found {}", options.sides.size()),
                options.sides.empty() ? "" : options.sides.front(),
                "llmprof diff BEFORE AFTER; repeats of one side are joined by commas: A1,A2 B1,B2", ExitCode::kUsage);
  LLMPROF_CHECK(check_folder(options.output, "llmprof diff BEFORE AFTER --format csv -o diff"));
  std::vector<std::vector<std::string>> words, files;
  std::vector<std::string> all, results;
  size_t runs = 0;
  for (const std::string& side : options.sides) {
    words.push_back(words_of(side));
    std::vector<std::string>& paths = files.emplace_back();
    for (const std::string& word : words.back()) {
      if (word.empty())
        return fail("expected a recording or a run between commas, found nothing", side, "A1,A2 for two repeats",
                    ExitCode::kUsage);
      if (word == "-")
        return fail("expected recordings in files, found standard input", "-", "write it to a file first",
                    ExitCode::kUsage);
      ++runs;
      Result<std::vector<std::string>> named = recordings_named(word);
      const Result<std::string> result = named ? named->front() : bench_named(word);
      if (result && is_bench(*result)) {
        results.push_back(*result);
        paths.push_back(*result);
        continue;
      }
      if (!named) return tl::unexpected<Error>(named.error());
      paths.insert(paths.end(), named->begin(), named->end());
    }
    all.insert(all.end(), paths.begin(), paths.end());
  }
  LLMPROF_CHECK(refuse_overwriting("-o", options.output.path, all));
  LLMPROF_CHECK(refuse_twice(files));
  // Large recordings take a while: what cannot be written is said before.
  const bool tables = options.output.effective_format() == "csv" && results.empty();
  LLMPROF_CHECK(check_writable(tables ? first_made(options.output.path) : options.output.path));
  if (!results.empty() && results.size() < runs)
    return fail("expected sides of one kind, found results of llmprof bench beside recordings", results.front(),
                "compare two of either", ExitCode::kUsage);
  return results.empty() ? run_recordings(options, words) : compare_bench(options, results);
}

}  // namespace

void add_diff(Parser& parser) {
  const std::shared_ptr<DiffArguments> options = std::make_shared<DiffArguments>();
  const Command command = parser.add_command(
      "diff", "compare runs: faster, slower or the same, by how much more than runs differ anyway, and why");
  command
      .option(
          "SIDE", options->sides,
          "two or more: a recording, a run of the store (its number, its name, last) or several of them with commas, "
          "which are repeats; or two results of llmprof bench. Every other side is compared with the first")
      .required()
      .type_name("PATH");
  command
      .option("--fail-on", options->fail_on,
              "exit code 4 where METRIC (ttft, tpot, rate) or, with slower:N%, any stage is worse by more than N %, 5 "
              "where that is not decided; several with commas; of bench results as llmprof bench has it")
      .type_name("METRIC>N%,...")
      .one_word();
  add_ceilings_option(command, options->ceilings);
  add_stage_options(command, options->stages);
  add_output_options(command, options->output);
  command.footer("Example:  llmprof diff before.json.gz after.json.gz --fail-on 'tpot>3%'");
  command.action([options] {
    const Result<int> code = run_diff(*options);
    return code ? *code : report_error(code.error());
  });
}

}  // namespace llmprof::cli
