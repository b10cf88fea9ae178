// The spool: what is written comes back, whatever happens to the file in between.
#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "capture/spool/reader.h"
#include "capture/spool/writer.h"
#include "temporary_folder.h"

namespace llmprof::spool {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class SpoolTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

// Every member of a record. The number of names must equal the number of members, so none can be forgotten.
#define MEMBERS(Record, ...)      \
  auto members(Record& record) {  \
    auto& [__VA_ARGS__] = record; \
    return std::tie(__VA_ARGS__); \
  }
MEMBERS(ThreadDef, a, b, c)
MEMBERS(StreamDef, a, b, c, d)
MEMBERS(KernelDef, a, b, c, d, e, f, g, h, i)
MEMBERS(ApiDef, a, b, c, d)
MEMBERS(LibraryDef, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)
MEMBERS(MetricSetDef, a, b, c, d, e)
MEMBERS(DeviceDef, a, b, c, d, e, f, g, h, i, j, k, l)
MEMBERS(Kernel, a, b, c, d, e, f)
MEMBERS(Memcpy, a, b, c, d, e, f, g, h, i, j)
MEMBERS(Memset, a, b, c, d, e, f)
MEMBERS(GraphLaunch, a, b, c, d, e)
MEMBERS(ApiCall, a, b, c, d, e, f)
MEMBERS(CallTarget, a, b, c)
MEMBERS(GraphEdge, a, b)
MEMBERS(NodePlace, a, b)
MEMBERS(ModuleDef, a, b, c)
MEMBERS(Frame, a, b)
MEMBERS(LaunchSite, a, b, c, d, e, f, g)
MEMBERS(Synchronization, a, b, c, d, e, f)
MEMBERS(Overhead, a, b, c, d)
MEMBERS(MemoryEvent, a, b, c, d, e, f, g)
MEMBERS(Range, a, b, c, d, e, f, g, h, i)
MEMBERS(RangeOpen, a, b, c, d, e, f)
MEMBERS(Mark, a, b, c, d, e, f)
MEMBERS(LibraryCall, a, b, c, d, e)
MEMBERS(Operands, a, b, c, d)
MEMBERS(GraphNode, a, b, c)
MEMBERS(RecurringCall, a, b, c)
MEMBERS(ProductRows, a, b, c)
MEMBERS(HostPlace, a, b, c, d, e)
MEMBERS(CpuReading, a, b, c, d)
MEMBERS(HostPace, a, b, c, d)
MEMBERS(ClockReading, a, b, c)
MEMBERS(LevelChange, a, b, c)
MEMBERS(Note, a, b, c)
MEMBERS(Fact, a, b)
MEMBERS(NvmlSample, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s)
MEMBERS(GpuSample, a, b, c, d)

class Filler {
 public:
  explicit Filler(uint32_t seed) : random_(seed) {}
  template <class Record>
  Record make() {
    Record record;
    std::apply([&](auto&... member) { (fill(member), ...); }, members(record));
    return record;
  }
  uint64_t bits() { return random_(); }
  Id& next_id() { return next_id_; }  // larger than every id defined so far

 private:
  template <class T, size_t N>
  void fill(T (&values)[N]) {
    for (T& value : values) fill(value);
  }
  void fill(Frame& frame) { frame = make<Frame>(); }
  template <class T>
  void fill(T& value) {
    const uint64_t choice = random_() % 8;
    if constexpr (std::is_floating_point_v<T>) {
      value = choice == 0   ? std::numeric_limits<T>::quiet_NaN()
              : choice == 1 ? T{0}
              : choice == 2 ? std::numeric_limits<T>::infinity()
                            : static_cast<T>(std::ldexp(static_cast<double>(random_() % 2000003) - 1000000,
                                                        static_cast<int>(random_() % 60) - 30));
    } else if constexpr (std::is_same_v<T, Level>) {
      value = static_cast<Level>(choice % 4);
    } else if constexpr (std::is_same_v<T, PayloadKind>) {
      value = static_cast<PayloadKind>(choice % 5);
    } else {
      value = choice == 0   ? T{0}
              : choice == 1 ? std::numeric_limits<T>::max()
              : choice == 2 ? std::numeric_limits<T>::min()
              : choice < 6  ? static_cast<T>(random_() % 100)
                            : static_cast<T>(random_());
    }
  }
  std::mt19937_64 random_;
  Id next_id_ = 1;
};

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
  else
    return a == b;
}
bool same(const Frame& a, const Frame& b) { return a.module == b.module && a.offset == b.offset; }
template <class T, size_t N>
bool same(const T (&a)[N], const T (&b)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}
template <class Record>
bool same_record(Record a, Record b) {
  return std::apply(
      [&](auto&... left) { return std::apply([&](auto&... right) { return (same(left, right) && ...); }, members(b)); },
      members(a));
}

using Any =
    std::variant<ThreadDef, StreamDef, KernelDef, ApiDef, LibraryDef, MetricSetDef, DeviceDef, Kernel, Memcpy, Memset,
                 GraphLaunch, ApiCall, Synchronization, Overhead, MemoryEvent, Range, RangeOpen, Mark, LibraryCall,
                 GraphNode, RecurringCall, ClockReading, LevelChange, Note, Fact, NvmlSample, GpuSample, LaunchSite,
                 ModuleDef, CallTarget, GraphEdge, ProductRows, HostPlace, HostPace, NodePlace, CpuReading, Operands>;

struct Collector {
  std::vector<Any> records;
  std::vector<std::pair<Id, std::string>> texts;
  std::vector<Closed> ends;
  void operator()(const TextDef& def) { texts.emplace_back(def.id, std::string(def.text)); }
  void operator()(const Closed& end) { ends.push_back(end); }
  template <class Record>
  void operator()(const Record& record) {
    records.push_back(record);
  }
};

// One record of each kind, as the writer should give it back.
template <class Record>
void write_random(Writer& writer, Filler& filler, std::vector<Any>& expected) {
  Record record = filler.make<Record>();
  if constexpr (requires { writer.define(record); }) {
    if constexpr (std::is_same_v<Record, MetricSetDef>) {
      record.count = static_cast<int32_t>(filler.bits() % 49);
      for (int32_t i = record.count; i < 48; ++i) record.metrics[i] = 0;
    }
    const Id id = writer.define(record);
    ASSERT_NE(id, 0U);
    EXPECT_EQ(writer.define(record), id) << "defined twice";
    record.id = id;
    if (id < filler.next_id()) return;  // the same content as an earlier one
    filler.next_id() = id + 1;
  } else {
    if constexpr (std::is_same_v<Record, LaunchSite>) {
      record.frame_count = static_cast<int32_t>(filler.bits() % (kFramesMax + 1));
      std::fill(record.frames + record.frame_count, std::end(record.frames), Frame());
    }
    if constexpr (std::is_same_v<Record, GpuSample>) record.set |= 0x80000000U;  // not defined: all values are kept
    writer.add(record);
  }
  expected.push_back(record);
}

template <size_t... I>
void write_each_kind(Writer& writer, Filler& filler, std::vector<Any>& expected, std::index_sequence<I...>) {
  (write_random<std::variant_alternative_t<I, Any>>(writer, filler, expected), ...);
}

void expect_same(const std::vector<Any>& found, const std::vector<Any>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].index(), expected[i].index()) << "record " << i;
    std::visit(
        [&]<class Record>(const Record& record) {
          Record wanted = std::get<Record>(expected[i]);
          if constexpr (std::is_same_v<Record, GpuSample>)
            for (float& value : wanted.values) value = restore(quantise(value));
          EXPECT_TRUE(same_record(record, wanted)) << "record " << i << " of kind " << found[i].index();
        },
        found[i]);
  }
}

TEST_F(SpoolTest, EveryKindComesBackAsItWas) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("a.spool").c_str(), "target"));
  Filler filler(7);
  std::vector<Any> expected;
  for (int i = 0; i < 3000; ++i) {
    write_each_kind(writer, filler, expected, std::make_index_sequence<std::variant_size_v<Any>>());
    if (i % 500 == 0) writer.flush();
  }
  const WriterStatus before = writer.status();
  writer.close();
  EXPECT_FALSE(writer.status().open);
  EXPECT_EQ(writer.status().error, 0);
  EXPECT_EQ(before.records, expected.size());

  const std::string bytes = content_of(path("a.spool"));
  EXPECT_EQ(bytes.size(), writer.status().bytes_written);
  FileHead head;
  ASSERT_TRUE(read_head(bytes, head));
  EXPECT_EQ(head.process_id, getpid());
  EXPECT_EQ(role_of(head), "target");
  EXPECT_EQ(head.checksum, XXH64(bytes.data(), offsetof(FileHead, checksum), 0));
  Collector found;
  const ReadSummary summary = read(bytes, found);
  EXPECT_EQ(summary.records, expected.size() + 1);
  EXPECT_EQ(summary.damaged_blocks, 0U);
  EXPECT_EQ(summary.unknown_records, 0U);
  EXPECT_EQ(summary.cut_bytes, 0U);
  EXPECT_TRUE(summary.closed);
  EXPECT_GT(summary.blocks, 10U);
  ASSERT_EQ(found.ends.size(), 1U);
  EXPECT_EQ(found.ends[0].records, expected.size());
  expect_same(found.records, expected);
}

TEST(SpoolNumbers, QuantisedFloatsKeepFourDigits) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const float value =
        std::ldexp(1.0F + static_cast<float>(random() % 8388608) / 8388608.0F, static_cast<int>(random() % 200) - 100);
    const float back = restore(quantise(value));
    ASSERT_LE(std::abs(back - value), value * 3.1e-5F) << value;
    ASSERT_EQ(quantise(back), quantise(value));
    ASSERT_EQ(restore(quantise(-value)), -back);
  }
  EXPECT_TRUE(std::isnan(restore(quantise(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(restore(quantise(std::numeric_limits<float>::infinity())), std::numeric_limits<float>::infinity());
  EXPECT_EQ(restore(quantise(0.0F)), 0.0F);
  EXPECT_EQ(restore(quantise(1.0F)), 1.0F);
}

TEST_F(SpoolTest, SamplesHoldTheValuesOfTheirSet) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("g.spool").c_str(), "counters"));
  MetricSetDef set;
  set.count = 2;
  GpuSample sample;
  sample.set = writer.define(set);
  sample.end_ns = 100000;
  sample.values[0] = 0.25F;
  sample.values[1] = std::numeric_limits<float>::quiet_NaN();
  sample.values[2] = 7;
  writer.add(sample);
  writer.close();
  Collector found;
  read(content_of(path("g.spool")), found);
  ASSERT_EQ(found.records.size(), 2U);
  const GpuSample& back = std::get<GpuSample>(found.records[1]);
  EXPECT_EQ(back.values[0], 0.25F);
  EXPECT_TRUE(std::isnan(back.values[1]));
  EXPECT_TRUE(std::isnan(back.values[2]));
  EXPECT_EQ(back.end_ns, 100000);
}

TEST_F(SpoolTest, AnIdleSampleTakesTenBytesAndKeepsItsValues) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("i.spool").c_str(), "counters"));
  MetricSetDef set;
  set.count = 20;
  GpuSample sample;
  sample.set = writer.define(set);
  constexpr int kSamples = 1000;
  for (int i = 0; i < kSamples; ++i) {
    sample.start_ns = 1'700'000'000'000'000'000 + 100'000 * i;
    sample.end_ns = sample.start_ns + 100'000;
    sample.values[3] = 40e6F + 1e6F * static_cast<float>(i % 7);  // one counter has something to tell
    sample.values[19] = std::numeric_limits<float>::quiet_NaN();
    writer.add(sample);
  }
  writer.close();
  const std::string bytes = content_of(path("i.spool"));
  EXPECT_LT(bytes.size(), kSamples * 10U + 1000U);
  Collector found;
  read(bytes, found);
  ASSERT_EQ(found.records.size(), kSamples + 1U);
  for (int i = 0; i < kSamples; ++i) {
    const GpuSample& back = std::get<GpuSample>(found.records[static_cast<size_t>(i) + 1]);
    EXPECT_EQ(back.start_ns, 1'700'000'000'000'000'000 + 100'000 * i);
    EXPECT_EQ(back.values[0], 0);
    EXPECT_NEAR(back.values[3], 40e6F + 1e6F * static_cast<float>(i % 7), 2e3);
    EXPECT_TRUE(std::isnan(back.values[19]));
  }
}

// Files from before samples told which values changed.
TEST_F(SpoolTest, SamplesOfAllValuesAreStillRead) {
  Collector found;
  read(content_of(std::string(LLMPROF_TEST_DATA) + "/unit/data/spool/dense_samples.spool"), found);
  int64_t samples = 0;
  for (const Any& record : found.records) {
    const GpuSample* const sample = std::get_if<GpuSample>(&record);
    if (sample == nullptr) continue;
    EXPECT_NEAR(sample->values[0], 0.5 + 0.01 * static_cast<double>(samples), 1e-4);
    EXPECT_EQ(sample->values[1], 0.25F);
    EXPECT_EQ(sample->values[2], 1.0F);
    ++samples;
  }
  EXPECT_EQ(samples, 20);
}

TEST_F(SpoolTest, TextsAreInternedAndCut) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("t.spool").c_str(), "target"));
  const Id one = writer.text("one");
  EXPECT_EQ(writer.text("one"), one);
  EXPECT_NE(writer.text("two"), one);
  const Id empty = writer.text("");
  EXPECT_NE(empty, 0U);
  std::string two_byte_letters;
  for (int i = 0; i < 3000; ++i) two_byte_letters += "\xC3\xA4";
  const std::string odd = "x" + two_byte_letters;
  writer.text(odd);
  writer.close();
  Collector found;
  read(content_of(path("t.spool")), found);
  ASSERT_EQ(found.texts.size(), 4U);
  EXPECT_EQ(found.texts[0], std::make_pair(one, std::string("one")));
  EXPECT_EQ(found.texts[2].second, "");
  // Not in the middle of a letter.
  EXPECT_EQ(found.texts[3].second, odd.substr(0, kTextMax - 1));
}

// More distinct texts than the writer remembers: ids stay right, memory stays bounded.
TEST_F(SpoolTest, ManyDistinctTexts) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("m.spool").c_str(), "target"));
  std::vector<Id> ids;
  constexpr int kTexts = 300000;
  for (int i = 0; i < kTexts; ++i) ids.push_back(writer.text("step " + std::to_string(i)));
  const Id again = writer.text("step 5");
  writer.close();
  Collector found;
  read(content_of(path("m.spool")), found);
  std::vector<std::string> by_id(found.texts.size() + 1);
  for (const auto& [id, text] : found.texts) by_id.at(id) = text;
  for (int i = 0; i < kTexts; ++i) ASSERT_EQ(by_id[ids[static_cast<size_t>(i)]], "step " + std::to_string(i));
  EXPECT_EQ(by_id[again], "step 5");
}

// Ten small blocks of five recurring calls each, without and with the end mark.
std::string ten_blocks(const std::string& path, bool close) {
  Writer writer;
  EXPECT_TRUE(writer.open(path.c_str(), "target"));
  for (int block = 0; block < 10; ++block) {
    for (int i = 0; i < 5; ++i) writer.add(RecurringCall{1, static_cast<uint64_t>(block), 1000000 + block * 100 + i});
    writer.flush();
  }
  if (close) writer.close();
  std::string bytes = content_of(path);
  return bytes;
}

TEST_F(SpoolTest, CutAtEveryByteGivesEveryWholeBlock) {
  const std::string bytes = ten_blocks(path("c.spool"), true);
  std::vector<size_t> ends;  // of the blocks
  for (size_t at = sizeof(FileHead); at < bytes.size();) {
    BlockHead head;
    std::memcpy(&head, bytes.data() + at, sizeof head);
    at += sizeof head + head.payload_bytes;
    ends.push_back(at);
  }
  ASSERT_EQ(ends.size(), 11U);
  ASSERT_EQ(ends.back(), bytes.size());
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);  // a copy of this size, for the sanitizer
    Collector found;
    const ReadSummary summary = read(cut, found);
    size_t whole = 0;
    while (whole < ends.size() && ends[whole] <= size) ++whole;
    ASSERT_EQ(summary.blocks, whole) << size;
    ASSERT_EQ(found.records.size(), 5 * std::min<size_t>(whole, 10)) << size;
    ASSERT_EQ(summary.closed, size == bytes.size());
    ASSERT_EQ(summary.damaged_blocks, 0U) << size;
    const size_t behind = whole == 0 ? sizeof(FileHead) : ends[whole - 1];
    ASSERT_EQ(summary.cut_bytes, size > behind ? size - behind : 0) << size;
  }
}

TEST_F(SpoolTest, EveryFlippedBitCostsOneBlock) {
  const std::string bytes = ten_blocks(path("f.spool"), true);
  for (size_t at = sizeof(FileHead); at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string broken = bytes;
      broken[at] = static_cast<char>(broken[at] ^ (1 << bit));
      Collector found;
      const ReadSummary summary = read(broken, found);
      ASSERT_EQ(summary.blocks, 10U) << at << "." << bit;
      // In the last block a longer length looks like a block that was cut.
      ASSERT_EQ(summary.damaged_blocks + (summary.cut_bytes != 0 ? 1 : 0), 1U) << at << "." << bit;
    }
}

TEST_F(SpoolTest, LostAndRepeatedStretches) {
  const std::string bytes = ten_blocks(path("l.spool"), true);
  const size_t block = (bytes.size() - sizeof(FileHead)) / 11 / 2;  // somewhere inside
  std::string lost = bytes;
  lost.erase(sizeof(FileHead) + 3 * block, 5 * block);
  Collector found;
  const ReadSummary summary = read(lost, found);
  EXPECT_GT(summary.damaged_blocks, 1U);
  EXPECT_EQ(summary.damaged_blocks + summary.blocks, 11U);
  EXPECT_TRUE(summary.closed);
  // The same blocks twice give their records once.
  const std::string twice = bytes + bytes.substr(sizeof(FileHead));
  Collector once;
  EXPECT_EQ(read(twice, once).blocks, 11U);
  EXPECT_EQ(once.records.size(), 50U);
}

// Block magics everywhere, each with a length that would have to be hashed: the work must stay linear.
TEST(SpoolReading, MagicsEverywhereEndSoon) {
  std::string bytes(sizeof(FileHead), '\0');
  BlockHead head;
  head.payload_bytes = 40000;
  for (int i = 0; i < 100000; ++i) bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
  Collector found;
  const ReadSummary summary = read(bytes, found);
  EXPECT_EQ(summary.blocks, 0U);
  EXPECT_EQ(summary.damaged_blocks, 1U);
}

std::string file_with_payload(const std::string& payload) {
  FileHead file_head;
  BlockHead head;
  head.payload_bytes = static_cast<uint32_t>(payload.size());
  head.base_ns = 1000;
  std::string bytes(reinterpret_cast<const char*>(&file_head), sizeof file_head);
  std::string block(reinterpret_cast<const char*>(&head), sizeof head);
  block += payload;
  const uint64_t checksum = XXH64(block.data() + kChecksummedFrom, block.size() - kChecksummedFrom, head.payload_bytes);
  std::memcpy(block.data() + offsetof(BlockHead, checksum), &checksum, sizeof checksum);
  return bytes + block;
}

TEST(SpoolReading, UnknownRecordsAreSkippedAndKnownOnesMayGrow) {
  std::string payload;
  payload += '\xF0';  // a wide record of kind 0x70, 3 bytes
  payload += std::string(
      "\x03"
      "abc",
      4);
  payload += '\x95';  // Fact {1, 2} and two bytes that a later version added
  payload += std::string("\x04\x01\x02\x07\x07", 5);
  payload += '\x95';  // Fact {3}: an earlier version had no value
  payload += std::string("\x01\x03", 2);
  Collector found;
  const ReadSummary summary = read(file_with_payload(payload), found);
  EXPECT_EQ(summary.unknown_records, 1U);
  EXPECT_EQ(summary.damaged_blocks, 0U);
  EXPECT_EQ(summary.records, 2U);
  ASSERT_EQ(found.records.size(), 2U);
  EXPECT_TRUE(same_record(std::get<Fact>(found.records[0]), Fact{1, 2}));
  EXPECT_TRUE(same_record(std::get<Fact>(found.records[1]), Fact{3, 0}));
}

TEST(SpoolReading, MalformedRecordsEndTheirBlock) {
  const std::string good = std::string("\x95\x02\x01\x02", 4);
  const std::string bad[] = {"\x0F",                // a frequent record that does not exist
                             std::string(1, '\0'),  // nor this
                             "\x01",                // a kernel without fields
                             "\x95\x7F",            // longer than the block
                             "\x95\x0B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",  // a number without end
                             std::string("\x81\x01\x00", 3),                          // a text with id 0
                             "\x81\x06\xFF\xFF\xFF\xFF\x0F"
                             "x",                                                          // an id larger than the file
                             std::string("\x0E\x00\x00\x31", 4) + std::string(60, '\0')};  // 49 metrics
  for (const std::string& piece : bad) {
    Collector found;
    const ReadSummary summary = read(file_with_payload(good + piece), found);
    EXPECT_EQ(summary.damaged_blocks, 1U) << piece;
    EXPECT_EQ(found.records.size(), 1U) << piece;
  }
}

TEST(SpoolReading, HeadsOfOtherFiles) {
  FileHead head;
  EXPECT_FALSE(read_head("", head));
  EXPECT_FALSE(read_head(std::string(63, 'x'), head));
  EXPECT_FALSE(read_head(std::string(64, 'x'), head));
  FileHead later;
  later.version = kVersion + 1;
  EXPECT_FALSE(read_head({reinterpret_cast<const char*>(&later), sizeof later}, head));
  later.version = kVersion;
  EXPECT_TRUE(read_head({reinterpret_cast<const char*>(&later), sizeof later}, head));
}

TEST_F(SpoolTest, FullDiskTurnsTheWriterOff) {
  Writer writer;
  EXPECT_FALSE(writer.open("/dev/full", "target"));
  EXPECT_EQ(writer.status().error, ENOSPC);
  EXPECT_FALSE(writer.status().open);
  EXPECT_EQ(writer.text("x"), 0U);
  writer.add(RecurringCall{});
  writer.flush();
  EXPECT_EQ(writer.status().lost_records, 2U);
  EXPECT_EQ(writer.status().records, 0U);
  EXPECT_FALSE(writer.open(path("no/such/folder/a.spool").c_str(), "target"));
  EXPECT_EQ(writer.status().error, ENOENT);
  // And it can be used again.
  EXPECT_TRUE(writer.open(path("b.spool").c_str(), "target"));
  EXPECT_EQ(writer.status().error, 0);
}

// A limit on the size of files, which the kernel enforces with a signal that would end the program.
TEST_F(SpoolTest, FileSizeLimitTurnsTheWriterOffAndLeavesAReadableFile) {
  const std::string file = path("limited.spool");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{200000, 200000};
    setrlimit(RLIMIT_FSIZE, &limit);
    Writer writer;
    bool good = writer.open(file.c_str(), "target");
    Filler filler(1);
    for (int i = 0; i < 20000; ++i) writer.add(filler.make<Memcpy>());
    writer.flush();
    const WriterStatus status = writer.status();
    good = good && !status.open && status.error == EFBIG && status.lost_records != 0 &&
           status.records + status.lost_records == 20000 && status.bytes_written <= 200000;
    writer.close();
    _exit(good ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFEXITED(how)) << "ended by signal " << WTERMSIG(how);
  EXPECT_EQ(WEXITSTATUS(how), 0);
  Collector found;
  const ReadSummary summary = read(content_of(file), found);
  EXPECT_EQ(summary.damaged_blocks, 0U);
  EXPECT_EQ(summary.cut_bytes, 0U);
  EXPECT_TRUE(summary.closed);  // a mark still found room, and says what is missing
  ASSERT_EQ(found.ends.size(), 1U);
  EXPECT_EQ(found.ends[0].error, EFBIG);
  EXPECT_EQ(found.ends[0].records, found.records.size());
  EXPECT_EQ(found.ends[0].records + found.ends[0].lost_records, 20000U);
}

TEST_F(SpoolTest, AbandonedAfterForkTheChildWritesNothing) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("p.spool").c_str(), "target"));
  writer.add(RecurringCall{1, 1, 100});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    writer.abandon();
    writer.add(RecurringCall{1, 2, 200});
    writer.flush();
    writer.close();
    _exit(writer.status().open ? 1 : 0);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  EXPECT_EQ(std::filesystem::file_size(path("p.spool")), sizeof(FileHead));
  writer.add(RecurringCall{1, 3, 300});
  writer.close();
  Collector found;
  EXPECT_TRUE(read(content_of(path("p.spool")), found).closed);
  expect_same(found.records, {RecurringCall{1, 1, 100}, RecurringCall{1, 3, 300}});
}

// Programs close descriptors that they do not know, and the number is then given to a file of theirs.
TEST_F(SpoolTest, NeverWritesToAnotherFile) {
  Writer writer;
  ASSERT_TRUE(writer.open(path("s.spool").c_str(), "target"));
  const int other = open(path("other").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(other, 0);
  int replaced = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    struct stat mine {
    }, spool{};
    ASSERT_EQ(stat(path("s.spool").c_str(), &spool), 0);
    if (fd == other || fstat(fd, &mine) != 0 || mine.st_ino != spool.st_ino || mine.st_dev != spool.st_dev) continue;
    ASSERT_EQ(dup2(other, fd), fd);
    ++replaced;
  }
  ASSERT_EQ(replaced, 1);
  writer.add(RecurringCall{1, 1, 100});
  writer.close();
  EXPECT_EQ(std::filesystem::file_size(path("other")), 0U);
  Collector found;
  EXPECT_TRUE(read(content_of(path("s.spool")), found).closed);
  EXPECT_EQ(found.records.size(), 1U);
  close(other);
}

// The promise of docs/formats/spool.md, on a decode step as PyTorch makes it.
TEST_F(SpoolTest, BytesPerRecord) {
  std::mt19937 random(11);
  Writer writer;
  ASSERT_TRUE(writer.open(path("size.spool").c_str(), "target"));
  const uint64_t start = 1795217989886984162;
  int64_t host_ns = static_cast<int64_t>(start), gpu_ns = host_ns + 50000;
  const auto size_of = [&](auto&& add_one) {
    writer.flush();
    const uint64_t before = writer.status().bytes_written;
    constexpr int kRecords = 50000;
    for (int i = 0; i < kRecords; ++i) add_one(i);
    writer.flush();
    return static_cast<double>(writer.status().bytes_written - before) / kRecords;
  };
  const double kernel = size_of([&](int i) {
    gpu_ns += static_cast<int64_t>(1000 + random() % 9000);
    const int64_t end_ns = gpu_ns + static_cast<int64_t>(1200 + random() % 20000);
    writer.add(Kernel{static_cast<Id>(100 + i % 200), gpu_ns, end_ns, static_cast<uint32_t>(i * 7), 0, 0});
    gpu_ns = end_ns;
  });
  const double api = size_of([&](int i) {
    host_ns += static_cast<int64_t>(2000 + random() % 12000);
    const int64_t end_ns = host_ns + static_cast<int64_t>(1500 + random() % 5000);
    writer.add(ApiCall{static_cast<Id>(3 + i % 4), 2, host_ns, end_ns, static_cast<uint32_t>(i * 7), 0});
    host_ns = end_ns;
  });
  MetricSetDef set;
  set.count = 19;
  for (int i = 0; i < set.count; ++i) set.metrics[i] = writer.text("metric " + std::to_string(i));
  const Id set_id = writer.define(set);
  int64_t sample_ns = host_ns;
  const double sample = size_of([&](int) {
    GpuSample record;
    record.set = set_id;
    record.start_ns = sample_ns;
    record.end_ns = sample_ns += 100000 + static_cast<int64_t>(random() % 64);
    for (int i = 0; i < 12; ++i) record.values[i] = 0.5F + static_cast<float>(random() % 10000) / 20000.0F;
    writer.add(record);
  });
  EXPECT_LE(kernel, 12.0);
  EXPECT_LE(api, 8.5);
  EXPECT_LE(sample, 40.0);
  RecordProperty("kernel_bytes", std::to_string(kernel));
  RecordProperty("api_bytes", std::to_string(api));
  RecordProperty("sample_bytes", std::to_string(sample));
}

}  // namespace
}  // namespace llmprof::spool
