// A file, or standard input, to read from front to back, decompressed on the way: plain, gzip or zstd by its first
// bytes. Memory use does not depend on the size of the file. Not thread-safe; callers that read from several threads
// hold a lock around read().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llmprof {

class InputFile {
 public:
  enum class Compression : uint8_t { kNone, kGzip, kZstd };

  // "-" is standard input. Errors: missing, a directory, a terminal, not readable, empty. Each says what to do.
  static Result<InputFile> open(const std::string& path);
  // The same over bytes in memory (tests and fuzzing). The bytes must outlive the object.
  static Result<InputFile> from_memory(std::string_view bytes, std::string name);

  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) noexcept;
  ~InputFile();

  const std::string& name() const;
  Compression compression() const;
  // Size as stored; the decompressed size is known only for Compression::kNone.
  uint64_t stored_bytes() const;
  // The first bytes after decompression, at most kHeadBytes. Does not consume them.
  std::string_view head() const;
  static constexpr size_t kHeadBytes = 64 * 1024;

  // Reads up to `capacity` bytes, fewer only at the end; 0 at the end. After damage in a compressed stream returns what
  // could be decompressed and sets damaged().
  size_t read(char* buffer, size_t capacity);
  // Everything that is left. Error: more than `most` bytes, which `what` ("a spool") cannot have.
  Result<std::string> read_all(uint64_t most, std::string_view what);
  // True once the stored stream turned out to be cut or corrupt; damage() says how.
  bool damaged() const;
  const std::string& damage() const;

 private:
  struct State;
  explicit InputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace llmprof
