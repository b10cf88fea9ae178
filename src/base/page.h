// A page of text for a terminal, a pipe or a file: how it is laid out, and lines broken so that they fit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/printable.h"

namespace llmprof {

// What the reader's end can show. It is decided once, by whoever writes (cli/output.h), and handed down.
struct TextStyle {
  bool color = false;  // bold, dim and one accent
  Charset charset = Charset::kUtf8;
  size_t width = 110;  // of running text
  // Tables and all other lines fit into `width` too: a terminal's reader cannot scroll sideways. A file or a pipe has
  // room for every column.
  bool fit = false;
  std::string_view more = "a wider terminal";  // where what a table had no room for can be seen
};

// Narrower than this nothing can be laid out; what a terminal makes of it is its affair.
constexpr size_t kLeastWidth = 20;

// Breaks at blanks so that lines have at most `width` columns; the first line starts with `first`, others with `rest`,
// both counted. A word that is wider stays whole, and so do a number and its "%".
std::string wrap_text(std::string_view text, size_t width, std::string_view first, std::string_view rest);

// How many bytes of `line`, which is wider than `width`, one line of that width takes: up to a blank if one stands in
// the last two thirds of what follows its first `indent` bytes, else behind punctuation, else as many as fit. At least
// one character.
size_t break_at(std::string_view line, size_t width, size_t indent = 0);

// What a page must go through before it is written: nothing harmful in it, only ASCII where that is all that can be
// shown, and with `fit` no line wider than the terminal. Lines that were laid out well come out as they are; others are
// broken at blanks, behind punctuation, or, as a last resort, anywhere, and go on further to the right.
std::string finish_page(std::string_view text, const TextStyle& style);

}  // namespace llmprof
