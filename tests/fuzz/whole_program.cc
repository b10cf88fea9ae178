#include "whole_program.h"

#include <cstdio>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "harmless.h"
#include "report/render.h"
#include "trace/check_trace.h"
#include "trace/trace_file.h"

namespace llmprof::fuzz {

void broken(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

void finish_and_report(Trace& trace, bool save) {
  finish_import(trace);
  const uint64_t found = trace.diagnostics.total();
  check_trace(trace);
  if (trace.diagnostics.total() != found) broken("the importer left", "values that check_trace repairs");
  if (save) {
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
    for (const RenderedFile& file : renderer.render(*report, {})) {
      if (file.name.empty()) broken("a rendered file has no name", std::string(renderer.name));
      if (!is_harmless(renderer.name, file.content)) broken("a rendered file means harm", file.name);
    }
}

}  // namespace llmprof::fuzz
