// The pages of `llmprof runs`.
#include <fmt/format.h>
#include <time.h>

#include "base/text_table.h"
#include "report/render.h"

namespace llmprof {
namespace {

std::string when(int64_t unix_ns) {
  const time_t seconds = static_cast<time_t>(unix_ns / 1000000000);
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  return strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) > 0 ? text : "";
}

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string marks_of(const RunRow& row) {
  std::string out;
  const auto add = [&](bool so, std::string_view word) {
    if (so) out += (out.empty() ? "" : ", ") + std::string(word);
  };
  add(row.state != RunState::kWhole, name_of(row.state));
  add(row.pinned, "pinned");
  add(row.stored_bytes < row.bytes, "compressed");
  return out;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// "  label   text", broken under itself.
class Lines {
 public:
  explicit Lines(const RenderOptions& options) : options_(options) {}
  void add(const char* label, const std::string& text) {
    if (text.empty()) return;
    std::string head = std::string("  ") + label;
    head.resize(kBeside, ' ');
    out_ += wrap_text(printable(text, options_.charset), options_.width, head, std::string(kBeside, ' '));
  }
  std::string take() { return std::move(out_); }

 private:
  static constexpr size_t kBeside = 14;
  const RenderOptions& options_;
  std::string out_;
};

bool is_smaller(const RunManifest& run) {
  for (const StoredFile& file : run.files)
    if (file.stored_bytes < file.bytes) return true;
  return false;
}

std::string git_text(const RunGit& git) {
  std::string out = git.commit.substr(0, 12);
  if (git.branch) out += " (" + *git.branch + ")";
  return out + (!git.dirty ? "" : *git.dirty ? ", with changes" : ", clean");
}

}  // namespace

std::string render_text(const RunList& result, const RenderOptions& options) {
  if (result.runs.empty())
    return finish_page("No runs in " + printable(result.folder, options.charset) +
                           ".\nllmprof run -- PROGRAM makes one; so do analyze, bench and peaks.\n",
                       options);
  TextTable table({{"run"},
                   {"kind", TextTable::Align::kLeft, 0, 3},
                   {"name", TextTable::Align::kLeft, 28},
                   {"when", TextTable::Align::kLeft, 0, 2},
                   {"TTFT", TextTable::Align::kRight, 0, 4},
                   {"TPOT", TextTable::Align::kRight, 0, 1},
                   {"size", TextTable::Align::kRight, 0, 5},
                   {"state", TextTable::Align::kLeft, 0, 6},
                   {"GPU", TextTable::Align::kLeft, 24, 7},
                   {"command", TextTable::Align::kLeft, 60, 8}});
  for (const RunRow& row : result.runs) {
    const bool known = row.state != RunState::kDamaged;
    table.add_row({std::to_string(row.number), known ? std::string(name_of(row.kind)) : "",
                   printable(row.name, options.charset), known ? when(row.start_unix_ns) : "",
                   row.ttft_ms ? format_ms(*row.ttft_ms) : "", row.tpot_ms ? format_ms(*row.tpot_ms) : "",
                   size_text(row.stored_bytes), marks_of(row), printable(row.gpu, options.charset),
                   printable(row.command, options.charset)});
  }
  return finish_page(table.render("  ", options) + "\n" + size_text(result.stored_bytes) + " in " +
                         printable(result.folder, options.charset) + "\n",
                     options);
}

std::string render_text(const RunShown& run, const RenderOptions& options) {
  std::string out =
      fmt::format("run {}  {}  {}\n\n", run.number, name_of(run.kind), printable(run.name, options.charset));
  Lines lines(options);
  lines.add("state",
            std::string(name_of(run.state)) + (run.pinned ? ", pinned" : "") + (is_smaller(run) ? ", compressed" : ""));
  lines.add("folder", run.folder);
  lines.add("recording", run.recording.value_or(""));
  lines.add("result", run.result.value_or(""));
  lines.add("read", joined(run.inputs, ", "));
  lines.add("command", joined(run.command, " "));
  lines.add("typed in", run.working_folder);
  lines.add("commit", run.git ? git_text(*run.git) : "");
  lines.add("began", when(run.start_unix_ns));
  if (run.end_unix_ns) lines.add("took", format_ns(*run.end_unix_ns - run.start_unix_ns));
  if (run.exit_code) lines.add("exit code", std::to_string(*run.exit_code));
  lines.add("machine", run.host + (run.kernel.empty() ? "" : ", Linux " + run.kernel));
  lines.add("GPU", joined(run.gpus, ", ") + (run.driver ? ", driver " + *run.driver : ""));
  lines.add("llmprof", run.tool_version);
  if (run.ttft_ms) lines.add("TTFT", format_ms(*run.ttft_ms));
  if (run.tpot_ms) lines.add("TPOT", format_ms(*run.tpot_ms));
  for (const RunVariable& variable : run.environment) lines.add("variable", variable.name + "=" + variable.value);
  out += lines.take();
  TextTable table({{"file", TextTable::Align::kLeft},
                   {"size"},
                   {"on disk", TextTable::Align::kRight, 0, 1},
                   {"XXH3", TextTable::Align::kLeft, 0, 2}});
  for (const StoredFile& file : run.files)
    table.add_row(
        {printable(file.path, options.charset), size_text(file.bytes), size_text(file.stored_bytes), file.xxh3});
  return finish_page(table.empty() ? out : out + "\n" + table.render("  ", options), options);
}

std::string render_text(const PrunedRuns& result, const RenderOptions& options) {
  if (result.steps.empty())
    return finish_page(fmt::format("Nothing to compress or remove; {} in all.\n", size_text(result.before_bytes)),
                       options);
  TextTable table({{"run"},
                   {"kind", TextTable::Align::kLeft, 0, 2},
                   {"name", TextTable::Align::kLeft, 28},
                   {"size", TextTable::Align::kRight, 0, 1},
                   {result.dry_run ? "would" : "done", TextTable::Align::kLeft},
                   {"why", TextTable::Align::kLeft, 0, 0, true}});
  for (const RetentionStep& step : result.steps)
    table.add_row({std::to_string(step.number), std::string(name_of(step.kind)), printable(step.name, options.charset),
                   size_text(step.stored_bytes), std::string(name_of(step.action)),
                   step.failed.empty() ? step.why : "failed: " + printable(step.failed, options.charset)});
  std::string foot = result.dry_run ? "Nothing was changed (--dry-run).\n"
                                    : fmt::format("{} before, {} now.\n", size_text(result.before_bytes),
                                                  size_text(result.after_bytes.value_or(0)));
  return finish_page(table.render("  ", options) + "\n" + foot, options);
}

std::string render_text(const VerifiedRuns& result, const RenderOptions& options) {
  std::string out;
  size_t damaged = 0;
  for (const RunProblem& problem : result.problems) {
    damaged += problem.damage ? 1 : 0;
    const std::string head = std::string(problem.damage ? "  damage  " : "  note    ") +
                             (problem.number ? fmt::format("run {}: ", *problem.number) : "");
    out += wrap_text(head + printable(problem.where + ": " + problem.what, options.charset), options.width, "",
                     "          ");
  }
  if (!out.empty()) out += "\n";
  out += fmt::format("{} run{}, {} file{} of {} compared with their checksums: {}.\n", result.runs,
                     result.runs == 1 ? "" : "s", result.files, result.files == 1 ? "" : "s", size_text(result.bytes),
                     damaged == 0 ? "no damage" : fmt::format("{} damaged", damaged));
  return finish_page(out, options);
}

}  // namespace llmprof
