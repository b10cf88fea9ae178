#include "export/destination.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace llmprof::exporting {
namespace fs = std::filesystem;

tl::unexpected<Error> cannot_write(const std::string& path, const std::string& why) {
  return fail("expected to write an export, found: " + why, path,
              "check that the folder exists, is writable and has space");
}

namespace {

std::string part_of(const std::string& place) { return fmt::format("{}.part{}", place, ::getpid()); }

// Where a symbolic link leads, so that the export and not the link is replaced.
std::string place_of(const std::string& path) {
  std::error_code failed;
  const fs::path real = fs::canonical(path, failed);
  return failed ? path : real.string();
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<Destination> Destination::for_file(const std::string& path, bool seeks) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (fs::is_directory(status))
    return fail("expected a file to write to, found a folder", path, "name a file in it: " + path + "/export",
                ExitCode::kUsage);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (!seeks) return Destination(path, {}, path);
    return fail("expected a regular file, found a device or a pipe, which cannot be read back while it is written",
                path, "name a file", ExitCode::kUsage);
  }
  const std::string place = place_of(path);
  return Destination(path, place, part_of(place));
}

Result<Destination> Destination::for_folder(const std::string& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (fs::exists(status) && !fs::is_directory(status))
    return fail("expected a folder for the files of the tables, found a file", path, "name another folder",
                ExitCode::kUsage);
  if (fs::is_directory(status) && !fs::is_empty(path, failed))
    return fail("expected a new or an empty folder, found one with files in it", path,
                "name another folder, or empty this one: files of two recordings would mix", ExitCode::kUsage);
  const std::string place = without_slashes(place_of(path));
  Destination out(path, place, part_of(place));
  fs::create_directory(out.part_, failed);
  if (failed) return cannot_write(path, failed.message());
  return out;
}

Destination::Destination(Destination&& other) noexcept
    : path_(std::move(other.path_)),
      place_(std::move(other.place_)),
      part_(std::move(other.part_)),
      done_(std::exchange(other.done_, true)) {}

Destination::~Destination() {
  if (done_ || place_.empty()) return;
  std::error_code ignored;
  fs::remove_all(part_, ignored);
}

Status Destination::take_name() {
  if (!place_.empty() && std::rename(part_.c_str(), place_.c_str()) != 0)
    return cannot_write(path_, std::strerror(errno));
  done_ = true;
  return {};
}

TextFile::TextFile(const std::string& path, std::string shown) : shown_(std::move(shown)) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) failure_ = errno;
  buffer_.reserve(kBufferBytes + kBufferBytes / 4);
}

TextFile::~TextFile() {
  if (fd_ >= 0) ::close(fd_);
}

void TextFile::flush() {
  for (size_t at = 0; at < buffer_.size() && failure_ == 0;) {
    const ssize_t wrote = ::write(fd_, buffer_.data() + at, buffer_.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) failure_ = errno;
    if (wrote > 0) at += static_cast<size_t>(wrote);
  }
  buffer_.clear();
}

Status TextFile::close() {
  flush();
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && failure_ == 0) failure_ = errno;
  if (failure_ != 0) return cannot_write(shown_, std::strerror(failure_));
  return {};
}

}  // namespace llmprof::exporting
