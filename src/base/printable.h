// Text of unknown origin made fit for a terminal, and how wide it stands there. Names of kernels, ranges, files and
// threads are whatever a recording says: a terminal would obey escape sequences in them, a reader would be misled by
// characters that turn the direction of a line or cannot be seen, and a terminal without UTF-8 shows them as garbage.
// Every name that is printed goes through printable(); every page and every error goes through printable_lines().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llmprof {

enum class Charset : uint8_t { kUtf8, kAscii };

// The character at the start of a text. A byte that begins no valid UTF-8 (surrogates are not valid) stands alone.
struct Glyph {
  char32_t code = 0;  // the byte itself where `valid` is false
  size_t bytes = 1;
  bool valid = true;
};
// `text` must not be empty.
Glyph first_glyph(std::string_view text);

// Characters that must not reach a terminal or a reader as they are: controls (C0, DEL, C1), line and paragraph
// separators, marks that turn the writing direction, and those that have no shape of their own (zero width, byte-order
// mark, tags).
bool is_harmful(char32_t code);

// Appends "\n", "\t", "\r", "\x1b", "\u202e" or "\U000e0041" for the character.
void append_escaped(std::string& out, const Glyph& glyph);

// On one line: harmful characters and bytes that are no UTF-8 are escaped as above. In ASCII what has a likeness there
// is replaced by it ("…" by "...", "×" by "x", "µ" by "u"), and everything else is escaped as well.
std::string printable(std::string_view text, Charset charset = Charset::kUtf8);
// The same for text of several lines: line feeds stay, and with `ink` our own escape sequences for bold and dim.
std::string printable_lines(std::string_view text, Charset charset, bool ink = false);

// Length of one of our own escape sequences (Ink) at the start of `text`, 0 if there is none.
size_t ink_length(std::string_view text);

// Columns that a text takes on a terminal: East Asian wide characters take two, combining ones and ink none.
size_t display_width(std::string_view text);
// The longest start of `text`, in bytes, that takes at most `width` columns.
size_t prefix_of_width(std::string_view text, size_t width);
// At most `width` columns; what was cut is marked by an ellipsis.
std::string ellipsize(std::string_view text, size_t width, Charset charset = Charset::kUtf8);

}  // namespace llmprof
