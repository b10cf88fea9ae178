#include "trace/trace_file.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "trace/check_trace.h"
#include "trace/trace_file_layout.h"

namespace llmprof {
namespace {

// Every column as raw bytes, by "table.column": two traces hold the same rows exactly if these are equal.
std::map<std::string, std::string> snapshot(const Trace& trace) {
  std::map<std::string, std::string> columns;
  trace.for_each_table([&](const auto& table) {
    table.for_each_column([&](const FieldInfo& field, const auto& column) {
      using Value = typename std::decay_t<decltype(column)>::value_type;
      std::string& bytes = columns[std::string(table.info().name) + "." + std::string(field.name)];
      for (const Value value : column) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    });
  });
  return columns;
}

// A sound trace with `rows` rows in every table and values that differ from row to row and column to column.
Trace make_trace(size_t rows) {
  Trace trace;
  std::mt19937_64 random(42);
  std::vector<StringId> names = {StringId::kEmpty};
  for (int i = 0; i < 40; ++i) names.push_back(trace.strings.intern("name " + std::to_string(i * i)));
  trace.strings.intern(std::string("zero\0 byte, \xff not UTF-8", 23));
  trace.for_each_table([&](auto& table) { table.resize(rows); });
  trace.for_each_table([&](auto& table) {
    table.for_each_column([&](const FieldInfo& field, auto& column) {
      using Value = typename std::decay_t<decltype(column)>::value_type;
      for (size_t i = 0; i < column.size(); ++i) {
        const uint64_t word = random();
        if constexpr (is_row_id<Value>) {
          const bool none = i % 5 == 0 && field.role != ColumnRole::kOwner;
          column[i] = none ? Value() : Value(word % trace.table<typename Value::Target>().size());
        } else if constexpr (std::is_same_v<Value, StringId>) {
          column[i] = names[word % names.size()];
        } else if constexpr (std::is_enum_v<Value>) {
          column[i] = static_cast<Value>(word % 2);
        } else if constexpr (std::is_floating_point_v<Value>) {
          column[i] = i % 7 == 0 ? std::numeric_limits<Value>::quiet_NaN() : static_cast<Value>(word) / 3;
        } else if (field.role != ColumnRole::kValue) {
          column[i] = static_cast<Value>(1000 * i + word % 999);
        } else {
          column[i] = static_cast<Value>(word);
        }
      }
    });
  });
  // Any numbers are sound where they are no sizes.
  std::fill(trace.inputs.kind.begin(), trace.inputs.kind.end(), InputKind::kOther);
  for (int32_t& count : trace.signatures.input_count) count %= 100;
  trace.source = {"kineto", {"a.json", "b.json.gz"}, 123456};
  trace.base_unix_ns = 1790857026000000000;
  trace.metadata = {{"cuda_driver_version", "13000"}, {"empty", ""}, {"odd", std::string("\0\n\xfe", 3)}};
  trace.windows = {{0, 5, 1000}, {1, -7, 2000}};
  trace.diagnostics.add(DiagnosticId::kMalformedEvent, "byte 17", 4);
  trace.diagnostics.add(DiagnosticId::kUnlinkedKernel, {}, 1);
  return trace;
}

void expect_same(const Trace& a, const Trace& b) {
  EXPECT_EQ(snapshot(a), snapshot(b));
  ASSERT_EQ(a.strings.size(), b.strings.size());
  for (uint32_t id = 0; id < a.strings.size(); ++id)
    EXPECT_EQ(a.strings.get(static_cast<StringId>(id)), b.strings.get(static_cast<StringId>(id)));
  EXPECT_EQ(a.source.kind, b.source.kind);
  EXPECT_EQ(a.source.files, b.source.files);
  EXPECT_EQ(a.source.bytes, b.source.bytes);
  EXPECT_EQ(a.base_unix_ns, b.base_unix_ns);
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.windows.size(), b.windows.size());
  for (size_t i = 0; i < a.windows.size(); ++i) {
    EXPECT_EQ(a.windows[i].device, b.windows[i].device);
    EXPECT_EQ(a.windows[i].start_ns, b.windows[i].start_ns);
    EXPECT_EQ(a.windows[i].end_ns, b.windows[i].end_ns);
  }
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const DiagnosticId id = static_cast<DiagnosticId>(i);
    EXPECT_EQ(a.diagnostics.count(id), b.diagnostics.count(id)) << diagnostic_table()[i].key;
    EXPECT_EQ(a.diagnostics.places(id), b.diagnostics.places(id)) << diagnostic_table()[i].key;
  }
}

std::string pack(const Trace& trace) {
  Result<std::string> file = pack_trace(trace);
  EXPECT_TRUE(file) << file.error().text();
  return file ? *file : std::string();
}

// The file with its directory text changed and the checksum made right again: what a hostile writer would send.
std::string with_directory(const std::string& file, const std::string& from, const std::string& to) {
  uint32_t directory_bytes = 0;
  std::memcpy(&directory_bytes, file.data() + 20, 4);
  std::string directory = file.substr(24, directory_bytes);
  const size_t at = directory.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at == std::string::npos) return file;
  directory.replace(at, from.size(), to);
  directory_bytes = static_cast<uint32_t>(directory.size());
  std::string out = file.substr(0, 20) + std::string(4, '\0') + directory;
  std::memcpy(out.data() + 20, &directory_bytes, 4);
  const uint64_t checksum = XXH3_64bits(out.data() + 16, out.size() - 16);
  std::memcpy(out.data() + 8, &checksum, 8);
  uint32_t old_bytes = 0;
  std::memcpy(&old_bytes, file.data() + 20, 4);
  return out + file.substr(24 + old_bytes);
}

TEST(TraceFile, EveryTableRoundTrips) {
  const Trace trace = make_trace(300);
  Trace back;
  const Status status = read_trace(pack(trace), back);
  ASSERT_TRUE(status) << status.error().text();
  expect_same(trace, back);
  EXPECT_EQ(pack(trace), pack(back));
}

// In memory their bits are inverted.
TEST(TraceFile, RowIdsStandInFilesAsTheyAre) {
  Trace trace;
  trace.api_links.op = {OpId(Row{1}), OpId(kNoRow), OpId(Row{0}), OpId(Row{70'000})};
  const std::string file = pack(trace);
  const Result<FileDirectory> directory = read_file_directory(file);
  ASSERT_TRUE(directory);
  std::vector<uint32_t> rows(4);
  for (const FileTable& table : directory->tables) {
    if (table.name != "api_links") continue;
    ASSERT_EQ(table.columns.size(), 1U);
    const FileColumn& column = table.columns[0];
    ASSERT_EQ(column.blocks.size(), 1U);
    const std::span<char> bytes(reinterpret_cast<char*>(rows.data()), rows.size() * sizeof(uint32_t));
    ASSERT_TRUE(unpack_block(std::span<const char>(file).subspan(column.blocks[0].offset, column.blocks[0].bytes), 4,
                             *block_encoding_named(column.encoding), bytes));
  }
  EXPECT_EQ(rows, (std::vector<uint32_t>{1, 0xFFFFFFFF, 0, 70'000}));
}

TEST(TraceFile, EmptyTraceRoundTrips) {
  Trace back = make_trace(3);
  ASSERT_TRUE(read_trace(pack(Trace()), back));
  expect_same(Trace(), back);
}

TEST(TraceFile, ColumnsLongerThanABlockRoundTrip) {
  Trace trace;
  const size_t rows = (size_t{1} << 20) * 2 + 17;
  trace.counters.resize(rows);
  std::mt19937_64 random(7);
  for (size_t i = 0; i < rows; ++i) {
    trace.counters.time_ns[i] = static_cast<int64_t>(i * 1000 + random() % 1000);
    trace.counters.value[i] = static_cast<double>(random() % 100);
  }
  const std::string file = pack(trace);
  Trace back;
  ASSERT_TRUE(read_trace(file, back));
  EXPECT_EQ(snapshot(trace), snapshot(back));
  EXPECT_EQ(back.diagnostics.total(), 0U);
  EXPECT_LT(file.size(), rows * 4);  // 24 bytes a row in memory
}

TEST(TraceFile, SavesBesideAndRenames) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "llmprof_trace_file_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "a.llmprof").string();
  const Trace trace = make_trace(20);
  ASSERT_TRUE(save_trace(trace, path));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 1U);
  const Result<Trace> back = load_trace(path);
  ASSERT_TRUE(back) << back.error().text();
  expect_same(trace, *back);
  std::filesystem::remove_all(folder);

  const Status missing = save_trace(trace, path);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().text().find("No such file"), std::string::npos) << missing.error().text();
  const Result<Trace> none = load_trace(path);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().where.find("a.llmprof"), std::string::npos);
}

// Bit flips anywhere: an error, or at least one table dropped and counted. Never a silent change.
TEST(TraceFile, EveryFlippedByteIsNoticed) {
  const Trace trace = make_trace(2);
  const std::string file = pack(trace);
  const std::map<std::string, std::string> sound = snapshot(trace);
  size_t errors = 0;
#ifdef LLMPROF_SANITIZED
  constexpr size_t kStep = 7;  // every bit of a byte comes in turn, as with 1
#else
  constexpr size_t kStep = 1;
#endif
  for (size_t i = 0; i < file.size(); i += kStep) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    Trace back;
    if (!read_trace(damaged, back)) {
      ++errors;
      continue;
    }
    ASSERT_GE(back.diagnostics.count(DiagnosticId::kDamagedBlock), 1U) << "byte " << i;
  }
  EXPECT_GT(errors, 24U / kStep);
  EXPECT_LT(errors, file.size() / kStep);
}

TEST(TraceFile, CutFilesKeepWhatIsReadable) {
  const Trace trace = make_trace(50);
  const std::string file = pack(trace);
  const std::map<std::string, std::string> sound = snapshot(trace);
  size_t best = 0;
  for (size_t bytes = 0; bytes < file.size(); bytes += 97) {
    Trace back;
    if (!read_trace(std::string_view(file).substr(0, bytes), back)) continue;
    ASSERT_EQ(back.diagnostics.count(DiagnosticId::kTruncatedFile), 1U) << "cut at " << bytes;
    size_t whole = 0;
    for (const auto& [name, content] : snapshot(back)) whole += content == sound.at(name) ? 1 : 0;
    best = std::max(best, whole);
  }
  // All columns but those of the last table survive the last cuts.
  size_t columns = 0;
  trace.client_splits.for_each_column([&](const FieldInfo&, const auto&) { ++columns; });
  EXPECT_GE(best, sound.size() - columns);
}

TEST(TraceFile, TrailingBytesAreCounted) {
  Trace back;
  ASSERT_TRUE(read_trace(pack(make_trace(5)) + "x", back));
  EXPECT_EQ(back.diagnostics.count(DiagnosticId::kTrailingData), 1U);
}

TEST(TraceFile, UnknownTablesAndColumnsAreIgnored) {
  const Trace trace = make_trace(12);
  Trace back;
  ASSERT_TRUE(read_trace(with_directory(pack(trace), "\"counters\"", "\"telemetry\""), back));
  EXPECT_EQ(back.diagnostics.count(DiagnosticId::kUnknownTable), 1U);
  EXPECT_TRUE(back.counters.empty());
  EXPECT_EQ(back.gpu_ops.start_ns, trace.gpu_ops.start_ns);

  // A column under another name: unknown here, and the one this version wants reads as absent.
  ASSERT_TRUE(read_trace(with_directory(pack(trace), "\"graph_node\"", "\"graph_noda\""), back));
  EXPECT_EQ(back.diagnostics.count(DiagnosticId::kUnknownTable), 1U);
  EXPECT_EQ(back.diagnostics.count(DiagnosticId::kBadMetadata), 1U);
  EXPECT_EQ(back.gpu_ops.graph_node, std::vector<uint64_t>(12, 0));
  EXPECT_EQ(back.gpu_ops.start_ns, trace.gpu_ops.start_ns);
}

TEST(TraceFile, HostileSizesAreRefusedBeforeMemoryIsTaken) {
  const std::string file = pack(make_trace(12));
  for (const char* rows : {"1000000000000", "4294967294", "18446744073709551615", "13", "11", "1"}) {
    Trace back;
    ASSERT_TRUE(read_trace(
        with_directory(file, R"({"name":"gpu_ops","rows":12)", std::string(R"({"name":"gpu_ops","rows":)") + rows),
        back));
    EXPECT_TRUE(back.gpu_ops.empty()) << rows;
    EXPECT_GE(back.diagnostics.count(DiagnosticId::kDamagedBlock) + back.diagnostics.count(DiagnosticId::kLimitReached),
              1U);
  }
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{R"("chunk_rows":1048576)", R"("chunk_rows":1)"},
                                          {R"("type":"i64")", R"("type":"f64")"},
                                          {R"("encoding":)", R"("encoding":"huffman","was":)"},
                                          {R"("bytes":)", R"("bytes":9000000000000000000,"was":)"}}) {
    Trace back;
    ASSERT_TRUE(read_trace(with_directory(file, from, to), back)) << to;
    EXPECT_GE(back.diagnostics.count(DiagnosticId::kDamagedBlock), 1U) << to;
  }
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{R"("chunk_rows":1048576)", R"("chunk_rows":0)"},
                                          {R"("tables":[)", R"("tables":[17,)"},
                                          {R"("tables":[)", R"("tables":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],)"},
                                          {R"("bytes":)", R"("bytes":18446744073709551615,"was":)"},
                                          {R"("xxh3":")", R"("xxh3":"zz)"}}) {
    Trace back;
    EXPECT_FALSE(read_trace(with_directory(file, from, to), back)) << to;
  }
}

TEST(TraceFile, OtherFilesAndNewerVersionsAreErrors) {
  Trace back;
  for (const std::string_view bytes : {"", "LLMPROF\n", "{\"traceEvents\": []}, and more than twenty-four bytes"}) {
    const Status status = read_trace(bytes, back);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().what.find("expected"), std::string::npos);
    EXPECT_FALSE(status.error().advice.empty());
  }
  std::string file = pack(Trace());
  file[16] = 5;
  uint32_t directory_bytes = 0;
  std::memcpy(&directory_bytes, file.data() + 20, 4);
  const uint64_t checksum = XXH3_64bits(file.data() + 16, 8 + directory_bytes);
  std::memcpy(file.data() + 8, &checksum, 8);
  const Status newer = read_trace(file, back);
  ASSERT_FALSE(newer);
  EXPECT_NE(newer.error().what.find("found version 5"), std::string::npos) << newer.error().what;
}

TEST(TraceFile, HandlesOutOfRangeAreRepairedAndCounted) {
  Trace trace = make_trace(10);
  trace.gpu_ops.stream[3] = 10;
  trace.gpu_ops.config[4] = 4000000000U;
  trace.ops.thread[2] = kNoRow;
  trace.ops.name[5] = static_cast<StringId>(trace.strings.size());
  trace.gpu_links.category[6] = static_cast<Category>(200);
  trace.gaps.cause[1] = IdleCause::kCount;
  trace.ops.dur_ns[0] = -5;
  trace.ops.dur_ns[1] = kTimeNsMax;
  trace.ops.start_ns[9] = INT64_MIN;
  trace.op_links.resize(9);
  trace.base_unix_ns = INT64_MAX;
  Trace back;
  ASSERT_TRUE(read_trace(pack(trace), back));
  EXPECT_EQ(back.gpu_ops.stream[3], 10U);
  ASSERT_EQ(back.streams.size(), 11U);
  EXPECT_EQ(back.streams.stream[10], -1);
  EXPECT_EQ(back.gpu_ops.config[4], kNoRow);
  EXPECT_EQ(back.ops.thread[2], 10U);
  ASSERT_EQ(back.threads.size(), 11U);
  EXPECT_EQ(back.ops.name[5], StringId::kEmpty);
  EXPECT_EQ(back.gpu_links.category[6], Category::kOther);
  EXPECT_EQ(back.gaps.cause[1], IdleCause::kUnknown);
  EXPECT_EQ(back.ops.dur_ns[0], 0);
  EXPECT_EQ(back.ops.start_ns[9], 0);
  EXPECT_TRUE(back.op_links.empty());
  EXPECT_EQ(back.base_unix_ns, 0);
  EXPECT_EQ(back.diagnostics.count(DiagnosticId::kBadMetadata), 7U);
  EXPECT_EQ(back.diagnostics.count(DiagnosticId::kNegativeDuration), 1U);
  EXPECT_GE(back.diagnostics.count(DiagnosticId::kBadNumber), 3U);
}

TEST(TraceFile, LostStringsLeaveEmptyNames) {
  const Trace trace = make_trace(10);
  Trace back;
  ASSERT_TRUE(read_trace(with_directory(pack(trace), "\"file_strings\"", "\"file_strongs\""), back));
  EXPECT_EQ(back.strings.size(), 1U);
  EXPECT_GE(back.diagnostics.count(DiagnosticId::kBadMetadata), 1U);
  for (const StringId name : back.ops.name) EXPECT_EQ(name, StringId::kEmpty);
}

TEST(CheckTrace, ASoundTraceIsLeftAlone) {
  Trace trace = make_trace(40);
  const Trace sound = make_trace(40);
  check_trace(trace);
  expect_same(sound, trace);
}

}  // namespace
}  // namespace llmprof
