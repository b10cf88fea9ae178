// Snapshots of PyTorch's memory: rows, levels over time, Python code, forms of older versions, and wrong input.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "import/memory_snapshot.h"
#include "import/memory_stats.h"
#include "pickle_text.h"

namespace llmprof {
namespace {

using namespace pickled;

struct ReadSnapshot {
  Trace trace;
  Status status;
};

ReadSnapshot read_snapshot(const std::string& bytes) {
  Result<InputFile> input = InputFile::from_memory(bytes, "folder/snapshot.pickle");
  EXPECT_TRUE(input);
  ReadSnapshot out;
  out.status = memory_snapshot::import(*input, out.trace);
  return out;
}

std::string frame(const char* file, int line, const char* name) {
  return dict({{"name", text(name)}, {"filename", text(file)}, {"line", integer(line)}});
}
std::string block(int64_t address, int64_t size, int64_t requested, const char* state,
                  const std::string& frames = list({})) {
  return dict({{"address", integer(address)},
               {"size", integer(size)},
               {"requested_size", integer(requested)},
               {"state", text(state)},
               {"frames", frames}});
}
std::string segment(int64_t address, int64_t size, const std::string& blocks) {
  return dict({{"device", integer(0)},
               {"address", integer(address)},
               {"total_size", integer(size)},
               {"stream", integer(0)},
               {"segment_type", text("large")},
               {"blocks", blocks}});
}
std::string event(const char* action, int64_t address, int64_t size, int64_t time_us,
                  const std::string& frames = list({})) {
  return dict({{"action", text(action)},
               {"addr", integer(address)},
               {"size", integer(size)},
               {"stream", integer(0)},
               {"time_us", integer(time_us)},
               {"frames", frames}});
}
std::string snapshot(const std::string& segments, const std::string& events) {
  return document(dict({{"segments", segments}, {"device_traces", list({events})}}));
}

constexpr int64_t kStartUs = 1'800'000'000'000'000;
const std::string kStack =
    list({frame("??", 0, "at::empty"), frame("/venv/lib/python3.12/site-packages/torch/nn/functional.py", 5, "linear"),
          frame("/venv/lib/python3.12/site-packages/transformers/llama.py", 40, "forward"),
          frame("/home/me/serve.py", 7, "main")});

// 700 bytes at 1000 that are older, 300 at 2000 that the history allocates; between them 400 at 3000 come and go.
std::string usual() {
  return snapshot(
      list({segment(1000, 4096, list({block(1000, 1024, 700, "active_allocated"), block(2024, 3072, 0, "inactive")})),
            segment(8000, 512, list({block(8000, 512, 300, "active_allocated")}))}),
      list({event("alloc", 3000, 400, kStartUs, kStack), event("segment_alloc", 8000, 512, kStartUs + 5),
            event("alloc", 8000, 300, kStartUs + 5), event("free_requested", 3000, 400, kStartUs + 9),
            event("free_completed", 3000, 400, kStartUs + 9), event("snapshot", 0, 0, kStartUs + 10)}));
}

TEST(MemorySnapshot, BlocksAndHistoryWithLevels) {
  const ReadSnapshot got = read_snapshot(usual());
  ASSERT_TRUE(got.status) << got.status.error().text();
  const Trace& trace = got.trace;
  const MemoryBlocks& blocks = trace.memory_blocks;
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks.address, (std::vector<uint64_t>{1000, 2024, 8000}));
  EXPECT_EQ(blocks.segment, (std::vector<uint64_t>{1000, 1000, 8000}));
  EXPECT_EQ(blocks.requested_bytes, (std::vector<int64_t>{700, 0, 300}));
  EXPECT_EQ(trace.text(blocks.state[1]), "inactive");
  EXPECT_EQ(trace.text(blocks.source[0]), "snapshot.pickle");
  const MemoryEvents& events = trace.memory_events;
  EXPECT_EQ(trace.base_unix_ns, kStartUs * 1000);
  EXPECT_EQ(events.time_ns, (std::vector<int64_t>{0, 5001, 9000}));  // the second of its microsecond
  EXPECT_EQ(events.bytes, (std::vector<int64_t>{400, 300, -400}));
  EXPECT_EQ(events.allocated_bytes, (std::vector<int64_t>{1100, 1400, 1000}));
  EXPECT_EQ(events.reserved_bytes, (std::vector<int64_t>{4096, 4608, 4608}));
  EXPECT_EQ(trace.text(events.place[0]), "transformers/llama.py:40 forward");
  EXPECT_EQ(events.place[1], StringId::kEmpty);
  EXPECT_FALSE(trace.diagnostics.has(Severity::kInfo));
}

TEST(MemorySnapshot, AFailureHasWhatWasAskedForAndWhatWasFree) {
  std::string failure = event("oom", 0, 5000, kStartUs + 1, kStack);
  failure.replace(failure.find(text("addr")), text("addr").size(), text("device_free"));
  const size_t value = failure.find(text("device_free")) + text("device_free").size();
  failure.replace(value, integer(0).size(), integer(77));
  const ReadSnapshot got = read_snapshot(
      snapshot(list({}), list({event("alloc", 1, 2, kStartUs), event("free_requested", 1, 2, kStartUs), failure})));
  ASSERT_TRUE(got.status);
  const MemoryFailures& rows = got.trace.memory_failures;
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows.requested_bytes[0], 5000);
  EXPECT_EQ(rows.free_bytes[0], 77);
  EXPECT_EQ(got.trace.text(rows.place[0]), "transformers/llama.py:40 forward");
}

TEST(MemorySnapshot, AHistoryThatEndedBeforeTheSnapshotHasNoLevels) {
  const ReadSnapshot got = read_snapshot(snapshot(list({segment(1000, 4096, list({block(1000, 4096, 9, "inactive")}))}),
                                                  list({event("alloc", 1000, 9, kStartUs)})));
  ASSERT_TRUE(got.status);
  EXPECT_EQ(got.trace.memory_events.allocated_bytes[0], -1);
  EXPECT_EQ(got.trace.memory_events.reserved_bytes[0], -1);
}

TEST(MemorySnapshot, OnlyPyTorchOnTheStack) {
  const std::string stack = list({frame("/x/dist-packages/torch/nn/functional.py", 5, "linear"),
                                  frame("/x/dist-packages/torch/nn/modules/linear.py", 9, "forward")});
  const ReadSnapshot got =
      read_snapshot(snapshot(list({segment(1, 512, list({block(1, 512, 9, "active_allocated", stack)}))}), list({})));
  ASSERT_TRUE(got.status);
  EXPECT_EQ(got.trace.text(got.trace.memory_blocks.place[0]), "torch/nn/functional.py:5 linear");
}

TEST(MemorySnapshot, FormsOfOlderVersions) {
  // Segments alone; blocks without addresses, whose last allocation is in a history.
  const std::string history = list({dict({{"real_size", integer(100)}, {"frames", kStack}})});
  const auto old_block = [&](int64_t size, const char* state, const std::string& of) {
    return dict({{"size", integer(size)}, {"state", text(state)}, {"history", of}});
  };
  const ReadSnapshot old = read_snapshot(document(list({segment(
      4096, 1024, list({old_block(512, "active_allocated", history), old_block(512, "inactive", list({}))}))})));
  ASSERT_TRUE(old.status) << old.status.error().text();
  EXPECT_EQ(old.trace.memory_blocks.address, (std::vector<uint64_t>{4096, 4608}));
  EXPECT_EQ(old.trace.memory_blocks.requested_bytes, (std::vector<int64_t>{100, -1}));
  EXPECT_EQ(old.trace.text(old.trace.memory_blocks.place[0]), "transformers/llama.py:40 forward");
  // Events without times.
  const auto untimed = [](const char* action) {
    return dict({{"action", text(action)}, {"addr", integer(5)}, {"size", integer(6)}});
  };
  const ReadSnapshot times = read_snapshot(snapshot(list({}), list({untimed("alloc"), untimed("free_requested")})));
  ASSERT_TRUE(times.status);
  EXPECT_EQ(times.trace.memory_events.time_ns, (std::vector<int64_t>{0, 1000}));
  EXPECT_EQ(times.trace.diagnostics.count(DiagnosticId::kAssumedTimes), 2U);
}

TEST(MemorySnapshot, WhatIsWrongWithOneEntryCostsThatEntry) {
  const ReadSnapshot got = read_snapshot(snapshot(
      list({segment(1000, 512, list({block(1000, -512, 1, "inactive"), block(1000, 512, 1, "inactive")})), integer(3)}),
      list({event("alloc", 1, 2, -7), event("new_action", 1, 2, 3), event("new_action", 1, 2, 3),
            event("alloc", 1, 2, kStartUs), event("free_requested", 1, 2, kStartUs)})));
  ASSERT_TRUE(got.status);
  EXPECT_EQ(got.trace.memory_blocks.size(), 1U);
  EXPECT_EQ(got.trace.memory_events.size(), 2U);
  const Diagnostics& counted = got.trace.diagnostics;
  EXPECT_EQ(counted.count(DiagnosticId::kBadNumber), 1U);
  EXPECT_EQ(counted.count(DiagnosticId::kMissingField), 2U);
  EXPECT_EQ(counted.count(DiagnosticId::kMalformedEvent), 1U);
  EXPECT_EQ(counted.count(DiagnosticId::kUnknownCategory), 1U);
}

// One list of events that stands in the file once and in the list of devices many times, one event likewise.
TEST(MemorySnapshot, WhatManyListsShareIsReadOnce) {
  std::string events = "](";
  events += event("alloc", 1, 2, kStartUs) + "\x94";  // number 0 of the memo
  for (int i = 0; i < 1000; ++i) events += std::string("h\0", 2);
  events += "e\x94";  // number 1
  std::string devices = "](" + events;
  for (int i = 0; i < 1000; ++i) devices += "h\x01";
  devices += "e";
  const ReadSnapshot got = read_snapshot(document(dict({{"segments", list({})}, {"device_traces", devices}})));
  ASSERT_TRUE(got.status) << got.status.error().text();
  EXPECT_EQ(got.trace.memory_events.size(), 1U);
  EXPECT_EQ(got.trace.diagnostics.count(DiagnosticId::kDuplicateEvent), 1000U);
}

TEST(MemorySnapshot, ACutFileKeepsItsBlocksAndSaysSo) {
  const std::string whole = usual();
  const ReadSnapshot got = read_snapshot(whole.substr(0, whole.size() - 200));
  ASSERT_TRUE(got.status);
  EXPECT_EQ(got.trace.memory_blocks.size(), 3U);
  EXPECT_EQ(got.trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1U);
  for (const int64_t level : got.trace.memory_events.allocated_bytes) EXPECT_EQ(level, -1);  // its end is missing
  const ReadSnapshot nothing = read_snapshot(whole.substr(0, 9));
  ASSERT_FALSE(nothing.status);
  EXPECT_NE(nothing.status.error().what.find("ends before it has a segment"), std::string::npos);
}

TEST(MemorySnapshot, OtherFilesAreNamed) {
  const std::pair<std::string, const char*> wrong[] = {
      {document(list({integer(1)})), "found a pickle of a list without them"},
      {document(dict({{"weights", integer(1)}})), "found a pickle of a dict without them"},
      {document("ctorch._utils\n_rebuild_tensor_v2\n"), "the opcode GLOBAL of torch._utils._rebuild_tensor_v2"},
      {"(dp0\nVsegments\np1\n(lp2\ns.", "opcode d of protocol 0"},
      {"PK\x03\x04" + std::string(26, '\0') + "archive/data.pkl", "a zip archive of torch.save"},
      {snapshot(list({}), list({})), "without either"}};
  for (const auto& [bytes, what] : wrong) {
    const ReadSnapshot got = read_snapshot(bytes);
    ASSERT_FALSE(got.status) << what;
    EXPECT_NE(got.status.error().what.find(what), std::string::npos) << got.status.error().what;
    EXPECT_FALSE(got.status.error().advice.empty());
    EXPECT_GT(memory_snapshot::sniff(bytes), 0) << what;
  }
  EXPECT_EQ(memory_snapshot::sniff("{\"segments\": []}"), 0);
  EXPECT_EQ(memory_snapshot::sniff("PK\x03\x04" + std::string(26, '\0') + "word/document.xml"), 0);
}

TEST(MemoryStats, FlatAndNestedGiveTheSameFigures) {
  for (const std::string& json :
       {std::string(R"({"allocated_bytes.all.current": 12, "allocated_bytes.all.peak": 30, "num_ooms": 1})"),
        std::string(R"({"allocated_bytes": {"all": {"current": 12, "peak": 30}}, "num_ooms": 1, "x": null})")}) {
    Result<InputFile> input = InputFile::from_memory(json, "stats.json");
    ASSERT_TRUE(input);
    EXPECT_GT(memory_stats::sniff(json), 50);
    Trace trace;
    ASSERT_TRUE(memory_stats::import(*input, trace));
    const AllocatorFigures& rows = trace.allocator_figures;
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(trace.text(rows.name[1]), "allocated_bytes.all.peak");
    EXPECT_EQ(rows.value, (std::vector<double>{12, 30, 1}));
  }
  const std::string none = R"({"a": "b"})";
  Result<InputFile> input = InputFile::from_memory(none, "stats.json");
  Trace trace;
  EXPECT_FALSE(memory_stats::import(*input, trace));
}

}  // namespace
}  // namespace llmprof
