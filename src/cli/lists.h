// The lists that `llmprof list` prints, one row each.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "base/page.h"

namespace llmprof::cli {

struct List {
  std::string_view name;
  std::string_view description;
  std::string (*print)(bool markdown, const TextStyle& style);
  // The same as an array of objects, numbers as numbers and what is not known as null.
  void (*write)(JsonWriter& json);
};
std::span<const List> lists();

}  // namespace llmprof::cli
