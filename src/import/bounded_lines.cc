#include "import/bounded_lines.h"

#include <string>

namespace llmprof {

void read_bounded_lines(InputFile& input, size_t bytes_most, const std::function<void(const BoundedLine&)>& use) {
  constexpr size_t kAtATime = 64 * 1024;
  std::string buffer(kAtATime, '\0'), kept;
  bool too_long = false;
  while (const size_t size = input.read(buffer.data(), buffer.size())) {
    std::string_view rest(buffer.data(), size);
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view piece = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      const size_t room = bytes_most - kept.size();
      too_long = too_long || piece.size() > room;
      kept.append(piece.substr(0, room));
      if (end == std::string_view::npos) continue;
      use({.text = kept, .too_long = too_long});
      too_long = false;
      kept.clear();
    }
  }
  if (!kept.empty()) use({.text = kept, .too_long = too_long, .cut = true});
}

}  // namespace llmprof
