// Text of unknown origin on a terminal: what passes, what is escaped, how wide it stands, and pages that fit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/page.h"
#include "base/printable.h"
#include "base/terminal.h"

namespace llmprof {
namespace {

constexpr Charset kAscii = Charset::kAscii;

std::string utf8(char32_t code) {
  std::string out;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
  return out;
}

TEST(Printable, NothingHarmfulPasses) {
  const std::pair<char32_t, char32_t> ranges[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x200B, 0x200F},
                                                  {0x2028, 0x202E}, {0x2060, 0x2069}, {0xFEFF, 0xFEFF}};
  for (const auto& [first, last] : ranges)
    for (char32_t code = first; code <= last; ++code) {
      const std::string text = "a" + utf8(code) + "b";
      for (const std::string& shown : {printable(text), printable(text, kAscii)}) {
        EXPECT_EQ(shown.find(utf8(code)), std::string::npos) << static_cast<uint32_t>(code);
        for (const char c : shown) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << shown;
      }
    }
  EXPECT_EQ(printable("a\x1b[31mb\nc\td\re"), "a\\x1b[31mb\\nc\\td\\re");
  EXPECT_EQ(printable("\u202Egnp.exe"), "\\u202egnp.exe");
  EXPECT_EQ(printable("\u009B31m"), "\\u009b31m");
  EXPECT_EQ(printable("tag\U000E0041"), "tag\\U000e0041");
}

TEST(Printable, BytesThatAreNoUtf8AreShownAsBytes) {
  EXPECT_EQ(printable("a\xFF"), "a\\xff");
  EXPECT_EQ(printable("\xC3"), "\\xc3");                             // cut
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // a lone surrogate
  EXPECT_EQ(printable("\xF5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(printable("\x9b"
                      "1m"),
            "\\x9b1m");  // C1 in an 8-bit terminal
}

TEST(Printable, TextOfOtherLanguagesPassesWhereItCanBeShown) {
  const std::string text = "Größe 大小 📦 ↦";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable(text, kAscii), "Gr\\u00f6\\u00dfe \\u5927\\u5c0f \\U0001f4e6 \\u21a6");
  EXPECT_EQ(printable("a · b → c… 3 µs × 2 – ─ ≥", kAscii), "a | b -> c... 3 us x 2 - - >=");
}

TEST(Printable, LinesKeepLineFeedsAndOnlyOurOwnInk) {
  EXPECT_EQ(printable_lines("a\n\033[1mb\033[0m", Charset::kUtf8, true), "a\n\033[1mb\033[0m");
  EXPECT_EQ(printable_lines("a\n\033[1mb", Charset::kUtf8), "a\n\\x1b[1mb");
  EXPECT_EQ(printable_lines("\033]0;title\a\033[2J\033[31m", Charset::kUtf8, true),
            "\\x1b]0;title\\x07\\x1b[2J\\x1b[31m");
}

TEST(Width, CountsColumns) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("é"), 1U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
  EXPECT_EQ(display_width("大小"), 4U);
  EXPECT_EQ(display_width("한국"), 4U);
  EXPECT_EQ(display_width("📦"), 2U);
  EXPECT_EQ(display_width("\033[1mab\033[0m"), 2U);
  EXPECT_EQ(display_width("\xFF\xFE"), 2U);
}

TEST(Width, EllipsizeCutsBetweenCharacters) {
  EXPECT_EQ(ellipsize("abcdef", 6), "abcdef");
  EXPECT_EQ(ellipsize("abcdef", 4), "abc…");
  EXPECT_EQ(ellipsize("abcdefghijkl", 8, kAscii), "abcde...");
  EXPECT_EQ(ellipsize("abcdef", 3, kAscii), "ab.");
  EXPECT_EQ(ellipsize("大小大小", 4), "大…");  // half of a wide character does not fit
  EXPECT_EQ(ellipsize("ee\u0301ef", 3), "ee\u0301…");
  EXPECT_EQ(ellipsize("abc", 0), "");
}

TEST(Page, FitsItsWidth) {
  const std::string text =
      "short\n  a sentence that is longer than the page is wide and goes on below itself\n"
      "  path /a/very/long/path/without/a/single/blank/in/it/that/has/to/be/cut/somewhere/anyway.txt\n"
      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"
      "大小大小大小大小大小大小大小大小大小大小大小大小大小\n";
  for (const size_t width : {size_t{1}, size_t{20}, size_t{40}, size_t{80}}) {
    TextStyle style;
    style.fit = true;
    style.width = width;
    const std::string page = finish_page(text, style);
    std::istringstream lines(page);
    std::string joined;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(display_width(line), std::max(width, kLeastWidth)) << line;
      for (const char c : line)
        if (c != ' ') joined += c;
    }
    std::string all;
    for (const char c : text)
      if (c != ' ' && c != '\n') all += c;
    EXPECT_EQ(joined, all);  // nothing is lost
  }
  TextStyle wide;
  wide.width = 20;
  EXPECT_EQ(finish_page(text, wide), text);  // a pipe has room
}

TEST(Page, GoesOnBelowItsOwnText) {
  TextStyle style;
  style.fit = true;
  style.width = 20;
  EXPECT_EQ(finish_page("  aaaa bbbb cccc dddd eeee\n", style), "  aaaa bbbb cccc\n      dddd eeee\n");
  EXPECT_EQ(finish_page("  -o X  write to this file\n", style), "  -o X  write to\n        this file\n");
}

// Sets variables for as long as it lives.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG", "COLUMNS", "NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "TERM"})
      unsetenv(name);
    for (const auto& [name, value] : values) setenv(name, value, 1);
  }
};

TEST(Terminal, CharsetIsTheLocales) {
  const auto charset = [](std::initializer_list<std::pair<const char*, const char*>> values) {
    const Environment environment(values);
    return locale_charset();
  };
  EXPECT_EQ(charset({}), kAscii);
  EXPECT_EQ(charset({{"LANG", "de_DE.UTF-8"}}), Charset::kUtf8);
  EXPECT_EQ(charset({{"LANG", "de_DE.utf8@euro"}}), Charset::kUtf8);
  EXPECT_EQ(charset({{"LC_CTYPE", "UTF-8"}}), Charset::kUtf8);
  EXPECT_EQ(charset({{"LANG", "en_US.UTF-8"}, {"LC_ALL", "C"}}), kAscii);
  EXPECT_EQ(charset({{"LANG", "en_US.UTF-8"}, {"LC_CTYPE", "POSIX"}}), kAscii);
  EXPECT_EQ(charset({{"LANG", "C"}, {"LC_ALL", "C.UTF-8"}}), Charset::kUtf8);
  EXPECT_EQ(charset({{"LANG", "C.UTF-8"}, {"LC_ALL", ""}}), Charset::kUtf8);  // empty is not set
  EXPECT_EQ(charset({{"LANG", "de_DE"}}), kAscii);
  EXPECT_EQ(charset({{"LANG", "de_DE.ISO-8859-15"}}), kAscii);
}

TEST(Terminal, WidthAndColorWithoutATerminal) {
  {
    const Environment environment({});
    EXPECT_FALSE(terminal_width(-1));
    EXPECT_FALSE(use_color(ColorChoice::kAuto, -1));
    EXPECT_TRUE(use_color(ColorChoice::kAlways, -1));
    EXPECT_FALSE(can_redraw(-1));
  }
  {
    const Environment environment({{"COLUMNS", "72"}, {"CLICOLOR_FORCE", "1"}});
    EXPECT_EQ(terminal_width(-1), 72U);
    EXPECT_TRUE(use_color(ColorChoice::kAuto, -1));
    EXPECT_FALSE(use_color(ColorChoice::kNever, -1));
  }
  {
    const Environment environment({{"COLUMNS", "72x"}, {"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}});
    EXPECT_FALSE(terminal_width(-1));
    EXPECT_FALSE(use_color(ColorChoice::kAuto, -1));
    EXPECT_TRUE(use_color(ColorChoice::kAlways, -1));
  }
  const Environment environment({{"COLUMNS", "0"}, {"CLICOLOR_FORCE", "0"}});
  EXPECT_FALSE(terminal_width(-1));
  EXPECT_FALSE(use_color(ColorChoice::kAuto, -1));
}

}  // namespace
}  // namespace llmprof
