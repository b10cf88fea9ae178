// One JSON document, in the order of the declarations: every key is there, and unknown values are null.
#include "base/record_json.h"
#include "report/render.h"

namespace llmprof {

std::string render_json(const AnyResult& result, int indent) {
  JsonWriter json(indent);
  json.begin_object();
  result.visit([&json](const auto& record) {
    const std::string_view schema = result_info(record).schema;
    if (!schema.empty()) json.field("schema", schema);
    write_fields(json, record);
  });
  json.end_object();
  return json.take() + "\n";
}

}  // namespace llmprof
