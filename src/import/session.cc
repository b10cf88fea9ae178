#include "import/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/parallel.h"
#include "capture/spool/reader.h"
#include "import/session_folder.h"

namespace llmprof::session_importer {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSessionFactsBytesMax = uint64_t{16} << 20;
constexpr uint64_t kPackedRatioMax = 256;  // a spool that someone packed with gzip or zstd
constexpr uint64_t kUnpackedFloorBytes = uint64_t{64} << 20;

Result<std::string> read_all(InputFile& input) {
  const bool packed = input.compression() != InputFile::Compression::kNone;
  return input.read_all(packed ? kUnpackedFloorBytes + input.stored_bytes() * kPackedRatioMax : UINT64_MAX, "a spool");
}

Status load(InputFile& input, SpoolTables& file) {
  LLMPROF_ASSIGN(file.bytes, read_all(input));
  if (!spool::read_head(file.bytes, file.head))
    return fail(fmt::format("expected a spool of `llmprof run` of version {}, found {}", spool::kVersion,
                            sniff(input.head()) == 0 ? "something else" : "another version or a cut head"),
                input.name(), "read it with the llmprof that recorded it");
  file.name = fs::path(input.name()).filename().string();
  file.is_target = spool::role_of(file.head) == "target";
  if (input.damaged()) file.part.diagnostics.add(DiagnosticId::kTruncatedFile, input.damage());
  return {};
}

// ---- what may not be read ------------------------------------------------------------------------------------------

// True also where nobody may look at it, and for a link that leads nowhere: there is something that cannot be read.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

std::string advice_for(int why, const fs::path& root) {
  switch (why) {
    case EACCES:
    case EPERM:
      return fmt::format("analyze as the user who recorded, or make the session yours: sudo chown -R $(id -u) {}",
                         root.string());
    case ENOENT:
    case ELOOP:
      return "it is a link that leads nowhere; copy the session folder once more, links as files: cp -rL";
    case EISDIR:
    case ENOTDIR:
      return "something else has its name; copy the session folder once more";
    default:
      return "check the disk or the network share on which it lies";
  }
}

// An error with the system's reason if the file (`flags` O_DIRECTORY: the folder) cannot be opened to be read.
Status readable(const fs::path& root, const fs::path& path, int flags = 0) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  int why = fd < 0 ? errno : 0;
  struct stat info {};
  if (fd >= 0 && fstat(fd, &info) != 0) why = errno;
  if (fd >= 0 && why == 0 && flags == 0 && S_ISDIR(info.st_mode)) why = EISDIR;
  if (fd >= 0) ::close(fd);
  if (why == 0) return {};
  return fail(std::string("cannot be read: ") + std::strerror(why), path.string(), advice_for(why, root));
}

void add_unreadable(const Error& error, const fs::path& root, Trace& trace) {
  trace.diagnostics.add(
      DiagnosticId::kUnreadableFile,
      fmt::format("{} {}; {}", fs::path(error.where).lexically_relative(root).string(), error.what, error.advice));
}

// ---- the parts of a session ----------------------------------------------------------------------------------------

void read_facts(const fs::path& root, Trace& trace) {
  const fs::path path = root / "session.json";
  if (!is_there(path)) return;
  if (const Status status = readable(root, path); !status) return add_unreadable(status.error(), root, trace);
  Result<InputFile> input = InputFile::open(path.string());
  if (input && input->stored_bytes() > kSessionFactsBytesMax)
    return trace.diagnostics.add(
        DiagnosticId::kBadMetadata,
        fmt::format("session.json: expected at most {} bytes, found {}", kSessionFactsBytesMax, input->stored_bytes()));
  Result<std::string> text = std::string();
  if (input) text = read_all(*input);
  if (!input || !text) {
    const Error& error = !input ? input.error() : text.error();
    return trace.diagnostics.add(DiagnosticId::kBadMetadata, "session.json: " + error.what);
  }
  read_session_facts(*text, trace);
}

// Appends the spools of one folder of the session, by name; an absent folder has none.
Status add_spools(const fs::path& root, const char* name, std::vector<std::string>& paths) {
  const fs::path folder = root / name;
  if (!is_there(folder)) return {};
  LLMPROF_CHECK(readable(root, folder, O_DIRECTORY));
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".spool") found.push_back(at->path().string());
  if (error) return fail("cannot be read: " + error.message(), folder.string(), advice_for(error.value(), root));
  std::sort(found.begin(), found.end());
  paths.insert(paths.end(), found.begin(), found.end());
  return {};
}

// What keeps a file from being loaded; where it may not even be opened, with the system's reason.
Status open_and_load(const fs::path& root, const std::string& path, SpoolTables& file) {
  LLMPROF_CHECK(readable(root, path));
  LLMPROF_ASSIGN(InputFile input, InputFile::open(path));
  return load(input, file);
}

}  // namespace

int sniff(std::string_view head) {
  const std::string_view magic(reinterpret_cast<const char*>(&spool::kFileMagic), sizeof spool::kFileMagic);
  return head.starts_with(magic) ? 100 : 0;
}

Status import(InputFile& input, Trace& trace) {
  if (!trace.source.files.empty())
    return fail("expected one recording, found a spool beside another file", input.name(),
                "analyze the session folder that holds it");
  std::vector<SpoolTables> files(1);
  LLMPROF_CHECK(load(input, files.front()));
  read_spools(std::move(files), trace);
  return {};
}

bool is_session(const std::string& path) {
  std::error_code error;
  const fs::path folder(path);
  if (!fs::is_directory(folder, error)) return false;
  if (is_there(folder / "session.json")) return true;
  const fs::file_type spool = fs::status(folder / "spool", error).type();
  return spool == fs::file_type::directory || spool == fs::file_type::none;  // none: nobody may look
}

Status import_session(const std::string& folder, Trace& trace) {
  const fs::path root(folder);
  read_facts(root, trace);
  std::vector<std::string> paths;
  LLMPROF_CHECK(add_spools(root, "spool", paths));
  if (const Status samples = add_spools(root, "samples", paths); !samples) add_unreadable(samples.error(), root, trace);
  if (paths.empty())
    return fail("expected spools in the session folder, found none", folder,
                "nothing was recorded: is the program one that uses CUDA, and was the folder writable?");
  std::vector<SpoolTables> loaded(paths.size());
  std::vector<std::optional<Error>> problems(paths.size());
  parallel_for(paths.size(), [&](size_t i) {
    const Status status = open_and_load(root, paths[i], loaded[i]);
    if (!status) problems[i] = status.error();
  });
  std::vector<SpoolTables> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    trace.source.bytes += loaded[i].bytes.size();
    if (!problems[i])
      files.push_back(std::move(loaded[i]));
    else if (!readable(root, paths[i]))
      add_unreadable(*problems[i], root, trace);
    else
      trace.diagnostics.add(DiagnosticId::kDamagedSpoolBlock,
                            fmt::format("{}: {}", fs::path(paths[i]).filename().string(), problems[i]->what));
  }
  if (files.empty())
    return fail("expected a readable spool in the session folder, found none", problems[0]->where,
                problems[0]->what + (problems[0]->advice.empty() ? "" : "; " + problems[0]->advice));
  read_spools(std::move(files), trace);
  return {};
}

}  // namespace llmprof::session_importer
