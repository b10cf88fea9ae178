#include "store/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/nearest.h"
#include "store/index.h"
#include "store/manifest.h"

namespace llmprof::store {
namespace {

constexpr const char* kLiveName = ".live";
constexpr const char* kNumberName = ".number";
constexpr std::string_view kNewPrefix = ".new-", kGonePrefix = ".gone-";
constexpr int64_t kLockWaitNs = 30'000'000'000, kLockPollNs = 5'000'000;
constexpr size_t kNumberDigitsMax = 15;

Result<Descriptor> open_lock(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return failed_file("cannot open the lock", path, errno);
  return file;
}

std::optional<int64_t> number_from(std::string_view digits) {
  int64_t number = 0;
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || digits.size() > kNumberDigitsMax || wrong != std::errc() ||
      end != digits.data() + digits.size() || number <= 0)
    return std::nullopt;
  return number;
}

// ---- what the holder of the lock does

// Runs that were broken off while they were made, and such that were being removed.
void clear_leftovers(const std::string& store, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (name.starts_with(kNewPrefix) || name.starts_with(kGonePrefix)) {
      const Status ignored = remove_tree(store + "/" + name);
    }
}

// One above the last that was given, by the file that says so and by all folders that have one.
Result<int64_t> take_number(const std::string& store, const std::vector<std::string>& names) {
  int64_t last = 0;
  for (std::string_view name : names) {
    for (const std::string_view prefix : {kNewPrefix, kGonePrefix})
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    last = std::max(last, number_from(name.substr(0, name.find('-'))).value_or(0));
  }
  const std::string path = store + "/" + kNumberName;
  if (const Result<std::string> kept = read_small(path, 64))
    last = std::max(last, number_from(std::string_view(*kept).substr(0, kept->find('\n'))).value_or(0));
  LLMPROF_CHECK(replace_file(path, fmt::format("{}\n", last + 1)));
  return last + 1;
}

std::string folder_name(const RunManifest& manifest) {
  const std::string name = plain_name(manifest.name);
  return fmt::format("{:04}-{}{}{}", manifest.number, name_of(manifest.kind), name.empty() ? "" : "-", name);
}

// A folder that is not yet a run, with what `fill` puts into it, becomes one.
Result<std::string> make_run(const std::string& store, RunManifest& manifest,
                             const std::function<Status(const std::string&)>& fill) {
  LLMPROF_CHECK(make_folders(store));
  LLMPROF_ASSIGN(const Lock lock, Lock::take(store));
  LLMPROF_ASSIGN(const std::vector<std::string> names, names_in(store));
  clear_leftovers(store, names);
  LLMPROF_ASSIGN(manifest.number, take_number(store, names));
  const std::string fresh = fmt::format("{}/{}{:04}", store, kNewPrefix, manifest.number);
  const std::string folder = store + "/" + folder_name(manifest);
  const auto make = [&]() -> Status {
    if (mkdir(fresh.c_str(), 0700) != 0) return failed_file("cannot make a folder", fresh, errno);
    LLMPROF_CHECK(fill(fresh));
    LLMPROF_CHECK(write_manifest(fresh, manifest));
    return rename_file(fresh, folder);
  };
  if (const Status made = make(); !made) {
    const Status ignored = remove_tree(fresh);
    return tl::unexpected<Error>(made.error());
  }
  LLMPROF_CHECK(sync_folder(store));
  return folder;
}

bool is_running(const std::string& folder) {
  const Descriptor file(::open((folder + "/" + kLiveName).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file.is_open() && flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// What is in a run's folder and not among its files.
bool is_ours(std::string_view path) {
  return path == kManifestName || path == kLiveName || path == std::string(kManifestName) + ".new";
}

std::optional<ManifestMark> mark_of(const std::string& folder) {
  struct stat status {};
  if (stat((folder + "/" + kManifestName).c_str(), &status) != 0) return std::nullopt;
  return ManifestMark{static_cast<int64_t>(status.st_ino),
                      status.st_mtim.tv_sec * int64_t{1000000000} + status.st_mtim.tv_nsec, status.st_size};
}

// A run whose manifest cannot be read is there all the same.
RunRow damaged_row(const std::string& folder, const std::string& name, int64_t number) {
  RunRow row;
  row.number = number;
  row.state = RunState::kDamaged;
  row.name = name;
  row.folder = folder;
  row.bytes = row.stored_bytes = bytes_below(folder);
  return row;
}

// Changes a run's manifest under the store's lock.
Status change_manifest(const std::string& store, const std::string& folder,
                       const std::function<void(RunManifest&)>& change) {
  LLMPROF_ASSIGN(const Lock lock, Lock::take(store));
  LLMPROF_ASSIGN(RunManifest manifest, read_manifest(folder));
  change(manifest);
  return write_manifest(folder, manifest);
}

std::string store_of(const std::string& run) { return run.substr(0, run.rfind('/')); }

}  // namespace

Result<Lock> Lock::take(const std::string& folder) {
  LLMPROF_ASSIGN(Descriptor file, open_lock(folder + "/.lock"));
  const int64_t until = monotonic_ns() + kLockWaitNs;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed_file("cannot lock the run store", folder, errno);
    if (monotonic_ns() > until)
      return fail("expected to lock the run store within 30 s; another process holds it", folder + "/.lock",
                  "fuser says which one; LLMPROF_STORE names another store");
    sleep_until_monotonic(monotonic_ns() + kLockPollNs);
  }
  return Lock(std::move(file));
}

std::optional<Lock> Lock::try_maintenance(const std::string& folder) {
  Result<Descriptor> file = open_lock(folder + "/.maintenance");
  if (!file || flock(file->get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return Lock(*std::move(file));
}

std::optional<int64_t> number_of_folder(std::string_view name) {
  const size_t dash = name.find('-');
  return dash == std::string_view::npos ? std::nullopt : number_from(name.substr(0, dash));
}

std::string plain_name(std::string_view name) {
  constexpr size_t kNameMax = 60;
  std::string out(name.substr(0, kNameMax));
  for (char& c : out)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  return out;
}

Result<OpenRun> begin_run(const std::string& store, RunManifest manifest) {
  OpenRun run;
  manifest.state = RunState::kIncomplete;
  LLMPROF_ASSIGN(run.folder_, make_run(store, manifest, [&](const std::string& fresh) -> Status {
                   const std::string path = fresh + "/" + kLiveName;
                   LLMPROF_ASSIGN(run.live_, open_lock(path));
                   if (flock(run.live_.get(), LOCK_EX | LOCK_NB) != 0) return failed_file("cannot lock", path, errno);
                   return {};
                 }));
  run.manifest_ = std::move(manifest);
  return run;
}

Status OpenRun::finish() {
  LLMPROF_ASSIGN(const std::vector<FoundFile> found, files_below(folder_));
  RunManifest whole = manifest_;
  whole.files.clear();
  std::set<std::string> folders;
  for (const FoundFile& file : found) {
    if (is_ours(file.path)) continue;
    const std::string path = folder_ + "/" + file.path;
    LLMPROF_CHECK(sync_file(path));
    LLMPROF_ASSIGN(const Content content, content_of(path));
    whole.files.push_back({file.path, content.bytes, content.bytes, content.xxh3});
    for (size_t at = file.path.find('/'); at != std::string::npos; at = file.path.find('/', at + 1))
      folders.insert(file.path.substr(0, at));
  }
  for (const std::string& folder : folders) LLMPROF_CHECK(sync_folder(folder_ + "/" + folder));
  whole.state = RunState::kWhole;
  whole.end_unix_ns = realtime_ns();
  LLMPROF_ASSIGN(const Lock lock, Lock::take(store_of(folder_)));
  // Somebody may have pinned it meanwhile.
  if (const Result<RunManifest> now = read_manifest(folder_)) whole.pinned = now->pinned;
  LLMPROF_CHECK(write_manifest(folder_, whole));
  manifest_ = std::move(whole);
  unlink((folder_ + "/" + kLiveName).c_str());
  live_.close();
  return {};
}

Result<RunManifest> add_run(const std::string& store, RunManifest manifest, std::string_view result) {
  manifest.state = RunState::kWhole;
  manifest.end_unix_ns = realtime_ns();
  const int64_t bytes = static_cast<int64_t>(result.size());
  manifest.files = {{*manifest.result, bytes, bytes, checksum_of(result)}};
  LLMPROF_CHECK(make_run(store, manifest,
                         [&](const std::string& fresh) { return write_new(fresh + "/" + *manifest.result, result); }));
  return manifest;
}

RunRow row_of(const RunManifest& manifest, const std::string& folder) {
  RunRow row;
  row.number = manifest.number;
  row.kind = manifest.kind;
  row.name = manifest.name;
  row.state = manifest.state;
  row.pinned = manifest.pinned;
  row.compressed = manifest.compressed;
  row.start_unix_ns = manifest.start_unix_ns;
  row.ttft_ms = manifest.ttft_ms;
  row.tpot_ms = manifest.tpot_ms;
  row.gpu = manifest.gpus.empty() ? "" : manifest.gpus.front();
  // Of the program itself its name, however it was called.
  for (const std::string& word : manifest.command)
    row.command += row.command.empty() ? word.substr(word.rfind('/') + 1) : " " + word;
  for (const StoredFile& file : manifest.files) {
    row.bytes += file.bytes;
    row.stored_bytes += file.stored_bytes;
  }
  row.folder = folder;
  return row;
}

Result<std::vector<RunRow>> list_runs(const std::string& store, Listing listing) {
  std::vector<RunRow> out;
  if (access(store.c_str(), F_OK) != 0) return out;
  // Who cannot have the lock reads without it: rows that are not in the index come from their manifests.
  std::optional<Result<Lock>> lock;
  if (listing == Listing::kUpdatesIndex && access(store.c_str(), W_OK) == 0) lock = Lock::take(store);
  LLMPROF_ASSIGN(const std::vector<std::string> names, names_in(store));
  Index index(store, lock && *lock);
  std::map<std::string, IndexedRun> rows;
  bool changed = false;
  for (const std::string& name : names) {
    const std::optional<int64_t> number = number_of_folder(name);
    const std::string folder = store + "/" + name;
    struct stat status {};
    if (!number || lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    const std::optional<ManifestMark> mark = mark_of(folder);
    const auto known = index.rows().find(name);
    if (mark && known != index.rows().end() && known->second.mark == *mark) {
      rows.emplace(name, known->second);
    } else {
      const Result<RunManifest> manifest = read_manifest(folder);
      if (!mark || !manifest || manifest->number != *number) {
        // Without the lock, another process may just have removed it.
        if (lstat(folder.c_str(), &status) != 0) continue;
        out.push_back(damaged_row(folder, name, *number));
        continue;
      }
      rows.emplace(name, IndexedRun{*mark, row_of(*manifest, name)});
      changed = true;
    }
    RunRow& row = out.emplace_back(rows.at(name).row);
    row.folder = folder;
    if (row.state != RunState::kIncomplete) continue;
    if (is_running(folder)) row.state = RunState::kRunning;
    row.bytes = row.stored_bytes = bytes_below(folder);
  }
  if (listing == Listing::kUpdatesIndex && (changed || rows.size() != index.rows().size())) index.replace(rows);
  std::sort(out.begin(), out.end(), [](const RunRow& a, const RunRow& b) { return a.number > b.number; });
  return out;
}

Status pin_run(const RunRow& run, bool pinned) {
  return change_manifest(store_of(run.folder), run.folder, [&](RunManifest& manifest) { manifest.pinned = pinned; });
}

Status remove_run(const std::string& store, const RunRow& run) {
  const std::string gone = fmt::format("{}/{}{:04}", store, kGonePrefix, run.number);
  {
    LLMPROF_ASSIGN(const Lock lock, Lock::take(store));
    LLMPROF_CHECK(remove_tree(gone));
    LLMPROF_CHECK(rename_file(run.folder, gone));
    LLMPROF_CHECK(sync_folder(store));
  }
  const Status ignored = remove_tree(gone);
  return {};
}

Status compress_run(const std::string& store, const RunRow& run, int64_t from_bytes) {
  LLMPROF_ASSIGN(const RunManifest before, read_manifest(run.folder));
  if (before.state != RunState::kWhole) return {};
  std::map<std::string, int64_t> stored;
  for (const StoredFile& file : before.files) {
    const std::string path = run.folder + "/" + file.path;
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return failed_file("cannot look at", path, errno);
    int64_t bytes = status.st_size;
    // One that is compressed already, by whom it came from or before this was broken off, stays.
    if (file.bytes >= from_bytes && bytes == file.bytes && !is_compressed(path)) {
      LLMPROF_ASSIGN(bytes, compress_file(path, {file.xxh3, file.bytes}));
    }
    stored[file.path] = bytes;
  }
  LLMPROF_CHECK(sync_folder(run.folder));
  return change_manifest(store, run.folder, [&](RunManifest& manifest) {
    for (StoredFile& file : manifest.files) file.stored_bytes = stored[file.path];
    manifest.compressed = true;
  });
}

// ---- names

bool names_a_run(std::string_view word) {
  if (word == "last") return true;
  if (word.starts_with('#')) word.remove_prefix(1);
  return number_from(word).has_value();
}

Result<RunRow> find_run(const std::vector<RunRow>& runs, const std::string& word, std::optional<RunKind> kind) {
  const std::string what = kind ? fmt::format("a {}", name_of(*kind)) : "a run";
  const auto fits = [&](const RunRow& row) {
    return row.state == RunState::kDamaged ? !kind : !kind || row.kind == *kind;
  };
  if (word == "last") {
    for (const RunRow& row : runs)
      if (fits(row) && row.state != RunState::kRunning) return row;
    // Beside other kinds, "run" alone would be any of them.
    const std::string kinds = kind == RunKind::kRun ? "a recording of llmprof run" : what;
    return fail(fmt::format("expected {} in the run store, found none", kinds), word, "llmprof runs list",
                ExitCode::kUsage);
  }
  const std::string_view digits = std::string_view(word).substr(word.starts_with('#') ? 1 : 0);
  if (const std::optional<int64_t> number = number_from(digits)) {
    for (const RunRow& row : runs) {
      if (row.number != *number) continue;
      if (fits(row)) return row;
      return fail(
          fmt::format("expected {}, found a{} {}", what, row.kind == RunKind::kAnalysis ? "n" : "", name_of(row.kind)),
          word, "llmprof runs list", ExitCode::kUsage);
    }
    return fail(fmt::format("expected a run of the store, found no number {}", *number), word,
                runs.empty()
                    ? "the store is empty: llmprof run -- PROGRAM"
                    : fmt::format("it has {} to {}: llmprof runs list", runs.back().number, runs.front().number),
                ExitCode::kUsage);
  }
  std::vector<std::string> names;
  for (const RunRow& row : runs) {
    if (!fits(row)) continue;
    if (row.name == word || row.folder.substr(row.folder.rfind('/') + 1) == word) return row;
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
  }
  const std::vector<std::string> near = nearest_names(word, names, 2);
  return fail(fmt::format("expected {} of the store, by its number, its name or `last`, found no \"{}\"", what, word),
              {}, did_you_mean(near) + "llmprof runs list", ExitCode::kUsage);
}

}  // namespace llmprof::store
