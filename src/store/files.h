// Files of the run store: written so that a crash, a full disk or a power cut leaves the old one or the new one, never
// half of one. Every function that can fail says which file and why; none throws.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llmprof::store {

// A file descriptor, closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  bool close();  // false where closing says that something was not written

 private:
  int fd_ = -1;
};

// "what: No space left on device", at `path`.
tl::unexpected<Error> failed_file(const std::string& what, const std::string& path, int why);

// The folder and those above it.
Status make_folders(const std::string& path);
// A new file with this content, on the disk when the function returns. What cannot be written whole is removed.
Status write_new(const std::string& path, std::string_view content);
// The same beside it, and then renamed: a reader sees the old content or the new one.
Status replace_file(const std::string& path, std::string_view content);
// Makes names in a folder last: what was made, renamed or removed in it.
Status sync_folder(const std::string& path);
Status sync_file(const std::string& path);
Status rename_file(const std::string& from, const std::string& to);
// With everything in it; links are removed, not followed. What is gone already is no error.
Status remove_tree(const std::string& path);

// At most `most` bytes, an error where there are more.
Result<std::string> read_small(const std::string& path, uint64_t most);

// Names in a folder but . and .., sorted.
Result<std::vector<std::string>> names_in(const std::string& folder);

struct FoundFile {
  std::string path;  // relative to the folder
  int64_t bytes = 0;
};
// The regular files below a folder, sorted by path. Errors: one that cannot be looked into, or more than 100,000.
Result<std::vector<FoundFile>> files_below(const std::string& folder);
// Bytes of the files below a folder, as far as it can be looked into.
int64_t bytes_below(const std::string& folder);

// XXH3 of a file's content as 16 hexadecimal digits, and its length.
struct Content {
  std::string xxh3;
  int64_t bytes = 0;
};
Result<Content> content_of(const std::string& path);
// The same of what a zstd file unpacks to. Bounded memory, whatever the file.
Result<Content> content_of_compressed(const std::string& path);
std::string checksum_of(std::string_view bytes);

// Whether a file begins as one that is compressed already (zstd, gzip).
bool is_compressed(const std::string& path);
// Replaces a file by its zstd form under the same name, if that is smaller. Readers of recordings unpack by a file's
// first bytes. Before the one is replaced by the other, the other is read again and compared with `expected`.
// Gives the bytes that it has on the disk then.
Result<int64_t> compress_file(const std::string& path, const Content& expected);

}  // namespace llmprof::store
