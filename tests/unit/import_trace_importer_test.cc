// A real recording through llmprof's own file: nothing is lost on the way, and the file is small.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "import/importer.h"
#include "import/kineto.h"
#include "import/trace_importer.h"
#include "trace/signature.h"
#include "trace/trace_file.h"

namespace llmprof {
namespace {

const std::string kRecording =
    std::string(LLMPROF_TEST_DATA) + "/golden/inputs/kineto_qwen2.5-0.5b_memory_stack.json.gz";

// Strings as text: handles depend on the order in which they were first seen.
std::map<std::string, std::string> columns_of(const Trace& trace) {
  std::map<std::string, std::string> columns;
  trace.for_each_table([&](const auto& table) {
    table.for_each_column([&](const FieldInfo& field, const auto& column) {
      using Element = typename std::decay_t<decltype(column)>::value_type;
      std::string& bytes = columns[std::string(table.info().name) + "." + std::string(field.name)];
      if constexpr (std::is_same_v<Element, StringId>)
        for (const StringId id : column) bytes.append(trace.text(id)).push_back('\0');
      else
        for (const Element value : column) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    });
  });
  return columns;
}

class TraceImporter : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "llmprof_trace_importer";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(TraceImporter, ARealRecordingComesBackUnchangedAndSmall) {
  const Result<Trace> trace = import_files({kRecording});
  ASSERT_TRUE(trace) << trace.error().text();
  ASSERT_TRUE(save_trace(*trace, path("a.llmprof")));
  const Result<Trace> back = import_files({path("a.llmprof")});
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(columns_of(*trace), columns_of(*back));
  EXPECT_EQ(trace->base_unix_ns, back->base_unix_ns);
  EXPECT_EQ(trace->diagnostics.total(), back->diagnostics.total());
  EXPECT_EQ(back->source.kind, "llmprof");
  EXPECT_EQ(back->source.files, std::vector<std::string>{path("a.llmprof")});
  EXPECT_EQ(back->metadata.at("recorded_kind"), "kineto");
  EXPECT_EQ(back->metadata.at("recorded_file_0"), kRecording);
  // 14.1 MB of JSON, 0.90 MB gzipped: at most a fifth of the latter.
  EXPECT_LT(std::filesystem::file_size(path("a.llmprof")) * 5, std::filesystem::file_size(kRecording));
}

// Numbers of each input, dimensions with their strides: they may lie in any order.
std::vector<std::vector<int64_t>> numbers_of_inputs(const Trace& trace) {
  std::vector<std::vector<int64_t>> numbers;
  for (Row i = 0; i < trace.inputs.size(); ++i) {
    const auto [first, end] =
        row_range(trace.inputs.first_number[i], trace.inputs.number_count[i], trace.input_numbers.size());
    numbers.emplace_back();
    for (Row n = first; n < end; ++n)
      numbers.back().insert(numbers.back().end(), {trace.input_numbers.value[n], trace.input_numbers.stride[n]});
  }
  return numbers;
}

void expect_same_content(const char* recording, const char* saved) {
  const std::string root(LLMPROF_TEST_DATA);
  const Result<Trace> now = import_files({root + recording});
  const Result<Trace> then = import_files({root + saved});
  ASSERT_TRUE(now);
  ASSERT_TRUE(then) << then.error().text();
  const std::map<std::string, std::string> expected = columns_of(*now);
  std::map<std::string, std::string> found = columns_of(*then);
  for (const auto& [name, values] : expected) {
    const bool placed = name.starts_with("input_numbers.") || name == "inputs.first_number";
    EXPECT_TRUE(placed || found[name] == values) << name;
  }
  EXPECT_EQ(numbers_of_inputs(*then), numbers_of_inputs(*now));
  EXPECT_EQ(then->diagnostics.total(), now->diagnostics.total());
  EXPECT_FALSE(then->inputs.empty());
}

// What copies are stood in their names alone, masks and states were numbers, and recurring_calls had another name.
TEST_F(TraceImporter, ARecordingOfVersionOneOpens) {
  constexpr const char* kSaved = "/unit/data/copies_pageable_version_1.llmprof";
  expect_same_content("/golden/inputs/copies_pageable.json.gz", kSaved);
  const Result<Trace> then = import_files({std::string(LLMPROF_TEST_DATA) + kSaved});
  EXPECT_NE(std::count(then->gpu_ops.host_memory.begin(), then->gpu_ops.host_memory.end(), HostMemory::kPageable), 0);
}

// Inputs of operators were texts.
TEST_F(TraceImporter, ARecordingOfVersionTwoOpens) {
  expect_same_content("/fuzz/corpus/kineto/qwen2.5-0.5b_annotated.json", "/unit/data/decode_excerpt_version_2.llmprof");
}

// Calls had neither streams nor events, and graphs no edges.
TEST_F(TraceImporter, ARecordingOfVersionThreeOpens) {
  expect_same_content("/fuzz/corpus/kineto/qwen2.5-0.5b_annotated.json", "/unit/data/decode_excerpt_version_3.llmprof");
}

TEST_F(TraceImporter, DerivedTablesAreNotTakenOver) {
  Result<Trace> trace = import_files({kRecording});
  ASSERT_TRUE(trace);
  trace->busy_intervals.resize(3);
  trace->windows = {{0, 1, 2}};
  ASSERT_TRUE(save_trace(*trace, path("b.llmprof")));
  const Result<Trace> back = import_files({path("b.llmprof")});
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->busy_intervals.empty());
  EXPECT_TRUE(back->windows.empty());
}

TEST_F(TraceImporter, ADamagedDirectoryIsAnErrorThatNamesTheFile) {
  const Result<Trace> trace = import_files({kRecording});
  ASSERT_TRUE(trace);
  ASSERT_TRUE(save_trace(*trace, path("c.llmprof")));
  std::fstream file(path("c.llmprof"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100);
  file.put('\0');
  file.close();
  const Result<Trace> back = import_files({path("c.llmprof")});
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().where.find("c.llmprof"), std::string::npos) << back.error().text();
  EXPECT_NE(back.error().what.find("checksum"), std::string::npos) << back.error().text();
}

TEST(TraceImporterSniff, KnowsItsMagicOnly) {
  EXPECT_GT(trace_importer::sniff("LLMPROF\n\x01\x02"), kineto::sniff("LLMPROF\n\x01\x02"));
  EXPECT_EQ(trace_importer::sniff("LLMPROF"), 0);
  EXPECT_EQ(trace_importer::sniff("{\"traceEvents\": []}"), 0);
}

}  // namespace
}  // namespace llmprof
