// The page of `llmprof doctor`.
#include <algorithm>

#include "report/render.h"

namespace llmprof {

std::string render_text(const DoctorResult& result, const RenderOptions& options) {
  constexpr size_t kUsualWidth = 120, kState = 9, kLeastText = 30;
  const size_t width = options.fit ? options.width : kUsualWidth;
  size_t widest = 0;
  for (const DoctorCheck& check : result.checks) widest = std::max(widest, check.name.size());
  // On a narrow terminal what was found stands below the name.
  const size_t beside = 2 + kState + widest + 2;
  const bool below = beside + kLeastText > width;
  const std::string indent(below ? 6 : beside, ' ');
  std::string out;
  for (const DoctorCheck& check : result.checks) {
    std::string head = "  " + std::string(name_of(check.state));
    head.resize(2 + kState, ' ');
    head += check.name;
    if (below) out += head + "\n";
    head.resize(indent.size(), ' ');
    out += wrap_text(printable(check.found, options.charset), width, below ? indent : head, indent);
    if (!check.advice.empty())
      out += wrap_text("to do: " + printable(check.advice, options.charset), width, indent, indent);
  }
  return finish_page(out + "\n" + wrap_text(result.conclusion, width, "", ""), options);
}

}  // namespace llmprof
