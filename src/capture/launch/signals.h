// Signals of `llmprof run`: whatever would have reached the target without llmprof reaches it, exactly once.
//
// The target stays in llmprof's process group, so the terminal and its job control treat both alike. What is sent to
// the whole group (Ctrl-C, a hang-up, `kill -- -PGID`, batch systems) arrives at the target by itself and must not be
// passed on; what is sent to llmprof's process alone must be. The two cannot be told apart by looking at the signal, so
// a second process of the group, the witness, blocks all signals and sleeps: what is pending there went to the group.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>

namespace llmprof::launch {

class SignalRelay {
 public:
  // Blocks SIGCHLD and the signals to pass on, for this thread and all that it starts: make it before the first thread.
  // Signals that were ignored when llmprof started stay ignored, here and in the target.
  SignalRelay();
  // Gives every signal its old meaning back.
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  // For the child between fork and exec: the meanings and the mask that llmprof itself was started with.
  void restore_in_child() const;

  // Waits until a child changed its state, a signal came or the time is over. A signal that only llmprof got goes on to
  // `target` (unless that is 0, not started). True if a signal of the list below has arrived.
  bool wait(std::chrono::nanoseconds limit, pid_t target);

 private:
  void start_witness();
  void stop_witness();
  bool witness_has(int signal) const;

  sigset_t waited_{};  // SIGCHLD and the relayed
  sigset_t mask_before_{};
  struct sigaction child_signal_before_ {};
  pid_t witness_ = 0;
};

// Ignores SIGPIPE and SIGXFSZ, so that a reader that has seen enough and a limit on file sizes are errors of one write
// and not the end of llmprof; remembers what they were, because the target must not inherit that. Called first in
// main().
void ignore_write_signals();

}  // namespace llmprof::launch
