#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace llmprof {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Charset locale_charset() {
  std::string_view locale;
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    locale = variable(name);
    if (!locale.empty()) break;
  }
  // language[_territory][.codeset][@modifier], or on some systems the codeset alone.
  const size_t dot = locale.find('.');
  if (dot != std::string_view::npos) locale.remove_prefix(dot + 1);
  std::string codeset;
  for (const char c : locale.substr(0, locale.find('@')))
    if (c != '-' && c != '_') codeset += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return codeset == "utf8" ? Charset::kUtf8 : Charset::kAscii;
}

std::optional<size_t> terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string_view text = variable("COLUMNS");
  size_t columns = 0;
  const std::from_chars_result got = std::from_chars(text.data(), text.data() + text.size(), columns);
  constexpr size_t kMost = 100'000;
  if (text.empty() || got.ec != std::errc() || got.ptr != text.data() + text.size() || columns == 0) return {};
  return std::min(columns, kMost);
}

bool can_redraw(int fd) {
  const std::string_view terminal = variable("TERM");
  return isatty(fd) == 1 && !terminal.empty() && terminal != "dumb";
}

bool use_color(ColorChoice choice, int fd) {
  if (choice != ColorChoice::kAuto) return choice == ColorChoice::kAlways;
  if (!variable("NO_COLOR").empty()) return false;
  if (const std::string_view force = variable("CLICOLOR_FORCE"); !force.empty() && force != "0") return true;
  return variable("CLICOLOR") != "0" && can_redraw(fd);
}

void print_error(std::string_view text) {
  const std::string clean = printable_lines(text, locale_charset());
  std::fwrite(clean.data(), 1, clean.size(), stderr);
}

}  // namespace llmprof
