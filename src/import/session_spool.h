// One spool file as tables of its own: rows, strings and device ordinals count within the file. Several files are read
// side by side; session_folder.cc joins them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/spool/layout.h"
#include "trace/trace.h"

namespace llmprof::session_importer {

struct SpoolTables {
  // Before reading.
  std::string name;  // for messages
  std::string bytes;
  spool::FileHead head;
  bool is_target = false;      // a watched process, not a sampler
  uint64_t process_index = 0;  // among the watched processes

  // After reading.
  Trace part;                                                 // devices.device, streams.device: the process's ordinals
  std::vector<StringId> gpu_sample_uuids, nvml_sample_uuids;  // parallel to part.gpu_samples, part.nvml_samples
  std::vector<std::pair<std::string, std::string>> facts;     // in the order of the file
  int64_t clock_offset_ns = 0;                                // largest between CUPTI's clock and CLOCK_REALTIME
  bool has_clock_offset = false;
};

// Fills the second half from the first; frees `bytes`. Times become relative to base_ns.
void read_spool(SpoolTables& file, int64_t base_ns);

// Makes an identifier of process number `process_index` distinct from equal ones of other processes; those of the first
// process stay as they are. 0 ("none") stays 0.
inline uint64_t qualified(uint64_t id, uint64_t process_index) { return id == 0 ? 0 : id ^ (process_index << 48); }

}  // namespace llmprof::session_importer
