#include "base/record_json.h"

namespace llmprof {

void JsonVisitor::key_of(const FieldInfo& field) {
  if (!field.name.empty()) json_.key(field.name);
}

void JsonVisitor::value(const FieldInfo& field, const Scalar& value) {
  key_of(field);
  std::visit(
      [this](const auto& known) {
        if constexpr (std::is_same_v<std::decay_t<decltype(known)>, std::monostate>)
          json_.null();
        else
          json_.value(known);
      },
      value);
}

void JsonVisitor::enter(Nest nest, const FieldInfo& field, const RecordShape&) {
  key_of(field);
  arrays_.push_back(nest == Nest::kRows || nest == Nest::kTexts || nest == Nest::kNumbers);
  if (arrays_.back())
    json_.begin_array();
  else
    json_.begin_object();
}

void JsonVisitor::leave() {
  if (arrays_.back())
    json_.end_array();
  else
    json_.end_object();
  arrays_.pop_back();
}

void JsonVisitor::unknown(Nest, const FieldInfo& field, const RecordShape&) {
  key_of(field);
  json_.null();
}

}  // namespace llmprof
