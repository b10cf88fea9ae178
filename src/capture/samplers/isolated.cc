#include "capture/samplers/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"

namespace llmprof::samplers {
namespace {

[[noreturn]] void run_child(const std::function<std::string()>& work, int answer) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // Libraries print on their own; the answer has its own pipe.
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  }
  // A sanitizer's or a debugger's handlers would report a crash that is expected here.
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(signal, SIG_DFL);
  const std::string text = work();
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(answer, text.data() + done, text.size() - done);
    if (written <= 0 && errno != EINTR) break;
    if (written > 0) done += static_cast<size_t>(written);
  }
  _exit(0);  // no exit handlers: they belong to the parent
}

// Reads to the end of the pipe; false if time ran out first.
bool read_all(int pipe, int64_t until_ns, std::string& text) {
  while (true) {
    const int64_t left_ms = (until_ns - monotonic_ns()) / 1000000;
    pollfd wait{pipe, POLLIN, 0};
    const int ready = left_ms > 0 ? poll(&wait, 1, static_cast<int>(left_ms)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char buffer[4096];
    const ssize_t got = read(pipe, buffer, sizeof buffer);
    if (got == 0) return true;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

IsolatedResult run_isolated(const std::function<std::string()>& work, int timeout_s) {
  IsolatedResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.trouble = std::string("could not be tried: ") + std::strerror(errno);
    return result;
  }
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    run_child(work, ends[1]);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    result.trouble = std::string("could not be tried: ") + std::strerror(errno);
    return result;
  }
  const bool in_time = read_all(ends[0], monotonic_ns() + int64_t{timeout_s} * 1000000000, result.text);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!in_time) {
    result.trouble = "gave no answer within " + std::to_string(timeout_s) + " s";
  } else if (WIFSIGNALED(status)) {
    result.trouble = "crashed (signal " + std::to_string(WTERMSIG(status)) + ", " + strsignal(WTERMSIG(status)) + ")";
  } else {
    result.finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!result.finished) result.trouble = "ended with code " + std::to_string(WEXITSTATUS(status));
  }
  return result;
}

}  // namespace llmprof::samplers
