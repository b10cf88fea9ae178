// The views of an exported database: the joins that most questions begin with. docs/formats/sqlite.md describes each.
#pragma once

#include <span>
#include <string_view>

namespace llmprof::exporting {

struct SqliteView {
  std::string_view name;
  std::string_view select;
};
std::span<const SqliteView> sqlite_views();

}  // namespace llmprof::exporting
