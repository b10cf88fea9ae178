// Writes a spool (records.h). Built into libllmprof_inject.so, so: no exceptions, no allocation failure that is not
// handled, no output, nothing but libc; a full disk or a removed folder turns the writer off and is remembered in
// status(). Not thread-safe: whoever shares it locks.
//
// Blocks are written when they are full or when flush() is called; the owner calls flush() at least once a second, so a
// process that is killed loses at most that. Each block is decodable by itself but for definitions, which stand in
// earlier blocks, and carries its length and checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "capture/spool/records.h"

namespace llmprof::spool {

struct WriterStatus {
  bool open = false;
  int error = 0;               // errno that closed it, 0 if none
  uint64_t bytes_written = 0;  // in the file
  uint64_t records = 0;        // of every kind
  uint64_t lost_records = 0;   // added after it was closed by an error
};

class Writer {
 public:
  Writer();
  ~Writer();  // flushes and closes
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Creates the file; false (and status().error) if it cannot. `role`: "target", "nvml", "counters".
  bool open(const char* path, std::string_view role);

  // The id of a text, defined in the file the first time it is seen. At most kTextMax bytes are kept.
  Id text(std::string_view text);

  // The id of the definition with this content (the id member is ignored), written the first time it is seen.
  Id define(const ThreadDef& def);
  Id define(const StreamDef& def);
  Id define(const KernelDef& def);
  Id define(const ApiDef& def);
  Id define(const LibraryDef& def);
  Id define(const MetricSetDef& def);
  Id define(const ModuleDef& def);
  void add(const DeviceDef& record);

  void add(const Kernel& record);
  void add(const Memcpy& record);
  void add(const Memset& record);
  void add(const GraphLaunch& record);
  void add(const ApiCall& record);
  void add(const CallTarget& record);  // behind its ApiCall
  void add(const LaunchSite& record);
  void add(const Synchronization& record);
  void add(const Overhead& record);
  void add(const MemoryEvent& record);
  void add(const Range& record);
  void add(const RangeOpen& record);
  void add(const Mark& record);
  void add(const LibraryCall& record);
  void add(const Operands& record);  // behind its LibraryCall
  void add(const GraphNode& record);
  void add(const GraphEdge& record);
  void add(const NodePlace& record);
  void add(const RecurringCall& record);
  void add(const ProductRows& record);
  void add(const HostPlace& record);
  void add(const CpuReading& record);
  void add(const HostPace& record);
  void add(const ClockReading& record);
  void add(const LevelChange& record);
  void add(const Note& record);
  void add(const Fact& record);
  void add(const NvmlSample& record);
  void add(const GpuSample& record);  // only the first count values of its set are written

  // Writes what is buffered. Never syncs the disk.
  void flush();
  void close();
  // After fork, in the child: forgets the file without writing to it.
  void abandon();

  WriterStatus status() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

constexpr size_t kTextMax = 4096;

}  // namespace llmprof::spool
