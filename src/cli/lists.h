// The lists that `llmprof list` prints, one row each.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace llmprof::cli {

struct List {
  std::string_view name;
  std::string_view description;
  std::string (*print)(bool markdown);
};
std::span<const List> lists();

}  // namespace llmprof::cli
