#include "serve/library.h"

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
constexpr std::string_view kPageFile = "/recording/report.html";

bool is_regular_file(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
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
  const std::string page = found.folder + std::string(kPageFile);
  if (with_timeline && out.kind == "report" && kept.recording == "recording" && is_regular_file(page))
    if (const Result<std::string> text = read_bounded(page)) out.timeline = packed_timeline_in(*text);
  return out;
}

}  // namespace llmprof::serve
