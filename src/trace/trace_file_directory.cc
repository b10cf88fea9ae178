#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cstring>

#include "trace/trace_file.h"
#include "trace/trace_file_layout.h"

namespace llmprof {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;

constexpr size_t kDirectoryDepth = 16;
constexpr const char* kOtherCopy = "record or convert again, or use another copy of the file";

tl::unexpected<Error> bad_directory(const std::string& what) {
  return fail("expected the directory of a llmprof trace file, found " + what, "the start of the file", kOtherCopy);
}

// False if the member is missing or of another type.
bool read_text(element object, const char* key, std::string& out) {
  std::string_view text;
  if (object[key].get(text) != simdjson::SUCCESS) return false;
  out = text;
  return true;
}
bool read_number(element object, const char* key, uint64_t& out) { return object[key].get(out) == simdjson::SUCCESS; }
bool read_hex(element object, const char* key, uint64_t& out) {
  std::string_view text;
  if (object[key].get(text) != simdjson::SUCCESS || text.size() != 16) return false;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

// Blocks lie one behind the other in the order of the directory; `end` moves on.
bool read_blocks(array list, uint64_t& end, std::vector<FileBlock>& blocks) {
  for (const element item : list) {
    FileBlock block{end, 0, 0};
    if (!read_number(item, "bytes", block.bytes) || !read_hex(item, "xxh3", block.checksum)) return false;
    if (block.bytes > UINT64_MAX / 2 - end) return false;
    end += block.bytes;
    blocks.push_back(block);
  }
  return true;
}

bool read_table(element item, FileDirectory& directory) {
  FileTable table;
  array columns;
  if (!read_text(item, "name", table.name) || !read_number(item, "rows", table.rows)) return false;
  if (item["columns"].get(columns) != simdjson::SUCCESS) return false;
  for (const element entry : columns) {
    FileColumn column;
    array blocks;
    if (!read_text(entry, "name", column.name) || !read_text(entry, "type", column.type) ||
        !read_text(entry, "encoding", column.encoding) || entry["blocks"].get(blocks) != simdjson::SUCCESS ||
        !read_blocks(blocks, directory.end, column.blocks))
      return false;
    table.columns.push_back(std::move(column));
  }
  directory.tables.push_back(std::move(table));
  return true;
}

}  // namespace

Result<FileDirectory> read_file_directory(std::span<const char> file) {
  FileHead head;
  if (file.size() < sizeof head || std::memcmp(file.data(), kTraceFileMagic.data(), kTraceFileMagic.size()) != 0)
    return fail(fmt::format("expected a llmprof trace file (24 bytes of head that start with \"LLMPROF\"), found {}",
                            file.size() < sizeof head ? fmt::format("{} bytes", file.size()) : "other content"),
                {}, "pass the file to `llmprof analyze`: it recognises the formats it can read");
  std::memcpy(&head, file.data(), sizeof head);
  if (head.directory_bytes > kFileDirectoryBytesMax || head.directory_bytes > file.size() - sizeof head)
    return bad_directory(fmt::format("{} bytes of directory in a file of {} bytes: the file is cut or damaged",
                                     head.directory_bytes, file.size()));
  const std::span<const char> checked =
      file.subspan(kFileChecksumStart, sizeof head - kFileChecksumStart + head.directory_bytes);
  if (block_checksum(checked) != head.checksum) return bad_directory("a wrong checksum: the file is damaged");
  if (head.version != kTraceFileVersion)
    return fail(
        fmt::format("expected version {} of the llmprof trace file, found version {}", kTraceFileVersion, head.version),
        {}, "read it with the llmprof that wrote it, or a newer one");

  simdjson::dom::parser parser;
  if (parser.allocate(head.directory_bytes + 1, kDirectoryDepth) != simdjson::SUCCESS)
    return bad_directory("no memory to read it");
  const simdjson::padded_string text(file.data() + sizeof head, head.directory_bytes);
  element root;
  array tables;
  FileDirectory directory;
  directory.end = sizeof head + head.directory_bytes;
  if (parser.parse(text).get(root) != simdjson::SUCCESS || !read_number(root, "chunk_rows", directory.chunk_rows) ||
      directory.chunk_rows == 0 || root["tables"].get(tables) != simdjson::SUCCESS)
    return bad_directory("other JSON than llmprof writes");
  for (const element item : tables)
    if (!read_table(item, directory)) return bad_directory("an incomplete table entry");
  return directory;
}

}  // namespace llmprof
