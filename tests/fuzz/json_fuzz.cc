// Any bytes as a JSON text: this reader and simdjson read the same values, or both refuse it.
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json_document.h"

namespace {

namespace dom = simdjson::dom;
using llmprof::JsonValue;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

// At most kJsonDepthMax levels, which both readers hold to.
void compare(JsonValue own, dom::element other) {
  switch (other.type()) {
    case dom::element_type::NULL_VALUE:
      return require(own.is_null());
    case dom::element_type::BOOL:
      return require(own.boolean() == bool(other));
    case dom::element_type::INT64:
      return require(own.integer() == int64_t(other));
    case dom::element_type::UINT64:
      return require(own.natural() == uint64_t(other));
    case dom::element_type::DOUBLE:
      return require(own.number() == double(other));
    case dom::element_type::STRING:
      return require(own.text() == std::string_view(other));
    case dom::element_type::ARRAY: {
      dom::array::iterator at = dom::array(other).begin();
      require(own.is_array() && own.size() == dom::array(other).size());
      for (const JsonValue entry : own.entries()) {
        compare(entry, *at);
        ++at;
      }
      return;
    }
    case dom::element_type::OBJECT: {
      dom::object::iterator at = dom::object(other).begin();
      require(own.is_object() && own.size() == dom::object(other).size());
      for (const llmprof::JsonMember member : own.members()) {
        require(member.name == at.key());
        compare(member.value, at.value());
        ++at;
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const llmprof::Result<llmprof::JsonDocument> own = llmprof::JsonDocument::parse(text);
  if (!own && own.error().what.empty()) __builtin_trap();
  // The other reader takes no byte order mark, no whole number of more than 64 bits, and one level of nesting less.
  if (text.starts_with("\xEF\xBB\xBF")) return 0;
  dom::parser parser;
  dom::element root;
  const simdjson::error_code code = parser.parse(simdjson::padded_string(text)).get(root);
  if (code == simdjson::NUMBER_ERROR || code == simdjson::DEPTH_ERROR) return 0;
  require(own.has_value() == (code == simdjson::SUCCESS));
  if (own) compare(own->root(), root);
  return 0;
}
