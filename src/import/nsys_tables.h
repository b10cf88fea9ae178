// The tables of an Nsight Systems export, a part of one at a time: rows of the export become rows of a Trace of their
// own. Parts are read side by side and joined in order (nsys_join.h), which also resolves what needs all of them.
//
// Until then ids that count within a process carry its number (with_process).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "import/nsys_database.h"
#include "trace/check_trace.h"
#include "trace/trace_builder.h"

namespace llmprof::nsys {

// Identifiers of processes and threads are packed: the process in bits 24 to 47, the thread in bits 0 to 23.
constexpr int64_t process_of(int64_t global_id) { return global_id >> 24 & 0xFFFFFF; }
constexpr int64_t thread_of(int64_t global_id) { return global_id & 0xFFFFFF; }

// Process id and correlation id in one number, until the processes of the file are counted.
constexpr int kCorrelationBits = 40;
constexpr uint64_t kCorrelationMask = (uint64_t{1} << kCorrelationBits) - 1;
constexpr uint64_t with_process(int64_t process, int64_t id) {
  return static_cast<uint64_t>(process) << kCorrelationBits | (static_cast<uint64_t>(id) & kCorrelationMask);
}
// CUPTI's "no event" and "no stream".
constexpr int64_t kNoId = 0xFFFFFFFF;

// StringIds: texts by number, read once.
class Strings {
 public:
  // At most `bytes_max` bytes, which the file cannot hold more of. What is damaged is counted in `diagnostics`.
  void read(Connection& connection, const TableInfo& table, uint64_t bytes_max, Diagnostics& diagnostics);
  size_t size() const { return ends_.size(); }
  // Empty for numbers that are not there.
  std::string_view get(int64_t id) const;
  // Where a part may keep what it knows about a text; none if the number is not there.
  static constexpr size_t kNone = ~size_t{0};
  size_t place(int64_t id) const;

 private:
  std::string bytes_;
  std::vector<uint64_t> ends_;
  std::vector<uint32_t> places_;      // by id, for the small ids that exports have
  std::map<int64_t, uint32_t> rest_;  // larger ids
};

// GPUs of the file: one numbering for all processes. A GPU keeps the ordinal of the first process that names it, if it
// is free.
class Gpus {
 public:
  void add(int64_t process, int64_t cuda_ordinal, int64_t gpu);
  bool is_known() const { return !ordinals_.empty(); }
  // The trace's ordinal of what `process` calls `cuda_ordinal`.
  int32_t of(int64_t process, int64_t cuda_ordinal) const;
  // The same by the number that the export has for the GPU; -1 if no process uses it.
  int32_t of_gpu(int64_t gpu) const;

 private:
  std::map<std::pair<int64_t, int64_t>, int32_t> ordinals_;
  std::map<int64_t, int32_t> by_gpu_;
  std::map<int32_t, int64_t> taken_;
};

// A metric that gpu_samples has a column for.
struct Metric {
  int column = -1;  // among the float columns of GpuSamples
  bool clock = false;
};

// What all parts share; not changed while they are read.
struct Shared {
  const Strings* strings = nullptr;
  const Gpus* gpus = nullptr;
  std::map<std::pair<int64_t, int64_t>, Metric> metrics;  // by type and number; absent: not kept
  int64_t time_offset_ns = 0;                             // subtracted from every time
  // How many bytes of text rows may still give: all together not more than the file has.
  std::atomic<int64_t>* text_left = nullptr;
};

struct Part {
  Part() : builder(rows) {}
  Trace rows;
  TraceBuilder builder;

  struct Domain {
    int64_t process, domain;
    StringId name;
  };
  struct InDomain {
    Row annotation;
    int64_t process, domain;
  };
  struct EventRecord {  // an event was recorded on a stream
    int64_t process, event, event_sync, stream;
    int32_t device;
    uint64_t correlation;
  };
  struct EventWait {  // row of sync_events that waits for an event
    Row sync;
    int64_t process, event, event_sync;
  };
  std::vector<Domain> domains;
  std::vector<InDomain> in_domains;
  std::vector<Row> open_ranges;  // rows of annotations without an end
  std::vector<EventRecord> event_records;
  std::vector<EventWait> event_waits;
  std::vector<uint64_t> memory_correlations;                     // parallel to rows.memory_events
  std::map<std::pair<std::string, int64_t>, uint64_t> failures;  // calls by name and error
  std::map<int64_t, uint64_t> other_ranges;                      // NVTX events of types that are no ranges
  int64_t last_ns = INT64_MIN;
  std::string error;  // why reading ended before the table did
  int64_t read = 0;
};

// A table that is read in parts.
struct Source {
  const char* table;
  void (*read)(Connection&, const TableInfo&, const RowRange&, const Shared&, Part&);
};
// All of them.
const std::vector<Source>& sources();

}  // namespace llmprof::nsys
