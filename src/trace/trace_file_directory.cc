#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "base/json_document.h"
#include "trace/trace_file.h"
#include "trace/trace_file_layout.h"

namespace llmprof {
namespace {

constexpr const char* kOtherCopy = "record or convert again, or use another copy of the file";

tl::unexpected<Error> bad_directory(const std::string& what) {
  return fail("expected the directory of a llmprof trace file, found " + what, "the start of the file", kOtherCopy);
}

// False if the member is missing or of another type.
bool read_text(JsonValue object, const char* key, std::string& out) {
  std::string_view text;
  if (!object[key].read(text)) return false;
  out = text;
  return true;
}
bool read_number(JsonValue object, const char* key, uint64_t& out) { return object[key].read(out); }
bool read_hex(JsonValue object, const char* key, uint64_t& out) {
  std::string_view text;
  if (!object[key].read(text) || text.size() != 16) return false;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

// Blocks lie one behind the other in the order of the directory; `end` moves on.
bool read_blocks(JsonValue list, uint64_t& end, std::vector<FileBlock>& blocks) {
  for (const JsonValue item : list.entries()) {
    FileBlock block{end, 0, 0};
    if (!read_number(item, "bytes", block.bytes) || !read_hex(item, "xxh3", block.checksum)) return false;
    if (block.bytes > UINT64_MAX / 2 - end) return false;
    end += block.bytes;
    blocks.push_back(block);
  }
  return true;
}

bool read_table(JsonValue item, FileDirectory& directory) {
  FileTable table;
  const JsonValue columns = item["columns"];
  if (!read_text(item, "name", table.name) || !read_number(item, "rows", table.rows)) return false;
  if (!columns.is_array()) return false;
  for (const JsonValue entry : columns.entries()) {
    FileColumn column;
    const JsonValue blocks = entry["blocks"];
    if (!read_text(entry, "name", column.name) || !read_text(entry, "type", column.type) ||
        !read_text(entry, "encoding", column.encoding) || !blocks.is_array() ||
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
  if (head.version < kTraceFileVersionOldest || head.version > kTraceFileVersion)
    return fail(fmt::format("expected version {} to {} of the llmprof trace file, found version {}",
                            kTraceFileVersionOldest, kTraceFileVersion, head.version),
                {}, "read it with the llmprof that wrote it, or a newer one");

  const Result<JsonDocument> document = JsonDocument::parse({file.data() + sizeof head, head.directory_bytes});
  const JsonValue root = document ? document->root() : JsonValue();
  FileDirectory directory;
  directory.version = head.version;
  directory.end = sizeof head + head.directory_bytes;
  if (!read_number(root, "chunk_rows", directory.chunk_rows) || directory.chunk_rows == 0 || !root["tables"].is_array())
    return bad_directory("other JSON than llmprof writes");
  for (const JsonValue item : root["tables"].entries())
    if (!read_table(item, directory)) return bad_directory("an incomplete table entry");
  return directory;
}

}  // namespace llmprof
