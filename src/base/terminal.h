// What the terminal at a file descriptor can show, by the environment's conventions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/printable.h"

namespace llmprof {

// By the first of LC_ALL, LC_CTYPE and LANG that is set and not empty: UTF-8 if its codeset is; else, and where none is
// set (the POSIX locale), ASCII. The name decides, not what is installed: a container without locales still shows
// UTF-8.
Charset locale_charset();

// Columns of the terminal; where `fd` is none, COLUMNS if it is a number; else nothing.
std::optional<size_t> terminal_width(int fd);

// A terminal that obeys escape sequences and carriage returns: not TERM=dumb, nor one of which nothing is known.
bool can_redraw(int fd);

enum class ColorChoice : uint8_t { kAuto, kAlways, kNever };
// kAuto, in this order: NO_COLOR (no-color.org) says no, CLICOLOR_FORCE yes, CLICOLOR=0 no, else whether `fd` is a
// terminal that can.
bool use_color(ColorChoice choice, int fd);

// Writes to standard error, nothing harmful in it, in the locale's characters. Line feeds stay.
void print_error(std::string_view text);

}  // namespace llmprof
