#include "capture/launch/session_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/json_document.h"
#include "base/json_writer.h"
#include "capture/launch/control_page.h"

namespace llmprof::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunsFolder = "llmprof-runs";
constexpr int kSameSecondMax = 1000;  // sessions of one program that may begin in one second

std::string time_stamp() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

std::string plain(const std::string& name) {
  std::string out = name.substr(0, 60);
  for (char& c : out)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  return out;
}

tl::unexpected<Error> cannot_create(const std::string& path, const std::error_code& error) {
  return fail("cannot create the session folder: " + error.message(), path,
              "choose a folder that you may write to with -o");
}

Status make_subfolders(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"spool", "samples"}) {
    fs::create_directory(folder / name, error);
    if (error) return cannot_create((folder / name).string(), error);
  }
  if (access(folder.c_str(), W_OK) != 0)
    return cannot_create(folder.string(), std::error_code(errno, std::generic_category()));
  return {};
}

Result<std::string> create_named(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status))
    return fail("expected a folder for the recording, found a file", folder.string(), "name another one with -o",
                ExitCode::kUsage);
  if (fs::is_directory(status)) {
    const bool empty = fs::is_empty(folder, error);
    if (error) return cannot_create(folder.string(), error);
    if (!empty)
      return fail("expected a new or empty folder, found one with files in it", folder.string(),
                  "name another one with -o, or remove it first: rm -r " + folder.string(), ExitCode::kUsage);
  }
  fs::create_directories(folder, error);
  if (error) return cannot_create(folder.string(), error);
  LLMPROF_CHECK(make_subfolders(folder));
  return folder.string();
}

Result<std::string> create_default(const fs::path& runs, const std::string& stem, const std::string& name) {
  std::error_code error;
  fs::create_directories(runs, error);
  if (error) return cannot_create(runs.string(), error);
  for (int i = 1; i <= kSameSecondMax; ++i) {
    const std::string suffix = i == 1 ? "" : "-" + std::to_string(i);
    const fs::path folder = runs / (stem + (name.empty() ? "" : "-" + plain(name)) + suffix);
    // Only the one whose mkdir succeeds has the name, so two runs that begin together do not share a folder.
    if (mkdir(folder.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return cannot_create(folder.string(), std::error_code(errno, std::generic_category()));
    }
    LLMPROF_CHECK(make_subfolders(folder));
    return folder.string();
  }
  return fail("expected a free name for the session folder, found all taken", (runs / stem).string(),
              "name one with -o");
}

std::string register_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return fmt::format("{}/llmprof-{}", runtime != nullptr && *runtime == '/' ? runtime : "/tmp", geteuid());
}

// Names in a folder but . and ..; none if it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open_folder = opendir(folder.c_str());
  if (open_folder == nullptr) return names;
  while (const dirent* entry = readdir(open_folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(open_folder);
  return names;
}

// /tmp is everybody's: a folder of that name that is not ours alone is not used.
bool is_ours(const std::string& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void write_options(JsonWriter& json, const SessionRecord& record) {
  json.key("options").begin_object();
  for (const auto& [key, value] : record.options) json.field(key, value);
  json.end_object();
}

void write_host(JsonWriter& json) {
  utsname system{};
  uname(&system);
  json.key("host").begin_object();
  json.field("name", system.nodename).field("kernel", system.release).field("machine", system.machine);
  json.field("cpus", static_cast<uint64_t>(std::thread::hardware_concurrency()));
  json.end_object();
}

std::string session_json(const SessionRecord& record) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "llmprof.session/1").field("tool_version", LLMPROF_VERSION);
  json.key("command").begin_array();
  for (const std::string& word : record.command) json.value(word);
  json.end_array();
  json.field("program", record.program).field("working_folder", record.working_folder);
  json.field("name", record.name).field("mode", record.mode);
  write_options(json, record);
  json.field("start_unix_ns", record.start_unix_ns).field("end_unix_ns", record.end_unix_ns);
  json.field("process_id", record.process_id);
  json.field("exit_status", record.exit_status).field("signal", record.signal);
  json.field("user_cpu_s", record.user_cpu_s).field("system_cpu_s", record.system_cpu_s);
  json.field("max_resident_bytes", record.max_resident_bytes);
  write_host(json);
  json.key("gpus").begin_array();
  for (const SessionRecord::Gpu& gpu : record.gpus) {
    json.begin_object();
    json.field("uuid", gpu.uuid).field("name", gpu.name).field("pci_bus", gpu.pci_bus);
    json.end_object();
  }
  json.end_array();
  if (record.baseline.empty())
    json.key("baseline").null();
  else
    json.field("baseline", record.baseline);
  json.key("notices").begin_array();
  for (const std::string& notice : record.notices) json.value(notice);
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace

Result<std::string> create_session_folder(const std::string& wanted, const std::string& short_name,
                                          const std::string& name) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (error) return cannot_create(wanted.empty() ? kRunsFolder : wanted, error);
  if (!wanted.empty()) return create_named((here / wanted).lexically_normal());
  return create_default(here / kRunsFolder, short_name + "-" + time_stamp(), name);
}

Status write_session_file(const std::string& folder, const SessionRecord& record) {
  // Written beside and renamed, so that a reader never sees half of it and a full disk leaves the old one.
  const std::string path = folder + "/session.json", fresh = path + ".new";
  const std::string text = session_json(record);
  std::FILE* file = std::fopen(fresh.c_str(), "wbe");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int why = errno;
  if (file != nullptr && std::fclose(file) != 0 && good) {
    good = false;
    why = errno;
  }
  if (good && std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  if (good) why = errno;
  unlink(fresh.c_str());
  return fail(std::string("cannot write the session's description: ") + std::strerror(why), path,
              "check that the disk is not full");
}

namespace {

std::vector<std::string> of_recorded_gpus(const std::string& folder, std::string_view field) {
  std::ifstream file(folder + "/session.json", std::ios::binary);
  const Result<JsonDocument> document =
      JsonDocument::parse(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  std::vector<std::string> texts;
  if (!document) return texts;
  for (const JsonValue gpu : document->root()["gpus"].entries())
    if (const std::optional<std::string_view> text = gpu[field].text()) texts.emplace_back(*text);
  return texts;
}

}  // namespace

std::vector<std::string> recorded_gpus(const std::string& folder) { return of_recorded_gpus(folder, "name"); }
std::vector<std::string> recorded_uuids(const std::string& folder) { return of_recorded_gpus(folder, "uuid"); }

RunningEntry::RunningEntry(const std::string& session_folder) {
  const std::string folder = register_folder();
  mkdir(folder.c_str(), 0700);
  if (!is_ours(folder)) return;
  // Whoever looks for sessions removes entries that lead to none, so this one must never be seen half written.
  const std::string path = fmt::format("{}/{}", folder, getpid()), fresh = fmt::format("{}/.{}", folder, getpid());
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  const bool wrote =
      write(fd, session_folder.data(), session_folder.size()) == static_cast<ssize_t>(session_folder.size());
  close(fd);
  if (wrote && std::rename(fresh.c_str(), path.c_str()) == 0)
    path_ = path;
  else
    unlink(fresh.c_str());
}

RunningEntry::~RunningEntry() {
  if (!path_.empty()) unlink(path_.c_str());
}

std::vector<std::string> running_sessions() {
  struct Found {
    int64_t started_ns;
    std::string folder;
  };
  std::vector<Found> found;
  const auto consider = [&](const std::string& folder) {
    struct stat status {};
    // session.json is written once while the session runs: when it starts.
    if (!session_is_running(folder) || stat((folder + "/session.json").c_str(), &status) != 0) return;
    const bool known = std::any_of(found.begin(), found.end(), [&](const Found& other) {
      std::error_code ignored;
      return fs::equivalent(other.folder, folder, ignored);
    });
    if (!known) found.push_back({status.st_mtim.tv_sec * int64_t{1000000000} + status.st_mtim.tv_nsec, folder});
  };
  const std::string entries = register_folder();
  if (is_ours(entries))
    for (const std::string& name : names_in(entries)) {
      if (name[0] == '.') continue;  // being written
      const std::string entry = entries + "/" + name;
      std::ifstream file(entry);
      const std::string folder{std::istreambuf_iterator<char>(file), {}};
      if (session_is_running(folder))
        consider(folder);
      else
        unlink(entry.c_str());  // left behind by a run that was killed
    }
  std::error_code error;
  const fs::path runs = fs::absolute(kRunsFolder, error);
  if (!error)
    for (const std::string& name : names_in(runs.string())) consider((runs / name).string());
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.started_ns > b.started_ns; });
  std::vector<std::string> folders;
  for (Found& one : found) folders.push_back(std::move(one.folder));
  return folders;
}

uint64_t recorded_bytes(const std::string& folder) {
  uint64_t sum = 0;
  for (const char* part : {"/spool", "/samples"})
    for (const std::string& name : names_in(folder + part)) {
      struct stat status {};
      if (stat((folder + part + "/" + name).c_str(), &status) == 0) sum += static_cast<uint64_t>(status.st_size);
    }
  return sum;
}

}  // namespace llmprof::launch
