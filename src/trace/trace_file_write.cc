#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "base/json_writer.h"
#include "base/parallel.h"
#include "trace/trace_block.h"
#include "trace/trace_file.h"
#include "trace/trace_file_layout.h"
#include "trace/trace_file_tables.h"

namespace llmprof {
namespace {

struct Block {
  std::span<const char> values;             // as they are in memory
  std::function<std::string()> as_in_file;  // of columns that files hold otherwise
  size_t bytes, width;
  BlockEncoding encoding;
  std::string frame;
  uint64_t checksum = 0;
};

// A column that memory holds otherwise than files: so many values from the first one on, as files have them.
using AsInFile = std::function<std::string(size_t first, size_t count)>;

template <class Target>
AsInFile as_in_file(const std::vector<RowId<Target>>& column) {
  return [&column](size_t first, size_t count) {
    std::string out(reinterpret_cast<const char*>(column.data() + first), count * sizeof(Row));
    invert_bits(out);
    return out;
  };
}
template <class T, T kZero>
AsInFile as_in_file(const HalvedColumn<T, kZero>& column) {
  return [&column](size_t first, size_t count) {
    std::string out(count * sizeof(T), '\0');
    for (size_t i = 0; i < count; ++i) {
      const T value = column[first + i];
      std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
    }
    return out;
  };
}
template <class T>
AsInFile as_in_file(const std::vector<T>&) {
  return {};
}

template <class T>
std::span<const char> bytes_of(const std::vector<T>& column) {
  return {reinterpret_cast<const char*>(column.data()), column.size() * sizeof(T)};
}
template <class T, T kZero>
std::span<const char> bytes_of(const HalvedColumn<T, kZero>&) {
  return {};
}

struct Column {
  std::string_view name, type;
  BlockEncoding encoding;
  size_t first_block, block_count;
};

struct Table {
  std::string_view name;
  size_t rows;
  std::vector<Column> columns;
};

class Packer {
 public:
  template <class AnyTable>
  void add(const AnyTable& table) {
    Table entry{table.info().name, table.size(), {}};
    table.for_each_column([&](const FieldInfo& field, const auto& column) {
      using Value = typename std::decay_t<decltype(column)>::value_type;
      static_assert(!element_type_name<Value>().empty(), "an element type the file format does not know");
      add_column(entry, field.name, element_type_name<Value>(), sizeof(Value), bytes_of(column), as_in_file(column));
    });
    tables_.push_back(std::move(entry));
  }

  // The whole file: head, directory, blocks in the order of the directory.
  Result<std::string> pack() {
    parallel_for(blocks_.size(), [&](size_t i) {
      Block& block = blocks_[i];
      block.frame = block.as_in_file ? pack_block(block.as_in_file(), block.width, block.encoding)
                                     : pack_block(block.values, block.width, block.encoding);
      block.checksum = block_checksum(block.frame);
    });
    const std::string directory = write_directory();
    uint64_t unpacked = 0, packed = kFileHeadBytes + directory.size();
    for (const Block& block : blocks_) {
      unpacked += block.bytes;
      packed += block.frame.size();
    }
    if (directory.size() > kFileDirectoryBytesMax || unpacked > unpacked_bytes_limit(packed))
      return fail(fmt::format("expected a recording that packs to at least 1/{} of its size and at most {} bytes in "
                              "memory, found {} bytes that pack to {}",
                              kFileUnpackRatioMax, kFileUnpackedBytesMax, unpacked, packed),
                  {}, "keep the original recording: a llmprof trace file of it could not be read back");
    std::string file(kFileHeadBytes, '\0');
    file.reserve(packed);
    file += directory;
    FileHead head;
    std::memcpy(head.magic, kTraceFileMagic.data(), sizeof head.magic);
    head.version = kTraceFileVersion;
    head.directory_bytes = static_cast<uint32_t>(directory.size());
    std::memcpy(file.data(), &head, sizeof head);
    head.checksum = block_checksum(std::span<const char>(file).subspan(kFileChecksumStart));
    std::memcpy(file.data(), &head, sizeof head);
    for (Block& block : blocks_) {
      file += block.frame;
      block.frame = {};
    }
    return file;
  }

 private:
  // `bytes`: as they are in memory, where files have them so.
  void add_column(Table& table, std::string_view name, std::string_view type, size_t width, std::span<const char> bytes,
                  const AsInFile& converted) {
    const size_t sample = std::min(table.rows, kBlockSampleValues);
    const BlockEncoding encoding = converted ? choose_block_encoding(converted(0, sample), width)
                                             : choose_block_encoding(bytes.first(sample * width), width);
    Column column{name, type, encoding, blocks_.size(), 0};
    for (size_t first = 0; first < table.rows; first += kFileChunkRows, ++column.block_count) {
      const size_t count = std::min<size_t>(kFileChunkRows, table.rows - first);
      Block& block = blocks_.emplace_back();
      if (converted)
        block.as_in_file = [converted, first, count] { return converted(first, count); };
      else
        block.values = bytes.subspan(first * width, count * width);
      block.bytes = count * width, block.width = width, block.encoding = encoding;
    }
    table.columns.push_back(column);
  }

  std::string write_directory() const {
    JsonWriter json(0);
    json.begin_object().field("format", "llmprof-trace").field("tool_version", LLMPROF_VERSION);
    json.field("chunk_rows", uint64_t{kFileChunkRows}).key("tables").begin_array();
    for (const Table& table : tables_) {
      json.begin_object().field("name", table.name).field("rows", uint64_t{table.rows}).key("columns").begin_array();
      for (const Column& column : table.columns) {
        if (table.rows == 0) break;  // nothing to name
        json.begin_object().field("name", column.name).field("type", column.type);
        json.field("encoding", block_encoding_name(column.encoding)).key("blocks").begin_array();
        for (size_t i = column.first_block; i < column.first_block + column.block_count; ++i)
          json.begin_object()
              .field("bytes", uint64_t{blocks_[i].frame.size()})
              .field("xxh3", fmt::format("{:016x}", blocks_[i].checksum))
              .end_object();
        json.end_array().end_object();
      }
      json.end_array().end_object();
    }
    json.end_array().end_object();
    return json.take() + "\n";
  }

  std::vector<Table> tables_;
  std::vector<Block> blocks_;
};

template <class Lengths, class Bytes>
void list_strings(const StringPool& pool, Lengths& lengths, Bytes& bytes) {
  lengths.reserve(pool.size());
  bytes.reserve(pool.bytes());
  for (uint32_t id = 1; id < pool.size(); ++id) {
    const std::string_view text = pool.get(static_cast<StringId>(id));
    lengths.length_bytes.push_back(text.size());
    bytes.byte.insert(bytes.byte.end(), text.begin(), text.end());
  }
}

TraceFileTables describe(const Trace& trace) {
  TraceFileTables file;
  StringPool texts;
  file.source.kind.push_back(texts.intern(trace.source.kind));
  file.source.content_bytes.push_back(trace.source.bytes);
  file.source.base_unix_ns.push_back(trace.base_unix_ns);
  for (const std::string& name : trace.source.files) file.names.file.push_back(texts.intern(name));
  for (const auto& [key, value] : trace.metadata) {
    file.metadata.key.push_back(texts.intern(key));
    file.metadata.value.push_back(texts.intern(value));
  }
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const DiagnosticId id = static_cast<DiagnosticId>(i);
    if (trace.diagnostics.count(id) == 0) continue;
    const StringId key = texts.intern(diagnostic_table()[i].key);
    file.diagnostics.key.push_back(key);
    file.diagnostics.count.push_back(trace.diagnostics.count(id));
    for (const std::string& place : trace.diagnostics.places(id)) {
      file.places.key.push_back(key);
      file.places.place.push_back(texts.intern(place));
    }
  }
  for (const Window& window : trace.windows) {
    file.windows.device.push_back(window.device);
    file.windows.start_ns.push_back(window.start_ns);
    file.windows.end_ns.push_back(window.end_ns);
  }
  list_strings(trace.strings, file.strings, file.string_bytes);
  list_strings(texts, file.texts, file.text_bytes);
  return file;
}

tl::unexpected<Error> cannot_write(const std::string& path) {
  return fail(fmt::format("expected to write a trace file, found: {}", std::strerror(errno)), path,
              "check that the folder exists, is writable and has space");
}

}  // namespace

Result<std::string> pack_trace(const Trace& trace) {
  TraceFileTables file = describe(trace);
  Packer packer;
  file.for_each_table([&](const auto& table) { packer.add(table); });
  trace.for_each_table([&](const auto& table) { packer.add(table); });
  return packer.pack();
}

Status save_trace(const Trace& trace, const std::string& path) {
  LLMPROF_ASSIGN(const std::string file, pack_trace(trace));
  const std::string part = fmt::format("{}.part{}", path, ::getpid());
  std::FILE* out = std::fopen(part.c_str(), "wb");
  if (out == nullptr) return cannot_write(part);
  const bool written = std::fwrite(file.data(), 1, file.size(), out) == file.size();
  const int write_error = errno;
  const bool closed = std::fclose(out) == 0;
  if (!written) errno = write_error;
  if (written && closed && std::rename(part.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  std::remove(part.c_str());
  errno = error;
  return cannot_write(path);
}

}  // namespace llmprof
