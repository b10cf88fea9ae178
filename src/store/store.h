// The run store: a folder with a folder for each run, bench, peaks and analysis, and an index that is made from them.
//
// What always holds, whatever is broken off where: a run that is there stays as it is; a new one is there whole, there
// as incomplete, or not there; a number is given once. A run's folder appears by one rename, with its manifest in it,
// and goes by one. Whoever writes holds the store's lock for that moment, so any number of processes may share a store.
//
//   FOLDER/0012-run-generate/manifest.json   a run (store/manifest.h)
//                           /report.json     its result; recording/ where it was recorded here
//                           /.live           locked for as long as the run goes on
//   FOLDER/index.sqlite, settings.json, .number (the last one given), .lock, .maintenance
//   FOLDER/.new-0013, .gone-0007             being made, being removed: no runs
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "results/runs.h"
#include "store/files.h"

namespace llmprof::store {

// A lock file, held until the object goes; the kernel releases it when a process is killed.
class Lock {
 public:
  // The store's: waited for, at most 30 s. The error says that another process holds it.
  static Result<Lock> take(const std::string& folder);
  // Of whoever compresses and removes: nothing where another does so already.
  static std::optional<Lock> try_maintenance(const std::string& folder);

 private:
  explicit Lock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

// A run that goes on: its folder is there, and marked incomplete until finish().
class OpenRun {
 public:
  const std::string& folder() const { return folder_; }
  RunManifest& manifest() { return manifest_; }
  const RunManifest& manifest() const { return manifest_; }
  // Brings all files below the folder to the disk, takes their checksums, and marks the run whole. Where that fails it
  // stays incomplete.
  Status finish();

 private:
  friend Result<OpenRun> begin_run(const std::string&, RunManifest);
  std::string folder_;
  RunManifest manifest_;
  Descriptor live_;
};

// Makes the store where there is none, and in it a folder for the run; number and state of the manifest are given here.
Result<OpenRun> begin_run(const std::string& store, RunManifest manifest);
// A run that is over: a folder with this result (manifest.result names its file), whole from the first. Gives its
// manifest.
Result<RunManifest> add_run(const std::string& store, RunManifest manifest, std::string_view result);

// Whether looking at a store may bring its index up to date, under the store's lock; else not a byte of it changes.
enum class Listing : uint8_t { kUpdatesIndex, kReadsOnly };
// All runs, the newest first; none where there is no store. By the index.
Result<std::vector<RunRow>> list_runs(const std::string& store, Listing listing = Listing::kUpdatesIndex);
// The row of a manifest that lies in `folder`.
RunRow row_of(const RunManifest& manifest, const std::string& folder);

// Marks a run, or takes the mark away.
Status pin_run(const RunRow& run, bool pinned);
// The run is gone when this returns; what could not be deleted goes with the next run that is made.
Status remove_run(const std::string& store, const RunRow& run);
// Compresses the large files of a whole run.
Status compress_run(const std::string& store, const RunRow& run, int64_t from_bytes);

// "0012-run-generate" -> 12; nothing for what is no run's folder.
std::optional<int64_t> number_of_folder(std::string_view name);
// Letters, digits, '.', '_' and '-', at most 60: as it stands in the folder's name.
std::string plain_name(std::string_view name);

// The run that `word` names: `last`, a number (12 or #12), a name (of several the newest) or a folder's name; of `kind`
// if one is given. Errors name what is near.
Result<RunRow> find_run(const std::vector<RunRow>& runs, const std::string& word, std::optional<RunKind> kind = {});
// Whether a word can only mean a run: `last`, #12, 12.
bool names_a_run(std::string_view word);

}  // namespace llmprof::store
