// Any bytes as the output of `nvidia-smi dmon`, through the whole program: read, import, derive, analyze, render.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/dmon.h"
#include "import/importer.h"
#include "report/render.h"
#include "trace/check_trace.h"

namespace {

using namespace llmprof;

// One thread: libFuzzer runs thousands of inputs a second, and starting threads would take most of the time.
const bool kOneThread = setenv("LLMPROF_THREADS", "1", 1) == 0;

[[noreturn]] void broken(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

void use(std::string_view bytes) {
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.txt");
  Trace trace;
  if (!input) return;
  if (const int sure = dmon::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  // What sniff refuses is read as well: the reader relies on nothing that sniff has seen.
  if (!dmon::import(*input, trace)) return;
  if (trace.nvml_samples.size() > bytes.size() / 2) broken("reading", "more samples than lines");
  finish_import(trace);
  const uint64_t found = trace.diagnostics.total();
  check_trace(trace);
  if (trace.diagnostics.total() != found) broken("the importer left", "values that check_trace repairs");
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
