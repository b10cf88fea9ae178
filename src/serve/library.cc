#include "serve/library.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "base/input_file.h"
#include "report/render.h"
#include "store/manifest.h"
#include "store/store.h"

namespace llmprof::serve {
namespace {

// The only files that are ever opened in a run's folder, beside its manifest. The manifest says which of them; one that
// names another file, wherever it came from, names none.
constexpr std::pair<std::string_view, std::string_view> kResultFiles[] = {
    {"report.json", "report"}, {"bench.json", "bench"}, {"peaks.json", "peaks"}};
constexpr std::string_view kPageFile = "/report.html";

bool is_regular_file(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

int64_t changed_unix_ns(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

// Whether what a manifest names outside of the store is still what the run has made or read, which ended then. Of a
// session it is the file with its description: pages are written beside it later.
Status check_outside(const std::string& path, int64_t number, int64_t end_unix_ns) {
  struct stat status {};
  const std::string described = path + "/session.json";
  if (stat(described.c_str(), &status) != 0 && stat(path.c_str(), &status) != 0)
    return fail(fmt::format("The recording of run {} is not there any more.", number));
  if (changed_unix_ns(status) > end_unix_ns)
    return fail(fmt::format("The recording of run {} has been changed since the run.", number));
  return {};
}

// The names that the store gives its folders; no other can be a word of a command.
bool is_plain(std::string_view name) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return name.find_first_not_of(kPlain) == std::string_view::npos;
}

// As it was before retention compressed it.
Result<std::string> read_bounded(const std::string& path) {
  if (!is_regular_file(path)) return fail("The result of this run is not there any more.");
  Result<InputFile> file = InputFile::open(path);
  if (!file) return fail("The result of this run cannot be read.");
  Result<std::string> text = file->read_all(kResultBytesMost, "a result");
  if (!text) return fail("The result of this run is too large to be shown.");
  if (file->damaged()) return fail("The result of this run is damaged: llmprof runs verify says more.");
  return text;
}

// That of the page which `llmprof run` has left beside its recording, in the store or where the manifest says.
std::string timeline_beside(const RunRow& run, const RunManifest& kept) {
  if (run.kind != RunKind::kRun || !kept.recording) return {};
  const bool outside = kept.recording->starts_with('/');
  if (!outside && kept.recording != "recording") return {};
  if (outside && !check_outside(*kept.recording, run.number, kept.end_unix_ns.value_or(0))) return {};
  const std::string page = (outside ? *kept.recording : run.folder + "/recording") + std::string(kPageFile);
  if (!is_regular_file(page)) return {};
  const Result<std::string> text = read_bounded(page);
  return text ? std::string(packed_timeline_in(*text)) : std::string();
}

}  // namespace

Result<std::vector<RunRow>> StoreLibrary::runs() const { return store::list_runs(folder_, store::Listing::kReadsOnly); }

Result<RunRow> StoreLibrary::row(int64_t number) const {
  LLMPROF_ASSIGN(const std::vector<RunRow> all, runs());
  for (const RunRow& one : all)
    if (one.number == number) return one;
  return fail("There is no run with this number.");
}

Result<RunManifest> StoreLibrary::manifest(int64_t number) const {
  LLMPROF_ASSIGN(const RunRow found, row(number));
  Result<RunManifest> manifest = store::read_manifest(found.folder);
  if (!manifest || manifest->number != number)
    return fail("What was kept of this run is damaged: llmprof runs verify says more.");
  return manifest;
}

Result<StoredResult> StoreLibrary::result(int64_t number, bool with_timeline) const {
  LLMPROF_ASSIGN(const RunRow found, row(number));
  LLMPROF_ASSIGN(const RunManifest kept, manifest(number));
  StoredResult out;
  for (const auto& [file, kind] : kResultFiles) {
    if (kept.result != file) continue;
    out.kind = kind;
    LLMPROF_ASSIGN(out.json, read_bounded(found.folder + "/" + std::string(file)));
  }
  if (out.kind.empty()) return fail("This run has no result: it goes on, or was broken off before it had one.");
  if (with_timeline && out.kind == "report") out.timeline = timeline_beside(found, kept);
  return out;
}

Result<Readable> StoreLibrary::readable(int64_t number) const {
  LLMPROF_ASSIGN(const RunRow found, row(number));
  LLMPROF_ASSIGN(const RunManifest kept, manifest(number));
  Readable out{found.folder.substr(found.folder.rfind('/') + 1), kept.kind};
  if (!is_plain(out.word)) return fail(fmt::format("The folder of run {} has another name than it was given.", number));
  if (found.state == RunState::kRunning) return fail(fmt::format("Run {} goes on.", number));
  if (kept.kind == RunKind::kBench) {
    if (found.state != RunState::kWhole) return fail(fmt::format("Run {} has no result.", number));
    return out;
  }
  std::vector<std::string> paths;
  if (kept.kind == RunKind::kAnalysis) paths = kept.inputs;
  if (kept.kind == RunKind::kRun && kept.recording) paths = {*kept.recording};
  if (paths.empty())
    return fail(fmt::format("Run {} has no recording: it is of llmprof {}.", number, name_of(kept.kind)));
  for (const std::string& path : paths) {
    if (path == "-") return fail(fmt::format("Run {} is of standard input, which is not kept.", number));
    const bool outside = path.starts_with('/') && !path.starts_with(folder_ + "/");
    const std::string whole = path.starts_with('/') ? path : found.folder + "/" + path;
    // What lies in the store is changed by retention alone, which compresses it.
    constexpr int64_t kNever = INT64_MAX;
    LLMPROF_CHECK(check_outside(whole, number, outside ? kept.end_unix_ns.value_or(kNever) : kNever));
  }
  return out;
}

}  // namespace llmprof::serve
