#include "base/page.h"

#include <algorithm>
#include <cctype>

namespace llmprof {
namespace {

// Where a line that goes on is indented to: below the second column of "term  explanation", else a little further in
// than its own text; never so far that nothing fits beside it.
size_t continuation(std::string_view line, size_t width) {
  const size_t own = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", own);
  const size_t second = std::min(line.find_first_not_of(' ', gap), line.size());
  if (gap != std::string_view::npos && second < line.size())
    if (const size_t column = display_width(line.substr(0, second)); column <= width / 2) return column;
  return std::min(own + 4, width / 3);
}

void append_fitting(std::string& out, std::string_view line, size_t width) {
  const size_t indent = continuation(line, width);
  size_t own = std::min(line.find_first_not_of(' '), line.size());
  std::string rest;
  while (display_width(line) > width) {
    const size_t end = break_at(line, width, own);
    std::string_view head = line.substr(0, end);
    while (head.ends_with(' ')) head.remove_suffix(1);
    out.append(head) += '\n';
    std::string_view tail = line.substr(end);
    while (tail.starts_with(' ')) tail.remove_prefix(1);
    rest = std::string(indent, ' ').append(tail);
    line = rest;
    own = indent;
  }
  out += line;
}

}  // namespace

size_t break_at(std::string_view line, size_t width, size_t indent) {
  const size_t most = std::max(prefix_of_width(line, width), first_glyph(line).bytes);
  const std::string_view start = line.substr(0, std::min(most + 1, line.size()));  // a blank may stand at the edge
  const size_t least = indent + (most - std::min(most, indent)) / 3;
  if (const size_t blank = start.rfind(' '); blank != std::string_view::npos && blank > least) return blank;
  const size_t mark = line.substr(0, most).find_last_of("/|,;:_-=&>)");
  if (mark != std::string_view::npos && mark > least) return mark + 1;
  return most;
}

std::string wrap_text(std::string_view text, size_t width, std::string_view first, std::string_view rest) {
  std::string out, line(first);
  bool fresh = true;  // nothing but the indent on the line yet
  for (size_t i = 0; i < text.size();) {
    size_t stop = std::min(text.find(' ', i), text.size());
    const bool percent = stop > i && std::isdigit(static_cast<unsigned char>(text[stop - 1])) != 0 &&
                         text.substr(std::min(stop + 1, text.size())).starts_with('%');
    if (percent) stop = std::min(text.find(' ', stop + 1), text.size());
    const std::string_view word = text.substr(i, stop - i);
    if (!fresh && display_width(line) + 1 + display_width(word) > width) {
      out += line + "\n";
      line = rest;
      fresh = true;
    }
    if (!fresh) line += ' ';
    line += word;
    fresh = false;
    i = stop + 1;
  }
  return out + line + "\n";
}

std::string finish_page(std::string_view text, const TextStyle& style) {
  const std::string clean = printable_lines(text, style.charset, style.color);
  if (!style.fit) return clean;
  const size_t width = std::max(style.width, kLeastWidth);
  std::string out;
  for (std::string_view left = clean; !left.empty();) {
    const size_t end = std::min(left.find('\n'), left.size());
    append_fitting(out, left.substr(0, end), width);
    if (end < left.size()) out += '\n';
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return out;
}

}  // namespace llmprof
