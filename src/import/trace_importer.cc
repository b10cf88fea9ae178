#include "import/trace_importer.h"

#include <fmt/format.h>

#include "trace/trace_file.h"

namespace llmprof::trace_importer {
namespace {

// The blocks inside are packed already: gzip or zstd around the file cannot honestly shrink it further than this.
constexpr uint64_t kOuterRatioMax = 64;
constexpr uint64_t kOuterFloorBytes = uint64_t{64} << 20;

}  // namespace

int sniff(std::string_view head) { return head.starts_with(kTraceFileMagic) ? 100 : 0; }

Status import(InputFile& input, Trace& trace) {
  if (!trace.source.files.empty())
    return fail("expected one recording, found a llmprof trace file beside another file", input.name(),
                "analyze the llmprof trace file by itself");
  LLMPROF_ASSIGN(const std::string bytes,
                 input.read_all(kOuterFloorBytes + input.stored_bytes() * kOuterRatioMax, "a llmprof trace file"));
  if (Status status = read_trace(bytes, trace); !status) {
    status.error().where = input.name();
    return status;
  }
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
#define LLMPROF_CLEAR(Type, name) trace.name.clear();
  LLMPROF_DERIVED_TABLES(LLMPROF_CLEAR)
#undef LLMPROF_CLEAR
  trace.windows.clear();
  // The report is about this file; what it was made from stays on record.
  // Until version 2 of the trace file the importer of sessions was called "capture".
  trace.metadata["recorded_kind"] = trace.source.kind == "capture" ? std::string(kSessionImporter) : trace.source.kind;
  for (size_t i = 0; i < trace.source.files.size(); ++i)
    trace.metadata[fmt::format("recorded_file_{}", i)] = trace.source.files[i];
  trace.source = {};
  return {};
}

}  // namespace llmprof::trace_importer
