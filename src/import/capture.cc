#include "import/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/parallel.h"
#include "capture/spool/reader.h"
#include "import/capture_session.h"

namespace llmprof::capture {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSessionFactsBytesMax = uint64_t{16} << 20;
constexpr uint64_t kPackedRatioMax = 256;  // a spool that someone packed with gzip or zstd
constexpr uint64_t kUnpackedFloorBytes = uint64_t{64} << 20;

Result<std::string> read_all(InputFile& input) {
  constexpr size_t kStep = size_t{4} << 20;
  const bool packed = input.compression() != InputFile::Compression::kNone;
  const uint64_t limit = packed ? kUnpackedFloorBytes + input.stored_bytes() * kPackedRatioMax : UINT64_MAX;
  std::string bytes;
  if (!packed) bytes.reserve(input.stored_bytes() + kStep);
  for (size_t got = kStep; got != 0;) {
    const size_t at = bytes.size();
    bytes.resize(at + kStep);
    got = input.read(bytes.data() + at, kStep);
    bytes.resize(at + got);
    if (bytes.size() > limit)
      return fail(fmt::format("expected a spool of at most {} bytes, found more", limit), input.name(),
                  "unpack the file and check that it is what you meant");
  }
  return bytes;
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

// The spools of one folder, by name; an absent folder has none.
std::vector<std::string> spools_in(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".spool") paths.push_back(at->path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
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
  return fs::is_directory(folder, error) &&
         (fs::is_directory(folder / "spool", error) || fs::exists(folder / "session.json", error));
}

Status import_session(const std::string& folder, Trace& trace) {
  const fs::path root(folder);
  std::error_code error;
  if (fs::exists(root / "session.json", error)) {
    Result<InputFile> input = InputFile::open((root / "session.json").string());
    Result<std::string> text = std::string();
    if (input && input->stored_bytes() <= kSessionFactsBytesMax) text = read_all(*input);
    if (input && text)
      read_session_facts(*text, trace);
    else
      trace.diagnostics.add(DiagnosticId::kBadMetadata, "session.json cannot be read");
  }
  std::vector<std::string> paths = spools_in(root / "spool");
  for (std::string& path : spools_in(root / "samples")) paths.push_back(std::move(path));
  if (paths.empty())
    return fail("expected spools in the session folder, found none", folder,
                "nothing was recorded: is the program one that uses CUDA, and was the folder writable?");
  std::vector<SpoolTables> loaded(paths.size());
  std::vector<std::string> problems(paths.size());
  std::vector<uint64_t> sizes(paths.size(), 0);
  parallel_for(paths.size(), [&](size_t i) {
    Result<InputFile> input = InputFile::open(paths[i]);
    Status status = input ? load(*input, loaded[i]) : Status(tl::unexpected<Error>(input.error()));
    if (!status) problems[i] = status.error().what;
    sizes[i] = loaded[i].bytes.size();
  });
  std::vector<SpoolTables> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    trace.source.bytes += sizes[i];
    if (problems[i].empty())
      files.push_back(std::move(loaded[i]));
    else
      trace.diagnostics.add(DiagnosticId::kDamagedSpoolBlock,
                            fmt::format("{}: {}", fs::path(paths[i]).filename().string(), problems[i]));
  }
  if (files.empty()) return fail("expected a readable spool in the session folder, found none", folder, problems[0]);
  read_spools(std::move(files), trace);
  return {};
}

}  // namespace llmprof::capture
