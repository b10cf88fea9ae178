// The fixed head of a trace file and its directory in memory. Internal to src/trace; docs/formats/llmprof-trace.md is
// the description for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace_block.h"

namespace llmprof {

struct FileHead {
  char magic[8] = {};
  uint64_t checksum = 0;         // XXH3 of everything from `version` to the end of the directory
  uint32_t version = 0;          // kTraceFileVersion
  uint32_t directory_bytes = 0;  // JSON text that follows
};
constexpr size_t kFileHeadBytes = sizeof(FileHead);
static_assert(kFileHeadBytes == 24, "the head has no padding");
constexpr size_t kFileChecksumStart = offsetof(FileHead, version);

// Values of one column in one block: large enough that the frame's overhead vanishes, small enough that the blocks of a
// big column are packed and unpacked side by side.
constexpr size_t kFileChunkRows = size_t{1} << 20;

struct FileBlock {
  uint64_t offset, bytes, checksum;
};
struct FileColumn {
  std::string name, type, encoding;
  std::vector<FileBlock> blocks;
};
struct FileTable {
  std::string name;
  uint64_t rows = 0;
  std::vector<FileColumn> columns;
};
struct FileDirectory {
  uint32_t version = 0;
  uint64_t chunk_rows = 0;
  uint64_t end = 0;  // where the last block ends; offsets never overflow
  std::vector<FileTable> tables;
};

// Checks the head and reads the directory. Block offsets may lie behind the end of a cut file.
Result<FileDirectory> read_file_directory(std::span<const char> file);

}  // namespace llmprof
