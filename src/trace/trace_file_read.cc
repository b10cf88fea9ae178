#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "base/parallel.h"
#include "trace/check_trace.h"
#include "trace/copy_names.h"
#include "trace/signature.h"
#include "trace/trace_block.h"
#include "trace/trace_file.h"
#include "trace/trace_file_layout.h"
#include "trace/trace_file_tables.h"

namespace llmprof {
namespace {

// One string pool may be as large as the budget allows; every other table is addressed by Row.
constexpr uint64_t kRowsMax = kNoRow;

struct Job {
  std::string name;
  FileBlock block;
  BlockEncoding encoding;
  size_t width;
  size_t bytes;
  bool inverted = false;                       // ids of rows
  std::span<char> values;                      // where they lie in memory as in the file
  std::function<void(std::string_view)> take;  // else
  bool sound = false;
};

template <class T>
void place(std::vector<T>& column, size_t first, Job& job) {
  job.values = {reinterpret_cast<char*>(column.data() + first), job.bytes};
  job.inverted = is_row_id<T>;
}
template <class T, T kZero>
void place(HalvedColumn<T, kZero>& column, size_t first, Job& job) {
  job.take = [&column, first](std::string_view values) {
    for (size_t i = 0; i < values.size() / sizeof(T); ++i) {
      T value;
      std::memcpy(&value, values.data() + i * sizeof(T), sizeof(T));
      column[first + i] = value;
    }
  };
}

// A column without its type, of which there are some four hundred: what reads them is compiled once.
struct AnyColumn {
  std::string_view name, type;  // as in the file
  size_t width;                 // bytes of a value
  bool enumeration;
  void* column;
  void (*fill_absent)(void* column);
  void (*place)(void* column, size_t first, Job& job);
};
template <class Column>
AnyColumn any_column(std::string_view name, Column& column) {
  using Value = typename Column::value_type;
  return {.name = name,
          .type = element_type_name<Value>(),
          .width = sizeof(Value),
          .enumeration = std::is_enum_v<Value> && element_type_name<Value>() == "enum",
          .column = &column,
          .fill_absent =
              [](void* any) {
                Column& values = *static_cast<Column*>(any);
                for (size_t row = 0; row < values.size(); ++row) values[row] = absent_value<Value>();
              },
          .place = [](void* any, size_t first, Job& job) { place(*static_cast<Column*>(any), first, job); }};
}

struct AnyTable {
  std::string_view name, once_name;  // `once_name`: in files of version 1; empty: the same
  std::vector<AnyColumn> columns;
  std::function<void(size_t rows)> resize;  // 0: empties it
};

template <class Table>
AnyTable any_table(Table& table) {
  AnyTable any{.name = table.info().name,
               .once_name = std::is_same_v<Table, RecurringCalls> ? "beats" : "",
               .columns = {},
               .resize = [&table](size_t rows) { rows == 0 ? table.clear() : table.resize(rows); }};
  table.for_each_column(
      [&any](const FieldInfo& field, auto& column) { any.columns.push_back(any_column(field.name, column)); });
  return any;
}

class Unpacker {
 public:
  Unpacker(std::span<const char> file, FileDirectory directory, Diagnostics& diagnostics)
      : file_(file), directory_(std::move(directory)), diagnostics_(diagnostics) {
    known_.resize(directory_.tables.size());
    budget_ = unpacked_bytes_limit(file.size());
    if (directory_.end > file.size())
      diagnostics_.add(DiagnosticId::kTruncatedFile, fmt::format("byte {} of {}", file.size(), directory_.end));
    if (directory_.end < file.size())
      diagnostics_.add(DiagnosticId::kTrailingData, fmt::format("byte {}", directory_.end));
  }

  // Sizes the table and plans its blocks, or leaves it empty and says why. Filled by run().
  void plan(AnyTable table) {
    const FileTable* entry = take(table.name);
    if (entry == nullptr && directory_.version == 1 && !table.once_name.empty()) entry = take(table.once_name);
    if (entry == nullptr || entry->rows == 0) return;
    const size_t first_job = jobs_.size();
    const uint64_t budget_before = budget_;
    std::string problem;
    DiagnosticId id = DiagnosticId::kDamagedBlock;
    if (!reserve_bytes(*entry, table, id, problem)) {
      diagnostics_.add(id, problem);
      return;
    }
    table.resize(entry->rows);
    size_t known_columns = 0;
    for (const AnyColumn& column : table.columns) {
      const FileColumn* stored = find(*entry, column.name);
      if (stored == nullptr) {
        column.fill_absent(column.column);
        if (directory_.version == kTraceFileVersion)
          diagnostics_.add(DiagnosticId::kBadMetadata,
                           fmt::format("{}.{}: not in the file, read as absent", entry->name, column.name));
        continue;
      }
      ++known_columns;
      if (problem.empty()) plan_column(*entry, *stored, column, problem);
    }
    if (known_columns < entry->columns.size() && directory_.version == kTraceFileVersion)
      diagnostics_.add(DiagnosticId::kUnknownTable,
                       fmt::format("{}: {} columns", entry->name, entry->columns.size() - known_columns),
                       entry->columns.size() - known_columns);
    if (problem.empty()) {
      drops_.push_back({first_job, jobs_.size(), std::move(table)});
      return;
    }
    jobs_.resize(first_job);
    budget_ = budget_before;
    table.resize(0);
    diagnostics_.add(DiagnosticId::kDamagedBlock, problem);
  }

  // Unpacks every planned block, then empties the tables that lost one.
  void run() {
    const auto unpack = [&](size_t i) {
      Job& job = jobs_[i];
      const std::span<const char> frame = file_.subspan(job.block.offset, job.block.bytes);
      std::string copy(job.take ? job.bytes : 0, '\0');
      const std::span<char> values = job.take ? std::span<char>(copy) : job.values;
      job.sound = block_checksum(frame) == job.block.checksum && unpack_block(frame, job.width, job.encoding, values);
      if (job.inverted) invert_bits(values);
      if (job.take) job.take(copy);
    };
    // Below this, starting threads takes longer than the work.
    constexpr size_t kWorthThreads = size_t{1} << 18;
    if (file_.size() < kWorthThreads)
      for (size_t i = 0; i < jobs_.size(); ++i) unpack(i);
    else
      parallel_for(jobs_.size(), unpack);
    for (const Drop& drop : drops_) {
      for (size_t i = drop.first_job; i < drop.last_job; ++i) {
        if (jobs_[i].sound) continue;
        diagnostics_.add(DiagnosticId::kDamagedBlock,
                         fmt::format("{} at byte {}", jobs_[i].name, jobs_[i].block.offset));
        drop.table.resize(0);
        break;
      }
    }
    for (size_t i = 0; i < known_.size(); ++i)
      if (!known_[i]) diagnostics_.add(DiagnosticId::kUnknownTable, fmt::format("table {}", directory_.tables[i].name));
  }

 private:
  struct Drop {
    size_t first_job, last_job;
    AnyTable table;
  };

  // The first table of that name; a second one of the same name stays unknown.
  const FileTable* take(std::string_view name) {
    for (size_t i = 0; i < directory_.tables.size(); ++i) {
      if (directory_.tables[i].name != name) continue;
      known_[i] = true;
      return &directory_.tables[i];
    }
    return nullptr;
  }

  static const FileColumn* find(const FileTable& table, std::string_view name) {
    for (const FileColumn& column : table.columns)
      if (column.name == name) return &column;
    return nullptr;
  }

  // Checks everything that can be checked before memory is taken: row count, budget, blocks inside the file.
  bool reserve_bytes(const FileTable& entry, const AnyTable& table, DiagnosticId& id, std::string& problem) {
    uint64_t row_bytes = 0;
    bool inside = false, outside = false;
    for (const AnyColumn& column : table.columns) {
      row_bytes += column.width;
      const FileColumn* stored = find(entry, column.name);
      if (stored == nullptr) continue;
      inside = true;
      for (const FileBlock& block : stored->blocks) outside = outside || block.offset + block.bytes > file_.size();
    }
    const bool fits = row_bytes == 1 || entry.rows < kRowsMax;
    if (!fits || entry.rows > budget_ / row_bytes) {
      id = DiagnosticId::kLimitReached;
      problem = fmt::format("{}: {} rows in a file of {} bytes", entry.name, entry.rows, file_.size());
      return false;
    }
    if (outside || !inside) {
      problem = fmt::format("{}: {}", entry.name, outside ? "blocks behind the end of the file" : "no known column");
      return false;
    }
    budget_ -= entry.rows * row_bytes;
    return true;
  }

  void plan_column(const FileTable& entry, const FileColumn& stored, const AnyColumn& column, std::string& problem) {
    // Version 1 had numbers where there are enumerations now, with the same values.
    const bool was_number =
        directory_.version == 1 && column.enumeration && stored.type == element_type_name<uint8_t>();
    if (stored.type != column.type && !was_number) {
      problem = fmt::format("{}.{}: expected type {}, found {}", entry.name, stored.name, column.type, stored.type);
      return;
    }
    const std::optional<BlockEncoding> encoding = block_encoding_named(stored.encoding);
    const uint64_t blocks = (entry.rows - 1) / directory_.chunk_rows + 1;
    if (!encoding || stored.blocks.size() != blocks) {
      problem = fmt::format("{}.{}: encoding {}, {} blocks for {} rows", entry.name, stored.name, stored.encoding,
                            stored.blocks.size(), entry.rows);
      return;
    }
    // blocks is at least 1, so chunk_rows * i below stays under rows, and its bytes within the budget.
    for (size_t i = 0; i < stored.blocks.size(); ++i) {
      const size_t first = i * directory_.chunk_rows;
      const size_t rows = std::min<size_t>(entry.rows - first, directory_.chunk_rows);
      Job& job = jobs_.emplace_back();
      job.name = fmt::format("{}.{}", entry.name, stored.name);
      job.block = stored.blocks[i], job.encoding = *encoding, job.width = column.width, job.bytes = rows * column.width;
      column.place(column.column, first, job);
    }
  }

  std::span<const char> file_;
  FileDirectory directory_;
  Diagnostics& diagnostics_;
  std::vector<char> known_;
  std::vector<Job> jobs_;
  std::vector<Drop> drops_;
  uint64_t budget_ = 0;
};

// Fills the pool; true if every string got the handle of its place, as in a file that save_trace() wrote.
template <class Lengths, class Bytes>
bool intern_all(const Lengths& lengths, const Bytes& bytes, StringPool& pool, std::vector<StringId>& handles) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.byte.data()), bytes.byte.size());
  bool same = true;
  size_t at = 0;
  handles.assign(1, StringId::kEmpty);
  for (const uint64_t length : lengths.length_bytes) {
    if (length > text.size() - at) return false;
    handles.push_back(pool.intern(text.substr(at, length)));
    same = same && index(handles.back()) == handles.size() - 1;
    at += length;
  }
  return same && at == text.size();
}

std::string text_of(const StringPool& texts, StringId id) { return std::string(texts.get(id)); }

void restore(const TraceFileTables& file, const StringPool& texts, Trace& trace) {
  if (!file.source.empty()) {
    trace.source.kind = text_of(texts, file.source.kind[0]);
    trace.source.bytes = file.source.content_bytes[0];
    trace.base_unix_ns = file.source.base_unix_ns[0];
  }
  for (const StringId name : file.names.file) trace.source.files.push_back(text_of(texts, name));
  for (size_t i = 0; i < file.metadata.size(); ++i)
    trace.metadata[text_of(texts, file.metadata.key[i])] = text_of(texts, file.metadata.value[i]);
  for (size_t i = 0; i < file.windows.size(); ++i) {
    const Window window{file.windows.device[i], file.windows.start_ns[i], file.windows.end_ns[i]};
    if (window.start_ns >= -kTimeNsMax && window.end_ns <= kTimeNsMax && window.start_ns <= window.end_ns)
      trace.windows.push_back(window);
    else
      trace.diagnostics.add(DiagnosticId::kBadNumber, fmt::format("file_windows row {}", i));
  }
  const auto id_of = [&](StringId key) {
    size_t i = 0;
    while (i < kDiagnosticCount && diagnostic_table()[i].key != texts.get(key)) ++i;
    return static_cast<DiagnosticId>(i);
  };
  for (size_t i = 0; i < file.diagnostics.size(); ++i) {
    const DiagnosticId id = id_of(file.diagnostics.key[i]);
    if (id != DiagnosticId::kCount)
      trace.diagnostics.add(id, {}, file.diagnostics.count[i]);
    else
      trace.diagnostics.add(DiagnosticId::kUnknownTable, "diagnostic " + text_of(texts, file.diagnostics.key[i]));
  }
  for (size_t i = 0; i < file.places.size(); ++i) {
    const DiagnosticId id = id_of(file.places.key[i]);
    if (id != DiagnosticId::kCount) trace.diagnostics.add(id, text_of(texts, file.places.place[i]), 0);
  }
}

// Handles as stored -> handles of the pool, for a file whose strings repeat or do not add up.
void remap_strings(Trace& trace, const std::vector<StringId>& handles) {
  trace.diagnostics.add(DiagnosticId::kBadMetadata, "file_strings: repeated strings or lengths that do not add up");
  trace.for_each_table([&](auto& table) {
    table.for_each_column([&](const FieldInfo&, auto& column) {
      if constexpr (std::is_same_v<std::decay_t<decltype(column)>, std::vector<StringId>>) {
        for (StringId& id : column) id = index(id) < handles.size() ? handles[index(id)] : StringId::kEmpty;
      }
    });
  });
}

// Versions 1 and 2 left the inputs of operators to their texts, whose `handles` are as stored.
void read_signature_texts(const FileSignatureTexts& texts, const std::vector<StringId>& handles, Trace& trace) {
  const auto text = [&](StringId id) {
    return index(id) < handles.size() ? trace.text(handles[index(id)]) : std::string_view();
  };
  if (texts.empty()) trace.signatures.clear();  // lost
  for (SignatureId i = 0; i < trace.signatures.size(); ++i) {
    const SignatureText described{text(texts.dims[i]), text(texts.types[i]), text(texts.strides[i]),
                                  text(texts.concrete[i])};
    trace.signatures.rest[i] = described.hash_without_dims();
    read_inputs(described, trace, i);
  }
}

// Version 1 left what a copy is to its name.
void read_copy_names(Trace& trace) {
  GpuOps& gpu = trace.gpu_ops;
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (gpu.kind[i] != GpuOpKind::kMemcpy) continue;
    const std::string_view name = trace.text(gpu.name[i]);
    gpu.path[i] = copy_path_of_name(name);
    gpu.host_memory[i] = host_memory_of_name(name);
  }
}

}  // namespace

Status read_trace(std::span<const char> bytes, Trace& trace) {
  trace = Trace{};
  LLMPROF_ASSIGN(FileDirectory directory, read_file_directory(bytes));
  const uint32_t version = directory.version;
  // What reading finds is reported behind what the file says was found while recording.
  Diagnostics found;
  TraceFileTables file;
  Unpacker unpacker(bytes, std::move(directory), found);
  file.for_each_table([&](auto& table) { unpacker.plan(any_table(table)); });
  trace.for_each_table([&](auto& table) { unpacker.plan(any_table(table)); });
  FileSignatureTexts signature_texts;
  if (version < 3) unpacker.plan(any_table(signature_texts));
  unpacker.run();

  StringPool texts;
  std::vector<StringId> handles;
  if (!intern_all(file.texts, file.text_bytes, texts, handles))
    found.add(DiagnosticId::kBadMetadata, "file_texts: repeated texts or lengths that do not add up");
  restore(file, texts, trace);
  if (!intern_all(file.strings, file.string_bytes, trace.strings, handles)) remap_strings(trace, handles);
  trace.diagnostics.merge(found);
  if (version < 3) read_signature_texts(signature_texts, handles, trace);
  if (version == 1) read_copy_names(trace);
  check_trace(trace);
  return {};
}

Result<Trace> load_trace(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(path.c_str(), "rb"), std::fclose);
  const auto cannot_read = [&path](int error) {
    return fail(fmt::format("expected a llmprof trace file, found: {}", std::strerror(error)), path,
                "check the path and its permissions");
  };
  if (in == nullptr) return cannot_read(errno);
  std::string bytes;
  constexpr size_t kStep = size_t{1} << 20;
  for (size_t got = kStep; got == kStep;) {
    const size_t at = bytes.size();
    bytes.resize(at + kStep);
    got = std::fread(bytes.data() + at, 1, kStep, in.get());
    bytes.resize(at + got);
  }
  if (std::ferror(in.get()) != 0) return cannot_read(errno);
  Trace trace;
  if (Status status = read_trace(bytes, trace); !status) {
    status.error().where = status.error().where.empty() ? path : path + ", " + status.error().where;
    return tl::unexpected<Error>(std::move(status.error()));
  }
  return trace;
}

}  // namespace llmprof
