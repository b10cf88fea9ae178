#include "base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace llmprof {
namespace {
constexpr size_t kStoredChunkBytes = 256 * 1024;
constexpr std::string_view kStandardInput = "standard input";
}  // namespace

struct InputFile::State {
  std::string name;
  int fd = -1;
  std::string_view memory;  // when fd < 0
  size_t memory_at = 0;
  uint64_t stored_bytes = 0;
  Compression compression = Compression::kNone;
  std::string head;
  size_t head_at = 0;
  std::string damage;
  bool stored_end = false;

  std::vector<char> chunk;  // stored bytes waiting for the decompressor
  size_t chunk_at = 0, chunk_end = 0;
  z_stream gzip{};
  bool gzip_open = false, gzip_member_done = false;
  ZSTD_DStream* zstd = nullptr;
  size_t zstd_hint = 1;  // 0 exactly at the end of a frame
  bool done = false;

  ~State() {
    if (gzip_open) inflateEnd(&gzip);
    if (zstd != nullptr) ZSTD_freeDStream(zstd);
    if (fd >= 0) close(fd);
  }

  size_t read_stored(char* buffer, size_t capacity) {
    size_t got = 0;
    if (fd < 0) {
      got = std::min(capacity, memory.size() - memory_at);
      if (got != 0) std::memcpy(buffer, memory.data() + memory_at, got);
      memory_at += got;
    } else {
      while (got < capacity) {
        const ssize_t n = ::read(fd, buffer + got, capacity - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) damage = std::string("reading failed: ") + std::strerror(errno);
        if (n <= 0) break;
        got += static_cast<size_t>(n);
      }
    }
    if (got < capacity) stored_end = true;
    return got;
  }

  bool refill() {
    if (chunk_at < chunk_end) return true;
    if (stored_end) return false;
    chunk_at = 0;
    chunk_end = read_stored(chunk.data(), chunk.size());
    return chunk_end != 0;
  }

  size_t read_gzip(char* buffer, size_t capacity) {
    size_t got = 0;
    while (got < capacity && !done) {
      if (!refill()) {
        if (!gzip_member_done)
          damage = "the gzip file is truncated (it ends before its end mark; bytes are counted unpacked)";
        done = true;
        break;
      }
      if (gzip_member_done) {  // another member may follow; anything else is trailing data
        if (static_cast<unsigned char>(chunk[chunk_at]) != 0x1F) {
          done = true;
          break;
        }
        inflateReset(&gzip);
        gzip_member_done = false;
      }
      gzip.next_in = reinterpret_cast<Bytef*>(chunk.data() + chunk_at);
      gzip.avail_in = static_cast<uInt>(chunk_end - chunk_at);
      gzip.next_out = reinterpret_cast<Bytef*>(buffer + got);
      const size_t room = std::min<size_t>(capacity - got, 1U << 30);
      gzip.avail_out = static_cast<uInt>(room);
      const int rc = inflate(&gzip, Z_NO_FLUSH);
      got += room - gzip.avail_out;
      chunk_at = chunk_end - gzip.avail_in;
      if (rc == Z_STREAM_END) {
        gzip_member_done = true;
      } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        damage = std::string("the gzip file is corrupt: ") + (gzip.msg != nullptr ? gzip.msg : "bad data");
        done = true;
      }
    }
    return got;
  }

  size_t read_zstd(char* buffer, size_t capacity) {
    size_t got = 0;
    while (got < capacity && !done) {
      if (!refill()) {
        if (zstd_hint != 0) damage = "the zstd file is truncated (it ends inside a frame; bytes are counted unpacked)";
        done = true;
        break;
      }
      ZSTD_inBuffer in{chunk.data() + chunk_at, chunk_end - chunk_at, 0};
      ZSTD_outBuffer out{buffer + got, capacity - got, 0};
      const size_t rc = ZSTD_decompressStream(zstd, &out, &in);
      got += out.pos;
      chunk_at += in.pos;
      if (ZSTD_isError(rc)) {
        damage = std::string("the zstd file is corrupt: ") + ZSTD_getErrorName(rc);
        done = true;
        break;
      }
      zstd_hint = rc;
    }
    return got;
  }

  size_t read(char* buffer, size_t capacity) {
    switch (compression) {
      case Compression::kGzip:
        return read_gzip(buffer, capacity);
      case Compression::kZstd:
        return read_zstd(buffer, capacity);
      case Compression::kNone:
        return read_stored(buffer, capacity);
    }
    return 0;
  }

  // Looks at the first stored bytes, starts the decompressor, and fills `head`.
  Status start() {
    std::string magic(4, '\0');
    const size_t got = read_stored(magic.data(), magic.size());
    magic.resize(got);
    if (!damage.empty()) return fail(damage, name);
    if (got == 0 && name == kStandardInput)
      return fail("standard input is empty", "", "check the command before the pipe: it wrote nothing");
    if (got == 0)
      return fail("the file is empty", name, "record again, or check that the recorder finished writing the file");
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(magic[i]); };
    if (got >= 2 && byte(0) == 0x1F && byte(1) == 0x8B) compression = Compression::kGzip;
    if (got == 4 && byte(0) == 0x28 && byte(1) == 0xB5 && byte(2) == 0x2F && byte(3) == 0xFD)
      compression = Compression::kZstd;
    if (compression == Compression::kNone) {
      head = magic;
      const size_t at = head.size();
      head.resize(kHeadBytes);
      head.resize(at + (stored_end ? 0 : read_stored(head.data() + at, kHeadBytes - at)));
      return {};
    }
    chunk.resize(kStoredChunkBytes);
    std::memcpy(chunk.data(), magic.data(), got);
    chunk_end = got;
    if (compression == Compression::kGzip) {
      constexpr int kGzipWindow = 15 + 16;  // 32 KiB window, gzip wrapper only
      if (inflateInit2(&gzip, kGzipWindow) != Z_OK) return fail("zlib could not start", name);
      gzip_open = true;
    } else {
      zstd = ZSTD_createDStream();
      if (zstd == nullptr) return fail("zstd could not start", name);
    }
    head.resize(kHeadBytes);
    head.resize(read(head.data(), kHeadBytes));
    if (head.empty())
      return fail(damage.empty() ? "the file holds nothing after unpacking" : damage, name,
                  "the file is damaged or was cut while it was copied; copy or record it again");
    return {};
  }
};

InputFile::InputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
InputFile::InputFile(InputFile&&) noexcept = default;
InputFile& InputFile::operator=(InputFile&&) noexcept = default;
InputFile::~InputFile() = default;

Result<InputFile> InputFile::open(const std::string& path) {
  std::unique_ptr<State> state = std::make_unique<State>();
  const bool standard_input = path == "-";
  state->name = standard_input ? std::string(kStandardInput) : path;
  if (standard_input && isatty(STDIN_FILENO) == 1)
    return fail("expected a file on standard input, found a terminal", "-", "pipe it in:  llmprof ... - < FILE",
                ExitCode::kUsage);
  // A duplicate: who closes this one leaves the process its own.
  state->fd = standard_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state->fd < 0) {
    const int why = errno;
    if (why == ENOENT) return fail("there is no such file", path, "check the path; `ls` shows what is there");
    return fail(std::string("cannot open the file: ") + std::strerror(why), path,
                why == EACCES ? "check its permissions" : "");
  }
  struct stat info {};
  if (fstat(state->fd, &info) != 0) return fail(std::string("cannot read the file: ") + std::strerror(errno), path);
  if (S_ISDIR(info.st_mode)) return fail("expected a file, found a directory", path, "name the file inside it");
  state->stored_bytes = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
  LLMPROF_CHECK(state->start());
  return InputFile(std::move(state));
}

Result<InputFile> InputFile::from_memory(std::string_view bytes, std::string name) {
  std::unique_ptr<State> state = std::make_unique<State>();
  state->name = std::move(name);
  state->memory = bytes;
  state->stored_bytes = bytes.size();
  LLMPROF_CHECK(state->start());
  return InputFile(std::move(state));
}

const std::string& InputFile::name() const { return state_->name; }
InputFile::Compression InputFile::compression() const { return state_->compression; }
uint64_t InputFile::stored_bytes() const { return state_->stored_bytes; }
std::string_view InputFile::head() const { return state_->head; }
bool InputFile::damaged() const { return !state_->damage.empty(); }
const std::string& InputFile::damage() const { return state_->damage; }

size_t InputFile::read(char* buffer, size_t capacity) {
  size_t got = 0;
  if (state_->head_at < state_->head.size()) {
    got = std::min(capacity, state_->head.size() - state_->head_at);
    std::memcpy(buffer, state_->head.data() + state_->head_at, got);
    state_->head_at += got;
  }
  return got == capacity ? got : got + state_->read(buffer + got, capacity - got);
}

Result<std::string> InputFile::read_all(uint64_t most, std::string_view what) {
  constexpr size_t kStep = size_t{4} << 20;
  std::string bytes;
  if (compression() == Compression::kNone) bytes.reserve(std::min<uint64_t>(stored_bytes(), most) + kStep);
  for (size_t got = kStep; got != 0;) {
    const size_t at = bytes.size();
    bytes.resize(at + kStep);
    got = read(bytes.data() + at, kStep);
    bytes.resize(at + got);
    if (bytes.size() > most)
      return fail(fmt::format("expected {} of at most {} bytes, found more", what, most), name(),
                  "unpack the file and check that it is what you meant");
  }
  return bytes;
}

}  // namespace llmprof
