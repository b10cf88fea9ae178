// The reader of pickles: every kind of value, what it refuses, and files that lie.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "import/pickle.h"
#include "pickle_text.h"

namespace llmprof {
namespace {

using namespace pickled;
using pickle::Document;
using pickle::Ending;
using pickle::Kind;
using pickle::Value;
using Why = pickle::Ending::Why;

Ending read(const std::string& bytes, Document& document) {
  Result<InputFile> input = InputFile::from_memory(bytes, "test.pickle");
  EXPECT_TRUE(input);
  return document.read(*input);
}

std::vector<Value> items_of(const Document& document, Value container) {
  std::vector<Value> out;
  document.each(container, [&](Value item) {
    out.push_back(item);
    return true;
  });
  return out;
}

// pickle.dumps([None, True, 7, 300, -5, 2**40, -2**62, 2**80, 1.5, "é", b"ab", (), (1,), (1, 2, 3, 4), {"k": []}],
// protocol=4))
std::string every_kind() {
  static constexpr char kBytes[] =
      "\x80\x04\x95\x5C\x00\x00\x00\x00\x00\x00\x00\x5D\x94\x28\x4E\x88\x4B\x07\x4D\x2C\x01\x4A\xFB\xFF"
      "\xFF\xFF\x8A\x06\x00\x00\x00\x00\x00\x01\x8A\x08\x00\x00\x00\x00\x00\x00\x00\xC0\x8A\x0B\x00\x00"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x01\x47\x3F\xF8\x00\x00\x00\x00\x00\x00\x8C\x02\xC3\xA9\x94\x43"
      "\x02\x61\x62\x94\x29\x4B\x01\x85\x94\x28\x4B\x01\x4B\x02\x4B\x03\x4B\x04\x74\x94\x7D\x94\x8C\x01"
      "\x6B\x94\x5D\x94\x73\x65\x2E";
  return {kBytes, sizeof(kBytes) - 1};
}

TEST(Pickle, EveryKindOfPlainValue) {
  Document document;
  const Ending ending = read(every_kind(), document);
  ASSERT_EQ(ending.why, Why::kWhole) << ending.text;
  const std::vector<Value> items = items_of(document, document.root());
  ASSERT_EQ(items.size(), 15U);
  EXPECT_EQ(items[0].kind(), Kind::kNone);
  EXPECT_EQ(items[1].kind(), Kind::kBoolean);
  EXPECT_EQ(document.integer(items[2]), 7);
  EXPECT_EQ(document.integer(items[3]), 300);
  EXPECT_EQ(document.integer(items[4]), -5);
  EXPECT_EQ(document.integer(items[5]), int64_t{1} << 40);
  EXPECT_EQ(document.integer(items[6]), -(int64_t{1} << 62));
  EXPECT_EQ(items[7].kind(), Kind::kHugeInteger);
  EXPECT_FALSE(document.integer(items[7]));
  EXPECT_EQ(document.number(items[8]), 1.5);
  EXPECT_EQ(document.text(items[9]), "\xC3\xA9");
  EXPECT_EQ(document.text(items[10]), "ab");
  EXPECT_TRUE(items_of(document, items[11]).empty());
  EXPECT_EQ(items_of(document, items[12]).size(), 1U);
  EXPECT_EQ(items_of(document, items[13]).size(), 4U);
  size_t pairs = 0;
  document.members(items[14], [&](Value key, Value value) {
    EXPECT_EQ(document.text(key), "k");
    EXPECT_EQ(value.kind(), Kind::kList);
    ++pairs;
  });
  EXPECT_EQ(pairs, 1U);
}

TEST(Pickle, WhatMakesObjectsIsRefusedByItsName) {
  const std::pair<std::string, std::string> refused[] = {
      {"cos\nsystem\n", "GLOBAL of os.system"},
      {text("os") + text("system") + "\x93", "STACK_GLOBAL of os.system"},
      {"NNR", "REDUCE"},
      {"NNb", "BUILD"},
      {"(ios\nsystem\n", "INST"},
      {"(No", "OBJ"},
      {"NN\x81", "NEWOBJ"},
      {"NNN\x92", "NEWOBJ_EX"},
      {"Pid\n", "PERSID"},
      {"NQ", "BINPERSID"},
      {"\x82\x01", "EXT1"},
      {"\x8F", "EMPTY_SET"},
      {"\x97", "NEXT_BUFFER"},
      {"I5\n", "I of protocol 0"}};
  for (const auto& [value, name] : refused) {
    Document of_one;
    const Ending ending = read(document(value), of_one);
    EXPECT_EQ(ending.why, Why::kRefused) << name;
    EXPECT_EQ(ending.text, name);
  }
  Document at_offset;
  EXPECT_EQ(read(document(text("abc") + "R"), at_offset).offset, 2U + 5U + 3U);
}

TEST(Pickle, ACutFileKeepsWhatWasComplete) {
  const std::string whole =
      document(dict({{"a", list({integer(1), integer(2)})}, {"b", list({dict({{"c", text("d")}}), integer(3)})}}));
  for (size_t size = 1; size < whole.size(); ++size) {
    Document document;
    const Ending ending = read(whole.substr(0, size), document);
    EXPECT_EQ(ending.why, Why::kCut) << size;
    if (size > 3) {
      EXPECT_EQ(document.root().kind(), Kind::kDict) << size;
    }
  }
  // In the middle of the second list: the first is there, and the dict in the second.
  Document document;
  read(whole.substr(0, whole.size() - 6), document);
  std::vector<size_t> sizes;
  document.members(document.root(), [&](Value, Value value) { sizes.push_back(items_of(document, value).size()); });
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 1}));
}

TEST(Pickle, AListOfOneItemIsKeptWhereItIsCut) {
  const std::string key = text("a");
  Document cut;
  read("\x80\x02}(" + key + "]](NNN", cut);  // {"a": [[None, None, None
  std::vector<Value> outer;
  cut.members(cut.root(), [&](Value, Value value) { outer = items_of(cut, value); });
  ASSERT_EQ(outer.size(), 1U);
  EXPECT_EQ(items_of(cut, outer[0]).size(), 3U);
}

TEST(Pickle, ValuesThatManyShareCostNoMore) {
  // A list that holds itself, and lists that hold the one before twice: 2^60 leaves.
  std::string bytes = "]\x94h";
  bytes += '\0';
  bytes += "a";
  Document self;
  ASSERT_EQ(read("\x80\x04" + bytes + ".", self).why, Why::kWhole);
  const std::vector<Value> inner = items_of(self, self.root());
  ASSERT_EQ(inner.size(), 1U);
  EXPECT_EQ(inner[0].index(), self.root().index());

  std::string doubled = "\x80\x04]\x94";
  for (int i = 0; i < 60; ++i)
    doubled += "](h" + std::string(1, static_cast<char>(i)) + "h" + static_cast<char>(i) + "e\x94";
  Document shared;
  ASSERT_EQ(read(doubled + ".", shared).why, Why::kWhole);
  EXPECT_EQ(shared.container_count(), 61U);
  EXPECT_EQ(items_of(shared, shared.root()).size(), 2U);
}

TEST(Pickle, ListsThatGrowInTurnAreNotCopied) {
  std::string bytes = "\x80\x04]\x94]\x94";
  constexpr int kTimes = 1000;
  std::string round;
  for (int list = 0; list < 2; ++list) round += "h" + std::string(1, static_cast<char>(list)) + "(K\x01K\x02" + "e0";
  for (int i = 0; i < kTimes; ++i) bytes += round;
  pickle::Limits limits;
  limits.items = 4 * kTimes;
  Document bounded(limits);
  const Ending ending = read(bytes + ".", bounded);
  ASSERT_EQ(ending.why, Why::kWhole) << ending.text;
  EXPECT_EQ(items_of(bounded, bounded.root()).size(), 2U * kTimes);
}

TEST(Pickle, LiesAboutLengths) {
  const std::pair<std::string, Why> lies[] = {
      {"\x8D" + bytes_of(uint64_t{1} << 63, 8) + "ab", Why::kCut},  // a text of 2^63 bytes
      {"X" + bytes_of(0xFFFFFFFFU, 4) + "ab", Why::kCut},           // of 4 GB
      {"\x8B" + bytes_of(0xFFFFFFFFU, 4) + "ab", Why::kBroken},     // an integer of -1 bytes
      {"\x8B" + bytes_of(0x7FFFFFFFU, 4) + "ab", Why::kCut},        // of 2 GB
      {"Nr" + bytes_of(0xFFFFFFFFU, 4), Why::kBroken},              // a memo of 4 billion
      {"j" + bytes_of(7, 4), Why::kBroken},                         // never set
      {"e", Why::kBroken},
      {"u", Why::kBroken},
      {"t", Why::kBroken},
      {"a", Why::kBroken},
      {"s", Why::kBroken},
      {"0", Why::kBroken},
      {"(Ne", Why::kBroken},    // items of no list
      {"](NNu", Why::kBroken},  // items of a dict for a list
      {"}(Nu", Why::kBroken},   // a key without its value
      {"\x87", Why::kBroken},   // a tuple of 3 of nothing
      {"(N", Why::kBroken},     // the end inside of a list
      {"\xFF", Why::kBroken},   // no opcode
  };
  for (const auto& [value, why] : lies) {
    Document of_one;
    EXPECT_EQ(read(document(value), of_one).why, why) << testing::PrintToString(value);
  }
}

TEST(Pickle, WhatExceedsALimitIsSaid) {
  std::string deep = "\x80\x02";
  for (int i = 0; i < 2000; ++i) deep += "](";
  Document nested;
  const Ending ending = read(deep, nested);
  EXPECT_EQ(ending.why, Why::kTooLarge);
  EXPECT_EQ(ending.text, "more than 1000 lists and dicts inside of each other");

  pickle::Limits limits;
  limits.items = limits.containers = limits.pieces = limits.stacked = limits.memo = 10;
  limits.text_bytes = 10;
  const std::string eleven_values(11, 'N'), eleven_lists(11, ']');
  std::string eleven_pieces = "\x80\x02]";
  for (int i = 0; i < 11; ++i) eleven_pieces += "Na";
  for (const std::string& value :
       {"](" + eleven_values + "e", eleven_lists, eleven_pieces, text("a text of 17 bytes")}) {
    Document bounded(limits);
    EXPECT_EQ(read(document(value), bounded).why, Why::kTooLarge) << value;
  }
}

}  // namespace
}  // namespace llmprof
