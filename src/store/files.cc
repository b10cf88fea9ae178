#include "store/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

namespace llmprof::store {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kFilesMax = 100000;
constexpr int kDepthMax = 32;
constexpr int kCompressionLevel = 3;
// What zstd may ask for to unpack: files of ours need 2 MiB at level 3.
constexpr int kWindowLogMax = 27;

constexpr const char* kFreshEnding = ".new";

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return failed_file("cannot write", path, wrote < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return {};
}

// Calls take(bytes) for the file's content, piece by piece.
Status read_pieces(const std::string& path, const std::function<Status(std::string_view)>& take) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return failed_file("cannot read", path, errno);
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed_file("cannot read", path, errno);
    if (got == 0) return {};
    LLMPROF_CHECK(take({piece.data(), static_cast<size_t>(got)}));
  }
}

struct HashState {
  XXH3_state_t* state = XXH3_createState();
  HashState() { XXH3_64bits_reset(state); }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
  void add(std::string_view bytes) {
    XXH3_64bits_update(state, bytes.data(), bytes.size());
    length += static_cast<int64_t>(bytes.size());
  }
  Content content() const { return {fmt::format("{:016x}", XXH3_64bits_digest(state)), length}; }
  int64_t length = 0;
};

struct FreeCompression {
  void operator()(ZSTD_CStream* stream) const { ZSTD_freeCStream(stream); }
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

// The compressed form of `path` in the open file `to`; the content's checksum goes into `hash`.
Status compress_into(const std::string& path, int to, const std::string& to_path, HashState& hash) {
  const std::unique_ptr<ZSTD_CStream, FreeCompression> stream(ZSTD_createCStream());
  if (stream == nullptr || ZSTD_isError(ZSTD_initCStream(stream.get(), kCompressionLevel)) != 0)
    return fail("cannot begin to compress", path);
  std::vector<char> out(ZSTD_CStreamOutSize());
  const auto feed = [&](std::string_view bytes, ZSTD_EndDirective how) -> Status {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    size_t left = 1;
    while (in.pos < in.size || (how == ZSTD_e_end && left != 0)) {
      ZSTD_outBuffer space{out.data(), out.size(), 0};
      left = ZSTD_compressStream2(stream.get(), &space, &in, how);
      if (ZSTD_isError(left) != 0) return fail(std::string("cannot compress: ") + ZSTD_getErrorName(left), path);
      LLMPROF_CHECK(write_all(to, {out.data(), space.pos}, to_path));
    }
    return {};
  };
  LLMPROF_CHECK(read_pieces(path, [&](std::string_view bytes) {
    hash.add(bytes);
    return feed(bytes, ZSTD_e_continue);
  }));
  return feed({}, ZSTD_e_end);
}

// `relative` is that of `folder`, empty at the top.
Status add_files(const std::string& folder, const std::string& relative, int depth, std::vector<FoundFile>& files) {
  if (depth > kDepthMax) return fail("expected folders at most 32 deep, found deeper ones", folder);
  LLMPROF_ASSIGN(const std::vector<std::string> names, names_in(folder));
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name, below = relative.empty() ? name : relative + "/" + name;
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return failed_file("cannot look at", path, errno);
    if (S_ISDIR(status.st_mode)) LLMPROF_CHECK(add_files(path, below, depth + 1, files));
    if (S_ISREG(status.st_mode)) files.push_back({below, status.st_size});
    if (files.size() > kFilesMax) return fail("expected at most 100,000 files in a run, found more", folder);
  }
  return {};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

bool Descriptor::close() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || ::close(fd) == 0;
}

tl::unexpected<Error> failed_file(const std::string& what, const std::string& path, int why) {
  return fail(what + ": " + std::strerror(why), path,
              why == ENOSPC || why == EDQUOT ? "make room: llmprof runs prune, or another place with LLMPROF_STORE"
                                             : "check the folder's permissions, or name another with LLMPROF_STORE");
}

Status make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string folder = path.substr(0, at);
    // Recordings hold names and paths that are nobody else's business.
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      const int why = errno;
      struct stat status {};  // a folder that is there on a file system that is read only
      if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
        return failed_file("cannot make a folder", folder, why);
    }
    if (at == std::string::npos) return {};
  }
}

Status write_new(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return failed_file("cannot make a file", path, errno);
  Status status = write_all(file.get(), content, path);
  if (status && fsync(file.get()) != 0) status = failed_file("cannot write", path, errno);
  if (!file.close() && status) status = failed_file("cannot write", path, errno);
  if (!status) unlink(path.c_str());
  return status;
}

Status replace_file(const std::string& path, std::string_view content) {
  const std::string fresh = path + kFreshEnding;
  LLMPROF_CHECK(write_new(fresh, content));
  Status status = rename_file(fresh, path);
  if (!status) unlink(fresh.c_str());
  return status;
}

Status sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return failed_file("cannot open the folder", path, errno);
  // Some network file systems have nothing to sync in a folder, and say so.
  if (fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    return failed_file("cannot write the folder", path, errno);
  return {};
}

Status sync_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return failed_file("cannot open", path, errno);
  if (fsync(file.get()) != 0) return failed_file("cannot write", path, errno);
  return {};
}

Status rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  return failed_file("cannot rename to " + to, from, errno);
}

Status remove_tree(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return failed_file("cannot look at", path, errno);
  }
  if (S_ISDIR(status.st_mode)) {
    LLMPROF_ASSIGN(const std::vector<std::string> names, names_in(path));
    for (const std::string& name : names) LLMPROF_CHECK(remove_tree(path + "/" + name));
    if (rmdir(path.c_str()) != 0 && errno != ENOENT) return failed_file("cannot remove", path, errno);
    return {};
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return failed_file("cannot remove", path, errno);
  return {};
}

Result<std::string> read_small(const std::string& path, uint64_t most) {
  std::string out;
  LLMPROF_CHECK(read_pieces(path, [&](std::string_view bytes) -> Status {
    if (out.size() + bytes.size() > most)
      return fail(fmt::format("expected a file of at most {} bytes, found a larger one", most), path);
    out += bytes;
    return {};
  }));
  return out;
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  DIR* const open_folder = opendir(folder.c_str());
  if (open_folder == nullptr) return failed_file("cannot read the folder", folder, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(open_folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int why = errno;
  closedir(open_folder);
  if (why != 0) return failed_file("cannot read the folder", folder, why);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<FoundFile>> files_below(const std::string& folder) {
  std::vector<FoundFile> files;
  LLMPROF_CHECK(add_files(folder, {}, 0, files));
  return files;
}

int64_t bytes_below(const std::string& folder) {
  std::vector<FoundFile> files;
  const Status ignored = add_files(folder, {}, 0, files);
  int64_t sum = 0;
  for (const FoundFile& file : files) sum += file.bytes;
  return sum;
}

Result<Content> content_of(const std::string& path) {
  HashState hash;
  LLMPROF_CHECK(read_pieces(path, [&](std::string_view bytes) -> Status {
    hash.add(bytes);
    return {};
  }));
  return hash.content();
}

Result<Content> content_of_compressed(const std::string& path) {
  const std::unique_ptr<ZSTD_DStream, FreeCompression> stream(ZSTD_createDStream());
  if (stream == nullptr || ZSTD_isError(ZSTD_initDStream(stream.get())) != 0 ||
      ZSTD_isError(ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kWindowLogMax)) != 0)
    return fail("cannot begin to unpack", path);
  HashState hash;
  std::vector<char> out(ZSTD_DStreamOutSize());
  size_t left = 0;
  LLMPROF_CHECK(read_pieces(path, [&](std::string_view bytes) -> Status {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (in.pos < in.size) {
      ZSTD_outBuffer space{out.data(), out.size(), 0};
      left = ZSTD_decompressStream(stream.get(), &space, &in);
      if (ZSTD_isError(left) != 0) return fail(std::string("cannot unpack: ") + ZSTD_getErrorName(left), path);
      hash.add({out.data(), space.pos});
    }
    return {};
  }));
  if (left != 0) return fail("expected a whole zstd file, found one that is cut", path);
  return hash.content();
}

std::string checksum_of(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

bool is_compressed(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  unsigned char head[4] = {};
  if (!file.is_open() || ::read(file.get(), head, sizeof head) != static_cast<ssize_t>(sizeof head)) return false;
  const bool zstd = head[0] == 0x28 && head[1] == 0xB5 && head[2] == 0x2F && head[3] == 0xFD;
  return zstd || (head[0] == 0x1F && head[1] == 0x8B);
}

Result<int64_t> compress_file(const std::string& path, const Content& expected) {
  const std::string fresh = path + kFreshEnding;
  const auto make = [&]() -> Status {
    Descriptor file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.is_open()) return failed_file("cannot make a file", fresh, errno);
    HashState hash;
    LLMPROF_CHECK(compress_into(path, file.get(), fresh, hash));
    if (hash.content().xxh3 != expected.xxh3)
      return fail("expected the content that was kept, found another: it is not compressed", path);
    if (fsync(file.get()) != 0) return failed_file("cannot write", fresh, errno);
    if (!file.close()) return failed_file("cannot write", fresh, errno);
    LLMPROF_ASSIGN(const Content again, content_of_compressed(fresh));
    if (again.xxh3 != expected.xxh3 || again.bytes != expected.bytes)
      return fail("expected the same content when it is unpacked, found another: it is not compressed", path);
    return {};
  };
  Status status = make();
  struct stat before {
  }, after{};
  if (status && (stat(path.c_str(), &before) != 0 || stat(fresh.c_str(), &after) != 0))
    status = failed_file("cannot look at", path, errno);
  const bool smaller = status && after.st_size < before.st_size;
  if (smaller) status = rename_file(fresh, path);
  if (!status || !smaller) unlink(fresh.c_str());
  if (!status) return tl::unexpected<Error>(status.error());
  return smaller ? after.st_size : before.st_size;
}

}  // namespace llmprof::store
