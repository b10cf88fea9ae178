// Any bytes as an SQLite export of Nsight Systems, through the whole program: read, import, derive, analyze, render.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "import/nsys.h"
#include "report/render.h"
#include "trace/check_trace.h"
#include "trace/trace_file.h"

namespace {

using namespace llmprof;

// One thread: libFuzzer runs thousands of inputs a second, and starting threads would take most of the time.
const bool kOneThread = setenv("LLMPROF_THREADS", "1", 1) == 0;

[[noreturn]] void broken(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

void use(std::string_view bytes) {
  constexpr size_t kBytesMax = size_t{1} << 20;  // time of one input
  if (bytes.size() > kBytesMax) return;
  Result<InputFile> input = InputFile::from_memory(bytes, "/nowhere/fuzz.sqlite");
  if (!input) return;
  if (const int sure = nsys::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  Trace trace;
  // Small parts: their joining is what is tried.
  if (!nsys::import_in_parts(*input, trace, 16)) return;
  // Pages that a damaged file gives again and again are no more rows than fit into it.
  const size_t rows =
      trace.gpu_ops.size() + trace.api_calls.size() + trace.annotations.size() + trace.gpu_samples.size();
  if (rows > 4 * (bytes.size() / 5 + 1)) broken("reading", "more rows than fit into the file");
  finish_import(trace);
  const uint64_t found = trace.diagnostics.total();
  check_trace(trace);
  if (trace.diagnostics.total() != found) broken("the importer left", "values that check_trace repairs");
  if (bytes.size() % 8 == 0) {
    const Result<std::string> packed = pack_trace(trace);
    Trace back;
    if (packed && !read_trace(*packed, back)) broken("saving", "cannot be read back");
  }
  if (Status status = derive(trace); !status) broken("derive failed", status.error().text());
  const Result<Report> report = analyze(trace);
  if (!report) return;
  for (const ConservationCheck& check : report->conservation)
    if (!check.ok) broken("conservation", check.name);
  for (const Renderer& renderer : renderers())
    for (const RenderedFile& file : renderer.render(*report, {}))
      if (file.name.empty()) broken("a rendered file has no name", std::string(renderer.name));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
