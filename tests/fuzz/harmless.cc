#include "harmless.h"

#include <cstddef>

namespace llmprof::fuzz {
namespace {

constexpr bool has_control(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) return true;
  }
  return false;
}

constexpr bool is_number(std::string_view digits) {
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool sign = digits[i] == '-' || digits[i] == '+';
    if (sign ? i == 0 || digits[i - 1] != 'e'
             : std::string_view("0123456789.einf").find(digits[i]) == std::string_view::npos)
      return false;
  }
  return !digits.empty();
}

// A field of CSV that begins as a formula does, and is no number.
constexpr bool has_formula(std::string_view csv) {
  bool quoted = false, begins = true;
  for (size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    if (begins && c == '"') {
      quoted = true;
      if (i + 1 < csv.size() && std::string_view("=+-@\t").find(csv[i + 1]) != std::string_view::npos) return true;
      begins = false;
      continue;
    }
    if (begins && std::string_view("=+@\t").find(c) != std::string_view::npos) return true;
    if (begins && c == '-' && !is_number(csv.substr(i + 1, csv.find_first_of(",\n", i) - i - 1))) return true;
    begins = false;
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == ',' || c == '\n')) begins = true;
  }
  return false;
}

// The page's data end with the element that they are in.
constexpr bool has_tag(std::string_view html) {
  for (const std::string_view id : {"id=\"llmprof-units\"", "id=\"llmprof-result\"", "id=\"llmprof-timeline\""}) {
    const size_t at = html.find(id);
    if (at == std::string_view::npos) continue;
    const size_t tag = html.find('<', at);
    if (!html.substr(tag).starts_with("</script>")) return true;
  }
  return false;
}

static_assert(has_control("a\x1b[2J") && has_control("a\rb") && has_control("\x7f") && !has_control("a\n\tb"));
static_assert(has_formula("a,=1+1\n") && has_formula("\"@x,y\"") && has_formula("a\n-2+3\n") && has_formula("-x"));
static_assert(!has_formula("a,-1.5e-05,\"x=1\"\n-3,b=2\n") && has_formula("\"a,\"\"b\",+1"));
static_assert(has_tag("<script id=\"llmprof-result\">{\"a\":\"<img\"}</script>"));
static_assert(!has_tag("<script id=\"llmprof-result\">{\"a\":\"\\u003cimg\"}</script>"));

}  // namespace

bool is_harmless(std::string_view format, std::string_view content) {
  if (format == "html") return !has_tag(content);
  if (has_control(content)) return false;
  return format != "csv" || !has_formula(content);
}

}  // namespace llmprof::fuzz
