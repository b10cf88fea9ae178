// A recording in memory: tables, strings, what the file said about itself, and what went wrong while reading it.
//
// Invariants after import (finish_import in src/import): all columns of a table have equal length; ops, api_calls,
// python_calls, annotations, gpu_ops, memory_events and counters are sorted by start (ties: longer first); durations
// are >= 0; every row id points into its table or is kNoRow. After derive: op_links, api_links, gpu_links are parallel
// to their tables. Analyses get a const Trace and may rely on all of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "trace/tables.h"

namespace llmprof {

struct SourceInfo {
  std::string kind;                // "kineto", "llmprof", ... the importer's name
  std::vector<std::string> files;  // as the user named them
  uint64_t bytes = 0;              // size of the content after decompression
};

// Half-open interval of the device's time that the report accounts for, ns on the trace's epoch.
struct Window {
  int32_t device = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class Trace {
 public:
  // Made, moved and destroyed in trace.cc: some four hundred columns, which every file that holds a trace would
  // compile.
  Trace();
  Trace(Trace&& other) noexcept;
  Trace& operator=(Trace&& other) noexcept;
  ~Trace();

#define LLMPROF_MEMBER(Type, name) Type name;
  LLMPROF_TABLES(LLMPROF_MEMBER)
#undef LLMPROF_MEMBER

  StringPool strings;
  Diagnostics diagnostics;
  SourceInfo source;
  int64_t base_unix_ns = 0;                     // epoch of all times; 0 if the recorder's epoch is unknown
  std::map<std::string, std::string> metadata;  // scalar facts of the file, for example cuda_driver_version
  std::vector<Window> windows;                  // derived: one per device with GPU activity, by device ordinal

  std::string_view text(StringId id) const { return strings.get(id); }

  // The table of that type: of RowId<Table>, or of ParallelTo.
  template <class Table>
  Table& table() {
#define LLMPROF_PICK(Type, name) \
  if constexpr (std::is_same_v<Table, Type>) return name;
    LLMPROF_TABLES(LLMPROF_PICK)
  }
  template <class Table>
  const Table& table() const {
    LLMPROF_TABLES(LLMPROF_PICK)
#undef LLMPROF_PICK
  }

  // Calls visitor(table) for every table, declared order.
  template <class V>
  void for_each_table(V&& visitor) {
#define LLMPROF_VISIT(Type, name) visitor(name);
    LLMPROF_TABLES(LLMPROF_VISIT)
#undef LLMPROF_VISIT
  }
  template <class V>
  void for_each_table(V&& visitor) const {
#define LLMPROF_VISIT(Type, name) visitor(name);
    LLMPROF_TABLES(LLMPROF_VISIT)
#undef LLMPROF_VISIT
  }

  int32_t device_of(GpuOpId gpu_op) const { return streams.device[gpu_ops.stream[gpu_op]]; }
  int64_t end_of(GpuOpId gpu_op) const { return gpu_ops.start_ns[gpu_op] + gpu_ops.dur_ns[gpu_op]; }
};

}  // namespace llmprof
