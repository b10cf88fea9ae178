// Starting a program and learning how it ended.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/launch/signals.h"

namespace llmprof::launch {

// How a process ended.
struct Ending {
  std::optional<int> exit_status, signal;  // exactly one of them
  rusage usage{};
  // As shells give it: the status, or 128 + the signal.
  int exit_code() const { return signal ? 128 + *signal : exit_status.value_or(0); }
};

// Starts `path` with the words of `command`, this process's standard input, output and error, its working folder, and
// the signals that llmprof itself was started with. An error tells why exec failed, with exit code 127 or 126. Other
// descriptors take the place of standard error and output where they are given.
Result<pid_t> start_program(const std::string& path, const std::vector<std::string>& command,
                            const std::vector<std::string>& environment, const SignalRelay& signals, int error_to = -1,
                            int output_to = -1);

// Starts a helper of llmprof's own: the same binary with these arguments, in a process group of its own, so that the
// terminal's signals do not reach it, ended by the kernel when llmprof dies, with no input and its words in `log`. It
// inherits the descriptor `kept` under the same number, unless that is -1.
Result<pid_t> start_helper(const std::vector<std::string>& arguments, const std::string& log, int kept,
                           const SignalRelay& signals);

// A pipe whose ends no program inherits, closed with the object; an end given away or closed is set to -1.
struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() = default;
  ~Pipe() {
    close_end(read_end);
    close_end(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool open();  // false with errno set
  static void close_end(int& end);
};

// Collects the process if it has ended.
std::optional<Ending> collect(pid_t process);

}  // namespace llmprof::launch
