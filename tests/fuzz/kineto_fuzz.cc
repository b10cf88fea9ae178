// Any bytes as a Kineto trace, through the whole program: unpack, import, derive, analyze, render. Nothing may crash,
// and whatever the input, the report's totals add up.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "import/kineto.h"
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

// An imported trace keeps its promises: nothing to repair, and saving loses nothing.
void check_imported(Trace& trace, bool save) {
  const uint64_t found = trace.diagnostics.total();
  check_trace(trace);
  if (trace.diagnostics.total() != found) broken("the importer left", "values that check_trace repairs");
  if (!save) return;
  const Result<std::string> packed = pack_trace(trace);
  if (!packed) return;
  Trace back;
  if (Status status = read_trace(*packed, back); !status) broken("cannot read what was saved", status.error().text());
  const Result<std::string> again = pack_trace(back);
  if (!again || *again != *packed) broken("saving", "changed the trace");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.json");
  if (!input) return 0;
  kineto::sniff(input->head());
  Trace trace;
  if (!kineto::import(*input, trace)) return 0;
  finish_import(trace);
  // Saving takes longer than all the rest: one input in eight must do.
  check_imported(trace, size % 8 == 0);
  if (Status status = derive(trace); !status) broken("derive failed", status.error().text());
  const Result<Report> report = analyze(trace);
  if (!report) return 0;
  for (const ConservationCheck& check : report->conservation)
    if (!check.ok) broken("conservation", check.name);
  for (const Renderer& renderer : renderers())
    for (const RenderedFile& file : renderer.render(*report, {}))
      if (file.name.empty()) broken("a rendered file has no name", std::string(renderer.name));
  return 0;
}
