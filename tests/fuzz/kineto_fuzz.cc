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
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

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

struct Rows {
  size_t ops, api_calls, gpu_ops, annotations, python_calls;
  int64_t gpu_ns = 0;
  friend bool operator==(const Rows&, const Rows&) = default;
};
Rows rows_of(const Trace& trace) {
  Rows rows{trace.ops.size(), trace.api_calls.size(), trace.gpu_ops.size(), trace.annotations.size(),
            trace.python_calls.size()};
  for (const int64_t dur_ns : trace.gpu_ops.dur_ns)
    rows.gpu_ns = static_cast<int64_t>(static_cast<uint64_t>(rows.gpu_ns) + static_cast<uint64_t>(dur_ns));
  return rows;
}

// Where the file is cut into blocks must not matter, however broken it is.
void check_blocks(std::string_view bytes, const Trace& whole) {
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.json");
  Trace cut;
  if (!input || !kineto::import_in_blocks(*input, cut, 48 + bytes.size() % 200, 1)) return;
  finish_import(cut);
  if (rows_of(cut) != rows_of(whole)) broken("cut into small blocks", "the file gives other rows");
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
  check_blocks(bytes, trace);
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
