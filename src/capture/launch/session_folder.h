// The folder of a session (layout: session/control.h), its session.json, and the register of running sessions by which
// `llmprof ctl` finds one without being told where it is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llmprof::launch {

// Makes the folder with its subfolders spool/ and samples/, and the folders above it; gives its absolute path.
// `wanted` empty: llmprof-runs/SHORT-YYYYmmdd-HHMMSS[-NAME] under the current folder, with -2, -3 ... if that is taken.
// Errors: not empty, not a folder, not writable.
Result<std::string> create_session_folder(const std::string& wanted, const std::string& short_name,
                                          const std::string& name);

// What session.json says (schema llmprof.session/1). Written when the program starts, and again when it has ended.
struct SessionRecord {
  struct Gpu {
    std::string uuid, name, pci_bus;
  };
  std::vector<std::string> command;
  std::string program;  // the file that was executed
  std::string working_folder;
  std::string name;
  std::string mode;
  std::vector<std::pair<std::string, std::string>> options;  // those that differ from their defaults, as text
  int64_t start_unix_ns = 0;
  std::optional<int64_t> end_unix_ns;
  std::optional<pid_t> process_id;
  std::optional<int> exit_status, signal;  // how the program ended; neither while it runs
  std::optional<double> user_cpu_s, system_cpu_s;
  std::optional<int64_t> max_resident_bytes;
  std::vector<Gpu> gpus;             // as NVML lists them
  std::string baseline;              // session folder of the unprofiled twin, relative to this one; empty for none
  std::vector<std::string> notices;  // what was said on standard error when the session began and ended
};
Status write_session_file(const std::string& folder, const SessionRecord& record);

// Names of the GPUs that a session's description lists; none where it cannot be read.
std::vector<std::string> recorded_gpus(const std::string& folder);
// Their UUIDs.
std::vector<std::string> recorded_uuids(const std::string& folder);

// Entered in ${XDG_RUNTIME_DIR:-/tmp}/llmprof-UID/ for as long as the object lives. Never fails: without the entry,
// `ctl` has to be told the folder.
class RunningEntry {
 public:
  explicit RunningEntry(const std::string& session_folder);
  ~RunningEntry();
  RunningEntry(const RunningEntry&) = delete;
  RunningEntry& operator=(const RunningEntry&) = delete;

 private:
  std::string path_;
};

// Folders of the sessions of this user that are running now, newest first: from the register and from llmprof-runs/ in
// the current folder.
std::vector<std::string> running_sessions();

// Bytes of all recordings in the folder.
uint64_t recorded_bytes(const std::string& folder);

}  // namespace llmprof::launch
