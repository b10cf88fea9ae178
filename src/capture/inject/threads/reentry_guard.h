// What every detour from the program into the recorder keeps: errno, and that the recorder does not record itself.
#pragma once

#include <errno.h>

#include <string_view>

#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

// While it exists, events of the calling thread are not recorded (nested() tells a second one, for example in a signal
// handler: it must not take the spool's lock), and errno is put back at its end.
class ReentryGuard {
 public:
  ReentryGuard() : errno_(errno), nested_(thread_state.inside) { thread_state.inside = true; }
  ~ReentryGuard() {
    thread_state.inside = nested_;
    errno = errno_;
  }
  ReentryGuard(const ReentryGuard&) = delete;
  ReentryGuard& operator=(const ReentryGuard&) = delete;
  bool nested() const { return nested_; }

 private:
  int errno_;
  bool nested_;
};

// Copies a text into memory that is kept for the next one. False where there is no memory.
bool keep_text(WatchedText& kept, std::string_view text);

}  // namespace llmprof::inject
