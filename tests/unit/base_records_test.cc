// Declared records as a format sees them: each kind of field, known and unknown, and read again.
#include <gtest/gtest.h>

#include "base/json_document.h"
#include "base/record_json.h"
#include "base/record_reader.h"

namespace llmprof {
namespace {

enum class Colour : uint8_t { kRed, kBlue, kCount };
std::string_view name_of(Colour colour) { return colour == Colour::kRed ? "red" : "blue"; }

#define LLMPROF_PART_FIELDS(F)        \
  F(KeyText, id, "", "which")         \
  F(Colour, colour, "", "its colour") \
  F(std::optional<double>, ms, "ms", "how long")
LLMPROF_RECORD(Part, "parts", "Parts of a thing", LLMPROF_PART_FIELDS)

#define LLMPROF_THING_FIELDS(F)                                \
  F(Count, bytes, "bytes", "how many")                         \
  F(std::optional<Part>, best, "", "the best one")             \
  F(std::vector<Part>, parts, "", "all of them")               \
  F(Named<Part>, by_name, "", "the same by name")              \
  F(std::vector<std::string>, notes, "", "what else there is") \
  F(IfKnown<int64_t>, age, "s", "where it is known")           \
  F(IfAny<std::string>, advice, "", "where there is any")      \
  F(Added<bool>, later, "", "since the second version")
LLMPROF_RECORD(Thing, "thing", "A thing", LLMPROF_THING_FIELDS)

std::string json_of(const Thing& thing) {
  JsonWriter json(0);
  write_record(json, thing);
  return json.take();
}

TEST(Records, WhatIsNotKnownIsNullOrLeftOutAsItsTypeSays) {
  EXPECT_EQ(json_of({}), R"({"bytes":0,"best":null,"parts":[],"by_name":{},"notes":[],"later":false})");
}

TEST(Records, EveryKindOfFieldIsWritten) {
  Thing thing;
  thing.bytes = {1e10};
  thing.best = Part{"a", Colour::kBlue, 1.5};
  thing.parts = {{"a", Colour::kBlue, 1.5}, {"b", Colour::kRed, {}}};
  thing.by_name.emplace_back("first", thing.parts[1]);
  thing.notes = {"x"};
  thing.age = 7;
  thing.advice = "wait";
  thing.later = true;
  EXPECT_EQ(
      json_of(thing),
      R"({"bytes":10000000000,"best":{"id":"a","colour":"blue","ms":1.5},)"
      R"("parts":[{"id":"a","colour":"blue","ms":1.5},{"id":"b","colour":"red","ms":null}],)"
      R"("by_name":{"first":{"id":"b","colour":"red","ms":null}},"notes":["x"],"age":7,"advice":"wait","later":true})");
  EXPECT_EQ(std::get<double>(Count{1.5}.scalar()), 1.5) << "no whole number";
}

std::string wrong_in(const std::string& text, Part& part, Missing missing = Missing::kUnknown) {
  const Result<JsonDocument> document = JsonDocument::parse(text);
  EXPECT_TRUE(document.has_value());
  RecordReader reader(document->root(), 8, missing);
  part.for_each_field(reader);
  return reader.wrong();
}

TEST(Records, AreReadAgainByTheirTypes) {
  Part part;
  EXPECT_EQ(wrong_in(R"({"id": "a", "colour": "blue", "ms": 2})", part), "");
  EXPECT_EQ(part.id, "a");
  EXPECT_EQ(part.colour, Colour::kBlue);
  EXPECT_EQ(part.ms, 2);
  EXPECT_EQ(wrong_in(R"({"id": "a", "colour": "red"})", part), "") << "what may be unknown may be missing";
  EXPECT_EQ(wrong_in(R"({"id": "a"})", part), "colour");
  EXPECT_EQ(wrong_in(R"({"id": "a"})", part, Missing::kAny), "");
  EXPECT_EQ(wrong_in(R"({"id": "a", "colour": "green"})", part), "colour") << "no such name";
  EXPECT_EQ(wrong_in(R"({"id": "a", "colour": "red", "ms": "2"})", part), "ms");
  EXPECT_EQ(wrong_in(R"({"id": "far too long", "colour": "red"})", part), "id");
}

}  // namespace
}  // namespace llmprof
