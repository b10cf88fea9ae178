// One importer per file format. An importer sniffs the first bytes of a file and, when asked, fills the imported tables
// of a Trace. It knows nothing of derived tables, analyses or reports. Adding one: docs/howto/add-an-importer.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "trace/trace.h"

namespace llmprof {

struct Importer {
  std::string_view name;         // "kineto"
  std::string_view description;  // one line for `llmprof list importers`
  // 0: not this format; higher: more certain. Looks only at `head`, the first bytes after decompression (at most 64
  // KiB).
  int (*sniff)(std::string_view head);
  // Reads the whole input. Bad data is counted in trace.diagnostics; an error means nothing could be read.
  Status (*import)(InputFile& input, Trace& trace);
  // What to do where a recording of it is damaged or cut off, as the advice of an error.
  std::string_view if_damaged;
};

// The importer of what `llmprof run` recorded.
inline constexpr std::string_view kSessionImporter = "session";
// The importer of Nsight Systems.
inline constexpr std::string_view kNsysImporter = "nsys";
// The importer of Nsight Compute.
inline constexpr std::string_view kNcuImporter = "ncu";
// The importer of what cuBLAS and cuBLASLt log.
inline constexpr std::string_view kBlasLogImporter = "cublas";
// The importer of what benchmarks of servers write.
inline constexpr std::string_view kServingImporter = "serving";
// The importer of metrics pages of servers.
inline constexpr std::string_view kMetricsPageImporter = "prometheus";
// The importer of what NCCL logs.
inline constexpr std::string_view kNcclLogImporter = "nccl";
// The importer of the statistics of PyTorch's allocator.
inline constexpr std::string_view kMemoryStatsImporter = "memory-stats";

// The importer of what NCCL's Inspector writes.
inline constexpr std::string_view kNcclInspectorImporter = "nccl-inspector";
// The importer of what TensorRT's trtexec exports.
inline constexpr std::string_view kTrtexecImporter = "trtexec";
// The importer of trees of Triton's profiler Proton.
inline constexpr std::string_view kProtonImporter = "proton";

// The importers of what nvidia-smi logs.
inline constexpr std::string_view kDmonImporter = "dmon";
inline constexpr std::string_view kSmiQueryImporter = "smi-query";
// The importer of what DCGM prints of the same.
inline constexpr std::string_view kDcgmDmonImporter = "dcgm-dmon";

// Every importer, in one constexpr array (registry.cc).
std::span<const Importer> importers();

// Sniffs and imports one open input into `trace`; the caller finishes. The importer that read it is named in
// trace.source.
Status import_input(InputFile& input, Trace& trace);

// Opens, sniffs, imports and finishes (sorts, checks) one path: a file, or the session folder of `llmprof run`. Errors
// say what was expected, what the file looks like instead, and what to do. Tables of Nsight Compute, logs of cuBLAS,
// results of server benchmarks, metrics pages of servers, logs of NCCL, statistics of PyTorch's allocator, exports of
// TensorRT's trtexec, trees of Triton's Proton and logs of nvidia-smi or DCGM may stand beside a recording. Several
// recordings are those of ranks of one job (import/ranks.h).
Result<Trace> import_files(const std::vector<std::string>& paths);

// Establishes the invariants of trace/trace.h after the last importer has run: sorts tables, drops exact duplicates.
void finish_import(Trace& trace);

}  // namespace llmprof
