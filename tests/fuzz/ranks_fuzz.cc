// Any bytes as the Kineto traces of two ranks, one behind the other with a line of dashes between them, through the
// whole program: read, import, join, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/kineto.h"
#include "import/ranks.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  const auto files = two_files(bytes);
  if (!files) return;
  const std::string_view first = files->first, second = files->second;
  const auto import = [&](const std::string& path, Trace& trace) -> Status {
    if (!imported(path == "first" ? first : second, path.c_str(), kineto::sniff, kineto::import, trace))
      return fail("unreadable", path);
    trace.source.files.push_back(path);
    return {};
  };
  Result<Trace> joined = import_ranks({"first", "second"}, import);
  if (!joined) {
    if (joined.error().text().empty()) broken("joining", "an error without words");
    return;
  }
  if (joined->ranks.size() < 2) broken("joining", "fewer than two ranks");
  finish_joined(*joined);
  finish_and_report(*joined, true);
}

}  // namespace llmprof::fuzz
