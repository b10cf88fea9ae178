#include "store/verify.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "store/files.h"
#include "store/manifest.h"
#include "store/store.h"

namespace llmprof::store {
namespace {

class Verifier {
 public:
  explicit Verifier(VerifiedRuns& out) : out_(out) {}

  void run(const RunRow& row) {
    ++out_.runs;
    if (row.state == RunState::kRunning) return;
    const Result<RunManifest> manifest = read_manifest(row.folder);
    if (!manifest) return say(row, true, row.folder, manifest.error().what);
    if (manifest->state == RunState::kIncomplete)
      return say(row, false, row.folder, "incomplete: it was broken off; what it had written is there");
    std::set<std::string> known = {kManifestName, ".live"};
    for (const StoredFile& file : manifest->files) {
      check_file(row, file);
      known.insert(file.path);
    }
    const Result<std::vector<FoundFile>> found = files_below(row.folder);
    if (!found) return say(row, true, row.folder, found.error().what);
    for (const FoundFile& file : *found)
      if (known.count(file.path) == 0)
        say(row, false, row.folder + "/" + file.path,
            "not among the run's files: left by what was broken off, or put there");
    if (manifest->recording && manifest->recording->starts_with('/') && access(manifest->recording->c_str(), F_OK) != 0)
      say(row, false, *manifest->recording, "the recording was kept outside of the store, and is no longer there");
  }

  void leftover(const std::string& path) {
    out_.problems.push_back({{}, false, path, "left by what was broken off; goes with the next run"});
  }

 private:
  void say(const RunRow& row, bool damage, const std::string& where, const std::string& what) {
    out_.problems.push_back({row.number, damage, where, what});
  }

  void check_file(const RunRow& row, const StoredFile& file) {
    const std::string path = row.folder + "/" + file.path;
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
      return say(row, true, path, "expected a file of the run, found none");
    ++out_.files;
    out_.bytes += file.bytes;
    Result<Content> content = content_of(path);
    // A file that was compressed here has its old content still, under zstd.
    if (content && content->xxh3 != file.xxh3 && is_compressed(path)) content = content_of_compressed(path);
    if (!content) return say(row, true, path, content.error().what);
    if (content->bytes != file.bytes)
      return say(row, true, path, fmt::format("expected {} bytes, found {}", file.bytes, content->bytes));
    if (content->xxh3 != file.xxh3)
      say(row, true, path, fmt::format("expected the checksum {}, found {}", file.xxh3, content->xxh3));
  }

  VerifiedRuns& out_;
};

}  // namespace

Result<VerifiedRuns> verify_runs(const std::string& store, const std::vector<int64_t>& numbers) {
  VerifiedRuns out;
  out.folder = store;
  LLMPROF_ASSIGN(const std::vector<RunRow> runs, list_runs(store));
  Verifier verifier(out);
  for (const RunRow& row : runs)
    if (numbers.empty() || std::find(numbers.begin(), numbers.end(), row.number) != numbers.end()) verifier.run(row);
  if (numbers.empty() && access(store.c_str(), F_OK) == 0) {
    LLMPROF_ASSIGN(const std::vector<std::string> names, names_in(store));
    for (const std::string& name : names)
      if (name.starts_with(".new-") || name.starts_with(".gone-") || name == ".number.new")
        verifier.leftover(store + "/" + name);
  }
  std::stable_sort(out.problems.begin(), out.problems.end(),
                   [](const RunProblem& a, const RunProblem& b) { return a.damage && !b.damage; });
  return out;
}

}  // namespace llmprof::store
