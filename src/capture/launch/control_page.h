// The control page of a session (session/control.h), mapped: made by `llmprof run`, opened by `llmprof ctl`.
//
// What always holds: the page's blocks are on the disk before anybody maps it, so a full disk can never become a SIGBUS
// in the watched program. Whoever made the page holds a file lock on it for as long as it lives, also when it is killed
// without warning; that lock is how others tell a running session from a finished one.
#pragma once

#include <string>

#include "base/result.h"
#include "capture/session/control.h"
#include "capture/spool/records.h"

namespace llmprof::launch {

class ControlPage {
 public:
  // Makes FOLDER/control, locked. Errors name the file.
  static Result<ControlPage> create(const std::string& folder, spool::Level planned, spool::Level wanted);
  // Maps the page of an existing session. Errors: none there, damaged, of another version.
  static Result<ControlPage> open(const std::string& folder);

  ControlPage(ControlPage&& other) noexcept;
  ControlPage& operator=(ControlPage&& other) noexcept;
  ~ControlPage();

  session::Control* operator->() const { return page_; }
  session::Control& operator*() const { return *page_; }

  // Sets the level that every watched process is to record at, until `until_ns` of CLOCK_REALTIME (0: no end).
  void set_level(spool::Level level, int64_t until_ns = 0) const;
  spool::Level wanted() const;
  // Whether hardware counters are sampled while recording is wanted.
  void set_counters(session::Counters counters) const;

 private:
  ControlPage() = default;
  session::Control* page_ = nullptr;
  int fd_ = -1;
};

// Whether a `llmprof run` is alive behind the session in this folder.
bool session_is_running(const std::string& folder);

// What all watched processes have reported so far.
struct Progress {
  uint32_t processes = 0;  // that have a slot, ended ones included
  uint32_t alive = 0;      // of them, not ended
  uint64_t kernels = 0, bytes = 0;
};
Progress progress_of(const session::Control& control);

}  // namespace llmprof::launch
