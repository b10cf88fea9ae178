// Records as JSON, from their declarations: the one place where an absent value becomes null.
#pragma once

#include "base/json_writer.h"
#include "base/record_visitor.h"

namespace llmprof {

class JsonVisitor : public RecordVisitor {
 public:
  explicit JsonVisitor(JsonWriter& json) : json_(json) {}
  void value(const FieldInfo& field, const Scalar& value) override;
  void enter(Nest nest, const FieldInfo& field, const RecordShape& shape) override;
  void leave() override;
  void unknown(Nest nest, const FieldInfo& field, const RecordShape& shape) override;

 private:
  void key_of(const FieldInfo& field);
  JsonWriter& json_;
  std::vector<bool> arrays_;  // of the open scopes
};

// The fields into an object that is open already.
template <class Record>
void write_fields(JsonWriter& json, const Record& record) {
  JsonVisitor visitor(json);
  visit(record, visitor);
}
template <class Record>
void write_record(JsonWriter& json, const Record& record) {
  json.begin_object();
  write_fields(json, record);
  json.end_object();
}

}  // namespace llmprof
