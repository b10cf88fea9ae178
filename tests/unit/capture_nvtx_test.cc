// NVTX, from outside (hook_client under the built injection library) and the reading of payload schemas.
#include <gtest/gtest.h>

#include "capture/inject/ranges/nvtx_names.h"
#include "capture/inject/ranges/nvtx_payload.h"
#include "capture_hook_client.h"

namespace llmprof::test {
namespace {

using spool::PayloadKind;

class Nvtx : public HookClient {
 protected:
  static void SetUpTestSuite() { run_watched("hook_client nvtx"); }
};

TEST_F(Nvtx, LevelsAreThoseOfTheirDomain) {
  // push outer, inner; push in the domain; pop, pop in the domain, pop, and one pop too many. errno stays.
  EXPECT_EQ(run().output,
            "attached 1\nattached again 1\npayloads 1\nsame domain 1\n0 1 0 1 0 0 -1 errno 5\nschema 1\n");
}

TEST_F(Nvtx, NestedRangesAndDomains) {
  std::vector<spool::Range> outer = spool().named("outer"), inner = spool().named("inner");
  std::vector<spool::Range> domain = spool().named("ncclAllReduce");
  ASSERT_EQ(outer.size(), 1u);
  ASSERT_EQ(inner.size(), 1u);
  ASSERT_EQ(domain.size(), 3u);
  EXPECT_LE(outer[0].start_ns, inner[0].start_ns);
  EXPECT_LE(inner[0].end_ns, outer[0].end_ns);
  EXPECT_LE(inner[0].start_ns, domain[0].start_ns);  // crosses inner
  EXPECT_LE(inner[0].end_ns, domain[0].end_ns);
  EXPECT_EQ(text(domain[0].domain), "NCCL");
  EXPECT_EQ(outer[0].domain, 0u);
  EXPECT_EQ(outer[0].handle, 0u);  // closed before anybody looked
  EXPECT_EQ(text(spool().threads.at(outer[0].thread).name), "the client");
}

TEST_F(Nvtx, WideTextIsUtf8) { EXPECT_EQ(spool().named("\u00e4\u4e16\U0001F600").size(), 1u); }

TEST_F(Nvtx, Payloads) {
  std::vector<spool::Range> ranges = spool().named("ncclAllReduce");
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].payload_kind, PayloadKind::kNone);
  EXPECT_EQ(ranges[1].payload_kind, PayloadKind::kSigned);
  EXPECT_EQ(ranges[1].payload, -5);
  EXPECT_EQ(ranges[2].payload_kind, PayloadKind::kBytes);
  EXPECT_EQ(ranges[2].payload, 1 << 20);
  std::vector<spool::Range> schema = spool().named("AllReduce");  // pushed by payload alone: named as the schema is
  ASSERT_EQ(schema.size(), 1u);
  EXPECT_EQ(schema[0].payload, 4096);
  EXPECT_EQ(text(schema[0].domain), "NCCL");
  ASSERT_EQ(spool().marks.size(), 2u);
  EXPECT_EQ(spool().marks[0].payload_kind, PayloadKind::kDouble);
  EXPECT_EQ(spool().marks[0].payload, 2.5);
  EXPECT_EQ(text(spool().marks[1].name), "a mark");
}

TEST_F(Nvtx, ProcessRangesEndOnOtherThreads) {
  std::vector<spool::Range> across = spool().named("across");
  ASSERT_EQ(across.size(), 1u);  // the second end did nothing
  EXPECT_EQ(across[0].process_wide, 1);
  EXPECT_EQ(text(spool().threads.at(across[0].thread).name), "the client");  // where it started
}

TEST_F(Nvtx, RangesThatStayOpenAreAnnounced) {
  std::map<std::string, spool::RangeOpen> open;
  for (const spool::RangeOpen& range : spool().open) open[text(range.name)] = range;
  ASSERT_EQ(open.size(), 3u);
  EXPECT_EQ(spool().open.size(), 3u);  // each once, over several drains
  for (const char* name : {"long", "long inside"}) {
    std::vector<spool::Range> closed = spool().named(name);
    ASSERT_EQ(closed.size(), 1u) << name;
    EXPECT_NE(closed[0].handle, 0u);
    EXPECT_EQ(closed[0].handle, open.at(name).handle);
    EXPECT_EQ(closed[0].start_ns, open.at(name).start_ns);
    EXPECT_GE(closed[0].end_ns - closed[0].start_ns, 1'800'000'000);
  }
  EXPECT_TRUE(spool().named("left open").empty());
  EXPECT_EQ(open.at("long").process_wide, 1);
  EXPECT_EQ(open.at("left open").process_wide, 0);
}

TEST_F(Nvtx, UnbalancedPopsAreCounted) {
  uint64_t count = 0;
  for (const spool::Note& note : spool().notes) {
    if (text(note.text).find("had not been pushed") != std::string::npos) count += note.count;
  }
  EXPECT_EQ(count, 1u);
}

TEST(NvtxClients, NothingListensWhereNothingIsWatched) {
  ClientRun run = run_client("hook_client nvtx", Watching::kLoaded);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "attached 0\nattached again 0\npayloads 0\n");
  EXPECT_TRUE(run.spools.empty());
}

TEST(NvtxClients, ACaptureRangeRecordsWhatIsInsideIt) {
  ClientRun run = run_client("hook_client nvtx", Watching::kWatched, "LLMPROF_CAPTURE_RANGE=inner");
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  const ClientSpool& spool = run.spools[0];
  EXPECT_EQ(spool.named("inner").size(), 1u);
  EXPECT_EQ(spool.named("ncclAllReduce").size(), 1u);  // the one that begins inside
  EXPECT_EQ(spool.ranges.size(), 2u);
  EXPECT_TRUE(spool.open.empty());
}

TEST(NvtxClients, EightThreadsLoseNothing) {
  ClientRun run = run_client("hook_client threads", Watching::kWatched);
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  const ClientSpool& spool = run.spools[0];
  EXPECT_TRUE(spool.summary.closed);
  EXPECT_EQ(spool.summary.damaged_blocks, 0u);
  EXPECT_EQ(spool.named("middle").size(), 160000u);
  EXPECT_EQ(spool.named("inner").size(), 160000u);
  EXPECT_EQ(spool.named("short").size(), 300u);
  for (int t = 0; t < 8; ++t) {
    std::vector<spool::Range> ranges = spool.named("thread " + std::to_string(t));
    ASSERT_EQ(ranges.size(), 20000u);
    for (const spool::Range& range : ranges) ASSERT_EQ(range.thread, ranges[0].thread);
  }
}

TEST(NvtxClients, AForkedChildDoesNotWriteIntoItsParentsFile) {
  ClientRun run = run_client("hook_client fork", Watching::kWatched);
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "child 3\n");
  int parents = 0;
  for (const ClientSpool& spool : run.spools) {
    if (spool.named("after the fork").empty()) continue;
    ++parents;
    EXPECT_EQ(spool.summary.damaged_blocks, 0u);
    EXPECT_EQ(spool.named("around the fork").size(), 1u);
    EXPECT_TRUE(spool.named("in the child").empty());
    EXPECT_TRUE(spool.named("thread of the child").empty());
    EXPECT_TRUE(spool.calls.empty());
  }
  EXPECT_EQ(parents, 1);
}

TEST(NvtxClients, TheOfficialHeader) {
  if (!std::filesystem::exists(build_folder() / "fakes/nvtx_header_client")) {
    GTEST_SKIP() << "built without the NVTX headers";
  }
  ClientRun run = run_client("nvtx_header_client", Watching::kWatched);
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "0 1 0 0 1 0\n");
  ASSERT_EQ(run.spools.size(), 1u);
  const ClientSpool& spool = run.spools[0];
  EXPECT_EQ(spool.named("plain").size(), 1u);
  EXPECT_EQ(spool.named("w\u00efde").size(), 1u);
  EXPECT_EQ(spool.named("started").size(), 1u);
  std::vector<spool::Range> registered = spool.named("registered");
  ASSERT_EQ(registered.size(), 2u);
  EXPECT_EQ(spool.texts.at(registered[0].domain), "official");
  EXPECT_EQ(registered[0].payload, 0.5);
  EXPECT_EQ(registered[1].payload_kind, PayloadKind::kBytes);
  EXPECT_EQ(registered[1].payload, 65536);  // found behind an int, the offset left to us
}

// ---- schemas -----------------------------------------------------------------------------------------------------

nvtx::SchemaAttributes schema_of(const nvtx::SchemaEntry* entries, size_t count) {
  nvtx::SchemaAttributes schema{};
  schema.fields = nvtx::kSchemaEntries | nvtx::kSchemaEntryCount;
  schema.entries = entries;
  schema.entry_count = count;
  return schema;
}

TEST(NvtxSchema, TheFieldOfBytesIsTaken) {
  const nvtx::SchemaEntry entries[] = {{0, nvtx::kTypeUint8, "flag", nullptr, 0, 0, nullptr, nullptr},
                                       {0, nvtx::kTypeUint64, "hash", nullptr, 0, 0, nullptr, nullptr},
                                       {0, nvtx::kTypeUint32, "Bytes sent", nullptr, 0, 0, nullptr, nullptr}};
  inject::PayloadField field = inject::payload_field(schema_of(entries, 3));
  EXPECT_EQ(field.kind, PayloadKind::kBytes);
  EXPECT_EQ(field.offset, 16u);
  // Without that entry there are two numbers at most and none of them is sure to mean anything.
  EXPECT_EQ(inject::payload_field(schema_of(entries, 2)).kind, PayloadKind::kUnsigned);  // a flag is no number
  EXPECT_EQ(inject::payload_field(schema_of(entries, 2)).offset, 8u);
}

TEST(NvtxSchema, WhatCannotBePlacedIsLeftAlone) {
  constexpr uint64_t kArray = 1 << 4;
  const nvtx::SchemaEntry entries[] = {{kArray, nvtx::kTypeUint32, "dims", nullptr, 4, 0, nullptr, nullptr},
                                       {0, nvtx::kTypeSize, "bytes", nullptr, 0, 0, nullptr, nullptr}};
  EXPECT_EQ(inject::payload_field(schema_of(entries, 2)).kind, PayloadKind::kNone);
  const nvtx::SchemaEntry two[] = {{0, nvtx::kTypeInt, "rank", nullptr, 0, 0, nullptr, nullptr},
                                   {0, nvtx::kTypeInt, "root", nullptr, 0, 4, nullptr, nullptr}};
  EXPECT_EQ(inject::payload_field(schema_of(two, 2)).kind, PayloadKind::kNone);
}

TEST(NvtxSchema, AShortPayloadIsNotRead) {
  struct Sent {
    size_t peer;
    size_t bytes;
  } sent{1, 77};
  const nvtx::SchemaEntry entries[] = {{0, nvtx::kTypeSize, "peer", nullptr, 0, 0, nullptr, nullptr},
                                       {0, nvtx::kTypeSize, "bytes", nullptr, 0, 8, nullptr, nullptr}};
  const int domain = 0;
  uint64_t id = inject::register_schema(&domain, schema_of(entries, 2));
  EXPECT_GE(id, nvtx::kSchemaIdDynamic);
  nvtx::PayloadData data{id, sizeof(sent), &sent};
  EXPECT_EQ(inject::read_payloads(&domain, &data, 1).payload.value, 77);
  data.size = 8;
  EXPECT_EQ(inject::read_payloads(&domain, &data, 1).payload.kind, PayloadKind::kNone);
  data.size = SIZE_MAX;
  EXPECT_EQ(inject::read_payloads(&domain, &data, 1).payload.value, 77);
  EXPECT_EQ(inject::read_payloads(nullptr, &data, 1).payload.kind, PayloadKind::kNone);  // of another domain
}

TEST(NvtxText, WideTextIsCutBetweenCharacters) {
  std::wstring wide(2000, L'\u4e16');
  EXPECT_EQ(inject::WideText(wide.c_str()).view().size(), 1365u * 3);  // 4096 bytes hold 1365 whole ones
  EXPECT_EQ(inject::WideText(L"a\xD800z").view(), "a\xEF\xBF\xBDz");
  EXPECT_EQ(inject::WideText(nullptr).view(), "");
}

}  // namespace
}  // namespace llmprof::test
