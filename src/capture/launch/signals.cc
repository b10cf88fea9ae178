#include "capture/launch/signals.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace llmprof::launch {
namespace {

constexpr std::array kRelayed = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// A signal to a group is delivered to its processes one after the other: time for the last one to have it.
constexpr std::chrono::milliseconds kGroupDelivery(5);

constexpr std::array kWriteSignals = {SIGPIPE, SIGXFSZ};
std::array<struct sigaction, kWriteSignals.size()> write_signals_before;
bool write_signals_ignored = false;

timespec as_timespec(std::chrono::nanoseconds time) {
  const int64_t ns = time.count() > 0 ? time.count() : 0;
  timespec out{};
  out.tv_sec = ns / 1000000000;
  out.tv_nsec = ns % 1000000000;
  return out;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void ignore_write_signals() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (size_t i = 0; i < kWriteSignals.size(); ++i) sigaction(kWriteSignals[i], &ignore, &write_signals_before[i]);
  write_signals_ignored = true;
}

SignalRelay::SignalRelay() {
  sigemptyset(&waited_);
  sigaddset(&waited_, SIGCHLD);
  // Some parents leave SIGCHLD ignored, and then nobody could wait for the target.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &child_signal_before_);
  for (const int signal : kRelayed)
    if (!is_ignored(signal)) sigaddset(&waited_, signal);
  sigprocmask(SIG_BLOCK, &waited_, &mask_before_);
  start_witness();
}

SignalRelay::~SignalRelay() {
  stop_witness();
  // What ended the target may have reached us a moment later; it must not end us before the report is printed.
  const timespec none{};
  while (sigtimedwait(&waited_, nullptr, &none) > 0) continue;
  sigaction(SIGCHLD, &child_signal_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void SignalRelay::restore_in_child() const {
  sigaction(SIGCHLD, &child_signal_before_, nullptr);
  if (write_signals_ignored)
    for (size_t i = 0; i < kWriteSignals.size(); ++i) sigaction(kWriteSignals[i], &write_signals_before[i], nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void SignalRelay::start_witness() {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) {
    witness_ = child > 0 ? child : 0;
    return;
  }
  // Only calls that are allowed after fork in a process with threads. No descriptor may be kept: the reader of a pipe
  // that llmprof writes to must see its end.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "llmprof-signals");
  if (syscall(SYS_close_range, 0U, ~0U, 0U) != 0)
    for (int fd = 0; fd < 1024; ++fd) close(fd);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  if (getppid() != parent) _exit(0);
  while (true) pause();
}

void SignalRelay::stop_witness() {
  if (witness_ == 0) return;
  kill(witness_, SIGKILL);
  while (waitpid(witness_, nullptr, 0) < 0 && errno == EINTR) continue;
  witness_ = 0;
}

bool SignalRelay::witness_has(int signal) const {
  char path[64], text[8192];
  std::snprintf(path, sizeof path, "/proc/%d/status", witness_);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
  const char* line = std::strstr(text, "\nShdPnd:");
  if (line == nullptr) return false;
  const uint64_t pending = std::strtoull(line + std::strlen("\nShdPnd:"), nullptr, 16);
  return (pending >> (signal - 1) & 1) != 0;
}

bool SignalRelay::wait(std::chrono::nanoseconds limit, pid_t target) {
  const timespec time = as_timespec(limit);
  siginfo_t info{};
  const int signal = sigtimedwait(&waited_, &info, &time);
  if (signal <= 0 || signal == SIGCHLD) return false;
  const timespec delivery = as_timespec(kGroupDelivery);
  nanosleep(&delivery, nullptr);
  // The same signal sent to llmprof and then to its group (as `timeout` does) is one signal.
  sigset_t same;
  sigemptyset(&same);
  sigaddset(&same, signal);
  const timespec none{};
  while (sigtimedwait(&same, nullptr, &none) == signal) continue;
  const bool to_group = witness_ != 0 ? witness_has(signal) : info.si_code > 0;
  if (to_group && witness_ != 0) {
    stop_witness();
    start_witness();
  }
  if (!to_group && target > 0) kill(target, signal);
  return true;
}

}  // namespace llmprof::launch
