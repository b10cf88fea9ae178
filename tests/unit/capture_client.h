// Runs a small program with the injection library loaded and gives back what its spools hold, texts resolved.
#pragma once

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "capture/spool/reader.h"
#include "capture/spool/records.h"

namespace llmprof::test {

// One spool file.
struct ClientSpool {
  std::map<spool::Id, std::string> texts{{0, ""}};
  std::map<spool::Id, spool::ThreadDef> threads;
  std::map<spool::Id, spool::LibraryDef> defs;
  std::vector<spool::LibraryCall> calls;
  std::map<uint64_t, spool::Operands> operands;  // by library call
  std::vector<spool::Range> ranges;
  std::vector<spool::RangeOpen> open;
  std::vector<spool::Mark> marks;
  std::vector<spool::RecurringCall> recurring_calls;
  std::vector<spool::ProductRows> product_rows;
  std::vector<spool::HostPlace> host_places;
  std::vector<spool::Note> notes;
  spool::ReadSummary summary;

  void operator()(const spool::TextDef& def) { texts[def.id] = std::string(def.text); }
  void operator()(const spool::ThreadDef& def) { threads[def.id] = def; }
  void operator()(const spool::LibraryDef& def) { defs[def.id] = def; }
  void operator()(const spool::LibraryCall& record) { calls.push_back(record); }
  void operator()(const spool::Operands& record) { operands[record.call] = record; }
  void operator()(const spool::Range& record) { ranges.push_back(record); }
  void operator()(const spool::RangeOpen& record) { open.push_back(record); }
  void operator()(const spool::Mark& record) { marks.push_back(record); }
  void operator()(const spool::RecurringCall& record) { recurring_calls.push_back(record); }
  void operator()(const spool::ProductRows& record) { product_rows.push_back(record); }
  void operator()(const spool::HostPlace& record) { host_places.push_back(record); }
  void operator()(const spool::Note& record) { notes.push_back(record); }
  template <class Record>
  void operator()(const Record&) {}

  std::vector<spool::Range> named(const std::string& name) const {
    std::vector<spool::Range> found;
    for (const spool::Range& range : ranges) {
      if (texts.at(range.name) == name) found.push_back(range);
    }
    return found;
  }
};

struct ClientRun {
  int exit_code = -1;
  std::string output;    // stdout
  std::string fake_log;  // what the fake libraries were called with
  std::vector<ClientSpool> spools;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::filesystem::path build_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

enum class Watching { kNotLoaded, kLoaded, kWatched };

// `command`: a program of the build's folder fakes/ and its arguments, or one with its whole path.
inline ClientRun run_client(const std::string& command, Watching watching, const std::string& environment = "") {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "llmprof_client_XXXXXX").string();
  ClientRun run;
  if (mkdtemp(folder.data()) == nullptr) return run;
  fs::create_directory(folder + "/spool");
  const std::string library = (build_folder() / "lib/libllmprof_inject.so").string();
  // The client is no child of a sanitizer's making: its options would reach it otherwise.
  std::string line = "env -u LD_PRELOAD -u LLMPROF_SESSION LLMPROF_FAKE_LOG=" + folder + "/fake.log " + environment;
  if (watching != Watching::kNotLoaded) line += " LD_PRELOAD=" + library + " NVTX_INJECTION64_PATH=" + library;
  if (watching == Watching::kWatched) line += " LLMPROF_SESSION=" + folder + " LLMPROF_LEVEL=light";
  line += " " + (command.front() == '/' ? "" : (build_folder() / "fakes").string() + "/") + command;
  if (FILE* pipe = popen(line.c_str(), "r")) {
    char buffer[4096];
    while (size_t size = fread(buffer, 1, sizeof(buffer), pipe)) run.output.append(buffer, size);
    int status = pclose(pipe);
    run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  run.fake_log = read_file(folder + "/fake.log");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/spool")) {
    const std::string bytes = read_file(entry.path());
    ClientSpool& found = run.spools.emplace_back();
    found.summary = spool::read(bytes, found);
  }
  fs::remove_all(folder);
  return run;
}

}  // namespace llmprof::test
