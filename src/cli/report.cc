// `llmprof report RUN`: the report that was kept of a run, in any format, without its recording.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "analyze/analysis.h"
#include "base/input_file.h"
#include "base/json_document.h"
#include "base/printable.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/measuring.h"
#include "report/read_report.h"
#include "report/render.h"
#include "serve/library.h"
#include "store/manifest.h"
#include "store/settings.h"
#include "store/store.h"

namespace llmprof::cli {
namespace {

struct ReportArguments {
  std::string run;
  std::optional<size_t> top;
  OutputOptions output;
};

// A result as it was kept, and how whoever reads on names it.
struct KeptResult : serve::StoredResult {
  std::string name;                   // "run 12", or the file
  std::optional<RunRow> run;          // of the store
  std::optional<std::string> source;  // what `llmprof analyze` would read: the run's number, if it has a recording
};

bool is_folder(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_directory(path, failed);
}

// Only what llmprof has written: html and json take it as it is.
Status check_report(const std::string& json, const std::string& path) {
  const std::string advice = "llmprof analyze " + path + " reads a recording; llmprof runs list shows what was kept";
  const Result<JsonDocument> document = JsonDocument::parse(json);
  if (!document)
    return fail("expected a report that llmprof has written as JSON: " + document.error().what, path, advice);
  const std::optional<std::string_view> schema = document->root()["schema"].text();
  if (schema && schema->starts_with("llmprof.report/")) return {};
  return fail("expected a report that llmprof has written as JSON, found " +
                  (schema ? "schema " + printable(*schema) : std::string("JSON without a schema")),
              path, advice);
}

// A report.json by itself, as --json has written it.
Result<KeptResult> kept_in_file(const std::string& path) {
  LLMPROF_ASSIGN(InputFile file, InputFile::open(path));
  KeptResult out;
  out.name = path;
  out.kind = "report";
  LLMPROF_ASSIGN(out.json, file.read_all(serve::kResultBytesMost, "a report"));
  if (file.damaged()) return fail("expected a whole file, found a damaged one: " + file.damage(), path);
  LLMPROF_CHECK(check_report(out.json, path));
  return out;
}

Result<KeptResult> kept_of_run(const std::string& store, const RunRow& row, const std::string& word) {
  const serve::StoreLibrary library(store);
  LLMPROF_ASSIGN(const RunManifest manifest, store::read_manifest(row.folder));
  KeptResult out;
  out.name = fmt::format("run {}", row.number);
  out.run = row;
  if (manifest.recording || !manifest.inputs.empty()) out.source = std::to_string(row.number);
  Result<serve::StoredResult> kept = library.result(row.number, true);
  if (!kept)
    return fail(fmt::format("expected a run with a result, found run {}: {}", row.number, kept.error().what), word,
                out.source ? "llmprof analyze " + *out.source + " reads its recording"
                           : "llmprof runs show " + std::to_string(row.number));
  static_cast<serve::StoredResult&>(out) = *std::move(kept);
  return out;
}

// A file or folder that exists is itself: a folder is that of a run, or one with a report.json.
Result<KeptResult> kept_at(const std::string& path) {
  if (!is_folder(path)) return kept_in_file(path);
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::canonical(path, failed);
  if (!failed && access((whole / store::kManifestName).c_str(), F_OK) == 0 &&
      store::number_of_folder(whole.filename().string())) {
    LLMPROF_ASSIGN(const RunManifest manifest, store::read_manifest(whole.string()));
    return kept_of_run(whole.parent_path().string(), store::row_of(manifest, whole.string()), path);
  }
  const std::string file = path + "/report.json";
  if (access(file.c_str(), F_OK) != 0)
    return fail("expected a run, or a folder with a report.json, found a folder without one", path,
                "llmprof analyze " + path + " reads a recording", ExitCode::kUsage);
  return kept_in_file(file);
}

Result<KeptResult> kept_by(const std::string& word) {
  if (access(word.c_str(), F_OK) == 0) return kept_at(word);
  const std::string store = store::store_folder();
  if (store.empty())
    return fail("expected a run store, found none: LLMPROF_STORE is off, or neither it nor HOME is set", word,
                "LLMPROF_STORE=FOLDER llmprof report " + word, ExitCode::kUsage);
  LLMPROF_ASSIGN(const std::vector<RunRow> runs, store::list_runs(store));
  LLMPROF_ASSIGN(const RunRow row, store::find_run(runs, word));
  return kept_of_run(store, row, word);
}

// What a report is kept for, whichever version wrote it.
Status write_as_kept(const KeptResult& kept, const OutputOptions& output) {
  if (output.effective_format() == "json") return write_output(kept.json, output.path);
  return write_output(render_stored_html({kept.kind, kept.json, kept.timeline}), output.path);
}

Error cannot_render(const KeptResult& kept, const Error& why, const std::string& format) {
  const std::string pages = "--format html or json takes it as it is";
  return {fmt::format("cannot be written as {}: {}", format, why.what), kept.name,
          kept.source ? "llmprof analyze " + *kept.source + " reads its recording again; " + pages : pages,
          ExitCode::kFailed};
}

Result<int> write_report(const ReportArguments& options) {
  LLMPROF_CHECK(check_folder(options.output, "llmprof report " + options.run + " --format csv -o report"));
  LLMPROF_CHECK(refuse_overwriting("-o", options.output.path, {options.run}));
  LLMPROF_CHECK(check_writable(options.output.path));
  LLMPROF_ASSIGN(const KeptResult kept, kept_by(options.run));
  const std::string format = options.output.effective_format();
  const bool whole = !options.top && (format == "json" || format == "html");
  if (whole) {
    LLMPROF_CHECK(write_as_kept(kept, options.output));
    return 0;
  }
  if (kept.kind != "report")
    return fail(fmt::format("expected a report for {}, found the result of llmprof {}", format, kept.kind), kept.name,
                "--format html or json takes it as it is", ExitCode::kUsage);
  Result<Report> report = read_report(kept.json);
  if (!report) return tl::unexpected<Error>(cannot_render(kept, report.error(), format));
  // As analyze has it.
  constexpr size_t kTextRows = 12;
  const size_t top = options.top.value_or(options.output.is_text() ? kTextRows : 0);
  keep_top(*report, top);
  OutputOptions output = options.output;
  output.tables = options.top.has_value();
  LLMPROF_CHECK(write_result(*report, output, top == 0 ? SIZE_MAX : top));
  const bool damaged = std::any_of(report->diagnostics.begin(), report->diagnostics.end(),
                                   [](const DiagnosticRecord& row) { return row.severity == Severity::kError; });
  return static_cast<int>(damaged ? ExitCode::kInputErrors : ExitCode::kOk);
}

}  // namespace

void add_report(Parser& parser) {
  const std::shared_ptr<ReportArguments> options = std::make_shared<ReportArguments>();
  const Command command =
      parser.add_command("report", "the report of an earlier run again, in any format, without its recording");
  command
      .option("RUN", options->run,
              "a run of the store: its number, its name, last; or its folder, or a report.json that --json has written")
      .required()
      .type_name("");
  command
      .option("--top", options->top,
              "rows of long tables, which the page then has; 0 for all (default 12 in text, all elsewhere)")
      .check(whole_number(0, int64_t{1} << 40));
  add_output_options(command, options->output);
  command.footer(
      "It is what was found when the run was made; llmprof analyze RUN reads the recording again.\n"
      "Example:  llmprof report last --format html -o report.html");
  command.action([options] {
    const Result<int> code = write_report(*options);
    return code ? *code : report_error(code.error());
  });
}

}  // namespace llmprof::cli
