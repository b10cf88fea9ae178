// Where an export goes. It is written under a name of its own beside the one that was asked for, and takes that name,
// in place of what may be there, when it is complete; what is given up leaves nothing behind. A device or a pipe
// (/dev/stdout) has no name to take and is written to as it is.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace llmprof::exporting {

class Destination {
 public:
  // For a file. `seeks`: what cannot be read back, as a pipe, is an error.
  static Result<Destination> for_file(const std::string& path, bool seeks);
  // For a folder, which is made: one that has files in it already is an error.
  static Result<Destination> for_folder(const std::string& path);
  Destination(Destination&& other) noexcept;
  Destination& operator=(Destination&&) = delete;
  ~Destination();

  const std::string& path() const { return path_; }  // as it was asked for, for errors
  const std::string& part() const { return part_; }  // what to write to
  Status take_name();

 private:
  Destination(std::string path, std::string place, std::string part)
      : path_(std::move(path)), place_(std::move(place)), part_(std::move(part)) {}
  std::string path_, place_, part_;  // place_: where the name leads, empty if there is none to take
  bool done_ = false;
};

// A file that is written from its beginning to its end. The first failure is kept until close().
class TextFile {
 public:
  // Opens `path`; close() names `shown` in its error.
  TextFile(const std::string& path, std::string shown);
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile();

  // What is appended here is written by flush_if_large() or close().
  std::string& buffer() { return buffer_; }
  void flush_if_large() {
    if (buffer_.size() >= kBufferBytes) flush();
  }
  Status close();

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;
  void flush();
  std::string buffer_, shown_;
  int fd_ = -1, failure_ = 0;
};

tl::unexpected<Error> cannot_write(const std::string& path, const std::string& why);

}  // namespace llmprof::exporting
