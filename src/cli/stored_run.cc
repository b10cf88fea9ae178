#include "cli/stored_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <type_traits>

#include "base/text_table.h"
#include "report/render.h"
#include "store/manifest.h"
#include "store/retention.h"
#include "store/surroundings.h"

namespace llmprof::cli {
namespace {

// What a result says of the machine, and its headline.
template <class Record>
void take_facts(const Record& record, RunManifest& manifest) {
  if constexpr (std::is_same_v<Record, Report>) {
    if (record.device) manifest.gpus = {record.device->name};
    if (!record.latency) return;
    manifest.ttft_ms = record.latency->headline.ttft_ms;
    manifest.tpot_ms = record.latency->headline.tpot_ms;
  } else if constexpr (std::is_same_v<Record, bench::BenchResult> || std::is_same_v<Record, bench::PeaksResult>) {
    manifest.gpus = {record.device.name};
    manifest.driver = record.device.driver;
  }
}

bool is_there(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The run that a word names, and its manifest; nothing where the word is something else. Whether a word that is neither
// a number nor `last` names a run is found out by looking.
Result<std::optional<std::pair<RunRow, RunManifest>>> run_named(const std::string& word, std::optional<RunKind> kind) {
  if (word.empty() || word == "-") return std::nullopt;
  if (is_there(word)) {
    // A run's own folder, as `llmprof runs open` prints it.
    if (!is_there(word + "/" + store::kManifestName) || is_there(word + "/session.json")) return std::nullopt;
    LLMPROF_ASSIGN(RunManifest manifest, store::read_manifest(word));
    RunRow row = store::row_of(manifest, word);
    return std::pair(std::move(row), std::move(manifest));
  }
  const std::string folder = store::store_folder();
  const bool certain = store::names_a_run(word);
  if (folder.empty()) {
    if (!certain) return std::nullopt;
    return fail("expected a file, or a run of the store, and there is no store", word,
                "LLMPROF_STORE is off, or neither it nor HOME is set", ExitCode::kUsage);
  }
  LLMPROF_ASSIGN(const std::vector<RunRow> runs, store::list_runs(folder));
  Result<RunRow> found = store::find_run(runs, word, kind);
  if (!found) {
    if (certain) return tl::unexpected<Error>(found.error());
    // A name that is nearly one of a run; for other words, whoever opens the file says what is wrong.
    const std::string& advice = found.error().advice;
    if (!advice.starts_with("did you mean")) return std::nullopt;
    return fail("expected a file, or a run of the store, found neither", word, advice, ExitCode::kUsage);
  }
  LLMPROF_ASSIGN(RunManifest manifest, store::read_manifest(found->folder));
  return std::pair(*std::move(found), std::move(manifest));
}

}  // namespace

void add_store_option(const Command& command, bool& no_store, const std::string& group) {
  command.flag("--no-store", no_store, "keep nothing in the run store (llmprof runs)").group(group);
}

StoredRun::StoredRun(RunKind kind, bool wanted, bool quiet) : quiet_(quiet) {
  manifest_.kind = kind;
  if (!wanted) return;
  folder_ = store::store_folder();
  if (folder_.empty()) return;
  Result<store::Settings> settings = store::read_settings(folder_);
  if (!settings) {
    fail_with(settings.error());
    return;
  }
  settings_ = *settings;
  store::describe_surroundings(manifest_);
}

void StoredRun::fail_with(const Error& error) {
  folder_.clear();  // once
  open_.reset();
  if (quiet_) return;
  complain("notice: not kept in the run store: " + error.what + (error.where.empty() ? "" : " (" + error.where + ")") +
           (error.advice.empty() ? "" : "\n  try:   " + error.advice + "; --no-store keeps nothing"));
}

std::optional<std::string> StoredRun::begin() {
  if (!wanted()) return std::nullopt;
  Result<store::OpenRun> open = store::begin_run(folder_, manifest_);
  if (!open) {
    fail_with(open.error());
    return std::nullopt;
  }
  open_ = *std::move(open);
  manifest_.number = open_->manifest().number;
  return open_->folder();
}

void StoredRun::take(const AnyResult& result) {
  if (!wanted()) return;
  result_ = render_json(result);
  result.visit([this](const auto& record) {
    manifest_.result = std::string(result_info(record).name) + ".json";
    take_facts(record, manifest_);
  });
}

void StoredRun::keep() {
  if (!wanted()) return;
  if (open_) {
    if (manifest_.result) {
      const Status written = store::write_new(open_->folder() + "/" + *manifest_.result, result_);
      if (!written) return fail_with(written.error());
    }
    open_->manifest() = manifest_;
    if (const Status finished = open_->finish(); !finished) return fail_with(finished.error());
  } else {
    if (!manifest_.result) return;  // there is nothing to keep
    const Result<RunManifest> added = store::add_run(folder_, manifest_, result_);
    if (!added) return fail_with(added.error());
    manifest_.number = added->number;
  }
  retain();
}

void StoredRun::retain() {
  const Result<PrunedRuns> done = store::apply_retention(folder_, settings_, false);
  if (!done) return fail_with(done.error());
  if (quiet_) return;
  for (const RetentionStep& step : done->steps) {
    if (!step.failed.empty())
      complain(fmt::format("notice: run {} of the store was to be {}, which failed: {}", step.number,
                           step.action == RetentionAction::kRemove ? "removed" : "compressed", step.failed));
    else if (step.action == RetentionAction::kRemove && step.kind == RunKind::kRun)
      complain(fmt::format("notice: run {} ({}, {}) was removed from the store: {}; llmprof runs pin keeps one",
                           step.number, step.name, format_bytes(static_cast<double>(step.stored_bytes)), step.why));
  }
}

void StoredRun::drop() {
  if (!open_) return;
  RunRow row = store::row_of(open_->manifest(), open_->folder());
  open_.reset();
  manifest_.number = 0;
  if (const Status removed = store::remove_run(folder_, row); !removed) fail_with(removed.error());
}

std::string StoredRun::name() const {
  return wanted() && manifest_.number > 0 ? fmt::format("run {}", manifest_.number) : "";
}

Result<std::vector<std::string>> recordings_named(const std::string& word) {
  const bool last = word == "last";  // the last recording, not the last time that one was looked at
  LLMPROF_ASSIGN(const auto found, run_named(word, last ? std::optional(RunKind::kRun) : std::nullopt));
  if (!found) return std::vector<std::string>{word};
  const auto& [row, manifest] = *found;
  if (manifest.kind == RunKind::kAnalysis && !manifest.inputs.empty()) return manifest.inputs;
  if (!manifest.recording)
    return fail(fmt::format("expected a run with a recording, found {} {}", name_of(manifest.kind), row.number), word,
                "llmprof runs show " + std::to_string(row.number), ExitCode::kUsage);
  const std::string path =
      manifest.recording->starts_with('/') ? *manifest.recording : row.folder + "/" + *manifest.recording;
  if (!is_there(path))
    return fail(fmt::format("expected the recording of run {}, and it is no longer there", row.number), path,
                "llmprof runs show " + std::to_string(row.number) + " says what is left of it");
  return std::vector<std::string>{path};
}

Status resolve_runs(std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    LLMPROF_ASSIGN(const std::vector<std::string> found, recordings_named(word));
    out.insert(out.end(), found.begin(), found.end());
  }
  words = std::move(out);
  return {};
}

Result<std::string> bench_named(const std::string& word) {
  LLMPROF_ASSIGN(const auto found, run_named(word, RunKind::kBench));
  if (!found) return word;
  return found->first.folder + "/" + found->second.result.value_or("bench.json");
}

}  // namespace llmprof::cli
