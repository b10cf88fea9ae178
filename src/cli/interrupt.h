// Ctrl-C as a flag, for commands that keep what they have measured.
#pragma once

#include <signal.h>

#include <atomic>

namespace llmprof::cli {

inline constexpr int kInterruptedExit = 130;  // as shells report a program that SIGINT ended

// While it lives, the first SIGINT or SIGTERM raises the flag; a second one ends the process as usual. Signals that
// were ignored stay ignored. One at a time. What runs when the signal comes is finished first, and that can take
// seconds: unless `quiet`, that is said at once on stderr.
class Interrupt {
 public:
  explicit Interrupt(bool quiet);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>& flag() const;

 private:
  struct sigaction int_before_ {
  }, term_before_{};
};

}  // namespace llmprof::cli
