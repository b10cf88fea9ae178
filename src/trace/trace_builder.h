// Filling a Trace: every importer, the joining of recordings and the tests go through here, so that a new importer is a
// parser and nothing else. Rows are added in any order and with the columns that the recorder knows; the rest holds
// "absent" (base/fields.h). What many rows share (threads, streams, launch configurations, signatures) is asked for by
// its content and made once.
//
//   TraceBuilder builder(trace);
//   builder.add<GpuOps>({.start_ns = start, .dur_ns = dur, .stream = builder.stream(0, 1, 7),
//                        .name = builder.text("gemm"), .kind = GpuOpKind::kKernel});
//
// What is left to finish_import (src/import): order by time, repeats, values that are out of range.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/flat_index.h"
#include "trace/signature.h"
#include "trace/trace.h"

namespace llmprof {

// How the rows of one trace become rows of another.
struct Joining {
  // Threads, streams, configurations and signatures with equal content are the same ones, as within one process. Not
  // so among processes: each may have a stream 7, and its operating system may use a thread id again.
  bool share = true;
  // Added to every moment: for recordings whose clocks differ by a constant.
  int64_t clock_offset_ns = 0;
  // Ordinal of a device in the part -> in the whole; empty: the same. Asked once per run of equal ordinals.
  std::function<int32_t(int32_t)> device;
};

class TraceBuilder {
 public:
  explicit TraceBuilder(Trace& trace) : trace_(trace) {}  // empty, or its rows stay apart from those made here
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  StringId text(std::string_view text) { return trace_.strings.intern(text); }

  // A thread is known by its ids, and takes the last name it is given; those without an id (-1) are known by their
  // name.
  ThreadId thread(int64_t process_id, int64_t thread_id, StringId name = StringId::kEmpty);
  StreamId stream(int32_t device, int64_t context, int64_t stream);
  LaunchConfigId launch_config(const LaunchConfigs::Values& config);
  SignatureId signature(const SignatureText& text);

  // One row at the end of its table.
  template <class Table>
  RowId<Table> add(const typename Table::Values& row) {
    Table& table = trace_.table<Table>();
    table.append(row);
    return static_cast<Row>(table.size() - 1);
  }

  // Adds the imported tables, strings and diagnostics of `part`, whose row ids are sound (check_trace); its row ids,
  // strings, devices and times become those of this trace. A device whose ordinal is there already is left out.
  // Metadata and source are the caller's. Appending in the same order gives the same trace.
  void append(const Trace& part, const Joining& joining = {});
  // The same; takes the memory of the part where this trace has nothing yet. The part is empty afterwards.
  void append(Trace&& part, const Joining& joining = {});
  // The string of this trace that a string of the part appended last became.
  StringId appended(StringId id) const { return moved(id); }

  // Forgets every row and string, and keeps the memory.
  void clear();

 private:
  // Where rows of a part lie now: at base + row, or where rows says.
  struct Moved {
    Row base = 0;
    std::vector<Row> rows;
    Row at(Row row) const { return row == kNoRow ? Row{kNoRow} : rows.empty() ? base + row : rows[row]; }
  };
  struct Moves {
#define LLMPROF_MEMBER(Type, name) Moved name;
    LLMPROF_TABLES(LLMPROF_MEMBER)
#undef LLMPROF_MEMBER
    template <class Table>
    Moved& of() {
#define LLMPROF_PICK(Type, name) \
  if constexpr (std::is_same_v<Table, Type>) return name;
      LLMPROF_TABLES(LLMPROF_PICK)
#undef LLMPROF_PICK
    }
  };

  template <class Fill>
  SignatureId signature(StringId dims, uint64_t rest, Fill&& fill);
  void copy_inputs(const Trace& part, SignatureId from, SignatureId to);
  void append_part(const Trace& part, Trace* memory, const Joining& joining);
  void share_rows(const Trace& part, const Joining& joining);
  template <class Table>
  void append_rows(const Table& part, Table* memory, const Joining& joining);
  template <class T>
  void translate(const FieldInfo& field, std::vector<T>& column, size_t from, const Joining& joining);
  // Such columns hold none of these.
  template <class T, T kZero>
  void translate(const FieldInfo&, HalvedColumn<T, kZero>&, size_t, const Joining&) {}
  void append_devices(const Devices& part, const Joining& joining);
  StringId moved(StringId id) const { return strings_.empty() ? id : strings_[index(id)]; }

  Trace& trace_;
  RowIndex threads_, streams_, launch_configs_, signatures_;
  std::vector<StringId> strings_;  // of the part appended last; empty: they are the same
  Moves moves_;                    // of the part being appended
};

}  // namespace llmprof
