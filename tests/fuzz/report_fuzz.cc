// Any bytes as the report of a run that was kept: refused, or read so that every page of it can be made, and so that
// what is written of it is read as the same again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "harmless.h"
#include "report/read_report.h"
#include "report/render.h"

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace llmprof;
  const Result<Report> report = read_report({reinterpret_cast<const char*>(data), size});
  if (!report) {
    check(!report.error().what.empty());
    return 0;
  }
  for (const bool one_page : {true, false}) {
    RenderOptions options;
    options.one_page = one_page;
    check(render_text(*report, options).find('\x1b') == std::string::npos);
  }
  check(!render_csv(*report).empty());
  for (const Renderer& renderer : renderers())
    for (const RenderedFile& file : renderer.render(*report, {})) check(fuzz::is_harmless(renderer.name, file.content));
  const std::string written = render_json(*report);
  const Result<Report> again = read_report(written);
  check(again && render_json(*again) == written);
  return 0;
}
