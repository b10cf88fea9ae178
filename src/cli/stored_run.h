// What a command keeps of itself in the run store (src/store/). Nothing here changes what the command prints on
// standard output or how it ends: what cannot be kept is one notice on standard error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "store/settings.h"
#include "store/store.h"

namespace llmprof::cli {

// --no-store. The variable must live as long as the command.
void add_store_option(const Command& command, bool& no_store, const std::string& group = "OPTIONS");

class StoredRun {
 public:
  // `wanted` false, LLMPROF_STORE=off and a home that is not known: nothing is kept, and nothing said.
  StoredRun(RunKind kind, bool wanted, bool quiet);

  bool wanted() const { return !folder_.empty(); }
  RunManifest& manifest() { return manifest_; }
  const store::Settings& settings() const { return settings_; }

  // For a run that takes its time: a folder for it now, marked incomplete. Gives the folder, or nothing.
  std::optional<std::string> begin();
  // Takes the result's JSON and headline figures; nothing is written yet.
  void take(const AnyResult& result);
  // Writes what was taken, marks the run whole, and does what retention asks for.
  void keep();
  // Removes what begin() made: the run did not come about.
  void drop();
  // "run 12", once begin() or keep() has made it one.
  std::string name() const;

 private:
  void fail_with(const Error& error);
  void retain();

  bool quiet_;
  std::string folder_;  // of the store; empty: nothing is kept
  store::Settings settings_;
  RunManifest manifest_;
  std::optional<store::OpenRun> open_;
  std::string result_;
};

// What a word of the command line names where a recording is expected: files and folders that exist are themselves;
// `last`, #12, 12 and names of runs are the recordings of those, or what an analysis has read. Other words stay as they
// are, so that whoever opens them says what is wrong.
Result<std::vector<std::string>> recordings_named(const std::string& word);
// Puts them in the place of all such words.
Status resolve_runs(std::vector<std::string>& words);
// The same where results of `llmprof bench` are expected.
Result<std::string> bench_named(const std::string& word);

}  // namespace llmprof::cli
